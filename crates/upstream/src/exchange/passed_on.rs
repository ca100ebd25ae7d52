//! Connections whose bytes are passed on as they are (TCP). There is no request and no answer: they
//! are tunnels as soon as the server has accepted the connection.

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

    /// Opens both directions once there is a connection, if the application is a TCP server.
    pub(super) fn pass_on_if_asked(&mut self) {
        if self.tcp().is_none() {
            return;
        }
        // as if a change of the protocol had been asked for and answered
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

    /// Whether one direction of a TCP connection has ended.
    pub(super) fn is_half_passed(&self) -> bool {
        let has_half = self.upload.tunnel != TunnelEnd::Open || self.phase.has_ended();
        has_half && self.phase.is_answered() && self.tcp().is_some()
    }

    /// The deadline of a tunnel that would otherwise last `until_ms`.
    pub(super) fn passed_until_ms(&self, until_ms: u64) -> u64 {
        let Some(tcp) = self.tcp().filter(|_| self.phase.is_answered()) else { return until_ms };
        let until_ms = match self.is_half_passed() {
            true => until_ms.min(self.moved_ms.saturating_add(ms(tcp.half_close))),
            false => until_ms,
        };
        until_ms.min(self.lasts_until_ms().unwrap_or(u64::MAX))
    }

    /// Until when the connection may last, whatever comes.
    pub(super) fn lasts_until_ms(&self) -> Option<u64> {
        let lifetime = self.tcp().filter(|_| self.phase.is_answered())?.lifetime?;
        Some((self.times.connected_ns / 1_000_000).saturating_add(ms(lifetime)))
    }

    /// Whether the connection has reached its longest lifetime.
    pub fn has_outlived(&self) -> bool {
        self.lasts_until_ms().is_some_and(|until_ms| clock::coarse_ms() >= until_ms)
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
