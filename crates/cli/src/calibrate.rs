//! `forebay calibrate`: measures what requests cost on this machine, and writes the constants for a
//! pipeline's controller and the data cache (keta §4.2).
//!
//! | module | what it holds |
//! |---|---|
//! | [`server`] | this program's own server, as a child on a temporary folder |
//! | [`bench`](mod@bench) | one measurement: a load, and the server's processor time meanwhile |
//! | [`crossover`] | memory or sendfile, one piece or two, the defaults or the result: by interleaved pairs |
//! | [`costs`] | `c1` and `c2` by regression |
//! | [`phases`] | the time of each phase |
//! | [`factors`] | `a_k` and `b_k`, in a simulation with these times |
//! | [`told`] | the result, as a file and as a report |
//! | [`out`] | the file that is written |
//! | [`progress`], [`error`] | the progress bar; the errors |
//!
//! The measured quantity is processor time, on one core that the server has for itself while the load comes
//! from the others. So the result depends neither on the client nor on the number of cores: where the client
//! was the bottleneck, the rates are scaled to a core that is used fully.

mod bench;
mod costs;
mod crossover;
mod error;
mod factors;
mod out;
mod phases;
mod progress;
mod server;
mod told;

pub(crate) use error::CalibrateError;

use bench::{CalibrationBench, RunLength};
use costs::{CostPoint, file_name, text_name};
use crossover::{Compared, MeasuredPairs};
use factors::{Factors, Grid};
use forebay_config::{CalibrationError, Config, Size};
use forebay_control::allocation::{self, Law, PHASES};
use forebay_control::regression::Fit;
use forebay_control::utilisation::Costs;
use forebay_server::config_file::load_calibration;
use forebay_server::plan::{MachineResources, Plan};
use forebay_sys::folder::Folder;
use forebay_sys::process;
use progress::Bar;
use server::ServerProcess;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Options of `calibrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Calibrate {
    /// Measure less, in under a minute instead of under five
    #[arg(long)]
    quick: bool,
    /// The file to write; one that is there is replaced, if it is a regular file
    #[arg(long, value_name = "FILE", default_value = "calibration.toml")]
    out: PathBuf,
    /// Constants to begin with instead of the defaults: a file of an earlier calibration. What is found
    /// is held against them, and they against the defaults
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// The measurements, and their length.
#[derive(Clone, Copy, Debug)]
struct MeasurePlan {
    sizes: &'static [u64],
    connections: &'static [u32],
    point: RunLength,
    crossover_sizes: &'static [u64],
    rounds: u32,
    pair: RunLength,
    /// The rounds, of each size, that compare the result with the constants from before.
    held_rounds: u32,
    held: RunLength,
    phase: RunLength,
    grid: Grid,
}

/// The name of the temporary folder, before the process id.
const SCRATCH: &str = "forebay-calibrate-";

const KIB: u64 = 1024;

const FULL: MeasurePlan = MeasurePlan {
    sizes: &[KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, KIB * KIB],
    connections: &[16, 64, 256],
    point: RunLength { warmup_ms: 500, ms: 2000 },
    crossover_sizes: &[32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB, 2048 * KIB],
    rounds: 5,
    pair: RunLength { warmup_ms: 200, ms: 800 },
    held_rounds: 10,
    held: RunLength { warmup_ms: 100, ms: 400 },
    phase: RunLength { warmup_ms: 500, ms: 3000 },
    grid: factors::FULL,
};

const QUICK: MeasurePlan = MeasurePlan {
    sizes: &[KIB, 16 * KIB, 128 * KIB, KIB * KIB],
    connections: &[16, 64],
    point: RunLength { warmup_ms: 300, ms: 800 },
    crossover_sizes: &[32 * KIB, 128 * KIB, 512 * KIB, 1024 * KIB],
    rounds: 3,
    pair: RunLength { warmup_ms: 100, ms: 400 },
    held_rounds: 3,
    held: RunLength { warmup_ms: 100, ms: 300 },
    phase: RunLength { warmup_ms: 300, ms: 1500 },
    grid: factors::QUICK,
};

/// The sizes of bodies that are sent in one piece or in two: longer than [`SEGMENT`], and at most twice as
/// long.
const SEGMENT_SIZES: &[u64] = &[80 * KIB, 112 * KIB, 128 * KIB];
/// The largest segment that the kernel makes (GSO).
const SEGMENT: u64 = 64 * KIB;
/// Two pieces are chosen where they cost at most this part of one piece.
const WORTH_IT: f64 = 0.97;
/// The result is kept where it costs less than this part of the constants from before, with the whole
/// interval.
const CHEAPER: f64 = 1.0;
const IN_PIECES: [&str; 2] = ["one piece", "two"];
const BY_FILE: [&str; 2] = ["memory", "sendfile"];
const BESIDE_DEFAULTS: [&str; 2] = ["found", "defaults"];
const BESIDE_GIVEN: [&str; 2] = ["found", "given"];
const GIVEN: [&str; 2] = ["given", "defaults"];
/// Constants that cost this much more than the defaults have a loss that can be recovered.
const LOSS: f64 = 1.01;

/// The approximate time of one simulated pipeline of the search.
const SEARCH: Duration = Duration::from_millis(60);
/// If threads of the server waited longer than this share of the time for their core, other programs ran on
/// it.
const NOISE: f64 = 0.1;
/// A fit worse than this is not used: the costs from before are kept.
const GOOD_FIT: f64 = 0.95;

impl MeasurePlan {
    fn total(&self, has_given: bool) -> Duration {
        let points = self.sizes.len() * self.connections.len();
        let held = 2 + u32::from(has_given);
        crossover::total(2, self.crossover_sizes, self.rounds, self.pair)
            + crossover::total(2, SEGMENT_SIZES, self.rounds, self.pair)
            + crossover::total(held, &self.files(), self.held_rounds, self.held)
            + self.point.total() * points as u32
            + self.phase.total() * 3
            + SEARCH * self.grid.runs()
    }

    /// All sizes of files, each once.
    fn files(&self) -> Vec<u64> {
        let mut sizes = [self.sizes, self.crossover_sizes, SEGMENT_SIZES].concat();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The names of all files, and of texts of the same sizes.
    fn names(&self) -> Vec<String> {
        self.files().into_iter().flat_map(|bytes| [file_name(bytes), text_name(bytes)]).collect()
    }
}

/// The constants that a calibration begins with.
#[derive(Clone, Debug)]
struct Start {
    /// Whether the constants come from a file.
    is_given: bool,
    file_bytes: Size,
    segment_bytes: Size,
    /// The costs of a request and of a byte, on one core.
    costs: Costs,
    /// The factors of the controller, if a file has them.
    factors: Option<[[f64; PHASES]; 2]>,
}

impl Start {
    fn defaults() -> Start {
        let forebay_config::CacheConfig { file_bytes, segment_bytes, .. } = Config::default().cache;
        let costs = Costs::uncalibrated(1);
        Start { is_given: false, file_bytes, segment_bytes, costs, factors: None }
    }

    /// The constants of `file`, or the defaults.
    fn new(file: Option<&Path>) -> Result<Start, CalibrateError> {
        let Some(path) = file else { return Ok(Start::defaults()) };
        let given = load_calibration(path).map_err(|error| CalibrateError::From {
            path: path.to_owned(),
            wrong: match error {
                CalibrationError::Unreadable(error) => error.to_string(),
                CalibrationError::Wrong(problems) => {
                    problems.first().map_or_else(String::new, ToString::to_string)
                }
            },
        })?;
        Ok(Start {
            is_given: true,
            file_bytes: given.file_bytes,
            segment_bytes: given.segment_bytes,
            costs: given.costs(1),
            factors: Some([given.per_waiting, given.per_rate]),
        })
    }

    /// The lines of configuration with these constants.
    fn lines(&self) -> String {
        kept(self.file_bytes.0, self.segment_bytes.0)
    }
}

/// The lines of configuration of a server with these constants.
fn kept(file_bytes: u64, segment_bytes: u64) -> String {
    let (file, segment) = (Size(file_bytes), Size(segment_bytes));
    format!("cache.file_bytes = \"{file}\"\ncache.segment_bytes = \"{segment}\"\n")
}

/// The comparison of a server with the result and one with the constants from before.
#[derive(Debug)]
struct BeforeAfter {
    pairs: Vec<MeasuredPairs>,
    names: [&'static str; 2],
    /// A file of which the two servers send different bytes.
    differs: Option<String>,
    /// The given constants compared with the defaults.
    given: Option<Vec<MeasuredPairs>>,
}

impl BeforeAfter {
    /// Whether the result is kept: the bytes are the same, and it is cheaper over the whole interval.
    fn is_kept(&self) -> bool {
        let [_, _, high] = crossover::interval(&self.pairs);
        self.differs.is_none() && high < CHEAPER
    }

    /// The part of the given constants' loss that the result recovers, with its interval of 95 %; `None`
    /// unless they certainly have a loss. Each round has both gain and loss: the given constants are in both,
    /// so that their errors do not count twice (a ratio of means, by linearisation).
    fn recovered(&self) -> Option<[f64; 3]> {
        let losses = crossover::by_round(self.given.as_ref()?);
        let (lost, lost_margin) = crossover::mean_and_margin(&losses);
        let is_lost = lost >= LOSS.ln() && lost > lost_margin;
        if !is_lost {
            return None;
        }
        // if the result is not kept, the constants cost what the given ones do: no gain
        let part_kept = f64::from(u8::from(self.is_kept()));
        let gains = crossover::by_round(&self.pairs).into_iter().map(|cost| -cost * part_kept);
        let gains: Vec<_> = gains.collect();
        let part = crossover::mean_and_margin(&gains).0 / lost;
        let left = gains.iter().zip(&losses).map(|(gain, loss)| gain - part * loss);
        let (_, margin) = crossover::mean_and_margin(&left.collect::<Vec<_>>());
        let margin = margin / lost;
        Some([part, part - margin, part + margin])
    }
}

/// The result of a calibration.
#[derive(Debug)]
struct CalibrationResult {
    in_pieces: Vec<MeasuredPairs>,
    by_file: Vec<MeasuredPairs>,
    file_bytes: u64,
    segment_bytes: u64,
    /// The comparison with the constants from before, if the result differs from them.
    held: Option<BeforeAfter>,
    points: Vec<CostPoint>,
    fit: Fit,
    /// The costs of the fit if it is good enough, otherwise those from before.
    costs: Costs,
    hot: phases::PhaseTimes,
    cold: phases::PhaseTimes,
    factors: Factors,
    /// The mean time to an answer under the shifting load with the default factors, if others were given, ms.
    default_ms: Option<f64>,
    cores: usize,
}

impl CalibrationResult {
    /// The part of the given factors' loss in the simulation that the result recovers; `None` if they have no
    /// loss.
    fn recovered_by_factors(&self) -> Option<f64> {
        let default_ms = self.default_ms?;
        let lost_ms = self.factors.before_ms - default_ms;
        let is_lost = self.factors.before_ms >= LOSS * default_ms;
        is_lost.then(|| (self.factors.before_ms - self.factors.after_ms) / lost_ms)
    }
}

/// Measures, writes the file, and returns the report for standard output and the remarks for standard error.
///
/// # Errors
/// The reason of an early end; then nothing is written.
pub(crate) fn run(options: &Calibrate) -> Result<(String, String), CalibrateError> {
    let began = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        let registered = signal_hook::flag::register(signal, Arc::clone(&stop));
        registered.map_err(CalibrateError::io("cannot watch for", "signals"))?;
    }
    let scope = if options.quick { QUICK } else { FULL };
    let cores = process::allowed_cores().map_err(CalibrateError::io("cannot tell", "the cores"))?;
    let server_core = cores.first().copied().unwrap_or(0);
    // with one core only, server and client share it
    let others: Vec<_> =
        cores.iter().copied().filter(|core| *core != server_core).take(3).collect();
    let client_cores = if others.is_empty() { vec![server_core] } else { others };
    // this process must not run on the server's core
    let pinned = process::pin_to_core(client_cores[0]);
    pinned.map_err(CalibrateError::io("cannot keep to", "a core"))?;
    let start = Start::new(options.from.as_deref())?;
    out::check(&options.out)?;
    let bar = Bar::new(scope.total(start.is_given));
    let bench = CalibrationBench { server_core, client_cores, stop, bar };
    let found = measure(&bench, &scope, &start, cores.len());
    bench.bar.end();
    let found = found?;
    out::write(&options.out, &told::file(options, &found, began.elapsed()))?;
    Ok((told::report(&found), told::remarks(&options.out, &found, &bench)))
}

fn measure(
    bench: &CalibrationBench,
    scope: &MeasurePlan,
    before: &Start,
    cores: usize,
) -> Result<CalibrationResult, CalibrateError> {
    let base = std::env::temp_dir();
    let scratch = Folder::make(SCRATCH, 0o700)
        .map_err(CalibrateError::io("cannot make a folder in", base))?;
    let root = scratch.path().join("site");
    fs::create_dir(&root).map_err(CalibrateError::io("cannot make the folder", &root))?;
    write_files(&root, scope)?;
    let start = |name: &str, lines: &str| {
        ServerProcess::start(&root, name, lines, bench.server_core, &bench.stop)
    };
    let pair =
        |names, (sizes, rounds, length): (&[u64], u32, RunLength), one: &str, other: &str| {
            let names: [&'static str; 2] = names;
            let servers = [start(names[0], one)?, start(names[1], other)?];
            let two = Compared { names, servers: [&servers[0], &servers[1]] };
            let all = crossover::measure(bench, &two, sizes, rounds, length)?;
            Ok(crossover::pairs(&all, 0, 1))
        };
    let of = |sizes| (sizes, scope.rounds, scope.pair);
    // the order matters: each step measures with what the steps before it have found. With this limit all
    // files are sent from memory, with 0 none
    let all = 64 << 20;
    let in_pieces = pair(IN_PIECES, of(SEGMENT_SIZES), &kept(all, 0), &kept(all, SEGMENT))?;
    let mut segment_bytes = if crossover::mean(&in_pieces) * WORTH_IT >= 1.0 { SEGMENT } else { 0 };
    let sizes = of(scope.crossover_sizes);
    let by_file = pair(BY_FILE, sizes, &kept(all, segment_bytes), &kept(0, segment_bytes))?;
    let mut file_bytes = crossover::file_bytes(&by_file, before.file_bytes.0);
    let mut held = None;
    if (Size(file_bytes), Size(segment_bytes)) != (before.file_bytes, before.segment_bytes) {
        let files = scope.files();
        let names = if before.is_given { BESIDE_GIVEN } else { BESIDE_DEFAULTS };
        let (one, other) = (kept(file_bytes, segment_bytes), before.lines());
        let servers = [start(names[0], &one)?, start(names[1], &other)?];
        let two = Compared { names, servers: [&servers[0], &servers[1]] };
        let (rounds, length) = (scope.held_rounds, scope.held);
        let (pairs, given) = if before.is_given {
            let defaults = start(GIVEN[1], "")?;
            let names = [names[0], GIVEN[0], GIVEN[1]];
            let three = Compared { names, servers: [&servers[0], &servers[1], &defaults] };
            let all = crossover::measure(bench, &three, &files, rounds, length)?;
            (crossover::pairs(&all, 0, 1), Some(crossover::pairs(&all, 1, 2)))
        } else {
            let all = crossover::measure(bench, &two, &files, rounds, length)?;
            (crossover::pairs(&all, 0, 1), None)
        };
        let differs = crossover::first_difference(bench, &two, &scope.names())?;
        let result = BeforeAfter { pairs, names, differs, given };
        if !result.is_kept() {
            (file_bytes, segment_bytes) = (before.file_bytes.0, before.segment_bytes.0);
        }
        held = Some(result);
    }
    let points = {
        let server = start("costs", &kept(file_bytes, segment_bytes))?;
        costs::measure(bench, &server, scope.sizes, scope.connections, scope.point)?
    };
    let fit = costs::fit(&points).map_err(CalibrateError::Fit)?;
    let costs = if is_good(&fit) { fit.costs } else { before.costs };
    let (hot, cold) = {
        let server = start("phases", "pipeline.fuse = \"never\"\npipeline.by = \"fixed\"\n")?;
        let hot = phases::hot(bench, &server, scope.phase)?;
        (hot, phases::cold(bench, &server, &root, scope.phase)?)
    };
    bench.bar.say("a, b: simulated pipelines");
    let load = factors::shifting(hot, cold, cores as u32);
    // the default configuration is always valid
    let machine =
        MachineResources { cores, memory_bytes: 1 << 30, descriptors: 20_000, threads: 10_000 };
    let plan = Plan::new(&Config::default(), &machine).expect("the defaults are good");
    let preset = &plan.groups[0].pipeline.allocation;
    let settings = match before.factors {
        None => preset.clone(),
        Some([per_waiting, per_rate]) => {
            allocation::AllocationSettings { per_waiting, per_rate, ..preset.clone() }
        }
    };
    let factors = factors::search(&load, &settings, scope.grid, || {
        bench.bar.done(SEARCH);
        bench.check()
    })?;
    let by_queue = allocation::AllocationSettings { law: Law::Queue, ..preset.clone() };
    let default_ms = before.is_given.then(|| factors::mean_ms(&load, &by_queue));
    Ok(CalibrationResult {
        in_pieces,
        by_file,
        file_bytes,
        segment_bytes,
        held,
        points,
        fit,
        costs,
        hot,
        cold,
        factors,
        default_ms,
        cores,
    })
}

/// Whether the costs of this fit are better than those from before.
fn is_good(fit: &Fit) -> bool {
    fit.r_squared >= GOOD_FIT
}

/// Writes all files that clients will request.
fn write_files(root: &Path, scope: &MeasurePlan) -> Result<(), CalibrateError> {
    let cold =
        (0..phases::cold_files(scope.phase)).map(|n| (phases::cold_name(n), phases::COLD_BYTES));
    let of_size =
        |bytes: u64| [file_name(bytes), text_name(bytes)].map(|name| (name, bytes as usize));
    let sized = scope.files().into_iter().flat_map(of_size);
    for (name, bytes) in sized.chain(cold) {
        let path = root.join(name);
        let written = fs::write(&path, vec![b'x'; bytes]);
        written.map_err(CalibrateError::io("cannot write", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of three sizes, in which the first server costs these parts of the second, round by round.
    fn of(ratios: &[f64]) -> Vec<MeasuredPairs> {
        let pairs = ratios.iter().map(|ratio| (10.0 * ratio, 10.0)).collect::<Vec<_>>();
        [1, 2, 3].map(|bytes| MeasuredPairs { bytes, pairs: pairs.clone() }).into()
    }

    fn held(found: &[f64], given: Option<&[f64]>) -> BeforeAfter {
        BeforeAfter {
            pairs: of(found),
            names: BESIDE_DEFAULTS,
            differs: None,
            given: given.map(of),
        }
    }

    #[test]
    fn what_is_not_surely_cheaper_is_not_kept() {
        assert!(held(&[0.90, 0.91, 0.89], None).is_kept());
        // more expensive, equal, and cheaper only in the mean of rounds that differ widely
        assert!(!held(&[1.10, 1.11, 1.09], None).is_kept());
        assert!(!held(&[1.0, 1.0, 1.0], None).is_kept());
        assert!(!held(&[0.80, 1.05, 1.0], None).is_kept());
        // one round has no interval
        assert!(!held(&[0.5], None).is_kept());
        let differs = Some("1.txt".to_owned());
        assert!(!BeforeAfter { differs, ..held(&[0.5, 0.5, 0.5], None) }.is_kept());
    }

    #[test]
    fn what_is_recovered_is_a_part_of_what_was_lost() {
        let recovered = |found: &[f64], given: &[f64]| held(found, Some(given)).recovered();
        let all = recovered(&[0.8; 3], &[1.25; 3]).unwrap();
        // equal rounds have an interval of zero
        assert!(all.iter().all(|part| (part - 1.0).abs() < 1e-9), "{all:?}");
        let [half, ..] = recovered(&[0.8; 3], &[1.5625; 3]).unwrap();
        assert!((half - 0.5).abs() < 1e-9, "{half}");
        // nothing is kept, nothing was lost, nothing was given
        assert_eq!(recovered(&[1.1; 3], &[1.25; 3]), Some([0.0; 3]));
        // the more rounds differ, the wider the interval
        let [part, low, high] = recovered(&[0.79, 0.8, 0.81], &[1.24, 1.25, 1.26]).unwrap();
        let [_, lower, higher] = recovered(&[0.75, 0.8, 0.85], &[1.15, 1.25, 1.36]).unwrap();
        assert!(lower < low && low < part && part < high && high < higher);
        assert_eq!(recovered(&[0.9; 3], &[1.0; 3]), None);
        // an uncertain loss gives no part: the division would be by nearly zero
        assert_eq!(recovered(&[0.8; 3], &[0.9, 1.02, 1.2]), None);
        assert_eq!(held(&[0.9; 3], None).recovered(), None);
    }
}
