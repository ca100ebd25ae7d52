//! How the body of a request is framed (RFC 9112 §6). [`body`](crate::body) finds where it ends.

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// Exactly this many bytes.
    Sized(u64),
    /// Chunks, ended by a chunk of size 0.
    Chunked,
}

/// Reads the number of a `Content-Length`, or returns what is wrong with it.
pub(crate) fn number(value: &[u8]) -> Result<u64, &'static str> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err("Content-Length is not a number");
    }
    let add = |sum: u64, digit: &u8| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    value.iter().try_fold(0u64, add).ok_or("Content-Length is too large")
}
