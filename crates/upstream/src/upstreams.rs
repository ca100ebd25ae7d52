//! A group of upstreams, shared by all routes that name the same ones: how they are reached, what is
//! known of them, and which requests wait for one.
//!
//! A waiting request is woken when its wait is over: by a waker that its loop has left, or, where a
//! thread waits for its client, by a descriptor that becomes readable
//! ([`wake_bell`](crate::wake_bell)).
//!
//! | module | what it holds |
//! |---|---|
//! | `addresses` | the addresses of one upstream, as its name has them now |
//! | `services` | the servers that the records of a service name now |
//! | `connection` | a connection to an upstream, in either version of HTTP |
//! | `stream` | the bytes of a connection, as they are or through TLS |
//! | `clients` | the TLS clients, and their files |
//! | `http2` | HTTP/2 to an application or the next stage, for exchanges that speak HTTP/1.1 |
//! | `shared` | connections of HTTP/2 on which many requests are under way at once |
//! | [`sign_in`] | sign-ins that authenticate a connection and not a request |
//! | `tunnels` | open WebSockets, which end when the server goes away |
//! | `down` | requests that wait until an upstream takes connections again |
//! | [`offered`] | a socket pair of which a receiver gets one end instead of the client's socket |
//! | `launching` | connections to programs that a launcher starts |
//! | `drains` | requests whose client has left and that an application still works on |

pub(crate) mod addresses;
pub(crate) mod clients;
pub(crate) mod connection;
pub(crate) mod down;
pub(crate) mod drains;
pub(crate) mod http2;
mod launching;
pub mod offered;
mod services;
pub(crate) mod shared;
pub mod sign_in;
pub(crate) mod stream;
pub(crate) mod tunnels;

pub use clients::UpstreamTlsFiles;
pub use shared::SharedConnectionCounts;

use crate::group::health::{HealthSign, UpstreamCondition};
use crate::group::learnt::{LearntPlaces, LearntReport};
use crate::group::notices::Notices;
use crate::group::{MemberIndex, Unavailable, UpstreamGroup};
use crate::places::queue::{Asking, QueueCounts, WaiterId};
use crate::places::{Begun, Clocks, Placement, Places};
use crate::settings;
use crate::settings::upstream_address::UpstreamAddress;
use crate::upstreams::addresses::UpstreamAddresses;
use crate::upstreams::clients::UpstreamClients;
use crate::upstreams::connection::UpstreamConnection;
use crate::upstreams::down::Outage;
use crate::upstreams::services::NamedServices;
use crate::upstreams::shared::SharedConnections;
use crate::upstreams::tunnels::{OpenWebSocket, OpenWebSockets};
use crate::wake_bell::WakeBell;
use forebay_conn::{SocketId, WakeSlot, Wants};
use forebay_control::shared::SharedCounts;
use forebay_metrics::{UpstreamCounts, UpstreamTotals};
use forebay_sys::clock;
use forebay_sys::launch::MessageSocket;
use forebay_tls::ClientError;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A group of upstreams that serve the same application.
#[derive(Debug)]
pub struct Upstreams {
    number: u64,
    /// Whether the protocol is FastCGI; HTTP otherwise.
    is_fastcgi: bool,
    places: Mutex<Places<Arc<Waiter>>>,
    /// Whether requests were waiting when a request last began or ended.
    is_waited_for: AtomicBool,
    notices: Mutex<Notices>,
    web_sockets: OpenWebSockets,
    outage: Outage,
    each: Vec<Upstream>,
    services: NamedServices,
    /// The TLS clients for these upstreams; `None` without TLS.
    clients: Option<UpstreamClients>,
}

/// One upstream of the group.
#[derive(Debug)]
struct Upstream {
    /// The upstream's name in logs.
    label: String,
    /// The upstream's host and port, as a request names them.
    authority: String,
    addresses: UpstreamAddresses,
    /// When the head of an answer last came from this upstream, by the monotonic clock.
    answered_ns: AtomicU64,
    /// Whether a request has failed since the last answer. The next answer is then news.
    has_failed: AtomicBool,
    /// Until when the upstream counts as one that closes connections while a request is on its way.
    hasty_until_ms: AtomicU64,
    /// The connections of HTTP/2 that requests share.
    shared: Arc<SharedConnections>,
    /// The counts for the metrics.
    counts: UpstreamCounts,
}

/// How long an upstream counts as hasty after it has closed a connection with a request on it.
const HASTY_MS: u64 = 10_000;

/// How a waiting request is notified.
#[derive(Debug, Default)]
struct Waiter {
    slot: WakeSlot,
    told: OnceLock<Box<News>>,
}

/// The outcome of a wait: whether a place was found, and a connection, if one was passed on. A waiter
/// holds only a pointer to this, so that waiting takes little memory.
#[derive(Debug)]
struct News {
    begun: Result<Begun, Unavailable>,
    connection: Mutex<Option<UpstreamConnection>>,
}

impl Waiter {
    fn tell(&self, begun: Result<Begun, Unavailable>, connection: Option<UpstreamConnection>) {
        let connection = Mutex::new(connection);
        let _ = self.told.set(Box::new(News { begun, connection }));
        self.slot.wake();
    }
}

/// The outcome of asking for a place.
#[derive(Debug)]
pub(crate) enum SlotOrWait {
    /// The request has a place.
    Begun(UpstreamSlot),
    /// The request waits in the queue.
    Waits(QueueWait),
}

/// A place among the requests that an upstream has under way. When it is dropped, the next request
/// gets it.
#[derive(Debug)]
pub(crate) struct UpstreamSlot {
    upstreams: Arc<Upstreams>,
    begun: Begun,
    /// What the request will report about the upstream's health when it is over.
    pub(crate) told: HealthSign,
    is_over: bool,
    /// The WebSocket that the connection has become, if it has.
    web_socket: Option<OpenWebSocket>,
}

impl UpstreamSlot {
    fn new(upstreams: &Arc<Upstreams>, begun: Begun) -> UpstreamSlot {
        UpstreamSlot {
            upstreams: Arc::clone(upstreams),
            begun,
            told: HealthSign::Nothing,
            is_over: false,
            web_socket: None,
        }
    }

    /// Notes that the upstream has answered: the head has been there since `now_ns`, and `is_error`
    /// says whether it is an error of the upstream. This is reported at once, because the rest of the
    /// answer may take long; no lock is taken where it is no news.
    pub(crate) fn answered(&mut self, is_error: bool, now_ns: u64) {
        if is_error {
            self.begun.is_error();
        }
        self.told = HealthSign::Whole;
        let member = self.begun.member;
        let Some(one) = self.upstreams.each.get(member) else { return };
        one.answered_ns.store(now_ns, Ordering::Relaxed);
        if one.has_failed.load(Ordering::Relaxed) {
            self.upstreams.tell_head(member);
        }
    }

    /// Counts an answer with this status, whose head took `head_ns`.
    pub(crate) fn count_answer(&self, status: u16, head_ns: u64) {
        self.count(|counts| counts.answered(status, head_ns));
    }

    /// Counts a new connection, which took `connect_ns`.
    pub(crate) fn count_connection(&self, connect_ns: u64) {
        self.count(|counts| counts.connected(connect_ns));
    }

    fn count(&self, what: impl FnOnce(&UpstreamCounts)) {
        if let Some(one) = self.upstreams.each.get(self.begun.member) {
            what(&one.counts);
        }
    }

    /// Notes that the upstream has failed, and why.
    pub(crate) fn fail(&mut self, why: &'static str) {
        self.told = HealthSign::Failed;
        self.count(UpstreamCounts::failed);
        self.upstreams.told().failed(self.begun.member, why, now().ms);
    }

    /// Notes that the connection has become a tunnel.
    pub(crate) fn becomes_tunnel(&mut self) {
        if self.begun.becomes_tunnel() {
            self.upstreams.tunnel_opened(self.begun.member);
        }
    }

    /// Notes that the connection has become a WebSocket. The place must be given back before the
    /// connection is closed.
    pub(crate) fn becomes_web_socket(&mut self, connection: BorrowedFd<'_>) {
        self.web_socket = Some(OpenWebSocket::new(&self.upstreams, connection));
    }

    /// The upstream in which this place is.
    pub(crate) fn member(&self) -> MemberIndex {
        self.begun.member
    }

    /// Ends the request and offers its connection, which can carry another: the next waiting request
    /// takes it, if it goes to the same upstream. Returns the connection if no request takes it.
    pub(crate) fn pass_on(mut self, connection: UpstreamConnection) -> Option<UpstreamConnection> {
        self.is_over = true;
        self.upstreams.end(self.begun, self.told, Some(connection))
    }
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        if !self.is_over {
            self.upstreams.end(self.begun, self.told, None);
        }
    }
}

/// A waiting request. Dropping this ends the wait.
#[derive(Debug)]
pub(crate) struct QueueWait {
    upstreams: Arc<Upstreams>,
    waiter: Arc<Waiter>,
    bell: WakeBell,
    id: WaiterId,
    is_taken: bool,
}

impl QueueWait {
    /// Where a loop leaves the waker that is called when the wait is over.
    pub(crate) fn wake_slot(&self) -> &WakeSlot {
        &self.waiter.slot
    }

    /// The descriptor that becomes readable when the wait is over, where the slot has no waker.
    pub(crate) fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        self.bell.socket(&self.waiter.slot)
    }

    /// Whether the request cannot be notified, because there was no descriptor for that. Then it does
    /// not wait.
    pub(crate) fn is_deaf(&self) -> bool {
        self.bell.is_deaf()
    }

    /// Whether the wait is over.
    pub(crate) fn is_told(&self) -> bool {
        self.waiter.told.get().is_some()
    }

    /// The outcome of the wait, if it is over: a place, perhaps with a connection, or the reason why
    /// there is none.
    pub(crate) fn take(
        &mut self,
    ) -> Option<Result<(UpstreamSlot, Option<UpstreamConnection>), Unavailable>> {
        let News { begun, connection } = &**self.waiter.told.get()?;
        if std::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        Some(begun.map(|begun| {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner).take();
            (UpstreamSlot::new(&self.upstreams, begun), connection)
        }))
    }
}

impl Drop for QueueWait {
    fn drop(&mut self) {
        if self.is_taken || self.upstreams.places().leave(self.id) {
            return;
        }
        // the wait ended before this was dropped, and its outcome was not taken: the place goes to
        // the next
        drop(self.take());
    }
}

/// A report about one upstream, for metrics and operators.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamReport {
    /// The upstream's place in its group.
    pub member: MemberIndex,
    /// The upstream's name in logs.
    pub label: String,
    /// The server behind this place, if it is a server of a service.
    pub server: Option<String>,
    /// Whether the upstream gets requests.
    pub condition: UpstreamCondition,
    /// The number of requests under way to the upstream.
    pub in_flight: u32,
    /// The largest number of requests under way; `None` for no limit.
    pub most: Option<u32>,
    /// What was learnt about that number, where it is learnt.
    pub learnt: Option<LearntReport>,
    /// The counts since the start.
    pub counted: UpstreamTotals,
}

impl UpstreamReport {
    /// The name by which another process knows this upstream. A server of a service may have another
    /// place there.
    pub fn name(&self) -> &str {
        self.server.as_deref().unwrap_or(&self.label)
    }
}

fn now() -> Clocks {
    Clocks { ms: clock::coarse_ms(), ns: clock::monotonic_ns() }
}

impl Upstreams {
    /// A group with these settings. Names are looked up here, which may take a while; a name that has
    /// no address now may have one [later](Upstreams::look_up).
    pub fn new(
        settings: &settings::GroupSettings,
        is_fastcgi: bool,
        now_ms: u64,
    ) -> Arc<Upstreams> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let each = settings.to.iter().map(|address| Upstream {
            label: address.to_string(),
            authority: address.authority(),
            addresses: UpstreamAddresses::new(address.clone()),
            answered_ns: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            hasty_until_ms: AtomicU64::new(0),
            shared: Arc::default(),
            counts: UpstreamCounts::default(),
        });
        let seed = RandomState::new().hash_one(number);
        let places = Mutex::new(Places::new(settings, seed, now_ms));
        let notices = Mutex::new(Notices::new(settings.to.len(), settings.backups));
        let web_sockets = OpenWebSockets::default();
        let clients = settings.tls.is_some().then(UpstreamClients::default);
        let each = each.collect();
        let (outage, services) = (Outage::default(), NamedServices::new(&settings.to));
        let upstreams = Upstreams {
            number,
            is_fastcgi,
            places,
            is_waited_for: AtomicBool::new(false),
            notices,
            web_sockets,
            outage,
            each,
            services,
            clients,
        };
        upstreams.look_up_services();
        upstreams.look_up();
        Arc::new(upstreams)
    }

    /// Takes over other settings for the same upstreams, and the shares of the classes.
    pub fn set(&self, settings: &settings::GroupSettings, shares: &[f64]) {
        let now = now();
        let mut places = self.places();
        places.set(settings, shares, now.ms);
        tell_all(&mut places, now);
    }

    /// Uses these files for TLS from now on.
    ///
    /// # Errors
    /// The name of an upstream is not one that a certificate could be for.
    pub fn speak_by(&self, files: &UpstreamTlsFiles) -> Result<(), ClientError> {
        let to = self.each.iter().map(|one| one.addresses.named());
        self.clients.as_ref().map_or(Ok(()), |clients| clients.set(files, to))
    }

    /// Has programs launched by the process at the other end of this socket.
    pub fn launch_by(&self, launcher: &Arc<MessageSocket>) {
        self.each.iter().for_each(|one| one.addresses.launch_by(launcher));
    }

    /// Counts what is under way and what waits together with other processes from now on. Groups that
    /// lead to the same addresses are counted separately: `seen` says how many there were for each.
    pub fn share(&self, counts: &SharedCounts, seen: &mut HashMap<String, usize>) {
        let kind = if self.is_fastcgi { "FastCGI" } else { "HTTP" };
        let mut count = |what: String| {
            let number = seen.entry(what.clone()).or_default();
            *number += 1;
            counts.of(&format!("{kind} {what} {number}"))
        };
        let labels: Vec<_> = self.each.iter().map(|one| one.label.clone()).collect();
        let queue = count(format!("queue of {}", labels.join(" ")));
        let members = labels.into_iter().zip(&self.each).map(|(label, one)| {
            // another process may have the servers of a service in other places
            let is_fixed = !matches!(one.addresses.named(), UpstreamAddress::Service(_));
            is_fixed.then(|| count(label)).flatten()
        });
        let members: Vec<_> = members.collect();
        self.places().share(members, queue);
    }

    /// Whether the upstreams of this group are at those addresses.
    pub fn are(&self, to: &[UpstreamAddress], is_fastcgi: bool) -> bool {
        self.is_fastcgi == is_fastcgi && self.each.iter().map(|one| one.addresses.named()).eq(to)
    }

    /// Whether the other group speaks the same protocol.
    pub fn speak_as(&self, other: &Upstreams) -> bool {
        self.is_fastcgi == other.is_fastcgi
    }

    /// The unique number of this group.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn places(&self) -> MutexGuard<'_, Places<Arc<Waiter>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines for an operator that are due now: the upstream, and what to say of it.
    pub fn notices(&self) -> Vec<(String, String)> {
        let (seen, now_ms) = (self.seen(), now().ms);
        let mut notices = self.told();
        let next = seen.into_iter().filter_map(|seen| {
            Some((seen.label, notices.next(seen.member, seen.condition, now_ms)?))
        });
        self.services.notices().into_iter().chain(next).collect()
    }

    /// Asks for a place, for a new request or for one that another upstream did not answer.
    ///
    /// # Errors
    /// Why the request gets no upstream.
    pub(crate) fn ask(self: &Arc<Self>, asking: Asking) -> Result<SlotOrWait, Unavailable> {
        let (now, mut waiter) = (now(), None);
        let mut places = self.places();
        let answer = places.ask(asking, now, || {
            let told = Arc::<Waiter>::default();
            waiter = Some(Arc::clone(&told));
            told
        });
        tell_all(&mut places, now);
        self.is_waited_for.store(places.waiting() > 0, Ordering::Relaxed);
        drop(places);
        Ok(match (answer?, waiter) {
            (Placement::Begun(begun), _) => SlotOrWait::Begun(UpstreamSlot::new(self, begun)),
            (Placement::Waits(id), Some(waiter)) => {
                let upstreams = Arc::clone(self);
                let bell = WakeBell::default();
                SlotOrWait::Waits(QueueWait { upstreams, waiter, bell, id, is_taken: false })
            }
            // a request without a bell could never be notified, so it does not wait
            (Placement::Waits(_), None) => return Err(Unavailable::Full),
        })
    }

    /// Whether requests wait, so that a new one will most likely have to wait, too.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed)
    }

    /// Reports the head of an answer from this upstream, after requests that have failed.
    fn tell_head(&self, member: MemberIndex) {
        let now = now();
        let mut places = self.places();
        self.note_failed(member, false);
        places.group_mut().told(member, HealthSign::Head, now.ms);
        tell_all(&mut places, now);
    }

    /// Stores whether the upstream's last sign was a failure; the caller holds the lock of `places`.
    fn note_failed(&self, member: MemberIndex, has_failed: bool) {
        if let Some(one) = self.each.get(member) {
            one.has_failed.store(has_failed, Ordering::Relaxed);
        }
    }

    /// Ends a request and hands out its place. Returns the connection if no waiting request takes it.
    fn end(
        &self,
        begun: Begun,
        told: HealthSign,
        mut connection: Option<UpstreamConnection>,
    ) -> Option<UpstreamConnection> {
        let now = now();
        let mut places = self.places();
        if told == HealthSign::Failed {
            self.note_failed(begun.member, true);
        }
        places.end(begun, told, now);
        while let Some((waiter, what)) = places.next(now) {
            let is_same = what.is_ok_and(|next| next.member == begun.member);
            waiter.tell(what, if is_same { connection.take() } else { None });
        }
        self.is_waited_for.store(places.waiting() > 0, Ordering::Relaxed);
        connection
    }

    /// Closes the open WebSockets, because the server shuts down, and lets their clients know.
    /// Returns how many there were.
    pub fn end_web_sockets(&self) -> usize {
        self.web_sockets.end()
    }

    /// Whether WebSockets are closed because the server shuts down.
    pub(crate) fn end_of_web_sockets(&self) -> bool {
        self.web_sockets.are_ending()
    }

    /// When this upstream last answered a request, by the monotonic clock; 0 if never.
    pub(crate) fn last_answer_ns(&self, member: MemberIndex) -> u64 {
        self.each.get(member).map_or(0, |one| one.answered_ns.load(Ordering::Relaxed))
    }

    /// Notes that this upstream has closed an idle connection while a request was on its way.
    pub(crate) fn was_hasty(&self, member: MemberIndex, now_ms: u64) {
        if let Some(one) = self.each.get(member) {
            one.hasty_until_ms.store(now_ms + HASTY_MS, Ordering::Relaxed);
        }
    }

    /// Whether the upstream has done so lately. Then a request that cannot be repeated is not sent on
    /// a connection that was idle.
    pub(crate) fn is_hasty(&self, member: MemberIndex, now_ms: u64) -> bool {
        self.each.get(member).is_some_and(|one| now_ms < one.hasty_until_ms.load(Ordering::Relaxed))
    }

    /// Hands out places that have become free with time, as when an upstream that was out may be
    /// tried again.
    pub fn turn(&self) {
        let now = now();
        let mut places = self.places();
        if places.waiting() > 0 {
            tell_all(&mut places, now);
        }
    }

    pub(crate) fn may_retry(&self, now_ms: u64) -> bool {
        self.places().group_mut().may_retry(now_ms)
    }

    /// The next upstream that is due for a health check; the result goes to
    /// [`checked`](Upstreams::checked).
    pub(crate) fn begin_check(&self, now_ms: u64) -> Option<MemberIndex> {
        self.places().group_mut().begin_check(now_ms)
    }

    /// Notes that a check has failed, and why.
    pub(crate) fn check_failed(&self, member: MemberIndex, why: &'static str) {
        self.told().check_failed(member, why);
    }

    pub(crate) fn checked(&self, member: MemberIndex, is_good: bool, now_ms: u64) {
        let mut places = self.places();
        places.group_mut().checked(member, is_good, now_ms);
        tell_all(&mut places, now());
    }

    /// Takes an upstream out, or back in. An upstream that is out gets no new requests, and those
    /// under way finish.
    pub fn drain(&self, member: MemberIndex, is_draining: bool) {
        let now = now();
        let mut places = self.places();
        places.group_mut().drain(member, is_draining, now.ms);
        tell_all(&mut places, now);
    }

    /// Reports on all upstreams, except places of services that no server has.
    pub fn seen(&self) -> Vec<UpstreamReport> {
        let places = self.places();
        let group = places.group();
        let each = self.each.iter().enumerate();
        let each = each.filter(|(member, _)| !group.is_vacant(*member));
        let each = each.map(|(member, one)| UpstreamReport {
            member,
            label: one.label.clone(),
            server: one.addresses.leads_to(),
            condition: group.condition(member).unwrap_or(UpstreamCondition::Well),
            in_flight: group.in_flight(member),
            most: group.most_in_flight(member),
            learnt: group.learnt(member).map(LearntPlaces::report),
            counted: one.counts.totals(),
        });
        each.collect()
    }

    /// The number of requests that wait: for a place, or for an upstream that takes connections
    /// again.
    pub fn waiting(&self) -> usize {
        self.places().waiting() + self.outage.waiting()
    }

    /// The connections that requests share, in numbers.
    pub fn shared_connections(&self) -> SharedConnectionCounts {
        let each = self.each.iter().map(|one| one.shared.counts());
        each.fold(SharedConnectionCounts::default(), SharedConnectionCounts::and)
    }

    /// Notes that an upstream takes connections.
    #[inline]
    pub(crate) fn is_reached(&self) {
        self.outage.end();
    }

    /// Whether a request waits for a place because one of this rank has it.
    pub(crate) fn is_short(&self, rank: u8) -> bool {
        self.places().is_short(rank, now())
    }

    /// Notes how many requests an upstream says it can work on at once; `None` if it no longer says
    /// so.
    pub fn has_workers(&self, member: MemberIndex, count: Option<u32>) {
        let now = now();
        let mut places = self.places();
        places.group_mut().has_workers(member, count, now.ns);
        tell_all(&mut places, now);
    }

    /// Starts the learnt limit of the upstreams of this name at `held`, which another process has
    /// learnt.
    pub fn begin_with(&self, name: &str, held: u32) {
        let now = now();
        for seen in self.seen().into_iter().filter(|seen| seen.name() == name) {
            let mut places = self.places();
            places.group_mut().begin_with(seen.member, held, now.ns);
            tell_all(&mut places, now);
        }
    }

    /// Notes that a connection to an upstream has become a tunnel. Where limits are learnt, a tunnel
    /// takes no place of requests.
    fn tunnel_opened(&self, member: MemberIndex) {
        let now = now();
        let mut places = self.places();
        places.group_mut().tunnel(member, true);
        tell_all(&mut places, now);
    }

    /// The largest number of requests under way at once; `None` for no limit.
    pub fn places_at_once(&self) -> Option<u32> {
        self.places().group().places()
    }

    /// When the oldest waiting request of a rank began to wait, in nanoseconds of the monotonic
    /// clock.
    pub fn waits_since(&self, rank: u8) -> Option<u64> {
        self.places().waits_since(rank)
    }

    /// The counts of a rank.
    pub fn counts(&self, rank: u8) -> QueueCounts {
        self.places().counts(rank)
    }

    /// Limits how many requests of a rank wait and are under way; `None` for no limit. The client of
    /// a refused request gets `retry_after_s`.
    pub fn limit(&self, rank: u8, most: Option<u32>, retry_after_s: u32) {
        self.places().limit(rank, most, retry_after_s);
    }

    /// Looks up the addresses of names again. A name that is not found keeps the addresses it had.
    pub fn look_up(&self) {
        self.each.iter().for_each(|upstream| upstream.addresses.look_up());
    }

    /// Looks up the records of services whose time to live is over. Where nothing is found, the known
    /// servers stay.
    pub fn look_up_services(&self) {
        let is_free = |member| self.places().group().in_flight(member) == 0;
        let changes = self.services.look_up(now().ms, is_free);
        if changes.is_empty() {
            return;
        }
        // new servers come first, so that there is always one to ask when the old ones go
        let (new, others): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| change.is_other && change.was_vacant);
        for change in new.into_iter().chain(others) {
            if change.is_other {
                self.change_group(|group, now| group.becomes(change.member, None, now.ms));
                self.lead_to(change.member, change.server);
            }
            self.change_group(|group, now| match change.is_other {
                true => group.becomes(change.member, change.said, now.ms),
                false => group.is_said(change.member, change.said),
            });
        }
    }

    fn change_group(&self, change: impl FnOnce(&mut UpstreamGroup, Clocks)) {
        let now = now();
        let mut places = self.places();
        change(places.group_mut(), now);
        tell_all(&mut places, now);
    }

    /// Gives a place to this server of a service, or to none.
    fn lead_to(&self, member: MemberIndex, server: Option<(Box<str>, u16)>) {
        let Some(one) = self.each.get(member) else { return };
        one.addresses.lead_to(server);
        one.addresses.look_up();
        one.has_failed.store(false, Ordering::Relaxed);
    }

    /// The name of an upstream in logs.
    pub fn label(&self, member: MemberIndex) -> &str {
        self.each.get(member).map_or("", |upstream| &upstream.label)
    }

    /// The host and port of an upstream, as a request names them.
    pub fn authority(&self, member: MemberIndex) -> &str {
        self.each.get(member).map_or("", |upstream| &upstream.authority)
    }

    /// Begins to connect to an upstream. Addresses in `refused` are used only if there are no others.
    /// Over TLS, HTTP/2 is offered if `is_http2`, and HTTP/1.1 otherwise.
    pub(crate) fn connect(
        &self,
        member: MemberIndex,
        refused: &[SocketAddr],
        is_http2: bool,
        now_ms: u64,
    ) -> io::Result<UpstreamConnection> {
        let unknown = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let one = self.each.get(member).ok_or_else(unknown)?;
        let connection = one.addresses.connect(refused, now_ms)?;
        self.seal(member, is_http2, connection)
    }

    /// Wraps the connection in TLS, if the group uses it.
    pub(crate) fn seal(
        &self,
        member: MemberIndex,
        is_http2: bool,
        connection: UpstreamConnection,
    ) -> io::Result<UpstreamConnection> {
        // upstreams of this machine at Unix sockets are reached without TLS
        let is_unix = |one: &Upstream| matches!(one.addresses.named(), UpstreamAddress::Unix(_));
        match self.clients.as_ref().filter(|_| !self.each.get(member).is_some_and(is_unix)) {
            Some(clients) => clients.begin(member, is_http2, connection),
            None => Ok(connection),
        }
    }

    /// Notes that this connection has failed, and adds its address to `refused`. Returns whether the
    /// upstream has another address, not in `refused`, that takes connections as far as is known.
    pub(crate) fn refused(
        &self,
        member: MemberIndex,
        connection: &UpstreamConnection,
        refused: &mut Vec<SocketAddr>,
        now_ms: u64,
    ) -> bool {
        let Some(one) = self.each.get(member) else { return false };
        one.addresses.refused(connection, refused, now_ms)
    }

    /// Whether a kept connection leads to an address that the upstream has now, with the TLS files of
    /// now.
    pub(crate) fn is_current(&self, member: MemberIndex, connection: &UpstreamConnection) -> bool {
        self.leads(member, connection.address(), connection.clients())
    }

    /// Whether this address is one that the upstream has now, and the TLS clients of this number are
    /// those of now.
    pub(crate) fn leads(
        &self,
        member: MemberIndex,
        address: Option<SocketAddr>,
        clients: Option<u64>,
    ) -> bool {
        self.each.get(member).is_some_and(|one| one.addresses.have(address))
            && self.clients.as_ref().is_none_or(|known| known.have_begun(clients))
    }

    /// The connections to this upstream that requests share.
    pub(crate) fn shared(&self, member: MemberIndex) -> Option<&Arc<SharedConnections>> {
        self.each.get(member).map(|one| &one.shared)
    }
}

fn tell_all(places: &mut Places<Arc<Waiter>>, now: Clocks) {
    while let Some((waiter, what)) = places.next(now) {
        waiter.tell(what, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::settings as group_of;
    use crate::settings::{Balance, GroupSettings};

    fn ask(upstreams: &Arc<Upstreams>) -> UpstreamSlot {
        match upstreams.ask(Asking::default()) {
            Ok(SlotOrWait::Begun(slot)) => slot,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_tells_at_its_head_that_its_upstream_is_well() {
        let upstreams = Upstreams::new(&group_of(1, Balance::Least, None), false, 0);
        let is_well = || upstreams.seen()[0].condition == UpstreamCondition::Well;
        let mut old = ask(&upstreams);
        old.answered(false, clock::monotonic_ns());
        ask(&upstreams).fail("connect");
        assert!(!is_well());
        drop(old);
        assert!(!is_well(), "it has failed since that answer began");
        let mut next = ask(&upstreams);
        next.answered(false, clock::monotonic_ns());
        assert!(is_well(), "the rest of the answer may take long");
        ask(&upstreams).fail("connect");
        drop(next);
        assert!(!is_well());
    }

    #[test]
    fn one_that_breaks_its_answers_off_is_put_out() {
        let settings = GroupSettings { max_fails: 3, ..group_of(1, Balance::Least, None) };
        let upstreams = Upstreams::new(&settings, false, 0);
        let is_well = || upstreams.seen()[0].condition == UpstreamCondition::Well;
        let break_off = || {
            let mut slot = ask(&upstreams);
            slot.answered(false, clock::monotonic_ns());
            slot.fail("broken_off");
        };
        break_off();
        break_off();
        ask(&upstreams).answered(false, clock::monotonic_ns());
        break_off();
        break_off();
        assert!(is_well(), "a whole answer came between");
        break_off();
        assert!(!is_well());
    }
}
