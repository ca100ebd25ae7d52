//! The agent's limits for requests that wait for applications: each group of upstreams has windows
//! of its own, one for each class, by the same law as those for cores. The places of the group
//! stand for cores; the time for which an upstream is busy with a request stands for processor
//! time; the delay is that of the queue.

use forebay_control::agent::windows::{Constants, Windows};
use forebay_control::agent::{AgentClass, Limits, Observation, Seen};
use forebay_upstream::queue::QueueCounts;
use forebay_upstream::upstreams::Upstreams;
use std::sync::{Arc, Weak};

/// The windows of all groups of upstreams; only groups with a bound are limited.
#[derive(Default)]
pub(super) struct Queues {
    classes: Vec<AgentClass>,
    each: Vec<Queue>,
    last_ns: Option<u64>,
}

struct Queue {
    upstreams: Weak<Upstreams>,
    windows: Windows,
    /// The counts at the last look, by rank; below them, how long the requests that began last had
    /// waited.
    counted: Vec<QueueCounts>,
    delays_ns: Vec<u64>,
    /// When a request of each class was refused last, by rank.
    refused_ns: Vec<Option<u64>>,
}

impl Queue {
    fn new(upstreams: &Arc<Upstreams>, classes: &[AgentClass]) -> Queue {
        let counts = |rank| upstreams.counts(rank as u8);
        Queue {
            upstreams: Arc::downgrade(upstreams),
            windows: Windows::new(classes, Constants::default()),
            counted: (0..classes.len()).map(counts).collect(),
            delays_ns: vec![0; classes.len()],
            refused_ns: vec![None; classes.len()],
        }
    }
}

impl Queues {
    /// Takes over these classes and applications. Groups that stay keep what is known of them.
    pub(super) fn take_over<'u>(
        &mut self,
        classes: Vec<AgentClass>,
        upstreams: impl Iterator<Item = &'u Arc<Upstreams>>,
    ) {
        if self.classes != classes {
            self.lift();
            (self.each, self.classes) = (Vec::new(), classes);
        }
        let mut before = std::mem::take(&mut self.each);
        for upstreams in upstreams {
            let known =
                before.iter().position(|one| one.upstreams.as_ptr() == Arc::as_ptr(upstreams));
            self.each.push(match known {
                Some(at) => before.swap_remove(at),
                None => Queue::new(upstreams, &self.classes),
            });
        }
        before.iter().for_each(|one| one.limit(&[]));
    }

    /// Observes all groups and, with `limits`, puts the limits that follow in force. Returns the
    /// first class that waits for longer than it should or was refused.
    pub(super) fn step(&mut self, now_ns: u64, limits: bool) -> Option<u8> {
        let since_ns = self.last_ns.replace(now_ns).map(|last_ns| now_ns.saturating_sub(last_ns));
        let elapsed_ns = (since_ns.unwrap_or(FIRST_NS) as f64).clamp(1.0, 1e9);
        let targets: Vec<u64> = self.classes.iter().map(|class| class.target_ns).collect();
        let step = |queue: &mut Queue| queue.step(now_ns, elapsed_ns, limits, &targets);
        self.each.iter_mut().filter_map(step).min()
    }

    /// Lifts all limits.
    pub(super) fn lift(&self) {
        self.each.iter().for_each(|queue| queue.limit(&[]));
    }
}

/// How long a class counts as refused after a refusal.
const REFUSED_NS: u64 = 100_000_000;

/// The length that the first period is assumed to have.
const FIRST_NS: u64 = 10_000_000;

impl Queue {
    fn step(&mut self, now_ns: u64, elapsed_ns: f64, limits: bool, targets: &[u64]) -> Option<u8> {
        let upstreams = self.upstreams.upgrade()?;
        let Some(places) = upstreams.places_at_once() else {
            self.limit(&[]);
            return None;
        };
        let classes: Vec<Seen> = (0..self.counted.len())
            .map(|rank| {
                let (now, oldest_ns) =
                    (upstreams.counts(rank as u8), upstreams.waits_since(rank as u8));
                let before = std::mem::replace(&mut self.counted[rank], now);
                let oldest_ns = oldest_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
                difference(&now, &before, oldest_ns, &mut self.delays_ns[rank])
            })
            .collect();
        let seen = Observation {
            now_ns,
            cores: places,
            threads: places,
            classes: &classes,
            ..Observation::default()
        };
        match limits {
            true => {
                self.windows.tick(elapsed_ns, &seen);
                self.limit(self.windows.limits());
            }
            false => self.limit(&[]),
        }
        for (refused_ns, class) in self.refused_ns.iter_mut().zip(&classes) {
            if class.refused > 0 {
                *refused_ns = Some(now_ns);
            }
        }
        let is_late = |rank: usize| {
            let is_recent = |since_ns: u64| now_ns.saturating_sub(since_ns) < REFUSED_NS;
            classes[rank].delay_ns > targets[rank] || self.refused_ns[rank].is_some_and(is_recent)
        };
        (0..classes.len().min(targets.len())).find(|rank| is_late(*rank)).map(|rank| rank as u8)
    }

    /// Puts these limits in force; a class without an entry is not limited.
    fn limit(&self, limits: &[Limits]) {
        let Some(upstreams) = self.upstreams.upgrade() else { return };
        for rank in 0..self.counted.len() {
            let limits = limits.get(rank).copied().unwrap_or_default();
            upstreams.limit(rank as u8, limits.most, limits.retry_after_s);
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.lift();
    }
}

/// What a queue has seen since `before`. `delay_ns` is how long the requests waited that began
/// last. While some wait and none has begun, nothing newer is known except that the oldest has
/// waited for `oldest_ns`. Once none waits, the delay is over, however long the requests under way
/// may take.
fn difference(now: &QueueCounts, before: &QueueCounts, oldest_ns: u64, delay_ns: &mut u64) -> Seen {
    let since = |now: u64, before: u64| now.saturating_sub(before);
    let began = since(now.began, before.began);
    if began > 0 || now.waiting == 0 {
        *delay_ns = since(now.waited_ns, before.waited_ns).checked_div(began).unwrap_or(0);
    }
    Seen {
        offered: since(now.offered, before.offered),
        refused: since(now.refused, before.refused),
        finished: since(now.finished, before.finished),
        busy_ns: since(now.busy_ns, before.busy_ns),
        unfinished: now.unfinished,
        running: now.unfinished.saturating_sub(now.waiting),
        delay_ns: (*delay_ns).max(oldest_ns),
        ..Seen::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_wait_that_is_over_is_no_delay_of_what_is_under_way() {
        let mut delay_ns = 0;
        let mut before = QueueCounts::default();
        let mut period = |began, waited_ns, unfinished, waiting, oldest_ns| {
            let now = QueueCounts { began, waited_ns, unfinished, waiting, ..before };
            let seen = difference(&now, &before, oldest_ns, &mut delay_ns);
            before = now;
            (seen.delay_ns, seen.running)
        };
        assert_eq!(period(4, 0, 5, 1, 10 * MS), (10 * MS, 4));
        assert_eq!(period(5, 220 * MS, 2, 0, 0), (220 * MS, 2), "the last has begun");
        assert_eq!(period(5, 220 * MS, 1, 0, 0), (0, 1), "it is under way, and none waits");
        assert_eq!(period(5, 220 * MS, 2, 1, 30 * MS), (30 * MS, 1));
    }
}
