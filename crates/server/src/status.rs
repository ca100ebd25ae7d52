//! The report of a running server about itself: counters, gauges, and its configuration.

use crate::agent;
use crate::engines::Common;
use crate::listen::OpenTimes;
use crate::page::PageMemory;
use crate::plan::Plan;
use crate::upstream_rows::{self, RouteNames};
use forebay_config::choice::Keyword;
use forebay_config::{Config, PolicyOverride};
use forebay_engine::worker;
use forebay_handler::certificates::{Certificates, Expiry, Owner};
use forebay_handler::policy::Enforced;
use forebay_metrics::{Certificate, Gauge, Info, Snapshot};
use forebay_sys::clock;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The commit this program was built from, as an environment variable of the build: a build script
/// would examine the repository each time.
pub const REVISION: &str = match option_env!("FOREBAY_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// The largest number of certificates in the report: those that expire first.
const MOST_CERTIFICATES: usize = 100;

/// The largest number of changed settings in the report.
const MOST_OVERRIDES: usize = 100;

fn certificates(certificates: &Certificates) -> Vec<Certificate> {
    let expiries = certificates.expiries().into_iter().take(MOST_CERTIFICATES);
    let told = expiries.map(|Expiry { owner, certificate, not_after_s, .. }| {
        let name = certificate.display().to_string();
        let site = match owner {
            Owner::Site(site) | Owner::Applications(site) => site,
            Owner::Admin | Owner::Stages => String::new(),
        };
        Certificate { site, name, expiry_s: not_after_s }
    });
    told.collect()
}

/// The data of the report.
pub struct Status {
    started_ms: u64,
    is_draining: AtomicBool,
    state: Mutex<StatusState>,
    /// How long opening listening sockets has taken.
    listening: Arc<OpenTimes>,
    /// The memory of the admin listener's page.
    page: Arc<PageMemory>,
}

struct StatusState {
    common: Common,
    engines: String,
    workers: String,
    reloads_good: u64,
    reloads_failed: u64,
    /// The time of the last reload, or the start, in seconds since 1970, and whether it succeeded.
    last_reload: (u64, bool),
    /// Settings that `policy set` has changed, and whether they survive reloads.
    overrides: Vec<(String, bool)>,
    routes: RouteNames,
}

impl StatusState {
    fn new(common: &Common, plan: &Plan, config: &Config) -> StatusState {
        let list = |of: &dyn Fn(usize) -> String| {
            (0..plan.groups.len()).map(of).collect::<Vec<_>>().join(" ")
        };
        StatusState {
            common: common.clone(),
            engines: list(&|at| plan.groups[at].engine.word().to_owned()),
            workers: list(&|at| plan.groups[at].workers.to_string()),
            reloads_good: 0,
            reloads_failed: 0,
            last_reload: (clock::unix_coarse_ms() / 1000, true),
            overrides: Vec::new(),
            routes: RouteNames::of(config),
        }
    }
}

impl Status {
    /// The report of a server that begins now.
    pub(crate) fn new(
        common: &Common,
        plan: &Plan,
        config: &Config,
        listening: Arc<OpenTimes>,
        page: PageMemory,
    ) -> Arc<Status> {
        let state = Mutex::new(StatusState::new(common, plan, config));
        let is_draining = AtomicBool::new(false);
        let page = Arc::new(page);
        Arc::new(Status { started_ms: clock::coarse_ms(), is_draining, state, listening, page })
    }

    /// Records a new configuration, by a reload or another change.
    pub fn changed(&self, common: &Common, plan: &Plan, config: &Config, is_reload: bool) {
        let mut state = self.lock();
        let mut next = StatusState::new(common, plan, config);
        next.reloads_good = state.reloads_good + u64::from(is_reload);
        next.reloads_failed = state.reloads_failed;
        if !is_reload {
            next.last_reload = state.last_reload;
        }
        *state = next;
    }

    /// Records the settings that an operator has changed since the file was read.
    pub fn overridden(&self, overrides: &[PolicyOverride]) {
        let overrides = overrides.iter().take(MOST_OVERRIDES).map(|known| {
            let target = known.assignment.split('=').next().unwrap_or_default();
            (target.trim().to_owned(), known.is_kept)
        });
        self.lock().overrides = overrides.collect();
    }

    /// Collects data for the page of the admin listener, from now on and until a configuration has no page.
    ///
    /// # Errors
    /// Lack of threads.
    pub(crate) fn watch_for_page(self: &Arc<Self>) -> io::Result<()> {
        let status = Arc::downgrade(self);
        // a reload keeps the same object
        let sightings = Arc::clone(&self.lock().common.live.get().sightings);
        let server = status.clone();
        let is_on = move || server.strong_count() > 0 && sightings.is_on();
        self.page.keep_up(is_on, move || {
            let status = status.upgrade()?;
            let common = status.lock().common.clone();
            let live = common.live.get();
            live.sightings
                .is_on()
                .then(|| (status.snapshot(), Arc::clone(&live), common.agent_loop))
        })
    }

    /// The memory of the admin listener's page.
    pub(crate) fn page(&self) -> &Arc<PageMemory> {
        &self.page
    }

    /// Records that no more clients are accepted.
    pub fn drains(&self) {
        self.is_draining.store(true, Relaxed);
    }

    /// Whether clients are accepted.
    pub fn accepts(&self) -> bool {
        !self.is_draining.load(Relaxed)
    }

    /// Records that a reload has failed and changed nothing.
    pub fn reload_failed(&self) {
        let mut state = self.lock();
        state.reloads_failed += 1;
        state.last_reload = (clock::unix_coarse_ms() / 1000, false);
    }

    fn lock(&self) -> MutexGuard<'_, StatusState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole report, as of now. It is cheap, and blocks no thread for long.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let StatusState { common, engines, workers, routes, .. } = &*state;
        let snapshot = common.live.get();
        let content = snapshot.content.figures();
        let opening = self.listening.get();
        let shared = snapshot.applications.shared_connections();
        let now_s = clock::unix_coarse_ms() / 1000;
        let [by_command, by_file] = snapshot
            .bans
            .as_ref()
            .map_or([0; 2], |bans| bans.count(now_s))
            .map(|count| count as u64);
        let link = snapshot.applications.next_stage().map(|stage| stage.link_counts());
        let link = link.unwrap_or_default();
        let mut gauges = vec![
            (Gauge::LinkSuspected, link.suspected),
            (Gauge::LinkHurried, link.hurried),
            (Gauge::Connections, common.admission.open() as u64),
            (Gauge::CacheBytes, content.bytes),
            (Gauge::CacheEntries, content.entries),
            (Gauge::CacheEvictions, content.evictions),
            (Gauge::CacheInvalidations, content.invalidations),
            (Gauge::BodyBytes, content.body_bytes),
            (Gauge::Crowded, content.crowded),
            (Gauge::Uncompressed, content.uncompressed),
            (Gauge::WatchedDirectories, content.watched_directories),
            (Gauge::Helpers, common.helpers.threads() as u64),
            (Gauge::UpstreamInFlight, snapshot.applications.in_flight()),
            (Gauge::QueuedByRules, snapshot.policy.queued_by_rules()),
            (Gauge::UpstreamWaiting, snapshot.applications.waiting()),
            (Gauge::UpstreamPlaces, snapshot.applications.places()),
            (Gauge::UpstreamSharedConnections, shared.connections),
            (Gauge::UpstreamSharedStreams, shared.streams),
            (Gauge::UpstreamSharedGoAways, shared.goaways),
            (Gauge::SpoolBytes, snapshot.applications.spool().map_or(0, |spool| spool.bytes())),
            (Gauge::LogDropped, snapshot.logs.dropped()),
            (Gauge::SpansExported, snapshot.traces.queue.exported.load(Relaxed)),
            (Gauge::SpansDropped, snapshot.traces.queue.dropped()),
            (Gauge::SpansFailed, snapshot.traces.queue.failed.load(Relaxed)),
            (Gauge::ListenSocket, opening.socket_ns),
            (Gauge::ListenOptions, opening.options_ns),
            (Gauge::ListenBind, opening.bind_ns),
            (Gauge::ListenListen, opening.listen_ns),
            (Gauge::Generation, common.live.generation()),
            (Gauge::BansByCommand, by_command),
            (Gauge::BansByFile, by_file),
            (Gauge::LastReload, state.last_reload.0),
            (Gauge::LastReloadGood, u64::from(state.last_reload.1)),
            (Gauge::ReloadsGood, state.reloads_good),
            (Gauge::ReloadsFailed, state.reloads_failed),
            (Gauge::UptimeSeconds, (clock::coarse_ms() - self.started_ms) / 1000),
        ];
        gauges.extend(common.pipeline_gauges_pool.gauges());
        gauges.extend(common.agent_loop.now().unwrap_or_default().gauges());
        let totals = common.register.totals();
        Snapshot {
            sites: snapshot.logs.sites(&totals),
            logs: snapshot.logs.dropped_by_log(),
            certificates: certificates(&snapshot.certificates),
            overrides: state.overrides.clone(),
            limits: agent::limits(&snapshot.policy),
            rules: snapshot.policy.metrics(),
            waiting: match snapshot.applications.is_empty() {
                true => Vec::new(),
                false => upstream_rows::waiting(&snapshot.policy, &snapshot.applications),
            },
            upstreams: upstream_rows::rows(
                routes,
                &snapshot.applications,
                worker::read_clocks().monotonic_ms,
            ),
            gate: snapshot.policy.gate.as_ref().map(Enforced::figures),
            firewall: common.firewall.as_ref().map(|firewall| firewall.figures()),
            classes: match snapshot.policy.is_empty() {
                true => Vec::new(),
                false => common.register.classes(&totals),
            },
            totals,
            gauges,
            info: Info {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                revision: REVISION.to_owned(),
                engine: engines.clone(),
                workers: workers.clone(),
            },
        }
    }
}
