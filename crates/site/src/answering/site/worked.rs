//! The handler `work`: the job that does the work, and its answer.

use super::Site;
use crate::answering::body::Body;
use crate::answering::site_request::SiteRequest;
use crate::cache::entry::Entry;
use crate::heads::pages::RefusalPage;
use crate::making::job::{SiteJob, SiteWork};
use crate::work::{Effort, Worked};
use forebay_conn::ProcessOutcome;
use std::sync::Arc;

impl Site {
    /// Has the work done that the query of the request asks for.
    #[cold]
    pub(super) fn work(
        &mut self,
        entry: Arc<Entry>,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let request = asked.request;
        let effort = match Effort::parse(request.head.query.unwrap_or_default()) {
            Ok(effort) => effort,
            Err(error) => {
                let refusal = RefusalPage::new(400, error.text());
                let (header_rules, passed) = (entry.header_rules.clone(), entry.guard.as_deref());
                return self.refuse_with(refusal, header_rules, passed, asked);
            }
        };
        match self.content.work_limit.enter() {
            Some(place) => {
                let content = self.content.number;
                ProcessOutcome::Job(SiteJob(SiteWork::Perform { content, entry, effort, place }))
            }
            None => {
                let refusal = RefusalPage::new(503, "Too much work is waiting already");
                let (header_rules, passed) = (entry.header_rules.clone(), entry.guard.as_deref());
                self.refuse_with(refusal, header_rules, passed, asked)
            }
        }
    }

    /// Answers when the work is done.
    pub(super) fn worked(
        &mut self,
        entry: &Arc<Entry>,
        worked: Option<Worked>,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let site = asked.site;
        let Some(worked) = worked else {
            let refusal = RefusalPage::new(503, "There is not so much memory");
            let (header_rules, passed) = (entry.header_rules.clone(), entry.guard.as_deref());
            return self.refuse_with(refusal, header_rules, passed, asked);
        };
        let vhost = self.vhost(site);
        asked.reply.head(
            200,
            &worked.head(vhost.pages.is_server_named, vhost.header_rules(&entry.header_rules)),
        );
        Body::send_text(worked.body, entry, asked.reply);
        ProcessOutcome::Replied
    }
}
