//! The order of service: by rank, fair between the clients of a rank, and no rank below its floor.
//!
//! The length of a request's path tells which request it is, and its rank: see
//! [`Paths`](crate::handler::Paths).

use crate::harness::{
    BY_RANK, NEVER_FUSED, Running, Setup, get, listener, on, ran_apart, start_with,
};
use forebay_engine::accept::Listener;
use forebay_engine::ranks::{OrderSettings, Ranks};
use forebay_metrics::Gauge;
use forebay_metrics::{ClassSlot, Counter};
use forebay_sys::process::usable_cores;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Engines with a loop, which answers one request at a time and looks at nothing else meanwhile.
pub(crate) const LOOPS: [&str; 3] = ["event", "fibers", "pipeline"];

/// Engines with a thread per connection, which answer as many requests at a time as there are
/// cores.
pub(crate) const THREADS: [&str; 2] = ["threads", "pool"];

/// All engines; a pipeline whose phases are apart has one thread of process.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    on(LOOPS.into_iter().chain(THREADS).chain([NEVER_FUSED]))
}

/// The number of requests that an engine answers at a time, and of jobs that compute.
pub(crate) fn at_a_time(engine: &str) -> usize {
    if THREADS.contains(&engine) { usable_cores() } else { 1 }
}

/// Starts an engine with three ranks with these shares; clients are stated by a PROXY header.
pub(crate) fn start(engine: &str, shares: [f64; 3], reserve: usize) -> Running {
    let slots = Arc::new([0, 1, 2].map(ClassSlot));
    let shares = Arc::new(shares);
    let ranks = Ranks::new(&OrderSettings { shares, slots, reserve, ..OrderSettings::default() });
    let mut setup = Setup { ranks: Some(ranks), trusts: true, fixed: true, ..Setup::default() };
    setup.listener = Some(Listener { proxy_protocol: true, ..listener() });
    start_with(&format!("{engine}{BY_RANK}"), setup)
}

/// A client that asks for all these paths at once.
pub(crate) fn ask(server: &Running, client: u8, paths: &[&str]) -> TcpStream {
    let mut stream = server.connect();
    let mut request = format!("PROXY TCP4 192.0.2.{client} 192.0.2.200 4711 80\r\n");
    paths.iter().for_each(|path| request += &get(path));
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// A client that asks for this path through a proxy that all share.
fn ask_by_field(server: &Running, client: u8, path: &str) -> TcpStream {
    let request =
        get(path).replacen("\r\n", &format!("\r\nX-Forwarded-For: 192.0.2.{client}\r\n"), 1);
    let mut stream = server.connect();
    write!(stream, "PROXY TCP4 192.0.2.100 192.0.2.200 4711 80\r\n{request}").unwrap();
    stream
}

/// Has clients ask for this path, as many as hold every thread that could answer.
pub(crate) fn hold_all(server: &Running, engine: &str, path: &str) -> Vec<TcpStream> {
    let held = (0..at_a_time(engine)).map(|_| ask(server, 1, &[path])).collect();
    server.gate.wait_for(at_a_time(engine));
    held
}

/// Waits until this many requests are there and can only wait.
pub(crate) fn wait_until_there(server: &Running, count: usize) {
    while server.books.admitted.load(Relaxed) < count {
        std::thread::sleep(Duration::from_millis(1));
    }
    // admitted requests go straight to where they wait
    server.calm();
}

/// Does the same as [`wait_until_there`]; where a loop is held, the requests are only with the
/// kernel.
fn wait_until_near(server: &Running, engine: &str, count: usize) {
    if LOOPS.contains(&engine) { server.calm() } else { wait_until_there(server, count) }
}

/// The lengths of the paths of the first `count` requests, in the order of the answers.
fn answered(server: &Running, count: usize) -> Vec<usize> {
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let answered = server.books.answered.lock().unwrap();
        if answered.len() >= count {
            return answered[..count].to_vec();
        }
    }
}

/// Whether these bodies are all of this group, and that of the other client is among the first two.
fn is_in_turn(group: &[usize], all: &[usize], other: usize) -> bool {
    let mut sorted = group.to_vec();
    sorted.sort_unstable();
    sorted == all && group[..2].contains(&other)
}

/// Asserts that rank 0 comes first, then rank 1 with paths of 6 and 9 bytes from one client and 12
/// from another in turn, then rank 2 with `low`, of which `other` is another client's. Clients are
/// spread over queues at random, and two share one by chance once in a few hundred times, so three
/// runs in a row must fail.
fn assert_in_turn(engine: &str, low: &[usize], other: usize, run: impl Fn() -> Vec<usize>) {
    let mut orders = Vec::new();
    for _ in 0..3 {
        let order = run();
        assert_eq!((order[0], order[4]), (5, 7), "{engine}: {order:?}");
        if is_in_turn(&order[1..4], &[6, 9, 12], 12) && is_in_turn(&order[5..], low, other) {
            return;
        }
        orders.push(order);
    }
    panic!("{engine}: {orders:?}");
}

#[test]
fn a_high_rank_overtakes_and_clients_take_turns() {
    if ran_apart() {
        return;
    }
    let order = |engine: &str, by_field: bool| {
        let server = start(engine, [0.0; 3], 0);
        let mut open = hold_all(&server, engine, "/hang");
        // rank 2 from client 2 three times, then from client 3, then ranks 1 and 0
        for (client, path) in [(2, 2), (2, 5), (2, 8), (3, 11), (4, 7), (5, 6), (5, 9), (6, 12)] {
            let path = format!("/{}", "a".repeat(path - 1));
            open.push(match by_field {
                true => ask_by_field(&server, client, &path),
                false => ask(&server, client, &[&path]),
            });
        }
        wait_until_near(&server, engine, open.len());
        server.gate.let_one_pass();
        let order = answered(&server, 9);
        server.gate.open();
        drop(open);
        server.stop();
        order
    };
    for (engine, by_field) in all().flat_map(|engine| [(engine, false), (engine, true)]) {
        assert_in_turn(engine, &[2, 5, 8, 11], 11, || order(engine, by_field));
    }
}

#[test]
fn jobs_that_block_are_done_by_rank_in_a_pipeline() {
    if ran_apart() {
        return;
    }
    let order = |engine: &str| {
        let server = start(engine, [0.0; 3], 0);
        let mut open = hold_all(&server, engine, "/wait");
        for (client, path) in [(2, 8), (2, 11), (2, 17), (3, 14), (4, 7), (5, 6), (5, 9), (6, 12)] {
            open.push(ask(&server, client, &[&format!("/wait{}", "a".repeat(path - 5))]));
        }
        while server.gauge(Gauge::ProcessWaiting) < 8 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.gate.open();
        let order = answered(&server, 9);
        drop(open);
        server.stop();
        order
    };
    for engine in ["pipeline", NEVER_FUSED] {
        assert_in_turn(engine, &[8, 11, 14, 17], 14, || order(engine));
    }
}

/// The number of answers of rank 2 among the first 300, while rank 0 wants all of them too.
fn answers_of_the_lowest(engine: &str) -> usize {
    let server = start(engine, [0.0, 0.0, 0.25], 0);
    // each request of a pipeline of requests needs a turn
    let mut settings = server.settings.get();
    settings.turn_requests = 1;
    server.settings.replace(settings);
    // of rank 0, so that the last rank has nothing to pay for it
    let mut open = hold_all(&server, engine, "/hang0");
    let held = open.len();
    for client in 0..4 * held as u8 {
        // every fourth client is of rank 2, the others of rank 0
        let path = if client % 4 == 3 { "/spin" } else { "/spin0" };
        open.push(ask(&server, 2 + client, &[path; 300]));
    }
    wait_until_near(&server, engine, open.len());
    server.gate.open();
    let order = answered(&server, held + 300);
    drop(open);
    server.stop();
    order[held..].iter().filter(|length| **length == 5).count()
}

/// The number would be 75 if all answers took the same time. Time is what is shared: a thread that
/// loses its core in the middle of an answer pays for it with many turns. So runs may be spoiled,
/// and the median of three counts; on a busy machine that of seven or of fifteen.
#[test]
fn the_lowest_rank_has_its_share_while_others_want_all() {
    if ran_apart() {
        return;
    }
    for engine in all() {
        let mut low = Vec::new();
        let has_its_share = [3, 7, 15].into_iter().any(|runs| {
            low.extend((low.len()..runs).map(|_| answers_of_the_lowest(engine)));
            low.sort_unstable();
            (35..=150).contains(&low[runs / 2])
        });
        assert!(has_its_share, "{engine}: {low:?} of 300");
    }
}

#[test]
fn shares_change_while_requests_wait_for_them() {
    if ran_apart() {
        return;
    }
    const STRICT: [f64; 3] = [0.0; 3];
    const WITH_FLOOR: [f64; 3] = [0.0, 0.0, 0.25];
    let order = |engine: &str, before: [f64; 3], after: [f64; 3]| {
        let server = start(engine, before, 0);
        let mut open = hold_all(&server, engine, "/hang0");
        // three of rank 0, then one of rank 2
        for (client, path) in [(2, "/aa"), (3, "/aa"), (4, "/aa"), (5, "/a")] {
            open.push(ask(&server, client, &[path]));
        }
        wait_until_near(&server, engine, open.len());
        let (shares, slots) = (Arc::new(after), Arc::new([0, 1, 2].map(ClassSlot)));
        server.ranks.set(&OrderSettings { shares, slots, reserve: 0, ..OrderSettings::default() });
        server.gate.let_one_pass();
        let order = answered(&server, 5);
        server.gate.open();
        drop(open);
        server.stop();
        order
    };
    for engine in all() {
        // the time of its service is not known, so a rank that has a share is due at once
        assert_eq!(order(engine, STRICT, WITH_FLOOR), [6, 2, 3, 3, 3], "{engine}");
        assert_eq!(order(engine, WITH_FLOOR, STRICT), [6, 3, 3, 3, 2], "{engine}");
    }
}

#[test]
fn a_reserve_is_there_while_low_ranks_hold_the_rest() {
    if ran_apart() {
        return;
    }
    for engine in on(THREADS.into_iter().chain([NEVER_FUSED])) {
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
    if ran_apart() {
        return;
    }
    for engine in on(THREADS) {
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
    if ran_apart() {
        return;
    }
    for engine in all() {
        // without shares, as a rank that is due keeps those above it from their reserve
        let server = start(engine, [0.0; 3], 1);
        let most = at_a_time(engine);
        let mut open: Vec<_> = (0..2 * most).map(|_| ask(&server, 1, &["/work"])).collect();
        server.gate.wait_for(most);
        wait_until_there(&server, open.len());
        assert_eq!(server.gate.came(), most, "{engine}");
        open.extend((0..2 * most).map(|_| ask(&server, 1, &["/work0"])));
        server.gate.wait_for(most + 2);
        wait_until_there(&server, open.len());
        assert_eq!(server.gate.came(), most + 2, "{engine}: both reserves");
        server.gate.open();
        drop(open);
        server.stop();
    }
}

/// A client that has asked for this path and got its answer.
fn idle(server: &Running, rank: u8, path: &str) -> TcpStream {
    server.books.newcomers.store(rank, Relaxed);
    let mut stream = server.connect();
    stream.write_all(get(path).as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(path.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    // until the server knows that it is idle
    server.calm();
    stream
}

#[test]
fn the_lowest_idle_connection_makes_room() {
    if ran_apart() {
        return;
    }
    for engine in on(["event", "fibers", "pipeline", NEVER_FUSED]) {
        let setup = Setup { most: 3, per_client: 3, ..Setup::default() };
        let server = start_with(&format!("{engine}{BY_RANK}"), setup);
        let is_cut = |mut stream: TcpStream| assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
        let first = idle(&server, 0, "/ab");
        let second = idle(&server, 0, "/abc");
        let third = idle(&server, 0, "/abcd");
        // for one of the same rank, then for one of a higher
        let fourth = idle(&server, 2, "/abcd");
        is_cut(third);
        let fifth = idle(&server, 1, "/abc");
        is_cut(fourth);
        // not for one of a lower rank
        server.books.newcomers.store(2, Relaxed);
        let answer = server.exchange(&get("/abcd"));
        assert!(answer.starts_with("HTTP/1.1 503"), "{engine}: {answer}");
        let sixth = idle(&server, 0, "/abc");
        is_cut(second);
        // no connection of its own rank that has asked for something
        for mut stream in [&first, &fifth, &sixth] {
            stream.write_all(get("/wait").as_bytes()).unwrap();
        }
        server.gate.wait_for(1);
        wait_until_there(&server, 9);
        server.books.newcomers.store(1, Relaxed);
        let answer = server.exchange(&get("/ab"));
        assert!(answer.starts_with("HTTP/1.1 503"), "{engine}: {answer}");
        assert_eq!(server.get(Counter::MadeRoom), 3, "{engine}");
        // unless its rank is lower: of these the fifth
        server.books.newcomers.store(0, Relaxed);
        let answer = server.exchange(&get("/ab"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{engine}: {answer}");
        assert_eq!(server.get(Counter::MadeRoom), 4, "{engine}");
        server.gate.open();
        drop((first, fifth, sixth));
        server.stop();
    }
}

#[test]
fn what_computes_after_a_wait_needs_a_permit_too() {
    if ran_apart() {
        return;
    }
    for engine in on(THREADS) {
        let server = start(engine, [0.0; 3], 0);
        let (many, most) = (2 * at_a_time(engine), at_a_time(engine));
        // in the turn in which the result of a job that blocks is there
        let open: Vec<_> = (0..many).map(|_| ask(&server, 1, &["/wait", "/work"])).collect();
        server.gate.wait_for(many);
        (0..many).for_each(|_| server.gate.let_one_pass());
        server.gate.wait_for(many + most);
        wait_until_there(&server, 2 * many);
        assert_eq!(server.gate.came(), many + most, "{engine}");
        server.gate.open();
        drop(open);
        server.stop();
    }
}
