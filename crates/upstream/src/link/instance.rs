//! The state of one instance, as a link knows it.

use super::timer::InstanceTimer;
use crate::group::health::{Health, HealthSign, UpstreamCondition};
use std::collections::VecDeque;

/// The largest number of ends that are remembered for one instance.
pub(super) const MOST_ENDS: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) health: Health,
    pub(super) in_flight: u32,
    pub(super) timer: InstanceTimer,
    /// A number that grows by one each time the instance is lost.
    pub(super) epoch: u32,
    pub(super) heard_ms: u64,
    pub(super) ping: Pinged,
    pub(super) pings: u32,
    /// Whether it is doubtful that the instance lives; then it is pinged at once.
    pub(super) is_doubted: bool,
    /// A number that grows by one each time the requests under way here may be sent elsewhere without
    /// the budget.
    pub(super) losses: u32,
    /// The latest ends of its processes that were reported.
    pub(super) ends: VecDeque<InstanceEnd>,
    /// Whether the instance has answered neither a request nor a ping in time. Then pings, not
    /// requests, find out when it may be asked again.
    pub(super) is_silent: bool,
    /// How long requests have waited in the instance, as its answers say.
    pub(super) delay: AnswerDelay,
}

/// The delay of an instance: how long requests have waited there, as its answers say. The value is
/// smoothed, and loses half its weight each [`HALF_MS`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerDelay {
    smoothed_us: u64,
    told_ms: u64,
}

/// The half-life of a reported delay. An instance that gets no requests reports nothing newer, so the
/// old value fades.
const HALF_MS: u64 = 250;

impl AnswerDelay {
    /// Takes the delay that an answer has reported.
    pub(super) fn tell(&mut self, delay_ms: u64, now_ms: u64) {
        let smoothed_us = (7 * self.us(now_ms) + delay_ms.saturating_mul(1000)) / 8;
        *self = AnswerDelay { smoothed_us, told_ms: now_ms };
    }

    /// The delay, as far as it has not faded yet.
    pub(super) fn us(&self, now_ms: u64) -> u64 {
        let halves = now_ms.saturating_sub(self.told_ms) / HALF_MS;
        self.smoothed_us.checked_shr(u32::try_from(halves).unwrap_or(u32::MAX)).unwrap_or(0)
    }
}

/// How a process has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceEnd {
    pub(super) at_ms: u64,
    pub(super) was_by_itself: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pinged {
    No,
    Since(u64),
}

impl Instance {
    /// Notes that a request has failed here. If the instance was well before, its requests under way
    /// may be sent elsewhere at once.
    pub(super) fn mark(&mut self, now_ms: u64) {
        if self.health.condition() == UpstreamCondition::Well {
            self.losses = self.losses.wrapping_add(1);
        }
        self.health.told(HealthSign::Failed, now_ms);
    }

    pub(super) fn lose(&mut self, now_ms: u64) {
        self.losses = self.losses.wrapping_add(1);
        self.health.told(HealthSign::Failed, now_ms);
        self.epoch = self.epoch.wrapping_add(1);
        (self.is_doubted, self.is_silent) = (false, false);
        // the next process has a new queue
        self.delay = AnswerDelay::default();
    }

    /// As [`lose`](Instance::lose), because the instance is silent.
    pub(super) fn lose_silent(&mut self, now_ms: u64) {
        self.lose(now_ms);
        self.is_silent = true;
    }

    /// The instance's share of requests; 0 if it gets none.
    pub(super) fn share(&self, now_ms: u64) -> u16 {
        if self.is_silent { 0 } else { self.health.share(now_ms) }
    }

    /// Takes the time that an acknowledgement took. `is_of_now` is false for what was under way when
    /// the instance fell silent, which shows hardly anything of its speed.
    pub(super) fn sample(&mut self, took_ms: u64, is_of_now: bool) {
        match is_of_now && !self.is_silent {
            true => self.timer.sample(took_ms),
            false => self.timer.sample_late(took_ms),
        }
    }

    /// Until when the instance need not be pinged.
    pub(super) fn silent_until_ms(&self, idle_ms: u64, back_off_ms: u64) -> u64 {
        let patience_ms = match (self.is_doubted, self.is_silent, self.in_flight) {
            (true, ..) => 0,
            (false, true, _) => back_off_ms,
            (false, false, 0) => idle_ms,
            (false, false, _) => self.timer.ms(),
        };
        self.heard_ms.saturating_add(patience_ms)
    }

    /// The share, reduced the longer the instance's answers have waited compared with the least delay
    /// of all. A difference of one grain does not count: delays are in milliseconds, and of two equal
    /// instances one would get nearly all.
    pub(super) fn by_delay(&self, share: u16, least_us: u64, now_ms: u64) -> u16 {
        const GRAIN_US: u64 = 1000;
        let delay_us = self.delay.us(now_ms);
        let delay_us = if delay_us <= least_us + GRAIN_US { least_us } else { delay_us };
        let part = u64::from(share) * (least_us + GRAIN_US) / (delay_us + GRAIN_US);
        // the part is at most `share`, so the cast loses nothing
        (part as u16).max(1)
    }
}
