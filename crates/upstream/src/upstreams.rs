//! Upstreams that do the same, as all routes share them that name them alike: how they are reached, what
//! is known of them, and which requests wait for one.
//!
//! A request that waits is woken when it is told: by a waker that its loop has left, or, where a thread waits
//! for its client, by a descriptor that becomes readable ([`wake_bell`](crate::wake_bell)).
//!
//! | module | what it holds |
//! |---|---|
//! | `addresses` | where one upstream is: the addresses that its name has now |
//! | `services` | which servers the records of a service name now |
//! | `connection` | a connection to it, in either version of HTTP |
//! | `stream` | the bytes of that, as they are or sealed by TLS |
//! | `clients` | the clients of TLS, and what is read for them |
//! | `http2` | HTTP/2 to an application or the next stage, as an exchange speaks HTTP/1.1 |
//! | `shared` | connections of HTTP/2 on which many requests are under way at once |
//! | [`sign_in`] | what becomes of a sign-in that counts for a connection |
//! | `tunnels` | WebSockets that are open, and end when the server goes away |
//! | `down` | requests that wait until one takes connections again |
//! | [`offered`] | a pair of sockets of which a receiver gets one end, for a client whose own is of no use to it |
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

/// Upstreams that do the same.
#[derive(Debug)]
pub struct Upstreams {
    number: u64,
    /// What they speak.
    is_fastcgi: bool,
    places: Mutex<Places<Arc<Waiter>>>,
    /// Whether requests have waited when one came or ended last.
    is_waited_for: AtomicBool,
    notices: Mutex<Notices>,
    web_sockets: OpenWebSockets,
    outage: Outage,
    each: Vec<Upstream>,
    services: NamedServices,
    /// Through which they are spoken with; `None` without TLS.
    clients: Option<UpstreamClients>,
}

/// One of them.
#[derive(Debug)]
struct Upstream {
    /// What logs call it.
    label: String,
    /// Host and port, as a request names them.
    authority: String,
    addresses: UpstreamAddresses,
    /// When the head of an answer of it has come last, by the monotonic clock.
    answered_ns: AtomicU64,
    /// A request has failed since its last answer: the next one says something new.
    has_failed: AtomicBool,
    /// Until when it counts as one that closes connections while a request is on its way.
    hasty_until_ms: AtomicU64,
    /// Connections that requests share.
    shared: Arc<SharedConnections>,
    /// What was counted for metrics.
    counts: UpstreamCounts,
}

/// How long an upstream counts as hasty that has closed a connection with a request on it.
const HASTY_MS: u64 = 10_000;

/// How one that waits is told.
#[derive(Debug, Default)]
struct Waiter {
    slot: WakeSlot,
    told: OnceLock<Box<News>>,
}

/// What one that waits is told: whether it is begun, and a connection, if one was passed on. While it waits there is
/// room for no more of that than a pointer.
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

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum SlotOrWait {
    /// It is asked.
    Begun(UpstreamSlot),
    /// It waits.
    Waits(QueueWait),
}

/// A place among what an upstream has under way. Dropped, it is the next one's.
#[derive(Debug)]
pub(crate) struct UpstreamSlot {
    upstreams: Arc<Upstreams>,
    begun: Begun,
    /// What the request is to tell of the upstream when it is over.
    pub(crate) told: HealthSign,
    is_over: bool,
    /// Its connection has become a WebSocket.
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

    /// The upstream has answered: since `now_ns` a head is there, with an error of its own or not. That is told now, for
    /// the rest of the answer may take long, and without a lock where it says nothing new.
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

    /// The head of its answer has this status, and has taken so long.
    pub(crate) fn count_answer(&self, status: u16, head_ns: u64) {
        self.count(|counts| counts.answered(status, head_ns));
    }

    /// A new connection has taken so long.
    pub(crate) fn count_connection(&self, connect_ns: u64) {
        self.count(|counts| counts.connected(connect_ns));
    }

    fn count(&self, what: impl FnOnce(&UpstreamCounts)) {
        if let Some(one) = self.upstreams.each.get(self.begun.member) {
            what(&one.counts);
        }
    }

    /// The upstream has failed, which is why.
    pub(crate) fn fail(&mut self, why: &'static str) {
        self.told = HealthSign::Failed;
        self.count(UpstreamCounts::failed);
        self.upstreams.told().failed(self.begun.member, why, now().ms);
    }

    /// The connection has become a tunnel.
    pub(crate) fn becomes_tunnel(&mut self) {
        if self.begun.becomes_tunnel() {
            self.upstreams.tunnel_opened(self.begun.member);
        }
    }

    /// Its connection has become a WebSocket. The place is to be given back before that is closed.
    pub(crate) fn becomes_web_socket(&mut self, connection: BorrowedFd<'_>) {
        self.web_socket = Some(OpenWebSocket::new(&self.upstreams, connection));
    }

    /// The upstream.
    pub(crate) fn member(&self) -> MemberIndex {
        self.begun.member
    }

    /// The request is over, and another may be sent on its connection: the next one does so, if it goes
    /// to the same upstream. Returns the connection if there is none.
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

/// A request that waits. Dropped, it does no longer.
#[derive(Debug)]
pub(crate) struct QueueWait {
    upstreams: Arc<Upstreams>,
    waiter: Arc<Waiter>,
    bell: WakeBell,
    id: WaiterId,
    is_taken: bool,
}

impl QueueWait {
    /// Where a loop leaves what wakes the request when it is told.
    pub(crate) fn wake_slot(&self) -> &WakeSlot {
        &self.waiter.slot
    }

    /// Becomes readable then, where nothing is in the slot.
    pub(crate) fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        self.bell.socket(&self.waiter.slot)
    }

    /// Whether it could not be told, for want of a descriptor: then it does not wait.
    pub(crate) fn is_deaf(&self) -> bool {
        self.bell.is_deaf()
    }

    /// Whether it was told what has become of it.
    pub(crate) fn is_told(&self) -> bool {
        self.waiter.told.get().is_some()
    }

    /// What it was told, if it was: its place, perhaps with a connection, or that there will be none.
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
        // it was told, and has not looked
        drop(self.take());
    }
}

/// What is to be told of an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamReport {
    /// Its place among the upstreams of its group.
    pub member: MemberIndex,
    /// What logs call it.
    pub label: String,
    /// The server that it is, if it is one of a service.
    pub server: Option<String>,
    /// Whether it is asked.
    pub condition: UpstreamCondition,
    /// Requests under way to it.
    pub in_flight: u32,
    /// How many these may be; `None` for no limit.
    pub most: Option<u32>,
    /// What was learnt of that, where it is learnt.
    pub learnt: Option<LearntReport>,
    /// What was counted of it.
    pub counted: UpstreamTotals,
}

impl UpstreamReport {
    /// By what another process knows it: which place a server of a service has may differ there.
    pub fn name(&self) -> &str {
        self.server.as_deref().unwrap_or(&self.label)
    }
}

fn now() -> Clocks {
    Clocks { ms: clock::coarse_ms(), ns: clock::monotonic_ns() }
}

impl Upstreams {
    /// As the settings say. Names are looked up, which may take its time; one that has no address now may
    /// have one [later](Upstreams::look_up).
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

    /// Takes over other settings, of the same upstreams, and the shares of the classes.
    pub fn set(&self, settings: &settings::GroupSettings, shares: &[f64]) {
        let now = now();
        let mut places = self.places();
        places.set(settings, shares, now.ms);
        tell_all(&mut places, now);
    }

    /// Speaks TLS by what these files say from now on.
    ///
    /// # Errors
    /// Some upstream's name is none that a certificate could be for.
    pub fn speak_by(&self, files: &UpstreamTlsFiles) -> Result<(), ClientError> {
        let to = self.each.iter().map(|one| one.addresses.named());
        self.clients.as_ref().map_or(Ok(()), |clients| clients.set(files, to))
    }

    /// What is launched is launched by the process at the other end of this socket.
    pub fn launch_by(&self, launcher: &Arc<MessageSocket>) {
        self.each.iter().for_each(|one| one.addresses.launch_by(launcher));
    }

    /// What is under way and what waits is counted together with other processes from now on. Others that are reached
    /// at the same addresses are counted for themselves: `seen` says how many there were.
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
            // which server of a service has which place is another process's own affair
            let is_fixed = !matches!(one.addresses.named(), UpstreamAddress::Service(_));
            is_fixed.then(|| count(label)).flatten()
        });
        let members: Vec<_> = members.collect();
        self.places().share(members, queue);
    }

    /// Whether these are upstreams at those addresses.
    pub fn are(&self, to: &[UpstreamAddress], is_fastcgi: bool) -> bool {
        self.is_fastcgi == is_fastcgi && self.each.iter().map(|one| one.addresses.named()).eq(to)
    }

    /// Whether others speak the same.
    pub fn speak_as(&self, other: &Upstreams) -> bool {
        self.is_fastcgi == other.is_fastcgi
    }

    /// No others have it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn places(&self) -> MutexGuard<'_, Places<Arc<Waiter>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an operator is to be told of them now: of which, and what.
    pub fn notices(&self) -> Vec<(String, String)> {
        let (seen, now_ms) = (self.seen(), now().ms);
        let mut notices = self.told();
        let next = seen.into_iter().filter_map(|seen| {
            Some((seen.label, notices.next(seen.member, seen.condition, now_ms)?))
        });
        self.services.notices().into_iter().chain(next).collect()
    }

    /// A request comes, or one that was asked elsewhere comes again.
    ///
    /// # Errors
    /// Why it is not asked.
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
            // a request that waits can be told
            (Placement::Waits(_), None) => return Err(Unavailable::Full),
        })
    }

    /// Whether others wait, so that a request that comes will most likely have to.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::Relaxed)
    }

    /// This one answers, after requests that have failed.
    fn tell_head(&self, member: MemberIndex) {
        let now = now();
        let mut places = self.places();
        self.note_failed(member, false);
        places.group_mut().told(member, HealthSign::Head, now.ms);
        tell_all(&mut places, now);
    }

    /// What was told of it last; `places` are locked.
    fn note_failed(&self, member: MemberIndex, has_failed: bool) {
        if let Some(one) = self.each.get(member) {
            one.has_failed.store(has_failed, Ordering::Relaxed);
        }
    }

    /// Returns the connection that none has taken.
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

    /// Ends the WebSockets that are open, because the server goes away: their clients are told so. Says how many there
    /// were.
    pub fn end_web_sockets(&self) -> usize {
        self.web_sockets.end()
    }

    /// Whether WebSockets end because the server goes away.
    pub(crate) fn end_of_web_sockets(&self) -> bool {
        self.web_sockets.are_ending()
    }

    /// When this one has answered a request last, by the monotonic clock; 0 if never.
    pub(crate) fn last_answer_ns(&self, member: MemberIndex) -> u64 {
        self.each.get(member).map_or(0, |one| one.answered_ns.load(Ordering::Relaxed))
    }

    /// This one has closed a connection that had waited, with a request on its way.
    pub(crate) fn was_hasty(&self, member: MemberIndex, now_ms: u64) {
        if let Some(one) = self.each.get(member) {
            one.hasty_until_ms.store(now_ms + HASTY_MS, Ordering::Relaxed);
        }
    }

    /// Whether it has done so lately. Then no request that cannot be repeated is sent on a connection that
    /// has waited.
    pub(crate) fn is_hasty(&self, member: MemberIndex, now_ms: u64) -> bool {
        self.each.get(member).is_some_and(|one| now_ms < one.hasty_until_ms.load(Ordering::Relaxed))
    }

    /// What may have come by the passing of time: one that was out is asked again.
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

    /// An upstream that is to be asked whether it is well; the answer is [told](Upstreams::checked).
    pub(crate) fn begin_check(&self, now_ms: u64) -> Option<MemberIndex> {
        self.places().group_mut().begin_check(now_ms)
    }

    /// A check has failed, which is why.
    pub(crate) fn check_failed(&self, member: MemberIndex, why: &'static str) {
        self.told().check_failed(member, why);
    }

    pub(crate) fn checked(&self, member: MemberIndex, is_good: bool, now_ms: u64) {
        let mut places = self.places();
        places.group_mut().checked(member, is_good, now_ms);
        tell_all(&mut places, now());
    }

    /// Takes one out, or back in: no request goes to one that is out, and those under way come to their
    /// end.
    pub fn drain(&self, member: MemberIndex, is_draining: bool) {
        let now = now();
        let mut places = self.places();
        places.group_mut().drain(member, is_draining, now.ms);
        tell_all(&mut places, now);
    }

    /// What is known of each, but for places of services that no server has.
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

    /// How many requests wait: for a place, or until one takes connections again.
    pub fn waiting(&self) -> usize {
        self.places().waiting() + self.outage.waiting()
    }

    /// Connections that requests share.
    pub fn shared_connections(&self) -> SharedConnectionCounts {
        let each = self.each.iter().map(|one| one.shared.counts());
        each.fold(SharedConnectionCounts::default(), SharedConnectionCounts::and)
    }

    /// One takes connections.
    #[inline]
    pub(crate) fn is_reached(&self) {
        self.outage.end();
    }

    /// Whether a request lacks a place that one of this rank has.
    pub(crate) fn is_short(&self, rank: u8) -> bool {
        self.places().is_short(rank, now())
    }

    /// One has said how many requests it can work on at once, or no longer does.
    pub fn has_workers(&self, member: MemberIndex, count: Option<u32>) {
        let now = now();
        let mut places = self.places();
        places.group_mut().has_workers(member, count, now.ns);
        tell_all(&mut places, now);
    }

    /// Another process has learnt how many requests are useful for those that have this name: that is where they begin here.
    pub fn begin_with(&self, name: &str, held: u32) {
        let now = now();
        for seen in self.seen().into_iter().filter(|seen| seen.name() == name) {
            let mut places = self.places();
            places.group_mut().begin_with(seen.member, held, now.ns);
            tell_all(&mut places, now);
        }
    }

    /// A connection to one has become a tunnel, which takes no place of requests where these are learnt.
    fn tunnel_opened(&self, member: MemberIndex) {
        let now = now();
        let mut places = self.places();
        places.group_mut().tunnel(member, true);
        tell_all(&mut places, now);
    }

    /// How many may be under way at once; `None` for no limit.
    pub fn places_at_once(&self) -> Option<u32> {
        self.places().group().places()
    }

    /// Since when the oldest of a rank waits, in nanoseconds of the clock that never goes back.
    pub fn waits_since(&self, rank: u8) -> Option<u64> {
        self.places().waits_since(rank)
    }

    /// What was counted of a rank.
    pub fn counts(&self, rank: u8) -> QueueCounts {
        self.places().counts(rank)
    }

    /// So much of a rank may wait and be under way; `None` for no limit. A request that is refused is told
    /// `retry_after_s`.
    pub fn limit(&self, rank: u8, most: Option<u32>, retry_after_s: u32) {
        self.places().limit(rank, most, retry_after_s);
    }

    /// Looks up the addresses of names again. One that is not found keeps those it had.
    pub fn look_up(&self) {
        self.each.iter().for_each(|upstream| upstream.addresses.look_up());
    }

    /// Looks up the records of services whose time to live is over. What is not found stays.
    pub fn look_up_services(&self) {
        let is_free = |member| self.places().group().in_flight(member) == 0;
        let changes = self.services.look_up(now().ms, is_free);
        if changes.is_empty() {
            return;
        }
        // those that are new are asked before those that are gone are not
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

    /// This server of a service has this place now.
    fn lead_to(&self, member: MemberIndex, server: Option<(Box<str>, u16)>) {
        let Some(one) = self.each.get(member) else { return };
        one.addresses.lead_to(server);
        one.addresses.look_up();
        one.has_failed.store(false, Ordering::Relaxed);
    }

    /// What logs call an upstream.
    pub fn label(&self, member: MemberIndex) -> &str {
        self.each.get(member).map_or("", |upstream| &upstream.label)
    }

    /// Host and port of an upstream, as a request names them.
    pub fn authority(&self, member: MemberIndex) -> &str {
        self.each.get(member).map_or("", |upstream| &upstream.authority)
    }

    /// Begins to connect to an upstream, at none of the addresses in `refused` if there are others. Through TLS HTTP/2
    /// is offered if that `is_http2`, and HTTP/1.1 else.
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

    /// The same connection through TLS, if that is spoken with them.
    pub(crate) fn seal(
        &self,
        member: MemberIndex,
        is_http2: bool,
        connection: UpstreamConnection,
    ) -> io::Result<UpstreamConnection> {
        // those of this machine at Unix sockets are spoken with as they are
        let is_unix = |one: &Upstream| matches!(one.addresses.named(), UpstreamAddress::Unix(_));
        match self.clients.as_ref().filter(|_| !self.each.get(member).is_some_and(is_unix)) {
            Some(clients) => clients.begin(member, is_http2, connection),
            None => Ok(connection),
        }
    }

    /// This connection has not come about. Says whether the upstream has another address that takes
    /// connections, as far as is known, and is none of those in `refused`, to which this one's is added.
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

    /// Whether a connection that was kept leads to where the upstream is now, and is sealed by what is known now.
    pub(crate) fn is_current(&self, member: MemberIndex, connection: &UpstreamConnection) -> bool {
        self.leads(member, connection.address(), connection.clients())
    }

    /// The same of one that leads to this address, with a session that clients of this number have begun.
    pub(crate) fn leads(
        &self,
        member: MemberIndex,
        address: Option<SocketAddr>,
        clients: Option<u64>,
    ) -> bool {
        self.each.get(member).is_some_and(|one| one.addresses.have(address))
            && self.clients.as_ref().is_none_or(|known| known.have_begun(clients))
    }

    /// The connections to this one that requests share.
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
