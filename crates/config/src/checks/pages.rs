//! Error pages that no client would see, and the places of a site's paths on the disk, which is not read.

use crate::SiteConfig;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::sections::fastcgi::FastCgiConfig;
use forebay_site::rules::{Alias, ErrorPage, Route, Template, TemplatePart};
use std::fmt;
use std::path::Path;

/// Why clients do not see an error page.
#[derive(Debug)]
enum ErrorPageRemark {
    /// An error page for refused clients that is itself protected.
    Unseen {
        /// The path of the page.
        path: String,
    },
    /// An error page that an application runs.
    IsScript {
        /// The path of the page.
        path: String,
    },
}

impl Finding for ErrorPageRemark {}

impl fmt::Display for ErrorPageRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorPageRemark::Unseen { path } => write!(
                f,
                "clients that are refused do not see {path:?}, because a rule of auth or access \
                 protects it, too: they get a short page of Forebay's own"
            ),
            ErrorPageRemark::IsScript { path } => write!(
                f,
                "{path:?} is a script, which is not run for an error: clients get a short page of \
                 Forebay's own; name a file that is sent as it is"
            ),
        }
    }
}

impl ConfigDraft {
    /// Remarks on error pages that no client sees: pages for refused clients that rules protect themselves,
    /// and scripts.
    pub(crate) fn remark_unseen(&self, remarks: &mut Remarks) {
        for (at, site) in self.all_sites() {
            for page in site.errors.0.iter().filter(|page| self.is_protected(site, page)) {
                let at = at.child("errors").child(&page.status().to_string());
                remarks.push((
                    at,
                    Wrong::said(ErrorPageRemark::Unseen { path: page.path().to_owned() }),
                ));
            }
            for page in site.errors.0.iter().filter(|page| self.is_script(site, page)) {
                let at = at.child("errors").child(&page.status().to_string());
                remarks.push((
                    at,
                    Wrong::said(ErrorPageRemark::IsScript { path: page.path().to_owned() }),
                ));
            }
        }
    }

    /// Whether the page is for clients that rules refuse, while rules protect the page, too.
    fn is_protected(&self, site: &SiteConfig, page: &ErrorPage) -> bool {
        // rules of the top level hold for every site
        let sites = [site, &self.site];
        let access = sites.iter().flat_map(|site| &site.access).map(|rule| &rule.paths);
        let auth = sites.iter().flat_map(|site| &site.auth).map(|rule| &rule.paths);
        let is_for_refused = matches!(page.status(), 401 | 403);
        is_for_refused && access.chain(auth).any(|paths| paths.contains(page.path().as_bytes()))
    }

    /// Whether an application runs the page.
    fn is_script(&self, site: &SiteConfig, page: &ErrorPage) -> bool {
        // routes of the top level hold for every site
        let sites = [site, &self.site];
        let mut routes = sites.iter().flat_map(|site| &site.fastcgi).map(FastCgiConfig::route);
        routes.any(|route| runs(&route, page.path().as_bytes()))
    }
}

/// Whether a route is for a path, and runs files with such a name.
fn runs(route: &Route, path: &[u8]) -> bool {
    let scripts = route.scripts.as_ref().filter(|_| route.path.contains(path));
    scripts.is_some_and(|scripts| scripts.ending.is_of(path))
}

/// The directory that a path of the site is in, and the path within it.
pub fn locate<'l>(
    site: &'l SiteConfig,
    mounts: &'l [Alias],
    path: &'l str,
) -> Option<(&'l Path, &'l str)> {
    let name = |mount: &'l Alias| Some((mount.to.as_path(), mount.file_name_at(path)?));
    if let Some(file) = mounts.iter().find_map(name) {
        return Some(file);
    }
    let directories = mounts.iter().filter(|mount| mount.file().is_none());
    let aliased = directories.filter_map(|mount| {
        let inside = path.strip_prefix(mount.path().as_str())?;
        inside.starts_with('/').then_some((mount.to.as_path(), inside))
    });
    let longest = aliased.min_by_key(|(_, inside)| inside.len());
    longest.or_else(|| Some((site.root.as_deref()?, path)))
}

/// The path that a template always gives, if that does not depend on the request.
pub fn fixed(template: &Template) -> Option<&str> {
    match template.parts() {
        [TemplatePart::Text(text)] => Some(text),
        _ => None,
    }
}
