//! `receivers`: a thousand receivers, fast and slow, of short and long answers, with each order in which they
//! may go on.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::content::Scratch;
use forebay_benches::forebay::{Forebay, Place, header, value};
use forebay_benches::receivers::{self, GROUPS, ORDERS, Receivers, Row};
use forebay_benches::{Error, machine, measure, network, probe, running};
use forebay_load::report::Latency;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Compares the orders in which receivers go on: send_order = "arrival", "fastest" and "shortest".
#[derive(Parser)]
struct Options {
    /// Receivers; as many of each speed and size
    #[arg(long, default_value_t = 1000)]
    connections: u32,
    /// What a slow one takes, bytes per second
    #[arg(long, default_value_t = 1e6)]
    slow: f64,
    /// How long each thinks between an answer and the next request, on average, milliseconds
    #[arg(long, default_value_t = 100)]
    think: u64,
    /// Measured seconds of a run; the warm-up is half of that
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Runs of each order
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// The engine
    #[arg(long, default_value = "event")]
    engine: String,
    /// A line added to the configuration of every server; may be given again
    #[arg(long, value_name = "LINE")]
    set: Vec<String>,
    /// The core the server runs on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core the load comes from
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// The program [default: forebay beside this one]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Folder for the results [default: lab/runs/DATE-receivers]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match network::enter(receivers::SEND_BUFFER_BYTES).and_then(|()| bench(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("receivers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let stop = measure::stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
    let date = machine::date("+%Y-%m-%d");
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| PathBuf::from(format!("lab/runs/{date}-receivers")));
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let program = options.program.clone().unwrap_or_else(|| own.with_file_name("forebay"));
    let scratch = Scratch::new()?;
    let root = scratch.path().join("site");
    fs::create_dir(&root).map_err(Error::io("cannot make the folder", &root))?;
    receivers::write(&root)?;
    let described = machine::describe();
    // nothing of ours runs beside the server
    running::pin(options.client_core)?;
    let core = options.server_core;
    let place = Place { program: &program, scratch: scratch.path(), core, caged: false };
    let file = out.join("rows.csv");
    let mut rows_file = fs::File::create(&file).map_err(Error::io("cannot write", &file))?;
    let _ = writeln!(rows_file, "{}", Row::HEAD);
    let more: String = options.set.iter().map(|line| format!("{line}\n")).collect();
    let (mut rows, mut ended) = (Vec::new(), Ok(()));
    'rounds: for round in 1..=options.rounds {
        for turn in 0..ORDERS.len() {
            // the order that came first in the last round comes later in this one
            let order = (turn + round as usize - 1) % ORDERS.len();
            let lines = format!(
                "root = {root:?}\nengine = {:?}\nworkers = 1\ncache.file_bytes = \"4MiB\"\n\
                 send_order = {:?}\ntimeouts.drain = \"0s\"\n{more}",
                options.engine, ORDERS[order]
            );
            match one(options, &place, &lines, (round, order), &stop) {
                Ok(row) => {
                    print!("{}", row.csv());
                    let _ = write!(rows_file, "{}", row.csv());
                    rows.push(row);
                }
                Err(error) => {
                    ended = Err(error);
                    break 'rounds;
                }
            }
        }
    }
    let text = format!(
        "{}- {} receivers, as many of each speed and size; slow ones take {:.0} bytes/s; each thinks {} ms; \
         engine {}\n- medians of {} repetitions (least–most) of {} s; server on core {}, load on core {}\n{}",
        header("A thousand receivers", "receivers", &described),
        options.connections,
        options.slow,
        options.think,
        options.engine,
        options.rounds,
        options.seconds,
        options.server_core,
        options.client_core,
        receivers::tables(&rows)
    );
    let file = out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    println!("{text}");
    ended
}

/// Starts the server, runs the load, stops it.
fn one(
    options: &Options,
    place: &Place<'_>,
    lines: &str,
    (round, order): (u32, usize),
    stop: &Arc<AtomicBool>,
) -> Result<Row, Error> {
    let server = Forebay::start(place, lines, 20_000 + (std::process::id() % 8000) as u16)?;
    let asked = probe::get(server.port(), "1000.bin", "Connection: close\r\n");
    asked.map_err(Error::io("no answer for", "1000.bin"))?;
    let receivers = Receivers {
        connections: options.connections,
        slow_bytes_per_s: options.slow,
        think: Duration::from_millis(options.think),
        seconds: options.seconds,
    };
    let plan = receivers.plan(server.port(), options.client_core, round)?;
    let report = forebay_load::run(&plan, stop, &mut |_| {});
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let report = report.map_err(|error| Error::Client(error.to_string()))?;
    let metrics = server.metrics();
    let waits = value(&metrics, "forebay_send_waits_total").unwrap_or(0.0);
    let answers = value(&metrics, "forebay_responses_total{class=\"2xx\"}").unwrap_or(0.0);
    let ms = |figure: fn(&Latency) -> f64| -> [f64; GROUPS] {
        std::array::from_fn(|at| figure(&report.groups[at].latency) / 1e3)
    };
    Ok(Row {
        round,
        order,
        mean_ms: ms(|latency| latency.mean_us),
        p99_ms: ms(|latency| latency.p99_us),
        answers_per_s: report.groups.iter().map(|group| group.rate).sum(),
        waits: waits / answers.max(1.0),
        failed: report.groups.iter().map(|group| group.failed).sum(),
    })
}
