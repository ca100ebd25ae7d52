//! Clients of HTTP/2 that cost more than honest ones, each beside honest ones: the abuser loses its
//! connection within its budget, the others get every answer, and memory stays bounded.
//!
//! The waits of honest clients are measured only on demand, since no test asserts times on a machine with
//! other work: `FOREBAY_QUIET=1 cargo test --release -p forebay-tests --test alone http2_abuse::event::
//! -- --nocapture` attacks for longer, prints the 99th percentile alone and under each abuse, and fails
//! where the second is above twice the first and a millisecond. The server then has processor 0 for
//! itself and one worker. All clients have processor 1, where the honest one has a higher priority than
//! the abuser (which needs root): the measurement is of the server, not of which client runs first.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::ALONE;
use forebay_http2::budget::{Abuse, BudgetLimit};
use forebay_http2::frame::{self, FrameHeader, HEADER_BYTES, PREFACE, flag, kind};
use forebay_http2::hpack::encode;
use forebay_http2::{ErrorCode, FieldLimits, Http2Limits};
use forebay_tests::faults::process::resident_kib;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{ENGINES, Options, is_full_matrix};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use std::env;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

forebay_tests::on_each_engine! {
    who_floods_is_sent_away_and_others_are_served,
    who_only_waits_costs_little,
}

/// One kind of abuse.
struct Flood {
    name: &'static str,
    /// Writes the first frames, behind the preface.
    begin: fn(&mut Vec<u8>),
    /// Writes the next unit of the flood; numbers begin at 0.
    unit: fn(u32, &mut Vec<u8>),
    /// The number of units that come through.
    bound: BudgetLimit,
}

/// The number of units that come through if each takes this much of a budget.
const fn each(budget: Abuse, cost: u32) -> BudgetLimit {
    let BudgetLimit { burst, per_s } = budget.bound();
    BudgetLimit { burst: burst / cost, per_s: per_s / cost }
}

/// The limit of CONTINUATION frames in a head.
const MOST_CONTINUATIONS: BudgetLimit = BudgetLimit { burst: 32, per_s: 0 };

fn nothing(_: &mut Vec<u8>) {}

/// Writes the head of a request on the stream of this number.
fn ask(out: &mut Vec<u8>, number: u32, path: &str, flags: u8, more: &[(&str, &str)]) {
    let mut block = Vec::new();
    let first = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")];
    for (name, value) in first.iter().chain(more) {
        encode::field(&mut block, name.as_bytes(), value.as_bytes());
    }
    frame::write(out, kind::HEADERS, flags, 2 * number + 1, &block);
}

const WHOLE: u8 = flag::END_STREAM | flag::END_HEADERS;

/// Writes a field of 3000 bytes, which goes into the table.
fn fill_table(out: &mut Vec<u8>) {
    let mut block = vec![0x40, 1, b'x', 0x7f, 0xb9, 0x16];
    block.resize(block.len() + 3000, b'y');
    let mut whole = Vec::new();
    for (name, value) in
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")]
    {
        encode::field(&mut whole, name.as_bytes(), value.as_bytes());
    }
    whole.extend_from_slice(&block);
    frame::write(out, kind::HEADERS, WHOLE, 1, &whole);
}

const FLOODS: [Flood; 14] = [
    Flood {
        name: "requests that are given up at once",
        begin: nothing,
        unit: |number, out| {
            ask(out, number, "/large.bin", WHOLE, &[]);
            frame::write_reset(out, 2 * number + 1, ErrorCode::CANCEL);
        },
        bound: each(Abuse::Resets, 1),
    },
    Flood {
        name: "requests that have to be reset",
        begin: nothing,
        unit: |number, out| {
            ask(out, number, "/large.bin", flag::END_HEADERS, &[]);
            frame::write_window_update(out, 2 * number + 1, 0);
        },
        bound: each(Abuse::MadeResets, 1),
    },
    Flood {
        name: "requests that contradict themselves",
        begin: nothing,
        unit: |number, out| ask(out, number, "/small.txt", WHOLE, &[("content-length", "5")]),
        bound: each(Abuse::MadeResets, 1),
    },
    Flood {
        name: "more streams than may be open",
        begin: nothing,
        unit: |number, out| ask(out, number, "/small.txt", flag::END_HEADERS, &[]),
        // and those that may
        bound: BudgetLimit { burst: 1000 + 128, per_s: 33 },
    },
    Flood {
        name: "a head without end",
        begin: |out| ask(out, 0, "/small.txt", 0, &[]),
        unit: |_, out| frame::write(out, kind::CONTINUATION, 0, 1, b"\x82"),
        bound: MOST_CONTINUATIONS,
    },
    Flood {
        name: "a head without end that is empty",
        begin: |out| ask(out, 0, "/small.txt", 0, &[]),
        unit: |_, out| frame::write(out, kind::CONTINUATION, 0, 1, b""),
        bound: MOST_CONTINUATIONS,
    },
    Flood {
        name: "settings",
        begin: nothing,
        unit: |number, out| {
            let window = (number % 2 * 1000).to_be_bytes();
            frame::write(out, kind::SETTINGS, 0, 0, &[&[0, 4], &window[..]].concat());
        },
        bound: each(Abuse::Overhead, 20),
    },
    Flood {
        name: "pings",
        begin: nothing,
        unit: |number, out| {
            frame::write(out, kind::PING, 0, 0, &u64::from(number).to_be_bytes());
        },
        bound: each(Abuse::Overhead, 1),
    },
    Flood {
        name: "priorities",
        begin: nothing,
        unit: |_, out| frame::write(out, kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 9]),
        bound: each(Abuse::Overhead, 1),
    },
    Flood {
        name: "frames that nobody knows",
        begin: nothing,
        unit: |_, out| frame::write(out, 0x77, 0, 0, b"what"),
        bound: each(Abuse::Overhead, 1),
    },
    Flood {
        name: "data without a byte",
        begin: |out| ask(out, 0, "/small.txt", flag::END_HEADERS, &[]),
        unit: |_, out| frame::write(out, kind::DATA, 0, 1, b""),
        bound: each(Abuse::Overhead, 10),
    },
    Flood {
        name: "windows that open by a byte",
        begin: nothing,
        unit: |_, out| frame::write_window_update(out, 0, 1),
        bound: each(Abuse::Overhead, 1),
    },
    Flood {
        name: "answers a byte at a time",
        begin: |out| {
            frame::write(out, kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
            ask(out, 0, "/large.bin", WHOLE, &[]);
        },
        unit: |_, out| frame::write_window_update(out, 1, 1),
        // updates that are read together are answered together, which earns a little
        bound: BudgetLimit { burst: 11_000, per_s: 1100 },
    },
    Flood {
        name: "a small head that is decoded to a large one",
        begin: fill_table,
        unit: |number, out| {
            let block = [&[0x82, 0x86, 0x84][..], &[0xbe; 1000]].concat();
            frame::write(out, kind::HEADERS, WHOLE, 2 * number + 3, &block);
        },
        // each costs 50 and earns 10, and so does its answer
        bound: each(Abuse::Overhead, 30),
    },
];

/// The way in which a connection has ended.
#[derive(Default)]
struct Ending {
    /// The error code of the GOAWAY frame.
    goodbye: Option<ErrorCode>,
    is_closed: bool,
}

/// Notes the server's frames on a connection until it ends.
fn listen(mut stream: TcpStream, ending: &Mutex<Ending>) {
    let (mut held, mut buffer) = (Vec::new(), [0; 64 * 1024]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        held.extend_from_slice(&buffer[..count]);
        let mut at = 0;
        while let Some(header) = FrameHeader::read(&held[at..])
            && held.len() >= at + HEADER_BYTES + header.len
        {
            let payload = &held[at + HEADER_BYTES..][..header.len];
            if header.kind == kind::GOAWAY {
                let code = ErrorCode(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
                if code != ErrorCode::NO_ERROR {
                    ending.lock().unwrap().goodbye = Some(code);
                }
            }
            at += HEADER_BYTES + header.len;
        }
        held.drain(..at);
    }
    ending.lock().unwrap().is_closed = true;
}

/// Begins a connection.
fn begin(addr: SocketAddr, first: impl FnOnce(&mut Vec<u8>)) -> (TcpStream, Arc<Mutex<Ending>>) {
    let mut stream = wire::connect(addr);
    let ending = Arc::new(Mutex::new(Ending::default()));
    let (reading, noted) = (stream.try_clone().unwrap(), Arc::clone(&ending));
    thread::spawn(move || listen(reading, &noted));
    let mut out = PREFACE.to_vec();
    frame::write(&mut out, kind::SETTINGS, 0, 0, &[]);
    first(&mut out);
    stream.write_all(&out).unwrap();
    (stream, ending)
}

/// The seconds of leave that an abuser has beyond its budget, for a server that is busy elsewhere.
const SLACK_S: u32 = 10;

/// Sends units until the server ends the connection, at most what the budget allows by now. Returns the
/// error code.
fn attack(addr: SocketAddr, flood: &Flood) -> Option<ErrorCode> {
    let (mut stream, ending) = begin(addr, flood.begin);
    let (begun, mut sent) = (Instant::now(), 0);
    let mut out = Vec::new();
    loop {
        if let Ending { goodbye, is_closed: true } = *ending.lock().unwrap() {
            return goodbye;
        }
        let passed_s = begun.elapsed().as_secs() as u32;
        assert!(passed_s < PATIENCE.as_secs() as u32, "{}: {sent} were not enough", flood.name);
        let most = flood.bound.burst + 1 + flood.bound.per_s * (passed_s + SLACK_S);
        let is_told = ending.lock().unwrap().goodbye.is_some();
        for _ in 0..(most - sent).min(if is_told { 0 } else { 100 }) {
            (flood.unit)(sent, &mut out);
            sent += 1;
        }
        if out.is_empty() {
            // nothing more is said, so that what the server says is not lost to a reset
            let _ = is_told.then(|| stream.shutdown(Shutdown::Write));
            thread::sleep(Duration::from_millis(2));
        }
        let _ = stream.write_all(&out);
        out.clear();
    }
}

/// The waits of honest clients.
struct Felt {
    /// The waits in microseconds, sorted.
    times_us: Vec<u128>,
}

impl Felt {
    fn p99_us(&self) -> u128 {
        self.times_us[(self.times_us.len() - 1) * 99 / 100]
    }
}

/// A flag that is set when this is dropped, however the test ends.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Asks again and again, by both versions, while `act` goes on. Every answer must be right.
fn beside<R>(addr: SocketAddr, act: impl FnOnce() -> R) -> (R, Felt) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asks = scope.spawn(|| {
            if is_quiet() {
                let thread = gettid().as_raw_nonzero().to_string();
                let _ = Command::new("chrt").args(["-f", "-p", "1", &thread]).status();
            }
            let mut two = Client::connect(addr);
            let mut times_us = Vec::new();
            while !is_over.load(Relaxed) || times_us.len() < 20 {
                let begun = Instant::now();
                let answer = two.get("/small.txt");
                times_us.push(begun.elapsed().as_micros());
                assert_eq!((answer.status, &*answer.body), (200, &b"small"[..]));
                if times_us.len() % 16 == 1 {
                    let one = wire::exchange(
                        addr,
                        b"GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                    );
                    assert!(one.starts_with(b"HTTP/1.1 200 ") && one.ends_with(b"small"));
                }
                // many times where they are measured, and elsewhere as many as leave others a processor
                thread::sleep(Duration::from_micros(if is_quiet() { 200 } else { 5_000 }));
            }
            times_us.sort_unstable();
            Felt { times_us }
        });
        let over = Over(&is_over);
        let result = act();
        drop(over);
        (result, asks.join().unwrap())
    })
}

/// Whether the machine has no other work, so that times mean something.
fn is_quiet() -> bool {
    env::var("FOREBAY_QUIET").is_ok_and(|wanted| wanted == "1")
}

fn serve(engine: &str, more: &str) -> (WatchedServer, Folder) {
    let folder = Folder::new();
    folder.write("site/small.txt", "small");
    folder.write("site/large.bin", vec![b'x'; 3_000_000]);
    let lines =
        format!("limits.connections_per_client = 1000\nlimits.requests_per_connection = 0\n{more}");
    let mut options = Options::new(folder.join("site")).engine(engine).config(&lines);
    if is_quiet() {
        options.workers = 1;
        options.wrapper = ["taskset", "-c", "0"].map(str::to_owned).to_vec();
        let mut of_clients = CpuSet::new();
        of_clients.set(1);
        sched_setaffinity(None, &of_clients).unwrap();
    }
    let served = WatchedServer::with(options);
    // what the server needs once is there before the measurement
    assert_eq!(Client::of(&served).get("/large.bin").body.len(), 3_000_000);
    (served, folder)
}

/// The most memory of a connection: its state, and bodies of requests that are not read.
fn most_bytes_each() -> u64 {
    let fields = FieldLimits { bytes: 64 * 1024, fields: 200 };
    let limits = Http2Limits { fields, ..Http2Limits::default() };
    limits.most_heap_bytes() as u64 + u64::from(limits.connection_window_bytes)
}

/// The number of abusers at once.
const ABUSERS: usize = 4;

fn who_floods_is_sent_away_and_others_are_served(engine: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_quiet = is_quiet();
    let (served, _folder) = serve(engine, "");
    let addr = served.addr();
    let alone = is_quiet.then(|| beside(addr, || thread::sleep(Duration::from_secs(3))).1);
    let before_kib = resident_kib(served.pid());
    let mut slow = Vec::new();
    // each kind once, and some of them on every engine
    let is_full = is_quiet || is_full_matrix() || engine == ENGINES[0];
    for flood in FLOODS.iter().step_by(if is_full { 1 } else { 4 }) {
        let abusers = if is_quiet { 1 } else { ABUSERS };
        let attack_on = || {
            let until = Instant::now() + Duration::from_secs(if is_quiet { 3 } else { 0 });
            loop {
                let goodbye = attack(addr, flood);
                assert_eq!(goodbye, Some(ErrorCode::ENHANCE_YOUR_CALM), "{engine}: {}", flood.name);
                if Instant::now() >= until {
                    break;
                }
            }
        };
        let ((), felt) = beside(addr, || {
            thread::scope(|scope| (0..abusers).for_each(|_| _ = scope.spawn(attack_on)));
        });
        if let Some(alone) = &alone {
            let (before, beside) = (alone.p99_us(), felt.p99_us());
            println!("{engine}: {}: p99 {before} us alone, {beside} us", flood.name);
            if beside > 2 * before + 1000 {
                slow.push(flood.name);
            }
        }
    }
    let grown = resident_kib(served.pid()).saturating_sub(before_kib) * 1024;
    let most = ABUSERS as u64 * most_bytes_each() + (32 << 20);
    assert!(grown <= most, "{engine}: {grown} bytes for {ABUSERS} at a time");
    assert!(slow.is_empty(), "{engine}: others wait too long under {slow:?}");
    let open = || served.metric("forebay_connections");
    assert!(soon(PATIENCE, || open() <= 1), "{engine}: {}", served.metrics());
}

/// The number of connections that ask for much and take nothing, and that begin much and never end it.
const WAITERS: usize = 20;

fn who_only_waits_costs_little(engine: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (served, _folder) = serve(engine, "timeouts.body = \"2s\"\ntimeouts.send_window = \"2s\"");
    let addr = served.addr();
    let before_kib = resident_kib(served.pid());
    let ((), _) = beside(addr, || {
        let connections: Vec<_> = (0..WAITERS)
            .map(|waiter| {
                begin(addr, |out| {
                    frame::write(out, kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
                    for number in 0..100 {
                        match waiter % 2 {
                            0 => ask(out, number, "/large.bin", WHOLE, &[]),
                            _ => ask(out, number, "/small.txt", flag::END_HEADERS, &[]),
                        }
                    }
                })
            })
            .collect();
        // each request has its time, and an answer or a reset is its end
        let late = || served.metric("forebay_timeouts_total{kind=\"body\"}");
        let half = (WAITERS / 2 * 100) as u64;
        assert!(soon(PATIENCE, || late() >= half), "{engine}: {}", served.metrics());
        let grown = resident_kib(served.pid()).saturating_sub(before_kib) * 1024;
        let most = WAITERS as u64 * most_bytes_each() + (16 << 20);
        println!("{engine}: {} bytes for each that waits", grown / WAITERS as u64);
        assert!(grown <= most, "{engine}: {grown} bytes for {WAITERS} connections");
        drop(connections);
    });
}
