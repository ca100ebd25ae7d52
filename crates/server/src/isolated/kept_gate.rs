//! The gate of receive, kept by the supervisor: a crash of receive takes nothing of it away, and the next receive goes on
//! with what was charged.
//!
//! In: what receive has in the kernel, over a [`mod@forebay_sys::line`], each time that it has changed: a text and
//! descriptors, as in an upgrade. Out: the same, for the receive that starts next, or the server that takes the place.
//! While there is no receive, the kernel judges on by the rules of the last.
//!
//! One generation judges at a time. The receive of another makes its gate ready, and judges when the supervisor says so
//! ([`JUDGE`]).

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

/// How long the supervisor may take to keep what it is given.
const PATIENCE: Duration = Duration::from_secs(10);

/// A receive that was taken over fills no other process with descriptors.
const MOST_DESCRIPTORS: usize = 1024;

/// What a receive is given when it starts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct GateForReceive {
    /// The gate of the receive before; its descriptors follow.
    gate: Option<HandedKernel>,
    /// Whether it judges as soon as it serves.
    judges: bool,
}

/// What receive has in the kernel: nothing where this machine cannot. Descriptors follow: those of the gate, and one for
/// its programs.
#[derive(Debug, Serialize, Deserialize)]
struct GateOfReceive {
    gate: Option<HandedKernel>,
}

/// A gate that another process has handed.
pub type GateBefore = (HandedKernel, Vec<OwnedFd>);

/// The end of receive.
#[derive(Debug)]
pub struct GateLine {
    stream: UnixStream,
    judges: bool,
    /// What the supervisor has, as far as it was told.
    kept: Option<Option<HandedKernel>>,
}

impl GateLine {
    /// The line to the supervisor that this process was started with, if there is one, and the gate of the receive before.
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

    /// Whether this process judges, and not one of another generation.
    pub fn judges(&self) -> bool {
        self.judges
    }

    /// It does from now on, and what it has is to be kept anew.
    pub fn judge(&mut self) {
        (self.judges, self.kept) = (true, None);
    }

    /// Has the supervisor keep what this process has in the kernel, if that has changed.
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
        (&self.stream).read_exact(&mut [0])?;
        self.kept = Some(text);
        Ok(())
    }
}

/// The end of the supervisor.
#[derive(Debug, Default)]
pub(super) struct GateKeeper(Mutex<KeptGate>);

#[derive(Debug, Default)]
struct KeptGate {
    gate: Option<GateBefore>,
    /// The map of its programs; `None` if the gate is that of a server before.
    programs: Option<OwnedFd>,
    /// The generation that judges.
    judged_by: u64,
    /// Nothing is kept any more.
    is_over: bool,
}

impl GateKeeper {
    /// What the server before has handed.
    pub(super) fn new(gate: Option<GateBefore>) -> GateKeeper {
        GateKeeper(Mutex::new(KeptGate { gate, ..KeptGate::default() }))
    }

    /// From now on this generation judges.
    pub(super) fn judged_by(&self, generation: u64) {
        self.lock().judged_by = generation;
    }

    /// Whether this generation does.
    pub(super) fn is_judged_by(&self, generation: u64) -> bool {
        self.lock().judged_by == generation
    }

    /// A line for the receive of this generation, which is given what is kept. What it has is kept until its end.
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

    /// Takes what receive has now.
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

    /// For the server that takes the place.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub(super) fn hand(&self) -> io::Result<Option<GateBefore>> {
        self.lock().duplicate()
    }

    /// Whether a receive of this supervisor judges.
    pub(super) fn is_own(&self) -> bool {
        self.lock().programs.is_some()
    }

    /// Keeps nothing any more: the kernel judges as long as a receive does, or the server that took the place.
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

    /// As [`GateLine::open`], at the end that a receive has.
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
        // an interface has come where another judges by now
        say(&before, text(2));
        assert_eq!(keeper.hand().unwrap().unwrap().0, text(3));
        // one that crashes meanwhile gets ready
        let (_, begun, _) = first(keeper.line(1).unwrap());
        assert_eq!((begun.gate, begun.judges), (Some(text(3)), false));
        keeper.let_go();
        say(&after, text(4));
        assert!(keeper.hand().unwrap().is_none() && !keeper.is_own());
    }
}
