//! Files of a site that its settings name: `forebay check` warns of those that are not there.

use super::SiteConfig;
use super::draft::ConfigDraft;
use super::fastcgi::FastCgiConfig;
use super::path::Path as At;
use super::problem::Wrong;
use super::remarks::Remarks;
use forebay_site::rules::{Alias, ErrorPage, Route, Template, TemplatePart, TryFile};
use forebay_sys::file::{self, FileKind};
use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

impl ConfigDraft {
    /// Error pages, the page that `try_files` ends with, and what rewrites lead to.
    pub(crate) fn remark_pages(&self, remarks: &mut Remarks) {
        // what several sites inherit is told once
        let mut told: HashSet<(PathBuf, String)> = HashSet::new();
        for (at, site) in self.all_sites() {
            let inherited = self.site.aliases.iter().cloned();
            let mounts: Vec<Alias> = site.mounts().chain(inherited).collect();
            let mut look = |at: At, path: &str, open: fn(&Path, &str) -> io::Result<()>| {
                let Some((directory, inside)) = locate(site, &mounts, path) else { return };
                if told.insert((directory.to_owned(), inside.to_owned()))
                    && let Err(error) = open(directory, inside)
                {
                    let path = PathBuf::from(format!("{}{inside}", directory.display()));
                    remarks.push((at, Wrong::NoFile { path, error }));
                }
            };
            for page in &site.errors.0 {
                let at = at.child("errors").child(&page.status().to_string());
                look(at, page.path(), open_page);
            }
            let candidates = site.try_files.candidates();
            if let Some(TryFile::Path(template)) = candidates.last()
                && let Some(path) = fixed(template)
            {
                look(at.child("try_files").item(candidates.len() - 1), path, find);
            }
            // what is tried then may be there
            let inherited = self.site.rewrites.iter().enumerate();
            let inherited = inherited.filter(|_| !self.sites.is_empty());
            let own = site.rewrites.iter().enumerate().map(|rule| (&at, rule));
            let top = At::default();
            for (at, (index, rule)) in own.chain(inherited.map(|rule| (&top, rule))) {
                if let Some(path) = fixed(rule.to()).filter(|_| candidates.is_empty()) {
                    look(at.child("rewrite").item(index).child("to"), path, find);
                }
            }
        }
    }

    /// Error pages that no client sees: those for clients that rules refuse, which rules protect, and scripts.
    pub(super) fn remark_unseen(&self, remarks: &mut Remarks) {
        for (at, site) in self.all_sites() {
            for page in site.errors.0.iter().filter(|page| self.is_protected(site, page)) {
                let at = at.child("errors").child(&page.status().to_string());
                remarks.push((at, Wrong::Unseen { path: page.path().to_owned() }));
            }
            for page in site.errors.0.iter().filter(|page| self.is_script(site, page)) {
                let at = at.child("errors").child(&page.status().to_string());
                remarks.push((at, Wrong::PageIsScript { path: page.path().to_owned() }));
            }
        }
    }

    /// Whether the page is for clients that rules refuse, and rules protect it.
    fn is_protected(&self, site: &SiteConfig, page: &ErrorPage) -> bool {
        // what the top level says holds for every site
        let sites = [site, &self.site];
        let access = sites.iter().flat_map(|site| &site.access).map(|rule| &rule.path);
        let auth = sites.iter().flat_map(|site| &site.auth).map(|rule| &rule.path);
        let is_for_refused = matches!(page.status(), 401 | 403);
        is_for_refused && access.chain(auth).any(|scope| scope.contains(page.path().as_bytes()))
    }

    /// Whether an application runs the page.
    fn is_script(&self, site: &SiteConfig, page: &ErrorPage) -> bool {
        // what the top level says holds for every site
        let sites = [site, &self.site];
        let mut routes = sites.iter().flat_map(|site| &site.fastcgi).map(FastCgiConfig::route);
        routes.any(|route| runs(&route, page.path().as_bytes()))
    }
}

/// Whether a route is for a path, and runs what has such a name.
fn runs(route: &Route, path: &[u8]) -> bool {
    let scripts = route.scripts.as_ref().filter(|_| route.path.contains(path));
    scripts.is_some_and(|scripts| scripts.ending.is_of(path))
}

/// The directory that a path of the site is in, and where in it.
pub(crate) fn locate<'l>(
    site: &'l SiteConfig,
    mounts: &'l [Alias],
    path: &'l str,
) -> Option<(&'l Path, &'l str)> {
    let aliased = mounts.iter().filter_map(|mount| {
        let inside = path.strip_prefix(mount.path().as_str())?;
        inside.starts_with('/').then_some((mount.to.as_path(), inside))
    });
    let longest = aliased.min_by_key(|(_, inside)| inside.len());
    longest.or_else(|| Some((site.root.as_deref()?, path)))
}

/// The path that a template is whatever is asked for.
pub(crate) fn fixed(template: &Template) -> Option<&str> {
    match template.parts() {
        [TemplatePart::Text(text)] => Some(text),
        _ => None,
    }
}

/// Opens an error page as the server does: beneath its root, and never to wait.
fn open_page(root: &Path, path: &str) -> io::Result<()> {
    let root = file::open_directory(root)?;
    let path = path.trim_start_matches('/').as_bytes();
    let found = file::find_beneath(root.as_fd(), path)?;
    if file::stamp(found.as_fd())?.kind != FileKind::Regular {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    file::open_beneath(root.as_fd(), path).map(drop)
}

/// Finds a file or a directory as the server does.
pub(super) fn find(root: &Path, path: &str) -> io::Result<()> {
    let root = file::open_directory(root)?;
    let path = match path.trim_matches('/') {
        "" => ".",
        path => path,
    };
    file::find_beneath(root.as_fd(), path.as_bytes()).map(drop)
}
