//! Requests that share connections, over socket pairs with an application that speaks HTTP/2; without
//! threads and clocks.

use super::*;
use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields, ErrorCode, Http2Event, Http2Limits, MessagePart};
use forebay_sys::poll::{self, PollInterest};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The application's end of a connection.
struct Peer {
    machine: Connection,
    socket: UnixStream,
    fields: DecodedFields,
    input: Vec<u8>,
    /// The paths of requests, by stream, in the order in which they came.
    asked: Vec<(u32, String)>,
    resets: Vec<u32>,
    body_bytes: usize,
}

/// The connections that were begun.
struct Begun {
    streams: u32,
    peers: Vec<Peer>,
    numbers: Vec<u64>,
    is_current: bool,
    fails: bool,
}

impl Connects for Begun {
    fn connect(&mut self, number: u64) -> io::Result<(UpstreamStream, Option<SocketAddr>)> {
        if self.fails {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let machine = Connection::server(Http2Limits {
            streams: self.streams,
            stream_window_bytes: 65_535,
            ..Http2Limits::default()
        });
        self.peers.push(Peer {
            machine,
            socket: theirs,
            fields: DecodedFields::default(),
            input: Vec::new(),
            asked: Vec::new(),
            resets: Vec::new(),
            body_bytes: 0,
        });
        self.numbers.push(number);
        Ok((UpstreamStream::from(OwnedFd::from(ours)), None))
    }

    fn is_current(&self, _: Option<SocketAddr>, _: Option<u64>) -> bool {
        self.is_current
    }
}

impl Peer {
    /// Reads what has come, and sends what HTTP/2 requires.
    fn hear(&mut self) {
        let mut buffer = [0; 65536];
        while let Ok(count @ 1..) = self.socket.read(&mut buffer) {
            self.input.extend_from_slice(&buffer[..count]);
        }
        let mut at = 0;
        loop {
            let received = self.machine.receive(&self.input[at..], &mut self.fields, 0);
            at += received.used;
            match received.event {
                Some(Http2Event::Request { stream, .. }) => {
                    let path = String::from_utf8(self.fields.path().to_vec()).unwrap();
                    self.asked.push((stream, path));
                }
                Some(Http2Event::Data { stream, bytes, .. }) => {
                    self.body_bytes += bytes.len();
                    self.machine.consumed(stream, bytes.len());
                }
                Some(Http2Event::Reset { stream, .. }) => self.resets.push(stream),
                Some(_) => {}
                None => break,
            }
        }
        self.input.drain(..at);
        self.flush();
    }

    fn flush(&mut self) {
        let mut out = Vec::new();
        self.machine.flush(&mut out);
        self.say(&out);
    }

    fn say(&mut self, bytes: &[u8]) {
        // the other end may be gone
        let _ = self.socket.write_all(bytes);
    }

    fn head(&mut self, stream: u32, part: MessagePart) {
        let mut out = Vec::new();
        assert!(self.machine.head(&mut out, stream, part, |block| encode::status(block, 200)));
        self.say(&out);
    }

    /// Sends as much of `count` bytes as the windows allow.
    fn data(&mut self, stream: u32, count: usize, ends: bool) -> usize {
        let mut sent = 0;
        while sent < count || (ends && count == 0) {
            let most = self.machine.send_capacity(stream) as usize;
            let next = (count - sent).min(most);
            if next == 0 && count > 0 {
                break;
            }
            let is_last = ends && sent + next == count;
            let mut out = self.machine.data(stream, next as u32, is_last).unwrap().to_vec();
            out.resize(out.len() + next, b'x');
            self.say(&out);
            sent += next;
            if is_last {
                break;
            }
        }
        sent
    }

    fn answer(&mut self, stream: u32, count: usize) {
        self.head(stream, MessagePart::Head);
        assert_eq!(self.data(stream, count, true), count);
    }

    /// Sends a raw frame, which this end would not send by itself.
    fn frame(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(payload);
        self.say(&frame);
    }
}

/// A bench for requests that share connections.
struct Bench {
    set: SharedSet,
    begun: Begun,
    limits: SharedConnectionLimits,
    bells: HashMap<u64, Arc<Bell>>,
    now_ms: u64,
}

impl Bench {
    fn new(connections: usize, streams: u32) -> Bench {
        Bench {
            set: SharedSet::new(),
            begun: Begun {
                streams,
                peers: Vec::new(),
                numbers: Vec::new(),
                is_current: true,
                fails: false,
            },
            limits: SharedConnectionLimits { connections, idle_ms: 4_000, connect_ms: 3_000 },
            bells: HashMap::new(),
            now_ms: 10_000,
        }
    }

    /// Adds a request for this path. Returns its id, and whether it has a stream.
    fn ask(&mut self, path: &str) -> (u64, bool) {
        let bell = Arc::new(Bell::new().unwrap());
        let id = self.set.enter(Arc::clone(&bell), self.limits);
        self.bells.insert(id, bell);
        let is_begun = self.begin(id, path);
        (id, is_begun)
    }

    fn begin(&mut self, id: u64, path: &str) -> bool {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        self.begin_with(id, head.as_bytes(), true).unwrap() != Sent::Blocked
    }

    fn begin_with(&mut self, id: u64, bytes: &[u8], ends: bool) -> Result<Sent, ConnectError> {
        if self.set.needs_seat(id) {
            self.set.seat(id, &mut self.begun, self.now_ms)?;
        }
        self.set.begin(id, bytes, ends, self.now_ms)
    }

    /// Lets both sides receive all that was sent.
    fn turn(&mut self) {
        for _ in 0..3 {
            self.begun.peers.iter_mut().for_each(Peer::hear);
            for number in self.begun.numbers.clone() {
                while self.set.turn(number, self.now_ms) {}
            }
        }
    }

    fn is_rung(&self, id: u64) -> bool {
        let [state] = poll::wait([(self.bells[&id].as_fd(), PollInterest::Read)], 0).unwrap();
        state.readable
    }

    /// What has come for a request, and how that ended.
    fn take(&mut self, id: u64) -> (usize, Received) {
        let mut all = Vec::new();
        loop {
            match self.set.receive(id, &mut all, 10_000) {
                Received::Bytes(_) => {}
                other => {
                    let head = all.windows(4).position(|end| end == b"\r\n\r\n");
                    return (head.map_or(0, |at| all.len() - at - 4), other);
                }
            }
        }
    }

    fn leave(&mut self, id: u64) {
        self.set.leave(id, true, self.now_ms);
    }
}

#[test]
fn many_requests_are_under_way_on_one_connection() {
    let mut bench = Bench::new(1, 100);
    let ids: Vec<u64> = (0..50).map(|number| bench.ask(&format!("/{number}")).0).collect();
    // the first goes at once; the others when it is known how many streams the application allows
    bench.turn();
    for (number, id) in ids.iter().enumerate().skip(1) {
        assert!(bench.is_rung(*id));
        assert!(bench.begin(*id, &format!("/{number}")));
        assert!(!bench.is_rung(*id));
    }
    bench.turn();
    assert_eq!((bench.begun.peers.len(), bench.begun.peers[0].asked.len()), (1, 50));
    // in whatever order they are answered, each has its own
    let asked = bench.begun.peers[0].asked.clone();
    for (stream, path) in asked.iter().rev() {
        bench.begun.peers[0].answer(*stream, path[1..].parse::<usize>().unwrap() + 1);
    }
    bench.turn();
    for (number, id) in ids.iter().enumerate() {
        assert!(bench.is_rung(*id));
        assert_eq!(bench.take(*id), (number + 1, Received::Ended));
        bench.leave(*id);
    }
    assert!(bench.begun.peers[0].resets.is_empty() && bench.set.requests.is_empty());
}

#[test]
fn requests_are_spread_over_as_many_connections_as_may_be() {
    let mut bench = Bench::new(3, 100);
    for number in 0..3 {
        assert!(bench.ask(&format!("/{number}")).1);
    }
    bench.turn();
    let more: Vec<u64> = (0..6).map(|_| bench.ask("/more").0).collect();
    bench.turn();
    let asked: Vec<usize> = bench.begun.peers.iter().map(|peer| peer.asked.len()).collect();
    assert_eq!(asked, [3, 3, 3]);
    more.into_iter().for_each(|id| bench.leave(id));
    // an idle connection is used, even if more could be begun
    let mut bench = Bench::new(3, 100);
    for _ in 0..5 {
        let (id, _) = bench.ask("/");
        bench.turn();
        let (stream, _) = *bench.begun.peers[0].asked.last().unwrap();
        bench.begun.peers[0].answer(stream, 1);
        bench.turn();
        assert_eq!(bench.take(id), (1, Received::Ended));
        bench.leave(id);
    }
    assert_eq!(bench.begun.peers.len(), 1);
}

#[test]
fn those_beyond_what_the_application_takes_wait_in_their_order() {
    let mut bench = Bench::new(1, 2);
    let (first, _) = bench.ask("/1");
    bench.turn();
    let (second, is_begun) = bench.ask("/2");
    assert!(is_begun);
    let (third, is_begun) = bench.ask("/3");
    assert!(!is_begun && bench.set.waits_for_stream(third));
    let (fourth, _) = bench.ask("/4");
    bench.turn();
    assert!(!bench.is_rung(third));
    bench.begun.peers[0].answer(1, 1);
    bench.turn();
    assert_eq!(bench.take(first), (1, Received::Ended));
    bench.leave(first);
    assert!(bench.is_rung(third) && !bench.is_rung(fourth));
    // a new request does not go before it
    let (fifth, is_begun) = bench.ask("/5");
    assert!(!is_begun);
    assert!(bench.begin(third, "/3"));
    // a request that leaves at its turn passes the turn on
    bench.set.leave(second, false, bench.now_ms);
    assert!(bench.is_rung(fourth));
    bench.leave(fourth);
    assert!(bench.is_rung(fifth) && bench.begin(fifth, "/5"));
    bench.turn();
    let peer = &bench.begun.peers[0];
    assert_eq!((peer.asked.len(), peer.resets.clone()), (4, vec![3]));
}

#[test]
fn streams_that_are_lowered_hold_for_those_to_come() {
    let mut bench = Bench::new(1, 10);
    let mut ids = vec![bench.ask("/").0];
    bench.turn();
    ids.extend((0..3).map(|_| bench.ask("/").0));
    bench.turn();
    // MAX_CONCURRENT_STREAMS is 2
    bench.begun.peers[0].frame(4, &[0, 3, 0, 0, 0, 2]);
    bench.turn();
    let (waits, is_begun) = bench.ask("/");
    assert!(!is_begun);
    for stream in [1, 3] {
        bench.begun.peers[0].answer(stream, 1);
        bench.turn();
        assert!(!bench.is_rung(waits));
    }
    bench.begun.peers[0].answer(5, 1);
    bench.turn();
    assert!(bench.is_rung(waits) && bench.begin(waits, "/"));
}

#[test]
fn an_answer_that_is_not_taken_holds_up_no_other() {
    let mut bench = Bench::new(1, 10);
    let (slow, _) = bench.ask("/slow");
    bench.turn();
    let (fast, _) = bench.ask("/fast");
    bench.turn();
    let peer = &mut bench.begun.peers[0];
    peer.head(1, MessagePart::Head);
    peer.head(3, MessagePart::Head);
    let (mut of_slow, mut of_fast) = (0, 0);
    for _ in 0..100 {
        of_slow += bench.begun.peers[0].data(1, 10_000, false);
        of_fast += bench.begun.peers[0].data(3, 10_000, false);
        bench.turn();
        assert_eq!(bench.take(fast).1, Received::Blocked);
        bench.turn();
    }
    assert_eq!(of_fast, 1_000_000);
    assert_eq!(of_slow, 128 * 1024, "as much as its window is");
    assert_eq!(bench.take(slow), (of_slow, Received::Blocked));
    bench.turn();
    assert!(bench.begun.peers[0].data(1, 10_000, false) == 10_000, "it goes on when it is taken");
}

#[test]
fn what_is_taken_in_pieces_is_not_kept() {
    let mut bench = Bench::new(1, 10);
    let (slow, _) = bench.ask("/slow");
    bench.turn();
    bench.begun.peers[0].head(1, MessagePart::Head);
    let (mut sent, mut taken) = (0, Vec::new());
    for _ in 0..1000 {
        sent += bench.begun.peers[0].data(1, 128 * 1024, false);
        bench.turn();
        taken.clear();
        let _ = bench.set.receive(slow, &mut taken, 16 * 1024);
        assert!(bench.set.requests[&slow].kept_bytes() <= 512 * 1024, "{sent}");
    }
    assert!(sent > 10_000_000, "{sent}");
}

#[test]
fn a_body_goes_as_far_as_the_windows_and_on_when_they_open() {
    let mut bench = Bench::new(1, 10);
    let bell = Arc::new(Bell::new().unwrap());
    let id = bench.set.enter(Arc::clone(&bell), bench.limits);
    bench.bells.insert(id, bell);
    let head = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(bench.begin_with(id, head, false).unwrap(), Sent::Bytes(head.len()));
    bench.turn();
    let body = vec![b'y'; 1_000_000];
    let mut sent = 0;
    for _ in 0..100 {
        while let Some((request, connection, stream)) = bench.set.open(id)
            && let count @ 1.. = connection.send(id, stream, request, &body[sent..], true)
        {
            sent += count;
        }
        if sent == body.len() {
            break;
        }
        assert!(!bench.is_rung(id));
        bench.turn();
        assert!(bench.is_rung(id), "there is room again");
        assert_eq!(bench.take(id).1, Received::Blocked);
    }
    bench.turn();
    assert_eq!((sent, bench.begun.peers[0].body_bytes), (body.len(), body.len()));
}

#[test]
fn those_above_the_last_of_a_goaway_are_given_back_and_others_end() {
    let mut bench = Bench::new(1, 3);
    let (first, _) = bench.ask("/1");
    bench.turn();
    let (second, _) = bench.ask("/2");
    let (third, _) = bench.ask("/3");
    let (waits, is_begun) = bench.ask("/4");
    assert!(!is_begun);
    bench.turn();
    bench.begun.peers[0].frame(7, &[0, 0, 0, 1, 0, 0, 0, 0]);
    bench.turn();
    for id in [second, third] {
        assert_eq!(bench.take(id), (0, Received::Broken));
        assert_eq!(bench.set.requests[&id].end, Some(AnswerEnd::Refused));
        bench.leave(id);
    }
    // the request in line need not wait: there is another connection for it
    assert!(bench.is_rung(waits) && bench.begin(waits, "/4"));
    bench.turn();
    assert_eq!(bench.begun.peers[1].asked.len(), 1);
    bench.begun.peers[0].answer(1, 7);
    bench.turn();
    assert_eq!(bench.take(first), (7, Received::Ended));
    bench.leave(first);
    assert_eq!(bench.set.connections.len(), 1, "it is closed when its last answer is taken");
}

#[test]
fn a_refused_stream_is_given_back_alone() {
    let mut bench = Bench::new(1, 10);
    let (first, _) = bench.ask("/1");
    bench.turn();
    let (second, _) = bench.ask("/2");
    bench.turn();
    bench.begun.peers[0].machine.reset(3, ErrorCode::REFUSED_STREAM);
    bench.turn();
    assert_eq!(bench.take(second).1, Received::Broken);
    assert_eq!(bench.set.requests[&second].end, Some(AnswerEnd::Refused));
    bench.begun.peers[0].answer(1, 1);
    bench.turn();
    assert_eq!(bench.take(first), (1, Received::Ended));
}

#[test]
fn one_that_leaves_resets_its_stream_and_the_connection_goes_on() {
    let mut bench = Bench::new(1, 10);
    let (first, _) = bench.ask("/1");
    bench.turn();
    let (second, _) = bench.ask("/2");
    bench.turn();
    bench.set.leave(first, false, bench.now_ms);
    bench.turn();
    assert_eq!(bench.begun.peers[0].resets, [1]);
    bench.begun.peers[0].answer(3, 9);
    bench.turn();
    assert_eq!(bench.take(second), (9, Received::Ended));
    bench.leave(second);
    // a stream whose end comes late is not reset, unless the end does not come
    let (third, _) = bench.ask("/3");
    bench.turn();
    bench.begun.peers[0].head(5, MessagePart::Head);
    bench.begun.peers[0].data(5, 5, false);
    bench.turn();
    assert_eq!(bench.take(third), (5, Received::Blocked));
    bench.leave(third);
    bench.turn();
    assert_eq!(bench.begun.peers[0].resets, [1]);
    bench.now_ms += 5_000;
    bench.set.look(bench.now_ms);
    bench.turn();
    assert_eq!(bench.begun.peers[0].resets, [1, 5]);
    assert_eq!(bench.begun.peers.len(), 1);
}

#[test]
fn a_connection_that_dies_breaks_its_answers_off_and_another_is_begun() {
    let mut bench = Bench::new(1, 2);
    let (first, _) = bench.ask("/1");
    bench.turn();
    let (second, _) = bench.ask("/2");
    let (waits, is_begun) = bench.ask("/3");
    assert!(!is_begun);
    bench.turn();
    bench.begun.peers[0].answer(1, 3);
    bench.turn();
    bench.begun.peers.clear();
    bench.begun.numbers.iter().for_each(|number| _ = bench.set.turn(*number, bench.now_ms));
    assert_eq!(bench.take(first), (3, Received::Ended), "it was whole");
    assert_eq!(bench.take(second), (0, Received::Broken));
    assert!(bench.is_rung(waits) && bench.begin(waits, "/3"));
    bench.leave(first);
    bench.leave(second);
    bench.turn();
    assert_eq!(bench.begun.peers[0].asked.len(), 1);
    assert_eq!(bench.set.closed.len(), 1);
}

#[test]
fn where_no_connection_comes_about_all_that_wait_for_it_are_told() {
    let mut bench = Bench::new(1, 10);
    bench.begun.fails = true;
    let id = bench.set.enter(Arc::new(Bell::new().unwrap()), bench.limits);
    assert!(matches!(bench.begin_with(id, b"", true), Err(ConnectError::Socket(_))));
    bench.leave(id);
    assert!(bench.set.connections.is_empty() && bench.set.requests.is_empty());
    // an established connection is shared if another cannot be begun
    bench.begun.fails = false;
    bench.limits.connections = 2;
    bench.ask("/1");
    bench.turn();
    bench.begun.fails = true;
    assert!(bench.ask("/2").1);
}

#[test]
fn an_application_that_takes_nothing_is_left_at_last() {
    let mut bench = Bench::new(1, 10);
    bench.ask("/1");
    let (waits, is_begun) = bench.ask("/2");
    assert!(!is_begun);
    let mut failed = None;
    for _ in 0..20 {
        let peer = bench.begun.peers.last_mut().unwrap();
        peer.hear();
        peer.frame(7, &[0; 8]);
        let number = *bench.begun.numbers.last().unwrap();
        while bench.set.turn(number, bench.now_ms) {}
        failed = bench.begin_with(waits, b"", true).err();
        if failed.is_some() {
            break;
        }
    }
    assert!(failed.is_some(), "{} connections", bench.begun.peers.len());
}

#[test]
fn time_closes_those_that_rest_and_those_that_say_nothing() {
    let mut bench = Bench::new(2, 10);
    let (first, _) = bench.ask("/1");
    bench.turn();
    bench.begun.peers[0].answer(1, 1);
    bench.turn();
    bench.leave(first);
    bench.now_ms += 3_999;
    bench.set.look(bench.now_ms);
    assert_eq!(bench.set.connections.len(), 1);
    bench.now_ms += 1;
    bench.set.look(bench.now_ms);
    assert!(bench.set.connections.is_empty());
    // a connection whose peer has gone without closing
    let (silent, _) = bench.ask("/2");
    bench.turn();
    bench.now_ms += 60_000;
    bench.set.leave(silent, false, bench.now_ms);
    let (other, _) = bench.ask("/3");
    bench.begun.peers[2].hear();
    assert_eq!(bench.begun.peers[2].asked.len(), 1, "no other request is given to it");
    bench.now_ms += 5_000;
    bench.set.look(bench.now_ms);
    assert_eq!(bench.set.connections.len(), 1);
    // a connection that lives answers, and is used again
    bench.turn();
    bench.now_ms += 60_000;
    bench.set.leave(other, false, bench.now_ms);
    bench.turn();
    bench.now_ms += 4_000;
    assert!(bench.ask("/4").1);
    assert_eq!(bench.begun.peers.len(), 3);
}

#[test]
fn one_that_leads_elsewhere_takes_no_further_requests() {
    let mut bench = Bench::new(1, 10);
    let (first, _) = bench.ask("/1");
    bench.turn();
    bench.begun.is_current = false;
    let (second, _) = bench.ask("/2");
    bench.turn();
    assert_eq!(bench.begun.peers.len(), 2);
    bench.begun.peers[0].answer(1, 1);
    bench.turn();
    assert_eq!(bench.take(first), (1, Received::Ended));
    bench.leave(first);
    assert_eq!(bench.set.connections.len(), 1);
    bench.leave(second);
}
