//! `overload`: what is still answered in time when more comes than a server can do, and who gets it.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::content::{Scratch, body};
use forebay_benches::forebay::header;
use forebay_benches::network::Pair;
use forebay_benches::overload::bench::{Bench, Settings, installed};
use forebay_benches::overload::row::Row;
use forebay_benches::overload::server::Server;
use forebay_benches::overload::server::application::Application;
use forebay_benches::overload::{
    cost, gate, gold, goodput, processes, scripts, shares, step, voigt,
};
use forebay_benches::{Error, machine, run, running};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A part: its name, a round of it, its tables.
type Part = (&'static str, fn(&mut Bench<'_>, u32) -> Result<(), Error>, fn(&Bench<'_>) -> String);

const PARTS: [Part; 9] = [
    (goodput::PART, goodput::measure, goodput::report),
    (gold::PART, gold::measure, gold::report),
    (scripts::PART, scripts::measure, scripts::report),
    (shares::PART, shares::measure, shares::report),
    (voigt::PART, voigt::measure, voigt::report),
    (processes::PART, processes::measure, processes::report),
    (step::PART, step::measure, step::report),
    (cost::PART, cost::measure, cost::report),
    (gate::PART, gate::measure, gate::report),
];

/// Overload: goodput, gold under a flood, applications behind, shares, voigt's tables and figures, a step, refusals.
#[derive(Parser)]
struct Options {
    /// Parts [default: all of goodput, gold, scripts, shares, voigt, processes, step, cost; there is gate besides,
    /// as root]
    #[arg(long, value_delimiter = ',', value_parser = a_part)]
    parts: Vec<&'static str>,
    /// Servers: an engine, an engine with -policy, nginx, nginx-limit, apache, haproxy
    #[arg(long, value_delimiter = ',', value_parser = a_server)]
    servers: Vec<Server>,
    /// CPU time of requests of goodput
    #[arg(long, value_delimiter = ',', value_parser = a_time)]
    costs: Vec<Duration>,
    /// CPU times by which the end of user space is looked for
    #[arg(long, value_delimiter = ',', value_parser = a_time)]
    search: Option<Vec<Duration>>,
    /// Loads of goodput as multiples of the capacity
    #[arg(long, value_delimiter = ',')]
    loads: Vec<f64>,
    /// Measurements of each
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Length of one measurement
    #[arg(long, value_parser = a_time)]
    measured: Option<Duration>,
    /// Fewer servers, costs, loads, and short measurements: four minutes instead of 25
    #[arg(long)]
    quick: bool,
    /// Processes of php-fpm; Forebay computes with a thread for each core
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// The core the servers run on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core the load comes from
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Folder for the results [default: lab/runs/DATE-overload]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn a_part(name: &str) -> Result<&'static str, String> {
    let found = PARTS.iter().find(|(part, ..)| *part == name).map(|(part, ..)| *part);
    found.ok_or_else(|| format!("known are {}", PARTS.map(|(part, ..)| part).join(", ")))
}

fn a_server(name: &str) -> Result<Server, String> {
    let known = || Server::all().into_iter().map(Server::name).collect::<Vec<_>>().join(", ");
    Server::find(name).ok_or_else(|| format!("known are {}", known()))
}

fn a_time(text: &str) -> Result<Duration, String> {
    forebay_load::units::duration(text).map_err(|error| error.to_string())
}

impl Options {
    fn settings(&self) -> Settings {
        let us = |all: &[u64]| all.iter().copied().map(Duration::from_micros).collect();
        let named = |all: &[&str]| all.iter().filter_map(|name| Server::find(name)).collect();
        let or = |given: &[Duration], else_us: &[u64]| {
            if given.is_empty() { us(else_us) } else { given.to_vec() }
        };
        let quick = self.quick;
        let measured = if quick { 1500 } else { 3000 };
        Settings {
            servers: match (self.servers.is_empty(), quick) {
                (false, _) => self.servers.clone(),
                (true, true) => named(&["event-policy", "event", "nginx", "haproxy"]),
                (true, false) => named(&[
                    "event-policy",
                    "pipeline-policy",
                    "event",
                    "pipeline",
                    "nginx",
                    "nginx-limit",
                    "apache",
                    "haproxy",
                ]),
            },
            costs: or(&self.costs, if quick { &[20_000, 1000] } else { &[20_000, 5000, 1000] }),
            search: self
                .search
                .clone()
                .unwrap_or_else(|| us(if quick { &[100] } else { &[500, 200, 100, 50] })),
            loads: match (self.loads.is_empty(), quick) {
                (false, _) => self.loads.clone(),
                (true, true) => vec![0.8, 1.0, 10.0],
                (true, false) => vec![0.5, 0.8, 1.0, 1.4, 2.0, 5.0, 10.0],
            },
            rounds: self.rounds,
            measured: self.measured.unwrap_or(Duration::from_millis(measured)),
            warmup: Duration::from_millis(1000),
            threads: self.threads,
            server_core: self.server_core,
            client_core: self.client_core,
            quick,
        }
    }
}

fn main() -> ExitCode {
    match bench(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("overload: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let stop = run::stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
    let settings = options.settings();
    let wanted = |part: &str| match options.parts.is_empty() {
        true => part != gate::PART,
        false => options.parts.contains(&part),
    };
    let pair = match wanted(gate::PART) {
        true => Some(Pair::enter(options.server_core, options.client_core)?),
        false => None,
    };
    let applications = if wanted(scripts::PART) { &Application::ALL[..] } else { &[] };
    installed(&settings.servers, applications)?;
    let out = options.out.clone().unwrap_or_else(|| {
        PathBuf::from(format!("lab/runs/{}-overload", machine::date("+%Y-%m-%d")))
    });
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let scratch = Scratch::new()?;
    let root = scratch.path().join("site");
    fs::create_dir(&root).map_err(Error::io("cannot make the folder", &root))?;
    let small = root.join("1k.html");
    fs::write(&small, body(1024)).map_err(Error::io("cannot write", &small))?;
    let described = machine::describe();
    // nothing of ours runs beside the servers
    running::pin(options.client_core)?;
    let file = out.join("rows.csv");
    let mut file = fs::File::create(&file).map_err(Error::io("cannot write", &file))?;
    let _ = writeln!(file, "{}", Row::HEAD);
    let _ = fs::remove_file(out.join("step.csv"));
    let mut bench = Bench {
        settings,
        forebay: own.with_file_name("forebay"),
        scratch: scratch.path(),
        root,
        out: &out,
        pair: pair.as_ref(),
        stop: &stop,
        rows: Vec::new(),
        file,
        capacities: HashMap::new(),
    };
    let parts: Vec<_> = PARTS.into_iter().filter(|(part, ..)| wanted(part)).collect();
    let mut rounds =
        (1..=options.rounds).flat_map(|round| parts.iter().map(move |part| (round, part)));
    let ended = rounds.try_for_each(|(round, (_, measure, _))| measure(&mut bench, round));
    let text = report(&bench, &described, &parts);
    let file = out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    println!("{text}");
    ended
}

fn report(bench: &Bench<'_>, described: &str, parts: &[Part]) -> String {
    let Settings { rounds, measured, threads, server_core, client_core, .. } = &bench.settings;
    let noisy = bench.rows.iter().filter(|row| row.is_noisy()).count();
    let tables: String = parts.iter().map(|(_, _, report)| report(bench)).collect();
    format!(
        "{}- medians of {rounds} rounds (least–most) of {} s or more; {threads} processes of \
         php-fpm; server on core {server_core}, load on core {client_core}\n- {noisy} of {} rows are \
         noisy: something else ran on one of the two cores for more than 5 % of the time\n{tables}",
        header("Overload", "overload", described),
        measured.as_secs_f64(),
        bench.rows.len(),
    )
}
