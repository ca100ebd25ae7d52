//! The number of requests that an application usefully has under way at once, learned from its answers.
//!
//! In: how many requests are under way, and how each one ended. Out: a [limit](UsefulConcurrency::limit). It
//! matters where more requests wait than the application can serve. The limit lets as many under way as raise
//! goodput, and no more, because the others wait better in the order of their classes than inside the
//! application.
//!
//! ```text
//!  limit   ┌─ doubled while that gives more
//!    │     │        ┌─ above: whether more is useful now
//!    │   ┌─┘  ┌─────┘  └──┐      held, where curves say that more gives next to nothing
//!    │ ┌─┘    │           └──┐  ┌─────
//!    │─┘      │              └──┘  below: whether less would do
//!    └──────────────────────────────── time, in epochs
//! ```
//!
//! An *epoch* is the measurement between two changes of the limit. It counts only if the limit was reached
//! for nearly all of its time: where few requests arrive nothing is learned, and nothing is limited. The
//! goodput measured in an epoch goes to the curves ([ADR
//! 0163](../../../docs/adr/0163-places-that-find-themselves.md)), of which some become more likely. How
//! uncertain they are decides how often the limit leaves the held number for an epoch, to find out more.
//!
//! | file | what it holds |
//! |---|---|
//! | `curves` | how goodput may depend on the number under way, and how likely each way is |
//! | `epoch` | the measurement between two changes of the limit |
//! | [`simulation`] | applications in virtual time |

mod curves;
mod epoch;
pub mod simulation;

use curves::Curves;
use epoch::{Epoch, EpochEnd, EpochMeasures};

/// The limit at the start.
const FIRST: u32 = 8;
/// The answers that are enough for an epoch; the limit, if that is more.
const ENOUGH: u32 = 24;
/// The answers that are enough while the limit is doubled; the limit, if that is more.
const ENOUGH_AT_FIRST: u32 = 16;
/// The least variance that is assumed for a measurement: the machine has other things to do, too.
const LEAST_VARIANCE: f64 = 1.5e-4;
/// The probability, among the curves, that no more than the held number is useful. Where requests differ
/// much, the useful number is known late, and while the held one is above it, requests of high classes wait
/// in the application: with 0.8 twice as long.
const HELD: f64 = 0.7;
/// The probability that more is useful, from which on the limit is doubled. A step too many lasts until twice
/// as many requests have ended.
const DOUBLED: f64 = 0.75;
/// The weight, in answers, of the first guess of how much requests differ: they are assumed to differ as much
/// as waiting times do.
const UNKNOWN_ANSWERS: f64 = 8.0;
/// The part of goodput that may be lost to finding out whether less would do.
const GIVEN_UP: f64 = 0.015;
/// The smallest factor by which the held number changes.
const LEAST_CHANGE: f64 = 1.055;
/// The part of what was learned that is kept after an outage.
const KEPT: f64 = 0.5;
/// The time without a measurement after which the duration of a request is no longer taken as known.
const LONG_AGO_NS: u64 = 10_000_000_000;

/// The kind of answer that an application has given, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerQuality {
    /// A good answer.
    Good,
    /// An error. It is no goodput, however fast it was.
    Failed,
    /// Unknown, because the client has left.
    Unknown,
}

/// Why the held number was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// More under way gave more goodput, so twice as many are tried.
    MoreGaveMore,
    /// A higher number gives more goodput.
    MoreIsUseful,
    /// A lower number gives as much goodput.
    FewerGiveAsMuch,
    /// No request has ended while others waited.
    NothingEnds,
    /// With more under way, most answers were errors.
    MoreFailed,
    /// The settings or the application's own limit demanded it.
    Bounds,
    /// The process before this one had learned it.
    Handed,
}

/// The present knowledge, for the operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyReport {
    /// The present limit.
    pub limit: u32,
    /// The number that is held: the limit, apart from single epochs in which another is tried.
    pub held: u32,
    /// The range in which the useful number lies with a probability of nine tenths.
    pub likely: (u32, u32),
    /// The number of answers from which that was learned.
    pub answers: u64,
    /// The number held before, the reason for the last change, and its time.
    pub changed: Option<(u32, LimitChange, u64)>,
}

/// The state of learning how many requests are useful.
#[derive(Clone, Debug)]
pub struct UsefulConcurrency {
    least: u32,
    most: u32,
    curves: Curves,
    held: u32,
    limit: u32,
    under_way: u32,
    /// The time up to which `under_way` is accounted for.
    seen_ns: u64,
    epoch: Epoch,
    /// The number of measurements since the limit was last above the held number.
    since_probe: u32,
    /// The goodput that may be given up in an epoch to find out whether less would do, as a part of the
    /// whole.
    owed: f64,
    /// The largest number that was measured lately.
    top: f64,
    /// The number with which most answers were errors, though with fewer they were not, and the time of that.
    failed: Option<(u32, u64)>,
    /// How much requests differ, from the epochs that showed most.
    spread: f64,
    measured_ns: u64,
    /// The beginning of the epoch.
    begun_ns: u64,
    answers: u64,
    changed: Option<(u32, LimitChange, u64)>,
}

impl UsefulConcurrency {
    /// A limit between `least` and `most`.
    pub fn new(least: u32, most: u32, now_ns: u64) -> UsefulConcurrency {
        let most = most.max(1);
        let least = least.clamp(1, most);
        let first = FIRST.clamp(least, most);
        UsefulConcurrency {
            least,
            most,
            curves: Curves::new(most),
            held: first,
            limit: first,
            under_way: 0,
            seen_ns: now_ns,
            epoch: Epoch::new(first, now_ns),
            since_probe: 0,
            owed: 0.0,
            top: 0.0,
            failed: None,
            spread: 0.5,
            measured_ns: now_ns,
            begun_ns: now_ns,
            answers: 0,
            changed: None,
        }
    }

    /// The number of requests that may be under way now.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The present knowledge.
    pub fn report(&self) -> ConcurrencyReport {
        let [low, high] = self.curves.useful([0.05, 0.95]);
        ConcurrencyReport {
            limit: self.limit,
            held: self.held,
            likely: (self.within(low), self.within(high)),
            answers: self.answers,
            changed: self.changed,
        }
    }

    /// Sets other bounds. What was learned stays, unless `most` has grown.
    pub fn set_bounds(&mut self, least: u32, most: u32, now_ns: u64) {
        let most = most.max(1);
        let least = least.clamp(1, most);
        if (least, most) == (self.least, self.most) {
            return;
        }
        if most > self.most {
            self.curves = Curves::new(most);
            self.top = 0.0;
            self.failed = None;
        }
        (self.least, self.most) = (least, most);
        self.hold(self.held.clamp(least, most), LimitChange::Bounds, now_ns);
        self.begin(self.held, now_ns);
    }

    /// Starts with the number that another process has learned, unless this one has measured something
    /// already.
    pub fn begin_with(&mut self, held: u32, now_ns: u64) {
        if self.answers > 0 {
            return;
        }
        let held = self.within(f64::from(held));
        // as if this number had been measured: it is doubled only if more gives more
        self.top = f64::from(held);
        self.hold(held, LimitChange::Handed, now_ns);
        self.begin(held, now_ns);
    }

    /// Sets the number of requests that are under way from now on.
    #[inline]
    pub fn under_way(&mut self, count: u32, now_ns: u64) {
        let seconds = now_ns.saturating_sub(self.seen_ns) as f64 / 1e9;
        self.epoch.passed(self.under_way, self.under_way >= self.limit, seconds);
        (self.under_way, self.seen_ns) = (count, now_ns);
    }

    /// Records that a request has ended after `took_ns`. Called before
    /// [`under_way`](UsefulConcurrency::under_way) with the number that remains.
    pub fn ended(&mut self, took_ns: u64, outcome: AnswerQuality, now_ns: u64) {
        self.under_way(self.under_way, now_ns);
        // before this request is recorded: the epoch must not end between requests that end together
        if let Some(end) = self.epoch.end(self.enough(), self.is_new(), now_ns) {
            self.turn(end, now_ns);
        }
        let is_good = match outcome {
            AnswerQuality::Good => Some(true),
            AnswerQuality::Failed => Some(false),
            AnswerQuality::Unknown => None,
        };
        self.epoch.ended(took_ns as f64 / 1e9, is_good, now_ns);
    }

    /// Doubles the limit, because it is reached, others wait, and none ends. Returns whether the limit could
    /// grow.
    pub fn is_stuck(&mut self, now_ns: u64) -> bool {
        let twice = self.within(2.0 * f64::from(self.limit));
        let is_more = twice > self.limit;
        if is_more {
            self.hold(twice, LimitChange::NothingEnds, now_ns);
            self.begin(twice, now_ns);
        }
        is_more
    }

    /// Evaluates an epoch that has ended, and begins the next.
    fn turn(&mut self, end: EpochEnd, now_ns: u64) {
        match end {
            EpochEnd::Measured(measured) => self.learn(measured, now_ns),
            EpochEnd::Unbound => {}
            EpochEnd::Failing if self.is_new() => self.more_failed(now_ns),
            EpochEnd::Failing => self.curves.interrupted(KEPT),
        }
        let next = match end {
            EpochEnd::Measured(_) => self.next(now_ns),
            EpochEnd::Unbound | EpochEnd::Failing => self.held,
        };
        self.begin(next, now_ns);
    }

    /// The number of answers that is enough for the epoch.
    fn enough(&self) -> u32 {
        match self.is_doubling() {
            true => self.limit.max(ENOUGH_AT_FIRST),
            false => self.limit.max(ENOUGH),
        }
    }

    /// Whether the limit is clearly above all numbers measured so far.
    fn is_doubling(&self) -> bool {
        f64::from(self.limit) > self.top * 1.2
    }

    /// Whether the limit is above what was measured lately, and something was.
    fn is_new(&self) -> bool {
        self.top > 0.0 && f64::from(self.limit) > self.top
    }

    /// Notes that with more under way than were measured before most answers were errors, and holds no more
    /// than were measured.
    fn more_failed(&mut self, now_ns: u64) {
        self.failed = Some((self.limit, now_ns));
        self.hold(self.held.min(self.within(self.top)), LimitChange::MoreFailed, now_ns);
    }

    /// Reduces `count` to below the number that has failed, if that was a moment ago.
    fn below_failed(&self, count: f64, now_ns: u64) -> f64 {
        match self.failed {
            Some((failed, ns)) if now_ns.saturating_sub(ns) < LONG_AGO_NS => {
                count.min(f64::from(failed) - 1.0)
            }
            _ => count,
        }
    }

    fn learn(&mut self, measured: EpochMeasures, now_ns: u64) {
        if self.begun_ns.saturating_sub(self.measured_ns) > LONG_AGO_NS && self.answers > 0 {
            self.curves.interrupted(1.0);
        }
        self.measured_ns = now_ns;
        self.answers += u64::from(measured.answers);
        let answers = f64::from(measured.answers);
        let known = (measured.spread * answers + self.spread * UNKNOWN_ANSWERS)
            / (answers + UNKNOWN_ANSWERS);
        self.spread = measured.spread.max(known);
        let variance = 2.0 * self.spread / answers + LEAST_VARIANCE;
        self.curves.measured(measured.under_way, measured.ln_goodput, variance);
        self.top = f64::from(self.limit).max(0.9 * self.top);
    }

    /// The limit of the next epoch.
    fn next(&mut self, now_ns: u64) -> u32 {
        let [low, least, useful, high] = self.curves.useful([0.05, 1.0 - DOUBLED, HELD, 0.95]);
        if least > 1.2 * self.top {
            let twice = self.within(self.further(now_ns).min(useful)).max(self.held);
            self.hold(twice, LimitChange::MoreGaveMore, now_ns);
            return twice;
        }
        // nothing is known above the measured numbers
        let useful = self.within(useful.min(self.top.max(f64::from(self.held))));
        let factor = f64::from(useful) / f64::from(self.held);
        if factor >= LEAST_CHANGE {
            self.hold(useful, LimitChange::MoreIsUseful, now_ns);
        } else if factor <= 1.0 / LEAST_CHANGE {
            let useful = useful.max(self.held / 2);
            self.hold(useful, LimitChange::FewerGiveAsMuch, now_ns);
        }
        self.probe(low, high, now_ns)
    }

    /// A number above the measured ones: twice as many, or half of the way to the number that has failed.
    fn further(&self, now_ns: u64) -> f64 {
        let twice = 2.0 * self.top;
        match self.below_failed(twice, now_ns) {
            below if below < twice => (self.top * (below + 1.0)).sqrt().min(below),
            _ => twice,
        }
    }

    /// The limit of the next epoch: the held number or, now and then, more or fewer. `low` and `high` are the
    /// bounds of where the useful number most likely lies.
    fn probe(&mut self, low: f64, high: f64, now_ns: u64) -> u32 {
        let held = f64::from(self.held);
        let (above, below) = ((1.12 * held).max(held + 1.0), (0.88 * held).min(held - 1.0));
        self.owed += GIVEN_UP;
        self.since_probe += 1;
        // any number below the knee shows equally well whether less would do, so as little goodput is given
        // up as possible, and only as often as the budget allows
        let given_up = 1.0 - below / held;
        if self.owed >= given_up && below >= f64::from(self.least) {
            self.owed = 0.0;
            return self.within(below);
        }
        if self.since_probe >= probe_every(held, low, high) {
            self.since_probe = 0;
            return self.within(self.below_failed(above, now_ns).max(held));
        }
        self.held
    }

    fn hold(&mut self, held: u32, why: LimitChange, now_ns: u64) {
        if held != self.held {
            self.changed = Some((self.held, why, now_ns));
            self.held = held;
        }
    }

    fn begin(&mut self, limit: u32, now_ns: u64) {
        (self.limit, self.begun_ns) = (limit, now_ns);
        self.epoch = Epoch::new(limit.max(self.under_way), now_ns);
    }

    fn within(&self, count: f64) -> u32 {
        (count.round() as u32).clamp(self.least, self.most)
    }
}

/// After how many epochs the limit is tried above the held number, if the useful number most likely lies
/// between `low` and `high`. Where little suggests that more is useful, that is rare, because all requests
/// take longer in such an epoch.
fn probe_every(held: f64, low: f64, high: f64) -> u32 {
    match high / held {
        over if over < 1.08 || high < held + 0.6 => 100,
        _ if high / low < 1.2 => 16,
        _ => 4,
    }
}

#[cfg(test)]
mod tests;
