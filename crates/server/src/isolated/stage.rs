//! What a stage makes of the configuration that all of them share, and whom it asks.

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

/// How long a connection between two stages is kept that nobody uses; the side that asks ends it first.
const KEPT: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(24 * 3600);

/// Connections to one instance that a loop keeps.
const MOST_KEPT: u32 = 256;

/// Requests at once on a connection of HTTP/2 from another stage, or from who looks at this one.
const STREAMS: u64 = 16;

/// How long an instance that lives may take for an answer, or say nothing in the middle of one.
const PATIENCE: Duration = Duration::from_secs(60);

/// So much longer an instance has for an answer than its application.
const MARGIN: Duration = Duration::from_secs(10);

/// Where the instances of a stage are asked, here or elsewhere, or other software in their place.
pub(super) fn addresses(place: &StageProcess, config: &Config, role: Role) -> Vec<UpstreamAddress> {
    let own = (1..=config.isolated.instances(role)).map(|number| place.socket(role, number));
    let elsewhere = config.isolated.asked(role).map(|other| other.to.clone());
    own.map(UnixAddress::Path).map(UpstreamAddress::Unix).chain(elsewhere).collect()
}

/// Whom the process asks that this configuration is for; `None` if it is no stage.
pub fn next(config: &Config, now_ms: u64) -> Option<NextStage> {
    let place = config.place.as_ref()?;
    // who is sealed may not connect; where nobody does so for it, it is not sealed
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
            // an application may send as many as it may, and the stages before have added theirs
            limits: ResponseHeadLimits { head_lines: MOST_LINES, ..ResponseHeadLimits::default() },
            errors: Errors::Theirs,
            // who asks applications binds what clients sign in on
            connection_auth: settings::ConnectionAuth::Request,
            proxy_protocol: None,
            buffer_bytes: 0,
            authority: None,
        });
        let is_own = !is_other;
        // how processes of other machines end nobody tells here
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

/// All applications behind.
fn applications(config: &Config) -> impl Iterator<Item = settings::ApplicationSettings> {
    config.sites.iter().flat_map(|site| site.applications(script_root))
}

/// The largest body of a request that is passed on: how large one may be for an application, respond decides.
fn most_body_bytes(config: &Config) -> u64 {
    let theirs = applications(config).map(|one| one.bodies().most_bytes);
    theirs.fold(config.limits.body_bytes.0, u64::max)
}

/// Instances. The link decides which is asked, and what becomes of its failures. An application that takes its
/// time has it.
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

/// What one stage makes of the configuration.
#[must_use]
pub fn at(mut config: Config, place: StageProcess) -> Config {
    config.control.socket = match place.role {
        // process is sealed, and asks no application
        Role::Process => ControlSocketChoice::Off,
        role => ControlSocketChoice::At(relayed::socket_of(&place.links, role, place.instance)),
    };
    if place.role != Role::Receive {
        stand_behind(&mut config, &place);
    }
    config.place = Some(place);
    config
}

/// Clients are met by another stage: what is for them is done there.
fn stand_behind(config: &mut Config, place: &StageProcess) {
    let listen = Listen::Unix(UnixAddress::Path(place.socket(place.role, place.instance)));
    config.listeners = vec![ListenerConfig {
        listen: std::iter::once(ListenEndpoint { listen, tls: false, raw: false })
            .chain(machines::asked_at(config, place.role))
            .collect(),
        engine: Engine::Isolated,
        // there are as many processes as are wanted
        workers: AutoCount::Fixed(1),
        ..ListenerConfig::default()
    }];
    config.trusted_proxies = Network::parse("unix").into_iter().collect();
    // the stage before has judged, and tells the class of each request
    for class in &mut config.classes {
        class.requests_per_connection = Optional::default();
        class.keep_alive = Default::default();
    }
    config.rules.clear();
    config.gate = GateMode::Off;
    config.firewall.mode = FirewallMode::Off;
    config.protects.clear();
    // whose connections receive passes on by itself
    config.tcp.clear();
    config.ban_files.clear();
    config.admin.listen = AdminListen::default();
    // no keys are held where they are not used
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
    // HTTP/2 counts more for a field than its line
    let counted = limits.head_lines * FIELD_BYTES as u64;
    limits.head_bytes = Size(limits.head_bytes.0 + ADDED_BYTES as u64 + counted);
    if config.isolated.http2 == Switch::Off {
        // receive has counted them; passed on in other chunks, a body may take more bytes
        limits.body_bytes = Size(u64::MAX);
    }
    // each request has a connection of its own here, and receive has counted the clients
    limits.connections = AutoCount::Auto;
    limits.connections_per_client = AutoCount::Fixed(u64::from(u32::MAX));
    limits.requests_per_connection = 0;
    // another stage has one under way on a connection
    limits.streams = STREAMS;
    limits.send_rate = ByteRate(0);
    // clients are receive's, and so is the order in which their answers go on
    config.send_order = SendOrder::default();
    config.keep_alive.law = KeepAliveLaw::Constant;
    config.keep_alive.announce = false;
    // who asks ends a connection first, unless its machine is gone; and who reaches the port may be anybody
    let is_reached = config.isolated.listens();
    config.timeouts.idle = if is_reached { 2 * KEPT } else { IDLE };
    if !is_reached {
        config.timeouts.head = IDLE;
    }
}
