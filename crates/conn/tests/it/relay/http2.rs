//! A request that another server answers, over HTTP/2.

use crate::front::{Front, Shared};
use crate::worker::Worker;
use forebay_conn::*;
use forebay_http2::frame::{self, kind};
use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields, Http2Event, Http2Limits};

/// The status with which a request for `path`, with this body if there is one, is answered over HTTP/2.
fn status_over_http2(exchange: &Shared, path: &str, body: &[u8]) -> u16 {
    let mut client = Connection::client(Http2Limits::default());
    let mut request = Vec::new();
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a")];
    let head = |block: &mut Vec<u8>| {
        for (name, value) in fields {
            encode::field(block, name.as_bytes(), value.as_bytes());
        }
    };
    let stream = client.open(&mut request, body.is_empty(), false, head).unwrap();
    if !body.is_empty() {
        request.extend(client.data(stream, body.len().try_into().unwrap(), true).unwrap());
        request.extend(body);
    }

    let limits = ConnectionLimits::default();
    let mut conn = Http2::new(&limits, Rank::FIRST);
    let exchanges = [exchange.clone()].into();
    let (mut handler, mut worker) = (Front { exchanges, ..Front::default() }, Worker::new());
    let (mut request, mut answer) = (Some(request), Vec::new());
    loop {
        let (mut cx, input) = worker.lend(&mut handler, &limits, 100);
        match conn.advance(&mut cx, input) {
            Step::Receive => {
                let Some(bytes) = request.take() else { break };
                input.spare()[..bytes.len()].copy_from_slice(&bytes);
                input.received(bytes.len());
            }
            // nothing more has come; what is written is sent first
            Step::Send | Step::Look => {
                answer.append(&mut cx.out.bytes);
                cx.out.clear();
                conn.sent(cx.handler);
            }
            step => panic!("{step:?}"),
        }
    }
    conn.abandon(&mut handler, &worker.peer);
    assert_eq!(handler.settled.len(), 1);

    let mut fields = DecodedFields::default();
    let mut rest = &answer[..];
    loop {
        let received = client.receive(rest, &mut fields, 0);
        match received.event {
            Some(Http2Event::Response { .. }) => return fields.status(),
            _ => assert!(received.used > 0, "no answer in {answer:?}"),
        }
        rest = &rest[received.used..];
    }
}

#[test]
fn over_http2_a_request_whose_body_is_gone_is_not_passed_on_any_more() {
    let wire = Shared::new(100);
    assert_eq!(status_over_http2(&wire, "/late", b"hello"), 500);
    assert!(wire.is_dropped() && wire.got().is_empty());
    // a request without a body is, and so is one whose body is still to come
    for (path, body) in [("/late", ""), ("/u", "hello")] {
        let wire = Shared::new(100);
        wire.answers(200, Some(2), "up");
        assert_eq!(status_over_http2(&wire, path, body.as_bytes()), 200);
        assert_eq!(wire.got(), body);
    }
}

/// The window of a connection is that of all its streams.
#[test]
fn who_can_send_nothing_because_of_other_requests_is_not_to_blame() {
    let mut client = Connection::client(Http2Limits::default());
    let mut request = Vec::new();
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", "/large"), (":authority", "a")];
    let mut begin = |request: &mut Vec<u8>| {
        let head = |block: &mut Vec<u8>| {
            for (name, value) in fields {
                encode::field(block, name.as_bytes(), value.as_bytes());
            }
        };
        client.open(request, false, false, head).unwrap()
    };
    let streams = [(); 5].map(|()| begin(&mut request));
    let exchanges = [(); 6].map(|()| Shared::new(0));
    let limits = ConnectionLimits::default();
    let mut conn = Http2::new(&limits, Rank::FIRST);
    let own = exchanges.iter().cloned().collect();
    let mut handler = Front { exchanges: own, ..Front::default() };
    let mut worker = Worker::new();
    let mut feed = |bytes: &[u8]| {
        let mut rest = bytes;
        loop {
            let (mut cx, input) = worker.lend(&mut handler, &limits, 100);
            match conn.advance(&mut cx, input) {
                Step::Receive | Step::Wait if rest.is_empty() => break,
                Step::Receive => {
                    let count = rest.len().min(input.spare().len());
                    input.spare()[..count].copy_from_slice(&rest[..count]);
                    input.received(count);
                    rest = &rest[count..];
                }
                Step::Send => {
                    cx.out.clear();
                    conn.sent(cx.handler);
                }
                Step::Yield | Step::Look => {}
                step => panic!("{step:?}"),
            }
        }
    };
    feed(&request);
    // the bytes that four exchanges do not take fill it
    for (number, stream) in streams[..4].iter().enumerate() {
        let mut data = Vec::new();
        for _ in 0..16 {
            frame::write(&mut data, kind::DATA, 0, *stream, &[b'x'; 16 * 1024]);
        }
        feed(&data);
        let held: Vec<_> = exchanges[..5].iter().map(|one| one.wire().is_held_back).collect();
        assert_eq!(held, [number == 3; 5], "{number}");
    }
    // a request that comes then
    let mut late = Vec::new();
    begin(&mut late);
    feed(&late);
    assert!(exchanges[5].wire().is_held_back);
    conn.abandon(&mut handler, &worker.peer);
}

/// Requests of one client, one of which it gives up.
struct Resets {
    client: Connection,
    streams: Vec<u32>,
}

impl Resets {
    fn new() -> Resets {
        Resets { client: Connection::client(Http2Limits::default()), streams: Vec::new() }
    }

    fn ask(&mut self) -> Vec<u8> {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
        let head = |block: &mut Vec<u8>| {
            for (name, value) in fields {
                encode::field(block, name.as_bytes(), value.as_bytes());
            }
        };
        let mut request = Vec::new();
        self.streams.push(self.client.open(&mut request, true, false, head).unwrap());
        request
    }

    fn give_up(&self, number: usize) -> Vec<u8> {
        let mut reset = Vec::new();
        frame::write(&mut reset, kind::RST_STREAM, 0, self.streams[number], &[0, 0, 0, 8]);
        reset
    }
}

/// Gives a connection these bytes, and more bytes at each look. Returns how often it looks.
fn looks(
    conn: &mut Http2<Front>,
    handler: &mut Front,
    worker: &mut Worker,
    bytes: &[u8],
    mut meanwhile: impl FnMut() -> Vec<u8>,
) -> u32 {
    let limits = ConnectionLimits::default();
    let (mut rest, mut looks) = (bytes.to_vec(), 0);
    loop {
        let (mut cx, input) = worker.lend(handler, &limits, 100);
        let step = conn.advance(&mut cx, input);
        match step {
            Step::Receive | Step::Wait if rest.is_empty() => return looks,
            Step::Look => {
                looks += 1;
                rest = meanwhile();
            }
            Step::Receive => {}
            Step::Forget(_) => continue,
            Step::Send => {
                cx.out.clear();
                conn.sent(cx.handler);
                continue;
            }
            step => panic!("{step:?}"),
        }
        input.spare()[..rest.len()].copy_from_slice(&rest);
        input.received(rest.len());
        rest.clear();
    }
}

#[test]
fn what_is_given_up_before_all_is_looked_at_is_not_begun() {
    let exchanges = [(); 3].map(|()| Shared::new(0));
    let own = exchanges.iter().cloned().collect();
    let mut handler = Front { exchanges: own, ..Front::default() };
    let mut conn = Http2::new(&ConnectionLimits::default(), Rank::FIRST);
    let (mut worker, mut asked) = (Worker::new(), Resets::new());
    // the first in the same bytes, the second in what comes meanwhile
    let mut bytes = asked.ask();
    bytes.extend(asked.give_up(0));
    bytes.extend(asked.ask());
    bytes.extend(asked.ask());
    let meanwhile = || asked.give_up(1);
    assert_eq!(looks(&mut conn, &mut handler, &mut worker, &bytes, meanwhile), 1);
    assert_eq!(exchanges.each_ref().map(|one| one.wire().is_begun), [false, false, true]);
    assert_eq!(exchanges.each_ref().map(Shared::is_dropped), [true, true, false]);
    conn.abandon(&mut handler, &worker.peer);
    assert_eq!(handler.settled.len(), 3);
}

#[test]
fn who_asks_on_and_on_is_looked_at_four_times() {
    let exchanges = [(); 5].map(|()| Shared::new(0));
    let own = exchanges.iter().cloned().collect();
    let mut handler = Front { exchanges: own, ..Front::default() };
    let mut conn = Http2::new(&ConnectionLimits::default(), Rank::FIRST);
    let (mut worker, mut asked) = (Worker::new(), Resets::new());
    let bytes = asked.ask();
    let meanwhile = || asked.ask();
    assert_eq!(looks(&mut conn, &mut handler, &mut worker, &bytes, meanwhile), 4);
    assert!(exchanges.iter().all(|one| one.wire().is_begun));
    // nothing new has come: nothing is looked for
    assert_eq!(looks(&mut conn, &mut handler, &mut worker, &[], Vec::new), 0);
    conn.abandon(&mut handler, &worker.peer);
}
