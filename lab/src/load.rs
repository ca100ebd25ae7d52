//! A run of the load generator, with the server's figures meanwhile.

use crate::Error;
use crate::cpu::{Core, Used};
use crate::network::NetworkPair;
use crate::run::Run;
use crate::running;
use crate::serving::Serving;
use forebay_load::{LoadPlan, LoadTarget, Report};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The interval at which threads and memory are looked at, and the precision of the measured time.
const LOOK: Duration = Duration::from_millis(20);
const SAMPLE: Duration = Duration::from_millis(100);

/// The findings of a run.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// The clients' report.
    pub report: Report,
    /// Processor time of the server per second of the measured time.
    pub server_cores: f64,
    /// The server core's time in processes and interrupts, per second.
    pub core_busy: f64,
    /// Forebay's metrics before and after the measured time; empty where there are none.
    pub metrics: [String; 2],
    /// The largest number of threads of the server.
    pub threads: u64,
    /// The largest memory of the server's own, MiB.
    pub memory_mib: f64,
    /// Pages of files that the machine read again per second, soon after it had given them up.
    pub refaults_per_s: f64,
}

struct Moment {
    at: Instant,
    used: Used,
    core: Core,
    metrics: String,
    refaults: u64,
}

/// Pages of files that were read again soon after they had been given up, since the machine started.
fn refaults() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("workingset_refault_file "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The target that clients connect to.
///
/// # Errors
/// When that is no URL.
pub fn target(port: u16, path: &str) -> Result<LoadTarget, Error> {
    LoadTarget::parse(&format!("http://127.0.0.1:{port}/{path}")).map_err(client)
}

/// An error of the load generator.
pub fn client(error: impl std::fmt::Display) -> Error {
    Error::Client(error.to_string())
}

/// Runs `plan` against a server. `look` is called with the elapsed time of the load, in seconds,
/// whenever that is known.
///
/// # Errors
/// When the load generator cannot run, or a signal asked to stop.
pub fn run(
    run: &Run,
    serving: &Serving,
    plan: &LoadPlan,
    look: &mut dyn FnMut(f64),
) -> Result<LoadResult, Error> {
    run_from(None, run, serving, plan, look)
}

/// The same, from the clients' network if there is one.
///
/// # Errors
/// As [`run`].
pub fn run_from(
    pair: Option<&NetworkPair>,
    run: &Run,
    serving: &Serving,
    plan: &LoadPlan,
    look: &mut dyn FnMut(f64),
) -> Result<LoadResult, Error> {
    plan.check().map_err(client)?;
    let core = run.options.server_core;
    let moment = || Moment {
        at: Instant::now(),
        used: Used::read(&serving.family()),
        core: Core::read(core),
        metrics: serving.metrics(),
        refaults: refaults(),
    };
    let begin = Instant::now() + plan.warmup;
    let end = begin + plan.duration;
    let (mut before, mut after) = (None, None);
    let (mut threads, mut memory, mut sampled) = (0, 0.0f64, Instant::now() - SAMPLE);
    let (sender, receiver) = mpsc::channel();
    let stop = &run.stop;
    let report = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            // dropped when the load has ended, in whatever way
            let sender = sender;
            // a network namespace is a thread's own: only this thread and those it starts join the clients
            pair.map_or(Ok(()), NetworkPair::join_clients)?;
            let report = forebay_load::run(plan, stop, &mut |progress| {
                let _ = sender.send(progress.elapsed.as_secs_f64());
            });
            report.map_err(client)
        });
        loop {
            match receiver.recv_timeout(LOOK) {
                // a server that answers late makes samples rare, not outdated
                Ok(at_s) => look(receiver.try_iter().last().unwrap_or(at_s)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = Instant::now();
            if now >= begin && before.is_none() {
                before = Some(moment());
            }
            if now >= end && after.is_none() {
                after = Some(moment());
            }
            if now >= sampled + SAMPLE {
                sampled = now;
                let family = serving.family();
                let of = |key| family.iter().map(|pid| running::status(*pid, key)).sum::<u64>();
                threads = threads.max(of("Threads:"));
                memory = memory.max(of("RssAnon:") as f64 / 1024.0);
            }
        }
        load.join()
    });
    run.go_on()?;
    let report = report.map_err(|_| Error::Client("the load generator panicked".into()))?;
    // a load that ends between two looks has ended before this thread saw `end`: its end is now
    let (report, after) = (report?, after.unwrap_or_else(moment));
    let before = before.ok_or_else(|| Error::Client("the run was too short".into()))?;
    let wall_ns = after.at.duration_since(before.at).as_nanos().max(1) as f64;
    Ok(LoadResult {
        report,
        server_cores: after.used.since(&before.used) as f64 / wall_ns,
        core_busy: after.core.since(&before.core).busy_ns as f64 / wall_ns,
        refaults_per_s: (after.refaults - before.refaults) as f64 * 1e9 / wall_ns,
        metrics: [before.metrics, after.metrics],
        threads,
        memory_mib: memory,
    })
}
