//! Answers that are not what was asked for: errors, and the server's answers about itself.

use crate::access::guard::Guard;
use crate::answering::answer::AnswerParts;
use crate::answering::body::{Body, BodySource};
use crate::answering::site::Site;
use crate::answering::site_request::SiteRequest;
use crate::cache::entry::Entry;
use crate::cache::entry_key::{EntryKey, Inner, InnerKind, KeyRef};
use crate::heads::fields::AnswerFields;
use crate::heads::head_lines::{length_line, server, status_line};
use crate::heads::pages::RefusalPage;
use crate::making::job::{SiteJob, SiteWork};
use crate::making::load::Want;
use crate::request_context::{RequestContext, RequestScheme};
use crate::routing::ambiguity::Ambiguity;
use forebay_conn::{ProcessOutcome, Reply, Request};
use forebay_http::head::Method;
use forebay_http::path::PathError;
use forebay_metrics::Counter;
use std::sync::Arc;

impl Site {
    /// See [`Process::refuse`](forebay_conn::Process::refuse).
    pub fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Body>) {
        self.credentials.has_passed = false;
        self.content.pages.refuse(&RefusalPage::new(status, reason), Default::default(), reply);
    }

    /// Answers with a short text that is for this request alone, whatever is at its path.
    #[cold]
    pub fn tell(&mut self, text: &str, reply: &mut Reply<'_, Body>) {
        self.credentials.has_passed = false;
        let mut fields = AnswerFields::default();
        fields.push("Content-Type", b"application/octet-stream".as_slice());
        fields.push("Cache-Control", b"no-store".as_slice());
        server(self.content.pages.is_server_named, &mut fields);
        let mut head = status_line(200);
        fields.write(&mut head);
        length_line(&mut head, text.len() as u64);
        reply.head(200, &head);
        reply.copy(text.as_bytes());
    }

    /// See [`Process::turn_away`](forebay_conn::Process::turn_away). `context` is asked only where
    /// a site depends on it.
    #[inline]
    pub fn turn_away(
        &mut self,
        refusal: forebay_conn::Refusal,
        request: &Request<'_>,
        context: &impl RequestContext,
        reply: &mut Reply<'_, Body>,
    ) {
        let Some(site) = self.site_of(request) else {
            return self.turn_connection_away(refusal, reply);
        };
        if self.content.looks_first {
            self.look_at(site, request, context);
            self.lend_values(site, reply);
        }
        let Some(turned) = self.turned.get(site as usize) else {
            return self.turn_connection_away(refusal, reply);
        };
        self.credentials.has_passed = false;
        reply.retry_after_s = refusal.retry_after_s;
        let vhost = self.vhost(site);
        let is_secure = || context.scheme() == RequestScheme::Https;
        reply.hsts = vhost.settings.hsts.filter(|_| is_secure());
        turned.write(vhost, refusal.status, request, self.outcome, reply);
    }

    /// The same where there is no request yet.
    pub fn turn_connection_away(
        &mut self,
        refusal: forebay_conn::Refusal,
        reply: &mut Reply<'_, Body>,
    ) {
        self.credentials.has_passed = false;
        reply.retry_after_s = refusal.retry_after_s;
        self.content.pages.turn_away(refusal.status, reply);
    }

    /// RFC 9110 §15.5.20.
    #[cold]
    pub(crate) fn misdirected(
        &self,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<SiteJob> {
        let text = match request.head.authority {
            b"" => "The request names no host, and no site here is for all hosts",
            _ => "No site here has the host that the request names",
        };
        self.content.pages.refuse(&RefusalPage::new(421, text), Default::default(), reply);
        ProcessOutcome::Replied
    }

    pub(crate) fn not_allowed(
        &mut self,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let request = asked.request;
        // what follows a CONNECT may be meant for the other end of a tunnel
        asked.reply.keep_alive &= request.head.method != Method::Connect;
        let refusal = RefusalPage::new(405, "There are only files here; they can be read");
        self.refuse_path(refusal, asked)
    }

    pub(crate) fn options(&mut self, asked: &mut SiteRequest<'_, '_>) {
        let header_rules = self.header_rules_of(asked.site, asked.request);
        let vhost = self.vhost(asked.site);
        vhost.pages.options(vhost.header_rules(&header_rules), asked.reply);
    }

    /// Answers a request whose target names no path that can be looked up, whatever its method.
    pub(crate) fn refuse_no_path(
        &mut self,
        error: PathError,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        self.refuse_with(no_path(error), Box::default(), None, asked)
    }

    /// The same for requests that other software would answer, which must not be asked for a path
    /// that no rule can judge; the page is our own. Returns whether the request was answered.
    pub fn refuses_no_path(&mut self, request: &Request<'_>, reply: &mut Reply<'_, Body>) -> bool {
        // a request about the server as a whole has no path
        if !request.head.path.starts_with(b"/") {
            return false;
        }
        let Err(error) = request.path() else { return false };
        self.credentials.has_passed = false;
        self.content.pages.refuse(&no_path(error), Default::default(), reply);
        true
    }

    /// Answers with an error whatever is at the path.
    pub(crate) fn refuse_path(
        &mut self,
        refusal: RefusalPage,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let header_rules = self.header_rules_of(asked.site, asked.request);
        self.refuse_with(refusal, header_rules, None, asked)
    }

    /// The numbers of the header rules for the path of the request that is answered, and its conditions.
    pub(crate) fn header_rules_of(&self, site: u32, request: &Request<'_>) -> Box<[u16]> {
        let vhost = self.vhost(site);
        if vhost.settings.headers.is_empty() {
            return Box::default();
        }
        if let Ambiguity::Passed { readings, .. } = vhost.settings.ambiguity(request) {
            let mut numbers: Vec<_> = readings
                .iter()
                .flat_map(|path| vhost.header_rules_of(path, self.outcome))
                .collect();
            numbers.sort_unstable();
            numbers.dedup();
            return numbers.into();
        }
        let of_path = |path: &[u8]| vhost.header_rules_of(path, self.outcome);
        request.path().map(|path| of_path(&path)).unwrap_or_default()
    }

    /// Answers with an error: with the site's page for it, if there is one that may be shown to a
    /// client that has `passed` these rules.
    #[cold]
    pub(crate) fn refuse_with(
        &mut self,
        refusal: RefusalPage,
        header_rules: Box<[u16]>,
        passed: Option<&Guard>,
        asked: &mut SiteRequest<'_, '_>,
    ) -> ProcessOutcome<SiteJob> {
        let site = asked.site;
        let vhost = self.vhost(site);
        let Some(page) = vhost.error_page(refusal.status, passed) else {
            vhost.pages.refuse(&refusal, vhost.header_rules(&header_rules), asked.reply);
            return ProcessOutcome::Replied;
        };
        let (status, path) = (refusal.status, page.as_bytes().to_vec());
        let path: Arc<[u8]> =
            Inner { kind: InnerKind::File, status, header_rules, path }.key().into();
        if let Some(entry) = self.cached(KeyRef { site, path: &path }) {
            self.write_error(entry, &refusal, asked);
            return ProcessOutcome::Replied;
        }
        self.metrics.add(Counter::CacheMisses, 1);
        let (content, key) = (Arc::clone(&self.content), EntryKey { site, path });
        let refusal = Some(Box::new(refusal));
        let want = Want { shape: Default::default(), wants_all: false, asked_ms: self.now_ms };
        ProcessOutcome::Job(SiteJob(SiteWork::Load { content, key, want, refusal }))
    }

    pub(crate) fn write_error(
        &mut self,
        entry: Arc<Entry>,
        refusal: &RefusalPage,
        asked: &mut SiteRequest<'_, '_>,
    ) {
        let SiteRequest { site, request, .. } = *asked;
        let Site { content, boundaries, head_scratch, known, .. } = self;
        let Some(vhost) = content.vhosts.get(site as usize) else { return };
        let source = BodySource::Held(Arc::clone(&entry));
        let answer = AnswerParts { vhost, request, source, boundaries, head_scratch, known };
        answer.write_error(&entry, refusal, asked.reply);
    }
}

/// The page for such a target.
fn no_path(error: PathError) -> RefusalPage {
    match error.status() {
        404 => RefusalPage::of(404),
        status => RefusalPage::new(status, error.reason()),
    }
}
