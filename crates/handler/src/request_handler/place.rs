//! A request that needs a place among those at once of its rule: it has one, waits for one, or is
//! refused.

use super::RequestHandler;
use crate::detour::{Detour, WaitsForPlace};
use crate::job::ServerJob;
use crate::policy::Ticket;
use crate::policy::at_once;
use crate::traces::open::ProcessTimes;
use forebay_conn::{Process, ProcessOutcome, Refusal, Relayed, Reply, Request};
use forebay_site::Body;

/// The refusal for a client that has waited in vain for a place among the requests at once of its rule.
/// It is not known when a place becomes free, so that a second is as good as any other time.
const NO_PLACE: Refusal = Refusal { status: 503, retry_after_s: 1 };

impl RequestHandler {
    /// Asks for the place that a request needs among those at once of its rule. `None` if it has one now.
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
                // until it is processed again, the request is no work for a core
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

    /// Processes a request again that has waited for a place and has it, or refuses it if it got none.
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

    /// Refuses a request that got no place among those at once of its rule.
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
