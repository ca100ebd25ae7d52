//! A request that leaves with its socket: what its receiver gets, and how its exchange ends here.

use super::RequestHandler;
use crate::applications::{Asker, ExchangeTag, failed};
use crate::detour::{Detour, HandsOver};
use crate::job::ServerJob;
use crate::policy::Ticket;
use forebay_conn::handler::relay::{ClientPlace, ClientReturn};
use forebay_conn::{ProcessOutcome, Rank, Relayed, Reply, Request};
use forebay_http::head::Version;
use forebay_metrics::{Counter, Unanswered};
use forebay_site::Body;
use forebay_upstream::application::Application;
use forebay_upstream::exchange::Failed;
use forebay_upstream::hand_over::exchange::{HandOverEnd, HandOverExchange, HandedRequest};
use forebay_upstream::receivers::loan::LoanLoss;
use forebay_upstream::settings::HandOverSettings;
use forebay_upstream::target;
use std::sync::Arc;

const UNREADABLE: &str = "The path cannot be read";
const NAMES_HOST: &str =
    "This path is answered by a program that reads the request itself: its target begins with /";
const DIED: &str = "The application has taken the request, and ended without an answer";
const LATE: &str = "The application has taken the request, and did not answer in time";

impl RequestHandler {
    /// Offers a request to its receiver, after rules have let it through.
    #[cold]
    pub(super) fn offer(
        &mut self,
        application: &Arc<Application>,
        settings: &HandOverSettings,
        asked: ExchangeTag,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<ServerJob, Detour> {
        if let Err((status, text)) = is_as_judged(request) {
            let refused = ExchangeTag { user: None, rule: None, ..asked };
            return match self.refuse_for(&refused, request, ticket.as_ref(), status, text, reply) {
                Relayed::Job(job, _) => ProcessOutcome::Job(job),
                _ => ProcessOutcome::Replied,
            };
        }
        let rank = ticket.as_ref().map_or(Rank::FIRST, Ticket::rank);
        let asker = Asker::of(request, application, rank, self.standpoint());
        let (key, owner) = asker.place();
        let handed = HandedRequest {
            method: request.head.method,
            key,
            owner,
            id: asked.id,
            client: asker.client_address(request.peer),
            server: request.peer.local,
            keeps: settings.keeps,
            taken_by_reading: settings.taken_by_reading,
        };
        let now_ms = self.now.monotonic_ms;
        let exchange = HandOverExchange::new(application, handed, asked, now_ms);
        // a hand-over keeps no thread, in any engine
        let (exchange, place) = match self.place_for(asker.client()) {
            _ if !has_socket(request) => (exchange.without_socket(), None),
            Ok(place) => (exchange, Some(place)),
            Err(unavailable) => (exchange.refused(unavailable), None),
        };
        let hands_over = HandsOver::new(exchange, place);
        ProcessOutcome::Relay(Detour::HandOver(Box::new(hands_over)))
    }

    /// Ends a request that was offered to receivers.
    pub(super) fn handed_over(
        &mut self,
        request: &Request<'_>,
        ticket: &mut Option<Ticket>,
        hands_over: &mut HandsOver,
        reply: &mut Reply<'_, Body>,
    ) -> Relayed<ServerJob> {
        let exchange = &mut hands_over.exchange;
        exchange.tell();
        if exchange.attempts() > 1 {
            self.metrics.add(Counter::UpstreamRetries, u64::from(exchange.attempts() - 1));
        }
        let end = exchange.end();
        let (failure, loss) = match end {
            Some(HandOverEnd::Back(report)) => {
                return self.is_back(ClientPlace::Back, report.status, report.body_bytes);
            }
            Some(HandOverEnd::Ended(report, is_unread)) => {
                let place = ClientPlace::Ended { is_unread };
                return self.is_back(place, report.status, report.body_bytes);
            }
            Some(HandOverEnd::Gone) => return self.is_back(ClientPlace::Gone, 0, 0),
            Some(HandOverEnd::NoSocket) if request.head.version == Version::Http2 => {
                return Relayed::NeedsHttp1;
            }
            Some(HandOverEnd::Broken(_)) => {
                self.unanswered(ticket.as_ref(), Counter::UpstreamFailed, Unanswered::Failed);
                return Relayed::Broken;
            }
            Some(HandOverEnd::Failed(failed)) => (Some(failed), None),
            Some(HandOverEnd::Lost(loss)) => (None, Some(loss)),
            Some(HandOverEnd::NoSocket) | None => (None, None),
        };
        let (status, text) = match (failure, loss) {
            (Some(failure), _) => failed(failure),
            (_, Some(LoanLoss::Late)) => (504, LATE),
            (_, Some(LoanLoss::Died | LoanLoss::Misspoke)) => (502, DIED),
            // a connection with TLS, which `forebay check` refuses for such paths
            (None, None) => (501, "This path is answered without TLS only"),
        };
        match status {
            502 => self.unanswered(ticket.as_ref(), Counter::UpstreamFailed, Unanswered::Failed),
            504 => self.unanswered(ticket.as_ref(), Counter::UpstreamLate, Unanswered::Late),
            503 => self.unanswered(
                ticket.as_ref(),
                Counter::UpstreamUnavailable,
                Unanswered::Unavailable,
            ),
            _ => {}
        }
        if let Some(Failed::Unasked(unavailable)) = failure {
            self.unavailable(unavailable, ticket, reply);
        }
        self.begin_answer(request, &mut hands_over.exchange.tag, reply);
        let tag = &hands_over.exchange.tag;
        self.refuse_for(tag, request, ticket.as_ref(), status, text, reply)
    }

    fn is_back(&self, place: ClientPlace, status: u16, body_bytes: u64) -> Relayed<ServerJob> {
        self.metrics.add(Counter::UpstreamAnswered, 1);
        Relayed::Elsewhere(ClientReturn { place, status, body_bytes })
    }

    fn unanswered(&mut self, ticket: Option<&Ticket>, counter: Counter, unanswered: Unanswered) {
        self.metrics.add(counter, 1);
        if let (Some(judge), Some(ticket)) = (&mut self.judge, ticket) {
            judge.unanswered(ticket, unanswered);
        }
    }

    /// Whether a request is likely to be for a receiver.
    #[inline]
    pub(super) fn is_for_receiver(&mut self, request: &Request<'_>) -> bool {
        self.applications.role().is_none() && has_socket(request) && self.site.hands_over(request)
    }
}

/// Whether the client's socket is of use to another process: it carries HTTP/1 as it is.
#[inline]
pub(super) fn has_socket(request: &Request<'_>) -> bool {
    request.head.version != Version::Http2 && request.peer.secured.is_none()
}

/// Checks that the target which the receiver reads is the one that rules have judged.
fn is_as_judged(request: &Request<'_>) -> Result<(), (u16, &'static str)> {
    let head = request.head;
    if head.version == Version::Http2 {
        return Ok(());
    }
    if !head.target.starts_with(b"/") {
        return Err((400, NAMES_HOST));
    }
    let normal = request.path().map_err(|_| (400, UNREADABLE))?;
    target::has_one_reading(head.path, &normal)
        .map_err(|refusal| (refusal.status(), refusal.reason()))
}
