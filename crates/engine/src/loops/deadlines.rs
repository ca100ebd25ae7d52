//! The deadlines of a connection and its requests.
//!
//! A connection has one entry in a [wheel](crate::loops::timer_wheel), however many of its requests wait.

use crate::connection::served::Served;
use crate::connection::worker::Worker;
use crate::loops::timer_wheel::{NEAR_SLOT_MS, SLOT_MS, Wheel};
use forebay_conn::{Await, Awaited, Handler, Protocol, RequestId};
use forebay_sys::clock;

/// What a connection and its requests wait for, each with its deadline, and the connection's entry
/// in a wheel. All times are in milliseconds of the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTimer {
    first: Deadline,
    /// The deadlines of requests.
    more: Vec<Deadline>,
    /// The time when the wheel will present the connection; 0 for never.
    shown_ms: u64,
    /// The time for a request is over. Others that began with it may be late, too; each is reported
    /// on its own.
    has_expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deadline {
    awaited: Option<Awaited>,
    at_ms: u64,
    /// The measurement of a client that takes too little.
    slow: Option<Slow>,
}

/// The time when the client began to take too little, and how much it has taken since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slow {
    since_ms: u64,
    taken: u64,
}

impl Default for Deadline {
    fn default() -> Deadline {
        Deadline { awaited: None, at_ms: u64::MAX, slow: None }
    }
}

impl Deadline {
    fn new(awaited: Awaited, at_ms: u64) -> Deadline {
        Deadline { awaited: Some(awaited), at_ms, slow: None }
    }

    /// Looks how much the client has taken. Returns whether it has taken too little for a whole
    /// window; until then the next look follows.
    fn is_window_over<H: Handler>(
        &mut self,
        id: RequestId,
        served: &mut Served<H>,
        worker: &Worker<H>,
    ) -> bool {
        let (timeouts, now_ms) = (&worker.settings.timeouts, worker.now_ms());
        let look_ms = timeouts.send_look_ms();
        let new = Slow { since_ms: self.at_ms.saturating_sub(look_ms), taken: 0 };
        let slow = self.slow.get_or_insert(new);
        slow.taken = slow.taken.saturating_add(served.taken_since_look(id, now_ms));
        // The measure is the time until the look was due, as a loop that is late is not the
        // client's fault.
        let waited_ms = self.at_ms.saturating_sub(slow.since_ms);
        if slow.taken >= timeouts.least_taken(waited_ms) {
            self.slow = None;
            // measured from now, not from the clock of the turn; see `seldom_at_ms`
            self.at_ms = clock::coarse_ms().max(now_ms) + look_ms;
            return false;
        }
        let over_ms = slow.since_ms.saturating_add(timeouts.send_window_ms);
        self.at_ms = over_ms.min(now_ms + look_ms);
        over_ms <= now_ms
    }
}

impl ConnectionTimer {
    /// Sets the deadlines of what the connection and its requests wait for, unless they are set
    /// already. Returns whether what the connection waits for is new.
    #[inline(always)]
    pub(crate) fn set<H: Handler>(&mut self, served: &mut Served<H>, worker: &Worker<H>) -> bool {
        let awaited = served.awaits();
        if !served.new_jobs.is_empty() {
            self.forget_jobs(&mut served.new_jobs);
        }
        let is_new = self.first.awaited != Some(awaited);
        let goes_on = served.goes_on();
        if is_new {
            self.begin(awaited, goes_on, |awaited| at_ms(served, worker, awaited));
            served.keeps_up();
            if awaited.what == Await::Send {
                served.begin_window(worker.now_ms());
            }
        }
        if goes_on {
            let tell_all = |tell: &mut dyn FnMut(Awaited)| served.conn.also_awaits(tell);
            self.set_more(tell_all, |awaited| at_ms(served, worker, awaited));
        }
        is_new
    }

    /// Begins the connection's wait for something else. Its former wait may be that of a request,
    /// which goes on.
    #[inline]
    fn begin(&mut self, awaited: Awaited, goes_on: bool, at_ms: impl Fn(Awaited) -> u64) {
        let known = self.more.iter().find(|deadline| deadline.awaited == Some(awaited));
        let first = known.copied().unwrap_or_else(|| Deadline::new(awaited, at_ms(awaited)));
        let former = std::mem::replace(&mut self.first, first);
        if goes_on {
            self.more.push(former);
        }
    }

    #[cold]
    fn set_more(
        &mut self,
        tell_all: impl FnOnce(&mut dyn FnMut(Awaited)),
        at_ms: impl Fn(Awaited) -> u64,
    ) {
        let room = Vec::with_capacity(self.more.len());
        let before = std::mem::replace(&mut self.more, room);
        let first = self.first.awaited;
        // the order is the same each time, so the next is looked for after the last
        let mut after = 0;
        tell_all(&mut |awaited| {
            if first == Some(awaited) {
                return;
            }
            let is_it = |deadline: &Deadline| deadline.awaited == Some(awaited);
            let at = before[after..].iter().position(is_it).map(|at| after + at);
            let at = at.or_else(|| before[..after].iter().position(is_it));
            after = at.map_or(after, |at| at + 1);
            let known = at.map(|at| before[at]);
            // by half: there may be as many as requests that wait
            if self.more.len() == self.more.capacity() {
                self.more.reserve_exact(self.more.len() / 2 + 4);
            }
            self.more.push(known.unwrap_or_else(|| Deadline::new(awaited, at_ms(awaited))));
        });
    }

    /// Forgets the deadlines of earlier jobs of these requests.
    #[cold]
    fn forget_jobs(&mut self, new: &mut Vec<RequestId>) {
        for deadline in std::iter::once(&mut self.first).chain(&mut self.more) {
            let job = deadline.awaited.filter(|awaited| awaited.what == Await::Job);
            if job.is_some_and(|awaited| new.contains(&awaited.id)) {
                *deadline = Deadline::default();
            }
        }
        new.clear();
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn at_ms(&self) -> u64 {
        self.more.iter().map(|deadline| deadline.at_ms).fold(self.first.at_ms, u64::min)
    }

    /// Returns what was awaited for too long, if anything. A client that takes its answer fast
    /// enough gets time for more of it.
    pub(crate) fn over<H: Handler>(
        &mut self,
        served: &mut Served<H>,
        worker: &Worker<H>,
    ) -> Option<Awaited> {
        let now_ms = worker.now_ms();
        let mut has_looked = false;
        for deadline in std::iter::once(&mut self.first).chain(&mut self.more) {
            if deadline.at_ms > now_ms {
                continue;
            }
            let Some(awaited) = deadline.awaited else { continue };
            if let Await::Place
            | Await::Slot
            | Await::Connect
            | Await::Answer
            | Await::Flow
            | Await::Ending
            | Await::Link
            | Await::Rest = awaited.what
            {
                deadline.at_ms = served.conn.deadline_ms(awaited);
                if deadline.at_ms > now_ms {
                    continue;
                }
            }
            if awaited.what == Await::Send {
                has_looked = true;
                let ends_ms = served.conn.ends_ms();
                if ends_ms <= now_ms {
                    // the time for sending has ended, whatever the client takes; the protocol knows
                    // what is late
                    return Some(served.conn.awaits());
                }
                if !deadline.is_window_over(awaited.id, served, worker) {
                    deadline.at_ms = deadline.at_ms.min(ends_ms);
                    continue;
                }
            }
            return Some(awaited);
        }
        if has_looked {
            self.tell_slow(served);
        }
        None
    }

    /// Notes whether the client is slow: the connection waits only for it to take something, and it
    /// takes too little of each answer.
    #[cold]
    fn tell_slow<H: Handler>(&self, served: &mut Served<H>) {
        let mut all = std::iter::once(&self.first).chain(&self.more);
        let all_slow = all.try_fold((0, u64::MAX), |(taken, since_ms), deadline| {
            match (deadline.awaited, deadline.slow) {
                (Some(Awaited { what: Await::Send, .. }), Some(slow)) => {
                    Some((taken + slow.taken, since_ms.min(slow.since_ms)))
                }
                (None, _) => Some((taken, since_ms)),
                _ => None,
            }
        });
        match all_slow {
            Some((taken, since_ms)) => served.reads_slowly(taken, since_ms),
            None => served.keeps_up(),
        }
    }

    /// Notes that the time for a request was over, and the connection goes on. Where another one is
    /// over as well, the wheel presents the connection soon.
    pub(crate) fn expired(&mut self) {
        self.has_expired = true;
    }

    /// Has the wheel present the connection in time. For a deadline that has moved later, the entry
    /// that is there is enough. Returns when the wheel will present it, if that is new.
    #[inline]
    pub(crate) fn schedule(&mut self, wheel: &mut Wheel, token: u64) -> Option<u64> {
        if self.is_scheduled() {
            return None;
        }
        let is_late = std::mem::take(&mut self.has_expired) && wheel.has_passed(self.at_ms());
        self.shown_ms = match is_late || self.is_exact() {
            true => wheel.insert_exactly(self.at_ms(), token),
            false => wheel.insert(self.at_ms(), token),
        };
        Some(self.shown_ms)
    }

    /// Whether the wheel already presents the connection in time, or never has to.
    #[inline]
    pub(crate) fn is_scheduled(&self) -> bool {
        let at_ms = self.at_ms();
        let late_ms = if self.is_exact() { 2 * NEAR_SLOT_MS } else { 2 * SLOT_MS };
        at_ms == u64::MAX || (self.shown_ms != 0 && self.shown_ms <= at_ms + late_ms)
    }

    /// Whether the wait is one of milliseconds: for other stages.
    #[inline]
    fn is_exact(&self) -> bool {
        let is_link = |deadline: &Deadline| {
            deadline.awaited.is_some_and(|it| matches!(it.what, Await::Link | Await::Rest))
        };
        is_link(&self.first) || self.more.iter().any(is_link)
    }

    /// Notes that the wheel presents the connection. Returns whether this is its entry, and not one
    /// from before a deadline moved forward.
    pub(crate) fn presented(&mut self, now_ms: u64) -> bool {
        let is_it = self.shown_ms <= now_ms;
        if is_it {
            self.shown_ms = 0;
        }
        is_it
    }
}

/// The deadline for this wait.
#[inline]
fn at_ms<H: Handler>(served: &Served<H>, worker: &Worker<H>, awaited: Awaited) -> u64 {
    match awaited.what {
        Await::Idle | Await::Head | Await::Body | Await::Job => {
            worker.now_ms() + worker.time_ms(served, awaited.what)
        }
        _ => seldom_at_ms(served, worker, awaited),
    }
}

/// The deadline for waits that a request answered at once does not have. The time of a request that
/// may not be answered before comes by itself, exactly.
#[cold]
fn seldom_at_ms<H: Handler>(served: &Served<H>, worker: &Worker<H>, awaited: Awaited) -> u64 {
    match awaited.what {
        Await::Admission => u64::MAX,
        Await::Place
        | Await::Slot
        | Await::Connect
        | Await::Answer
        | Await::Flow
        | Await::Ending
        | Await::Link
        | Await::Rest => served.conn.deadline_ms(awaited),
        // The clock of the turn is not used: megabytes may have been sent since that was read, and
        // what the client takes is measured from now on.
        Await::Send => {
            let look_ms = clock::coarse_ms() + worker.time_ms(served, Await::Send);
            look_ms.min(served.conn.ends_ms())
        }
        what => worker.now_ms() + worker.time_ms(served, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_are_late_together_are_told_soon_after_one_another() {
        let mut wheel = Wheel::new(0);
        wheel.advance(10_000, &mut Vec::new());
        let late = Deadline { at_ms: 9_000, ..Deadline::default() };
        let mut timer = ConnectionTimer { first: late, ..ConnectionTimer::default() };
        assert_eq!(timer.schedule(&mut wheel, 1), Some(79 * SLOT_MS));
        assert!(timer.presented(79 * SLOT_MS));
        wheel.advance(79 * SLOT_MS, &mut Vec::new());
        timer.expired();
        assert_eq!(timer.schedule(&mut wheel, 1), Some(79 * SLOT_MS + NEAR_SLOT_MS));
        // a deadline that is not over is not moved forward
        let mut timer = ConnectionTimer::default();
        timer.first.at_ms = 80 * SLOT_MS;
        timer.expired();
        assert_eq!(timer.schedule(&mut wheel, 2), Some(81 * SLOT_MS));
    }

    #[test]
    fn a_request_keeps_its_deadline_while_its_connection_waits_for_something_else() {
        const SEND: Awaited = Awaited { what: Await::Send, id: RequestId::SENDING };
        let job = |id| Awaited { what: Await::Job, id: RequestId(id) };
        let mut timer = ConnectionTimer::default();
        // each wait is 100 ms long
        let mut set = |now_ms: u64, first, all: &[Awaited]| {
            if timer.first.awaited != Some(first) {
                timer.begin(first, true, |_| now_ms + 100);
            }
            timer.set_more(|tell| all.iter().copied().for_each(tell), |_| now_ms + 100);
            let all = std::iter::once(&timer.first).chain(&timer.more);
            let of =
                |awaited| all.clone().find(|it| it.awaited == Some(awaited)).map(|it| it.at_ms);
            (of(SEND), of(job(1)), of(job(3)), all.clone().count())
        };
        assert_eq!(set(0, job(1), &[job(1)]), (None, Some(100), None, 1));
        assert_eq!(set(10, job(1), &[job(1), job(3)]), (None, Some(100), Some(110), 2));
        // the client takes nothing
        assert_eq!(set(20, SEND, &[job(1), job(3)]), (Some(120), Some(100), Some(110), 3));
        assert_eq!(set(30, job(1), &[job(1), job(3)]), (None, Some(100), Some(110), 2));
        assert_eq!(set(40, SEND, &[job(1), job(3), SEND]), (Some(140), Some(100), Some(110), 3));
        assert_eq!(set(50, job(3), &[job(3)]), (None, None, Some(110), 1));
    }
}
