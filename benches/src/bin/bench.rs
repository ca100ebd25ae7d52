//! `bench`: runs the comparison and writes a run folder.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::case::{self, CASES, Case};
use forebay_benches::client::{CLIENTS, Client};
use forebay_benches::error::Missing;
use forebay_benches::measure::{self, Plan, Run};
use forebay_benches::peer::{self, BEFORE, PEERS, Peer};
use forebay_benches::row::{self, Row};
use forebay_benches::{Error, machine, running};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compares what static answers cost: CPU time per request of each server, side by side.
#[derive(Parser)]
struct Options {
    /// Workloads [default: all of 1k, 10k, 100k, 1m, 10k-close, 1k-pipelined, 1k-304, 1k-log, 1k-tls, 10k-tls, 100k-tls, 1m-tls, 1k-tls-close, 1k-h2, 1k-h2-1, 10k-h2, 100k-h2]
    #[arg(long, value_delimiter = ',', value_parser = a_case)]
    cases: Vec<&'static Case>,
    /// Servers [default: all of limit, forebay, nginx, nginx-copy, lighttpd, h2o, apache]
    #[arg(long, value_delimiter = ',', value_parser = a_server)]
    servers: Vec<&'static Peer>,
    /// Measurements of each server in each case
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of one measurement in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Length of the warm-up after each start of a server, in seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    warmup_seconds: u32,
    /// Connections the client keeps busy; cases of HTTP/2 have their own numbers
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// The core the servers run on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core the client runs on
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Folder of the programs built here [default: where this one is]
    #[arg(long)]
    built: Option<PathBuf>,
    /// The server `before`: a forebay built from another commit
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// Folder for the results [default: lab/runs/DATE-static]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn a_case(name: &str) -> Result<&'static Case, String> {
    case::find(name).ok_or_else(|| format!("known are {}", list(CASES.iter().map(|c| c.name))))
}

fn a_server(name: &str) -> Result<&'static Peer, String> {
    peer::find(name).ok_or_else(|| format!("known are {}", list(PEERS.iter().map(|p| p.name))))
}

fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn main() -> ExitCode {
    match bench(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: Options) -> Result<(), Error> {
    let stop = measure::stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
    let out = options.out.clone().unwrap_or_else(new_folder);
    let plan = plan(options)?;
    // The client's core waits with the client; nothing of ours runs beside the servers.
    running::pin(plan.server_core)?;
    running::pin(plan.client_core)?;
    let machine = describe(&plan);
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    let mut raw = write(&out.join("rows.csv"), row::HEADER)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut run = Run::new(&plan, stop)?;
    let measured = run.all(|row| {
        show(&row, &plan);
        writeln!(raw, "{}", row.csv()).map_err(Error::io("cannot write", out.join("rows.csv")))?;
        rows.push(row);
        Ok(())
    });
    // What was measured before an error or a signal gets its summary too.
    let unfinished = if measured.is_err() { "This run did not finish.\n\n" } else { "" };
    let results = plan.results(&rows);
    write(&out.join("summary.md"), &format!("{machine}\n{unfinished}{results}"))?;
    write(&out.join("heads.txt"), &run.heads())?;
    println!("{results}");
    eprintln!("results in {}", out.display());
    measured
}

/// `lab/runs/DATE-static`, or with a number behind it: an earlier run is never overwritten.
fn new_folder() -> PathBuf {
    let name = format!("lab/runs/{}-static", machine::date("+%Y-%m-%d"));
    let numbered = (2..).map(|number| PathBuf::from(format!("{name}-{number}")));
    let mut names = std::iter::once(PathBuf::from(&name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| PathBuf::from(name))
}

/// Checks that everything is there before the first measurement.
fn plan(options: Options) -> Result<Plan, Error> {
    let before = options.before;
    let or_all = |chosen: Vec<&'static Peer>| match chosen.is_empty() {
        true => PEERS.iter().filter(|peer| before.is_some() || peer.name != BEFORE).collect(),
        false => chosen,
    };
    let built = options.built.or_else(|| Some(std::env::current_exe().ok()?.parent()?.to_owned()));
    let built = built.unwrap_or_default();
    let mut missing = Vec::new();
    let mut servers = Vec::new();
    for peer in or_all(options.servers) {
        let found = if peer.name == BEFORE {
            before.clone().filter(|path| path.is_file())
        } else if peer.is_ours() {
            Some(built.join(peer.program)).filter(|path| path.is_file())
        } else {
            peer::locate(peer.program)
        };
        match found {
            Some(program) => servers.push((peer, program)),
            None => missing.push(Missing { program: peer.program, package: peer.package }),
        }
    }
    let cases = if options.cases.is_empty() { CASES.iter().collect() } else { options.cases };
    let is_needed = |client: &&Client| cases.iter().any(|case| Client::of(case) == **client);
    let mut clients = Vec::new();
    for client in CLIENTS.iter().filter(is_needed) {
        match peer::locate(client.program) {
            Some(program) => clients.push((*client, program)),
            None => missing.push(Missing { program: client.program, package: client.package }),
        }
    }
    if !missing.is_empty() {
        return Err(Error::NotInstalled(missing));
    }
    if options.server_core == options.client_core {
        return Err(Error::Core(options.client_core));
    }
    Ok(Plan {
        cases,
        servers,
        clients,
        rounds: options.rounds,
        seconds: options.seconds,
        warmup_seconds: options.warmup_seconds,
        connections: options.connections,
        server_core: options.server_core,
        client_core: options.client_core,
    })
}

/// The head of the summary: when, how, on what, with which versions.
fn describe(plan: &Plan) -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut text = format!(
        "# Static serving, side by side\n\n\
         - started: {} UTC\n\
         - command: `bench {}`\n\
         - {} rounds of {} s after {} s of warm-up, {} connections (HTTP/2: as the case says), \
         servers on core {}, a client with one thread on core {}\n{}\n\
         | server | version | package | setting |\n|---|---|---|---|\n",
        machine::date("+%Y-%m-%d %H:%M"),
        arguments.join(" "),
        plan.rounds,
        plan.seconds,
        plan.warmup_seconds,
        plan.connections,
        plan.server_core,
        plan.client_core,
        machine::describe(),
    );
    let mut line = |name: &str, version: &str, package: &str, setting: &str| {
        let package = match package {
            "" => "built here".into(),
            _ => format!("{package} {}", machine::package_version(package)),
        };
        text += &format!("| {name} | {version} | {package} | {setting} |\n");
    };
    for (peer, program) in &plan.servers {
        line(peer.name, &peer.version(program), peer.package, peer.setting);
    }
    for (client, program) in &plan.clients {
        let version = machine::first_line(std::process::Command::new(program).arg(client.version));
        let version = version.split(" Copyright").next().unwrap_or("");
        line("client", version, client.package, "one thread");
    }
    text
}

/// Writes a file and leaves it open.
fn write(path: &Path, text: &str) -> Result<File, Error> {
    let written = File::create(path).and_then(|mut file| writeln!(file, "{text}").map(|()| file));
    written.map_err(Error::io("cannot write", path))
}

/// One line per measurement, so that a person sees it go on.
fn show(row: &Row, plan: &Plan) {
    let flags: String = row.flags.iter().map(|flag| format!(" {flag}")).collect();
    eprintln!(
        "{}/{} {:<12} {:<10} {:>8.2} µs CPU/request {:>9.0} requests/s, client core {:>3.0} % busy{flags}",
        row.round,
        plan.rounds,
        row.case,
        row.server,
        row.cpu_us(),
        row.rate(),
        row.client_busy() * 100.0,
    );
}
