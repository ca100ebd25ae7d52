//! A folder of files, and a client of one loop, for tests.

use crate::cache::entry_key::EntryKey;
use crate::making::job::SiteWork;
use crate::making::load::Want;
use crate::{
    Body, Content, ContentSettings, Destination, Notice, RequestContext, RequestScheme, Routed,
    Script, Site, SiteJob, SiteJobDone,
};
use forebay_conn::{Job as _, Out, Peer, Piece, ProcessOutcome, Refusal, Reply, Request, TurnTime};
use forebay_http::date::{self, IMF_LEN};
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use forebay_http::path::NormalPath;
use forebay_metrics::{Counter, Local, Off};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// The time after which a test fails that waits for something.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client's address by default.
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A directory that is removed at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("forebay-site-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that was last changed long ago, so that its tag is strong.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        self.write_now(name, text);
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let file = fs::File::options().write(true).open(self.0.join(name)).unwrap();
        file.set_modified(long_ago).unwrap();
    }

    /// Writes a file.
    pub(crate) fn write_now(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Puts a whole new file in the place of another.
    pub(crate) fn replace(&self, name: &str, text: impl AsRef<[u8]>) {
        self.write(".new", text);
        fs::rename(self.0.join(".new"), self.0.join(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether it needed the file system.
    pub(crate) is_miss: bool,
    /// The number of jobs that it needed.
    pub(crate) jobs: u32,
}

impl Answered {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// The facts about a test's request that are not in its head.
#[derive(Clone, Copy)]
pub(crate) struct TestContext {
    pub(crate) client: IpAddr,
    pub(crate) scheme: RequestScheme,
    pub(crate) class: &'static str,
}

impl RequestContext for TestContext {
    fn client(&self) -> SocketAddr {
        SocketAddr::new(self.client, 0)
    }

    fn scheme(&self) -> RequestScheme {
        self.scheme
    }

    fn class(&self) -> &str {
        self.class
    }

    fn request_id(&self, id: &mut Vec<u8>) {
        id.extend_from_slice(b"seven");
    }
}

/// One loop with its shared content, and a client of it.
pub(crate) struct Client {
    pub(crate) content: Arc<Content>,
    pub(crate) site: Site,
    pub(crate) notices: Arc<Mutex<Vec<String>>>,
    pub(crate) now_ms: u64,
    /// The host that is asked for, with or without a port.
    pub(crate) host: &'static str,
    /// The client's address.
    pub(crate) client: IpAddr,
    /// The scheme by which the client asks.
    pub(crate) scheme: RequestScheme,
    /// The class of the request.
    pub(crate) class: &'static str,
    /// The result of a job, for the next request.
    done: Option<SiteJobDone>,
    metrics: Arc<Local>,
    /// Jobs that were done for it.
    jobs: u32,
}

impl Client {
    pub(crate) fn new(folder: &Folder) -> Client {
        Client::with(ContentSettings::new(folder.path()))
    }

    pub(crate) fn with(settings: ContentSettings) -> Client {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&notices);
        let notice = move |notice: Notice| told.lock().unwrap().push(format!("{notice:?}"));
        let content = Content::open(settings, notice).unwrap();
        let has_none = notices.lock().unwrap().iter().any(|text| text.starts_with("CannotWatch "));
        assert!(
            !has_none,
            "this test needs to be told of changed files, and the kernel has no inotify instance left for this \
             user: other programs have them all (fs.inotify.max_user_instances, 128 by default). End some, or raise it"
        );
        let metrics = Arc::new(Local::default());
        let now_ms = 1_000_000;
        let now = TurnTime { monotonic_ms: now_ms, unix_ms: 0 };
        let site = Site::new(Arc::clone(&content), Arc::clone(&metrics), now, 4096);
        Client {
            content,
            site,
            notices,
            now_ms,
            host: "a",
            client: LOCAL,
            scheme: RequestScheme::Http,
            class: "",
            done: None,
            metrics,
            jobs: 0,
        }
    }

    /// Another loop over the same content.
    pub(crate) fn beside(&self) -> Client {
        let (content, notices) = (Arc::clone(&self.content), Arc::clone(&self.notices));
        let metrics = Arc::new(Local::default());
        let now = TurnTime { monotonic_ms: self.now_ms, unix_ms: 0 };
        let site = Site::new(Arc::clone(&content), Arc::clone(&metrics), now, 4096);
        let host = self.host;
        Client {
            content,
            site,
            notices,
            now_ms: self.now_ms,
            host,
            client: LOCAL,
            scheme: RequestScheme::Http,
            class: "",
            done: None,
            metrics,
            jobs: 0,
        }
    }

    pub(crate) fn context(&self) -> TestContext {
        TestContext { client: self.client, scheme: self.scheme, class: self.class }
    }

    /// Lets time pass for the loop, not for the file system.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.site.turn(TurnTime { monotonic_ms: self.now_ms, unix_ms: 0 });
    }

    pub(crate) fn get(&mut self, target: &str) -> Answered {
        self.ask("GET", target, "")
    }

    pub(crate) fn get_with(&mut self, target: &str, fields: &str) -> Answered {
        self.ask("GET", target, fields)
    }

    /// Asks and reads the whole answer. `fields` are whole lines.
    pub(crate) fn ask(&mut self, method: &str, target: &str, fields: &str) -> Answered {
        self.try_ask(method, target, fields).expect("the file does not change while it is sent")
    }

    /// The same; `None` if the file changed while it was sent, and the connection would be reset.
    pub(crate) fn try_ask(&mut self, method: &str, target: &str, fields: &str) -> Option<Answered> {
        let misses = self.metrics.get(Counter::CacheMisses);
        let jobs = self.jobs;
        let (mut out, status) = self.begin(method, target, fields);
        if let Some(body) = out.body.as_mut() {
            self.site.hold(body);
        }
        while let Some(mut body) = out.body.take() {
            if self.send(&mut body, 100_000, &mut out.bytes)? {
                out.body = Some(body);
            }
        }
        let end = out.bytes.windows(4).position(|at| at == b"\r\n\r\n").unwrap() + 4;
        Some(Answered {
            status,
            head: String::from_utf8(out.bytes[..end].to_vec()).unwrap(),
            body: out.bytes[end..].to_vec(),
            is_miss: self.metrics.get(Counter::CacheMisses) > misses,
            jobs: self.jobs - jobs,
        })
    }

    /// Asks and leaves a long body unsent.
    pub(crate) fn begin(&mut self, method: &str, target: &str, fields: &str) -> (Out<Body>, u16) {
        let text = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.host);
        let mut lines = Lines::new();
        let limits = HeadLimits { empty_host: true, ..HeadLimits::default() };
        let ParsedHead::Complete(head) = Head::parse(text.as_bytes(), &mut lines, &limits).unwrap()
        else {
            panic!("not a whole head: {text}")
        };
        let address = "127.0.0.1:80".parse().unwrap();
        let (peer, path) = (Peer::new(address, address), NormalPath::default());
        let request = Request::new(&head, &peer, &path);
        let mut out = Out::default();
        let date: [u8; IMF_LEN] = date::format(784_111_777);
        let mut done = self.done.take();
        for turn in 0.. {
            assert!(turn < 8, "the same jobs again and again");
            let mut reply = Reply::new(&mut out, &date, true);
            let context = self.context();
            if self.site.secures(&request, &context, &mut reply) {
                break;
            }
            let outcome = match self.site.route(&request, || self.client, done.take(), &mut reply) {
                Routed::Replied => break,
                Routed::Job(job) => ProcessOutcome::Job(job),
                Routed::To(destination) => {
                    self.answer_as_application(&destination, &request, &mut reply);
                    break;
                }
                Routed::Here(done) => self.site.process(&request, || self.client, done, &mut reply),
            };
            match outcome {
                ProcessOutcome::Replied => break,
                ProcessOutcome::Job(job) => {
                    self.jobs += 1;
                    done = Some(run(job));
                }
                ProcessOutcome::Relay(none) => match none {},
                ProcessOutcome::HandOver => panic!("nothing is handed over"),
            }
        }
        let status = std::str::from_utf8(&out.bytes[9..12]).unwrap().parse().unwrap();
        (out, status)
    }

    /// Asks for a path that `answer` answers without a job: the status, or `None` if it says that
    /// it did not.
    pub(crate) fn answered_by(
        &mut self,
        method: &str,
        target: &str,
        answer: impl FnOnce(&mut Site, &Request<'_>, &mut Reply<'_, Body>) -> bool,
    ) -> Option<u16> {
        with_request(method, target, |request| {
            let mut out = Out::default();
            let date: [u8; IMF_LEN] = date::format(784_111_777);
            let is_answered = {
                let mut reply = Reply::new(&mut out, &date, true);
                answer(&mut self.site, request, &mut reply)
            };
            let status = || std::str::from_utf8(&out.bytes[9..12]).unwrap().parse().unwrap();
            is_answered.then(status)
        })
    }

    /// Answers as an application would: fields name the route and the path, and the request's query
    /// names further fields of the answer.
    fn answer_as_application(
        &self,
        destination: &Destination,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) {
        let Destination { route, rewritten, script, .. } = destination;
        let path = rewritten.as_deref().unwrap_or_default();
        let mut status = 200;
        let mut said = vec![("X-Route", route.to_string()), ("X-Path", show(path))];
        if let Some(Script { name, path_info, file, .. }) = script.as_deref() {
            said.push(("X-Script", show(name)));
            said.push(("X-Info", show(path_info)));
            said.extend(file.as_deref().map(|file| ("X-File", show(file))));
        }
        for (name, value) in std::str::from_utf8(request.head.query.unwrap_or_default())
            .unwrap()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
        {
            match name {
                "status" => status = value.parse().unwrap(),
                name => said.push((name, value.to_owned())),
            }
        }
        let said = said.iter().map(|(name, value)| (*name, value.as_bytes().into())).collect();
        let mut head = format!("HTTP/1.1 {status} As Asked\r\n").into_bytes();
        self.site.write_fields(destination, request, status, said, &mut head);
        reply.head(status, &head);
    }

    /// The answer to a client whose request the policy refuses with this status.
    pub(crate) fn turned_away(&mut self, status: u16) -> String {
        with_head("", |head| {
            let address = "127.0.0.1:80".parse().unwrap();
            let (peer, path) = (Peer::new(address, address), NormalPath::default());
            let request = Request::new(head, &peer, &path);
            let mut out = Out::default();
            let date: [u8; IMF_LEN] = date::format(784_111_777);
            let mut reply = Reply::new(&mut out, &date, true);
            let (refusal, context) = (Refusal::status(status), self.context());
            self.site.turn_away(refusal, &request, &context, &mut reply);
            String::from_utf8(out.bytes).unwrap()
        })
    }

    /// Looks for changes before the next request, as where several processes answer.
    pub(crate) fn catch_up(&mut self) {
        self.done = self.site.catch_up().map(run);
    }

    /// The result of a job for this client's content.
    pub(crate) fn job(&self, path: &str) -> SiteJobDone {
        let key = EntryKey { site: 0, path: path.as_bytes().into() };
        let content = Arc::clone(&self.content);
        let want = Want { shape: Default::default(), wants_all: false, asked_ms: self.now_ms };
        run(SiteJob(SiteWork::Load { content, key, want, refusal: None }))
    }

    /// Asks as if the request had waited for a job.
    pub(crate) fn get_after(&mut self, done: SiteJobDone, target: &str) -> Answered {
        self.done = Some(done);
        self.get(target)
    }

    /// Sends up to `most` bytes of a body: whether more is left, or `None` if its file changed.
    pub(crate) fn send(&self, body: &mut Body, most: u64, to: &mut Vec<u8>) -> Option<bool> {
        if !self.site.is_intact(body) {
            return None;
        }
        let count = match self.site.piece(body) {
            None => return Some(false),
            Some(Piece::Memory(bytes)) => {
                let count = bytes.len().min(most as usize);
                to.extend_from_slice(&bytes[..count]);
                count as u64
            }
            Some(Piece::File { file, offset, len, .. }) => {
                let mut bytes = vec![0; len.min(most) as usize];
                let file = fs::File::from(file.try_clone_to_owned().unwrap());
                file.read_exact_at(&mut bytes, offset).unwrap();
                to.extend_from_slice(&bytes);
                bytes.len() as u64
            }
            Some(Piece::Pipe { pipe, len }) => {
                let mut bytes = vec![0; len.min(most) as usize];
                let mut pipe = fs::File::from(pipe.try_clone_to_owned().unwrap());
                std::io::Read::read_exact(&mut pipe, &mut bytes).unwrap();
                to.extend_from_slice(&bytes);
                bytes.len() as u64
            }
        };
        self.site.advance(body, count);
        Some(true)
    }

    /// Asks again until the answer is as expected, as another thread reports changes.
    #[track_caller]
    pub(crate) fn until(&mut self, target: &str, expected: impl Fn(&Answered) -> bool) -> Answered {
        self.until_with(target, "", expected)
    }

    /// The same with fields.
    #[track_caller]
    pub(crate) fn until_with(
        &mut self,
        target: &str,
        fields: &str,
        expected: impl Fn(&Answered) -> bool,
    ) -> Answered {
        let start = Instant::now();
        loop {
            let answered = self.get_with(target, fields);
            if expected(&answered) {
                return answered;
            }
            assert!(start.elapsed() < PATIENCE, "still {answered:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the notice `what` has been given.
    #[track_caller]
    pub(crate) fn until_noticed(&self, what: &str) {
        let start = Instant::now();
        while !self.has_noticed(what) {
            assert!(start.elapsed() < PATIENCE, "no {what} in {:?}", self.notices);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until exactly this many directories are watched.
    #[track_caller]
    pub(crate) fn until_watched(&self, directories: u64, which: &str) {
        let start = Instant::now();
        loop {
            self.content.tidy();
            let watched = self.content.figures().watched_directories;
            if watched == directories {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{watched} are watched, not {directories}: {which}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn has_noticed(&self, what: &str) -> bool {
        self.notices.lock().unwrap().iter().any(|notice| notice.starts_with(what))
    }
}

/// Calls `f` with the head of a GET with these fields, which are whole lines.
pub(crate) fn with_head<T>(fields: &str, f: impl FnOnce(&Head<'_>) -> T) -> T {
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut lines = Lines::new();
    match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()).unwrap() {
        ParsedHead::Complete(head) => f(&head),
        ParsedHead::Partial => panic!("not a whole head: {text}"),
    }
}

/// Calls `f` with such a request by a client of this machine.
pub(crate) fn with_request<T>(method: &str, target: &str, f: impl FnOnce(&Request<'_>) -> T) -> T {
    let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut lines = Lines::new();
    let ParsedHead::Complete(head) =
        Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()).unwrap()
    else {
        panic!("not a whole head: {text}")
    };
    let address = "127.0.0.1:80".parse().unwrap();
    let (peer, path) = (Peer::new(address, address), NormalPath::default());
    f(&Request::new(&head, &peer, &path))
}

/// Does a job as a helper thread would.
pub(crate) fn run(job: SiteJob) -> SiteJobDone {
    job.run(&Local::default(), &mut Off)
}

fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
