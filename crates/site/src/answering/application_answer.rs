//! An application's answer on its way to the client: fields, coding, a file sent instead of it,
//! error pages in its place.

use crate::answering::application::Destination;
use crate::answering::body::Body;
use crate::answering::site::Site;
use crate::answering::site_request::SiteRequest;
use crate::bodies::recode;
use crate::heads::fields::AnswerFields;
use crate::heads::head_lines;
use crate::heads::pages::RefusalPage;
use crate::making::job::SiteJob;
use crate::request_context::RequestContext;
use crate::rules::{Route, Template};
use crate::settings::SiteSettings;
use forebay_conn::{GivenField, HeadValues, Hsts, ProcessOutcome, Reply, Request};
use forebay_http::coding::Coding;
use forebay_http::path::normalise;
use std::borrow::Cow;

impl Site {
    /// Whether an application may have something sent instead of its answers.
    pub fn sends(&self, destination: &Destination) -> bool {
        self.route_at(destination).is_some_and(|route| !route.sends.is_empty())
    }

    /// Whether the route may have the file at this path sent, which is percent-encoded.
    pub fn may_send(&self, destination: &Destination, path: &[u8]) -> bool {
        let (Some(route), mut normal) = (self.route_at(destination), Vec::new()) else {
            return false;
        };
        normalise(path, &mut normal).is_ok()
            && route.sends.iter().any(|scope| scope.contains(&normal))
    }

    /// The values of the fields that are sent to an application and differ from request to request;
    /// `None` if there are none. A `given` field replaces the client's of that name.
    #[inline]
    pub fn told_values(
        &mut self,
        destination: &Destination,
        request: &Request<'_>,
        context: &impl RequestContext,
        given: &[GivenField],
    ) -> Option<HeadValues> {
        let Site { content, known, .. } = self;
        let vhost = content.vhosts.get(destination.site as usize)?;
        let told = &vhost.settings.routes.get(destination.route as usize)?.told;
        if told.is_empty() {
            return None;
        }
        let mut values = HeadValues::default();
        known.learn(told.iter().flat_map(Template::variables), context);
        known.fill(told, request, &vhost.settings.hosts, given, &mut values);
        Some(values)
    }

    fn route_at(&self, destination: &Destination) -> Option<&Route> {
        let vhost = self.content.vhosts.get(destination.site as usize)?;
        vhost.settings.routes.get(destination.route as usize)
    }

    /// The coding in which the body of an application's answer is passed on, by the settings of its
    /// route and the site's rules for files; `said` is changed to match. `length` is that of the
    /// body, if it is known.
    pub fn recode<'f>(
        &self,
        destination: &Destination,
        request: &Request<'_>,
        status: u16,
        length: Option<u64>,
        said: &mut Vec<(&'f str, Cow<'f, [u8]>)>,
    ) -> Option<Coding> {
        let vhost = self.content.vhosts.get(destination.site as usize)?;
        let SiteSettings { compress, compress_bytes, .. } = &vhost.settings;
        let of_route = self.route_at(destination).and_then(|route| route.compress.as_deref());
        let rules = recode::CodingRules {
            codings: of_route.unwrap_or(compress),
            most_bytes: *compress_bytes,
            keeps_strong_tags: of_route.is_none(),
        };
        rules.choose(request.head, status, length, said)
    }

    /// Finds out again which conditions hold for a request that went to an application, before
    /// anything of its answer is [written](Site::write_fields): other requests were answered
    /// meanwhile.
    #[inline]
    pub fn look_for(
        &mut self,
        destination: &Destination,
        request: &Request<'_>,
        context: &impl RequestContext,
    ) {
        if self.content.looks_first {
            self.look_at(destination.site, request, context);
        }
    }

    /// Appends the fields of an application's answer, as header rules change them; but not those that
    /// frame it.
    pub fn write_fields<'f>(
        &self,
        destination: &Destination,
        request: &Request<'_>,
        status: u16,
        said: Vec<(&'f str, Cow<'f, [u8]>)>,
        head: &mut Vec<u8>,
    ) {
        let mut fields = AnswerFields::from(said);
        let Some(vhost) = self.content.vhosts.get(destination.site as usize) else {
            // a reload has taken the site away meanwhile
            return fields.write(head);
        };
        if !fields.has("Server") {
            head_lines::server(vhost.pages.is_server_named, &mut fields);
        }
        let mut header_rules = self.header_rules_of(destination.site, request).into_vec();
        // the application knows better than this server which caches may keep its answer
        let is_private = vhost.has_private_rule && header_rules.first() == Some(&0);
        if is_private && fields.has("Cache-Control") {
            header_rules.remove(0);
        }
        let is_about_caches = |number: &u16| {
            vhost
                .settings
                .headers
                .get(usize::from(*number))
                .is_some_and(|rule| rule.set().iter().any(|(name, _)| name.is("Cache-Control")))
        };
        let shortens = status >= 400 && header_rules.iter().any(is_about_caches);
        let own = shortens.then(|| fields.value("Cache-Control")).flatten();
        fields.apply(vhost.header_rules(&header_rules), None);
        if shortens {
            fields.shorten_for_error(own);
        }
        if !vhost.values.is_empty() {
            fields.fill(self.values());
        }
        fields.write(head);
    }

    /// The Strict-Transport-Security setting for clients that come through TLS.
    pub fn hsts_of(&self, destination: &Destination) -> Option<Hsts> {
        self.content.vhosts.get(destination.site as usize)?.settings.hsts
    }

    /// Answers with an error in the place of an application: with the site's page, if it has one for
    /// the status, and with these fields.
    pub fn refuse_for(
        &mut self,
        destination: &Destination,
        request: &Request<'_>,
        status: u16,
        text: &'static str,
        fields: Vec<(&'static str, Vec<u8>)>,
        reply: &mut Reply<'_, Body>,
    ) -> ProcessOutcome<SiteJob> {
        if self.content.vhosts.get(destination.site as usize).is_none() {
            // a reload has taken it away meanwhile
            self.refuse(status, text, reply);
            return ProcessOutcome::Replied;
        }
        self.lend_values(destination.site, reply);
        let mut refusal = RefusalPage::new(status, text);
        refusal.fields.retain(|(known, _)| !fields.iter().any(|(name, _)| name == known));
        refusal.fields.extend(fields);
        let asked = &mut SiteRequest { site: destination.site, request, reply };
        self.refuse_path(refusal, asked)
    }
}
