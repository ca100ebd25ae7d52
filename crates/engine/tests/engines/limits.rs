//! Bounds and times that clients are held to.

use crate::harness::{NEVER_FUSED, Setup, get, on_each, start, start_with};
use forebay_control::keep_alive::{KeepAlive, Shape};
use forebay_metrics::Counter;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn limits_turn_connections_away_politely() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let open: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for stream in &open {
            let mut stream = stream;
            stream.write_all(get("/x").as_bytes()).unwrap();
            stream.read_exact(&mut [0; 15]).unwrap();
            // busy: where there are ranks, an idle one would make room
            stream.write_all(b"GET /half HTTP/1.1\r\n").unwrap();
        }
        // until the beginnings have been seen
        std::thread::sleep(Duration::from_millis(300));
        let answer = server.exchange(&get("/one-too-many"));
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert_eq!(server.get(Counter::RefusedTotal), 1);
        drop(open);
        server.stop();
    });
}

#[test]
fn slow_clients_are_told_and_cut() {
    on_each(|engine| {
        let server = start(engine, |settings| {
            settings.timeouts.head_ms = 300;
            settings.timeouts.idle_ms = 300;
            settings.timeouts.send_window_ms = 300;
            settings.timeouts.send_bytes_per_s = 1 << 30;
        });
        let mut stalled = server.connect();
        stalled.write_all(get("/big").as_bytes()).unwrap();
        let mut slow = server.connect();
        slow.write_all(b"GET / HT").unwrap();
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        let mut silent = server.connect();
        assert_eq!(silent.read(&mut [0; 9]).unwrap(), 0);
        let mut idle = server.connect();
        idle.write_all(get("/x").as_bytes()).unwrap();
        let mut answer = String::new();
        idle.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("/x"));
        while server.get(Counter::TimeoutSend) == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(server.get(Counter::TimeoutHead), 2);
        assert_eq!(server.get(Counter::TimeoutIdle), 1);
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
        // A connection that lingers keeps its place. Where an answer goes through a list, more may
        // come meanwhile, so there each lingers after its last one.
        if engine.starts_with(NEVER_FUSED) {
            return;
        }
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
