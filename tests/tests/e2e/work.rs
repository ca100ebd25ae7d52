//! The handler `work`: it costs what the query asks for, on a helper and never on a loop.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::{Answer, Client};
use forebay_tests::faults::process::{peak_kib, processor_time, resident_kib, threads};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options};
use std::io::Write;
use std::time::Duration;

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "index");
    folder
}

fn serve(folder: &Folder, engine: &str, config: &str) -> WatchedServer {
    let config = format!("{config}\n[[work]]\npath = \"/work\"");
    WatchedServer::with(Options::new(folder.join("site")).engine(engine).config(&config))
}

/// A client with a long patience, since a busy machine has little CPU time to give.
fn client(served: &WatchedServer) -> Client {
    served.client().patience(Duration::from_secs(60))
}

fn get(served: &WatchedServer, path: &str) -> Answer {
    client(served).get(path).unwrap()
}

#[test]
fn it_answers_with_what_the_query_says() {
    let folder = site();
    for engine in ENGINES {
        let served = serve(&folder, engine, "");
        for bytes in [0, 1, 4096, 16 << 10, (16 << 10) + 1, 3 << 20] {
            let answer = get(&served, &format!("/work?out={bytes}"));
            assert_eq!((answer.status, answer.body.len()), (200, bytes), "{engine}");
            assert_eq!(answer.field("Cache-Control"), Some("no-store"));
        }
        let mut client = served.client();
        client.stream().write_all(b"HEAD /work?out=1MiB HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(client.head().unwrap().contains("Content-Length: 1048576\r\n"));
        assert_eq!(client.get("/").unwrap().body, b"index", "the connection goes on");
        let wrong = get(&served, "/work?cpu=11s");
        assert_eq!(wrong.status, 400);
        let text = String::from_utf8(wrong.body).unwrap();
        assert!(text.contains("cpu is at most 10s"), "{text}");
    }
}

/// The process's own clock for CPU time agrees with the answer.
#[test]
fn it_burns_as_much_cpu_time_as_it_says() {
    let folder = site();
    let served = serve(&folder, ENGINES[0], "");
    get(&served, "/work");
    let before = processor_time(served.pid());
    let answer = get(&served, "/work?cpu=500ms");
    let used = processor_time(served.pid()) - before;
    let said = answer.field("Server-Timing").unwrap();
    let said_ms: f64 = said.strip_prefix("cpu;dur=").unwrap().parse().unwrap();
    assert!(said_ms >= 500.0, "{said}");
    // the process's clock counts in hundredths of a second, and other threads use some time, too
    let used_ms = used.as_secs_f64() * 1000.0;
    assert!((said_ms - 20.0..said_ms + 400.0).contains(&used_ms), "{used:?}, {said}");
}

#[test]
fn it_touches_as_much_memory_as_it_says() {
    let folder = site();
    let served = serve(&folder, ENGINES[0], "");
    get(&served, "/work");
    let before = peak_kib(served.pid());
    assert_eq!(get(&served, "/work?mem=200MiB").status, 200);
    let peak = peak_kib(served.pid());
    assert!(peak - before >= 190 << 10, "{before} KiB before, {peak} KiB at most");
    let is_given_back = || resident_kib(served.pid()) < before + (190 << 10);
    assert!(soon(PATIENCE, is_given_back), "and gives it back");
}

/// As many jobs run at a time as there are cores, so that files find a helper thread; the loop answers
/// meanwhile. (An idle helper stays for ten seconds, so helpers can be counted. How many a file needs is
/// chance: one that has just ended a job may not be seen to be free yet.)
#[test]
fn it_never_holds_the_loop_and_leaves_helpers_to_files() {
    let folder = site();
    let cores = std::thread::available_parallelism().unwrap().get();
    let config = format!("helpers.threads = {}\n[[work]]\npath = \"/work\"", 2 * cores + 8);
    let options = Options { workers: 1, ..Options::new(folder.join("site")) };
    let served = WatchedServer::with(options.config(&config));
    let mut at_work: Vec<Client> = (0..2 * cores + 8).map(|_| client(&served)).collect();
    for client in &mut at_work {
        assert!(client.ask("/work?cpu=100ms"));
    }
    assert_eq!(get(&served, "/work?cpu=11s").status, 400, "the loop answers");
    assert_eq!(get(&served, "/index.html").status, 200, "a file that no cache has");
    for client in &mut at_work {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let names = threads(served.pid()).into_values();
    let computing = names.filter(|name| name.starts_with("compute-")).count();
    assert!((1..=cores).contains(&computing), "{computing} threads that compute");
}

#[test]
fn it_is_off_unless_configured() {
    let folder = site();
    let served = WatchedServer::with(Options::new(folder.join("site")).config("hidden = false"));
    assert_eq!(get(&served, "/work?cpu=1ms").status, 404);
}
