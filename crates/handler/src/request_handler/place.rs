//! A request that needs a place among those at once of its rule: it has one, waits for one, or is turned away.

use super::RequestHandler;
use crate::detour::{Detour, WaitsForPlace};
use crate::job::ServerJob;
use crate::policy::Ticket;
use crate::policy::at_once;
use crate::traces::open::ProcessTimes;
use forebay_conn::{Process, ProcessOutcome, Refusal, Relayed, Reply, Request};
use forebay_site::Body;

/// What a client is told that has waited for a place among the requests at once of its rule: nobody knows
/// when one is free, a second is as good as anything.
const NO_PLACE: Refusal = Refusal { status: 503, retry_after_s: 1 };

impl RequestHandler {
    /// A request needs a place among those at once of its rule. `None` if it has one now.
    #[cold]
    pub(super) fn ask_for_place(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Ticket,
        reply: &mut Reply<'_, Body>,
    ) -> Option<ProcessOutcome<ServerJob, Detour>> {
        match ticket.ask_for_place(self.now.monotonic_ms) {
            Ok(None) => None,
            Ok(Some(wait)) => {
                // until it is processed again it is no work
                ticket.end();
                self.processed = ProcessTimes::default();
                Some(ProcessOutcome::Relay(Detour::Place(Box::new(WaitsForPlace::new(wait)))))
            }
            Err(at_once::NoPlace) => {
                ticket.end();
                self.turn_away_queued(request, ticket, reply);
                Some(ProcessOutcome::Replied)
            }
        }
    }

    /// One that has waited for a place has it, and is processed again; or gets none.
    #[cold]
    pub(super) fn place_decided(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        wait: &mut at_once::PlaceWait,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        match (wait.take(), ticket) {
            (Ok(place), ticket) => {
                if let Some(ticket) = ticket {
                    ticket.has_place(place);
                }
                Relayed::Again(Box::new(request.passed.cloned().unwrap_or_default()))
            }
            (Err(at_once::NoPlace), ticket) => {
                if let Some(ticket) = ticket {
                    self.turn_away_queued(request, ticket, reply);
                }
                Relayed::Own
            }
        }
    }

    /// A request got no place among those at once of its rule.
    fn turn_away_queued(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Ticket,
        reply: &mut Reply<'_, Body>,
    ) {
        if let Some(judge) = &mut self.judge {
            judge.refused_queued(ticket);
        }
        self.turn_away(NO_PLACE, Some(request), reply);
    }
}
