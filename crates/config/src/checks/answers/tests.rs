//! Each setting is judged, whether the kernel may answer beside it; a setting that is new fails the test until it is.

use super::*;
use crate::table::{Item, Section, rows};
use crate::{
    CgiConfig, FastCgiConfig, ForwardAuth, HandOverConfig, ProtectConfig, ProxyConfig, TcpConfig,
    parse,
};
use forebay_site::rules::{AccessRule, Auth, HeaderRule, Redirect, Rewrite, WorkHandler};

/// What a setting has to do with answers of the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bearing {
    /// Nothing: it is about requests that the kernel leaves to the server, or about how the server works.
    Apart,
    /// What it does to an answer is in the bytes that are learned, or it decides which file answers.
    Learned,
    /// By it some paths have no such answer, which is found out of each.
    OfPath,
    /// The kernel judges by it as the server does, or leaves the request to it.
    Judged,
    /// It is followed when what the kernel has answered is counted and logged.
    Recorded,
    /// With some values the kernel gives no answers.
    Hinders,
}

use Bearing::{Apart, Hinders, Judged, Learned, OfPath, Recorded};

/// Every setting of the process. Who adds one says here what it has to do with answers that the server does not give.
const OF_PROCESS: &[(Bearing, &str)] = &[
    (Hinders, "gate gate_rules gate_answers cache.bytes traces.to durations keep_alive.announce"),
    (Hinders, "limits.head_bytes limits.head_lines limits.target_bytes"),
    // the kernel counts them, and a connection is held by nothing, so that there is no number of them to bound
    (Judged, "limits.requests_per_connection limits.connections limits.connections_per_client"),
    // whom it names the kernel leaves to the server, and while there is a ban nothing is learned
    (Judged, "trusted_proxies forwarded trusted_header policy.ban_files identity.keys"),
    (Judged, "identity.cookie agent gate_charge timeouts.idle"),
    (
        Learned,
        "cache.check_interval cache.file_bytes cache.in_flight cache.segment_bytes cache.open_files",
    ),
    (Recorded, "admin.page admin.page_addresses"),
    (Apart, "include sample send_order user group spool_dir spool_dir_bytes"),
    (Apart, "timeouts.head timeouts.body timeouts.job timeouts.send_window timeouts.drain"),
    (
        Apart,
        "timeouts.drain_wait timeouts.upgrade keep_alive.law keep_alive.threshold keep_alive.floor",
    ),
    (Apart, "limits.body_bytes limits.streams limits.send_rate"),
    (
        Apart,
        "acme.directory acme.agree acme.contact acme.storage acme.challenges acme.dns_hook acme.dns_user",
    ),
    (Apart, "acme.dns_timeout acme.dns_wait acme.ca"),
    (Apart, "admin.listen admin.allow admin.token_file admin.tls.certificate admin.tls.key"),
    (Apart, "traces.rate traces.parent traces.service identity.remove control.socket"),
    (Apart, "firewall.mode firewall.table firewall.clients firewall.sets_interval"),
    (
        Apart,
        "sandbox.landlock sandbox.seccomp sandbox.read helpers.threads helpers.reserve helpers.niceness",
    ),
    (
        Apart,
        "pipeline.fuse pipeline.by pipeline.period pipeline.delay pipeline.threads pipeline.transfer",
    ),
    (Apart, "pipeline.accept pipeline.receive pipeline.process pipeline.send pipeline.send_wait"),
    (Apart, "pipeline.calibration"),
    // with stages there are no answers of the kernel at all
    (
        Hinders,
        "isolated.process isolated.respond isolated.process_at isolated.process_backup isolated.respond_at",
    ),
    (Hinders, "isolated.process_listen isolated.respond_listen"),
    (
        Apart,
        "isolated.keys isolated.unencrypted isolated.http2 isolated.balance isolated.acknowledge_floor",
    ),
    (Apart, "isolated.acknowledge_ceiling isolated.ping isolated.back_off isolated.cpu_weight"),
    (Apart, "isolated.memory_high isolated.memory_max isolated.tasks_max"),
];

const OF_LISTENER: &[(Bearing, &str)] = &[
    (Hinders, "listen engine proxy_protocol"),
    (Apart, "workers answering accept_ahead upstream_threads tunnel_threads"),
];

const OF_SITE: &[(Bearing, &str)] = &[
    (Hinders, "root tls.client tls.redirect"),
    (
        Learned,
        "hosts links index try_files try_files_except hidden appended precompressed compress",
    ),
    (Learned, "compress_bytes etag types server_header cache_control"),
    // lists and errors are not learned
    (OfPath, "listing errors"),
    (
        Recorded,
        "name log.access log.format log.if log.sample log.sample_refused log.fields log.query log.redact",
    ),
    (
        Apart,
        "repeat_idempotent tls.certificate tls.key tls.acme tls.client_ca tls.client_crl tls.hsts",
    ),
    (Apart, "tls.hsts_subdomains tls.hsts_preload"),
];

const OF_CLASS: &[(Bearing, &str)] = &[
    (Hinders, "requests_per_connection"),
    (Judged, "name priority share delay default"),
    (Apart, "keep_alive.idle keep_alive.law keep_alive.threshold keep_alive.floor"),
];

const OF_RULE: &[(Bearing, &str)] = &[
    (Hinders, "requests_per_connection"),
    (Recorded, "metric"),
    (
        Judged,
        "name client client_set local site method path query file_type certificate identity header",
    ),
    (Judged, "cookie ignore_case when stop class action status"),
    (
        Judged,
        "connections.rate connections.burst connections.per connections.over connections.status",
    ),
    (Judged, "connections.ignore requests.rate requests.rate_min requests.rate_max requests.burst"),
    (
        Judged,
        "requests.per requests.over requests.status requests.deadline requests.most requests.ignore",
    ),
    (Judged, "in_flight.most in_flight.per in_flight.over in_flight.status in_flight.deadline"),
    (Judged, "in_flight.queue"),
];

/// Lists, whatever is in them: what they say is for paths.
const LISTS: &[(Bearing, &str)] = &[
    (OfPath, "redirect header auth access work proxy fastcgi hand_over cgi forward_auth"),
    (Learned, "rewrite alias"),
    (Apart, "tcp protect"),
];

/// Every setting of the lists that are for paths. A new one may be about more than its paths.
const OF_LISTS: &[(&str, &str)] = &[
    ("redirect", "path regex to status"),
    ("rewrite", "path regex to"),
    ("header", "path regex type set remove"),
    ("auth", "path regex except realm users file"),
    ("access", "path regex except allow deny status"),
    ("work", "path"),
];

/// What a path's rules may depend on. Its answer is another for each outcome then, and none that is learned.
const CONDITIONS: [&str; 9] =
    ["client", "host", "method", "query", "header", "cookie", "class", "scheme", "ignore_case"];

#[track_caller]
fn covers<T: Section>(of: &str, table: &[(Bearing, &str)]) {
    let known: Vec<&str> = table.iter().flat_map(|(_, keys)| keys.split(' ')).collect();
    for row in rows::<T>() {
        let count = known.iter().filter(|key| **key == row.key).count();
        assert_eq!(
            count, 1,
            "{of}: {}: say in crates/config/src/checks/answers/tests.rs what it has to do with answers that the \
             kernel gives",
            row.key
        );
    }
    for key in known {
        assert!(rows::<T>().iter().any(|row| row.key == key), "{of}: there is no {key}");
    }
}

#[test]
fn every_setting_is_judged_whether_the_kernel_may_answer() {
    covers::<Config>("the process", OF_PROCESS);
    covers::<ListenerConfig>("a listener", OF_LISTENER);
    covers::<SiteConfig>("a site", OF_SITE);
    covers::<ClassConfig>("a class", OF_CLASS);
    covers::<RuleConfig>("a rule", OF_RULE);
}

#[test]
fn every_list_is_judged_whether_the_kernel_may_answer() {
    let lists = SiteConfig::LISTS.iter().map(|list| list.name);
    let lists = lists.chain(Config::LISTS.iter().map(|list| list.name));
    let known: Vec<&str> = LISTS.iter().flat_map(|(_, names)| names.split(' ')).collect();
    for list in lists {
        assert!(known.contains(&list), "[[{list}]] is in no row of LISTS");
    }
    fn keys<T: Item>(list: &str) {
        let (_, known) = OF_LISTS.iter().find(|(name, _)| *name == list).unwrap();
        let known: Vec<&str> = known.split(' ').collect();
        for row in rows::<T::Section>() {
            let key = row.key;
            assert!(
                CONDITIONS.contains(&key) || known.contains(&key),
                "[[{list}]]: {key} is in no row"
            );
        }
    }
    keys::<Redirect>("redirect");
    keys::<Rewrite>("rewrite");
    keys::<HeaderRule>("header");
    keys::<Auth>("auth");
    keys::<AccessRule>("access");
    keys::<WorkHandler>("work");
    // what these lists have is for requests that applications answer, or servers that decide
    let _ = |_: (ProxyConfig, FastCgiConfig, HandOverConfig, CgiConfig, ForwardAuth)| {};
    let _ = |_: (TcpConfig, ProtectConfig)| {};
}

fn config(text: &str) -> Config {
    let text = text.replace("FULL", "gate = \"full\"\ngate_rules = \"first_request\"\n");
    parse(&text, "/f.toml").unwrap()
}

/// What stands in the way of all three together, in words.
fn why(text: &str) -> Vec<String> {
    let config = config(text);
    let of_sites = config.sites.iter().flat_map(of_site);
    let endpoints = config
        .listeners
        .iter()
        .flat_map(|one| one.listen.iter().filter_map(move |endpoint| of_endpoint(one, endpoint)));
    let all = of_process(&config).into_iter().chain(of_sites).chain(endpoints);
    all.map(|why| why.to_string()).collect()
}

#[test]
fn what_stands_in_the_way_is_told() {
    assert_eq!(why("FULLroot = \"/\"\n"), [""; 0]);
    assert_eq!(why("root = \"/\"\n").len(), 2);
    for (text, expected) in [
        ("gate = \"full\"\nroot = \"/\"\n", "gate_rules"),
        ("FULLroot = \"/\"\ndurations = true\n", "durations times each request"),
        ("FULLroot = \"/\"\n[traces]\nto = \"http://127.0.0.1:4318\"\n", "traces.to"),
        ("FULLroot = \"/\"\n[keep_alive]\nannounce = true\n", "keep_alive.announce"),
        ("FULLroot = \"/\"\n[cache]\nbytes = \"0B\"\n", "cache.bytes"),
        ("FULLroot = \"/\"\n[limits]\nhead_bytes = \"1KiB\"\n", "limits.head_bytes"),
        ("FULLroot = \"/\"\n[limits]\nhead_lines = 10\n", "limits.head_lines"),
        ("FULLroot = \"/\"\n[limits]\ntarget_bytes = \"1KiB\"\n", "limits.target_bytes"),
        ("FULLroot = \"/\"\nengine = \"isolated\"\n", "stages"),
        (
            "FULLroot = \"/\"\n[[class]]\nname = \"a\"\npriority = 0\nrequests_per_connection = 9\n",
            "requests_per_connection of the class \"a\"",
        ),
        (
            "FULLroot = \"/\"\n[[rule]]\nname = \"r\"\npath = \"/a\"\nrequests_per_connection = 9\n",
            "requests_per_connection of the rule \"r\"",
        ),
        ("FULLlisten = [\"unix:/run/f.sock\"]\nroot = \"/\"\n", "Unix socket"),
        (
            "FULLroot = \"/\"\nproxy_protocol = true\ntrusted_proxies = [\"10.0.0.1\"]\n",
            "proxy_protocol",
        ),
    ] {
        let why = why(text);
        assert!(why.len() == 1 && why[0].contains(expected), "{text}: {why:?}");
    }
}

#[test]
fn what_concerns_others_is_no_hindrance() {
    for lines in [
        "[[access]]\npath = \"/private\"\nallow = [\"10.0.0.0/8\"]\n",
        "[[header]]\nset = { \"X-A\" = \"$client\" }\n",
        "[log]\nformat = \"json\"\n",
        "[[proxy]]\npath = \"/api\"\nto = \"http://127.0.0.1:9000\"\n",
        "[[rule]]\npath = \"/a\"\nrequests = { rate = \"1/s\", per = \"client\" }\n",
    ] {
        let text = format!("FULLroot = \"/\"\n{lines}");
        assert_eq!(why(&text), [""; 0], "{lines}");
    }
}
