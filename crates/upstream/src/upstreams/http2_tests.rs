//! Exchanges over HTTP/2, over a pair of sockets with a peer that speaks it.

use super::*;
use forebay_http2::hpack::encode;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// A stage at the other end of a connection.
struct Stage {
    machine: Connection,
    socket: UnixStream,
    fields: DecodedFields,
    input: Vec<u8>,
}

fn pair() -> (UpstreamStream, UpstreamHttp2, Stage) {
    pair_with(Http2Peer::Stage)
}

fn pair_with(peer: Http2Peer) -> (UpstreamStream, UpstreamHttp2, Stage) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let machine = Connection::server(Http2Limits::default());
    let stage =
        Stage { machine, socket: theirs, fields: DecodedFields::default(), input: Vec::new() };
    (UpstreamStream::from(OwnedFd::from(ours)), UpstreamHttp2::new(peer, false), stage)
}

/// What has come to a stage.
#[derive(Debug, PartialEq)]
enum Came {
    Request { stream: u32, path: Vec<u8>, fields: usize, ends: bool },
    Data(Vec<u8>, bool),
    Trailers,
    Reset,
}

impl Stage {
    fn hear(&mut self) -> Vec<Came> {
        let mut buffer = [0; 65536];
        while let Ok(count @ 1..) = self.socket.read(&mut buffer) {
            self.input.extend_from_slice(&buffer[..count]);
        }
        let (mut came, mut at) = (Vec::new(), 0);
        loop {
            let received = self.machine.receive(&self.input[at..], &mut self.fields, 0);
            at += received.used;
            match received.event {
                Some(Http2Event::Request { stream, ends }) => {
                    let (path, fields) = (self.fields.path().to_vec(), self.fields.list().len());
                    came.push(Came::Request { stream, path, fields, ends });
                }
                Some(Http2Event::Data { stream, bytes, ends }) => {
                    came.push(Came::Data(bytes.to_vec(), ends));
                    self.machine.consumed(stream, bytes.len());
                }
                Some(Http2Event::Trailers { .. }) => came.push(Came::Trailers),
                Some(Http2Event::Reset { .. }) => came.push(Came::Reset),
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        self.input.drain(..at);
        self.flush();
        came
    }

    fn flush(&mut self) {
        let mut out = Vec::new();
        self.machine.flush(&mut out);
        self.say(&out);
    }

    fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    fn head(&mut self, stream: u32, part: MessagePart, status: u16) {
        let mut out = Vec::new();
        assert!(self.machine.head(&mut out, stream, part, |block| {
            encode::status(block, status);
            encode::raw(block, b"etag", b"\"x\"");
        }));
        self.say(&out);
    }

    fn data(&mut self, stream: u32, body: &[u8], ends: bool) {
        let mut out = self.machine.data(stream, body.len() as u32, ends).unwrap().to_vec();
        out.extend_from_slice(body);
        self.say(&out);
    }
}

const GET: &[u8] = b"GET /a?b HTTP/1.1\r\nHost: x\r\nForebay-Attempt: 1\r\nA: b\r\n\r\n";

fn received(
    http2: &mut UpstreamHttp2,
    socket: &mut UpstreamStream,
    most: usize,
) -> (Received, Vec<u8>) {
    let mut into = Vec::new();
    let received = http2.receive(socket, &mut into, most, 0);
    (received, into)
}

#[test]
fn a_request_and_its_answer_as_http1_has_them() {
    let (mut socket, mut http2, mut stage) = pair();
    for stream in [1, 3, 5] {
        assert_eq!(http2.send(&mut socket, GET, true), Sent::Bytes(GET.len()));
        let path = b"/a?b".to_vec();
        assert_eq!(stage.hear(), [Came::Request { stream, path, fields: 2, ends: true }]);
        stage.head(stream, MessagePart::Informational, 102);
        let (_, text) = received(&mut http2, &mut socket, 1000);
        assert_eq!(text, b"HTTP/1.1 102 \r\nETag: \"x\"\r\n\r\n");
        stage.head(stream, MessagePart::Head, 200);
        stage.data(stream, b"hello", false);
        stage.data(stream, b" you", true);
        let (_, text) = received(&mut http2, &mut socket, 1000);
        assert_eq!(text, b"HTTP/1.1 200 \r\nETag: \"x\"\r\n\r\nhello you");
        assert_eq!(received(&mut http2, &mut socket, 1000).0, Received::Ended);
        assert!(http2.ends_clean(&mut socket) && http2.is_fit(&mut socket, 0));
    }
}

#[test]
fn no_more_is_given_than_is_wanted() {
    let (mut socket, mut http2, mut stage) = pair();
    assert_eq!(http2.send(&mut socket, GET, true), Sent::Bytes(GET.len()));
    stage.hear();
    stage.head(1, MessagePart::Head, 200);
    let body: Vec<u8> = (0..=255).cycle().take(40_000).collect();
    body.chunks(16_000).for_each(|piece| stage.data(1, piece, false));
    stage.data(1, b"", true);
    let (_, head) = received(&mut http2, &mut socket, 1);
    assert!(head.starts_with(b"HTTP/1.1 200 ") && head.ends_with(b"\r\n\r\n"));
    let (mut all, mut most) = (Vec::new(), 1);
    loop {
        match received(&mut http2, &mut socket, most) {
            (Received::Bytes(count), part) => {
                assert!((1..=most).contains(&count) && count == part.len());
                all.extend_from_slice(&part);
            }
            (end, _) => break assert_eq!(end, Received::Ended),
        }
        most = most % 50 + 1;
    }
    assert!(all == body);
}

#[test]
fn a_body_goes_as_far_as_the_window_and_its_end_when_it_is_told() {
    let (mut socket, mut http2, mut stage) = pair();
    let head = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(http2.send(&mut socket, head, false), Sent::Bytes(head.len()));
    let body = vec![b'x'; 300_000];
    let mut sent = 0;
    let mut heard = 0;
    // the window that a stage has before its settings have come
    assert_eq!(http2.send(&mut socket, &body, true), Sent::Bytes(65_535));
    sent += 65_535;
    while sent < body.len() {
        assert_eq!(http2.send(&mut socket, &body[sent..], true), Sent::Bytes(0));
        assert!(!http2.has_room() && http2.wants_to_send(true));
        for came in stage.hear() {
            if let Came::Data(bytes, _) = came {
                heard += bytes.len();
            }
        }
        assert_eq!(received(&mut http2, &mut socket, 1000).0, Received::Blocked);
        assert!(http2.has_room());
        match http2.send(&mut socket, &body[sent..], true) {
            Sent::Bytes(count @ 1..) => sent += count,
            other => panic!("{other:?}"),
        }
        // the bytes for which the socket had no room
        while http2.has_unsent() {
            heard += stage
                .hear()
                .iter()
                .map(|came| match came {
                    Came::Data(bytes, _) => bytes.len(),
                    _ => 0,
                })
                .sum::<usize>();
            http2.write(&mut socket);
        }
    }
    assert!(!http2.wants_to_send(true));
    let last = stage.hear();
    heard += last
        .iter()
        .map(|came| match came {
            Came::Data(bytes, _) => bytes.len(),
            _ => 0,
        })
        .sum::<usize>();
    assert_eq!(heard, body.len());
    assert!(matches!(last.last(), Some(Came::Data(_, true))));
}

#[test]
fn trailers_go_both_ways() {
    let (mut socket, mut http2, mut stage) = pair();
    let head = b"POST / HTTP/1.1\r\nHost: x\r\n\r\nbody";
    assert_eq!(http2.send(&mut socket, head, false), Sent::Bytes(head.len()));
    http2.end_with(&mut socket, b"Check: 1\r\n");
    let came = stage.hear();
    assert_eq!(came[1..], [Came::Data(b"body".to_vec(), false), Came::Trailers]);
    stage.head(1, MessagePart::Head, 200);
    stage.head(1, MessagePart::Last, 200);
    let (_, text) = received(&mut http2, &mut socket, 1000);
    assert!(text.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn what_has_not_run_is_told_from_what_has_broken_off() {
    for (code, is_refused) in
        [(ErrorCode::REFUSED_STREAM, true), (ErrorCode::INTERNAL_ERROR, false)]
    {
        let (mut socket, mut http2, mut stage) = pair();
        http2.send(&mut socket, GET, true);
        stage.hear();
        stage.machine.reset(1, code);
        stage.flush();
        assert_eq!(received(&mut http2, &mut socket, 1000).0, Received::Broken);
        assert_eq!((http2.is_refused(), http2.ends_clean(&mut socket)), (is_refused, false));
    }
    // the stage has sent GOAWAY, and the request comes too late
    let (mut socket, mut http2, mut stage) = pair();
    stage.hear();
    stage.machine.drain_now();
    http2.send(&mut socket, GET, true);
    stage.flush();
    assert_eq!(received(&mut http2, &mut socket, 1000).0, Received::Broken);
    assert!(http2.is_refused());
    // the stage ends in the middle of an answer
    let (mut socket, mut http2, mut stage) = pair();
    http2.send(&mut socket, GET, true);
    stage.hear();
    stage.head(1, MessagePart::Head, 200);
    drop(stage);
    assert!(matches!(received(&mut http2, &mut socket, 1000).0, Received::Bytes(_)));
    assert_eq!(received(&mut http2, &mut socket, 1000).0, Received::Broken);
    assert!(!http2.is_refused() && !http2.is_over());
}

#[test]
fn an_idle_connection_is_fit_until_its_stage_leaves() {
    let (mut socket, mut http2, mut stage) = pair();
    http2.send(&mut socket, GET, true);
    stage.hear();
    stage.head(1, MessagePart::Last, 204);
    received(&mut http2, &mut socket, 1000);
    assert!(http2.ends_clean(&mut socket) && http2.is_fit(&mut socket, 0));
    stage.machine.drain();
    stage.flush();
    assert!(!http2.is_fit(&mut socket, 0));
    let (mut socket, mut http2, stage) = pair();
    drop(stage);
    assert!(!http2.is_fit(&mut socket, 0));
}

#[test]
fn an_application_that_takes_nothing_more_is_heard_beyond_what_is_wanted() {
    let (mut socket, mut http2, mut app) = pair_with(Http2Peer::Application);
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(http2.send(&mut socket, head, false), Sent::Bytes(head.len()));
    app.hear();
    app.head(1, MessagePart::Head, 200);
    let (_, text) = received(&mut http2, &mut socket, 1000);
    assert!(text.starts_with(b"HTTP/1.1 200"));
    // the application's window is closed, and it answers before it opens the window
    let (body, window) = (vec![b'x'; 300_000], 256 * 1024);
    assert_eq!(http2.send(&mut socket, &body, false), Sent::Bytes(window));
    assert!(!http2.has_room());
    let answer: Vec<u8> = (0..=255).cycle().take(40_000).collect();
    answer.chunks(16_000).for_each(|piece| app.data(1, piece, false));
    assert!(!http2.look_ahead(&mut socket, 0) && http2.has_ahead() && !http2.has_room());
    app.hear();
    http2.look_ahead(&mut socket, 0);
    assert!(http2.has_room());
    let rest = &body[window..];
    assert_eq!(http2.send(&mut socket, rest, true), Sent::Bytes(rest.len()));
    while http2.has_unsent() {
        app.hear();
        http2.write(&mut socket);
    }
    app.data(1, b"", true);
    // nothing is lost, and the end comes last
    let mut all = Vec::new();
    loop {
        match received(&mut http2, &mut socket, 1000) {
            (Received::Bytes(count), part) => {
                assert!(count <= 1000 && !http2.is_over());
                all.extend_from_slice(&part);
            }
            (end, _) => break assert_eq!(end, Received::Ended),
        }
    }
    assert!(all == answer && http2.is_over());
    app.hear();
    assert!(http2.ends_clean(&mut socket));
}

#[test]
fn no_more_is_received_ahead_than_the_window_allows() {
    let (mut socket, mut http2, mut app) = pair_with(Http2Peer::Application);
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    http2.send(&mut socket, head, false);
    app.hear();
    app.head(1, MessagePart::Head, 200);
    received(&mut http2, &mut socket, 1000);
    http2.send(&mut socket, &[b'x'; 300_000], false);
    let (mut came, piece) = (0, vec![b'y'; 16_000]);
    while app.machine.send_capacity(1) >= 16_000 {
        app.data(1, &piece, false);
        came += piece.len();
        assert!(!http2.look_ahead(&mut socket, 0));
    }
    assert!((200_000..=APPLICATION_WINDOW_BYTES as usize).contains(&came), "{came}");
    assert_eq!(http2.ahead.len(), came);
}

#[test]
fn a_request_that_is_cancelled_is_reset() {
    let (mut socket, mut http2, mut app) = pair_with(Http2Peer::Application);
    http2.send(&mut socket, GET, true);
    app.hear();
    http2.cancel(&mut socket);
    assert_eq!(app.hear(), [Came::Reset]);
    // a stream that is over is not reset
    let (mut socket, mut http2, mut app) = pair_with(Http2Peer::Application);
    http2.send(&mut socket, GET, true);
    app.hear();
    app.head(1, MessagePart::Last, 204);
    received(&mut http2, &mut socket, 1000);
    http2.cancel(&mut socket);
    assert_eq!(app.hear(), []);
}

#[test]
fn what_is_said_in_clear_goes_before_the_preface() {
    let (mut socket, mut http2, app) = pair_with(Http2Peer::Application);
    http2.begin_in_clear(b"PROXY UNKNOWN\r\n");
    assert!(
        matches!(http2.begin(&mut socket, GET, true), Ok(Sent::Bytes(count)) if count == GET.len())
    );
    let mut said = [0; 31];
    let mut peer = app.socket;
    peer.read_exact(&mut said).unwrap();
    assert_eq!(said, *b"PROXY UNKNOWN\r\nPRI * HTTP/2.0\r\n");
}

#[test]
fn an_empty_body_has_its_end_to_itself() {
    let (mut socket, mut http2, mut app) = pair_with(Http2Peer::Application);
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    http2.send(&mut socket, head, true);
    let came = app.hear();
    assert!(
        matches!(came[..], [Came::Request { ends: false, .. }, Came::Data(_, true)]),
        "{came:?}"
    );
}

#[test]
fn a_body_of_known_length_may_end_before_its_stream() {
    let (mut socket, mut http2, mut app) = pair_with(Http2Peer::Application);
    http2.send(&mut socket, GET, true);
    app.hear();
    app.head(1, MessagePart::Head, 200);
    app.data(1, b"all", false);
    received(&mut http2, &mut socket, 1000);
    // the connection is kept, and used when the end has come
    assert!(http2.ends_clean(&mut socket) && !http2.is_fit(&mut socket, 0));
    app.data(1, b"", true);
    assert!(http2.is_fit(&mut socket, 0));
    assert_eq!(http2.send(&mut socket, GET, true), Sent::Bytes(GET.len()));
    assert!(matches!(app.hear()[..], [Came::Request { stream: 3, .. }]));
}
