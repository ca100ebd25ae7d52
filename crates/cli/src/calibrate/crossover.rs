//! The size from which on `sendfile` is cheaper than memory, by interleaved pairs: two servers, one that
//! keeps every file in its data cache and one that keeps none, asked for the same file in turn.

use super::bench::{Bench, Length};
use super::costs::file_name;
use super::error::CalibrateError;
use super::server::Server;
use std::fmt::Write;
use std::time::Duration;

/// Connections that ask: enough to keep a core busy.
const CONNECTIONS: u32 = 32;

/// Processor time per answer of one size, µs, pair by pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pairs {
    pub(super) bytes: u64,
    /// From memory, and by sendfile.
    pub(super) pairs: Vec<(f64, f64)>,
}

impl Pairs {
    /// The median of memory divided by sendfile, each ratio made within a pair.
    pub(super) fn ratio(&self) -> f64 {
        median(self.pairs.iter().map(|(memory, file)| memory / file))
    }
}

/// How long the measuring takes.
pub(super) fn total(sizes: &[u64], rounds: u32, length: Length) -> Duration {
    length.total() * 2 * rounds * sizes.len() as u32
}

/// Measures `rounds` pairs of every size.
pub(super) fn measure(
    bench: &Bench,
    memory: &Server,
    file: &Server,
    sizes: &[u64],
    rounds: u32,
    length: Length,
) -> Result<Vec<Pairs>, CalibrateError> {
    let mut all: Vec<_> = sizes.iter().map(|&bytes| Pairs { bytes, pairs: Vec::new() }).collect();
    for round in 1..=rounds {
        for pairs in &mut all {
            let bytes = pairs.bytes;
            bench.bar.say(&format!("memory or sendfile: {bytes} bytes, pair {round}"));
            let cpu_us = |server| {
                let group = bench.group(server, &file_name(bytes), CONNECTIONS);
                Ok(bench.measure(server, group, length, &mut || {})?.cpu_us())
            };
            // who came first comes second in the next pair
            let pair = if round % 2 == 1 {
                let memory = cpu_us(memory)?;
                (memory, cpu_us(file)?)
            } else {
                let file = cpu_us(file)?;
                (cpu_us(memory)?, file)
            };
            pairs.pairs.push(pair);
        }
    }
    Ok(all)
}

/// The largest size that is better sent from memory: where a line drawn between sizes has the least
/// cost, summed as logarithms so that large sizes do not decide alone. One size that noise has turned
/// around does not move it. If memory never pays, half of the smallest size.
pub(super) fn file_bytes(all: &[Pairs]) -> u64 {
    let smallest = all.first().map_or(0, |pairs| pairs.bytes / 2);
    let (mut sum, mut best) = (0.0, (0.0, smallest));
    for pairs in all {
        sum += pairs.ratio().ln();
        if sum < best.0 {
            best = (sum, pairs.bytes);
        }
    }
    best.1
}

/// The pairs for people.
pub(super) fn table(all: &[Pairs]) -> String {
    let mut text =
        format!("{:>9} {:>10} {:>11} {:>6}\n", "bytes", "memory µs", "sendfile µs", "ratio");
    for pairs in all {
        let memory = median(pairs.pairs.iter().map(|pair| pair.0));
        let file = median(pairs.pairs.iter().map(|pair| pair.1));
        // writing to a string does not fail
        let _ =
            writeln!(text, "{:>9} {memory:>10.1} {file:>11.1} {:>6.2}", pairs.bytes, pairs.ratio());
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

    fn of(ratios: &[f64]) -> Vec<Pairs> {
        let pairs = |(at, ratio): (usize, &f64)| Pairs {
            bytes: 1 << (10 + at),
            pairs: vec![(10.0 * ratio, 10.0), (20.0 * ratio, 20.0)],
        };
        ratios.iter().enumerate().map(pairs).collect()
    }

    #[test]
    fn the_line_is_where_sendfile_begins_to_win() {
        assert_eq!(file_bytes(&of(&[0.6, 0.8, 1.3, 1.6])), 2048);
        assert_eq!(file_bytes(&of(&[0.6, 0.7, 0.8, 0.9])), 8192);
        assert_eq!(file_bytes(&of(&[1.2, 1.3])), 512);
        // one size that noise has turned around
        assert_eq!(file_bytes(&of(&[0.6, 1.05, 0.7, 1.6])), 4096);
    }

    #[test]
    fn ratios_are_made_within_pairs() {
        let pairs = Pairs { bytes: 1, pairs: vec![(1.0, 2.0), (30.0, 40.0), (5.0, 4.0)] };
        assert!((pairs.ratio() - 0.75).abs() < 1e-12);
        assert!(table(&[pairs]).contains("  0.75"));
    }
}
