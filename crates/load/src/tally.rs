//! The counts of a run: one [`GroupTally`] per group, thread and interval; sums of them make every result.

use crate::failure::RequestFailure;
use forebay_tls::terms::Agreed;
use hdrhistogram::Histogram;

/// The plain counts of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestCounts {
    /// Requests that were due.
    pub(crate) offered: u64,
    /// Requests that were sent.
    pub(crate) sent: u64,
    /// Complete answers, good or not.
    pub(crate) answered: u64,
    /// Good answers.
    pub(crate) good: u64,
    /// Good answers within the time limit (`within`).
    pub(crate) in_time: u64,
    /// Bytes received, heads included.
    pub(crate) received_bytes: u64,
    /// Bytes of the bodies of good answers within the time limit.
    pub(crate) good_bytes: u64,
    /// Connections begun.
    pub(crate) opened: u64,
    /// Connections established.
    pub(crate) connected: u64,
    /// Connections whose SYN was repeated at least once.
    pub(crate) syn_retried: u64,
    /// Repeated SYNs.
    pub(crate) syn_retries: u64,
    /// Full TLS handshakes.
    pub(crate) full: u64,
    /// Handshakes that resumed a session.
    pub(crate) resumed: u64,
    /// Connections on which the server sent GOAWAY.
    pub(crate) goaways: u64,
    /// Arrivals that had to wait because every connection was taken.
    pub(crate) waited: u64,
    /// Requests of a closed loop that the end of the run cut off.
    pub(crate) cut: u64,
    pub(crate) failures: [u64; RequestFailure::ALL.len()],
}

impl RequestCounts {
    /// Requests that ended, well or not.
    pub(crate) fn ended(&self) -> u64 {
        self.good + self.failures.iter().sum::<u64>()
    }

    /// Adds other counts to these.
    pub(crate) fn add(&mut self, other: &RequestCounts) {
        self.offered += other.offered;
        self.sent += other.sent;
        self.answered += other.answered;
        self.good += other.good;
        self.in_time += other.in_time;
        self.received_bytes += other.received_bytes;
        self.good_bytes += other.good_bytes;
        self.opened += other.opened;
        self.connected += other.connected;
        self.syn_retried += other.syn_retried;
        self.syn_retries += other.syn_retries;
        self.full += other.full;
        self.resumed += other.resumed;
        self.goaways += other.goaways;
        self.waited += other.waited;
        self.cut += other.cut;
        self.failures.iter_mut().zip(other.failures).for_each(|(sum, count)| *sum += count);
    }
}

/// A histogram of times in nanoseconds, to three significant digits, up to an hour.
#[derive(Clone, Debug)]
pub(crate) struct TimeHistogram(Histogram<u64>);

/// The value below which a histogram does not distinguish times, in ns.
const FINEST_NS: u64 = 128;
const LONGEST_NS: u64 = 3_600_000_000_000;

impl TimeHistogram {
    pub(crate) fn new() -> TimeHistogram {
        let histogram = Histogram::new_with_bounds(FINEST_NS, LONGEST_NS, 3);
        // the bounds are constants that satisfy the constructor's conditions
        #[allow(clippy::unwrap_used, reason = "checked by every test that makes one")]
        TimeHistogram(histogram.unwrap())
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn add(&mut self, other: &TimeHistogram) {
        // the only possible error is a value out of bounds, and both have the same bounds
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    pub(crate) fn max_us(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.max() as f64 / 1e3 }
    }

    pub(crate) fn min_us(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.min() as f64 / 1e3 }
    }

    /// The time that a share `quantile` of all do not exceed.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        // the histogram gives the upper end of a bucket, which may lie above the true maximum
        self.0.value_at_quantile(quantile).min(self.0.max()) as f64 / 1e3
    }
}

/// All counts of one group in one interval.
#[derive(Clone, Debug)]
pub(crate) struct GroupTally {
    pub(crate) counts: RequestCounts,
    /// Times from the intended start; empty in a closed loop, which has only actual starts.
    pub(crate) intended: TimeHistogram,
    /// Times from the actual start: the send, or the connect where the request needed one.
    pub(crate) actual: TimeHistogram,
    /// Times from connect to established.
    pub(crate) connect: TimeHistogram,
    /// Times from established to the end of the TLS handshake; `None` without any.
    pub(crate) handshake: Option<TimeHistogram>,
    /// The number of answers by status.
    pub(crate) statuses: Vec<(u16, u64)>,
    /// The number of handshakes by what was negotiated.
    pub(crate) agreed: Vec<(Agreed, u64)>,
    /// The number of failures by kind and reason, where a reason is known.
    pub(crate) reasons: Vec<(RequestFailure, String, u64)>,
}

/// The largest number of different reasons that are kept; a server could invent any number.
const MOST_REASONS: usize = 32;

impl GroupTally {
    pub(crate) fn new() -> GroupTally {
        GroupTally {
            counts: RequestCounts::default(),
            intended: TimeHistogram::new(),
            actual: TimeHistogram::new(),
            connect: TimeHistogram::new(),
            handshake: None,
            statuses: Vec::new(),
            agreed: Vec::new(),
            reasons: Vec::new(),
        }
    }

    /// Counts a successful handshake.
    pub(crate) fn shake(&mut self, agreed: Agreed, took_ns: u64) {
        let count = if agreed.resumed { &mut self.counts.resumed } else { &mut self.counts.full };
        *count += 1;
        self.agree(Agreed { resumed: false, ..agreed }, 1);
        self.handshake.get_or_insert_with(TimeHistogram::new).record(took_ns);
    }

    fn agree(&mut self, agreed: Agreed, count: u64) {
        match self.agreed.iter_mut().find(|(known, _)| *known == agreed) {
            Some((_, sum)) => *sum += count,
            None => self.agreed.push((agreed, count)),
        }
    }

    /// Counts failed requests with a reason.
    pub(crate) fn explain(&mut self, failure: RequestFailure, why: &str, count: u64) {
        let is_full = self.reasons.len() >= MOST_REASONS;
        let same = |(kind, known, _): &&mut (RequestFailure, String, u64)| {
            *kind == failure && known == why
        };
        match self.reasons.iter_mut().find(same) {
            Some((_, _, sum)) => *sum += count,
            None if is_full => {}
            None => self.reasons.push((failure, why.to_owned(), count)),
        }
    }

    #[inline]
    pub(crate) fn fail(&mut self, failure: RequestFailure) {
        self.counts.failures[failure as usize] += 1;
    }

    /// Counts answers with a status; there are few different ones.
    #[inline]
    pub(crate) fn status(&mut self, status: u16, count: u64) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, sum)) => *sum += count,
            None => self.statuses.push((status, count)),
        }
    }

    pub(crate) fn add(&mut self, other: &GroupTally) {
        self.counts.add(&other.counts);
        self.intended.add(&other.intended);
        self.actual.add(&other.actual);
        self.connect.add(&other.connect);
        if let Some(times) = &other.handshake {
            self.handshake.get_or_insert_with(TimeHistogram::new).add(times);
        }
        other.agreed.iter().for_each(|(agreed, count)| self.agree(*agreed, *count));
        for (failure, why, count) in &other.reasons {
            self.explain(*failure, why, *count);
        }
        for (status, count) in &other.statuses {
            self.status(*status, *count);
        }
    }
}

/// The totals of one closed-loop client over the measured time; SPECweb99 judges each by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ClientTotals {
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    pub(crate) received_bytes: u64,
    /// The time with a request under way.
    pub(crate) busy_ns: u64,
}

impl ClientTotals {
    /// The client's rate, in bit/s of its busy time.
    pub(crate) fn bits_per_second(&self) -> f64 {
        if self.busy_ns == 0 { 0.0 } else { self.received_bytes as f64 * 8e9 / self.busy_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_three_digits() {
        let mut times = TimeHistogram::new();
        (1..=1000).for_each(|ms| times.record(ms * 1_000_000));
        assert!((times.quantile_us(0.5) / 500_000.0 - 1.0).abs() < 2e-3);
        assert!((times.quantile_us(0.99) / 990_000.0 - 1.0).abs() < 2e-3);
        assert!((times.max_us() / 1e6 - 1.0).abs() < 2e-3);
        let mut short = TimeHistogram::new();
        short.record(20_000);
        assert!((short.quantile_us(0.5) - 20.0).abs() < 0.1);
        short.record(u64::MAX);
        assert!((short.max_us() / 3.6e9 - 1.0).abs() < 2e-3);
    }
}
