//! The times of the phases of a request on this machine: measured in the real pipeline with
//! `fuse = "never"`, one thread per phase and little load, so that nothing waits for a core.
//!
//! Processor time is that of each phase's thread, which is named after it. Blocked time follows from the
//! share of a phase's busy time in which the pipeline sees it blocked.

use super::bench::{CalibrationBench, RunLength};
use super::costs::file_name;
use super::error::CalibrateError;
use super::server::ServerProcess;
use forebay_control::allocation::{PHASES, Phase};
use forebay_load::LoadModel;
use forebay_load::arrivals::{Arrivals, TraceLine};
use forebay_load::plan::RequestsPerConnection;
use std::path::Path;
use std::time::Duration;

/// The bytes of a cold file.
pub(super) const COLD_BYTES: usize = 64 << 10;
/// The number of cold files per second that clients request, each once.
const COLD_PER_S: u64 = 200;

/// The times of a request in each phase, by [`Phase::index`], nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PhaseTimes {
    pub(super) cpu_ns: [u64; PHASES],
    pub(super) blocked_ns: [u64; PHASES],
}

/// The number of cold files that a measurement needs.
pub(super) fn cold_files(length: RunLength) -> u64 {
    COLD_PER_S * length.total().as_millis() as u64 / 1000 + 1
}

/// The name of a cold file.
pub(super) fn cold_name(number: u64) -> String {
    format!("cold-{number}.bin")
}

/// Measures a hot file of 1 KiB, requested again and again on one connection; and, for the time of accept, on
/// a new connection each time.
pub(super) fn hot(
    bench: &CalibrationBench,
    server: &ServerProcess,
    length: RunLength,
) -> Result<PhaseTimes, CalibrateError> {
    bench.bar.say("phases: a hot file");
    let mut group = bench.group(server, &file_name(1024), 1);
    let kept = times(bench, server, group.clone(), length)?;
    bench.bar.say("phases: connections");
    group.per_connection = RequestsPerConnection::Exactly(1);
    let fresh = times(bench, server, group, length)?;
    let accept = Phase::Accept.index();
    let mut hot = kept;
    hot.cpu_ns[accept] = fresh.cpu_ns[accept];
    hot.blocked_ns[accept] = fresh.blocked_ns[accept];
    Ok(hot)
}

/// Measures files that are not in memory, each requested once.
pub(super) fn cold(
    bench: &CalibrationBench,
    server: &ServerProcess,
    root: &Path,
    length: RunLength,
) -> Result<PhaseTimes, CalibrateError> {
    bench.bar.say("phases: cold files");
    forget(root, cold_files(length))?;
    let mut group = bench.group(server, "", 1);
    let line = |number| TraceLine {
        at: Duration::from_secs(number) / COLD_PER_S as u32,
        path: Some(format!("/{}", cold_name(number)).into()),
    };
    let trace = (0..cold_files(length)).map(line).collect();
    let arrivals = Arrivals { trace: Some(trace), ..Arrivals::default() };
    group.load = LoadModel::Open { arrivals, connections: 16 };
    times(bench, server, group, length)
}

/// Empties the page cache of the cold files.
fn forget(root: &Path, count: u64) -> Result<(), CalibrateError> {
    use std::os::fd::AsFd;
    for number in 0..count {
        let path = root.join(cold_name(number));
        let file = std::fs::File::open(&path);
        let forgotten = file.and_then(|file| forebay_sys::pages::forget(file.as_fd()));
        forgotten.map_err(CalibrateError::io("cannot forget", path))?;
    }
    Ok(())
}

/// Runs the load, and divides the time of each phase by the number of requests.
fn times(
    bench: &CalibrationBench,
    server: &ServerProcess,
    group: forebay_load::ClientGroup,
    length: RunLength,
) -> Result<PhaseTimes, CalibrateError> {
    let mut seen = PhaseLooks::default();
    let mut failed = None;
    let measured = bench.measure(server, group, length, &mut || match server.threads() {
        Ok(threads) => {
            let run_ns = |phase: Phase| {
                let of_phase = threads.iter().filter(|(name, _)| is_of(name, phase));
                of_phase.map(|(_, spent)| spent.run_ns).sum::<u64>()
            };
            seen.mark(Phase::ALL.map(run_ns), &server.metrics());
        }
        Err(error) => failed = Some(error),
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    Ok(seen.times(measured.requests_per_s * length.ms as f64 / 1e3))
}

/// Whether the name of a thread is that of one of this phase.
fn is_of(thread: &str, phase: Phase) -> bool {
    let number = thread.strip_prefix(phase.name()).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Observations of the phases during a measurement.
#[derive(Debug, Default)]
struct PhaseLooks {
    /// Processor time at the first and at the last look.
    run_ns: Option<([u64; PHASES], [u64; PHASES])>,
    /// Sums over the looks: of busy threads, and of busy times the blocked share.
    busy: [f64; PHASES],
    blocked: [f64; PHASES],
}

impl PhaseLooks {
    fn mark(&mut self, run_ns: [u64; PHASES], metrics: &str) {
        let first = self.run_ns.map_or(run_ns, |(first, _)| first);
        self.run_ns = Some((first, run_ns));
        for phase in Phase::ALL {
            let of = |name: &str| value(metrics, &format!("{name}{{phase=\"{}\"}}", phase.name()));
            let busy = of("forebay_pipeline_busy_threads_percent");
            let blocked = of("forebay_pipeline_blocked_percent");
            self.busy[phase.index()] += busy;
            self.blocked[phase.index()] += busy * blocked / 100.0;
        }
    }

    /// The times of one request.
    fn times(&self, requests: f64) -> PhaseTimes {
        let mut times = PhaseTimes::default();
        let Some((first, last)) = self.run_ns else { return times };
        for index in 0..PHASES {
            let cpu_ns = last[index].saturating_sub(first[index]) as f64 / requests.max(1.0);
            times.cpu_ns[index] = cpu_ns as u64;
            // busy time is running plus blocked time, since nothing else had the core for long
            let share = (self.blocked[index] / self.busy[index].max(1.0)).clamp(0.0, 0.999);
            times.blocked_ns[index] = (cpu_ns * share / (1.0 - share)) as u64;
        }
        times
    }
}

/// The value of a metric with its labels; 0 if it is not there.
fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_from_threads_and_shares() {
        let metrics = "forebay_pipeline_busy_threads_percent{phase=\"process\"} 50\n\
                       forebay_pipeline_blocked_percent{phase=\"process\"} 80\n\
                       forebay_pipeline_busy_threads_percent{phase=\"send\"} 10\n";
        let mut seen = PhaseLooks::default();
        assert_eq!(seen.times(10.0), PhaseTimes::default());
        seen.mark([0, 100, 1_000, 10], metrics);
        seen.mark([0, 600, 3_000, 510], metrics);
        let times = seen.times(10.0);
        assert_eq!(times.cpu_ns, [0, 50, 200, 50]);
        // four fifths of the time blocked: four times as long as running
        assert_eq!(times.blocked_ns, [0, 0, 800, 0]);
    }

    #[test]
    fn threads_of_a_phase_have_its_name_and_a_number() {
        assert!(is_of("send-0", Phase::Send) && is_of("process-12", Phase::Process));
        assert!(!is_of("send", Phase::Send) && !is_of("sender-1", Phase::Send));
        assert!(!is_of("process-0", Phase::Send));
    }
}
