//! The plan: a configuration resolved for this machine, as settings of every part,
//! with no decision left open.

use crate::machine::{own_addresses, script_root};
use crate::seal;
use forebay_config::choice::Switch;
use forebay_config::listener::{MOST_THREADS, POOL_THREADS};
use forebay_config::{
    AdminConfig, AllocateBy, ClassConfig, Config, KeepAliveLaw, ListenEndpoint, ListenerConfig,
    PageAddresses, ProtectConfig, ProxyConfig, Role, TcpConfig,
};
use forebay_conn::{ConnectionLimits, PassRoutes};
use forebay_control::allocation::{self, Law};
use forebay_control::keep_alive::{KeepAlive, Shape};
use forebay_engine::Engine;
use forebay_engine::helpers::HelperThreads;
use forebay_engine::pipeline::{self, Fuse};
use forebay_engine::ranks;
use forebay_engine::settings::{EngineSettings, Timeouts};
use forebay_handler::policy::PolicySettings;
use forebay_handler::policy::enforced::ProtectedServer;
use forebay_handler::upstream_sockets::SocketLimits;
use forebay_http::head::HeadLimits;
use forebay_policy::{Policy, PolicyError};
use forebay_sys::{memory, process, threads};
use forebay_upstream::settings::ApplicationSettings;
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

mod descriptors;

use descriptors::DescriptorShares;

/// Descriptors for neither clients nor files: listeners, epoll, eventfds, logs, libraries.
const OWN_DESCRIPTORS: u64 = 64;

/// The largest number of pipes that hold bodies on their way without a copy; each takes two descriptors.
const MOST_PIPES: u64 = 256;

/// The largest number of connections that linger at the same time, of all loops together.
const MOST_LINGERING: u64 = 1024;

/// The largest number of connections of the admin listener, which has few clients, and of its
/// refused connections that linger. Their descriptors are reserved, used or not: clients that fill
/// the admin listener take nothing from the sites.
const MOST_ADMIN_CONNECTIONS: u64 = 64;
const ADMIN_LINGERING: u64 = 8;

/// The part of the memory that the data cache takes unless configured, as a divisor; its largest
/// size then; and the part for answers on their way, as a divisor.
const CACHE_SHARE: u64 = 4;
const MOST_CACHE_BYTES: u64 = 256 << 20;
const IN_FLIGHT_SHARE: u64 = 8;

/// The least memory that a thread takes in the kernel and here, for stacks, page tables and a worker; and
/// the part of the memory for threads, as a divisor. More threads would leave no memory to work with.
const THREAD_BYTES: u64 = 96 * 1024;
const THREADS_SHARE: u64 = 2;

/// The number of directories that are held open to serve files from: roots and aliases, each once.
fn directories(config: &Config) -> u64 {
    let roots = config.sites.iter().filter_map(|site| site.root.as_ref());
    let aliases = config.sites.iter().flat_map(|site| site.aliases.iter().map(|alias| &alias.to));
    roots.chain(aliases).collect::<HashSet<_>>().len() as u64
}

/// A group of workers: an engine on its listeners.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// The addresses of the listener.
    pub listen: Vec<ListenEndpoint>,
    /// The engine.
    pub engine: Engine,
    /// The number of loops or threads, or the largest number of threads at once, depending on the engine.
    pub workers: usize,
    /// How many of the workers accept, each with listening sockets of its own.
    pub listener_sets: usize,
    /// How many threads may answer at once where there are classes, if each connection keeps a thread.
    pub answering: usize,
    /// How many connections are accepted before there is a thread for them, where there are classes.
    pub accept_ahead: usize,
    /// How many threads may wait for applications, if each connection keeps a thread; and how many
    /// of these for tunnels.
    pub upstream_threads: (usize, usize),
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Whether the only clients are other stages.
    pub is_for_stages: bool,
    /// The settings of the engine.
    pub settings: EngineSettings,
    /// The settings of a pipeline, if the engine is one.
    pub pipeline: pipeline::PipelineSettings,
}

impl GroupPlan {
    /// Whether workers that were made for `self` can go on with the plan and settings `other`.
    pub fn serves(&self, other: &GroupPlan) -> bool {
        let what = |plan: &GroupPlan| (plan.engine, plan.workers, plan.proxy_protocol);
        let of_threads =
            |plan: &GroupPlan| (plan.answering, plan.accept_ahead, plan.upstream_threads);
        self.listen == other.listen
            && what(self) == what(other)
            && (!self.engine.has_thread_each() || of_threads(self) == of_threads(other))
            && (self.engine != Engine::Pipeline || self.pipeline == other.pipeline)
    }
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminPlan {
    /// The addresses of the listener.
    pub listen: Vec<ListenEndpoint>,
    /// Whether its clients must bring a token.
    pub with_token: bool,
    /// How the page shows the addresses of clients; `None` if there is no page.
    pub page: Option<PageAddresses>,
    /// The largest number of connections at once.
    pub connections: usize,
    /// The largest number of refused connections that linger at once.
    pub lingering: usize,
}

impl AdminPlan {
    fn new(config: &Config, descriptors: u64) -> Option<AdminPlan> {
        let AdminConfig { listen, token_file, page, page_addresses, .. } = &config.admin;
        (!listen.0.is_empty()).then(|| AdminPlan {
            listen: listen.0.clone(),
            with_token: token_file.is_some(),
            page: page.then_some(*page_addresses),
            connections: as_usize((descriptors / 32).clamp(4, MOST_ADMIN_CONNECTIONS)),
            lingering: as_usize(ADMIN_LINGERING.min(descriptors / 64)),
        })
    }

    /// Whether one of the addresses is for TLS.
    pub fn speaks_tls(&self) -> bool {
        self.listen.iter().any(|endpoint| endpoint.tls)
    }

    /// The largest number of descriptors: a connection beyond the limit is accepted before it is
    /// refused, and one descriptor is held in reserve.
    fn descriptors(&self) -> u64 {
        (self.connections + self.lingering) as u64 + 2
    }
}

/// A configuration resolved for this machine.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The groups of workers. No two share an address.
    pub groups: Vec<GroupPlan>,
    /// The settings of the content.
    pub site: forebay_site::ContentSettings,
    /// The applications of each site and route. Where connections are passed on, their servers are
    /// those of one more site at the end.
    pub applications: Vec<Vec<ApplicationSettings>>,
    /// The routes of connections that are passed on as they are.
    pub pass_routes: Arc<PassRoutes>,
    /// Classes and rules.
    pub policy: Arc<Policy>,
    /// Whether the agent sets limits of the classes.
    pub agent: bool,
    /// The settings of the admin listener, if there is one.
    pub admin: Option<AdminPlan>,
    /// The largest number of connections at once.
    pub connections: usize,
    /// The largest number of connections at once from one client.
    pub connections_per_client: usize,
    /// The limits for requests to applications and the next stage, and for their idle connections.
    pub sockets: SocketLimits,
    /// The largest numbers of helper threads.
    pub helpers: HelperThreads,
    /// Other servers on this machine that the gate protects.
    pub protects: Vec<ProtectedServer>,
    /// The order in which classes are served.
    pub ranks: ranks::OrderSettings,
    /// How long a drain may take.
    pub drain: Duration,
}

/// The resources of a machine that a process may use.
#[derive(Clone, Copy, Debug)]
pub struct MachineResources {
    /// The number of cores.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The number of descriptors that may be open.
    pub descriptors: u64,
    /// The number of threads that the process may start.
    pub threads: u64,
}

impl MachineResources {
    /// The resources of this machine for this process, whose limit of descriptors is raised.
    ///
    /// # Errors
    /// When the limit of descriptors cannot be raised.
    pub fn here() -> io::Result<MachineResources> {
        Ok(MachineResources::with_descriptors(process::raise_descriptor_limit()?))
    }

    /// The resources for a server with this configuration. A server that is a part of another
    /// program does not raise the limit of descriptors.
    ///
    /// # Errors
    /// As [`here`](MachineResources::here).
    pub fn of(config: &Config) -> io::Result<MachineResources> {
        match config.is_guest {
            true => Ok(MachineResources::with_descriptors(process::descriptor_limit())),
            false => MachineResources::here(),
        }
    }

    fn with_descriptors(descriptors: u64) -> MachineResources {
        let (cores, memory_bytes) = (process::usable_cores(), memory::usable());
        // asked only once: later the server's own threads would count as used
        static THREADS: OnceLock<u64> = OnceLock::new();
        let threads = *THREADS.get_or_init(|| threads::room_in_process().most as u64);
        MachineResources { cores, memory_bytes, descriptors, threads }
    }
}

pub(crate) fn protected(other: &ProtectConfig) -> ProtectedServer {
    ProtectedServer {
        forwarded_to: other.address.map(|address| address.0),
        port: other.port(),
        queue: other.queue.try_into().unwrap_or(u32::MAX),
        speaks_first: other.speaks_first(),
    }
}

impl Plan {
    /// Resolves `config` for a machine.
    ///
    /// # Errors
    /// The error in classes and rules; none if they were checked before.
    pub fn new(config: &Config, machine: &MachineResources) -> Result<Plan, PolicyError> {
        let &MachineResources { cores, memory_bytes, descriptors, threads } = machine;
        // most descriptors are for clients
        let open_files = config.cache.open_files.min(descriptors / 4);
        // lingering connections are not counted as admitted
        let lingering = (descriptors / 8).min(MOST_LINGERING);
        let has_threads =
            |listener: &&ListenerConfig| matches!(listener.engine, Engine::Pool | Engine::Threads);
        let sharing = config.listeners.iter().filter(has_threads).count().max(1) as u64;
        let fit = (memory_bytes / THREADS_SHARE / THREAD_BYTES).min(threads / sharing);
        let workers: Vec<_> =
            config.listeners.iter().map(|listener| workers(listener, cores, fit)).collect();
        let with_workers = || config.listeners.iter().zip(&workers);
        let pipes = (descriptors / 32).min(MOST_PIPES);
        let admin = AdminPlan::new(config, descriptors);
        let of_admin = admin.as_ref().map_or(0, AdminPlan::descriptors);
        let of_sites = directories(config);
        let taken = OWN_DESCRIPTORS + open_files + 2 * pipes + lingering + of_admin + of_sites;
        let spare = descriptors.saturating_sub(taken).max(descriptors / 2);
        let loops =
            with_workers().map(|(listener, workers)| listener_sets(config, listener, *workers));
        let loops = loops.sum::<usize>().max(1);
        let policy = config.policy()?;
        let applications = applications(config, &policy);
        let shares = DescriptorShares::new(config, &applications, loops, spare);
        let connections = shares.connections;
        // half of the places: no client alone can take all of them
        let places =
            with_workers().map(|(listener, workers)| match listener.engine.has_thread_each() {
                true => connections.min(*workers as u64),
                false => connections,
            });
        let places = places.fold(0, u64::saturating_add).min(connections);
        let per_client = config.limits.connections_per_client.or((places / 2).max(1));
        let lingering = as_usize(lingering) / loops;
        let groups = with_workers().map(|(listener, workers)| {
            let pipeline = pipeline::PipelineSettings {
                fuse: config.pipeline.fuse,
                is_fixed: config.pipeline.by == AllocateBy::Fixed,
                allocation: allocation(config, *workers, cores),
                connections: as_usize(connections),
                send_wait_ms: config.pipeline.send_wait.as_millis() as u64,
            };
            let answering = as_usize(listener.answering.or(cores as u64)).max(1);
            GroupPlan { answering, ..group(config, listener, *workers, lingering, pipeline) }
        });
        let policy = policy.sparing(forebay_config::spared::clients(config, own_addresses));
        Ok(Plan {
            ranks: ranks(config, &policy),
            groups: groups.collect(),
            site: site(config, open_files, pipes, memory_bytes),
            applications,
            pass_routes: Arc::new(PassRoutes::new(
                config.tcp.iter().map(TcpConfig::route).collect(),
            )),
            policy: Arc::new(policy),
            protects: config.protects.iter().map(protected).collect(),
            agent: config.agent == Switch::On,
            admin,
            connections: as_usize(connections),
            connections_per_client: as_usize(per_client),
            sockets: shares.sockets(per_client),
            helpers: HelperThreads { blocking: as_usize(config.helpers.threads), computing: cores },
            drain: config.timeouts.drain,
        })
    }

    /// The settings of classes and rules to put in force.
    pub(crate) fn policy_settings(&self) -> PolicySettings {
        PolicySettings {
            policy: Arc::clone(&self.policy),
            shares: Arc::clone(&self.ranks.shares),
            slots: Arc::clone(&self.ranks.slots),
            agent: self.agent,
        }
    }
}

/// The applications, in the order in which the content numbers their routes, with the ranks of classes.
fn applications(config: &Config, policy: &Policy) -> Vec<Vec<ApplicationSettings>> {
    let mut sites: Vec<_> =
        config.sites.iter().map(|site| site.applications(script_root)).collect();
    let rank = |class: &str| {
        let rank = policy.classes().iter().position(|one| *one.name == *class)?;
        u8::try_from(rank).ok()
    };
    let passed = config.tcp.iter().map(|one| ApplicationSettings::Tcp(one.settings()));
    let passed: Vec<_> = passed.collect();
    sites.extend((!passed.is_empty()).then_some(passed));
    sites.iter_mut().flatten().for_each(|one| one.group_mut().order_classes(rank));
    sites
}

/// The order in which classes are served.
fn ranks(config: &Config, policy: &Policy) -> ranks::OrderSettings {
    let (helpers, classes) = (&config.helpers, policy.classes());
    ranks::OrderSettings {
        shares: classes.iter().map(|class| class.share).collect(),
        // the ledgers are known only later
        slots: Arc::new([]),
        reserve: as_usize(helpers.reserve),
        // the range was checked with the configuration
        niceness: helpers.niceness as u8,
    }
}

/// The number of workers of a listener: loops, threads, or the largest number of
/// threads; at most `fit` threads.
fn workers(listener: &ListenerConfig, cores: usize, fit: u64) -> usize {
    let (auto, most) = match listener.engine {
        Engine::Event | Engine::Fibers | Engine::Pipeline | Engine::Isolated => {
            (cores as u64, u64::MAX)
        }
        Engine::Pool => (POOL_THREADS, fit),
        Engine::Threads => (MOST_THREADS, fit),
    };
    as_usize(listener.workers.or(auto).min(most)).max(1)
}

/// How many threads may wait for applications, and how many of these for tunnels.
fn upstream_threads(listener: &ListenerConfig, workers: usize) -> (usize, usize) {
    let all = as_usize(listener.upstream_threads.or((workers - workers / 4) as u64)).min(workers);
    let tunnels = as_usize(listener.tunnel_threads.or((workers / 2).max(1) as u64)).min(all);
    (all, tunnels)
}

/// How many of the workers accept.
fn listener_sets(config: &Config, listener: &ListenerConfig, workers: usize) -> usize {
    match listener.engine {
        Engine::Event | Engine::Fibers | Engine::Isolated => workers,
        Engine::Pipeline if config.pipeline.fuse == Fuse::Auto => workers,
        // each accepting thread has one socket
        Engine::Pipeline => as_usize(config.pipeline.accept),
        // all threads accept from the same socket
        Engine::Pool | Engine::Threads => 1,
    }
}

fn group(
    config: &Config,
    listener: &ListenerConfig,
    workers: usize,
    lingering: usize,
    pipeline: pipeline::PipelineSettings,
) -> GroupPlan {
    GroupPlan {
        listen: listener.listen.clone(),
        engine: listener.engine,
        workers,
        listener_sets: listener_sets(config, listener, workers),
        answering: 1,
        accept_ahead: as_usize(listener.accept_ahead),
        upstream_threads: upstream_threads(listener, workers),
        proxy_protocol: listener.proxy_protocol,
        is_for_stages: config.place.as_ref().is_some_and(|place| place.role != Role::Receive),
        pipeline,
        settings: EngineSettings {
            limits: ConnectionLimits { tunnels: takes_tunnels(config), ..limits(config) },
            timeouts: timeouts(config),
            // here all loops of the listener share one list of lingering connections
            lingering: lingering * listener_sets(config, listener, workers),
            sample: config.sample.try_into().unwrap_or(u32::MAX),
            keep_alive: keep_alive(config, None),
            keep_alive_by_rank: keep_alive_by_rank(config),
            announce: config.keep_alive.announce,
            send_order: config.send_order,
            turn_handshakes: match listener.engine.has_thread_each() {
                // a handshake delays no other connection's thread
                true => u32::MAX,
                false => EngineSettings::default().turn_handshakes,
            },
            ..EngineSettings::default()
        },
    }
}

/// The settings for the allocation of a pipeline's threads.
fn allocation(config: &Config, workers: usize, cores: usize) -> allocation::AllocationSettings {
    let config = &config.pipeline;
    let mut preset = allocation::AllocationSettings::for_cores(as_u32(cores as u64));
    if let Some(calibrated) = &config.calibrated {
        preset.costs = calibrated.costs(preset.cores);
        preset.per_waiting = calibrated.per_waiting;
        preset.per_rate = calibrated.per_rate;
    }
    let receive = if config.fuse == Fuse::Auto { workers as u64 } else { config.receive };
    let initial = [config.accept, receive, config.process, config.send].map(as_u32);
    let least = initial.iter().fold(0u32, |sum, count| sum.saturating_add(*count));
    allocation::AllocationSettings {
        law: if config.by == AllocateBy::Delay { Law::Delay } else { Law::Queue },
        period_ms: as_u32(config.period.as_millis() as u64),
        initial,
        most: as_u32(config.threads.or(preset.most.into())).max(least),
        transfer: as_u32(config.transfer),
        delay_us: as_u32(config.delay.as_micros() as u64),
        ..preset
    }
}

fn limits(config: &Config) -> ConnectionLimits {
    let limits = &config.limits;
    let requests = match limits.requests_per_connection {
        0 => u32::MAX,
        most => most.try_into().unwrap_or(u32::MAX),
    };
    // an empty Host was already judged by the stage before
    let empty_host = config.place.as_ref().is_some_and(|place| place.role != Role::Receive);
    ConnectionLimits {
        head: HeadLimits { empty_host, ..limits.head() },
        body_bytes: limits.body_bytes.0,
        requests,
        streams: limits.streams as u32,
        tunnels: false,
    }
}

/// Whether HTTP/2 announces that streams may become tunnels.
fn takes_tunnels(config: &Config) -> bool {
    config.sites.iter().any(|site| {
        site.proxies.iter().any(ProxyConfig::upgrades)
            || site.handlers.iter().any(|handler| handler.limits.upgrades)
    })
}

fn timeouts(config: &Config) -> Timeouts {
    let ms = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX / 4);
    Timeouts {
        head_ms: ms(config.timeouts.head),
        body_ms: ms(config.timeouts.body),
        idle_ms: ms(config.timeouts.idle),
        job_ms: ms(config.timeouts.job),
        send_window_ms: ms(config.timeouts.send_window),
        send_bytes_per_s: config.limits.send_rate.0,
    }
}

/// The keep-alive law of a class, or the common one. The floor is at most the full time.
fn keep_alive(config: &Config, class: Option<&ClassConfig>) -> Option<KeepAlive> {
    let (all, own) = (&config.keep_alive, class.map(|class| &class.keep_alive));
    let shape = match own.and_then(|own| own.law.0).unwrap_or(all.law) {
        KeepAliveLaw::Linear => Shape::Linear,
        KeepAliveLaw::Exponential => Shape::Exponential,
        // a constant time needs no law
        KeepAliveLaw::Constant if class.is_none() => return None,
        KeepAliveLaw::Constant => Shape::Constant,
    };
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let full_ms = ms(own.and_then(|own| own.idle.0).unwrap_or(config.timeouts.idle));
    let floor_ms = ms(own.and_then(|own| own.floor.0).unwrap_or(all.floor)).min(full_ms);
    let threshold = own.and_then(|own| own.threshold.0).unwrap_or(all.threshold) as f64 / 100.0;
    KeepAlive::new(shape, full_ms, floor_ms, threshold).ok()
}

/// The keep-alive laws of all classes, by rank; empty unless a class has one of its own.
fn keep_alive_by_rank(config: &Config) -> Arc<[KeepAlive]> {
    if !config.classes.iter().any(|class| class.keep_alive.is_said()) {
        return Arc::new([]);
    }
    let mut classes: Vec<_> = config.classes.iter().collect();
    classes.sort_by_key(|class| class.priority.0.unwrap_or_default());
    classes.into_iter().filter_map(|class| keep_alive(config, Some(class))).collect()
}

fn site(
    config: &Config,
    open_files: u64,
    pipes: u64,
    memory_bytes: u64,
) -> forebay_site::ContentSettings {
    let of_cache = MOST_CACHE_BYTES.min(memory_bytes / CACHE_SHARE);
    let in_flight = memory_bytes / IN_FLIGHT_SHARE;
    let port = config.https_port();
    let sites = config.sites.iter().map(|site| site.settings(port)).collect();
    let mut settings =
        forebay_site::ContentSettings { sites, ..forebay_site::ContentSettings::new("") };
    settings.server_header = config.server_header;
    settings.files = seal::files(config);
    settings.is_answered_elsewhere = config.is_answered_elsewhere();
    settings.cache.bytes = config.cache.bytes.0.map_or(of_cache, |size| size.0);
    settings.cache.in_flight_bytes = config.cache.in_flight.0.map_or(in_flight, |size| size.0);
    settings.cache.file_bytes = config.cache.file_bytes.0;
    settings.cache.segment_bytes = config.cache.segment_bytes.0;
    settings.cache.open_files = open_files.try_into().unwrap_or(u32::MAX).max(1);
    settings.cache.pipes = pipes.try_into().unwrap_or(u32::MAX);
    settings.cache.check_interval = config.cache.check_interval;
    settings
}

fn as_u32(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

fn as_usize(number: u64) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::{AutoCount, Listen, Optional, SiteConfig, Size};

    fn machine(descriptors: u64) -> MachineResources {
        MachineResources { cores: 2, memory_bytes: 8 << 30, descriptors, threads: 10_000 }
    }

    #[test]
    fn bodies_leave_most_of_a_small_memory_to_others() {
        let cache = |memory_bytes, config: &Config| {
            let plan =
                Plan::new(config, &MachineResources { memory_bytes, ..machine(1000) }).unwrap();
            (plan.site.cache.bytes >> 20, plan.site.cache.in_flight_bytes >> 20)
        };
        let mut config = Config::default();
        assert_eq!(cache(8 << 30, &config), (256, 1024));
        assert_eq!(cache(128 << 20, &config), (32, 16));
        config.cache.bytes = Optional(Some(Size(1 << 30)));
        config.cache.in_flight = Optional(Some(Size(2 << 20)));
        assert_eq!(cache(128 << 20, &config), (1024, 2));
    }

    #[test]
    fn threads_leave_half_of_the_memory_to_others() {
        let mut config = Config::default();
        config.listeners =
            vec![ListenerConfig { engine: Engine::Threads, ..config.listeners[0].clone() }];
        let threads = |config: &Config, memory_bytes| {
            let plan =
                Plan::new(config, &MachineResources { memory_bytes, ..machine(1000) }).unwrap();
            plan.groups[0].workers
        };
        assert_eq!(threads(&config, 8 << 30), 1024);
        assert_eq!(threads(&config, 96 << 20), 512);
        config.listeners[0].workers = AutoCount::Fixed(10_000);
        assert_eq!([8 << 30, 96 << 20, 0].map(|bytes| threads(&config, bytes)), [10_000, 512, 1]);
        // the process's limit of threads bounds the workers, too
        let few = MachineResources { threads: 200, ..machine(1000) };
        assert_eq!(Plan::new(&config, &few).unwrap().groups[0].workers, 200);
    }

    #[test]
    fn few_descriptors_still_leave_half_to_clients() {
        let plan = Plan::new(&Config::default(), &machine(100)).unwrap();
        assert_eq!((plan.connections, plan.connections_per_client), (50, 25));
        assert_eq!(plan.groups[0].workers, 2);
        assert_eq!((plan.site.cache.open_files, plan.site.cache.pipes), (25, 3));
    }

    #[test]
    fn directories_have_descriptors_of_their_own() {
        let connections = |roots: usize| {
            let site = Config::default().sites.remove(0);
            let site = |at| SiteConfig {
                root: Some(format!("/srv/{}", at % roots).into()),
                ..site.clone()
            };
            let sites = (0..3000).map(site).collect();
            let config = Config { sites, ..Config::default() };
            Plan::new(&config, &machine(20_000)).unwrap().connections
        };
        // a directory that many sites share counts once
        assert_eq!(connections(1) - connections(2001), 2000);
    }

    #[test]
    fn the_admin_listener_has_descriptors_of_its_own() {
        let mut config = Config::default();
        let connections = |config: &Config, descriptors| {
            let plan = Plan::new(config, &machine(descriptors)).unwrap();
            (plan.connections, plan.admin.map(|admin| (admin.connections, admin.lingering)))
        };
        let (without, none) = connections(&config, 20_000);
        assert_eq!(none, None);
        config.admin.listen.0 =
            vec![ListenEndpoint { listen: Listen::All(9090), tls: false, raw: false }];
        assert_eq!(connections(&config, 20_000), (without - 64 - 8 - 2, Some((64, 8))));
        assert_eq!(connections(&config, 100).1, Some((4, 1)));
    }

    #[test]
    fn what_is_configured_is_not_overruled() {
        let mut config = Config::default();
        config.limits.connections = AutoCount::Fixed(7);
        config.limits.requests_per_connection = 0;
        let plan = Plan::new(&config, &machine(20_000)).unwrap();
        assert_eq!((plan.connections, plan.connections_per_client), (7, 3));
        assert_eq!(plan.groups[0].settings.limits.requests, u32::MAX);
    }
}
