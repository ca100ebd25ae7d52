//! Clients that connect through proxies which state them.

use crate::harness::{Running, Setup, get, listener, on_each, start_with};
use forebay_engine::accept::Listener;
use forebay_metrics::Counter;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

/// An engine whose clients come through proxies that state them.
fn behind(engine: &str, trusts: bool) -> Running {
    start_with(engine, proxied(trusts))
}

fn proxied(trusts: bool) -> Setup {
    let listener = Some(Listener { proxy_protocol: true, ..listener() });
    Setup { trusts, per_client: 2, listener, ..Setup::default() }
}

fn stated(client: &str, path: &str) -> String {
    format!("PROXY TCP4 {client} 192.0.2.1 4711 80\r\n{}", get(path))
}

#[test]
fn who_comes_through_a_proxy_is_who_it_says() {
    on_each(|engine| {
        let server = behind(engine, true);
        let answer = server.exchange(&stated("192.0.2.7", "/who"));
        assert!(answer.ends_with("\r\n\r\n192.0.2.7:4711"), "{answer}");
        // byte by byte, and the request after a pause
        let mut stream = server.connect();
        for byte in stated("192.0.2.8", "").split_inclusive("\r\n").next().unwrap().bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        stream.write_all(get("/who").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\n192.0.2.8:4711"), "{answer}");
        let answer = server.exchange(&stated("192.0.2.66", "/who"));
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        server.expect(Counter::RefusedVerdict, 1);
        server.stop();
    });
}

#[test]
fn clients_behind_a_proxy_are_counted_each_for_itself() {
    on_each(|engine| {
        let server = behind(engine, true);
        let open = |client: &str| {
            let mut stream = server.connect();
            stream.write_all(stated(client, "/x").as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            (stream, String::from_utf8(first.to_vec()).unwrap())
        };
        let all: Vec<_> = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.2", "192.0.2.3"]
            .into_iter()
            .map(open)
            .inspect(|(_, status)| assert_eq!(status, "HTTP/1.1 200"))
            .collect();
        assert_eq!(open("192.0.2.1").1, "HTTP/1.1 503");
        server.expect(Counter::RefusedClient, 1);
        // checks by the proxy itself are counted for no client
        let checks: Vec<_> = (0..5)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(b"PROXY UNKNOWN\r\n").unwrap();
                stream.write_all(get("/x").as_bytes()).unwrap();
                stream.read_exact(&mut [0; 12]).unwrap();
                stream
            })
            .collect();
        drop((all, checks));
        server.stop();
    });
}

#[test]
fn who_is_no_trusted_proxy_is_reset() {
    on_each(|engine| {
        let server = behind(engine, false);
        assert_eq!(server.exchange(&stated("192.0.2.7", "/who")), "");
        server.expect(Counter::RefusedProxy, 1);
        server.stop();

        let server = behind(engine, true);
        assert_eq!(server.exchange(&get("/who")), "");
        server.expect(Counter::RefusedProxyHeader, 1);
        server.stop();

        let mut setup = proxied(true);
        setup.settings.timeouts.head_ms = 300;
        let server = start_with(engine, setup);
        // one that sends nothing, and one that stops in the middle
        let mut silent = server.connect();
        assert_eq!(silent.read(&mut [0; 9]).unwrap(), 0);
        let mut slow = server.connect();
        // a machine that stands still may let the time pass before this
        let _ = slow.write_all(b"PROXY TCP4 ");
        let _ = slow.read(&mut [0; 9]);
        server.expect(Counter::TimeoutHead, 2);
        server.stop();
    });
}

#[test]
fn a_trusted_proxy_may_have_more_connections_than_a_client() {
    on_each(|engine| {
        let server = start_with(engine, Setup { trusts: true, per_client: 2, ..Setup::default() });
        let open: Vec<_> = (0..5).map(|_| server.connect()).collect();
        for mut stream in &open {
            stream.write_all(get("/x").as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
        }
        drop(open);
        server.stop();
    });
}
