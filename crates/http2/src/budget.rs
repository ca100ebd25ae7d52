//! What a peer may do that costs more than it brings: budgets that honest peers never use up.
//!
//! Each budget is a bucket. What is charged to it runs out again at a rate; once it is full, the
//! connection ends with ENHANCE_YOUR_CALM. Frames that only accompany useful ones (windows, pings) are
//! paid for by those.

use crate::error::Fault;

/// What is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abuse {
    /// Streams that the peer gives up before they are over, and those it opens above the limit: each may
    /// have cost the work of an answer (rapid reset, CVE-2023-44487).
    Resets,
    /// Streams that it makes us reset by breaking a rule, for the same reason (CVE-2025-8671).
    MadeResets,
    /// Frames that carry nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, unknown types.
    Overhead,
    /// DATA frames that are tiny because the peer's windows are.
    Crumbs,
}

/// How much is too much.
#[derive(Clone, Copy, Debug)]
pub struct BudgetLimit {
    /// What may come at once.
    pub burst: u32,
    /// What may come all the time, each second.
    pub per_s: u32,
}

impl Abuse {
    /// The bound of each budget, and why no honest peer meets it.
    pub const fn bound(self) -> BudgetLimit {
        match self {
            // A browser that leaves a page gives up all its streams, at most 128 here, and a video player
            // some each second while it seeks. The same figures as nghttp2's.
            Abuse::Resets => BudgetLimit { burst: 1000, per_s: 33 },
            // A correct peer causes none. A client with a bug gets an answer to some.
            Abuse::MadeResets => BudgetLimit { burst: 200, per_s: 10 },
            // gRPC probes the path with a PING for data received, clients allow more for each DATA frame:
            // both are earned by that frame (see EARNED). The rest is for connections that only start.
            Abuse::Overhead => BudgetLimit { burst: 10_000, per_s: 1000 },
            // The end of a window may be odd, so every window may bring one; a window of a few bytes
            // brings nothing but these. Tests and simulations do some dozens.
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

/// What a frame of a useful size earns of [`Abuse::Overhead`]: Go allows more twice for each 4 KiB, so
/// 8 times for a frame, and a PING comes on top. Envoy grants 10 as well.
pub(crate) const EARNED: u32 = 10;

/// What a smaller DATA frame earns: gRPC answers each message that it receives with a PING.
pub(crate) const EARNED_BY_LITTLE: u32 = 2;

/// A DATA frame of so many bytes, or the last one of a body, is useful.
pub(crate) const USEFUL_BYTES: u32 = 256;

/// A DATA frame below so many bytes that the peer's window has cut is a crumb.
pub(crate) const CRUMB_BYTES: u32 = 64;

/// What each frame costs of [`Abuse::Overhead`].
pub(crate) mod cost {
    /// PING, PRIORITY, WINDOW_UPDATE, frames of unknown types and on streams that are over.
    pub(crate) const FRAME: u32 = 1;
    /// Changes every window.
    pub(crate) const SETTINGS: u32 = 20;
    /// Changes the order of streams, or looks through what is known of streams to come.
    pub(crate) const PRIORITY_UPDATE: u32 = 4;
    /// DATA and CONTINUATION without a byte and without an end: no peer has a reason for them.
    pub(crate) const EMPTY: u32 = 10;
    /// A head that is too large was decoded all the same.
    pub(crate) const LARGE_HEAD: u32 = 50;
}

/// So many bytes may a header block have copied from the table: more than heads may have.
pub(crate) const MOST_HEAD_COPIES: usize = 128 * 1024;

/// Beyond that, so many bytes cost 1 of [`Abuse::Overhead`].
pub(crate) const COPY_BYTES: usize = 1024;

/// CONTINUATION frames of one header block. Peers fill frames of 16 KiB, and the whole block is bounded.
pub(crate) const MOST_CONTINUATIONS: u32 = 32;

/// Answers to frames (pongs, acknowledgements, resets, windows) that wait to be sent, in bytes: almost
/// 2000 pongs. A peer that reads never has more than a few.
pub(crate) const MOST_CONTROL_BYTES: usize = 32 * 1024;

/// Responses before the last one (1xx) to one request. Servers send one or two.
pub(crate) const MOST_INFORMATIONAL: u8 = 16;

/// Thousandths of what was charged and has not run out.
#[derive(Clone, Copy, Debug, Default)]
struct LeakyBucket {
    charged: u32,
    at_ms: u64,
}

/// The budgets of one connection.
#[derive(Debug, Default)]
pub(crate) struct Budgets([LeakyBucket; 4]);

impl Budgets {
    /// Charges so much.
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

    /// Something useful was done.
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
            // a second later, and the one that was too much has run out as well
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
