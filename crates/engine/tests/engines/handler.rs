//! A handler made for the purpose: the path says what it answers.

use forebay_conn::*;
use forebay_http::head::Name;
use forebay_metrics::{Local, Stopwatch};
use forebay_sys::clock;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, OnceLock};

/// The connection that was handed over, with what had been received.
pub(crate) type Away = Arc<Mutex<Option<HandedOver<()>>>>;

/// The bytes of `/big`.
pub(crate) const BIG: usize = 40 << 20;

/// The bytes of the file that `/moved…` and `/warmed…` are answered with.
pub(crate) const FILE: usize = 200_000;

/// Answers by path: `/job`, `/away`, `/workaway` with a body, `/panic`, `/jobpanic`, `/big`, which
/// may end in a number of MiB and hyphens, `/hang…`, and `/head…`, whose head hangs before anything
/// is decided; `/spin…` after a millisecond of processor time, `/wait…` and `/work…` after a job
/// that hangs and blocks or computes; `/moved…` and `/warmed…` with a file that changes before its
/// answer is begun, as often as the last digit says, for the latter while it is brought into
/// memory. Anything else is answered with its own name. The rank is the length of the path modulo
/// 3.
pub(crate) struct Paths {
    /// The place for connections that are handed over.
    pub(crate) away: Away,
    /// The receiver of each answer's status and bytes of body.
    pub(crate) lines: Sender<(u16, u64)>,
    /// Whether every client is a trusted proxy.
    pub(crate) trusts: bool,
    /// The gate at which requests hang that hang.
    pub(crate) gate: Arc<Gate>,
    /// The time, as the engine has last given it.
    pub(crate) now_ms: u64,
    /// What has become of requests.
    pub(crate) books: Arc<Books>,
}

/// What has become of requests.
#[derive(Default)]
pub(crate) struct Books {
    /// The number of requests that were admitted.
    pub(crate) admitted: AtomicUsize,
    /// The heads in the order in which they came, by the lengths of their paths.
    pub(crate) heads: Mutex<Vec<usize>>,
    /// The requests in the order in which they were answered, by the lengths of their paths.
    pub(crate) answered: Mutex<Vec<usize>>,
    /// The requests that came too early, by path, each with its time by the clock of the turn …
    early: Mutex<Vec<(Vec<u8>, u64)>>,
    /// … and how long each that was answered had waited by that clock.
    pub(crate) waited_ms: Mutex<Vec<u64>>,
    /// The `/big…` answers of which something was sent, by their MiB, one after the other.
    pub(crate) sent: Mutex<Vec<usize>>,
    /// The rank of new connections …
    pub(crate) newcomers: AtomicU8,
    /// … except the next ones, which have these.
    pub(crate) next_newcomers: Mutex<VecDeque<u8>>,
    /// The number of times that the file was the answer.
    files: AtomicUsize,
}

/// The body that is sent after a head.
pub(crate) enum Body {
    /// This much of `/big` is left, or of another one with this number of MiB.
    Big { left: usize, mib: usize },
    /// This much of the file was sent; whether it has changed, and whether it is in memory.
    File { sent: usize, has_changed: bool, is_warm: Arc<AtomicBool> },
}

/// The file that some paths are answered with.
fn file() -> &'static File {
    static FILE_OF_ZEROS: OnceLock<File> = OnceLock::new();
    FILE_OF_ZEROS.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("forebay-engines-{}", std::process::id()));
        std::fs::write(&path, vec![b'0'; FILE]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    })
}

/// A gate that holds every thread that comes until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    is_open: bool,
    /// The number of those that have come …
    came: usize,
    /// … and how many of them, from the first on, may go on.
    may_pass: usize,
}

impl Gate {
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.came += 1;
        self.changed.notify_all();
        let number = state.came;
        let shut = |state: &mut Held| !state.is_open && number > state.may_pass;
        drop(self.changed.wait_while(state, shut).unwrap());
    }

    /// Waits until this many have come.
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.came < count).unwrap());
    }

    /// The number of those that have come.
    pub(crate) fn came(&self) -> usize {
        self.state.lock().unwrap().came
    }

    /// Lets the next one pass.
    pub(crate) fn let_one_pass(&self) {
        self.state.lock().unwrap().may_pass += 1;
        self.changed.notify_all();
    }

    /// Lets all pass.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }
}

pub(crate) struct Work {
    path: String,
    gate: Arc<Gate>,
    warms: Option<Arc<AtomicBool>>,
}

impl Job for Work {
    type Done = String;

    fn run(self, _: &Local, _: &mut dyn Stopwatch) -> String {
        assert_ne!(self.path, "/jobpanic", "a job that panics");
        if let Some(is_warm) = &self.warms {
            is_warm.store(true, Relaxed);
        }
        if self.path.starts_with("/wait") || self.path.starts_with("/work") {
            self.gate.pass();
        }
        format!("done {}", self.path)
    }

    fn lane(&self) -> u64 {
        static LANES: AtomicU64 = AtomicU64::new(1);
        // jobs that hang must not hold other jobs of their lane
        if self.path.starts_with("/job") { 0 } else { LANES.fetch_add(1, Relaxed) }
    }

    fn kind(&self) -> JobKind {
        if self.path.starts_with("/work") { JobKind::Computes } else { JobKind::Blocks }
    }
}

impl HandlerTypes for Paths {
    type Body = Body;
    type Job = Work;
    type Relay = NoRelay;
    type Line = u16;
    type Ticket = ();
    type Record = ();
}

impl Handler for Paths {
    type Protocol = Http1<Paths>;
    type Transport = PlainTransport;
}

impl Admission for Paths {
    fn trusts(&mut self, _: &Peer) -> bool {
        self.trusts
    }

    fn admit(&mut self, peer: &Peer) -> Verdict<()> {
        match peer.address().ip().to_string().as_str() {
            "192.0.2.66" => Verdict::Refuse(Refusal::status(403), ()),
            _ => {
                let next = self.books.next_newcomers.lock().unwrap().pop_front();
                let rank = Rank(next.unwrap_or(self.books.newcomers.load(Relaxed)));
                Verdict::Admit(Admitted::at_once(rank, ()))
            }
        }
    }

    fn verdict(&mut self, request: &Request<'_>, (): &mut ()) -> Verdict<()> {
        self.books.admitted.fetch_add(1, Relaxed);
        self.books.heads.lock().unwrap().push(request.head.path.len());
        if request.head.path.starts_with(b"/head") {
            self.gate.pass();
        }
        let stated = request.head.only(Name::XForwardedFor);
        let client = stated.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let admit = |rank, wait_ms| {
            Verdict::Admit(Admitted { client, wait_ms, ..Admitted::at_once(rank, ()) })
        };
        match request.head.path {
            b"/refuse" => Verdict::Refuse(Refusal::status(429), ()),
            b"/reset" => Verdict::Reset,
            path if path.starts_with(b"/later") => {
                self.books.early.lock().unwrap().push((path.to_owned(), self.now_ms));
                admit(Rank::LAST, 150)
            }
            b"/much-later" => admit(Rank::LAST, 3_600_000),
            path => admit(Rank(path.len() as u8 % 3), 0),
        }
    }
}

impl Process for Paths {
    fn decide(
        &mut self,
        request: &Request<'_>,
        (): &mut (),
        done: Option<String>,
    ) -> BodyDecision<Work> {
        match (request.head.path, done) {
            (b"/away", _) | (b"/workaway", Some(_)) => BodyDecision::HandOver,
            (b"/workaway", None) => {
                let path = "/workaway".to_owned();
                BodyDecision::Job(Work { path, gate: Arc::clone(&self.gate), warms: None })
            }
            _ => BodyDecision::Here,
        }
    }

    fn process(
        &mut self,
        request: &Request<'_>,
        (): &mut (),
        done: Option<String>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<Work> {
        let path = String::from_utf8_lossy(request.head.path).into_owned();
        let body = match (path.as_str(), done) {
            ("/away", _) => return ProcessOutcome::HandOver,
            ("/panic", _) => panic!("a handler that panics"),
            (job, None) if ["/job", "/wait", "/work"].iter().any(|kind| job.starts_with(kind)) => {
                return ProcessOutcome::Job(Work {
                    path,
                    gate: Arc::clone(&self.gate),
                    warms: None,
                });
            }
            (path, None) if path.starts_with("/hang") => {
                self.gate.pass();
                path.to_owned()
            }
            (path, None) if path.starts_with("/spin") => {
                let until_ns = clock::thread_cpu_ns() + 1_000_000;
                while clock::thread_cpu_ns() < until_ns {}
                path.to_owned()
            }
            ("/now", None) => self.now_ms.to_string(),
            ("/who", None) => request.peer.address().to_string(),
            (_, Some(done)) => done,
            (big, None) if big.starts_with("/big") => {
                let mib = big.trim_start_matches("/big").trim_end_matches('-').parse();
                let mib = mib.unwrap_or(BIG >> 20);
                let left = mib << 20;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n");
                reply.head(200, head.as_bytes());
                reply.stream(Body::Big { left, mib }, left as u64);
                return ProcessOutcome::Replied;
            }
            (path, None) if path.starts_with("/moved") || path.starts_with("/warmed") => {
                let changes = path.bytes().last().map_or(0, |digit| usize::from(digit - b'0'));
                let has_changed = self.books.files.fetch_add(1, Relaxed) < changes;
                let is_warm = Arc::new(AtomicBool::new(path.starts_with("/moved")));
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {FILE}\r\n");
                reply.head(200, head.as_bytes());
                reply.stream(Body::File { sent: 0, has_changed, is_warm }, FILE as u64);
                return ProcessOutcome::Replied;
            }
            _ => path,
        };
        let mut early = self.books.early.lock().unwrap();
        if let Some(at) = early.iter().position(|(path, _)| path == request.head.path) {
            let waited_ms = self.now_ms - early.swap_remove(at).1;
            self.books.waited_ms.lock().unwrap().push(waited_ms);
        }
        drop(early);
        self.books.answered.lock().unwrap().push(request.head.path.len());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", body.len());
        reply.head(200, head.as_bytes());
        reply.copy(body.as_bytes());
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, _: &'static str, reply: &mut Reply<'_, Body>) {
        reply.head(status, format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n").as_bytes());
    }
}

impl Bodies for Paths {
    fn piece<'b>(&'b self, body: &'b Body) -> Option<Piece<'b>> {
        static ZEROS: [u8; 100_000] = [b'0'; 100_000];
        match *body {
            Body::Big { left: 0, .. } | Body::File { sent: FILE, .. } => None,
            Body::Big { left, .. } => Some(Piece::Memory(&ZEROS[..left.min(ZEROS.len())])),
            Body::File { sent, .. } => {
                let (offset, len) = (sent as u64, (FILE - sent) as u64);
                Some(Piece::File { file: file().as_fd(), offset, len, is_last: true })
            }
        }
    }

    fn left(&self, body: &Body) -> u64 {
        match *body {
            Body::Big { left, .. } => left as u64,
            Body::File { sent, .. } => (FILE - sent) as u64,
        }
    }

    fn advance(&self, body: &mut Body, count: u64) {
        match body {
            Body::Big { left, mib } => {
                *left -= count as usize;
                let mut sent = self.books.sent.lock().unwrap();
                if count > 0 && sent.last() != Some(mib) {
                    sent.push(*mib);
                }
            }
            Body::File { sent, .. } => *sent += count as usize,
        }
    }

    fn is_intact(&self, body: &Body) -> bool {
        match body {
            Body::Big { .. } => true,
            Body::File { has_changed, is_warm, .. } => !(*has_changed && is_warm.load(Relaxed)),
        }
    }

    fn warm_bytes(&self, body: &Body) -> u64 {
        match body {
            Body::File { sent, is_warm, .. } if is_warm.load(Relaxed) => (FILE - sent) as u64,
            _ => 0,
        }
    }

    fn warm(&mut self, body: &Body) -> Option<Work> {
        let Body::File { is_warm, .. } = body else { return None };
        let (path, gate) = (String::new(), Arc::clone(&self.gate));
        Some(Work { path, gate, warms: Some(Arc::clone(is_warm)) })
    }
}

impl Journal for Paths {
    fn line(&mut self, answered: &Answered<'_, ()>) -> Option<u16> {
        Some(answered.status)
    }

    fn log(&mut self, status: u16, body_bytes: u64) {
        let _ = self.lines.send((status, body_bytes));
    }
}

impl Hooks for Paths {
    fn turn(&mut self, now: TurnTime) {
        self.now_ms = now.monotonic_ms;
    }

    fn hand_over(&mut self, handed: HandedOver<()>) -> Result<(), HandedOver<()>> {
        *self.away.lock().unwrap() = Some(handed);
        Ok(())
    }
}
