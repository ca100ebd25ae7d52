//! Which requests are recorded, and the content of their spans: see [`crate::traces`].

use super::RequestHandler;
use crate::applications::{
    ExchangeTag, ExchangeTrace, said_of, said_of_handler, said_of_receiver, said_of_turn,
};
use crate::client::is_secure;
use crate::detour::Detour;
use crate::job::{ServerJob, ServerJobDone};
use crate::log::LogEntry;
use crate::policy::Ticket;
use crate::traces::attributes::SpanSubject;
use crate::traces::open::{AskedSpans, OpenTrace, ProcessTimes};
use forebay_config::Role;
use forebay_conn::{Peer, Request};
use forebay_http::trace_context::{self, RequestTrace, TraceContext};
use forebay_sys::clock;
use forebay_upstream::exchange::Exchange;

/// The place of an exchange's request in a trace, if it has one.
pub(super) fn place_of(tag: &ExchangeTag) -> Option<RequestTrace> {
    tag.trace.as_deref().map(|trace| trace.place)
}

impl RequestHandler {
    /// Notes that processing of a request begins, perhaps with the result of a helper thread.
    #[inline]
    pub(super) fn note_process(&mut self, done: Option<&ServerJobDone>, is_judged: bool) {
        if self.tracer.is_some() {
            // without classes the request has waited for nothing
            let begun_ns = if is_judged || done.is_some() { clock::monotonic_ns() } else { 0 };
            let asked_ns = done.and_then(ServerJobDone::asked_ns);
            self.processed =
                ProcessTimes { begun_ns, job_ns: asked_ns.map(|asked_ns| (asked_ns, begun_ns)) };
        }
    }

    /// A job for a helper thread; its times are measured where spans go to a collector.
    pub(super) fn timed_job(&mut self, job: ServerJob) -> ServerJob {
        self.processed = ProcessTimes::default();
        if self.tracer.is_some() { job.timed() } else { job }
    }

    /// The place in a trace of a request that other servers are about to be asked for; with a rule, by
    /// the rule's deciding server.
    pub(super) fn place_exchange(
        &mut self,
        request: &Request<'_>,
        id: u128,
        rule: Option<u16>,
    ) -> Option<Box<ExchangeTrace>> {
        let tracer = self.tracer.as_mut()?;
        let known = request.passed.and_then(|passed| passed.trace);
        let parent = || {
            let is_believed = self.trusted.are_believed(request.peer);
            is_believed.then(|| TraceContext::of(request.head)).flatten()
        };
        let place = match known {
            Some(place) => place,
            None => tracer.place(parent(), || id)?,
        };
        let before = || request.passed.map_or(0, |passed| passed.allowed.len());
        let decision = rule.map(|_| before());
        let processed_ns = std::mem::take(&mut self.processed).begun_ns;
        Some(Box::new(ExchangeTrace::new(place, decision, processed_ns)))
    }

    /// The place in a trace of a request whose answer begins, if it is recorded, and when its processing
    /// began. `named` is the id under which it was refused.
    #[inline]
    pub(super) fn traced(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        relay: Option<&Detour>,
        named: Option<u128>,
    ) -> Option<(RequestTrace, ProcessTimes)> {
        let processed = std::mem::take(&mut self.processed);
        if let Some(tag) = relay.and_then(tag_of) {
            return recorded(tag.trace.as_deref());
        }
        let request = request?;
        if let Some(place) = request.passed.and_then(|passed| passed.trace) {
            return place.context.is_sampled().then_some((place, processed));
        }
        let tracer = self.tracer.as_mut()?;
        let is_believed = self.trusted.are_believed(peer);
        let parent = is_believed.then(|| TraceContext::of(request.head)).flatten();
        let named =
            || named.or(request.passed.and_then(|passed| passed.id)).or_else(|| self.told.known());
        let place =
            tracer.place_recorded(parent, || named().unwrap_or_else(|| self.ids.number()))?;
        Some((place, processed))
    }

    /// The spans of a request whose answer begins.
    #[cold]
    pub(super) fn open_trace(
        &self,
        place: RequestTrace,
        processed: ProcessTimes,
        entry: &LogEntry<'_>,
        ticket: Option<&Ticket>,
        relay: Option<&Detour>,
    ) -> Option<Box<OpenTrace>> {
        let queue = self.tracer.as_ref()?.queue();
        let mut state = Vec::new();
        if let Some(request) = entry.request.filter(|_| place.parent_id.is_some()) {
            trace_context::push_state(request.head, &mut state);
            // the part that others must keep (W3C Trace Context §3.3.1.5); applications get all of it
            state.truncate(if state.len() > 512 { 0 } else { state.len() });
        }
        let judge = self.judge.as_ref().filter(|judge| judge.has_policy());
        let is_https = |request: &Request<'_>| is_secure(request.peer, request.head, &self.trusted);
        let subject = SpanSubject {
            site: self.logger.site_name(entry.site),
            redaction: self.logger.redaction(entry.site),
            level: judge.zip(ticket).map(|(judge, _)| judge.level()),
            is_secure: entry.request.is_some_and(is_https),
            stage: self.applications.role().map(Role::name),
        };
        let mut open = OpenTrace::new(queue, place, state, (entry, &subject), processed);
        if let Some(asked) = relay.and_then(|relay| asked_spans(relay, place.context)) {
            open.asked(asked);
        }
        Some(Box::new(open))
    }

    /// Sends the spans of an exchange on now, because the request goes on elsewhere.
    pub(super) fn send_spans_of(&self, exchange: &Exchange<ExchangeTag>) {
        let Some(tracer) = &self.tracer else { return };
        let trace = exchange.tag.trace.as_deref();
        if let Some(trace) = trace.filter(|trace| trace.recorded().is_some()) {
            let spans = AskedSpans::of_exchange(trace, exchange, &said_of(exchange));
            spans.send(tracer.queue(), trace.place.context);
        }
    }
}

/// The place in a trace of a request that other servers were asked for, if it is recorded.
fn recorded(trace: Option<&ExchangeTrace>) -> Option<(RequestTrace, ProcessTimes)> {
    let trace = trace.filter(|trace| trace.recorded().is_some())?;
    let begun_ns = trace.processed_ns;
    Some((trace.place, ProcessTimes { begun_ns, job_ns: None }))
}

/// The tag of an exchange.
fn tag_of(detour: &Detour) -> Option<&ExchangeTag> {
    match detour {
        Detour::Application(passing) => Some(&passing.exchange.tag),
        Detour::HandOver(over) => Some(&over.exchange.tag),
        Detour::Inside(inside) => Some(&inside.exchange.tag),
        Detour::Turn(waits) => Some(&waits.turn.tag),
        Detour::Place(_) => None,
    }
}

/// The spans of the servers that were asked.
fn asked_spans(detour: &Detour, context: TraceContext) -> Option<AskedSpans> {
    Some(match detour {
        Detour::Application(passing) => {
            let exchange = &passing.exchange;
            AskedSpans::of_exchange(exchange.tag.trace.as_deref()?, exchange, &said_of(exchange))
        }
        Detour::HandOver(over) => AskedSpans::of(context, &said_of_receiver(&over.exchange)),
        Detour::Inside(inside) => AskedSpans::of(context, &said_of_handler(&inside.exchange)),
        Detour::Turn(waits) => AskedSpans::of(context, &said_of_turn(&waits.turn)),
        Detour::Place(_) => return None,
    })
}
