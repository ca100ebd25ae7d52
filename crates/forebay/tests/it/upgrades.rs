//! Handlers that change the protocol, over HTTP/1 and HTTP/2.

use crate::client::{Client, LONG, soon};
use crate::handlers::builder;
use forebay::{HandlerOptions, Request, Response, Server};
use forebay_tests::http2;
use forebay_tests::websocket::TunnelEnd;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

on_each_engine! {
    bytes_go_both_ways,
    a_handler_that_does_not_change_answers,
    a_client_that_leaves_ends_the_wait,
    a_handler_that_returns_ends_its_direction,
    a_client_that_does_not_end_is_cut,
    a_handler_that_takes_none_sees_none,
    a_tunnel_that_is_silent_ends,
}

const UPGRADES: HandlerOptions = HandlerOptions {
    answer_within: Some(Duration::from_secs(60)),
    body_bytes: 16,
    keeps_half_closed: false,
    upgrades: true,
    silence: Some(Duration::from_secs(60)),
};

/// The two ways in which a client asks for a WebSocket.
const WAYS: [fn(SocketAddr, &str) -> TunnelEnd; 2] = [
    |address, path| TunnelEnd::by_http1(TcpStream::connect(address).unwrap(), path),
    |address, path| TunnelEnd::by_http2(http2::Client::connect(address), path),
];

fn echo(engine: &str) -> Server {
    builder(engine)
        .handler_with("/echo", UPGRADES, |request: &mut Request, response: &mut Response| {
            response.field("X-Asked", request.upgrade().unwrap_or("nothing"))?;
            let mut left: usize = request.parameter("n").unwrap_or_default().parse()?;
            let mut stream = response.switch(request, "websocket")?;
            let mut buffer = [0; 10_000];
            while left > 0 {
                let count = stream.read(&mut buffer)?;
                stream.write_all(&buffer[..count])?;
                stream.flush()?;
                left -= count;
            }
            Ok(())
        })
        .start()
        .unwrap()
}

fn bytes_go_both_ways(engine: &str) {
    let server = echo(engine);
    for way in WAYS {
        for bytes in [1, 100_000, 1_000_000] {
            let all: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
            let pieces = all.chunks(7_000).map(<[u8]>::to_vec).collect();
            let back = way(server.addresses()[0], &format!("/echo?n={bytes}")).talk(pieces);
            assert!(back == all, "{} of {bytes} bytes", back.len());
        }
    }
    server.stop().unwrap();
}

fn a_handler_that_does_not_change_answers(engine: &str) {
    let server = builder(engine)
        .handler_with("/no", UPGRADES, |_: &mut Request, response: &mut Response| {
            response.status(403)?;
            Ok(response.write_all(b"no")?)
        })
        .handler_with("/plain", UPGRADES, |_: &mut Request, response: &mut Response| {
            Ok(response.text("as any other")?)
        })
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let by_http1 = |path| TunnelEnd::try_http1(TcpStream::connect(address).unwrap(), path);
    let by_http2 = |path| TunnelEnd::try_http2(http2::Client::connect(address), path);
    let status = |end: Result<TunnelEnd, (u16, String)>| end.err().map(|(status, _)| status);
    assert_eq!(status(by_http1("/no")), Some(403));
    assert_eq!(status(by_http2("/no")), Some(403));
    assert_eq!(status(by_http1("/plain")), Some(200));
    // to a client of HTTP/2 a 200 would mean that there is a tunnel
    assert_eq!(status(by_http2("/plain")), Some(502));
}

fn a_client_that_leaves_ends_the_wait(engine: &str) {
    let (told, tell) = mpsc::channel();
    let server = builder(engine)
        .handler_with("/wait", UPGRADES, move |request: &mut Request, response: &mut Response| {
            let mut stream = response.switch(request, "websocket")?;
            stream.write_all(b"y")?;
            stream.flush()?;
            let read = stream.read(&mut [0]);
            // whether the wait has ended without a byte: the client has left
            told.send(!matches!(read, Ok(1..))).unwrap();
            Ok(())
        })
        .start()
        .unwrap();
    for way in WAYS {
        let mut end = way(server.addresses()[0], "/wait");
        assert_eq!(end.take(1), b"y");
        end.cut();
        assert_eq!(tell.recv_timeout(LONG), Ok(true));
    }
}

fn a_handler_that_returns_ends_its_direction(engine: &str) {
    let server = builder(engine)
        .handler_with("/bye", UPGRADES, |request: &mut Request, response: &mut Response| {
            Ok(response.switch(request, "WebSocket")?.write_all(b"bye")?)
        })
        .handler("/count", |_, response| Ok(response.text("here")?))
        .start()
        .unwrap();
    let address = server.addresses()[0];
    for way in WAYS {
        let mut end = way(address, "/bye");
        assert_eq!(end.rest(), b"bye");
        end.finish();
    }
    soon("the connections are gone", || server.open_connections() == 0);
}

fn a_client_that_does_not_end_is_cut(engine: &str) {
    let server = builder(engine)
        .handler_with("/bye", UPGRADES, |request: &mut Request, response: &mut Response| {
            response.switch(request, "websocket")?;
            Ok(())
        })
        .start()
        .unwrap();
    let mut end = WAYS[0](server.addresses()[0], "/bye");
    assert_eq!(end.rest(), b"");
    // the client keeps its direction open, and is given up
    soon("the connection is gone", || server.open_connections() == 0);
    drop(end);
}

fn a_handler_that_takes_none_sees_none(engine: &str) {
    let server = builder(engine)
        .handler("/", |request, response| {
            assert!(response.switch(request, "websocket").is_err());
            Ok(response.text(request.upgrade().unwrap_or("none"))?)
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let asks = "GET / HTTP/1.1\r\nHost: here\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\r\n";
    assert_eq!(client.ask(asks).text(), "none");
    assert_eq!(client.get("/").text(), "none");
}

fn a_tunnel_that_is_silent_ends(engine: &str) {
    let (told, tell) = mpsc::channel();
    let options = HandlerOptions { silence: Some(Duration::from_millis(300)), ..UPGRADES };
    let server = builder(engine)
        .handler_with("/silent", options, move |request: &mut Request, response: &mut Response| {
            let mut stream = response.switch(request, "websocket")?;
            Ok(told.send(stream.read(&mut [0]).map_err(|error| error.kind()))?)
        })
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let mut end = WAYS[0](address, "/silent");
    assert_eq!(end.rest(), b"");
    WAYS[1](address, "/silent").ends_in_disorder();
    for _ in WAYS {
        assert_eq!(tell.recv_timeout(LONG), Ok(Err(ErrorKind::TimedOut)));
    }
    drop(end);
    soon("the connections are gone", || server.open_connections() == 0);
}

/// One thread reads while another writes, where handlers have threads.
#[test]
fn both_directions_wait_at_the_same_time() {
    let server = Server::builder()
        .engine("event")
        .handler_with("/both", UPGRADES, |request: &mut Request, response: &mut Response| {
            let (request, response) = response.switch(request, "websocket")?.split();
            let sum = std::thread::scope(|scope| {
                let writer = scope.spawn(move || {
                    response.write_all(&vec![b'w'; 2_000_000])?;
                    response.flush()
                });
                let (mut sum, mut buffer) = (0, [0; 4_096]);
                loop {
                    match request.read(&mut buffer)? {
                        0 => break,
                        count => sum += count,
                    }
                }
                writer.join().map_err(|_| std::io::ErrorKind::Other)??;
                std::io::Result::Ok(sum)
            });
            assert_eq!(sum?, 1_000_000);
            Ok(())
        })
        .start()
        .unwrap();
    let mut end = WAYS[0](server.addresses()[0], "/both");
    // nothing is read yet: the writer stands still
    end.send(&vec![b'r'; 1_000_000]);
    end.finish();
    assert_eq!(end.rest().len(), 2_000_000);
}
