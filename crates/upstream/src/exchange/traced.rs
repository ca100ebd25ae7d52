//! Traces of exchanges: each attempt is a span of its own, and the request names it.

use super::outcome::FailedAttempt;
use super::state::Exchange;
use forebay_http::trace_context::{self, TraceContext};
use forebay_sys::clock;

/// The length of `00-`, the trace id and `-`, before the span id.
const BEFORE_SPAN: usize = 36;

/// The number of digits of a span id.
const SPAN_DIGITS: usize = 16;

/// What precedes the value of the field, in a head and in the parameters of a script (with the
/// lengths of both). No other field ends like that.
const NAMES: [&[u8]; 2] = [b"\ntraceparent: ", b"\x10\x37HTTP_TRACEPARENT"];

impl<T> Exchange<T> {
    /// The attempts that have failed, in order; empty for a request that is not recorded.
    pub fn failed_attempts(&self) -> &[FailedAttempt] {
        &self.tries.failed
    }

    /// Remembers that the current attempt of a recorded request has failed, once for each attempt.
    pub(super) fn note_failed(&mut self, error: &'static str) {
        let (number, known) = (self.tries.tried.len(), self.tries.failed.len());
        if self.asked.trace.is_none() || number <= known {
            return;
        }
        let failed = FailedAttempt {
            number: u32::try_from(number).unwrap_or(u32::MAX),
            upstream: self.upstream(),
            begun_ns: self.times.begun_ns,
            connected_ns: self.times.connected_ns,
            ended_ns: clock::monotonic_ns(),
            error,
        };
        self.tries.failed.push(failed);
    }

    /// Writes the span id of the attempt that begins into the request.
    pub(super) fn name_attempt(&mut self) {
        let Some(trace) = self.asked.trace else { return };
        // the head was written with the span id of the first attempt
        let number = self.tries.tried.len();
        if number > 1 {
            let child_id = trace.child_id(u32::try_from(number).unwrap_or(u32::MAX));
            name_span(trace, child_id, &mut self.upload.to);
        }
    }
}

/// Writes a span id into the field of this trace in a request.
fn name_span(trace: TraceContext, span_id: u64, text: &mut [u8]) {
    let sought = &trace.text()[..BEFORE_SPAN];
    let places = text.windows(BEFORE_SPAN).enumerate().filter(|(_, bytes)| *bytes == sought);
    let is_ours = |at: usize| NAMES.iter().any(|name| text[..at].ends_with(name));
    let place = places.map(|(at, _)| at).find(|&at| is_ours(at));
    let digits =
        place.and_then(|at| text.get_mut(at + BEFORE_SPAN..at + BEFORE_SPAN + SPAN_DIGITS));
    if let Some(digits) = digits {
        trace_context::write_hex(span_id.into(), digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_of_an_attempt_is_written_where_the_field_is_ours() {
        let trace = TraceContext::new(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 7, true);
        let value = String::from_utf8(trace.text().to_vec()).unwrap();
        for name in ["traceparent: ", "\x10\x37HTTP_TRACEPARENT"] {
            let mut text = format!("x-traceparent: {value}\r\n{name}{value}\r\n").into_bytes();
            name_span(trace, 0xabc, &mut text);
            let named = value.replacen("0000000000000007", "0000000000000abc", 1);
            assert_eq!(text, format!("x-traceparent: {value}\r\n{name}{named}\r\n").into_bytes());
        }
        let mut text = b"GET / HTTP/1.1\r\n\r\n".to_vec();
        name_span(trace, 0xabc, &mut text);
        assert_eq!(text, b"GET / HTTP/1.1\r\n\r\n");
    }
}
