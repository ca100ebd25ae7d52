//! A request whose socket a receiver has: the offer is sent, the receiver's reports are read, and the
//! time ends.

use super::{HandOverEnd, HandOverExchange, HandOverPhase};
use crate::exchange::{Failed, Lateness};
use crate::group::Unavailable;
use crate::group::retry::AttemptFailure;
use crate::hand_over::link::ReceiverLink;
use crate::receivers::frame::ReceiverReport;
use crate::receivers::loan::{LoanEvent, LoanOutcome};
use forebay_sys::{clock, lend};
use std::mem;
use std::os::fd::AsFd;

impl<T> HandOverExchange<T> {
    /// Sends and receives as far as the link allows.
    pub(super) fn go_on(&mut self) {
        while let HandOverPhase::Lent(link, _) = &mut self.phase {
            let mut happened = None;
            if link.sent < self.message.len() {
                happened = link.send(&self.message, None).filter(|it| *it != LoanEvent::Sent);
            }
            let Some(happened) = happened.or_else(|| link.hear(self.now_ms)) else { return };
            // an offer that was not sent whole was not read whole
            let is_whole = link.sent == self.message.len();
            self.heard(match happened {
                LoanEvent::Closed if !is_whole => LoanEvent::Reset,
                happened => happened,
            });
        }
    }

    /// Takes an event of the lent request.
    pub(super) fn heard(&mut self, happened: LoanEvent) {
        let outcome = self.loan.hear(happened);
        if outcome == LoanOutcome::Waits {
            if matches!(happened, LoanEvent::Says(ReceiverReport::Taken) | LoanEvent::Read) {
                self.since_ms = self.now_ms;
                self.forget_message();
            }
            return;
        }
        let phase = mem::replace(&mut self.phase, HandOverPhase::Unbegun);
        let HandOverPhase::Lent(mut link, client) = phase else {
            self.phase = phase;
            return;
        };
        // the other process may have made the socket blocking; that does not matter for a connection
        // that is gone or closed
        if !matches!(outcome, LoanOutcome::Gone | LoanOutcome::Ends(_)) {
            client.socket.take_back();
        }
        let end = match outcome {
            LoanOutcome::Waits => return,
            LoanOutcome::Back(report) => HandOverEnd::Back(report),
            LoanOutcome::Ends(report) => HandOverEnd::Ended(report, client.end()),
            LoanOutcome::Gone => HandOverEnd::Gone,
            LoanOutcome::Untaken(failure) => {
                let late = match happened {
                    LoanEvent::Late => Lateness::Late,
                    _ => Lateness::InTime,
                };
                if client.is_touched() {
                    link.slot.fail("wrote without taken");
                    return self.end_with(HandOverEnd::Broken("untaken"), None);
                }
                let ReceiverLink { slot, connection, is_reused, .. } = link;
                drop(connection);
                return self.not_taken(slot, failure, late, "", is_reused);
            }
            LoanOutcome::Lost(loss) => {
                link.slot.fail(loss.word());
                let end = match client.is_touched() {
                    true => HandOverEnd::Broken(loss.word()),
                    false => HandOverEnd::Lost(loss),
                };
                return self.end_with(end, None);
            }
        };
        let now_ns = clock::monotonic_ns();
        self.times.answered(now_ns);
        let status = match &end {
            HandOverEnd::Back(report) | HandOverEnd::Ended(report, _) => Some(report.status),
            _ => None,
        };
        link.slot.answered(status.is_some_and(|status| status >= 500), now_ns);
        if let Some(status) = status {
            link.slot.count_answer(status, self.times.head_ns());
        }
        self.end_with(end, Some(link));
    }

    /// Drops the offer once it is sent: the request is taken, so no other receiver gets it.
    fn forget_message(&mut self) {
        if let HandOverPhase::Lent(link, _) = &mut self.phase
            && link.sent == self.message.len()
        {
            (self.message, link.sent) = (Vec::new(), 0);
        }
    }

    /// Handles the end of the time. A receiver that has reported nothing until now has not taken the
    /// request: once the link is shut down it cannot report that any more, and earlier reports are
    /// here.
    pub(super) fn is_late(&mut self) {
        match &mut self.phase {
            HandOverPhase::Unbegun | HandOverPhase::Waiting(_) => {
                self.end_wait();
                self.fail(Failed::Unasked(Unavailable::Late));
            }
            HandOverPhase::Ready(_) => {
                let phase = mem::replace(&mut self.phase, HandOverPhase::Unbegun);
                if let HandOverPhase::Ready(link) = phase {
                    let ReceiverLink { slot, is_reused, .. } = link;
                    self.not_taken(slot, AttemptFailure::Connect, Lateness::Late, "", is_reused);
                }
            }
            HandOverPhase::Lent(link, _) => {
                link.can_read = true;
                self.is_late_with_client();
            }
            HandOverPhase::Over(..) => {}
        }
    }

    /// Handles the end of the time of a lent request. This server may be late itself, so what has
    /// come counts.
    fn is_late_with_client(&mut self) {
        let was_taken = self.loan.is_taken();
        self.go_on();
        let HandOverPhase::Lent(link, _) = &mut self.phase else { return };
        if self.loan.is_taken() != was_taken {
            // the receiver's time to answer begins now
            return;
        }
        if !was_taken && self.request.taken_by_reading {
            if link.is_read_or_withdrawn(self.message.len()) {
                // the receiver's time to answer begins now
                return self.heard(LoanEvent::Read);
            }
        } else if !was_taken {
            lend::shut_down(link.connection.as_fd());
            link.can_read = true;
        }
        // reports that came before the link was shut down still count
        while let HandOverPhase::Lent(link, _) = &mut self.phase
            && let Some(said @ (LoanEvent::Says(_) | LoanEvent::Misspoke)) = link.hear(self.now_ms)
        {
            self.heard(said);
        }
        if let HandOverPhase::Lent(..) = self.phase {
            self.heard(LoanEvent::Late);
        }
    }
}
