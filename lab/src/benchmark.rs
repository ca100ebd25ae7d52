//! What an experiment is: servers, a sweep, what is measured, and what is claimed.
//!
//! Servers and the sweep are axes. A point is one value of each axis of the sweep; at each point all servers
//! take their turns. What an experiment does at a point is its own, and all else is the [runner](crate::runner)'s.

use crate::Error;
use crate::claim::BenchmarkClaim;
use crate::client::ClientProgram;
use crate::columns::Column;
use crate::options::{Axis, Options, Setting};
use crate::reference::Reference;
use crate::rows::RawRow;
use crate::run::{Point, Run, Trial};

/// One experiment.
#[derive(Debug)]
pub struct Benchmark {
    /// As the command line and run folders have it.
    pub name: &'static str,
    /// The first line of its results.
    pub title: &'static str,
    /// What it is about, in a sentence.
    pub about: &'static str,
    /// Who takes turns.
    pub servers: Axis,
    /// The files in `lab/peers` that a server is made of, by its name; none for Forebay alone.
    pub peers: &'static [(&'static str, &'static [&'static str])],
    /// Programs that ask, where it is not Forebay's own generator.
    pub clients: &'static [ClientProgram],
    /// What is varied.
    pub sweep: &'static [Axis],
    /// The points of a sweep, where they are not all combinations of the values.
    pub points: Option<fn(&Options) -> Vec<Point>>,
    /// What else can be set.
    pub settings: &'static [Setting],
    /// How often, and how long, unless it is said.
    pub rounds: u32,
    /// As `--measured` takes it.
    pub measured: &'static str,
    /// Where it runs.
    pub network: BenchmarkNetwork,
    /// Whether servers have one core and the load has another; else all run on all of them.
    pub pinned: bool,
    /// What a row holds.
    pub columns: &'static [Column],
    /// The words by which rows are put into tables, and those by which into lines of one.
    pub tables: &'static [&'static str],
    /// See [`tables`](Benchmark::tables).
    pub lines: &'static [&'static str],
    /// What others are divided by, in the same round.
    pub ratios: &'static [Ratio],
    /// What is claimed.
    pub claims: &'static [BenchmarkClaim],
    /// Text below the tables that no table has.
    pub more: fn(&[RawRow]) -> String,
    /// Makes what is served, and what measures it.
    pub prepare: fn(&Run) -> Result<Box<dyn Measure>, Error>,
}

/// A column of tables: a figure divided by that of the reference in the same round.
#[derive(Debug)]
pub struct Ratio {
    /// Which figure.
    pub figure: &'static str,
    /// The reference: rows that differ in these words only.
    pub to: Reference,
}

/// Where an experiment runs.
#[derive(Clone, Copy, Debug)]
pub enum BenchmarkNetwork {
    /// On the machine's loopback.
    Shared,
    /// On the machine's loopback, or, if the options ask for it, on two networks with a cable between them:
    /// servers are in one, clients in the other.
    Pair(fn(&Options) -> bool),
    /// On one of its own, which needs root; sockets there hold so many bytes to be sent, if it is said.
    Own(Option<usize>),
}

/// What an experiment does at a point.
pub trait Measure {
    /// The rows of one server in one measurement; none where it cannot be measured so. Round, place, server
    /// and point are added to them.
    ///
    /// # Errors
    /// What ends the run. Bad measurements do not: their rows are flagged.
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error>;

    /// Rows of a measurement that ended with an error: they are kept.
    fn unfinished(&mut self) -> Vec<RawRow> {
        Vec::new()
    }

    /// Writes what a run leaves besides its rows.
    ///
    /// # Errors
    /// When that cannot be written.
    fn leave(&mut self, _run: &Run) -> Result<(), Error> {
        Ok(())
    }
}

/// No text.
pub fn nothing(_rows: &[RawRow]) -> String {
    String::new()
}

impl Benchmark {
    /// The peers that a server is made of.
    pub fn peers_of(&self, server: &str) -> &'static [&'static str] {
        let found = self.peers.iter().find(|(name, _)| *name == server);
        found.map_or(&[], |(_, peers)| peers)
    }

    /// What can be chosen: the sweep, and the servers.
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.sweep.iter().chain([&self.servers])
    }
}
