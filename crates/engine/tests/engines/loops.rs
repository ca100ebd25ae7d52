//! Several loops of one engine, and what they report of themselves.

use crate::handler::{Away, Gate, Paths};
use crate::harness::{
    NEVER_FUSED, Setup, calm, get, helpers, listener, on, on_each, ran_apart, start, start_with,
};
use forebay_engine::accept::Listener;
use forebay_engine::admission::ConnectionAdmission;
use forebay_engine::control::{EngineControl, LoopOrder};
use forebay_engine::event::{self, EventLoop};
use forebay_engine::fibers::FiberLoop;
use forebay_engine::ranks::Ranks;
use forebay_metrics::{Activity, Counter, Local};
use forebay_sys::clock;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn loops_that_share_a_socket_share_those_who_come() {
    if ran_apart() {
        return;
    }
    for engine in on(["event", "fibers"]) {
        let Listener { socket, local: address, .. } = listener();
        let control = Arc::new(EngineControl::new(2).unwrap());
        let (lines, _read) = channel();
        let start = |index| {
            let metrics = Arc::<Local>::default();
            let copy = socket.try_clone().unwrap();
            let parts = event::LoopParts {
                listeners: vec![Listener { shared: true, ..Listener::new(copy, address) }],
                handler: Paths {
                    away: Away::default(),
                    lines: lines.clone(),
                    trusts: false,
                    gate: Arc::<Gate>::default(),
                    now_ms: 0,
                    books: Arc::default(),
                },
                settings: Arc::default(),
                admission: ConnectionAdmission::new(100, 100),
                helpers: helpers(&Ranks::default()),
                ranks: Ranks::default(),
                control: Arc::clone(&control),
                index,
                metrics: Arc::clone(&metrics),
            };
            let thread = match engine {
                "fibers" => {
                    let fiber_loop = FiberLoop::new(parts).unwrap();
                    std::thread::spawn(move || fiber_loop.run().unwrap())
                }
                _ => {
                    let event_loop = EventLoop::new(parts).unwrap();
                    std::thread::spawn(move || event_loop.run().unwrap())
                }
            };
            (metrics, thread)
        };
        let loops = [start(0), start(1)];
        let clients: Vec<_> = (0..40)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(get("/x").as_bytes()).unwrap();
                stream.read_exact(&mut [0; 15]).unwrap();
                // both loops sleep again; the kernel would always wake the same one
                calm(address.port());
                stream
            })
            .collect();
        let accepted = [0, 1].map(|index: usize| loops[index].0.get(Counter::Accepted));
        assert_eq!(accepted[0] + accepted[1], 40);
        // one after the other, unless one loop was later to sleep than that
        assert!(accepted.iter().all(|count| *count >= 8), "{engine}: {accepted:?}");
        drop(clients);
        control.give(LoopOrder::Drain);
        for (_, thread) in loops {
            thread.join().unwrap();
        }
    }
}

#[test]
fn who_has_nothing_to_do_shows_that_it_turns() {
    on_each(|engine| {
        let server = start_with(engine, Setup { pool: 2, ..Setup::default() });
        for _ in 0..2 {
            // at least one thread is asked for a heartbeat
            while server.control.heartbeats_since(u64::MAX) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let now_ms = clock::coarse_ms();
            while !server.control.heartbeats_since(now_ms + 1) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let control = Arc::clone(&server.control);
        server.stop();
        assert!(control.heartbeats_since(u64::MAX), "asked for a heartbeat after its end");
    });
}

#[test]
fn a_thread_that_hangs_where_it_must_not_shows_no_heartbeat() {
    on_each(|engine| {
        let server = start_with(engine, Setup { pool: 2, ..Setup::default() });
        let ask = |path: &str| {
            let mut client = server.connect();
            client.write_all(get(path).as_bytes()).unwrap();
            client
        };
        // one of the two threads of the pool waits for its client, and no thread accepts
        let mut idle = ask("/x");
        idle.read_exact(&mut [0; 15]).unwrap();
        let hangs = ask("/hang");
        server.gate.wait_for(1);
        let hung_ms = clock::coarse_ms();
        let turns = |since_ms| server.control.heartbeats_since(since_ms + 1);
        // here the accepting thread shows heartbeats, and not each serving one
        if ["threads", NEVER_FUSED].iter().any(|name| engine.starts_with(name)) {
            while !turns(hung_ms) {
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            // longer than any sleep; a thread that is late may still show one heartbeat or two
            let is_still = || {
                let since_ms = clock::coarse_ms();
                std::thread::sleep(Duration::from_millis(700));
                !turns(since_ms)
            };
            assert!((0..20).any(|_| is_still()), "a heartbeat although it hangs");
        }
        let opened_ms = clock::coarse_ms();
        server.gate.open();
        while !turns(opened_ms) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop((idle, hangs));
        server.stop();
    });
}

/// duke's figure 7 for a server that begins a thread for each connection.
#[test]
fn the_beginning_of_a_thread_is_timed() {
    for engine in on(["threads"]) {
        let server = start(engine, |settings| settings.sample = 2);
        (0..4).for_each(|_| _ = server.exchange(&get("/a")));
        // the client may be answered before the time is noted
        server.expect(Counter::Closed, 4);
        while server.timed(Activity::Thread) < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.stop();
    }
}
