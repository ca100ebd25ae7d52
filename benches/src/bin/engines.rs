//! `engines`: measures every engine in every workload and writes a run folder.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::content::Scratch;
use forebay_benches::cpu::Used;
use forebay_benches::engines::cold::{self, Cage};
use forebay_benches::engines::row::{self, Row};
use forebay_benches::engines::server::{Server, Setup, engine_names};
use forebay_benches::engines::workload::{self, ALL, Workload};
use forebay_benches::running::{self, Process};
use forebay_benches::{Error, machine, measure};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Compares the engines: throughput, processor time per request, p99, threads, memory.
#[derive(Parser)]
struct Options {
    /// Workloads [default: all of 1k, 10k, cold, slow, stuck, close]
    #[arg(long, value_delimiter = ',', value_parser = a_workload)]
    workloads: Vec<Workload>,
    /// Engines (pipeline-never is pipeline with fuse = "never"), nginx-aio, apache [default: engines]
    #[arg(long, value_delimiter = ',', value_parser = a_server)]
    servers: Vec<Server>,
    /// Connections kept busy
    #[arg(long, value_delimiter = ',', default_value = "1,10,50,1000,10000")]
    connections: Vec<u32>,
    /// Measurements of each server in each case
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Length of one measurement in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// The core the servers run on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core the load comes from
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Folder for the results [default: lab/runs/DATE-engines]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn a_workload(name: &str) -> Result<Workload, String> {
    let found = ALL.into_iter().find(|workload| workload.name() == name);
    found.ok_or_else(|| "known are 1k, 10k, cold, slow, stuck, close".to_owned())
}

fn a_server(name: &str) -> Result<Server, String> {
    let names = engine_names().collect::<Vec<_>>().join(", ");
    Server::find(name).ok_or_else(|| format!("known are {names}, nginx-aio, apache"))
}

fn main() -> ExitCode {
    match bench(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engines: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let stop = measure::stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
    let workloads = if options.workloads.is_empty() { &ALL[..] } else { &options.workloads };
    let engines = Server::engines();
    let servers = if options.servers.is_empty() { &engines } else { &options.servers };
    let out = options.out.clone().unwrap_or_else(|| {
        PathBuf::from(format!("lab/runs/{}-engines", machine::date("+%Y-%m-%d")))
    });
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let scratch = Scratch::new()?;
    let root = scratch.path().join("site");
    fs::create_dir(&root).map_err(Error::io("cannot make the folder", &root))?;
    workload::write(&root)?;
    if workloads.contains(&Workload::Cold) {
        cold::write(&root)?;
    }
    let described = machine::describe();
    // nothing of ours runs beside the servers
    running::pin(options.client_core)?;
    let file = out.join("rows.csv");
    let mut rows_file = fs::File::create(&file).map_err(Error::io("cannot write", &file))?;
    let _ = writeln!(rows_file, "{}", Row::HEAD);
    let mut rows = Vec::new();
    let bench =
        Bench { options, forebay: &own.with_file_name("forebay"), root: &root, stop: &stop };
    for round in 1..=options.rounds {
        for &workload in workloads {
            for &connections in &options.connections {
                for turn in 0..servers.len() {
                    // whoever came first in the last round comes later in this one
                    let server = &servers[(turn + round as usize) % servers.len()];
                    let row = bench.one(round, workload, connections, server, scratch.path())?;
                    println!("{}", row.csv());
                    let _ = writeln!(rows_file, "{}", row.csv());
                    rows.push(row);
                }
            }
        }
    }
    let command: Vec<String> = std::env::args().skip(1).collect();
    let text = format!(
        "# Engines beside one another\n\n- command: `engines {}`\n{described}\
         - medians of {} rounds (least–most) of {} s; server on core {}, load on core {}\n{}{}",
        command.join(" "),
        options.rounds,
        options.seconds,
        options.server_core,
        options.client_core,
        row::tables(&rows),
        row::beside_stuck(&rows)
    );
    let file = out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    let _ = fs::remove_file(cold::urls());
    println!("{text}");
    Ok(())
}

struct Bench<'b> {
    options: &'b Options,
    forebay: &'b Path,
    root: &'b Path,
    stop: &'b Arc<AtomicBool>,
}

impl Bench<'_> {
    /// Starts a server, loads it, stops it.
    fn one(
        &self,
        round: u32,
        workload: Workload,
        connections: u32,
        server: &Server,
        scratch: &Path,
    ) -> Result<Row, Error> {
        let scratch = scratch.join("server");
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir(&scratch).map_err(Error::io("cannot make the folder", &scratch))?;
        let port = running::free_port(20_000 + (std::process::id() % 8000) as u16)
            .ok_or_else(|| Error::Client("no free port".into()))?;
        let all = connections + workload.background();
        let setup = Setup {
            forebay: self.forebay,
            root: self.root,
            scratch: &scratch,
            port,
            workload,
            connections: all,
        };
        let mut command = server.command(&setup)?;
        let said = scratch.join("said");
        let cage = (workload == Workload::Cold).then(Cage::new).transpose()?;
        if let Some(cage) = &cage {
            command = cage.around(&command);
        }
        command.stderr(fs::File::create(&said).map_err(Error::io("cannot write", &said))?);
        let mut process = Process::start(command, self.options.server_core)?;
        running::until_it_listens(&process, port, server.name(), &said)?;
        let row = self.load(round, workload, connections, server, &process, port)?;
        process.end();
        Ok(row)
    }

    fn load(
        &self,
        round: u32,
        workload: Workload,
        connections: u32,
        server: &Server,
        process: &Process,
        port: u16,
    ) -> Result<Row, Error> {
        let options = self.options;
        let plan = workload.plan(port, connections, options.seconds, options.client_core)?;
        let measured_from = Instant::now() + plan.warmup;
        let measured_until = measured_from + plan.duration;
        let (mut before, mut after) = (None, None);
        let (mut threads, mut memory) = (0, 0.0f64);
        let mut look = || {
            let family = running::family(process);
            let now = Instant::now();
            if now >= measured_from && before.is_none() {
                before = Some((now, Used::read(&family)));
            }
            if now <= measured_until {
                after = Some((now, Used::read(&family)));
            }
            threads = threads.max(family.iter().map(|pid| running::status(*pid, "Threads:")).sum());
            let rss = family.iter().map(|pid| running::status(*pid, "RssAnon:")).sum::<u64>();
            memory = memory.max(rss as f64 / 1024.0);
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let stop = Arc::clone(self.stop);
        let run = std::thread::spawn(move || {
            let report = forebay_load::run(&plan, &stop, &mut |_| {});
            let _ = sender.send(());
            report
        });
        while receiver.try_recv().is_err() {
            look();
            std::thread::sleep(Duration::from_millis(50));
        }
        let report = run.join().map_err(|_| Error::Client("the load generator panicked".into()))?;
        let report = report.map_err(|error| Error::Client(error.to_string()))?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let group = &report.groups[0];
        let (Some((from, before)), Some((to, after))) = (before, after) else {
            return Err(Error::Client("the run was too short".into()));
        };
        let cpu_s = after.since(&before) as f64 / 1e9;
        let answers = group.rate * (to - from).as_secs_f64();
        Ok(Row {
            round,
            workload,
            connections,
            server: server.clone(),
            rate: group.rate,
            cpu_us: cpu_s * 1e6 / answers.max(1.0),
            p99_us: group.latency.p99_us,
            failed: group.failed,
            threads,
            memory_mib: memory,
            client: report.generator.busiest_thread,
        })
    }
}
