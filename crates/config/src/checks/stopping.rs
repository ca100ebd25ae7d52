//! How long a server takes to stop, and what waits for it.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use std::fmt;
use std::time::Duration;

/// `TimeoutStopSec=` of the unit in the package.
const STOP: Duration = Duration::from_secs(40);

/// The server takes longer to stop than systemd waits for it.
#[derive(Debug)]
struct LongStop {
    /// The time that the server may take to stop: the wait and the drain.
    takes: Duration,
}

impl Finding for LongStop {}

impl fmt::Display for LongStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "with timeouts.drain the server takes {:?} to stop, and systemd kills it after {STOP:?}, as the unit of \
             the package says: give that a longer TimeoutStopSec",
            self.takes
        )
    }
}

impl ConfigDraft {
    /// Remarks on a wait before the drain that leaves no time for it.
    pub(crate) fn remark_stopping(&self, remarks: &mut Remarks) {
        let timeouts = &self.process.timeouts;
        let takes = timeouts.drain.saturating_add(timeouts.drain_wait);
        if !timeouts.drain_wait.is_zero() && takes > STOP {
            let at = At::default().child("timeouts").child("drain_wait");
            remarks.push((at, Wrong::said(LongStop { takes })));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_is_longer_than_systemd_waits_is_remarked() {
        let remarked = |drain: u64, wait: u64| {
            let mut draft = ConfigDraft::new();
            draft.process.timeouts.drain = Duration::from_secs(drain);
            draft.process.timeouts.drain_wait = Duration::from_secs(wait);
            let mut remarks = Vec::new();
            draft.remark_stopping(&mut remarks);
            remarks.into_iter().next().map(|(_, wrong)| wrong.to_string())
        };
        assert_eq!(remarked(30, 10), None);
        assert_eq!(remarked(60, 0), None, "that was so before");
        let said = remarked(30, 15).unwrap();
        assert!(said.starts_with("with timeouts.drain the server takes 45s to stop"), "{said}");
    }
}
