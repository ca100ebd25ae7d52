//! The settings of the thread allocation, from an operator or a calibration.

use super::{PHASES, Phase};
use crate::utilisation::{Costs, Thresholds};
use std::fmt;

/// The measurement by which threads are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// The length of each phase's list and the change of the request rate (keta §4.2).
    Queue,
    /// The time that tasks wait in each phase's list: what keta §6 leaves as future work.
    Delay,
}

/// The constants of the controller. Arrays are indexed by [`Phase::index`].
#[derive(Clone, Debug, PartialEq)]
pub struct AllocationSettings {
    /// The law that decides. Default: [`Law::Queue`].
    pub law: Law,
    /// The time between two samples and steps, in milliseconds. At least 1; default 20.
    pub period_ms: u32,
    /// Threads of each phase at the start and at low load. At least 1 each; default 1.
    pub initial: [u32; PHASES],
    /// keta's `M`: the number of threads of all phases together. At least the sum of `initial`; default 16
    /// per core, at least 64 and at most 1,024.
    pub most: u32,
    /// How many threads move from one phase to another in one step when all `M` are in use. At
    /// least 1; default 2.
    pub transfer: u32,
    /// keta's `a_k`: threads per waiting task and step. Not negative; default 0.02, 0.1, 0.5, 1, after keta's
    /// funnel: the later the phase, the longer its tasks take. The values may be large, because growth ends
    /// in any case at a thread for each task and at what the cores can use.
    pub per_waiting: [f64; PHASES],
    /// keta's `b_k`: threads per change of the request rate by 1/s. Not negative; default 0.00001,
    /// 0.00002, 0.00005, 0.0001.
    pub per_rate: [f64; PHASES],
    /// For the delay law: the time in microseconds that a task may wait in a phase's list on average. At
    /// least 1; default 1,000.
    pub delay_us: u32,
    /// The number of cores that the threads may use. At least 1.
    pub cores: u32,
    /// `c1` and `c2`. Default: [`Costs::uncalibrated`].
    pub costs: Costs,
    /// The utilisation from which on the server counts as busy, and the one below which it no longer does.
    pub thresholds: Thresholds,
}

impl AllocationSettings {
    /// The defaults for a machine with `cores` cores.
    pub fn for_cores(cores: u32) -> AllocationSettings {
        let cores = cores.max(1);
        AllocationSettings {
            law: Law::Queue,
            period_ms: 20,
            initial: [1; PHASES],
            most: cores.saturating_mul(16).clamp(64, 1024),
            transfer: 2,
            per_waiting: [0.02, 0.1, 0.5, 1.0],
            per_rate: [0.000_01, 0.000_02, 0.000_05, 0.000_1],
            delay_us: 1_000,
            cores,
            costs: Costs::uncalibrated(cores),
            thresholds: Thresholds::DEFAULT,
        }
    }

    /// Checks whether the settings make sense together.
    ///
    /// # Errors
    /// The first setting that contradicts another, or is out of its range.
    pub fn check(&self) -> Result<(), AllocationSettingsError> {
        for phase in Phase::ALL {
            if self.initial[phase.index()] == 0 {
                return Err(AllocationSettingsError::NoThread { phase });
            }
            let factors = [self.per_waiting[phase.index()], self.per_rate[phase.index()]];
            if factors.iter().any(|factor| !is_size(*factor)) {
                return Err(AllocationSettingsError::Factor { phase });
            }
        }
        let initial = self.initial.iter().map(|count| u64::from(*count)).sum();
        if initial > u64::from(self.most) {
            return Err(AllocationSettingsError::Most { initial, most: self.most });
        }
        let counts = [self.period_ms, self.transfer, self.delay_us, self.cores];
        let names = ["period_ms", "transfer", "delay_us", "cores"];
        if let Some(place) = counts.iter().position(|count| *count == 0) {
            return Err(AllocationSettingsError::Zero { name: names[place] });
        }
        if !is_size(self.costs.request_s) || !is_size(self.costs.byte_s) {
            return Err(AllocationSettingsError::Costs);
        }
        let Thresholds { busy, calm } = self.thresholds;
        if !is_size(calm) || !is_size(busy) || calm >= busy {
            return Err(AllocationSettingsError::Thresholds { busy, calm });
        }
        Ok(())
    }
}

fn is_size(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

/// The setting that contradicts another, or is out of its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AllocationSettingsError {
    /// A phase starts without a thread.
    NoThread {
        /// The phase.
        phase: Phase,
    },
    /// `a_k` or `b_k` is negative or NaN.
    Factor {
        /// The phase.
        phase: Phase,
    },
    /// The initial counts add up to more than `M`.
    Most {
        /// Their sum.
        initial: u64,
        /// `M`.
        most: u32,
    },
    /// A count that must be at least 1 is 0.
    Zero {
        /// The name of the field.
        name: &'static str,
    },
    /// `c1` or `c2` is negative or NaN.
    Costs,
    /// `calm` is not below `busy`, or one of them is negative or NaN.
    Thresholds {
        /// The upper threshold.
        busy: f64,
        /// The lower one.
        calm: f64,
    },
}

impl fmt::Display for AllocationSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocationSettingsError::NoThread { phase } => {
                write!(f, "phase {} needs at least one initial thread", phase.name())
            }
            AllocationSettingsError::Factor { phase } => {
                write!(f, "the factors of phase {} must be numbers of at least 0", phase.name())
            }
            AllocationSettingsError::Most { initial, most } => {
                write!(f, "the initial counts add up to {initial}, more than the {most} allowed")
            }
            AllocationSettingsError::Zero { name } => write!(f, "{name} must be at least 1"),
            AllocationSettingsError::Costs => {
                f.write_str("the costs of a request and a byte must be numbers of at least 0")
            }
            AllocationSettingsError::Thresholds { busy, calm } => {
                write!(f, "the calm threshold {calm} must be at least 0 and below busy, {busy}")
            }
        }
    }
}

impl std::error::Error for AllocationSettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut AllocationSettings)) -> Result<(), AllocationSettingsError> {
        let mut settings = AllocationSettings::for_cores(2);
        change(&mut settings);
        settings.check()
    }

    #[test]
    fn defaults_make_sense_on_every_machine() {
        for cores in [0, 1, 2, 64, 10_000, u32::MAX] {
            assert_eq!(AllocationSettings::for_cores(cores).check(), Ok(()), "{cores} cores");
        }
    }

    #[test]
    fn contradictions_are_named() {
        let phase = Phase::Receive;
        assert_eq!(with(|s| s.initial[1] = 0), Err(AllocationSettingsError::NoThread { phase }));
        assert_eq!(with(|s| s.per_rate[1] = -1.0), Err(AllocationSettingsError::Factor { phase }));
        assert_eq!(
            with(|s| s.per_waiting[1] = f64::NAN),
            Err(AllocationSettingsError::Factor { phase })
        );
        let error =
            AllocationSettingsError::Most { initial: 2 * u64::from(u32::MAX) + 2, most: 64 };
        assert_eq!(with(|s| s.initial = [u32::MAX, u32::MAX, 1, 1]), Err(error));
        assert_eq!(
            with(|s| s.transfer = 0),
            Err(AllocationSettingsError::Zero { name: "transfer" })
        );
        assert_eq!(with(|s| s.costs.byte_s = f64::INFINITY), Err(AllocationSettingsError::Costs));
        let error = AllocationSettingsError::Thresholds { busy: 0.5, calm: 0.5 };
        assert_eq!(with(|s| s.thresholds.calm = 0.5), Err(error));
    }
}
