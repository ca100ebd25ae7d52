//! Permits to answer and to do jobs, for engines in which each connection has a thread: permits are
//! given out by rank, and fairly between the clients of a rank.
//!
//! A permit to answer stands for a core: unless configured, there are as many as cores. Work that
//! only waits (for a client, for a device) needs none, so a file that hangs keeps no core from
//! others. A permit to do a job that waits for a device stands for what the job takes meanwhile,
//! memory above all: there are as many as other engines have helper threads. Each rank but the last
//! also has a reserve of permits for itself and those above it, so that its requests need not wait
//! until those of lower ranks end. A reserve does not eat up floors: while a lower rank is due,
//! none of it is given out.
//!
//! Threads that answer are equal for the kernel. Their priority does not depend on the rank, as
//! that of helper threads does ([`helpers`](crate::helpers)), because a thread cannot raise a
//! priority that it has lowered when it answers a higher rank next.
//!
//! With one rank there are no permits to answer: the kernel shares out the cores among all threads.

use crate::order::ranks::{RankedClient, Ranks, Shares};
use forebay_control::ranked::{Key, Ranked, Turn};
use forebay_sys::clock;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// All permits of one kind.
#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<PermitState>,
    /// The clock by which the time with a permit is charged, in nanoseconds.
    clock: fn() -> u64,
}

#[derive(Debug)]
struct PermitState {
    waiting: Ranked<Arc<Waiter>>,
    shares: Shares,
    /// The free permits, by the last rank that may have them.
    free: Box<[usize]>,
}

/// A thread that waits.
#[derive(Debug)]
struct Waiter {
    thread: Thread,
    granted: OnceLock<GrantedTurn>,
}

#[derive(Clone, Copy, Debug)]
struct GrantedTurn {
    level: usize,
    turn: Turn,
}

/// A thread's wait for a permit; dropping it gives up.
#[derive(Debug)]
pub(crate) struct PermitWait<'p> {
    permits: &'p Permits,
    waiter: Arc<Waiter>,
    key: Option<Key>,
    since_ns: u64,
    has_permit: bool,
}

/// A permit of the thread that has asked for it. It goes back to [`Permits::give_back`].
#[derive(Debug)]
#[must_use = "a permit that is not given back is lost"]
pub(crate) struct Permit {
    grant: GrantedTurn,
    /// The time for which the thread waited for the permit.
    pub(crate) waited_ns: u64,
    /// The clock's time when the thread got the permit.
    began_ns: u64,
}

impl Permit {
    /// The rank of the request that it was given for.
    pub(crate) fn rank(&self) -> u8 {
        self.grant.turn.rank()
    }
}

impl Permits {
    /// Permits to answer: `answering` of them, and the reserves. Returns `None` if there is one
    /// rank. CPU time is charged, as others may have the core in between.
    pub(crate) fn to_answer(ranks: &Ranks, answering: usize) -> Option<Permits> {
        ranks.is_ordered().then(|| Permits::new(ranks, answering, clock::thread_cpu_ns))
    }

    /// Permits to do jobs that wait for devices: `jobs` of them, and the reserves. All time is
    /// charged.
    pub(crate) fn to_wait(ranks: &Ranks, jobs: usize) -> Permits {
        Permits::new(ranks, jobs, clock::monotonic_ns)
    }

    fn new(ranks: &Ranks, most: usize, clock: fn() -> u64) -> Permits {
        let last = ranks.count() - 1;
        let most = |level| if level == last { most.max(1) } else { ranks.reserve };
        let free = (0..=last).map(most).collect();
        let (waiting, shares) = ranks.queue();
        Permits { state: Mutex::new(PermitState { waiting, shares, free }), clock }
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        // no panic can leave the state half changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a permit for the calling thread, for work that counts for this rank and client.
    pub(crate) fn ask(&self, ranked_client: RankedClient) -> PermitWait<'_> {
        let waiter = Arc::new(Waiter { thread: thread::current(), granted: OnceLock::new() });
        let since_ns = clock::monotonic_ns();
        let RankedClient { rank, client } = ranked_client;
        let mut state = self.lock();
        // the queue has no bound: there is one entry per thread
        let key = state.waiting.push(rank, client, 1, Arc::clone(&waiter)).ok();
        hand_out(state);
        PermitWait { permits: self, waiter, key, since_ns, has_permit: false }
    }

    /// Gives a permit back, when the calling thread is done with its use. Returns what is charged
    /// for that, in nanoseconds.
    pub(crate) fn give_back(&self, permit: Permit) -> u64 {
        let ns = (self.clock)().saturating_sub(permit.began_ns);
        self.release(permit.grant, ns);
        ns
    }

    fn release(&self, grant: GrantedTurn, ns: u64) {
        let mut state = self.lock();
        state.waiting.ran(grant.turn, ns);
        state.free[grant.level] += 1;
        hand_out(state);
    }
}

/// Gives out the permits that can be had, and wakes the threads that got one.
fn hand_out(mut state: MutexGuard<'_, PermitState>) {
    let mut lucky = Vec::new();
    let PermitState { waiting, shares, .. } = &mut *state;
    shares.keep_up(waiting);
    while let Some(rank) = state.waiting.next_rank() {
        // reserves are used only when no other permit is free
        let levels = usize::from(rank)..state.free.len();
        let Some(level) = levels.rev().find(|level| state.free[*level] > 0) else { break };
        let Some((waiter, turn)) = state.waiting.pop() else { break };
        state.free[level] -= 1;
        if waiter.granted.set(GrantedTurn { level, turn }).is_ok() {
            lucky.push(waiter);
        }
    }
    drop(state);
    lucky.iter().for_each(|waiter| waiter.thread.unpark());
}

impl<'p> PermitWait<'p> {
    /// Waits until there is a permit, for at most `most`.
    ///
    /// # Errors
    /// Returns the wait itself, which can go on.
    pub(crate) fn wait(mut self, most: Duration) -> Result<Permit, PermitWait<'p>> {
        let until = Instant::now() + most;
        loop {
            if let Some(grant) = self.waiter.granted.get().copied() {
                self.has_permit = true;
                let waited_ns = clock::monotonic_ns().saturating_sub(self.since_ns);
                return Ok(Permit { grant, waited_ns, began_ns: (self.permits.clock)() });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self);
            }
            thread::park_timeout(left);
        }
    }
}

impl Drop for PermitWait<'_> {
    fn drop(&mut self) {
        if self.has_permit {
            return;
        }
        let mut state = self.permits.lock();
        if self.key.is_some_and(|key| state.waiting.remove(key).is_some()) {
            // a rank that was due may be due no longer
            return hand_out(state);
        }
        drop(state);
        if let Some(grant) = self.waiter.granted.get() {
            self.permits.release(*grant, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ranks::OrderSettings;

    const AT_ONCE: Duration = Duration::ZERO;

    fn permits(shares: &[f64], reserve: usize) -> Permits {
        let settings = OrderSettings { shares: shares.into(), reserve, ..OrderSettings::default() };
        let ranks = Ranks::new(&settings);
        Permits::to_answer(&ranks, 2).unwrap()
    }

    fn ask(permits: &Permits, rank: u8) -> PermitWait<'_> {
        permits.ask(RankedClient { rank, client: 7 })
    }

    #[test]
    fn with_one_rank_there_are_none_to_answer() {
        assert!(Permits::to_answer(&Ranks::default(), 2).is_none());
    }

    #[test]
    fn with_one_rank_jobs_wait_for_one_another() {
        let permits = Permits::to_wait(&Ranks::default(), 1);
        let first = ask(&permits, 0).wait(AT_ONCE).unwrap();
        let second = ask(&permits, 0).wait(AT_ONCE).unwrap_err();
        permits.give_back(first);
        permits.give_back(second.wait(AT_ONCE).unwrap());
    }

    #[test]
    fn a_reserve_is_for_high_ranks_and_for_when_there_is_nothing_else() {
        let permits = permits(&[0.0, 0.0, 0.0], 1);
        let high = ask(&permits, 0).wait(AT_ONCE).unwrap();
        let low = ask(&permits, 2).wait(AT_ONCE).unwrap();
        let waits = ask(&permits, 2).wait(AT_ONCE).unwrap_err();
        let mid = ask(&permits, 1).wait(AT_ONCE).unwrap();
        let other_mid = ask(&permits, 1).wait(AT_ONCE).unwrap_err();
        let other_high = ask(&permits, 0).wait(AT_ONCE).unwrap();
        assert_eq!([high.rank(), mid.rank(), low.rank(), other_high.rank()], [0, 1, 2, 0]);
        // a permit that comes back goes to the highest rank that may have it
        permits.give_back(other_high);
        let other_mid = other_mid.wait(AT_ONCE).unwrap_err();
        permits.give_back(high);
        let other_mid = other_mid.wait(AT_ONCE).unwrap();
        let waits = waits.wait(AT_ONCE).unwrap_err();
        permits.give_back(low);
        permits.give_back(waits.wait(AT_ONCE).unwrap());
        permits.give_back(mid);
        permits.give_back(other_mid);
        assert_eq!(*permits.lock().free, [1, 1, 2]);
    }

    #[test]
    fn who_gives_up_takes_nothing_along() {
        let permits = permits(&[0.0, 0.0], 0);
        let held = [0, 1].map(|rank| ask(&permits, rank).wait(AT_ONCE).unwrap());
        let first = ask(&permits, 0);
        let second = ask(&permits, 1);
        let third = ask(&permits, 1);
        drop(second);
        for permit in held {
            permits.give_back(permit);
        }
        // both threads have a permit and do not know it yet
        drop(first);
        permits.give_back(third.wait(AT_ONCE).unwrap());
        assert_eq!(*permits.lock().free, [0, 2]);
        assert!(permits.lock().waiting.is_empty());
    }

    #[test]
    fn whoever_waits_is_woken() {
        let permits = permits(&[0.0, 0.0], 0);
        let held = [0, 0].map(|rank| ask(&permits, rank).wait(AT_ONCE).unwrap());
        thread::scope(|scope| {
            for rank in [0, 1, 1] {
                let permits = &permits;
                scope.spawn(move || {
                    let mut asked = ask(permits, rank);
                    let permit = loop {
                        match asked.wait(Duration::from_secs(60)) {
                            Ok(permit) => break permit,
                            Err(still) => asked = still,
                        }
                    };
                    permits.give_back(permit);
                });
            }
            for permit in held {
                permits.give_back(permit);
            }
        });
        assert_eq!(*permits.lock().free, [0, 2]);
    }
}
