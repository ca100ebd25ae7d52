//! A run of the load generator, and what the server spent in its measured time.

use super::server::Running;
use crate::Error;
use crate::cpu::{Core, Used};
use crate::network::Pair;
use forebay_load::{LoadPlan, Report};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a signal to stop is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// What was seen.
#[derive(Clone, Debug)]
pub struct Watched {
    /// What the clients found.
    pub report: Report,
    /// Processor time of the server per second.
    pub server_cores: f64,
    /// The server core's time in processes and interrupts, per second.
    pub core_busy: f64,
    /// Forebay's metrics before and after; empty unless asked for.
    pub metrics: [String; 2],
}

struct Moment {
    at: Instant,
    used: Used,
    core: Core,
    metrics: String,
}

/// Runs `plan` against `server`, from the clients' network if there is one, and reads at both ends of the
/// measured time what the server used.
///
/// # Errors
/// When the load generator cannot run, or a signal asked to stop.
pub fn watch(
    plan: &LoadPlan,
    server: &Running,
    core: usize,
    with_metrics: bool,
    pair: Option<&Pair>,
    stop: &Arc<AtomicBool>,
) -> Result<Watched, Error> {
    let look = || Moment {
        at: Instant::now(),
        used: Used::read(&server.family()),
        core: Core::read(core),
        metrics: if with_metrics { server.metrics() } else { String::new() },
    };
    let begin = Instant::now() + plan.warmup;
    let end = begin + plan.duration;
    let (report, before, after) = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            pair.map_or(Ok(()), Pair::join_clients)?;
            let report = forebay_load::run(plan, stop, &mut |_| {});
            report.map_err(|error| Error::Client(error.to_string()))
        });
        let asleep_until = |moment: Instant| {
            while Instant::now() < moment && !run.is_finished() {
                std::thread::sleep(LOOK.min(moment.saturating_duration_since(Instant::now())));
            }
        };
        asleep_until(begin);
        let before = look();
        asleep_until(end);
        let after = look();
        (run.join(), before, after)
    });
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let report = report.map_err(|_| Error::Client("the load generator panicked".into()))??;
    let wall_ns = after.at.duration_since(before.at).as_nanos().max(1) as f64;
    Ok(Watched {
        report,
        server_cores: after.used.since(&before.used) as f64 / wall_ns,
        core_busy: after.core.since(&before.core).busy_ns as f64 / wall_ns,
        metrics: [before.metrics, after.metrics],
    })
}
