//! What a judged request holds until it is over: its place in the window of its class and among the requests at
//! once of its rule, what it was charged, and what the log is told.

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

/// What a judged request owns until it is over, whether it was admitted or not. It moves with its
/// request, so it is no larger than a cache line.
#[derive(Debug)]
pub struct Ticket {
    /// What the log is told.
    pub(super) trace: Trace,
    rank: u8,
    /// It has been let into its class's window.
    has_entered: bool,
    /// It is over.
    is_settled: bool,
    /// Rules decide differently about the readings of its path.
    pub(super) is_divided: bool,
    /// Its place in the window, where requests are queued with it; until then, what it was charged.
    entry: WindowEntry,
    /// What its rules count it among.
    held: AtOnceHold,
}

/// Whether a ticket has a place in the window. What is refused by the window has none yet, so the same
/// bytes keep what would be given back then.
#[derive(Debug)]
enum WindowEntry {
    /// It has none, or its job has it.
    Outside(Option<RequestCharge>),
    /// Where requests are queued with their place.
    Inside(Pass),
}

/// What a request was charged for: the rule whose limit on requests holds for it, and its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestCharge {
    pub(super) rule: RuleNumber,
    pub(super) client: ClientKey,
}

/// What a request is counted among.
#[derive(Debug)]
pub(super) enum AtOnceHold {
    /// Those at once of its rule, if that counts them, since it was admitted.
    Counted(#[expect(dead_code, reason = "it counts until it is dropped")] policy::InFlightGuard),
    /// Those at once of its rule, from when it has a place.
    Queued(Box<Queued>),
    /// This, and its limit on requests has it wait for its turn.
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
    /// When that is.
    turn_ns: u64,
    held: AtOnceHold,
}

/// A request that needs a place.
#[derive(Debug)]
pub(super) struct Queued {
    at_once: Arc<AtOnce>,
    rule: u32,
    client: IpAddr,
    /// It may be refused where it has its place in the window already.
    charged: Option<RequestCharge>,
    place: Option<InFlightPlace>,
}

impl InForce {
    /// A request of this client is to have a place among those at once of this rule. What it was charged
    /// is kept with that.
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
    /// Its place, if it has one.
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

    /// How its request was judged.
    #[inline]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The order of its request.
    pub fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    /// Lets it into the window of its class, if there is one.
    ///
    /// # Errors
    /// That class has enough unfinished work: after how many seconds the client may ask again.
    pub(super) fn enter(&mut self, windows: &[Arc<Window>]) -> Result<Option<Pass>, u32> {
        let window = windows.get(usize::from(self.rank));
        let pass = window.map(|window| window.enter(self.has_entered)).transpose()?;
        self.has_entered = true;
        Ok(pass)
    }

    /// It has to wait for its turn, which is at this time.
    #[cold]
    pub(super) fn wait_until(&mut self, turn_ns: u64) {
        let held = std::mem::take(&mut self.held);
        self.held = AtOnceHold::Early(Box::new(EarlyHold { turn_ns, held }));
    }

    /// It does not wait for its turn any more. When that is, if it did.
    #[inline]
    pub fn end_wait(&mut self) -> Option<u64> {
        let AtOnceHold::Early(early) = &mut self.held else { return None };
        let (turn_ns, held) = (early.turn_ns, std::mem::take(&mut early.held));
        self.held = held;
        Some(turn_ns)
    }

    /// Keeps its place in the window.
    #[inline]
    pub(super) fn keep_pass(&mut self, pass: Option<Pass>) {
        if let Some(pass) = pass {
            self.entry = WindowEntry::Inside(pass);
        }
    }

    /// What it was charged, as long as that may have to be given back: once.
    pub(super) fn take_charge(&mut self) -> Option<RequestCharge> {
        match (&mut self.held, &mut self.entry) {
            (AtOnceHold::Queued(queued), _) => queued.charged.take(),
            (_, WindowEntry::Outside(charged)) => charged.take(),
            (_, WindowEntry::Inside(_)) => None,
        }
    }

    /// The rule among whose requests at once it needs a place, or has one, and its client.
    pub(super) fn queued_by(&self) -> Option<(u32, IpAddr)> {
        match &self.held {
            AtOnceHold::Queued(queued) => Some((queued.rule, queued.client)),
            AtOnceHold::Counted(_) | AtOnceHold::Early(_) => None,
        }
    }

    /// Whether it needs a place among the requests at once of its rule, and has none.
    #[inline]
    pub fn needs_place(&self) -> bool {
        matches!(&self.held, AtOnceHold::Queued(queued) if queued.place.is_none())
    }

    /// Asks for that place. `Ok(None)` if it has it now.
    ///
    /// # Errors
    /// There is none, not even to wait.
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

    /// It has waited for that place, and has it.
    pub fn has_place(&mut self, place: InFlightPlace) {
        if let AtOnceHold::Queued(queued) = &mut self.held {
            queued.place = Some(place);
        }
    }

    /// The request is being looked at.
    #[inline]
    pub fn begin(&mut self) {
        if let WindowEntry::Inside(pass) = &mut self.entry {
            pass.begin();
        }
    }

    /// It waits for something that is not computed.
    #[inline]
    pub fn pause(&mut self) {
        if let WindowEntry::Inside(pass) = &mut self.entry {
            pass.pause();
        }
    }

    /// Its place in the window, for the job that goes on with it.
    pub(super) fn hand_on(&mut self) -> Option<Pass> {
        self.entry.take_pass().map(Pass::hand_on)
    }

    /// Its answer is ready.
    #[inline]
    pub fn end(&mut self) {
        if let Some(pass) = self.entry.take_pass() {
            pass.end();
        }
    }

    /// The request is over: what it holds is given back, and the ledger of its class is told, unless
    /// it was told of a refusal. Happens once. What the log is told stays.
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
