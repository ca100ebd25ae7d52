//! Exchanges with scripts, over a pair of sockets with a peer that speaks FastCGI.

use crate::application::Application;
use crate::application::pool::ConnectionPool;
use crate::exchange::phase::{Attempt, ExchangePhase};
use crate::exchange::upload::UP_BYTES;
use crate::exchange::{ApplicationRequest, Exchange, Failed, Lateness};
use crate::group::retry::AttemptFailure;
use crate::messages::fastcgi;
use crate::messages::request::WrittenHead;
use crate::places::queue::{Asking, RequestOwner};
use crate::settings::{
    self, Balance, BalanceKey, BodySettings, Errors, GroupSettings, KeepAliveSettings,
    QueueSettings, UpstreamAddress, UpstreamTimeouts,
};
use crate::spool::Spool;
use crate::spool::tests::SpoolDirectory;
use crate::upstreams::Upstreams;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::sign_in::SignIn;
use forebay_conn::Relay;
use forebay_conn::handler::relay::{RelayNext, RelayRead};
use forebay_http::framing::Framing;
use forebay_http::head::Method;
use forebay_http::response::{ResponseContext, ResponseHeadLimits};
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::unix_address::UnixAddress;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An exchange, the application's end of it, and the messages for the log.
struct Table {
    application: Arc<Application>,
    pool: ConnectionPool,
    theirs: UnixStream,
    said: Arc<Mutex<Vec<String>>>,
    spool: Option<Arc<Spool>>,
}

impl Table {
    /// A bench with one idle connection; no other can be made.
    fn new(keep: bool) -> Table {
        Table::with(keep, 0)
    }

    /// A bench where bodies of up to `spool_bytes` are collected.
    fn with(keep: bool, spool_bytes: u64) -> Table {
        Table::bounded(keep, spool_bytes, None)
    }

    /// A bench where bodies of up to `most_bytes` are collected, all but 10 bytes of them on disk.
    fn on_disk(spool: &Arc<Spool>, most_bytes: u64) -> Table {
        let spool = Some(Arc::clone(spool));
        Table { spool, ..Table::sized(true, 10, None, most_bytes) }
    }

    /// A bench where `in_flight` requests may be under way, and one may wait.
    fn bounded(keep: bool, spool_bytes: u64, in_flight: Option<u32>) -> Table {
        Table::sized(keep, spool_bytes, in_flight, 1000)
    }

    fn sized(keep: bool, spool_bytes: u64, in_flight: Option<u32>, most_bytes: u64) -> Table {
        let second = Duration::from_secs(1);
        let group = GroupSettings {
            to: vec![UpstreamAddress::Unix(UnixAddress::parse("/nonexistent/php.sock").unwrap())],
            backups: 0,
            weights: Vec::new(),
            balance: Balance::Least,
            key: BalanceKey::Client,
            in_flight,
            in_flight_from: None,
            reserve: Vec::new(),
            queue: QueueSettings { requests: 1, time: second, down: Default::default() },
            keep_alive: KeepAliveSettings { connections: 1, idle: second },
            timeouts: UpstreamTimeouts {
                connect: second,
                head: second,
                body: second,
                silence: second,
            },
            retries: 1,
            retry_permille: 1000,
            max_fails: 0,
            fail_time: second,
            slow_start: Duration::ZERO,
            check: None,
            abort_on_close: false,
            tls: None,
            http2: false,
            http2_connections: None,
        };
        let settings = settings::FastCgiSettings {
            group,
            request: fastcgi::ScriptSettings { keep, ..Default::default() },
            bodies: BodySettings { most_bytes, spool_bytes },
            limits: ResponseHeadLimits::default(),
            errors: Errors::Theirs,
            buffer_bytes: 0,
            status: None,
        };
        let upstreams = Upstreams::new(&settings.group, true, 0);
        let application =
            Application::new(settings::ApplicationSettings::FastCgi(settings), upstreams);
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut pool = ConnectionPool::default();
        pool.keep(&application, 0, UpstreamConnection::from(OwnedFd::from(ours)), 0);
        Table { application, pool, theirs, said: Arc::default(), spool: None }
    }

    fn asked(
        &self,
        method: Method,
        framing: Framing,
        expects_continue: bool,
    ) -> ApplicationRequest {
        let said = Arc::clone(&self.said);
        let log = move |text: &[u8]| {
            said.lock().unwrap().push(String::from_utf8_lossy(text).into_owned());
        };
        ApplicationRequest {
            may_ask: Ok(()),
            copy: None,
            method,
            key: 0,
            owner: RequestOwner::default(),
            preface: Vec::new(),
            time: None,
            head: b"PARAMS".to_vec(),
            written: WrittenHead {
                framing,
                expects_continue,
                asked: ResponseContext { is_head: method == Method::Head, upgrade: false },
                id: 0..0,
                given: Box::default(),
            },
            log: Some(Box::new(log)),
            spool: self.spool.clone(),
            passed: None,
            trace: None,
            sign_in: SignIn::OfRequest,
            shows_sign_in: false,
        }
    }

    fn begin(
        &mut self,
        method: Method,
        framing: Framing,
        expects_continue: bool,
    ) -> Box<Exchange<()>> {
        let ask = self.asked(method, framing, expects_continue);
        let mut exchange = Exchange::new(&self.application, ask, (), 0).ok().unwrap();
        exchange.begin(&mut self.pool, 0);
        assert!(exchange.phase.attempt().unwrap().is_reused);
        exchange
    }

    fn get(&mut self) -> Box<Exchange<()>> {
        self.begin(Method::Get, Framing::None, false)
    }

    /// What the application has received and not read.
    fn received(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.theirs.read_to_end(&mut bytes);
        bytes
    }

    /// Sends bytes from the application, and goes on with the exchange.
    fn send(&mut self, exchange: &mut Exchange<()>, bytes: &[u8]) -> RelayNext {
        self.theirs.write_all(bytes).unwrap();
        exchange.ready();
        exchange.advance(1)
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

fn stdout(text: &str) -> Vec<u8> {
    record(6, text.as_bytes())
}

fn stderr(text: &str) -> Vec<u8> {
    record(7, text.as_bytes())
}

fn end(protocol: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, protocol, 0, 0, 0])
}

/// The body as far as it has come, in pieces of at most `most`, and what follows.
fn body(exchange: &mut Exchange<()>, most: usize) -> (String, RelayRead) {
    let mut body = Vec::new();
    loop {
        let before = body.len();
        match exchange.read(&mut body, most, 1) {
            RelayRead::Bytes(count) => {
                assert!(count <= most && body.len() == before + count);
            }
            given => return (String::from_utf8(body).unwrap(), given),
        }
    }
}

#[test]
fn answers_come_in_whatever_pieces() {
    let answer = [
        stderr("first\n"),
        stdout("Status: 404 No\r\nX-A: 1\r\n"),
        stdout("\r\nhel"),
        stderr("second"),
        stdout("lo"),
        stdout(""),
        end(0),
    ]
    .concat();
    for pieces in [1, 3, 7, 1000] {
        let mut table = Table::new(true);
        let mut exchange = table.get();
        assert_eq!(exchange.advance(0), RelayNext::Wait);
        assert_eq!(table.received(), [b"PARAMS".as_slice(), &[1, 5, 0, 1, 0, 0, 0, 0]].concat());
        let mut found = String::new();
        for piece in answer.chunks(pieces) {
            if table.send(&mut exchange, piece) == RelayNext::Answer {
                exchange.tell();
                assert_eq!((exchange.status(), exchange.length()), (Some(404), None));
                let field = exchange.with_answer(|head| {
                    head.fields().any(|(name, value)| name == "X-A" && value == b"1")
                });
                assert_eq!(field, Some(true));
            }
            if exchange.status().is_some() {
                found.push_str(&body(&mut exchange, pieces).0);
            }
        }
        assert_eq!((&*found, body(&mut exchange, 1).1), ("hello", RelayRead::End));
        exchange.give_back(&mut table.pool);
        assert_eq!(table.pool.len(), 1);
        drop(exchange);
        assert_eq!(table.said(), ["first\nsecond"]);
    }
}

#[test]
fn a_body_goes_in_records_once_it_is_asked_for() {
    let mut table = Table::new(true);
    let mut exchange = table.begin(Method::Post, Framing::Sized(5), true);
    assert_eq!(exchange.advance(0), RelayNext::Interim(100));
    assert_eq!(exchange.interim(), b"HTTP/1.1 100 Continue\r\n");
    assert_eq!(exchange.advance(0), RelayNext::Wait);
    exchange.give(b"abc");
    exchange.give(b"de");
    exchange.finish(&mut std::iter::empty());
    assert_eq!(exchange.advance(0), RelayNext::Wait);
    let records = [record(5, b"abc"), record(5, b"de"), record(5, b"")].concat();
    assert_eq!(table.received(), [b"PARAMS".as_slice(), &records].concat());
    let answer = [stdout("Content-Type: a/b\n\nok"), end(0)].concat();
    assert_eq!(table.send(&mut exchange, &answer), RelayNext::Answer);
    assert_eq!(body(&mut exchange, 100), ("ok".to_owned(), RelayRead::End));
}

#[test]
fn a_body_is_collected_however_much_the_script_is_told_first() {
    let table = Table::with(true, 1000);
    let ask = ApplicationRequest {
        head: vec![b'p'; UP_BYTES],
        ..table.asked(Method::Post, Framing::Sized(5), false)
    };
    let mut exchange = Exchange::new(&table.application, ask, (), 0).ok().unwrap();
    assert_eq!((exchange.advance(0), exchange.capacity()), (RelayNext::Wait, UP_BYTES));
    exchange.give(b"hello");
    let ExchangePhase::Spooling(body) = &exchange.phase else { panic!("it is not collected") };
    assert_eq!((&*body.bytes, exchange.capacity()), (b"hello".as_slice(), UP_BYTES));
}

#[test]
fn a_body_that_drips_is_late_while_another_request_lacks_its_place() {
    let mut table = Table::bounded(true, 0, Some(1));
    let mut exchange = table.begin(Method::Post, Framing::Sized(900), false);
    assert_eq!(exchange.advance(0), RelayNext::Wait);
    exchange.give(&[b'a'; 250]);
    assert_eq!(exchange.advance(400), RelayNext::Wait);
    // one second, and half of one for the bytes that have come
    assert_eq!(exchange.upload_deadline_ms(400), 1500);
    assert_eq!(exchange.upload_deadline_ms(1500), 2500, "nobody wants the place");
    let waits = table.application.upstreams().ask(Asking::default()).unwrap();
    assert_eq!(exchange.upload_deadline_ms(1500), 1500);
    exchange.give(b"b");
    assert_eq!(exchange.upload_deadline_ms(1600), 2600, "it is not sent yet");
    assert_eq!(exchange.advance(1600), RelayNext::Wait);
    assert_eq!(exchange.upload_deadline_ms(1600), 1502);
    exchange.give(&[b'c'; 649]);
    exchange.finish(&mut std::iter::empty());
    assert_eq!(exchange.upload_deadline_ms(9000), u64::MAX, "it is whole");
    drop(waits);
}

#[test]
fn a_body_that_is_held_back_is_not_late() {
    let mut table = Table::bounded(true, 0, Some(1));
    let mut exchange = table.begin(Method::Post, Framing::Sized(900), false);
    assert_eq!(exchange.advance(0), RelayNext::Wait);
    let waits = table.application.upstreams().ask(Asking::default()).unwrap();
    exchange.held_back();
    assert_eq!(exchange.upload_deadline_ms(1500), 2500);
    exchange.give(&[b'a'; 250]);
    assert_eq!(exchange.advance(1600), RelayNext::Wait);
    // from the time when the body goes on: one second, and half of one for the bytes that have come
    assert_eq!(exchange.upload_deadline_ms(1600), 3100);
    drop(waits);
}

#[test]
fn a_connection_is_kept_when_all_is_over() {
    let head = "Content-Length: 2\n\nok";
    let sized = [stdout(head), end(0)].concat();
    let early = stdout(head);
    let more = [stdout(head), end(0), stdout("more")].concat();
    for (keep, answer, is_kept) in
        [(true, &sized, true), (false, &sized, false), (true, &early, false), (true, &more, false)]
    {
        let mut table = Table::new(keep);
        let mut exchange = table.get();
        assert_eq!(table.send(&mut exchange, answer), RelayNext::Answer);
        assert_eq!(exchange.length(), Some(2));
        // the client has all of the answer before its end was read
        assert_eq!(exchange.read(&mut Vec::new(), 2, 1), RelayRead::Bytes(2));
        exchange.give_back(&mut table.pool);
        assert_eq!(table.pool.len(), usize::from(is_kept), "{keep}");
    }
    // an answer before all of the request was there
    let mut table = Table::new(true);
    let mut exchange = table.begin(Method::Post, Framing::Sized(5), false);
    assert_eq!(table.send(&mut exchange, &sized), RelayNext::Answer);
    assert_eq!(body(&mut exchange, 100).1, RelayRead::End);
    exchange.give_back(&mut table.pool);
    assert!(table.pool.is_empty());
    // HEAD: anything that the script sends is no body
    let mut table = Table::new(true);
    let mut exchange = table.begin(Method::Head, Framing::None, false);
    assert_eq!(table.send(&mut exchange, &sized), RelayNext::Answer);
    exchange.give_back(&mut table.pool);
    assert_eq!(table.pool.len(), 1);
}

#[test]
fn answers_that_break_off_are_seen() {
    for (answer, expected) in [
        (stdout("X-A: 1\n\nhalf"), "half"),
        ([stdout("Content-Length: 9\n\nhalf"), end(0)].concat(), "half"),
        ([stdout("X-A: 1\n\nhalf"), b"HTTP/1.1".to_vec()].concat(), "half"),
    ] {
        let mut table = Table::new(true);
        let mut exchange = table.get();
        assert_eq!(table.send(&mut exchange, &answer), RelayNext::Answer);
        drop(std::mem::replace(&mut table.theirs, UnixStream::pair().unwrap().0));
        exchange.ready();
        assert_eq!(body(&mut exchange, 100), (expected.to_owned(), RelayRead::Broken));
        exchange.give_back(&mut table.pool);
        assert!(table.pool.is_empty());
    }
}

#[test]
fn what_has_run_is_not_asked_for_again() {
    // a second attempt, if there is one, finds that nothing listens
    let again = (AttemptFailure::Connect, 2);
    for (method, answer, expected) in [
        (Method::Get, Vec::new(), again),
        (Method::Post, Vec::new(), (AttemptFailure::Closed, 1)),
        (Method::Post, stderr("oh"), (AttemptFailure::Malformed, 1)),
        (Method::Get, stderr("oh"), again),
        (Method::Post, stdout("X-A: 1\n"), (AttemptFailure::Malformed, 1)),
        (Method::Post, end(0), (AttemptFailure::Malformed, 1)),
        (Method::Post, end(2), again),
        (Method::Post, b"HTTP/1.1 400 ".to_vec(), (AttemptFailure::Malformed, 1)),
    ] {
        let mut table = Table::new(true);
        let mut exchange = table.begin(method, Framing::None, false);
        assert_eq!(exchange.advance(0), RelayNext::Wait);
        table.received();
        table.theirs.write_all(&answer).unwrap();
        let words = if answer == stderr("oh") { vec!["oh"] } else { Vec::new() };
        drop(std::mem::replace(&mut table.theirs, UnixStream::pair().unwrap().0));
        exchange.ready();
        assert_eq!(exchange.advance(1), RelayNext::Answer);
        let failure = exchange.failure().map(|failed| match failed {
            Failed::Asked(failure, _) => failure,
            other => panic!("{other:?}"),
        });
        assert_eq!((failure, exchange.attempts()), (Some(expected.0), expected.1), "{answer:?}");
        drop(exchange);
        assert_eq!(table.said(), words);
    }
}

/// Gives all of a body, as fast as the disk takes it.
fn give_all(exchange: &mut Exchange<()>, body: &[u8]) {
    let mut left = body;
    while !left.is_empty() && exchange.failure().is_none() {
        let (part, rest) = left.split_at(exchange.capacity().min(left.len()).min(20_000));
        if !part.is_empty() {
            exchange.give(part);
        }
        left = rest;
        wait_for_disk(exchange);
    }
    exchange.finish(&mut std::iter::empty());
    wait_for_disk(exchange);
}

fn wait_for_disk(exchange: &mut Exchange<()>) {
    loop {
        exchange.advance(1);
        let Some(file) = exchange.busy_file() else { return };
        poll::wait([(file.bell().unwrap().1, PollInterest::Read)], 60_000).unwrap();
    }
}

/// A body whose parts can be told apart.
fn long_body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 255) as u8).collect()
}

/// The content of all records of this kind.
fn contents(mut bytes: &[u8], kind: u8) -> Vec<u8> {
    let mut all = Vec::new();
    while let [1, of, _, _, high, low, padding, _, rest @ ..] = bytes {
        let count = usize::from(u16::from_be_bytes([*high, *low]));
        if *of == kind {
            all.extend_from_slice(&rest[..count]);
        }
        bytes = &rest[count + usize::from(*padding)..];
    }
    assert!(bytes.is_empty(), "{} bytes are no record", bytes.len());
    all
}

#[test]
fn a_body_on_disk_reaches_another_attempt_whole() {
    let directory = SpoolDirectory::new();
    let spool = Spool::open(&directory.0, 1 << 20, 10).unwrap();
    let table = Table::on_disk(&spool, 300_000);
    let body = long_body(300_000);
    let ask = table.asked(Method::Post, Framing::Chunked, true);
    let mut exchange = Exchange::new(&table.application, ask, (), 0).ok().unwrap();
    assert_eq!(exchange.advance(0), RelayNext::Interim(100));
    give_all(&mut exchange, &body);
    assert!(spool.bytes() > 200_000, "{} bytes are on disk", spool.bytes());
    // nothing listens at the address, and it was tried once more
    let refused = Failed::Asked(AttemptFailure::Connect, Lateness::InTime);
    assert_eq!(exchange.failure(), Some(refused));
    for wanted in [100_000, usize::MAX] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        exchange.upload.rewind();
        let connection = Some(UpstreamConnection::from(OwnedFd::from(ours)));
        exchange.phase = ExchangePhase::Asking(Attempt { connection, ..Attempt::new(None) });
        let mut received = Vec::new();
        while received.len() < wanted && !exchange.upload.is_whole() {
            exchange.ready();
            wait_for_disk(&mut exchange);
            let _ = theirs.read_to_end(&mut received);
        }
        let _ = theirs.read_to_end(&mut received);
        if wanted == usize::MAX {
            let records = received.strip_prefix(b"PARAMS").unwrap();
            assert_eq!(contents(records, 4), b"\x0e\x06CONTENT_LENGTH300000");
            assert!(contents(records, 5) == body, "another body has come");
            assert!(received.ends_with(&record(5, b"")));
        }
    }
    drop(exchange);
    while spool.bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_bounds_a_body_says_so() {
    let directory = SpoolDirectory::new();
    let failure = |most_bytes, spool_bytes, body_bytes| {
        let spool = Spool::open(&directory.0, spool_bytes, 10).unwrap();
        let table = Table::on_disk(&spool, most_bytes);
        let ask = table.asked(Method::Post, Framing::Chunked, false);
        let mut exchange = Exchange::new(&table.application, ask, (), 0).ok().unwrap();
        give_all(&mut exchange, &long_body(body_bytes));
        exchange.failure().unwrap()
    };
    assert_eq!(failure(200_000, 1 << 20, 200_001), Failed::TooLarge);
    assert_eq!(failure(400_000, 200_000, 400_000), Failed::SpoolFull);
    let asked = Failed::Asked(AttemptFailure::Connect, Lateness::InTime);
    assert_eq!(failure(200_000, 200_000, 200_000), asked);
    // without a directory for bodies
    let table = Table::with(true, 10);
    for (framing, expected) in
        [(Framing::Chunked, Failed::NoSpool), (Framing::Sized(10), Failed::TooLarge)]
    {
        let ask = table.asked(Method::Post, framing, false);
        let mut exchange = Exchange::new(&table.application, ask, (), 0).ok().unwrap();
        exchange.give(&[b'a'; 11]);
        assert_eq!(exchange.failure(), Some(expected));
    }
}

#[test]
fn a_client_that_drips_into_a_body_is_late() {
    let table = Table::with(true, 1000);
    let ask = table.asked(Method::Post, Framing::Sized(900), false);
    let mut exchange = Exchange::new(&table.application, ask, (), 0).ok().unwrap();
    assert_eq!(exchange.own_deadline_ms(), 1000);
    for now_ms in [500, 900, 1300] {
        exchange.give(&[b'a'; 100]);
        exchange.advance(now_ms);
    }
    // the client was heard at 1300, but 300 bytes have 600 ms
    assert_eq!(exchange.own_deadline_ms(), 1600);
}
