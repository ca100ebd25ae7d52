//! Budgets for what a peer may do that costs more than it is worth; honest peers never use them up.
//!
//! Each budget is a bucket. What is charged to it drains at a constant rate; once it is full, the connection
//! ends with ENHANCE_YOUR_CALM. Frames that only accompany useful ones (window updates, pings) are paid for
//! by those.

use crate::error::Fault;

/// The kinds of costly behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abuse {
    /// Streams that the peer resets before they are over, and those it opens above the limit: each may have
    /// cost the work of an answer (rapid reset, CVE-2023-44487).
    Resets,
    /// Streams that the peer makes us reset by breaking a rule, for the same reason (CVE-2025-8671).
    MadeResets,
    /// Frames that carry no data: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown types.
    Overhead,
    /// DATA frames that are tiny because the peer's windows are tiny.
    Crumbs,
}

/// The size and the rate of a budget.
#[derive(Clone, Copy, Debug)]
pub struct BudgetLimit {
    /// How much may come at once.
    pub burst: u32,
    /// How much may come continuously, per second.
    pub per_s: u32,
}

impl Abuse {
    /// The limit of each budget; the comments give the reason why no honest peer reaches it.
    pub const fn bound(self) -> BudgetLimit {
        match self {
            // A browser that leaves a page resets all its streams, at most 128 here, and a video player some
            // each second while it seeks. The figures are nghttp2's.
            Abuse::Resets => BudgetLimit { burst: 1000, per_s: 33 },
            // A correct peer causes none. A client with a bug still gets answers for some.
            Abuse::MadeResets => BudgetLimit { burst: 200, per_s: 10 },
            // gRPC sends a PING for received data to measure the path, and clients update windows for each
            // DATA frame: both are earned by that frame (see EARNED). The rest is for connections that are
            // just starting.
            Abuse::Overhead => BudgetLimit { burst: 10_000, per_s: 1000 },
            // The end of a window may be odd, so every window may bring one tiny frame; a window of a few
            // bytes brings nothing else. Tests and simulations cause some dozens.
            Abuse::Crumbs => BudgetLimit { burst: 1000, per_s: 100 },
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Abuse::Resets => "too many streams were given up",
            Abuse::MadeResets => "too many streams broke a rule",
            Abuse::Overhead => "too many frames carried nothing",
            Abuse::Crumbs => "the windows allow only tiny frames",
        }
    }
}

/// What a DATA frame of a useful size earns for [`Abuse::Overhead`]: Go updates two windows for each 4 KiB,
/// that is 8 times for a frame, and sends a PING besides. Envoy grants 10 as well.
pub(crate) const EARNED: u32 = 10;

/// What a smaller DATA frame earns: gRPC answers each received message with a PING.
pub(crate) const EARNED_BY_LITTLE: u32 = 2;

/// The size, in bytes, from which a DATA frame is useful; the last frame of a body always is.
pub(crate) const USEFUL_BYTES: u32 = 256;

/// The size, in bytes, below which a DATA frame cut by the peer's window counts as tiny.
pub(crate) const CRUMB_BYTES: u32 = 64;

/// The cost of each frame in [`Abuse::Overhead`].
pub(crate) mod cost {
    /// PING, PRIORITY, WINDOW_UPDATE, and frames of unknown types or on streams that are over.
    pub(crate) const FRAME: u32 = 1;
    /// SETTINGS, which changes every window.
    pub(crate) const SETTINGS: u32 = 20;
    /// PRIORITY_UPDATE, which changes the order of streams or searches the priorities of future ones.
    pub(crate) const PRIORITY_UPDATE: u32 = 4;
    /// DATA and CONTINUATION that are empty and end nothing: no peer has a reason for them.
    pub(crate) const EMPTY: u32 = 10;
    /// A head that is too large, which is decoded all the same.
    pub(crate) const LARGE_HEAD: u32 = 50;
}

/// The number of bytes that a header block may copy from the table without charge: more than any head may
/// have.
pub(crate) const MOST_HEAD_COPIES: usize = 128 * 1024;

/// The number of bytes beyond that which cost 1 of [`Abuse::Overhead`].
pub(crate) const COPY_BYTES: usize = 1024;

/// The largest number of CONTINUATION frames of a header block. Peers fill frames of 16 KiB, and the whole
/// block is limited.
pub(crate) const MOST_CONTINUATIONS: u32 = 32;

/// The largest amount of answers to frames (pongs, acknowledgements, resets, window updates) that wait to be
/// sent, in bytes: almost 2000 pongs. A peer that reads its input never has more than a few.
pub(crate) const MOST_CONTROL_BYTES: usize = 32 * 1024;

/// The largest number of informational responses (1xx) to a request. Servers send one or two.
pub(crate) const MOST_INFORMATIONAL: u8 = 16;

/// The charge that has not drained yet, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct LeakyBucket {
    charged: u32,
    at_ms: u64,
}

/// The budgets of one connection.
#[derive(Debug, Default)]
pub(crate) struct Budgets([LeakyBucket; 4]);

impl Budgets {
    /// Charges `cost`.
    #[inline]
    pub(crate) fn charge(&mut self, abuse: Abuse, cost: u32, now_ms: u64) -> Result<(), Fault> {
        let (bucket, bound) = (&mut self.0[abuse as usize], abuse.bound());
        let passed_ms = u32::try_from(now_ms.saturating_sub(bucket.at_ms)).unwrap_or(u32::MAX);
        bucket.at_ms = bucket.at_ms.max(now_ms);
        bucket.charged = bucket.charged.saturating_sub(passed_ms.saturating_mul(bound.per_s));
        bucket.charged = bucket.charged.saturating_add(cost * 1000);
        if bucket.charged > bound.burst * 1000 {
            return Err(Fault::calm(abuse.reason()));
        }
        Ok(())
    }

    /// Credits a useful frame.
    #[inline]
    pub(crate) fn earn(&mut self, earned: u32) {
        let bucket = &mut self.0[Abuse::Overhead as usize];
        bucket.charged = bucket.charged.saturating_sub(earned * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_a_rate() {
        for abuse in [Abuse::Resets, Abuse::MadeResets, Abuse::Overhead, Abuse::Crumbs] {
            let BudgetLimit { burst, per_s } = abuse.bound();
            let mut budgets = Budgets::default();
            for _ in 0..burst {
                budgets.charge(abuse, 1, 5_000).unwrap();
            }
            assert!(budgets.charge(abuse, 1, 5_000).is_err());
            // a second later, when the charge that was too much has drained as well
            for _ in 0..per_s - 1 {
                budgets.charge(abuse, 1, 6_000).unwrap();
            }
            assert!(budgets.charge(abuse, 1, 6_000).is_err());
            // time does not go back, and years do not overflow
            budgets.charge(abuse, 1, u64::MAX).unwrap();
            budgets.charge(abuse, 1, 0).unwrap();
        }
    }

    #[test]
    fn what_is_useful_pays() {
        let mut budgets = Budgets::default();
        for _ in 0..100_000 {
            budgets.charge(Abuse::Overhead, EARNED, 0).unwrap();
            budgets.earn(EARNED);
        }
    }
}
