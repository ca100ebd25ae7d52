//! An answer with a file that has changed before anything of it was sent, to a request with a body.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::worker::Worker;
use forebay_conn::handler::body::NoLine;
use forebay_conn::handler::relay::NoRelay;
use forebay_conn::*;
use std::fs::File;
use std::os::fd::AsFd;

/// Answers everything with a file.
#[derive(Default)]
struct Files {
    /// The paths it was asked for.
    asked: Vec<String>,
}

impl HandlerTypes for Files {
    type Body = File;
    type Job = NoJob;
    type Relay = NoRelay;
    type Line = NoLine;
    type Ticket = ();
    type Record = ();
}

impl Admission for Files {
    fn verdict(&mut self, _: &Request<'_>, (): &mut ()) -> Verdict<()> {
        Verdict::Admit(Admitted::at_once(Rank::FIRST, ()))
    }
}

impl Process for Files {
    fn decide(&mut self, _: &Request<'_>, (): &mut (), _: Option<NoJob>) -> BodyDecision<NoJob> {
        // as if another server might answer
        BodyDecision::Stream(100)
    }

    fn process(
        &mut self,
        request: &Request<'_>,
        (): &mut (),
        _: Option<NoJob>,
        reply: &mut Reply<'_, File>,
    ) -> ProcessOutcome<NoJob, NoRelay> {
        self.asked.push(String::from_utf8_lossy(request.head.path).into_owned());
        reply.head(200, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n");
        reply.stream(File::open("/dev/null").unwrap(), 3);
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, reason: &'static str, _: &mut Reply<'_, File>) {
        panic!("{status} {reason}");
    }
}

impl Bodies for Files {
    fn piece<'b>(&'b self, body: &'b File) -> Option<Piece<'b>> {
        Some(Piece::File { file: body.as_fd(), offset: 0, len: 3, is_last: true })
    }
}

impl Journal for Files {}

impl Hooks for Files {}

impl Handler for Files {
    type Protocol = Http1<Files>;
    type Transport = PlainTransport;
}

/// What is answered to `pieces`, which come one by one; the first `withdrawn` answers are withdrawn before
/// they are sent. What the client gets, how the connection is closed, and what was asked for.
fn answered(pieces: &[&str], mut withdrawn: u32) -> (String, Option<Closing>, Vec<String>) {
    let (mut conn, mut handler, mut worker) =
        (Http1::<Files>::default(), Files::default(), Worker::new());
    let limits = ConnectionLimits::default();
    let (mut sent, mut closed) = (String::new(), None);
    let mut pieces = pieces.iter();
    loop {
        let (mut cx, input) = worker.lend(&mut handler, &limits, 100);
        match conn.advance(&mut cx, input) {
            Step::Receive => {
                let Some(piece) = pieces.next() else { break };
                input.spare()[..piece.len()].copy_from_slice(piece.as_bytes());
                input.received(piece.len());
            }
            Step::Send if withdrawn > 0 => {
                withdrawn -= 1;
                assert!(conn.withdraw(&mut cx));
            }
            Step::Send => {
                sent.push_str(std::str::from_utf8(&cx.out.bytes).unwrap());
                cx.out.clear();
                conn.sent(cx.handler);
            }
            Step::Close(closing) => {
                closed = Some(closing);
                break;
            }
            step => panic!("{step:?}"),
        }
    }
    (sent, closed, handler.asked)
}

const HEAD: &str = "POST /file HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n";
/// A body that looks like a request, were it taken for one.
const BODY: &str = "GET /body HTTP/1.1\r\nHost: a\r\n\r\n.........";
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_body_that_is_not_whole_is_no_request_after_an_answer_that_was_withdrawn() {
    assert_eq!(BODY.len(), 40);
    for withdrawn in [0, 1, 2] {
        let (sent, closed, asked) = answered(&[&[HEAD, &BODY[..34]].concat()], withdrawn);
        assert!(sent.contains("Connection: close"), "{withdrawn}: {sent}");
        assert_eq!((closed, sent.matches("200 OK").count()), (Some(Closing::Linger), 1));
        assert!(asked.iter().all(|path| path == "/file"), "{withdrawn}: {asked:?}");
    }
}

#[test]
fn what_follows_a_whole_body_is_the_next_request() {
    for withdrawn in [0, 1, 2] {
        let (sent, closed, asked) = answered(&[&[HEAD, BODY, NEXT].concat()], withdrawn);
        assert_eq!((closed, sent.matches("200 OK").count()), (None, 2), "{withdrawn}: {sent}");
        assert_eq!(asked.last().unwrap(), "/next", "{withdrawn}: {asked:?}");
        assert!(asked.iter().all(|path| path != "/body"), "{withdrawn}: {asked:?}");
    }
}
