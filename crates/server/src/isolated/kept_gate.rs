//! The gate of receive. The supervisor keeps it, so that a crash of receive removes nothing of it,
//! and the next receive goes on with the charges made so far.
//!
//! In: the state of receive in the kernel, sent over a [`mod@forebay_sys::line`] each time that it
//! has changed: a text and descriptors, as in an upgrade. Out: the same state, for the receive that
//! starts next, or for a successor. While no receive runs, the kernel still judges by the rules of
//! the last one.
//!
//! Only one generation judges at a time. The receive of another makes its gate ready, and judges
//! when the supervisor commands it ([`JUDGE`]).

use crate::upgrade::handed;
use forebay_handler::policy::enforced::{HandedKernel, KernelGate};
use forebay_sys::{descriptors, line};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The command by which the supervisor has receive judge from now on.
pub const JUDGE: &str = "gate judge";

/// The longest time for the supervisor to take the state that receive sends.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest number of descriptors accepted at once, so that a compromised receive cannot exhaust
/// those of the supervisor.
const MOST_DESCRIPTORS: usize = 1024;

/// The first message to a receive that starts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct GateForReceive {
    /// The gate of the receive before; its descriptors follow.
    gate: Option<HandedKernel>,
    /// Whether this receive judges as soon as it serves.
    judges: bool,
}

/// The state of receive in the kernel; `None` where this machine cannot have a gate. Descriptors
/// follow: those of the gate, and one for its programs.
#[derive(Debug, Serialize, Deserialize)]
struct GateOfReceive {
    gate: Option<HandedKernel>,
}

/// A gate that another process has handed over.
pub type GateBefore = (HandedKernel, Vec<OwnedFd>);

/// The end of the line in receive.
#[derive(Debug)]
pub struct GateLine {
    stream: UnixStream,
    judges: bool,
    /// The state that was last sent to the supervisor.
    kept: Option<Option<HandedKernel>>,
}

impl GateLine {
    /// Opens the line to the supervisor with which this process was started, if there is one, and
    /// takes the gate of the receive before.
    ///
    /// # Errors
    /// When the supervisor has gone.
    pub fn open() -> io::Result<Option<(GateLine, Option<GateBefore>)>> {
        let Some(stream) = line::inherited(line::GATE)? else { return Ok(None) };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let GateForReceive { gate, judges } = handed::receive(&stream)?;
        let before = gate.map(|gate| {
            let descriptors = descriptors::take(&stream, gate.descriptors())?;
            Ok::<_, io::Error>((gate, descriptors))
        });
        Ok(Some((GateLine { stream, judges, kept: None }, before.transpose()?)))
    }

    /// Whether this process judges, and not a receive of another generation.
    pub fn judges(&self) -> bool {
        self.judges
    }

    /// Makes this process judge from now on; its state is sent to the supervisor anew.
    pub fn judge(&mut self) {
        (self.judges, self.kept) = (true, None);
    }

    /// Sends the state of this process in the kernel to the supervisor, if it has changed.
    ///
    /// # Errors
    /// When the supervisor has gone, or lacks descriptors.
    pub fn keep(&mut self, gate: Option<&KernelGate>) -> io::Result<()> {
        let (text, descriptors) = gate.map(KernelGate::hand).transpose()?.unzip();
        if self.kept.as_ref() == Some(&text) {
            return Ok(());
        }
        let mut descriptors = descriptors.unwrap_or_default();
        descriptors.extend(gate.map(KernelGate::programs).transpose()?);
        handed::send(&self.stream, &GateOfReceive { gate: text.clone() })?;
        handed::give(&self.stream, &descriptors)?;
        // the supervisor confirms with one byte that it has taken the state
        (&self.stream).read_exact(&mut [0])?;
        self.kept = Some(text);
        Ok(())
    }
}

/// The end of the lines in the supervisor.
#[derive(Debug, Default)]
pub(super) struct GateKeeper(Mutex<KeptGate>);

#[derive(Debug, Default)]
struct KeptGate {
    gate: Option<GateBefore>,
    /// The map of the gate's programs; `None` if the gate is that of the predecessor.
    programs: Option<OwnedFd>,
    /// The generation that judges.
    judged_by: u64,
    /// Whether no state is kept any more.
    is_over: bool,
}

impl GateKeeper {
    /// Begins with the gate that the predecessor has handed over.
    pub(super) fn new(gate: Option<GateBefore>) -> GateKeeper {
        GateKeeper(Mutex::new(KeptGate { gate, ..KeptGate::default() }))
    }

    /// Makes this generation the one that judges.
    pub(super) fn judged_by(&self, generation: u64) {
        self.lock().judged_by = generation;
    }

    /// Whether this generation judges.
    pub(super) fn is_judged_by(&self, generation: u64) -> bool {
        self.lock().judged_by == generation
    }

    /// Makes a line for the receive of this generation, which is sent the kept state. What it sends
    /// is kept until it ends.
    ///
    /// # Errors
    /// Lack of threads or descriptors.
    pub(super) fn line(self: &Arc<Self>, generation: u64) -> io::Result<OwnedFd> {
        let (theirs, own) = line::pair()?;
        let kept = self.lock();
        let (gate, descriptors) = kept.duplicate()?.unzip();
        let first = GateForReceive { gate, judges: kept.judged_by == generation };
        drop(kept);
        let keeper = Arc::clone(self);
        let keep = move || {
            let descriptors = descriptors.unwrap_or_default();
            let given = handed::send(&own, &first).and_then(|()| handed::give(&own, &descriptors));
            drop(descriptors);
            if given.is_ok() {
                // until receive ends
                while keeper.hear(&own, generation).is_ok() {}
            }
        };
        thread::Builder::new().name("gate".to_owned()).spawn(keep)?;
        Ok(theirs)
    }

    /// Receives and keeps a new state of receive.
    fn hear(&self, mut line: &UnixStream, generation: u64) -> io::Result<()> {
        let GateOfReceive { gate } = handed::receive(line)?;
        let count = gate.as_ref().map_or(0, |gate| gate.descriptors() + 1);
        if count > MOST_DESCRIPTORS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut descriptors = descriptors::take(line, count)?;
        let programs = descriptors.pop();
        let mut kept = self.lock();
        if !kept.is_over && kept.judged_by == generation {
            (kept.gate, kept.programs) = (gate.map(|gate| (gate, descriptors)), programs);
        }
        drop(kept);
        line.write_all(b"+")
    }

    /// Duplicates the gate for a successor.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub(super) fn hand(&self) -> io::Result<Option<GateBefore>> {
        self.lock().duplicate()
    }

    /// Whether the kept gate came from a receive of this supervisor.
    pub(super) fn is_own(&self) -> bool {
        self.lock().programs.is_some()
    }

    /// Drops the gate for good: the kernel judges as long as a receive holds it, or the successor.
    pub(super) fn let_go(&self) {
        *self.lock() = KeptGate { is_over: true, ..KeptGate::default() };
    }

    fn lock(&self) -> MutexGuard<'_, KeptGate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptGate {
    fn duplicate(&self) -> io::Result<Option<GateBefore>> {
        let Some((text, descriptors)) = &self.gate else { return Ok(None) };
        let descriptors = descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Some((text.clone(), descriptors)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn text(slots: u32) -> HandedKernel {
        let slots = (0..slots).map(|slot| (format!("rule {slot}"), slot)).collect();
        let maps = vec!["words".to_owned()];
        HandedKernel { layout: 1, steers: true, slots, maps, links: vec![2], filters: None }
    }

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| File::open("/dev/null").unwrap().into()).collect()
    }

    /// Does what [`GateLine::open`] does, at the end of a receive.
    fn first(line: OwnedFd) -> (UnixStream, GateForReceive, usize) {
        let line = UnixStream::from(line);
        let first: GateForReceive = handed::receive(&line).unwrap();
        let count = first.gate.as_ref().map_or(0, HandedKernel::descriptors);
        let taken = descriptors::take(&line, count).unwrap().len();
        (line, first, taken)
    }

    fn say(line: &UnixStream, text: HandedKernel) {
        let count = text.descriptors() + 1;
        handed::send(line, &GateOfReceive { gate: Some(text) }).unwrap();
        handed::give(line, &descriptors(count)).unwrap();
        let mut line = line;
        line.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn what_one_receive_has_the_next_is_given() {
        let keeper = Arc::new(GateKeeper::default());
        keeper.judged_by(1);
        let (line, begun, _) = first(keeper.line(1).unwrap());
        assert!(begun.gate.is_none() && begun.judges && !keeper.is_own());
        say(&line, text(2));
        drop(line);
        let (_, begun, taken) = first(keeper.line(1).unwrap());
        assert_eq!((begun.gate, begun.judges, taken), (Some(text(2)), true, 2));
        assert_eq!(keeper.hand().unwrap().unwrap().1.len(), 2);
    }

    #[test]
    fn the_receive_of_the_generation_that_judges_is_believed() {
        let keeper = Arc::new(GateKeeper::new(Some((text(1), descriptors(2)))));
        keeper.judged_by(1);
        let (before, ..) = first(keeper.line(1).unwrap());
        keeper.judged_by(2);
        let (after, begun, _) = first(keeper.line(2).unwrap());
        assert!(begun.judges);
        say(&after, text(3));
        // the state of a receive that no longer judges is ignored
        say(&before, text(2));
        assert_eq!(keeper.hand().unwrap().unwrap().0, text(3));
        // a receive that crashes and restarts meanwhile only makes itself ready
        let (_, begun, _) = first(keeper.line(1).unwrap());
        assert_eq!((begun.gate, begun.judges), (Some(text(3)), false));
        keeper.let_go();
        say(&after, text(4));
        assert!(keeper.hand().unwrap().is_none() && !keeper.is_own());
    }
}
