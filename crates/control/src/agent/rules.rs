//! The rates of rules, moved within the bounds that the rules state.
//!
//! Windows limit the delay of any load, but they do not distinguish between requests of a class: in a flood
//! on one URL they refuse requests for all. A rule distinguishes them, and its author has stated how far its
//! rate may go. So the signal for rates is what windows refuse, not the delay that they limit, and the two
//! never correct the same thing. With `x` as the part of the jobs of a class that windows refuse, or the
//! excess of its delay over its target, if that is more:
//!
//! ```text
//! x ≤ bearable:  r += a·R                     for rules that have refused something   (R: the rate stated)
//! else:          r *= max(1 − b·x, ½)         for the rules of the last class that have more than their least
//! ```
//!
//! - A rule is cut for its class and the classes above: requests of lower classes come after its own anyway.
//!   A rule that gives no class belongs to the last.
//! - The last class gives way first, as everywhere.
//! - Rates are cut only during overload, and only those of rules that have let requests in meanwhile.
//! - A rate that is not used up says nothing about the load. It returns to the stated rate.
//!
//! Rates move once in [`PERIOD_NS`], which is twenty times as long as windows need, so that windows have
//! adapted to a move before the next one.

use super::{AgentClass, Observation};

/// The time between two moves, in nanoseconds.
pub const PERIOD_NS: u64 = 200_000_000;
/// `a` and `b` in the formula above.
const GROWTH: f64 = 0.02;
const CUT: f64 = 0.5;
/// The part of a class's jobs that windows may refuse in a period before a rate is cut: bursts cause that
/// much.
const BEARABLE: f64 = 0.02;
/// The smallest part to which a rate is cut at once.
const LEAST_CUT: f64 = 0.5;

/// A rule whose rate may be moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Movable {
    /// The rank of the class of its requests; that of the last class, if the rule gives none.
    pub rank: u8,
    /// The rate that the rule states, per second.
    pub stated_per_s: f64,
    /// The lowest rate it may have.
    pub least_per_s: f64,
    /// The highest rate it may have.
    pub most_per_s: f64,
    /// The present rate.
    pub now_per_s: f64,
}

/// The measurements of such a rule in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenRule {
    /// Requests that the rule has decided about.
    pub matched: u64,
    /// Requests among these that the rule has refused.
    pub refused: u64,
}

/// The rates of all rules that may be moved.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Movable>,
    /// The measurements of each rule since the last move.
    seen: Vec<SeenRule>,
    /// For each class: jobs that arrived, jobs that windows refused, and the sum of its excesses over its
    /// target.
    classes: Vec<(u64, u64, f64)>,
    rates: Vec<f64>,
    since_ns: Option<u64>,
    periods: u32,
}

impl Rules {
    /// Rates that begin where each rule's rate is now.
    pub fn new(classes: &[AgentClass], rules: Vec<Movable>) -> Rules {
        Rules {
            seen: vec![SeenRule::default(); rules.len()],
            rates: rules.iter().map(|rule| rule.now_per_s).collect(),
            classes: vec![(0, 0, 0.0); classes.len()],
            rules,
            since_ns: None,
            periods: 0,
        }
    }

    /// The rates per second, in the order of the rules.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Processes the measurements of a period. `excess` gives the excess of a class over its target, as a
    /// part of the target.
    pub fn tick(
        &mut self,
        seen: &Observation<'_>,
        excess: impl Fn(usize) -> f64,
        is_overload: bool,
    ) {
        if self.rules.is_empty() {
            return;
        }
        for (sum, now) in self.seen.iter_mut().zip(seen.rules) {
            sum.matched = sum.matched.saturating_add(now.matched);
            sum.refused = sum.refused.saturating_add(now.refused);
        }
        for (rank, (offered, refused, above)) in self.classes.iter_mut().enumerate() {
            let class = seen.class(rank);
            *offered = offered.saturating_add(class.offered);
            *refused = refused.saturating_add(class.refused);
            *above += excess(rank);
        }
        self.periods = self.periods.saturating_add(1);
        let since_ns = *self.since_ns.get_or_insert(seen.now_ns);
        if seen.now_ns.saturating_sub(since_ns) >= PERIOD_NS {
            self.step(is_overload);
            self.since_ns = Some(seen.now_ns);
            self.periods = 0;
            self.seen.fill(SeenRule::default());
            self.classes.fill((0, 0, 0.0));
        }
    }

    fn step(&mut self, is_overload: bool) {
        let pressures = self.pressures();
        let pressure = |rule: &Movable| {
            let rank = usize::from(rule.rank).min(pressures.len().saturating_sub(1));
            pressures.get(rank).copied().unwrap_or(0.0)
        };
        let lets_in = |seen: &SeenRule| seen.matched > seen.refused;
        let may_fall = |((rule, seen), rate): ((&Movable, &SeenRule), &f64)| {
            let may = lets_in(seen) && pressure(rule) > BEARABLE && *rate > rule.least_per_s;
            may.then_some(rule.rank)
        };
        let each = self.rules.iter().zip(&self.seen).zip(&self.rates);
        let last = each.filter_map(may_fall).max().filter(|_| is_overload);
        for ((rule, seen), rate) in self.rules.iter().zip(&self.seen).zip(&mut self.rates) {
            let step = GROWTH * rule.stated_per_s;
            let pressure = pressure(rule);
            let moved = match last {
                Some(rank) if rank == rule.rank && pressure > BEARABLE && lets_in(seen) => {
                    *rate * (1.0 - CUT * pressure).max(LEAST_CUT)
                }
                _ if pressure > BEARABLE => *rate,
                _ if seen.refused > 0 => *rate + step,
                _ if *rate > rule.stated_per_s => (*rate - step).max(rule.stated_per_s),
                _ => (*rate + step).min(rule.stated_per_s),
            };
            // bounds that are NaN do not limit anything
            *rate = moved.min(rule.most_per_s).max(rule.least_per_s);
        }
    }

    /// By rank, the largest pressure on this class and those above it.
    fn pressures(&self) -> Vec<f64> {
        let periods = f64::from(self.periods.max(1));
        let of_class = |(offered, refused, above): &(u64, u64, f64)| {
            let refused = *refused as f64 / (*offered).max(1) as f64;
            let above = above / periods;
            let above = if above.is_finite() { above } else { 0.0 };
            refused.min(1.0).max(above)
        };
        let worst = |worst: &mut f64, of: f64| {
            *worst = worst.max(of);
            Some(*worst)
        };
        self.classes.iter().map(of_class).scan(0.0, worst).collect()
    }
}

#[cfg(test)]
mod tests;
