//! The request to an application, and requests that have waited for their turn: the request to the
//! application is written once more then, since nothing of it was kept.

use super::RequestHandler;
use super::context::HandlerContext;
use crate::applications::{Asker, ExchangeTag, Hidden, Unasked, ask, ask_authority, failed};
use crate::detour::Detour;
use crate::job::ServerJob;
use crate::policy::Ticket;
use forebay_conn::{Rank, Relayed, Reply, Request};
use forebay_site::Body;
use forebay_upstream::application::Application;
use forebay_upstream::exchange::{ApplicationRequest, Exchange, Failed};
use std::net::IpAddr;
use std::sync::Arc;

/// Whether an application gets the client's own request: neither a question whether a rule lets it
/// through, nor a request for content that another application wants to be sent.
pub(super) fn is_of_request(request: &Request<'_>, rule: Option<u16>) -> bool {
    rule.is_none() && request.passed.is_none_or(|passed| passed.sent.is_none())
}

impl RequestHandler {
    /// The request to this application, and the client that asks.
    pub(super) fn asks(
        &mut self,
        application: &Application,
        asked: &ExchangeTag,
        request: &Request<'_>,
        ticket: Option<&Ticket>,
    ) -> (Result<ApplicationRequest, Unasked>, IpAddr) {
        let (id, destination) = (asked.id, &asked.destination);
        let rank = ticket.map_or(Rank::FIRST, Ticket::rank);
        let is_authority =
            application.settings().proxy().is_some_and(|proxy| proxy.authority.is_some());
        let judged = asked.rule.and_then(|rule| self.site.path_to_ask(request, rule));
        let hidden = Hidden {
            cookie: self.certificates.hidden_cookie.as_deref(),
            fields: self.applications.given(destination.site),
            client: self.trusted.told_field(),
        };
        let asker = Asker::of(request, application, rank, self.standpoint());
        let overload = self.overload(request.head);
        let RequestHandler { ref mut site, ref trusted, ref policy, ref told, .. } = *self;
        let context = HandlerContext {
            request,
            trusted,
            told,
            id: Some(id),
            judged: Some((policy, ticket)),
            overload,
            upstream: "",
        };
        let values = |given: &[_]| site.told_values(destination, request, &context, given);
        let ask = match is_authority {
            true => ask_authority(application, request, judged.as_deref(), asked, asker, hidden),
            false => ask(application, request, asked, asker, hidden, values),
        };
        let spool = self.applications.spool().map(Arc::clone);
        (ask.map(|ask| ApplicationRequest { spool, ..ask }), asker.client())
    }

    /// Continues a request that has its turn, or gets none: its exchange is made anew, and goes on.
    #[cold]
    pub(super) fn turn_decided(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        detour: &mut Detour,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        let Detour::Turn(waits) = detour else { return Relayed::Broken };
        let now_ms = self.now.monotonic_ms;
        let mut asked = waits.turn.tag.clone();
        if let Some(unavailable) = waits.turn.refused() {
            self.begin_answer(request, &mut asked, reply);
            let (status, text) = self.say_unanswered(Failed::Unasked(unavailable), ticket, reply);
            return self.refuse_for(&asked, request, ticket.as_ref(), status, text, reply);
        }
        let turn = waits.turn.take(now_ms);
        let application = Arc::clone(waits.turn.application());
        let content = self.site.swap_content(Arc::clone(&waits.content));
        let applications =
            std::mem::replace(&mut self.applications, Arc::clone(&waits.applications));
        let (ask, _) = self.asks(&application, &asked, request, ticket.as_ref());
        self.applications = applications;
        self.site.swap_content(content);
        let made = match ask {
            Ok(ask) => {
                let ask = ApplicationRequest { time: turn.time_left(now_ms), ..ask };
                let exchange = Exchange::new(&application, ask, asked.clone(), now_ms);
                exchange.map_err(|unavailable| failed(Failed::Unasked(unavailable)))
            }
            Err(unasked) => Err(unasked.told()),
        };
        match made {
            Ok(mut exchange) => {
                exchange.go_on(turn, now_ms);
                *detour = Detour::Application(Box::new(waits.passing(exchange)));
                Relayed::GoesOn
            }
            Err((status, text)) => {
                self.begin_answer(request, &mut asked, reply);
                self.refuse_for(&asked, request, ticket.as_ref(), status, text, reply)
            }
        }
    }
}
