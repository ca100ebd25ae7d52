//! Why an attempt to get a certificate has failed.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFailure {
    /// The kind of failure, which says who is at fault.
    pub why: Why,
    /// A description of what is wrong.
    pub reason: String,
    /// The authority's `Retry-After`, if it gave one.
    pub after: Option<Duration>,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The authority cannot be reached, or does not work.
    Unreachable,
    /// The authority rejected nonces that it had issued, several times (RFC 8555 §6.5).
    StaleNonce,
    /// The authority has limited the rate of requests.
    RateLimited,
    /// The authority could not validate a name.
    Unproven,
    /// The authority refused the order.
    Refused,
    /// The authority does not know the account any more.
    AccountUnknown,
    /// The command that makes DNS records has failed.
    Hook,
    /// A file cannot be read or written.
    Storage,
}

impl OrderFailure {
    pub(crate) fn new(why: Why, reason: impl Into<String>) -> OrderFailure {
        OrderFailure { why, reason: reason.into(), after: None }
    }

    /// The failure of reading or writing a file.
    pub(crate) fn storage(path: &Path, error: &io::Error) -> OrderFailure {
        OrderFailure::new(Why::Storage, format!("cannot use {}: {error}", path.display()))
    }
}

impl fmt::Display for OrderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
