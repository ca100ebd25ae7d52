//! All experiments.

use crate::benchmark::Benchmark;

/// All experiments, in the order of BENCHMARKING.md.
pub const ALL: &[&Benchmark] = &[
    &crate::static_files::STATIC,
    &crate::engines::ENGINES,
    &crate::shift::SHIFT,
    &crate::keepalive::KEEPALIVE,
    &crate::profile::PROFILE,
    &crate::reload::RELOAD,
    &crate::calibration::CALIBRATION,
    &crate::receivers::RECEIVERS,
    &crate::crashes::CRASHES,
    &crate::stages::STAGES,
    &crate::overload::OVERLOAD,
];
