//! `[stages]` behind each engine: whatever engine accepts, answers are those of a server without stages,
//! and a process may end or hang while requests are under way.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::isolated::{UNHURRIED, get, signal, site, stage, start, told};
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Server, on_each_engine};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

on_each_engine! {
    answers_are_those_of_a_server_without_stages,
    no_request_is_lost_with_a_process,
    a_process_that_hangs_is_left_out,
    an_engine_is_replaced_by_a_reload,
}

const TWO: &str = "stages.process = 2\nstages.respond = 2\n";

fn answers_are_those_of_a_server_without_stages(engine: &str) {
    let folder = site();
    let one = start(&folder, engine, "");
    let many =
        start(&folder, engine, &format!("{TWO}{}", UNHURRIED.replace("isolated.", "stages.")));
    for begin in [
        "GET / ",
        "HEAD / ",
        "GET /sub ",
        "GET /app/a.txt ",
        "GET /old/x%20y?q=1 ",
        "GET /nothing ",
        "GET /closed/a.txt ",
        "GET /secret/a.txt ",
        "OPTIONS / ",
        "BREW / ",
    ] {
        let request = format!("{begin}HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        let [one, many] = [&one, &many].map(|server| told(&server.exchange(request.as_bytes())));
        assert_eq!(one, many, "{engine}: {request}");
    }
    let post = b"POST /a.txt HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(told(&one.exchange(post)), told(&many.exchange(post)), "{engine}");
}

/// Clients ask while `trouble` lasts, and each gets its right answer.
fn under_load(server: &Server, trouble: impl FnOnce()) -> usize {
    let (addr, over, count) = (server.addr(), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let answer = get(addr, "/sub/a.txt");
                    let said = String::from_utf8_lossy(&answer);
                    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with("\r\na"), "{said}");
                    count.fetch_add(1, Relaxed);
                }
            });
        }
        trouble();
        let before = count.load(Relaxed);
        let goes_on = soon(PATIENCE, || count.load(Relaxed) >= before + 8);
        over.store(true, Relaxed);
        assert!(goes_on, "{}", server.stderr());
    });
    count.into_inner()
}

fn no_request_is_lost_with_a_process(engine: &str) {
    let folder = site();
    let server = start(&folder, engine, TWO);
    under_load(&server, || {
        for name in ["respond 1", "process 1", "respond 2", "process 2"] {
            let pid = stage(&server, name, 0);
            signal(pid, Signal::KILL);
            stage(&server, name, pid);
        }
    });
}

fn a_process_that_hangs_is_left_out(engine: &str) {
    let folder = site();
    let more = "stages.acknowledge_floor = \"200ms\"\nstages.acknowledge_ceiling = \"1s\"\n";
    let server = start(&folder, engine, &format!("{TWO}{more}"));
    for name in ["respond 1", "process 1"] {
        let pid = stage(&server, name, 0);
        under_load(&server, || freeze(pid));
        signal(pid, Signal::CONT);
    }
}

/// All stages are started anew, so the acceptor may have another engine.
fn an_engine_is_replaced_by_a_reload(engine: &str) {
    let folder = site();
    let server = start(&folder, engine, TWO);
    let other = if engine == "event" { "fibers" } else { "event" };
    let text = std::fs::read_to_string(server.file()).unwrap();
    let (word, of) = (engine.split(':').next().unwrap(), "engine = ");
    let next = text.replace(&format!("{of}{word:?}"), &format!("{of}{other:?}"));
    assert_ne!(text, next);
    under_load(&server, || {
        server.configure_with(&next);
        let (code, said) = server.reload();
        assert_eq!(code, Some(0), "{engine}: {said}");
    });
}
