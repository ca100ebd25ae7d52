//! The role that knows what the answer is: from the content, from an application or the next stage, or an
//! error.

use super::context::HandlerContext;
use super::{RequestHandler, end_work};
use crate::applications::NO_TUNNEL;
use crate::certificates::OTHER_CONNECTION;
use crate::certificates::acme;
use crate::client::{client_of, is_secure};
use crate::detour::Detour;
use crate::job::{ServerJob, ServerJobDone};
use crate::policy::Ticket;
use forebay_config::Role;
use forebay_conn::{
    BodyDecision, Job as _, JobKind, PassedConnection, Peer, Process, ProcessOutcome, Refusal,
    Relay as _, Relayed, Reply, Request,
};
use forebay_http::head::{Head, Method};
use forebay_http::status::reason;
use forebay_site::{Body, Routed, host_of};
use forebay_upstream::stage;

/// The text of the 421 for a request with an https URL on a connection without TLS (RFC 9110 §7.4).
const WITHOUT_TLS: &str = "This connection is without TLS; open one with it for this address";

/// The text of the answer to a request about whose path the policy's rules do not agree.
const DIVIDED: &str =
    "Rules decide differently about readings of the path, which `ambiguous` does not pass then";

impl Process for RequestHandler {
    fn decide(
        &mut self,
        request: &Request<'_>,
        _: &mut Option<Ticket>,
        _: Option<ServerJobDone>,
    ) -> BodyDecision<ServerJob> {
        if let Some(next) = self.applications.next_stage()
            && is_passed_on(request)
        {
            return BodyDecision::Stream(next.settings().bodies().most_bytes);
        }
        // Files decide, too: while it is not known where roots lead, every path may be an application's.
        let is_respond = self.applications.role() == Some(Role::Respond);
        let asks = is_respond && self.site.has_applications();
        let is_unsure = asks && self.site.catch_up().is_some();
        match is_unsure || self.site.may_be_for_application(request) {
            // applications have limits of their own, and nothing is kept here
            true => BodyDecision::Stream(u64::MAX),
            false => BodyDecision::Here,
        }
    }

    #[inline]
    fn hands_over(&mut self, request: &Request<'_>) -> bool {
        request.peer.passed.is_none() && self.is_for_receiver(request)
    }

    #[inline]
    fn process(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<ServerJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        self.refused = None;
        self.note_process(done.as_ref(), ticket.is_some());
        if let Some(passed) = request.passed {
            reply.further.clone_from(&passed.further);
        }
        if let Some(ticket) = ticket {
            ticket.begin();
        }
        // an ACME authority gets its answer whatever rules and the site say about the path
        if self.answers_authority(request, reply) {
            end_work(ticket);
            return ProcessOutcome::Replied;
        }
        if ticket.as_ref().is_some_and(Ticket::is_divided) {
            end_work(ticket);
            self.refuse(400, DIVIDED, reply);
            return ProcessOutcome::Replied;
        }
        if request.peer.passed.is_none()
            && let Some((status, reason)) = self.wrong_way(request)
        {
            end_work(ticket);
            self.refuse(status, reason, reply);
            return ProcessOutcome::Replied;
        }
        // asked for behind the refusals above, so that no refused request holds a place
        if let Some(ticket) = ticket
            && ticket.needs_place()
            && let Some(outcome) = self.ask_for_place(request, ticket, reply)
        {
            return outcome;
        }
        if let Some(passed) = &request.peer.passed {
            return self.pass_on_bytes(passed, request, ticket, reply);
        }
        if let Some(role) = self.applications.role() {
            let waited_ms = done.as_ref().map_or(0, ServerJobDone::waited_ms);
            let done = done.and_then(ServerJobDone::of_site);
            self.tell_delay(request, waited_ms, reply);
            return match self.process_stage(role, request, ticket, done, reply) {
                ProcessOutcome::Job(job) => ProcessOutcome::Job(job.timed()),
                other => other,
            };
        }
        let done = done.and_then(ServerJobDone::of_site);
        self.process_here(request, ticket, done, reply)
    }

    fn acknowledges(&self, head: &Head<'_>) -> bool {
        let is_behind = matches!(self.applications.role(), Some(Role::Process | Role::Respond));
        is_behind && stage::asks_for_acknowledgement(head)
    }

    fn relayed(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        detour: &mut Detour,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        self.answer_of(request, ticket, detour, reply)
    }

    fn begin_exchange(&mut self, relay: &mut Detour) {
        let now_ms = self.now.monotonic_ms;
        match relay {
            Detour::Application(passing) => {
                self.pools.with(|pool| passing.exchange.begin(pool, now_ms));
                // an exchange may begin in a later turn; it can only be made anew by the content that it
                // was made by
                if passing.exchange.tag.content == self.site.content_number()
                    && let Some(waits) = passing.set_aside(self.site.content(), &self.applications)
                {
                    *relay = Detour::Turn(Box::new(waits));
                }
            }
            Detour::HandOver(over) => {
                self.pools.with(|pool| over.exchange.begin(pool, now_ms));
            }
            Detour::Inside(inside) => inside.exchange.begin(now_ms),
            Detour::Turn(waits) => waits.turn.begin(now_ms),
            Detour::Place(_) => {}
        }
        // a thread waits in `poll`: without a descriptor by which the thread could be woken, there is no
        // wait
        if self.thread.is_some() && relay.is_deaf() {
            relay.expire();
        }
    }

    fn release(&mut self, relay: Detour) {
        match relay {
            Detour::Application(mut passing) => {
                self.pools.with(|pool| passing.exchange.give_back(pool));
            }
            Detour::HandOver(mut over) => self.pools.with(|pool| over.exchange.give_back(pool)),
            Detour::Inside(_) | Detour::Turn(_) | Detour::Place(_) => {}
        }
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Body>) {
        if status >= 500 {
            self.name_refusal(None, None, reason, reply);
        }
        self.site.refuse(status, reason, reply);
    }

    fn turn_away(
        &mut self,
        refusal: Refusal,
        request: Option<&Request<'_>>,
        reply: &mut Reply<'_, Body>,
    ) {
        if request.is_some() {
            // rules are applied in receive: a refusal in a later stage comes from the agent
            let role = self.applications.role();
            reply.is_kept_out = matches!(role, Some(Role::Process | Role::Respond));
            self.name_refusal(request, None, "", reply);
        }
        let id = self.refused.as_ref().and_then(|refused| refused.id);
        let RequestHandler { site, trusted, told, .. } = self;
        match request {
            // a refused request has a class, but the page must not reveal it
            Some(request) => {
                let context = HandlerContext {
                    request,
                    trusted,
                    told,
                    id,
                    judged: None,
                    overload: 0,
                    upstream: "",
                };
                site.turn_away(refusal, request, &context, reply);
            }
            None => site.turn_connection_away(refusal, reply),
        }
    }
}

impl RequestHandler {
    /// The degree of overload, from 0 to 3; in a process behind the first stage, as that stage says.
    #[inline]
    pub(super) fn overload(&self, head: &Head<'_>) -> u8 {
        match self.applications.role() {
            Some(Role::Process | Role::Respond) => stage::overload(head),
            Some(Role::Receive) | None => self.policy.degree().number(),
        }
    }

    /// Answers a request whose whole answer is this process's to find.
    #[inline]
    pub(super) fn process_here(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        if self.secures(request, ticket.as_ref(), reply) {
            end_work(ticket);
            return ProcessOutcome::Replied;
        }
        if let Some(sent) = request.passed.and_then(|passed| passed.sent.as_ref()) {
            return self.send_instead(sent, request, ticket, done, reply);
        }
        if let Some(status) = request.passed.and_then(|passed| passed.refused)
            && !done.as_ref().is_some_and(|done| self.site.has_made(done))
        {
            // the error page is that of another content: a reload came between
            end_work(ticket);
            self.refuse(status, reason(status), reply);
            return ProcessOutcome::Replied;
        }
        if let Some(passed) = request.passed
            && let Some(status @ 500..) = passed.refused
        {
            self.name_refusal(Some(request), passed.id, reason(status), reply);
        }
        let RequestHandler { site, trusted, .. } = self;
        let client = || client_of(request.peer, request.head, trusted);
        let done = match site.route(request, client, done, reply) {
            Routed::Here(_)
                if request.passed.is_none_or(|passed| passed.refused.is_none())
                    && self.standpoint().tunnel_of(request.head).is_some() =>
            {
                end_work(ticket);
                self.refuse(501, NO_TUNNEL, reply);
                return ProcessOutcome::Replied;
            }
            Routed::Here(done) => done,
            Routed::Replied => {
                end_work(ticket);
                return ProcessOutcome::Replied;
            }
            Routed::Job(work) => return self.needs_worker(work, request, ticket, reply),
            Routed::To(destination) => {
                return self.relay(destination, None, request, ticket, reply);
            }
        };
        self.find(request, ticket, done, reply)
    }

    /// Has the site act on the scheme of a request, with a redirect for example. Returns whether that is
    /// the answer.
    #[inline]
    fn secures(
        &mut self,
        request: &Request<'_>,
        ticket: Option<&Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> bool {
        let overload = self.overload(request.head);
        let RequestHandler { site, trusted, policy, told, .. } = self;
        let context = HandlerContext {
            request,
            trusted,
            told,
            id: None,
            judged: Some((policy, ticket)),
            overload,
            upstream: "",
        };
        site.secures(request, &context, reply)
    }

    /// Answers with the site's content for a request that is let through.
    #[inline]
    pub(super) fn find(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let RequestHandler { site, trusted, .. } = self;
        let client = || client_of(request.peer, request.head, trusted);
        match site.process(request, client, done, reply) {
            ProcessOutcome::Replied => {
                self.offer_to_kernel(request);
                end_work(ticket);
                ProcessOutcome::Replied
            }
            ProcessOutcome::HandOver => ProcessOutcome::HandOver,
            ProcessOutcome::Relay(none) => match none {},
            ProcessOutcome::Job(work) => self.needs_worker(work, request, ticket, reply),
        }
    }

    /// Does the part of this stage in answering a request.
    #[cold]
    pub(super) fn process_stage(
        &mut self,
        role: Role,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        done: Option<forebay_site::SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        let is_replied = match role {
            _ if !is_passed_on(request) => return self.process_here(request, ticket, done, reply),
            Role::Receive => self.secures(request, ticket.as_ref(), reply),
            Role::Process | Role::Respond if stage::is_ping(request.head) => {
                reply.head(204, self.applications.pong().as_bytes());
                true
            }
            Role::Respond => {
                // another process of this stage may have sent an answer with newer content since
                if done.is_none()
                    && let Some(work) = self.site.catch_up()
                {
                    return self.needs_worker(work, request, ticket, reply);
                }
                return self.process_here(request, ticket, done, reply);
            }
            Role::Process => {
                let overload = self.overload(request.head);
                let RequestHandler { site, trusted, policy, told, .. } = self;
                let context = HandlerContext {
                    request,
                    trusted,
                    told,
                    id: None,
                    judged: Some((policy, ticket.as_ref())),
                    overload,
                    upstream: "",
                };
                match site.decide(request, &context, done, reply) {
                    Routed::Replied => true,
                    Routed::Job(work) => return self.needs_worker(work, request, ticket, reply),
                    // the page of an error
                    Routed::Here(Some(done)) => {
                        return self.process_here(request, ticket, Some(done), reply);
                    }
                    Routed::Here(None) | Routed::To(_) => false,
                }
            }
        };
        end_work(ticket);
        if is_replied {
            ProcessOutcome::Replied
        } else {
            self.pass_on(request, ticket.as_ref(), reply)
        }
    }

    /// Whether this is the request of an ACME authority that checks whether a name is ours. It is
    /// answered then, whatever the site says about its path.
    #[inline]
    pub(super) fn answers_authority(
        &mut self,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> bool {
        let Some(plan) = self.certificates.acme() else { return false };
        if !acme::AcmePlan::is_for(request.head.path)
            || !matches!(request.head.method, Method::Get | Method::Head)
            || request.head.tunnel.is_some()
        {
            return false;
        }
        let Some(site) = self.site.site_of(request) else { return false };
        let Some(text) = plan.answer(site as usize, request.head.path) else { return false };
        self.site.tell(&text, reply);
        true
    }

    /// Why a request cannot be answered on its connection: the connection is for another host, has not
    /// the TLS that the target names, or shows less of the client than the site demands.
    #[inline]
    pub(super) fn wrong_way(&mut self, request: &Request<'_>) -> Option<(u16, &'static str)> {
        let Request { head, peer, .. } = *request;
        let is_https = || is_secure(peer, head, &self.trusted);
        if head.is_https && !is_https() {
            return Some((421, WITHOUT_TLS));
        }
        let secured = peer.secured.as_deref();
        let asks = self.certificates.ask_clients();
        if secured.is_none() && !asks {
            return None;
        }
        let host = host_of(head.authority);
        let identities = &self.certificates.identities;
        if secured.is_some_and(|secured| identities.is_misdirected(secured, host)) {
            return Some((421, OTHER_CONNECTION));
        }
        let is_of_name = |name: &str| name.as_bytes().eq_ignore_ascii_case(host);
        if secured.is_some_and(|secured| !secured.name.as_deref().is_some_and(is_of_name))
            && self.is_passed_on(peer, host)
        {
            return Some((421, OTHER_CONNECTION));
        }
        let site = if asks { self.site.site_of(request) } else { None };
        self.certificates.refusal(secured, is_https, site? as usize, host)
    }

    /// Whether connections that ask for this name at the client's port are passed on, so that no site
    /// answers for the name.
    fn is_passed_on(&self, peer: &Peer, host: &[u8]) -> bool {
        let routes = self.applications.pass_routes();
        if routes.is_empty() {
            return false;
        }
        let host = host.strip_suffix(b".").unwrap_or(host);
        let name = String::from_utf8_lossy(host).to_ascii_lowercase();
        let asked = PassedConnection { name: Some(name.into()), is_raw: false };
        routes.find(peer.local.port(), &asked).is_some()
    }

    /// Gives a request that needs a worker its place in the window of its class, unless the window is
    /// full.
    pub(super) fn needs_worker(
        &mut self,
        work: forebay_site::SiteJob,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        if let Some((site, rule)) = work.asks() {
            let authority = self.site.authority(site, rule);
            return self.relay(authority, Some(rule), request, ticket, reply);
        }
        if let (Some(ticket), JobKind::Blocks) = (&mut *ticket, work.kind()) {
            ticket.pause();
        }
        let (Some(judge), Some(ticket), JobKind::Computes) = (&mut self.judge, ticket, work.kind())
        else {
            return ProcessOutcome::Job(self.timed_job(ServerJob::uncounted(work)));
        };
        match judge.needs_worker(ticket) {
            Ok(pass) => ProcessOutcome::Job(self.timed_job(ServerJob::counted(work, pass))),
            Err(refusal) => {
                self.turn_away(refusal, Some(request), reply);
                ProcessOutcome::Replied
            }
        }
    }
}

/// Whether another stage may answer a request. Tunnels and traces end in the stage that has the client.
fn is_passed_on(request: &Request<'_>) -> bool {
    !matches!(request.head.method, Method::Connect | Method::Trace)
}
