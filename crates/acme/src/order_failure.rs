//! Why an attempt to get a certificate has failed.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What came of an attempt that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFailure {
    /// Whose doing it is.
    pub why: Why,
    /// What is wrong, in words.
    pub reason: String,
    /// When the authority wants to be asked again, if it has said so.
    pub after: Option<Duration>,
}

/// Why there is no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The authority cannot be reached, or is out of order.
    Unreachable,
    /// It does not know the nonce any more that it has given, time after time (RFC 8555 §6.5).
    StaleNonce,
    /// It was asked too much.
    RateLimited,
    /// It could not see that a name is ours.
    Unproven,
    /// It does not want to.
    Refused,
    /// It does not know the account any more.
    AccountUnknown,
    /// The command that makes records of the name service has failed.
    Hook,
    /// Files cannot be read or written.
    Storage,
}

impl OrderFailure {
    pub(crate) fn new(why: Why, reason: impl Into<String>) -> OrderFailure {
        OrderFailure { why, reason: reason.into(), after: None }
    }

    /// A file is in the way.
    pub(crate) fn storage(path: &Path, error: &io::Error) -> OrderFailure {
        OrderFailure::new(Why::Storage, format!("cannot use {}: {error}", path.display()))
    }
}

impl fmt::Display for OrderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
