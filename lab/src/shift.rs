//! A load that shifts between hot small files, cold files and slow receivers, on a pipeline with
//! fuse = "never": both laws of its controller against fixed counts of threads.
//!
//! A thread of send stays with its receiver to the end, as in keta, so that slow receivers need threads of
//! send. With the default of `pipeline.send_wait` a thread gives a slow receiver back after a moment, one
//! thread serves them all, and nothing shifts.

pub mod load;
mod storage;
mod verdict;

use crate::Error;
use crate::benchmark::{Benchmark, BenchmarkNetwork, Measure, Ratio};
use crate::columns::{figure, key};
use crate::forebay::{takes, value};
use crate::load::LoadResult;
use crate::options::{Axis, Kind as Takes, Options, Setting, any};
use crate::reference::Reference;
use crate::rows::RawRow;
use crate::run::{Run, Trial};
use crate::serving::{Forebay, Serving};
use load::{KINDS, Shift, ShiftPhase};
use storage::SlowStorage;

/// A thread of send stays with its receiver to the end.
const STAYS: &str = "pipeline.send_wait = \"1d\"\n";

/// The experiment.
pub const SHIFT: Benchmark = Benchmark {
    name: "shift",
    title: "A load that shifts",
    about: "Threads that are moved between the phases of a pipeline against threads that stay, under a load \
            that shifts; counts that stay also under each kind of request alone. Who waits for 2 s gives up; \
            threads of send stay with receivers to the end.",
    servers: Axis {
        made: Some(policies),
        ..Axis::new(
            "policy",
            "servers",
            "Who says how many threads there are: \"queue\", \"queue before\", \"fixed 1×8\" [default: made of \
             --laws, --before and --counts]",
            any,
            "queue,delay",
        )
    },
    peers: &[],
    clients: &[],
    sweep: &[],
    points: None,
    settings: &[
        Setting {
            name: "laws",
            kind: Takes::Text,
            default: "queue,delay",
            help: "Laws of the controller",
        },
        Setting {
            name: "counts",
            kind: Takes::Text,
            default: "1,2,4,8",
            help: "Fixed counts: each of them for process with each of them for send",
        },
        Setting {
            name: "most",
            kind: Takes::Number,
            default: "18",
            help: "Most threads of all phases together, for the laws",
        },
        Setting {
            name: "hot",
            kind: Takes::Number,
            default: "20000",
            help: "Requests per second for the hot file",
        },
        Setting {
            name: "cold",
            kind: Takes::Number,
            default: "500",
            help: "Requests per second for cold files: more than one thread of process reads",
        },
        Setting {
            name: "slow",
            kind: Takes::Number,
            default: "50",
            help: "Requests per second of slow receivers: more than eight threads of send serve",
        },
        Setting {
            name: "cycles",
            kind: Takes::Number,
            default: "2",
            help: "How often each kind of request has its turn; each is as long as a measurement",
        },
    ],
    rounds: 10,
    measured: "1.25s",
    network: BenchmarkNetwork::Own(Some(load::SEND_BUFFER_BYTES)),
    pinned: true,
    columns: &[
        key("policy"),
        key("phase"),
        figure("requests"),
        figure("mean_ms").shown("mean time to an answer, ms", 2),
        figure("p99_ms").shown("p99 ms", 2),
        figure("failed").shown("failed", 0),
        figure("process").shown("threads of process", 1),
        figure("send").shown("of send", 1),
        figure("moved").shown("moved", 0),
        figure("threads").shown("most, all told", 0),
        figure("threads_most"),
        figure("client"),
        figure("over_best_fixed"),
        figure("moved_over_distance"),
    ],
    tables: &["phase"],
    lines: &["policy"],
    ratios: &[Ratio { figure: "mean_ms", to: Reference::Rows(&[("policy", "queue")]) }],
    claims: &[],
    more: verdict::verdicts,
    prepare,
};

/// The rows of one round with the laws' results in it.
pub fn judged(rows: Vec<RawRow>) -> Vec<RawRow> {
    verdict::judged(rows)
}

/// The policies that take part.
fn policies(options: &Options) -> Vec<String> {
    let split = |name: &str| options.text(name).split(',').map(str::to_owned).collect::<Vec<_>>();
    let laws = split("laws");
    let before = laws.iter().filter(|_| options.before.is_some());
    let before: Vec<_> = before.map(|law| format!("{law} before")).collect();
    let counts = split("counts");
    let fixed = counts
        .iter()
        .flat_map(|process| counts.iter().map(move |send| format!("fixed {process}×{send}")));
    laws.iter().cloned().chain(before).chain(fixed).collect()
}

/// The mounted storage, and the setting by which another build has threads stay.
struct Shifting {
    _storage: SlowStorage,
    stays_before: &'static str,
}

fn prepare(run: &Run) -> Result<Box<dyn Measure>, Error> {
    let storage = load::write(&run.root)?;
    // a build that does not know the setting has threads that stay anyway
    let stays_before = match &run.options.before {
        Some(program) if !takes(program, STAYS, run.scratch())? => "",
        _ => STAYS,
    };
    Ok(Box::new(Shifting { _storage: storage, stays_before }))
}

impl Measure for Shifting {
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error> {
        let options = &trial.run.options;
        let rates = ["hot", "cold", "slow"].map(|kind| options.number(kind));
        let seconds = options.measured.as_secs_f64();
        let whole = Shift { rates, seconds, cycles: options.number("cycles") as u32, alone: None };
        let mut rows = self.one(trial, &whole)?;
        // the mean is over requests, not over phases
        let sum = |figure: fn(&RawRow) -> f64| rows.iter().map(figure).sum::<f64>();
        let of = |row: &RawRow, name| row.get(name).unwrap_or_default();
        let requests = sum(|row| row.get("requests").unwrap_or_default());
        let total: f64 = rows.iter().map(|row| of(row, "requests") * of(row, "mean_ms")).sum();
        let all = RawRow::default()
            .word("phase", verdict::ALL)
            .figure("requests", requests)
            .figure("mean_ms", total / requests.max(1.0))
            .figure("failed", sum(|row| row.get("failed").unwrap_or_default()))
            .figure("threads", rows.first().map_or(0.0, |row| of(row, "threads")))
            .figure("threads_most", options.number("most"));
        rows.push(all);
        let is_fixed = trial.server.starts_with("fixed ");
        for kind in KINDS.into_iter().filter(|_| is_fixed) {
            // on a server of its own
            rows.extend(self.one(trial, &Shift { alone: Some(kind), ..whole })?);
        }
        Ok(rows)
    }
}

impl Shifting {
    /// Starts the server, runs a load, stops it. Returns a row for each phase.
    fn one(&self, trial: &Trial<'_>, shift: &Shift) -> Result<Vec<RawRow>, Error> {
        let run = trial.run;
        let law = trial.server.strip_suffix(" before");
        let (program, stays) = match law {
            Some(_) => (run.options.before.as_deref(), self.stays_before),
            None => (None, STAYS),
        };
        let lines = lines(run, law.unwrap_or(trial.server), stays)?;
        let serving = Serving::forebay(run, &Forebay { program, ..Forebay::new(&lines) })?;
        // what is hot is in memory from now on
        ["hot.html", "slow.bin"].into_iter().try_for_each(|file| serving.asked(file))?;
        let plan = shift.plan(serving.port(), run.options.client_core, trial.round)?;
        let mut samples = Samples::new(shift.turns().len());
        let loaded = crate::load::run(run, &serving, &plan, &mut |at_s| {
            samples.take(&serving, shift.turn_at(at_s - 1e-3));
        })?;
        let turns = shift.turns().into_iter().enumerate();
        let most = run.options.number("most");
        Ok(turns.map(|(at, turn)| samples.row(at, turn, &loaded, most)).collect())
    }
}

/// The configuration of a server; `stays` is the setting by which threads stay with receivers.
fn lines(run: &Run, policy: &str, stays: &str) -> Result<String, Error> {
    let (by, process, send) = match policy.strip_prefix("fixed ") {
        None => (policy, "1", "1"),
        Some(counts) => {
            let counts = counts.split_once('×');
            let counts = counts.ok_or_else(|| Error::Client(format!("{policy}: fixed 2×8 is one")));
            let (process, send) = counts?;
            ("fixed", process, send)
        }
    };
    Ok(format!(
        "root = {:?}\nengine = \"pipeline\"\nworkers = 1\ncache.bytes = \"16MiB\"\n\
         cache.file_bytes = \"4MiB\"\npipeline.fuse = \"never\"\npipeline.by = \"{by}\"\n\
         pipeline.process = {process}\npipeline.send = {send}\npipeline.threads = {}\n\
         timeouts.drain = \"0s\"\n{stays}",
        run.root,
        run.options.text("most"),
    ))
}

/// Threads of process and of send, added up over samples, for each phase.
struct Samples {
    sums: Vec<(f64, f64, u32)>,
    /// Threads that were moved until the last sample of each phase.
    moved: Vec<f64>,
}

impl Samples {
    fn new(phases: usize) -> Samples {
        Samples { sums: vec![(0.0, 0.0, 0); phases], moved: vec![0.0; phases] }
    }

    fn take(&mut self, serving: &Serving, place: Option<usize>) {
        let metrics = serving.metrics();
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

    fn row(&self, place: usize, turn: ShiftPhase, loaded: &LoadResult, most: f64) -> RawRow {
        let (group, (process, send, count)) = (&loaded.report.groups[place], self.sums[place]);
        let count = f64::from(count.max(1));
        let before = place.checked_sub(1).map_or(0.0, |last| self.moved[last]);
        RawRow::default()
            .word("phase", turn.name())
            .figure("requests", group.latency.count as f64)
            .figure("mean_ms", group.latency.mean_us / 1e3)
            .figure("p99_ms", group.latency.p99_us / 1e3)
            .figure("failed", group.failed as f64)
            .figure("process", process / count)
            .figure("send", send / count)
            .figure("moved", self.moved[place] - before)
            .figure("threads", loaded.threads as f64)
            .figure("threads_most", most)
            .figure("client", loaded.report.generator.busiest_thread)
    }
}
