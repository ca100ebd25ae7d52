//! Engines that keep a thread for each connection: applications and tunnels have a part of the threads,
//! and leave the others to all other requests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::queue::{Gate, ask, status};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::websocket::{TunnelEnd, WebSocketServer, begin};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use std::io::{Read, Write};
use std::net::TcpStream;

const ENGINES: [&str; 2] = ["pool", "threads"];

fn options(engine: &str, folder: &Folder, lines: &str) -> Options {
    folder.write("root/index.html", "own");
    // idle ones are not cut because most threads are taken
    let lines =
        format!("limits.connections_per_client = 100\nkeep_alive.law = \"constant\"\n{lines}");
    let options = Options::new(folder.join("root")).engine(engine).config(&lines);
    Options { workers: 8, ..options }
}

#[test]
fn slow_applications_leave_threads_to_others() {
    for engine in ENGINES {
        let (gate, folder) = (Gate::start(), Folder::new());
        let lines = format!("[[proxy]]\npath = \"/app\"\nto = \"http://{}\"\n", gate.addr);
        let served = WatchedServer::with(options(engine, &folder, &lines));
        // three quarters of eight
        let mut slow: Vec<_> =
            (0..6).map(|number| ask(&served, &format!("/app/{number}"))).collect();
        gate.has(6);
        let mut refused = ask(&served, "/app/refused");
        assert_eq!(status(&mut refused), 503, "{engine}");
        drop(refused);
        assert_eq!(status(&mut ask(&served, "/")), 200, "{engine}");
        gate.answer(100);
        for client in &mut slow {
            assert_eq!(status(client), 200, "{engine}");
        }
        // their threads are free again, and connections that are kept keep none of them
        for client in &mut slow {
            assert!(client.ask("/app/again"));
            assert_eq!(status(client), 200, "{engine}");
        }
        assert!(!gate.came().contains(&"/app/refused".to_owned()));
    }
}

#[test]
fn tunnels_leave_threads_to_applications() {
    for engine in ENGINES {
        let (application, folder) = (WebSocketServer::start(), Folder::new());
        let to = application.addr();
        let lines =
            format!("tunnel_threads = 2\n[[proxy]]\npath = \"/ws\"\nto = \"http://{to}\"\n");
        let server = Server::start(&options(engine, &folder, &lines));
        let connect = || TcpStream::connect(server.addr()).unwrap();
        let one = TunnelEnd::by_http1(connect(), "/ws/raw");
        // streams of one connection keep one thread
        let mut client = Client::connect(server.addr());
        let streams: Vec<_> = (0..3).map(|_| begin(&mut client, "/ws/raw")).collect();
        client.until(|client| streams.iter().all(|stream| client.so_far(*stream).status == 200));
        let upgrade =
            b"GET /ws/raw HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let ask = |text: &[u8]| {
            let mut stream = connect();
            stream.write_all(text).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut line = [0; 12];
            stream.read_exact(&mut line).unwrap();
            String::from_utf8_lossy(&line[9..]).parse::<u16>().unwrap()
        };
        assert_eq!(ask(upgrade), 503, "{engine}");
        let other =
            b"POST /ws/upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(ask(other), 200, "{engine}");
        drop(one);
        assert!(soon(PATIENCE, || ask(upgrade) == 101), "{engine}");
    }
}
