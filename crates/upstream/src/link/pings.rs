//! Pings: whether silent instances live.

use super::instance::{Instance, Pinged};
use super::{Link, milliseconds};
use crate::group::MemberIndex;
use crate::group::health::{HealthSign, UpstreamCondition};

/// A ping that is due to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The instance.
    pub instance: MemberIndex,
    /// The number of the ping, which the [answer](Link::pong) must name.
    pub number: u32,
}

impl Link {
    /// The next instance to ping now, if any; the caller asks until there is none. Instances whose
    /// answer is late are lost.
    pub fn ping(&mut self, now_ms: u64) -> Option<Ping> {
        let idle_ms = milliseconds(self.settings.idle);
        let back_off_ms = milliseconds(self.settings.back_off);
        for instance in 0..self.instances.len() {
            let one = &mut self.instances[instance];
            if let Pinged::Since(since_ms) = one.ping {
                if now_ms.saturating_sub(since_ms) >= one.timer.ms() {
                    one.ping = Pinged::No;
                    one.heard_ms = now_ms;
                    one.timer.back_off();
                    self.counts.suspected += u64::from(!one.is_silent);
                    one.lose_silent(now_ms);
                }
                continue;
            }
            if now_ms >= one.silent_until_ms(idle_ms, back_off_ms) {
                one.ping = Pinged::Since(now_ms);
                one.pings = one.pings.wrapping_add(1);
                return Some(Ping { instance, number: one.pings });
            }
        }
        None
    }

    /// When [`ping`](Link::ping) next has something to do.
    pub fn next_ping_ms(&self) -> u64 {
        let idle_ms = milliseconds(self.settings.idle);
        let back_off_ms = milliseconds(self.settings.back_off);
        let of = |one: &Instance| match one.ping {
            Pinged::Since(since_ms) => since_ms.saturating_add(one.timer.ms()),
            Pinged::No => one.silent_until_ms(idle_ms, back_off_ms),
        };
        self.instances.iter().map(of).min().unwrap_or(u64::MAX)
    }

    /// Takes the answer to a ping, or that the instance could not be reached. A late answer is
    /// ignored.
    pub fn pong(&mut self, ping: Ping, is_there: bool, now_ms: u64) {
        let Some(one) = self.instances.get_mut(ping.instance) else { return };
        let (true, Pinged::Since(since_ms)) = (one.pings == ping.number, one.ping) else { return };
        one.ping = Pinged::No;
        one.heard_ms = now_ms;
        one.is_doubted = false;
        if !is_there {
            return one.lose(now_ms);
        }
        one.sample(now_ms.saturating_sub(since_ms), true);
        one.is_silent = false;
        // an instance that lives may be tried with a request at once
        if matches!(one.health.condition(), UpstreamCondition::Out { .. }) {
            one.health.told(HealthSign::Well, now_ms);
        }
    }

    /// Notes that nothing listens at the instance's address: it takes no new requests, and loses
    /// those it has when their connections end. An instance that drains finishes them.
    pub fn takes_nothing(&mut self, ping: Ping, now_ms: u64) {
        let Some(one) = self.instances.get_mut(ping.instance) else { return };
        if one.pings == ping.number {
            (one.ping, one.heard_ms) = (Pinged::No, now_ms);
            (one.is_doubted, one.is_silent) = (false, false);
            one.mark(now_ms);
        }
    }

    /// Notes that the instance could not be pinged, for a reason that shows nothing of it.
    pub fn not_asked(&mut self, ping: Ping, now_ms: u64) {
        let Some(one) = self.instances.get_mut(ping.instance) else { return };
        if one.pings == ping.number {
            // pinged again after its usual time: at once, it would be pinged in a busy loop
            (one.ping, one.heard_ms, one.is_doubted) = (Pinged::No, now_ms, false);
        }
    }
}
