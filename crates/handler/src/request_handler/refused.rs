//! The memory of a refused request, and the id that its client gets.
//!
//! The page is written first; then the line of the log is begun, for the same request and with nothing
//! between. The page leaves its id here, and the line takes it. Processing any other request clears it.

use super::RequestHandler;
use crate::log::LogEntry;
use crate::log::request_id;
use crate::policy::Ticket;
use crate::refusals::{RememberedRefusal, ShortText};
use forebay_conn::{Reply, Request};
use forebay_http::status::reason;
use forebay_metrics::RefusalReason;
use forebay_site::Body;
use forebay_upstream::request::valid_id;
use std::borrow::Cow;

/// A refused request whose page is written.
#[derive(Debug)]
pub(super) struct Refused {
    /// The id that its client got.
    told: Box<[u8]>,
    /// The id as a number, if it was made here.
    pub(super) id: Option<u128>,
    /// The text of the page.
    text: &'static str,
}

impl RequestHandler {
    /// Gives the page of a request that is about to be refused an id. The id of an exchange is `known`;
    /// the id of a trusted proxy takes precedence.
    #[cold]
    pub(super) fn name_refusal(
        &mut self,
        request: Option<&Request<'_>>,
        known: Option<u128>,
        text: &'static str,
        reply: &mut Reply<'_, Body>,
    ) {
        let believed = request.filter(|request| self.trusted.are_believed(request.peer));
        let given = believed.and_then(|request| valid_id(request.head));
        let known = known.or_else(|| request?.passed?.id);
        let (told, id): (Box<[u8]>, _) = match given {
            Some(given) => (given.into(), None),
            None => {
                let id = known.unwrap_or_else(|| self.ids.number());
                (request_id::text(id).into(), Some(id))
            }
        };
        reply.request_id = Some(told.clone());
        self.refused = Some(Refused { told, id, text });
    }

    /// Remembers a refused request, whose log line is begun.
    #[cold]
    pub(super) fn remember(
        &self,
        refused: &Refused,
        entry: &LogEntry<'_>,
        ticket: Option<&Ticket>,
    ) {
        let (Some(request), Some(status)) = (entry.request, entry.status) else { return };
        let head = request.head;
        let mut asked = ShortText::of(head.method_text);
        // without the query, which may contain secrets
        let redaction = self.logger.redaction(entry.site);
        let path = redaction.map_or(Cow::Borrowed(head.path), |rules| rules.address(head.path));
        [b" ", head.authority, &path].into_iter().for_each(|part| asked.push(part));
        let words = entry.judged.map(|judged| judged.said()).unwrap_or_default();
        let reason = entry.judged.and_then(|judged| judged.trace.refused).map(|(reason, _)| reason);
        let ban = self.judge.as_ref().filter(|_| reason == Some(RefusalReason::Banned));
        let ban = ban.and_then(|judge| judge.ban_of(entry.client));
        let level = self.judge.as_ref().zip(ticket).map(|(judge, _)| judge.level());
        let logged = entry.id.filter(|id| Some(*id) != refused.id).map(request_id::text);
        self.refusals.remember(RememberedRefusal {
            ids: [ShortText::of(&refused.told), logged.map(ShortText::of).unwrap_or_default()],
            unix_ms: self.now.unix_ms,
            client: entry.client,
            status,
            asked,
            class: words.class.map(ShortText::of).unwrap_or_default(),
            reason,
            rule: words.refused_by.map(ShortText::of).unwrap_or_default(),
            level: level.unwrap_or("normal"),
            ban: ban.map(RememberedRefusal::ban_text).unwrap_or_default(),
            upstream: entry.relayed.map(|one| ShortText::of(one.upstream)).unwrap_or_default(),
            told: if refused.text.is_empty() { self::reason(status) } else { refused.text },
        });
    }
}
