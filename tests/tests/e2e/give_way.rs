//! Where a limit of connections is reached, the lowest class gives way and the highest last, with the real program.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::crowd::{client_address, connect_from};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{on_each_engine, on_isolated};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

on_each_engine! {
    of_one_client_the_lowest_class_gives_way,
    of_all_clients_the_lowest_class_gives_way,
    with_one_class_nobody_gives_way,
}

on_isolated! {
    of_one_client_the_lowest_class_gives_way,
    of_all_clients_the_lowest_class_gives_way,
}

/// Classes by the client's port: those below the ports that the kernel chooses are gold's.
const CLASSES: &str = r#"
keep_alive.law = "constant"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
[[rule]]
name = "gold"
client = "127.0.0.1:6000-9999"
class = "gold"
"#;

fn start(engine: &str, limits: &str) -> (Folder, WatchedServer) {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let settings = format!("{limits}\n{CLASSES}");
    let server = WatchedServer::start(engine, &folder.join("root"), &settings).settled();
    (folder, server)
}

/// A connection of the first class, from the same address as [`bulk`].
fn gold(server: &WatchedServer) -> Client {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = std::process::id() as u16;
    loop {
        let port = 6000 + NEXT.fetch_add(1, Relaxed).wrapping_add(offset) % 4000;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        match bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            Err(Errno::ADDRINUSE) => continue,
            bound => bound.unwrap(),
        }
        match connect(&socket, &server.addr()) {
            // a port of this test's previous run
            Err(Errno::ADDRNOTAVAIL) => continue,
            connected => connected.unwrap(),
        }
        return Client::over(TcpStream::from(socket));
    }
}

fn bulk(server: &WatchedServer) -> Client {
    Client::over(connect_from(Ipv4Addr::LOCALHOST.into(), server.addr()).unwrap())
}

/// The status of the answer; 0 if the connection is closed.
fn status(client: &mut Client) -> u16 {
    client.get("/").map_or(0, |answer| answer.status)
}

fn refused(server: &WatchedServer, reason: &str) -> u64 {
    server.metric(&format!("forebay_connections_refused_total{{reason=\"{reason}\"}}"))
}

/// Two connections are idle, and two are in a request; gold gets all four places, the idle ones first.
fn of_one_client_the_lowest_class_gives_way(engine: &str) {
    let (_folder, server) = start(engine, "limits.connections_per_client = 4");
    let mut low: Vec<Client> = (0..4).map(|_| bulk(&server)).collect();
    low.iter_mut().for_each(|one| assert_eq!(status(one), 200));
    for busy in &mut low[2..] {
        std::io::Write::write_all(busy.stream(), b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
    }
    server.wait_for_delivery();
    // a connection does not give way to its own class
    assert_ne!(status(&mut bulk(&server)), 200);
    let mut high: Vec<Client> = Vec::new();
    for number in 1..=4 {
        let mut one = gold(&server);
        assert_eq!(status(&mut one), 200, "gold {number}: {}", server.stderr());
        high.push(one);
    }
    assert!(low.iter_mut().all(Client::is_closed));
    high.iter_mut().for_each(|one| assert_eq!(status(one), 200, "none of gold has left"));
    assert_ne!(status(&mut gold(&server)), 200, "the limit holds for gold, too");
    server.says("limits.connections_per_client is reached: a connection of 127.0.0.1 is refused");
    assert!(soon(PATIENCE, || refused(&server, "client_limit") >= 2));
    drop((low, high));
    assert!(soon(PATIENCE, || server.metric("forebay_connections") == 0));
}

/// The connections belong to several clients, and all are busy.
fn of_all_clients_the_lowest_class_gives_way(engine: &str) {
    let (_folder, server) = start(engine, "limits.connections = 4");
    let low: Vec<Client> = (0..4)
        .map(|number| {
            let mut one =
                Client::over(connect_from(client_address(number), server.addr()).unwrap());
            assert_eq!(status(&mut one), 200);
            std::io::Write::write_all(one.stream(), b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
            one
        })
        .collect();
    server.wait_for_delivery();
    let mut high: Vec<Client> = Vec::new();
    // one client may have half of the connections
    for number in 1..=2 {
        let mut one = gold(&server);
        assert_eq!(status(&mut one), 200, "gold {number}: {}", server.stderr());
        high.push(one);
    }
    let made_room = || server.metric("forebay_connections_idle_cut_total");
    assert!(soon(PATIENCE, || made_room() == 2), "{}", server.metrics());
    assert!(soon(PATIENCE, || server.metric("forebay_connections") == 4));
    drop((low, high));
    assert!(soon(PATIENCE, || server.metric("forebay_connections") == 0));
}

/// With one class, connections are refused as without classes.
fn with_one_class_nobody_gives_way(engine: &str) {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let limit = "limits.connections_per_client = 2";
    let server = WatchedServer::start(engine, &folder.join("root"), limit).settled();
    let mut open: Vec<Client> = (0..2).map(|_| bulk(&server)).collect();
    open.iter_mut().for_each(|one| assert_eq!(status(one), 200));
    assert_ne!(status(&mut gold(&server)), 200);
    open.iter_mut().for_each(|one| assert_eq!(status(one), 200));
}
