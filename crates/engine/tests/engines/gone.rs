//! Clients that leave while their requests wait: no work is done for them.

use crate::harness::{
    NEVER_FUSED, PATIENCE, Running, Setup, get, on, on_each, ran_apart, start_with,
};
use crate::ranks::{LOOPS, THREADS, all, ask, at_a_time, hold_all, start, wait_until_there};
use forebay_metrics::Counter;
use forebay_sys::socket::reset_on_close;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The number of clients that leave.
const MANY: usize = 12;

fn leave(clients: Vec<TcpStream>) {
    clients.iter().for_each(|client| reset_on_close(client.as_fd()));
}

/// Has clients ask for this path, all behind those that hold every thread, and leave.
fn leave_while_waiting(server: &Running, path: &str) {
    let before = server.books.admitted.load(Relaxed);
    let waiting = (0..MANY).map(|_| ask(server, 2, &[path])).collect();
    wait_until_there(server, before + MANY);
    leave(waiting);
}

fn wait_until_given_up(server: &Running, count: usize) {
    let began = Instant::now();
    while server.get(Counter::GivenUp) < count as u64 {
        let given_up = server.get(Counter::GivenUp);
        assert!(began.elapsed() < PATIENCE, "{given_up} of {count} given up");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_answered(mut client: TcpStream) {
    let mut status = [0; 15];
    client.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200 OK");
}

/// The gate is shut all the while: no client's turn comes before it is known to have left.
#[test]
fn nobody_computes_for_a_client_who_has_left() {
    if ran_apart() {
        return;
    }
    for engine in all() {
        let server = start(engine, [0.0; 3], 0);
        let held = hold_all(&server, engine, "/work");
        leave_while_waiting(&server, "/work");
        wait_until_given_up(&server, MANY);
        let live = ask(&server, 3, &["/work"]);
        server.gate.open();
        is_answered(live);
        held.into_iter().for_each(is_answered);
        assert_eq!(server.gate.came(), at_a_time(engine) + 1, "{engine}");
        assert_eq!(server.get(Counter::GivenUp), MANY as u64, "{engine}");
        server.stop();
    }
}

#[test]
fn nobody_reads_files_for_a_client_who_has_left() {
    if ran_apart() {
        return;
    }
    for engine in on(LOOPS.into_iter().chain([NEVER_FUSED])) {
        let server = start(engine, [0.0; 3], 0);
        // as many as these engines have threads for such jobs
        let held: Vec<_> = (0..2).map(|_| ask(&server, 1, &["/wait"])).collect();
        wait_until_there(&server, 2);
        let held_jobs = server.gate.came();
        leave_while_waiting(&server, "/wait");
        match engine {
            // this engine looks when a turn comes, and the kernel must know by then
            NEVER_FUSED => server.calm(),
            _ => wait_until_given_up(&server, MANY),
        }
        let live = ask(&server, 3, &["/wait"]);
        server.gate.open();
        is_answered(live);
        held.into_iter().for_each(is_answered);
        wait_until_given_up(&server, MANY);
        assert!((1..=2).contains(&held_jobs), "{engine}: {held_jobs}");
        assert_eq!(server.gate.came(), 3, "{engine}");
        server.stop();
    }
}

#[test]
fn a_thread_answers_nobody_who_has_left() {
    if ran_apart() {
        return;
    }
    for engine in on(THREADS) {
        let server = start(engine, [0.0; 3], 0);
        let held = hold_all(&server, engine, "/hang");
        leave_while_waiting(&server, "/hang");
        wait_until_given_up(&server, MANY);
        server.gate.open();
        held.into_iter().for_each(is_answered);
        assert_eq!(server.gate.came(), at_a_time(engine), "{engine}");
        server.stop();
    }
}

#[test]
fn who_leaves_before_the_moment_has_come_is_not_answered() {
    on_each(|engine| {
        let server = crate::harness::start(engine, |_| {});
        let mut client = server.connect();
        client.write_all(get("/much-later").as_bytes()).unwrap();
        while server.books.admitted.load(Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        leave(vec![client]);
        wait_until_given_up(&server, 1);
        let books = server.books.clone();
        server.stop();
        assert!(books.answered.lock().unwrap().is_empty(), "{engine}");
    });
}

#[test]
fn who_leaves_before_a_thread_of_the_pool_is_free_gets_no_job() {
    if ran_apart() {
        return;
    }
    let server = start_with("pool", Setup { pool: 1, ..Setup::default() });
    let ask = || {
        let mut client = server.connect();
        client.write_all(get("/work").as_bytes()).unwrap();
        client
    };
    let held = ask();
    server.gate.wait_for(1);
    let waiting = (0..MANY).map(|_| ask()).collect();
    // a reset that overtakes the request would leave nothing to be accepted
    server.delivered();
    leave(waiting);
    let live = ask();
    server.calm();
    server.gate.open();
    is_answered(held);
    is_answered(live);
    assert_eq!(server.gate.came(), 2);
    assert_eq!(server.get(Counter::GivenUp), MANY as u64);
    server.stop();
}

/// RFC 9112 §9.6 lets a client end its direction and wait for the answer.
#[test]
fn who_only_says_no_more_is_answered() {
    if ran_apart() {
        return;
    }
    for engine in all() {
        let server = start(engine, [0.0; 3], 0);
        let held = hold_all(&server, engine, "/work");
        let live = ask(&server, 2, &["/work"]);
        live.shutdown(Shutdown::Write).unwrap();
        wait_until_there(&server, held.len() + 1);
        server.gate.open();
        is_answered(live);
        assert_eq!(server.get(Counter::GivenUp), 0, "{engine}");
        drop(held);
        server.stop();
    }
}

/// The client gets an answer that says so, and the job is of no use any more.
#[test]
fn a_job_that_is_late_is_not_begun() {
    if ran_apart() {
        return;
    }
    for engine in all() {
        let server = start(engine, [0.0; 3], 0);
        let held = hold_all(&server, engine, "/work");
        let mut settings = server.settings.get();
        settings.timeouts.job_ms = 300;
        server.settings.replace(settings);
        let mut late = ask(&server, 2, &["/work"]);
        let mut answer = String::new();
        late.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{engine}: {answer}");
        server.gate.open();
        drop(held);
        let books = (server.gate.clone(), server.get(Counter::GivenUp));
        server.stop();
        assert_eq!((books.0.came(), books.1), (at_a_time(engine), 0), "{engine}");
    }
}
