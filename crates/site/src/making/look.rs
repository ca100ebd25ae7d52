//! Look-ups by rules and stamps alone: no file is read here.

use crate::access::guard::Guard;
use crate::bodies::forms::{CODINGS, ExpectedForms};
use crate::bodies::variant::Variant;
use crate::cache::entry::{ConditionalPath, Entry, EntryKind, Script};
use crate::cache::entry_key::{AliasKey, Inner, InnerKind, OutcomeKey};
use crate::cache::listing_format::ListingFormat;
use crate::cache::watch::PathLook;
use crate::content::AnswerBuilder;
use crate::heads::media_types::coding_of;
use crate::heads::pages::RefusalPage;
use crate::routing::route::{self, HeldRules};
use crate::rules::{Captures, ConditionBits, Scripts, TryFile};
use crate::settings::SiteSettings;
use crate::vhost::VirtualHost;
use forebay_http::coding::Coding;
use forebay_metrics::{Activity, Stopwatch};
use forebay_sys::file::{self, FileKind, OpenFailure, Stamp};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A key taken apart: the thing that is looked up.
pub(crate) struct Lookup {
    /// The path of the client, or that of the [`Inner`].
    path: Vec<u8>,
    /// The status of the answer if there is a file.
    pub(crate) status: u16,
    /// The numbers of the header rules for the answer.
    pub(crate) header_rules: Box<[u16]>,
    /// The kind, if the key is an [`Inner`]'s; `None` for a client's path, for which all rules
    /// hold.
    inner: Option<InnerKind>,
    /// The conditions that the answer still depends on.
    relevant: ConditionBits,
    /// The conditions that hold.
    pub(crate) outcome: Option<ConditionBits>,
}

/// The findings at a path.
pub(crate) struct PathContents {
    pub(crate) outcome: Resolution,
    /// The path in the site of the file, if one was found, and those of its precompressed siblings.
    pub(crate) files: Vec<(Coding, Vec<u8>, Stamp)>,
    /// Other paths than the client's under which the file was looked for and found.
    pub(crate) places: Vec<Vec<u8>>,
}

/// The kind of answer that a path has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    Found,
    /// The answer that other paths lead to, too.
    Alias(AliasKey),
    /// A redirect to this directory, which lacks its slash.
    Slash(Vec<u8>),
    /// A directory without an index.
    Listed(Vec<u8>),
    /// A directory without an index, whose list must not be shown.
    Unlisted,
    Missing,
    Denied,
    /// An error because a rule says so.
    Refused(u16),
    /// A file that an application runs.
    Script(Script),
    /// The file system failed; the status says whether it lacked something (503) or is broken
    /// (500).
    Failed(u16),
}

/// The reason why no answer could be made from what was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The file changed while it was read.
    Changed,
    /// The file is not there any more, or was never served.
    Gone,
    /// The file may not be read.
    Denied,
    /// The file system failed; the status says whether it lacked something (503) or is broken
    /// (500).
    Failed(u16),
}

impl From<&io::Error> for Trouble {
    fn from(error: &io::Error) -> Trouble {
        match file::failure(error) {
            OpenFailure::Nowhere => Trouble::Gone,
            OpenFailure::Denied => Trouble::Denied,
            OpenFailure::Shortage => Trouble::Failed(503),
            OpenFailure::Broken => Trouble::Failed(500),
        }
    }
}

impl Resolution {
    pub(crate) fn of(trouble: &Trouble) -> Resolution {
        match trouble {
            Trouble::Denied => Resolution::Denied,
            Trouble::Failed(status) => Resolution::Failed(*status),
            Trouble::Gone | Trouble::Changed => Resolution::Missing,
        }
    }
}

/// The text for the operator who set the server up. It says what to do, and nothing that a stranger
/// could not find out.
const UNLISTED: &str =
    "This directory has no index file, and to show what is in it is off (listing)";

impl Lookup {
    pub(crate) fn of(vhost: &VirtualHost, key: &[u8]) -> Lookup {
        match Inner::of(key) {
            Some(Inner { kind, status, header_rules, path }) => {
                let (relevant, outcome, inner) = (ConditionBits::default(), None, Some(kind));
                Lookup { path, status, header_rules, inner, relevant, outcome }
            }
            None => Lookup::of_path(vhost, key),
        }
    }

    /// The look-up for a path of a client, alone or with the outcome of its conditions.
    fn of_path(vhost: &VirtualHost, key: &[u8]) -> Lookup {
        let (outcome, path) = match OutcomeKey::of(key) {
            Some(OutcomeKey { outcome, path }) => (Some(outcome), path),
            None => (None, key),
        };
        let all = vhost.all_header_rules_of(path);
        let relevant = match outcome {
            Some(_) => ConditionBits::default(),
            None => vhost.conditions.relevant(&vhost.settings, &all, path),
        };
        let header_rules = vhost.held(all, outcome.unwrap_or_default());
        let (path, status, inner) = (path.to_vec(), 200, None);
        Lookup { path, status, header_rules, inner, relevant, outcome }
    }

    /// The answer, if it depends on no file.
    pub(crate) fn without_files(&self, vhost: &VirtualHost) -> Option<EntryKind> {
        if self.relevant != ConditionBits::default() {
            return Some(EntryKind::Conditional(ConditionalPath::new(self.relevant)));
        }
        if self.inner.is_none() {
            let VirtualHost { settings, pages, conditions, .. } = vhost;
            let header_rules = vhost.header_rules(&self.header_rules);
            let outcome = self.outcome.unwrap_or_default();
            let may_be = |place| outcome.has(conditions.redirect(place));
            let redirect = route::redirect(settings, pages, header_rules, &self.path, may_be);
            if let Some(redirect) = redirect {
                return Some(EntryKind::Redirect(redirect));
            }
            if vhost.settings.work.iter().any(|rule| rule.path.matches(&self.path)) {
                return Some(EntryKind::Work);
            }
        }
        vhost.mounts.is_empty().then(|| self.what(vhost, Resolution::Missing))
    }

    /// The site's own answer, if it has an error page for the outcome.
    pub(crate) fn instead(&self, vhost: &VirtualHost, outcome: Resolution) -> Resolution {
        let status = match outcome {
            Resolution::Missing | Resolution::Unlisted => 404,
            Resolution::Denied => 403,
            Resolution::Refused(status) => status,
            outcome => return outcome,
        };
        if self.inner.is_some() {
            return outcome;
        }
        match vhost.error_page(status, self.guard(vhost, None).as_deref()) {
            Some(page) => self.alias(InnerKind::File, status, page.as_bytes()),
            None => outcome,
        }
    }

    /// The rules about clients for what was seen. The page of an error has none: it is shown to
    /// clients that may see it.
    pub(crate) fn guard(
        &self,
        vhost: &VirtualHost,
        seen: Option<&PathContents>,
    ) -> Option<Box<Guard>> {
        if self.status != 200 {
            return None;
        }
        let file = seen.and_then(|seen| seen.files.first()).map(|(_, path, _)| path);
        let places = seen.iter().flat_map(|seen| &seen.places);
        let paths = std::iter::once(&self.path).chain(places).chain(file);
        vhost.guard_of(&paths.map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// The format of a list.
    pub(crate) fn shape(&self) -> ListingFormat {
        match self.inner {
            Some(InnerKind::List(shape)) => shape,
            _ => ListingFormat::default(),
        }
    }

    fn alias(&self, kind: InnerKind, status: u16, path: &[u8]) -> Resolution {
        let (header_rules, path) = (self.header_rules.clone(), path.to_vec());
        Resolution::Alias(AliasKey::new(&Inner { kind, status, header_rules, path }))
    }

    /// The answer where no file is.
    pub(crate) fn what(&self, vhost: &VirtualHost, outcome: Resolution) -> EntryKind {
        let header_rules = vhost.header_rules(&self.header_rules);
        let status = match outcome {
            Resolution::Alias(alias) => return EntryKind::Alias(alias),
            Resolution::Script(script) => return EntryKind::Script(Arc::new(script)),
            Resolution::Slash(path) => {
                return EntryKind::Redirect(route::add_slash(&vhost.pages, header_rules, &path));
            }
            Resolution::Failed(status) => return EntryKind::Failed(status),
            // the page of the error is missing, so the error is shown without it
            _ if self.status != 200 => self.status,
            Resolution::Unlisted => {
                let refusal = RefusalPage::new(404, UNLISTED);
                return EntryKind::Page(Box::new(vhost.pages.page(&refusal, header_rules)));
            }
            Resolution::Missing | Resolution::Found | Resolution::Listed(_) => 404,
            Resolution::Denied => 403,
            Resolution::Refused(status) => status,
        };
        match status {
            404 if header_rules.is_empty() => EntryKind::Missing,
            403 if header_rules.is_empty() => EntryKind::Denied,
            status => {
                EntryKind::Page(Box::new(vhost.pages.page(&RefusalPage::of(status), header_rules)))
            }
        }
    }
}

impl PathContents {
    fn none(outcome: Resolution) -> PathContents {
        PathContents { outcome, files: Vec::new(), places: Vec::new() }
    }

    /// A script, without a look whether it is there.
    fn script(vhost: &VirtualHost, route: u32, name: &[u8], path_info: &[u8]) -> PathContents {
        let file = vhost.file_in_alias(name);
        let script = Script { route, name: name.into(), path_info: path_info.into(), file };
        let outcome = Resolution::Script(script);
        PathContents { places: vec![name.to_vec()], ..PathContents::none(outcome) }
    }

    /// Whether `entry` was made from this.
    pub(crate) fn is(&self, entry: &Entry) -> bool {
        match (&entry.what, &self.outcome) {
            (EntryKind::Found(found), Resolution::Found) => {
                let made = found.variants().map(|variant| (variant.coding, variant.stamp));
                made.eq(self.files.iter().map(|(coding, _, stamp)| (*coding, *stamp)))
                    && !found.variants().any(Variant::is_young)
            }
            (EntryKind::Alias(alias), Resolution::Alias(seen)) => alias == seen,
            (EntryKind::Redirect(redirect), Resolution::Slash(_)) => redirect.is_for_slash,
            (EntryKind::Script(script), Resolution::Script(seen)) => **script == *seen,
            (EntryKind::Missing, Resolution::Missing) => true,
            (EntryKind::Page(page), Resolution::Missing | Resolution::Unlisted) => {
                page.status == 404
            }
            (EntryKind::Page(page), Resolution::Refused(status)) => page.status == *status,
            // A file without read permission is found by its stamp, and refused when it is opened.
            _ => false,
        }
    }
}

/// The file at one path.
struct StampAt {
    stamp: Stamp,
    /// The precompressed forms of it that may be there.
    forms: ExpectedForms,
}

/// A look at the file system.
pub(crate) struct Look<'l, 'c> {
    pub(crate) vhost: &'l VirtualHost,
    pub(crate) order: &'l Lookup,
    pub(crate) builder: &'l mut AnswerBuilder<'c>,
    pub(crate) watch: &'l mut dyn Stopwatch,
}

impl<'l> Look<'l, '_> {
    pub(crate) fn see(mut self) -> PathContents {
        let order = self.order;
        let seen = match order.inner {
            None => self.at_clients_path(),
            Some(InnerKind::File) => match self.at(&order.path) {
                PathContents {
                    outcome: Resolution::Slash(_) | Resolution::Listed(_) | Resolution::Unlisted,
                    ..
                } => PathContents::none(Resolution::Missing),
                // never the source of a script
                PathContents { outcome: Resolution::Found, files, .. }
                    if files.first().is_some_and(|(_, file, _)| self.vhost.is_source(file)) =>
                {
                    PathContents::none(Resolution::Missing)
                }
                seen => seen,
            },
            Some(InnerKind::List(_)) => PathContents::none(Resolution::Listed(order.path.clone())),
        };
        let PathContents { outcome, files, places } = seen;
        let outcome = match outcome {
            Resolution::Listed(path) if order.inner.is_none() => {
                order.alias(InnerKind::List(ListingFormat::default()), 200, &path)
            }
            outcome => order.instead(self.vhost, outcome),
        };
        PathContents { outcome, files, places }
    }

    /// The rewrites and routes that hold for the requests of this outcome.
    fn held(&self) -> HeldRules<'l> {
        self.vhost.conditions.held(self.order.outcome.unwrap_or_default())
    }

    fn at_clients_path(&mut self) -> PathContents {
        let order = self.order;
        let rewritten = route::rewrite(&self.vhost.settings, &order.path, self.held());
        let path = rewritten.as_deref().unwrap_or(&order.path);
        if let Some(mut seen) = self.at_script(path) {
            seen.places.extend(rewritten);
            return seen;
        }
        let (found_at, seen) = match self.vhost.settings.candidates(&order.path) {
            [] if !route::is_servable(&self.vhost.settings, path) => {
                (path.to_vec(), PathContents::none(Resolution::Missing))
            }
            [] => (path.to_vec(), self.at(path)),
            candidates => self.try_files(candidates, path),
        };
        if let Some(mut seen) = self.instead_of(&seen, path) {
            seen.places.extend(rewritten.into_iter().chain([found_at]));
            return seen;
        }
        let mut seen = match seen.outcome {
            Resolution::Found if found_at != order.path => {
                PathContents::none(order.alias(InnerKind::File, 200, &found_at))
            }
            _ => seen,
        };
        seen.places = rewritten.into_iter().chain([found_at]).collect();
        seen
    }

    /// The script that a path names, if its application runs scripts: run, or missing.
    fn at_script(&mut self, path: &[u8]) -> Option<PathContents> {
        let vhost = self.vhost;
        let (route, scripts) = scripts_of(&vhost.settings, path, self.held())?;
        let fallback = scripts.fallback.as_ref().map(|path| path.as_str().as_bytes().to_vec());
        for (name, info) in scripts.ending.splits(path) {
            if !route::is_servable(&vhost.settings, name) {
                return Some(PathContents::none(Resolution::Missing));
            }
            return match self.look_at(name, false) {
                // a directory may have such a name
                Ok(at) if at.stamp.kind == FileKind::Directory => continue,
                // whether it is there or not, so that no client learns which files are
                _ if !scripts.may_run(name) => Some(PathContents::none(Resolution::Missing)),
                Ok(at) if at.stamp.kind == FileKind::Regular => {
                    Some(PathContents::script(vhost, route, name, info))
                }
                Ok(_) | Err(Trouble::Gone | Trouble::Changed) => {
                    let fallback = fallback.and_then(|fallback| self.run(route, &fallback));
                    Some(fallback.unwrap_or(PathContents::none(Resolution::Missing)))
                }
                Err(trouble) => Some(PathContents::none(Resolution::of(&trouble))),
            };
        }
        None
    }

    /// The script that answers instead of the file that was seen, as that is a script itself, or
    /// instead of none.
    fn instead_of(&mut self, seen: &PathContents, path: &[u8]) -> Option<PathContents> {
        if let (Resolution::Found, Some((_, file, _))) = (&seen.outcome, seen.files.first()) {
            if let Some(route) = self.runner(file) {
                return Some(PathContents::script(self.vhost, route, file, b""));
            }
            // no application runs it here, and no client may read it
            return self.vhost.is_source(file).then(|| PathContents::none(Resolution::Missing));
        }
        if !matches!(seen.outcome, Resolution::Missing | Resolution::Unlisted) {
            return None;
        }
        if let Some(route) = route::route_for(&self.vhost.settings, path, self.held())
            && self.vhost.settings.looks_first(route)
        {
            // an application answers where no file does, under this path
            return Some(PathContents::script(self.vhost, route, path, b""));
        }
        let (route, scripts) = scripts_of(&self.vhost.settings, path, self.held())?;
        let index = path.ends_with(b"/").then(|| [path, scripts.index.as_bytes()].concat());
        let fallback = scripts.fallback.as_ref().map(|path| path.as_str().as_bytes().to_vec());
        let mut names = index.into_iter().chain(fallback).filter(|name| scripts.may_run(name));
        names.find_map(|name| self.run(route, &name))
    }

    /// The route of the application that runs the file at a path there.
    fn runner(&self, file: &[u8]) -> Option<u32> {
        let (route, scripts) = scripts_of(&self.vhost.settings, file, self.held())?;
        scripts.may_run(file).then_some(route)
    }

    /// A script that is run if it is there.
    fn run(&mut self, route: u32, name: &[u8]) -> Option<PathContents> {
        let is_there = self.look_at(name, false).is_ok_and(|at| at.stamp.kind == FileKind::Regular);
        (is_there && route::is_servable(&self.vhost.settings, name))
            .then(|| PathContents::script(self.vhost, route, name, b""))
    }

    /// The first of the candidates that is there, and its path.
    fn try_files(&mut self, candidates: &[TryFile], path: &[u8]) -> (Vec<u8>, PathContents) {
        for candidate in candidates {
            let template = match candidate {
                TryFile::Path(template) => template,
                TryFile::Status(status) => {
                    return (path.to_vec(), PathContents::none(Resolution::Refused(*status)));
                }
            };
            let at = route::file_path(template, path, &Captures::default());
            if !route::is_servable(&self.vhost.settings, &at) {
                continue;
            }
            let seen = self.at(&at);
            match seen.outcome {
                // a name without a slash means a file
                Resolution::Missing | Resolution::Unlisted | Resolution::Slash(_) => {}
                // links on its page are meant for the address with the slash
                Resolution::Found | Resolution::Listed(_) if is_with_slash(&at, path) => {
                    return (path.to_vec(), PathContents::none(Resolution::Slash(path.to_vec())));
                }
                _ => return (at, seen),
            }
        }
        (path.to_vec(), PathContents::none(Resolution::Missing))
    }

    /// Looks up a path of the site.
    fn at(&mut self, path: &[u8]) -> PathContents {
        if path.ends_with(b"/") {
            return self.at_directory(path);
        }
        match self.look_at(path, self.vhost.settings.precompressed) {
            Ok(StampAt { stamp, forms }) if stamp.kind == FileKind::Regular => {
                self.with_forms(path, stamp, forms)
            }
            Ok(at) if at.stamp.kind == FileKind::Directory => {
                PathContents::none(Resolution::Slash(path.to_vec()))
            }
            // Devices, FIFOs and sockets are as good as not there.
            Ok(_) => PathContents::none(Resolution::Missing),
            Err(trouble) => PathContents::none(Resolution::of(&trouble)),
        }
    }

    fn at_directory(&mut self, path: &[u8]) -> PathContents {
        let vhost = self.vhost;
        for index in &vhost.settings.index {
            let file = [path, index.as_bytes()].concat();
            match self.look_at(&file, vhost.settings.precompressed) {
                Ok(StampAt { stamp, forms }) if stamp.kind == FileKind::Regular => {
                    // a script that is not run here is as good as not there
                    if self.runner(&file).is_none() && vhost.is_source(&file) {
                        continue;
                    }
                    return self.with_forms(&file, stamp, forms);
                }
                Ok(_) | Err(Trouble::Gone | Trouble::Changed) => {}
                Err(trouble) => return PathContents::none(Resolution::of(&trouble)),
            }
        }
        let is_there =
            self.look_at(path, false).is_ok_and(|at| at.stamp.kind == FileKind::Directory);
        PathContents::none(match is_there {
            true if vhost.settings.lists(path) => Resolution::Listed(path.to_vec()),
            true => Resolution::Unlisted,
            false => Resolution::Missing,
        })
    }

    /// Looks up a path of the site and, if `with_forms` says so, which forms of the file may be
    /// there.
    fn look_at(&mut self, path: &[u8], with_forms: bool) -> Result<StampAt, Trouble> {
        let PathLook { stamp, forms, unread } = self.builder.follow(path, with_forms);
        if let Some(unread) = unread {
            self.builder.read(path, &unread);
        }
        let forms = forms.unwrap_or(ExpectedForms::Any);
        if let Some(stamp) = stamp {
            self.watch.lap(Activity::Open);
            return Ok(StampAt { stamp, forms });
        }
        let Some((root, inside)) = self.builder.locate(path) else { return Err(Trouble::Gone) };
        let found = file::find_beneath(root.directory.as_fd(), inside);
        self.watch.lap(Activity::Open);
        let stamp = found.and_then(|found| file::stamp(found.as_fd()));
        self.watch.lap(Activity::Stat);
        stamp.map(|stamp| StampAt { stamp, forms }).map_err(|error| Trouble::from(&error))
    }

    /// The file that was found, with its precompressed forms where some are expected. A form that
    /// is protected better than its file does not stand for it.
    fn with_forms(&mut self, path: &[u8], stamp: Stamp, forms: ExpectedForms) -> PathContents {
        let SiteSettings { types, precompressed, .. } = &self.vhost.settings;
        let coding = coding_of(types, path);
        let mut files = vec![(coding, path.to_vec(), stamp)];
        if *precompressed && coding == Coding::Identity {
            for coding in CODINGS.into_iter().filter(|coding| forms.is(*coding)) {
                let form = [path, coding.suffix().as_bytes()].concat();
                let guard = |path: &[u8]| self.vhost.guard_of(&[path]);
                if guard(&form) != guard(path) {
                    continue;
                }
                let path = form;
                if let Ok(StampAt { stamp, .. }) = self.look_at(&path, false)
                    && stamp.kind == FileKind::Regular
                {
                    files.push((coding, path, stamp));
                }
            }
        }
        PathContents { files, ..PathContents::none(Resolution::Found) }
    }
}

/// The application of a path, if it runs scripts.
pub(crate) fn scripts_of<'s>(
    settings: &'s SiteSettings,
    path: &[u8],
    held: HeldRules<'_>,
) -> Option<(u32, &'s Scripts)> {
    let route = route::route_for(settings, path, held)?;
    Some((route, settings.scripts(route)?))
}

/// Whether `at` is `path` with a slash behind it.
fn is_with_slash(at: &[u8], path: &[u8]) -> bool {
    !path.ends_with(b"/") && at.strip_suffix(b"/") == Some(path)
}
