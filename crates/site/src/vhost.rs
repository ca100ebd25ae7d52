//! One site as it is served: its settings, its directories, its small pages.
//!
//! | module | what it holds |
//! |---|---|
//! | `conditions` | the conditions of a site's rules, and which of them hold for a request |
//! | `root` | the directory a site is served from, which may be replaced by another under the same path |
//! | `turned` | answers to clients that the policy refuses, written once |

pub(crate) mod conditions;
pub(crate) mod root;
pub(crate) mod turned;

use crate::access::guard::{self, Guard};
use crate::bodies::forms;
use crate::heads::fields::{HeaderRuleSet, header_rules_of};
use crate::heads::pages::Pages;
use crate::notice::OpenError;
use crate::routing::names::{self, MountedPlace};
use crate::routing::redirection::Redirection;
use crate::routing::route;
use crate::rules::{
    AccessRule, Alias, AliasFile, ConditionBits, HeaderRule, Redirect, RequestVariable, Rewrite,
    Route, Template, place_in,
};
use crate::settings::{FilesLocation, SiteSettings};
use crate::vhost::conditions::SiteConditions;
use crate::vhost::root::RootDirectory;
use forebay_sys::file::{self, OpenFailure};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One site.
#[derive(Debug)]
pub(crate) struct VirtualHost {
    pub(crate) settings: SiteSettings,
    /// The site's directories, those beneath longer paths first, the root last; none if it has no
    /// files.
    pub(crate) mounts: Vec<Mount>,
    /// The number of its first realm among those of all sites.
    first_realm: u32,
    /// Whether the first header rule is the one for what is protected by passwords.
    pub(crate) has_private_rule: bool,
    /// The values of its header rules that have variables, by their numbers.
    pub(crate) values: Vec<Template>,
    /// The variables of these values and of redirects, whose values come from requests.
    pub(crate) variables: Vec<RequestVariable>,
    /// The conditions of the site's rules.
    pub(crate) conditions: SiteConditions,
    pub(crate) pages: Pages,
    /// The redirect of clients that do not come through TLS, for paths without header rules.
    pub(crate) to_https: Option<Redirection>,
}

/// A directory of a site.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The path beneath which the directory is; empty for the root.
    pub(crate) path: Box<[u8]>,
    pub(crate) place: RootDirectory,
    /// The only files that are served of it; none for all.
    pub(crate) files: Box<[AliasFile]>,
}

impl Mount {
    fn open(path: &str, to: &Path, files: &[AliasFile]) -> Result<Mount, OpenError> {
        let failed = |error| OpenError::Root { root: to.to_owned(), error };
        let place = RootDirectory::open(to).map_err(failed)?;
        let found = file::find_beneath(place.current().directory.as_fd(), b"");
        found.map_err(|error| match file::failure(&error) {
            OpenFailure::Denied => failed(error),
            _ => OpenError::Beneath { error },
        })?;
        Ok(Mount { path: path.as_bytes().into(), place, files: files.into() })
    }

    /// The path within the directory that a path of the site leads to, if it leads there.
    fn inside<'p>(&'p self, path: &'p [u8]) -> Option<&'p [u8]> {
        place_in(&self.files, &self.path, path)
    }
}

/// The rules about clients of a site, while its directories stay where they are.
pub(crate) struct Protection<'v> {
    vhost: &'v VirtualHost,
    directories: Vec<MountedPlace<'v>>,
}

impl Protection<'_> {
    /// The rules for an answer with these paths.
    pub(crate) fn of(&self, paths: &[&[u8]]) -> Option<Box<Guard>> {
        let VirtualHost { settings, first_realm, .. } = self.vhost;
        self.vhost
            .has_rules()
            .then(|| Guard::of(settings, &self.directories, *first_realm, paths))?
    }
}

impl VirtualHost {
    pub(crate) fn open(
        settings: &SiteSettings,
        first_realm: u32,
        files: FilesLocation,
    ) -> Result<VirtualHost, OpenError> {
        let root = settings.root.iter().map(|root| ("", root, &[][..]));
        let others = settings.aliases.iter().chain(&settings.links);
        let others = others.map(|other| (other.path().as_str(), &other.to, other.files()));
        let mounts = root.chain(others).filter(|_| files == FilesLocation::Here);
        let mounts = mounts.map(|(path, to, files)| Mount::open(path, to, files));
        let mut mounts = mounts.collect::<Result<Vec<_>, _>>()?;
        // the sort is stable: of two mounts with one path the first decides
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.path.len()));
        let mut settings = settings.clone();
        if files == FilesLocation::Elsewhere {
            settings.errors.clear();
        }
        let private = guard::private_rule(&settings);
        let has_private_rule = private.is_some();
        settings.headers.splice(..0, private);
        let of_headers = settings.headers.iter().filter_map(HeaderRule::varying);
        let of_redirects = settings.redirects.iter().filter_map(Redirect::varying);
        let of_access = settings.access.iter().flat_map(AccessRule::varying);
        let of_rewrites = settings.rewrites.iter().filter_map(Rewrite::varying);
        let of_routes = settings.routes.iter().flat_map(Route::varying);
        let varying = of_headers.chain(of_redirects).chain(of_access);
        let varying: Vec<_> = varying.chain(of_rewrites).chain(of_routes).collect();
        settings.headers.extend(varying);
        let mut values = Vec::new();
        settings.headers.iter_mut().for_each(|rule| rule.number(&mut values));
        let of_redirects = settings.redirects.iter().flat_map(|rule| rule.to().variables());
        let of_values = values.iter().flat_map(Template::variables);
        let variables = of_values.chain(of_redirects).cloned().collect();
        let conditions = SiteConditions::of(&settings);
        let pages = Pages::new(settings.server_header);
        let to_https =
            settings.to_https.map(|to| route::to_https(&pages, HeaderRuleSet::default(), to, None));
        Ok(VirtualHost {
            settings,
            mounts,
            first_realm,
            has_private_rule,
            values,
            variables,
            conditions,
            pages,
            to_https,
        })
    }

    /// Whether the first header rule is the one for answers behind a password.
    pub(crate) fn has_private_rule(&self) -> bool {
        self.has_private_rule
    }

    /// Whether something must be found out about a request, or done, before all else: about TLS, by
    /// conditions, for variables.
    pub(crate) fn looks_first(&self) -> bool {
        self.is_about_tls() || !self.conditions.is_empty() || self.has_variables()
    }

    /// Whether values of header rules or redirects depend on the request.
    pub(crate) fn has_variables(&self) -> bool {
        !(self.values.is_empty() && self.variables.is_empty())
    }

    /// Whether the site has settings about TLS.
    pub(crate) fn is_about_tls(&self) -> bool {
        self.settings.hsts.is_some() || self.to_https.is_some()
    }

    /// The mount that has a path of the site, and the path within it.
    pub(crate) fn locate<'p>(&'p self, path: &'p [u8]) -> Option<(usize, &'p [u8])> {
        let mut mounts = self.mounts.iter().enumerate();
        mounts.find_map(|(at, mount)| Some((at, mount.inside(path)?)))
    }

    /// The place of a file, if an alias has it.
    pub(crate) fn file_in_alias(&self, path: &[u8]) -> Option<Box<[u8]>> {
        let (mount, inside) = self.locate(path)?;
        let beneath = &self.mounts.get(mount)?.path;
        let is_it = |alias: &&Alias| alias.path().as_str().as_bytes() == &**beneath;
        let alias = self.settings.aliases.iter().find(is_it)?;
        let directory = std::path::absolute(&alias.to).unwrap_or_else(|_| alias.to.clone());
        Some([directory.as_os_str().as_bytes(), b"/", inside].concat().into())
    }

    /// The rules about clients for an answer with these paths.
    #[inline]
    pub(crate) fn guard_of(&self, paths: &[&[u8]]) -> Option<Box<Guard>> {
        self.has_rules().then(|| self.protection().of(paths)).flatten()
    }

    /// Whether there are rules about clients.
    fn has_rules(&self) -> bool {
        let SiteSettings { auth, access, asks, internal, .. } = &self.settings;
        !(auth.is_empty() && access.is_empty() && asks.is_empty() && internal.is_empty())
    }

    /// The rules about clients with the site's directories as they are now, for use with many
    /// paths.
    pub(crate) fn protection(&self) -> Protection<'_> {
        let directories = if self.has_rules() { self.directories() } else { Vec::new() };
        Protection { vhost: self, directories }
    }

    /// The site's directories if there are several, in which one file may have several paths.
    fn directories(&self) -> Vec<MountedPlace<'_>> {
        let has_others = self.mounts.len() > 1;
        let mounts = self.mounts.iter().filter(|_| has_others);
        let places = mounts.flat_map(|mount| {
            let directory = mount.place.current().path.clone();
            let files = mount.files.iter().map({
                let directory = directory.clone();
                move |file| MountedPlace {
                    path: &file.path,
                    at: directory.join(OsStr::from_bytes(&file.name)),
                    is_file: true,
                }
            });
            let all = mount.files.is_empty();
            let all =
                all.then_some(MountedPlace { path: &mount.path, at: directory, is_file: false });
            files.chain(all)
        });
        places.collect()
    }

    /// The paths of the file at a path: those of the file it is a compressed form of, and those at
    /// which other directories of the site have either.
    pub(crate) fn paths_of_file(&self, path: &[u8]) -> Vec<Vec<u8>> {
        names::of_file(&self.settings, &self.directories(), path)
    }

    /// Whether a file is a script under one of its paths, or a compressed form of one, which no
    /// client may read.
    pub(crate) fn is_source(&self, file: &[u8]) -> bool {
        if !self.settings.has_scripts() {
            return false;
        }
        // forms that are not sent for their files have the source in them all the same
        let mut files = std::iter::once(file).chain(forms::original(file));
        files.any(|file| self.paths_of_file(file).iter().any(|path| self.is_script(path)))
    }

    /// Whether the file at a path is run there, or is an alias's where a script of this name would be run.
    fn is_script(&self, path: &[u8]) -> bool {
        let settings = &self.settings;
        // an application alone may have this file sent, and has chosen it
        let is_internal = settings.internal.iter().any(|scope| scope.contains(path));
        // for a request for which no condition holds: a route that runs files has none
        let held = self.conditions.held(ConditionBits::default());
        let route = match is_internal {
            true => route::route_for(settings, path, held),
            false => route::route_around(settings, path, held),
        };
        let scripts = route.and_then(|route| settings.scripts(route));
        scripts.is_some_and(|scripts| scripts.ending.is_of(path))
    }

    /// The numbers of the header rules for an answer with these rules about clients: those for its
    /// path, and the one for what is private.
    pub(crate) fn header_rules_with(
        &self,
        header_rules: &[u16],
        guard: Option<&Guard>,
    ) -> Box<[u16]> {
        let is_private = self.has_private_rule && guard.is_some_and(Guard::is_private);
        let private = (is_private && header_rules.first() != Some(&0)).then_some(0);
        private.into_iter().chain(header_rules.iter().copied()).collect()
    }

    /// The header rules with these numbers.
    pub(crate) fn header_rules<'v>(&'v self, numbers: &'v [u16]) -> HeaderRuleSet<'v> {
        HeaderRuleSet::new(&self.settings.headers, numbers)
    }

    /// The numbers of the header rules for a path, whether their conditions hold or not.
    pub(crate) fn all_header_rules_of(&self, path: &[u8]) -> Box<[u16]> {
        let is_private = || self.guard_of(&[path]).is_some_and(|guard| guard.is_private());
        let first = u16::from(self.has_private_rule && !is_private());
        header_rules_of(&self.settings.headers, first, path)
    }

    /// The header rules among these that hold for this outcome.
    pub(crate) fn held(&self, header_rules: Box<[u16]>, outcome: ConditionBits) -> Box<[u16]> {
        if self.conditions.is_empty() {
            return header_rules;
        }
        let mut held = header_rules.into_vec();
        held.retain(|number| outcome.has(self.conditions.header(*number)));
        held.into()
    }

    /// The numbers of the header rules for a path, for a request with this outcome.
    pub(crate) fn header_rules_of(&self, path: &[u8], outcome: ConditionBits) -> Box<[u16]> {
        self.held(self.all_header_rules_of(path), outcome)
    }

    /// The file that stands for an error, if it may be shown to a client that has passed these rules
    /// and perhaps no others.
    pub(crate) fn error_page(&self, status: u16, passed: Option<&Guard>) -> Option<&str> {
        let mut pages = self.settings.errors.iter();
        let page = pages.find(|page| page.status() == status)?.path();
        let guard = self.guard_of(&[page.as_bytes()]);
        let is_open = |guard: &Guard| passed.is_some_and(|passed| passed.covers(guard));
        guard.as_deref().is_none_or(is_open).then_some(page)
    }
}
