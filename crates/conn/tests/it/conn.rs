//! A connection without a socket: bytes go in as they may arrive, answers come out.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::worker::{Worker, here};
use forebay_conn::handler::body::NoBody;
use forebay_conn::*;
use forebay_metrics::{Local, Stopwatch};
use proptest::prelude::*;

/// Answers with the path, and does what that says: `/job…` is answered after a job; `/decide…` is decided
/// after one, if it has a body; `…away` is handed over, `/refuse…` and `/reset…` are not admitted,
/// `/early…` is answered later.
#[derive(Default)]
struct Echo {
    logged: Vec<(u16, u64)>,
    /// Goes one further at each look.
    clock_ns: u64,
    stages: Vec<ArrivalTimes>,
    /// How many requests were given a ticket.
    judged: u32,
    settled: Vec<(u32, Settled)>,
    /// Requests that were never answered.
    given_up: Vec<String>,
    /// The tickets that log lines have seen.
    seen: Vec<Option<u32>>,
    /// How many requests asked to be enqueued, and which of them is refused.
    enqueued: u32,
    refused: Option<u32>,
    /// The calls of the handler, in their order.
    trace: Vec<&'static str>,
}

/// What a request owns: its number, from 1 on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ticket(u32);

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

impl HandlerTypes for Echo {
    type Body = NoBody;
    type Job = Work;
    type Relay = NoRelay;
    type Line = u16;
    type Ticket = Ticket;
    type Record = ();
}

impl Admission for Echo {
    fn verdict(&mut self, request: &Request<'_>, (): &mut ()) -> Verdict<Ticket> {
        let path = request.head.path;
        if path.starts_with(b"/reset") {
            return Verdict::Reset;
        }
        self.judged += 1;
        let ticket = Ticket(self.judged);
        if path.starts_with(b"/refuse") {
            return Verdict::Refuse(Refusal::status(429), ticket);
        }
        let wait_ms = if path.starts_with(b"/early") { 5 } else { 0 };
        Verdict::Admit(Admitted { wait_ms, ..Admitted::at_once(Rank::FIRST, ticket) })
    }

    fn enqueue(&mut self, ticket: &mut Ticket) -> Result<(), Refusal> {
        assert!(ticket.0 > 0, "enqueued without its ticket");
        self.enqueued += 1;
        if self.refused == Some(self.enqueued) { Err(Refusal::status(503)) } else { Ok(()) }
    }

    fn settle(&mut self, ticket: &mut Ticket, end: Settled) {
        self.settled.push((ticket.0, end));
    }
}

impl Process for Echo {
    fn decide(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Ticket,
        done: Option<&'static str>,
    ) -> BodyDecision<Work> {
        assert!(ticket.0 > 0, "decided without its ticket");
        self.trace.push("decide");
        let path = request.head.path;
        match done {
            None if path.starts_with(b"/decide") => BodyDecision::Job(Work),
            _ if path.ends_with(b"away") => BodyDecision::HandOver,
            _ => BodyDecision::Here,
        }
    }

    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Ticket,
        done: Option<&'static str>,
        reply: &mut Reply<'_, NoBody>,
    ) -> ProcessOutcome<Work> {
        assert!(ticket.0 > 0, "processed without its ticket");
        self.trace.push("process");
        let path = request.head.path;
        if path.starts_with(b"/job") && done.is_none() {
            return ProcessOutcome::Job(Work);
        }
        if path.ends_with(b"away") || path == b"/late" {
            return ProcessOutcome::HandOver;
        }
        reply.head(200, b"HTTP/1.1 200 OK\r\n");
        reply.copy(path);
        reply.copy(done.unwrap_or("").as_bytes());
        reply.copy(b"\n");
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, NoBody>) {
        reply.head(status, format!("HTTP/1.1 {status} {reason}\r\n").as_bytes());
    }
}

impl Bodies for Echo {}

impl Journal for Echo {
    fn tick(&mut self) -> u64 {
        self.clock_ns += 1;
        self.clock_ns
    }

    fn given_up(&mut self, asked: &GivenUp<'_, Ticket>, _: Option<&Self::Relay>) {
        assert!(asked.ticket.0 > 0, "given up without its ticket");
        self.given_up.push(String::from_utf8(asked.request.head.path.to_vec()).unwrap());
    }

    fn line(&mut self, answered: &Answered<'_, Ticket>) -> Option<u16> {
        self.stages.push(answered.stages);
        self.seen.push(answered.ticket.map(|ticket| ticket.0));
        Some(answered.status)
    }

    fn log(&mut self, status: u16, body_bytes: u64) {
        self.logged.push((status, body_bytes));
    }
}

impl Hooks for Echo {}

impl Handler for Echo {
    type Protocol = Http1<Echo>;
    type Transport = PlainTransport;
}

impl Echo {
    /// Checks that each judged request was settled once, except `away`, which another process has now.
    fn check_books(&self, away: Option<u32>) {
        let mut settled: Vec<u32> = self.settled.iter().map(|(ticket, _)| *ticket).collect();
        settled.extend(away);
        settled.sort_unstable();
        assert_eq!(settled, (1..=self.judged).collect::<Vec<_>>(), "{:?}", self.settled);
        let mut seen: Vec<u32> = self.seen.iter().copied().flatten().collect();
        let lines = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), lines, "two lines of one request: {:?}", self.seen);
    }
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The connection waits for more.
    Open,
    Closed(Closing),
    /// The connection has left for another process, with these bytes and this ticket.
    Away(Vec<u8>, u32),
}

/// Plays the engine, with all stages in one turn and with a turn for each: both must come to the
/// same. Returns what was sent, with how the connection was closed, if it was.
fn play(pieces: &[&[u8]], limits: ConnectionLimits, budget: u32) -> (String, Option<Closing>) {
    let (mut one, mut other) = (Echo::default(), Echo::default());
    let together = turns(&mut one, pieces, limits, budget, false);
    let apart = turns(&mut other, pieces, limits, 1, true);
    assert_eq!(apart, together, "left: a turn for each stage");
    assert_eq!(other.logged, one.logged);
    let answers = together.0.matches("HTTP/1.1 ").count();
    assert_eq!(answers - together.0.matches("HTTP/1.1 100 ").count(), one.logged.len());
    match together {
        (sent, End::Open) => (sent, None),
        (sent, End::Closed(closing)) => (sent, Some(closing)),
        (_, End::Away(..)) => panic!("handed over"),
    }
}

/// Receives `pieces` one after another, does jobs at once, collects what is sent.
fn turns(
    handler: &mut Echo,
    pieces: &[&[u8]],
    limits: ConnectionLimits,
    budget: u32,
    apart: bool,
) -> (String, End) {
    let mut conn = Http1::<Echo>::default();
    let (sent, end) = turns_of(&mut conn, handler, pieces, limits, budget, apart);
    conn.abandon(handler, &here());
    handler.check_books(if let End::Away(_, ticket) = end { Some(ticket) } else { None });
    (sent, end)
}

fn turns_of(
    conn: &mut Http1<Echo>,
    handler: &mut Echo,
    pieces: &[&[u8]],
    limits: ConnectionLimits,
    budget: u32,
    apart: bool,
) -> (String, End) {
    let mut worker = Worker::new();
    let mut sent = String::new();
    let mut arriving = pieces.iter();
    let mut event = None;
    let mut answers = !apart;
    'turns: for _ in 0..100_000 {
        let (mut cx, input) = worker.lend(handler, &limits, budget);
        cx.answers = answers.then_some(Rank::LAST);
        cx.event = event.take();
        conn.resume(input);
        loop {
            let step = conn.advance(&mut cx, input);
            match step {
                Step::Receive => match arriving.next() {
                    Some(piece) => {
                        cx.handler.trace.push("receive");
                        input.spare()[..piece.len()].copy_from_slice(piece);
                        input.received(piece.len());
                        continue;
                    }
                    None => return (sent, End::Open),
                },
                Step::Send => {
                    cx.handler.trace.push("send");
                    sent.push_str(std::str::from_utf8(&cx.out.bytes).unwrap());
                    cx.out.clear();
                    conn.sent(cx.handler);
                    if !apart {
                        continue;
                    }
                    answers = false;
                }
                Step::Enqueue(id) => {
                    assert!(apart && !answers, "it was to be answered at once");
                    assert!(conn.is_queued());
                    (answers, event) = (true, Some(RequestEvent::Called(id)));
                }
                Step::Job(id, Work) => {
                    assert!(cx.out.is_empty(), "an answer waits for the next one's job");
                    cx.handler.trace.push("job");
                    event = Some(RequestEvent::Done(id, "done"));
                }
                Step::NotBefore(id, 5) => event = Some(RequestEvent::Due(id)),
                Step::Yield => {}
                Step::Lend => panic!("nothing is lent"),
                Step::HandOver => {
                    let (received, ticket) = conn.take_handed(input);
                    return (sent, End::Away(received, ticket.0));
                }
                Step::Close(closing) => {
                    conn.sent(cx.handler);
                    return (sent, End::Closed(closing));
                }
                Step::NotBefore(..) | Step::Look | Step::Wait | Step::End | Step::Forget(_) => {
                    panic!("nothing leads here")
                }
            }
            conn.suspend(input);
            continue 'turns;
        }
    }
    panic!("the connection never came to rest");
}

fn whole(bytes: &[u8]) -> (String, Option<Closing>) {
    play(&[bytes], ConnectionLimits::default(), 1000)
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
    let limits = ConnectionLimits { requests: 2, ..ConnectionLimits::default() };
    let get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3);
    let (sent, closing) = play(&[get.as_bytes()], limits, 1000);
    assert_eq!(bodies(&sent).len(), 2);
    assert_eq!(sent.matches("Connection: close").count(), 1);
    assert_eq!(closing, Some(Closing::Linger));
}

#[test]
fn a_body_over_the_bound_is_refused() {
    let limits = ConnectionLimits { body_bytes: 4, ..ConnectionLimits::default() };
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
    let (sent, _) = play(&[head.as_bytes(), b"hello"], ConnectionLimits::default(), 1000);
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

#[test]
fn each_answer_is_logged_with_when_its_request_began_and_was_complete() {
    let play = |pieces: &[&[u8]]| {
        let mut handler = Echo::default();
        turns(&mut handler, pieces, ConnectionLimits::default(), 1000, false);
        (handler.logged, handler.stages)
    };
    let came_in_one = ArrivalTimes { begun_ns: 1, complete_ns: 1 };
    let (logged, stages) = play(&[b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"]);
    assert_eq!((logged, stages), (vec![(200, 3)], vec![came_in_one]));
    // a job does not make receiving longer
    let (_, stages) = play(&[b"GET /job HTTP/1.1\r\nHost: h\r\n\r\n"]);
    assert_eq!(stages, [came_in_one]);
    let came_in_three = ArrivalTimes { begun_ns: 1, complete_ns: 2 };
    let (_, stages) = play(&[b"GET /a HTTP", b"/1.1\r\nHost:", b" h\r\n\r\n"]);
    assert_eq!(stages, [came_in_three]);
    // the body is part of the request; the next request begins anew
    let post = b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel";
    let (_, stages) = play(&[post, b"loGET /a HTTP/1.1\r\nHost: h\r\n\r\n"]);
    assert_eq!(stages, [came_in_three, ArrivalTimes { begun_ns: 3, complete_ns: 3 }]);
    // a refused request is received as well
    let (logged, stages) = play(&[b"GET /a HTTP", b"/1.1\r\n x\r\n\r\n"]);
    assert_eq!((logged[0].0, stages), (400, vec![came_in_three]));
}

#[test]
fn a_proxy_header_that_is_not_expected_is_a_malformed_request() {
    let stated = "PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n";
    let get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let (sent, closing) = whole(format!("{stated}{get}").as_bytes());
    assert!(sent.starts_with("HTTP/1.1 400"), "{sent}");
    assert_eq!(closing, Some(Closing::Linger));
    let (sent, closing) = whole(format!("{get}{stated}").as_bytes());
    assert!(sent.starts_with("HTTP/1.1 200") && sent.contains("HTTP/1.1 400"), "{sent}");
    assert_eq!(closing, Some(Closing::Linger));
}

/// The length of the body in the log line if the last bytes of the answer, all of them for `None`, are never
/// sent.
fn logged_without(unsent: Option<u64>) -> u64 {
    let (mut handler, mut worker) = (Echo::default(), Worker::new());
    let mut conn = Http1::default();
    worker.input.fill(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let limits = ConnectionLimits::default();
    let (mut cx, input) = worker.lend(&mut handler, &limits, 1000);
    assert!(matches!(conn.advance(&mut cx, input), Step::Send));
    conn.not_sent(unsent.unwrap_or(cx.out.unsent_bytes()));
    conn.abandon(cx.handler, cx.peer);
    assert_eq!(handler.logged.len(), 1);
    handler.logged[0].1
}

#[test]
fn bytes_that_were_never_sent_are_not_logged() {
    let all = logged_without(Some(0));
    assert!(all > 1);
    assert_eq!(logged_without(Some(1)), all - 1);
    assert_eq!(logged_without(Some(all)), 0);
    // the bytes not sent include the head
    assert_eq!(logged_without(None), 0);
}

/// What a client whose time is over gets, and how its admitted requests have ended.
fn expired(request: &str) -> (String, Echo) {
    let (mut handler, mut worker) = (Echo::default(), Worker::new());
    let mut conn = Http1::default();
    worker.input.fill(request.as_bytes());
    let limits = ConnectionLimits::default();
    let (mut cx, input) = worker.lend(&mut handler, &limits, 1000);
    while let Step::Send = conn.advance(&mut cx, input) {
        cx.out.clear();
        conn.sent(cx.handler);
    }
    let awaited = conn.awaits();
    assert_eq!(conn.expire(&mut cx, input, awaited), Some(Closing::Linger));
    let told = String::from_utf8(cx.out.bytes.clone()).unwrap();
    conn.abandon(cx.handler, cx.peer);
    handler.check_books(None);
    (told, handler)
}

#[test]
fn what_is_not_done_in_time_is_refused_after_all() {
    let (told, books) = expired(
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /job HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\n",
    );
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert_eq!(books.settled, [(1, Settled::Answered), (2, Settled::Expired)]);
    // the log line has the ticket, settled or not
    assert_eq!(books.seen, [Some(1), Some(2)]);
    let job = "POST /decide HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nh";
    let (told, books) = expired(job);
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert_eq!((books.settled, books.seen), (vec![(1, Settled::Expired)], vec![Some(1)]));
    // here the client takes too long
    let (told, books) = expired("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nh");
    assert!(told.starts_with("HTTP/1.1 408"), "{told}");
    assert_eq!((books.settled, books.seen), (vec![(1, Settled::Cut)], vec![Some(1)]));
}

#[test]
fn a_request_that_ends_without_an_answer_is_given_up() {
    let answered = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let half = "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nh";
    for apart in [false, true] {
        let mut handler = Echo::default();
        turns(
            &mut handler,
            &[answered.as_bytes(), half.as_bytes()],
            ConnectionLimits::default(),
            9,
            apart,
        );
        assert_eq!((handler.given_up, handler.seen), (vec!["/b".to_owned()], vec![Some(1)]));
        assert_eq!(handler.settled, [(1, Settled::Answered), (2, Settled::Cut)]);
        let mut handler = Echo::default();
        turns(
            &mut handler,
            &[answered.as_bytes(), b"GET /c HT"],
            ConnectionLimits::default(),
            9,
            apart,
        );
        assert!(handler.given_up.is_empty(), "a request that did not arrive");
    }
}

#[test]
fn a_refused_request_shows_its_ticket_to_its_line_and_is_settled_once() {
    let get = "GET /refuse HTTP/1.1\r\nHost: h\r\n\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let post = "POST /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    for apart in [false, true] {
        let mut handler = Echo::default();
        let (sent, end) =
            turns(&mut handler, &[get.as_bytes()], ConnectionLimits::default(), 9, apart);
        assert!(sent.starts_with("HTTP/1.1 429") && sent.ends_with("/a\n"), "{sent}");
        assert_eq!((end, handler.seen), (End::Open, vec![Some(1), Some(2)]));
        assert_eq!(handler.settled, [(1, Settled::Answered), (2, Settled::Answered)]);
        // a request with a body that is not waited for
        let mut handler = Echo::default();
        let (sent, end) =
            turns(&mut handler, &[post.as_bytes()], ConnectionLimits::default(), 9, apart);
        assert!(sent.starts_with("HTTP/1.1 429"), "{sent}");
        assert_eq!((end, handler.seen), (End::Closed(Closing::Linger), vec![Some(1)]));
        assert!(handler.trace.iter().all(|asked| *asked != "decide"), "{:?}", handler.trace);
    }
}

#[test]
fn a_refused_client_that_sends_nothing_more_is_not_waited_for() {
    let close = "GET /refuse HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let more = [close, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"].concat();
    let body = close.replace("GET", "POST").replace("Host", "Content-Length: 5\r\nHost");
    for (text, expected) in [
        (close, Closing::Now),
        (&more, Closing::Linger),
        (&body, Closing::Linger),
        ("GET /refuse HTTP/1.0\r\n\r\n", Closing::Now),
    ] {
        let mut handler = Echo::default();
        let (sent, end) =
            turns(&mut handler, &[text.as_bytes()], ConnectionLimits::default(), 9, false);
        assert!(sent.starts_with("HTTP/1.") && sent.contains(" 429"), "{sent}");
        assert_eq!(end, End::Closed(expected), "{text}");
    }
    // the server ends the connection, and the client may be sending the next request
    let limits = ConnectionLimits { requests: 1, ..ConnectionLimits::default() };
    let mut handler = Echo::default();
    let get = b"GET /refuse HTTP/1.1\r\nHost: h\r\n\r\n";
    let (_, end) = turns(&mut handler, &[get], limits, 9, false);
    assert_eq!(end, End::Closed(Closing::Linger));
}

#[test]
fn a_request_that_is_reset_has_no_ticket_and_leaves_no_line() {
    let mut handler = Echo::default();
    let get = b"GET /reset HTTP/1.1\r\nHost: h\r\n\r\n";
    let (sent, end) = turns(&mut handler, &[get], ConnectionLimits::default(), 9, false);
    assert_eq!((sent.as_str(), end), ("", End::Closed(Closing::Reset)));
    assert_eq!((handler.judged, handler.logged), (0, vec![]));
}

const EXPECTS: &str = "HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

#[test]
fn who_answers_is_decided_before_the_body_is_read_and_100_is_sent() {
    for apart in [false, true] {
        let run = |path: &str| {
            let mut handler = Echo::default();
            let head = format!("POST {path} {EXPECTS}");
            let pieces = [head.as_bytes(), b"hello"];
            let (sent, end) = turns(&mut handler, &pieces, ConnectionLimits::default(), 9, apart);
            assert_eq!(end, End::Open);
            assert!(sent.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{sent}");
            handler.trace
        };
        assert_eq!(run("/a"), ["receive", "decide", "send", "receive", "process", "send"]);
        assert_eq!(
            run("/decide"),
            ["receive", "decide", "job", "decide", "send", "receive", "process", "send"]
        );
    }
    // a request without a body is not asked about
    let mut handler = Echo::default();
    let get = b"GET /decide HTTP/1.1\r\nHost: h\r\n\r\n";
    turns(&mut handler, &[get], ConnectionLimits::default(), 9, false);
    assert_eq!(handler.trace, ["receive", "process", "send"]);
}

#[test]
fn what_is_handed_over_takes_its_head_all_bytes_and_its_ticket_along() {
    let body = "hello, and more";
    for (path, head) in [("/a", true), ("/away", false), ("/decideaway", false)] {
        let before = "GET /first HTTP/1.1\r\nHost: h\r\n\r\n";
        let head = match head {
            true => "GET /away HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            false => format!("POST {path} {EXPECTS}"),
        };
        let whole = format!("{before}{head}{body}");
        for cut in 0..whole.len() {
            for apart in [false, true] {
                let mut handler = Echo::default();
                let pieces = [&whole.as_bytes()[..cut], &whole.as_bytes()[cut..]];
                let pieces = if cut == 0 { &pieces[1..] } else { &pieces };
                let (sent, end) =
                    turns(&mut handler, pieces, ConnectionLimits::default(), 9, apart);
                assert!(sent.ends_with("/first\n"), "only the first is answered: {sent}");
                let End::Away(received, 2) = end else { panic!("{end:?}") };
                // what has not been received is still in the socket
                let received = String::from_utf8(received).unwrap();
                assert!(received.starts_with(&head), "{received}");
                let came = if cut < before.len() + head.len() { whole.len() } else { cut };
                assert_eq!(received, whole[before.len()..came]);
            }
        }
    }
}

#[test]
fn a_request_whose_body_is_gone_is_not_handed_over_any_more() {
    let mut handler = Echo::default();
    let post = b"POST /late HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let (sent, end) = turns(&mut handler, &[post], ConnectionLimits::default(), 9, false);
    assert!(sent.starts_with("HTTP/1.1 500"), "{sent}");
    assert_eq!((end, handler.seen), (End::Closed(Closing::Linger), vec![Some(1)]));
}

#[test]
fn a_request_that_came_early_is_answered_when_it_is_due() {
    let request = "POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok\
        GET /early HTTP/1.1\r\nHost: h\r\n\r\n";
    let (sent, closing) = whole(request.as_bytes());
    assert_eq!((bodies(&sent).len(), closing), (2, None), "{sent}");
}

#[test]
fn a_request_is_enqueued_once_and_when_it_is_whole() {
    let head = b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
    for (pieces, expected) in [
        (&[&head[..]][..], 0),
        (&[head, b"hell"], 0),
        (&[head, b"hell", b"o"], 1),
        (&[PIPELINE.as_bytes()], 5),
    ] {
        for apart in [false, true] {
            let mut handler = Echo::default();
            turns(&mut handler, pieces, ConnectionLimits::default(), 1, apart);
            assert_eq!(handler.enqueued, expected);
        }
    }
}

#[test]
fn a_client_whose_request_may_not_be_enqueued_is_told_and_the_connection_goes_on() {
    for (refused, expected) in [
        (1, &["/b", "/job1done", "/job2done", "/c"][..]),
        (2, &["/a", "/job1done", "/job2done", "/c"]),
        (5, &["/a", "/b", "/job1done", "/job2done"]),
    ] {
        for apart in [false, true] {
            let mut handler = Echo { refused: Some(refused), ..Echo::default() };
            let (sent, closing) =
                turns(&mut handler, &[PIPELINE.as_bytes()], ConnectionLimits::default(), 1, apart);
            assert_eq!(bodies(&sent), expected);
            assert_eq!(sent.matches("HTTP/1.1 503").count(), 1, "{sent}");
            assert!(matches!(closing, End::Closed(Closing::Now | Closing::Linger)), "{closing:?}");
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
        prop_assert_eq!(play(&pieces, ConnectionLimits::default(), budget), expected);
    }

    /// The connection comes to rest, whatever bytes are sent.
    #[test]
    fn no_input_panics_or_spins(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        start in "(GET|POST|OPTIONS|X) /?[a-z%.]{0,9} HTTP/1.[01]\r\n",
    ) {
        let mut request = start.into_bytes();
        request.extend(bytes);
        whole(&request);
    }

    /// Whatever happens to a connection and when, each request that was judged is settled once, and has
    /// one log line at most.
    #[test]
    fn every_request_is_settled_once_on_every_path(
        requests in proptest::collection::vec(0..REQUESTS.len(), 1..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        chances in proptest::collection::vec(0u8..24, 0..60),
        refused in proptest::option::of(1u32..6),
        budget in 1u32..4,
        apart: bool,
    ) {
        let bytes = requests.iter().map(|at| REQUESTS[*at]).collect::<String>().into_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let mut handler = Echo { refused, ..Echo::default() };
        let away = ordeal(&mut handler, pieces, chances, budget, apart);
        handler.check_books(away);
    }
}

/// The requests of the next test.
const REQUESTS: &[&str] = &[
    "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /job HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /early HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /refuse HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /reset HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /away HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST /job HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /decide HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    "POST /decideaway HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST /late HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST /long HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\nhello",
    "POST /bad HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnothing\r\n",
    "nonsense\r\n\r\n",
];

/// Plays an engine whose clients leave, whose jobs fail and whose deadlines come, by chance. Returns the
/// ticket of a request that was handed over.
fn ordeal(
    handler: &mut Echo,
    pieces: Vec<&[u8]>,
    chances: Vec<u8>,
    budget: u32,
    apart: bool,
) -> Option<u32> {
    let (mut conn, mut worker) = (Http1::<Echo>::default(), Worker::new());
    let (limits, mut arriving) = (ConnectionLimits::default(), pieces.into_iter());
    let (mut chances, mut event) = (chances.into_iter(), None);
    for _ in 0..10_000 {
        let (mut cx, input) = worker.lend(handler, &limits, budget);
        conn.resume(input);
        let is_answer = matches!(event, Some(RequestEvent::Called(_) | RequestEvent::Done(..)));
        cx.answers = (!apart || is_answer).then_some(Rank::LAST);
        cx.event = event.take();
        let step = conn.advance(&mut cx, input);
        let waits = !matches!(step, Step::Send | Step::Close(_) | Step::HandOver);
        let chance = chances.next();
        match chance {
            Some(0) => break,
            Some(1) if waits => {
                conn.suspend(input);
                conn.resume(input);
                let awaited = conn.awaits();
                let closing = conn.expire(&mut cx, input, awaited);
                assert!(closing.is_some(), "HTTP/1 ends with its request");
                break;
            }
            Some(2) => conn.end_input(),
            _ => {}
        }
        match step {
            Step::Job(id, Work) if chance == Some(3) => event = Some(RequestEvent::Failed(id)),
            Step::Receive => {
                let Some(piece) = arriving.next() else { break };
                input.spare()[..piece.len()].copy_from_slice(piece);
                input.received(piece.len());
            }
            Step::Send => {
                cx.out.clear();
                conn.sent(cx.handler);
            }
            Step::Job(id, Work) => event = Some(RequestEvent::Done(id, "done")),
            Step::Enqueue(id) => event = Some(RequestEvent::Called(id)),
            Step::NotBefore(id, _) => event = Some(RequestEvent::Due(id)),
            Step::Yield => {}
            Step::Look | Step::Wait | Step::Lend | Step::End | Step::Forget(_) => {
                panic!("nothing leads here")
            }
            Step::HandOver => return Some(conn.take_handed(input).1.0),
            Step::Close(_) => break,
        }
        conn.suspend(input);
    }
    conn.abandon(handler, &here());
    None
}
