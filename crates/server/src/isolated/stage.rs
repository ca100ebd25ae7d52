//! The configuration of one stage, derived from the one that all stages share, and the next stage
//! that it asks.

use super::{configuration, links, machines, relayed};
use crate::machine::script_root;
use forebay_config::{
    AccessLog, AdminListen, AutoCount, ByteRate, Config, ControlSocketChoice, FirewallMode,
    GateMode, KeepAliveLaw, Listen, ListenEndpoint, ListenerConfig, Optional, Role, Size,
    StageProcess, Switch,
};
use forebay_engine::Engine;
use forebay_engine::settings::SendOrder;
use forebay_handler::applications::NextStage;
use forebay_http::head::MOST_LINES;
use forebay_http::response::ResponseHeadLimits;
use forebay_site::rules::Network;
use forebay_sys::broker::Connector;
use forebay_sys::unix_address::UnixAddress;
use forebay_upstream::application::Application;
use forebay_upstream::link::LinkSettings;
use forebay_upstream::request;
use forebay_upstream::settings::{
    self, Balance, BalanceKey, BodySettings, Errors, GroupSettings, KeepAliveSettings,
    ProxySettings, QueueSettings, UpstreamAddress, UpstreamTimeouts, WhenDown,
};
use forebay_upstream::stage::{ADDED_BYTES, ADDED_LINES, FIELD_BYTES};
use std::time::Duration;

/// How long an idle connection between two stages is kept; the side that asks closes it first.
const KEPT: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(24 * 3600);

/// The largest number of connections to one instance that a loop keeps.
const MOST_KEPT: u32 = 256;

/// The largest number of requests at once on an HTTP/2 connection from another stage or a health
/// check.
const STREAMS: u64 = 16;

/// How long a running instance may take for an answer, or send nothing in the middle of one.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much longer an instance may take for an answer than its application.
const MARGIN: Duration = Duration::from_secs(10);

/// The addresses of a stage's instances, here and on other machines, or of other software in their
/// place.
pub(super) fn addresses(place: &StageProcess, config: &Config, role: Role) -> Vec<UpstreamAddress> {
    let own = (1..=config.isolated.instances(role)).map(|number| place.socket(role, number));
    let elsewhere = config.isolated.asked(role).map(|other| other.to.clone());
    own.map(UnixAddress::Path).map(UpstreamAddress::Unix).chain(elsewhere).collect()
}

/// The next stage, which the process of this configuration asks; `None` if the process is no stage.
pub fn next(config: &Config, now_ms: u64) -> Option<NextStage> {
    let place = config.place.as_ref()?;
    // a sealed process may not connect; where no other process connects for it, it is not sealed
    let connector = (place.role == Role::Process).then(Connector::inherited);
    let connector = connector.and_then(|found| found.ok().flatten());
    let asked = place.role.next();
    let is_other = asked.is_some_and(|role| config.isolated.is_foreign(role));
    let stage = asked.map(|role| {
        let application = settings::ApplicationSettings::Proxy(ProxySettings {
            group: GroupSettings {
                tls: config.isolated.tls_to(place.role).map(Box::new),
                ..group(config, addresses(place, config, role))
            },
            request: request::RequestSettings::default(),
            bodies: BodySettings { most_bytes: most_body_bytes(config), spool_bytes: 0 },
            rewrites: false,
            // applications have a limit of their own, and the stages between have added header
            // lines
            limits: ResponseHeadLimits { head_lines: MOST_LINES, ..ResponseHeadLimits::default() },
            errors: Errors::Theirs,
            // the stage that asks applications binds connections on which clients sign in
            connection_auth: settings::ConnectionAuth::Request,
            proxy_protocol: None,
            buffer_bytes: 0,
            authority: None,
        });
        let is_own = !is_other;
        // the ends of processes on other machines are not reported here
        let is_here = config.isolated.elsewhere(role).is_empty();
        let ends = links::ends(&place.links, role).filter(|_| is_here);
        let link = LinkSettings {
            backups: config.isolated.backups(role).len(),
            ..config.isolated.link(is_own)
        };
        let is_http2 = config.isolated.is_http2(is_own);
        Application::of_stage(application, link, is_http2, ends, connector, now_ms)
    });
    let repeats = config.sites.iter().map(|site| site.repeat_idempotent).collect();
    let configuration = configuration::said(config).into();
    Some(NextStage { role: place.role, stage, is_other, repeats, configuration })
}

/// All applications of the sites.
fn applications(config: &Config) -> impl Iterator<Item = settings::ApplicationSettings> {
    config.sites.iter().flat_map(|site| site.applications(script_root))
}

/// The largest request body that is passed on. Respond decides how large a body may be for each
/// application.
fn most_body_bytes(config: &Config) -> u64 {
    let theirs = applications(config).map(|one| one.bodies().most_bytes);
    theirs.fold(config.limits.body_bytes.0, u64::max)
}

/// The group of a stage's instances. The link decides which one is asked, and how its failures are
/// handled. Time limits are long enough for the slowest application.
fn group(config: &Config, to: Vec<UpstreamAddress>) -> GroupSettings {
    let slowest = applications(config).map(|one| {
        let GroupSettings { timeouts, queue, .. } = one.group();
        let UpstreamTimeouts { connect, head, silence, .. } = *timeouts;
        (queue.time + connect + head).max(silence).saturating_add(MARGIN)
    });
    let patience = slowest.fold(PATIENCE, Duration::max);
    GroupSettings {
        to,
        backups: 0,
        weights: Vec::new(),
        balance: Balance::default(),
        key: BalanceKey::Url,
        in_flight: None,
        in_flight_from: None,
        reserve: Vec::new(),
        queue: QueueSettings { requests: 0, time: PATIENCE, down: WhenDown::Fail },
        keep_alive: KeepAliveSettings { connections: MOST_KEPT, idle: KEPT },
        timeouts: UpstreamTimeouts {
            connect: PATIENCE,
            head: patience,
            body: patience,
            silence: patience,
        },
        retries: 0,
        retry_permille: 0,
        max_fails: 0,
        fail_time: PATIENCE,
        slow_start: Duration::ZERO,
        check: None,
        abort_on_close: applications(config).any(|one| one.group().abort_on_close),
        tls: None,
        http2: false,
        http2_connections: None,
    }
}

/// The configuration of one stage.
#[must_use]
pub fn at(mut config: Config, place: StageProcess) -> Config {
    config.control.socket = match place.role {
        // process is sealed and asks no application, so no command is for it
        Role::Process => ControlSocketChoice::Off,
        role => ControlSocketChoice::At(relayed::socket_of(&place.links, role, place.instance)),
    };
    if place.role != Role::Receive {
        stand_behind(&mut config, &place);
    }
    config.place = Some(place);
    config
}

/// Turns off what receive does for clients, for a stage behind it.
fn stand_behind(config: &mut Config, place: &StageProcess) {
    let listen = Listen::Unix(UnixAddress::Path(place.socket(place.role, place.instance)));
    config.listeners = vec![ListenerConfig {
        listen: std::iter::once(ListenEndpoint { listen, tls: false, raw: false })
            .chain(machines::asked_at(config, place.role))
            .collect(),
        engine: Engine::Isolated,
        // the number of processes is that of instances
        workers: AutoCount::Fixed(1),
        ..ListenerConfig::default()
    }];
    config.trusted_proxies = Network::parse("unix").into_iter().collect();
    // the stage before has judged, and sends the class of each request
    for class in &mut config.classes {
        class.requests_per_connection = Optional::default();
        class.keep_alive = Default::default();
    }
    config.rules.clear();
    config.gate = GateMode::Off;
    config.firewall.mode = FirewallMode::Off;
    config.protects.clear();
    // receive passes these connections on by itself
    config.tcp.clear();
    config.ban_files.clear();
    config.admin.listen = AdminListen::default();
    // a stage holds no keys that it does not use
    config.admin.token_file = None;
    config.admin.pairs = Default::default();
    config.acme.dns_hook = Default::default();
    config.identity.is_verified_before = config.identity.keys.take().is_some();
    config.log.access = AccessLog::Off;
    for site in &mut config.sites {
        site.log.access = AccessLog::Off;
        site.tls = Default::default();
    }
    let limits = &mut config.limits;
    limits.head_lines += ADDED_LINES as u64;
    // HTTP/2 counts more bytes for a field than its line has
    let counted = limits.head_lines * FIELD_BYTES as u64;
    limits.head_bytes = Size(limits.head_bytes.0 + ADDED_BYTES as u64 + counted);
    if config.isolated.http2 == Switch::Off {
        // receive has enforced the limit; in other chunks a body may take more bytes
        limits.body_bytes = Size(u64::MAX);
    }
    // each request has a connection of its own here, and receive has counted the clients
    limits.connections = AutoCount::Auto;
    limits.connections_per_client = AutoCount::Fixed(u64::from(u32::MAX));
    limits.requests_per_connection = 0;
    // another stage has only one request under way on a connection
    limits.streams = STREAMS;
    limits.send_rate = ByteRate(0);
    // receive has the clients, and orders how their answers are sent
    config.send_order = SendOrder::default();
    config.keep_alive.law = KeepAliveLaw::Constant;
    config.keep_alive.announce = false;
    // the stage that asks closes a connection first, unless its machine is gone; but any host may
    // reach the port
    let is_reached = config.isolated.listens();
    config.timeouts.idle = if is_reached { 2 * KEPT } else { IDLE };
    if !is_reached {
        config.timeouts.head = IDLE;
    }
}
