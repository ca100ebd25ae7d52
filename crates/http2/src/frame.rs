//! Frames (RFC 9113 §4.1, §6): nine bytes and a payload.

use crate::error::ErrorCode;

/// The size of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 9;

/// The largest payload that every endpoint accepts, and that is accepted here
/// (SETTINGS_MAX_FRAME_SIZE), in bytes.
pub const PAYLOAD_BYTES: usize = 16_384;

/// The bytes that a client sends first (§3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
#[allow(missing_docs)]
pub mod kind {
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    /// RFC 9218 §7.1.
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames.
#[allow(missing_docs)]
pub mod flag {
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The size of the payload, in bytes.
    pub len: usize,
    /// The type, see [`kind`].
    pub kind: u8,
    /// The flags, see [`flag`].
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the header at the front of `bytes`; `None` if it is not complete.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<FrameHeader> {
        let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEADER_BYTES>()?;
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Some(FrameHeader { len, kind, flags, stream: number(stream) & 0x7fff_ffff })
    }

    /// The encoded header.
    #[inline]
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Four bytes as a number.
#[inline]
pub(crate) fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

/// The first four bytes as a number without the highest bit, which is reserved; 0 if there are
/// fewer.
#[inline]
pub(crate) fn number31(bytes: &[u8]) -> u32 {
    bytes.first_chunk::<4>().map_or(0, |bytes| number(*bytes) & 0x7fff_ffff)
}

/// Appends a frame.
pub fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&FrameHeader { len: payload.len(), kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Appends RST_STREAM.
pub fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write(out, kind::RST_STREAM, 0, stream, &code.0.to_be_bytes());
}

/// Appends WINDOW_UPDATE.
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends GOAWAY.
pub fn write_goaway(out: &mut Vec<u8>, last: u32, code: ErrorCode) {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last.to_be_bytes());
    payload[4..].copy_from_slice(&code.0.to_be_bytes());
    write(out, kind::GOAWAY, 0, 0, &payload);
}

/// Removes the padding from a payload (§6.1); `None` if there is more padding than payload.
#[inline]
pub(crate) fn unpadded(payload: &[u8], is_padded: bool) -> Option<&[u8]> {
    if !is_padded {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(padding))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        let header = FrameHeader { len: 0x12_3456, kind: 9, flags: 5, stream: 0x7fff_fffe };
        assert_eq!(FrameHeader::read(&header.bytes()), Some(header));
        assert_eq!(FrameHeader::read(&header.bytes()[..8]), None);
        // the reserved bit is ignored
        let mut bytes = header.bytes();
        bytes[5] |= 0x80;
        assert_eq!(FrameHeader::read(&bytes), Some(header));
    }

    #[test]
    fn padding_is_at_most_the_payload() {
        assert_eq!(unpadded(b"\x02abcd", true), Some(&b"ab"[..]));
        assert_eq!(unpadded(b"\x04abcd", true), Some(&b""[..]));
        assert_eq!(unpadded(b"\x05abcd", true), None);
        assert_eq!(unpadded(b"", true), None);
        assert_eq!(unpadded(b"abc", false), Some(&b"abc"[..]));
    }

    #[test]
    fn frames_are_written_as_the_rfc_draws_them() {
        let mut out = Vec::new();
        write_goaway(&mut out, 5, ErrorCode::ENHANCE_YOUR_CALM);
        assert_eq!(out, *b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x05\0\0\0\x0b");
        out.clear();
        write_reset(&mut out, 3, ErrorCode::CANCEL);
        write_window_update(&mut out, 0, 256);
        assert_eq!(out, *b"\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08\0\0\x04\x08\0\0\0\0\0\0\0\x01\0");
    }
}
