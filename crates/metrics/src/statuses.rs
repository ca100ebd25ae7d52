//! Answers by their exact status, and the durations of requests.

use crate::cell::bump;
use crate::histogram::DurationTotals;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The statuses that have counters of their own: the registered ones (RFC 9110 §15 and others). All
/// others are counted together, under 0.
const STATUSES: [u16; 56] = [
    0, 200, 201, 202, 204, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401,
    402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 424,
    425, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511, 418,
];

const COUNT: usize = STATUSES.len();

/// The index of the counter for each status from 100 on.
static PLACES: [u8; 500] = {
    let mut places = [0; 500];
    let mut at = 1;
    while at < COUNT {
        places[STATUSES[at] as usize - 100] = at as u8;
        at += 1;
    }
    places
};

/// The counts of one writer.
#[derive(Debug)]
pub(crate) struct StatusRows {
    statuses: [AtomicU64; COUNT],
}

impl Default for StatusRows {
    fn default() -> StatusRows {
        StatusRows { statuses: [const { AtomicU64::new(0) }; COUNT] }
    }
}

impl StatusRows {
    #[inline]
    pub(crate) fn answered(&self, status: u16) {
        let place = PLACES.get(usize::from(status.wrapping_sub(100))).copied().unwrap_or_default();
        bump(&self.statuses[usize::from(place)], 1);
    }

    pub(crate) fn add_to(&self, totals: &mut AnswerTotals) {
        for (sum, cell) in totals.statuses.iter_mut().zip(&self.statuses) {
            *sum += cell.load(Relaxed);
        }
    }
}

/// The sum over several writers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerTotals {
    statuses: [u64; COUNT],
    /// The durations of requests, summed over all sites and the requests that belong to none.
    pub durations: DurationTotals,
}

impl Default for AnswerTotals {
    fn default() -> AnswerTotals {
        AnswerTotals { statuses: [0; COUNT], durations: DurationTotals::default() }
    }
}

impl AnswerTotals {
    /// The statuses of the answers so far, with the number of answers of each; 0 stands for
    /// unregistered statuses.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> {
        let counts = self.statuses.iter().enumerate().filter(|(_, count)| **count > 0);
        let mut counts: Vec<_> = counts.map(|(at, count)| (STATUSES[at], *count)).collect();
        counts.sort_unstable();
        counts.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_counted() {
        let (rows, mut totals) = (StatusRows::default(), AnswerTotals::default());
        for status in [200, 404, 404, 503, 511, 418, 299, 99, 600] {
            rows.answered(status);
        }
        rows.add_to(&mut totals);
        let statuses: Vec<_> = totals.statuses().collect();
        assert_eq!(statuses, [(0, 3), (200, 1), (404, 2), (418, 1), (503, 1), (511, 1)]);
    }
}
