//! What a job has brought, and what the handler `work` is asked for.

use super::Site;
use crate::auth::VerifiedPassword;
use crate::body::Body;
use crate::entry::Entry;
use crate::job::{self, SiteJob, SiteJobDone, SiteWork};
use crate::load::Loaded;
use crate::pages::RefusalPage;
use crate::work::{Effort, Worked};
use forebay_conn::{ProcessOutcome, Reply, Request};
use std::net::IpAddr;
use std::sync::Arc;

impl Site {
    /// A job has brought what was missing.
    pub(super) fn go_on(
        &mut self,
        site: u32,
        request: &Request<'_>,
        client: impl Fn() -> IpAddr,
        done: SiteJobDone,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<SiteJob> {
        match done.0.outcome {
            job::JobResult::Loaded { entry, inner, piped, refusal: None } => {
                let loaded = Loaded { entry, inner, piped };
                self.answer_with(loaded, site, request, client, reply)
            }
            job::JobResult::Loaded { entry, refusal: Some(refusal), .. } => {
                self.look_who_asks(site, request, client);
                self.write_error(entry, &refusal, site, request, reply);
                ProcessOutcome::Replied
            }
            job::JobResult::Verified(verified) => {
                self.verified(&verified, site, request, client, reply)
            }
            job::JobResult::Worked { entry, worked } => {
                self.worked(&entry, worked, site, request, reply)
            }
            job::JobResult::Warm => self.search(site, request, client, reply),
        }
    }

    /// Notes the user that is refused, as [`user`](Site::user) says: that was found out before the page
    /// was loaded.
    fn look_who_asks(&mut self, site: u32, request: &Request<'_>, client: impl Fn() -> IpAddr) {
        if let Ok(path) = request.path() {
            let guard = self.vhost(site).guard_of(&[&path]);
            let _ = self.check(guard.as_deref(), site, request, client);
        }
    }

    /// It is known whether the credentials are right.
    fn verified(
        &mut self,
        verified: &VerifiedPassword,
        site: u32,
        request: &Request<'_>,
        client: impl Fn() -> IpAddr,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<SiteJob> {
        match self.take_verified(verified) {
            // other realms may be asked for, too
            Ok(()) => self.search(site, request, client, reply),
            Err(stop) => {
                let header_rules = self.header_rules_of(site, request);
                self.stop(stop, header_rules, site, request, reply)
            }
        }
    }

    /// Has done what the query of the request asks for.
    #[cold]
    pub(super) fn work(
        &mut self,
        entry: Arc<Entry>,
        site: u32,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<SiteJob> {
        let effort = match Effort::parse(request.head.query.unwrap_or_default()) {
            Ok(effort) => effort,
            Err(error) => {
                let refusal = RefusalPage::new(400, error.text());
                let (header_rules, passed) = (entry.header_rules.clone(), entry.guard.as_deref());
                return self.refuse_with(site, request, refusal, header_rules, passed, reply);
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
                self.refuse_with(site, request, refusal, header_rules, passed, reply)
            }
        }
    }

    /// What the query of the request asks for is done.
    fn worked(
        &mut self,
        entry: &Arc<Entry>,
        worked: Option<Worked>,
        site: u32,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<SiteJob> {
        let Some(worked) = worked else {
            let refusal = RefusalPage::new(503, "There is not so much memory");
            let (header_rules, passed) = (entry.header_rules.clone(), entry.guard.as_deref());
            return self.refuse_with(site, request, refusal, header_rules, passed, reply);
        };
        let vhost = self.vhost(site);
        reply.head(
            200,
            &worked.head(vhost.pages.is_server_named, vhost.header_rules(&entry.header_rules)),
        );
        Body::send_text(worked.body, entry, reply);
        ProcessOutcome::Replied
    }
}
