//! Comparisons of costs by interleaved pairs: two servers do the same in two ways, and are asked for the same
//! file in turn. They show from which size on `sendfile` is cheaper than memory, whether bodies are cheaper
//! in two pieces, and whether a server with the result is cheaper than one with the defaults.

use super::bench::{CalibrationBench, RunLength};
use super::costs::file_name;
use super::error::CalibrateError;
use super::server::ServerProcess;
use std::fmt::Write;
use std::time::Duration;

/// The number of connections: enough to keep a core busy.
const CONNECTIONS: u32 = 32;

/// Processor time per answer of one size, µs, pair by pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeasuredPairs {
    pub(super) bytes: u64,
    /// The times of the first server and of the second.
    pub(super) pairs: Vec<(f64, f64)>,
}

/// Servers that are compared, with their names.
pub(super) struct Compared<'s, const N: usize> {
    pub(super) names: [&'static str; N],
    pub(super) servers: [&'s ServerProcess; N],
}

/// Processor time per answer of one size, µs, of every server once in each round.
#[derive(Clone, Debug)]
pub(super) struct Rounds<const N: usize> {
    bytes: u64,
    rounds: Vec<[f64; N]>,
}

/// The pairs of two of the servers.
pub(super) fn pairs<const N: usize>(
    all: &[Rounds<N>],
    first: usize,
    second: usize,
) -> Vec<MeasuredPairs> {
    let of = |round: &[f64; N]| (round[first], round[second]);
    let pairs = |of_size: &Rounds<N>| MeasuredPairs {
        bytes: of_size.bytes,
        pairs: of_size.rounds.iter().map(of).collect(),
    };
    all.iter().map(pairs).collect()
}

impl MeasuredPairs {
    /// The median of the first divided by the second, each ratio made within a pair.
    pub(super) fn ratio(&self) -> f64 {
        median(self.pairs.iter().map(|(first, second)| first / second))
    }
}

/// The time that the measurements of all servers take.
pub(super) fn total(servers: u32, sizes: &[u64], rounds: u32, length: RunLength) -> Duration {
    length.total() * servers * rounds * sizes.len() as u32
}

/// Measures `rounds` of every size.
pub(super) fn measure<const N: usize>(
    bench: &CalibrationBench,
    compared: &Compared<'_, N>,
    sizes: &[u64],
    rounds: u32,
    length: RunLength,
) -> Result<Vec<Rounds<N>>, CalibrateError> {
    let names = compared.names.join(" or ");
    let mut all: Vec<_> = sizes.iter().map(|&bytes| Rounds { bytes, rounds: Vec::new() }).collect();
    for round in 0..rounds as usize {
        for of_size in &mut all {
            let bytes = of_size.bytes;
            bench.bar.say(&format!("{names}: {bytes} bytes, round {}", round + 1));
            let mut cpu_us = [0.0; N];
            // each round begins with another server, so that none always has the same place
            for at in (0..N).map(|place| (round + place) % N) {
                let server = compared.servers[at];
                let group = bench.group(server, &file_name(bytes), CONNECTIONS);
                cpu_us[at] = bench.measure(server, group, length, &mut || {})?.cpu_us();
            }
            of_size.rounds.push(cpu_us);
        }
    }
    Ok(all)
}

/// The first of the files of which the two servers send different bytes: a constant may change the cost of
/// an answer, and nothing else.
pub(super) fn first_difference(
    bench: &CalibrationBench,
    two: &Compared<'_, 2>,
    files: &[String],
) -> Result<Option<String>, CalibrateError> {
    for file in files {
        bench.check()?;
        let [first, second] = two.servers;
        if first.answer(file)? != second.answer(file)? {
            return Ok(Some(file.clone()));
        }
    }
    Ok(None)
}

/// The cost of the first server compared with the second, over all sizes: the geometric mean.
pub(super) fn mean(all: &[MeasuredPairs]) -> f64 {
    let sum: f64 = all.iter().map(|pairs| pairs.ratio().ln()).sum();
    (sum / all.len().max(1) as f64).exp()
}

/// The cost of the first server compared with the second, over all sizes, in each round: logarithms.
pub(super) fn by_round(all: &[MeasuredPairs]) -> Vec<f64> {
    let rounds = all.iter().map(|pairs| pairs.pairs.len()).min().unwrap_or(0);
    let log = |pairs: &MeasuredPairs, round: usize| {
        let (first, second) = pairs.pairs[round];
        (first / second).ln()
    };
    let of_round = |round| all.iter().map(|pairs| log(pairs, round)).sum::<f64>();
    (0..rounds).map(|round| of_round(round) / all.len() as f64).collect()
}

/// The mean of one figure per round, with the margin of its interval of 95 %.
pub(super) fn mean_and_margin(figures: &[f64]) -> (f64, f64) {
    let rounds = figures.len();
    let mean = figures.iter().sum::<f64>() / rounds.max(1) as f64;
    let Some(t) = rounds.checked_sub(2).map(|at| STUDENT[at.min(STUDENT.len() - 1)]) else {
        return (mean, f64::INFINITY);
    };
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    (mean, t * (squares / (rounds * (rounds - 1)) as f64).sqrt())
}

/// The mean with both ends of its interval of 95 %, from the rounds, each of which has a pair of every size.
pub(super) fn interval(all: &[MeasuredPairs]) -> [f64; 3] {
    let (mean, margin) = mean_and_margin(&by_round(all));
    [mean, mean - margin, mean + margin].map(f64::exp)
}

/// Student's t for 95 %, by rounds from two on.
const STUDENT: [f64; 9] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];

/// The least gain for which the line is moved, summed as logarithms: less is noise.
const LEAST_GAIN: f64 = 0.05;

/// The largest size that is better sent from memory: where a line drawn between sizes has the least
/// cost, summed as logarithms so that large sizes do not decide alone. One size that noise has turned
/// around does not move it. The line stays at `preset` unless another one gains [`LEAST_GAIN`], and is
/// never below the smallest size, since smaller ones were not measured.
pub(super) fn file_bytes(all: &[MeasuredPairs], preset: u64) -> u64 {
    let smallest = all.first().map_or(preset, |pairs| pairs.bytes);
    let (mut sum, mut best, mut of_preset) = (0.0, (0.0, smallest), 0.0);
    for pairs in all {
        sum += pairs.ratio().ln();
        if sum < best.0 {
            best = (sum, pairs.bytes);
        }
        if pairs.bytes <= preset {
            of_preset = sum;
        }
    }
    if of_preset - best.0 >= LEAST_GAIN { best.1 } else { preset }
}

/// A table of the pairs.
pub(super) fn table(all: &[MeasuredPairs], names: [&str; 2]) -> String {
    let [one, other] = names.map(|name| format!("{name} µs"));
    let mut text = format!("{:>9} {one:>13} {other:>13} {:>6}\n", "bytes", "ratio");
    for pairs in all {
        let first = median(pairs.pairs.iter().map(|pair| pair.0));
        let second = median(pairs.pairs.iter().map(|pair| pair.1));
        // writing to a string does not fail
        let _ = writeln!(
            text,
            "{:>9} {first:>13.1} {second:>13.1} {:>6.2}",
            pairs.bytes,
            pairs.ratio()
        );
    }
    text
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Vec<MeasuredPairs> {
        let pairs = |(at, ratio): (usize, &f64)| MeasuredPairs {
            bytes: 1 << (10 + at),
            pairs: vec![(10.0 * ratio, 10.0), (20.0 * ratio, 20.0)],
        };
        ratios.iter().enumerate().map(pairs).collect()
    }

    #[test]
    fn the_line_is_where_sendfile_begins_to_win() {
        assert_eq!(file_bytes(&of(&[0.6, 0.8, 1.3, 1.6]), 8192), 2048);
        assert_eq!(file_bytes(&of(&[0.6, 0.7, 0.8, 0.9]), 1024), 8192);
        // one size that noise has turned around
        assert_eq!(file_bytes(&of(&[0.6, 1.05, 0.7, 1.6]), 8192), 4096);
    }

    #[test]
    fn the_line_stays_where_it_is_if_nothing_is_gained() {
        assert_eq!(file_bytes(&of(&[0.6, 0.8, 0.99, 0.98]), 2048), 2048);
        assert_eq!(file_bytes(&of(&[1.01, 1.01]), 2048), 2048);
        // sizes below the smallest were not measured
        assert_eq!(file_bytes(&of(&[1.2, 1.3]), 2048), 1024);
        assert_eq!(file_bytes(&[], 2048), 2048);
    }

    #[test]
    fn the_mean_is_over_all_sizes() {
        assert!((mean(&of(&[0.5, 2.0])) - 1.0).abs() < 1e-12);
        assert!((mean(&of(&[0.9])) - 0.9).abs() < 1e-12);
    }

    #[test]
    fn the_interval_is_that_of_the_rounds() {
        let [mean, low, high] = interval(&of(&[0.5, 2.0]));
        assert!([mean, low, high].iter().all(|figure| (figure - 1.0).abs() < 1e-9));
        let pairs = vec![(1.0, 1.0), (1.1, 1.0), (1.0, 1.1)];
        let [mean, low, high] = interval(&[MeasuredPairs { bytes: 1, pairs }]);
        assert!((mean - 1.0).abs() < 1e-9 && (low * high - 1.0).abs() < 1e-9);
        // 4.30 standard errors of three logarithms, 0 and twice 0.0953
        assert!((high.ln() - 4.30 * 0.0953 / 3f64.sqrt()).abs() < 1e-4, "{high}");
        let one = MeasuredPairs { bytes: 1, pairs: vec![(1.0, 1.0)] };
        assert_eq!(interval(&[one])[2], f64::INFINITY);
    }

    #[test]
    fn ratios_are_made_within_pairs() {
        let pairs = MeasuredPairs { bytes: 1, pairs: vec![(1.0, 2.0), (30.0, 40.0), (5.0, 4.0)] };
        assert!((pairs.ratio() - 0.75).abs() < 1e-12);
        assert!(table(&[pairs], ["one", "other"]).contains("  0.75"));
    }
}
