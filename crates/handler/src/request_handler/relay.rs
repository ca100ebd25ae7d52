//! Requests to applications and the next stage, and their answers.

use super::context::HandlerContext;
use super::hand_over::has_socket;
use super::traced::place_of;
use super::turn::is_of_request;
use super::{RequestHandler, authority, end_work};
use crate::applications::websocket;
use crate::applications::{ExchangeTag, Standpoint, ask_stage, failed, refused, summary};
use crate::client::{client_of, is_secure};
use crate::detour::Detour;
use crate::job::ServerJob;
use crate::passing::PassingExchange;
use crate::policy::Ticket;
use crate::upstream_threads::HeldThread;
use forebay_config::Role;
use forebay_conn::handler::relay::RelayRead;
use forebay_conn::{
    InternalRedirect, Passed, Process, ProcessOutcome, Relay, Relayed, Reply, Request,
};
use forebay_engine::admission::ConnectionPlace;
use forebay_http::challenge::without_connection;
use forebay_http::client::ClientKey;
use forebay_http::framing::Framing;
use forebay_http::head::{Method, RequestTarget, Version};
use forebay_http::path::NormalPath;
use forebay_http::response::Response;
use forebay_http::status::{push_line, reason};
use forebay_metrics::{Counter, Unanswered};
use forebay_site::{Body, Destination};
use forebay_sys::clock;
use forebay_tls::TlsFault;
use forebay_upstream::client_url::ClientUrl;
use forebay_upstream::exchange::{Exchange, Failed, UpstreamHandshakes};
use forebay_upstream::group::Unavailable;
use forebay_upstream::link::LinkFailure;
use forebay_upstream::response::{self, Moved};
use forebay_upstream::settings::{ApplicationSettings, Errors};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// The fields of an application that replace those of the content it has sent instead, as with nginx.
const KEPT: [&str; 5] =
    ["Content-Type", "Content-Disposition", "Set-Cookie", "Cache-Control", "Expires"];

/// The field of this server replaces an application's: of two fields, the first would count (RFC 6797
/// §8.1).
pub(super) const HSTS: &str = "Strict-Transport-Security";

/// The field with the schemes by which a client may authenticate.
const OFFER: &str = "WWW-Authenticate";

/// The largest part of an unwanted answer that is received so that its connection can be kept.
const DROPPED_BYTES: usize = 16 * 1024;

const NOT_ACCEPTED: &str = "The application has not accepted the WebSocket as it must";
pub(super) const NOT_CHANGED: &str =
    "The application has not changed to the protocol of the tunnel";
const NO_DECISION: &str = "It could not be found out whether this is for you";
const NOT_TO_BE_SENT: &str = "The application may not have that sent";

impl RequestHandler {
    /// The party from which this process takes a request's addresses.
    pub(super) fn standpoint(&self) -> Standpoint<'_> {
        Standpoint { trusted: &self.trusted, role: self.applications.role() }
    }

    /// Reports to the stage before how long a request has waited here: for a thread, and in this turn of
    /// the loop for the requests before it.
    pub(super) fn tell_delay(
        &self,
        request: &Request<'_>,
        waited_ms: u64,
        reply: &mut Reply<'_, Body>,
    ) {
        if self.acknowledges(request.head) {
            let turn_ms = clock::coarse_ms().saturating_sub(self.now.monotonic_ms);
            reply.waited_ms = Some(u32::try_from(waited_ms + turn_ms).unwrap_or(u32::MAX));
        }
    }

    /// Counts, for the server and for the class, that no application has answered for this reason.
    /// Returns the status and text for the client.
    pub(super) fn say_unanswered(
        &mut self,
        failure: Failed,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> (u16, &'static str) {
        let (status, text) = failed(failure);
        let unanswered = match status {
            413 | 507 => None,
            502 => Some((Counter::UpstreamFailed, Unanswered::Failed)),
            504 => Some((Counter::UpstreamLate, Unanswered::Late)),
            _ => Some((Counter::UpstreamUnavailable, Unanswered::Unavailable)),
        };
        if let Some((counter, unanswered)) = unanswered {
            self.metrics.add(counter, 1);
            if let (Some(judge), Some(ticket)) = (&mut self.judge, &*ticket) {
                judge.unanswered(ticket, unanswered);
            }
        }
        if let Failed::Unasked(unavailable) = failure {
            self.unavailable(unavailable, ticket, reply);
        }
        (status, text)
    }

    /// Has the next stage answer a request.
    pub(super) fn pass_on(
        &mut self,
        request: &Request<'_>,
        ticket: Option<&Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let id = self.ids.number();
        let site = self.site.site_of(request);
        let destination = Destination { site: site.unwrap_or(u32::MAX), ..Destination::default() };
        let repeats = self.applications.repeats_idempotent(site);
        let Some(next) = self.applications.next_stage().map(Arc::clone) else {
            self.refuse(502, "There is no next stage", reply);
            return ProcessOutcome::Replied;
        };
        let knows_no_rules = self.applications.is_next_other();
        if knows_no_rules && self.site.refuses_no_path(request, reply) {
            return ProcessOutcome::Replied;
        }
        let trace = self.place_exchange(request, id, None);
        let client = client_of(request.peer, request.head, &self.trusted);
        let (content, user) = (self.site.content_number(), self.site.user(request));
        let asked = ExchangeTag { destination, content, id, user, rule: None, trace };
        let (standpoint, applications) = (self.standpoint(), &self.applications);
        let judged = (self.class_to_tell(ticket), self.overload(request.head));
        let ask =
            ask_stage(request, client, &asked, standpoint, applications, judged, knows_no_rules);
        let mut ask = match ask {
            Ok(ask) => ask,
            Err(refused) => {
                self.refuse(refused.status(), refused.reason(), reply);
                return ProcessOutcome::Replied;
            }
        };
        if let Some(copy) = &mut ask.copy {
            copy.repeats_idempotent = repeats;
        }
        let now_ms = self.now.monotonic_ms;
        let passing = self.place_for(client).and_then(|place| {
            let exchange = Exchange::new(&next, ask, asked, now_ms)?;
            Ok(PassingExchange::new(exchange, Some(place)))
        });
        match passing {
            Ok(passing) => ProcessOutcome::Relay(Detour::Application(Box::new(passing))),
            Err(unavailable) => {
                self.metrics.add(Counter::UpstreamUnavailable, 1);
                (_, reply.retry_after_s) = refused(unavailable);
                let (status, text) = failed(Failed::Unasked(unavailable));
                self.refuse(status, text, reply);
                ProcessOutcome::Replied
            }
        }
    }

    /// The class of a request, for the next stage; empty if there is only one class.
    fn class_to_tell(&self, ticket: Option<&Ticket>) -> &str {
        match self.policy.policy.classes().len() {
            0 | 1 => "",
            _ => self.policy.class(ticket),
        }
    }

    /// A place for one more exchange of this client, if there is one.
    pub(super) fn place_for(&self, client: IpAddr) -> Result<ConnectionPlace, Unavailable> {
        // a trusted proxy that names no client stands for many
        let is_proxy = self.trusted.contain(client);
        self.sockets.enter((!is_proxy).then(|| ClientKey::of(client)))
    }

    /// The limited resources that an exchange of this client needs.
    pub(super) fn room_for(
        &mut self,
        client: IpAddr,
        is_tunnel: bool,
    ) -> Result<(ConnectionPlace, Option<HeldThread>), Unavailable> {
        let thread = self.thread.as_mut().map(|thread| thread.take(is_tunnel)).transpose()?;
        Ok((self.place_for(client)?, thread))
    }

    /// Begins an answer, or an error, of an application or the next stage: the answer belongs to the site
    /// that the request has now. A reload may have changed the numbers of sites and routes.
    pub(super) fn begin_answer(
        &mut self,
        request: &Request<'_>,
        tag: &mut ExchangeTag,
        reply: &mut Reply<'_, Body>,
    ) {
        if tag.content != self.site.content_number() {
            tag.destination = self.site.destination_now(request, &tag.destination);
        }
        let hsts = self.site.hsts_of(&tag.destination);
        reply.hsts = hsts.filter(|_| is_secure(request.peer, request.head, &self.trusted));
    }

    /// Answers a request whose detour has ended: with the answer of an application or the next stage, or
    /// because it has a place.
    pub(super) fn answer_of(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        detour: &mut Detour,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        self.refused = None;
        reply.further = request.passed.and_then(|passed| passed.further.clone());
        let passing = match detour {
            Detour::Application(passing) => passing,
            Detour::HandOver(over) => {
                return self.handed_over(request, ticket, over, reply);
            }
            Detour::Inside(inside) => {
                return self.handler_answered(request, ticket, inside, reply);
            }
            Detour::Turn(_) => return self.turn_decided(request, ticket, detour, reply),
            Detour::Place(waits) => {
                return self.place_decided(request, ticket, &mut waits.wait, reply);
            }
        };
        let relay = &mut passing.exchange;
        relay.tell();
        if relay.application().is_stage() {
            let again = u64::from(relay.attempts().saturating_sub(1));
            self.metrics.add(Counter::UpstreamRetries, again);
            return self.relayed_stage(request, ticket, passing, reply);
        }
        if relay.application().settings().tcp().is_some() {
            return self.passed_on(request, ticket, relay, reply);
        }
        self.begin_answer(request, &mut relay.tag, reply);
        let count = |counter| self.metrics.add(counter, 1);
        if relay.attempts() > 1 {
            self.metrics.add(Counter::UpstreamRetries, u64::from(relay.attempts() - 1));
        }
        count_handshakes(relay.handshakes(), |counter, times| self.metrics.add(counter, times));
        let asked = &relay.tag;
        let destination = &asked.destination;
        if let Some(failure) = relay.failure() {
            let (status, text) = self.say_unanswered(failure, ticket, reply);
            return self.refuse_for(asked, request, ticket.as_ref(), status, text, reply);
        }
        count(Counter::UpstreamAnswered);
        if relay.needs_http1() {
            return Relayed::NeedsHttp1;
        }
        let mut status = relay.status().unwrap_or_default();
        let is_tunnel = self.standpoint().tunnel_of(request.head).is_some();
        if let Some(rule) = relay.tag.rule {
            match status {
                200..=299 => {
                    let again = self.allowed(rule, request, relay);
                    // the request may be for an application as well, which needs the place
                    passing.give_place_back();
                    return again;
                }
                401 | 403 => {}
                // 304 would answer a condition, which a deciding server does not get
                301 | 302 | 303 | 307 | 308 if names_place(relay) => {}
                _ => {
                    return self.refuse_for(
                        &relay.tag,
                        request,
                        ticket.as_ref(),
                        502,
                        NO_DECISION,
                        reply,
                    );
                }
            }
        } else if is_tunnel && let Some(text) = refuses_tunnel(relay, status) {
            return self.refuse_for(&relay.tag, request, ticket.as_ref(), 502, text, reply);
        } else if !is_tunnel && let Some(sent) = self.sent_instead(relay) {
            return match sent {
                Ok(sent) => {
                    self.send_spans_of(relay);
                    self.give_back(relay);
                    let trace = place_of(&relay.tag);
                    let (id, given) = (Some(relay.tag.id), request.passed.cloned());
                    let given = given.unwrap_or_default();
                    // the content may be another application's answer, which needs the place
                    passing.give_place_back();
                    Relayed::Again(Box::new(Passed { id, sent: Some(sent), trace, ..given }))
                }
                Err(text) => {
                    self.refuse_for(&relay.tag, request, ticket.as_ref(), 502, text, reply)
                }
            };
        }
        let settings = relay.application().settings();
        if settings.errors() == Errors::Ours && status >= 400 {
            let withholds = relay.withholds_sign_in();
            let kept = relay.with_answer(|answer| kept_of_error(answer, withholds));
            let kept = kept.unwrap_or_default();
            // a client that signs in goes on with that on the same connection to the application
            if relay.is_private() {
                self.give_back(relay);
            }
            return self.refuse_with(
                &relay.tag,
                request,
                ticket.as_ref(),
                status,
                (reason(status), kept),
                reply,
            );
        }
        let sign_in = match (relay.tag.rule, status, settings.proxy()) {
            (Some(_), 401, Some(proxy)) => {
                let is_secure = is_secure(request.peer, request.head, &self.trusted);
                authority::sign_in(proxy, request, is_secure)
            }
            _ => None,
        };
        if sign_in.is_some() {
            // the page where users sign in must be asked for by GET
            let keeps_method = matches!(request.head.method, Method::Get | Method::Head);
            status = if keeps_method { 302 } else { 303 };
        }
        let is_decision = relay.tag.rule.is_some();
        let authority = relay.application().authority(relay.upstream());
        let url = match self.trusted.are_believed(request.peer) {
            true => ClientUrl::of(request.head, self.trusted.counts(), 0),
            false => ClientUrl::default(),
        };
        let moved = settings.proxy().filter(|proxy| proxy.rewrites).map(|proxy| Moved {
            authority,
            is_tls: proxy.group.tls.is_some(),
            named: proxy.request.host.named(),
            client: request.head.authority,
            strip: &proxy.request.strip,
            prefix: &proxy.request.prefix,
            outer: url.outer_prefix(),
        });
        let overload = self.overload(request.head);
        let RequestHandler { site, head, trusted, policy, told, .. } = self;
        let context = HandlerContext {
            request,
            trusted,
            told,
            id: Some(asked.id),
            judged: Some((policy, ticket.as_ref())),
            overload,
            upstream: authority,
        };
        site.look_for(destination, request, &context);
        begin_head(status, head);
        let length = relay.length();
        let (mut coding, mut holds) = (None, true);
        let has_hsts = reply.hsts.is_some();
        let withholds = relay.withholds_sign_in();
        let has_date = relay.with_answer(|answer| {
            let mut said = Vec::with_capacity(16);
            let notes = response::fields(answer, moved.as_ref(), |name, value| {
                said.push((name, value));
            });
            if withholds {
                withhold_sign_in(&mut said);
            }
            if is_tunnel {
                said.retain(|(name, _)| !name.eq_ignore_ascii_case(websocket::ACCEPT));
            }
            if has_hsts {
                said.retain(|(name, _)| !name.eq_ignore_ascii_case(HSTS));
            }
            holds = notes.buffering != Some(false);
            if let Some(address) = sign_in {
                authority::lead_to(address, &mut said);
            }
            coding = site.recode(destination, request, status, length, &mut said);
            // rules about how long caches keep content do not apply to a decision about it
            let as_status = if is_decision { status.max(400) } else { status };
            site.write_fields(destination, request, as_status, said, head);
            if is_decision {
                authority::keep_from_caches(status, head);
            }
            notes.has_date
        });
        if status == 101 {
            reply.switch(head);
            return Relayed::Switched;
        }
        let buffer_bytes = if holds { settings.buffer_bytes() } else { 0 };
        passing.begin(buffer_bytes, coding.filter(|_| request.head.method != Method::Head));
        let length = length.filter(|_| coding.is_none());
        reply.relayed(status, head, length, has_date.unwrap_or_default());
        Relayed::Body
    }

    /// Answers with the next stage's answer, which is passed on as it is, or with an error if no instance
    /// has answered.
    #[cold]
    fn relayed_stage(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        passing: &mut PassingExchange,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        let relay = &mut passing.exchange;
        self.begin_answer(request, &mut relay.tag, reply);
        if let Some(failure) = relay.failure() {
            let (status, text) = match relay.reason() {
                Some(reason) => (reason.status(), unanswered(reason)),
                None if failure == Failed::TooLarge => (413, "the request body is too large"),
                None => failed(failure),
            };
            let is_unknown = relay.reason() == Some(LinkFailure::Unknown);
            let count = |counter| self.metrics.add(counter, 1);
            count(if is_unknown { Counter::LinkUnknown } else { Counter::UpstreamFailed });
            self.refuse(status, text, reply);
            return Relayed::Own;
        }
        self.metrics.add(Counter::UpstreamAnswered, 1);
        let status = relay.status().unwrap_or_default();
        // the respond stage gives no such answer; other software may
        if request.head.tunnel.is_some() && (200..300).contains(&status) {
            self.refuse(502, NOT_CHANGED, reply);
            return Relayed::Own;
        }
        let head = &mut self.head;
        begin_head(status, head);
        let has_hsts = reply.hsts.is_some();
        let is_refused =
            relay.with_answer(|answer| answer.values(response::REFUSED).next().is_some());
        // other software may say so without meaning it
        if is_refused == Some(true) && !self.applications.is_next_other() {
            reply.is_kept_out = self.applications.role() == Some(Role::Process);
            if let (Some(judge), Some(ticket)) = (&mut self.judge, ticket) {
                judge.refused_behind(ticket);
            }
        }
        let has_date = relay.with_answer(|answer| {
            let notes = response::fields(answer, None, |name, value| {
                if has_hsts && name.eq_ignore_ascii_case(HSTS) {
                    return;
                }
                for part in [name.as_bytes(), b": ", &value, b"\r\n"] {
                    head.extend_from_slice(part);
                }
            });
            notes.has_date
        });
        if status == 101 {
            reply.switch(head);
            return Relayed::Switched;
        }
        let length = relay.length();
        self.tell_delay(request, 0, reply);
        reply.relayed(status, &self.head, length, has_date.unwrap_or_default());
        Relayed::Body
    }

    /// Has an application asked, after rules have let the request through.
    #[cold]
    pub(super) fn relay(
        &mut self,
        destination: Destination,
        rule: Option<u16>,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        end_work(ticket);
        // a request about which another server was asked before keeps its number
        let known = request.passed.and_then(|passed| passed.id);
        let id = known.unwrap_or_else(|| self.ids.number());
        let (content, user) = (self.site.content_number(), self.site.user(request));
        let trace = self.place_exchange(request, id, rule);
        let asked = ExchangeTag {
            destination: destination.clone(),
            content,
            id,
            user,
            rule,
            trace: trace.clone(),
        };
        let Some(application) = self.applications.get(&asked.destination) else {
            // does not happen: content and applications are replaced together
            self.refuse(502, "There is no such application", reply);
            return ProcessOutcome::Replied;
        };
        let relayed = application.relayed().filter(|_| !has_socket(request));
        let application = Arc::clone(relayed.unwrap_or(application));
        if let ApplicationSettings::HandOver(settings) = application.settings() {
            return self.offer(&application, settings, asked, request, ticket, reply);
        }
        if let ApplicationSettings::Inside(settings) = application.settings() {
            return self.ask_handler(settings, asked, request, ticket, reply);
        }
        let now_ms = self.now.monotonic_ms;
        let (ask, client) = self.asks(&application, &asked, request, ticket.as_ref());
        let (status, text) = match ask {
            Err(unasked) => unasked.told(),
            Ok(mut ask) => {
                let is_tunnel = ask.written.asked.upgrade;
                let (place, thread) = match self.room_for(client, is_tunnel) {
                    Ok((place, thread)) => (Some(place), thread),
                    Err(unavailable) => {
                        ask.may_ask = Err(unavailable);
                        (None, None)
                    }
                };
                match Exchange::new(&application, ask, asked, now_ms) {
                    // a request that cannot be sent is an exchange, too, so that the log has its line
                    Ok(exchange) => {
                        let passing = PassingExchange::new(exchange, place).keeping(thread);
                        let mut passing = passing.of_request(is_of_request(request, rule));
                        // over HTTP/2 many requests may come together, and begin when all have come
                        let is_alone = request.head.version != Version::Http2
                            || request.head.tunnel.is_some()
                            || !matches!(request.head.framing, Framing::None | Framing::Sized(0));
                        if !is_alone
                            && let Some(waits) =
                                passing.set_aside_early(self.site.content(), &self.applications)
                        {
                            return ProcessOutcome::Relay(Detour::Turn(Box::new(waits)));
                        }
                        return ProcessOutcome::Relay(Detour::Application(Box::new(passing)));
                    }
                    Err(unavailable) => failed(Failed::Unasked(unavailable)),
                }
            }
        };
        let refused = ExchangeTag { destination, content, id, user: None, rule: None, trace };
        match self.refuse_for(&refused, request, ticket.as_ref(), status, text, reply) {
            Relayed::Job(job, _) => ProcessOutcome::Job(job),
            _ => ProcessOutcome::Replied,
        }
    }

    /// Processes a request again that a deciding server has let through.
    fn allowed(
        &mut self,
        rule: u16,
        request: &Request<'_>,
        relay: &mut Exchange<ExchangeTag>,
    ) -> Relayed<ServerJob> {
        let mut passed = request.passed.cloned().unwrap_or_default();
        passed.allowed.push((relay.tag.content, rule));
        passed.id = Some(relay.tag.id);
        passed.trace = place_of(&relay.tag);
        self.send_spans_of(relay);
        let application = Arc::clone(relay.application());
        let authority = application.settings().proxy().and_then(|proxy| proxy.authority.as_ref());
        for name in authority.iter().flat_map(|authority| &authority.copy) {
            let value = relay.with_answer(|answer| {
                let values: Vec<_> = answer.values(name.as_str()).collect();
                (!values.is_empty()).then(|| values.join(b", ".as_slice()).into_boxed_slice())
            });
            passed.given.retain(|(known, _)| !name.is(known));
            passed.given.push((name.as_str().into(), value.flatten()));
        }
        let known = passed.further.take();
        passed.further = relay.with_answer(|answer| authority::cookies(known, answer)).flatten();
        self.give_back(relay);
        Relayed::Again(Box::new(passed))
    }

    /// The content that an application wants to be sent instead of its answer, if it may; or why not.
    fn sent_instead(
        &self,
        relay: &Exchange<ExchangeTag>,
    ) -> Option<Result<InternalRedirect, &'static str>> {
        let destination = &relay.tag.destination;
        if !self.site.sends(destination) {
            return None;
        }
        let sent = relay.with_answer(|answer| {
            let mut fields = Vec::new();
            let notes = response::fields(answer, None, |name, value| {
                if KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept)) {
                    for part in [name.as_bytes(), b": ", &value, b"\r\n"] {
                        fields.extend_from_slice(part);
                    }
                }
            });
            let target = notes.accel_redirect?;
            let by = summary(relay);
            let end = target.iter().position(|&b| b == b'?');
            let (path, query) = target.split_at(end.unwrap_or(target.len()));
            let query = query.strip_prefix(b"?").map(Into::into);
            Some(InternalRedirect { path: path.into(), query, fields: fields.into(), by })
        });
        let sent = sent.flatten()?;
        let may_be = self.site.may_send(destination, &sent.path);
        Some(if may_be { Ok(sent) } else { Err(NOT_TO_BE_SENT) })
    }

    /// Gives the connection of an exchange back that is not needed any more. What has come of its answer
    /// is dropped; the rest is not waited for.
    pub(super) fn give_back(&mut self, relay: &mut Exchange<ExchangeTag>) {
        let mut dropped = Vec::new();
        let mut drop_some = || relay.read(&mut dropped, DROPPED_BYTES, self.now.monotonic_ms);
        for _ in 0..4 {
            if !matches!(drop_some(), RelayRead::Bytes(_)) {
                break;
            }
        }
        self.pools.with(|pool| relay.give_back(pool));
    }

    /// Answers with the content that an application wants to be sent, if rules about clients let it
    /// through.
    #[cold]
    pub(super) fn send_instead(
        &mut self,
        sent: &InternalRedirect,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let method = match request.head.method {
            Method::Head => Method::Head,
            _ => Method::Get,
        };
        let head = request
            .head
            .redirected(method, RequestTarget { path: &sent.path, query: sent.query.as_deref() });
        let path = NormalPath::default();
        let request = Request::new(&head, request.peer, &path).with(request.passed);
        reply.change.get_or_insert_default().fields = Some(Arc::clone(&sent.fields));
        self.find(&request, ticket, done, reply)
    }

    /// Counts for the class that an application could not be asked, and tells the client when to come
    /// back.
    pub(super) fn unavailable(
        &mut self,
        unavailable: Unavailable,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) {
        let (reason, retry_after_s) = refused(unavailable);
        reply.retry_after_s = retry_after_s;
        if let (Some(judge), Some(ticket), Some(reason)) = (&mut self.judge, ticket, reason) {
            judge.refused_later(ticket, reason);
        }
    }

    /// Answers in place of an application.
    pub(super) fn refuse_for(
        &mut self,
        asked: &ExchangeTag,
        request: &Request<'_>,
        ticket: Option<&Ticket>,
        status: u16,
        text: &'static str,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        self.refuse_with(asked, request, ticket, status, (text, Vec::new()), reply)
    }

    /// Answers in place of an application, with these fields.
    fn refuse_with(
        &mut self,
        asked: &ExchangeTag,
        request: &Request<'_>,
        ticket: Option<&Ticket>,
        status: u16,
        (text, fields): (&'static str, Vec<(&'static str, Vec<u8>)>),
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        // an error of the application itself has the site's page, and no refusal is remembered for it
        if text != reason(status) {
            self.name_refusal(Some(request), Some(asked.id), text, reply);
        }
        let overload = self.overload(request.head);
        let RequestHandler { site, trusted, policy, told, .. } = self;
        let context = HandlerContext {
            request,
            trusted,
            told,
            id: Some(asked.id),
            judged: Some((policy, ticket)),
            overload,
            upstream: "",
        };
        site.look_for(&asked.destination, request, &context);
        match site.refuse_for(&asked.destination, request, status, text, fields, reply) {
            ProcessOutcome::Job(work) => {
                self.refused = None;
                let given = request.passed.cloned().unwrap_or_default();
                let (id, refused) = (Some(asked.id), Some(status));
                let passed = Passed { id, refused, trace: place_of(asked), ..given };
                Relayed::Job(ServerJob::uncounted(work), Box::new(passed))
            }
            _ => Relayed::Own,
        }
    }
}

/// Whether an answer has a `Location`.
fn names_place(relay: &Exchange<ExchangeTag>) -> bool {
    relay.with_answer(|answer| answer.values("Location").next().is_some()).unwrap_or_default()
}

/// Begins a head with its first line, over the earlier content.
pub(super) fn begin_head(status: u16, head: &mut Vec<u8>) {
    head.clear();
    push_line(status, head);
}

/// Why the answer to a request for a tunnel may not be passed on, if that is so: a 2xx would mean that
/// there is a tunnel (RFC 8441 §4).
fn refuses_tunnel(relay: &Exchange<ExchangeTag>, status: u16) -> Option<&'static str> {
    match status {
        101 => {
            let id = relay.tag.id;
            let is_accepted = relay.with_answer(|answer| websocket::is_accepted(answer, id));
            let is_accepted = is_accepted.unwrap_or_default();
            (!is_accepted).then_some(NOT_ACCEPTED)
        }
        200..300 => Some(NOT_CHANGED),
        _ => None,
    }
}

/// The text for a client whose request no instance of the next stage has answered.
pub(super) fn unanswered(reason: LinkFailure) -> &'static str {
    match reason {
        LinkFailure::Unknown => {
            "A process of the server has ended, and it is not known whether it has done this"
        }
        LinkFailure::Exhausted => "No process of the server has answered",
        LinkFailure::Quarantined => "Processes of the server have ended while they did this",
    }
}

/// The fields of an error that clients need although its page is the site's: how to authenticate, when to
/// come back, and which methods exist.
fn kept_of_error(answer: &Response<'_>, withholds_sign_in: bool) -> Vec<(&'static str, Vec<u8>)> {
    const KEPT: [&str; 3] = [OFFER, "Retry-After", "Allow"];
    let offered = |name, value| match name == OFFER && withholds_sign_in {
        true => without_connection(value).map(Cow::into_owned),
        false => Some(value.to_vec()),
    };
    // fields that count only once are taken only once, as in answers that are passed on
    let most = |name| if name == "Retry-After" { 1 } else { usize::MAX };
    let values = |name| {
        let values = answer.values(name).take(most(name));
        values.filter_map(move |value| Some((name, offered(name, value)?)))
    };
    KEPT.into_iter().flat_map(values).collect()
}

/// Removes the schemes that sign in a connection from those that are offered.
fn withhold_sign_in<'h>(said: &mut Vec<(&'h str, Cow<'h, [u8]>)>) {
    said.retain_mut(|(name, value)| {
        if !name.eq_ignore_ascii_case(OFFER) {
            return true;
        }
        match without_connection(value).map(Cow::into_owned) {
            Some(left) => {
                *value = Cow::Owned(left);
                true
            }
            None => false,
        }
    });
}

/// Counts the TLS handshakes of an exchange.
fn count_handshakes(handshakes: &UpstreamHandshakes, mut add: impl FnMut(Counter, u64)) {
    let UpstreamHandshakes { full, resumed, failed } = handshakes;
    for (counter, count) in
        [(Counter::UpstreamTlsFull, *full), (Counter::UpstreamTlsResumed, *resumed)]
    {
        if count > 0 {
            add(counter, count.into());
        }
    }
    for fault in failed {
        let counter = match fault {
            TlsFault::Expired => Counter::UpstreamTlsExpired,
            TlsFault::NotYetValid => Counter::UpstreamTlsNotYetValid,
            TlsFault::Name => Counter::UpstreamTlsName,
            TlsFault::Issuer => Counter::UpstreamTlsIssuer,
            TlsFault::Certificate => Counter::UpstreamTlsCertificate,
            TlsFault::Unwelcome => Counter::UpstreamTlsUnwelcome,
            TlsFault::Alert => Counter::UpstreamTlsAlert,
            TlsFault::Unsupported => Counter::UpstreamTlsUnsupported,
            TlsFault::NotTls => Counter::UpstreamTlsNotTls,
            TlsFault::NoHttp2 => Counter::UpstreamTlsNoHttp2,
            TlsFault::Rules => Counter::UpstreamTlsRules,
            TlsFault::Ended => Counter::UpstreamTlsEnded,
        };
        add(counter, 1);
    }
}
