//! A run under way, and a server's turn in it.

use crate::content::Scratch;
use crate::network::NetworkPair;
use crate::options::Options;
use crate::{Error, running};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Everything that is the same for all measurements of a run.
#[derive(Debug)]
pub struct Run {
    /// The options that were given.
    pub options: Options,
    /// The folder that is served; empty at first.
    pub root: PathBuf,
    /// The folder for results.
    pub out: PathBuf,
    /// Turns true when a signal asks this program to end.
    pub stop: Arc<AtomicBool>,
    /// The network that clients may come from.
    pub pair: Option<NetworkPair>,
    /// The core of servers, if they have one of their own.
    pub core: Option<usize>,
    scratch: Scratch,
    port: Cell<u16>,
}

impl Run {
    /// Begins a run; `pinned` says whether servers have a core of their own.
    ///
    /// # Errors
    /// Without a folder for what it needs.
    pub fn new(options: Options, out: PathBuf, pinned: bool) -> Result<Run, Error> {
        let stop = stop_on_signals().map_err(Error::io("cannot watch for", "signals"))?;
        let scratch = Scratch::new()?;
        let root = scratch.path().join("site");
        fs::create_dir(&root).map_err(Error::io("cannot make the folder", &root))?;
        // each run begins at another port, so that two runs seldom meet
        let port = Cell::new(20_000 + (std::process::id() % 8000) as u16);
        let core = pinned.then_some(options.server_core);
        Ok(Run { options, root, out, stop, pair: None, core, scratch, port })
    }

    /// A folder for what lasts as long as the run.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// An empty folder, for one server.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn folder(&self) -> Result<PathBuf, Error> {
        let folder = self.scratch().join("server");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).map_err(Error::io("cannot make the folder", &folder))?;
        Ok(folder)
    }

    /// A port of its own for each server, so that none meets its predecessor's connections.
    ///
    /// # Errors
    /// When all are taken.
    pub fn port(&self) -> Result<u16, Error> {
        let found = running::free_port(self.port.get() + 1).or_else(|| running::free_port(20_000));
        let port =
            found.ok_or_else(|| Error::Client("no free port between 20000 and 32000".into()))?;
        self.port.set(port);
        Ok(port)
    }

    /// Checks whether this program was asked to end.
    ///
    /// # Errors
    /// If so.
    pub fn go_on(&self) -> Result<(), Error> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

/// One value of each axis of the sweep.
pub type Point = Vec<(&'static str, String)>;

/// One server's turn at a point.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'t> {
    /// The run.
    pub run: &'t Run,
    /// The round's number, from 1 on.
    pub round: u32,
    /// The server that is measured.
    pub server: &'t str,
    /// The point.
    pub point: &'t Point,
}

impl Trial<'_> {
    /// The point's value of an axis.
    pub fn at(&self, key: &str) -> &str {
        self.point.iter().find(|(known, _)| *known == key).map_or("", |(_, value)| value)
    }

    /// The same, where it is a number.
    pub fn number(&self, key: &str) -> f64 {
        self.at(key).parse().unwrap_or_default()
    }
}

/// Sets a flag when SIGINT, SIGTERM or SIGHUP arrives.
///
/// # Errors
/// When they cannot be watched for.
pub fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
