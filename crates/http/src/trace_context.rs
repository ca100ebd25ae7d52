//! The place of a request in a trace, which requests pass on to one another (W3C Trace Context,
//! Level 1).
//!
//! `traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`: version, trace, span of
//! the sender, flags.
//! `tracestate` has notes of tracing systems for themselves; it is passed on as it came.

use crate::head::Head;

/// The name of the field with the place of a request.
pub const TRACEPARENT: &str = "traceparent";

/// The name of the field with the notes of tracing systems.
pub const TRACESTATE: &str = "tracestate";

/// The bytes of a `traceparent` of version 00.
pub const TRACEPARENT_BYTES: usize = 55;

/// The flag of a request whose sender may have recorded it.
const SAMPLED: u8 = 1;

/// The flag of a trace whose id is random (Level 2).
const RANDOM: u8 = 2;

/// The place of a request in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; never 0.
    pub trace_id: u128,
    /// The span of the sender; never 0.
    pub span_id: u64,
    /// The flags that are known.
    flags: u8,
}

impl TraceContext {
    /// A span of this trace, which is recorded or not. An id of 0 becomes 1, as the format has no
    /// 0.
    pub fn new(trace_id: u128, span_id: u64, is_sampled: bool) -> TraceContext {
        let flags = if is_sampled { SAMPLED } else { 0 };
        TraceContext { trace_id: trace_id.max(1), span_id: span_id.max(1), flags }
    }

    /// Reads a value of the field. A later version may have more after the flags (§3.2.2.1).
    pub fn parse(value: &[u8]) -> Option<TraceContext> {
        let text: &[u8; TRACEPARENT_BYTES] = value.first_chunk()?;
        let number = |from: usize, to: usize| {
            text[from..to].iter().try_fold(0, |number: u128, &digit| {
                let digit = match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => return None,
                };
                Some(number << 4 | u128::from(digit))
            })
        };
        let are_apart = [2, 35, 52].iter().all(|&at| text[at] == b'-');
        let version = number(0, 2).filter(|version| are_apart && *version != 0xff)?;
        let ends = match value.get(TRACEPARENT_BYTES) {
            None => true,
            Some(next) => version > 0 && *next == b'-',
        };
        let (trace_id, span_id) = (number(3, 35)?, number(36, 52)?);
        let flags = number(53, 55)? as u8 & (SAMPLED | RANDOM);
        let is_one = ends && trace_id != 0 && span_id != 0;
        is_one.then_some(TraceContext { trace_id, span_id: span_id as u64, flags })
    }

    /// The context in a request; `None` if it has none, more than one, or an invalid one.
    pub fn of(head: &Head<'_>) -> Option<TraceContext> {
        let mut fields = head.fields();
        let mut next = || {
            fields.find(|(name, _)| {
                name.len() == TRACEPARENT.len() && name.eq_ignore_ascii_case(TRACEPARENT)
            })
        };
        let (_, value) = next()?;
        if next().is_some() { None } else { TraceContext::parse(value) }
    }

    /// Whether the request is recorded.
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Another span of the same trace, which is recorded or not.
    #[must_use]
    pub fn next(self, span_id: u64, is_sampled: bool) -> TraceContext {
        let sampled = if is_sampled { SAMPLED } else { 0 };
        let flags = self.flags & RANDOM | sampled;
        TraceContext { span_id: span_id.max(1), flags, ..self }
    }

    /// The id of a span below this one: always the same for the same number, and different for
    /// different ones.
    pub fn child_id(self, number: u32) -> u64 {
        // the finaliser of SplitMix64, by which ids that are near one another give distant results
        let mut id =
            self.span_id.wrapping_add(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        id = (id ^ id >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ id >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (id ^ id >> 31).max(1)
    }

    /// The value of the field.
    pub fn text(self) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(self.trace_id, &mut text[3..35]);
        write_hex(self.span_id.into(), &mut text[36..52]);
        write_hex(self.flags.into(), &mut text[53..]);
        text
    }
}

/// The place of a request in this server: the span of this server, and the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTrace {
    /// The trace, and the span of this server.
    pub context: TraceContext,
    /// The span of the sender; `None` if the trace begins here.
    pub parent_id: Option<u64>,
}

/// The trace context that another server gets for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldTrace {
    /// The trace, and the span that asks.
    pub context: TraceContext,
    /// Whether the client's `tracestate` belongs to it: the trace was continued, and has not begun
    /// here.
    pub keeps_state: bool,
}

/// Writes the last digits of a number, as many as there is room for.
pub fn write_hex(mut number: u128, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// Appends the members of all `tracestate` fields, as one list; nothing if there are none.
pub fn push_state(head: &Head<'_>, out: &mut Vec<u8>) {
    let begin = out.len();
    for (_, value) in head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(TRACESTATE)) {
        let value = value.trim_ascii();
        if !value.is_empty() {
            if out.len() > begin {
                out.extend_from_slice(b",");
            }
            out.extend_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{HeadLimits, Lines, ParsedHead};

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn with<R>(lines_of: &str, act: impl FnOnce(&Head<'_>) -> R) -> R {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines_of}\r\n");
        let mut lines = Lines::new();
        match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()) {
            Ok(ParsedHead::Complete(head)) => act(&head),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_place_is_read_and_written() {
        let context = TraceContext::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span_id, context.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.text(), TEXT.as_bytes());
        let next = context.next(7, false);
        assert_eq!(next.text(), *b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-00");
        let random = TraceContext::parse(&[&TEXT.as_bytes()[..53], b"03"].concat()).unwrap();
        assert!(random.next(7, false).text().ends_with(b"-02"), "the trace stays a random one");
        assert!(TraceContext::new(0, 0, true).text().ends_with(b"1-0000000000000001-01"));
    }

    #[test]
    fn what_is_no_place_is_none() {
        let is = |text: &str| TraceContext::parse(text.as_bytes()).is_some();
        for (from, to) in [
            ("4bf9", "4BF9"),
            ("00-4", "ff-4"),
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            ("00f067aa0ba902b7", "0000000000000000"),
            ("-01", "_01"),
            ("-01", "-0"),
            ("-01", "-0g"),
            ("-01", "-01-more"),
            ("-01", "-01 "),
        ] {
            assert!(!is(&TEXT.replacen(from, to, 1)), "{from} {to}");
        }
        assert!(!is(""));
        // a later version is read as far as it is known
        assert!(is(&TEXT.replacen("00-", "cc-", 1)));
        assert!(is(&format!("{}-more", TEXT.replacen("00-", "cc-", 1))));
        assert!(!is(&format!("{}.more", TEXT.replacen("00-", "cc-", 1))));
    }

    #[test]
    fn of_two_places_none_counts_and_states_are_one_list() {
        let one = format!("Traceparent: {TEXT}\r\n");
        assert!(with(&one, TraceContext::of).is_some());
        assert!(with(&format!("{one}{one}"), TraceContext::of).is_none());
        assert!(with("", TraceContext::of).is_none());
        let state = |lines: &str| {
            let mut out = Vec::new();
            with(lines, |head| push_state(head, &mut out));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            state("tracestate: a=1\r\nX: y\r\nTraceState:  b=2,c=3\r\ntracestate:\r\n"),
            "a=1,b=2,c=3"
        );
        assert_eq!(state(""), "");
    }

    #[test]
    fn spans_below_have_ids_of_their_own() {
        let context = TraceContext::new(1, 1, true);
        let ids: std::collections::HashSet<_> = (0..1000).map(|n| context.child_id(n)).collect();
        assert_eq!(ids.len(), 1000);
        assert!(!ids.contains(&context.span_id));
    }
}
