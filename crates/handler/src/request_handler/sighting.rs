//! Which requests and connections are counted for the page of the admin listener: see [`crate::sightings`].

use super::RequestHandler;
use crate::client::client_of;
use crate::policy::Ticket;
use crate::sightings::Sighting;
use forebay_conn::{Peer, Request};
use forebay_http::head::Name;
use forebay_metrics::top::SeenAs;

impl RequestHandler {
    /// Counts a request whose log line is begun, if the policy has refused it or it is in the sample.
    #[inline]
    pub(super) fn sight(
        &mut self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        ticket: Option<&Ticket>,
    ) {
        let Some(sighter) = &mut self.sighter else { return };
        let is_refused = ticket.is_some_and(|ticket| ticket.trace().refused.is_some());
        if is_refused || sighter.draws() {
            let seen = if is_refused { SeenAs::Refused } else { SeenAs::Sampled };
            self.count_sighting(peer, request, ticket, seen);
        }
    }

    /// Counts a connection, or a request without an answer, that was refused.
    #[cold]
    pub(super) fn sight_refusal(&self, peer: &Peer, request: Option<&Request<'_>>) {
        self.count_sighting(peer, request, None, SeenAs::Refused);
    }

    #[cold]
    fn count_sighting(
        &self,
        peer: &Peer,
        request: Option<&Request<'_>>,
        ticket: Option<&Ticket>,
        seen: SeenAs,
    ) {
        let Some(sighter) = &self.sighter else { return };
        let judge = self.judge.as_ref().filter(|judge| judge.has_policy());
        let judged = judge.zip(ticket).map(|(judge, ticket)| judge.judged(ticket));
        let words = judged.map(|judged| judged.said()).unwrap_or_default();
        let client = match request {
            Some(request) => client_of(peer, request.head, &self.trusted),
            None => peer.address().ip(),
        };
        sighter.count(&Sighting {
            client,
            asked: request
                .map_or((b"", b""), |request| (request.head.authority, request.head.path)),
            agent: request.and_then(|request| request.head.values(Name::UserAgent).next()),
            class: words.class,
            rule: words.refused_by,
            seen,
        });
    }
}
