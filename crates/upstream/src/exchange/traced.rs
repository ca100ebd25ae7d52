//! What a trace is told of an exchange: each attempt is a span of its own, and what was asked names it.

use super::outcome::FailedAttempt;
use super::state::Exchange;
use forebay_http::trace_context::{self, TraceContext};
use forebay_sys::clock;

/// Bytes of `00-`, the id of a trace and `-`, which stand before the id of a span.
const BEFORE_SPAN: usize = 36;

/// Digits of the id of a span.
const SPAN_DIGITS: usize = 16;

/// What stands before the value of the field, in a head and in the parameters of a script (with the lengths of both):
/// no other field ends so.
const NAMES: [&[u8]; 2] = [b"\ntraceparent: ", b"\x10\x37HTTP_TRACEPARENT"];

impl<T> Exchange<T> {
    /// The attempts that have failed, the first one first; none of a request that is not recorded.
    pub fn failed_attempts(&self) -> &[FailedAttempt] {
        &self.tries.failed
    }

    /// The attempt under way has failed. Of a request that is recorded that is remembered, once for each attempt.
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

    /// Another attempt begins, the one that was entered last: what is sent names its span.
    pub(super) fn name_attempt(&mut self) {
        let Some(trace) = self.asked.trace else { return };
        // of one attempt alone the head has the name already
        let number = self.tries.tried.len();
        if number > 1 {
            let child_id = trace.child_id(u32::try_from(number).unwrap_or(u32::MAX));
            name_span(trace, child_id, &mut self.upload.to);
        }
    }
}

/// Writes the id of a span into what was written of a request of this trace.
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
