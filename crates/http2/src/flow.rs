//! Windows (RFC 9113 §6.9): how much each side may send.

use crate::error::{ErrorCode, Fault};

/// The largest window, in bytes.
pub(crate) const MOST_WINDOW: u32 = 0x7fff_ffff;

/// The window, in bytes, below which a peer may wait until it can send more.
const NEXT_TO_NOTHING: u32 = 4096;

/// The number of bytes that we may send. Below zero after the peer has made its initial window
/// smaller (§6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) fn new(bytes: u32) -> SendWindow {
        SendWindow(i64::from(bytes))
    }

    /// The number of bytes that may be sent now.
    #[inline]
    pub(crate) fn open(self) -> u32 {
        self.0.max(0) as u32
    }

    /// Subtracts sent bytes, at most those that are [open](SendWindow::open).
    #[inline]
    pub(crate) fn spend(&mut self, bytes: u32) {
        self.0 -= i64::from(bytes);
    }

    /// Changes the window by an update, or by a changed setting, which may be negative.
    pub(crate) fn change(&mut self, bytes: i64) -> Result<(), Fault> {
        if self.0 + bytes > i64::from(MOST_WINDOW) {
            let reason = "a window grows above 2^31-1";
            return Err(Fault::new(ErrorCode::FLOW_CONTROL_ERROR, reason));
        }
        self.0 += bytes;
        Ok(())
    }
}

/// The number of bytes that the peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveWindow {
    /// Bytes that the peer may still send.
    open: u32,
    /// Bytes that were received, and neither consumed nor allowed again.
    held: u32,
    /// Bytes that were consumed, and not yet allowed again.
    used: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(bytes: u32) -> ReceiveWindow {
        ReceiveWindow { open: bytes, held: 0, used: 0 }
    }

    /// Subtracts received bytes.
    #[inline]
    pub(crate) fn receive(&mut self, bytes: u32) -> Result<(), Fault> {
        let Some(open) = self.open.checked_sub(bytes) else {
            let reason = "more data than the window allows";
            return Err(Fault::new(ErrorCode::FLOW_CONTROL_ERROR, reason));
        };
        self.open = open;
        self.held += bytes;
        Ok(())
    }

    /// Marks up to `bytes` of the received bytes as consumed. Returns how many.
    #[inline]
    pub(crate) fn release(&mut self, bytes: u32) -> u32 {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.used += bytes;
        bytes
    }

    /// The bytes that were received and not consumed.
    #[inline]
    pub(crate) fn held(self) -> u32 {
        self.held
    }

    /// Whether the peer may send next to nothing.
    #[inline]
    pub(crate) fn is_shut(self) -> bool {
        self.open < NEXT_TO_NOTHING
    }

    /// The update that the peer should get now; `None` until it is worth a frame, which is half of
    /// the window.
    #[inline]
    pub(crate) fn allow(&mut self) -> Option<u32> {
        if self.used == 0 || self.used < (self.open + self.held + self.used).div_ceil(2) {
            return None;
        }
        self.open += self.used;
        Some(std::mem::take(&mut self.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_fall_below_zero_and_not_overflow() {
        let mut window = SendWindow::new(10);
        window.spend(10);
        window.change(-5).unwrap();
        assert_eq!(window.open(), 0);
        window.change(6).unwrap();
        assert_eq!(window.open(), 1);
        window.change(i64::from(MOST_WINDOW) - 1).unwrap();
        assert!(window.change(1).is_err());
        assert_eq!(window.open(), MOST_WINDOW);
    }

    #[test]
    fn half_a_window_is_given_back_at_a_time() {
        let mut window = ReceiveWindow::new(100);
        window.receive(60).unwrap();
        assert_eq!((window.held(), window.allow()), (60, None));
        assert_eq!(window.release(49), 49);
        assert_eq!(window.allow(), None);
        assert_eq!(window.release(100), 11);
        assert_eq!(window.allow(), Some(60));
        window.receive(100).unwrap();
        assert!(window.receive(1).is_err());
    }
}
