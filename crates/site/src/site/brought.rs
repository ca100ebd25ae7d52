//! What a job has brought, and what the handler `work` is asked for.

use super::Site;
use crate::auth::VerifiedPassword;
use crate::body::Body;
use crate::entry::Entry;
use crate::job::{self, SiteJob, SiteJobDone, SiteWork};
use crate::load::Loaded;
use crate::pages::RefusalPage;
use crate::site_request::SiteRequest;
use crate::work::{Effort, Worked};
use forebay_conn::ProcessOutcome;
use std::net::IpAddr;
use std::sync::Arc;

impl Site {
    /// A job has brought what was missing.
    pub(super) fn go_on(
        &mut self,
        client: impl Fn() -> IpAddr,
        done: SiteJobDone,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        match done.0.outcome {
            job::JobResult::Loaded { entry, inner, piped, refusal: None } => {
                let loaded = Loaded { entry, inner, piped };
                self.answer_with(loaded, client, asked)
            }
            job::JobResult::Loaded { entry, refusal: Some(refusal), .. } => {
                self.look_who_asks(client, asked);
                self.write_error(entry, &refusal, asked);
                ProcessOutcome::Replied
            }
            job::JobResult::Verified(verified) => self.verified(&verified, client, asked),
            job::JobResult::Worked { entry, worked } => self.worked(&entry, worked, asked),
            job::JobResult::Warm => self.search(client, asked),
        }
    }

    /// Notes the user that is refused, as [`user`](Site::user) says: that was found out before the page
    /// was loaded.
    fn look_who_asks(&mut self, client: impl Fn() -> IpAddr, asked: &SiteRequest<'_, '_>) {
        if let Ok(path) = asked.request.path() {
            let guard = self.vhost(asked.site).guard_of(&[&path]);
            let _ = self.check(guard.as_deref(), asked, client);
        }
    }

    /// It is known whether the credentials are right.
    fn verified(
        &mut self,
        verified: &VerifiedPassword,
        client: impl Fn() -> IpAddr,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        match self.take_verified(verified) {
            // other realms may be asked for, too
            Ok(()) => self.search(client, asked),
            Err(stop) => {
                let header_rules = self.header_rules_of(asked.site, asked.request);
                self.stop(stop, header_rules, asked)
            }
        }
    }

    /// Has done what the query of the request asks for.
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

    /// What the query of the request asks for is done.
    fn worked(
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
