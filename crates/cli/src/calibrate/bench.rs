//! One measurement: a server under a load, and the processor time that it used meanwhile.

use super::error::CalibrateError;
use super::progress::Bar;
use super::server::ServerProcess;
use forebay_load::{ClientGroup, LoadModel, LoadPlan, LoadTarget};
use forebay_sys::schedule::Spent;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The cores of server and load generator, and the signal to stop.
#[derive(Debug)]
pub(super) struct CalibrationBench {
    /// The core of the server.
    pub(super) server_core: usize,
    /// The cores of the load generator.
    pub(super) client_cores: Vec<usize>,
    /// Set when a signal asks to stop.
    pub(super) stop: Arc<AtomicBool>,
    /// The progress of the calibration.
    pub(super) bar: Bar,
}

/// The length of a run: warm-up and measured time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLength {
    pub(super) warmup_ms: u64,
    pub(super) ms: u64,
}

impl RunLength {
    pub(super) fn total(self) -> Duration {
        Duration::from_millis(self.warmup_ms + self.ms)
    }
}

/// The figures of a server in the measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Answers sent per second.
    pub(super) requests_per_s: f64,
    /// Bytes sent per second, with heads.
    pub(super) bytes_per_s: f64,
    /// The share of its core that the server used.
    pub(super) used: f64,
    /// The share of the time in which one of its threads had to wait for that core.
    pub(super) held_up: f64,
}

impl Measured {
    /// The processor time per answer, µs.
    pub(super) fn cpu_us(&self) -> f64 {
        self.used * 1e6 / self.requests_per_s
    }
}

impl CalibrationBench {
    /// Fails when a signal has asked to stop.
    pub(super) fn check(&self) -> Result<(), CalibrateError> {
        if self.stop.load(Ordering::Relaxed) { Err(CalibrateError::Interrupted) } else { Ok(()) }
    }

    /// A group of clients that requests one path over `connections` connections.
    pub(super) fn group(
        &self,
        server: &ServerProcess,
        path: &str,
        connections: u32,
    ) -> ClientGroup {
        let (address, path) = (server.address(), format!("/{path}"));
        let target = LoadTarget { address, is_tls: false, authority: address.to_string(), path };
        let mut group = ClientGroup::new("calibrate", target);
        let (think, ramp) = (Duration::ZERO..=Duration::ZERO, Duration::ZERO);
        group.load = LoadModel::Closed { connections, think, ramp };
        group
    }

    /// Runs the load, and reads the server's processor time at both ends of the measured time. Calls `each`
    /// ten times a second within it.
    pub(super) fn measure(
        &self,
        server: &ServerProcess,
        group: ClientGroup,
        length: RunLength,
        each: &mut dyn FnMut(),
    ) -> Result<Measured, CalibrateError> {
        self.check()?;
        let warmup = Duration::from_millis(length.warmup_ms);
        let plan = LoadPlan {
            duration: Duration::from_millis(length.ms),
            warmup,
            drain: Duration::from_secs(2),
            interval: Some(Duration::from_millis(100)),
            threads: self.client_cores.len().max(1),
            cores: self.client_cores.clone(),
            groups: vec![group],
            ..LoadPlan::default()
        };
        let mut marks: Vec<(Instant, Spent)> = Vec::new();
        let mut failed = None;
        let report = forebay_load::run(&plan, &self.stop, &mut |progress| {
            if progress.elapsed < warmup {
                return;
            }
            if marks.is_empty() || progress.total.is_some_and(|total| progress.elapsed >= total) {
                match server.spent() {
                    Ok(spent) => marks.push((Instant::now(), spent)),
                    Err(error) => failed = Some(error),
                }
            }
            each();
        });
        self.check()?;
        let report = report.map_err(CalibrateError::Load)?;
        if let Some(error) = failed {
            return Err(error);
        }
        let group = &report.groups[0];
        let what = group.url.clone();
        if group.failed > 0 {
            return Err(CalibrateError::Failed { count: group.failed, what });
        }
        // answers of the drain do not belong to the measured time
        let (Some((from, before)), Some((to, after))) = (marks.first(), marks.last()) else {
            return Err(CalibrateError::Unanswered { what, within: length.total() });
        };
        if group.rate <= 0.0 {
            return Err(CalibrateError::Unanswered { what, within: length.total() });
        }
        self.bar.done(length.total());
        let share = |ns: u64| ns as f64 / 1e9 / (*to - *from).as_secs_f64().max(1e-3);
        Ok(Measured {
            requests_per_s: group.rate,
            bytes_per_s: group.received_bytes_per_s,
            used: share(after.run_ns.saturating_sub(before.run_ns)),
            held_up: share(after.runnable_ns.saturating_sub(before.runnable_ns)),
        })
    }
}
