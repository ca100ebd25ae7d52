//! Requests that applications answer: which one, and what comes before it.
//!
//! This module knows that a path is an application's, by the number of a route of the site; the
//! application behind the number it does not know. All rules hold as for files, in the same order:
//! access and passwords, redirects, rewrites. Then the longest path decides, be it a route's or an
//! alias's; the root has the rest.

use crate::access::guard::Stop;
use crate::answering::answer;
use crate::answering::body::Body;
use crate::answering::site::Site;
use crate::answering::site_request::SiteRequest;
use crate::cache::entry::{Entry, EntryKind, Script};
use crate::cache::entry_key::{EntryKey, KeyRef};
use crate::content::Content;
use crate::heads::pages::RefusalPage;
use crate::making::job::{JobResult as Brought, SiteJob, SiteJobDone};
use crate::request_context::RequestContext;
use crate::routing::ambiguity::{Ambiguity, is_for_applications};
use crate::routing::hosts::{Hosts, Memo};
use crate::routing::route::{self, HeldRules};
use crate::rules::ConditionBits;
use crate::settings::{FilesLocation, SiteSettings};
use forebay_conn::{ProcessOutcome, Reply, Request};
use forebay_http::head::Method;
use forebay_http::readings::PathReadings;
use std::net::IpAddr;
use std::sync::Arc;

/// The application a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// The site, by its place in [`ContentSettings::sites`](crate::ContentSettings::sites).
    pub site: u32,
    /// The route, by its place in [`SiteSettings::routes`](crate::SiteSettings::routes).
    pub route: u32,
    /// The path that a rule has put in the place of the one asked for, decoded.
    pub rewritten: Option<Box<[u8]>>,
    /// The file it runs; an application that runs none has none.
    pub script: Option<Arc<Script>>,
}

/// The outcome of routing a request, before an application has seen it.
pub enum Routed {
    /// The request is for no application: [`Site::process`] answers it, with the result of a job if
    /// there is one.
    Here(Option<SiteJobDone>),
    /// The answer is written.
    Replied,
    /// This job must be done first; then the request is routed again with its result.
    Job(SiteJob),
    /// This application answers.
    To(Destination),
}

impl Content {
    /// Whether some site has an application.
    pub fn has_routes(&self) -> bool {
        self.has_routes
    }
}

/// The path as it is read by an application that takes text behind a semicolon for no part of a
/// name, as servlets do (RFC 3986 section 3.3); `None` if there is no such text.
fn without_parameters(path: &[u8]) -> Option<Vec<u8>> {
    if !path.contains(&b';') {
        return None;
    }
    let name = |segment: &[u8]| segment.split(|&b| b == b';').next().unwrap_or_default().to_vec();
    let mut bare = path.split(|&b| b == b'/').map(name).collect::<Vec<_>>().join(&b'/');
    bare.dedup_by(|next, before| *next == b'/' && *before == b'/');
    Some(bare)
}

/// The same paths as [`Site::judged_paths`], found from the settings of sites alone, and whether
/// they are [answered elsewhere](crate::ContentSettings::is_answered_elsewhere). A loop that has a
/// file for the path in its own table knows better where scripts are run.
pub fn judged_paths(
    sites: &[SiteSettings],
    is_answered_elsewhere: bool,
    request: &Request<'_>,
) -> Vec<Vec<u8>> {
    let site = || {
        let number = Memo::default().site_of(&Hosts::new(sites), request.head.authority)?;
        Some((number, sites.get(number as usize)?))
    };
    if !is_answered_elsewhere
        && let Some((_, site)) = site()
        && let Ambiguity::Passed { readings, .. } = site.ambiguity(request)
    {
        return readings.iter().map(judged_reading).collect();
    }
    let bare = request.path().ok().and_then(|path| without_parameters(&path));
    let may_be = match is_answered_elsewhere {
        true => is_for_applications(request),
        false => site().is_some_and(|(number, site)| site.may_be_for_application(number, request)),
    };
    bare.into_iter().filter(|_| may_be).collect()
}

/// A reading in the form that rules of the policy judge: without parameters.
fn judged_reading(reading: &[u8]) -> Vec<u8> {
    without_parameters(reading).unwrap_or_else(|| reading.to_vec())
}

impl SiteSettings {
    /// The application for a request, as far as its path and these rules decide. `site` is this
    /// site's number.
    fn destination(
        &self,
        site: u32,
        request: &Request<'_>,
        held: HeldRules<'_>,
    ) -> Option<Destination> {
        if self.routes.is_empty() || !is_for_applications(request) {
            return None;
        }
        match self.ambiguity(request) {
            Ambiguity::None => {}
            Ambiguity::Refused(_) => return None,
            Ambiguity::Passed { route, .. } => {
                return Some(Destination { site, route, ..Destination::default() });
            }
        }
        let path = request.path().ok()?;
        let rewritten = route::rewrite(self, &path, held);
        let decisive = rewritten.as_deref().unwrap_or(&path);
        let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
        if self.work.iter().any(|rule| rule.path.matches(&path))
            || decisive.split(|&b| b == b'/').any(is_dots)
        {
            return None;
        }
        let route = route::route_for(self, decisive, held)?;
        Some(Destination { site, route, rewritten: rewritten.map(Vec::into), script: None })
    }

    /// Whether an application may answer a request, judged by its head alone.
    fn may_be_for_application(&self, site: u32, request: &Request<'_>) -> bool {
        // files of other paths may be scripts, too
        self.destination(site, request, HeldRules::ALL).is_some()
            || (is_for_applications(request)
                && (self.has_scripts() || self.may_lead_to_one(request)))
    }

    /// Whether an application is reached by some rewrite, or by none, whatever conditions hold.
    fn may_lead_to_one(&self, request: &Request<'_>) -> bool {
        let is_conditional = self.rewrites.iter().any(|rule| !rule.conditions().is_empty());
        let Some(path) = request.path().ok().filter(|_| is_conditional) else { return false };
        let mut paths = route::rewrites(self, &path).chain([path.to_vec()]);
        paths.any(|path| route::route_of(self, &path).is_some())
    }
}

impl Site {
    /// Whether some site has an application.
    pub fn has_applications(&self) -> bool {
        self.content.has_routes
    }

    /// Whether an application may answer a request, judged by its head alone. If so, its body is
    /// not for this server. Rules, and the file that is found in the place of a script, may yet
    /// answer instead.
    pub fn may_be_for_application(&mut self, request: &Request<'_>) -> bool {
        if !self.content.has_routes {
            return false;
        }
        let Some(site) = self.site_of(request).filter(|&site| !self.is_file(site, request)) else {
            return false;
        };
        self.vhost(site).settings.may_be_for_application(site, request)
    }

    /// Whether an application is likely to be given the socket of a request, judged by its head
    /// alone. Rules may yet answer instead.
    #[inline]
    pub fn hands_over(&mut self, request: &Request<'_>) -> bool {
        self.content.hands_over && self.is_for_receiver(request)
    }

    #[cold]
    fn is_for_receiver(&mut self, request: &Request<'_>) -> bool {
        let Some(site) = self.site_of(request).filter(|&site| !self.is_file(site, request)) else {
            return false;
        };
        let settings = &self.vhost(site).settings;
        let destination = settings.destination(site, request, HeldRules::ALL);
        destination.is_some_and(|to| settings.routes[to.route as usize].hands_over)
    }

    /// The paths by which rules of the policy judge a request that is answered by an application,
    /// or by other software in the place of a stage: such software may read path parameters as no
    /// part of a name. There are several if the application gets a path with several readings.
    /// Empty if the request's own path is the only one.
    #[inline]
    pub fn judged_paths(&mut self, request: &Request<'_>) -> Vec<Vec<u8>> {
        let is_elsewhere = self.content.settings.is_answered_elsewhere;
        if !self.content.has_routes && !is_elsewhere {
            return Vec::new();
        }
        if !is_elsewhere && let Ambiguity::Passed { readings, .. } = self.ambiguity(request) {
            return readings.iter().map(judged_reading).collect();
        }
        let bare = request.path().ok().and_then(|path| without_parameters(&path));
        let may_be = bare.is_some()
            && match is_elsewhere {
                // whichever site has it, and if none does
                true => is_for_applications(request),
                false => self.may_be_for_application(request),
            };
        bare.into_iter().filter(|_| may_be).collect()
    }

    /// The one of the [`judged_paths`](Site::judged_paths) about which this rule's deciding server
    /// is asked next; `None` if it is the request's own.
    pub fn path_to_ask(&mut self, request: &Request<'_>, rule: u16) -> Option<Vec<u8>> {
        let number = self.content.number;
        let asked = request.passed.map_or(0, |passed| passed.times_allowed(number, rule));
        self.judged_paths(request).into_iter().nth(asked)
    }

    /// The handling of a path that has several readings, by the site of the request.
    fn ambiguity<'r>(&mut self, request: &Request<'r>) -> Ambiguity<'r> {
        match self.site_of(request) {
            Some(site) => self.vhost(site).settings.ambiguity(request),
            None => Ambiguity::None,
        }
    }

    /// Lets a request through to the application it is for, if rules allow it. Called after
    /// [`secures`](Site::secures) and before [`process`](Site::process), with the result of a job.
    #[inline]
    pub fn route(
        &mut self,
        request: &Request<'_>,
        client: impl Fn() -> IpAddr,
        done: Option<SiteJobDone>,
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
        done: Option<SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> Routed {
        self.credentials.has_passed = false;
        let Some(site) = self.site_of(request).filter(|&site| !self.is_file(site, request)) else {
            return Routed::Here(done);
        };
        let settings = &self.vhost(site).settings;
        let ambiguity = settings.ambiguity(request);
        if let Ambiguity::Refused(reason) = ambiguity {
            return match done {
                // the page of the error
                Some(done) => Routed::Here(Some(done)),
                None => self.refuses(
                    RefusalPage::new(400, reason),
                    &mut SiteRequest { site, request, reply },
                ),
            };
        }
        let readings = match &ambiguity {
            Ambiguity::Passed { readings, .. } => Some(&**readings),
            _ => None,
        };
        let normal = if readings.is_some() { None } else { request.path().ok() };
        let Some(path) = readings.map(PathReadings::main).or(normal.as_deref()) else {
            return Routed::Here(done);
        };
        let held = self.vhost(site).conditions.held(self.outcome);
        let destination = settings.destination(site, request, held);
        // only the application can do anything else with a file
        let is_read = matches!(request.head.method, Method::Get | Method::Head);
        let looks_first = |route| is_read && readings.is_none() && settings.looks_first(route);
        let runs_scripts = match &destination {
            Some(to) => settings.scripts(to.route).is_some() || looks_first(to.route),
            // files of other paths may be scripts, too
            None => settings.has_scripts() && is_for_applications(request),
        };
        if destination.is_none() && !runs_scripts {
            return Routed::Here(done);
        }
        let asked = &mut SiteRequest { site, request, reply };
        let number = self.content.number;
        let mut loaded = None;
        match done.filter(|done| done.0.content == number) {
            None => {}
            Some(done) => match done.0.outcome {
                Brought::Loaded { ref entry, refusal: None, .. } if runs_scripts => {
                    loaded = Some((Arc::clone(entry), done));
                }
                Brought::Verified(verified) => {
                    if let Err(stop) = self.take_verified(&verified) {
                        return self.stopped(stop, asked);
                    }
                }
                // the page of an error
                _ => return Routed::Here(Some(done)),
            },
        }
        let mut paths = vec![path];
        paths.extend(readings.iter().flat_map(|readings| readings.iter().skip(1)));
        paths.extend(destination.as_ref().and_then(|to| to.rewritten.as_deref()));
        let bare: Vec<_> = match destination {
            Some(_) => paths.iter().filter_map(|path| without_parameters(path)).collect(),
            None => Vec::new(),
        };
        paths.extend(bare.iter().map(Vec::as_slice));
        let guard = self.vhost(site).guard_of(&paths);
        if let Err(stop) = self.check(guard.as_deref(), asked, &client) {
            return self.stopped(stop, asked);
        }
        if runs_scripts {
            return match self.script_at(path, loaded, client, asked) {
                // no file has an encoded slash or backslash in its path
                Routed::Here(_) if request.path().is_err() => {
                    self.refuses(RefusalPage::of(404), asked)
                }
                routed => routed,
            };
        }
        let Some(destination) = destination else { return Routed::Here(None) };
        match self.sends_elsewhere(path, asked) {
            true => Routed::Replied,
            false => Routed::To(destination),
        }
    }

    /// Answers what needs no look at files: finds the site of a request, checks its rules about
    /// clients, and sends redirects. [`Routed::Here`] says that the process with the files must
    /// answer.
    pub fn decide(
        &mut self,
        request: &Request<'_>,
        context: &impl RequestContext,
        done: Option<SiteJobDone>,
        reply: &mut Reply<'_, Body>,
    ) -> Routed {
        self.credentials.has_passed = false;
        let client = || context.client().ip();
        let Some(site) = self.site_of(request) else { return Routed::Here(None) };
        self.look_at(site, request, context);
        self.lend_values(site, reply);
        let asked = &mut SiteRequest { site, request, reply };
        let number = self.content.number;
        if let Some(done) = done.filter(|done| done.0.content == number) {
            match done.0.outcome {
                Brought::Verified(verified) => {
                    if let Err(stop) = self.take_verified(&verified) {
                        return self.stopped_here(stop, asked);
                    }
                }
                // the page of an error, which needs a file
                _ => return Routed::Here(Some(done)),
            }
        }
        let vhost = self.vhost(site);
        if self.content.settings().files == FilesLocation::Behind
            && !matches!(vhost.settings.ambiguity(request), Ambiguity::None)
        {
            // where applications are asked, the same rules are asked about each of its readings
            return Routed::Here(None);
        }
        let is_read = matches!(request.head.method, Method::Get | Method::Head);
        let is_sent = !matches!(
            request.head.method,
            Method::Options | Method::Unknown | Method::Connect | Method::Trace
        ) && !vhost.settings.redirects.is_empty();
        // no stage behind has rules, whatever the method
        let is_last = self.content.settings().files == FilesLocation::Elsewhere;
        let has_path = request.head.path.starts_with(b"/");
        let path = match request.path() {
            Ok(path) if is_read || is_sent || (is_last && has_path) => path,
            Err(error) if is_last && has_path => {
                let _ = self.refuse_no_path(error, asked);
                return Routed::Replied;
            }
            _ => return Routed::Here(None),
        };
        // as for applications: the software behind may take parameters for no part of the path
        let bare = if is_last { without_parameters(&path) } else { None };
        let mut paths = vec![&*path];
        paths.extend(bare.as_deref());
        if let Some(guard) = vhost.guard_of(&paths) {
            if self.content.settings().files == FilesLocation::Behind
                && guard.reads_files(&self.content.realms)
            {
                return Routed::Here(None);
            }
            match self.check(Some(&guard), asked, client) {
                Ok(()) => {}
                // where files are, other servers are asked, by the same rule
                Err(Stop::Ask(_)) => return Routed::Here(None),
                Err(stop) => return self.stopped_here(stop, asked),
            }
        }
        match self.sends_elsewhere(&path, asked) {
            true => Routed::Replied,
            false => Routed::Here(None),
        }
    }

    /// Sends a redirect if one fits the path. Returns whether it did.
    fn sends_elsewhere(&mut self, path: &[u8], asked: &mut SiteRequest<'_, '_>) -> bool {
        let SiteRequest { site, request, .. } = *asked;
        let vhost = self.vhost(site);
        if vhost.settings.redirects.is_empty()
            || vhost.settings.work.iter().any(|rule| rule.path.matches(path))
        {
            return false;
        }
        let header_rules = self.header_rules_of(asked.site, asked.request);
        let Site { content, head_scratch, outcome, known, .. } = self;
        let vhost = &content.vhosts[site as usize];
        let (settings, pages) = (&vhost.settings, &vhost.pages);
        let may_be = |place| outcome.has(vhost.conditions.redirect(place));
        let header_rules = vhost.header_rules(&header_rules);
        let Some(to) = route::redirect(settings, pages, header_rules, path, may_be) else {
            return false;
        };
        answer::redirect(&to, vhost, request, known, head_scratch, asked.reply);
        true
    }

    /// Whether this loop knows that a path is a file's, so that a hit costs no look at routes.
    /// Except for scripts, no path of an application is ever in the loop's own table.
    #[inline]
    fn is_file(&self, site: u32, request: &Request<'_>) -> bool {
        let raw = request.head.path;
        let known = self.front.peek(self.front.front_key(site, raw), site, raw, self.now_ms);
        known.is_some_and(|entry| {
            !matches!(entry.what, EntryKind::Script(_) | EntryKind::Conditional(_))
        }) && self.is_for_files(site, request)
    }

    /// Whether a file may answer this method at a place where other methods go to an application:
    /// not where files only come first.
    #[inline]
    fn is_for_files(&self, site: u32, request: &Request<'_>) -> bool {
        matches!(request.head.method, Method::Get | Method::Head)
            || !self.vhost(site).settings.routes.iter().any(|route| route.files_first)
    }

    /// The script that answers. Files that are not known yet are looked for first.
    fn script_at(
        &mut self,
        path: &[u8],
        loaded: Option<(Arc<Entry>, SiteJobDone)>,
        client: impl Fn() -> IpAddr,
        asked: &mut SiteRequest<'_, '_>,
    ) -> Routed {
        let SiteRequest { site, request, .. } = *asked;
        let (entry, done) = match loaded {
            Some((entry, done)) => (entry, Some(done)),
            None => match self.known(site, path, request) {
                Some(entry) => (entry, None),
                None => {
                    let key = EntryKey { site, path: path.into() };
                    return match self.load(key, request) {
                        ProcessOutcome::Job(job) => Routed::Job(job),
                        _ => Routed::Here(None),
                    };
                }
            },
        };
        let entry = match &entry.what {
            EntryKind::Conditional(conditional) => {
                let mut key = Vec::new();
                conditional.push_key(&entry.key.path, self.outcome, &mut key);
                let known = self.cached(KeyRef { site, path: &key });
                match known.ok_or_else(|| self.load(EntryKey { site, path: key.into() }, request)) {
                    Ok(entry) => entry,
                    Err(ProcessOutcome::Job(job)) => return Routed::Job(job),
                    Err(_) => return Routed::Here(None),
                }
            }
            _ => entry,
        };
        let EntryKind::Script(script) = &entry.what else { return Routed::Here(done) };
        if let Err(stop) = self.check(entry.guard.as_deref(), asked, &client) {
            return self.stopped(stop, asked);
        }
        let vhost = self.vhost(site);
        let held = vhost.conditions.held(self.outcome);
        let rewritten = route::rewrite(&vhost.settings, path, held).map(Vec::into);
        Routed::To(Destination {
            site,
            route: script.route,
            rewritten,
            script: Some(Arc::clone(script)),
        })
    }

    /// The entry of a path, from the loop's own table or the shared cache.
    fn known(&mut self, site: u32, path: &[u8], request: &Request<'_>) -> Option<Arc<Entry>> {
        let raw = request.head.path;
        if request.path().is_err() {
            // one of the readings of a path that is for an application; as a file it is missing
            return self.cached(KeyRef { site, path });
        }
        let front_key = self.front.front_key(site, raw);
        if let Some(hit) = self.front.find(front_key, site, raw, self.now_ms) {
            return Some(Arc::clone(hit.entry));
        }
        let entry = self.cached(KeyRef { site, path })?;
        self.remember(site, raw, &entry);
        Some(entry)
    }

    fn refuses(&mut self, refusal: RefusalPage, asked: &mut SiteRequest<'_, '_>) -> Routed {
        match self.refuse_path(refusal, asked) {
            ProcessOutcome::Job(job) => Routed::Job(job),
            _ => Routed::Replied,
        }
    }

    /// The same, if no file is needed for it. Where files are, the same rules stop the request
    /// again.
    fn stopped_here(&mut self, stop: Stop, asked: &mut SiteRequest<'_, '_>) -> Routed {
        let site = asked.site;
        let errors = &self.vhost(site).settings.errors;
        let needs_file = match &stop {
            Stop::Refuse(refusal) => errors.iter().any(|page| page.status() == refusal.status),
            _ => false,
        };
        match needs_file && self.content.settings().files == FilesLocation::Behind {
            true => Routed::Here(None),
            false => self.stopped(stop, asked),
        }
    }

    fn stopped(&mut self, stop: Stop, asked: &mut SiteRequest<'_, '_>) -> Routed {
        let header_rules = self.header_rules_of(asked.site, asked.request);
        match self.stop(stop, header_rules, asked) {
            ProcessOutcome::Job(job) => Routed::Job(job),
            _ => Routed::Replied,
        }
    }

    /// The present destination of a request that went to `before` under another content, as far as
    /// that matters to an answer: its site, if that is still there, and its route.
    pub fn destination_now(&mut self, request: &Request<'_>, before: &Destination) -> Destination {
        let Some(site) = self.site_of(request) else {
            return Destination { site: u32::MAX, ..Destination::default() };
        };
        let vhost = self.vhost(site);
        let settings = &vhost.settings;
        // a route that runs files, or answers where no file does, is found by the path, whatever
        // was there
        let of_path = |path: &[u8]| {
            let rewritten = route::rewrite(settings, path, HeldRules::ALL);
            let held = vhost.conditions.held(ConditionBits::default());
            let route = route::route_for(settings, rewritten.as_deref().unwrap_or(path), held)?;
            let looks = settings.scripts(route).is_some() || settings.looks_first(route);
            looks.then_some(route)
        };
        let route = match &before.script {
            Some(_) => request.path().ok().and_then(|path| of_path(&path)),
            None => settings.destination(site, request, HeldRules::ALL).map(|now| now.route),
        };
        Destination { site, route: route.unwrap_or(u32::MAX), ..Destination::default() }
    }

    /// The server that decides about a request by this rule. Its number follows the routes of its
    /// site.
    pub fn authority(&self, site: u32, rule: u16) -> Destination {
        let vhost = self.content.vhosts.get(site as usize);
        let routes = vhost.map_or(0, |vhost| vhost.settings.routes.len() as u32);
        Destination { site, route: routes + u32::from(rule), ..Destination::default() }
    }
}
