//! The order of service: by rank, fair between the clients of a rank, and no rank below its floor.
//!
//! What is answered in which order is told by the log lines, and which is which by the length of its
//! path, which also says its rank: see [`Paths`](crate::handler::Paths).

use crate::harness::{BY_RANK, Running, Setup, get, listener, start_with};
use forebay_engine::accept::Listener;
use forebay_engine::ranks::Ranks;
use forebay_metrics::ClassSlot;
use forebay_sys::process::usable_cores;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Engines with a loop, which answers one request at a time and sees nothing else meanwhile.
const LOOPS: [&str; 2] = ["event", "fibers"];

/// Engines with a thread per connection, which answer as many at a time as there are cores.
const THREADS: [&str; 2] = ["threads", "pool"];

/// How many requests an engine answers at a time.
fn at_a_time(engine: &str) -> usize {
    if THREADS.contains(&engine) { usable_cores() } else { 1 }
}

/// An engine with three ranks with these shares; clients state who they are.
fn start(engine: &str, shares: [f64; 3], reserve: usize) -> Running {
    let slots = Arc::new([0, 1, 2].map(ClassSlot));
    let ranks = Ranks { shares: Arc::new(shares), slots, reserve, ..Ranks::default() };
    let mut setup = Setup { ranks: Some(ranks), trusts: true, ..Setup::default() };
    setup.listener = Some(Listener { proxy_protocol: true, ..listener() });
    start_with(&format!("{engine}{BY_RANK}"), setup)
}

/// A client who asks for all these paths at once.
fn ask(server: &Running, client: u8, paths: &[&str]) -> TcpStream {
    let mut stream = server.connect();
    let mut request = format!("PROXY TCP4 192.0.2.{client} 192.0.2.200 4711 80\r\n");
    paths.iter().for_each(|path| request += &get(path));
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// So many clients with requests of the last rank, who hold everybody who could answer.
fn hold_all(server: &Running, engine: &str, path: &str) -> Vec<TcpStream> {
    let held = (0..at_a_time(engine)).map(|_| ask(server, 1, &[path])).collect();
    server.gate.wait_for(at_a_time(engine));
    held
}

/// Until requests are there and can do nothing but wait to be answered.
fn wait_until_there(server: &Running, engine: &str, count: usize) {
    if !LOOPS.contains(&engine) {
        while server.admitted.load(Relaxed) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        // admitted, they go straight to where they wait
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Bytes of the bodies in the order of their answers.
fn answered(server: &Running, count: usize) -> Vec<u64> {
    (0..count).map(|_| server.lines.recv().unwrap().1).collect()
}

#[test]
fn a_high_rank_overtakes_and_clients_take_turns() {
    for engine in LOOPS.into_iter().chain(THREADS) {
        let server = start(engine, [0.0; 3], 0);
        let mut open = hold_all(&server, engine, "/hang");
        // rank 2 from client 2 three times, then from client 3, then ranks 1 and 0
        for (client, path) in [(2, 2), (2, 5), (2, 8), (3, 11), (4, 7), (5, 6), (5, 9), (6, 12)] {
            open.push(ask(&server, client, &[&format!("/{}", "a".repeat(path - 1))]));
        }
        wait_until_there(&server, engine, open.len());
        server.gate.let_one_pass();
        let order = answered(&server, 9);
        let is_in_turn = |group: &[u64], all: &[u64], other: u64| {
            let mut sorted = group.to_vec();
            sorted.sort_unstable();
            sorted == all && group[..2].contains(&other)
        };
        assert_eq!((order[0], order[4]), (5, 7), "{engine}: {order:?}");
        assert!(is_in_turn(&order[1..4], &[6, 9, 12], 12), "{engine}: {order:?}");
        assert!(is_in_turn(&order[5..], &[2, 5, 8, 11], 11), "{engine}: {order:?}");
        server.gate.open();
        drop(open);
        server.stop();
    }
}

#[test]
fn the_lowest_rank_has_its_share_while_others_want_all() {
    for engine in LOOPS.into_iter().chain(THREADS) {
        let server = start(engine, [0.0, 0.0, 0.25], 0);
        // a pipeline is many requests
        let mut settings = server.settings.get();
        settings.turn_requests = 1;
        server.settings.set(settings);
        let mut open = hold_all(&server, engine, "/hang");
        let held = open.len();
        for client in 0..4 * held as u8 {
            // every fourth is of rank 2, the others of rank 0
            let path = if client % 4 == 3 { "/spin" } else { "/spin0" };
            open.push(ask(&server, 2 + client, &[path; 300]));
        }
        wait_until_there(&server, engine, open.len());
        server.gate.open();
        let order = answered(&server, held + 300);
        let low = order[held..].iter().filter(|bytes| **bytes == 5).count();
        // 75 if all took the same time
        assert!((35..=150).contains(&low), "{engine}: {low} of 300");
        drop(open);
        server.stop();
    }
}

#[test]
fn a_reserve_is_there_while_low_ranks_hold_the_rest() {
    for engine in THREADS {
        let server = start(engine, [0.0, 0.2, 0.2], 1);
        let held = hold_all(&server, engine, "/hang");
        for path in ["/x1", "/abc"] {
            let mut client = ask(&server, 2, &[path]);
            client.read_exact(&mut [0; 15]).unwrap();
        }
        server.gate.open();
        drop(held);
        server.stop();
    }
}

#[test]
fn what_only_waits_keeps_nobody_from_answering() {
    for engine in THREADS {
        let server = start(engine, [0.0, 0.2, 0.2], 0);
        let many = 2 * at_a_time(engine);
        // jobs that block, and clients that take nothing
        let mut open: Vec<_> = (0..many).map(|_| ask(&server, 1, &["/wait"])).collect();
        server.gate.wait_for(many);
        open.extend((0..many).map(|_| {
            let mut slow = ask(&server, 1, &["/big"]);
            slow.read_exact(&mut [0; 15]).unwrap();
            slow
        }));
        let mut client = ask(&server, 2, &["/a"]);
        client.read_exact(&mut [0; 15]).unwrap();
        server.gate.open();
        drop(open);
        server.stop();
    }
}

#[test]
fn no_more_compute_at_a_time_than_there_are_cores_and_a_reserve() {
    for engine in THREADS {
        // without shares: a rank that is due keeps those above it from their reserve
        let server = start(engine, [0.0; 3], 1);
        let cores = at_a_time(engine);
        // after a job that blocks, in the turn in which its result is there
        let many = 2 * cores;
        let mut open: Vec<_> = (0..many).map(|_| ask(&server, 1, &["/wait", "/work"])).collect();
        server.gate.wait_for(many);
        (0..many).for_each(|_| server.gate.let_one_pass());
        server.gate.wait_for(many + cores);
        open.extend((0..many).map(|_| ask(&server, 1, &["/work"])));
        wait_until_there(&server, engine, many + open.len());
        assert_eq!(server.gate.came(), many + cores, "{engine}");
        open.extend((0..many).map(|_| ask(&server, 1, &["/work0"])));
        server.gate.wait_for(many + cores + 2);
        wait_until_there(&server, engine, many + open.len());
        assert_eq!(server.gate.came(), many + cores + 2, "{engine}: both reserves");
        server.gate.open();
        drop(open);
        server.stop();
    }
}
