//! How many connections per second each class may begin, while refusing requests does not suffice.
//!
//! Windows keep the delay of *workers*; they cannot help when the loops themselves come late, or when
//! refusals take the time that answers need, or when connections wait in the kernel because none of the
//! threads is free to accept them. That is what connection rates are for, and for nothing
//! else: the two never correct the same delay. With `lag` and `refusals` as multiples of what is bearable,
//! and `queue` where connections of a class wait for longer than that in the accept queue that the kernel keeps
//! for it,
//!
//! ```text
//! none:        r += a·R   for the first class that was refused connections   (R: all let in, per second)
//! only queue:  r = 0.9·min(r, let in)   for the lowest class above its floor, from the first that waits on
//! else:        r *= max(1 − max(b·(lag − 1), c·(refusals − 1)), ½)   for the lowest class above its floor
//! ```
//!
//! Who waits in a queue is accepted before those of classes below, so it is these that give way, and itself. While a
//! queue stands, what is let in is what threads can take; how long it has become says little about a rate. A class
//! of which nothing is accepted has no rate: none would change that, and all who wait would be refused later.
//!
//! What is let in while loops are late is what they can do, so a class that was cut until they had
//! caught up goes on at nine tenths of that. Lag adds up while a rate is too high by a little, so it says little about how much; what refusals
//! take is in proportion to the rate. Hence two constants.
//!
//! Loops may be late for reasons that no connection has brought: other programs take the cores. So all
//! classes together are never cut below a quarter of what was let in when policing began.
//!
//! A floor is the class's share of all connections let in, and one per second. Rates move once per
//! [`PERIOD_NS`] at most: a client whose SYN was dropped comes back after a second, and only then can be
//! seen what a rate does. A rate that was good when policing ended is where it begins the next time.

use super::{AgentClass, Observation};

/// The least time between two moves, in nanoseconds.
pub const PERIOD_NS: u64 = 1_500_000_000;
/// `a`.
const GROWTH: f64 = 0.03;
/// `b` and `c`. With 50 ms as what is bearable, `b` takes back in two periods a lag that a rate has
/// built up in one.
const CUT: (f64, f64) = (0.03, 0.5);
/// No cut follows when no more than this part of what was let in at first is let in.
const LEAST: f64 = 0.25;
/// Where nothing better is known, policing begins with this part of what is let in.
const BEGIN: f64 = 0.9;
/// Rates that were good are as good as new for so long.
const GOOD_FOR_NS: u64 = 600_000_000_000;

/// The rates of all classes.
#[derive(Clone, Debug)]
pub struct Connections {
    lines: Vec<RankLine>,
    rates: Vec<Option<f64>>,
    /// Since when this period has been watched; `None` while nothing is policed.
    since_ns: Option<u64>,
    /// All connections let in per second when policing began.
    begun_per_s: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct RankLine {
    share: f64,
    /// Connections that came in this period, and those of them that were refused.
    offered: u64,
    refused: u64,
    /// Let in per second before policing began, smoothed over about a second.
    usual_per_s: f64,
    /// Let in per second when it was cut because loops were late.
    held_per_s: Option<f64>,
    /// The rate when policing last ended, and when.
    good: Option<(f64, u64)>,
}

/// What connections wait for. Multiples of what is bearable, smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Strain {
    /// How late loops come.
    pub lag: f64,
    /// What refusals take of the loops' time.
    pub refusals: f64,
    /// The first class whose connections wait in their accept queue for longer than is bearable.
    pub first_queued: Option<usize>,
}

impl Strain {
    /// Which classes may be cut: those from this rank on, if only their queue is late.
    fn only_from(&self) -> Option<usize> {
        self.first_queued.filter(|_| self.lag <= 1.0 && self.refusals <= 1.0)
    }
}

impl Connections {
    /// Nothing is limited.
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

    /// Takes over what `before` knew of class `theirs` for class `ours`.
    pub(super) fn carry(&mut self, ours: usize, before: &Connections, theirs: usize) {
        let share = self.lines[ours].share;
        self.lines[ours] = RankLine { share, ..before.lines[theirs] };
        self.rates[ours] = before.rates[theirs];
        (self.since_ns, self.begun_per_s) = (before.since_ns, before.begun_per_s);
    }

    /// Takes in a period of `elapsed_ns`.
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

    /// From the rates that were good the last time, or from what is let in.
    fn begin(&mut self, now_ns: u64, strain: &Strain) {
        for (line, rate) in self.lines.iter().zip(&mut self.rates) {
            let is_fresh = |good_ns: u64| now_ns.saturating_sub(good_ns) < GOOD_FOR_NS;
            *rate = line.good.filter(|(_, good_ns)| is_fresh(*good_ns)).map(|(rate, _)| rate);
        }
        // of a queue is first seen how much is accepted from it
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

    /// Cuts the lowest class that has more than its floor, and says which: of all of them, or, `from` a rank
    /// on, of those that are accepted at all.
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
            // at its floor: the next one up gives way, and this one stays there
            self.rates[rank].get_or_insert(floor.min(MOST_PER_S));
        }
        None
    }
}

/// No rate exceeds this.
const MOST_PER_S: f64 = 1e9;

#[cfg(test)]
mod tests;
