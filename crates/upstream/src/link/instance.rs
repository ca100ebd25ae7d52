//! What a link knows of one instance.

use super::timer::InstanceTimer;
use crate::group::health::{Health, HealthSign, UpstreamCondition};
use std::collections::VecDeque;

/// So many ends of one instance are remembered.
pub(super) const MOST_ENDS: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) health: Health,
    pub(super) in_flight: u32,
    pub(super) timer: InstanceTimer,
    /// One more each time it is lost.
    pub(super) epoch: u32,
    pub(super) heard_ms: u64,
    pub(super) ping: Pinged,
    pub(super) pings: u32,
    /// It is in doubt whether it lives: it is pinged at once.
    pub(super) is_doubted: bool,
    /// One more each time that what it has under way is admitted elsewhere.
    pub(super) losses: u32,
    /// The latest that were told of.
    pub(super) ends: VecDeque<InstanceEnd>,
    /// It has answered neither a request nor a ping in time: pings say when it may be asked again, not requests.
    pub(super) is_silent: bool,
    /// What its answers say they have waited.
    pub(super) delay: AnswerDelay,
}

/// How long requests have waited in an instance, as its answers say: smoothed, and forgotten by half in [`HALF_MS`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerDelay {
    smoothed_us: u64,
    told_ms: u64,
}

/// An instance that is asked for nothing says nothing newer of itself, so what it has said loses its weight by time.
const HALF_MS: u64 = 250;

impl AnswerDelay {
    /// An answer has said it.
    pub(super) fn tell(&mut self, delay_ms: u64, now_ms: u64) {
        let smoothed_us = (7 * self.us(now_ms) + delay_ms.saturating_mul(1000)) / 8;
        *self = AnswerDelay { smoothed_us, told_ms: now_ms };
    }

    /// What is left of it now.
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
    /// A request has failed there. If that is news, what it has under way may be sent elsewhere at once.
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
        // what comes back has another queue
        self.delay = AnswerDelay::default();
    }

    /// The same because it is silent.
    pub(super) fn lose_silent(&mut self, now_ms: u64) {
        self.lose(now_ms);
        self.is_silent = true;
    }

    /// Its share of requests; 0 if it is not to be asked.
    pub(super) fn share(&self, now_ms: u64) -> u16 {
        if self.is_silent { 0 } else { self.health.share(now_ms) }
    }

    /// Something took so long there. What was under way when it fell silent says hardly anything of how fast it is.
    pub(super) fn sample(&mut self, took_ms: u64, is_of_now: bool) {
        match is_of_now && !self.is_silent {
            true => self.timer.sample(took_ms),
            false => self.timer.sample_late(took_ms),
        }
    }

    /// Until when it need not be pinged.
    pub(super) fn silent_until_ms(&self, idle_ms: u64, back_off_ms: u64) -> u64 {
        let patience_ms = match (self.is_doubted, self.is_silent, self.in_flight) {
            (true, ..) => 0,
            (false, true, _) => back_off_ms,
            (false, false, 0) => idle_ms,
            (false, false, _) => self.timer.ms(),
        };
        self.heard_ms.saturating_add(patience_ms)
    }

    /// Its share, less the longer its answers have waited than those of another. A difference of a grain is none: answers say
    /// milliseconds, and of two equal instances one would get nearly all.
    pub(super) fn by_delay(&self, share: u16, least_us: u64, now_ms: u64) -> u16 {
        const GRAIN_US: u64 = 1000;
        let delay_us = self.delay.us(now_ms);
        let delay_us = if delay_us <= least_us + GRAIN_US { least_us } else { delay_us };
        let part = u64::from(share) * (least_us + GRAIN_US) / (delay_us + GRAIN_US);
        // the part is not more than the whole
        (part as u16).max(1)
    }
}
