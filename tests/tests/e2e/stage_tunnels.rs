//! Tunnels through the stages of `isolated`: what they outlive, and how they end. `websocket.rs` shows
//! that they are tunnels as in one process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::isolated::{end, get, signal, stage, stages, told, until_gone};
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::http2::Client;
use forebay_tests::websocket::{TunnelEnd, WebSocketServer};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use rustix::process::Signal;
use std::net::TcpStream;

/// A long limit for tests in which no stage hangs: a stage that is late with a tunnel is waited for, since
/// no other instance may open the tunnel again.
const UNHURRIED: &str = "isolated.acknowledge_ceiling = \"1m\"\n";

/// One process of each stage, and the application at `/ws`.
fn start(folder: &Folder, application: &WebSocketServer, more: &str) -> Server {
    folder.write("root/index.html", "own");
    let config = format!(
        "isolated.process = 1\nisolated.respond = 1\n{more}\n\
         [[proxy]]\npath = \"/ws\"\nto = \"http://{}\"\n",
        application.addr()
    );
    Server::start(&Options::new(folder.join("root")).engine("isolated").config(&config))
}

fn both(server: &Server, path: &str) -> [TunnelEnd; 2] {
    let stream = TcpStream::connect(server.addr()).unwrap();
    [TunnelEnd::by_http1(stream, path), TunnelEnd::by_http2(Client::connect(server.addr()), path)]
}

/// Opens a tunnel where a stage that is a second late is given up: then another tunnel is opened.
fn at_last(open: impl Fn() -> Result<TunnelEnd, (u16, String)>) -> TunnelEnd {
    for _ in 0..5 {
        match open() {
            Ok(tunnel) => return tunnel,
            Err((status, answer)) => assert!(matches!(status, 502 | 503), "{answer}"),
        }
    }
    panic!("each is late")
}

fn echoes(tunnel: &mut TunnelEnd, word: &[u8]) {
    tunnel.send(word);
    assert_eq!(tunnel.take(word.len()), word);
}

/// Whether a tunnel with this path has ended for the application.
fn has_ended(application: &WebSocketServer, path: &str) -> bool {
    application.told().ends.iter().any(|(of, ..)| of == path)
}

#[test]
fn the_end_of_a_process_is_an_end_in_disorder_on_both_sides() {
    let (folder, application) = (Folder::new(), WebSocketServer::start());
    for http2 in ["off", "on"] {
        let more = format!("{UNHURRIED}isolated.http2 = \"{http2}\"");
        let server = start(&folder, &application, &more);
        for (name, version) in [
            ("respond 1", 1),
            ("respond 1", 2),
            ("process 1", 1),
            ("process 1", 2),
            ("receive 1", 1),
        ] {
            let path = format!("/ws/raw?{http2}-{}-{version}", name.replace(' ', "-"));
            let mut tunnel = match version {
                1 => TunnelEnd::by_http1(TcpStream::connect(server.addr()).unwrap(), &path),
                _ => TunnelEnd::by_http2(Client::connect(server.addr()), &path),
            };
            echoes(&mut tunnel, b"before");
            let pid = stage(&server, name, 0);
            signal(pid, Signal::KILL);
            // the kernel ends the connections of a process that is killed, and resets none
            if name != "receive 1" {
                tunnel.ends_in_disorder();
            }
            let is_told = || has_ended(&application, &path);
            assert!(soon(PATIENCE, is_told), "{path}: the application is not told");
            stage(&server, name, pid);
            for mut tunnel in both(&server, "/ws/raw") {
                echoes(&mut tunnel, b"after");
                tunnel.finish();
                assert_eq!(tunnel.rest(), b"bye");
            }
        }
        end(server);
    }
}

#[test]
fn a_tunnel_outlives_a_process_that_hangs_for_a_while() {
    let (folder, application) = (Folder::new(), WebSocketServer::start());
    // soon enough for the test, and late enough for a busy machine
    let more = "isolated.acknowledge_ceiling = \"1s\"\n";
    let server = start(&folder, &application, more);
    let connect = || TcpStream::connect(server.addr()).unwrap();
    let mut tunnels = [
        at_last(|| TunnelEnd::try_http1(connect(), "/ws/raw")),
        at_last(|| TunnelEnd::try_http2(Client::connect(server.addr()), "/ws/raw")),
    ];
    tunnels.iter_mut().for_each(|tunnel| echoes(tunnel, b"before"));
    for name in ["process 1", "respond 1"] {
        let pid = stage(&server, name, 0);
        freeze(pid);
        // the stage before has given it up
        assert_eq!(told(&get(server.addr(), "/")).0, "HTTP/1.1 503 Service Unavailable", "{name}");
        tunnels.iter_mut().for_each(|tunnel| tunnel.send(b"meanwhile"));
        signal(pid, Signal::CONT);
        for tunnel in &mut tunnels {
            assert_eq!(tunnel.take(9), b"meanwhile", "{name}");
        }
    }
    for mut tunnel in tunnels {
        tunnel.finish();
        assert_eq!(tunnel.rest(), b"bye");
    }
    end(server);
}

#[test]
fn a_tunnel_outlives_a_reload_for_as_long_as_a_drain_may_take() {
    let (folder, application) = (Folder::new(), WebSocketServer::start());
    let more = format!("{UNHURRIED}timeouts.drain = \"10m\"");
    let server = start(&folder, &application, &more);
    let mut tunnels = both(&server, "/ws/raw");
    let before = stages(&server);
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    for (name, pid) in &before {
        stage(&server, name, *pid);
    }
    tunnels.iter_mut().for_each(|tunnel| echoes(tunnel, b"still"));
    for tunnel in &mut tunnels {
        tunnel.finish();
        assert_eq!(tunnel.rest(), b"bye");
    }
    drop(tunnels);
    until_gone(&before);
    for mut tunnel in both(&server, "/ws/raw") {
        echoes(&mut tunnel, b"anew");
    }
    end(server);
}
