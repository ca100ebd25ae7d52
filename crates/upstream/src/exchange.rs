//! One request to an application and its answer, over a connection that is new or was used before.
//!
//! ```text
//!  begin ──► connecting ──► asking ──► answered ──► over ──► its connection is kept
//!               │  ▲           │           │
//!               ▼  └───────────┤           └──► broken: the client sees that
//!            another one, if that is safe; else failed, and the client is told
//! ```
//!
//! What is sent is kept as long as it fits, so that it can be sent again.

use crate::application::Application;
use crate::fastcgi;
use crate::group::{Member, Unavailable};
use crate::health::Told;
use crate::pool::Pool;
use crate::request::{Host, Written};
use crate::response::{Read, Reader};
use crate::retry::{self, Failure};
use crate::settings;
use forebay_conn::handler::relay::{Given, Next};
use forebay_conn::{Await, Relay, Wants};
use forebay_http::body::{Decoder, Trailers};
use forebay_http::framing::Framing;
use forebay_http::head::{self, Lines, Method};
use forebay_http::response::{Asked, Body, Limits, Parsed, Response};
use forebay_sys::clock;
use forebay_sys::socket::{self, Received, Sent};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

mod script;

use script::{Script, Upload};

/// No more than this waits to be sent; as much is kept of what was sent.
const UP_BYTES: usize = 64 * 1024;

/// So much of an answer is received at a time, where it cannot go to the client at once.
const RECEIVE_BYTES: usize = 16 * 1024;

/// What is asked of an application.
pub struct Ask {
    /// The method.
    pub method: Method,
    /// The [hash](crate::balance::hash) of what the request is balanced by.
    pub key: u64,
    /// What a new connection begins with.
    pub preface: Vec<u8>,
    /// The head of the request, or its beginning for an application that speaks FastCGI.
    pub head: Vec<u8>,
    /// What was written.
    pub written: Written,
    /// Is told what a script says for the log; of applications that speak FastCGI.
    pub log: Option<Log>,
}

/// Takes what a script has said for the log while it ran.
pub type Log = Box<dyn Fn(&[u8]) + Send>;

/// One request and its answer. `T` is what its handler must remember.
pub struct Exchange<T> {
    /// What its handler must remember.
    pub tag: T,
    application: Arc<Application>,
    method: Method,
    key: u64,
    /// The upstream that is asked, while that counts it.
    member: Option<Member>,
    /// All that were asked, the last one last.
    tried: Vec<Member>,
    /// How often it was sent again.
    retries: u32,
    socket: Option<OwnedFd>,
    is_reused: bool,
    phase: Phase,
    can_read: bool,
    can_write: bool,
    /// What was sent and what is to be; from `sent` on it was not.
    to: Vec<u8>,
    sent: usize,
    /// Bytes at its start that only a new connection begins with.
    preface: usize,
    /// Some of what was sent is not kept.
    is_gone: bool,
    /// Nothing more can be sent.
    is_cut: bool,
    /// Our direction is to be ended when all is sent, or has been.
    shuts: Option<bool>,
    /// The framing of the request's body, while more of it may come.
    upload: Option<Upload>,
    /// The client waits to be asked for the body.
    expects_continue: bool,
    asked: Asked,
    reader: Reader,
    /// The answer of an application that speaks FastCGI.
    script: Option<Box<Script>>,
    received: Vec<u8>,
    /// Of it, what is not used yet.
    at: usize,
    interim: Vec<u8>,
    has_told: bool,
    /// The head of the answer, in `received`.
    head: Option<Seen>,
    coming: Coming,
    failure: Option<Failure>,
    /// The failure is that the time for it was over.
    is_late: bool,
    has_expired: bool,
    has_ended: bool,
    told: Told,
    now_ms: u64,
    moved_ms: u64,
    times: Times,
}

/// How long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    begun_ns: u64,
    connected_ns: u64,
    answered_ns: u64,
}

impl Times {
    /// Until there was a connection, the last one; `None` if there was none.
    pub fn connect(&self) -> Option<Duration> {
        (self.connected_ns > 0)
            .then(|| Duration::from_nanos(self.connected_ns.saturating_sub(self.begun_ns)))
    }

    /// Until the head of the answer was there; `None` if it never was.
    pub fn head(&self) -> Option<Duration> {
        (self.answered_ns > 0)
            .then(|| Duration::from_nanos(self.answered_ns.saturating_sub(self.begun_ns)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Asking,
    Answered,
    Failed,
}

/// What is known of the head of an answer.
#[derive(Clone, Copy, Debug)]
struct Seen {
    start: usize,
    end: usize,
    status: u16,
    content_length: Option<u64>,
    keep_alive: bool,
}

/// What is still to come of an answer.
enum Coming {
    Nothing,
    Sized(u64),
    Chunked(Box<Decoder>),
    /// Whatever comes.
    All,
    /// What is left of what a script says.
    OfScript,
}

impl Coming {
    fn is_over(&self) -> bool {
        match self {
            Coming::Nothing => true,
            Coming::Chunked(decoder) => decoder.is_done(),
            Coming::Sized(_) | Coming::All | Coming::OfScript => false,
        }
    }
}

impl<T> Exchange<T> {
    /// Begins to ask an upstream, over a connection of the pool if there is one.
    ///
    /// # Errors
    /// Why none can be asked.
    pub fn begin(
        application: &Arc<Application>,
        ask: Ask,
        tag: T,
        pool: &mut Pool,
        now_ms: u64,
    ) -> Result<Exchange<T>, Unavailable> {
        let Ask { method, key, preface, head, written, log } = ask;
        let member = application.begin(key, &[], now_ms)?;
        let limits = application.settings().limits();
        let script = match application.settings() {
            settings::Application::Proxy(_) => None,
            settings::Application::FastCgi(_) => {
                Some(Box::new(Script::new(written.asked, limits, log)))
            }
        };
        let upload = Upload::new(written.framing, script.is_some());
        let socket = match preface.is_empty() {
            true => pool.take(application, member, now_ms),
            false => None,
        };
        let preface_bytes = preface.len();
        let mut to = preface;
        to.extend_from_slice(&head);
        if script.is_some() && upload.is_none() {
            fastcgi::end_of_stdin(&mut to);
        }
        let mut exchange = Exchange {
            tag,
            application: Arc::clone(application),
            method,
            key,
            member: Some(member),
            tried: vec![member],
            retries: 0,
            is_reused: socket.is_some(),
            socket,
            phase: Phase::Asking,
            can_read: false,
            can_write: true,
            to,
            sent: 0,
            preface: preface_bytes,
            is_gone: false,
            is_cut: false,
            shuts: None,
            upload,
            expects_continue: script.is_some() && written.expects_continue,
            asked: written.asked,
            reader: Reader::new(written.asked, limits),
            script,
            received: Vec::new(),
            at: 0,
            interim: Vec::new(),
            has_told: false,
            head: None,
            coming: Coming::Nothing,
            failure: None,
            is_late: false,
            has_expired: false,
            has_ended: false,
            told: Told::Nothing,
            now_ms,
            moved_ms: now_ms,
            times: Times { begun_ns: clock::monotonic_ns(), ..Times::default() },
        };
        exchange.name_host(member);
        match exchange.socket {
            Some(_) => exchange.times.connected_ns = exchange.times.begun_ns,
            None => exchange.open(member),
        }
        Ok(exchange)
    }

    /// The application that is asked.
    pub fn application(&self) -> &Arc<Application> {
        &self.application
    }

    /// The upstream that was asked last.
    pub fn upstream(&self) -> Member {
        self.tried.last().copied().unwrap_or_default()
    }

    /// How often the request was sent, or was to be.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.tried.len()).unwrap_or(u32::MAX)
    }

    /// The status of the answer, if there is one.
    pub fn status(&self) -> Option<u16> {
        self.head.map(|head| head.status)
    }

    /// How long it took.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Why there is no answer, and whether that is because it took too long.
    pub fn failure(&self) -> Option<(Failure, bool)> {
        self.failure.map(|failure| (failure, self.is_late))
    }

    /// The head of the answer, if there is one.
    pub fn with_answer<R>(&self, look: impl FnOnce(&Response<'_>) -> R) -> Option<R> {
        let seen = self.head?;
        let mut lines = Lines::new();
        let bytes = match &self.script {
            Some(script) => script.head(),
            None => self.received.get(seen.start..seen.end)?,
        };
        let limits = self.application.settings().limits();
        // the status line of a script was added
        let limits = Limits { head_bytes: limits.head_bytes.max(bytes.len()), ..limits };
        // it was parsed before
        match Response::parse(bytes, &mut lines, self.asked, &limits) {
            Ok(Parsed::Complete(response)) => Some(look(&response)),
            _ => None,
        }
    }

    /// The handler has looked at the answer, or that there is none.
    pub fn tell(&mut self) {
        self.has_told = true;
    }

    /// Gives the connection to those that wait, if another request may be sent on it.
    pub fn keep(mut self, pool: &mut Pool) {
        self.end_script();
        let is_clean = self.head.is_some_and(|head| head.keep_alive)
            && self.coming.is_over()
            && self.upload.is_none()
            && self.sent == self.to.len()
            && self.at == self.received.len()
            && !(self.is_cut || self.has_ended);
        if is_clean && let (Some(member), Some(socket)) = (self.member, self.socket.take()) {
            pool.keep(&self.application, member, socket, self.now_ms);
        }
    }

    /// Writes the host of this upstream into the head, where it is that which is told.
    fn name_host(&mut self, member: Member) {
        const NAME: &[u8] = b"\r\nHost: ";
        let proxy = self.application.settings().proxy();
        if proxy.is_none_or(|proxy| proxy.request.host != Host::Upstream) {
            return;
        }
        // it follows the request line
        let line_end = |from: usize| self.to[from..].windows(2).position(|end| end == b"\r\n");
        let Some(start) = line_end(self.preface).map(|at| self.preface + at) else { return };
        if !self.to[start..].starts_with(NAME) {
            return;
        }
        let start = start + NAME.len();
        let Some(len) = line_end(start) else { return };
        let authority = self.application.authority(member).as_bytes().to_vec();
        self.to.splice(start..start + len, authority);
    }

    /// Begins to connect to an upstream.
    fn open(&mut self, member: Member) {
        self.is_reused = false;
        match self.application.connect(member) {
            Ok(socket) => {
                (self.socket, self.phase) = (Some(socket), Phase::Connecting);
                (self.can_read, self.can_write) = (false, true);
            }
            Err(_) => self.fail(Failure::Connect),
        }
    }

    /// The attempt has failed: another is begun, if that is safe.
    fn fail(&mut self, failure: Failure) {
        let now_ms = self.now_ms;
        // an upstream may close what it has not used for a while
        let was_stale = self.is_reused && matches!(failure, Failure::Unwritten | Failure::Closed);
        if let Some(member) = self.member.take() {
            let told = if was_stale { Told::Nothing } else { Told::Failed };
            self.application.end(member, told, now_ms);
        }
        self.socket = None;
        let body = match self.is_gone {
            true => retry::Body::Gone,
            false => retry::Body::Kept,
        };
        let is_unheard = self.interim.is_empty() || self.script.is_some();
        let is_safe = is_unheard && retry::may_repeat(self.method, failure, body);
        let settings = self.application.settings().group();
        let has_more = self.retries < settings.retries;
        let may = was_stale || (has_more && self.application.may_retry(now_ms));
        let next = match is_safe && may {
            true => self.application.begin(self.key, &self.tried, now_ms).ok(),
            false => None,
        };
        let Some(member) = next else {
            (self.phase, self.failure) = (Phase::Failed, Some(failure));
            return;
        };
        self.retries += u32::from(!was_stale);
        self.member = Some(member);
        self.tried.push(member);
        (self.sent, self.at, self.is_cut) = (0, 0, false);
        self.received.clear();
        let limits = self.application.settings().limits();
        self.reader = Reader::new(self.asked, limits);
        if let Some(script) = &mut self.script {
            script.again(self.asked, limits);
        }
        self.moved_ms = now_ms;
        self.times = Times { begun_ns: clock::monotonic_ns(), ..Times::default() };
        self.name_host(member);
        self.open(member);
    }

    /// Sends what the upstream takes.
    fn send(&mut self) {
        let Some(socket) = &self.socket else { return };
        while self.can_write && !self.is_cut && self.sent < self.to.len() {
            match socket::send(socket.as_fd(), &self.to[self.sent..], false) {
                Sent::Bytes(count) => {
                    self.sent += count;
                    self.moved_ms = self.now_ms;
                }
                Sent::Blocked => self.can_write = false,
                // it may have answered before
                Sent::Broken => (self.is_cut, self.can_read) = (true, true),
            }
        }
        if self.sent > UP_BYTES || (self.sent == self.to.len() && self.head.is_some()) {
            self.to.drain(..self.sent);
            (self.sent, self.is_gone) = (0, true);
            if self.to.is_empty() {
                self.to = Vec::new();
            }
        }
        if self.shuts == Some(false) && self.sent == self.to.len() {
            self.shuts = Some(true);
            socket::shut_down_writing(socket.as_fd());
        }
    }

    /// Looks whether there is a connection now.
    fn look_at_connection(&mut self) -> Option<Next> {
        let Some(socket) = &self.socket else { return Some(Next::Wait) };
        if !self.can_write {
            return Some(Next::Wait);
        }
        // none are taken while there is no connection, and none ever if there is to be none
        match socket::send(socket.as_fd(), &self.to[self.sent..], false) {
            Sent::Bytes(count) => {
                self.sent += count;
                self.times.connected_ns = clock::monotonic_ns();
                (self.phase, self.moved_ms) = (Phase::Asking, self.now_ms);
                None
            }
            Sent::Blocked => {
                self.can_write = false;
                Some(Next::Wait)
            }
            Sent::Broken => {
                self.fail(Failure::Connect);
                None
            }
        }
    }

    /// Looks for the head of the answer.
    fn hear(&mut self) -> Option<Next> {
        loop {
            if let Some(next) = self.look_at_head() {
                return next;
            }
            let Some(socket) = &self.socket else { return Some(Next::Wait) };
            if !self.can_read {
                return Some(Next::Wait);
            }
            match socket::receive_more(socket.as_fd(), &mut self.received, RECEIVE_BYTES) {
                Received::Bytes(_) => self.moved_ms = self.now_ms,
                Received::Blocked => self.can_read = false,
                Received::Ended | Received::Broken => {
                    self.fail(match self.received.len() - self.at {
                        0 if self.sent == 0 => Failure::Unwritten,
                        0 if !self.has_script_begun() => Failure::Closed,
                        _ => Failure::Malformed,
                    });
                    return None;
                }
            }
        }
    }

    /// Reads a head from what was received. `None` if it is not whole.
    fn look_at_head(&mut self) -> Option<Option<Next>> {
        if self.script.is_some() {
            return self.look_at_script();
        }
        if self.at == self.received.len() {
            return None;
        }
        let mut lines = Lines::new();
        match self.reader.read(&self.received[self.at..], &mut lines) {
            Ok(Read::More) => None,
            Ok(Read::Interim(head)) => {
                self.interim.clear();
                let (status, len) = (head.status, head.len);
                let line =
                    format!("HTTP/1.1 {status} {}\r\n", forebay_http::status::reason(status));
                self.interim.extend_from_slice(line.as_bytes());
                crate::response::fields(&head, None, |name, value| {
                    for part in [name.as_bytes(), b": ", &value, b"\r\n"] {
                        self.interim.extend_from_slice(part);
                    }
                });
                self.at += len;
                Some(Some(Next::Interim(status)))
            }
            Ok(Read::Final(head)) => {
                self.coming = match head.body {
                    Body::None => Coming::Nothing,
                    Body::Sized(length) => Coming::Sized(length),
                    Body::UntilClose | Body::Upgraded => Coming::All,
                    Body::Chunked => {
                        let limits = head::Limits::default();
                        // without a length none is too large
                        let decoder =
                            Decoder::new(Framing::Chunked, u64::MAX, Trailers::Keep, &limits);
                        decoder.map_or(Coming::All, |decoder| Coming::Chunked(Box::new(decoder)))
                    }
                };
                let (start, end) = (self.at, self.at + head.len);
                self.head = Some(Seen {
                    start,
                    end,
                    status: head.status,
                    content_length: head.content_length,
                    keep_alive: head.keep_alive,
                });
                if head.body == Body::Upgraded {
                    self.upload = None;
                }
                self.at = end;
                (self.phase, self.told) = (Phase::Answered, Told::Well);
                self.times.answered_ns = clock::monotonic_ns();
                Some(None)
            }
            Err(_) => {
                self.fail(Failure::Malformed);
                Some(None)
            }
        }
    }

    /// What was received and not used.
    fn unused(&self) -> &[u8] {
        &self.received[self.at..]
    }

    /// Takes the next bytes as they are.
    fn take(&mut self, out: &mut Vec<u8>, most: usize) -> Given {
        let count = self.unused().len().min(most);
        if count > 0 {
            out.extend_from_slice(&self.received[self.at..self.at + count]);
            self.at += count;
            return Given::Bytes(count);
        }
        if self.has_told && self.at > 0 {
            // what waits for long takes no memory
            (self.received, self.at) = (Vec::new(), 0);
        }
        self.receive(most, Some(out))
    }

    /// Receives into `out`, or, without it, behind what was received.
    fn receive(&mut self, most: usize, out: Option<&mut Vec<u8>>) -> Given {
        let Some(socket) = &self.socket else { return Given::End };
        if self.has_ended {
            return Given::End;
        }
        if !self.can_read {
            return Given::Nothing;
        }
        let into = match out {
            Some(out) => out,
            None => {
                // the head stays: it may be looked at
                self.received.truncate(self.at);
                &mut self.received
            }
        };
        match socket::receive_more(socket.as_fd(), into, most) {
            Received::Bytes(count) => {
                self.moved_ms = self.now_ms;
                Given::Bytes(count)
            }
            Received::Blocked => {
                self.can_read = false;
                Given::Nothing
            }
            Received::Ended => {
                self.has_ended = true;
                Given::End
            }
            Received::Broken => {
                self.has_ended = true;
                Given::Broken
            }
        }
    }

    /// It breaks off: the upstream is to blame.
    fn broken(&mut self) -> Given {
        self.told = Told::Failed;
        Given::Broken
    }

    fn read_chunks(&mut self, out: &mut Vec<u8>, most: usize) -> Given {
        loop {
            let Coming::Chunked(decoder) = &mut self.coming else { return Given::Nothing };
            if decoder.is_done() {
                return Given::End;
            }
            let bytes = &self.received[self.at..];
            if !bytes.is_empty() {
                let bytes = &bytes[..bytes.len().min(most)];
                let Ok(decoded) = decoder.next(bytes) else { return self.broken() };
                self.at += decoded.used;
                if !decoded.data.is_empty() {
                    out.extend_from_slice(decoded.data);
                    return Given::Bytes(decoded.data.len());
                }
                continue;
            }
            if let Some(head) = self.head {
                self.received.truncate(head.end);
                self.at = head.end;
            }
            match self.receive(RECEIVE_BYTES, None) {
                Given::Bytes(_) => {}
                Given::Nothing => return Given::Nothing,
                Given::End | Given::Broken => return self.broken(),
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.upload.is_none() && self.sent == self.to.len()
    }
}

impl<T> Drop for Exchange<T> {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            self.application.end(member, self.told, self.now_ms);
        }
    }
}

impl<T: Send> Relay for Exchange<T> {
    fn socket(&self) -> Option<(u32, BorrowedFd<'_>, Wants)> {
        let socket = self.socket.as_ref()?;
        let has_unsent = self.sent < self.to.len() && !self.is_cut;
        let reads = self.phase != Phase::Connecting && !self.has_ended;
        let wants = Wants { read: reads && !self.can_read, write: has_unsent && !self.can_write };
        Some((self.attempts(), socket.as_fd(), wants))
    }

    fn ready(&mut self) {
        self.can_write = true;
        self.can_read = self.phase != Phase::Connecting;
    }

    fn room(&self) -> usize {
        let is_open = self.phase != Phase::Failed && !self.is_cut && self.shuts.is_none();
        if is_open { UP_BYTES.saturating_sub(self.to.len() - self.sent) } else { 0 }
    }

    fn give(&mut self, bytes: &[u8]) {
        match &mut self.upload {
            // no more comes than was announced: its framing was looked at where it came from
            Some(Upload::Http(encoder)) => _ = encoder.write(bytes, &mut self.to),
            Some(Upload::Stdin) => fastcgi::stdin(bytes, &mut self.to),
            None => self.to.extend_from_slice(bytes),
        }
    }

    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        match self.upload.take() {
            Some(Upload::Http(mut encoder)) => _ = encoder.finish(trailers, &mut self.to),
            Some(Upload::Stdin) => fastcgi::end_of_stdin(&mut self.to),
            None => self.shuts = Some(false),
        }
    }

    fn advance(&mut self, now_ms: u64) -> Next {
        self.now_ms = now_ms;
        if std::mem::take(&mut self.has_expired) {
            self.is_late = true;
            self.fail(match self.phase {
                Phase::Connecting => Failure::Connect,
                _ => Failure::Silent,
            });
        }
        loop {
            let next = match self.phase {
                Phase::Connecting => self.look_at_connection(),
                Phase::Asking => {
                    self.send();
                    if self.asks_for_body() { Some(Next::Interim(100)) } else { self.hear() }
                }
                Phase::Answered => {
                    self.send();
                    Some(if self.has_told { Next::Wait } else { Next::Answer })
                }
                Phase::Failed => Some(if self.has_told { Next::Wait } else { Next::Answer }),
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    fn interim(&self) -> &[u8] {
        &self.interim
    }

    fn length(&self) -> Option<u64> {
        self.head.and_then(|head| head.content_length)
    }

    fn resume(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
    }

    fn read(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> Given {
        self.now_ms = now_ms;
        match &mut self.coming {
            Coming::Nothing => Given::End,
            Coming::Chunked(_) => self.read_chunks(out, most),
            Coming::OfScript => self.read_script(out, most),
            Coming::All => match self.take(out, most) {
                Given::Broken => self.broken(),
                given => given,
            },
            Coming::Sized(left) => {
                let left = *left;
                if left == 0 {
                    return Given::End;
                }
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(most);
                match self.take(out, most) {
                    Given::Bytes(count) => {
                        self.coming = match left - count as u64 {
                            0 => Coming::Nothing,
                            left => Coming::Sized(left),
                        };
                        Given::Bytes(count)
                    }
                    Given::Nothing => Given::Nothing,
                    Given::End | Given::Broken => self.broken(),
                }
            }
        }
    }

    fn trailers(&self) -> Vec<(&str, &[u8])> {
        match &self.coming {
            Coming::Chunked(decoder) => decoder.trailers().collect(),
            _ => Vec::new(),
        }
    }

    fn awaits(&self) -> Await {
        match self.phase {
            Phase::Connecting => Await::Connect,
            Phase::Asking if self.is_whole() => Await::Answer,
            _ => Await::Flow,
        }
    }

    fn deadline_ms(&self) -> u64 {
        let timeouts = self.application.settings().group().timeouts;
        let time = match self.awaits() {
            Await::Connect => timeouts.connect,
            Await::Answer => timeouts.head,
            _ => timeouts.silence,
        };
        self.moved_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    fn expire(&mut self) {
        self.has_expired = true;
    }
}
