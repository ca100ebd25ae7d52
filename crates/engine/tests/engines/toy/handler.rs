//! A handler whose answers the path determines, for each protocol and transport.
//!
//! `/job…` is answered after a job; `/wait/NAME` and `/work/NAME` after one that blocks or computes
//! and hangs until that barrier is open; `/hang/NAME` hangs itself; `/jobpanic` fails; `/early…` is
//! answered later, `/premature` eight seconds later; `/refuse` and `/reset` are not admitted;
//! `/mem/N` has N bytes from memory, `/file` comes from a file that is never in memory, `/slowfile`
//! from one that is on a slow disk, `/badfile` from one that cannot be read; anything else is its
//! own answer. At the end `.gold` is the first rank and `.bulk` the last.

use super::kit::Kit;
use super::protocol::Toy;
use super::veil::{Veil, checksum};
use forebay_conn::handler::body::BodyRead;
use forebay_conn::*;
use forebay_metrics::{Local, Stopwatch};
use std::fs::File;
use std::io::Write;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A protocol, and the transport that it is spoken through.
pub(super) trait Mode: Send + Sized + 'static {
    type Protocol: Protocol<ToyHandler<Self>> + Default + Send;
    type Transport: Transport<Work>;
}

pub(super) struct PlainToy;
pub(super) struct VeiledToy;
pub(super) struct PlainHttp;
pub(super) struct VeiledHttp;

impl Mode for PlainToy {
    type Protocol = Toy;
    type Transport = PlainTransport;
}

impl Mode for VeiledToy {
    type Protocol = Toy;
    type Transport = Veil;
}

impl Mode for PlainHttp {
    type Protocol = Http1<ToyHandler<Self>>;
    type Transport = PlainTransport;
}

impl Mode for VeiledHttp {
    type Protocol = Http1<ToyHandler<Self>>;
    type Transport = Veil;
}

pub(super) struct ToyHandler<M> {
    pub(super) kit: Arc<Kit>,
    /// Whether clients are trusted proxies.
    pub(super) trusts: bool,
    pub(super) mode: PhantomData<M>,
}

/// What a request owns: its number.
#[derive(Default)]
pub(super) struct Ticket(u32);

pub(super) enum Work {
    /// A job for this answer.
    Path(String, Arc<Kit>),
    /// A job for more of this file in memory.
    Warm(Arc<Cold>),
    /// A job for an answer to a hello.
    Hello(u64),
}

pub(super) enum Done {
    Path(String),
    Warm,
    Hello(u64),
}

impl Job for Work {
    type Done = Done;

    fn run(self, _: &Local, _: &mut dyn Stopwatch) -> Done {
        match self {
            Work::Path(path, kit) => {
                assert!(!path.starts_with("/jobpanic"), "a job that panics");
                if path.starts_with("/wait") || path.starts_with("/work") {
                    kit.pass(&path);
                }
                Done::Path(format!("done {path}"))
            }
            Work::Warm(file) => {
                assert!(!file.is_bad, "a job that panics");
                std::thread::sleep(file.takes);
                file.warm.fetch_add(WARM, Relaxed);
                Done::Warm
            }
            Work::Hello(nonce) => {
                assert_ne!(nonce, 0, "a job that panics");
                Done::Hello(checksum(nonce))
            }
        }
    }

    fn lane(&self) -> u64 {
        static LANES: AtomicU64 = AtomicU64::new(1);
        LANES.fetch_add(1, Relaxed)
    }

    fn kind(&self) -> JobKind {
        match self {
            Work::Path(path, _) if path.starts_with("/work") => JobKind::Computes,
            Work::Hello(_) => JobKind::Computes,
            _ => JobKind::Blocks,
        }
    }
}

/// The bytes of a file that a job brings into memory.
const WARM: u64 = 300_000;
/// The time that the slow disk takes for them.
pub(super) const SLOW: Duration = Duration::from_secs(2);
/// The bytes of the file.
pub(super) const FILE: usize = 1_500_000;

/// The byte at this place of the file.
pub(super) fn file_byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// A file as one request sees it.
pub(super) struct Cold {
    /// The number of bytes that are in memory.
    warm: AtomicU64,
    /// The file cannot be brought into memory.
    is_bad: bool,
    /// The time that a job for more of the file takes.
    takes: Duration,
}

fn file() -> &'static File {
    static THE_FILE: OnceLock<File> = OnceLock::new();
    THE_FILE.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("forebay-toy-{}", std::process::id()));
        let bytes: Vec<u8> = (0..FILE).map(file_byte).collect();
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    })
}

pub(super) enum Body {
    /// This many bytes are left, and whether that may last longer than a turn.
    Memory(u64, bool),
    /// The file from this offset on.
    File(u64, Arc<Cold>),
}

static MEMORY: [u8; 50_000] = [b'm'; 50_000];

impl<M: Mode> ToyHandler<M> {
    /// A socket to the upstream that answers this path.
    pub(super) fn upstream(&mut self, path: &[u8]) -> UnixStream {
        super::upstream::open(path)
    }
}

impl<M: Mode> HandlerTypes for ToyHandler<M> {
    type Body = Body;
    type Job = Work;
    type Relay = NoRelay;
    type Line = u16;
    type Ticket = Ticket;
    type Record = ();
}

impl<M: Mode> Handler for ToyHandler<M> {
    type Protocol = M::Protocol;
    type Transport = M::Transport;
}

impl<M: Mode> Admission for ToyHandler<M> {
    fn trusts(&mut self, _: &Peer) -> bool {
        self.trusts
    }

    fn verdict(&mut self, request: &Request<'_>, (): &mut ()) -> Verdict<Ticket> {
        let path = request.head.path;
        if path.starts_with(b"/reset") {
            return Verdict::Reset;
        }
        let ticket = Ticket(self.kit.issue());
        if path.starts_with(b"/refuse") {
            return Verdict::Refuse(Refusal::status(429), ticket);
        }
        let rank = match path {
            path if path.ends_with(b".gold") => Rank(0),
            path if path.ends_with(b".bulk") => Rank(2),
            _ => Rank(1),
        };
        let wait_ms = match path {
            path if path.starts_with(b"/early") => 100,
            path if path.starts_with(b"/premature") => 8_000,
            _ => 0,
        };
        Verdict::Admit(Admitted { wait_ms, ..Admitted::at_once(rank, ticket) })
    }

    fn settle(&mut self, ticket: &mut Ticket, end: Settled) {
        self.kit.settle(ticket.0, end);
    }
}

impl<M: Mode> Process for ToyHandler<M> {
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Ticket,
        done: Option<Done>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<Work> {
        assert!(ticket.0 > 0, "processed without its ticket");
        let path = String::from_utf8(request.head.path.to_vec()).unwrap();
        let body = match (path.as_str(), done) {
            ("/away", _) => return ProcessOutcome::HandOver,
            (_, Some(Done::Path(done))) => done,
            (_, Some(_)) => panic!("the result of another's job"),
            (job, None) if ["/job", "/wait", "/work"].iter().any(|kind| job.starts_with(kind)) => {
                return ProcessOutcome::Job(Work::Path(path, Arc::clone(&self.kit)));
            }
            ("/who", None) => request.peer.address().to_string(),
            (path, None) if path.starts_with("/hang") => {
                self.kit.pass(path);
                path.to_owned()
            }
            (path, None) => path.to_owned(),
        };
        self.kit.answered.lock().unwrap().push(path.clone());
        let long = match path.strip_prefix("/mem/") {
            Some(count) => {
                let count: u64 = count.parse().unwrap();
                Some((Body::Memory(count, false), count))
            }
            None if ["/file", "/slowfile", "/badfile"].contains(&path.as_str()) => {
                let takes = if path == "/slowfile" { SLOW } else { Duration::ZERO };
                let cold = Cold { warm: AtomicU64::new(0), is_bad: path == "/badfile", takes };
                Some((Body::File(0, Arc::new(cold)), FILE as u64))
            }
            None => None,
        };
        let len = long.as_ref().map_or(body.len() as u64, |(_, len)| *len);
        reply.head(200, format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n").as_bytes());
        match long {
            Some((body, len)) => reply.stream(body, len),
            None => reply.copy(body.as_bytes()),
        }
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, _: &'static str, reply: &mut Reply<'_, Body>) {
        reply.head(status, format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n").as_bytes());
    }
}

impl<M: Mode> Bodies for ToyHandler<M> {
    fn piece<'b>(&'b self, body: &'b Body) -> Option<Piece<'b>> {
        match body {
            Body::Memory(0, _) => None,
            Body::Memory(left, _) => {
                Some(Piece::Memory(&MEMORY[..MEMORY.len().min(*left as usize)]))
            }
            Body::File(at, _) if *at == FILE as u64 => None,
            Body::File(at, _) => {
                let len = FILE as u64 - at;
                Some(Piece::File { file: file().as_fd(), offset: *at, len, is_last: true })
            }
        }
    }

    fn advance(&self, body: &mut Body, count: u64) {
        match body {
            Body::Memory(left, _) => *left -= count,
            Body::File(at, _) => *at += count,
        }
    }

    fn read(&self, body: &mut Body, buffer: &mut [u8]) -> BodyRead {
        let count = match body {
            Body::Memory(0, _) => return BodyRead::End,
            Body::Memory(left, _) => {
                let count = MEMORY.len().min(*left as usize).min(buffer.len());
                buffer[..count].copy_from_slice(&MEMORY[..count]);
                count
            }
            Body::File(at, _) if *at == FILE as u64 => return BodyRead::End,
            Body::File(at, cold) => {
                let warm = cold.warm.load(Relaxed).min(FILE as u64);
                let count = buffer.len().min(warm.saturating_sub(*at) as usize);
                if count == 0 {
                    return BodyRead::Cold;
                }
                file().read_exact_at(&mut buffer[..count], *at).unwrap();
                count
            }
        };
        self.advance(body, count as u64);
        BodyRead::Bytes(count)
    }

    fn hold(&mut self, body: &mut Body) {
        if let Body::Memory(_, held) = body {
            *held = true;
        }
    }

    fn warm_bytes(&self, body: &Body) -> u64 {
        match body {
            Body::Memory(..) => 0,
            Body::File(at, cold) => cold.warm.load(Relaxed).min(FILE as u64).saturating_sub(*at),
        }
    }

    fn warm(&mut self, body: &Body) -> Option<Work> {
        match body {
            Body::Memory(..) => None,
            Body::File(_, cold) => Some(Work::Warm(Arc::clone(cold))),
        }
    }
}

impl<M: Mode> Journal for ToyHandler<M> {
    fn line(&mut self, answered: &Answered<'_, Ticket>) -> Option<u16> {
        assert!(answered.ticket.is_none_or(|ticket| ticket.0 > 0), "a line without its ticket");
        self.kit.begun.fetch_add(1, Relaxed);
        Some(answered.status)
    }

    fn log(&mut self, _: u16, _: u64) {
        self.kit.logged.fetch_add(1, Relaxed);
    }
}

impl<M: Mode> Hooks for ToyHandler<M> {}
