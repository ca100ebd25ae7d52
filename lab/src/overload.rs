//! Overload: the requests that are still answered in time when more come than a server can do, and
//! the clients that get them.
//!
//! Requests cost a known processor time, so one core of clients can ask a server for many times what
//! it can do. A measurement is one start of a server and one run of the load generator, and makes a
//! row for each group of clients. The parts are those of BENCHMARKING.md.

pub mod bench;
pub mod cost;
pub mod gate;
pub mod gold;
pub mod goodput;
pub mod processes;
pub mod row;
pub mod scripts;
pub mod server;
pub mod shares;
pub mod step;
pub mod voigt;

use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure};
use crate::claim::{Against, BenchmarkClaim, DecidedBy, Goal};
use crate::columns::{figure, key};
use crate::content::body;
use crate::options::{Axis, Kind, Options, Setting, any};
use crate::reference::{Reference, RowKeys};
use crate::rows::RawRow;
use crate::run::{Point, Run, Trial};
use crate::{Error, peers};
use bench::{Bench, Capacity, Settings};
use row::Row;
use server::Server;
use server::application::ApplicationKind;
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// The address of clients that are served first.
pub const GOLD: &str = "127.0.2.1";
/// Addresses of many other clients.
pub const CROWD: &str = "127.0.1.1-127.0.1.64";
/// The beginning of a policy with a page of 1 KB of the site's own for refusals.
pub const SITE_PAGES: &str = "errors = { 429 = \"/1k.html\", 503 = \"/1k.html\" }\n";
/// The end of a policy with header rules of the site, for errors too.
pub const SITE_HEADERS: &str = "[[header]]\nset = { X-Frame-Options = \"DENY\", Referrer-Policy = \"no-referrer\" }\n\
     [[header]]\npath = \"/work*\"\nset = { X-Path = \"work\" }\n";

/// Files of peers with php-fpm behind them.
const WITH_NGINX: &[&str] = &["overload/nginx.conf", "overload/php-fpm.conf"];

/// The bound on gold's p99 under the flood, ms: twice that alone, and some more.
const fn gold(
    flooded: &'static [(&'static str, &'static str); 3],
    alone: RowKeys,
    more: f64,
) -> BenchmarkClaim {
    BenchmarkClaim {
        what: "p99 of gold, ms",
        of: flooded,
        figure: "p99_ms",
        against: Against::Others(Reference::Rows(alone)),
        goal: Goal::AtMost(2.0, more),
        by: DecidedBy::Median,
    }
}

/// The bound on a figure of a case, µs, as a multiple of another's.
const fn refusal(of: RowKeys, times: f64, to: RowKeys) -> BenchmarkClaim {
    let to = Reference::Rows(to);
    crate::claim::at_most("CPU of saying no, µs", of, "figure", times, to)
}

/// A figure with a bound of its own.
const fn bound(what: &'static str, of: RowKeys, goal: Goal) -> BenchmarkClaim {
    BenchmarkClaim {
        what,
        of,
        figure: "figure",
        against: Against::Nothing,
        goal,
        by: DecidedBy::Median,
    }
}

const CLAIMS: &[BenchmarkClaim] = &[
    gold(
        &[("part", "gold"), ("group", "gold"), ("case", "flooded: a thread in reserve")],
        &[("case", "alone: a thread in reserve")],
        1.0,
    ),
    gold(
        &[("part", "gold"), ("group", "gold"), ("case", "flooded: the site's error pages")],
        &[("case", "alone: the site's error pages")],
        1.0,
    ),
    // without a reserve it waits for the longest running job
    gold(
        &[("part", "gold"), ("group", "gold"), ("case", "flooded: no reserve")],
        &[("case", "alone: no reserve")],
        21.0,
    ),
    gold(&[("part", "gold"), ("group", "gold"), ("case", "flooded")], &[("case", "alone")], 1.0),
    bound(
        "share of worker time, %, floor 20",
        &[("part", "shares"), ("case", "shares"), ("group", "standard")],
        Goal::AtLeast(0.0, 18.0),
    ),
    bound(
        "share of worker time, %, floor 20",
        &[("part", "shares"), ("case", "shares"), ("group", "standard")],
        Goal::AtMost(0.0, 22.0),
    ),
    bound(
        "share of worker time, %, floor 5",
        &[("part", "shares"), ("case", "shares"), ("group", "bulk")],
        Goal::AtLeast(0.0, 4.5),
    ),
    bound(
        "share of worker time, %, floor 5",
        &[("part", "shares"), ("case", "shares"), ("group", "bulk")],
        Goal::AtMost(0.0, 5.5),
    ),
    bound("settled after a step, ms", &[("part", "step")], Goal::AtMost(0.0, 100.0)),
    refusal(&[("part", "cost"), ("case", "503")], 1.0, &[("case", "1 KB hit")]),
    refusal(&[("part", "cost"), ("case", cost::SITE_PAGE)], 1.0, &[("case", "1 KB hit")]),
    refusal(
        &[("part", "cost"), ("case", "reset at accept")],
        0.5,
        &[("case", "served connection")],
    ),
    refusal(
        &[("part", "cost"), ("case", "503: with the kernel's part")],
        1.0,
        &[("case", "1 KB hit: with the kernel's part")],
    ),
    refusal(
        &[("part", "cost"), ("case", "503 with the site's page: with the kernel's part")],
        1.0,
        &[("case", "1 KB hit: with the kernel's part")],
    ),
    refusal(
        &[("part", "cost"), ("case", "reset at accept: with the kernel's part")],
        0.5,
        &[("case", "served connection: with the kernel's part")],
    ),
];

/// The experiment.
pub const OVERLOAD: Benchmark = Benchmark {
    name: "overload",
    title: "Overload",
    about: "What is still answered in time when more comes than a server can do, and who gets it. What figure \
            is, each part says.",
    servers: Axis {
        quick: "event-policy,event,nginx,haproxy",
        ..Axis::new(
            "server",
            "servers",
            "Servers: an engine, an engine with -policy, nginx, nginx-limit, apache, haproxy",
            servers,
            "event-policy,pipeline-policy,event,pipeline,nginx,nginx-limit,apache,haproxy",
        )
    },
    peers: &[
        ("nginx", WITH_NGINX),
        ("nginx-limit", WITH_NGINX),
        ("apache", &["overload/apache2.conf", "overload/php-fpm.conf"]),
        ("haproxy", &["overload/haproxy.cfg", "overload/nginx.conf", "overload/php-fpm.conf"]),
    ],
    clients: &[],
    sweep: &[
        Axis::new(
            "part",
            "parts",
            "Parts",
            parts,
            "goodput,gold,scripts,shares,voigt,processes,step,cost",
        ),
        Axis {
            kind: Kind::Time,
            quick: "20ms,1ms",
            ..Axis::new("cost", "costs", "CPU time of requests of goodput", any, "20ms,5ms,1ms")
        },
        Axis {
            kind: Kind::Number,
            quick: "0.8,1,10",
            ..Axis::new(
                "load",
                "loads",
                "Loads of goodput as multiples of the capacity",
                any,
                "0.5,0.8,1,1.4,2,5,10",
            )
        },
        Axis {
            kind: Kind::Time,
            quick: "100us",
            ..Axis::new(
                "search",
                "search",
                "CPU times by which the end of user space is looked for",
                any,
                "500us,200us,100us,50us",
            )
        },
    ],
    points: Some(points),
    settings: &[Setting {
        name: "threads",
        kind: Kind::Number,
        default: "2",
        help: "Processes of php-fpm; Forebay computes with a thread for each core",
    }],
    rounds: 1,
    measured: "3s",
    network: BenchmarkNetwork::Pair(needs_pair),
    pinned: true,
    columns: &[
        key("part"),
        key("case"),
        key("server"),
        key("group"),
        figure("offered_per_s").shown("offered/s", 1),
        figure("good_per_s").shown("good/s", 1),
        figure("goodput_per_s").shown("in time/s", 1),
        figure("refused_per_s").shown("refused/s", 1),
        figure("reset_per_s").shown("reset/s", 1),
        figure("lost_per_s").shown("lost/s", 1),
        figure("p50_ms").shown("p50 ms", 1),
        figure("p99_ms").shown("p99 ms", 1),
        figure("max_ms"),
        figure("server_cores"),
        figure("core_busy"),
        figure("client"),
        figure("starved"),
        figure("figure").shown("figure", 2),
    ],
    tables: &["part"],
    lines: &["case", "server", "group"],
    ratios: &[],
    claims: CLAIMS,
    more: report,
    prepare,
};

fn servers() -> Vec<&'static str> {
    vec![
        "event-policy",
        "fibers-policy",
        "pipeline-policy",
        "pool-policy",
        "isolated-policy",
        "event",
        "fibers",
        "pipeline",
        "pool",
        "isolated",
        "nginx",
        "nginx-limit",
        "apache",
        "haproxy",
    ]
}

fn parts() -> Vec<&'static str> {
    vec![
        goodput::PART,
        gold::PART,
        scripts::PART,
        shares::PART,
        voigt::PART,
        processes::PART,
        gate::PART,
        step::PART,
        cost::PART,
    ]
}

/// Clients of the part `gate` come from a network of their own.
fn needs_pair(options: &Options) -> bool {
    options.sweep[0].iter().any(|part| part == gate::PART)
}

/// The points: one for each part, and one for each load or number of clients of those that have
/// some.
fn points(options: &Options) -> Vec<Point> {
    let [parts, costs, loads, search] = &options.sweep[..] else { return Vec::new() };
    let point = |part: &str, at: String| vec![("part", part.to_owned()), ("at", at)];
    let of_part = |part: &String| -> Vec<Point> {
        match part.as_str() {
            goodput::PART => {
                let all = goodput::points(costs, loads, search).into_iter();
                all.map(|(part, at)| point(part, at)).collect()
            }
            processes::PART => {
                let all = processes::points(options.quick).into_iter();
                all.map(|at| point(part, at)).collect()
            }
            part => vec![point(part, String::new())],
        }
    };
    parts.iter().flat_map(of_part).collect()
}

/// The findings about servers, once for all parts, and the rows of a part that ended with an error.
#[derive(Default)]
struct Overload {
    capacities: HashMap<(Server, Duration), Capacity>,
    unfinished: Vec<Row>,
}

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    let small = run.root.join("1k.html");
    fs::write(&small, body(1024)).map_err(Error::io("cannot write", &small))?;
    if run.options.sweep[0].iter().any(|part| part == scripts::PART) {
        let applications = ApplicationKind::ALL.iter();
        let missing: Vec<_> = applications.filter_map(|one| peers::missing(one.peer())).collect();
        if !missing.is_empty() {
            return Err(Error::NotInstalled(missing));
        }
    }
    let _ = fs::remove_file(run.out.join("step.csv"));
    Ok(Box::new(Overload::default()))
}

impl Measure for Overload {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let Some(server) = Server::find(trial.server) else { return Ok(Vec::new()) };
        let (part, at, round) = (trial.at("part"), trial.at("at"), trial.round);
        let settings = Settings::of(&trial.run.options);
        let capacities = std::mem::take(&mut self.capacities);
        let is_first = settings.servers.first() == Some(&server);
        let mut bench = Bench { run: trial.run, settings, rows: Vec::new(), capacities };
        let ended = match part {
            goodput::PART => goodput::measure(&mut bench, (goodput::PART, round, at), server),
            goodput::SEARCH => goodput::measure(&mut bench, (goodput::SEARCH, round, at), server),
            gold::PART => gold::measure(&mut bench, round, server),
            scripts::PART => scripts::measure(&mut bench, round, server),
            shares::PART => shares::measure(&mut bench, round, server),
            voigt::PART => voigt::measure(&mut bench, round, server),
            processes::PART => processes::measure(&mut bench, (round, at), server),
            step::PART => step::measure(&mut bench, round, server),
            cost::PART => cost::measure(&mut bench, round, server),
            // this part has all servers take turns itself
            gate::PART if is_first => gate::measure(&mut bench, round),
            _ => Ok(()),
        };
        self.capacities = bench.capacities;
        self.unfinished = bench.rows;
        ended.map(|()| self.unfinished())
    }

    fn unfinished(&mut self) -> Vec<RawRow> {
        self.unfinished.drain(..).map(|row| row.record()).collect()
    }
}

/// Tables that are not rows: goodput against its own peak, applications against theirs.
fn report(rows: &[RawRow]) -> String {
    let rows: Vec<Row> = rows.iter().map(Row::read).collect();
    goodput::report(&rows) + &scripts::report(&rows)
}

#[cfg(test)]
mod tests {
    use super::server::Server;
    use super::{OVERLOAD, cost, gold, goodput, processes, servers as known, shares, voigt};

    #[test]
    fn every_server_is_known_by_its_name() {
        let names: Vec<_> = Server::all().into_iter().map(Server::name).collect();
        assert_eq!(names, known());
        let peers = OVERLOAD.peers.iter();
        assert!(peers.map(|(server, _)| *server).all(|server| Server::find(server).is_some()));
    }

    #[test]
    fn forebay_takes_every_policy() {
        let ours = Server::Forebay { engine: "event", policy: true };
        let mut all = vec![goodput::POLICY.to_owned(), cost::POLICY.to_owned()];
        all.extend([goodput::with_pages(), cost::with_pages()]);
        all.extend(gold::variants(ours).into_iter().map(|(_, lines)| lines));
        all.extend(shares::VARIANTS.map(|(_, floors)| shares::policy(floors)));
        all.extend(processes::SHARES.map(|shares| voigt::figures_7_and_8(5, shares).lines()));
        all.extend(voigt::scenes(385.0, 63.0).iter().map(voigt::Scene::lines));
        for lines in all {
            let text = format!("root = \"/\"\n{}", lines.replace("@PORT@", "8080"));
            let problems = forebay_config::parse(&text, "policy").err();
            assert!(problems.is_none(), "{lines}\n{problems:?}");
        }
    }
}
