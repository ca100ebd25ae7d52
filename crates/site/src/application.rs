//! Requests that applications answer: which one, and what comes before it.
//!
//! Here it is known that a path is an application's, by its number among the routes of the site; what
//! stands behind the number is not. All rules hold as for files, in the same order: to https, access and
//! passwords, redirects, rewrites. Then the longest path has it, be it a route or an alias; the root has
//! what is left.

use crate::answer;
use crate::body::Body;
use crate::content::Content;
use crate::fields::Fields;
use crate::guard::{self, Stop};
use crate::job::{Done, Job, Outcome as Brought};
use crate::pages::{self, Refusal};
use crate::route;
use crate::site::Site;
use crate::vhost::VirtualHost;
use forebay_conn::{Hsts, Outcome, Reply, Request};
use forebay_http::head::Method;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// The application a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The site, by its place in [`Settings::sites`](crate::Settings::sites).
    pub site: u32,
    /// The route, by its place in [`SiteSettings::routes`](crate::SiteSettings::routes).
    pub route: u32,
    /// The path that a rule has put in the place of the one asked for, decoded.
    pub rewritten: Option<Box<[u8]>>,
}

/// What becomes of a request before an application could have it.
pub enum Routed {
    /// It is for no application: [`Site::process`] answers it, with what a job has brought.
    Here(Option<Done>),
    /// The answer is written.
    Replied,
    /// This must be done first; then it is routed again with the result.
    Job(Job),
    /// This application answers.
    To(Destination),
}

impl Content {
    /// Whether some site has an application.
    pub fn has_routes(&self) -> bool {
        self.has_routes
    }
}

impl VirtualHost {
    /// The application for a request, as far as its path tells.
    fn destination(&self, site: u32, request: &Request<'_>) -> Option<Destination> {
        let is_for_one = !matches!(request.head.method, Method::Connect | Method::Trace)
            && !self.settings.routes.is_empty()
            && request.head.path.starts_with(b"/");
        if !is_for_one {
            return None;
        }
        let path = request.path().ok()?;
        let rewritten = route::rewrite(&self.settings, &path);
        let decisive = rewritten.as_deref().unwrap_or(&path);
        let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
        if self.settings.work.iter().any(|rule| rule.path.matches(&path))
            || decisive.split(|&b| b == b'/').any(is_dots)
        {
            return None;
        }
        let route = route::route_of(&self.settings, decisive)?;
        Some(Destination { site, route, rewritten: rewritten.map(Vec::into) })
    }
}

impl Site {
    /// The application a request is for, as soon as its head is there; rules may yet answer instead.
    pub fn destination(&mut self, request: &Request<'_>) -> Option<Destination> {
        if !self.content.has_routes {
            return None;
        }
        let site = self.site_of(request)?;
        self.vhost(site).destination(site, request)
    }

    /// Lets a request through to the application it is for, if rules allow it. To be asked before
    /// [`process`](Site::process), with what a job has brought.
    #[inline]
    pub fn route(
        &mut self,
        request: &Request<'_>,
        client: impl Fn() -> IpAddr,
        done: Option<Done>,
        reply: &mut Reply<'_, Body>,
    ) -> Routed {
        match self.content.has_routes {
            true => self.route_to(request, client, done, reply),
            false => Routed::Here(done),
        }
    }

    fn route_to(
        &mut self,
        request: &Request<'_>,
        client: impl Fn() -> IpAddr,
        done: Option<Done>,
        reply: &mut Reply<'_, Body>,
    ) -> Routed {
        let destination = self.destination(request);
        let (Some(destination), Ok(path)) = (destination, request.path()) else {
            return Routed::Here(done);
        };
        let site = destination.site;
        if self.content.is_about_tls && self.goes_to_https(site, request, reply) {
            return Routed::Replied;
        }
        let number = self.content.number;
        match done.filter(|done| done.0.content == number) {
            None => {}
            Some(done) => match done.0.outcome {
                Brought::Verified(verified) => {
                    let realms = Arc::clone(&self.content.realms);
                    let decision = realms.take(&verified, &mut self.credentials);
                    if let Err(stop) = guard::stop(decision, &realms, verified.realm()) {
                        return self.stopped(stop, site, request, reply);
                    }
                }
                // the page of an error
                _ => return Routed::Here(Some(done)),
            },
        }
        let mut paths = vec![&*path];
        paths.extend(destination.rewritten.as_deref());
        if let Some(guard) = self.vhost(site).guard_of(&paths) {
            let Site { content, credentials, now_ms, .. } = self;
            if let Err(stop) = guard.check(content, site, request, &client, credentials, *now_ms) {
                return self.stopped(stop, site, request, reply);
            }
        }
        if !self.vhost(site).settings.redirects.is_empty() {
            let dress = self.dress_of(site, request);
            let Site { content, room, .. } = self;
            let vhost = &content.vhosts[site as usize];
            let (settings, pages) = (&vhost.settings, &vhost.pages);
            if let Some(to) = route::redirect(settings, pages, vhost.dress(&dress), &path) {
                answer::redirect(&to, vhost, request, room, reply);
                return Routed::Replied;
            }
        }
        Routed::To(destination)
    }

    fn stopped(
        &mut self,
        stop: Stop,
        site: u32,
        request: &Request<'_>,
        reply: &mut Reply<'_, Body>,
    ) -> Routed {
        let dress = self.dress_of(site, request);
        match self.stop(stop, dress, site, request, reply) {
            Outcome::Job(job) => Routed::Job(job),
            _ => Routed::Replied,
        }
    }

    /// Appends the fields of an application's answer, as header rules change them; but not those that
    /// frame it.
    pub fn write_fields<'f>(
        &self,
        destination: &Destination,
        request: &Request<'_>,
        status: u16,
        said: impl Iterator<Item = (&'f str, Cow<'f, [u8]>)>,
        head: &mut Vec<u8>,
    ) {
        let Some(vhost) = self.content.vhosts.get(destination.site as usize) else { return };
        let mut fields = Fields::default();
        said.for_each(|(name, value)| fields.push(name, value));
        if !fields.has("Server") {
            pages::server(vhost.pages.is_server_named, &mut fields);
        }
        let mut dress = self.dress_of(destination.site, request).into_vec();
        // what the application says of who may keep its answer is more than is known here
        let is_private = vhost.has_private_rule && dress.first() == Some(&0);
        if is_private && fields.has("Cache-Control") {
            dress.remove(0);
        }
        let is_about_caches = |number: &u16| {
            vhost
                .settings
                .headers
                .get(usize::from(*number))
                .is_some_and(|rule| rule.set().iter().any(|(name, _)| name.is("Cache-Control")))
        };
        let shortens = status >= 400 && dress.iter().any(is_about_caches);
        fields.apply(vhost.dress(&dress), None);
        if shortens {
            fields.shorten_for_error();
        }
        fields.write(head);
    }

    /// What clients that come through TLS are told about that.
    pub fn hsts_of(&self, destination: &Destination) -> Option<Hsts> {
        self.content.vhosts.get(destination.site as usize)?.settings.hsts
    }

    /// Answers with an error in the place of an application: with the site's page, if it has one for
    /// the status.
    pub fn refuse_for(
        &mut self,
        destination: &Destination,
        request: &Request<'_>,
        status: u16,
        text: &'static str,
        reply: &mut Reply<'_, Body>,
    ) -> Outcome<Job> {
        self.refuse_path(destination.site, request, Refusal::new(status, text), reply)
    }
}
