//! The loan: one request on its way to a receiver and back, without sockets and clocks. Events go in,
//! outcomes come out.
//!
//! ```text
//!             all or some of it is sent              "taken"
//!   unsent ───────────────────────────► offered ─────────────► taken ──► "done", "given back": it is over
//!      │                                   │                      │
//!      ▼ the link fails                    ▼ fails, or is late    ▼ fails, or is late
//!   nobody has it: another receiver    safe methods: another    nobody else: 502 or 504
//! ```
//!
//! With `taken_by_reading`, a receiver takes a request by reading the message, and need not confirm
//! it. An orderly end of the link then means that the message was read; a reset, by which the kernel
//! reports that something was left unread, means that it was not.
//!
//! A receiver that has said nothing may have looked at the request all the same. What it has written
//! to the client shows on the socket. Then neither another receiver nor this server may write
//! anything more, and the connection is reset.

use super::frame::{AnswerReport, ReceiverReport};
use crate::group::retry::AttemptFailure;

/// The state of a loan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loan {
    stage: LoanStage,
    /// Whether the connection is given away for good.
    keeps: bool,
    /// Whether a receiver that has read the message has taken the request.
    taken_by_reading: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LoanStage {
    #[default]
    Unsent,
    Offered,
    Taken,
}

/// An event of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanEvent {
    /// The kernel has taken some of the message, and the socket with it.
    Sent,
    /// The receiver has sent this report.
    Says(ReceiverReport),
    /// The receiver has sent something that is no report.
    Misspoke,
    /// The receiver has read the message, and need not confirm that it has taken the request.
    Read,
    /// The link has ended, and all that was sent on it was read.
    Closed,
    /// The link has ended before all that was sent on it was read.
    Reset,
    /// The time for the current step is over.
    Late,
    /// The kernel does not take the message: too many descriptors are in flight to other processes.
    NoRoom,
}

/// What must be done after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanOutcome {
    /// Nothing, until something else happens.
    Waits,
    /// The request is answered, and the connection is at the next one.
    Back(AnswerReport),
    /// The request is answered, and the connection is at its end.
    Ends(AnswerReport),
    /// The receiver has the connection for good.
    Gone,
    /// The receiver did not take the request: another may get it, if
    /// [`may_repeat`](crate::retry::may_repeat) allows that.
    Untaken(AttemptFailure),
    /// The receiver has taken the request, so no other may get it. The client gets an error if
    /// nothing was written to it.
    Lost(LoanLoss),
}

/// How a request was lost after a receiver had taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanLoss {
    /// The receiver has ended, or closed the link.
    Died,
    /// The request was not done in time.
    Late,
    /// The receiver has sent something that is no report.
    Misspoke,
}

impl LoanLoss {
    /// The loss in a word, for logs and the operator.
    pub fn word(self) -> &'static str {
        match self {
            LoanLoss::Died => "died",
            LoanLoss::Late => "timeout",
            LoanLoss::Misspoke => "misspoke",
        }
    }
}

impl Loan {
    /// A loan that has not begun. The connection comes back, unless a receiver `keeps` it.
    pub fn new(keeps: bool, taken_by_reading: bool) -> Loan {
        Loan { stage: LoanStage::Unsent, keeps, taken_by_reading }
    }

    /// Whether another process may have the client's socket.
    pub fn is_out(self) -> bool {
        self.stage != LoanStage::Unsent
    }

    /// Whether a receiver has taken the request.
    pub fn is_taken(self) -> bool {
        self.stage == LoanStage::Taken
    }

    /// Starts over for another receiver.
    pub fn again(&mut self) {
        self.stage = LoanStage::Unsent;
    }

    /// Takes an event, and returns what must be done.
    pub fn hear(&mut self, happened: LoanEvent) -> LoanOutcome {
        use LoanEvent::*;
        use LoanStage::*;
        match (self.stage, happened) {
            (Unsent, Sent) => {
                self.stage = Offered;
                LoanOutcome::Waits
            }
            (_, Sent) | (Unsent | Taken, Read) => LoanOutcome::Waits,
            (Unsent, NoRoom) => LoanOutcome::Untaken(AttemptFailure::Resources),
            // the socket goes with the first byte, so the receiver has it already: only the rest of
            // the message waits
            (_, NoRoom) => LoanOutcome::Waits,
            (Unsent, Closed | Reset) => LoanOutcome::Untaken(AttemptFailure::Unwritten),
            (Unsent, Late) => LoanOutcome::Untaken(AttemptFailure::Connect),
            // the receiver got nothing yet that it could report on
            (Unsent, Says(_) | Misspoke) => LoanOutcome::Untaken(AttemptFailure::Malformed),
            (Offered, Says(ReceiverReport::Taken)) => {
                self.stage = Taken;
                if self.keeps { LoanOutcome::Gone } else { LoanOutcome::Waits }
            }
            (Offered, Read) => {
                self.stage = Taken;
                LoanOutcome::Waits
            }
            // a receiver that reports more, or closes the link in order, has read the message
            (Offered, Says(_) | Misspoke | Closed) if self.taken_by_reading => {
                self.stage = Taken;
                self.hear(happened)
            }
            (Offered, Says(_) | Misspoke) => LoanOutcome::Untaken(AttemptFailure::Malformed),
            (Offered, Closed | Reset) => LoanOutcome::Untaken(AttemptFailure::Closed),
            (Offered, Late) => LoanOutcome::Untaken(AttemptFailure::Frozen),
            (Taken, Says(ReceiverReport::GivenBack(answered))) => LoanOutcome::Back(answered),
            (Taken, Says(ReceiverReport::Done(answered))) => LoanOutcome::Ends(answered),
            (Taken, Says(ReceiverReport::Taken) | Misspoke) => {
                LoanOutcome::Lost(LoanLoss::Misspoke)
            }
            (Taken, Closed | Reset) => LoanOutcome::Lost(LoanLoss::Died),
            (Taken, Late) => LoanOutcome::Lost(LoanLoss::Late),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWERED: AnswerReport = AnswerReport { status: 200, body_bytes: 5 };

    fn taken(keeps: bool) -> (Loan, LoanOutcome) {
        let mut loan = Loan::new(keeps, false);
        assert_eq!(loan.hear(LoanEvent::Sent), LoanOutcome::Waits);
        assert!(loan.is_out() && !loan.is_taken());
        let outcome = loan.hear(LoanEvent::Says(ReceiverReport::Taken));
        (loan, outcome)
    }

    #[test]
    fn a_request_is_taken_and_comes_back_or_ends() {
        let (mut loan, outcome) = taken(false);
        assert_eq!(outcome, LoanOutcome::Waits);
        let back = LoanEvent::Says(ReceiverReport::GivenBack(ANSWERED));
        assert_eq!(loan.hear(back), LoanOutcome::Back(ANSWERED));
        let (mut loan, _) = taken(false);
        assert_eq!(
            loan.hear(LoanEvent::Says(ReceiverReport::Done(ANSWERED))),
            LoanOutcome::Ends(ANSWERED)
        );
        assert_eq!(taken(true).1, LoanOutcome::Gone);
    }

    #[test]
    fn who_has_said_nothing_has_not_taken_it() {
        let done = LoanEvent::Says(ReceiverReport::Done(ANSWERED));
        for (happened, unsent, offered) in [
            (LoanEvent::Closed, AttemptFailure::Unwritten, AttemptFailure::Closed),
            (LoanEvent::Late, AttemptFailure::Connect, AttemptFailure::Frozen),
            (LoanEvent::Reset, AttemptFailure::Unwritten, AttemptFailure::Closed),
            (LoanEvent::Misspoke, AttemptFailure::Malformed, AttemptFailure::Malformed),
            (done, AttemptFailure::Malformed, AttemptFailure::Malformed),
        ] {
            let mut loan = Loan::new(false, false);
            assert_eq!(loan.hear(happened), LoanOutcome::Untaken(unsent), "{happened:?}");
            loan.hear(LoanEvent::Sent);
            assert_eq!(loan.hear(happened), LoanOutcome::Untaken(offered), "{happened:?}");
        }
    }

    #[test]
    fn what_was_taken_goes_to_nobody_else() {
        for (happened, loss) in [
            (LoanEvent::Closed, LoanLoss::Died),
            (LoanEvent::Reset, LoanLoss::Died),
            (LoanEvent::Late, LoanLoss::Late),
            (LoanEvent::Misspoke, LoanLoss::Misspoke),
            (LoanEvent::Says(ReceiverReport::Taken), LoanLoss::Misspoke),
        ] {
            assert_eq!(taken(false).0.hear(happened), LoanOutcome::Lost(loss));
        }
    }

    /// A receiver that sends one report, at the end.
    #[test]
    fn who_has_read_it_has_taken_it_where_that_is_agreed() {
        let offered = || {
            let mut loan = Loan::new(false, true);
            loan.hear(LoanEvent::Sent);
            loan
        };
        let done = LoanEvent::Says(ReceiverReport::Done(ANSWERED));
        let back = LoanEvent::Says(ReceiverReport::GivenBack(ANSWERED));
        for (happened, outcome) in [
            (done, LoanOutcome::Ends(ANSWERED)),
            (back, LoanOutcome::Back(ANSWERED)),
            (LoanEvent::Closed, LoanOutcome::Lost(LoanLoss::Died)),
            (LoanEvent::Misspoke, LoanOutcome::Lost(LoanLoss::Misspoke)),
            (LoanEvent::Reset, LoanOutcome::Untaken(AttemptFailure::Closed)),
            (LoanEvent::Late, LoanOutcome::Untaken(AttemptFailure::Frozen)),
            // the receiver may confirm it all the same
            (LoanEvent::Says(ReceiverReport::Taken), LoanOutcome::Waits),
        ] {
            assert_eq!(offered().hear(happened), outcome, "{happened:?}");
        }
        let mut loan = offered();
        assert_eq!(loan.hear(LoanEvent::Read), LoanOutcome::Waits);
        assert!(loan.is_taken());
        assert_eq!(loan.hear(LoanEvent::Reset), LoanOutcome::Lost(LoanLoss::Died));
        assert_eq!(
            Loan::new(false, true).hear(done),
            LoanOutcome::Untaken(AttemptFailure::Malformed)
        );
    }

    #[test]
    fn a_lack_of_room_is_not_the_receivers() {
        let no_room = LoanOutcome::Untaken(AttemptFailure::Resources);
        assert_eq!(Loan::new(false, false).hear(LoanEvent::NoRoom), no_room);
    }

    fn anything() -> impl Strategy<Value = LoanEvent> {
        prop_oneof![
            Just(LoanEvent::Sent),
            Just(LoanEvent::Says(ReceiverReport::Taken)),
            Just(LoanEvent::Says(ReceiverReport::Done(ANSWERED))),
            Just(LoanEvent::Says(ReceiverReport::GivenBack(ANSWERED))),
            Just(LoanEvent::Misspoke),
            Just(LoanEvent::Closed),
            Just(LoanEvent::Reset),
            Just(LoanEvent::Read),
            Just(LoanEvent::Late),
            Just(LoanEvent::NoRoom),
        ]
    }

    proptest! {
        /// For all sequences of events: the loan ends once, no other receiver gets what was taken,
        /// and only a receiver that has taken the request answers it.
        #[test]
        fn nothing_runs_twice(all in prop::collection::vec(anything(), 0..20), keeps: bool) {
            // a configuration cannot have both
            let mut loan = Loan::new(keeps, !keeps);
            let mut was_taken = false;
            for happened in all {
                let outcome = loan.hear(happened);
                was_taken |= loan.is_taken();
                match outcome {
                    LoanOutcome::Waits => continue,
                    LoanOutcome::Untaken(_) => {
                        prop_assert!(!was_taken);
                        loan.again();
                        prop_assert!(!loan.is_out());
                    }
                    LoanOutcome::Gone => {
                        prop_assert!(keeps && was_taken);
                        break;
                    }
                    LoanOutcome::Back(_) | LoanOutcome::Ends(_) | LoanOutcome::Lost(_) => {
                        prop_assert!(was_taken);
                        break;
                    }
                }
            }
        }
    }
}
