//! A body as it is sent: data with the framing it needs (RFC 9112 §6 and §7).

use super::trailers::is_allowed;
use crate::octet::{is_text, is_token};
use std::error::Error;
use std::fmt;

/// An encoder of the data of one body with its framing. The head, which announces the framing, is
/// written before.
///
/// A body that fails half-way, and one that turns out too short, can only be ended by closing the
/// connection, so that the recipient sees that it is incomplete (RFC 9112 §8).
#[derive(Clone, Debug)]
pub struct Encoder(EncodeState);

/// The most data of a chunk that is [filled](Encoder::write_with) …
const CHUNK_BYTES: usize = 0xffff;

/// … and the bytes that its size and the line end then need at most.
const SIZE_BYTES: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EncodeState {
    /// This many bytes are still to be written.
    Sized(u64),
    Chunked,
    UntilClose,
    Finished,
}

/// The reason why something was not written. It is always the fault of the body's source, and
/// nothing of what was given is in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The data goes beyond the end of the body by this many bytes.
    TooLong {
        /// The number of bytes too many, at least 1.
        excess_bytes: u64,
    },
    /// The data ends before the announced end of the body.
    TooShort {
        /// The number of missing bytes, at least 1.
        missing_bytes: u64,
    },
    /// A trailer's name is no token, or its value has a control byte.
    Trailer,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::TooLong { excess_bytes } => {
                write!(f, "the body is {excess_bytes} bytes longer than announced")
            }
            EncodeError::TooShort { missing_bytes } => {
                write!(f, "the body is {missing_bytes} bytes shorter than announced")
            }
            EncodeError::Trailer => f.write_str("a trailer is malformed"),
        }
    }
}

impl Error for EncodeError {}

impl Encoder {
    /// An encoder of a body of exactly this many bytes (`Content-Length`, RFC 9112 §6.2).
    pub fn sized(bytes: u64) -> Encoder {
        Encoder(EncodeState::Sized(bytes))
    }

    /// An encoder of a body in chunks (`Transfer-Encoding: chunked`, RFC 9112 §7.1), for a
    /// recipient that speaks HTTP/1.1.
    pub fn chunked() -> Encoder {
        Encoder(EncodeState::Chunked)
    }

    /// An encoder of a body that ends where the connection ends (RFC 9112 §6.3). Only responses can
    /// be sent like this.
    pub fn until_close() -> Encoder {
        Encoder(EncodeState::UntilClose)
    }

    /// Whether the recipient can see that the body is complete: the last byte of a sized one was
    /// written, or another one was [finished](Encoder::finish). A body that lasts until the
    /// connection is closed needs the close as well.
    pub fn is_complete(&self) -> bool {
        matches!(self.0, EncodeState::Sized(0) | EncodeState::Finished)
    }

    /// Appends `data` with its framing to `out`. Empty data makes no chunk, since a chunk of size 0
    /// would end the body.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] if the data goes beyond the end of the body.
    pub fn write(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let len = data.len() as u64;
        match self.0 {
            _ if data.is_empty() => {}
            EncodeState::Sized(left) if len > left => {
                return Err(EncodeError::TooLong { excess_bytes: len - left });
            }
            EncodeState::Finished => return Err(EncodeError::TooLong { excess_bytes: len }),
            EncodeState::Sized(left) => {
                self.0 = EncodeState::Sized(left - len);
                out.extend_from_slice(data);
            }
            EncodeState::UntilClose => out.extend_from_slice(data),
            EncodeState::Chunked => {
                write_hexadecimal(len, out);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(data);
                out.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }

    /// Whether data is part of the body as it is. Then it may be written elsewhere, and is
    /// [counted](Encoder::count) here.
    pub fn is_plain(&self) -> bool {
        matches!(self.0, EncodeState::Sized(_) | EncodeState::UntilClose)
    }

    /// Counts this much of a [plain](Encoder::is_plain) body, which was written elsewhere. It must
    /// be no more than what is left of the body.
    pub fn count(&mut self, len: u64) {
        debug_assert!(self.is_plain());
        if let EncodeState::Sized(left) = &mut self.0 {
            *left = left.saturating_sub(len);
        }
    }

    /// Writes like [`write`](Encoder::write) data that does not exist yet: `fill` appends it to
    /// `out`, at most as much as its argument says, which is `most` or what is left of the body, if
    /// that is less. If that is nothing, `fill` is not called.
    pub fn write_with<R>(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
        fill: impl FnOnce(&mut Vec<u8>, usize) -> R,
    ) -> Option<R> {
        let before = out.len();
        match &mut self.0 {
            EncodeState::Finished | EncodeState::Sized(0) => None,
            EncodeState::Sized(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(most);
                let filled = fill(out, most);
                out.truncate(before + most);
                *left -= (out.len() - before) as u64;
                Some(filled)
            }
            EncodeState::UntilClose => Some(fill(out, most)),
            EncodeState::Chunked => {
                // the size must fit into `SIZE_BYTES`, so longer data needs another chunk
                let most = most.min(CHUNK_BYTES);
                let start = before + SIZE_BYTES;
                out.resize(start, 0);
                let filled = fill(out, most);
                out.truncate(start + most);
                let len = out.len() - start;
                if len == 0 {
                    out.truncate(before);
                    return Some(filled);
                }
                let mut size = Vec::with_capacity(SIZE_BYTES);
                write_hexadecimal(len as u64, &mut size);
                size.extend_from_slice(b"\r\n");
                out[before..before + size.len()].copy_from_slice(&size);
                // the data moves forward over the bytes that a short size has left
                out.copy_within(start.., before + size.len());
                out.truncate(before + size.len() + len);
                out.extend_from_slice(b"\r\n");
                Some(filled)
            }
        }
    }

    /// Ends the body: appends the last chunk, if there are chunks, and `trailers`, which are fields
    /// of name and value. Fields that RFC 9110 §6.5.1 does not allow are left out; so are all
    /// fields where there are no chunks, as they have no place. A second call changes nothing.
    ///
    /// # Errors
    /// [`EncodeError::TooShort`], and [`EncodeError::Trailer`] for a field that cannot be written.
    pub fn finish<'t>(
        &mut self,
        trailers: impl IntoIterator<Item = (&'t str, &'t [u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.0 {
            EncodeState::Sized(missing_bytes @ 1..) => {
                return Err(EncodeError::TooShort { missing_bytes });
            }
            EncodeState::Chunked => {
                let before = out.len();
                out.extend_from_slice(b"0\r\n");
                let mut allowed = trailers.into_iter().filter(|(name, _)| is_allowed(name));
                if let Err(error) = allowed.try_for_each(|field| write_field(field, out)) {
                    out.truncate(before);
                    return Err(error);
                }
                out.extend_from_slice(b"\r\n");
            }
            EncodeState::Sized(0) | EncodeState::UntilClose | EncodeState::Finished => {}
        }
        self.0 = EncodeState::Finished;
        Ok(())
    }
}

/// Writes a field line (RFC 9112 §5).
fn write_field((name, value): (&str, &[u8]), out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if name.is_empty() || !name.bytes().all(is_token) || !value.iter().copied().all(is_text) {
        return Err(EncodeError::Trailer);
    }
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Writes a `chunk-size` (RFC 9112 §7.1), without leading zeros.
fn write_hexadecimal(number: u64, out: &mut Vec<u8>) {
    let digits = 16 - (number | 1).leading_zeros() / 4;
    out.extend((0..digits).rev().map(|at| b"0123456789abcdef"[(number >> (at * 4)) as usize & 15]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mut encoder: Encoder, pieces: &[&str]) -> String {
        let mut out = Vec::new();
        pieces.iter().for_each(|piece| encoder.write(piece.as_bytes(), &mut out).unwrap());
        encoder.finish([], &mut out).unwrap();
        assert!(encoder.is_complete());
        let len = out.len();
        encoder.finish([], &mut out).unwrap();
        assert_eq!(encoder.write(b"", &mut out), Ok(()));
        assert_eq!(encoder.write(b"ab", &mut out), Err(EncodeError::TooLong { excess_bytes: 2 }));
        assert_eq!(out.len(), len);
        String::from_utf8(out).unwrap()
    }

    /// RFC 9112 §6.
    #[test]
    fn data_is_written_in_its_framing() {
        assert_eq!(written(Encoder::sized(0), &[]), "");
        assert_eq!(written(Encoder::sized(5), &["he", "", "llo"]), "hello");
        assert_eq!(written(Encoder::until_close(), &["he", "llo"]), "hello");
        assert_eq!(written(Encoder::chunked(), &[]), "0\r\n\r\n");
        let long = "x".repeat(0x1a0);
        assert_eq!(
            written(Encoder::chunked(), &["a", "", &long]),
            format!("1\r\na\r\n1a0\r\n{long}\r\n0\r\n\r\n")
        );
    }

    /// RFC 9112 §6.2: a sender must not send another length than it announced.
    #[test]
    fn a_sized_body_has_its_size() {
        let (mut encoder, mut out) = (Encoder::sized(5), Vec::new());
        assert_eq!(encoder.write(b"hel", &mut out), Ok(()));
        assert!(!encoder.is_complete());
        assert_eq!(encoder.finish([], &mut out), Err(EncodeError::TooShort { missing_bytes: 2 }));
        assert_eq!(encoder.write(b"lo!", &mut out), Err(EncodeError::TooLong { excess_bytes: 1 }));
        assert_eq!(out, b"hel");
        assert_eq!(encoder.write(b"lo", &mut out), Ok(()));
        assert!(encoder.is_complete());
        assert_eq!(encoder.finish([], &mut out), Ok(()));
        assert_eq!(out, b"hello");
    }

    #[test]
    fn data_is_filled_in_as_it_is_written() {
        let data: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        for encoder in [Encoder::chunked(), Encoder::until_close(), Encoder::sized(70_000)] {
            for len in [0, 1, 15, 16, 255, 4095, 4096, 65_535, 100_000] {
                let (mut filled, mut written) = (b"before".to_vec(), b"before".to_vec());
                let (mut one, mut other) = (encoder.clone(), encoder.clone());
                let most = one.write_with(&mut filled, len, |out, most| {
                    out.extend_from_slice(&data[..most]);
                    most
                });
                let most = most.unwrap();
                assert!(most == len || most == 70_000 || most == 65_535, "{most}");
                other.write(&data[..most], &mut written).unwrap();
                assert_eq!((filled, one.0), (written, other.0), "{len}");
            }
        }
        let mut out = Vec::new();
        assert_eq!(Encoder::sized(0).write_with(&mut out, 5, |_, _| ()), None);
    }

    /// A body that was not finished cannot be distinguished from one that was cut off.
    #[test]
    fn others_are_complete_when_they_are_finished() {
        for mut encoder in [Encoder::chunked(), Encoder::until_close()] {
            let mut out = Vec::new();
            encoder.write(b"hello", &mut out).unwrap();
            assert!(!encoder.is_complete());
            encoder.finish([], &mut out).unwrap();
            assert!(encoder.is_complete());
        }
    }

    /// RFC 9112 §7.1.2, RFC 9110 §6.5.1.
    #[test]
    fn trailers_follow_the_last_chunk() {
        let fields: [(&str, &[u8]); 3] =
            [("X-A", b"b c"), ("Content-Length", b"5"), ("E", b"\xe4")];
        let (mut encoder, mut out) = (Encoder::chunked(), Vec::new());
        encoder.finish(fields, &mut out).unwrap();
        assert_eq!(out, b"0\r\nX-A: b c\r\nE: \xe4\r\n\r\n");

        let (mut encoder, mut out) = (Encoder::sized(0), Vec::new());
        encoder.finish(fields, &mut out).unwrap();
        assert_eq!(out, b"");
    }

    /// No part of a trailer can be taken for another line (CWE-113).
    #[test]
    fn a_malformed_trailer_is_an_error() {
        let malformed: [(&str, &[u8]); 7] = [
            ("", b"a"),
            ("a b", b"a"),
            ("a:", b"a"),
            ("a\r\n", b"a"),
            ("a", b"a\r\nb: c"),
            ("a", b"a\0"),
            ("a", b"\x7f"),
        ];
        for field in malformed {
            let (mut encoder, mut out) = (Encoder::chunked(), b"before".to_vec());
            let fields = [("x", b"y".as_slice()), field];
            assert_eq!(encoder.finish(fields, &mut out), Err(EncodeError::Trailer), "{field:?}");
            assert_eq!(out, b"before");
            assert!(!encoder.is_complete());
        }
    }

    #[test]
    fn sizes_are_hexadecimal() {
        for number in [0, 1, 15, 16, 255, 256, 0xabc_def0, u64::MAX >> 1, u64::MAX] {
            let mut out = Vec::new();
            write_hexadecimal(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{number:x}"));
        }
    }
}
