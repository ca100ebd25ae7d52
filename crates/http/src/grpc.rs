//! The parts of gRPC that an HTTP server must know: which requests are calls, how long their
//! clients wait, and the status of gRPC for a status of HTTP.

use crate::head::{Head, Method};
use std::time::Duration;

/// Whether a request is a call: gRPC over HTTP/2, and not gRPC-Web.
pub fn is_call(head: &Head<'_>) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let is_call = |value: &[u8]| {
        let rest = value.get(..TYPE.len()).filter(|start| start.eq_ignore_ascii_case(TYPE));
        rest.is_some() && matches!(value.get(TYPE.len()), None | Some(b'+' | b';' | b' '))
    };
    head.method == Method::Post && value(head, "content-type").is_some_and(is_call)
}

/// The time for which the client of a call waits for all of it, if it states one.
pub fn timeout(head: &Head<'_>) -> Option<Duration> {
    let value = value(head, "grpc-timeout").filter(|_| is_call(head))?;
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The status of a call whose answer has this status of HTTP: the one that gRPC assigns to answers
/// without a status of their own, except where this server means something else by it.
pub fn status_of(status: u16) -> &'static str {
    match status {
        // INTERNAL
        400 => "13",
        // UNAUTHENTICATED
        401 => "16",
        // PERMISSION_DENIED
        403 => "7",
        // UNIMPLEMENTED
        404 | 501 => "12",
        // RESOURCE_EXHAUSTED: the client has sent too many requests, or too much
        413 | 429 | 431 => "8",
        // DEADLINE_EXCEEDED
        408 | 504 => "4",
        // UNAVAILABLE: the client may try again
        500..=599 => "14",
        // UNKNOWN
        _ => "2",
    }
}

fn value<'h>(head: &Head<'h>, name: &str) -> Option<&'h [u8]> {
    head.fields().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{HeadLimits, Lines, ParsedHead};

    fn with<R>(method: &str, fields: &str, look: impl FnOnce(&Head<'_>) -> R) -> R {
        let text = format!("{method} /a.B/C HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut lines = Lines::new();
        match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => look(&head),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn calls_are_told_from_other_requests() {
        for (of, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC;x=y", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
        ] {
            let fields = format!("Content-Type: {of}\r\n");
            assert_eq!(with("POST", &fields, is_call), expected, "{of}");
            assert!(!with("GET", &fields, is_call));
        }
        assert!(!with("POST", "", is_call));
    }

    #[test]
    fn how_long_a_client_waits() {
        for (said, expected_us) in [
            ("1H", Some(3_600_000_000)),
            ("2M", Some(120_000_000)),
            ("3S", Some(3_000_000)),
            ("250m", Some(250_000)),
            ("99999999u", Some(99_999_999)),
            ("7000n", Some(7)),
            ("0m", Some(0)),
            ("100000000m", None),
            ("m", None),
            ("10", None),
            ("1.5S", None),
            ("-1S", None),
            ("", None),
        ] {
            let fields = format!("Content-Type: application/grpc\r\nGrpc-Timeout: {said}\r\n");
            let expected = expected_us.map(Duration::from_micros);
            assert_eq!(with("POST", &fields, timeout), expected, "{said}");
        }
        assert_eq!(with("POST", "Grpc-Timeout: 1S\r\n", timeout), None);
    }

    #[test]
    fn refusals_have_the_status_that_clients_go_by() {
        for (status, expected) in [(503, "14"), (502, "14"), (429, "8"), (504, "4"), (403, "7")] {
            assert_eq!(status_of(status), expected, "{status}");
        }
    }
}
