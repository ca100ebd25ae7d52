//! The position of a stream of bytes in the frames of a WebSocket (RFC 6455 §5.2).
//!
//! In: the bytes that pass, in pieces of any size. Out: whether a frame of the server's own may
//! come next. Control frames may come between the fragments of a message (RFC 6455 §5.4), so only
//! frames count. Payload is skipped, not read.

/// A frame by which a server announces that it goes away (RFC 6455 §7.4.1: 1001), unmasked like all
/// frames of servers.
pub const GOING_AWAY: [u8; 4] = [0x88, 2, 0x03, 0xe9];

/// The longest head of a frame.
const MOST_HEAD: usize = 14;
const CLOSE: u8 = 8;

/// The position in a stream of frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramePosition {
    head: [u8; MOST_HEAD],
    /// The number of bytes of a head that have come.
    filled: usize,
    /// The bytes of payload that are still to come.
    left: u64,
    /// A close frame has come, after which nothing may follow.
    has_closed: bool,
}

impl FramePosition {
    /// Advances by these bytes, which have passed.
    pub fn pass(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while let Some((byte, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= skipped as u64;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head[self.filled] = *byte;
            self.filled += 1;
            bytes = rest;
            if let Some(payload) = payload(&self.head[..self.filled]) {
                self.has_closed |= self.head[0] & 0xf == CLOSE;
                (self.filled, self.left) = (0, payload);
            }
        }
    }

    /// Whether the position is between two frames, so that another may come next.
    pub fn is_between(&self) -> bool {
        self.filled == 0 && self.left == 0 && !self.has_closed
    }
}

/// The length of the payload; `None` if the head is not complete.
fn payload(head: &[u8]) -> Option<u64> {
    let [_, second, rest @ ..] = head else { return None };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let is_whole = rest.len() == extended + mask;
    let number = || rest[..extended].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    is_whole.then(|| if extended > 0 { number() } else { u64::from(second & 0x7f) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, length: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            0..126 => frame.push(mask | length as u8),
            126..65_536 => {
                frame.push(mask | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(std::iter::repeat_n(0x88, length + if is_masked { 4 } else { 0 }));
        frame
    }

    #[test]
    fn a_frame_may_come_between_frames_and_nowhere_else() {
        for (length, is_masked) in
            [(0, false), (1, false), (125, true), (126, false), (65_535, true), (65_536, false)]
        {
            let frames = [frame(2, length, is_masked), frame(9, 3, is_masked)].concat();
            let ends = [frame(2, length, is_masked).len(), frames.len()];
            for step in [1, 7, 1000, frames.len()] {
                let (mut position, mut passed) = (FramePosition::default(), 0);
                for piece in frames.chunks(step) {
                    position.pass(piece);
                    passed += piece.len();
                    assert_eq!(position.is_between(), ends.contains(&passed), "{length} {passed}");
                }
            }
        }
    }

    #[test]
    fn after_a_frame_that_closes_nothing_may_come() {
        let mut position = FramePosition::default();
        assert!(position.is_between());
        position.pass(&GOING_AWAY);
        assert!(!position.is_between());
        position.pass(&frame(1, 2, false));
        assert!(!position.is_between());
    }
}
