//! The order of service: by rank, fair between the clients of a rank, and no rank below its floor.
//!
//! What is answered in which order is told by the log lines, and which is which by the length of its
//! path, which also says its rank: see [`Paths`](crate::handler::Paths).

use crate::harness::{BY_RANK, Running, Setup, get, listener, start_with};
use forebay_engine::accept::Listener;
use forebay_engine::ranks::Ranks;
use forebay_metrics::ClassSlot;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

/// Engines in which one thread at a time answers once the others are held.
const ENGINES: [&str; 2] = ["event", "fibers"];

/// Three ranks with these shares, and nothing in reserve.
fn ranks(shares: [f64; 3]) -> Ranks {
    Ranks {
        shares: Arc::new(shares),
        slots: Arc::new([0, 1, 2].map(ClassSlot)),
        reserve: 0,
        ..Ranks::default()
    }
}

/// An engine with these shares; clients state who they are.
fn start(engine: &str, shares: [f64; 3]) -> Running {
    let mut setup = Setup { ranks: Some(ranks(shares)), trusts: true, ..Setup::default() };
    setup.listener = Some(Listener { proxy_protocol: true, ..listener() });
    setup.settings.turn_requests = 1;
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

/// Bytes of the bodies in the order of their answers.
fn answered(server: &Running, count: usize) -> Vec<u64> {
    (0..count).map(|_| server.lines.recv().unwrap().1).collect()
}

#[test]
fn a_high_rank_overtakes_and_clients_take_turns() {
    for engine in ENGINES {
        let server = start(engine, [0.0; 3]);
        let mut open = vec![ask(&server, 1, &["/hang"])];
        server.gate.wait_for(1);
        // rank 2 from client 2 three times, then from client 3, then ranks 1 and 0
        for (client, path) in [(2, 2), (2, 5), (2, 8), (3, 11), (4, 7), (5, 6), (5, 9), (6, 12)] {
            open.push(ask(&server, client, &[&format!("/{}", "a".repeat(path - 1))]));
        }
        server.gate.open();
        let order = answered(&server, 9);
        assert_eq!(order, [5, 6, 12, 9, 7, 2, 11, 5, 8], "{engine}");
        drop(open);
        server.stop();
    }
}

#[test]
fn the_lowest_rank_has_its_share_while_others_want_all() {
    for engine in ENGINES {
        let server = start(engine, [0.0, 0.0, 0.25]);
        let mut open = vec![ask(&server, 1, &["/hang"])];
        server.gate.wait_for(1);
        let many = |path| vec![path; 300];
        // ranks 0 and 2
        open.push(ask(&server, 2, &many("/spin0")));
        open.push(ask(&server, 3, &many("/spin")));
        server.gate.open();
        let order = answered(&server, 301);
        let low = order[1..].iter().filter(|bytes| **bytes == 5).count();
        // 75 if all took the same time
        assert!((35..=150).contains(&low), "{engine}: {low} of 300");
        drop(open);
        server.stop();
    }
}
