//! `shift`: a load that shifts between hot small files, cold files and slow receivers, on a pipeline
//! with fuse = "never": both laws of its controller against fixed counts of threads.
//!
//! A thread of send stays with its receiver to the end, as in keta, so that slow receivers need threads of
//! send. With the default of `pipeline.send_wait` a thread gives a slow receiver back after a moment, one
//! thread serves them all, and nothing shifts.
#![forbid(unsafe_code)]

use clap::Parser;
use forebay_benches::content::Scratch;
use forebay_benches::forebay::{self, Forebay, Place, header, value};
use forebay_benches::shift::load::{self, KINDS, Kind, Shift, Turn};
use forebay_benches::shift::row::{self, Policy, Row, Seen};
use forebay_benches::shift::verdict;
use forebay_benches::{Error, machine, network, probe, run, running};
use forebay_load::Report;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A thread of send stays with its receiver to the end.
const STAYS: &str = "pipeline.send_wait = \"1d\"\n";

/// Compares threads that are moved between the phases of a pipeline with threads that stay.
#[derive(Parser)]
struct Options {
    /// Laws of the controller
    #[arg(long, value_delimiter = ',', value_parser = ["queue", "delay"], default_value = "queue,delay")]
    laws: Vec<String>,
    /// Fixed counts: each of them for process with each of them for send
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    counts: Vec<u32>,
    /// Most threads of all phases together, for the laws
    #[arg(long, default_value_t = 18)]
    most: u32,
    /// Requests per second for the hot file
    #[arg(long, default_value_t = 20_000.0)]
    hot: f64,
    /// Requests per second for cold files: more than one thread of process reads
    #[arg(long, default_value_t = 500.0)]
    cold: f64,
    /// Requests per second of slow receivers: more than eight threads of send serve
    #[arg(long, default_value_t = 50.0)]
    slow: f64,
    /// Length of a phase of the load in seconds
    #[arg(long, default_value_t = 1.25)]
    seconds: f64,
    /// How often each kind of request has its turn
    #[arg(long, default_value_t = 2)]
    cycles: u32,
    /// Runs of each law and each pair of counts
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Another build of forebay, whose laws are measured too: are response times no worse than with it?
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// A line added to the configuration of every server; may be given again
    #[arg(long, value_name = "LINE")]
    set: Vec<String>,
    /// The core the server runs on
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// The core the load comes from
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Folder for the results [default: lab/runs/DATE-shift]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Options {
    fn shift(&self, alone: Option<Kind>) -> Shift {
        let rates = [self.hot, self.cold, self.slow];
        Shift { rates, seconds: self.seconds, cycles: self.cycles, alone }
    }

    fn policies(&self) -> Vec<Policy> {
        let known = ["queue", "delay"].into_iter();
        let laws = known.filter(|law| self.laws.iter().any(|wanted| wanted == law));
        let fixed = self.counts.iter().flat_map(|process| {
            self.counts.iter().map(|send| Policy::Fixed { process: *process, send: *send })
        });
        let before = laws.clone().filter(|_| self.before.is_some()).map(Policy::Before);
        laws.clone().map(Policy::Law).chain(before).chain(fixed).collect()
    }

    /// The configuration of a server; `stays` is how it is told that threads stay with receivers.
    fn lines(&self, policy: Policy, root: &Path, stays: &str) -> String {
        let (by, process, send) = match policy {
            Policy::Law(law) | Policy::Before(law) => (law, 1, 1),
            Policy::Fixed { process, send } => ("fixed", process, send),
        };
        let more: String = self.set.iter().map(|line| format!("{line}\n")).collect();
        format!(
            "root = {root:?}\nengine = \"pipeline\"\nworkers = 1\ncache.bytes = \"16MiB\"\n\
             cache.file_bytes = \"4MiB\"\npipeline.fuse = \"never\"\npipeline.by = \"{by}\"\n\
             pipeline.process = {process}\npipeline.send = {send}\npipeline.threads = {}\n\
             timeouts.drain = \"0s\"\n{stays}{more}",
            self.most,
        )
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match network::enter(Some(load::SEND_BUFFER_BYTES)).and_then(|()| bench(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shift: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> Result<(), Error> {
    let stop = run::stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("lab/runs/{}-shift", machine::date("+%Y-%m-%d"))));
    fs::create_dir_all(&out).map_err(Error::io("cannot make the folder", &out))?;
    let own = std::env::current_exe().map_err(Error::io("cannot find", "this program"))?;
    let scratch = Scratch::new()?;
    let root = scratch.path().join("site");
    fs::create_dir(&root).map_err(Error::io("cannot make the folder", &root))?;
    let described = machine::describe();
    // nothing of ours runs beside the server
    running::pin(options.client_core)?;
    let _storage = load::write(&root)?;
    let place = Place {
        program: &own.with_file_name("forebay"),
        scratch: scratch.path(),
        core: options.server_core,
        caged: false,
    };
    let file = out.join("rows.csv");
    let mut rows_file = fs::File::create(&file).map_err(Error::io("cannot write", &file))?;
    let _ = writeln!(rows_file, "{}", Row::HEAD);
    // a build that does not know the setting has threads that stay, whatever it is told
    let stays_before = match &options.before {
        Some(program) if !forebay::takes(program, STAYS, scratch.path())? => "",
        _ => STAYS,
    };
    let policies = options.policies();
    let (mut rows, mut ended) = (Vec::new(), Ok(()));
    'rounds: for round in 1..=options.rounds {
        for turn in 0..policies.len() {
            // whoever came first in the last round comes later in this one
            let policy = policies[(turn + round as usize - 1) % policies.len()];
            let (place, stays) = match (policy, &options.before) {
                (Policy::Before(_), Some(program)) => (Place { program, ..place }, stays_before),
                _ => (place, STAYS),
            };
            let lines = options.lines(policy, &root, stays);
            match one(options, &place, &lines, (round, turn, policy), &stop) {
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
    rows.sort_by_key(|row| policies.iter().position(|policy| *policy == row.policy));
    let text = report(options, &described, &rows);
    let file = out.join("README.md");
    fs::write(&file, &text).map_err(Error::io("cannot write", &file))?;
    println!("{text}");
    ended
}

fn report(options: &Options, described: &str, rows: &[Row]) -> String {
    format!(
        "{}- phases of {} s, {} × hot ({}/s), cold ({}/s), slow ({}/s); laws have {} threads at \
         most; who waits {} s gives up; threads of send stay with receivers to the end\n- medians of {} repetitions (least–most); server on core {}, load on core {}\n{}{}",
        header("A load that shifts", "shift", described),
        options.seconds,
        options.cycles,
        options.hot,
        options.cold,
        options.slow,
        options.most,
        load::TIMEOUT.as_secs(),
        options.rounds,
        options.server_core,
        options.client_core,
        row::tables(rows),
        verdict::verdicts(rows, options.most)
    )
}

/// One row: the load that shifts, and with counts that stay each kind alone, on a server of its own.
fn one(
    options: &Options,
    place: &Place<'_>,
    lines: &str,
    (round, turn, policy): (u32, usize, Policy),
    stop: &Arc<AtomicBool>,
) -> Result<Row, Error> {
    let run = |shift: &Shift| one_load(options, place, lines, round, shift, stop);
    let (phases, threads, client) = run(&options.shift(None))?;
    let mut alone = Vec::new();
    for kind in KINDS.into_iter().filter(|_| policy.is_fixed()) {
        alone.extend(run(&options.shift(Some(kind)))?.0);
    }
    Ok(Row { round, place: turn + 1, policy, phases, alone, threads, client })
}

/// Starts the server, runs a load, stops it. Returns what was seen of each phase, the most threads that the
/// server had, and how busy the load generator was.
fn one_load(
    options: &Options,
    place: &Place<'_>,
    lines: &str,
    round: u32,
    shift: &Shift,
    stop: &Arc<AtomicBool>,
) -> Result<(Vec<Seen>, u64, f64), Error> {
    let server = Forebay::start(place, lines, 20_000 + (std::process::id() % 8000) as u16)?;
    // what is hot is in memory from now on
    for file in ["hot.html", "slow.bin"] {
        let asked = probe::get(server.port(), file, "Connection: close\r\n");
        asked.map_err(Error::io("no answer for", file))?;
    }
    let plan = shift.plan(server.port(), options.client_core, round)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut samples = Samples::new(shift.turns().len());
    let report = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            // dropped when the run has ended, however it does
            let sender = sender;
            forebay_load::run(&plan, stop, &mut |progress| {
                let _ = sender.send(progress.elapsed.as_secs_f64());
            })
        });
        for at_s in &receiver {
            // a server that answers late makes samples rare, not old
            let at_s = receiver.try_iter().last().unwrap_or(at_s);
            samples.take(&server, shift.turn_at(at_s - 1e-3));
        }
        run.join()
    });
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let report = report.map_err(|_| Error::Client("the load generator panicked".into()))?;
    let report = report.map_err(|error| Error::Client(error.to_string()))?;
    let turns = shift.turns().into_iter().enumerate();
    let phases = turns.map(|(at, turn)| seen(at, turn, &report, &samples)).collect();
    Ok((phases, samples.most, report.generator.busiest_thread))
}

/// Threads of process and of send, added up over samples, for each phase.
struct Samples {
    sums: Vec<(f64, f64, u32)>,
    /// Threads that were moved until the last sample of each phase.
    moved: Vec<f64>,
    most: u64,
}

impl Samples {
    fn new(phases: usize) -> Samples {
        Samples { sums: vec![(0.0, 0.0, 0); phases], moved: vec![0.0; phases], most: 0 }
    }

    fn take(&mut self, server: &Forebay, place: Option<usize>) {
        self.most = self.most.max(server.threads());
        let metrics = server.metrics();
        let of = |phase| value(&metrics, &format!("forebay_pipeline_threads{{phase=\"{phase}\"}}"));
        if let (Some(place), Some(process), Some(send)) = (place, of("process"), of("send")) {
            let (of_process, of_send, count) = &mut self.sums[place];
            (*of_process, *of_send, *count) = (*of_process + process, *of_send + send, *count + 1);
            let ways = ["grown", "returned", "transferred"];
            let of = |how| format!("forebay_pipeline_threads_moved_total{{how=\"{how}\"}}");
            let moved = ways.iter().filter_map(|how| value(&metrics, &of(how))).sum::<f64>();
            // a phase without a sample of its own begins where the last one ended
            self.moved[place..].fill(moved);
        }
    }
}

fn seen(place: usize, turn: Turn, report: &Report, samples: &Samples) -> Seen {
    let (group, (process, send, count)) = (&report.groups[place], samples.sums[place]);
    let count = f64::from(count.max(1));
    Seen {
        turn,
        requests: group.latency.count,
        mean_ms: group.latency.mean_us / 1e3,
        p99_ms: group.latency.p99_us / 1e3,
        failed: group.failed,
        process: process / count,
        send: send / count,
        moved: samples.moved[place] - place.checked_sub(1).map_or(0.0, |last| samples.moved[last]),
    }
}
