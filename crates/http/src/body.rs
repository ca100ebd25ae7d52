//! Bodies of messages: taken apart as they arrive, and framed as they leave (RFC 9112 §6 and §7).
//!
//! A [`BodyDecoder`] is given bytes in pieces of any size and returns which of them are data; the
//! caller may use the data or drop it. An [`Encoder`] writes data with the framing it needs.
//! Neither keeps data, reads a clock or knows a socket.
//!
//! | file | subject |
//! |---|---|
//! | `decode.rs` | where data begins and ends, and how much of it may come |
//! | `chunk_line.rs` | the line before a chunk: its size and its extensions (RFC 9112 §7.1, §7.1.1) |
//! | `trailers.rs` | the fields after the last chunk (RFC 9112 §7.1.2) |
//! | `encode.rs` | framing for bodies that are sent |
//!
//! ```
//! use forebay_http::body::{BodyDecoder, Encoder, Trailers};
//! use forebay_http::framing::Framing;
//! use forebay_http::head::HeadLimits;
//!
//! let mut sent = Vec::new();
//! let mut encoder = Encoder::chunked();
//! encoder.write(b"hello", &mut sent)?;
//! encoder.finish([], &mut sent)?;
//! assert_eq!(sent, b"5\r\nhello\r\n0\r\n\r\n");
//!
//! let allowance = 1024;
//! let limits = HeadLimits::default();
//! let mut decoder = BodyDecoder::new(Framing::Chunked, allowance, Trailers::Discard, &limits)?;
//! let (mut rest, mut data) = (sent.as_slice(), Vec::new());
//! while !rest.is_empty() && !decoder.is_done() {
//!     let decoded = decoder.next(rest)?;
//!     data.extend_from_slice(decoded.data);
//!     rest = &rest[decoded.used..];
//! }
//! assert!(decoder.is_done());
//! assert_eq!(data, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunk_line;
mod decode;
mod encode;
mod trailers;

pub use chunk_line::{CHUNK_LINE_BYTES, ChunkTolerance, EXTENSION_BYTES};
pub use decode::{BodyDecoder, DecodedPiece};
pub use encode::{EncodeError, Encoder};
pub use trailers::Trailers;

use std::error::Error;
use std::fmt;

/// The reason why the rest of a body cannot be read. It is always the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The chunked framing is broken, for this reason. 400.
    Malformed(&'static str),
    /// The body has more bytes than the allowance, framing included. 413.
    TooLarge,
    /// A chunk line has more than [`CHUNK_LINE_BYTES`], or all of them together have extensions of
    /// more than [`EXTENSION_BYTES`]. 413.
    ExtensionsTooLarge,
    /// The trailer section has more bytes or lines than a head may have. 431.
    TrailersTooLarge,
}

impl BodyError {
    /// The status of the answer, if the body is that of a request.
    pub fn status(self) -> u16 {
        match self {
            BodyError::Malformed(_) => 400,
            BodyError::TooLarge | BodyError::ExtensionsTooLarge => 413,
            BodyError::TrailersTooLarge => 431,
        }
    }

    /// The error in a few words, for the client and the log.
    pub fn reason(self) -> &'static str {
        match self {
            BodyError::Malformed(what) => what,
            BodyError::TooLarge => "the request body is too large",
            BodyError::ExtensionsTooLarge => "the chunk sizes and extensions are too long",
            BodyError::TrailersTooLarge => "the trailer section is too large",
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl Error for BodyError {}

#[cfg(test)]
mod tests;
