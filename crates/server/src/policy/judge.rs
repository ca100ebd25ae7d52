//! One loop's view of the policy: facts in, a verdict out, entries in the ledger.

use super::window::{Entrance, Pass};
use super::{Facts, InForce, Judged, Trace};
use crate::client::TrustedProxies;
use forebay_conn::{Admitted, Peer, Rank, Refusal, Request, Settled, Verdict};
use forebay_control::gather::Gather;
use forebay_metrics::{ClassEvent, ClassSlot, Local, Place, Reason};
use forebay_policy::decision::{Answer, Decisions, Refused};
use forebay_policy::facts::ConnectionFacts;
use forebay_policy::{self as policy, Charge, Needs};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Judges connections and requests for one loop or thread.
pub struct Judge {
    in_force: Arc<InForce>,
    needs: Needs,
    metrics: Arc<Local>,
    facts: Facts,
    entrance: Entrance,
    gather: Gather,
    /// How a request was judged that has no ticket, or none any more: until its log line is begun.
    turned_away: Option<Trace>,
}

/// What goes with an admitted request.
#[derive(Debug)]
pub struct Ticket {
    rank: u8,
    /// What the log is told; refused it was, if at all, when it was to enter its class's window.
    trace: Trace,
    /// It has been let in there.
    has_entered: bool,
    /// Its place in the window, where requests line up with it.
    pass: Option<Pass>,
    /// What its rules count it among, until it is dropped.
    _held: policy::Ticket,
}

impl Judge {
    /// Judges by the policy in force; `None` if that says nothing.
    pub fn new(in_force: &Arc<InForce>, metrics: &Arc<Local>, entrance: Entrance) -> Option<Judge> {
        if in_force.is_empty() {
            return None;
        }
        Some(Judge {
            needs: in_force.policy.needs(),
            in_force: Arc::clone(in_force),
            metrics: Arc::clone(metrics),
            facts: Facts::default(),
            entrance,
            gather: Gather::default(),
            turned_away: None,
        })
    }

    /// Whether rules ask for the address that a client reached.
    pub fn asks_local(&self) -> bool {
        self.needs.local
    }

    /// Whether a new connection is admitted.
    pub fn connection(&mut self, peer: &Peer, now_ns: u64) -> Verdict<()> {
        let ends = ConnectionFacts { client: peer.address(), local: peer.local };
        let InForce { policy, state, slots, .. } = &*self.in_force;
        let decisions = policy.connection(&ends, self.in_force.is_overload());
        let slot = slots.get(usize::from(decisions.rank)).copied().unwrap_or_default();
        self.metrics.enter(slot, ClassEvent::Connection);
        match state.charge_connection(&decisions, ends.client.ip(), now_ns) {
            Charge::Admit(policy::Admitted { rank, .. }) => {
                Verdict::Admit(Admitted::at_once(Rank(rank), ()))
            }
            Charge::Refuse(refused) => {
                self.refused(slot, Place::Accept, refused.reason);
                verdict(&refused)
            }
        }
    }

    /// Whether a request is admitted.
    pub fn request(
        &mut self,
        request: &Request<'_>,
        trusted: &TrustedProxies,
        now_ns: u64,
    ) -> Verdict<Option<Ticket>> {
        let (decisions, client) = self.decide(request, trusted);
        let InForce { state, slots, number, .. } = &*self.in_force;
        let slot = slots.get(usize::from(decisions.rank)).copied().unwrap_or_default();
        let trace = Trace { slot, rule: decisions.class, refused: None, policy: *number };
        self.metrics.enter(slot, ClassEvent::Offered);
        match state.charge_request(&decisions, client.ip(), now_ns) {
            Charge::Admit(policy::Admitted { rank, wait_ns, ticket: held }) => {
                let ticket = Ticket { rank, trace, has_entered: false, pass: None, _held: held };
                let wait_ms = wait_ns.div_ceil(1_000_000).try_into().unwrap_or(u32::MAX);
                let (rank, client) = (Rank(rank), Some(client.ip()));
                Verdict::Admit(Admitted { rank, client, wait_ms, ticket: Some(ticket) })
            }
            Charge::Refuse(refused) => {
                self.refused(slot, Place::Request, refused.reason);
                let verdict = verdict(&refused);
                if matches!(verdict, Verdict::Refuse(_)) {
                    let refused = Some((refused.reason, refused.rule));
                    self.turned_away = Some(Trace { refused, ..trace });
                }
                verdict
            }
        }
    }

    /// What the log is told of the request that is answered now: the one with this ticket or, if
    /// it has none, the one that was turned away last.
    pub fn judged(&mut self, ticket: Option<&Ticket>) -> Option<Judged<'_>> {
        let turned_away = self.turned_away.take();
        let trace = ticket.map(|ticket| ticket.trace).or(turned_away)?;
        Some(Judged { in_force: &self.in_force, trace })
    }

    /// An admitted request was not answered in time, which its client is told now.
    pub fn expired(&mut self, ticket: &Ticket) {
        let refused = Some((Reason::Expired, None));
        self.turned_away = Some(Trace { refused, ..ticket.trace });
    }

    /// Which rules decide about a request, and whose it is.
    fn decide(
        &mut self,
        request: &Request<'_>,
        trusted: &TrustedProxies,
    ) -> (Decisions, SocketAddr) {
        let Judge { in_force, needs, facts, .. } = self;
        let facts = facts.of(*needs, request, trusted);
        let client = facts.ends.client;
        (in_force.policy.request(&facts, in_force.is_overload()), client)
    }

    /// A request lines up for a worker, before anything is known of it.
    ///
    /// # Errors
    /// What its client is told, if its class has enough unfinished work.
    #[inline]
    pub fn line_up(&mut self, ticket: &mut Ticket) -> Result<(), Refusal> {
        if self.entrance == Entrance::Line {
            ticket.pass = self.enter(ticket)?;
        }
        Ok(())
    }

    /// A request needs a worker that computes. The pass, if there is one, goes with the job.
    ///
    /// # Errors
    /// What its client is told, if its class has enough unfinished work.
    pub fn needs_worker(&mut self, ticket: &mut Ticket) -> Result<Option<Pass>, Refusal> {
        match self.entrance {
            Entrance::Line => Ok(None),
            Entrance::Job => self.enter(ticket),
        }
    }

    fn enter(&mut self, ticket: &mut Ticket) -> Result<Option<Pass>, Refusal> {
        let window = self.in_force.windows.get(usize::from(ticket.rank));
        match window.map(|window| window.enter(ticket.has_entered)).transpose() {
            Ok(pass) => {
                ticket.has_entered = true;
                Ok(pass)
            }
            Err(retry_after_s) => {
                ticket.trace.refused = Some((Reason::Agent, None));
                self.refused(ticket.trace.slot, Place::Request, Reason::Agent);
                Err(Refusal { status: 503, retry_after_s })
            }
        }
    }

    fn refused(&mut self, slot: ClassSlot, place: Place, reason: Reason) {
        self.metrics.enter(slot, ClassEvent::Refused(place, reason));
        self.gather.refused();
    }

    /// How long the loop should rest before it looks for news, so that those who compute keep the cores.
    pub fn pause(&mut self, now_ms: u64) -> Option<Duration> {
        let pause = self.gather.pause(now_ms)?;
        self.in_force.windows.iter().any(|window| window.has_work()).then_some(pause)
    }
}

impl Ticket {
    /// The request is being looked at.
    #[inline]
    pub fn begin(&mut self) {
        if let Some(pass) = &mut self.pass {
            pass.begin();
        }
    }

    /// Its answer is ready.
    #[inline]
    pub fn end(&mut self) {
        if let Some(pass) = self.pass.take() {
            pass.end();
        }
    }

    /// The request is over.
    pub fn settle(self, end: Settled, metrics: &Local) {
        if self.trace.refused.is_none() {
            let event = match end {
                Settled::Answered => ClassEvent::Answered,
                Settled::Cut => ClassEvent::Cut,
                Settled::Expired => ClassEvent::Refused(Place::Request, Reason::Expired),
            };
            metrics.enter(self.trace.slot, event);
        }
    }
}

/// What a refusal comes to.
fn verdict<T>(refused: &Refused) -> Verdict<T> {
    match refused.answer {
        Answer::Reject { status, retry_after_s } => {
            Verdict::Refuse(Refusal { status, retry_after_s })
        }
        // nothing is silent once a connection is accepted
        Answer::Reset | Answer::Drop => Verdict::Reset,
    }
}
