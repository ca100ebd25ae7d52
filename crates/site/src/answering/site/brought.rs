//! Results of jobs, and how a request goes on with them.

use super::Site;
use crate::access::auth::VerifiedPassword;
use crate::answering::site_request::SiteRequest;
use crate::making::job::{self, SiteJob, SiteJobDone};
use crate::making::load::Loaded;
use forebay_conn::ProcessOutcome;
use std::net::IpAddr;

impl Site {
    /// Goes on with a request for which a job has brought what was missing.
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
            job::JobResult::Ready => self.search(client, asked),
        }
    }

    /// Notes the name of a user that is refused, for [`user`](Site::user). The credentials were
    /// checked before the page of the error was loaded.
    fn look_who_asks(&mut self, client: impl Fn() -> IpAddr, asked: &SiteRequest<'_, '_>) {
        if let Ok(path) = asked.request.path() {
            let guard = self.vhost(asked.site).guard_of(&[&path]);
            let _ = self.check(guard.as_deref(), asked, client);
        }
    }

    /// Goes on with a request whose credentials have been verified.
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
}
