//! Remarks on paths that rules about clients close, and on those they leave open.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::table::ConfigReader;
use crate::{ForwardAuth, SiteConfig};
use forebay_site::rules::{GuardedPaths, Scope};
use std::fmt;

/// A remark about an exception of a rule about clients.
#[derive(Debug)]
enum ExceptionRemark {
    /// The exception has no path in common with the rule.
    Outside {
        /// The path of the exception.
        open: String,
        /// The paths of the rule.
        path: String,
    },
    /// The page to which unknown users are redirected is closed by the rule that redirects them.
    SignInClosed {
        /// The path of the sign-in page.
        path: String,
    },
    /// The exception opens a folder without its index.
    IndexClosed {
        /// The path of the exception.
        open: String,
        /// The path of the index.
        index: String,
    },
}

impl Finding for ExceptionRemark {}

impl fmt::Display for ExceptionRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExceptionRemark::Outside { open, path } => write!(
                f,
                "{open:?} opens nothing: the rule is for {path:?}, which has no such path; an exception is \
                 written whole, as path is"
            ),
            ExceptionRemark::SignInClosed { path } => write!(
                f,
                "{path:?} is closed by this rule itself, which leads people there again and again: add it to except"
            ),
            ExceptionRemark::IndexClosed { open, index } => write!(
                f,
                "{open:?} stays closed where the index of the folder answers, which is a path of its own: add \
                 \"={index}\""
            ),
        }
    }
}

/// The paths of a site's rules about clients, each with the place of its rule.
pub fn guarded<'s>(at: &At, site: &'s SiteConfig) -> Vec<(At, &'s GuardedPaths)> {
    let access = site.access.iter().map(|rule| &rule.paths).collect::<Vec<_>>();
    let auth = site.auth.iter().map(|rule| &rule.paths).collect();
    let asks = site.authorities.iter().map(ForwardAuth::paths).collect();
    let of_list = |(list, rules): (&str, Vec<&'s GuardedPaths>)| {
        let list = at.child(list);
        let rules = rules.into_iter().enumerate();
        rules.map(|(index, paths)| (list.item(index), paths)).collect::<Vec<_>>()
    };
    [("access", access), ("auth", auth), ("forward_auth", asks)]
        .into_iter()
        .flat_map(of_list)
        .collect()
}

impl ConfigDraft {
    /// Remarks on exceptions that open nothing, and on one that is missing.
    pub(crate) fn remark_exceptions(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        for (at, site) in self.every_site() {
            for (index, rule) in site.authorities.iter().enumerate() {
                let closed =
                    rule.sign_in_path().filter(|path| rule.paths().contains(path.as_bytes()));
                let at = at.child("forward_auth").item(index).child("sign_in");
                let remark = |path: &str| ExceptionRemark::SignInClosed { path: path.to_owned() };
                remarks.extend(closed.map(|path| (at, Wrong::said(remark(path)))));
            }
            for (at, paths) in guarded(&at, site) {
                for (index, open) in paths.except.iter().enumerate() {
                    if let Some(remark) = useless(open, paths, site) {
                        let at = text.item(&at.child("except"), index);
                        remarks.push((at, Wrong::said(remark)));
                    }
                }
            }
        }
    }
}

/// The remark about an exception, if it does not do what is meant.
fn useless(open: &Scope, paths: &GuardedPaths, site: &SiteConfig) -> Option<ExceptionRemark> {
    if open.is_apart(&paths.path) {
        let (open, path) = (open.to_string(), paths.path.to_string());
        return Some(ExceptionRemark::Outside { open, path });
    }
    // one path alone, as `=/`
    let folder = open.as_str().strip_prefix('=').filter(|path| path.ends_with('/'))?;
    let index = format!("{folder}{}", site.index.first().filter(|_| site.root.is_some())?);
    let is_closed = paths.contains(index.as_bytes());
    is_closed.then(|| ExceptionRemark::IndexClosed { open: open.to_string(), index })
}
