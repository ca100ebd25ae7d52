//! How many requests an application usefully has under way at once, learnt while it is asked.
//!
//! In: how many are under way, and what ended. Out: a [limit](UsefulConcurrency::limit). It is for where more requests
//! wait than the application takes: as many under way as give what there is to get, and no more, because the rest waits
//! better in the order of its classes than in the application.
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
//! An *epoch* is what is measured between two changes: it counts only if as many were under way as may be for nearly all
//! of its time, so where few requests come nothing is learnt, and nothing is limited. What goodput at that number was
//! goes to the curves ([ADR 0163](../../../docs/adr/0163-places-that-find-themselves.md)), of which some become more likely.
//! How uncertain they are decides how often the limit leaves what is held, for an epoch, to find out more.
//!
//! | file | what it holds |
//! |---|---|
//! | `curves` | how goodput may depend on what is under way, and how likely each way is |
//! | `epoch` | what is measured between two changes |
//! | [`simulation`] | applications in virtual time |

mod curves;
mod epoch;
pub mod simulation;

use curves::Curves;
use epoch::{Epoch, EpochEnd, EpochMeasures};

/// Where it begins.
const FIRST: u32 = 8;
/// So many answers are enough for an epoch, or as many as may be under way.
const ENOUGH: u32 = 24;
/// While the limit is doubled, so many, or as many as may be under way.
const ENOUGH_AT_FIRST: u32 = 16;
/// What a measurement is never more exact than, as a variance: the machine has other things to do, too.
const LEAST_VARIANCE: f64 = 1.5e-4;
/// How likely it is that less is useful than what is held. Where requests differ much it is long before the useful number
/// is known, and what is held above it has requests of high classes wait in the application: with 0.8 twice as long.
const HELD: f64 = 0.7;
/// The limit is doubled if it is as likely that more is useful: one step too many is measured for as long as it takes
/// twice as many requests to end.
const DOUBLED: f64 = 0.75;
/// How much requests differ is not known at first: as if so many had been seen that differ as much as waiting times do.
const UNKNOWN_ANSWERS: f64 = 8.0;
/// So much of goodput is given up to find out whether less would do.
const GIVEN_UP: f64 = 0.015;
/// What is held changes by no less than this factor.
const LEAST_CHANGE: f64 = 1.055;
/// So much is kept of what was known before an outage.
const KEPT: f64 = 0.5;
/// After so long without a measurement, what a request takes may be another.
const LONG_AGO_NS: u64 = 10_000_000_000;

/// How an application has answered, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerQuality {
    /// As it should.
    Good,
    /// With an error: that is no goodput, however fast it was.
    Failed,
    /// Nothing is known: the client has left.
    Unknown,
}

/// Why a limit was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// More gave more, so twice as many are tried.
    MoreGaveMore,
    /// More under way gives more.
    MoreIsUseful,
    /// Fewer give as much.
    FewerGiveAsMuch,
    /// While requests waited, nothing has ended.
    NothingEnds,
    /// More was answered with errors.
    MoreFailed,
    /// The settings or the application said so.
    Bounds,
    /// The process before this one had learnt it.
    Handed,
}

/// What is known now, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyReport {
    /// So many may be under way now.
    pub limit: u32,
    /// So many are held.
    pub held: u32,
    /// As likely as not, between these are useful: nine times in ten.
    pub likely: (u32, u32),
    /// From how many answers that was learnt.
    pub answers: u64,
    /// What was held before, why that was changed, and when.
    pub changed: Option<(u32, LimitChange, u64)>,
}

/// How many requests are useful, as far as it is known.
#[derive(Clone, Debug)]
pub struct UsefulConcurrency {
    least: u32,
    most: u32,
    curves: Curves,
    held: u32,
    limit: u32,
    under_way: u32,
    /// Until when `under_way` is accounted for.
    seen_ns: u64,
    epoch: Epoch,
    /// Measurements since the limit has left what is held.
    since_probe: u32,
    /// What may be given up of goodput of an epoch to find out whether less would do.
    owed: f64,
    /// The most that was measured lately.
    top: f64,
    /// With how many under way most answers were errors, though with fewer they were not, and when.
    failed: Option<(u32, u64)>,
    /// How much requests differ, by the epochs that have shown most.
    spread: f64,
    measured_ns: u64,
    /// When the epoch has begun.
    begun_ns: u64,
    answers: u64,
    changed: Option<(u32, LimitChange, u64)>,
}

impl UsefulConcurrency {
    /// Between `least` and `most`.
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

    /// So many may be under way now.
    #[inline]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// What is known now.
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

    /// Other bounds hold from now on. What was learnt stays.
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

    /// Begins with as many as another process has learnt, where nothing is learnt yet.
    pub fn begin_with(&mut self, held: u32, now_ns: u64) {
        if self.answers > 0 {
            return;
        }
        let held = self.within(f64::from(held));
        // as if that had been measured: it is not doubled unless more gives more
        self.top = f64::from(held);
        self.hold(held, LimitChange::Handed, now_ns);
        self.begin(held, now_ns);
    }

    /// So many are under way from now on.
    #[inline]
    pub fn under_way(&mut self, count: u32, now_ns: u64) {
        let seconds = now_ns.saturating_sub(self.seen_ns) as f64 / 1e9;
        self.epoch.passed(self.under_way, self.under_way >= self.limit, seconds);
        (self.under_way, self.seen_ns) = (count, now_ns);
    }

    /// A request has ended that took so long. Said before what is [under way](UsefulConcurrency::under_way) then.
    pub fn ended(&mut self, took_ns: u64, outcome: AnswerQuality, now_ns: u64) {
        self.under_way(self.under_way, now_ns);
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

    /// As many are under way as may be, others wait, and nothing ends: twice as many may be. Says whether that is more.
    pub fn is_stuck(&mut self, now_ns: u64) -> bool {
        let twice = self.within(2.0 * f64::from(self.limit));
        let is_more = twice > self.limit;
        if is_more {
            self.hold(twice, LimitChange::NothingEnds, now_ns);
            self.begin(twice, now_ns);
        }
        is_more
    }

    /// An epoch has ended, and the next begins.
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

    /// How many answers are enough for an epoch.
    fn enough(&self) -> u32 {
        match self.is_doubling() {
            true => self.limit.max(ENOUGH_AT_FIRST),
            false => self.limit.max(ENOUGH),
        }
    }

    /// Whether more than ever was not measured yet.
    fn is_doubling(&self) -> bool {
        f64::from(self.limit) > self.top * 1.2
    }

    /// Whether as many as may be under way now are more than were measured lately, and some were.
    fn is_new(&self) -> bool {
        self.top > 0.0 && f64::from(self.limit) > self.top
    }

    /// With more under way than were measured, most answers were errors: no more than were measured are held.
    fn more_failed(&mut self, now_ns: u64) {
        self.failed = Some((self.limit, now_ns));
        self.hold(self.held.min(self.within(self.top)), LimitChange::MoreFailed, now_ns);
    }

    /// So many or fewer, if it is not known of a moment ago that so many fail.
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
        // beyond what was measured nothing is known
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

    /// More than was measured: twice as many, or half of the way to as many as have failed.
    fn further(&self, now_ns: u64) -> f64 {
        let twice = 2.0 * self.top;
        match self.below_failed(twice, now_ns) {
            below if below < twice => (self.top * (below + 1.0)).sqrt().min(below),
            _ => twice,
        }
    }

    /// What is held, or for one epoch more or fewer, where what is useful is most likely between these.
    fn probe(&mut self, low: f64, high: f64, now_ns: u64) -> u32 {
        let held = f64::from(self.held);
        let (above, below) = ((1.12 * held).max(held + 1.0), (0.88 * held).min(held - 1.0));
        self.owed += GIVEN_UP;
        self.since_probe += 1;
        // everything below the knee tells as much, so as little is given up as may be, and no more often than that
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

/// How many epochs there are for each in which the limit is above what is held, where what is useful is most likely between
/// `low` and `high`. Where little speaks for more that is rare: requests of all classes take longer then.
fn probe_every(held: f64, low: f64, high: f64) -> u32 {
    match high / held {
        over if over < 1.08 || high < held + 0.6 => 100,
        _ if high / low < 1.2 => 16,
        _ => 4,
    }
}

#[cfg(test)]
mod tests;
