//! Symbolic links in a root that lead past the rules of its site: `forebay check` warns of them.
//! Roots may be large, so the search covers the first levels and a limited number of names.

use super::LintSubject;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{Remarks, SiteConfig, guarded};
use forebay_site::rules::{GuardedPaths, Scope};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A symbolic link leads past a rule.
#[derive(Debug)]
struct WayPast {
    /// The path of the rule.
    path: String,
    /// The path of the same file that the rule does not match.
    open: String,
}

impl Finding for WayPast {}

impl fmt::Display for WayPast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WayPast { path, open } = self;
        write!(
            f,
            "{open:?} leads to the same by a symbolic link, and no rule is for that path: protect it, \
                 too, or remove the link; {path:?} is for paths, not for what links lead to"
        )
    }
}

/// A symbolic link that a rule's exception leaves open leads to a file that the rule closes.
#[derive(Debug)]
struct OpenLink {
    /// The path of the link.
    link: String,
    /// The path of the link's target.
    closed: String,
}

impl Finding for OpenLink {}

impl fmt::Display for OpenLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpenLink { link, closed } = self;
        write!(
            f,
            "{link:?} is left open, and is a symbolic link to {closed:?}, which is closed: rules are for paths, not \
             for what links lead to; remove the link, or leave less open"
        )
    }
}

/// The number of levels of directories that are searched; the root is the first.
const LEVELS: usize = 3;
/// The largest number of names that are looked at in one root.
const MOST_ENTRIES: usize = 1000;

/// A file or a directory that a rule protects.
struct Protected<'d> {
    at: At,
    scope: &'d Scope,
    /// The path with symbolic links resolved.
    real: PathBuf,
}

/// Finds links to protected files, at paths that no rule protects.
pub(super) fn linked(of: &LintSubject<'_>, remarks: &mut Remarks) {
    links_past(of, remarks);
    links_left_open(of, remarks);
}

/// Finds links that the exceptions of a rule leave open, to files that the rule closes.
fn links_left_open(of: &LintSubject<'_>, remarks: &mut Remarks) {
    for (at, site) in of.draft.all_sites() {
        let top = (!of.draft.sites.is_empty()).then_some((At::default(), &of.draft.site));
        let sections = [(at, site)].into_iter().chain(top);
        let rules = sections.flat_map(|(at, site)| guarded(&at, site));
        let rules: Vec<_> = rules.filter(|(_, paths)| !paths.except.is_empty()).collect();
        let root = site.root.as_deref().filter(|_| !rules.is_empty());
        let Some(root) = root.and_then(|root| fs::canonicalize(root).ok()) else { continue };
        let links = links(&root, site.hidden);
        for (at, paths) in rules {
            for SymbolicLink { path: link, to } in &links {
                let Ok(inside) = to.strip_prefix(&root) else { continue };
                let closed = format!("/{}", inside.display());
                let is_open =
                    paths.path.contains(link.as_bytes()) && !paths.contains(link.as_bytes());
                if is_open && paths.contains(closed.as_bytes()) {
                    let (link, at) = (link.clone(), at.child("except"));
                    let wrong = Wrong::said(OpenLink { link, closed });
                    remarks.extend(is_new(remarks, &at, &wrong).then_some((at, wrong)));
                }
            }
        }
    }
}

/// Whether the same remark was not yet made at this position.
fn is_new(remarks: &Remarks, at: &At, wrong: &Wrong) -> bool {
    let is_it = |(known, other): &(At, Wrong)| {
        known.exact == at.exact && other.to_string() == wrong.to_string()
    };
    !remarks.iter().any(is_it)
}

/// Finds links to what `[[auth]]` and `[[access]]` protect, at paths that these do not match.
fn links_past(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let top = (!of.draft.sites.is_empty()).then_some((At::default(), &of.draft.site));
    for (at, site) in of.draft.all_sites() {
        let Some(root) = site.root.as_deref().and_then(|root| fs::canonicalize(root).ok()) else {
            continue;
        };
        let sections: Vec<(At, &SiteConfig)> =
            [(at, site)].into_iter().chain(top.clone()).collect();
        for list in ["access", "auth"] {
            let rules: Vec<(At, &GuardedPaths)> =
                sections.iter().flat_map(|(at, site)| rules_of(at, site, list)).collect();
            let protected = rules.iter().filter_map(|(at, paths)| {
                let scope = &paths.path;
                let inside = scope.path()?.trim_matches('/');
                let real = fs::canonicalize(root.join(inside)).ok()?;
                (real.starts_with(&root) && real != root).then(|| (at.clone(), scope, real))
            });
            let protected: Vec<_> =
                protected.map(|(at, scope, real)| Protected { at, scope, real }).collect();
            if protected.is_empty() {
                continue;
            }
            let links = links(&root, site.hidden);
            for Protected { at, scope, real } in protected {
                let is_open = |path: &&String| {
                    !rules.iter().any(|(_, paths)| paths.contains(path.as_bytes()))
                };
                let mut past = links.iter().filter_map(|link| link.path_to(&root, &real));
                let wrong = past
                    .find(|path| is_open(&path))
                    .map(|open| Wrong::said(WayPast { path: scope.to_string(), open }));
                if let Some(wrong) = wrong.filter(|wrong| is_new(remarks, &at, wrong)) {
                    remarks.push((at, wrong));
                }
            }
        }
    }
}

/// The paths of the rules of one list, each with its position in the configuration.
fn rules_of<'s>(at: &At, site: &'s SiteConfig, list: &str) -> Vec<(At, &'s GuardedPaths)> {
    let rules: Vec<&GuardedPaths> = match list {
        "access" => site.access.iter().map(|rule| &rule.paths).collect(),
        _ => site.auth.iter().map(|rule| &rule.paths).collect(),
    };
    let place = |index| at.child(list).item(index).child("path");
    rules.into_iter().enumerate().map(|(index, paths)| (place(index), paths)).collect()
}

/// A symbolic link in a root.
struct SymbolicLink {
    /// The path of the link in the site.
    path: String,
    /// The target, with symbolic links resolved.
    to: PathBuf,
}

impl SymbolicLink {
    /// The path at which the link shows `real`, or something in it. Links that lead out of the root
    /// are not followed.
    fn path_to(&self, root: &Path, real: &Path) -> Option<String> {
        if !self.to.starts_with(root) {
            return None;
        }
        if self.to.starts_with(real) {
            return Some(self.path.clone());
        }
        let rest = real.strip_prefix(&self.to).ok()?;
        Some(format!("{}/{}", self.path, rest.to_str()?))
    }
}

/// The links in the first levels of a root.
fn links(root: &Path, hidden: bool) -> Vec<SymbolicLink> {
    let (mut links, mut left) = (Vec::new(), MOST_ENTRIES);
    let mut level = vec![(root.to_owned(), String::new())];
    for _ in 0..LEVELS {
        let mut next = Vec::new();
        for (directory, path) in level {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if left == 0 {
                    return links;
                }
                left -= 1;
                let name = entry.file_name();
                let (Some(text), Ok(kind)) = (name.to_str(), entry.file_type()) else { continue };
                if name.as_bytes().starts_with(b".") && !hidden {
                    continue;
                }
                let path = format!("{path}/{text}");
                if kind.is_dir() {
                    next.push((entry.path(), path));
                } else if kind.is_symlink()
                    && let Ok(to) = fs::canonicalize(entry.path())
                {
                    links.push(SymbolicLink { path, to });
                }
            }
        }
        level = next;
    }
    links
}
