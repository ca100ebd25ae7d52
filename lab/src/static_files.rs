//! Static serving, measured side by side: processor time per request of Forebay, its peers and the floor below
//! them.
//!
//! What the numbers mean and how they mislead is in `BENCHMARKING.md`.

use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, Ratio, nothing};
use crate::case::{self, CASES, Mode, StaticCase};
use crate::claim::{BenchmarkClaim, at_most};
use crate::client::{self, ClientProgram, Counted, ProgramLoad};
use crate::columns::{figure, key};
use crate::content;
use crate::cpu::{self, Core, Used};
use crate::error::MissingProgram;
use crate::options::{Axis, Kind, Setting};
use crate::probe::{self, Answer};
use crate::reference::Reference;
use crate::rows::{NOISY, RawRow};
use crate::run::{Run, Trial};
use crate::serving::{PeerProcess, Serving};
use crate::{Error, tls};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The name of this build of Forebay.
const FOREBAY: &str = "forebay";
/// The floor: `lab/src/bin/limit.rs`.
const LIMIT: &str = "limit";
/// The name of Forebay built from another commit.
const BEFORE: &str = "before";

/// The share of the server's core that others may take before a row is called noisy.
const NOISE: f64 = 0.05;
/// The share by which bytes per answer may differ from the probe's: at the end of a run some
/// answers are cut off between two counts.
const SIZE_TOLERANCE: f64 = 0.05;

const FLOOR: Reference = Reference::Rows(&[("server", LIMIT)]);
const BEST: Reference = Reference::Best(&[FOREBAY, BEFORE, LIMIT]);
const H2O: Reference = Reference::Rows(&[("server", "h2o")]);

macro_rules! goals {
    ($($case:literal $times:literal $to:ident),* $(,)?) => {
        &[$(at_most(
            "CPU per request",
            &[("server", FOREBAY), ("case", $case)],
            "cpu_us_per_request",
            $times,
            $to,
        )),*]
    };
}

/// Processor time per request, divided by another's.
const GOALS: &[BenchmarkClaim] = goals![
    "1k" 1.10 FLOOR,
    "1k" 0.85 BEST,
    "10k" 0.90 BEST,
    "100k" 1.00 BEST,
    "1m" 1.00 BEST,
    "10k-close" 1.00 BEST,
    "1k-pipelined" 0.25 BEST,
    "1k-tls" 0.75 BEST,
    "10k-tls" 0.80 BEST,
    "100k-tls" 0.80 BEST,
    "1m-tls" 0.90 BEST,
    "1k-tls-close" 0.55 BEST,
    "1k-h2" 0.70 H2O,
    "1k-h2-1" 0.90 H2O,
    "10k-h2" 0.80 H2O,
    "100k-h2" 0.80 H2O,
];

/// The experiment.
pub const STATIC: Benchmark = Benchmark {
    name: "static",
    title: "Static serving, side by side",
    about: "What static answers cost: processor time per request of each server. limit is the floor: baked \
            answers, no parsing.",
    servers: Axis::new(
        "server",
        "servers",
        "Servers; before is the build that --before names, nginx-copy nginx with sendfile off",
        servers,
        "limit,forebay,nginx,nginx-copy,lighttpd,h2o,apache",
    ),
    peers: &[
        ("nginx", &["nginx.conf"]),
        ("nginx-copy", &["nginx.conf"]),
        ("lighttpd", &["lighttpd.conf"]),
        ("h2o", &["h2o.conf"]),
        ("apache", &["apache2.conf"]),
    ],
    clients: client::CLIENTS,
    sweep: &[Axis { quick: "1k,10k", ..Axis::new("case", "cases", "Workloads", cases, "") }],
    points: None,
    settings: &[
        Setting {
            name: "warmup-seconds",
            kind: Kind::Time,
            default: "1",
            help: "Length of the warm-up after each start of a server, whole seconds",
        },
        Setting {
            name: "connections",
            kind: Kind::Number,
            default: "64",
            help: "Connections the client keeps busy; cases of HTTP/2 have their own numbers",
        },
    ],
    rounds: 5,
    measured: "3s",
    network: BenchmarkNetwork::Shared,
    pinned: true,
    columns: &[
        key("case"),
        key("server"),
        figure("requests"),
        figure("duration_us"),
        figure("requests_per_s").shown("requests/s", 0),
        figure("bytes"),
        figure("cpu_ns"),
        figure("cpu_us_per_request").shown("CPU µs/request", 2),
        figure("client_us_per_request").shown("client µs/request", 2),
        figure("connect_errors"),
        figure("read_errors"),
        figure("write_errors"),
        figure("status_errors"),
        figure("timeouts"),
        figure("p50_us"),
        figure("p99_us"),
        figure("server_busy").shown("server busy, of 1", 2),
        figure("client_busy").shown("client core busy, of 1", 2),
        figure("foreign"),
        figure("stolen"),
        figure("answer_bytes"),
        figure("bytes_per_answer").shown("bytes/answer", 0),
        figure("log_lines"),
    ],
    tables: &["case"],
    lines: &["server"],
    ratios: &[
        Ratio { figure: "cpu_us_per_request", to: FLOOR },
        Ratio { figure: "cpu_us_per_request", to: BEST },
    ],
    claims: GOALS,
    more: nothing,
    prepare,
};

fn servers() -> Vec<&'static str> {
    vec![LIMIT, FOREBAY, BEFORE, "nginx", "nginx-copy", "lighttpd", "h2o", "apache"]
}

fn cases() -> Vec<&'static str> {
    CASES.iter().map(|case| case.name).collect()
}

/// A run under way: one answer's head for each case and server.
#[derive(Default)]
struct StaticMeasure(Vec<(&'static str, String, String)>);

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    content::make(&run.root)?;
    tls::make(&run.root)?;
    Ok(Box::new(StaticMeasure::default()))
}

/// The probe's findings about a server's answer.
struct Probed {
    etag: String,
    bytes: usize,
    head: String,
}

impl Measure for StaticMeasure {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let (run, server) = (trial.run, trial.server);
        let Some(case) = case::find(trial.at("case")) else { return Ok(Vec::new()) };
        // the floor speaks no TLS
        if server == LIMIT && case.tls {
            return Ok(Vec::new());
        }
        let mut serving = start(run, server, case)?;
        serving.until(run, server, |serving| ask(serving, case, "").map(|_| ()))?;
        let probed = probe_case(server, &serving, case)?;
        if !self.0.iter().any(|(one, other, _)| (*one, other.as_str()) == (case.name, server)) {
            self.0.push((case.name, server.to_owned(), probed.head.clone()));
        }
        let (row, answers) = load(run, case, &serving, &probed)?;
        let is_killed = serving.end();
        let log = log(server, case, &serving);
        let lines =
            log.map(|log| lines(&log).map_err(Error::io("cannot read", &log))).transpose()?;
        let is_incomplete = lines.is_some_and(|lines| (lines as f64) < answers as f64 * 0.99);
        let row = row
            .figure("log_lines", lines.map_or(f64::NAN, |lines| lines as f64))
            .flag("log-incomplete", is_incomplete)
            .flag("killed", is_killed);
        Ok(vec![row])
    }

    fn leave(&mut self, run: &Run) -> Result<(), Error> {
        let part =
            |(case, server, head): &(_, _, String)| format!("### {case} {server}\n{head}\n\n");
        let path = run.out.join("heads.txt");
        let text: String = self.0.iter().map(part).collect();
        fs::write(&path, text).map_err(Error::io("cannot write", &path))
    }
}

fn start(run: &Run, server: &str, case: &StaticCase) -> Result<Serving, Error> {
    let mut serving = Serving::empty(&run.folder()?, run.port()?);
    let ours = match (server, &run.options.before) {
        (BEFORE, None) => {
            let missing = MissingProgram { program: "another build: --before", package: "" };
            return Err(Error::NotInstalled(vec![missing]));
        }
        (BEFORE, Some(before)) => before,
        _ => &run.options.program,
    };
    let (certificate, key) = tls::files(&run.root);
    let words = [
        ("CERTIFICATE", certificate.display().to_string()),
        ("KEY", key.display().to_string()),
        ("THREADS", "128".to_owned()),
        ("SENDFILE", if server == "nginx-copy" { "off" } else { "on" }.to_owned()),
    ];
    let http2 = case.http2.is_some();
    let tags = [
        ("log", case.log),
        ("nolog", !case.log),
        ("plain", !case.tls),
        ("tls", case.tls),
        ("tls1", case.tls && !http2),
        ("tls2", http2),
    ];
    let part = PeerProcess { tags: &tags, words: &words, ..PeerProcess::new("") };
    match server {
        LIMIT => {
            let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
            let mut command = Command::new(own.with_file_name(LIMIT));
            limit_arguments(&mut command, serving.port(), case);
            serving.spawn(run, command)?;
        }
        FOREBAY | BEFORE if case.tls => {
            let peer = "forebay-tls.toml";
            serving.add(run, &PeerProcess { peer, program: Some(ours), ..part })?;
        }
        FOREBAY | BEFORE => {
            let mut command = Command::new(ours);
            command.arg("serve").arg(&run.root).args(["--workers", "1"]);
            command.arg("--listen").arg(format!("127.0.0.1:{}", serving.port()));
            if !case.log {
                command.arg("--no-log");
            }
            // this one writes its access log to standard output, the others to the file in their
            // configuration
            let stdout = serving.folder().join("stdout");
            let file = File::create(&stdout).map_err(Error::io("cannot write", &stdout))?;
            command.stdin(Stdio::null()).stdout(file);
            serving.spawn(run, command)?;
        }
        other => {
            let peer = STATIC.peers_of(other).first().copied().unwrap_or_default();
            serving.add(run, &PeerProcess { peer, ..part })?;
        }
    }
    Ok(serving)
}

fn limit_arguments(command: &mut Command, port: u16, case: &StaticCase) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).arg("--port").arg(port.to_string());
    command.arg("--body-bytes").arg(case.body_bytes.to_string());
    match case.mode {
        Mode::KeepAlive => {}
        Mode::Close => _ = command.arg("--close"),
        Mode::Pipelined(depth) => _ = command.arg("--pipelined").arg(depth.to_string()),
        Mode::NotModified => _ = command.args(["--status", "304"]),
    }
}

/// The access log that the server writes if the case asks for one.
fn log(server: &str, case: &StaticCase, serving: &Serving) -> Option<PathBuf> {
    let name = match server {
        _ if !case.log => return None,
        LIMIT => return None,
        FOREBAY | BEFORE => "stdout",
        _ => "access.log",
    };
    Some(serving.folder().join(name))
}

/// Warms up, then measures. Returns the row, and the number of all answers.
fn load(
    run: &Run,
    case: &StaticCase,
    serving: &Serving,
    probed: &Probed,
) -> Result<(RawRow, u64), Error> {
    let options = &run.options;
    let scheme = if case.tls { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:{}/{}", serving.port(), case.file);
    let connections =
        case.http2.map_or(options.number("connections") as u32, |http2| http2.connections);
    let program = ClientProgram::of(case).located();
    let load =
        ProgramLoad { program: &program, core: run.core, connections, scratch: run.scratch() };
    let load = ProgramLoad { core: run.core.map(|_| options.client_core), ..load };
    let ask = |time: Duration| client::run(&load, case, &probed.etag, &url, time, &run.stop);
    let warm = ask(options.time("warmup-seconds"))?;

    let read = || {
        let used = Used::read(&serving.family());
        let cores = [options.server_core, options.client_core].map(Core::read);
        (used, cores, Instant::now())
    };
    let (used_before, cores_before, begun) = read();
    let counted = ask(options.measured)?;
    let (used, cores, ended) = read();

    let is_pinned = cpu::are_pinned(&serving.family(), options.server_core);
    let cpu_ns = used.since(&used_before);
    let wall_ns = ended.duration_since(begun).as_nanos() as f64;
    let [server_core, client_core] = [0, 1].map(|at| cores[at].since(&cores_before[at]));
    let share = |ns: u64| ns as f64 / wall_ns.max(1.0);
    let foreign = share(server_core.busy_ns.saturating_sub(cpu_ns));
    let stolen = share(server_core.stolen_ns.max(client_core.stolen_ns));
    let row = counts(&counted)
        .figure("cpu_ns", cpu_ns as f64)
        .figure("cpu_us_per_request", cpu_ns as f64 / 1e3 / counted.requests.max(1) as f64)
        .figure("server_busy", share(cpu_ns))
        .figure("client_busy", share(client_core.busy_ns))
        .figure("foreign", foreign)
        .figure("stolen", stolen)
        .figure("answer_bytes", probed.bytes as f64)
        .flag("errors", counted.errors() > 0 || counted.requests == 0)
        .flag("size", has_wrong_size(&counted, case, connections, probed.bytes))
        .flag("unpinned", !is_pinned)
        .flag(NOISY, foreign + stolen > NOISE);
    Ok((row, warm.requests + counted.requests))
}

/// The client's counts as a row.
fn counts(counted: &Counted) -> RawRow {
    let requests = counted.requests.max(1) as f64;
    let or_none = |number: Option<u64>| number.map_or(f64::NAN, |number| number as f64);
    RawRow::default()
        .figure("requests", counted.requests as f64)
        .figure("duration_us", counted.duration_us as f64)
        .figure("requests_per_s", requests * 1e6 / counted.duration_us.max(1) as f64)
        .figure("bytes", counted.bytes as f64)
        .figure("bytes_per_answer", counted.bytes as f64 / requests)
        .figure("client_us_per_request", counted.cpu_ns as f64 / 1e3 / requests)
        .figure("connect_errors", counted.connect_errors as f64)
        .figure("read_errors", counted.read_errors as f64)
        .figure("write_errors", counted.write_errors as f64)
        .figure("status_errors", counted.status_errors as f64)
        .figure("timeouts", counted.timeouts as f64)
        .figure("p50_us", or_none(counted.p50_us))
        .figure("p99_us", or_none(counted.p99_us))
}

/// Whether the answers had another length than the probe's.
fn has_wrong_size(
    counted: &Counted,
    case: &StaticCase,
    connections: u32,
    answer_bytes: usize,
) -> bool {
    let requests = counted.requests.max(1) as f64;
    let difference = (counted.bytes as f64 / requests / answer_bytes.max(1) as f64 - 1.0).abs();
    // Answers are under way on all connections when the client stops: it counts their bytes alone.
    let depth = match (case.mode, case.http2) {
        (Mode::Pipelined(depth), _) => depth,
        (_, Some(http2)) => http2.streams as usize,
        _ => 1,
    };
    let under_way = f64::from(connections) * depth as f64 / requests;
    difference > SIZE_TOLERANCE + under_way
}

fn ask(serving: &Serving, case: &StaticCase, fields: &str) -> std::io::Result<Answer> {
    match case.tls {
        true => probe::sealed(serving.port(), case.file, case.http2.is_some(), fields),
        false => probe::get(serving.port(), case.file, fields),
    }
}

/// Asks once as the client will, and compares the answer with the one that the case expects.
fn probe_case(server: &str, serving: &Serving, case: &'static StaticCase) -> Result<Probed, Error> {
    let wrong =
        |what: String| Error::WrongAnswer { server: server.to_owned(), case: case.name, what };
    let ask = |fields: &str| ask(serving, case, fields).map_err(|error| wrong(error.to_string()));
    let close = if case.mode == Mode::Close { "Connection: close\r\n" } else { "" };
    let mut answer = ask(close)?;
    let etag = answer.field("etag").unwrap_or_default().to_owned();
    if case.mode == Mode::NotModified {
        answer = ask(&format!("If-None-Match: {etag}\r\n"))?;
    }
    let (status, length) =
        if case.mode == Mode::NotModified { (304, 0) } else { (200, case.body_bytes) };
    if answer.status != status {
        return Err(wrong(format!("status {} instead of {status}", answer.status)));
    }
    if answer.body.len() != length {
        return Err(wrong(format!("{} body bytes instead of {length}", answer.body.len())));
    }
    // The floor has no file.
    if server != LIMIT && answer.body != content::body(length) {
        return Err(wrong("other bytes than the file's".into()));
    }
    if answer.head.starts_with("HTTP/2") != case.http2.is_some() {
        return Err(wrong("another version of HTTP".into()));
    }
    let head_bytes = if case.http2.is_some() { 0 } else { answer.head.len() + 4 };
    Ok(Probed { etag, bytes: head_bytes + length, head: answer.head })
}

/// The number of lines of a file, without holding it in memory.
fn lines(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; 1 << 20];
    let mut count = 0;
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(count),
            n => count += chunk[..n].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{claim, results};

    fn row(case: &str, server: &str, cpu_us: f64) -> RawRow {
        let mut row = RawRow::default().word("case", case).word("server", server);
        row.round = 1;
        row.figure("cpu_us_per_request", cpu_us)
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let rows = [row("1k", FOREBAY, 6.0), row("1k", "h2o", 8.0), row("1k", LIMIT, 5.0)];
        let text = results::results(&STATIC, &rows);
        assert!(text.contains("forebay, 1k | limit | ≤ 1.1 × | 1.20 | **missed** |"), "{text}");
        assert!(text.contains("forebay, 1k | best peer: h2o | ≤ 0.85 × | 0.75 | met |"), "{text}");
        let verdicts: Vec<_> = GOALS.iter().flat_map(|goal| goal.verdicts(&rows[..1])).collect();
        assert!(claim::table(&verdicts).contains("not measured"));
        let rows = [("nginx", 7.0), (FOREBAY, 6.0), ("h2o", 8.0)];
        let text = results::results(&STATIC, &rows.map(|(server, cpu)| row("1k-h2", server, cpu)));
        assert!(text.contains("forebay, 1k-h2 | h2o | ≤ 0.7 × | 0.75 | **missed** |"), "{text}");
    }

    #[test]
    fn answers_under_way_are_not_of_a_wrong_size() {
        let case = case::find("1k").expect("known");
        let counted = |bytes| Counted { requests: 1000, bytes, ..Counted::default() };
        assert!(!has_wrong_size(&counted(1_280_000), case, 1, 1280));
        assert!(has_wrong_size(&counted(100_000), case, 1, 1280));
        assert!(!has_wrong_size(&counted(1_380_000), case, 64, 1280));
    }
}
