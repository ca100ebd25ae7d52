//! The line before a chunk: its size and its extensions (RFC 9112 §7.1 and §7.1.1), byte by byte.

use super::BodyError;
use crate::octet::{is_text, is_token};

/// The most bytes of one chunk line: size, extensions, CR LF. RFC 9112 §7.1.1 wants such a limit;
/// Go's `net/http` has the same one.
pub const CHUNK_LINE_BYTES: u16 = 4096;

/// The most bytes of all chunk extensions of one body. Leading zeros beyond the 16 digits of a size
/// of 64 bits count as if they were extensions.
///
/// Without a limit, a sender could wrap each byte of data into a whole chunk line and have a
/// recipient read thousands of times the data it gets (CVE-2023-39326). hyper has the same limit.
pub const EXTENSION_BYTES: u16 = 16 * 1024;

/// The digits of a size that do not count as extension.
const SIZE_DIGITS: u16 = 16;

/// Deviations from RFC 9112 that a sender may be allowed. Clients are allowed none: what two
/// recipients read differently is how requests are smuggled. An application's body is framed anew
/// for the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkTolerance {
    /// Allows white space between the size of a chunk, or its extensions, and the end of the line.
    pub blanks: bool,
    /// Allows lines that end in LF without CR.
    pub bare_lf: bool,
}

/// The beginning of a chunk line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkLine {
    /// The size as far as its digits have come.
    size: u64,
    /// The bytes so far.
    len: u16,
    at: LinePart,
}

/// The kind of the byte before, which decides what may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePart {
    Start,
    Size,
    /// White space before a `;`.
    Gap,
    /// The `;`, or white space behind it.
    NameStart,
    Name,
    /// White space before a `=` or a `;`.
    NameEnd,
    /// The `=`, or white space behind it.
    ValueStart,
    Value,
    Quoted,
    /// The backslash of a `quoted-pair`.
    Escape,
    QuoteEnd,
    Cr,
}

impl LinePart {
    /// Whether the line may end after this byte.
    fn may_end(self, tolerance: ChunkTolerance) -> bool {
        match self {
            LinePart::Size | LinePart::Name | LinePart::Value | LinePart::QuoteEnd => true,
            LinePart::Gap | LinePart::NameEnd => tolerance.blanks,
            _ => false,
        }
    }
}

impl ChunkLine {
    pub(super) const EMPTY: ChunkLine = ChunkLine { size: 0, len: 0, at: LinePart::Start };

    /// Takes the line's next bytes from the start of `bytes`; returns how many that were, and the
    /// chunk's size if the line is complete. The extension bytes among them are subtracted from
    /// `extension_bytes`, the number that may still come.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        extension_bytes: &mut u16,
        tolerance: ChunkTolerance,
    ) -> Result<(usize, Option<u64>), BodyError> {
        for (at, &byte) in bytes.iter().enumerate() {
            if let Some(size) = self.push(byte, extension_bytes, tolerance)? {
                return Ok((at + 1, Some(size)));
            }
        }
        Ok((bytes.len(), None))
    }

    /// Takes one byte of the line.
    #[inline]
    fn push(
        &mut self,
        byte: u8,
        extension_bytes: &mut u16,
        tolerance: ChunkTolerance,
    ) -> Result<Option<u64>, BodyError> {
        if self.len == CHUNK_LINE_BYTES {
            return Err(BodyError::ExtensionsTooLarge);
        }
        self.len += 1;
        let is_over = match self.at {
            LinePart::Cr => true,
            at => tolerance.bare_lf && at.may_end(tolerance),
        };
        if is_over && byte == b'\n' {
            return Ok(Some(self.size));
        }
        self.at = self.after(byte, tolerance)?;
        let is_free = match self.at {
            LinePart::Size => self.len <= SIZE_DIGITS,
            at => at == LinePart::Cr,
        };
        if !is_free {
            *extension_bytes =
                extension_bytes.checked_sub(1).ok_or(BodyError::ExtensionsTooLarge)?;
        }
        Ok(None)
    }

    /// Checks the grammar `chunk-size *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ]
    /// ) CR`, in which no rule has white space before the CR.
    fn after(&mut self, byte: u8, tolerance: ChunkTolerance) -> Result<LinePart, BodyError> {
        use LinePart::*;
        let wrong = |what| Err(BodyError::Malformed(what));
        Ok(match (self.at, byte) {
            (Start | Size, digit) if digit.is_ascii_hexdigit() => self.digit(digit)?,
            (at, b'\r') if at.may_end(tolerance) => Cr,
            (Size | Gap | Name | NameEnd | Value | QuoteEnd, b';') => NameStart,
            (Size | Gap | Value | QuoteEnd, b' ' | b'\t') => Gap,
            (Start | Size, _) => return wrong("a chunk size is not a number"),
            (at @ (NameStart | ValueStart), b' ' | b'\t') => at,
            (NameStart | Name, token) if is_token(token) => Name,
            (Name | NameEnd, b' ' | b'\t') => NameEnd,
            (Name | NameEnd, b'=') => ValueStart,
            (ValueStart, b'"') => Quoted,
            (ValueStart | Value, token) if is_token(token) => Value,
            (Quoted, b'"') => QuoteEnd,
            (Quoted, b'\\') => Escape,
            (Quoted | Escape, text) if is_text(text) => Quoted,
            (Cr, _) => return wrong("a chunk does not end in CR LF"),
            (_, byte) if is_text(byte) || byte == b'\r' => {
                return wrong("a chunk extension is malformed");
            }
            _ => return wrong("a chunk extension has a forbidden byte"),
        })
    }

    /// Adds a digit to the size. RFC 9112 §7.1: a recipient must expect large sizes, and not
    /// overflow. Leading zeros have no meaning.
    fn digit(&mut self, digit: u8) -> Result<LinePart, BodyError> {
        let value = char::from(digit).to_digit(16).map_or(0, u64::from);
        self.size = self.size.checked_mul(16).ok_or(BodyError::TooLarge)? | value;
        Ok(LinePart::Size)
    }
}
