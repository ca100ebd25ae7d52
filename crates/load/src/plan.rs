//! The settings of a run: groups of clients, each with its load, its requests and its limits.

use crate::arrivals::Arrivals;
use crate::mix::Mix;
use crate::target::{LoadTarget, host};
use forebay_http2::by_id::MOST_STREAMS;
use forebay_tls::Versions;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// The measured time; the warm-up comes before it.
    pub duration: Duration,
    /// How long load is made before it is measured.
    pub warmup: Duration,
    /// How long the run waits for answers after the end.
    pub drain: Duration,
    /// The length of one point of the series over time; `None`: about 150 points.
    pub interval: Option<Duration>,
    /// Threads that share all groups; each has its own loop.
    pub threads: usize,
    /// The cores to which the threads are bound, in turn; empty: not bound.
    pub cores: Vec<usize>,
    /// The wait for an arrival below which a thread spins rather than sleeps: exact, but it takes CPU time,
    /// which is reported. A sleep and its wake-up cost 20 µs and more on virtual machines. A thread that
    /// finds its core shared sleeps all the same.
    pub spin: Duration,
    /// The seed of everything random.
    pub seed: u64,
    /// The groups of clients that make the load; at least one.
    pub groups: Vec<ClientGroup>,
}

impl Default for LoadPlan {
    fn default() -> LoadPlan {
        LoadPlan {
            duration: Duration::from_secs(10),
            warmup: Duration::ZERO,
            drain: Duration::from_secs(5),
            interval: None,
            threads: 1,
            cores: Vec::new(),
            spin: Duration::from_micros(100),
            seed: 1,
            groups: Vec::new(),
        }
    }
}

/// A group of clients with the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientGroup {
    /// The name of the group in every result.
    pub name: String,
    /// The server.
    pub target: LoadTarget,
    /// The closed or open loop.
    pub load: LoadModel,
    /// The paths that are requested.
    pub mix: Mix,
    /// The method, if one is configured; answers to `HEAD` have no body.
    pub method: Option<String>,
    /// Header lines added to every request, without their line ends.
    pub headers: Vec<String>,
    /// The body of every request, sent with its length; `None`: neither a body nor a length.
    pub body: Option<Vec<u8>>,
    /// The number of requests in the measured time, after which the group is over; `None`: any number.
    pub requests: Option<u64>,
    /// The HTTP version of the requests.
    pub version: StatedVersion,
    /// The number of requests that a connection carries.
    pub per_connection: RequestsPerConnection,
    /// The number of requests under way at once on one connection of HTTP/1.
    pub pipeline: u32,
    /// The number of requests under way at once on one connection of HTTP/2, if the server allows as many.
    pub streams: u32,
    /// The TLS settings, if the target's URL is `https`.
    pub tls: TlsSettings,
    /// When the group begins, after the start of the run (warm-up included).
    pub from: Duration,
    /// When the group stops making new requests; `None`: at the end of the run.
    pub until: Option<Duration>,
    /// The longest time for an answer, connection included.
    pub timeout: Duration,
    /// The longest time for a connection, TLS handshake included.
    pub connect_timeout: Duration,
    /// The time, from a request's intended start, within which an answer counts as goodput.
    pub within: Option<Duration>,
    /// The highest rate at which a connection receives, in bytes per second.
    pub receive: Option<f64>,
    /// The receive buffer of a socket, in bytes; `None`: 16 KiB with `receive`, otherwise the kernel's
    /// default.
    pub receive_buffer_bytes: Option<usize>,
    /// The local addresses of its connections.
    pub source: ClientAddresses,
    /// The conditions of a good answer.
    pub check: ResponseCheck,
    /// How long a connection stays open and silent after its last request.
    pub hold: Duration,
    /// How long a closed-loop client waits after a failure before it tries again: drawn anew each time,
    /// uniform between both.
    pub pause: RangeInclusive<Duration>,
}

/// How requests are generated.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadModel {
    /// Clients that send a request, wait for the answer, think, and send the next.
    Closed {
        /// The number of clients; each has one connection at a time.
        connections: u32,
        /// How long a client thinks, uniform between both.
        think: RangeInclusive<Duration>,
        /// The time over which the clients begin, evenly.
        ramp: Duration,
    },
    /// Requests that are due at given times, whatever the answers do. With
    /// [`RequestsPerConnection::Unlimited`] an arrival is a request on any free connection; otherwise it is a
    /// new connection with its requests one after the other, as in httperf.
    Open {
        /// The times at which requests are due.
        arrivals: Arrivals,
        /// The largest number of connections open at once; arrivals wait when all are taken.
        connections: u32,
    },
}

/// The HTTP version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedVersion {
    /// HTTP/1.0; a kept connection is requested with `Connection: keep-alive`.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2: agreed on in the TLS handshake, or by prior knowledge.
    Http2,
}

/// The TLS settings of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// The certificates of the trusted authorities, in PEM; `None`: those of this machine.
    pub roots: Option<Vec<u8>>,
    /// The TLS versions that are offered.
    pub versions: Versions,
    /// Whether a client resumes the session of its last connection; otherwise each handshake is a full one.
    pub resume: bool,
    /// Whether X25519 with ML-KEM is offered first, as new browsers do; otherwise X25519 is.
    pub post_quantum: bool,
}

impl Default for TlsSettings {
    fn default() -> TlsSettings {
        TlsSettings {
            insecure: false,
            roots: None,
            versions: Versions::Both,
            resume: true,
            post_quantum: true,
        }
    }
}

/// The number of requests that a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestsPerConnection {
    /// As many as the server allows.
    Unlimited,
    /// Exactly this number; the last request has `Connection: close`.
    Exactly(u32),
    /// As in SPECweb99: 30 % of the connections carry one HTTP/1.0 request, the others 5 to 15 HTTP/1.1
    /// requests.
    Specweb99,
}

/// The local addresses and ports of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAddresses {
    /// Addresses used in turn; empty: the kernel chooses.
    pub addresses: Vec<IpAddr>,
    /// Ports used in turn, skipping those in use; `None`: the kernel chooses.
    pub ports: Option<RangeInclusive<u16>>,
}

/// The conditions of a good answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseCheck {
    /// The status; `None`: any below 400.
    pub status: Option<u16>,
    /// The length of the body in bytes; `None`: the length in the mix, or any.
    pub length_bytes: Option<u64>,
    /// The condition on the body's content.
    pub body: BodyCheck,
}

/// A condition on a body's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyCheck {
    /// Any content.
    #[default]
    Any,
    /// This CRC-32 (as in zip and gzip).
    Crc32(u32),
    /// The same content and length as the first answer to the same path on this thread.
    Same,
}

impl ClientGroup {
    /// A group of one client that requests the target's path over and over.
    pub fn new(name: &str, target: LoadTarget) -> ClientGroup {
        ClientGroup {
            name: name.to_owned(),
            load: LoadModel::Closed {
                connections: 1,
                think: Duration::ZERO..=Duration::ZERO,
                ramp: Duration::ZERO,
            },
            mix: Mix::one(&target.path),
            target,
            method: None,
            headers: Vec::new(),
            body: None,
            requests: None,
            version: StatedVersion::Http11,
            per_connection: RequestsPerConnection::Unlimited,
            pipeline: 1,
            streams: 1,
            tls: TlsSettings::default(),
            from: Duration::ZERO,
            until: None,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            within: None,
            receive: None,
            receive_buffer_bytes: None,
            source: ClientAddresses::default(),
            check: ResponseCheck::default(),
            hold: Duration::ZERO,
            pause: Duration::from_millis(10)..=Duration::from_millis(10),
        }
    }

    /// The configured method; without one, POST if there is a body and GET otherwise.
    pub fn method(&self) -> &str {
        match (&self.method, &self.body) {
            (Some(method), _) => method,
            (None, Some(_)) => "POST",
            (None, None) => "GET",
        }
    }

    /// The value of `Host`, or of `:authority`. A configured `Host` stands for a virtual host of the target.
    pub fn authority(&self) -> &str {
        let given = self.headers.iter().filter_map(|line| line.split_once(':'));
        let mut hosts = given.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
        hosts.next().map_or(&*self.target.authority, |(_, host)| host.trim())
    }

    /// The name, or address, for which the server must have a certificate.
    pub fn server_name(&self) -> &str {
        host(self.authority())
    }

    /// The largest number of requests under way at once on one connection.
    pub(crate) fn at_once(&self) -> usize {
        (if self.version == StatedVersion::Http2 { self.streams } else { self.pipeline }) as usize
    }

    /// Whether the group is an open loop.
    pub fn is_open(&self) -> bool {
        matches!(self.load, LoadModel::Open { .. })
    }

    /// The largest number of connections that the group has open at once.
    pub fn connections(&self) -> u32 {
        match self.load {
            LoadModel::Closed { connections, .. } | LoadModel::Open { connections, .. } => {
                connections
            }
        }
    }

    /// The times between which the group is active, in nanoseconds after the start of the run.
    pub(crate) fn active_ns(&self, plan: &LoadPlan) -> (u64, u64) {
        let end = plan.warmup + plan.duration;
        let until = self.until.map_or(end, |until| until.min(end));
        (self.from.as_nanos() as u64, until.as_nanos() as u64)
    }
}

/// Why a plan cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The plan has no group.
    NoGroup,
    /// The plan has no thread.
    NoThread,
    /// Two groups have the same name.
    SameName(String),
    /// The run, or a group, has no length.
    NoTime(String),
    /// A group has no connections.
    NoConnection(String),
    /// Two settings of a group exclude each other.
    Conflict {
        /// The group.
        group: String,
        /// The two settings, and why they exclude each other.
        what: &'static str,
    },
    /// No connection can come from an address of `source`.
    Source {
        /// The group.
        group: String,
        /// The address.
        address: IpAddr,
        /// The reason.
        why: String,
    },
    /// The generator may not run on a core of the plan.
    Core {
        /// The number of the core.
        core: usize,
        /// The cores on which it may run.
        allowed: Vec<usize>,
    },
    /// The groups need more connections than descriptors are allowed.
    Descriptors {
        /// The largest number that the groups need.
        needed: u64,
        /// The number that the process may open.
        limit: u64,
    },
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PlanError::NoThread => write!(f, "a run needs a thread"),
            PlanError::NoGroup => write!(f, "there is nobody to make load"),
            PlanError::SameName(name) => write!(f, "two groups are called {name}"),
            PlanError::NoTime(name) => write!(f, "{name}: it ends before it begins"),
            PlanError::NoConnection(name) => write!(f, "{name}: no connections"),
            PlanError::Conflict { group, what } => write!(f, "{group}: {what}"),
            PlanError::Source { group, address, why } => {
                write!(f, "{group}: no connection can come from {address} (`source`): {why}")
            }
            PlanError::Core { core, allowed } => {
                let allowed: Vec<_> = allowed.iter().map(usize::to_string).collect();
                write!(f, "there is no core {core} for it; there are {}", allowed.join(", "))
            }
            PlanError::Descriptors { needed, limit } => write!(
                f,
                "{needed} connections need more descriptors than the {limit} this process may \
                 open; raise `ulimit -n` or lower `connections`"
            ),
        }
    }
}

impl LoadPlan {
    /// Checks whether the plan can be run.
    ///
    /// # Errors
    /// The first error of the plan.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.groups.is_empty() {
            return Err(PlanError::NoGroup);
        }
        if self.threads == 0 {
            return Err(PlanError::NoThread);
        }
        if self.duration.is_zero() {
            return Err(PlanError::NoTime("the run".to_owned()));
        }
        for (place, group) in self.groups.iter().enumerate() {
            if self.groups[..place].iter().any(|other| other.name == group.name) {
                return Err(PlanError::SameName(group.name.clone()));
            }
            let (from_ns, until_ns) = group.active_ns(self);
            if from_ns >= until_ns {
                return Err(PlanError::NoTime(group.name.clone()));
            }
            if group.connections() == 0 {
                return Err(PlanError::NoConnection(group.name.clone()));
            }
            if let LoadModel::Closed { ramp, .. } = &group.load
                && ramp.as_nanos() as u64 > until_ns - from_ns
            {
                let (group, what) = (group.name.clone(), RAMP_TOO_LONG);
                return Err(PlanError::Conflict { group, what });
            }
            if let Some(what) = group.conflict() {
                return Err(PlanError::Conflict { group: group.name.clone(), what });
            }
        }
        Ok(())
    }
}

impl LoadPlan {
    /// Whether the run is over after a number of requests, rather than a time.
    pub(crate) fn is_counted(&self) -> bool {
        !self.groups.is_empty() && self.groups.iter().all(|group| group.requests.is_some())
    }

    /// The length of an interval: a round one that gives at most 150 intervals.
    pub(crate) fn interval_length(&self) -> Duration {
        const ROUND_MS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
        let least = self.duration / 150;
        let round = ROUND_MS.into_iter().map(Duration::from_millis).find(|round| *round >= least);
        // an interval shorter than 10 ms has no meaning, and its bookkeeping costs more than requests do
        // the duration of such a run is not known
        let round = if self.is_counted() { Some(COUNTED_INTERVAL) } else { round };
        self.interval.or(round).unwrap_or(least).max(Duration::from_millis(10))
    }
}

/// The interval of a run that ends after a number of requests.
const COUNTED_INTERVAL: Duration = Duration::from_secs(1);

/// The message for a ramp in which some clients would never begin.
const RAMP_TOO_LONG: &str = "`ramp` takes longer than the group is there: its last clients \
    would never begin";

/// Header fields of connections, which HTTP/2 does not have.
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// The number of pipelined requests in one write above which more are of no use.
const MOST_PIPELINED: u32 = 1024;

impl ClientGroup {
    fn conflict(&self) -> Option<&'static str> {
        let unlimited = self.per_connection == RequestsPerConnection::Unlimited;
        if self.receive.is_some() && self.pipeline > 1 {
            return Some("a paced connection cannot pipeline: `receive` excludes `pipeline`");
        }
        if self.is_open() && unlimited && self.pipeline > 1 {
            return Some("an open loop pipelines only with `per_connection`");
        }
        if self.is_open() && unlimited && !self.hold.is_zero() {
            return Some("`hold` in an open loop needs `per_connection`");
        }
        if let Some(what) = self.conflict_of_versions() {
            return Some(what);
        }
        if self.pipeline > MOST_PIPELINED {
            return Some("`pipeline` is at most 1024");
        }
        let least = self.pipeline.min(self.streams);
        if least == 0 || self.per_connection == RequestsPerConnection::Exactly(0) {
            return Some("`pipeline`, `streams` and `per_connection` are at least 1");
        }
        None
    }

    fn conflict_of_versions(&self) -> Option<&'static str> {
        if !self.target.is_tls && self.tls != TlsSettings::default() {
            return Some(
                "`ca`, `insecure`, `tls`, `resume` and `post_quantum` need an https:// URL",
            );
        }
        if self.tls.insecure && self.tls.roots.is_some() {
            return Some("`insecure` takes any certificate, and excludes `ca`");
        }
        if self.version != StatedVersion::Http2 {
            let what = "`streams` needs HTTP/2: `http=2`, or --http2";
            return (self.streams > 1).then_some(what);
        }
        if self.pipeline > 1 {
            return Some("HTTP/2 has `streams` where HTTP/1 has a `pipeline`");
        }
        if self.per_connection == RequestsPerConnection::Specweb99 {
            return Some(
                "SPECweb99's connections are of HTTP/1: `http=2` needs another `per_connection`",
            );
        }
        if self.streams > MOST_STREAMS {
            return Some("`streams` is at most 16384");
        }
        let names = self.headers.iter().filter_map(|line| Some(line.split_once(':')?.0));
        let mut forbidden = names
            .filter(|name| OF_CONNECTIONS.iter().any(|known| name.eq_ignore_ascii_case(known)));
        forbidden.next().map(|_| "HTTP/2 has no fields about the connection (RFC 9113 §8.2.2)")
    }
}
