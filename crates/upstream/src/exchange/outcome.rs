//! The outcome of an exchange, and how long it took.

use crate::group::retry::AttemptFailure;
use crate::group::{MemberIndex, Unavailable};
use forebay_sys::client;
use forebay_tls::TlsFault;
use std::io;
use std::time::Duration;

/// The times of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTimes {
    pub(super) begun_ns: u64,
    pub(super) connected_ns: u64,
    pub(super) answered_ns: u64,
}

impl ExchangeTimes {
    /// The times of an exchange that begins now.
    pub(crate) fn begun(begun_ns: u64) -> ExchangeTimes {
        ExchangeTimes { begun_ns, ..ExchangeTimes::default() }
    }

    /// Notes that there is a connection now.
    pub(crate) fn connected(&mut self, now_ns: u64) {
        self.connected_ns = now_ns;
    }

    /// Notes that the head of the answer is there now.
    pub(crate) fn answered(&mut self, now_ns: u64) {
        self.answered_ns = now_ns;
    }

    /// When the last upstream was asked, or the request began to wait, in nanoseconds of the
    /// monotonic clock.
    pub fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// The time until the last connection was there, in nanoseconds; 0 if there was none.
    pub(crate) fn connect_ns(&self) -> u64 {
        self.connected_ns.saturating_sub(self.begun_ns)
    }

    /// The time until the head of the answer was there, in nanoseconds; 0 if it never was.
    pub(crate) fn head_ns(&self) -> u64 {
        self.answered_ns.saturating_sub(self.begun_ns)
    }

    /// The time until the last connection was there; `None` if there was none.
    pub fn connect(&self) -> Option<Duration> {
        (self.connected_ns > 0)
            .then(|| Duration::from_nanos(self.connected_ns.saturating_sub(self.begun_ns)))
    }

    /// The time until the head of the answer was there; `None` if it never was.
    pub fn head(&self) -> Option<Duration> {
        (self.answered_ns > 0)
            .then(|| Duration::from_nanos(self.answered_ns.saturating_sub(self.begun_ns)))
    }
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The last attempt has failed like this, in time or not.
    Asked(AttemptFailure, Lateness),
    /// No upstream could be asked.
    Unasked(Unavailable),
    /// The body of the request is larger than allowed.
    TooLarge,
    /// The body is larger than is collected in memory, its length is not known, and there is no spool
    /// on disk.
    NoSpool,
    /// The body is too large for memory, and the spool on disk is full.
    SpoolFull,
    /// The upstream wants a sign-in, and offers only schemes that sign in a connection; this
    /// connection cannot be the client's alone.
    SignIn,
}

impl Failed {
    /// The failure in a word, for logs.
    pub fn word(self) -> &'static str {
        match self {
            Failed::Asked(failure, late) => late.word(failure),
            Failed::Unasked(Unavailable::Full) => "queue_full",
            Failed::Unasked(Unavailable::Late) => "queue_timeout",
            Failed::Unasked(Unavailable::Deadline) => "deadline",
            Failed::Unasked(Unavailable::Limited { .. }) => "agent",
            Failed::Unasked(Unavailable::Down) => "drained",
            Failed::Unasked(Unavailable::Threads) => "threads",
            Failed::Unasked(Unavailable::Descriptors) => "descriptors",
            Failed::TooLarge | Failed::NoSpool => "too_large",
            Failed::SpoolFull => "spool_full",
            Failed::SignIn => "connection_auth",
        }
    }
}

/// Whether an attempt failed because its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// The attempt failed before its time was over.
    InTime,
    /// The time was over.
    Late,
}

impl Lateness {
    /// The failure of an upstream in a word, for logs.
    pub(crate) fn word(self, failure: AttemptFailure) -> &'static str {
        match (failure, self) {
            (AttemptFailure::Connect, Lateness::InTime) => "connect",
            (AttemptFailure::Connect, Lateness::Late) => "connect_timeout",
            (AttemptFailure::Tls(fault), _) => fault.word(),
            (AttemptFailure::Silent | AttemptFailure::Frozen, _) | (_, Lateness::Late) => "timeout",
            (AttemptFailure::Unwritten | AttemptFailure::Closed, _) => "closed",
            (AttemptFailure::Malformed, _) => "malformed",
            (AttemptFailure::Overloaded, _) => "overloaded",
            (AttemptFailure::Returned, _) => "returned",
            (AttemptFailure::Resources, _) => "resources",
        }
    }
}

/// A failed attempt of a traced request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The upstream that was asked.
    pub upstream: MemberIndex,
    /// When the attempt began, in nanoseconds of the monotonic clock.
    pub begun_ns: u64,
    /// When there was a connection; 0 if there was none.
    pub connected_ns: u64,
    /// When the attempt failed.
    pub ended_ns: u64,
    /// How it failed, in a word.
    pub error: &'static str,
}

/// The TLS handshakes with upstreams, by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamHandshakes {
    /// The number of full handshakes, in which certificates were verified.
    pub full: u32,
    /// The number of resumed sessions.
    pub resumed: u32,
    /// The handshakes that failed.
    pub failed: Vec<TlsFault>,
}

/// The reason when there was no connection, and nothing more is known.
pub(super) const UNREACHED: &str = "connect";

/// The reason when the TLS handshake was not done in the time for a connection.
pub(super) const UNSHAKEN: &str = "connect_timeout: in the handshake of TLS";

/// The reasons when no process listens at the address.
const REFUSED: &str = "connect: refused";
const NO_SOCKET: &str = "connect: there is no such socket";

/// Whether an attempt has failed as it does while its upstream is restarted: no process listens.
pub(super) fn is_away(failure: AttemptFailure, unreached: &str) -> bool {
    failure == AttemptFailure::Connect && [REFUSED, NO_SOCKET].contains(&unreached)
}

/// Why there is no connection, for the operator. `None` if the upstream is not to blame, because this
/// server has no descriptor or no memory for one.
pub(crate) fn unreached(error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind::*;
    let is_of_kernel = error.raw_os_error().is_some();
    if client::is_lack(error) {
        return None;
    }
    Some(match error.kind() {
        ConnectionRefused => REFUSED,
        HostUnreachable | NetworkUnreachable | TimedOut => "connect: unreachable",
        AddrNotAvailable if is_of_kernel => "connect: no free port, or no such address here",
        AddrNotAvailable => "connect: the name has no address",
        NotFound | NotADirectory => NO_SOCKET,
        PermissionDenied => "connect: permission denied",
        // for a Unix socket: its backlog is full
        WouldBlock => "connect: its backlog is full",
        _ => UNREACHED,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::client::connect_unix;
    use forebay_sys::unix_address::UnixAddress;

    #[test]
    fn why_there_is_no_connection() {
        use io::ErrorKind::*;
        for (kind, expected) in [
            (ConnectionRefused, "connect: refused"),
            (HostUnreachable, "connect: unreachable"),
            (NetworkUnreachable, "connect: unreachable"),
            (TimedOut, "connect: unreachable"),
            (PermissionDenied, "connect: permission denied"),
            (WouldBlock, "connect: its backlog is full"),
            (BrokenPipe, UNREACHED),
        ] {
            assert_eq!(unreached(&io::Error::from(kind)), Some(expected), "{kind}");
        }
        let unknown = io::Error::from(io::ErrorKind::AddrNotAvailable);
        assert_eq!(unreached(&unknown), Some("connect: the name has no address"));
        let none = connect_unix(&UnixAddress::Path("/nowhere/app.sock".into())).unwrap_err();
        assert_eq!(unreached(&none), Some("connect: there is no such socket"));
    }
}
