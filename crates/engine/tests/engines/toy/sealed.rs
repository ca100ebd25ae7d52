//! HTTP/1 through the encrypting transport: the same answers as through none.

use super::client::Client;
use super::handler::{FILE, PlainHttp, SLOW, VeiledHttp, file_byte};
use super::kit::Server;
use super::veil;
use crate::harness::{ENGINES, Setup, get, listener, on_each};
use forebay_conn::Settled;
use forebay_engine::accept::Listener;
use forebay_metrics::Counter;
use std::io::{Read, Write};

fn start(engine: &str, veiled: bool, change: impl FnOnce(&mut Setup)) -> Server {
    let mut setup = Setup::default();
    change(&mut setup);
    match veiled {
        true => Server::start::<VeiledHttp>(engine, setup),
        false => Server::start::<PlainHttp>(engine, setup),
    }
}

/// All that arrives in answer to these bytes, without dates, and whether it ends in good order.
fn exchange(server: &Server, veiled: bool, bytes: &str) -> (Vec<u8>, bool) {
    let mut client = server.client(veiled);
    client.send(bytes.as_bytes());
    client.end();
    let mut all = client.receive_all();
    while let Some(at) = all.windows(6).position(|part| part == b"Date: ") {
        all.drain(at..at + 37);
    }
    (all, client.has_ended)
}

#[test]
fn answers_are_the_same_as_through_a_plain_transport() {
    on_each(|engine| {
        let servers = [false, true].map(|veiled| start(engine, veiled, |_| {}));
        let close = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let post = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n".to_owned();
        let requests = [
            get("/a") + &get("/job") + &get("/b") + &get("/refuse") + close,
            get("/mem/5000000"),
            get("/file") + &get("/x"),
            post + &"p".repeat(100_000) + &get("/after"),
            get("/early") + &get("/jobs"),
            "GET /a HTTP/1.1\r\n x\r\n\r\n".to_owned(),
        ];
        for request in requests {
            let (plain, _) = exchange(&servers[0], false, &request);
            let (sealed, has_ended) = exchange(&servers[1], true, &request);
            assert!(plain.starts_with(b"HTTP/1.1 "));
            let shown = String::from_utf8_lossy(&sealed[..sealed.len().min(300)]);
            assert!(plain == sealed, "{engine}: {} and {}: {shown}", plain.len(), sealed.len());
            assert!(has_ended, "{engine}: the end is not told");
        }
        let (file, _) = exchange(&servers[1], true, &get("/file"));
        let body = &file[file.len() - FILE..];
        assert!(body.iter().enumerate().all(|(at, byte)| *byte == file_byte(at)));
        for server in servers {
            server.stop();
        }
    });
}

/// The job is not tried again and again.
#[test]
fn a_job_that_fails_ends_the_connection_that_cannot_go_on_without_it() {
    on_each(|engine| {
        for veiled in [false, true] {
            let server = start(engine, veiled, |_| {});
            let (answer, has_ended) = exchange(&server, veiled, &get("/badfile"));
            assert!(answer.len() < FILE && !has_ended, "{engine}");
            server.expect(Counter::Panics, 1);
            server.stop();
        }
        let server = start(engine, true, |_| {});
        let mut hello = Vec::new();
        veil::seal(veil::HELLO, &[0; 8], &mut hello);
        let mut socket = server.connect();
        socket.write_all(&hello).unwrap();
        assert_eq!(socket.read(&mut [0; 9]).unwrap_or(0), 0);
        server.expect(Counter::Panics, 1);
        server.stop();
    });
}

#[test]
fn a_sealed_connection_is_not_handed_over() {
    on_each(|engine| {
        let server = start(engine, true, |_| {});
        let (answer, has_ended) = exchange(&server, true, &(get("/a") + &get("/away")));
        assert!(answer.ends_with(b"/a"), "{engine}");
        assert!(!has_ended);
        server.kit.wait_settled(Settled::Cut, 1);
        server.stop();
    });
}

/// A machine that stands still may let the time of others pass, too. Then the test is tried again.
#[test]
fn what_takes_too_long_is_told_sealed_or_not_at_all() {
    on_each(|engine| assert!((0..3).any(|_| is_told_sealed_or_not_at_all(engine)), "{engine}"));
}

/// Whether each client got the answer that it should have, and no other.
fn is_told_sealed_or_not_at_all(engine: &str) -> bool {
    let server = start(engine, true, |setup| {
        // a handshake that goes on must be in time, on a slow machine too
        setup.settings.timeouts.head_ms = 6_000;
        setup.settings.timeouts.job_ms = 6_000;
        setup.settings.timeouts.idle_ms = 6_000;
    });
    // all of them wait at the same time: a job, a head, the next request, a handshake that stops in
    // the middle, and one that never begins
    let say = |words: &str| {
        let mut client = server.client(true);
        let _ = client.try_send(words.as_bytes());
        client
    };
    let mut job = say(&get("/wait/for-ever"));
    let (mut head, mut next) = (say("GET / HT"), say(&get("/x")));
    let [mut half, mut none] = [(); 2].map(|()| server.connect());
    let _ = half.write_all(&[veil::HELLO ^ 0x5a]);
    let mut is_so = true;
    if super::kit::has_helpers(engine) {
        let answer = job.receive_all();
        is_so &= answer.starts_with(b"HTTP/1.1 503") && job.has_ended;
        if is_so {
            server.kit.wait_settled(Settled::Expired, 1);
        }
    }
    server.kit.open_all();
    let answer = head.receive_all();
    is_so &= answer.starts_with(b"HTTP/1.1 408") && head.has_ended;
    let answer = next.receive_all();
    is_so &= answer.ends_with(b"/x") && next.has_ended;
    assert_eq!(half.read(&mut [0; 9]).unwrap_or(0), 0);
    assert_eq!(none.read(&mut [0; 9]).unwrap_or(0), 0);
    if is_so {
        server.expect(Counter::TimeoutHead, 3);
    }
    server.stop();
    is_so
}

#[test]
fn a_connection_that_is_refused_before_the_handshake_is_told_nothing() {
    on_each(|engine| {
        let server = start(engine, true, |setup| setup.per_client = 1);
        let mut first = Client::new(server.connect(), true);
        first.send(get("/x").as_bytes());
        first.receive();
        let mut second = server.connect();
        // a client that is late with its request may have been refused by then
        let _ = second.write_all(get("/x").as_bytes());
        let mut answer = Vec::new();
        let _ = second.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{engine}");
        server.expect(Counter::RefusedClient, 1);
        drop((first, second));
        server.stop();
        // nor does a client that breaks the rules of the transport
        let server = start(engine, true, |_| {});
        let mut plain = server.connect();
        plain.write_all(get("/x").as_bytes()).unwrap();
        let _ = plain.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{engine}");
        server.stop();
    });
}

#[test]
fn a_proxy_states_its_client_before_the_handshake() {
    on_each(|engine| {
        // the handler trusts no proxy
        let server = start(engine, true, |setup| {
            setup.listener = Some(Listener { proxy_protocol: true, ..listener() });
        });
        let mut socket = server.connect();
        let _ = socket.write_all(b"PROXY UNKNOWN\r\n");
        assert_eq!(socket.read(&mut [0; 9]).unwrap_or(0), 0);
        server.stop();
        let server = start(engine, true, |setup| {
            setup.trusts = true;
            setup.listener = Some(Listener { proxy_protocol: true, ..listener() });
        });
        // header, hello and request in one piece, or byte by byte
        for piece in [1, 1000] {
            let mut bytes = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n".to_vec();
            veil::seal(veil::HELLO, &4711u64.to_be_bytes(), &mut bytes);
            veil::seal(veil::DATA, get("/who").as_bytes(), &mut bytes);
            let mut socket = server.connect();
            for part in bytes.chunks(piece) {
                socket.write_all(part).unwrap();
            }
            let mut client = Client::resume(socket);
            let answer = client.receive();
            assert!(answer.ends_with(b"192.0.2.7:4711"), "{engine}");
        }
        server.stop();
    });
}

/// All jobs together take longer than one may. A machine that stands still may let one take too
/// long; then the test is tried again.
#[test]
fn each_job_for_a_slow_file_has_time_of_its_own() {
    let is_whole = |engine: &str, veiled: bool| {
        let server = start(engine, veiled, |setup| {
            setup.pool = 8;
            setup.settings.timeouts.job_ms = 4 * SLOW.as_millis() as u64;
        });
        let (answer, _) = exchange(&server, veiled, &get("/slowfile"));
        server.stop();
        answer.ends_with(&[file_byte(FILE - 2), file_byte(FILE - 1)])
    };
    // the test only waits, so it runs on all engines at once
    std::thread::scope(|scope| {
        for (engine, veiled) in ENGINES.iter().flat_map(|it| [(it, false), (it, true)]) {
            scope.spawn(move || assert!((0..3).any(|_| is_whole(engine, veiled)), "{engine}"));
        }
    });
}
