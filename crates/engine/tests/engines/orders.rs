//! Orders to a running engine: drain, stop, retire, other settings.

use crate::handler::BIG;
use crate::harness::{get, on_each, ran_apart, start};
use forebay_engine::control::{Ended, LoopOrder};
use std::io::{Read, Write};

#[test]
fn a_drain_finishes_what_is_open_and_a_stop_does_not() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut idle = server.connect();
        idle.write_all(get("/x").as_bytes()).unwrap();
        idle.read_exact(&mut [0; 15]).unwrap();
        let mut active = server.connect();
        active.write_all(get("/big").as_bytes()).unwrap();
        active.read_exact(&mut [0; 15]).unwrap();
        server.control.give(LoopOrder::Drain);
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).unwrap();
        rest.clear();
        active.read_to_end(&mut rest).unwrap();
        assert!(rest.len() > BIG);
        assert_eq!(server.stop().aborted(), 0);

        let server = start(engine, |_| {});
        let mut active = server.connect();
        active.write_all(get("/big").as_bytes()).unwrap();
        active.read_exact(&mut [0; 15]).unwrap();
        server.control.give(LoopOrder::Stop);
        assert_eq!(server.stop(), Ended { aborted_sending: 1, ..Ended::default() });
    });
}

#[test]
fn one_that_retires_keeps_its_clients_and_leaves_the_listener_to_others() {
    if ran_apart() {
        return;
    }
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut kept = server.connect();
        let mut ask = |path: &str| {
            kept.write_all(get(path).as_bytes()).unwrap();
            let mut answer = vec![0; 38 + 4 + path.len()];
            kept.read_exact(&mut answer).unwrap();
            let mut whole = String::from_utf8(answer).unwrap();
            while !whole.ends_with(path) {
                let mut byte = [0];
                kept.read_exact(&mut byte).unwrap();
                whole.push(char::from(byte[0]));
            }
            assert!(!whole.contains("Connection: close"), "{whole}");
        };
        ask("/before");
        server.control.give(LoopOrder::Retire);
        for _ in 0..20 {
            ask("/after");
        }
        // all threads know it, and a client that connects now waits for the next owner of the
        // listener
        server.calm();
        let mut next = server.connect();
        next.write_all(get("/next").as_bytes()).unwrap();
        ask("/last");
        drop(kept);
        let keeper = server.keeper.try_clone().unwrap();
        assert_eq!(server.stop().aborted(), 0);
        let listener = std::net::TcpListener::from(keeper);
        listener.set_nonblocking(false).unwrap();
        let (mut queued, _) = listener.accept().unwrap();
        let mut head = [0; 9];
        queued.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"GET /next");
    });
}

#[test]
fn new_settings_hold_from_the_next_request() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut client = server.connect();
        client.write_all(get("/x").as_bytes()).unwrap();
        client.read_exact(&mut [0; 15]).unwrap();
        let mut settings = server.settings.get();
        settings.limits.requests = 1;
        server.settings.replace(settings);
        client.write_all(get("/y").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("Connection: close"), "{answer}");
        server.stop();
    });
}
