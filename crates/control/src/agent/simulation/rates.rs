//! Rates without windows, for comparison.

use crate::agent::{Agent, AgentClass, AgentDecision, Limits, Observation};

/// An agent with admission rates by SEDA's law, and nothing else. Per class and second, `r += a·w`
/// while the delay is at or below the target and the load uses the rate, and `r *= max(1 − b·(d −
/// T)/T, ½)` above it; the lowest class is cut first, and none below its share.
#[derive(Clone, Debug)]
pub struct Rates {
    classes: Vec<AgentClass>,
    /// `a·w`, as a part of the requests that the whole machine finishes, per period.
    pub growth: f64,
    /// `b`.
    pub cut: f64,
    rates: Vec<Option<f64>>,
    /// Requests finished per second, smoothed.
    finished: Vec<f64>,
    last_ns: u64,
    decision: AgentDecision,
}

impl Rates {
    /// An agent that limits nothing until a delay is above its target.
    pub fn new(classes: Vec<AgentClass>, growth: f64, cut: f64) -> Rates {
        let count = classes.len();
        Rates {
            classes,
            growth,
            cut,
            rates: vec![None; count],
            finished: vec![0.0; count],
            last_ns: 0,
            decision: AgentDecision {
                limits: vec![Limits::default(); count],
                ..AgentDecision::default()
            },
        }
    }
}

impl Agent for Rates {
    fn tick(&mut self, seen: &Observation<'_>) -> &AgentDecision {
        let classes = seen.classes;
        let elapsed_s = (seen.now_ns.saturating_sub(self.last_ns) as f64 / 1e9).max(1e-6);
        self.last_ns = seen.now_ns;
        let part = 1.0 - (-elapsed_s / 0.2).exp();
        for (finished, seen) in self.finished.iter_mut().zip(classes) {
            *finished += (seen.finished as f64 / elapsed_s - *finished) * part;
        }
        let total = self.finished.iter().sum::<f64>().max(1.0);
        let floors: Vec<_> = self.classes.iter().map(|class| class.share * total).collect();
        for (rank, seen) in classes.iter().enumerate() {
            let target_ns = self.classes[rank].target_ns as f64;
            let excess = (seen.delay_ns as f64 - target_ns) / target_ns;
            if excess > 0.0 {
                let uses = |lower: &usize| self.finished[*lower] > floors[*lower] * 1.1 + 1.0;
                let whose = (rank + 1..self.classes.len()).rev().find(uses).unwrap_or(rank);
                let rate = self.rates[whose].unwrap_or(self.finished[whose].max(1.0));
                let factor = (1.0 - self.cut * excess).max(0.5);
                self.rates[whose] = Some((rate * factor).max(floors[whose]).max(1.0));
            } else if let Some(rate) = &mut self.rates[rank]
                && seen.refused > 0
            {
                *rate += self.growth * total;
            }
        }
        for (limits, rate) in self.decision.limits.iter_mut().zip(&self.rates) {
            limits.per_s = *rate;
        }
        &self.decision
    }
}
