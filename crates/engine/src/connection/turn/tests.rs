//! Tests of what a turn may take at most.

use super::*;
use crate::loops::deadlines::ConnectionTimer;
use crate::loops::send_queue::SendQueue;
use crate::order::ranks::Ranks;
use crate::room::admission::ConnectionAdmission;
use crate::room::linger::Lingering;
use crate::settings::{EngineSettings, LiveSettings, SendOrder};
use forebay_conn::handler::body::BodyRead as Bytes;
use forebay_conn::{
    Admission, Awaited, Bodies, HandlerTypes, Hooks, Http, Http1, Job, Journal, NoBody, NoJob,
    NoRelay, Peer, PlainTransport, Process, ProcessOutcome, Reply, Request,
};
use forebay_metrics::Local;
use forebay_sys::clock;
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A handler that answers every request with nothing.
struct Empty;

impl HandlerTypes for Empty {
    type Body = NoBody;
    type Job = NoJob;
    type Relay = NoRelay;
    type Line = NoJob;
    type Ticket = ();
    type Record = ();
}

impl Process for Empty {
    fn process(
        &mut self,
        _: &Request<'_>,
        (): &mut (),
        _: Option<NoJob>,
        reply: &mut Reply<'_, NoBody>,
    ) -> ProcessOutcome<NoJob> {
        reply.head(204, b"HTTP/1.1 204 No Content\r\n");
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, _: &'static str, _: &mut Reply<'_, NoBody>) {
        panic!("refused with {status}");
    }
}

impl Admission for Empty {}
impl Bodies for Empty {}
impl Journal for Empty {}
impl Hooks for Empty {}

impl Handler for Empty {
    type Protocol = Http1<Empty>;
    type Transport = PlainTransport;
}

fn worker<H: Handler>(handler: H, settings: EngineSettings) -> Worker<H> {
    let lingering = Arc::new(Lingering::new().unwrap());
    Worker::new(handler, Arc::new(LiveSettings::new(settings)), Arc::default(), lingering)
}

/// A client and its connection.
fn connection<H: Handler<Transport = PlainTransport>>() -> (UnixStream, Served<H>) {
    let (client, server) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    (client, Served::new(server.into(), PlainTransport, Peer::new(Peer::UNIX, Peer::UNIX)))
}

/// A client that sends as fast as its body is received does not keep its neighbours waiting.
#[test]
fn what_is_received_counts_in_a_turn() {
    const BODY_BYTES: usize = 4_000_000;
    let mut settings = EngineSettings { turn_bytes: 1, ..EngineSettings::default() };
    settings.limits.body_bytes = BODY_BYTES as u64;
    let mut worker = worker(Empty, settings);
    let (mut client, mut served) = connection();
    client.set_nonblocking(true).unwrap();
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let (body, mut sent, mut most) = (vec![0; BODY_BYTES], 0, 0);
    while sent < BODY_BYTES {
        match client.write(&body[sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let before = worker.metrics.get(Counter::ReceivedBytes);
        served.readable = true;
        let fate = worker.turn(&mut served, None);
        assert!(matches!(fate, Fate::Yields | Fate::Waits), "{fate:?}");
        most = most.max(worker.metrics.get(Counter::ReceivedBytes) - before);
    }
    assert_eq!(most, worker.input.capacity() as u64, "one receive is all a turn may have");
    let mut turns = 0;
    while !matches!(worker.turn(&mut served, None), Fate::Waits) {
        turns += 1;
        assert!(turns < BODY_BYTES, "it never ends");
    }
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 204");
}

/// A handler that answers every request with this many bytes, over HTTP/2 as well.
struct Large;

const LARGE_BYTES: usize = 4_000_000;

impl HandlerTypes for Large {
    type Body = NoBody;
    type Job = NoJob;
    type Relay = NoRelay;
    type Line = NoJob;
    type Ticket = ();
    type Record = ();
}

impl Process for Large {
    fn process(
        &mut self,
        _: &Request<'_>,
        (): &mut (),
        _: Option<NoJob>,
        reply: &mut Reply<'_, NoBody>,
    ) -> ProcessOutcome<NoJob> {
        reply.head(200, b"HTTP/1.1 200 OK\r\n");
        reply.copy(&vec![b'x'; LARGE_BYTES]);
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, _: &'static str, _: &mut Reply<'_, NoBody>) {
        panic!("refused with {status}");
    }
}

impl Admission for Large {}
impl Bodies for Large {}
impl Journal for Large {}
impl Hooks for Large {}

impl Handler for Large {
    type Protocol = Http<Large>;
    type Transport = PlainTransport;
}

/// The preface of HTTP/2, windows without end, and one request.
const ONE_OF_HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff\
    \x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\x00\x00\x00\
    \x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01a";

/// A client that takes its answers as fast as they are written does not keep its neighbours waiting.
#[test]
fn what_is_sent_counts_in_a_turn_of_many_requests() {
    let settings = EngineSettings { turn_bytes: 1, ..EngineSettings::default() };
    let mut worker = worker(Large, settings);
    let (mut client, mut served) = connection();
    client.write_all(ONE_OF_HTTP2).unwrap();
    let (mut taken, mut buffer) = (0, vec![0; 1024 * 1024]);
    while taken < LARGE_BYTES {
        let before = worker.metrics.get(Counter::SentBytes);
        let fate = worker.turn(&mut served, None);
        assert!(matches!(fate, Fate::Yields | Fate::Waits), "{fate:?}");
        let sent = worker.metrics.get(Counter::SentBytes) - before;
        assert!(sent <= 80 * 1024, "{sent} bytes in one turn");
        taken += client.read(&mut buffer).unwrap();
    }
}

/// What a client sends is looked at though it takes its answer as fast as that is written.
#[test]
fn a_reset_is_noticed_though_the_socket_never_fills() {
    let settings = EngineSettings { turn_bytes: 1, ..EngineSettings::default() };
    let mut worker = worker(Large, settings);
    let (mut client, mut served) = connection();
    client.write_all(ONE_OF_HTTP2).unwrap();
    client.set_nonblocking(true).unwrap();
    let (mut taken, mut turns, mut buffer) = (0, 0, vec![0; 1024 * 1024]);
    loop {
        let fate = worker.turn(&mut served, None);
        while let Ok(count) = client.read(&mut buffer) {
            taken += count;
        }
        turns += 1;
        match fate {
            // RST_STREAM with CANCEL
            Fate::Yields if turns == 5 => {
                client.write_all(b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08").unwrap()
            }
            Fate::Yields => {}
            Fate::Waits => break,
            fate => panic!("{fate:?}"),
        }
    }
    assert!(turns > 5 && taken < LARGE_BYTES / 2, "{taken} bytes in {turns} turns");
}

/// What is overdue when the deadline has come, for a client that takes nothing more.
fn late<H: Handler>(
    timer: &mut ConnectionTimer,
    served: &mut Served<H>,
    worker: &mut Worker<H>,
) -> Option<Awaited> {
    (0..6).find_map(|_| {
        worker.now.monotonic_ms = timer.at_ms() + 1;
        timer.over(served, worker)
    })
}

/// A client that takes nothing is slow from the first look on, and cut when the window is over.
#[test]
fn a_client_that_takes_nothing_is_looked_at_for_a_whole_window() {
    let mut worker = worker(Large, EngineSettings::default());
    let admission = ConnectionAdmission::new(1, 1);
    let (mut client, mut served) = connection();
    served.place = Some(admission.enter(served.peer.client()).unwrap());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    while !matches!(worker.turn(&mut served, None), Fate::Waits) {}
    let mut timer = ConnectionTimer::default();
    timer.set(&mut served, &worker);
    let begun_ms = timer.at_ms() - 10_000;
    assert!(!served.is_slow());
    for look in 1..6 {
        assert_eq!(timer.at_ms(), begun_ms + look * 10_000);
        worker.now.monotonic_ms = timer.at_ms();
        assert_eq!(timer.over(&mut served, &worker), None);
        assert!(served.is_slow());
    }
    worker.now.monotonic_ms = timer.at_ms();
    assert!(timer.over(&mut served, &worker).is_some());
    // the place of a cut connection is free at once, and comes back once
    assert!(admission.cut_slowest(Rank::FIRST) && !admission.cut_slowest(Rank::FIRST));
    assert_eq!(admission.open(), 0);
    let place = admission.enter(served.peer.client());
    drop(served);
    assert_eq!(admission.open(), 1);
    drop(place);
    assert_eq!(admission.open(), 0);
    let mut rest = Vec::new();
    let end = client.read_to_end(&mut rest);
    assert!(end.is_err() || rest.len() < LARGE_BYTES, "it has come whole");
}

/// A client that is measured from the end of a long turn on has all the time there is.
#[test]
fn a_long_turn_makes_no_window_of_sending_shorter() {
    let settings = EngineSettings::default();
    let look_ms = settings.timeouts.send_look_ms();
    let mut worker = worker(Large, settings);
    let (mut client, mut served) = connection();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let begun_ms = clock::coarse_ms();
    while !matches!(worker.turn(&mut served, None), Fate::Waits) {}
    assert_eq!(served.awaits().what, Await::Send);
    // the turn began long ago
    worker.now.monotonic_ms = begun_ms.saturating_sub(look_ms / 2);
    let mut timer = ConnectionTimer::default();
    timer.set(&mut served, &worker);
    assert!(timer.at_ms() >= begun_ms + look_ms);
}

/// A client is not slow when it is the server that has no time to send.
#[test]
fn a_client_that_has_taken_all_there_was_is_not_slow() {
    let settings = EngineSettings::default();
    let mut worker = worker(Large, settings);
    let (mut client, mut served) = connection();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    client.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1024 * 1024];
    while !matches!(worker.turn(&mut served, None), Fate::Waits) {}
    while client.read(&mut buffer).is_ok() {}
    // a window in which there was nothing to take
    let mut timer = ConnectionTimer::default();
    timer.set(&mut served, &worker);
    served.begin_window(0);
    worker.now.monotonic_ms = timer.at_ms() + 1;
    assert_eq!(timer.over(&mut served, &worker), None);
    // a window in which there was something, and the client took nothing
    while !matches!(worker.turn(&mut served, None), Fate::Waits) {}
    timer.set(&mut served, &worker);
    served.begin_window(0);
    let late = late(&mut timer, &mut served, &mut worker);
    assert!(matches!(late, Some(Awaited { what: Await::Send, .. })), "{late:?}");
}

/// A client of HTTP/2 that opens its windows slowly, but fast enough, has as long as it needs.
#[test]
fn a_client_that_opens_its_windows_is_not_slow() {
    const WINDOWS: &[u8] = b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\xea\x60\
        \x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\xea\x60";
    let mut worker = worker(Large, EngineSettings::default());
    let (mut client, mut served) = connection();
    client
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        .unwrap();
    client.write_all(b"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01a").unwrap();
    client.set_nonblocking(true).unwrap();
    let mut timer = ConnectionTimer::default();
    let mut buffer = vec![0; 1024 * 1024];
    let mut turn = |worker: &mut Worker<Large>, served: &mut Served<Large>| {
        served.readable = true;
        while !matches!(worker.turn(served, None), Fate::Waits) {}
        while client.read(&mut buffer).is_ok() {}
        assert_eq!(served.awaits().what, Await::Send);
        client.write_all(WINDOWS).unwrap();
    };
    turn(&mut worker, &mut served);
    timer.set(&mut served, &worker);
    for _ in 0..3 {
        turn(&mut worker, &mut served);
        timer.set(&mut served, &worker);
        worker.now.monotonic_ms = timer.at_ms() + 1;
        assert_eq!(timer.over(&mut served, &worker), None);
    }
    // the client opens no window
    let late = late(&mut timer, &mut served, &mut worker);
    assert!(matches!(late, Some(Awaited { what: Await::Send, .. })), "{late:?}");
}

/// Among two clients that both take more, the one that has taken more of its answer since the wait
/// began goes on first, whichever was ready first.
#[test]
fn the_fastest_receiver_goes_on_first() {
    let settings = EngineSettings { send_order: SendOrder::Fastest, ..EngineSettings::default() };
    let mut worker = worker(Large, settings);
    let mut queue = SendQueue::new(&Ranks::default());
    let mut buffer = vec![0; 16 * 1024];
    let mut waiting = [(1, 1), (2, 3), (3, 2)].map(|(token, reads)| {
        let (mut client, mut served) = connection();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        while !matches!(worker.turn(&mut served, None), Fate::Waits) {}
        served.begin_window(worker.now_ms());
        (0..4 * reads).for_each(|_| client.read_exact(&mut buffer).unwrap());
        (token, served, client)
    });
    worker.now.monotonic_ms += 1000;
    for (token, served, _) in &mut waiting {
        queue.join(served, &worker, *token).unwrap();
    }
    let order: Vec<u64> = std::iter::from_fn(|| {
        let (token, goes_on) = queue.next()?;
        queue.went_on(goes_on);
        Some(token)
    })
    .collect();
    assert_eq!(order, [2, 3, 1]);
    assert!(queue.is_empty());
}

/// The rest of an answer is what its client has still to receive.
#[test]
fn what_is_left_of_an_answer_is_known() {
    let settings = EngineSettings { send_order: SendOrder::Shortest, ..EngineSettings::default() };
    let mut worker = worker(Large, settings);
    let (mut client, mut served) = connection();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(served.left(&worker.handler), 0);
    while !matches!(worker.turn(&mut served, None), Fate::Waits) {}
    let sent = worker.metrics.get(Counter::SentBytes);
    let (left, all) = (served.left(&worker.handler), LARGE_BYTES as u64);
    assert!(left < all && left + sent > all, "{left} of {all} after {sent}, heads included");
}

/// Answers with bodies that must be read from a disk after each piece.
#[derive(Default)]
struct Cold(Cell<u32>);

#[derive(Debug)]
struct Warm;

impl Job for Warm {
    type Done = ();

    fn run(self, _: &Local, _: &mut dyn Stopwatch) {}

    fn lane(&self) -> u64 {
        0
    }
}

impl HandlerTypes for Cold {
    type Body = ();
    type Relay = NoRelay;
    type Job = Warm;
    type Line = NoJob;
    type Ticket = ();
    type Record = ();
}

impl Process for Cold {
    fn process(
        &mut self,
        _: &Request<'_>,
        (): &mut (),
        _: Option<()>,
        reply: &mut Reply<'_, ()>,
    ) -> ProcessOutcome<Warm> {
        reply.head(200, b"HTTP/1.1 200 OK\r\n");
        reply.stream((), LARGE_BYTES as u64);
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, _: &'static str, _: &mut Reply<'_, ()>) {
        panic!("refused with {status}");
    }
}

impl Admission for Cold {}
impl Journal for Cold {}
impl Hooks for Cold {}

impl Bodies for Cold {
    fn read(&self, (): &mut (), buffer: &mut [u8]) -> Bytes {
        self.0.set(self.0.get() + 1);
        if self.0.get().is_multiple_of(2) { Bytes::Cold } else { Bytes::Bytes(buffer.len()) }
    }

    fn warm(&mut self, (): &()) -> Option<Warm> {
        Some(Warm)
    }
}

impl Handler for Cold {
    type Protocol = Http<Cold>;
    type Transport = PlainTransport;
}

/// Turns that follow one another at once are one for its neighbours.
#[test]
fn jobs_give_no_turn_anew() {
    let settings = EngineSettings { turn_bytes: 100 * 1024, ..EngineSettings::default() };
    let mut worker = worker(Cold::default(), settings);
    let (mut client, mut served) = connection();
    client.write_all(ONE_OF_HTTP2).unwrap();
    let (first, stream_at) = (&ONE_OF_HTTP2[ONE_OF_HTTP2.len() - 15..], 8);
    for stream in (3..100).step_by(2) {
        let mut head = first.to_vec();
        head[stream_at] = stream;
        client.write_all(&head).unwrap();
    }
    client.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1024 * 1024];
    let (mut in_a_row, mut jobs) = (0, 0);
    while jobs < 40 {
        let before = worker.metrics.get(Counter::SentBytes);
        let fate = worker.turn(&mut served, None);
        in_a_row += worker.metrics.get(Counter::SentBytes) - before;
        assert!(in_a_row <= 180 * 1024, "{in_a_row} bytes in a row");
        match fate {
            Fate::Job(..) => jobs += 1,
            Fate::Yields => in_a_row = 0,
            fate => panic!("{fate:?}"),
        }
        while client.read(&mut buffer).is_ok() {}
    }
}
