//! First requests that are judged in the kernel: their charges and their counters.

use crate::counts::FirstCount;
use crate::kernel;
use crate::maps::{per_cpu, read_u64};
use crate::types::{RawCharged, Tuple};
use crate::{Gate, GateError, lock};
use std::net::SocketAddr;
use std::sync::Mutex;

impl Gate {
    /// Has this gate also judge the first request of each connection that it makes, as far as the first
    /// segment shows it. Without effect on a gate that does not [steer](Gate::load_steering). To be called
    /// before the gate [lowers](Gate::lower) rules.
    #[must_use]
    pub fn judging_requests(mut self) -> Gate {
        if self.steers() {
            self.pages = Some(Mutex::default());
        }
        self
    }

    /// Whether this gate judges first requests.
    pub fn judges_requests(&self) -> bool {
        self.pages.is_some()
    }

    /// Takes the slot of the rule whose bucket the first request of this connection was charged to; a second
    /// call returns `None`. One system call.
    pub fn take_charged_request(&self, client: SocketAddr, local: SocketAddr) -> Option<u32> {
        let first = self.kernel.first.as_ref()?;
        let known: Option<RawCharged> =
            kernel::take(&first.charged, &Tuple::between(client, local));
        known.map(|charged| charged.slot)
    }

    /// The number of first requests by result since the gate was loaded, in the order of [`FirstCount::ALL`].
    pub fn first_counts(&self) -> [u64; FirstCount::ALL.len()] {
        let mut counts = [0; FirstCount::ALL.len()];
        let Some(first) = &self.kernel.first else { return counts };
        for (at, count) in counts.iter_mut().enumerate() {
            let numbers = per_cpu(&first.counts, at as u32);
            *count = numbers.iter().filter_map(|bytes| read_u64(bytes)).sum();
        }
        counts
    }

    /// The number of an error page; `None` if there are too many, or first requests are not judged.
    pub(crate) fn page(&self, status: u16, retry_after_s: u32) -> Option<u16> {
        lock(self.pages.as_ref()?).place(status, retry_after_s)
    }

    /// Brings the error pages in the kernel up to date.
    pub(crate) fn write_pages(&self) -> Result<(), GateError> {
        match (&self.pages, &self.kernel.first) {
            (Some(pages), Some(first)) => {
                let mut pages = lock(pages);
                self.control(kernel::CONTROL_PAGES, pages.write(&first.pages)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
