//! The cost of answering in three stages: processor time per request of `isolated`, with HTTP/1.1 and with
//! HTTP/2 between its stages, beside `event` and beside three chained nginx (proxy, proxy, files; connections
//! are kept). With `--tiers`, the cost that each measure of isolation adds, one after the other.
//!
//! `before` is another build of the program (`--before`). `isolated-tcp` and `isolated-tls` have process and
//! respond in a server of their own, which receive asks over TCP, in clear and through TLS, as on another machine.

use crate::Error;
use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, Ratio, nothing};
use crate::case;
use crate::claim::{BenchmarkClaim, at_most};
use crate::client::{self, ProgramLoad};
use crate::columns::{figure, key};
use crate::cpu::Used;
use crate::options::{Axis, Kind, Setting};
use crate::reference::Reference;
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use crate::running;
use crate::serving::{Forebay, PeerProcess, Serving};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The files that are asked for.
const FILES: [(&str, usize); 3] = [("1k", 1 << 10), ("10k", 10 << 10), ("100k", 100 << 10)];

/// Three nginx, one behind the other.
const CHAIN: &str = "nginx-chain";

/// Forebay's stages as another build of the program has them.
const BEFORE: &str = "before";

/// Process and respond behind a port, and the scheme by which receive asks them.
const APART: [(&str, &str); 2] = [("isolated-tcp", "tcp"), ("isolated-tls", "tls")];

/// The servers that are Forebay: engine, and lines of its configuration. From the fourth on each has what the one
/// before has.
const OURS: [(&str, &str, &str); 10] = [
    ("event", "event", ""),
    ("isolated", "isolated", ""),
    ("isolated-http2", "isolated", "isolated.http2 = \"on\"\n"),
    ("event-bare", "event", "sandbox.landlock = \"off\"\n"),
    ("event-landlock", "event", "sandbox.landlock = \"on\"\n"),
    ("isolated-bare", "isolated", "sandbox.landlock = \"off\"\nsandbox.seccomp = \"off\"\n"),
    ("isolated-landlock", "isolated", "sandbox.landlock = \"on\"\nsandbox.seccomp = \"off\"\n"),
    // process as nobody
    ("isolated-seccomp", "isolated", "sandbox.landlock = \"on\"\nsandbox.seccomp = \"on\"\n"),
    // receive and respond as another user
    (
        "isolated-user",
        "isolated",
        "sandbox.landlock = \"on\"\nsandbox.seccomp = \"on\"\nuser = \"www-data\"\n",
    ),
    (
        "isolated-cgroups",
        "isolated",
        "sandbox.landlock = \"on\"\nsandbox.seccomp = \"on\"\nuser = \"www-data\"\n\
         isolated.cpu_weight = { receive = 100, process = 100, respond = 100 }\n\
         isolated.memory_max = { receive = \"4GiB\", process = \"4GiB\", respond = \"4GiB\" }\n\
         isolated.tasks_max = { receive = 1000, process = 1000, respond = 1000 }\n",
    ),
];

/// All tiers of the chain together.
const WHOLE_CHAIN: Reference = Reference::Rows(&[("server", CHAIN)]);

const AHEAD: BenchmarkClaim = at_most(
    "µs of isolated",
    &[("server", "isolated"), ("tier", "all")],
    "cpu_us",
    1.0,
    WHOLE_CHAIN,
);

/// The experiment.
pub const STAGES: Benchmark = Benchmark {
    name: "stages",
    title: "What three processes cost",
    about: "Processor time per request in one process, in three, and in three of nginx, one behind the other.",
    servers: Axis {
        instead: Some((
            "tiers",
            "event-bare,event-landlock,isolated-bare,isolated-landlock,isolated-seccomp,isolated-user,\
             isolated-cgroups",
            "What each measure of isolation adds, as root",
        )),
        ..Axis::new(
            "server",
            "servers",
            "Servers",
            servers,
            "event,isolated,isolated-http2,nginx-chain",
        )
    },
    peers: &[(CHAIN, &["chain/nginx-proxy.conf"])],
    clients: &[client::WRK],
    sweep: &[Axis { quick: "1k", ..Axis::new("file", "files", "What is asked for", files, "") }],
    points: None,
    settings: &[Setting {
        name: "connections",
        kind: Kind::Number,
        default: "32",
        help: "Connections that are kept",
    }],
    rounds: 5,
    measured: "3s",
    network: BenchmarkNetwork::Shared,
    pinned: false,
    columns: &[
        key("file"),
        key("server"),
        key("tier"),
        figure("cpu_us").shown("CPU µs", 1),
        figure("rate_per_s").shown("answers/s", 0),
    ],
    tables: &["file"],
    lines: &["server", "tier"],
    ratios: &[Ratio { figure: "cpu_us", to: WHOLE_CHAIN }],
    claims: &[AHEAD],
    more: nothing,
    prepare,
};

fn servers() -> Vec<&'static str> {
    let apart = APART.iter().map(|(name, _)| *name);
    OURS.iter().map(|(name, ..)| *name).chain([BEFORE]).chain(apart).chain([CHAIN]).collect()
}

fn files() -> Vec<&'static str> {
    FILES.map(|(name, _)| name).to_vec()
}

struct StagesMeasure;

/// Writes the files below the root.
///
/// # Errors
/// When the disk does not take them.
pub fn write(run: &Run) -> Result<(), Error> {
    FILES.iter().try_for_each(|(name, bytes)| {
        let file = run.root.join(name);
        fs::write(&file, vec![b'x'; *bytes]).map_err(Error::io("cannot write", &file))
    })
}

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    write(run)?;
    Ok(Box::new(StagesMeasure))
}

/// The processes of each tier of a server, those that clients come to first.
fn tiers(server: &str, serving: &Serving) -> Vec<(&'static str, Vec<u32>)> {
    if server == CHAIN {
        let names = ["front", "middle", "files"].into_iter().enumerate();
        return names.map(|(at, name)| (name, running::family(serving.process(at)))).collect();
    }
    let all = serving.family();
    let of = |tier: &'static str| {
        (tier, all.iter().copied().filter(|pid| is_stage(*pid, tier)).collect())
    };
    let stages = ["receive", "process", "respond"].map(of);
    stages.into_iter().filter(|(_, pids): &(_, Vec<u32>)| !pids.is_empty()).collect()
}

fn is_stage(pid: u32, name: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|&b| b == 0).skip_while(|word| *word != b"stage");
    words.nth(1).is_some_and(|word| word == name.as_bytes())
}

/// Starts two nginx that pass requests on and one that has the files.
fn chain(run: &Run) -> Result<Serving, Error> {
    let ports = [run.port()?, run.port()?, run.port()?];
    let mut serving = Serving::empty(&run.folder()?, ports[0]);
    let at = |at: usize| format!("127.0.0.1:{}", ports[at]);
    for (place, folder) in ["front", "middle", "files"].into_iter().enumerate() {
        let peer = if place == 2 { "chain/nginx-files.conf" } else { "chain/nginx-proxy.conf" };
        let words = [("LISTEN", at(place)), ("NEXT", at(2.min(place + 1)))];
        serving.add(run, &PeerProcess { folder, words: &words, ..PeerProcess::new(peer) })?;
    }
    Ok(serving)
}

/// Receive in one server, and what it asks in another.
fn apart(run: &Run, scheme: &str) -> Result<Serving, Error> {
    let (front, behind) = (run.port()?, run.port()?);
    let mut serving = Serving::empty(&run.folder()?, front);
    let keys = run.root.with_file_name("stage-keys");
    let made = Command::new(&run.options.program).args(["stages", "keys"]).arg(&keys).output();
    let made = made.map_err(Error::io("cannot start", &run.options.program))?;
    if !made.status.success() {
        return Err(Error::Client(String::from_utf8_lossy(&made.stderr).into_owned()));
    }
    let trust = match scheme {
        "tls" => format!("keys = {keys:?}\n"),
        _ => "unencrypted = true\n".to_owned(),
    };
    let parts = [
        (
            "front",
            format!(
                "listen = [\"127.0.0.1:{front}\"]\n[stages]\nprocess_at = [\"{scheme}://127.0.0.1:{behind}\"]\n{trust}"
            ),
        ),
        ("behind", format!("[stages]\nprocess_listen = [\"127.0.0.1:{behind}\"]\n{trust}")),
    ];
    for (folder, lines) in parts {
        let words = [("LINES", lines)];
        let part = PeerProcess {
            program: Some(&run.options.program),
            folder,
            words: &words,
            ..PeerProcess::new("stages/forebay.toml")
        };
        serving.add(run, &part)?;
    }
    Ok(serving)
}

impl Measure for StagesMeasure {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let (run, file) = (trial.run, trial.at("file"));
        let ours = |engine: &str, lines: &str, program: Option<&Path>| {
            let lines = format!("root = {:?}\nengine = \"{engine}\"\n{lines}", run.root);
            Serving::forebay(run, &Forebay { admin: false, program, ..Forebay::new(&lines) })
        };
        let known = OURS.iter().find(|(name, ..)| *name == trial.server);
        let other = APART.iter().find(|(name, _)| *name == trial.server);
        let serving = match (known, other, &run.options.before) {
            (Some((_, engine, lines)), ..) => ours(engine, lines, None)?,
            (_, Some((_, scheme)), _) => apart(run, scheme)?,
            (.., Some(before)) if trial.server == BEFORE => ours("isolated", "", Some(before))?,
            // without another build there is nothing to measure
            (.., None) if trial.server == BEFORE => return Ok(Vec::new()),
            _ => chain(run)?,
        };
        let is_right = |serving: &Serving| match serving.get(file)?.status {
            200 => Ok(()),
            status => Err(std::io::Error::other(format!("status {status}"))),
        };
        serving.until(run, trial.server, is_right)?;
        // keep-alive, in clear
        let case = &case::CASES[0];
        let url = format!("http://127.0.0.1:{}/{file}", serving.port());
        let program = client::WRK.located();
        let load = ProgramLoad {
            program: &program,
            core: run.core,
            connections: run.options.number("connections") as u32,
            scratch: run.scratch(),
        };
        let ask = |time| client::run(&load, case, "", &url, time, &run.stop);
        // caches, and connections between stages
        ask(Duration::from_secs(1))?;
        let tiers = tiers(trial.server, &serving);
        let read = |pids: &[u32]| Used::read(pids);
        let family = serving.family();
        let all = [("all", family)].into_iter().chain(tiers).collect::<Vec<_>>();
        let before: Vec<_> = all.iter().map(|(_, pids)| read(pids)).collect();
        let counted = ask(run.options.measured)?;
        let rows = all.iter().zip(before).map(|((tier, pids), before)| {
            let used_us = read(pids).since(&before) as f64 / 1e3;
            let row = RawRow::default().word("tier", *tier);
            let row = row.figure("cpu_us", used_us / counted.requests.max(1) as f64);
            let rate = counted.requests as f64 * 1e6 / counted.duration_us.max(1) as f64;
            let row = if *tier == "all" { row.figure("rate_per_s", rate) } else { row };
            row.flag("errors", counted.errors() > 0 || counted.requests == 0)
        });
        Ok(rows.collect())
    }
}
