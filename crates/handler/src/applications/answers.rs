//! What clients get, and logs show, when an exchange fails or ends.

use crate::log;
use forebay_conn::Answerer;
use forebay_metrics::RefusalReason;
use forebay_sys::clock;
use forebay_upstream::exchange::{Exchange, Failed, Lateness, WaitingTurn};
use forebay_upstream::group::Unavailable;
use forebay_upstream::hand_over::exchange::HandOverExchange;
use forebay_upstream::inside::{InsideExchange, InsideFailure};
use forebay_upstream::retry::AttemptFailure;
use std::time::Duration;

pub(super) const TOO_LARGE: &str = "The request body is larger than the application may be sent";

const NO_SPOOL: &str = "The request does not say how long its body is, and that is larger than spool_bytes: this server has no spool_dir";

const SPOOL_FULL: &str = "The server has no room for the body of the request";

const SIGN_IN: &str = "The application signs in connections, and this one cannot be signed in";

/// The status and text for a client whose application has not answered.
pub fn failed(failed: Failed) -> (u16, &'static str) {
    let (failure, late) = match failed {
        Failed::Unasked(Unavailable::Deadline) => return (504, unasked(Unavailable::Deadline)),
        Failed::Unasked(unavailable) => return (503, unasked(unavailable)),
        Failed::TooLarge => return (413, TOO_LARGE),
        Failed::NoSpool => return (413, NO_SPOOL),
        Failed::SpoolFull => return (507, SPOOL_FULL),
        Failed::SignIn => return (502, SIGN_IN),
        Failed::Asked(failure, late) => (failure, late == Lateness::Late),
    };
    match (failure, late) {
        (AttemptFailure::Connect, true) => (504, "The application could not be reached in time"),
        (_, true) | (AttemptFailure::Silent | AttemptFailure::Frozen, _) => {
            (504, "The application did not answer in time")
        }
        (AttemptFailure::Connect, false) => (502, "The application cannot be reached"),
        (AttemptFailure::Tls(_), false) => (502, "The application cannot be reached safely"),
        (AttemptFailure::Unwritten | AttemptFailure::Closed | AttemptFailure::Returned, _) => {
            (502, "The application has closed the connection without an answer")
        }
        (AttemptFailure::Overloaded, _) => (503, "The application has no room for more requests"),
        (AttemptFailure::Resources, _) => {
            (503, "The server has no room for a connection to the application")
        }
        (AttemptFailure::Malformed, _) => {
            (502, "The answer of the application cannot be understood")
        }
    }
}

/// The text for a client whose application cannot be asked.
fn unasked(unavailable: Unavailable) -> &'static str {
    match unavailable {
        Unavailable::Full | Unavailable::Limited { .. } => {
            "The application has as much to do as it may"
        }
        Unavailable::Late => "The application had no room for the request in time",
        Unavailable::Deadline => {
            "The application had no room for the request while its client waited"
        }
        Unavailable::Down => "The application is out of service",
        Unavailable::Threads | Unavailable::Descriptors => {
            "As many requests for applications are under way as may be"
        }
    }
}

/// What the log shows of a request that an application was asked for.
pub fn said_of<T>(exchange: &Exchange<T>) -> log::line::LoggedUpstream<'_> {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (times, attempts) = (exchange.times(), exchange.attempts());
    let upstream = match attempts {
        0 => "",
        _ => exchange.application().label(exchange.upstream()),
    };
    log::line::LoggedUpstream {
        upstream,
        // servers of passed-on connections give no answers of HTTP
        status: exchange.status().filter(|_| exchange.application().settings().tcp().is_none()),
        error: exchange.failure().map(Failed::word),
        attempts,
        queue_us: us(exchange.waited()),
        connect_us: times.connect().map(us),
        head_us: times.head().map(us),
        total_us: None,
        begun_ns: times.begun_ns(),
    }
}

/// What the log shows of a request whose client has left before its turn came.
pub fn said_of_turn<T>(turn: &WaitingTurn<T>) -> log::line::LoggedUpstream<'_> {
    log::line::LoggedUpstream {
        upstream: "",
        status: None,
        error: turn.refused().map(|unavailable| Failed::Unasked(unavailable).word()),
        attempts: 0,
        queue_us: clock::monotonic_ns().saturating_sub(turn.begun_ns()) / 1000,
        connect_us: None,
        head_us: None,
        total_us: None,
        begun_ns: turn.begun_ns(),
    }
}

/// What the log shows of a request that was offered to receivers.
pub fn said_of_receiver<T>(exchange: &HandOverExchange<T>) -> log::line::LoggedUpstream<'_> {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (times, attempts) = (exchange.times(), exchange.attempts());
    let upstream = match attempts {
        0 => "",
        _ => exchange.application().label(exchange.upstream()),
    };
    log::line::LoggedUpstream {
        upstream,
        status: exchange.status(),
        error: exchange.error(),
        attempts,
        queue_us: us(exchange.waited()),
        connect_us: times.connect().map(us),
        head_us: times.head().map(us),
        total_us: times.head().map(us),
        begun_ns: times.begun_ns(),
    }
}

/// What the log shows of a request that a handler of the program answers.
pub fn said_of_handler<T>(exchange: &InsideExchange<T>) -> log::line::LoggedUpstream<'_> {
    log::line::LoggedUpstream {
        upstream: exchange.name(),
        status: exchange.status(),
        error: exchange.failure().map(InsideFailure::word),
        attempts: u32::from(exchange.begun_ns() > 0),
        queue_us: 0,
        connect_us: None,
        head_us: exchange.head_us(),
        total_us: None,
        begun_ns: exchange.begun_ns(),
    }
}

/// A summary of an exchange whose answer something else replaces, for the log.
pub fn summary<T>(exchange: &Exchange<T>) -> Answerer {
    let log::line::LoggedUpstream {
        upstream, status, attempts, queue_us, connect_us, head_us, ..
    } = said_of(exchange);
    let (name, status) = (upstream.into(), status.unwrap_or_default());
    Answerer { name, status, attempts, queue_us, connect_us, head_us }
}

/// What the log shows of such a summary.
pub fn before(answerer: &Answerer) -> log::line::LoggedUpstream<'_> {
    let Answerer { name, status, attempts, queue_us, connect_us, head_us } = answerer;
    log::line::LoggedUpstream {
        upstream: name,
        status: Some(*status),
        error: None,
        attempts: *attempts,
        queue_us: *queue_us,
        connect_us: *connect_us,
        head_us: *head_us,
        // nothing behind the head is waited for
        total_us: *head_us,
        begun_ns: 0,
    }
}

/// The reason for which a class is counted as refused, if it is, and the seconds after which the client
/// may try again.
pub fn refused(unavailable: Unavailable) -> (Option<RefusalReason>, u32) {
    match unavailable {
        Unavailable::Full | Unavailable::Threads | Unavailable::Descriptors => {
            (Some(RefusalReason::Queue), 1)
        }
        Unavailable::Late | Unavailable::Deadline => (Some(RefusalReason::Expired), 1),
        Unavailable::Limited { retry_after_s } => (Some(RefusalReason::Agent), retry_after_s),
        Unavailable::Down => (None, 1),
    }
}
