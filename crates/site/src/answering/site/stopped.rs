//! Requests that rules about clients do not let through, or not yet.

use super::Site;
use crate::access::guard::Stop;
use crate::answering::site_request::SiteRequest;
use crate::cache::entry::{Entry, EntryKind};
use crate::making::job::{SiteJob, SiteWork};
use forebay_conn::ProcessOutcome;

impl Site {
    /// Answers a request that rules about clients do not let through, or does first what they ask
    /// for.
    #[cold]
    pub(crate) fn stop(
        &mut self,
        stop: Stop,
        header_rules: Box<[u16]>,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let site = asked.site;
        match stop {
            Stop::Refuse(refusal) => self.refuse_with(refusal, header_rules, None, asked),
            Stop::Verify(verification) => {
                let (content, verification) = (self.content.number, Box::new(verification));
                ProcessOutcome::Job(SiteJob(SiteWork::Verify { content, verification }))
            }
            Stop::Ask(rule) => ProcessOutcome::Job(SiteJob(SiteWork::Ask { site, rule })),
        }
    }

    /// The same for the rules of an entry.
    #[cold]
    pub(super) fn stop_at(
        &mut self,
        entry: &Entry,
        stop: Stop,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let header_rules = match entry.what {
            // the header rules of all requests
            EntryKind::Conditional(_) => self.header_rules_of(asked.site, asked.request),
            _ => entry.header_rules.clone(),
        };
        self.stop(stop, header_rules, asked)
    }
}
