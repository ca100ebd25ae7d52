//! The rate of new connections of each class, while it does not suffice to refuse requests.
//!
//! Windows limit the delay of *workers*. They cannot help when the loops themselves come late, when refusals
//! take the time that answers need, or when connections wait in the kernel because no thread is free to
//! accept them. Connection rates are for these cases and no others, so that windows and rates never correct
//! the same delay. `lag` and `refusals` are multiples of what is bearable; `queue` means that connections of
//! a class wait for longer than is bearable in its accept queue in the kernel:
//!
//! ```text
//! none:        r += a·R   for the first class that was refused connections   (R: all let in, per second)
//! only queue:  r = 0.9·min(r, let in)   for the lowest class above its floor, from the first that waits on
//! else:        r *= max(1 − max(b·(lag − 1), c·(refusals − 1)), ½)   for the lowest class above its floor
//! ```
//!
//! Connections in a queue are accepted before those of lower classes, so the class of that queue and the
//! lower ones give way. While a queue stands, the number let in is what the threads can take; the length of
//! the queue says little about a rate. A class of which nothing is accepted gets no rate: a rate would not
//! change that, and all connections in its queue would be refused later.
//!
//! The number let in while loops are late is what they can do, so a class that was cut until they had caught
//! up continues at nine tenths of that. Lag accumulates while a rate is a little too high, so it says little
//! about how much too high it is; the time that refusals take is in proportion to the rate. Hence there are
//! two constants.
//!
//! Loops may be late for reasons that no connection has caused, for example because other programs take the
//! cores. So all classes together are never cut below a quarter of what was let in when policing began.
//!
//! A floor is the class's share of all connections let in, but at least one per second. Rates move at most
//! once per [`PERIOD_NS`]: a client whose SYN was dropped comes back after a second, and only then does the
//! effect of a rate show. When policing begins again, it begins with the rates that were good when it ended
//! last.

use super::{AgentClass, Observation};

/// The shortest time between two moves, in nanoseconds.
pub const PERIOD_NS: u64 = 1_500_000_000;
/// `a` in the formula above.
const GROWTH: f64 = 0.03;
/// `b` and `c` in the formula above. With 50 ms as bearable, `b` takes back in two periods a lag that a rate
/// has built up in one.
const CUT: (f64, f64) = (0.03, 0.5);
/// Rates are cut no further once only this part is let in of what was let in when policing began.
const LEAST: f64 = 0.25;
/// Where no good rate is known, policing begins with this part of what is let in.
const BEGIN: f64 = 0.9;
/// How long a rate counts as good after policing has ended, in nanoseconds.
const GOOD_FOR_NS: u64 = 600_000_000_000;

/// The rates of all classes.
#[derive(Clone, Debug)]
pub struct Connections {
    lines: Vec<RankLine>,
    rates: Vec<Option<f64>>,
    /// The beginning of the current period; `None` while no connections are policed.
    since_ns: Option<u64>,
    /// The number of connections let in per second when policing began, over all classes.
    begun_per_s: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct RankLine {
    share: f64,
    /// Connections that came in this period, and the number of them that were refused.
    offered: u64,
    refused: u64,
    /// Connections let in per second before policing began, smoothed over about a second.
    usual_per_s: f64,
    /// Connections let in per second when the class was cut because loops or its queue were late.
    held_per_s: Option<f64>,
    /// The rate when policing last ended, and the time of that.
    good: Option<(f64, u64)>,
}

/// The reasons for which connections wait, smoothed, as multiples of what is bearable.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Strain {
    /// The lag of the loops.
    pub lag: f64,
    /// The part of the loops' time that refusals take.
    pub refusals: f64,
    /// The first class whose connections wait in their accept queue for longer than is bearable.
    pub first_queued: Option<usize>,
}

impl Strain {
    /// The rank from which on classes may be cut, if nothing but an accept queue is late.
    fn only_from(&self) -> Option<usize> {
        self.first_queued.filter(|_| self.lag <= 1.0 && self.refusals <= 1.0)
    }
}

impl Connections {
    /// No class is limited at first.
    pub fn new(classes: &[AgentClass]) -> Connections {
        let lines =
            classes.iter().map(|class| RankLine { share: class.share, ..RankLine::default() });
        let lines: Vec<_> = lines.collect();
        let rates = vec![None; lines.len()];
        Connections { rates, lines, since_ns: None, begun_per_s: 0.0 }
    }

    /// Connections per second, by rank; `None` is no limit.
    pub fn rates(&self) -> &[Option<f64>] {
        &self.rates
    }

    /// Takes over what `before` knew of its class `theirs` for class `ours`.
    pub(super) fn carry(&mut self, ours: usize, before: &Connections, theirs: usize) {
        let share = self.lines[ours].share;
        self.lines[ours] = RankLine { share, ..before.lines[theirs] };
        self.rates[ours] = before.rates[theirs];
        (self.since_ns, self.begun_per_s) = (before.since_ns, before.begun_per_s);
    }

    /// Processes the measurements of a period of `elapsed_ns`.
    pub fn tick(
        &mut self,
        elapsed_ns: f64,
        seen: &Observation<'_>,
        strain: Strain,
        is_policing: bool,
    ) {
        let now_ns = seen.now_ns;
        for (rank, line) in self.lines.iter_mut().enumerate() {
            let (came, refused) =
                (seen.class(rank).connections, seen.class(rank).connections_refused);
            line.offered = line.offered.saturating_add(came);
            line.refused = line.refused.saturating_add(refused);
            let per_s = came.saturating_sub(refused) as f64 * 1e9 / elapsed_ns;
            line.usual_per_s += (per_s - line.usual_per_s) * super::part_of(elapsed_ns, 1e9);
        }
        match (self.since_ns, is_policing) {
            (None, false) => self.forget(),
            (None, true) => self.begin(now_ns, &strain),
            (Some(_), false) => self.end(now_ns),
            (Some(since_ns), true) => {
                let period_ns = now_ns.saturating_sub(since_ns);
                if period_ns >= PERIOD_NS {
                    self.step(period_ns as f64 / 1e9, &strain);
                    self.since_ns = Some(now_ns);
                    self.forget();
                }
            }
        }
    }

    fn forget(&mut self) {
        for line in &mut self.lines {
            (line.offered, line.refused) = (0, 0);
        }
    }

    /// Begins policing with the rates that were good the last time, or with a part of what is let in.
    fn begin(&mut self, now_ns: u64, strain: &Strain) {
        for (line, rate) in self.lines.iter().zip(&mut self.rates) {
            let is_fresh = |good_ns: u64| now_ns.saturating_sub(good_ns) < GOOD_FOR_NS;
            *rate = line.good.filter(|(_, good_ns)| is_fresh(*good_ns)).map(|(rate, _)| rate);
        }
        // for a queue, the first period only measures how much is accepted from it
        if strain.only_from().is_none() && self.rates.iter().all(Option::is_none) {
            let let_in: Vec<_> = self.lines.iter().map(|line| line.usual_per_s).collect();
            self.cut(BEGIN, &let_in, None);
        }
        self.begun_per_s = self.lines.iter().map(|line| line.usual_per_s).sum();
        self.since_ns = Some(now_ns);
        self.forget();
    }

    fn end(&mut self, now_ns: u64) {
        for (line, rate) in self.lines.iter_mut().zip(&mut self.rates) {
            line.held_per_s = None;
            if let Some(rate) = rate.take() {
                line.good = Some((rate, now_ns));
            }
        }
        self.since_ns = None;
        self.forget();
    }

    fn step(&mut self, period_s: f64, strain: &Strain) {
        let let_in = |line: &RankLine| line.offered.saturating_sub(line.refused) as f64;
        let let_in: Vec<_> = self.lines.iter().map(|line| let_in(line) / period_s).collect();
        let cut = (CUT.0 * (strain.lag - 1.0)).max(CUT.1 * (strain.refusals - 1.0));
        let from = strain.only_from();
        if cut > 0.0 || from.is_some() {
            if let_in.iter().sum::<f64>() <= self.begun_per_s * LEAST {
                return;
            }
            let rank = match from {
                None => self.cut((1.0 - cut).max(0.5), &let_in, None),
                from => self.cut(BEGIN, &let_in, from),
            };
            if let Some(rank) = rank
                && (strain.lag > 1.0 || from.is_some())
            {
                let held = &mut self.lines[rank].held_per_s;
                *held = held.or(Some(let_in[rank]));
            }
            return;
        }
        for (line, rate) in self.lines.iter_mut().zip(&mut self.rates) {
            if let (Some(held), Some(rate)) = (line.held_per_s.take(), rate) {
                *rate = rate.max(held * BEGIN).min(MOST_PER_S);
            }
        }
        let more = (let_in.iter().sum::<f64>() * GROWTH).max(1.0);
        let mut lines = self.lines.iter().zip(&mut self.rates);
        if let Some((_, Some(rate))) = lines.find(|(line, _)| line.refused > 0) {
            *rate = (*rate + more).min(MOST_PER_S);
        }
    }

    /// Cuts the lowest class that has more than its floor, and returns its rank. With `from`, only classes
    /// from this rank on are cut, and only those of which connections are accepted at all.
    fn cut(&mut self, factor: f64, let_in: &[f64], from: Option<usize>) -> Option<usize> {
        let total = let_in.iter().sum::<f64>();
        for rank in (from.unwrap_or(0)..self.lines.len()).rev() {
            if from.is_some() && let_in[rank] <= 0.0 {
                continue;
            }
            let floor = (self.lines[rank].share * total).max(1.0);
            let now = self.rates[rank].unwrap_or(f64::INFINITY).min(let_in[rank].max(floor));
            if now > floor {
                self.rates[rank] = Some((now * factor).max(floor).min(MOST_PER_S));
                return Some(rank);
            }
            // this class is at its floor and stays there; the next higher one gives way
            self.rates[rank].get_or_insert(floor.min(MOST_PER_S));
        }
        None
    }
}

/// The highest rate.
const MOST_PER_S: f64 = 1e9;

#[cfg(test)]
mod tests;
