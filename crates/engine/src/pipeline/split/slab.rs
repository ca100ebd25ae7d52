//! Descriptors that any thread may work on, one at a time (keta's managed buffer): the slots that
//! hold connections, and which of them are free.

use super::pipeline_connection::PipelineConnection;
use crate::connection::served::Served;
use crate::loops::watched_listeners;
use forebay_conn::Handler;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// The number of descriptors that are made at a time. A limit of a million connections costs memory
/// only when they come; what was made is kept.
const BLOCK: usize = 256;

/// A slot that the thread which works on it has locked.
pub(super) type Locked<'s, H> = MutexGuard<'s, ConnectionSlot<H>>;

pub(super) struct ConnectionSlot<H: Handler> {
    generation: u32,
    connection: Option<PipelineConnection<H>>,
}

/// All descriptors.
pub(super) struct Slab<H: Handler> {
    blocks: Box<[OnceLock<Block<H>>]>,
    free: Mutex<Free>,
    open: AtomicUsize,
}

type Block<H> = Box<[Mutex<ConnectionSlot<H>>]>;

struct Free {
    places: Vec<u32>,
    /// The first of the places that were never used.
    fresh: u32,
}

impl<H: Handler> Slab<H> {
    /// A slab with room for this many connections.
    pub(super) fn new(connections: usize) -> Slab<H> {
        let blocks = connections.div_ceil(BLOCK).clamp(1, u32::MAX as usize / BLOCK);
        let slab = Slab {
            blocks: (0..blocks).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(Free { places: Vec::with_capacity(BLOCK), fresh: 0 }),
            open: AtomicUsize::new(0),
        };
        slab.block(0);
        slab
    }

    fn block(&self, index: usize) -> Option<&Block<H>> {
        let vacant = || Mutex::new(ConnectionSlot { generation: 0, connection: None });
        let block = self.blocks.get(index)?;
        Some(block.get_or_init(|| (0..BLOCK).map(|_| vacant()).collect()))
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of connections in the slab.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Takes a connection in. Returns it if all places are taken.
    pub(super) fn insert(&self, served: Served<H>) -> Result<Locked<'_, H>, Box<Served<H>>> {
        let vacant = {
            let mut free = self.free();
            free.places.pop().or_else(|| {
                let fresh = free.fresh;
                let is_there = (fresh as usize) < self.blocks.len() * BLOCK;
                free.fresh += u32::from(is_there);
                is_there.then_some(fresh)
            })
        };
        let Some(slot) = vacant.and_then(|place| self.slot(place)) else {
            return Err(Box::new(served));
        };
        self.open.fetch_add(1, Ordering::AcqRel);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.generation = slot.generation.wrapping_add(1);
        let token = watched_listeners::token(slot.generation, vacant.unwrap_or(0) as usize);
        slot.connection = Some(PipelineConnection::new(served, token));
        Ok(slot)
    }

    fn slot(&self, place: u32) -> Option<&Mutex<ConnectionSlot<H>>> {
        let place = place as usize;
        self.block(place / BLOCK)?.get(place % BLOCK)
    }

    /// Locks the connection with this token, if it is still there; waits for a thread that works on
    /// it.
    pub(super) fn lock(&self, token: u64) -> Option<Locked<'_, H>> {
        let slot = self.slot(token as u32)?.lock().unwrap_or_else(PoisonError::into_inner);
        slot.is(token).then_some(slot)
    }

    /// Does the same as [`lock`](Slab::lock); returns `Err` if a thread works on the connection.
    pub(super) fn try_lock(&self, token: u64) -> Result<Option<Locked<'_, H>>, ()> {
        let Some(slot) = self.slot(token as u32) else { return Ok(None) };
        match slot.try_lock() {
            Ok(slot) => Ok(slot.is(token).then_some(slot)),
            Err(TryLockError::Poisoned(error)) => {
                let slot = error.into_inner();
                Ok(slot.is(token).then_some(slot))
            }
            Err(TryLockError::WouldBlock) => Err(()),
        }
    }

    /// Takes a connection out.
    pub(super) fn remove(&self, mut slot: Locked<'_, H>) -> Option<Served<H>> {
        let connection = slot.connection.take()?;
        drop(slot);
        self.free().places.push(connection.token as u32);
        Some(connection.served)
    }

    /// Counts a connection that was taken out and has been closed. Returns whether none is left.
    pub(super) fn closed(&self) -> bool {
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// All places that may hold a connection.
    pub(super) fn places(&self) -> impl Iterator<Item = &Mutex<ConnectionSlot<H>>> {
        self.blocks.iter().filter_map(OnceLock::get).flat_map(|block| block.iter())
    }
}

impl<H: Handler> ConnectionSlot<H> {
    fn is(&self, token: u64) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.token == token)
    }

    /// The connection in this slot.
    pub(super) fn connection(&mut self) -> Option<&mut PipelineConnection<H>> {
        self.connection.as_mut()
    }
}
