//! What a loop reports at its end: what became of the connections that were open.

use forebay_conn::Await;

/// The outcome for the connections that were open when a loop began to drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Connections that ended in good order.
    pub drained: u64,
    /// Connections that were cut while they waited for a request.
    pub aborted_receiving: u64,
    /// Connections that were cut while a helper thread, or another server, worked for them.
    pub aborted_in_job: u64,
    /// Connections that were cut while an answer was being sent.
    pub aborted_sending: u64,
}

impl Ended {
    /// Counts one connection that is cut.
    pub fn abort(&mut self, awaited: Await) {
        match awaited {
            Await::Idle | Await::Head | Await::Body => self.aborted_receiving += 1,
            Await::Job
            | Await::Admission
            | Await::Place
            | Await::Slot
            | Await::Connect
            | Await::Answer
            | Await::Flow
            | Await::Ending
            | Await::Link
            | Await::Rest => self.aborted_in_job += 1,
            Await::Send => self.aborted_sending += 1,
        }
    }

    /// The number of all connections that were cut.
    pub fn aborted(&self) -> u64 {
        self.aborted_receiving + self.aborted_in_job + self.aborted_sending
    }
}

impl std::ops::Add for Ended {
    type Output = Ended;

    fn add(self, other: Ended) -> Ended {
        Ended {
            drained: self.drained + other.drained,
            aborted_receiving: self.aborted_receiving + other.aborted_receiving,
            aborted_in_job: self.aborted_in_job + other.aborted_in_job,
            aborted_sending: self.aborted_sending + other.aborted_sending,
        }
    }
}
