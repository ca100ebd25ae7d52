//! One request to an application and its answer, over a connection that is new or was used before.
//!
//! ```text
//!  begin ──► connecting ──► asking ──► answered ──► over ──► its connection is kept
//!    │  ▲       │  ▲           │           │
//!    ▼  │       ▼  └───────────┤           └──► broken: the client sees that
//!  waiting   another one, if that is safe; else failed, and the client is told
//! ```
//!
//! The body of a request for a script is collected first, up to a bound: a script is told how long it is,
//! and none waits for a slow client.
//!
//! While all upstreams have as much under way as they may it waits, with those of all other loops and
//! threads, and nothing is received of its request's body.
//!
//! What is sent is kept as long as it fits, so that it can be sent again.

use crate::application::Application;
use crate::fastcgi;
use crate::group::{Member, Unavailable};
use crate::health::Told;
use crate::link::Event;
use crate::pool::Pool;
use crate::queue::{Asking, Standing};
use crate::request::{Host, Written};
use crate::response::{Read, Reader};
use crate::retry::{self, Failure};
use crate::settings;
use crate::upstreams::{self, Slot, Wait};
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

mod linked;
mod script;

pub use linked::{ATTEMPT, Copy};
use linked::{Linked, Noted};
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
    /// Whose it is, among those that wait.
    pub standing: Standing,
    /// What a new connection begins with.
    pub preface: Vec<u8>,
    /// The head of the request, or its beginning for an application that speaks FastCGI.
    pub head: Vec<u8>,
    /// What was written.
    pub written: Written,
    /// What is to be known of the copy of a request to the [next stage](Application::of_stage).
    pub copy: Option<Copy>,
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
    linked: Option<Box<Linked>>,
    method: Method,
    key: u64,
    standing: Standing,
    /// Its place among what the upstream that is asked has under way.
    slot: Option<Slot>,
    /// Its place among those that wait.
    wait: Option<Wait>,
    /// All that were asked, the last one last.
    tried: Vec<Member>,
    /// It has waited so long for places.
    waited_ns: u64,
    /// How many sockets it has had.
    sockets: u32,
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
    /// As much of what was sent is kept.
    kept: usize,
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
    /// Bytes that the request's body may still have.
    body_left: u64,
    /// What has come of a body that is collected before anything is asked.
    spool: Vec<u8>,
    /// Its length is told at its end.
    is_chunked: bool,
    /// More of the body has come than there may be.
    is_too_large: bool,
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
    failure: Option<Failed>,
    has_expired: bool,
    has_ended: bool,
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
    /// When the last one was asked, or the request began to wait, in nanoseconds of a clock that never
    /// goes back.
    pub fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

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

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The last one that was asked has failed like this, in time or not.
    Asked(Failure, Lateness),
    /// None could be asked.
    Unasked(Unavailable),
    /// The body of the request is larger than it may be.
    TooLarge,
}

impl Failed {
    /// The same in a word, for logs.
    pub fn word(self) -> &'static str {
        match self {
            Failed::Asked(failure, late) => late.word(failure),
            Failed::Unasked(Unavailable::Full) => "queue_full",
            Failed::Unasked(Unavailable::Late) => "queue_timeout",
            Failed::Unasked(Unavailable::Limited { .. }) => "agent",
            Failed::Unasked(Unavailable::Down) => "drained",
            Failed::TooLarge => "too_large",
        }
    }
}

/// Whether something failed because the time for it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// It failed before.
    InTime,
    /// That is so.
    Late,
}

impl Lateness {
    /// How an upstream has failed, in a word.
    fn word(self, failure: Failure) -> &'static str {
        match (failure, self) {
            (Failure::Connect, Lateness::InTime) => "connect",
            (Failure::Connect, Lateness::Late) => "connect_timeout",
            (Failure::Silent, _) | (_, Lateness::Late) => "timeout",
            (Failure::Unwritten | Failure::Closed, _) => "closed",
            (Failure::Malformed, _) => "malformed",
            (Failure::Overloaded, _) => "overloaded",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Spooling,
    Waiting,
    /// No instance of the next stage takes it: the link says when it is tried again.
    Resting,
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
        let Ask { method, key, standing, preface, head, written, copy, log } = ask;
        let linked = match (application.link(), copy) {
            (Some(mut link), Some(copy)) => {
                let flight = link.begin(linked::repeats(method), key, now_ms);
                let flight = flight.ok_or(Unavailable::Down)?;
                let head_bytes = preface.len() + head.len();
                Some(Box::new(Linked::new(flight, copy, method, head_bytes)))
            }
            _ => None,
        };
        let instance = linked.as_ref().map(|linked| linked.instance());
        let bodies = application.settings().bodies();
        let spools = match (application.settings(), written.framing) {
            (settings::Application::Proxy(_), _) | (_, Framing::None) => false,
            (_, Framing::Sized(length)) => (1..=bodies.spool_bytes).contains(&length),
            (_, Framing::Chunked) => true,
        };
        let asking = || Asking { standing, key, tried: Vec::new() };
        let asks = instance.is_none() && !spools;
        let asked = asks.then(|| application.upstreams().ask(asking())).transpose()?;
        let limits = application.settings().limits();
        let script = match application.settings() {
            settings::Application::Proxy(_) => None,
            settings::Application::FastCgi(_) => {
                Some(Box::new(Script::new(written.asked, limits, log)))
            }
        };
        let upload = Upload::new(written.framing, script.is_some());
        let preface_bytes = preface.len();
        let mut to = preface;
        to.extend_from_slice(&head);
        if script.is_some() && upload.is_none() {
            fastcgi::end_of_stdin(&mut to);
        }
        let mut exchange = Exchange {
            tag,
            application: Arc::clone(application),
            linked,
            method,
            key,
            standing,
            slot: None,
            wait: None,
            tried: Vec::new(),
            waited_ns: 0,
            sockets: 0,
            retries: 0,
            is_reused: false,
            socket: None,
            phase: Phase::Waiting,
            can_read: false,
            can_write: true,
            to,
            sent: 0,
            kept: UP_BYTES,
            preface: preface_bytes,
            is_gone: false,
            is_cut: false,
            shuts: None,
            upload,
            body_left: match spools {
                true => bodies.most_bytes.min(bodies.spool_bytes),
                false => bodies.most_bytes,
            },
            spool: Vec::new(),
            is_chunked: written.framing == Framing::Chunked,
            is_too_large: false,
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
            has_expired: false,
            has_ended: false,
            now_ms,
            moved_ms: now_ms,
            times: Times { begun_ns: clock::monotonic_ns(), ..Times::default() },
        };
        let mut kept = |member| match preface_bytes {
            0 => pool.take(application, member, now_ms),
            _ => None,
        };
        match (instance, asked) {
            (Some(member), _) => exchange.begin_at(member, kept(member)),
            (None, None) => exchange.phase = Phase::Spooling,
            (None, Some(upstreams::Asked::Begun(slot))) => {
                let socket = kept(slot.member());
                exchange.begin_with(slot, socket);
            }
            (None, Some(upstreams::Asked::Waits(wait))) => exchange.wait_for(wait),
        }
        Ok(exchange)
    }

    /// All of the body that is collected is there: an upstream is asked.
    fn end_spool(&mut self) {
        if self.is_chunked {
            fastcgi::length(self.spool.len() as u64, &mut self.to);
        }
        fastcgi::stdin(&std::mem::take(&mut self.spool), &mut self.to);
        fastcgi::end_of_stdin(&mut self.to);
        self.kept = UP_BYTES.max(self.to.len());
        let asking = Asking { standing: self.standing, key: self.key, tried: Vec::new() };
        match self.application.upstreams().ask(asking) {
            Ok(upstreams::Asked::Begun(slot)) => self.begin_with(slot, None),
            Ok(upstreams::Asked::Waits(wait)) => self.wait_for(wait),
            Err(unavailable) => self.give_up(Failed::Unasked(unavailable)),
        }
    }

    /// More of the request's body has come than there may be.
    fn refuse_body(&mut self) {
        self.is_too_large = true;
        (self.socket, self.slot, self.wait) = (None, None, None);
        if self.phase != Phase::Answered {
            self.give_up(Failed::TooLarge);
        }
    }

    /// It is its turn to be sent, over this connection or a new one.
    fn begin_with(&mut self, slot: Slot, socket: Option<OwnedFd>) {
        let member = slot.member();
        self.slot = Some(slot);
        self.begin_at(member, socket);
    }

    /// It is sent to this one.
    fn begin_at(&mut self, member: Member, socket: Option<OwnedFd>) {
        self.tried.push(member);
        self.moved_ms = self.now_ms;
        self.times = Times { begun_ns: clock::monotonic_ns(), ..Times::default() };
        self.name_host(member);
        let Some(socket) = socket else { return self.open(member) };
        self.sockets += 1;
        (self.socket, self.is_reused, self.phase) = (Some(socket), true, Phase::Asking);
        (self.can_read, self.can_write) = (false, true);
        self.times.connected_ns = self.times.begun_ns;
    }

    /// It waits for its turn.
    fn wait_for(&mut self, wait: Wait) {
        self.sockets += 1;
        (self.wait, self.phase, self.moved_ms) = (Some(wait), Phase::Waiting, self.now_ms);
        self.times = Times { begun_ns: clock::monotonic_ns(), ..Times::default() };
    }

    /// Looks whether its turn has come.
    fn look_at_turn(&mut self) -> Option<Next> {
        let Some(told) = self.wait.as_mut().and_then(Wait::take) else { return Some(Next::Wait) };
        self.end_wait();
        match told {
            Ok((slot, socket)) => {
                // a connection that begins with one client's address is for that client alone
                let is_fit = |socket: &OwnedFd| {
                    self.preface == 0 && forebay_sys::client::is_quiet(socket.as_fd())
                };
                let socket = socket.filter(is_fit);
                self.begin_with(slot, socket);
            }
            Err(unavailable) => self.give_up(Failed::Unasked(unavailable)),
        }
        None
    }

    /// It waits no longer.
    fn end_wait(&mut self) {
        if self.wait.take().is_some() {
            self.waited_ns += clock::monotonic_ns().saturating_sub(self.times.begun_ns);
        }
    }

    /// There will be no answer.
    fn give_up(&mut self, failed: Failed) {
        (self.phase, self.failure) = (Phase::Failed, Some(failed));
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

    /// How long it has waited for its turn to be asked.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns)
    }

    /// Why there is no answer.
    pub fn failure(&self) -> Option<Failed> {
        self.failure
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
        self.give_back(pool);
    }

    /// All of the answer is there: the upstream has one less under way, whenever the client has got it.
    pub fn leave(&mut self) {
        if self.linked.is_none() && (self.coming.is_over() || self.has_ended) {
            self.slot = None;
        }
    }

    /// The same for one that is not over for its owner: nothing more comes of it.
    pub fn give_back(&mut self, pool: &mut Pool) {
        self.end_script();
        let is_clean = self.head.is_some_and(|head| head.keep_alive)
            && self.coming.is_over()
            && self.upload.is_none()
            && self.sent == self.to.len()
            && self.at == self.received.len()
            && !(self.is_cut || self.has_ended);
        let keeps = self.application.settings().group().keep_alive.connections > 0;
        if !(is_clean && keeps && self.preface == 0) {
            return;
        }
        let Some(socket) = self.socket.take() else { return };
        let member = self.upstream();
        let left = match self.slot.take() {
            Some(slot) => slot.pass_on(socket),
            // at the next stage nobody waits
            None => Some(socket),
        };
        if let Some(socket) = left {
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
        self.sockets += 1;
        match self.application.upstreams().connect(member) {
            Ok(socket) => {
                (self.socket, self.phase) = (Some(socket), Phase::Connecting);
                (self.can_read, self.can_write) = (false, true);
            }
            Err(_) => self.fail(Failure::Connect, Lateness::InTime),
        }
    }

    /// The attempt has failed: another is begun, if that is safe.
    fn fail(&mut self, failure: Failure, late: Lateness) {
        if self.linked.is_some() {
            return self.fail_link(failure);
        }
        let now_ms = self.now_ms;
        // an upstream may close what it has not used for a while
        let was_stale = self.is_reused && matches!(failure, Failure::Unwritten | Failure::Closed);
        if let Some(slot) = &mut self.slot {
            match was_stale {
                true => slot.told = Told::Nothing,
                false => slot.fail(late.word(failure)),
            }
        }
        self.slot = None;
        self.socket = None;
        let body = match self.is_gone {
            true => retry::Body::Gone,
            false => retry::Body::Kept,
        };
        let is_unheard = self.interim.is_empty() || self.script.is_some();
        let is_safe = is_unheard && retry::may_repeat(self.method, failure, body);
        let upstreams = self.application.upstreams();
        let has_more = self.retries < self.application.settings().group().retries;
        let may = was_stale || (has_more && upstreams.may_retry(now_ms));
        let (standing, tried) = (self.standing, self.tried.clone());
        let next = match is_safe && may {
            true => upstreams.ask(Asking { standing, key: self.key, tried }).ok(),
            false => None,
        };
        let Some(next) = next else { return self.give_up(Failed::Asked(failure, late)) };
        self.retries += u32::from(!was_stale);
        (self.sent, self.at, self.is_cut) = (0, 0, false);
        self.received.clear();
        let limits = self.application.settings().limits();
        self.reader = Reader::new(self.asked, limits);
        if let Some(script) = &mut self.script {
            script.again(self.asked, limits);
        }
        match next {
            upstreams::Asked::Begun(slot) => self.begin_with(slot, None),
            upstreams::Asked::Waits(wait) => self.wait_for(wait),
        }
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
        self.note_written();
        let is_answered = self.head.is_some() && self.linked.is_none();
        if self.sent > self.kept || (self.sent == self.to.len() && is_answered) {
            self.to.drain(..self.sent);
            (self.sent, self.is_gone) = (0, true);
            if self.to.is_empty() {
                self.to = Vec::new();
            }
        }
        if self.shuts == Some(false)
            && self.sent == self.to.len()
            && let Some(socket) = &self.socket
        {
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
                self.note_written();
                None
            }
            Sent::Blocked => {
                self.can_write = false;
                Some(Next::Wait)
            }
            Sent::Broken => {
                self.fail(Failure::Connect, Lateness::InTime);
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
                    let failure = match self.received.len() - self.at {
                        0 if self.sent == 0 => Failure::Unwritten,
                        0 if !self.has_script_begun() => Failure::Closed,
                        _ => Failure::Malformed,
                    };
                    self.fail(failure, Lateness::InTime);
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
            // from one stage to the next it says that the request is there, and is nobody else's
            Ok(Read::Interim(head)) if head.status == 102 && self.linked.is_some() => {
                self.at += head.len;
                self.tell_link(&Event::Acknowledged);
                Some(None)
            }
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
                let noted = self.linked.as_ref().map(|_| Noted::of(&head));
                if self.linked.as_ref().is_some_and(|linked| linked.is_continuing()) {
                    if let Some(noted) = noted {
                        self.link_heard(noted);
                    }
                    return Some(None);
                }
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
                self.is_well();
                self.times.answered_ns = clock::monotonic_ns();
                if let Some(noted) = noted {
                    self.link_heard(noted);
                }
                Some(None)
            }
            Err(_) => {
                self.fail(Failure::Malformed, Lateness::InTime);
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

    /// The head of an answer is there.
    fn is_well(&mut self) {
        self.phase = Phase::Answered;
        if let Some(slot) = &mut self.slot {
            slot.told = Told::Well;
        }
    }

    /// It breaks off: the upstream is to blame.
    fn broken(&mut self) -> Given {
        if let Some(slot) = &mut self.slot {
            slot.fail("broken_off");
        }
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
        self.leave_link();
    }
}

impl<T: Send> Relay for Exchange<T> {
    fn socket(&self) -> Option<(u32, BorrowedFd<'_>, Wants)> {
        if let Some(wait) = &self.wait {
            return Some((self.sockets, wait.bell(), Wants { read: true, write: false }));
        }
        let socket = self.socket.as_ref()?;
        let has_unsent = self.sent < self.to.len() && !self.is_cut;
        let reads = self.phase != Phase::Connecting && !self.has_ended;
        let wants = Wants { read: reads && !self.can_read, write: has_unsent && !self.can_write };
        Some((self.sockets, socket.as_fd(), wants))
    }

    fn ready(&mut self) {
        self.can_write = true;
        self.can_read = self.phase != Phase::Connecting;
    }

    fn room(&self) -> usize {
        let takes = !matches!(self.phase, Phase::Waiting | Phase::Resting | Phase::Failed)
            && !self.is_too_large;
        let is_open = takes && !self.is_cut && self.shuts.is_none();
        if is_open { UP_BYTES.saturating_sub(self.to.len() - self.sent) } else { 0 }
    }

    fn give(&mut self, bytes: &[u8]) {
        if self.upload.is_some() {
            match self.body_left.checked_sub(bytes.len() as u64) {
                Some(left) => self.body_left = left,
                None => return self.refuse_body(),
            }
        }
        if self.phase == Phase::Spooling {
            return self.spool.extend_from_slice(bytes);
        }
        match &mut self.upload {
            // no more comes than was announced: its framing was looked at where it came from
            Some(Upload::Http(encoder)) => _ = encoder.write(bytes, &mut self.to),
            Some(Upload::Stdin) => fastcgi::stdin(bytes, &mut self.to),
            None => self.to.extend_from_slice(bytes),
        }
    }

    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        if self.phase == Phase::Spooling {
            self.upload = None;
            return self.end_spool();
        }
        match self.upload.take() {
            Some(Upload::Http(mut encoder)) => _ = encoder.finish(trailers, &mut self.to),
            Some(Upload::Stdin) => fastcgi::end_of_stdin(&mut self.to),
            None => self.shuts = Some(false),
        }
    }

    fn advance(&mut self, now_ms: u64) -> Next {
        self.now_ms = now_ms;
        if std::mem::take(&mut self.has_expired) {
            match self.phase {
                Phase::Waiting => {
                    self.end_wait();
                    self.give_up(Failed::Unasked(Unavailable::Late));
                }
                Phase::Connecting => self.fail(Failure::Connect, Lateness::Late),
                _ => self.fail(Failure::Silent, Lateness::Late),
            }
        }
        loop {
            let next = match self.phase {
                Phase::Spooling => {
                    Some(if self.asks_for_body() { Next::Interim(100) } else { Next::Wait })
                }
                Phase::Waiting => self.look_at_turn(),
                Phase::Resting => Some(Next::Wait),
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
        if self.is_too_large {
            return Given::Broken;
        }
        match &self.linked {
            None => self.read_body(out, most),
            Some(linked) if linked.is_broken() => Given::Broken,
            Some(linked) if linked.is_continuing() => Given::Nothing,
            Some(_) => {
                let given = self.read_body(out, most);
                self.link_read(given)
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
        if self.linked.is_some() { Await::Link } else { self.waits() }
    }

    fn deadline_ms(&self) -> u64 {
        self.own_deadline_ms().min(self.link_deadline_ms())
    }

    fn looks(&mut self, now_ms: u64) -> bool {
        self.look_at_link(now_ms)
    }

    fn expire(&mut self) {
        self.has_expired = true;
    }
}

impl<T> Exchange<T> {
    fn read_body(&mut self, out: &mut Vec<u8>, most: usize) -> Given {
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

    /// What it waits for.
    fn waits(&self) -> Await {
        match self.phase {
            Phase::Waiting => Await::Slot,
            Phase::Connecting => Await::Connect,
            Phase::Asking if self.is_whole() => Await::Answer,
            _ => Await::Flow,
        }
    }

    /// Until when that may last.
    fn own_deadline_ms(&self) -> u64 {
        let settings::Group { timeouts, queue, .. } = self.application.settings().group();
        let time = match self.waits() {
            Await::Slot => queue.time,
            Await::Connect => timeouts.connect,
            Await::Answer => timeouts.head,
            _ => timeouts.silence,
        };
        self.moved_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// The link is told that the request is on its way.
    fn note_written(&mut self) {
        if self.sent > 0 && self.linked.is_some() {
            self.tell_link(&Event::Written);
        }
    }
}
