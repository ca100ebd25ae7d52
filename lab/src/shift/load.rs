//! The load: three kinds of requests, one after the other, each due at its time.
//!
//! The loop is open, because the mean time to an answer is measured. In a closed loop a server that
//! is slow gets fewer requests, and its slow answers weigh less for it.

use super::storage::{self, SlowStorage};
use crate::Error;
use crate::content::body;
use crate::load::target;
use forebay_load::arrivals::{Arrivals, RateStep};
use forebay_load::mix::{Mix, MixPath};
use forebay_load::{ClientGroup, LoadModel, LoadPlan};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Bytes of the hot file.
const HOT_BYTES: usize = 1024;
/// The cold files: more than the server keeps in memory, on storage that takes its time.
pub const STORAGE: storage::StorageShape = storage::StorageShape {
    files: 32 * 1024,
    file_bytes: 16 * 1024,
    read: Duration::from_millis(10),
};
/// The size of the file that slow receivers fetch, in bytes: as much as a thread sends before it
/// looks after others.
const SLOW_BYTES: usize = 2 << 20;
/// The rate of a slow receiver, bytes per second.
const SLOW_BYTES_PER_S: f64 = 10e6;
/// The receive buffer of a slow receiver's client: large enough that the client keeps up with all
/// of them.
const SLOW_BUFFER_BYTES: usize = 64 << 10;
/// The send buffer of the server's sockets: as much as when keta was written. With the 4 MiB of
/// today, which loopback grants at once, no thread would ever wait for a receiver.
pub const SEND_BUFFER_BYTES: usize = 64 << 10;
/// A number of connections that no kind ever needs.
const CONNECTIONS: u32 = 1000;
/// An answer that takes longer has failed, and counts with this time.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// The kind of requests in a phase of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1 KiB from memory: no thread waits.
    Hot,
    /// 16 KiB from storage that takes 10 ms: threads of process wait.
    Cold,
    /// 2 MiB at 10 MB/s: threads of send wait.
    Slow,
}

/// All, in the order they follow each other.
pub const KINDS: [Kind; 3] = [Kind::Hot, Kind::Cold, Kind::Slow];

impl Kind {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        ["hot", "cold", "slow"][self as usize]
    }
}

/// A phase of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShiftPhase {
    /// The kind of requests.
    pub kind: Kind,
    /// The number of the kind's turn, from 1; 0 where there are no requests of another kind.
    pub number: u32,
}

impl ShiftPhase {
    /// The name in tables.
    pub fn name(self) -> String {
        match self.number {
            0 => format!("{} alone", self.kind.name()),
            number => format!("{} {number}", self.kind.name()),
        }
    }
}

/// A load, and its phases.
#[derive(Clone, Copy, Debug)]
pub struct Shift {
    /// Requests per second of each kind while it is its turn, in the order of [`KINDS`].
    pub rates: [f64; 3],
    /// Length of a phase, seconds.
    pub seconds: f64,
    /// The number of turns of each kind.
    pub cycles: u32,
    /// The only kind, if the load has no phases of another.
    pub alone: Option<Kind>,
}

impl Shift {
    /// The phases in their order.
    pub fn turns(&self) -> Vec<ShiftPhase> {
        if let Some(kind) = self.alone {
            return vec![ShiftPhase { kind, number: 0 }];
        }
        let cycles = 1..=self.cycles;
        cycles.flat_map(|number| KINDS.map(|kind| ShiftPhase { kind, number })).collect()
    }

    /// Length of the whole load, seconds.
    pub fn length_s(&self) -> f64 {
        self.seconds * self.turns().len() as f64
    }

    /// The place in [`turns`](Shift::turns) of the phase at this time after the start; `None` when
    /// the load is over.
    pub fn turn_at(&self, at_s: f64) -> Option<usize> {
        let is_over = at_s < 0.0 || at_s >= self.length_s();
        (!is_over).then(|| (at_s / self.seconds) as usize)
    }

    /// Rates over the whole load, one per phase, for the requests of phase `place`.
    fn steps(&self, place: usize) -> Vec<RateStep> {
        let lasts = Some(Duration::from_secs_f64(self.seconds));
        let rate = |(other, turn): (usize, ShiftPhase)| match other == place {
            true => self.rates[turn.kind as usize],
            false => 0.0,
        };
        let turns = self.turns().into_iter().enumerate();
        turns.map(|turn| RateStep { rate: rate(turn), lasts }).collect()
    }

    /// The load on a server at `port`: a group for each phase, in the order of
    /// [`turns`](Shift::turns). The same requests at the same times whenever `round` is the same.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn plan(&self, port: u16, core: usize, round: u32) -> Result<LoadPlan, Error> {
        let base = target(port, "")?;
        let group = |(place, turn): (usize, ShiftPhase)| {
            let mut group = ClientGroup::new(&turn.name(), base.clone());
            let arrivals =
                Arrivals { steps: self.steps(place), poisson: true, ..Arrivals::default() };
            group.load = LoadModel::Open { arrivals, connections: CONNECTIONS };
            group.timeout = TIMEOUT;
            group.mix = match turn.kind {
                Kind::Hot => Mix::one("/hot.html"),
                Kind::Cold => Mix::new((0..STORAGE.files).map(cold).collect()),
                Kind::Slow => Mix::one("/slow.bin"),
            };
            if turn.kind == Kind::Slow {
                group.receive = Some(SLOW_BYTES_PER_S);
                group.receive_buffer_bytes = Some(SLOW_BUFFER_BYTES);
            }
            group
        };
        Ok(LoadPlan {
            duration: Duration::from_secs_f64(self.length_s()),
            // connections that wait at the end are waited for: a cut answer would count with less
            // time
            drain: TIMEOUT,
            cores: vec![core],
            seed: round.into(),
            groups: self.turns().into_iter().enumerate().map(group).collect(),
            ..LoadPlan::default()
        })
    }
}

fn cold(number: u64) -> MixPath {
    let path = format!("/cold/{number}.bin").into();
    MixPath { path, weight: 1.0, length_bytes: Some(STORAGE.file_bytes) }
}

/// Writes the files below `root`; the cold ones exist as long as the returned storage.
///
/// # Errors
/// When the disk does not take them, or a file system cannot be mounted.
pub fn write(root: &Path) -> Result<SlowStorage, Error> {
    for (name, bytes) in [("hot.html", HOT_BYTES), ("slow.bin", SLOW_BYTES)] {
        let path = root.join(name);
        fs::write(&path, body(bytes)).map_err(Error::io("cannot write", &path))?;
    }
    let folder = root.join("cold");
    fs::create_dir(&folder).map_err(Error::io("cannot make the folder", &folder))?;
    SlowStorage::mount(&folder, STORAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_turn_alone() {
        let shift = Shift { rates: [100.0, 10.0, 1.0], seconds: 2.0, cycles: 2, alone: None };
        assert_eq!(shift.length_s(), 12.0);
        let names: Vec<_> = shift.turns().into_iter().map(ShiftPhase::name).collect();
        assert_eq!(names, ["hot 1", "cold 1", "slow 1", "hot 2", "cold 2", "slow 2"]);
        let turns = [-0.1, 0.0, 1.9, 2.0, 5.9, 6.0, 11.9, 12.0].map(|at_s| shift.turn_at(at_s));
        let expected = [None, Some(0), Some(0), Some(1), Some(2), Some(3), Some(5), None];
        assert_eq!(turns, expected);
        let rates: Vec<f64> = shift.steps(4).iter().map(|step| step.rate).collect();
        assert_eq!(rates, [0.0, 0.0, 0.0, 0.0, 10.0, 0.0]);
        let plan = shift.plan(1, 0, 1).expect("a plan");
        assert!(plan.check().is_ok() && plan.groups.len() == 6);
        let alone = Shift { alone: Some(Kind::Cold), ..shift };
        assert_eq!((alone.length_s(), alone.turns()[0].name().as_str()), (2.0, "cold alone"));
        assert_eq!(alone.steps(0).iter().map(|step| step.rate).collect::<Vec<_>>(), [10.0]);
    }
}
