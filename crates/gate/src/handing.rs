//! What a gate hands to the gate of another process, which judges in its place.
//!
//! A link keeps its place at an interface, and gets the program of the other gate from one packet to the next; so does
//! a filter. Two never judge the same packet, and none is missed. Maps whose content outlives a policy are the same in
//! both: buckets, who is ignored, handshakes that have begun, what was counted.

use crate::error::GateError;
use crate::filters::{Filters, HandedFilters};
use crate::kernel::{AnswerRoom, Kernel};
use crate::{Charge, Gate, RuleSlots, lock};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// What the content of the maps that are kept means. It grows when that changes: then the other gate begins anew.
pub const LAYOUT: u32 = 3;

/// What a gate has that another one goes on with.
#[derive(Debug)]
pub struct HandedGate {
    /// [`LAYOUT`] of the program that hands it.
    pub layout: u32,
    /// Whether it answers SYNs: cookies of its own are on their way.
    pub steers: bool,
    /// Which rule has which place, by name.
    pub slots: Vec<(String, u32)>,
    /// By name.
    pub maps: Vec<(String, OwnedFd)>,
    /// By interface.
    pub links: Vec<(u32, OwnedFd)>,
    /// In the place of links.
    pub filters: Option<HandedFilters>,
}

impl Gate {
    /// What there is, for the process that takes the place of this one.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn hand(&self) -> io::Result<HandedGate> {
        let slots = lock(&self.slots);
        let slots = slots.by_name.iter().map(|(name, slot)| (name.to_string(), *slot));
        let maps = self.kernel.kept().into_iter();
        let maps = maps.map(|(name, map)| Ok((name.to_owned(), map.try_clone_to_owned()?)));
        let filters = self.filters.as_ref().map(|filters| lock(filters).hand());
        Ok(HandedGate {
            layout: LAYOUT,
            steers: self.steers(),
            slots: slots.collect(),
            maps: maps.collect::<io::Result<_>>()?,
            links: self.links()?,
            filters: filters.transpose()?,
        })
    }

    /// What another process is to hold, besides what is [handed](Gate::hand), so that the kernel judges on when this process
    /// has ended: the map of the programs, which the kernel empties when no process holds it.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn programs(&self) -> io::Result<OwnedFd> {
        self.kernel.programs().try_clone_to_owned()
    }

    /// The gate before judges nowhere any more, also where this one has no listeners.
    pub fn settle(&self) {
        lock(&self.handed).clear();
        if let Some(filters) = &self.filters {
            let held = self.interfaces();
            lock(filters).remove_but(&held);
        }
    }

    /// Loads a gate that takes the place of another where it is [attached](Gate::attach).
    ///
    /// # Errors
    /// As [`Gate::load`] and [`Gate::load_steering`]; [`GateError::StillAnswers`].
    pub fn load_after(charge: Charge, steers: bool, before: HandedGate) -> Result<Gate, GateError> {
        Gate::after(charge, steers, None, before)
    }

    /// The same; with `room` it answers requests, too.
    pub(crate) fn after(
        charge: Charge,
        steers: bool,
        room: Option<&AnswerRoom>,
        before: HandedGate,
    ) -> Result<Gate, GateError> {
        let HandedGate { layout, steers: did_steer, slots, mut maps, links, filters } = before;
        if did_steer && !steers {
            return Err(GateError::StillAnswers);
        }
        let is_known = layout == LAYOUT;
        if !is_known {
            maps.clear();
        }
        let mut gate = match steers {
            true => Gate::steering(charge, &maps, did_steer && is_known, room)?,
            false => Gate::with(Kernel::load(false, None, &maps)?, charge)?,
        };
        if is_known {
            let by_name = slots.into_iter().map(|(name, slot)| (name.into(), slot)).collect();
            gate.slots = Mutex::new(RuleSlots { by_name });
        }
        gate.handed = Mutex::new(links.into_iter().collect::<HashMap<_, _>>());
        gate.filters = filters.map(|filters| Mutex::new(Filters::handed(filters)));
        Ok(gate)
    }
}
