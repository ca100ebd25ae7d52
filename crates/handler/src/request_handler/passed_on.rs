//! Connections whose bytes are passed on as they are: which server gets them, and how they are logged.
//! Their clients get nothing from this server.

use super::journal::JournalLine;
use super::{RequestHandler, end_work};
use crate::applications::{Asker, ExchangeTag, ask_passed, failed};
use crate::detour::Detour;
use crate::job::ServerJob;
use crate::passing::PassingExchange;
use crate::policy::Ticket;
use crate::traces::open::ProcessTimes;
use forebay_conn::{PassedConnection, ProcessOutcome, Rank, Relayed, Reply, Request, TunnelOver};
use forebay_metrics::Counter;
use forebay_site::Body;
use forebay_upstream::exchange::{Exchange, Failed};
use std::sync::Arc;

/// The reason for resetting a connection that no route is for.
const NO_ROUTE: &str = "No [[tcp]] is for this connection";

impl RequestHandler {
    /// Finds the server of a connection.
    #[cold]
    pub(super) fn pass_on_bytes(
        &mut self,
        passed: &PassedConnection,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        end_work(ticket);
        let port = request.peer.local.port();
        let found = self.applications.passed_to(port, passed);
        let Some((destination, application)) = found.map(|(at, one)| (at, Arc::clone(one))) else {
            self.metrics.add(Counter::PassedUnrouted, 1);
            self.name_refusal(Some(request), None, NO_ROUTE, reply);
            self.site.refuse(404, NO_ROUTE, reply);
            return ProcessOutcome::Replied;
        };
        let (content, id) = (self.site.content_number(), self.ids.number());
        // the connection's bytes are not changed, so that no trace context can be added
        let trace = None;
        self.processed = ProcessTimes::default();
        let tag = ExchangeTag { destination, content, id, user: None, rule: None, trace };
        let rank = ticket.as_ref().map_or(Rank::FIRST, Ticket::rank);
        let asker = Asker::of(request, &application, rank, self.standpoint());
        let mut ask = ask_passed(&application, request, asker);
        let (place, thread) = match self.room_for(asker.client(), true) {
            Ok((place, thread)) => (Some(place), thread),
            Err(unavailable) => {
                ask.may_ask = Err(unavailable);
                (None, None)
            }
        };
        match Exchange::new(&application, ask, tag, self.now.monotonic_ms) {
            Ok(exchange) => {
                let passing = PassingExchange::new(exchange, place).keeping(thread);
                ProcessOutcome::Relay(Detour::Application(Box::new(passing)))
            }
            Err(unavailable) => {
                let (status, text) = failed(Failed::Unasked(unavailable));
                self.metrics.add(Counter::PassedUnreached, 1);
                self.site.refuse(status, text, reply);
                ProcessOutcome::Replied
            }
        }
    }

    /// Notes that a server has taken a connection, or that none has.
    pub(super) fn passed_on(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        relay: &Exchange<ExchangeTag>,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        let again = u64::from(relay.attempts().saturating_sub(1));
        self.metrics.add(Counter::UpstreamRetries, again);
        let Some(failure) = relay.failure() else {
            self.metrics.add(Counter::PassedOn, 1);
            self.metrics.add(Counter::UpstreamAnswered, 1);
            reply.switch(b"");
            return Relayed::Switched;
        };
        self.metrics.add(Counter::PassedUnreached, 1);
        let (status, text) = self.say_unanswered(failure, ticket, reply);
        self.name_refusal(Some(request), Some(relay.tag.id), text, reply);
        self.site.refuse(status, text, reply);
        Relayed::Own
    }

    /// Ends the log line of a connection that was passed on.
    pub(super) fn passed_over(
        &self,
        line: &mut JournalLine,
        exchange: &Exchange<ExchangeTag>,
        over: TunnelOver,
    ) {
        let ended = match (over, exchange.cut_off()) {
            (TunnelOver::Cut, Some(_)) if exchange.has_outlived() => "lifetime",
            (TunnelOver::Cut, Some(_)) => "timeout",
            (TunnelOver::Cut, None) => "cut",
            (TunnelOver::Client, _) => "client",
            (TunnelOver::Server, _) => "server",
            (TunnelOver::Broken, _) => "server_reset",
        };
        self.metrics.add(Counter::PassedUp, exchange.passed_bytes());
        self.metrics.add(Counter::PassedDown, exchange.taken_bytes());
        line.line.passed_on(exchange.passed_bytes(), ended);
    }
}
