//! Patience and hurry: how long a request waits for its instance, and when it goes to another one
//! although its own may only be late.

use super::flight::{Flight, FlightState, MOST_COPIES};
use super::instance::Instance;
use super::{Link, LinkAction, milliseconds};
use crate::group::MemberIndex;
use crate::group::health::HealthSign;

/// The least time before a request hurries: a delayed acknowledgement, or a process that waits for
/// its core, is not late before.
const HURRY_MS: u64 = 50;

/// How soon a request that was acknowledged looks whether its instance lives, at first.
const YOUNG_MS: u64 = 50;

impl Link {
    /// How long an attempt may be silent. An attempt that no other could follow is not given up
    /// before the ceiling: its instance may only be late, and it would be unknown whether the request
    /// has run.
    pub(super) fn patience_ms(&self, flight: &Flight) -> u64 {
        if !flight.may_be_followed() {
            return milliseconds(self.settings.ceiling);
        }
        let patience_ms = u64::from(flight.patience_ms);
        match flight.state {
            // connecting takes time, too, and shows nothing of the instance: the request does not
            // hurry
            FlightState::Unwritten => patience_ms,
            FlightState::Written => {
                self.hurries_after_ms(flight).unwrap_or(patience_ms).min(patience_ms)
            }
            // a young request looks soon whether its instance is lost, later ones less often
            _ if flight.heard_ms.saturating_sub(flight.written_ms) < 2 * patience_ms => {
                patience_ms.min(YOUNG_MS)
            }
            _ => patience_ms,
        }
    }

    /// After how long without an acknowledgement the request goes to another instance, although its
    /// own may only be late.
    fn hurries_after_ms(&self, flight: &Flight) -> Option<u64> {
        let one = self.instances.get(flight.instance).filter(|_| flight.may_hurry)?;
        Some(one.timer.usual_ms()?.max(HURRY_MS))
    }

    /// Sends a request whose acknowledgement takes longer than usual to another instance that may be
    /// asked, if the budget allows it. This is no failure of its own instance, which is pinged at
    /// once. If there is no other instance, the request waits on.
    pub(super) fn hurry(&mut self, flight: &mut Flight, now_ms: u64) -> LinkAction {
        flight.may_hurry = false;
        self.instances[flight.instance].is_doubted = true;
        // a backup is for times when the others are not well, and is farther away
        let first_backup = self.first_backup();
        let is_other = |(at, one): (MemberIndex, &Instance)| {
            at != flight.instance
                && at < first_backup
                && !flight.has_tried(at)
                && one.share(now_ms) > 0
        };
        let may = flight.copies < self.settings.copies.min(MOST_COPIES)
            && self.instances.iter().enumerate().any(is_other);
        if !may || !self.budget.withdraw(now_ms) {
            return LinkAction::Wait;
        }
        self.counts.hurried += 1;
        self.leave(flight, HealthSign::Nothing, now_ms);
        flight.is_admitted = true;
        self.next(flight, now_ms)
    }
}
