//! Lingering: a connection ends while its client may still send. Closed at once, the kernel would answer
//! what comes with a reset, and that takes the last answer from the client (RFC 9112 §9.6). So writing is
//! shut down, and what comes is read and dropped, for a bounded time and up to a bounded number of bytes. The
//! time begins anew while the client takes what is still in the kernel: with HTTP/2 it goes on sending as it reads.

use crate::served::Served;
use crate::settings::{LINGER_BYTES, LINGER_MS, MOST_LINGER_MS};
use crate::worker::Worker;
use forebay_conn::{Handler, Protocol};
use forebay_sys::socket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many connections linger now, of one loop or of all threads.
#[derive(Debug, Default)]
pub(crate) struct Lingering(AtomicUsize);

/// What is left to one that lingers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Linger {
    /// When it ends, in milliseconds of the monotonic clock.
    pub(crate) until_ms: u64,
    /// When it ends in any case.
    most_ms: u64,
    bytes: u64,
    /// What the client had still to take when this time began.
    unacknowledged: u64,
    /// It has begun anew.
    pub(crate) has_gone_on: bool,
}

impl Lingering {
    /// Shuts down writing and drops what has come. Whatever was under way on the connection is over; its
    /// requests have left the ready queue. `None` if as many linger as may, or the client has ended: then
    /// it is to be closed.
    pub(crate) fn begin<H: Handler>(
        &self,
        served: &mut Served<H>,
        worker: &mut Worker<H>,
    ) -> Option<Linger> {
        if self.0.fetch_add(1, Relaxed) >= worker.settings.lingering {
            self.end();
            return None;
        }
        socket::shut_down_writing(served.stream.as_fd());
        served.drop_unsent();
        served.take_back();
        served.conn.abandon(&mut worker.handler, &served.peer);
        let now_ms = worker.now_ms();
        let mut linger = Linger {
            until_ms: now_ms + LINGER_MS,
            most_ms: now_ms + MOST_LINGER_MS,
            bytes: LINGER_BYTES,
            unacknowledged: served.unacknowledged(),
            has_gone_on: false,
        };
        let lingers = linger.drop_input(served, worker);
        if !lingers {
            self.end();
        }
        lingers.then_some(linger)
    }

    /// One that lingered is closed.
    pub(crate) fn end(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Linger {
    /// Its time is over. Whether it begins anew: the client has taken as much meanwhile as it must of an answer.
    pub(crate) fn goes_on<H: Handler>(&mut self, served: &Served<H>, worker: &Worker<H>) -> bool {
        let unacknowledged = served.unacknowledged();
        let taken = self.unacknowledged.saturating_sub(unacknowledged);
        let bytes_per_s = worker.settings.timeouts.send_bytes_per_s;
        let now_ms = worker.now_ms();
        self.until_ms = self.most_ms.min(now_ms + LINGER_MS);
        (self.unacknowledged, self.has_gone_on) = (unacknowledged, true);
        now_ms < self.most_ms && taken > 0 && taken >= bytes_per_s.saturating_mul(LINGER_MS) / 1000
    }

    /// Reads and drops what has come. Says whether more may come: neither has the client ended nor was it
    /// too much.
    pub(crate) fn drop_input<H: Handler>(
        &mut self,
        served: &Served<H>,
        worker: &mut Worker<H>,
    ) -> bool {
        let left = worker.drop_input(served.stream.as_fd(), self.bytes);
        self.bytes = left.unwrap_or_default();
        left.is_some()
    }
}
