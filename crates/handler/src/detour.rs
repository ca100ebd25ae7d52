//! What a request waits for when its answer does not come from here: an exchange with an application, or
//! its turn for one; a receiver that gets its socket; a handler of the program; or a place among the
//! requests at once of its rule.

use crate::applications::ExchangeTag;
use crate::passing::{PassingExchange, WaitsForTurn};
use crate::policy::at_once::PlaceWait;
use crate::upstream_threads::HeldThread;
use forebay_conn::handler::relay::{LentRequest, RelayNext, RelayRead};
use forebay_conn::{Await, Relay, SocketId, WakeSlot, Wants};
use forebay_engine::admission::ConnectionPlace;
use forebay_upstream::hand_over::exchange::HandOverExchange;
use forebay_upstream::inside::InsideExchange;
use std::os::fd::BorrowedFd;

/// What a request waits for. Each variant is a pointer, since many requests may wait.
pub enum Detour {
    /// An application, which answers the request.
    Application(Box<PassingExchange>),
    /// A receiver, which answers the request on the client's socket.
    HandOver(Box<HandsOver>),
    /// A handler of the program, which answers the request.
    Inside(Box<AsksHandler>),
    /// The request's turn at an application; then an exchange takes the place of this.
    Turn(Box<WaitsForTurn>),
    /// A place under a rule; then the request is processed again.
    Place(Box<WaitsForPlace>),
}

/// An exchange with a receiver, and its share of limited resources.
pub struct HandsOver {
    /// The exchange itself.
    pub exchange: HandOverExchange<ExchangeTag>,
    /// The permission to keep a descriptor.
    _place: Option<ConnectionPlace>,
}

impl HandsOver {
    /// An exchange with the permission to keep a descriptor; without one, the exchange has failed.
    pub fn new(
        exchange: HandOverExchange<ExchangeTag>,
        place: Option<ConnectionPlace>,
    ) -> HandsOver {
        HandsOver { exchange, _place: place }
    }
}

/// An exchange with a handler of the program, and its share of limited resources.
pub struct AsksHandler {
    /// The exchange itself.
    pub exchange: InsideExchange<ExchangeTag>,
    /// The permission to keep its thread, where each connection keeps one.
    _thread: Option<HeldThread>,
}

impl AsksHandler {
    /// An exchange with the permission to keep its thread; without one where that is needed, the exchange
    /// has failed.
    pub fn new(exchange: InsideExchange<ExchangeTag>, thread: Option<HeldThread>) -> AsksHandler {
        AsksHandler { exchange, _thread: thread }
    }
}

/// The wait for a place under a rule.
pub struct WaitsForPlace {
    /// The wait itself.
    pub wait: PlaceWait,
    /// Whether the request has waited for as long as it may.
    is_late: bool,
}

impl WaitsForPlace {
    /// A wait that begins now.
    pub fn new(wait: PlaceWait) -> WaitsForPlace {
        WaitsForPlace { wait, is_late: false }
    }
}

impl Detour {
    /// Whether the request waits for a turn or a place, and has no descriptor by which a thread in `poll`
    /// could be woken.
    pub fn is_deaf(&self) -> bool {
        let is_inside = matches!(self, Detour::Inside(_));
        !is_inside && self.wake_slot().is_some() && self.socket().is_none()
    }
}

impl Relay for Detour {
    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        match self {
            Detour::Application(passing) => passing.socket(),
            Detour::HandOver(over) => over.exchange.socket(),
            Detour::Inside(inside) => inside.exchange.socket(),
            Detour::Turn(waits) => waits.turn.socket(),
            Detour::Place(waits) => waits.wait.socket(),
        }
    }

    fn other_socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        match self {
            Detour::Application(passing) => passing.other_socket(),
            Detour::HandOver(_) | Detour::Inside(_) | Detour::Turn(_) | Detour::Place(_) => None,
        }
    }

    fn wake_slot(&self) -> Option<&WakeSlot> {
        match self {
            Detour::Application(passing) => passing.wake_slot(),
            Detour::HandOver(over) => over.exchange.wake_slot(),
            Detour::Inside(inside) => Some(inside.exchange.wake_slot()),
            Detour::Turn(waits) => waits.turn.wake_slot(),
            Detour::Place(waits) => Some(waits.wait.wake_slot()),
        }
    }

    fn ready(&mut self) {
        match self {
            Detour::Application(passing) => passing.ready(),
            Detour::HandOver(over) => over.exchange.ready(),
            Detour::Inside(inside) => inside.exchange.ready(),
            Detour::Turn(_) | Detour::Place(_) => {}
        }
    }

    /// No body is taken before there is a place.
    fn capacity(&self) -> usize {
        match self {
            Detour::Application(passing) => passing.capacity(),
            Detour::Inside(inside) => inside.exchange.capacity(),
            Detour::HandOver(_) | Detour::Turn(_) | Detour::Place(_) => 0,
        }
    }

    fn takes_body(&self) -> bool {
        match self {
            Detour::Application(passing) => passing.takes_body(),
            Detour::HandOver(over) => over.exchange.takes_body(),
            Detour::Inside(_) => true,
            Detour::Turn(_) | Detour::Place(_) => false,
        }
    }

    fn wants_client(&self) -> bool {
        matches!(self, Detour::HandOver(over) if over.exchange.wants_client())
    }

    fn keeps_client(&self) -> bool {
        matches!(self, Detour::HandOver(over) if over.exchange.keeps_client())
    }

    fn has_client(&self) -> bool {
        matches!(self, Detour::HandOver(over) if over.exchange.has_client())
    }

    fn lend(&mut self, client: BorrowedFd<'_>, request: LentRequest<'_>) {
        if let Detour::HandOver(over) = self {
            over.exchange.lend(client, request);
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        match self {
            Detour::Application(passing) => passing.give(bytes),
            Detour::Inside(inside) => inside.exchange.give(bytes),
            Detour::HandOver(_) | Detour::Turn(_) | Detour::Place(_) => {}
        }
    }

    fn held_back(&mut self) {
        if let Detour::Application(passing) = self {
            passing.held_back();
        }
    }

    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        match self {
            Detour::Application(passing) => passing.finish(trailers),
            Detour::Inside(inside) => inside.exchange.finish(trailers),
            Detour::HandOver(_) | Detour::Turn(_) | Detour::Place(_) => {}
        }
    }

    fn cut(&mut self) {
        if let Detour::Application(passing) = self {
            passing.cut();
        }
    }

    /// A request that waits for its place by a rule waits for as long as its client is there.
    fn aborts_on_close(&self) -> bool {
        match self {
            Detour::Application(passing) => passing.aborts_on_close(),
            Detour::HandOver(over) => over.exchange.aborts_on_close(),
            Detour::Inside(inside) => inside.exchange.aborts_on_close(),
            Detour::Turn(waits) => waits.aborts_on_close(),
            Detour::Place(_) => false,
        }
    }

    fn advance(&mut self, now_ms: u64) -> RelayNext {
        match self {
            Detour::Application(passing) => passing.advance(now_ms),
            Detour::HandOver(over) => over.exchange.advance(now_ms),
            Detour::Inside(inside) => inside.exchange.advance(),
            Detour::Turn(waits) if waits.turn.is_over() => RelayNext::Answer,
            Detour::Turn(_) => RelayNext::Wait,
            Detour::Place(waits) if waits.is_late || waits.wait.is_told() => RelayNext::Answer,
            Detour::Place(_) => RelayNext::Wait,
        }
    }

    fn acknowledge(&mut self) -> bool {
        match self {
            Detour::Application(passing) => passing.acknowledge(),
            Detour::HandOver(_) | Detour::Inside(_) | Detour::Turn(_) | Detour::Place(_) => false,
        }
    }

    fn interim(&self) -> &[u8] {
        match self {
            Detour::Application(passing) => passing.interim(),
            Detour::Inside(inside) => inside.exchange.interim(),
            Detour::HandOver(_) | Detour::Turn(_) | Detour::Place(_) => b"",
        }
    }

    fn length(&self) -> Option<u64> {
        match self {
            Detour::Application(passing) => passing.length(),
            Detour::Inside(inside) => inside.exchange.length(),
            Detour::HandOver(_) | Detour::Turn(_) | Detour::Place(_) => None,
        }
    }

    fn run_ahead(&mut self, now_ms: u64) {
        if let Detour::Application(passing) = self {
            passing.run_ahead(now_ms);
        }
    }

    fn resume(&mut self, now_ms: u64) {
        if let Detour::Application(passing) = self {
            passing.resume(now_ms);
        }
    }

    fn read(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead {
        match self {
            Detour::Application(passing) => passing.read(out, most, now_ms),
            Detour::Inside(inside) => inside.exchange.read(out, most),
            Detour::HandOver(_) | Detour::Turn(_) | Detour::Place(_) => RelayRead::End,
        }
    }

    fn trailers(&self) -> Vec<(&str, &[u8])> {
        match self {
            Detour::Application(passing) => passing.trailers(),
            Detour::Inside(inside) => inside.exchange.trailers(),
            Detour::HandOver(_) | Detour::Turn(_) | Detour::Place(_) => Vec::new(),
        }
    }

    fn awaits(&self) -> Await {
        match self {
            Detour::Application(passing) => passing.awaits(),
            Detour::HandOver(over) => over.exchange.awaits(),
            Detour::Inside(inside) => inside.exchange.awaits(),
            Detour::Turn(_) => Await::Slot,
            Detour::Place(_) => Await::Place,
        }
    }

    fn ends_ms(&self) -> u64 {
        match self {
            Detour::Application(passing) => passing.ends_ms(),
            Detour::HandOver(_) | Detour::Inside(_) | Detour::Turn(_) | Detour::Place(_) => {
                u64::MAX
            }
        }
    }

    fn deadline_ms(&self) -> u64 {
        match self {
            Detour::Application(passing) => passing.deadline_ms(),
            Detour::HandOver(over) => over.exchange.deadline_ms(),
            Detour::Inside(inside) => inside.exchange.deadline_ms(),
            Detour::Turn(waits) => waits.turn.deadline_ms(),
            Detour::Place(waits) => waits.wait.until_ms(),
        }
    }

    fn looks(&mut self, now_ms: u64) -> bool {
        match self {
            Detour::Application(passing) => passing.looks(now_ms),
            Detour::HandOver(over) => over.exchange.looks(now_ms),
            Detour::Inside(_) | Detour::Turn(_) | Detour::Place(_) => false,
        }
    }

    fn expire(&mut self) {
        match self {
            Detour::Application(passing) => passing.expire(),
            Detour::HandOver(over) => over.exchange.expire(),
            Detour::Inside(inside) => inside.exchange.expire(),
            Detour::Turn(waits) => waits.turn.expire(),
            Detour::Place(waits) => waits.is_late = true,
        }
    }

    fn expire_tunnel(&mut self) {
        if let Detour::Inside(inside) = self {
            inside.exchange.expire_tunnel();
        }
    }
}
