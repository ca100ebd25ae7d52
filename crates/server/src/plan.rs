//! What a configuration comes to on this machine: the settings of every part, with nothing left
//! to decide.

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

/// Descriptors that are neither clients' nor files': listeners, epoll, bells, log, libraries.
const OWN_DESCRIPTORS: u64 = 64;

/// Pipes in which bodies wait that are not to be kept, at most; two descriptors each.
const MOST_PIPES: u64 = 256;

/// Connections that linger at the same time, in all loops together, at most.
const MOST_LINGERING: u64 = 1024;

/// Connections of the admin listener, at most: it has few readers. Of those it refuses, so many may
/// linger. With their descriptors they are taken from what clients may have, whether they are used
/// or not: clients that fill it take nothing from the sites.
const MOST_ADMIN_CONNECTIONS: u64 = 64;
const ADMIN_LINGERING: u64 = 8;

/// Of the memory there is, the data cache takes one part in so many unless configured, but no more
/// than this, and answers on their way may take one in so many.
const CACHE_SHARE: u64 = 4;
const MOST_CACHE_BYTES: u64 = 256 << 20;
const IN_FLIGHT_SHARE: u64 = 8;

/// What such a thread takes at least, in the kernel and here: stacks, page tables, a worker. More
/// threads than fit into a share of the memory would leave none to work with.
const THREAD_BYTES: u64 = 96 * 1024;
const THREADS_SHARE: u64 = 2;

/// How many directories are held open to be served from: roots and aliases, each once.
fn directories(config: &Config) -> u64 {
    let roots = config.sites.iter().filter_map(|site| site.root.as_ref());
    let aliases = config.sites.iter().flat_map(|site| site.aliases.iter().map(|alias| &alias.to));
    roots.chain(aliases).collect::<HashSet<_>>().len() as u64
}

/// An engine on its listeners.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// Where it accepts.
    pub listen: Vec<ListenEndpoint>,
    /// The engine.
    pub engine: Engine,
    /// Its loops, its threads, or how many threads it may have at once.
    pub workers: usize,
    /// How many of them accept, each with listening sockets of its own.
    pub listener_sets: usize,
    /// Threads that may answer at once where there are classes, if each connection keeps one.
    pub answering: usize,
    /// Connections accepted ahead of a thread for them where there are classes.
    pub accept_ahead: usize,
    /// Threads that requests for applications may keep, if each connection keeps one; and tunnels of them.
    pub upstream_threads: (usize, usize),
    /// Whether connections begin with what a proxy states about its client.
    pub proxy_protocol: bool,
    /// Whether only other stages come, and no clients.
    pub is_for_stages: bool,
    /// What the engine keeps to.
    pub settings: EngineSettings,
    /// What it keeps to if it is a pipeline.
    pub pipeline: pipeline::PipelineSettings,
}

impl GroupPlan {
    /// Whether workers made for `self` can go on for `other`, with its settings.
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
    /// Where it accepts.
    pub listen: Vec<ListenEndpoint>,
    /// Whether its clients must bring a token.
    pub with_token: bool,
    /// What its page shows of the addresses of clients; `None` if it has no page.
    pub page: Option<PageAddresses>,
    /// Connections at once.
    pub connections: usize,
    /// Refused connections that linger at once.
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

    /// Whether TLS is spoken at one of its addresses.
    pub fn speaks_tls(&self) -> bool {
        self.listen.iter().any(|endpoint| endpoint.tls)
    }

    /// Descriptors it may have open: one more than it keeps is accepted before it is refused, and
    /// one is held back.
    fn descriptors(&self) -> u64 {
        (self.connections + self.lingering) as u64 + 2
    }
}

/// A configuration resolved for this machine.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The engines. No two share an address.
    pub groups: Vec<GroupPlan>,
    /// What the content is.
    pub site: forebay_site::ContentSettings,
    /// The applications behind: of each site, of each route. Where connections are passed on, the servers that get
    /// them are those of one site more.
    pub applications: Vec<Vec<ApplicationSettings>>,
    /// Which connections are passed on as they are.
    pub pass_routes: Arc<PassRoutes>,
    /// Classes and rules.
    pub policy: Arc<Policy>,
    /// Whether the agent limits its classes.
    pub agent: bool,
    /// What the admin listener keeps to, if there is one.
    pub admin: Option<AdminPlan>,
    /// Connections at once, in all.
    pub connections: usize,
    /// Connections at once from one client.
    pub connections_per_client: usize,
    /// Requests at once for applications and the next stage, and what is kept of their connections.
    pub sockets: SocketLimits,
    /// Helper threads at most.
    pub helpers: HelperThreads,
    /// Servers besides this one that the kernel protects.
    pub protects: Vec<ProtectedServer>,
    /// The order of service.
    pub ranks: ranks::OrderSettings,
    /// How long a drain may take.
    pub drain: Duration,
}

/// What there is to be used.
#[derive(Clone, Copy, Debug)]
pub struct MachineResources {
    /// Cores.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Descriptors that may be open.
    pub descriptors: u64,
    /// Threads that the process may begin.
    pub threads: u64,
}

impl MachineResources {
    /// Of this machine, what this process may have.
    ///
    /// # Errors
    /// When the limit of descriptors cannot be raised.
    pub fn here() -> io::Result<MachineResources> {
        Ok(MachineResources::with_descriptors(process::raise_descriptor_limit()?))
    }

    /// What a server with this configuration may use: one that is a part of another program leaves the limit of
    /// descriptors as it is.
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
        // asked once: those that run are none that another plan lacks
        static THREADS: OnceLock<u64> = OnceLock::new();
        let threads = *THREADS.get_or_init(|| threads::room().most as u64);
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
    /// What is wrong with its classes and rules; nothing if they were checked.
    pub fn new(config: &Config, machine: &MachineResources) -> Result<Plan, PolicyError> {
        let &MachineResources { cores, memory_bytes, descriptors, threads } = machine;
        // files must leave most descriptors to clients
        let open_files = config.cache.open_files.min(descriptors / 4);
        // connections that linger are not counted among those admitted
        let lingering = (descriptors / 8).min(MOST_LINGERING);
        let fit = (memory_bytes / THREADS_SHARE / THREAD_BYTES).min(threads);
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
        // half of what there is: no client alone can take everything
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

    /// What is to be in force of classes and rules.
    pub(crate) fn policy_settings(&self) -> PolicySettings {
        PolicySettings {
            policy: Arc::clone(&self.policy),
            shares: Arc::clone(&self.ranks.shares),
            slots: Arc::clone(&self.ranks.slots),
            agent: self.agent,
        }
    }
}

/// The applications behind, as the content numbers their routes, which know the order of classes.
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

/// The order of service.
fn ranks(config: &Config, policy: &Policy) -> ranks::OrderSettings {
    let (helpers, classes) = (&config.helpers, policy.classes());
    ranks::OrderSettings {
        shares: classes.iter().map(|class| class.share).collect(),
        // until it is known which ledgers there are
        slots: Arc::new([]),
        reserve: as_usize(helpers.reserve),
        // its range is checked
        niceness: helpers.niceness as u8,
    }
}

/// Loops, threads, or most threads of a listener, of which so many `fit` into the process.
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

/// Threads that requests for applications may keep, and tunnels of them.
fn upstream_threads(listener: &ListenerConfig, workers: usize) -> (usize, usize) {
    let all = as_usize(listener.upstream_threads.or((workers - workers / 4) as u64)).min(workers);
    let tunnels = as_usize(listener.tunnel_threads.or((workers / 2).max(1) as u64)).min(all);
    (all, tunnels)
}

/// How many of the workers accept for themselves.
fn listener_sets(config: &Config, listener: &ListenerConfig, workers: usize) -> usize {
    match listener.engine {
        Engine::Event | Engine::Fibers | Engine::Isolated => workers,
        Engine::Pipeline if config.pipeline.fuse == Fuse::Auto => workers,
        // one socket keeps one thread busy
        Engine::Pipeline => as_usize(config.pipeline.accept),
        // all threads accept from it
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
            // those of all its loops linger in one place
            lingering: lingering * listener_sets(config, listener, workers),
            sample: config.sample.try_into().unwrap_or(u32::MAX),
            keep_alive: keep_alive(config, None),
            keep_alive_by_rank: keep_alive_by_rank(config),
            announce: config.keep_alive.announce,
            send_order: config.send_order,
            turn_handshakes: match listener.engine.has_thread_each() {
                // it keeps no other thread busy
                true => u32::MAX,
                false => EngineSettings::default().turn_handshakes,
            },
            ..EngineSettings::default()
        },
    }
}

/// How the threads of a pipeline are allocated.
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
    // the stage before has judged it already
    let empty_host = config.place.as_ref().is_some_and(|place| place.role != Role::Receive);
    ConnectionLimits {
        head: HeadLimits { empty_host, ..limits.head() },
        body_bytes: limits.body_bytes.0,
        requests,
        streams: limits.streams as u32,
        tunnels: false,
    }
}

/// Whether clients are told that streams of HTTP/2 may become tunnels.
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

/// The law of a class, or that of all. A floor above the full time is no floor.
fn keep_alive(config: &Config, class: Option<&ClassConfig>) -> Option<KeepAlive> {
    let (all, own) = (&config.keep_alive, class.map(|class| &class.keep_alive));
    let shape = match own.and_then(|own| own.law.0).unwrap_or(all.law) {
        KeepAliveLaw::Linear => Shape::Linear,
        KeepAliveLaw::Exponential => Shape::Exponential,
        // the time of all is known without a law
        KeepAliveLaw::Constant if class.is_none() => return None,
        KeepAliveLaw::Constant => Shape::Constant,
    };
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let full_ms = ms(own.and_then(|own| own.idle.0).unwrap_or(config.timeouts.idle));
    let floor_ms = ms(own.and_then(|own| own.floor.0).unwrap_or(all.floor)).min(full_ms);
    let threshold = own.and_then(|own| own.threshold.0).unwrap_or(all.threshold) as f64 / 100.0;
    KeepAlive::new(shape, full_ms, floor_ms, threshold).ok()
}

/// Those of all classes, by rank; none unless one has its own.
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
        // what the process may begin is a bound, too
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
        // a directory of many sites counts once
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
