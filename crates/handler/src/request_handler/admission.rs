//! The role that decides which requests are served, and in which order.

use super::RequestHandler;
use crate::limits_told::TOLD;
use crate::policy::{ConnectionRecord, InForce, Judge, JudgeContext, Ticket};
use forebay_config::Role;
use forebay_conn::{Admission, Admitted, Peer, Rank, Refusal, Request, Settled, Verdict};
use forebay_http::client::ClientKey;
use forebay_http::head::Head;
use forebay_sys::clock;
use forebay_upstream::stage;

impl Admission for RequestHandler {
    fn trusts(&mut self, peer: &Peer) -> bool {
        self.keep_up();
        self.trusted.trust(peer)
    }

    fn asks_local(&self) -> bool {
        self.judge.as_ref().is_some_and(Judge::asks_local)
            || self.applications.tell_local()
            || self.certificates.identities.has_addresses()
            // a connection that is passed on is judged by the address that it has reached
            || !self.applications.pass_routes().is_empty()
    }

    fn admit(&mut self, peer: &Peer) -> Verdict<()> {
        self.keep_up();
        match &mut self.judge {
            None => Verdict::Admit(Admitted::at_once(Rank::FIRST, ())),
            Some(judge) => {
                let verdict = judge.connection(peer, &self.trusted, clock::monotonic_ns());
                if !matches!(verdict, Verdict::Admit(_)) {
                    self.sight_refusal(peer, None);
                }
                verdict
            }
        }
    }

    fn connection_refused(&mut self, setting: &'static str, peer: &Peer) {
        TOLD.refused(setting, peer.address().ip(), self.now.monotonic_ms);
    }

    #[inline]
    fn verdict(
        &mut self,
        request: &Request<'_>,
        record: &mut ConnectionRecord,
    ) -> Verdict<Option<Ticket>> {
        self.keep_up();
        self.refused = None;
        match &mut self.judge {
            None => Verdict::Admit(Admitted::at_once(Rank::FIRST, None)),
            Some(judge) => {
                let verifier = self.certificates.verifier.as_ref();
                let (trusted, unix_ms) = (&*self.trusted, self.now.unix_ms);
                let paths = match judge.asks_path() && request.peer.passed.is_none() {
                    true => self.site.judged_paths(request),
                    false => Vec::new(),
                };
                let rank = match self.applications.role() {
                    Some(Role::Process | Role::Respond) => rank_told(&self.policy, request.head),
                    Some(Role::Receive) | None => None,
                };
                let known = JudgeContext { trusted, verifier, unix_ms, rank, paths: &paths };
                // a request is judged as soon as it is there, and the clock may have been read for that
                // already
                let now_ns = match std::mem::take(&mut self.ticked_ns) {
                    0 => clock::monotonic_ns(),
                    ticked_ns => ticked_ns,
                };
                let verdict = judge.request(request, record, known, now_ns);
                // the other refusals have a log line
                if matches!(verdict, Verdict::Reset) {
                    self.sight_refusal(request.peer, Some(request));
                }
                verdict
            }
        }
    }

    #[inline]
    fn enqueue(&mut self, ticket: &mut Option<Ticket>) -> Result<(), Refusal> {
        match (&mut self.judge, ticket) {
            (Some(judge), Some(ticket)) => judge.enqueue(ticket),
            (None, Some(ticket)) => {
                ticket.end_wait();
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    fn charge_given_up(&mut self, peer: &Peer, count: usize) -> bool {
        let address = peer.address().ip();
        // a trusted proxy, or a program of this machine, stands for many clients that cannot be told
        // apart here
        if address.is_unspecified() || self.trusted.contain(address.to_canonical()) {
            return true;
        }
        self.sockets.given_up().charge(ClientKey::of(address), count, clock::monotonic_ns())
    }

    #[inline]
    fn takes_turns(&self, peer: &Peer) -> bool {
        let now_ns = self.now.monotonic_ms * 1_000_000;
        self.sockets.given_up().takes_turns(ClientKey::of(peer.address().ip()), now_ns)
    }

    #[inline]
    fn turn_ms(&self, peer: &Peer) -> u32 {
        let now_ns = self.now.monotonic_ms * 1_000_000;
        self.sockets.given_up().turn_ms(ClientKey::of(peer.address().ip()), now_ns)
    }

    #[inline]
    fn settle(&mut self, ticket: &mut Option<Ticket>, end: Settled) {
        if let Some(ticket) = ticket {
            if end != Settled::Answered
                && let Some(judge) = &self.judge
            {
                judge.give_up_turn(ticket);
            }
            ticket.settle(end, &self.metrics);
        }
    }
}

/// The rank that the stage before has decided. A request without one has the default class.
fn rank_told(policy: &InForce, head: &Head<'_>) -> Option<u8> {
    match stage::class(head) {
        Some(class) => policy.rank(class),
        // behind a queue of requests, a living process would seem to hang
        None if stage::is_ping(head) => Some(Rank::FIRST.0),
        None => None,
    }
}
