//! Experiments as values: servers, a sweep, figures, and claims.
//!
//! Servers and the sweep are axes. A point is one value of each axis of the sweep; at each point
//! all servers take their turns. Only the measurement at a point is the experiment's own; all else
//! is the [runner](crate::runner)'s.

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
    /// The experiment's name on the command line and in run folders.
    pub name: &'static str,
    /// The first line of its results.
    pub title: &'static str,
    /// The question, in a sentence.
    pub about: &'static str,
    /// The servers that take turns.
    pub servers: Axis,
    /// The files in `lab/peers` that a server is made of, by its name; none for Forebay alone.
    pub peers: &'static [(&'static str, &'static [&'static str])],
    /// The load generators, where they are not Forebay's own.
    pub clients: &'static [ClientProgram],
    /// The axes that are varied.
    pub sweep: &'static [Axis],
    /// The points of a sweep, where they are not all combinations of the values.
    pub points: Option<fn(&Options) -> Vec<Point>>,
    /// Further settings.
    pub settings: &'static [Setting],
    /// The default number of rounds.
    pub rounds: u32,
    /// The default length of a measurement, as `--measured` takes it.
    pub measured: &'static str,
    /// The network it runs on.
    pub network: BenchmarkNetwork,
    /// Whether servers have one core and the load has another; else all run on all of them.
    pub pinned: bool,
    /// The columns of a row.
    pub columns: &'static [Column],
    /// The words by which rows are put into tables, and those by which into lines of one.
    pub tables: &'static [&'static str],
    /// See [`tables`](Benchmark::tables).
    pub lines: &'static [&'static str],
    /// The ratios in tables: a figure divided by that of other rows, in the same round.
    pub ratios: &'static [Ratio],
    /// The claims.
    pub claims: &'static [BenchmarkClaim],
    /// Text below the tables that no table has.
    pub more: fn(&[RawRow]) -> String,
    /// Makes what is served, and what measures it.
    pub prepare: fn(&Run) -> Result<Box<dyn Measure>, Error>,
}

/// A column of tables: a figure divided by that of the reference in the same round.
#[derive(Debug)]
pub struct Ratio {
    /// The figure.
    pub figure: &'static str,
    /// The reference: rows that differ in these words only.
    pub to: Reference,
}

/// The network that an experiment runs on.
#[derive(Clone, Copy, Debug)]
pub enum BenchmarkNetwork {
    /// The machine's loopback.
    Shared,
    /// The machine's loopback or, if the options ask for it, two networks with a cable between
    /// them: servers are in one, clients in the other.
    Pair(fn(&Options) -> bool),
    /// A network of its own, which needs root. If a number is given, sockets there have send
    /// buffers of that many bytes.
    Own(Option<usize>),
}

/// The measurement at a point.
pub trait Measure {
    /// Measures one server. Returns its rows, none where it cannot be measured so; round, place,
    /// server and point are added to them.
    ///
    /// # Errors
    /// The error that ends the run. Bad measurements do not: their rows are flagged.
    fn measure(&mut self, trial: &Trial<'_>) -> Result<Vec<RawRow>, Error>;

    /// The rows of a measurement that ended with an error, which are kept.
    fn unfinished(&mut self) -> Vec<RawRow> {
        Vec::new()
    }

    /// Writes the files of a run besides its rows.
    ///
    /// # Errors
    /// When that cannot be written.
    fn leave(&mut self, _run: &Run) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns no text.
pub fn nothing(_rows: &[RawRow]) -> String {
    String::new()
}

impl Benchmark {
    /// The peers that a server is made of.
    pub fn peers_of(&self, server: &str) -> &'static [&'static str] {
        let found = self.peers.iter().find(|(name, _)| *name == server);
        found.map_or(&[], |(_, peers)| peers)
    }

    /// The axes that can be chosen: the sweep, and the servers.
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.sweep.iter().chain([&self.servers])
    }
}
