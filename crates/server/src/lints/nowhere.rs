//! Rules of a site whose paths lead to nothing, or to less than is intended: `forebay check` warns of them.

use super::LintSubject;
use super::pages::find;
use forebay_config::pages::{fixed, locate};
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::table::ConfigReader;
use forebay_config::{FastCgiConfig, HandOverConfig, ProxyConfig, Remarks, SiteConfig, guarded};
use forebay_site::rules::{Alias, Pattern, Scope};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A remark about a path.
#[derive(Debug)]
enum PathRemark {
    /// A rule whose path leads to nothing.
    Nowhere {
        /// The path in the rule.
        path: String,
        /// The file or directory that does not exist.
        file: PathBuf,
    },
    /// A header rule for a directory, but not for the files below it.
    DirectoryAlone {
        /// The path in the rule.
        path: String,
    },
}

impl Finding for PathRemark {}

impl fmt::Display for PathRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathRemark::Nowhere { path, file } => {
                write!(f, "nothing answers at {path:?}: {file:?} is not there")
            }
            PathRemark::DirectoryAlone { path } => {
                let path = path.trim_end_matches('/');
                write!(
                    f,
                    "{path:?} is a directory, and a header rule is not for what is below its path: \
                     write \"{path}/*\" for all of it, regex = '^{path}/$' for its index page alone"
                )
            }
        }
    }
}

/// The largest number of paths that are looked up on disk.
const MOST_PATHS: usize = 1000;

/// A site, with the rules of the top level that apply to it.
struct WholeSite<'d> {
    site: &'d SiteConfig,
    /// The settings of the top level, if there are sites below it.
    top: Option<&'d SiteConfig>,
    mounts: Vec<Alias>,
}

/// A path in a rule, with its position in the configuration.
struct NamedPath<'d> {
    at: At,
    path: &'d str,
    /// Whether the path is that of a header rule that matches nothing below it. For a directory,
    /// such a rule affects the index page only.
    is_alone: bool,
}

/// Finds paths that lead to nothing: paths without a star of `[[access]]`, `[[auth]]` and
/// `[[header]]`, exceptions, and targets of redirects.
pub(super) fn nowhere(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let top = (!of.draft.sites.is_empty()).then_some(&of.draft.site);
    let whole = |site| WholeSite::new(site, top);
    let mut asked = 0;
    for (at, site) in of.draft.every_site() {
        // a rule of the top level applies to all sites
        let sites: Vec<WholeSite<'_>> = match at.exact.is_empty() && top.is_some() {
            true => of.draft.sites.iter().map(whole).collect(),
            false => vec![whole(site)],
        };
        for NamedPath { at, path, is_alone } in named(of.text, &at, site) {
            asked += sites.len();
            if asked > MOST_PATHS {
                return;
            }
            let found: Vec<Reached> = sites.iter().map(|site| site.look(path)).collect();
            if let Some(Reached::Nothing(file)) = found.first()
                && found.iter().all(|found| matches!(found, Reached::Nothing(_)))
            {
                let (path, file) = (path.to_owned(), file.clone());
                remarks.push((at, Wrong::said(PathRemark::Nowhere { path, file })));
            } else if is_alone && path != "/" && found.contains(&Reached::Directory) {
                remarks
                    .push((at, Wrong::said(PathRemark::DirectoryAlone { path: path.to_owned() })));
            }
        }
    }
}

/// The result of looking up a path.
#[derive(PartialEq)]
enum Reached {
    /// This file does not exist.
    Nothing(PathBuf),
    Directory,
    /// A file, or something that only a request would show.
    Something,
}

impl<'d> WholeSite<'d> {
    fn new(site: &'d SiteConfig, top: Option<&'d SiteConfig>) -> WholeSite<'d> {
        let inherited = top.iter().flat_map(|top| top.aliases.iter().cloned());
        WholeSite { site, top, mounts: site.mounts().chain(inherited).collect() }
    }

    /// Looks the path up on disk, unless something else answers for it.
    fn look(&self, path: &str) -> Reached {
        if self.has_route_for(path) {
            return Reached::Something;
        }
        let Some((directory, inside)) = locate(self.site, &self.mounts, path) else {
            return Reached::Something;
        };
        match find(directory, inside) {
            // if the root itself cannot be opened, nothing is known about the path
            Err(error) if is_missing(error.kind()) && fs::read_dir(directory).is_ok() => {
                Reached::Nothing(directory.join(inside.trim_matches('/')))
            }
            Ok(()) if is_directory(directory, inside) => Reached::Directory,
            _ => Reached::Something,
        }
    }

    /// Whether something other than a file of that name may answer for the path, or for a path below it.
    fn has_route_for(&self, path: &str) -> bool {
        let sites = || [Some(self.site), self.top].into_iter().flatten();
        let patterns = |site: &'d SiteConfig| {
            let redirects = site.redirects.iter().map(|rule| rule.pattern());
            let rewrites = site.rewrites.iter().map(|rule| rule.pattern());
            redirects.chain(rewrites).chain(site.work.iter().map(|rule| &rule.path))
        };
        let applications = |site: &'d SiteConfig| {
            let proxies = site.proxies.iter().map(ProxyConfig::path);
            let fastcgi = site.fastcgi.iter().map(FastCgiConfig::path);
            let hand_overs = site.hand_overs.iter().map(HandOverConfig::path);
            proxies.chain(fastcgi).chain(hand_overs)
        };
        !self.site.try_files.candidates().is_empty()
            || sites().flat_map(applications).any(|scope| may_answer(&scope, path))
            || sites().flat_map(patterns).any(|pattern| may_match(pattern, path))
            || self.mounts.iter().any(|mount| is_within(mount.path().as_str(), path))
    }
}

/// Whether the pattern may match the path or one below it.
fn may_match(pattern: &Pattern, path: &str) -> bool {
    let start = pattern.as_str().split('*').next().unwrap_or("");
    pattern.is_regex()
        || pattern.matches(path.as_bytes())
        || is_within(start, path)
        || (pattern.captures_len() > 0 && path.starts_with(start))
}

/// Whether an application answers for the path or for one below it.
fn may_answer(scope: &Scope, path: &str) -> bool {
    let (start, has_star) = match scope.as_str().trim_start_matches('=').split_once('*') {
        Some((start, _)) => (start, true),
        None => (scope.as_str().trim_start_matches('='), false),
    };
    scope.contains(path.as_bytes())
        || is_within(start, path)
        || (has_star && path.starts_with(start))
}

/// Whether `path` is `top` or below it.
fn is_within(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn is_directory(directory: &Path, inside: &str) -> bool {
    directory.join(inside.trim_start_matches('/')).is_dir()
}

/// The paths in the rules of a section at which a file or a directory is expected.
fn named<'d>(text: &ConfigReader<'_>, at: &At, site: &'d SiteConfig) -> Vec<NamedPath<'d>> {
    let mut named = Vec::new();
    let place = |list: &str, index, key: &str| at.child(list).item(index).child(key);
    let scopes = [
        ("access", site.access.iter().map(|rule| &rule.paths.path).collect::<Vec<_>>()),
        ("auth", site.auth.iter().map(|rule| &rule.paths.path).collect()),
    ];
    for (list, scopes) in scopes {
        for (index, scope) in scopes.iter().enumerate() {
            if let Some(path) = scope.path() {
                named.push(NamedPath { at: place(list, index, "path"), path, is_alone: false });
            }
        }
    }
    for (at, paths) in guarded(at, site) {
        for (index, open) in paths.except.iter().enumerate() {
            let path = open.path().filter(|_| !open.is_apart(&paths.path));
            named.extend(path.map(|path| {
                let at = text.item(&at.child("except"), index);
                NamedPath { at, path, is_alone: false }
            }));
        }
    }
    for (index, rule) in site.headers.iter().enumerate() {
        let plain = rule.path().filter(|path| !path.is_regex() && path.captures_len() == 0);
        if let Some(path) = plain.map(Pattern::as_str) {
            named.push(NamedPath { at: place("header", index, "path"), path, is_alone: true });
        }
    }
    for (index, rule) in site.redirects.iter().enumerate() {
        let to = fixed(rule.to()).filter(|to| to.starts_with('/') && !to.starts_with("//"));
        if let Some(path) = to.map(|to| to.split(['?', '#']).next().unwrap_or(to)) {
            named.push(NamedPath { at: place("redirect", index, "to"), path, is_alone: false });
        }
    }
    // a path with escapes as in a URL has a remark of its own
    named.retain(|named| !named.path.contains('%'));
    named
}
