//! The role that logs requests.

use super::RequestHandler;
use crate::applications::{
    ExchangeTag, before, said_of, said_of_handler, said_of_receiver, said_of_turn,
};
use crate::client::client_of;
use crate::detour::Detour;
use crate::log::line::LoggedUpstream;
use crate::log::{LogEntry, PendingLine};
use crate::policy::Ticket;
use crate::traces::open::OpenTrace;
use forebay_conn::{Answered, ArrivalTimes, GivenUp, Journal, Peer, Request, TunnelOver};
use forebay_sys::clock;

/// The record of an answer that is being sent: the line of the log, and its spans.
#[derive(Debug)]
pub struct JournalLine {
    pub(super) line: PendingLine,
    /// The spans; `None` if none is recorded.
    trace: Option<Box<OpenTrace>>,
}

impl Journal for RequestHandler {
    #[inline]
    fn tick(&mut self) -> u64 {
        self.ticked_ns = match self.tracer {
            Some(_) => clock::monotonic_ns(),
            None => self.logger.tick(),
        };
        self.ticked_ns
    }

    #[inline]
    fn line(&mut self, answered: &Answered<'_, Option<Ticket>>) -> Option<JournalLine> {
        let Answered { peer, request, ticket, status, stages } = *answered;
        let ticket = ticket.and_then(Option::as_ref);
        Some(self.begin_line(peer, request, ticket, None, Some(status), stages))
    }

    fn relayed_line(
        &mut self,
        answered: &Answered<'_, Option<Ticket>>,
        relay: &Detour,
    ) -> Option<JournalLine> {
        let Answered { peer, request, ticket, status, stages } = *answered;
        let ticket = ticket.and_then(Option::as_ref);
        Some(self.begin_line(peer, request, ticket, Some(relay), Some(status), stages))
    }

    fn given_up(&mut self, asked: &GivenUp<'_, Option<Ticket>>, relay: Option<&Detour>) {
        let GivenUp { peer, request, ticket, stages } = *asked;
        let line = self.begin_line(peer, Some(request), ticket.as_ref(), relay, None, stages);
        self.log(line, 0);
    }

    fn cut_off(&mut self, line: &mut JournalLine, relay: &Detour) {
        let Detour::Application(passing) = relay else { return };
        if let Some(error) = passing.exchange.cut_off()
            && !passing.exchange.application().is_stage()
        {
            line.line.cut_off(error);
            if let Some(trace) = &mut line.trace {
                trace.cut_off(error);
            }
        }
    }

    fn tunnel_over(&mut self, line: &mut JournalLine, relay: &Detour, over: TunnelOver) {
        if let Detour::Application(passing) = relay
            && passing.exchange.application().settings().tcp().is_some()
        {
            self.passed_over(line, &passing.exchange, over);
        }
    }

    #[inline]
    fn log(&mut self, line: JournalLine, body_bytes: u64) {
        let JournalLine { line, trace } = line;
        if let Some(trace) = trace {
            trace.end(body_bytes);
        }
        self.logger.log(line, body_bytes);
    }
}

/// The tag of an exchange with an application, the next stage, a receiver or a handler, and its part of
/// the log line.
fn asked_of(detour: &Detour) -> Option<(&ExchangeTag, Option<LoggedUpstream<'_>>)> {
    match detour {
        Detour::Application(passing) => {
            let exchange = &passing.exchange;
            // the next stage has a log line of its own
            let is_stage = exchange.application().is_stage();
            Some((&exchange.tag, (!is_stage).then(|| said_of(exchange))))
        }
        Detour::HandOver(over) => {
            Some((&over.exchange.tag, Some(said_of_receiver(&over.exchange))))
        }
        Detour::Inside(inside) => {
            Some((&inside.exchange.tag, Some(said_of_handler(&inside.exchange))))
        }
        Detour::Turn(waits) => Some((&waits.turn.tag, Some(said_of_turn(&waits.turn)))),
        Detour::Place(_) => None,
    }
}

impl RequestHandler {
    #[inline]
    fn begin_line(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        ticket: Option<&Ticket>,
        relay: Option<&Detour>,
        status: Option<u16>,
        stages: ArrivalTimes,
    ) -> JournalLine {
        self.sight(peer, request, ticket);
        // a site may have the name that a passed-on connection asks for
        let answered_here = request.filter(|_| peer.passed.is_none());
        let site = answered_here.and_then(|request| self.site.site_of(request));
        let site = site.map(|site| site as usize);
        let refused = self.refused.take();
        // a trace that begins here has the id that the client got
        let named = refused.as_ref().and_then(|refused| refused.id);
        let traced =
            self.tracer.is_some().then(|| self.traced(peer, request, relay, named)).flatten();
        if refused.is_none() && traced.is_none() && !self.logger.writes(site) {
            let judge = self.judge.as_ref().filter(|judge| judge.has_policy());
            let trace = judge.and(ticket).map(Ticket::trace);
            let line = self.logger.count(site, request.is_some(), trace, status, stages);
            return JournalLine { line, trace: None };
        }
        let client = match request {
            Some(request) => client_of(peer, request.head, &self.trusted),
            None => peer.address().ip(),
        };
        let via_proxy = self.trusted.are_believed(peer);
        let judge = self.judge.as_ref().filter(|judge| refused.is_some() || judge.has_policy());
        let judged = judge.zip(ticket).map(|(judge, ticket)| judge.judged(ticket));
        let secured = peer.secured.as_deref();
        let passed = request.and_then(|request| request.passed);
        let (tag, asked) = relay.and_then(asked_of).unzip();
        let answered = request.filter(|_| status.is_some());
        let user = match tag {
            // another request was processed on this handler since then
            Some(tag) => answered.and_then(|_| tag.user.clone()),
            None => answered.and_then(|request| self.site.user(request)),
        };
        let user = user.as_deref();
        let id = tag.map(|tag| tag.id);
        let id = id.or_else(|| passed?.id).or_else(|| refused.as_ref()?.id);
        let id = id.or_else(|| answered.and_then(|_| self.told.take()));
        // a trace that begins here gives the request its id
        let begun = || traced.filter(|(place, _)| place.parent_id.is_none());
        let id = id.or_else(|| begun().map(|(place, _)| place.context.trace_id));
        // content that is sent instead of an application's answer shows that application, too
        let sent = || passed?.sent.as_ref();
        let relayed = asked.flatten().or_else(|| sent().map(|sent| before(&sent.by)));
        let entry = LogEntry {
            site,
            client,
            user,
            secured,
            via_proxy,
            id,
            request,
            judged,
            relayed,
            status,
            stages,
        };
        if let Some(refused) = refused {
            self.remember(&refused, &entry, ticket);
        }
        let trace = traced.and_then(|(place, processed)| {
            self.open_trace(place, processed, &entry, ticket, relay)
        });
        JournalLine { line: self.logger.line(&entry), trace }
    }
}
