//! The fields after the last chunk (RFC 9112 §7.1.2): checked like those of a head, kept or not.

use super::BodyError;
use super::chunk_line::ChunkTolerance;
use crate::head::{HeadLimits, MOST_LINES};
use crate::octet::{is_text, is_token};

/// The use of trailer fields. They are checked in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trailers {
    /// Trailer fields are not kept.
    Discard,
    /// The fields that may be in a trailer section are kept for
    /// [`BodyDecoder::trailers`](super::BodyDecoder::trailers), in at most
    /// [`HeadLimits::head_bytes`].
    Keep,
}

/// A trailer section that arrives byte by byte.
#[derive(Clone, Debug)]
pub(super) struct TrailerSection {
    at: TrailerState,
    /// The bytes that may still come, the empty line included.
    bytes_left: u32,
    /// The lines that may still come, without the empty one.
    lines_left: u8,
    /// Whether lines may end in LF without CR.
    bare_lf: bool,
    kept: Option<Box<KeptLines>>,
}

/// The kind of the byte before, which decides what may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrailerState {
    LineStart,
    Name,
    Value,
    Cr,
    /// The CR of the empty line.
    LastCr,
}

impl TrailerSection {
    pub(super) fn new(trailers: Trailers, limits: &HeadLimits) -> TrailerSection {
        TrailerSection {
            at: TrailerState::LineStart,
            bytes_left: u32::try_from(limits.head_bytes).unwrap_or(u32::MAX),
            lines_left: limits.head_lines.min(MOST_LINES) as u8,
            bare_lf: false,
            kept: (trailers == Trailers::Keep).then(Box::default),
        }
    }

    /// Allows the sender these deviations.
    pub(super) fn tolerating(
        self,
        ChunkTolerance { bare_lf, .. }: ChunkTolerance,
    ) -> TrailerSection {
        TrailerSection { bare_lf, ..self }
    }

    /// Takes the section's next bytes from the start of `bytes`; returns how many that were, and
    /// whether the section is complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), BodyError> {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.push(byte)? {
                return Ok((at + 1, true));
            }
        }
        Ok((bytes.len(), false))
    }

    /// Takes one byte of the section.
    fn push(&mut self, byte: u8) -> Result<bool, BodyError> {
        self.bytes_left = self.bytes_left.checked_sub(1).ok_or(BodyError::TrailersTooLarge)?;
        let is_last = byte == b'\n'
            && match self.at {
                TrailerState::LastCr => true,
                TrailerState::LineStart => self.bare_lf,
                _ => false,
            };
        if is_last {
            return Ok(true);
        }
        if self.at == TrailerState::LineStart && byte != b'\r' {
            self.lines_left = self.lines_left.checked_sub(1).ok_or(BodyError::TrailersTooLarge)?;
        }
        self.at = self.after(byte)?;
        if let Some(kept) = &mut self.kept {
            match self.at {
                TrailerState::Name | TrailerState::Value => kept.bytes.push(byte),
                TrailerState::LineStart => kept.end_line(),
                TrailerState::Cr | TrailerState::LastCr => {}
            }
        }
        Ok(false)
    }

    /// Checks the grammar `*( field-name ":" OWS field-value OWS CRLF ) CRLF`: no white space
    /// before the colon (RFC 9112 §5.1), no folded lines (§5.2), no control bytes (RFC 9110 §5.5).
    fn after(&self, byte: u8) -> Result<TrailerState, BodyError> {
        use TrailerState::*;
        let wrong = |what| Err(BodyError::Malformed(what));
        Ok(match (self.at, byte) {
            (LineStart, b'\r') => LastCr,
            (LineStart, b' ' | b'\t') => return wrong("a trailer line is folded"),
            (LineStart | Name, token) if is_token(token) => Name,
            (Name, b':') => Value,
            (Value, b'\r') => Cr,
            (Value, text) if is_text(text) => Value,
            (Cr, b'\n') => LineStart,
            (Value, b'\n') if self.bare_lf => LineStart,
            (Cr | LastCr, _) => return wrong("a trailer line does not end in CR LF"),
            (_, 0 | b'\n') | (Value, _) => return wrong("a trailer has a forbidden byte"),
            (LineStart | Name, _) => return wrong("a trailer name is malformed"),
        })
    }

    /// The fields kept so far whose lines are complete.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        let whole = self.kept.as_ref().map_or(&[][..], |kept| &kept.bytes[..kept.whole]);
        whole.split(|&b| b == b'\n').filter_map(field)
    }
}

/// The lines of fields that are kept.
#[derive(Clone, Debug, Default)]
struct KeptLines {
    /// The lines without CR. No value contains an LF.
    bytes: Vec<u8>,
    /// The number of these bytes that are complete lines.
    whole: usize,
}

impl KeptLines {
    fn end_line(&mut self) {
        match field(&self.bytes[self.whole..]) {
            Some((name, _)) if is_allowed(name) => self.bytes.push(b'\n'),
            _ => self.bytes.truncate(self.whole),
        }
        self.whole = self.bytes.len();
    }
}

/// Name and value of a line that was checked.
fn field(line: &[u8]) -> Option<(&str, &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    let name = std::str::from_utf8(&line[..colon]).ok()?;
    Some((name, line[colon + 1..].trim_ascii()))
}

/// Whether a field may be in a trailer section. It may not if it determines how a message is
/// framed, where it goes, on which conditions it is answered, which client sends it, or what its
/// content is: all of that is decided before the trailers come, and another recipient may decide it
/// again (RFC 9110 §6.5.1).
pub(super) fn is_allowed(name: &str) -> bool {
    let begins = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    !(NOT_IN_TRAILERS.iter().any(|other| other.eq_ignore_ascii_case(name))
        || FAMILIES_NOT_IN_TRAILERS.iter().any(begins))
}

const NOT_IN_TRAILERS: [&str; 38] = [
    // framing (RFC 9112 §6) and the connection (RFC 9110 §7.6, §7.8, §10.1.4)
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "max-forwards",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    // routing, and the client that a proxy speaks for (RFC 9110 §7.2, RFC 7239)
    "forwarded",
    "host",
    "x-real-ip",
    // request modifiers (RFC 9110 §10.1.1 and §14.2, RFC 9111 §5, RFC 8470)
    "cache-control",
    "early-data",
    "expect",
    "pragma",
    "range",
    // authentication (RFC 9110 §11, RFC 6265)
    "authorization",
    "cookie",
    "proxy-authenticate",
    "proxy-authorization",
    "set-cookie",
    "www-authenticate",
    // response control (RFC 9110 §6.6.1 and §10.2, RFC 9111 §5)
    "age",
    "date",
    "expires",
    "location",
    "retry-after",
    "vary",
    "warning",
    // content (RFC 9110 §8 and §14.4, RFC 6266)
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-type",
];

/// Conditions (RFC 9110 §13.1), and what proxies add about clients.
const FAMILIES_NOT_IN_TRAILERS: [&str; 2] = ["if-", "x-forwarded-"];
