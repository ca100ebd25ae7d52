//! Checks that no two sites answer for a host, that every site has something to answer with, and that none
//! has two things for one path.

use crate::checks::text::Text;
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong, see};
use crate::problems::quoted::quote;
use crate::problems::text_place::TextPlace;
use crate::reading::draft::ConfigDraft;
use crate::{CgiConfig, FastCgiConfig, HandOverConfig};
use forebay_site::rules::SiteName;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// A fault between sites.
#[derive(Debug)]
enum SiteFault {
    /// A second site without hosts.
    SecondDefault {
        /// The name of the first site.
        first: String,
        /// The line and column of the first site.
        place: Option<TextPlace>,
    },
    /// A list that only a `[[site]]` may have stands at the top level beside such sites.
    BelongsToSite,
}

impl Finding for SiteFault {}

impl fmt::Display for SiteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SiteFault::SecondDefault { first, place } => {
                write!(
                    f,
                    "a site without hosts is the default site, and the site {first:?} is that \
                     already"
                )?;
                see(f, place)?;
                write!(f, "; give one of them hosts")
            }
            SiteFault::BelongsToSite => {
                write!(f, "cannot be inherited, set it in the [[site]] that it is for")
            }
        }
    }
}

impl ConfigDraft {
    /// Checks that no two sites answer for a host, and that no two have the same name.
    pub(crate) fn check_hosts(&self, text: Text<'_>, wrong: &mut Vec<(At, Wrong)>) {
        let mut hosts: HashMap<(&str, bool), (SiteName, At)> = HashMap::new();
        let mut names: HashMap<SiteName, At> = HashMap::new();
        let mut default: Option<(SiteName, At)> = None;
        for (path, site) in self.all_sites() {
            let mut is_taken = false;
            for (index, host) in site.hosts.iter().enumerate() {
                let at = path.child("hosts").item(index);
                let key = (host.name(), host.is_wildcard());
                if let Some((by, first)) = hosts.get(&key) {
                    let by = match host.as_str().eq_ignore_ascii_case(&by.to_string()) {
                        true => "another site".to_owned(),
                        false => format!("the site \"{by}\""),
                    };
                    let found = quote(host.as_str());
                    wrong.push((at, Wrong::Taken { found, by, place: text.place(first) }));
                    is_taken = true;
                } else {
                    hosts.insert(key, (site.name(), at));
                }
            }
            if site.hosts.is_empty() {
                if let Some((first, at)) = &default {
                    let (first, place) = (first.to_string(), text.place(at));
                    wrong.push((
                        path.clone(),
                        Wrong::said(SiteFault::SecondDefault { first, place }),
                    ));
                    continue;
                }
                default = Some((site.name(), path.clone()));
            }
            // a site without a name is named after its first host,
            // so the host's fault would be reported twice
            if is_taken && site.name.is_none() {
                continue;
            }
            let at = path.child("name");
            if let Some(first) = names.get(&site.name()) {
                let found = format!("the name \"{}\"", site.name());
                let by = "another site".to_owned();
                wrong.push((at, Wrong::Taken { found, by, place: text.place(first) }));
            } else {
                names.insert(site.name(), at);
            }
        }
        if !self.sites.is_empty() {
            let top = At::default();
            if self.site.name.is_some() {
                wrong.push((top.child("name"), Wrong::said(SiteFault::BelongsToSite)));
            }
            if !self.site.hosts.is_empty() {
                wrong.push((top.child("hosts"), Wrong::said(SiteFault::BelongsToSite)));
            }
        }
    }

    /// Checks that every site has something to answer with.
    pub(crate) fn check_roots(&self, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.all_sites() {
            let has_answers = site.has_answers() || self.site.has_answers();
            if site.root.is_none() && !has_answers && !self.passes_all_on() {
                let example = "root = \"/srv/www\"".to_owned();
                wrong.push((path.child("root"), Wrong::Missing { example }));
            }
        }
    }

    /// Checks that no site has two directories beneath the same path.
    pub(crate) fn check_aliases(&self, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.every_site() {
            let mut known = HashSet::new();
            for (index, alias) in site.aliases.iter().enumerate() {
                if !known.insert(alias.path().as_str()) {
                    let at = path.child("alias").item(index).child("path");
                    wrong.push((at, Wrong::Repeated { found: alias.path().to_string() }));
                }
            }
        }
    }

    /// Checks that no site has two routes to applications, or one and an alias, for the same path.
    pub(crate) fn check_routes(&self, text: Text<'_>, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.every_site() {
            let mut known: HashMap<String, At> = HashMap::new();
            for (index, alias) in site.aliases.iter().enumerate() {
                let at = path.child("alias").item(index).child("path");
                known.entry(alias.path().to_string()).or_insert(at);
            }
            let place = |list, index| path.child(list).item(index).child("path");
            // a route with conditions leaves requests for another one
            let proxies = site.proxies.iter().enumerate();
            let proxies = proxies.filter(|(_, proxy)| proxy.conditions().is_empty());
            let proxies = proxies.map(|(index, proxy)| (place("proxy", index), proxy.path()));
            let fastcgi = site.fastcgi.iter().map(FastCgiConfig::path).enumerate();
            let fastcgi = fastcgi.map(|(index, scope)| (place("fastcgi", index), scope));
            let hand_overs = site.hand_overs.iter().map(HandOverConfig::path).enumerate();
            let hand_overs = hand_overs.map(|(index, scope)| (place("hand_over", index), scope));
            let cgi = site.cgi.iter().map(CgiConfig::path).enumerate();
            let cgi = cgi.map(|(index, scope)| (place("cgi", index), scope));
            for (at, scope) in proxies.chain(fastcgi).chain(hand_overs).chain(cgi) {
                let plain = scope.as_str().strip_suffix('/').unwrap_or(scope.as_str());
                if let Some(first) = known.get(plain) {
                    let (found, by) = (quote(scope.as_str()), first.shown.clone());
                    wrong.push((at, Wrong::Taken { found, by, place: text.place(first) }));
                } else {
                    known.insert(plain.to_owned(), at);
                }
            }
        }
    }
}
