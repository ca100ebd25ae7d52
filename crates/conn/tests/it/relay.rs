//! A request that another server answers, over HTTP/1.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

mod http2;
mod lent;

use crate::front::{Front, Shared};
use crate::worker::Worker;
use forebay_conn::handler::relay::RelayRead;
use forebay_conn::*;
use forebay_metrics::Counter;
use std::io::stdin;
use std::os::fd::AsFd;

/// A connection, and an engine for it.
struct Bench {
    conn: Http1<Front>,
    handler: Front,
    worker: Worker,
    /// What the client has got.
    sent: String,
    has_ended_output: bool,
    closed: Option<Closing>,
    /// Whether the connection has left for good.
    is_gone: bool,
}

impl Bench {
    fn new(exchanges: &[&Shared]) -> Bench {
        let exchanges = exchanges.iter().map(|&shared| shared.clone()).collect();
        Bench {
            conn: Http1::default(),
            handler: Front { exchanges, ..Front::default() },
            worker: Worker::new(),
            sent: String::new(),
            has_ended_output: false,
            closed: None,
            is_gone: false,
        }
    }

    /// Takes a turn after these bytes have come. `is_blocked` while the client takes nothing.
    fn turn(&mut self, bytes: &str, is_blocked: bool) {
        let limits = ConnectionLimits::default();
        self.conn.resume(&mut self.worker.input);
        let mut arrived = Some(bytes).filter(|bytes| !bytes.is_empty());
        let mut is_held = false;
        loop {
            let (mut cx, input) = self.worker.lend(&mut self.handler, &limits, 100);
            match self.conn.advance(&mut cx, input) {
                Step::Receive => match arrived.take() {
                    Some(piece) => {
                        assert!(self.conn.wants_input(), "it is received");
                        input.spare()[..piece.len()].copy_from_slice(piece.as_bytes());
                        input.received(piece.len());
                    }
                    None => break,
                },
                Step::Send if is_blocked && std::mem::replace(&mut is_held, true) => break,
                Step::Send if is_blocked => {}
                Step::Send => {
                    self.sent.push_str(std::str::from_utf8(&cx.out.bytes).unwrap());
                    cx.out.clear();
                    self.conn.sent(cx.handler);
                }
                Step::Wait => break,
                Step::Lend => {
                    assert!(cx.out.is_empty(), "what was answered before is sent before");
                    self.conn.lend(stdin().as_fd(), None, true, &limits, input);
                }
                Step::HandOver => {
                    let (received, _) = self.conn.take_handed(input);
                    assert!(received.is_empty(), "all was told before");
                    self.is_gone = true;
                    break;
                }
                Step::End => assert!(!std::mem::replace(&mut self.has_ended_output, true)),
                Step::Close(closing) => {
                    self.closed = Some(closing);
                    self.conn.abandon(cx.handler, cx.peer);
                    break;
                }
                step => panic!("{step:?}"),
            }
        }
        assert!(arrived.is_none() || self.closed.is_some(), "not received: {arrived:?}");
        self.conn.suspend(&mut self.worker.input);
    }

    fn receive(&mut self, bytes: &str) {
        self.turn(bytes, false);
    }

    /// Takes a turn after an event of the other server.
    fn go_on(&mut self) {
        self.turn("", false);
    }

    /// What the client has got since the last call.
    fn sent(&mut self) -> String {
        std::mem::take(&mut self.sent).replace("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "")
    }

    /// Takes a turn after the client has ended its direction.
    fn end_input(&mut self) {
        self.conn.end_input();
    }

    fn expire(&mut self) -> Option<Closing> {
        let (limits, awaited) = (ConnectionLimits::default(), self.conn.awaits());
        let (mut cx, input) = self.worker.lend(&mut self.handler, &limits, 1);
        cx.draining = true;
        self.conn.resume(input);
        let closing = self.conn.expire(&mut cx, input, awaited);
        self.conn.suspend(input);
        self.sent.push_str(std::str::from_utf8(&cx.out.bytes).unwrap());
        cx.out.clear();
        closing
    }

    /// Ends the connection, and checks that each request was settled once and each begun log line ended.
    fn end(mut self) -> Front {
        if self.closed.is_none() {
            self.conn.abandon(&mut self.handler, &self.worker.peer);
        }
        let tickets: Vec<u32> = self.handler.settled.iter().map(|(ticket, _)| *ticket).collect();
        assert_eq!(tickets, (1..=self.handler.judged).collect::<Vec<_>>());
        self.handler
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn the_answer_has_the_framing_that_its_client_understands() {
    let cases = [
        (200, Some(5), "GET /u HTTP/1.1", "Content-Length: 5\r\n", "hello", true),
        (
            200,
            None,
            "GET /u HTTP/1.1",
            "Transfer-Encoding: chunked\r\n",
            "5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
            true,
        ),
        (200, None, "GET /u HTTP/1.0", "Connection: close\r\n", "hello", false),
        (200, Some(5), "HEAD /u HTTP/1.1", "Content-Length: 5\r\n", "", true),
        (200, None, "HEAD /u HTTP/1.1", "", "", true),
        (204, None, "GET /u HTTP/1.1", "", "", true),
        (304, Some(5), "GET /u HTTP/1.1", "Content-Length: 5\r\n", "", true),
        (200, Some(0), "GET /u HTTP/1.1", "Content-Length: 0\r\n", "", true),
    ];
    for (status, length, line, fields, body, is_kept) in cases {
        let one = Shared::new(0);
        let has_body = !body.is_empty();
        one.answers(status, length, if has_body { "hello" } else { "" });
        let mut bench = Bench::new(&[&one]);
        bench.receive(&format!("{line}\r\nHost: a\r\n\r\n"));
        let expected = format!("HTTP/1.1 {status} Up\r\n{fields}\r\n{body}");
        assert_eq!(bench.sent(), expected, "{line} {status} {length:?}");
        assert_eq!(bench.closed, (!is_kept).then_some(Closing::Now), "{line} {status}");
        assert!(one.is_released(), "{line} {status}");
        let bytes = if has_body { 5 } else { 0 };
        assert_eq!(bench.end().logged, [(status, bytes)]);
    }
}

#[test]
fn a_body_comes_as_it_is_given_and_requests_follow_it() {
    let (one, two) = (Shared::new(0), Shared::new(0));
    two.answers(200, Some(1), "2");
    let mut bench = Bench::new(&[&one, &two]);
    bench.receive(&get("/one"));
    assert_eq!(bench.sent(), "");
    assert_eq!(
        (bench.conn.awaits().what, bench.conn.deadline_ms(bench.conn.awaits())),
        (Await::Answer, 77)
    );
    one.wire().answer = Some((Some(200), None));
    bench.go_on();
    assert_eq!(bench.sent(), "HTTP/1.1 200 Up\r\nTransfer-Encoding: chunked\r\n\r\n");
    one.wire().body = "ab".to_owned();
    bench.go_on();
    assert_eq!(bench.sent(), "2\r\nab\r\n");
    // nothing of the next request is looked at meanwhile
    assert!(!bench.conn.wants_input());
    one.wire().end = Some(RelayRead::End);
    bench.go_on();
    assert_eq!(bench.sent(), "0\r\nX-Sum: 7\r\n\r\n");
    bench.receive(&(get("/two") + &get("/own")));
    assert_eq!(
        bench.sent(),
        "HTTP/1.1 200 Up\r\nContent-Length: 1\r\n\r\n2HTTP/1.1 200 Own\r\nContent-Length: 3\r\n\r\nown"
    );
    assert_eq!(bench.end().logged, [(200, 2), (200, 1), (200, 3)]);
}

#[test]
fn nothing_is_read_for_a_client_that_takes_nothing() {
    let one = Shared::new(0);
    one.answers(200, Some(200_000), &"x".repeat(200_000));
    let mut bench = Bench::new(&[&one]);
    bench.turn(&get("/one"), true);
    let left = one.wire().body.len();
    assert!(left > 130_000, "{left}");
    for _ in 0..3 {
        bench.turn("", true);
    }
    assert_eq!(one.wire().body.len(), left);
    assert!(bench.worker.out.bytes.len() <= 66_000);
    bench.sent.push_str(std::str::from_utf8(&bench.worker.out.bytes).unwrap());
    bench.worker.out.clear();
    bench.go_on();
    assert_eq!(bench.sent().matches('x').count(), 200_000);
    assert_eq!(bench.end().logged, [(200, 200_000)]);
}

#[test]
fn a_short_body_resets_the_connection() {
    for (length, end) in
        [(Some(5), RelayRead::End), (Some(5), RelayRead::Broken), (None, RelayRead::Broken)]
    {
        let one = Shared::new(0);
        one.answers(200, length, "abc");
        one.wire().end = Some(end);
        let mut bench = Bench::new(&[&one]);
        bench.receive(&(get("/one") + &get("/own")));
        assert_eq!(bench.closed, Some(Closing::Reset));
        let sent = bench.sent();
        assert!(sent.contains("abc") && !sent.contains("0\r\n\r\n"), "{sent}");
        assert_eq!(bench.worker.metrics.get(Counter::BrokenUpstream), 1);
        let front = bench.end();
        assert_eq!((front.logged, front.settled), (vec![(200, 3)], vec![(1, Settled::Cut)]));
        assert!(!one.is_released() && one.is_dropped());
    }
}

#[test]
fn an_exchange_that_fails_is_answered() {
    let (one, two) = (Shared::new(0), Shared::new(0));
    one.wire().answer = Some((None, None));
    let mut bench = Bench::new(&[&one, &two]);
    bench.receive(&get("/one"));
    assert_eq!(bench.sent(), "HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n");
    assert!(one.is_dropped());
    bench.receive(&get("/two"));
    assert_eq!(bench.expire(), None);
    assert!(bench.sent().starts_with("HTTP/1.1 504 No\r\n"));
    bench.go_on();
    assert_eq!(bench.closed, Some(Closing::Now));
    assert_eq!(bench.end().logged, [(502, 0), (504, 0)]);
}

#[test]
fn time_that_is_over_within_an_answer_resets() {
    let one = Shared::new(0);
    one.answers(200, None, "abc");
    one.wire().end = None;
    let mut bench = Bench::new(&[&one]);
    bench.receive(&get("/one"));
    assert_eq!(bench.expire(), Some(Closing::Reset));
    assert_eq!(bench.end().logged, [(200, 3)]);
}

#[test]
fn the_body_of_a_request_is_passed_on_as_there_is_room() {
    let post = "POST /u HTTP/1.1\r\nHost: a\r\n";
    for (fields, body, got) in [
        ("Content-Length: 10\r\n\r\n", "0123456789", "0123456789"),
        (
            "Transfer-Encoding: chunked\r\n\r\n",
            "4\r\n0123\r\n6\r\n456789\r\n0\r\nX: y\r\n\r\n",
            "0123456789[X=y]",
        ),
    ] {
        let one = Shared::new(0);
        let mut bench = Bench::new(&[&one]);
        bench.receive(&format!("{post}{fields}"));
        assert!(!bench.conn.wants_input(), "there is no room");
        let pieces: Vec<&str> = (0..body.len()).map(|at| &body[at..=at]).collect();
        let mut pieces = pieces.into_iter();
        while !one.is_finished() {
            one.wire().capacity = 2;
            assert!(bench.conn.wants_input());
            bench.receive(pieces.next().unwrap());
        }
        assert_eq!(pieces.next(), None);
        assert_eq!(one.got(), got);
        one.answers(201, Some(0), "");
        bench.go_on();
        assert_eq!(bench.sent(), "HTTP/1.1 201 Up\r\nContent-Length: 0\r\n\r\n");
        bench.receive(&get("/own"));
        assert!(bench.sent().ends_with("own"));
        bench.end();
    }
}

#[test]
fn the_body_of_a_request_that_is_turned_away_is_no_request() {
    for (fields, body) in [
        ("Content-Length: 31", "GET /body HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("Transfer-Encoding: chunked", "1f\r\nGET /body HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n"),
    ] {
        let head = format!("POST /u HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        for (body, next, closed) in [
            (body, "", None),
            (body, &*get("/v"), None),
            (&body[..body.len() - 2], "", Some(Closing::Linger)),
        ] {
            let mut bench = Bench::new(&[]);
            bench.handler.is_full = true;
            bench.receive(&format!("{head}{body}{next}"));
            let (sent, requests) = (bench.sent(), 1 + u32::from(!next.is_empty()));
            assert!(sent.starts_with("HTTP/1.1 503 No\r\n"), "{sent}");
            assert_eq!(
                (sent.matches("503 No").count() as u32, bench.handler.judged),
                (requests, requests)
            );
            assert_eq!(bench.closed, closed, "{sent}");
            bench.end();
        }
    }
    // a request without a body is kept
    let mut bench = Bench::new(&[]);
    bench.handler.is_full = true;
    bench.receive(&(get("/u") + &get("/v")));
    assert_eq!((bench.sent().matches("503 No").count(), bench.closed), (2, None));
    bench.end();
}

#[test]
fn a_request_whose_body_is_gone_is_not_passed_on_any_more() {
    let wire = Shared::new(100);
    let mut bench = Bench::new(&[&wire]);
    bench.receive("POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert!(bench.sent().starts_with("HTTP/1.1 500 No"));
    assert_eq!(bench.closed, Some(Closing::Linger));
    assert!(wire.is_dropped() && wire.got().is_empty());
    // a request without a body is
    let wire = Shared::new(100);
    wire.answers(200, Some(2), "up");
    let mut bench = Bench::new(&[&wire]);
    bench.receive(&get("/late"));
    assert!(bench.sent().starts_with("HTTP/1.1 200 Up"));
    bench.end();
}

#[test]
fn a_body_that_came_with_the_head_is_passed_on() {
    let one = Shared::new(4);
    let mut bench = Bench::new(&[&one]);
    bench.receive("POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789");
    assert_eq!(one.got(), "0123");
    one.wire().capacity = 100;
    bench.go_on();
    assert_eq!((one.got().as_str(), one.is_finished()), ("0123456789", true));
    one.answers(200, Some(0), "");
    bench.go_on();
    assert_eq!(bench.closed, None);
    bench.end();
}

#[test]
fn an_answer_before_the_end_of_the_request_ends_that() {
    // the rest never comes, or was there
    for (sent, is_kept) in [("0123", false), ("0123456789", true)] {
        let one = Shared::new(2);
        let mut bench = Bench::new(&[&one]);
        let head = "POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
        bench.receive(&format!("{head}{sent}"));
        one.answers(413, Some(0), "");
        bench.go_on();
        let close = if is_kept { "" } else { "Connection: close\r\n" };
        assert_eq!(bench.sent(), format!("HTTP/1.1 413 Up\r\nContent-Length: 0\r\n{close}\r\n"));
        assert_eq!(bench.closed, (!is_kept).then_some(Closing::Linger));
        // the connection is in the middle of a request
        assert!(one.is_dropped() && !one.is_released());
        if is_kept {
            bench.receive(&get("/own"));
            assert!(bench.sent().ends_with("own"));
        }
        bench.end();
    }
}

#[test]
fn a_body_that_is_not_needed_is_not_waited_for() {
    for (sent, is_kept) in [("0123", false), ("0123456789", true)] {
        let mut bench = Bench::new(&[]);
        let head = "POST /own HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
        bench.receive(&format!("{head}{sent}"));
        assert!(bench.sent().ends_with("\r\n\r\nown"));
        assert_eq!(bench.closed, (!is_kept).then_some(Closing::Linger));
        if is_kept {
            bench.receive(&get("/own"));
            assert!(bench.sent().ends_with("own"));
        }
        bench.end();
    }
}

#[test]
fn a_body_that_is_too_large_or_malformed_is_refused() {
    let cases =
        [("Content-Length: 101\r\n\r\n", 413), ("Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400)];
    for (rest, status) in cases {
        let one = Shared::new(1000);
        let mut bench = Bench::new(&[&one]);
        bench.receive(&format!("POST /u HTTP/1.1\r\nHost: a\r\n{rest}"));
        assert!(bench.sent().starts_with(&format!("HTTP/1.1 {status} No\r\n")));
        assert_eq!(bench.closed, Some(Closing::Linger));
        bench.end();
    }
    // when the answer has begun already, the client must see the error otherwise
    let one = Shared::new(1000);
    one.wire().answer = Some((Some(200), None));
    let mut bench = Bench::new(&[&one]);
    bench.receive("POST /u HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    bench.receive("zz\r\n");
    assert_eq!(bench.closed, Some(Closing::Reset));
    bench.end();
}

#[test]
fn a_client_is_asked_for_its_body_when_the_other_server_wants_it() {
    let head = "POST /u HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let one = Shared::new(10);
    let mut bench = Bench::new(&[&one]);
    bench.receive(head);
    assert_eq!(bench.sent(), "");
    one.wire().interim.extend([103, 100]);
    bench.go_on();
    assert_eq!(bench.sent(), "HTTP/1.1 1xx Wait\r\n\r\n".repeat(2));
    bench.receive("abc");
    assert!(one.is_finished());
    // a client that has begun, or did not ask, gets no 100
    one.wire().interim.extend([100]);
    bench.go_on();
    assert_eq!(bench.sent(), "");
    one.answers(200, Some(0), "");
    bench.go_on();
    assert_eq!(bench.closed, None);
    bench.end();

    let one = Shared::new(10);
    let mut bench = Bench::new(&[&one]);
    bench.receive("GET /u HTTP/1.0\r\nHost: a\r\n\r\n");
    one.wire().interim.extend([103, 100]);
    bench.go_on();
    assert_eq!(bench.sent(), "");
    // the answer comes instead of the request to go on
    let (one, mut bench) = (Shared::new(10), Bench::new(&[]));
    bench.handler.exchanges.push_back(one.clone());
    bench.receive(head);
    one.answers(401, Some(0), "");
    bench.go_on();
    assert!(bench.sent().starts_with("HTTP/1.1 401 Up\r\n"));
    assert_eq!(bench.closed, Some(Closing::Linger));
}

#[test]
fn an_upgrade_makes_a_tunnel_and_each_end_is_passed_on() {
    for client_first in [true, false] {
        let one = Shared::new(0);
        let mut bench = Bench::new(&[&one]);
        bench.receive(&(get("/u") + "early"));
        one.wire().answer = Some((Some(101), None));
        one.wire().capacity = 1000;
        one.wire().body = "hi".to_owned();
        bench.go_on();
        let head = "HTTP/1.1 101 Switch\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n";
        assert_eq!(bench.sent(), format!("{head}hi"));
        assert_eq!(one.got(), "early");
        bench.receive("GET / HTTP/1.1\r\n\r\n");
        assert_eq!(one.got(), "earlyGET / HTTP/1.1\r\n\r\n");
        let mut ends = [client_first, !client_first].into_iter();
        for (number, is_client) in ends.by_ref().enumerate() {
            if is_client {
                bench.end_input();
            } else {
                one.wire().body = "bye".to_owned();
                one.wire().end = Some(RelayRead::End);
            }
            bench.go_on();
            if is_client {
                assert!(one.is_finished());
            } else {
                assert!(bench.has_ended_output);
                assert_eq!(bench.sent(), "bye");
            }
            assert_eq!(bench.closed.is_some(), number == 1);
        }
        assert_eq!(bench.closed, Some(Closing::Now));
        let front = bench.end();
        assert_eq!((front.logged, front.settled), (vec![(101, 5)], vec![(1, Settled::Answered)]));
    }
}

#[test]
fn a_tunnel_takes_no_more_than_the_other_side_does() {
    let one = Shared::new(3);
    one.wire().answer = Some((Some(101), None));
    let mut bench = Bench::new(&[&one]);
    bench.receive(&(get("/u") + "0123456789"));
    assert_eq!(one.got(), "012");
    assert!(!bench.conn.wants_input());
    one.wire().capacity = 100;
    bench.go_on();
    assert_eq!(one.got(), "0123456789");
    assert!(bench.conn.wants_input());
}

#[test]
fn a_client_that_leaves_cancels() {
    let one = Shared::new(0);
    let mut bench = Bench::new(&[&one]);
    bench.receive(&get("/one"));
    let front = bench.end();
    assert!(one.is_dropped() && !one.is_released());
    assert_eq!((front.given_up, front.settled), (1, vec![(1, Settled::Cut)]));
    // within its answer
    let one = Shared::new(0);
    one.answers(200, None, "abc");
    one.wire().end = None;
    let mut bench = Bench::new(&[&one]);
    bench.receive(&get("/one"));
    let front = bench.end();
    assert_eq!((front.given_up, front.logged), (0, vec![(200, 3)]));
    // in the middle of its request
    let one = Shared::new(100);
    let mut bench = Bench::new(&[&one]);
    bench.receive("POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
    bench.end_input();
    bench.go_on();
    assert_eq!(bench.closed, Some(Closing::Now));
    assert!(one.is_dropped() && !one.is_finished());
}

#[test]
fn a_client_that_has_ended_gets_its_answer() {
    let one = Shared::new(0);
    let mut bench = Bench::new(&[&one]);
    bench.receive(&get("/one"));
    bench.end_input();
    bench.go_on();
    one.answers(200, Some(5), "hello");
    bench.go_on();
    assert!(bench.sent().ends_with("hello"));
    assert_eq!(bench.closed, Some(Closing::Now));
}

#[test]
fn a_client_that_does_not_send_its_body_is_told() {
    let one = Shared::new(100);
    let mut bench = Bench::new(&[&one]);
    bench.receive("POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
    assert_eq!(bench.expire(), Some(Closing::Linger));
    assert!(bench.sent().starts_with("HTTP/1.1 408 No\r\n"));
    assert_eq!(one.wire().expired, 0, "it was not its fault");
    bench.end();
    // nor is it the client's fault if there is no connection in time
    let one = Shared::new(100);
    one.wire().is_connecting = true;
    let mut bench = Bench::new(&[&one]);
    bench.receive("POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
    bench.expire();
    assert!(bench.sent().starts_with("HTTP/1.1 504 No\r\n"));
    assert_eq!(one.wire().expired, 1);
    bench.end();
}
