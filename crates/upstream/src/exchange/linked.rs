//! Exchanges with the next stage of this server: the [link](crate::link) decides what becomes of a
//! request, and the copy is kept until the request is acknowledged and answered.

use super::answer::AnswerHead;
use super::link_state::Noted;
use super::outcome::{Failed, Lateness};
use super::phase::{Attempt, ExchangePhase};
use super::spare;
use super::state::Exchange;
use crate::group::MemberIndex;
use crate::group::retry::AttemptFailure;
use crate::link::{LinkAction, LinkEvent, LinkFailure, ResumePoint};
use crate::messages::response::ResponseReader;
use forebay_conn::handler::relay::RelayRead;
use forebay_sys::clock;

impl<T> Exchange<T> {
    /// Why there is no answer over a link.
    pub fn reason(&self) -> Option<LinkFailure> {
        self.linked.as_ref()?.reason
    }

    /// Reports an event to the link, and does what it answers.
    pub(super) fn tell_link(&mut self, event: &LinkEvent<'_>) {
        let mut begun = self.follow_link(event);
        // the instance that the link names may be unreachable, too
        while begun.is_err() {
            begun = self.follow_link(&LinkEvent::Refused);
        }
    }

    /// As [`tell_link`](Exchange::tell_link), but without another try for an instance that cannot be
    /// reached.
    fn follow_link(&mut self, event: &LinkEvent<'_>) -> Result<(), AttemptFailure> {
        let (Some(linked), Some(mut link)) = (&mut self.linked, self.application.link()) else {
            return Ok(());
        };
        if matches!(event, LinkEvent::Broken { .. } | LinkEvent::Time) {
            // how processes have ended decides whether the request is quarantined
            self.application.look_at_ends(&mut link);
        }
        let attempt = linked.flight.attempt();
        if self.upload.is_gone {
            linked.flight.forget_copy();
        }
        let mut action = link.event(&mut linked.flight, attempt, event, self.now_ms);
        let is_begun = linked.flight.has_head() && !linked.flight.is_over();
        if is_begun
            && matches!(action, LinkAction::Continue(..) | LinkAction::Rest)
            && !self.answer.has_told
        {
            // the handler has not yet looked at the head, which another attempt would overwrite
            link.cancel(&mut linked.flight, self.now_ms);
            action = LinkAction::Break;
        }
        drop(link);
        match action {
            LinkAction::Wait => {}
            LinkAction::Rest => {
                linked.is_continuing = is_begun;
                self.phase = ExchangePhase::Resting;
            }
            LinkAction::Send(member) => return self.send_again(member, None),
            LinkAction::Continue(member, from) => return self.send_again(member, Some(from)),
            LinkAction::Fail(reason) => {
                linked.reason = Some(reason);
                self.phase.leave_attempt();
                self.give_up(Failed::Asked(AttemptFailure::Closed, Lateness::InTime));
            }
            LinkAction::Break => {
                (linked.is_broken, linked.is_continuing) = (true, false);
                self.phase.leave_attempt();
                self.phase.answered();
            }
        }
        Ok(())
    }

    /// Reports to the link that the attempt has failed.
    pub(super) fn fail_link(&mut self, failure: AttemptFailure) {
        // other software than this server may close idle connections
        let is_reused = self.phase.attempt().is_some_and(|attempt| attempt.is_reused);
        let may_be_stale = is_reused && !self.application.is_own(self.upstream());
        self.note_failed(Lateness::InTime.word(failure));
        self.tell_link(&match failure {
            AttemptFailure::Unwritten if is_reused => LinkEvent::Stale,
            AttemptFailure::Closed if may_be_stale => LinkEvent::Stale,
            AttemptFailure::Returned => LinkEvent::Returned,
            AttemptFailure::Connect
            | AttemptFailure::Tls(_)
            | AttemptFailure::Resources
            | AttemptFailure::Unwritten
            | AttemptFailure::Overloaded => LinkEvent::Refused,
            // a stage that lives never closes a connection with a request on it
            AttemptFailure::Closed => LinkEvent::Broken { has_ended: true },
            AttemptFailure::Malformed => LinkEvent::Broken { has_ended: false },
            AttemptFailure::Silent | AttemptFailure::Frozen => LinkEvent::Late,
        });
    }

    /// Sends the copy to another instance, or to the same over a new connection.
    fn send_again(&mut self, member: MemberIndex, from: Option<u64>) -> Result<(), AttemptFailure> {
        let Some(linked) = &mut self.linked else { return Ok(()) };
        linked.is_continuing = from.is_some();
        // a digit from 1 to 9
        if let Some(digit) = self.upload.to.get_mut(linked.attempt_at) {
            *digit = b'0' + linked.flight.copy();
        }
        if let (Some(from), Some(whole)) = (from, linked.flight.whole()) {
            // the empty line at the end of the head is written anew
            self.upload.to.truncate(linked.head_bytes.saturating_sub(2));
            self.upload
                .to
                .extend_from_slice(format!("Range: bytes={from}-\r\nIf-Range: ").as_bytes());
            self.upload.to.extend_from_slice(&whole.tag);
            self.upload.to.extend_from_slice(b"\r\n\r\n");
        }
        self.note_failed(Lateness::InTime.word(AttemptFailure::Connect));
        self.tries.tried.push(member);
        self.name_attempt();
        (self.upload.sent, self.answer.at) = (0, 0);
        spare::leave(&mut self.answer.received);
        self.answer.reader =
            ResponseReader::new(self.asked.context, self.application.settings().limits());
        self.moved_ms = self.now_ms;
        if from.is_none() {
            self.times.begun_ns = clock::monotonic_ns();
        }
        self.open(member, Attempt::new(None))
    }

    /// The deadline of the link, if there is one.
    pub(super) fn link_deadline_ms(&self) -> u64 {
        match (&self.linked, self.application.link()) {
            (Some(linked), Some(link))
                if !matches!(self.phase, ExchangePhase::Failed(..)) && !linked.is_broken =>
            {
                link.deadline_ms(&linked.flight)
            }
            _ => u64::MAX,
        }
    }

    /// Reports the head of an answer, or of the rest of one, to the link. Returns whether nothing
    /// else must be done with it.
    pub(super) fn link_heard(&mut self, noted: Noted) -> bool {
        let Some(linked) = &mut self.linked else { return false };
        if !linked.is_continuing {
            let whole = noted.whole.filter(|_| linked.may_continue);
            self.tell_link(&LinkEvent::Head { whole, delay_ms: noted.delay_ms });
            return false;
        }
        linked.is_continuing = false;
        let part = noted.part.as_ref().map(|(from, total_bytes, tag)| ResumePoint {
            from: *from,
            total_bytes: *total_bytes,
            tag,
        });
        let end = self.answer.at + noted.len;
        self.answer.at = end;
        self.tell_link(&LinkEvent::Part(part));
        if let Some(seen) = &mut self.answer.head {
            let keep_alive = noted.keep_alive || self.asked.is_http2;
            *seen = AnswerHead { start: 0, end, keep_alive, ..*seen };
        }
        if self.linked.as_ref().is_some_and(|linked| !linked.is_broken) {
            self.phase.answered();
        }
        true
    }

    /// Ends the link's part when the connection has become a tunnel. No other instance could go on
    /// with it, and one that hangs may recover: the link has nothing more to decide.
    pub(super) fn link_changed(&mut self) {
        self.tell_link(&LinkEvent::End);
        self.linked = None;
    }

    /// Reports bytes of the body, or its end, to the link.
    pub(super) fn link_read(&mut self, given: RelayRead) -> RelayRead {
        match given {
            RelayRead::Bytes(count) => self.tell_link(&LinkEvent::Body(count as u64)),
            RelayRead::End => self.tell_link(&LinkEvent::End),
            RelayRead::Nothing => {}
            RelayRead::Broken => {
                self.tell_link(&LinkEvent::Broken { has_ended: true });
                let goes_on = self.linked.as_ref().is_some_and(|linked| linked.is_continuing);
                if goes_on {
                    return RelayRead::Nothing;
                }
            }
        }
        given
    }

    /// Handles the deadline. Returns whether it was only the link's.
    pub(super) fn look_at_link(&mut self, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        if self.linked.is_none() || now_ms >= self.own_deadline_ms() {
            return false;
        }
        if now_ms >= self.link_deadline_ms() {
            self.tell_link(&LinkEvent::Time);
        }
        true
    }

    /// Schedules the acknowledgement for the stage before, in case the answer does not come first. A
    /// request that must not run twice is acknowledged at once. Returns whether it was scheduled.
    pub(super) fn acknowledge_later(&mut self) -> bool {
        let repeats = self.linked.as_ref().is_some_and(|linked| linked.flight.repeats());
        let after_ms = self.application.held_back_ms().filter(|_| repeats);
        self.acknowledge_ms = after_ms.map(|after_ms| self.now_ms.saturating_add(after_ms));
        self.acknowledge_ms.is_some()
    }

    /// Whether the acknowledgement is due; then it is the interim answer.
    pub(super) fn acknowledges_now(&mut self) -> bool {
        let is_due = self.acknowledge_ms.is_some_and(|at_ms| self.now_ms >= at_ms);
        if is_due {
            self.acknowledge_ms = None;
            self.answer.interim.clear();
            self.answer.interim.extend_from_slice(b"HTTP/1.1 102 Processing\r\n");
        }
        is_due
    }

    /// Ends the link's part: the client has left, or the answer is complete.
    pub(super) fn leave_link(&mut self) {
        if let (Some(linked), Some(mut link)) = (&mut self.linked, self.application.link()) {
            link.cancel(&mut linked.flight, self.now_ms);
        }
    }
}
