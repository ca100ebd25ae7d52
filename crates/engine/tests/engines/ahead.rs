//! Connections that wait for a thread: the order in which they get one, and what becomes of them in
//! the end.

use crate::harness::{
    NEVER_FUSED, PATIENCE, Running, Setup, calm, delivered, get, listener, on, ran_apart,
    start_with,
};
use crate::ranks::{LOOPS, THREADS};
use forebay_conn::Rank;
use forebay_engine::accept::Listener;
use forebay_engine::control::LoopOrder;
use forebay_engine::ranks::{OrderSettings, Ranks};
use forebay_metrics::{ClassSlot, Counter, Gauge};
use forebay_sys::socket::reset_on_close;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Starts an engine with one thread, which accepts `ahead` connections ahead. A client may have
/// one.
fn start(engine: &str, shares: [f64; 3], ahead: usize) -> Running {
    let slots = Arc::new([0, 1, 2].map(ClassSlot));
    let shares = Arc::new(shares);
    let ranks =
        Ranks::new(&OrderSettings { shares, slots, reserve: 0, ..OrderSettings::default() });
    start_with(
        engine,
        Setup {
            pool: 1,
            threads: 1,
            answering: 1,
            ahead,
            per_client: 1,
            ranks: Some(ranks),
            ..Setup::default()
        },
    )
}

/// A client that wants one answer, with a path of this many bytes.
fn ask(server: &Running, length: usize) -> TcpStream {
    let mut stream = server.connect();
    let path = format!("/{}", "a".repeat(length - 1));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

/// A client that holds the only thread.
fn hold(server: &Running) -> TcpStream {
    let mut stream = server.connect();
    let request = "GET /hang HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    server.gate.wait_for(1);
    stream
}

/// Sets the ranks of new connections, in the order in which they come.
fn expect(server: &Running, ranks: impl IntoIterator<Item = u8>) {
    server.books.next_newcomers.lock().unwrap().extend(ranks);
}

fn read(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Opens the gate, and reads all answers. Returns the lengths of the clients' paths in the order of
/// the answers.
fn answered(engine: &str, server: Running, held: TcpStream, clients: Vec<TcpStream>) -> Vec<usize> {
    server.gate.open();
    for client in [held].into_iter().chain(clients) {
        let answer = read(client);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{engine}: {answer}");
    }
    let answered = server.books.answered.lock().unwrap().clone();
    server.stop();
    answered[1..].to_vec()
}

/// Connects clients of these ranks while the only thread is held. Returns the ranks in the order of
/// the answers.
fn order(engine: &str, shares: [f64; 3], ahead: usize, ranks: &[u8]) -> Vec<usize> {
    let server = start(engine, shares, ahead);
    let held = hold(&server);
    expect(&server, ranks.iter().copied());
    let come = |rank: &u8| {
        let client = ask(&server, 10 + usize::from(*rank));
        // the next client connects after this one
        server.delivered();
        client
    };
    let clients: Vec<_> = ranks.iter().map(come).collect();
    let lengths = answered(engine, server, held, clients);
    lengths.into_iter().map(|length| length - 10).collect()
}

#[test]
fn the_next_free_thread_serves_the_first_class() {
    let ranks = [[2; 12].as_slice(), &[0; 3]].concat();
    for engine in on(THREADS) {
        let expected = [[0; 3].as_slice(), &[2; 12]].concat();
        assert_eq!(order(engine, [0.0; 3], 64, &ranks), expected, "{engine}");
        // the thirteenth is seen when nine have left four places
        let expected = [[2; 9].as_slice(), &[0; 3], &[2; 3]].concat();
        assert_eq!(order(engine, [0.0; 3], 4, &ranks), expected, "{engine}, four ahead");
        let as_they_come: Vec<usize> = ranks.iter().map(|rank| usize::from(*rank)).collect();
        assert_eq!(order(engine, [0.0; 3], 0, &ranks), as_they_come, "{engine}, none ahead");
    }
}

/// A connection that waits for a thread takes no place that another one needs to be let in.
#[test]
fn what_waits_for_a_thread_makes_nobody_be_refused() {
    for engine in on(THREADS) {
        let ranks = Ranks::new(&OrderSettings {
            shares: Arc::new([0.0; 3]),
            slots: Arc::new([0, 1, 2].map(ClassSlot)),
            reserve: 0,
            ..OrderSettings::default()
        });
        let (most, per_client, ranks) = (4, 4, Some(ranks));
        let limits = Setup { most, per_client, ranks, ..Setup::default() };
        let server = start_with(engine, Setup { pool: 1, threads: 1, answering: 1, ..limits });
        let held = hold(&server);
        expect(&server, [[2; 12].as_slice(), &[0; 3]].concat());
        let clients: Vec<_> = (0..15).map(|_| ask(&server, 10)).collect();
        answered(engine, server, held, clients);
    }
}

/// Starts an engine with this many threads, or one that does one thing at a time, with a listener
/// for all ranks and one for each of three. The path gives the rank: its length is 12, 13 or 14.
fn start_ranked(engine: &str, shares: [f64; 3], threads: usize) -> (Running, [SocketAddr; 3]) {
    let slots = Arc::new([0, 1, 2].map(ClassSlot));
    let shares = Arc::new(shares);
    let ranks =
        Ranks::new(&OrderSettings { shares, slots, reserve: 0, ..OrderSettings::default() });
    let more = [0, 1, 2].map(|rank| Listener { rank: Some(Rank(rank)), ..listener() });
    let addresses = [&more[0], &more[1], &more[2]].map(|listener| listener.local);
    let setup = Setup {
        pool: threads,
        threads,
        answering: threads,
        fixed: true,
        ranks: Some(ranks),
        more: more.into(),
        ..Setup::default()
    };
    (start_with(engine, setup), addresses)
}

/// Connects clients to the listeners of these ranks while nothing is done. Returns the ranks in the
/// order of the answers.
fn order_of_ranks(engine: &str, shares: [f64; 3], ranks: &[usize]) -> Vec<usize> {
    let (server, addresses) = start_ranked(engine, shares, 1);
    let held = hold(&server);
    let clients = come_to(&server, engine, &addresses, ranks, 1);
    let lengths = answered(engine, server, held, clients);
    lengths.into_iter().map(|length| length - 12).collect()
}

/// Connects clients to the listeners of these ranks while others have all threads, and waits until
/// the kernel has them.
fn come_to(
    server: &Running,
    engine: &str,
    addresses: &[SocketAddr; 3],
    ranks: &[usize],
    held: u64,
) -> Vec<TcpStream> {
    let clients = ranks
        .iter()
        .map(|&rank| {
            let mut stream = TcpStream::connect(addresses[rank]).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let path = "a".repeat(11 + rank);
            write!(stream, "GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            stream
        })
        .collect();
    // waits until the connections are at the listeners, of whatever port
    addresses.iter().for_each(|address| calm(address.port()));
    if engine != NEVER_FUSED {
        // the kernel has them, and no thread has accepted them
        assert_eq!(server.get(Counter::Accepted), held, "{engine}");
    }
    clients
}

#[test]
fn listeners_of_ranks_are_accepted_from_in_their_order() {
    if ran_apart() {
        return;
    }
    let ranks = [[2; 12].as_slice(), &[1; 9], &[0; 3]].concat();
    let expected = [[0; 3].as_slice(), &[1; 9], &[2; 12]].concat();
    for engine in on(LOOPS.into_iter().chain(THREADS).chain([NEVER_FUSED])) {
        assert_eq!(order_of_ranks(engine, [0.0; 3], &ranks), expected, "{engine}");
    }
    for engine in on(THREADS) {
        // the time of its service is not known, so a rank that has a share is due at once
        let order = order_of_ranks(engine, [0.0, 0.0, 0.25], &[0, 0, 0, 2]);
        assert_eq!(order, [2, 0, 0, 0], "{engine}");
    }
}

/// While more connections wait than threads are free, a class's queue is not touched before those
/// of the classes above are empty: every connection in them counts, not every queue.
#[test]
fn many_free_threads_do_not_serve_a_lower_rank_while_a_higher_one_waits() {
    const HELD: usize = 6;
    if ran_apart() {
        return;
    }
    for engine in on(THREADS) {
        let (server, addresses) = start_ranked(engine, [0.0; 3], HELD);
        let held: Vec<_> = (0..HELD).map(|_| hold(&server)).collect();
        server.gate.wait_for(HELD);
        let ranks = [[2; 30].as_slice(), &[1; 30], &[0; 30]].concat();
        let clients = come_to(&server, engine, &addresses, &ranks, HELD as u64);
        server.gate.open();
        for client in held.into_iter().chain(clients) {
            assert!(read(client).starts_with("HTTP/1.1 200 OK"), "{engine}");
        }
        let answered = server.books.answered.lock().unwrap().clone();
        server.stop();
        let ranks: Vec<_> = answered.iter().filter_map(|length| length.checked_sub(12)).collect();
        for rank in [1, 2] {
            let first = ranks.iter().position(|other| *other == rank).unwrap();
            // when it was accepted, those above it had threads, which may have been kept from
            // answering
            let above = ranks[first..].iter().filter(|other| **other < rank).count();
            assert!(above < HELD, "{engine}: {above} in {ranks:?}");
        }
    }
}

/// What listeners of ranks have queued when an engine leaves them is served.
#[test]
fn listeners_of_ranks_are_left_empty() {
    for engine in on(LOOPS.into_iter().chain(THREADS).chain([NEVER_FUSED])) {
        for order in [LoopOrder::Retire, LoopOrder::Drain] {
            let (server, addresses) = start_ranked(engine, [0.0; 3], 1);
            let held = hold(&server);
            let clients: Vec<_> = (0..20)
                .map(|number| {
                    let mut stream = TcpStream::connect(addresses[number % 3]).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let request = "GET /aaaa HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                    stream.write_all(request.as_bytes()).unwrap();
                    stream
                })
                .collect();
            // a connection to a listener that is left is refused
            addresses.iter().for_each(|address| delivered(address.port()));
            server.control.give(order);
            server.gate.open();
            read(held);
            for client in clients {
                let answer = read(client);
                assert!(answer.starts_with("HTTP/1.1 200 OK"), "{engine} {order:?}: {answer}");
            }
            server.stop();
        }
    }
}

#[test]
fn a_class_with_a_share_does_not_wait_for_all_others() {
    for engine in on(THREADS) {
        // the time of its service is not known, so a rank that has a share is due at once
        let order = order(engine, [0.0, 0.0, 0.25], 64, &[0, 0, 0, 2]);
        assert_eq!(order, [2, 0, 0, 0], "{engine}");
    }
}

#[test]
fn a_pipeline_receives_by_class_what_its_connections_are_known_to_be() {
    if ran_apart() {
        return;
    }
    for engine in on([NEVER_FUSED]) {
        let settings =
            OrderSettings { shares: Arc::new([0.0; 3]), reserve: 0, ..OrderSettings::default() };
        let ranks = Some(Ranks::new(&settings));
        let server = start_with(engine, Setup { ranks, fixed: true, ..Setup::default() });
        while server.gauge(Gauge::ReceiveThreads) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let threads = server.gauge(Gauge::ReceiveThreads) as usize;
        let mut open: Vec<_> = (0..threads)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(get("/head").as_bytes()).unwrap();
                stream
            })
            .collect();
        server.gate.wait_for(threads);
        expect(&server, [[2; 12].as_slice(), &[0; 3]].concat());
        open.extend((0..12).map(|_| ask(&server, 12)));
        // the clients of the first class connect last
        server.calm();
        open.extend((0..3).map(|_| ask(&server, 10)));
        server.calm();
        server.gate.let_one_pass();
        // the thread that goes on receives all of them
        while server.books.heads.lock().unwrap().len() < threads + 15 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let heads = server.books.heads.lock().unwrap()[threads..].to_vec();
        assert_eq!(heads, [[10; 3].as_slice(), &[12; 12]].concat());
        server.gate.open();
        drop(open);
        server.stop();
    }
}

/// A client's limit counts the connections that have a thread.
#[test]
fn a_client_with_all_it_may_have_is_refused_when_its_turn_has_come() {
    for engine in on(THREADS) {
        let slots = Arc::new([0, 1].map(ClassSlot));
        let settings =
            OrderSettings { shares: Arc::new([0.0; 2]), slots, ..OrderSettings::default() };
        let ranks = Some(Ranks::new(&settings));
        let setup = Setup { pool: 3, threads: 3, per_client: 1, ranks, ..Setup::default() };
        let server = start_with(engine, setup);
        let held = hold(&server);
        for _ in 0..2 {
            let refused = read(ask(&server, 10));
            assert!(refused.starts_with("HTTP/1.1 503"), "{engine}: {refused}");
        }
        server.gate.open();
        assert!(read(held).starts_with("HTTP/1.1 200 OK"), "{engine}");
        server.expect(Counter::RefusedClient, 2);
        server.stop();
    }
}

/// A server with four connections that were accepted and wait for its thread, which another
/// connection holds.
fn accepted_ahead(engine: &str) -> (Running, Vec<TcpStream>) {
    let server = start(engine, [0.0; 3], 64);
    let first = hold(&server);
    expect(&server, [0, 2, 2, 2, 2]);
    let second = server.connect();
    let request = "GET /hang0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    (&second).write_all(request.as_bytes()).unwrap();
    // waits until this one is the first to come
    server.delivered();
    let waiting: Vec<_> = (0..4).map(|_| ask(&server, 12)).collect();
    // the thread accepts what is there when it is free
    server.delivered();
    server.gate.let_one_pass();
    assert!(read(first).starts_with("HTTP/1.1 200 OK"));
    server.gate.wait_for(2);
    server.expect(Counter::Accepted, 6);
    (server, [second].into_iter().chain(waiting).collect())
}

#[test]
fn whoever_was_accepted_is_served_before_a_drain_ends() {
    for engine in on(THREADS) {
        for order in [LoopOrder::Retire, LoopOrder::Drain] {
            let (server, clients) = accepted_ahead(engine);
            server.control.give(order);
            server.gate.open();
            for client in clients {
                assert!(read(client).starts_with("HTTP/1.1 200 OK"), "{engine}");
            }
            server.stop();
        }
    }
}

#[test]
fn whoever_was_accepted_is_cut_by_an_order_to_stop() {
    for engine in on(THREADS) {
        let (server, clients) = accepted_ahead(engine);
        server.control.give(LoopOrder::Stop);
        server.gate.open();
        drop(clients);
        assert_eq!(server.stop().aborted_receiving, 4, "{engine}");
    }
}

#[test]
fn who_leaves_before_a_thread_is_free_gets_none() {
    if ran_apart() {
        return;
    }
    for engine in on(THREADS) {
        let (server, mut clients) = accepted_ahead(engine);
        let second = clients.remove(0);
        for client in clients.drain(..) {
            reset_on_close(client.as_fd());
        }
        server.calm();
        // they have waited for long enough for the server to look whether they have left
        std::thread::sleep(Duration::from_millis(2));
        server.gate.open();
        assert!(read(second).starts_with("HTTP/1.1 200 OK"), "{engine}");
        server.expect(Counter::Closed, 6);
        assert_eq!(server.books.answered.lock().unwrap().len(), 2, "{engine}");
        server.stop();
    }
}
