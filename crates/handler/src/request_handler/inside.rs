//! A request that a handler of the program answers: what the handler gets, and how its answer is used.

use super::RequestHandler;
use super::relay::{NOT_CHANGED, begin_head};
use crate::applications::{ExchangeTag, ExchangeTrace, Hidden, NO_TUNNEL, websocket};
use crate::client::{client_end, is_secure};
use crate::detour::{AsksHandler, Detour};
use crate::job::ServerJob;
use crate::log::request_id;
use crate::policy::Ticket;
use crate::request_handler::context::HandlerContext;
use forebay_conn::{ProcessOutcome, Rank, Relayed, Reply, Request};
use forebay_http::framing::Framing;
use forebay_http::head::{Name, Version};
use forebay_http::trace_context::{TRACEPARENT, TRACESTATE};
use forebay_metrics::{Counter, Unanswered};
use forebay_site::Body;
use forebay_upstream::cookies;
use forebay_upstream::group::Unavailable;
use forebay_upstream::inside::{
    InsideExchange, InsideFailure, RequestParts, UpgradeParts, asked_protocols,
};
use forebay_upstream::settings::InsideSettings;
use std::borrow::Cow;

impl RequestHandler {
    /// Has a handler of the program asked, after rules have let the request through.
    #[cold]
    pub(super) fn ask_handler(
        &mut self,
        settings: &InsideSettings,
        asked: ExchangeTag,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let tunnel = self.standpoint().tunnel_of(request.head);
        let takes_upgrades = settings.limits.upgrades;
        let parts = match self.parts_of(&asked, request, ticket.as_ref(), takes_upgrades) {
            Some(parts) if tunnel.is_none() || parts.upgrade.is_some() => parts,
            parts => {
                let (status, text) = match parts {
                    Some(_) => (501, NO_TUNNEL),
                    None => (400, "The path cannot be read"),
                };
                let refused =
                    self.refuse_for(&asked, request, ticket.as_ref(), status, text, reply);
                return match refused {
                    Relayed::Job(job, _) => ProcessOutcome::Job(job),
                    _ => ProcessOutcome::Replied,
                };
            }
        };
        let rank = ticket.as_ref().map_or(Rank::FIRST, Ticket::rank);
        let framing = request.head.framing;
        let has_body = framing != Framing::None && framing != Framing::Sized(0);
        let may_switch = parts.upgrade.is_some();
        let exchange =
            InsideExchange::new(&settings.code, settings.limits, parts, has_body, rank.0, asked);
        let thread = self.thread.as_mut().map(|thread| thread.take(may_switch)).transpose();
        let (exchange, thread) = match thread {
            _ if matches!(framing, Framing::Sized(length) if length > settings.limits.most_bytes) => {
                (exchange.failed(InsideFailure::TooLarge), None)
            }
            Ok(thread) => (exchange, thread),
            // a request that cannot be asked is an exchange, too, so that the log has its line
            Err(_) => (exchange.failed(InsideFailure::NoRoom), None),
        };
        ProcessOutcome::Relay(Detour::Inside(Box::new(AsksHandler::new(exchange, thread))))
    }

    /// The parts of a request that a handler gets; `None` if its path cannot be read.
    fn parts_of(
        &self,
        asked: &ExchangeTag,
        request: &Request<'_>,
        ticket: Option<&Ticket>,
        takes_upgrades: bool,
    ) -> Option<RequestParts> {
        let Request { head, peer, .. } = *request;
        let path = match &asked.destination.rewritten {
            Some(rewritten) => rewritten.clone(),
            None => Box::from(&*request.path().ok()?),
        };
        let client = client_end(peer, head, &self.trusted);
        let hidden = Hidden {
            cookie: self.certificates.hidden_cookie.as_deref(),
            fields: self.applications.given(asked.destination.site),
            client: None,
        };
        let mut fields = fields_for(request, hidden, asked.trace.as_deref());
        let tunnel = self.standpoint().tunnel_of(head);
        let upgrade = takes_upgrades.then(|| asked_protocols(head, tunnel)).flatten();
        let upgrade = upgrade.map(|protocols| {
            if tunnel.is_some() {
                as_http1(&protocols, asked.id, &mut fields);
            }
            let key = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(websocket::KEY));
            let key = key.and_then(|(_, value)| std::str::from_utf8(value).ok());
            UpgradeParts { protocols, accept: key.map(|key| websocket::accept(key).into()) }
        });
        Some(RequestParts {
            upgrade,
            method: head.method_text.into(),
            path,
            target: head.target.into(),
            query: head.query.map(Into::into),
            host: head.authority.into(),
            version: match head.version {
                Version::Http10 => 10,
                Version::Http11 => 11,
                Version::Http2 => 20,
            },
            is_secure: is_secure(peer, head, &self.trusted),
            fields,
            client,
            local: (!peer.local.ip().is_unspecified()).then_some(peer.local),
            class: self.policy.class(ticket).into(),
            user: asked.user.clone(),
            id: String::from_utf8_lossy(&request_id::text(asked.id)).into(),
        })
    }

    /// Answers with the answer of a handler of the program, or with an error if there is none.
    pub(super) fn handler_answered(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        asks: &mut AsksHandler,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        let exchange = &mut asks.exchange;
        self.begin_answer(request, &mut exchange.tag, reply);
        let answer = match exchange.answer() {
            Ok(answer) => answer,
            Err(failure) => {
                let (status, text) = self.handler_failed(failure, ticket, reply);
                return self.refuse_for(
                    &exchange.tag,
                    request,
                    ticket.as_ref(),
                    status,
                    text,
                    reply,
                );
            }
        };
        self.metrics.add(Counter::UpstreamAnswered, 1);
        let is_tunnel = self.standpoint().tunnel_of(request.head).is_some();
        // a 2xx would mean to the client that the tunnel exists (RFC 8441 §4)
        if is_tunnel && (200..300).contains(&answer.status) {
            let ticket = ticket.as_ref();
            return self.refuse_for(&exchange.tag, request, ticket, 502, NOT_CHANGED, reply);
        }
        let overload = self.overload(request.head);
        let RequestHandler { site, head, trusted, policy, told, .. } = self;
        let tag = &exchange.tag;
        let context = HandlerContext {
            request,
            trusted,
            told,
            id: Some(tag.id),
            judged: Some((policy, ticket.as_ref())),
            overload,
            upstream: exchange.name(),
        };
        site.look_for(&tag.destination, request, &context);
        begin_head(answer.status, head);
        let is = |name: &str, known: &str| name.eq_ignore_ascii_case(known);
        let has_date = answer.fields.iter().any(|(name, _)| is(name, "Date"));
        let has_hsts = reply.hsts.is_some();
        let is_dropped = |name: &str| {
            (has_hsts && is(name, super::relay::HSTS)) || (is_tunnel && is(name, websocket::ACCEPT))
        };
        let said = answer.fields.iter().filter(|(name, _)| !is_dropped(name));
        let said = said.map(|(name, value)| (&**name, Cow::Borrowed(&**value))).collect();
        site.write_fields(&tag.destination, request, answer.status, said, head);
        if answer.status == 101 {
            reply.switch(head);
            return Relayed::Switched;
        }
        reply.relayed(answer.status, head, answer.length, has_date);
        Relayed::Body
    }

    /// Answers a request whose handler has failed; the class and the counters count that.
    fn handler_failed(
        &mut self,
        failure: InsideFailure,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> (u16, &'static str) {
        let (status, text, counted) = match failure {
            InsideFailure::NoRoom => {
                self.unavailable(Unavailable::Full, ticket, reply);
                let counted = (Counter::UpstreamUnavailable, Unanswered::Unavailable);
                (503, "The application has as much to do as it may", Some(counted))
            }
            InsideFailure::TooLarge => {
                (413, "The request body is larger than the application may be sent", None)
            }
            InsideFailure::Late => {
                let counted = (Counter::UpstreamLate, Unanswered::Late);
                (504, "The application did not answer in time", Some(counted))
            }
            InsideFailure::Failed | InsideFailure::Panicked => {
                if failure == InsideFailure::Panicked {
                    self.metrics.add(Counter::Panics, 1);
                }
                let counted = (Counter::UpstreamFailed, Unanswered::Failed);
                (500, "The application has failed", Some(counted))
            }
        };
        if let Some((counter, unanswered)) = counted {
            self.metrics.add(counter, 1);
            if let (Some(judge), Some(ticket)) = (&mut self.judge, &*ticket) {
                judge.unanswered(ticket, unanswered);
            }
        }
        (status, text)
    }
}

/// Adds the fields with which a client of HTTP/1 asks for another protocol: a handler sees them,
/// whichever version the client has used.
fn as_http1(protocols: &str, id: u128, fields: &mut Vec<(Box<str>, Box<[u8]>)>) {
    let key = websocket::key(id);
    let said = [("Connection", "upgrade"), ("Upgrade", protocols), (websocket::KEY, &key)];
    fields.retain(|(name, _)| !said.iter().any(|(known, _)| name.eq_ignore_ascii_case(known)));
    fields.extend(said.map(|(name, value)| (name.into(), value.as_bytes().into())));
}

/// The fields of a request that a handler sees: without the fields that only deciding servers may set,
/// with the values that those have set, and without the server's own cookie.
fn fields_for(
    request: &Request<'_>,
    hidden: Hidden<'_>,
    trace: Option<&ExchangeTrace>,
) -> Vec<(Box<str>, Box<[u8]>)> {
    let given = request.passed.map_or(&[][..], |passed| &passed.given[..]);
    let is_given = |name: &str| given.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    let is_hidden = |name: &str| hidden.fields.iter().any(|field| field.is(name));
    let is_cookie = |name: &str| name.eq_ignore_ascii_case("Cookie");
    let told = trace.map(ExchangeTrace::told);
    let is_traced = |name: &str| {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        told.is_some_and(|told| is(TRACEPARENT) || (is(TRACESTATE) && !told.keeps_state))
    };
    let own = request.head.fields();
    let own = own.filter(|(name, _)| !is_given(name) && !is_hidden(name) && !is_cookie(name));
    let own = own.filter(|(name, _)| !is_traced(name));
    // a host in the target overrides the field (RFC 9112 §3.2.2): the handler sees the host that rules
    // have judged
    let host = Some(request.head.authority).filter(|host| !host.is_empty());
    let own = own.map(|(name, value)| match host {
        Some(host) if name.eq_ignore_ascii_case("Host") => (name.into(), host.into()),
        _ => (name.into(), value.into()),
    });
    let cookies = request.head.has(Name::Cookie).then(|| {
        let cookies = cookies::join(request.head.values(Name::Cookie), hidden.cookie)?;
        Some(("Cookie".into(), cookies.into_boxed_slice()))
    });
    let given = given.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    let traced = told.map(|told| (TRACEPARENT.into(), Box::from(told.context.text())));
    own.chain(cookies.flatten()).chain(given).chain(traced).collect()
}
