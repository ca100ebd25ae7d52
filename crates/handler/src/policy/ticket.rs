//! The resources of a judged request until it is over: its place in the window of its class and among the
//! requests at once of its rule, and its charge. Also the judgement for the log.

use super::at_once::{AtOnce, InFlightPlace, NoPlace, PlaceAsked, PlaceWait};
use super::window::{Pass, Window};
use super::{InForce, RuleNumber, Trace};
use forebay_conn::{Rank, Settled};
use forebay_http::client::ClientKey;
use forebay_metrics::{ClassEvent, Local, RefusalReason, RefusedAt};
use forebay_policy as policy;
use forebay_upstream::queue;
use std::net::IpAddr;
use std::sync::Arc;

/// The resources of a judged request, whether it was admitted or not. The ticket moves with its request,
/// so it is no larger than a cache line.
#[derive(Debug)]
pub struct Ticket {
    /// The judgement, for the log.
    pub(super) trace: Trace,
    rank: u8,
    /// Whether the request was let into its class's window.
    has_entered: bool,
    /// Whether the request is over.
    is_settled: bool,
    /// Whether rules decide differently about the readings of its path.
    pub(super) is_divided: bool,
    /// The request's place in the window, where requests are queued with it; until then, its charge.
    entry: WindowEntry,
    /// The request's place among those at once.
    held: AtOnceHold,
}

/// Whether a ticket has a place in the window. A request that the window refuses has none yet, so the
/// same bytes keep the charge that would be given back then.
#[derive(Debug)]
enum WindowEntry {
    /// The request has no place, or its job has it.
    Outside(Option<RequestCharge>),
    /// The request has its place, where requests are queued with it.
    Inside(Pass),
}

/// The charge of a request: the rule whose limit on requests holds for it, and its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestCharge {
    pub(super) rule: RuleNumber,
    pub(super) client: ClientKey,
}

/// How a request counts among those at once.
#[derive(Debug)]
pub(super) enum AtOnceHold {
    /// The request counts for its rule, if that has such a limit, since it was admitted.
    Counted(#[expect(dead_code, reason = "it counts until it is dropped")] policy::InFlightGuard),
    /// The request counts for its rule from when it has a place.
    Queued(Box<Queued>),
    /// The request counts in one of these ways, and also waits for its turn because of a limit on requests.
    Early(Box<EarlyHold>),
}

impl Default for AtOnceHold {
    fn default() -> AtOnceHold {
        AtOnceHold::Counted(policy::InFlightGuard::default())
    }
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct EarlyHold {
    /// The time of its turn.
    turn_ns: u64,
    held: AtOnceHold,
}

/// A request that needs a place.
#[derive(Debug)]
pub(super) struct Queued {
    at_once: Arc<AtOnce>,
    rule: u32,
    client: IpAddr,
    /// The charge: the request may still be refused after it got its place in the window.
    charged: Option<RequestCharge>,
    place: Option<InFlightPlace>,
}

impl InForce {
    /// The hold of a request of this client that needs a place among those at once of this rule. Its
    /// charge is kept with that.
    #[cold]
    pub(super) fn queued(
        &self,
        rule: u32,
        client: IpAddr,
        ticket: policy::InFlightGuard,
        charged: &mut Option<RequestCharge>,
    ) -> AtOnceHold {
        match self.at_once.get(rule as usize).and_then(Option::as_ref) {
            Some(at_once) => {
                let (at_once, charged) = (Arc::clone(at_once), charged.take());
                let queued = Queued { at_once, rule, client, charged, place: None };
                AtOnceHold::Queued(Box::new(queued))
            }
            None => AtOnceHold::Counted(ticket),
        }
    }
}

impl WindowEntry {
    /// Takes the place in the window, if there is one.
    #[inline]
    fn take_pass(&mut self) -> Option<Pass> {
        match std::mem::replace(self, WindowEntry::Outside(None)) {
            WindowEntry::Inside(pass) => Some(pass),
            outside @ WindowEntry::Outside(_) => {
                *self = outside;
                None
            }
        }
    }
}

impl Ticket {
    #[inline]
    pub(super) fn new(
        rank: u8,
        trace: Trace,
        held: AtOnceHold,
        charged: Option<RequestCharge>,
    ) -> Ticket {
        let entry = WindowEntry::Outside(charged);
        Ticket {
            trace,
            rank,
            has_entered: false,
            is_settled: false,
            is_divided: false,
            entry,
            held,
        }
    }

    /// Whether rules decide differently about the readings of its path, so that it may not be answered.
    #[inline]
    pub fn is_divided(&self) -> bool {
        self.is_divided
    }

    /// The judgement of the request.
    #[inline]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The rank of the request.
    pub fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    /// Lets the request into the window of its class, if there is one.
    ///
    /// # Errors
    /// Its class has enough unfinished work; the value is the seconds after which the client may ask
    /// again.
    pub(super) fn enter(&mut self, windows: &[Arc<Window>]) -> Result<Option<Pass>, u32> {
        let window = windows.get(usize::from(self.rank));
        let pass = window.map(|window| window.enter(self.has_entered)).transpose()?;
        self.has_entered = true;
        Ok(pass)
    }

    /// Has the request wait for its turn, which is at this time.
    #[cold]
    pub(super) fn wait_until(&mut self, turn_ns: u64) {
        let held = std::mem::take(&mut self.held);
        self.held = AtOnceHold::Early(Box::new(EarlyHold { turn_ns, held }));
    }

    /// Ends the wait for its turn. Returns the time of the turn, if the request waited.
    #[inline]
    pub fn end_wait(&mut self) -> Option<u64> {
        let AtOnceHold::Early(early) = &mut self.held else { return None };
        let (turn_ns, held) = (early.turn_ns, std::mem::take(&mut early.held));
        self.held = held;
        Some(turn_ns)
    }

    /// Keeps the place in the window.
    #[inline]
    pub(super) fn keep_pass(&mut self, pass: Option<Pass>) {
        if let Some(pass) = pass {
            self.entry = WindowEntry::Inside(pass);
        }
    }

    /// Takes the charge, as long as it may have to be given back: once.
    pub(super) fn take_charge(&mut self) -> Option<RequestCharge> {
        match (&mut self.held, &mut self.entry) {
            (AtOnceHold::Queued(queued), _) => queued.charged.take(),
            (_, WindowEntry::Outside(charged)) => charged.take(),
            (_, WindowEntry::Inside(_)) => None,
        }
    }

    /// The rule among whose requests at once the request needs a place, or has one; and its client.
    pub(super) fn queued_by(&self) -> Option<(u32, IpAddr)> {
        match &self.held {
            AtOnceHold::Queued(queued) => Some((queued.rule, queued.client)),
            AtOnceHold::Counted(_) | AtOnceHold::Early(_) => None,
        }
    }

    /// Whether the request needs a place among those at once of its rule, and has none.
    #[inline]
    pub fn needs_place(&self) -> bool {
        matches!(&self.held, AtOnceHold::Queued(queued) if queued.place.is_none())
    }

    /// Asks for that place. `Ok(None)` if the request has it now.
    ///
    /// # Errors
    /// There is no place, not even to wait.
    pub fn ask_for_place(&mut self, now_ms: u64) -> Result<Option<PlaceWait>, NoPlace> {
        let AtOnceHold::Queued(queued) = &mut self.held else { return Ok(None) };
        let client = ClientKey::of(queued.client).as_u64();
        match queued.at_once.ask(queue::RequestOwner { rank: self.rank, client }, now_ms)? {
            PlaceAsked::Has(place) => {
                queued.place = Some(place);
                Ok(None)
            }
            PlaceAsked::Waits(wait) => Ok(Some(wait)),
        }
    }

    /// Gives the request the place that it has waited for.
    pub fn has_place(&mut self, place: InFlightPlace) {
        if let AtOnceHold::Queued(queued) = &mut self.held {
            queued.place = Some(place);
        }
    }

    /// Notes that the request is being processed.
    #[inline]
    pub fn begin(&mut self) {
        if let WindowEntry::Inside(pass) = &mut self.entry {
            pass.begin();
        }
    }

    /// Notes that the request waits for something other than a core.
    #[inline]
    pub fn pause(&mut self) {
        if let WindowEntry::Inside(pass) = &mut self.entry {
            pass.pause();
        }
    }

    /// Takes the place in the window, for the job that goes on with it.
    pub(super) fn hand_on(&mut self) -> Option<Pass> {
        self.entry.take_pass().map(Pass::hand_on)
    }

    /// Gives the place in the window back, because the answer is ready.
    #[inline]
    pub fn end(&mut self) {
        if let Some(pass) = self.entry.take_pass() {
            pass.end();
        }
    }

    /// Ends the request: its resources are given back, and the ledger of its class counts it, unless the
    /// ledger has counted a refusal. Called once. The judgement for the log stays.
    #[inline]
    pub fn settle(&mut self, end: Settled, metrics: &Local) {
        debug_assert!(!self.is_settled, "a request ends once");
        self.is_settled = true;
        self.entry = WindowEntry::Outside(None);
        self.held = AtOnceHold::default();
        if self.trace.refused.is_some() {
            return;
        }
        let event = match end {
            Settled::Answered => ClassEvent::Answered,
            Settled::Cut => ClassEvent::Cut,
            Settled::Expired => {
                self.trace.refused = Some((RefusalReason::Expired, None));
                ClassEvent::Refused(RefusedAt::Request, RefusalReason::Expired)
            }
        };
        metrics.enter(self.trace.slot, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_no_larger_than_a_cache_line() {
        assert!(size_of::<Option<Ticket>>() <= 64, "{}", size_of::<Option<Ticket>>());
    }
}
