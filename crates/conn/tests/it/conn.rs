//! A connection without a socket: bytes go in as they may arrive, answers come out.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_conn::*;
use forebay_metrics::{Local, Off, Stopwatch};
use proptest::prelude::*;
use std::os::fd::OwnedFd;

/// Answers with the path; `/job…` only after a job.
#[derive(Default)]
struct Echo {
    logged: Vec<(u16, u64)>,
    /// Goes one further at each look.
    clock_ns: u64,
    stages: Vec<Stages>,
    settled: Vec<Settled>,
    /// How many requests came to line up, and which of them may not.
    lined_up: u32,
    refused: Option<u32>,
}

struct Work;

impl Job for Work {
    type Done = &'static str;

    fn run(self, _: &Local, _: &mut dyn Stopwatch) -> &'static str {
        "done"
    }

    fn lane(&self) -> u64 {
        0
    }
}

impl Handler for Echo {
    type Body = ();
    type Job = Work;
    type Line = u16;
    type Ticket = ();

    fn verdict(&mut self, _: &Request<'_>) -> Verdict<()> {
        Verdict::Admit(Admitted::at_once(Rank::FIRST, ()))
    }

    fn settle(&mut self, (): (), end: Settled) {
        self.settled.push(end);
    }

    fn line_up(&mut self, (): &mut ()) -> Result<(), Refusal> {
        self.lined_up += 1;
        if self.refused == Some(self.lined_up) { Err(Refusal::status(503)) } else { Ok(()) }
    }

    fn process(
        &mut self,
        request: &Request<'_>,
        (): &mut (),
        done: Option<&'static str>,
        reply: &mut Reply<'_, ()>,
    ) -> Outcome<Work> {
        let path = request.head.path;
        if path.starts_with(b"/job") && done.is_none() {
            return Outcome::Job(Work);
        }
        reply.head(200, b"HTTP/1.1 200 OK\r\n");
        reply.copy(path);
        if path == b"/who" {
            reply.copy(request.peer.address().to_string().as_bytes());
        }
        reply.copy(done.unwrap_or("").as_bytes());
        reply.copy(b"\n");
        Outcome::Replied
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, ()>) {
        reply.head(status, format!("HTTP/1.1 {status} {reason}\r\n").as_bytes());
    }

    fn piece<'b>(&'b self, (): &'b ()) -> Option<Piece<'b>> {
        None
    }

    fn advance(&self, (): &mut (), _: u64) {}

    fn is_intact(&self, (): &()) -> bool {
        true
    }

    fn hold(&mut self, (): &mut ()) {}

    fn warm_bytes(&self, _: &()) -> u64 {
        0
    }

    fn warm(&mut self, (): &()) -> Work {
        Work
    }

    fn tick(&mut self) -> u64 {
        self.clock_ns += 1;
        self.clock_ns
    }

    fn line(
        &mut self,
        _: &Peer,
        _: Option<&Request<'_>>,
        _: Option<&()>,
        status: u16,
        stages: Stages,
    ) -> Option<u16> {
        self.stages.push(stages);
        Some(status)
    }

    fn log(&mut self, status: u16, body_bytes: u64) {
        self.logged.push((status, body_bytes));
    }

    fn hand_over(&mut self, _: OwnedFd, _: Vec<u8>, _: &Peer) {}
}

/// Plays the engine, with all stages in one turn and with a turn for each: both must come to the
/// same. Returns what was sent, with how the connection was closed, if it was.
fn play(pieces: &[&[u8]], limits: Limits, budget: u32) -> (String, Option<Closing>) {
    play_on(Conn::default, pieces, limits, budget)
}

fn play_on(
    conn: fn() -> Conn<Echo>,
    pieces: &[&[u8]],
    limits: Limits,
    budget: u32,
) -> (String, Option<Closing>) {
    let (mut one, mut other) = (Echo::default(), Echo::default());
    let together = turns(&mut one, conn(), pieces, limits, budget, false);
    let apart = turns(&mut other, conn(), pieces, limits, 1, true);
    assert_eq!(apart, together, "left: a turn for each stage");
    assert_eq!(other.logged, one.logged);
    let answers = together.0.matches("HTTP/1.1 ").count();
    assert_eq!(answers - together.0.matches("HTTP/1.1 100 ").count(), one.logged.len());
    together
}

/// Receives `pieces` one after another, does jobs at once, collects what is sent.
fn turns(
    handler: &mut Echo,
    mut conn: Conn<Echo>,
    pieces: &[&[u8]],
    limits: Limits,
    budget: u32,
    apart: bool,
) -> (String, Option<Closing>) {
    let mut peer = Peer::new(([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 80).into());
    let mut out = Out::default();
    let metrics = Local::default();
    let mut watch = Off;
    let mut input = Input::with_capacity(64 * 1024);
    let mut sent = String::new();
    let mut arriving = pieces.iter();
    let mut done = None;
    let mut answers = !apart;
    'turns: for _ in 0..100_000 {
        let mut cx = Context {
            handler: &mut *handler,
            out: &mut out,
            peer: &peer,
            limits: &limits,
            date: b"Sun, 06 Nov 1994 08:49:37 GMT",
            announce_s: 0,
            draining: false,
            budget,
            answers: answers.then_some(Rank::LAST),
            done: done.take(),
            metrics: &metrics,
            watch: &mut watch,
        };
        conn.resume(&mut input);
        loop {
            match conn.advance(&mut cx, &mut input) {
                Step::Receive => match arriving.next() {
                    Some(piece) => {
                        input.room()[..piece.len()].copy_from_slice(piece);
                        input.received(piece.len());
                    }
                    None => return (sent, None),
                },
                Step::Send => {
                    sent.push_str(std::str::from_utf8(&cx.out.bytes).unwrap());
                    cx.out.clear();
                    conn.sent(cx.handler);
                    if apart {
                        answers = false;
                        conn.suspend(&mut input);
                        continue 'turns;
                    }
                }
                Step::Answer => {
                    assert!(apart && !answers, "it was to be answered at once");
                    answers = true;
                    conn.suspend(&mut input);
                    continue 'turns;
                }
                Step::Process(Work) => {
                    assert!(cx.out.is_empty(), "an answer waits for the next one's job");
                    done = Some("done");
                    conn.suspend(&mut input);
                    continue 'turns;
                }
                Step::Stated(address) => {
                    peer.stated = address;
                    conn.suspend(&mut input);
                    continue 'turns;
                }
                Step::Yield => {
                    conn.suspend(&mut input);
                    continue 'turns;
                }
                Step::Close(closing) => {
                    conn.sent(cx.handler);
                    return (sent, Some(closing));
                }
                Step::Wait | Step::HandOver => panic!("nothing leads here"),
            }
        }
    }
    panic!("the connection never came to rest");
}

fn whole(bytes: &[u8]) -> (String, Option<Closing>) {
    play(&[bytes], Limits::default(), 1000)
}

fn bodies(sent: &str) -> Vec<&str> {
    sent.lines().filter(|line| line.starts_with('/')).collect()
}

const PIPELINE: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n\
    POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\
    GET /job1 HTTP/1.1\r\nHost: h\r\n\r\n\
    POST /job2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n\
    GET /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn a_pipeline_is_answered_in_order() {
    let (sent, closing) = whole(PIPELINE.as_bytes());
    assert_eq!(bodies(&sent), ["/a", "/b", "/job1done", "/job2done", "/c"]);
    assert_eq!(closing, Some(Closing::Now));
}

#[test]
fn unread_input_makes_the_close_linger() {
    let (_, closing) = whole(format!("{PIPELINE}GET /never HTTP/1.1\r\n").as_bytes());
    assert_eq!(closing, Some(Closing::Linger));
}

#[test]
fn the_last_request_allowed_says_close() {
    let limits = Limits { requests: 2, ..Limits::default() };
    let get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3);
    let (sent, closing) = play(&[get.as_bytes()], limits, 1000);
    assert_eq!(bodies(&sent).len(), 2);
    assert_eq!(sent.matches("Connection: close").count(), 1);
    assert_eq!(closing, Some(Closing::Linger));
}

#[test]
fn a_body_over_the_bound_is_refused() {
    let limits = Limits { body_bytes: 4, ..Limits::default() };
    let sized = "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let chunked =
        "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for request in [sized, chunked] {
        let (sent, closing) = play(&[request.as_bytes()], limits, 1000);
        assert!(sent.starts_with("HTTP/1.1 413"), "{sent}");
        assert_eq!(closing, Some(Closing::Linger));
    }
}

#[test]
fn a_client_that_waits_for_100_gets_it_and_one_that_does_not_wait_does_not() {
    let head = "POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let (sent, _) = play(&[head.as_bytes(), b"hello"], Limits::default(), 1000);
    assert!(sent.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{sent}");
    let (sent, _) = whole(format!("{head}hello").as_bytes());
    assert!(sent.starts_with("HTTP/1.1 200"), "{sent}");
}

#[test]
fn http10_is_closed_unless_it_asks_not_to_be() {
    let (sent, closing) = whole(b"GET /a HTTP/1.0\r\n\r\n");
    assert!(sent.contains("Connection: close"));
    assert_eq!(closing, Some(Closing::Now));
    let (sent, closing) = whole(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(sent.contains("Connection: keep-alive"));
    assert_eq!(closing, None);
}

const STATED: &str = "PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n\
    GET /who HTTP/1.1\r\nHost: h\r\n\r\n";

fn behind_proxy(pieces: &[&[u8]]) -> (String, Option<Closing>) {
    play_on(Conn::behind_proxy, pieces, Limits::default(), 1000)
}

#[test]
fn a_request_has_the_address_that_the_proxy_stated() {
    let (sent, closing) = behind_proxy(&[STATED.as_bytes()]);
    assert_eq!((bodies(&sent), closing), (vec!["/who192.0.2.7:4711"], None));
    let single: Vec<&[u8]> = STATED.as_bytes().chunks(1).collect();
    assert_eq!(behind_proxy(&single).0, sent);
    let unknown = STATED.replace("TCP4 192.0.2.7 192.0.2.1 4711 80", "UNKNOWN");
    let (sent, _) = behind_proxy(&[unknown.as_bytes()]);
    assert_eq!(bodies(&sent), ["/who127.0.0.1:1"]);
}

#[test]
fn who_does_not_state_a_client_is_reset() {
    for request in ["GET /who HTTP/1.1\r\nHost: h\r\n\r\n", "PROXY TCP4 ::1 ::1 1 1\r\n"] {
        let (sent, closing) = behind_proxy(&[request.as_bytes()]);
        assert_eq!((sent.as_str(), closing), ("", Some(Closing::Reset)), "{request}");
    }
    // it is said once
    let (sent, closing) = behind_proxy(&[STATED.as_bytes(), STATED.as_bytes()]);
    assert!(sent.contains("/who192.0.2.7:4711") && sent.contains("HTTP/1.1 400"), "{sent}");
    assert_eq!(closing, Some(Closing::Linger));
    // where it is not expected it is a malformed request
    let (sent, _) = whole(STATED.as_bytes());
    assert!(sent.starts_with("HTTP/1.1 400"), "{sent}");
}

#[test]
fn each_answer_is_logged_with_when_its_request_began_and_was_complete() {
    let play = |pieces: &[&[u8]]| {
        let mut handler = Echo::default();
        turns(&mut handler, Conn::default(), pieces, Limits::default(), 1000, false);
        (handler.logged, handler.stages)
    };
    let came_in_one = Stages { begun_ns: 1, complete_ns: 1 };
    let (logged, stages) = play(&[b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"]);
    assert_eq!((logged, stages), (vec![(200, 3)], vec![came_in_one]));
    // a job does not make receiving longer
    let (_, stages) = play(&[b"GET /job HTTP/1.1\r\nHost: h\r\n\r\n"]);
    assert_eq!(stages, [came_in_one]);
    let came_in_three = Stages { begun_ns: 1, complete_ns: 2 };
    let (_, stages) = play(&[b"GET /a HTTP", b"/1.1\r\nHost:", b" h\r\n\r\n"]);
    assert_eq!(stages, [came_in_three]);
    // the body is part of the request; the next request begins anew
    let post = b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel";
    let (_, stages) = play(&[post, b"loGET /a HTTP/1.1\r\nHost: h\r\n\r\n"]);
    assert_eq!(stages, [came_in_three, Stages { begun_ns: 3, complete_ns: 3 }]);
    // what is refused is received as well
    let (logged, stages) = play(&[b"GET /a HTTP", b"/1.1\r\n x\r\n\r\n"]);
    assert_eq!((logged[0].0, stages), (400, vec![came_in_three]));
}

/// What a client whose time is over is told, and how it ended with its admitted requests.
fn expired(request: &str) -> (String, Vec<Settled>) {
    let mut handler = Echo::default();
    let peer = Peer::new(([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 80).into());
    let (mut out, mut input) = (Out::default(), Input::with_capacity(1024));
    let mut conn = Conn::default();
    input.room()[..request.len()].copy_from_slice(request.as_bytes());
    input.received(request.len());
    let mut cx = Context {
        handler: &mut handler,
        out: &mut out,
        peer: &peer,
        limits: &Limits::default(),
        date: b"Sun, 06 Nov 1994 08:49:37 GMT",
        announce_s: 0,
        draining: false,
        budget: 1000,
        answers: Some(Rank::LAST),
        done: None,
        metrics: &Local::default(),
        watch: &mut Off,
    };
    while let Step::Send = conn.advance(&mut cx, &mut input) {
        cx.out.clear();
        conn.sent(cx.handler);
    }
    assert!(matches!(conn.expire(&mut cx, &mut input), Step::Send));
    let told = String::from_utf8(cx.out.bytes.clone()).unwrap();
    conn.abandon(cx.handler);
    (told, handler.settled)
}

#[test]
fn what_is_not_done_in_time_is_refused_after_all() {
    let (told, settled) = expired(
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /job HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\n",
    );
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert_eq!(settled, [Settled::Answered, Settled::Expired]);
    // here the client is who takes too long
    let (told, settled) = expired("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nh");
    assert!(told.starts_with("HTTP/1.1 408"), "{told}");
    assert_eq!(settled, [Settled::Cut]);
}

#[test]
fn a_request_lines_up_once_and_when_it_is_whole() {
    let head = b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
    for (pieces, expected) in [
        (&[&head[..]][..], 0),
        (&[head, b"hell"], 0),
        (&[head, b"hell", b"o"], 1),
        (&[PIPELINE.as_bytes()], 5),
    ] {
        for apart in [false, true] {
            let mut handler = Echo::default();
            turns(&mut handler, Conn::default(), pieces, Limits::default(), 1, apart);
            assert_eq!(handler.lined_up, expected);
        }
    }
}

#[test]
fn who_may_not_line_up_is_told_and_the_connection_goes_on() {
    for (refused, expected) in [
        (1, &["/b", "/job1done", "/job2done", "/c"][..]),
        (2, &["/a", "/job1done", "/job2done", "/c"]),
        (5, &["/a", "/b", "/job1done", "/job2done"]),
    ] {
        for apart in [false, true] {
            let mut handler = Echo { refused: Some(refused), ..Echo::default() };
            let (sent, closing) = turns(
                &mut handler,
                Conn::default(),
                &[PIPELINE.as_bytes()],
                Limits::default(),
                1,
                apart,
            );
            assert_eq!(bodies(&sent), expected);
            assert_eq!(sent.matches("HTTP/1.1 503").count(), 1, "{sent}");
            assert!(matches!(closing, Some(Closing::Now | Closing::Linger)), "{closing:?}");
        }
    }
}

proptest! {
    /// However the bytes are cut and however small the turns are, the answers are the same.
    #[test]
    fn the_answers_do_not_depend_on_how_bytes_arrive(
        cuts in proptest::collection::vec(0..PIPELINE.len(), 0..12),
        budget in 1u32..4,
    ) {
        let mut cuts = cuts;
        cuts.extend([0, PIPELINE.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let pieces: Vec<&[u8]> =
            cuts.windows(2).map(|cut| &PIPELINE.as_bytes()[cut[0]..cut[1]]).collect();
        let expected = whole(PIPELINE.as_bytes());
        prop_assert_eq!(play(&pieces, Limits::default(), budget), expected);
    }

    /// Whatever a stranger sends, the connection comes to rest.
    #[test]
    fn no_input_panics_or_spins(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        start in "(GET|POST|OPTIONS|X) /?[a-z%.]{0,9} HTTP/1.[01]\r\n",
    ) {
        let mut request = start.into_bytes();
        request.extend(bytes);
        whole(&request);
    }
}
