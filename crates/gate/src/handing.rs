//! The transfer of a gate to another process, whose gate judges in its place.
//!
//! A link stays on its interface and gets the program of the other gate from one packet to the next; so does
//! a filter. Two gates never judge the same packet, and no packet is missed. Both gates share the maps whose
//! content outlives a policy: buckets, ignored clients, handshakes that have begun, counters.

use crate::error::GateError;
use crate::filters::{Filters, HandedFilters};
use crate::kernel::{AnswerRoom, Kernel};
use crate::{Charge, Gate, RuleSlots, lock};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// The version of the maps that are handed over. It grows when the meaning of their content changes: a gate
/// with another version begins with empty maps.
pub const LAYOUT: u32 = 3;

/// The state of a gate that another one takes over.
#[derive(Debug)]
pub struct HandedGate {
    /// The [`LAYOUT`] of the program that hands the gate over.
    pub layout: u32,
    /// Whether the gate answers SYNs, so that clients may still have its cookies.
    pub steers: bool,
    /// The slot of each rule, by name.
    pub slots: Vec<(String, u32)>,
    /// The maps, by name.
    pub maps: Vec<(String, OwnedFd)>,
    /// The links, by the interface's index.
    pub links: Vec<(u32, OwnedFd)>,
    /// The filters, where the gate is not attached by links.
    pub filters: Option<HandedFilters>,
}

impl Gate {
    /// Duplicates all that the process needs that takes the place of this one.
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

    /// The map of the programs, which the kernel empties when no process holds it. Another process that holds
    /// it, besides what is [handed over](Gate::hand), keeps the kernel judging after this process has ended.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn programs(&self) -> io::Result<OwnedFd> {
        self.kernel.programs().try_clone_to_owned()
    }

    /// Ends the judging of the previous gate on the interfaces where this one has no listeners.
    pub fn settle(&self) {
        lock(&self.handed).clear();
        if let Some(filters) = &self.filters {
            let held = self.interfaces();
            lock(filters).remove_but(&held);
        }
    }

    /// Loads a gate that takes the place of another one on the interfaces that it is [attached](Gate::attach)
    /// to.
    ///
    /// # Errors
    /// As [`Gate::load`] and [`Gate::load_steering`]; [`GateError::StillAnswers`].
    pub fn load_after(charge: Charge, steers: bool, before: HandedGate) -> Result<Gate, GateError> {
        Gate::after(charge, steers, None, before)
    }

    /// Loads such a gate; with `room` it also answers requests from the cache.
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
