//! Which answer goes on first when several clients take more of theirs.

use crate::harness::{BY_RANK, PATIENCE, Running, Setup, get, on, ran_apart, start_with};
use crate::ranks::LOOPS;
use forebay_engine::ranks::{OrderSettings, Ranks};
use forebay_engine::settings::SendOrder;
use forebay_metrics::{ClassSlot, Counter};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A client that asks for one of `/big…` and takes nothing of it, until the server waits for it.
fn ask(server: &Running, path: &str) -> TcpStream {
    let before = server.get(Counter::SendWaits);
    let mut client = server.connect();
    client.write_all(get(path).as_bytes()).unwrap();
    let began = Instant::now();
    while server.get(Counter::SendWaits) == before {
        assert!(began.elapsed() < PATIENCE, "{path}");
        std::thread::sleep(Duration::from_millis(1));
    }
    client
}

/// Takes all that the server has written, while it writes no more.
fn take(server: &Running, client: &mut TcpStream, buffer: &mut [u8]) {
    client.set_nonblocking(true).unwrap();
    let address = client.local_addr().unwrap();
    let began = Instant::now();
    let mut is_here = false;
    loop {
        match client.read(buffer) {
            Ok(count) => assert!(count > 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if is_here {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "what was written does not come");
                std::thread::sleep(Duration::from_millis(1));
                // if it has sent all, that can be read
                is_here = server.has_sent_all_to(address);
            }
            Err(error) => panic!("{error}"),
        }
    }
    client.set_nonblocking(false).unwrap();
}

/// The order in which a loop goes on with `paths`, when the clients have taken what was there, one
/// after the other and all before the loop looks.
fn order(engine: &str, ranks: Ranks, send_order: SendOrder, paths: &[&str]) -> Vec<usize> {
    let mut setup = Setup { ranks: Some(ranks), fixed: true, ..Setup::default() };
    setup.settings.send_order = send_order;
    let server = start_with(&format!("{engine}{BY_RANK}"), setup);
    let mut clients: Vec<_> = paths.iter().map(|path| ask(&server, path)).collect();
    let mut held = server.connect();
    held.write_all(get("/hang").as_bytes()).unwrap();
    server.gate.wait_for(1);
    let mut buffer = vec![0; 1 << 20];
    clients.iter_mut().for_each(|client| take(&server, client, &mut buffer));
    server.calm();
    server.books.sent.lock().unwrap().clear();
    server.gate.open();
    let began = Instant::now();
    let order = loop {
        let mut sent = server.books.sent.lock().unwrap().clone();
        // the first may go on again before the last does for the first time
        let mut seen = Vec::new();
        sent.retain(|mib| {
            !seen.contains(mib) && {
                seen.push(*mib);
                true
            }
        });
        if sent.len() == paths.len() {
            break sent;
        }
        assert!(began.elapsed() < PATIENCE, "{engine}: {sent:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    drop((clients, held));
    server.stop();
    order
}

fn ranks(count: usize) -> Ranks {
    let shares = vec![0.0; count].into();
    let slots = (0..count as u8).map(ClassSlot).collect();
    Ranks::new(&OrderSettings { shares, slots, reserve: 0, ..OrderSettings::default() })
}

/// Answers whose lengths differ by more than sockets hold.
const PATHS: [&str; 3] = ["/big72", "/big48", "/big24"];

#[test]
fn without_an_order_the_socket_with_room_goes_on_first() {
    if ran_apart() {
        return;
    }
    for engine in on(LOOPS) {
        assert_eq!(order(engine, ranks(1), SendOrder::Arrival, &PATHS), [72, 48, 24], "{engine}");
    }
}

#[test]
fn the_shortest_answer_goes_on_first() {
    if ran_apart() {
        return;
    }
    for engine in on(LOOPS) {
        assert_eq!(order(engine, ranks(1), SendOrder::Shortest, &PATHS), [24, 48, 72], "{engine}");
    }
}

#[test]
fn ranks_come_before_the_order_within_them() {
    if ran_apart() {
        return;
    }
    // ranks 1, 0, 0, by the lengths of their paths
    let paths = ["/big24-", "/big72", "/big48"];
    for engine in on(LOOPS) {
        assert_eq!(order(engine, ranks(3), SendOrder::Shortest, &paths), [48, 72, 24], "{engine}");
    }
}
