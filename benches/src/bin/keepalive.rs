//! `keepalive`: duke §VII.D. New clients that fetch one object and stay silent, on ten threads, with
//! each law by which connections are kept, and with HTTP/1.0.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::content::{Scratch, body};
use forebay_benches::forebay::{Forebay, Place, header};
use forebay_benches::keepalive::{self, Keep, OBJECT_BYTES, Row};
use forebay_benches::{Error, machine, measure, probe, running};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many clients that want one object each are served, by the law that keeps their connections.
#[derive(Parser)]
struct Options {
    /// New clients per second
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// Threads of pool, and most threads of threads
    #[arg(long, default_value_t = 10)]
    threads: u32,
    /// How long a silent connection is kept at light load: as Apache does
    #[arg(long, default_value = "5s")]
    idle: String,
    /// What is left of that at full load, by the laws that shrink it
    #[arg(long, value_delimiter = ',', default_value = "1s,0s")]
    floors: Vec<String>,
    /// The engines
    #[arg(long, value_delimiter = ',', default_value = "pool,threads")]
    engines: Vec<String>,
    /// Measurements of each
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Length of one measurement in seconds: a multiple of `idle`, or constant shows its start
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The core the server runs on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core the load comes from
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Folder for the results [default: lab/runs/DATE-keepalive]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Options {
    /// Every way to keep connections, in the order of the table.
    fn keeps(&self) -> Vec<Keep> {
        let mut keeps = vec![Keep::Law { law: "constant", floor: None }];
        for law in ["linear", "exponential"] {
            let floors = self.floors.iter().cloned();
            keeps.extend(floors.map(|floor| Keep::Law { law, floor: Some(floor) }));
        }
        keeps.push(Keep::Old);
        keeps
    }
}

fn main() -> ExitCode {
    match bench(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keepalive: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let stop = measure::stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
    let out = options.out.clone().unwrap_or_else(|| {
        PathBuf::from(format!("lab/runs/{}-keepalive", machine::date("+%Y-%m-%d")))
    });
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let scratch = Scratch::new()?;
    let file = scratch.path().join("object.html");
    fs::write(&file, body(OBJECT_BYTES)).map_err(Error::io("cannot write", &file))?;
    let described = machine::describe();
    // nothing of ours runs beside the server
    running::pin(options.client_core)?;
    let place = Place {
        program: &own.with_file_name("forebay"),
        scratch: scratch.path(),
        core: options.server_core,
        caged: false,
    };
    let file = out.join("rows.csv");
    let mut rows_file = fs::File::create(&file).map_err(Error::io("cannot write", &file))?;
    let _ = writeln!(rows_file, "{}", Row::HEAD);
    let keeps = options.keeps();
    let all = keeps.iter().flat_map(|keep| options.engines.iter().map(move |one| (one, keep)));
    let all: Vec<_> = all.collect();
    let (mut rows, mut ended) = (Vec::new(), Ok(()));
    'rounds: for round in 1..=options.rounds {
        for turn in 0..all.len() {
            // whoever came first in the last round comes later in this one
            let (engine, keep) = all[(turn + round as usize - 1) % all.len()];
            match one(options, &place, round, engine, keep, &stop) {
                Ok(row) => {
                    println!("{}", row.csv());
                    let _ = writeln!(rows_file, "{}", row.csv());
                    rows.push(row);
                }
                Err(error) => {
                    ended = Err(error);
                    break 'rounds;
                }
            }
        }
    }
    rows.sort_by_key(|row| all.iter().position(|one| *one == (&row.engine, &row.keep)));
    rows.sort_by_key(|row| options.engines.iter().position(|engine| *engine == row.engine));
    let text = report(options, &described, &rows);
    let file = out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    println!("{text}");
    ended
}

fn report(options: &Options, described: &str, rows: &[Row]) -> String {
    format!(
        "{}- {} new clients per second, {} bytes each, who wait {} s at most; {} threads, kept {} \
         at light load\n- medians of {} rounds (least–most) of {} s; server on core {}, load on \
         core {}\n{}",
        header("Clients that want one object and stay silent", "keepalive", described),
        options.rate,
        OBJECT_BYTES,
        keepalive::PATIENCE.as_secs(),
        options.threads,
        options.idle,
        options.rounds,
        options.seconds,
        options.server_core,
        options.client_core,
        keepalive::table(rows)
    )
}

/// Starts the server, has the clients come, stops it.
fn one(
    options: &Options,
    place: &Place<'_>,
    round: u32,
    engine: &str,
    keep: &Keep,
    stop: &Arc<AtomicBool>,
) -> Result<Row, Error> {
    let lines = format!(
        "root = {:?}\nengine = \"{engine}\"\nworkers = {}\ntimeouts.idle = \"{}\"\n{}",
        place.scratch,
        options.threads,
        options.idle,
        keep.lines()
    );
    let server = Forebay::start(place, &lines, 20_000 + (std::process::id() % 8000) as u16)?;
    // the object is in memory from now on
    let asked = probe::get(server.port(), "object.html", "Connection: close\r\n");
    asked.map_err(Error::io("no answer for", "object.html"))?;
    let rate = options.rate;
    let plan = keepalive::plan(keep, server.port(), rate, options.seconds, options.client_core)?;
    let mut threads = 0;
    let report = forebay_load::run(&plan, stop, &mut |_| threads = threads.max(server.threads()));
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let report = report.map_err(|error| Error::Client(error.to_string()))?;
    Ok(Row::new(round, engine, keep, &report, threads))
}
