//! The state of a request that goes to the next stage of this server. Its copy is kept until it is
//! acknowledged and answered.

use crate::group::MemberIndex;
use crate::link::{Flight, LinkFailure, WholeAnswer};
use crate::messages::response::DELAY;
use forebay_http::head::Method;
use forebay_http::response::{BodyFraming, Response};

/// The field that asks for an acknowledgement, and has the number of the attempt, from 1.
pub const ATTEMPT: &str = "Forebay-Attempt";

/// The state of a request that went over a link.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) flight: Flight,
    /// The position of the attempt's number in the copy.
    pub(super) attempt_at: usize,
    /// Whether another instance may go on with the body, because it was asked for as a whole.
    pub(super) may_continue: bool,
    /// The length of the head, without the fields that ask for the rest of a body.
    pub(super) head_bytes: usize,
    /// Whether the rest of the body was asked for, so that a head comes next.
    pub(super) is_continuing: bool,
    /// Whether no instance can go on with the body.
    pub(super) is_broken: bool,
    pub(super) reason: Option<LinkFailure>,
}

/// What the link needs to know of a request to the next stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The position of the digit with the number of the attempt in the head.
    pub attempt_at: usize,
    /// Whether the request may run twice if its method is idempotent.
    pub repeats_idempotent: bool,
    /// Whether the request cannot be expressed in HTTP/2: it names no host, as in HTTP/1.0, or asks
    /// for another protocol.
    pub needs_http1: bool,
    /// Whether there is room for a second copy of a request that takes long.
    pub may_hurry: bool,
    /// Whether the answer would be whole, as far as the request shows: it has no body, and asks for
    /// no part.
    pub is_for_whole: bool,
}

impl Linked {
    pub(super) fn new(flight: Flight, copy: Copy, method: Method, head_bytes: usize) -> Linked {
        Linked {
            flight,
            attempt_at: copy.attempt_at,
            may_continue: copy.is_for_whole && method == Method::Get,
            head_bytes,
            is_continuing: false,
            is_broken: false,
            reason: None,
        }
    }

    pub(super) fn instance(&self) -> MemberIndex {
        self.flight.instance()
    }

    pub(super) fn is_continuing(&self) -> bool {
        self.is_continuing
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }
}

/// Whether a request may run twice: it is safe (RFC 9110 §9.2.1), or idempotent (§9.2.2) where the
/// site allows that.
pub(super) fn repeats(method: Method, idempotent_too: bool) -> bool {
    match method {
        Method::Get | Method::Head | Method::Options => true,
        Method::Put | Method::Delete => idempotent_too,
        _ => false,
    }
}

/// What a link must know of a head.
pub(super) struct Noted {
    pub(super) whole: Option<WholeAnswer>,
    pub(super) part: Option<(u64, u64, Box<[u8]>)>,
    pub(super) delay_ms: Option<u64>,
    pub(super) len: usize,
    pub(super) keep_alive: bool,
}

impl Noted {
    pub(super) fn of(head: &Response<'_>) -> Noted {
        let tag = head.values("etag").next().filter(|tag| tag.starts_with(b"\""));
        let is_identity = head.values("content-encoding").next().is_none();
        let (mut whole, mut part) = (None, None);
        if let (Some(tag), true) = (tag, is_identity) {
            match (head.status, head.body) {
                (200, BodyFraming::Sized(total_bytes)) => {
                    whole = Some(WholeAnswer { total_bytes, tag: tag.into() });
                }
                (206, BodyFraming::Sized(length)) => {
                    let range = head.values("content-range").next().and_then(content_range);
                    part = range
                        .filter(|(from, to, total)| to + 1 == *total && total - from == length)
                        .map(|(from, _, total)| (from, total, tag.into()));
                }
                _ => {}
            }
        }
        let delay_ms = head.values(DELAY).next().and_then(milliseconds);
        Noted { whole, part, delay_ms, len: head.len, keep_alive: head.keep_alive }
    }
}

/// A delay in milliseconds, as answers carry it. Implausibly long values are ignored.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let is_number = (1..=7).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok()?.parse().ok().filter(|_| is_number)
}

/// The first byte, the last byte and the length of the whole (RFC 9110 §14.4).
fn content_range(value: &[u8]) -> Option<(u64, u64, u64)> {
    let text = std::str::from_utf8(value).ok()?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let (from, to, total) = (number(from)?, number(to)?, number(total)?);
    (from <= to && to < total).then_some((from, to, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_run_twice_is_safe_or_idempotent_where_that_is_allowed() {
        let by = |idempotent| move |method: &Method| repeats(*method, idempotent);
        let all = [Method::Get, Method::Head, Method::Options, Method::Put, Method::Delete];
        let (never, safe) = ([Method::Post, Method::Patch, Method::Trace], &all[..3]);
        assert!(all.iter().all(by(true)) && !never.iter().any(by(true)));
        assert!(safe.iter().all(by(false)) && !all[3..].iter().any(by(false)));
    }

    #[test]
    fn delays_are_whole_milliseconds() {
        for (value, expected) in
            [("0", Some(0)), ("1500", Some(1500)), ("", None), ("+1", None), ("99999999", None)]
        {
            assert_eq!(milliseconds(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn parts_say_where_they_belong() {
        for (value, expected) in [
            ("bytes 0-9/10", Some((0, 9, 10))),
            ("bytes 5-9/10", Some((5, 9, 10))),
            ("bytes 5-10/10", None),
            ("bytes 9-5/10", None),
            ("bytes 5-9/*", None),
            ("bytes */10", None),
            ("bytes +5-9/10", None),
            ("lines 5-9/10", None),
            ("", None),
        ] {
            assert_eq!(content_range(value.as_bytes()), expected, "{value}");
        }
    }
}
