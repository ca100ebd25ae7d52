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
    /// What its answers say they have waited, smoothed.
    pub(super) delay_us: u64,
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
        self.is_doubted = false;
        // what comes back has another queue
        self.delay_us = 0;
    }

    /// Until when it need not be pinged.
    pub(super) fn silent_until_ms(&self, idle_ms: u64) -> u64 {
        let patience_ms = match (self.is_doubted, self.in_flight) {
            (true, _) => 0,
            (false, 0) => idle_ms,
            (false, _) => self.timer.ms(),
        };
        self.heard_ms.saturating_add(patience_ms)
    }

    /// Its share, less the longer its answers have waited.
    pub(super) fn by_delay(&self, share: u16, least_us: u64) -> u16 {
        const GRAIN_US: u64 = 1000;
        let part = u64::from(share) * (least_us + GRAIN_US) / (self.delay_us + GRAIN_US);
        // the part is not more than the whole
        (part as u16).max(1)
    }
}
