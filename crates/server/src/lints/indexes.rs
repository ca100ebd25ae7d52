//! Rules that match a directory but not its index file, or the other way round: `forebay check`
//! warns of them. Rules see the path of the request, and both paths lead to the same page.

use super::LintSubject;
use super::pages::find;
use forebay_config::draft::numbered;
use forebay_config::idle_rules::meets;
use forebay_config::pages::locate;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{ConfigDraft, Remarks, RuleConfig, SiteConfig};
use forebay_site::rules::Alias;
use std::fmt;

/// A rule for only one of the two paths of an index page.
#[derive(Debug)]
struct IndexRemark {
    /// The path that the rule matches.
    path: String,
    /// The other path.
    other: String,
}

impl Finding for IndexRemark {}

impl fmt::Display for IndexRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IndexRemark { path, other } = self;
        write!(
            f,
            "what answers at {path:?} is had at {other:?}, too, and no rule is about that: rules see \
                 the path that is asked for; write path = [{path:?}, {other:?}]"
        )
    }
}

/// The largest number of paths that are looked up on disk.
const MOST_PATHS: usize = 1000;

/// Finds paths without a star in rules that lead to an index page, while no rule
/// matches the page's other path.
pub(super) fn indexes(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let mut asked = 0;
    for (at, rule) in numbered("rule", &of.draft.rules) {
        for (index, pattern) in rule.conditions.path.0.iter().enumerate() {
            let path = pattern.as_str();
            if !path.starts_with('/') || path.contains('*') {
                continue;
            }
            asked += 1;
            if asked > MOST_PATHS {
                return;
            }
            let mut sites = of.draft.all_sites().into_iter().filter(|(_, site)| is_for(rule, site));
            if let Some(other) = sites.find_map(|(_, site)| other_path(of.draft, site, path))
                && !of.draft.rules.iter().any(|by| covers(by, rule, &other))
            {
                let at = of.text.item(&at.child("path"), index);
                remarks.push((at, Wrong::said(IndexRemark { path: path.to_owned(), other })));
            }
        }
    }
}

/// The other path with the same index page.
fn other_path(draft: &ConfigDraft, site: &SiteConfig, path: &str) -> Option<String> {
    let inherited = draft.site.aliases.iter().cloned();
    let mounts: Vec<Alias> = site.mounts().chain(inherited).collect();
    let is_there = |path: &str| {
        locate(site, &mounts, path).is_some_and(|(root, inside)| find(root, inside).is_ok())
    };
    if path.ends_with('/') {
        let files = site.index.iter().map(|index| format!("{path}{index}"));
        return { files }.find(|file| is_there(file));
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_index = site.index.iter().any(|index| index == name) && is_there(path);
    is_index.then(|| path[..path.len() - name.len()].to_owned())
}

fn is_for(rule: &RuleConfig, site: &SiteConfig) -> bool {
    let asked_for = &rule.conditions.site.0;
    asked_for.is_empty()
        || asked_for.iter().any(|asked| site.hosts.iter().any(|host| meets(asked, host)))
}

/// Whether the rule `by` matches the path, and decides one of the settings that the rule `beside`
/// decides, or stops.
fn covers(by: &RuleConfig, beside: &RuleConfig, path: &str) -> bool {
    let mut settings = by.decides().into_iter().zip(beside.decides());
    by.conditions.path.0.iter().any(|pattern| pattern.matches(path.as_bytes()))
        && (by.stop || settings.any(|(one, other)| one && other))
}
