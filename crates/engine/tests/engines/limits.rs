//! Limits and timeouts that clients must keep.

use crate::harness::{PATIENCE, Setup, calm, get, listener, on_each, ran_apart, start, start_with};
use forebay_control::keep_alive::{KeepAlive, Shape};
use forebay_metrics::Counter;
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn limits_turn_connections_away_politely() {
    if ran_apart() {
        return;
    }
    on_each(|engine| {
        let server = start(engine, |settings| settings.timeouts.head_ms = 3_600_000);
        let open: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for stream in &open {
            let mut stream = stream;
            stream.write_all(get("/x").as_bytes()).unwrap();
            stream.read_exact(&mut [0; 15]).unwrap();
            // busy, because with ranks an idle connection would make room
            stream.write_all(b"GET /half HTTP/1.1\r\n").unwrap();
        }
        // until the server has seen these beginnings
        server.calm();
        let answer = server.exchange(&get("/one-too-many"));
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        server.expect(Counter::RefusedTotal, 1);
        drop(open);
        server.stop();
    });
}

/// All that the clients send is there before the engine begins, so that none of them is late.
#[test]
fn slow_clients_are_told_and_cut() {
    if ran_apart() {
        return;
    }
    on_each(|engine| {
        let listener = listener();
        let say = |words: &str| {
            let mut stream = TcpStream::connect(listener.local).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(words.as_bytes()).unwrap();
            stream
        };
        let stalled = say(&get("/big"));
        let [mut slow, mut silent, mut idle] = ["GET / HT", "", &get("/x")].map(say);
        calm(listener.local.port());
        let mut setup = Setup { listener: Some(listener), ..Setup::default() };
        setup.settings.timeouts.head_ms = 500;
        setup.settings.timeouts.idle_ms = 500;
        setup.settings.timeouts.send_window_ms = 500;
        setup.settings.timeouts.send_bytes_per_s = 1 << 30;
        let server = start_with(engine, setup);
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert_eq!(silent.read(&mut [0; 9]).unwrap(), 0);
        let mut answer = String::new();
        idle.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("/x"));
        server.expect(Counter::TimeoutSend, 1);
        server.expect(Counter::TimeoutHead, 2);
        server.expect(Counter::TimeoutIdle, 1);
        drop(stalled);
        server.stop();
    });
}

#[test]
fn under_load_idle_connections_are_kept_less_long_but_as_long_as_announced() {
    on_each(|engine| {
        let server = start(engine, |settings| {
            settings.timeouts.idle_ms = 60_000;
            let law = KeepAlive::new(Shape::Exponential, 60_000, 50, 0.1);
            settings.keep_alive = Some(law.unwrap());
            settings.announce = true;
        });
        let ask = |stream: &mut TcpStream| {
            stream.write_all(get("/x").as_bytes()).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"/x") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            String::from_utf8(head).unwrap()
        };
        let mut first = server.connect();
        let answer = ask(&mut first);
        assert!(
            answer.contains("Connection: keep-alive\r\nKeep-Alive: timeout=60\r\n"),
            "{answer}"
        );
        let mut crowd: Vec<_> = (0..97).map(|_| server.connect()).collect();
        let answers: Vec<_> = crowd.iter_mut().map(ask).collect();
        let last = answers.last().unwrap();
        assert!(!last.contains("timeout=60"), "{last}");
        // those that came last are closed first, long before a minute is over
        assert_eq!(crowd.last_mut().unwrap().read(&mut [0; 9]).unwrap(), 0);
        assert!(ask(&mut first).ends_with("/x"), "closed although it was told otherwise");
        drop((first, crowd));
        server.stop();
    });
}

#[test]
fn who_sees_the_end_of_a_connection_may_come_again_at_once() {
    on_each(|engine| {
        let server = start_with(engine, Setup { per_client: 1, ..Setup::default() });
        for round in 0..300 {
            let mut client = server.connect();
            client.write_all(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{engine}, round {round}: {answer}");
        }
        server.stop();
    });
}
