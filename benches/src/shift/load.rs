//! The load: three kinds of requests, one after the other, each due at its time.
//!
//! An open loop, because what is measured is the mean time to an answer. In a closed loop a server
//! that is slow is asked less, and its slow answers weigh less for it.

use crate::content::body;
use crate::{Error, engines::cold};
use forebay_load::arrivals::{Arrivals, Step};
use forebay_load::mix::Mix;
use forebay_load::{Group, Load, Plan, Target};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Bytes of the hot file.
const HOT_BYTES: usize = 1024;
/// Bytes of what slow receivers fetch: more than a socket's send buffer takes at once, which is
/// 2.6 MB and more over loopback, or no thread would ever wait for them.
const SLOW_BYTES: usize = 8 << 20;
/// What a slow receiver takes, bytes per second.
const SLOW_BYTES_PER_S: f64 = 10e6;
/// Its receive buffer: large enough that the client keeps up with all of them.
const SLOW_BUFFER_BYTES: usize = 64 << 10;
/// More connections than a kind ever needs.
const CONNECTIONS: u32 = 1000;
/// An answer that takes longer has failed, and counts with this time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Length of a point of the series; phases are whole seconds.
const INTERVAL: Duration = Duration::from_millis(100);

/// What is asked for in a phase of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1 KiB from memory: no thread waits.
    Hot,
    /// 64 KiB from the disk: threads of process wait.
    Cold,
    /// 8 MiB at 10 MB/s: threads of send wait.
    Slow,
}

/// All, in the order they follow each other.
pub const KINDS: [Kind; 3] = [Kind::Hot, Kind::Cold, Kind::Slow];

impl Kind {
    /// As tables show it.
    pub fn name(self) -> &'static str {
        ["hot", "cold", "slow"][self as usize]
    }
}

/// A load, and its phases.
#[derive(Clone, Copy, Debug)]
pub struct Shift {
    /// Requests per second of each kind while it is its turn, in the order of [`KINDS`].
    pub rates: [f64; 3],
    /// Length of a phase, seconds.
    pub seconds: u32,
    /// How often each kind has its turn.
    pub cycles: u32,
}

impl Shift {
    /// Length of the whole load, seconds.
    pub fn length_s(&self) -> u32 {
        self.seconds * self.cycles * KINDS.len() as u32
    }

    /// Whose turn it is so long after the start; `None` when the load is over.
    pub fn kind_at(&self, at_s: f64) -> Option<Kind> {
        let phase = (at_s / f64::from(self.seconds)) as u32;
        let is_over = at_s < 0.0 || at_s >= f64::from(self.length_s());
        (!is_over).then(|| KINDS[phase as usize % KINDS.len()])
    }

    /// Rates of `kind` over the whole load, one per phase.
    fn steps(&self, kind: Kind) -> Vec<Step> {
        let lasts = Some(Duration::from_secs(self.seconds.into()));
        let turns = (0..self.cycles).flat_map(|_| KINDS);
        let rate = self.rates[kind as usize];
        turns.map(|turn| Step { rate: if turn == kind { rate } else { 0.0 }, lasts }).collect()
    }

    /// The load on a server at `port`: a group for each kind, in the order of [`KINDS`]. The same
    /// requests at the same times whenever `round` is the same.
    ///
    /// # Errors
    /// When the list of cold files cannot be read.
    pub fn plan(&self, port: u16, core: usize, round: u32) -> Result<Plan, Error> {
        let wrong = |error: &dyn std::fmt::Display| Error::Client(error.to_string());
        let base = Target::parse(&format!("http://127.0.0.1:{port}/"));
        let base = base.map_err(|error| wrong(&error))?;
        let group = |kind: Kind| -> Result<Group, Error> {
            let mut group = Group::new(kind.name(), base.clone());
            let arrivals =
                Arrivals { steps: self.steps(kind), poisson: true, ..Arrivals::default() };
            group.load = Load::Open { arrivals, connections: CONNECTIONS };
            group.timeout = TIMEOUT;
            group.mix = match kind {
                Kind::Hot => Mix::one("/hot.html"),
                Kind::Cold => Mix::read(&cold::urls()).map_err(|error| wrong(&error))?,
                Kind::Slow => Mix::one("/slow.bin"),
            };
            if kind == Kind::Slow {
                group.receive = Some(SLOW_BYTES_PER_S);
                group.receive_buffer_bytes = Some(SLOW_BUFFER_BYTES);
            }
            Ok(group)
        };
        Ok(Plan {
            duration: Duration::from_secs(self.length_s().into()),
            // whoever waits at the end is waited for: a cut answer would count with less time
            drain: TIMEOUT,
            interval: Some(INTERVAL),
            cores: vec![core],
            seed: round.into(),
            groups: KINDS.into_iter().map(group).collect::<Result<_, _>>()?,
            ..Plan::default()
        })
    }
}

/// Writes the files below `root`.
///
/// # Errors
/// When the disk does not take them.
pub fn write(root: &Path) -> Result<(), Error> {
    for (name, bytes) in [("hot.html", HOT_BYTES), ("slow.bin", SLOW_BYTES)] {
        let path = root.join(name);
        fs::write(&path, body(bytes)).map_err(Error::io("cannot write", &path))?;
    }
    cold::write(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_turn_alone() {
        let shift = Shift { rates: [100.0, 10.0, 1.0], seconds: 2, cycles: 2 };
        assert_eq!(shift.length_s(), 12);
        let turns = [0.0, 1.9, 2.0, 5.9, 6.0, 11.9].map(|at_s| shift.kind_at(at_s));
        let [hot, cold, slow] = KINDS.map(Some);
        assert_eq!(turns, [hot, hot, cold, slow, hot, slow]);
        assert_eq!([-0.1, 12.0].map(|at_s| shift.kind_at(at_s)), [None, None]);
        let rates: Vec<f64> = shift.steps(Kind::Cold).iter().map(|step| step.rate).collect();
        assert_eq!(rates, [0.0, 10.0, 0.0, 0.0, 10.0, 0.0]);
        for kind in KINDS {
            let arrivals = Arrivals { steps: shift.steps(kind), ..Arrivals::default() };
            let mean = arrivals.mean_rate(Duration::from_secs(12));
            assert!((mean - shift.rates[kind as usize] / 3.0).abs() < 1e-9);
        }
    }
}
