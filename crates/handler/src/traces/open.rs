//! The spans of a request that is being answered. They accompany its log line, and are finished with it.

use super::TraceQueue;
use super::attributes::{SpanSubject, describe};
use super::span::{FinishedTrace, SpanKind, TraceSpan};
use crate::applications::{ExchangeTag, ExchangeTrace};
use crate::log::LogEntry;
use crate::log::line::LoggedUpstream;
use forebay_conn::ArrivalTimes;
use forebay_http::trace_context::{RequestTrace, TraceContext};
use forebay_sys::clock;
use forebay_upstream::exchange::Exchange;
use std::sync::Arc;

/// Numbers of spans below that of the request. Spans of attempts have numbers from 1 on.
const RECEIVE: u32 = u32::MAX;
const WAIT: u32 = u32::MAX - 1;
const QUEUE: u32 = u32::MAX - 2;
const JOB: u32 = u32::MAX - 3;
const SEND: u32 = u32::MAX - 4;
/// When processing of a request began, in nanoseconds; 0 if that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessTimes {
    /// When processing began last.
    pub(crate) begun_ns: u64,
    /// When the request was given to a helper thread before that, and when the result came.
    pub(crate) job_ns: Option<(u64, u64)>,
}

/// The spans of a request that is being answered.
#[derive(Debug)]
pub(crate) struct OpenTrace {
    queue: Arc<TraceQueue>,
    context: TraceContext,
    trace: FinishedTrace,
    /// When the answer was begun.
    written_ns: u64,
    /// The span of an attempt that lasts as long as the answer.
    lasting: Option<usize>,
}

impl OpenTrace {
    /// The span of the request, and those of its parts until its answer is begun, which is now.
    pub(crate) fn new(
        queue: &Arc<TraceQueue>,
        place: RequestTrace,
        state: Vec<u8>,
        (entry, subject): (&LogEntry<'_>, &SpanSubject<'_>),
        processed: ProcessTimes,
    ) -> OpenTrace {
        let RequestTrace { context, parent_id } = place;
        let written_ns = clock::monotonic_ns();
        let ArrivalTimes { begun_ns, complete_ns } = entry.stages;
        // tracing may have begun after the request came
        let begun_ns = if begun_ns == 0 { written_ns } else { begun_ns };
        let complete_ns = complete_ns.max(begun_ns);
        let mut request = TraceSpan {
            kind: SpanKind::Server,
            id: context.span_id,
            parent_id: parent_id.unwrap_or_default(),
            is_parent_remote: parent_id.is_some(),
            begun_ns,
            ..TraceSpan::default()
        };
        describe(&mut request, entry, subject);
        let state = String::from_utf8(state).unwrap_or_default().into();
        let trace =
            FinishedTrace { trace_id: context.trace_id, state, spans: vec![request], epoch_ns: 0 };
        let queue = Arc::clone(queue);
        let mut open = OpenTrace { queue, context, trace, written_ns, lasting: None };
        open.part("receive", RECEIVE, begun_ns, complete_ns);
        let ProcessTimes { begun_ns: processed_ns, job_ns } = processed;
        let waited_until_ns = job_ns.map_or(processed_ns, |(asked_ns, _)| asked_ns);
        if waited_until_ns > complete_ns {
            let wait = open.part("wait", WAIT, complete_ns, waited_until_ns);
            if let Some(class) = entry.judged.and_then(|judged| judged.said().class) {
                wait.text("forebay.class", class.to_owned());
            }
        }
        if let Some((asked_ns, done_ns)) = job_ns {
            open.part("job", JOB, asked_ns, done_ns);
        }
        open
    }

    /// Adds a span for a part of the server's work.
    fn part(
        &mut self,
        name: &'static str,
        number: u32,
        begun_ns: u64,
        ended_ns: u64,
    ) -> &mut TraceSpan {
        let (id, parent_id) = (self.context.child_id(number), self.context.span_id);
        let name = name.into();
        let span = TraceSpan { name, id, parent_id, begun_ns, ended_ns, ..TraceSpan::default() };
        self.trace.spans.push(span);
        let last = self.trace.spans.len() - 1;
        &mut self.trace.spans[last]
    }

    /// Adds the spans of the servers that were asked, and of the wait for the first of them.
    pub(crate) fn asked(&mut self, attempts: AskedSpans) {
        let AskedSpans { spans, lasts } = attempts;
        self.trace.spans.extend(spans);
        self.lasting = lasts.then(|| self.trace.spans.len() - 1);
    }

    /// Notes that the answer of another server is not complete.
    pub(crate) fn cut_off(&mut self, error: &'static str) {
        for at in self.lasting.into_iter().chain([0]) {
            let span = &mut self.trace.spans[at];
            span.text("error.type", error);
            span.is_error = true;
        }
    }

    /// Finishes the spans: the answer was sent, with this many bytes of its body.
    pub(crate) fn end(mut self, body_bytes: u64) {
        let now_ns = clock::monotonic_ns();
        self.part("send", SEND, self.written_ns, now_ns);
        for at in self.lasting.into_iter().chain([0]) {
            self.trace.spans[at].ended_ns = now_ns;
        }
        self.trace.spans[0].number("http.response.body.size", body_bytes);
        let OpenTrace { queue, trace, .. } = self;
        queue.put(Box::new(FinishedTrace { epoch_ns: epoch_ns(now_ns), ..trace }));
    }
}

/// The difference between times of spans and nanoseconds since 1970, if `now_ns` is the present time.
fn epoch_ns(now_ns: u64) -> u64 {
    (clock::unix_us() * 1000).saturating_sub(now_ns)
}

/// The spans of the servers that were asked for a request.
pub(crate) struct AskedSpans {
    spans: Vec<TraceSpan>,
    /// Whether the last span lasts as long as the answer.
    lasts: bool,
}

impl AskedSpans {
    /// The spans of a receiver or a handler of the program, from its part of the log line.
    pub(crate) fn of(context: TraceContext, said: &LoggedUpstream<'_>) -> AskedSpans {
        let mut asked = AskedSpans { spans: Vec::new(), lasts: false };
        asked.waited(context, said.begun_ns, said.queue_us);
        if said.attempts > 0 {
            asked.last(context.span_id, context.child_id(1), said);
        }
        asked
    }

    /// The spans of an application, the next stage or a deciding server: one for each attempt.
    pub(crate) fn of_exchange(
        trace: &ExchangeTrace,
        exchange: &Exchange<ExchangeTag>,
        said: &LoggedUpstream<'_>,
    ) -> AskedSpans {
        let ExchangeTrace { place: RequestTrace { context, .. }, asking, .. } = *trace;
        let application = exchange.application();
        let is_decision = exchange.tag.rule.is_some();
        let mut asked = AskedSpans { spans: Vec::new(), lasts: false };
        let failed = exchange.failed_attempts();
        let first_ns = failed.first().map_or(said.begun_ns, |first| first.begun_ns);
        asked.waited(context, first_ns, said.queue_us);
        for one in failed {
            let mut span = TraceSpan {
                kind: SpanKind::Client,
                id: asking.child_id(one.number),
                parent_id: context.span_id,
                begun_ns: one.begun_ns,
                ended_ns: one.ended_ns,
                is_error: true,
                ..TraceSpan::default()
            };
            span.name = "upstream".into();
            span.server(application.label(one.upstream));
            span.text("error.type", one.error);
            if one.connected_ns > one.begun_ns {
                span.number("forebay.connect_us", (one.connected_ns - one.begun_ns) / 1000);
            }
            if one.number > 1 {
                span.number("http.request.resend_count", u64::from(one.number - 1));
            }
            asked.spans.push(span);
        }
        let attempts = exchange.attempts();
        if attempts as usize > failed.len() {
            asked.last(context.span_id, asking.child_id(attempts), said);
        }
        if is_decision {
            asked.spans.iter_mut().for_each(|span| span.text("forebay.asked_for", "decision"));
        }
        asked
    }

    /// Adds the span of a wait of this length, which ended at `until_ns`.
    fn waited(&mut self, context: TraceContext, until_ns: u64, waited_us: u64) {
        if waited_us > 0 {
            let (id, parent_id) = (context.child_id(QUEUE), context.span_id);
            let begun_ns = until_ns.saturating_sub(waited_us * 1000);
            let name = "queue".into();
            let ended_ns = until_ns;
            self.spans.push(TraceSpan {
                name,
                id,
                parent_id,
                begun_ns,
                ended_ns,
                ..TraceSpan::default()
            });
        }
    }

    /// Adds the span of the last attempt, which was answered or is not known to have failed.
    fn last(&mut self, parent_id: u64, id: u64, said: &LoggedUpstream<'_>) {
        let LoggedUpstream { upstream, status, error, attempts, .. } = *said;
        let total_us = said.total_us.unwrap_or_default();
        let mut span = TraceSpan {
            name: "upstream".into(),
            kind: SpanKind::Client,
            id,
            parent_id,
            begun_ns: said.begun_ns,
            ended_ns: said.begun_ns + total_us * 1000,
            ..TraceSpan::default()
        };
        span.server(upstream);
        if attempts > 1 {
            span.number("http.request.resend_count", u64::from(attempts - 1));
        }
        for (name, number) in [
            ("http.response.status_code", status.map(u64::from)),
            ("forebay.connect_us", said.connect_us),
            ("forebay.head_us", said.head_us),
        ] {
            if let Some(number) = number {
                span.number(name, number);
            }
        }
        // for a client, each of these statuses is an error
        let failed = status.filter(|status| *status >= 400).map(|status| status.to_string());
        if let Some(kind) = error.map(str::to_owned).or(failed) {
            span.text("error.type", kind);
            span.is_error = true;
        }
        self.lasts = said.total_us.is_none();
        self.spans.push(span);
    }

    /// Sends the spans alone: the request goes on, and another server is asked for it.
    pub(crate) fn send(self, queue: &TraceQueue, context: TraceContext) {
        let AskedSpans { mut spans, lasts } = self;
        let now_ns = clock::monotonic_ns();
        if let Some(last) = spans.last_mut().filter(|_| lasts) {
            last.ended_ns = now_ns;
        }
        let (trace_id, epoch_ns) = (context.trace_id, epoch_ns(now_ns));
        queue.put(Box::new(FinishedTrace {
            trace_id,
            epoch_ns,
            spans,
            ..FinishedTrace::default()
        }));
    }
}
