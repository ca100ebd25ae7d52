//! The handler, in five roles: which requests are served, what the answer is, where its bytes are, what
//! is logged, and what else happens on a loop.
//!
//! | module | what it holds |
//! |---|---|
//! | `admission` | which requests are served, and in which order |
//! | `process` | what the answer is |
//! | `place` | which requests wait for a place among those at once of their rule |
//! | `hand_over` | offers of requests to receivers, and what they lead to |
//! | `inside` | requests to handlers of the program, and their answers |
//! | `passed_on` | connections whose bytes are passed on as they are |
//! | `relay` | requests to applications and the next stage, and their answers |
//! | `turn` | the request to an application, made once more if it has waited for its turn |
//! | `authority` | the answers of servers that decide |
//! | `given` | offers of answers to the kernel, and the answers that it has given |
//! | `context` | the client of a request, for rules of a site that depend on it |
//! | `bodies` | where the bytes of an answer are |
//! | `journal` | what is logged |
//! | `refused` | the memory of refusals, and the ids that clients get |
//! | `traced` | which requests are recorded, and the content of their spans |
//! | `sighting` | which requests and connections are counted for the page of the admin listener |

mod admission;
mod authority;
mod bodies;
mod context;
mod given;
mod hand_over;
mod inside;
mod journal;
mod passed_on;
mod place;
mod process;
mod refused;
mod relay;
mod sighting;
mod traced;
mod turn;

use self::context::ToldName;
use crate::applications::{Applications, Pools};
use crate::certificates::Certificates;
use crate::client::TrustedProxies;
use crate::detour::Detour;
use crate::job::ServerJob;
use crate::kernel_answers::learner::Learner;
use crate::live::{LiveSnapshot, ServingSnapshot};
use crate::log::Logger;
use crate::log::request_id::RequestIds;
use crate::policy::{ConnectionRecord, InForce, Judge, Ticket, WindowPoint};
use crate::refusals::RefusalMemory;
use crate::sightings::Sighter;
use crate::traces::Tracer;
use crate::traces::open::ProcessTimes;
use crate::upstream_sockets::UpstreamSockets;
use crate::upstream_threads::ThreadShare;
use forebay_conn::{
    ConnectionLimits, HandedOver, Handler, HandlerTypes, Hooks, Http, Listening, SocketId, TurnTime,
};
use forebay_control::versioned::Reader;
use forebay_metrics::Local;
use forebay_site::{Body, Site};
use forebay_tls::Channel;
pub use journal::JournalLine;
use refused::Refused;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The kind of listeners where TLS is spoken.
pub const TLS: Listening = Listening(1);

/// The kind of listeners where nothing is spoken: connections are passed on as they are.
pub const RAW: Listening = Listening(2);

/// The handler of one loop or thread.
pub struct RequestHandler {
    /// The snapshot in force; the fields below are made from it.
    live: Reader<Arc<ServingSnapshot>>,
    site: Site,
    logger: Logger,
    trusted: Arc<TrustedProxies>,
    certificates: Arc<Certificates>,
    applications: Arc<Applications>,
    /// Connections to applications that wait for their next request.
    pools: Pools,
    /// The limits of descriptors for requests to applications.
    sockets: UpstreamSockets,
    /// The permits to keep a thread for a request, where each connection keeps one.
    thread: Option<ThreadShare>,
    ids: RequestIds,
    /// The memory of refusals.
    refusals: Arc<RefusalMemory>,
    /// The counter of the clients that ask most, where a page shows that.
    sighter: Option<Sighter>,
    /// The tracer, which decides which requests are recorded, where spans go to a collector.
    tracer: Option<Tracer>,
    /// The clock as it was read a moment ago, for the request that is about to be judged; 0 if it was not
    /// read.
    ticked_ns: u64,
    /// When processing of the current request began, where spans go to a collector.
    processed: ProcessTimes,
    /// The refusal of the current request, whose log line is about to be begun.
    refused: Option<Refused>,
    told: ToldName,
    /// Room for the head of an answer.
    head: Vec<u8>,
    policy: Arc<InForce>,
    /// The loop's judge; `None` if there is no policy.
    judge: Option<Judge>,
    /// When requests enter the windows of their classes.
    window_point: WindowPoint,
    metrics: Arc<Local>,
    /// The learner of answers that the kernel gives, where it gives any.
    answers: Option<Arc<Learner>>,
    /// The number of paths that the site's own table has room for.
    paths: usize,
    now: TurnTime,
}

impl RequestHandler {
    /// A handler that serves the snapshot in force. The loop's own table has room for about `paths`
    /// paths.
    pub fn new(
        live: &Arc<LiveSnapshot>,
        metrics: Arc<Local>,
        paths: usize,
        window_point: WindowPoint,
        pools: Pools,
        sockets: UpstreamSockets,
        now: TurnTime,
    ) -> RequestHandler {
        let (live, snapshot) = live.reader();
        let mut site = Site::new(Arc::clone(&snapshot.content), Arc::clone(&metrics), now, paths);
        let answers = snapshot.answers.clone();
        site.note_hot(answers.is_some());
        let logger = snapshot.logs.logger(Arc::clone(&metrics));
        let trusted = Arc::clone(&snapshot.trusted);
        let certificates = Arc::clone(&snapshot.certificates);
        let applications = Arc::clone(&snapshot.applications);
        let policy = Arc::clone(&snapshot.policy);
        let judge = Judge::new(&policy, &snapshot.bans, &metrics, window_point);
        RequestHandler {
            live,
            site,
            answers,
            logger,
            trusted,
            certificates,
            applications,
            pools,
            sockets,
            thread: None,
            ids: RequestIds::default(),
            refusals: Arc::clone(&snapshot.refusals),
            sighter: snapshot.sightings.sighter(),
            tracer: snapshot.traces.tracer(),
            ticked_ns: 0,
            processed: ProcessTimes::default(),
            refused: None,
            told: ToldName::default(),
            head: Vec::new(),
            policy,
            judge,
            window_point,
            metrics,
            paths,
            now,
        }
    }

    /// Adds the permits of a thread that serves one connection at a time.
    pub fn with_thread(self, thread: ThreadShare) -> RequestHandler {
        RequestHandler { thread: Some(thread), ..self }
    }

    /// Takes over another snapshot. Nothing that is still being sent depends on the one before: bodies
    /// that outlive a turn are [held](Bodies::hold). If the content stays, this loop or thread keeps what
    /// it knows of it: paths and credentials.
    #[cold]
    fn take_over(&mut self, snapshot: &ServingSnapshot) {
        if !self.site.serves(&snapshot.content) {
            let (content, metrics) = (Arc::clone(&snapshot.content), Arc::clone(&self.metrics));
            self.site = Site::new(content, metrics, self.now, self.paths);
        } else {
            self.site.take_pages();
        }
        self.answers.clone_from(&snapshot.answers);
        self.site.note_hot(self.answers.is_some());
        self.logger.update(&snapshot.logs);
        self.trusted = Arc::clone(&snapshot.trusted);
        self.certificates = Arc::clone(&snapshot.certificates);
        self.applications = Arc::clone(&snapshot.applications);
        self.policy = Arc::clone(&snapshot.policy);
        if self.sighter.is_some() != snapshot.sightings.is_on() {
            self.sighter = snapshot.sightings.sighter();
        }
        self.tracer = snapshot.traces.tracer();
        self.judge = Judge::new(&self.policy, &snapshot.bans, &self.metrics, self.window_point);
    }

    #[inline]
    fn keep_up(&mut self) {
        if let Some(snapshot) = self.live.newer() {
            self.take_over(&snapshot);
        }
    }
}

impl HandlerTypes for RequestHandler {
    type Body = Body;
    type Job = ServerJob;
    type Relay = Detour;
    type Line = JournalLine;
    /// The ticket of a request; `None` where there is no policy.
    type Ticket = Option<Ticket>;
    type Record = ConnectionRecord;
}

impl Handler for RequestHandler {
    type Protocol = Http<RequestHandler>;
    type Transport = Channel;

    fn transport(&mut self, listening: Listening, local: SocketAddr) -> Channel {
        self.keep_up();
        let routes = self.applications.pass_routes();
        match listening {
            TLS => Channel::undecided(routes, Some(&self.certificates.identities), local),
            RAW => Channel::undecided(routes, None, local),
            _ => Channel::Plain,
        }
    }

    fn protocol(&mut self, transport: &Channel, limits: &ConnectionLimits) -> Http<RequestHandler> {
        match transport {
            Channel::Passed(passed) => {
                let (name, port) = passed.wanted();
                Http::passed_on(&name, port)
            }
            _ if transport.is_for_http2() => Http::two(limits),
            _ => Http::default(),
        }
    }
}

impl Hooks for RequestHandler {
    /// Drops what is left of the connection here: the receiver has it for good, and its request was settled
    /// when it was taken.
    fn hand_over(
        &mut self,
        handed: HandedOver<Option<Ticket>>,
    ) -> Result<(), HandedOver<Option<Ticket>>> {
        drop(handed);
        Ok(())
    }

    #[inline]
    fn turn(&mut self, now: TurnTime) {
        self.now = now;
        self.keep_up();
        self.site.turn(now);
        self.logger.turn(now.unix_ms);
        self.pools.look(now.monotonic_ms);
    }

    fn pause(&mut self) -> Option<Duration> {
        self.judge.as_mut().and_then(|judge| judge.pause(self.now.monotonic_ms))
    }

    fn stirred(&mut self, socket: SocketId) {
        self.pools.stirred(socket, self.now.monotonic_ms);
    }

    fn rest(&mut self) {
        self.site.rest();
        self.logger.flush();
    }
}

/// Ends the work that a window counts: the answer is ready, or another party makes it.
#[inline]
fn end_work(ticket: &mut Option<Ticket>) {
    if let Some(ticket) = ticket {
        ticket.end();
    }
}
