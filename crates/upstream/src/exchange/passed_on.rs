//! Connections whose bytes are passed on as they are: there is no request and no answer, and they are a tunnel as soon
//! as the server has taken the connection.

use super::answer::{AnswerHead, Coming};
use super::state::Exchange;
use super::upload::TunnelEnd;
use crate::settings::TcpSettings;
use forebay_sys::clock;
use std::time::Duration;

impl<T> Exchange<T> {
    fn tcp(&self) -> Option<&TcpSettings> {
        self.application.settings().tcp()
    }

    /// There is a connection. If that is all there is to be asked for, both directions are open now.
    pub(super) fn pass_on_if_asked(&mut self) {
        if self.tcp().is_none() {
            return;
        }
        // as if it had been asked to change to another protocol
        self.answer.head = Some(AnswerHead {
            start: 0,
            end: 0,
            status: 101,
            content_length: None,
            keep_alive: false,
        });
        self.answer.coming = Coming::All;
        self.is_well();
        self.phase.becomes_tunnel(false);
    }

    /// Whether one direction has ended of a connection that is passed on.
    pub(super) fn is_half_passed(&self) -> bool {
        let has_half = self.upload.tunnel != TunnelEnd::Open || self.phase.has_ended();
        has_half && self.phase.is_answered() && self.tcp().is_some()
    }

    /// Until when a tunnel may last that would last until then.
    pub(super) fn passed_until_ms(&self, until_ms: u64) -> u64 {
        let Some(tcp) = self.tcp().filter(|_| self.phase.is_answered()) else { return until_ms };
        let until_ms = match self.is_half_passed() {
            true => until_ms.min(self.moved_ms.saturating_add(ms(tcp.half_close))),
            false => until_ms,
        };
        until_ms.min(self.lasts_until_ms().unwrap_or(u64::MAX))
    }

    /// Until when it may last, whatever comes.
    pub(super) fn lasts_until_ms(&self) -> Option<u64> {
        let lifetime = self.tcp().filter(|_| self.phase.is_answered())?.lifetime?;
        Some((self.times.connected_ns / 1_000_000).saturating_add(ms(lifetime)))
    }

    /// Whether it has lasted for as long as it may.
    pub fn has_outlived(&self) -> bool {
        self.lasts_until_ms().is_some_and(|until_ms| clock::coarse_ms() >= until_ms)
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
