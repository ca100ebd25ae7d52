//! Remarks on rules that decide nothing: for hosts that no site has, or behind a rule that decides
//! everything that they would.

use crate::RuleConfig;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong, did_you_mean, see};
use crate::problems::text_place::TextPlace;
use crate::reading::draft::{ConfigDraft, numbered};
use crate::table::ConfigReader;
use forebay_policy::near::nearest;
use forebay_policy::pattern::SitePattern;
use forebay_site::rules::Host;
use std::fmt;

/// Why a rule decides nothing.
#[derive(Debug)]
enum IdleRule {
    /// A rule for a host that no site has.
    Unserved {
        /// The host of the rule.
        found: String,
        /// The host of a site that is probably meant.
        near: Option<String>,
    },
    /// A rule that never decides anything.
    Outdone {
        /// The name of the earlier rule that decides instead.
        by: String,
        /// The line and column of the earlier rule.
        place: Option<TextPlace>,
    },
}

impl Finding for IdleRule {}

impl fmt::Display for IdleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdleRule::Unserved { found, near } => {
                write!(f, "no site answers for {found:?}")?;
                did_you_mean(f, near.as_deref())
            }
            IdleRule::Outdone { by, place } => {
                write!(f, "decides nothing: the rule {by:?} before it fits everything")?;
                see(f, place)?;
                write!(f, "; the first match per setting counts, put the special rule first")
            }
        }
    }
}

impl ConfigDraft {
    /// Remarks on rules for hosts that no site has. A site without hosts has them all.
    pub(crate) fn remark_hosts(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let sites = self.all_sites();
        if sites.iter().any(|(_, site)| site.hosts.is_empty()) {
            return;
        }
        let hosts: Vec<&Host> = sites.iter().flat_map(|(_, site)| &site.hosts).collect();
        for (at, rule) in numbered("rule", &self.rules) {
            for (index, asked) in rule.conditions.site.0.iter().enumerate() {
                if !hosts.iter().any(|host| meets(asked, host)) {
                    let found = asked.as_str().to_owned();
                    let near = nearest(&found, hosts.iter().map(|host| host.as_str()));
                    let wrong =
                        Wrong::said(IdleRule::Unserved { near: near.map(str::to_owned), found });
                    remarks.push((text.item(&at.child("site"), index), wrong));
                }
            }
        }
    }

    /// Remarks on rules behind one that fits every request and decides everything that they would.
    pub(crate) fn remark_order(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let mut general: Vec<(usize, At, &RuleConfig)> = Vec::new();
        for (index, (at, rule)) in numbered("rule", &self.rules).enumerate() {
            if let Some((first, place, by)) = general.iter().find(|(.., by)| by.outdoes(rule)) {
                let place = text.place(&place.exact);
                remarks.push((at, Wrong::said(IdleRule::Outdone { by: by.name(*first), place })));
            } else if rule.fits_always() {
                general.push((index, at, rule));
            }
        }
    }
}

/// Whether a host exists that both patterns fit.
pub fn meets(asked: &SitePattern, host: &Host) -> bool {
    let text = asked.as_str().to_ascii_lowercase();
    let is_below =
        |name: &str, top: &str| name.strip_suffix(top).is_some_and(|front| front.ends_with('.'));
    match (text.strip_prefix("*."), host.is_wildcard()) {
        (None, _) => host.covers(&text),
        (Some(top), false) => is_below(host.name(), top),
        (Some(top), true) => {
            top == host.name() || is_below(top, host.name()) || is_below(host.name(), top)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_meets_a_host_if_one_name_is_both() {
        for (asked, host, expected) in [
            ("Shop.example", "shop.example", true),
            ("shop.example", "shop2.example", false),
            ("www.shop.example", "*.shop.example", true),
            ("shop.example", "*.shop.example", false),
            ("*.shop.example", "www.shop.example", true),
            ("*.shop.example", "shop.example", false),
            ("*.shop.example", "*.shop.example", true),
            ("*.shop.example", "*.example", true),
            ("*.example", "*.shop.example", true),
            ("*.hop.example", "*.shop.example", false),
        ] {
            let (pattern, name) = (SitePattern::parse(asked).unwrap(), Host::parse(host).unwrap());
            assert_eq!(meets(&pattern, &name), expected, "{asked} {host}");
        }
    }
}
