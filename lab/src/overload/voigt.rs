//! voigt's tables 1 to 4 and figures 5 to 11 from user space: the policies of `lab/voigt`, its
//! clients, and the share that each of them gets, at some points of each figure.
//!
//! Costs are the paper's: its server took 2.6 ms for a static file of 8 KB and six times that for a
//! dynamic one. Rates are parts of the capacity that is measured here for the same costs. Where the
//! paper drops SYNs, connections are reset at accept, and the client waits for the second after
//! which it would have repeated its SYN. There 50 processes worked at a time, and classes parted when
//! more clients came than that; here one thread computes for each core, so they part at once. The part
//! `processes` shows the same with 50 threads.

use super::bench::{Bench, Trial, group};
use super::server::Server;
use crate::Error;
use forebay_load::{ClientGroup, GroupDraft, LoadTarget};
use std::time::Duration;

/// The part's name.
pub const PART: &str = "voigt";
/// CPU time of a static file of 8 KB.
pub(super) const STATIC: Duration = Duration::from_micros(2600);
/// CPU time of a dynamic answer.
pub(super) const DYNAMIC: Duration = Duration::from_micros(15_900);
/// The preferred client's load as a part of the capacity for static files.
const PREFERRED: f64 = 0.26;

const TABLE_1: &str = include_str!("../../voigt/table-1.toml");
const TABLE_2: &str = include_str!("../../voigt/table-2.toml");
pub(super) const TABLE_3: &str = include_str!("../../voigt/table-3.toml");
const TABLE_4: &str = include_str!("../../voigt/table-4.toml");
pub(super) const FIGURE_5: &str = include_str!("../../voigt/figure-5.toml");
const FIGURE_9: &str = include_str!("../../voigt/figure-9.toml");

/// One run: its clients and its policy.
pub(super) struct Scene {
    pub(super) case: String,
    pub(super) policy: String,
    pub(super) clients: Vec<VoigtClients>,
}

impl Scene {
    pub(super) fn warmup(&self) -> Duration {
        if self.case.starts_with("table 3") { LONG_WARMUP } else { WARMUP }
    }

    fn is_table(&self) -> bool {
        self.case.starts_with("table")
    }

    /// The lines of the configuration. The paper's addresses are moved into the loopback network.
    pub(super) fn lines(&self) -> String {
        let work = WORK.map(|path| format!("[[work]]\npath = \"{path}\"\n")).concat();
        format!("{}{work}", self.policy.replace("\"10.1.", "\"127.10."))
    }

    /// The same with the paper's addresses.
    pub(super) fn lines_of_network(&self) -> String {
        self.lines().replace("\"127.10.", "\"10.1.")
    }
}

/// Figures 7 and 8: this many clients of each of three classes by address, the classes below the
/// first with these shares, in percent.
pub(super) fn figures_7_and_8(clients: u32, shares: [u32; 2]) -> Scene {
    let of_class = |priority: u32, share: u32| {
        let line = |share: u32| format!("priority = {priority}\nshare = \"{share}%\"");
        (line(0), line(share))
    };
    let (medium, low) = (of_class(1, shares[0]), of_class(2, shares[1]));
    let of_classes = TABLE_3.replace(&medium.0, &medium.1).replace(&low.0, &low.1);
    let policy = limited(&of_classes, None);
    let case = match shares {
        [0, 0] => format!("{clients} clients each"),
        [medium, low] => format!("{clients} clients each, shares 0, {medium} and {low} %"),
    };
    Scene { case, policy, clients: by_address("127.10.1.1", [clients; 3]) }
}

/// A group of clients that do the same.
pub(super) struct VoigtClients {
    name: &'static str,
    /// Local addresses.
    from: &'static str,
    /// Another address of the server.
    to: Option<&'static str>,
    path: &'static str,
    load: ArrivalPattern,
    /// Good answers per second, where the policy says how many.
    expected: Option<f64>,
}

#[derive(Clone, Copy)]
pub(super) enum ArrivalPattern {
    /// This many clients, each of which asks again when it has its answer.
    Closed(u32),
    /// This many requests per second at random times.
    Open(f64),
    /// The same, and 50 to 80 at once twice a second.
    Bursts(f64),
}

impl VoigtClients {
    pub(super) fn new(
        name: &'static str,
        from: &'static str,
        path: &'static str,
        load: ArrivalPattern,
    ) -> VoigtClients {
        VoigtClients { name, from, to: None, path, load, expected: None }
    }

    fn expected(self, good_per_s: f64) -> VoigtClients {
        VoigtClients { expected: Some(good_per_s), ..self }
    }

    /// The clients as a group of the load generator. As in the paper, each request has a
    /// connection. The addresses are the paper's where the server is in another network.
    pub(super) fn group(&self, base: &LoadTarget) -> Result<ClientGroup, Error> {
        let mut draft = GroupDraft::new(self.name, Some(base));
        let to = self.to.map_or(String::new(), |to| format!("http://{to}:{}", base.address.port()));
        draft.set("url", &format!("{to}{}", self.path));
        match base.address.ip().is_loopback() {
            true => draft.set("source", self.from),
            false => draft.set("source", &self.from.replace("127.10.", "10.1.")),
        }
        draft.set("per_connection", "1");
        draft.set("http", "1.0");
        draft.set("timeout", "5s");
        match self.load {
            ArrivalPattern::Closed(clients) => {
                draft.set("connections", &clients.to_string());
                draft.set("pause", "1s");
            }
            ArrivalPattern::Open(rate) | ArrivalPattern::Bursts(rate) => {
                draft.set("rate", &format!("{rate:.3}"));
                draft.set("arrivals", "poisson");
                draft.set("connections", "3000");
                if let ArrivalPattern::Bursts(_) = self.load {
                    draft.set("bursts", "50-80@2/s");
                }
            }
        }
        group(draft)
    }
}

pub(super) const SMALL_FILE: &str = "/static/8k.html?cpu=2600us&out=8KiB";
const SCRIPT: &str = "/cgi-bin/script?cpu=15900us&out=5KiB";
/// The same as [`SCRIPT`], with the answer of figure 6.
const SCRIPT_16K: &str = "/cgi-bin/script?cpu=15900us&out=16KiB";
/// The same as [`SCRIPT`], with the answer of figure 11.
const SCRIPT_29K: &str = "/cgi-bin/script?cpu=15900us&out=29KiB";

/// The policy with the rate and burst of its limit set anew, or without the limit.
pub(super) fn limited(policy: &str, limit: Option<(f64, u32)>) -> String {
    let line = |line: &str| {
        let key = ["connections = {", "requests = {"].into_iter().find(|key| line.starts_with(key));
        match (key, limit) {
            (None, _) => format!("{line}\n"),
            // a rule has to say something
            (Some(_), None) => "action = \"allow\"\n".to_owned(),
            (Some(key), Some((rate, burst))) => {
                // rates are whole numbers
                let per_minute = (rate * 60.0).round().max(1.0);
                format!("{key} rate = \"{per_minute}/m\", burst = {burst}, over = \"reset\" }}\n")
            }
        }
    };
    policy.lines().map(line).collect()
}

/// All runs, for these capacities for static and dynamic requests.
pub(super) fn scenes(small: f64, dynamic: f64) -> Vec<Scene> {
    let scene = |case: &str, policy: String, clients: Vec<VoigtClients>| Scene {
        case: case.to_owned(),
        policy,
        clients,
    };
    let mut all = vec![table_1(), table_2()];
    for part in [None, Some(0.78), Some(0.52)] {
        let limit = part.map(|part| (part * small, (part * small) as u32));
        let clients = by_address("127.10.1.1-127.10.1.3", [150, 30, 30]);
        let case = format!("table 3: {}", say(limit));
        all.push(scene(&case, limited(TABLE_3, limit), clients));
    }
    for part in [None, Some(0.5), Some(0.16)] {
        let limit = part.map(|part| (part * dynamic, 10));
        let clients = vec![
            VoigtClients::new("high", "127.10.1.1", SCRIPT, ArrivalPattern::Open(1.6 * dynamic)),
            VoigtClients::new("low", "127.10.2.1", SMALL_FILE, ArrivalPattern::Closed(30)),
        ];
        let case = format!("table 4: {}", say(limit));
        all.push(scene(&case, limited(TABLE_4, limit), clients));
    }
    let preferred = || {
        VoigtClients::new(
            "preferred",
            "127.10.9.1",
            SMALL_FILE,
            ArrivalPattern::Open(PREFERRED * small),
        )
    };
    for part in [None, Some(0.8), Some(0.25), Some(0.065)] {
        let limit = part.map(|part| (part * small, 5));
        let others = VoigtClients::new(
            "others",
            "127.10.1.1-127.10.1.5",
            SMALL_FILE,
            ArrivalPattern::Closed(250),
        );
        let case = format!("figure 5: {}", say(limit));
        all.push(scene(&case, limited(FIGURE_5, limit), vec![preferred(), others]));
    }
    for burst in [5, 20, 50] {
        let limit = Some((0.13 * small, burst));
        let clients = vec![
            VoigtClients::new("preferred", "127.10.9.1", SMALL_FILE, ArrivalPattern::Closed(40)),
            VoigtClients::new("others", "127.10.1.1", SCRIPT_16K, ArrivalPattern::Bursts(50.0)),
        ];
        let case = format!("figure 6: {}", say(limit));
        all.push(scene(&case, limited(FIGURE_5, limit), clients));
    }
    for clients in [5, 30, 60] {
        let case = format!("figures 7 and 8: {clients} clients each");
        all.push(scene(&case, limited(TABLE_3, None), by_address("127.10.1.1", [clients; 3])));
    }
    for part in [0.65, 0.2, 0.03] {
        let limit = Some((part * dynamic, 2));
        let flood =
            VoigtClients::new("scripts", "127.10.1.1", SCRIPT, ArrivalPattern::Open(3.0 * dynamic));
        let case = format!("figure 9: {}", say(limit));
        all.push(scene(&case, limited(FIGURE_9, limit), vec![preferred(), flood]));
    }
    for clients in [10, 40, 60] {
        let small_script = "/cgi-bin/8k?cpu=2600us&out=8KiB";
        let both = vec![
            VoigtClients::new("high", "127.10.1.1", small_script, ArrivalPattern::Closed(clients)),
            VoigtClients::new("low", "127.10.2.1", SMALL_FILE, ArrivalPattern::Closed(clients)),
        ];
        let case = format!("figure 10: {clients} clients each");
        all.push(scene(&case, limited(TABLE_4, None), both));
    }
    for is_limited in [false, true] {
        all.extend([0.5, 1.0, 2.4].map(|load| figure_11(dynamic, load, is_limited)));
    }
    all
}

/// Figure 11: a multiple of the capacity for scripts, limited or not.
pub(super) fn figure_11(dynamic: f64, load: f64, is_limited: bool) -> Scene {
    let limit = is_limited.then_some((0.95 * dynamic, 10));
    let scripts = VoigtClients::new(
        "scripts",
        "127.10.1.1",
        SCRIPT_29K,
        ArrivalPattern::Open(load * dynamic),
    );
    let case = format!("figure 11: load ×{load} {}", say(limit));
    Scene { case, policy: limited(FIGURE_9, limit), clients: vec![scripts] }
}

fn say(limit: Option<(f64, u32)>) -> String {
    limit.map_or("no limit".to_owned(), |(rate, burst)| format!("{rate:.0}/s burst {burst}"))
}

/// Clients of three classes; those of the first may be several hosts.
fn by_address(high_from: &'static str, clients: [u32; 3]) -> Vec<VoigtClients> {
    let [high, medium, low] = clients.map(ArrivalPattern::Closed);
    vec![
        VoigtClients::new("high", high_from, SMALL_FILE, high),
        VoigtClients::new("medium", "127.10.2.1", SMALL_FILE, medium),
        VoigtClients::new("low", "127.10.3.1", SMALL_FILE, low),
    ]
}

/// Each URL of the table, more often than it is allowed.
fn table_1() -> Scene {
    let from = "127.10.1.1";
    let clients = vec![
        VoigtClients::new("noaccess", from, "/a/noaccess/b?cpu=2600us", ArrivalPattern::Open(20.0))
            .expected(0.0),
        VoigtClients::new("shop", from, "/shop.html?cpu=2600us", ArrivalPattern::Open(20.0))
            .expected(20.0),
        VoigtClients::new("index", from, "/index.html?cpu=2600us", ArrivalPattern::Open(45.0))
            .expected(15.0),
        VoigtClients::new("scripts", from, SCRIPT, ArrivalPattern::Open(30.0)).expected(10.0),
    ];
    Scene { case: "table 1".to_owned(), policy: TABLE_1.to_owned(), clients }
}

/// Each row of the table, more often than it is allowed: with a burst of 1 much more, because what
/// comes at random while the bucket is full is lost to it. The paper's addresses are moved into the
/// loopback network.
fn table_2() -> Scene {
    let policy = TABLE_2.replace("10.1.1.1\"", "127.10.1.1\"").replace("12.1.1.1", "127.12.1.1");
    let policy = policy.replace(":80\"", ":@PORT@\"");
    let path = "/static/8k.html?cpu=500us";
    let clients = vec![
        VoigtClients::new("others", "127.10.2.1", path, ArrivalPattern::Open(600.0))
            .expected(300.0),
        VoigtClients::new("from-10", "127.10.1.1", path, ArrivalPattern::Open(200.0))
            .expected(100.0),
        VoigtClients {
            to: Some("127.12.1.1"),
            ..VoigtClients::new("to-12", "127.10.2.2", path, ArrivalPattern::Open(200.0))
                .expected(10.0)
        },
    ];
    let policy = format!("[[listener]]\nlisten = [\"127.12.1.1:@PORT@\"]\n{policy}");
    Scene { case: "table 2".to_owned(), policy, clients }
}

/// Length of the load before what is measured.
const WARMUP: Duration = Duration::from_secs(1);
/// The same where a burst as large as the rate has to be used up first.
const LONG_WARMUP: Duration = Duration::from_secs(5);

/// Handlers for what is asked for.
const WORK: [&str; 4] = ["/cgi-bin/*", "/static/*", "/shop.html", "/index.html"];

/// Measures one round, on the first server with a policy.
///
/// # Errors
/// When it does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32, server: Server) -> Result<(), Error> {
    if bench.settings.with_policy().next() != Some(server) {
        return Ok(());
    }
    let small = bench.capacity(server, STATIC)?.per_s;
    let dynamic = bench.capacity(server, DYNAMIC)?.per_s;
    let tables_only = bench.settings.quick;
    for scene in scenes(small, dynamic).iter().filter(|scene| !tables_only || scene.is_table()) {
        one(bench, (PART, round), server, scene)?;
    }
    Ok(())
}

/// Measures one run of a part.
///
/// # Errors
/// When the server does not come up or the load cannot be made.
pub(super) fn one(
    bench: &mut Bench<'_>,
    (part, round): (&'static str, u32),
    server: Server,
    scene: &Scene,
) -> Result<(), Error> {
    let lines = scene.lines();
    let trial = bench.trial(part, round, &scene.case, server, STATIC);
    let trial = Trial { lines: &lines, warmup: scene.warmup(), ..trial };
    let (_, mut rows) = bench
        .run(&trial, |base| scene.clients.iter().map(|clients| clients.group(base)).collect())?;
    for (row, clients) in rows.iter_mut().zip(&scene.clients) {
        row.figure = clients.expected;
    }
    bench.keep(rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_anew_or_left_out() {
        let set = limited(TABLE_3, Some((100.5, 7)));
        assert!(set.contains("connections = { rate = \"6030/m\", burst = 7, over = \"reset\" }"));
        assert!(!limited(TABLE_3, None).contains("connections"));
        assert!(limited(FIGURE_9, Some((0.001, 1))).contains("\"1/m\""));
    }

    #[test]
    fn shares_are_those_of_the_classes_below_the_first() {
        let shares = |shares| {
            let text = figures_7_and_8(5, shares).policy;
            let lines = text.lines().filter_map(|line| line.strip_prefix("share = "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(shares([0, 0]), ["\"0%\""; 3]);
        assert_eq!(shares([20, 5]), ["\"0%\"", "\"20%\"", "\"5%\""]);
    }

    #[test]
    fn all_clients_stay_in_the_loopback_network() {
        let base = LoadTarget::parse("http://127.0.0.1:8080/").expect("a URL");
        for scene in scenes(385.0, 63.0) {
            for clients in &scene.clients {
                let group = clients.group(&base).expect("a group");
                assert!(group.target.address.ip().is_loopback());
                assert!(group.source.addresses.iter().all(std::net::IpAddr::is_loopback));
            }
            assert!(!scene.case.is_empty());
        }
    }

    #[test]
    fn the_rules_are_about_the_addresses_that_come() {
        let scene = table_2();
        assert!(scene.policy.contains("client = [\"127.10.1.1\"]"), "{}", scene.policy);
        assert!(scene.policy.contains("local = [\"127.12.1.1:@PORT@\"]"), "{}", scene.policy);
        assert!(TABLE_3.replace("\"10.1.", "\"127.10.").contains("\"127.10.2.0/24\""));
    }
}
