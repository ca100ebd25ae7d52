//! What must hold between settings. Where two places are at odds, the message names both.

use crate::checks::redirects;
use crate::checks::remarks::item;
use crate::problems::path::Path as At;
use crate::problems::problem::Wrong;
use crate::problems::quoted::quote;
use crate::reading::draft::ConfigDraft;
use crate::table::ConfigReader;
use crate::{
    AccessLog, AdminConfig, AskClients, ControlSocketChoice, FastCgiConfig, Listen, ListenEndpoint,
    LogFormat, ProxyConfig, SiteConfig,
};
use forebay_policy::near::nearest;
use forebay_site::rules::SiteName;
use forebay_sys::unix_address::UnixAddress;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Component, Path};

/// Line and column.
type LineColumn = Option<(usize, usize)>;

/// Finds where something stands by its [`exact`](At::exact) path.
type Find<'f> = &'f dyn Fn(&str) -> LineColumn;

impl ConfigDraft {
    /// What is wrong between its settings, each with where it stands. `text` is what they were read
    /// from, if from a text. Touches no file.
    pub fn problems(&self, text: Option<&ConfigReader<'_>>) -> Vec<(At, Wrong)> {
        let find: Find<'_> = &|exact| text?.place(exact);
        let mut wrong = Vec::new();
        self.check_hosts(find, &mut wrong);
        self.check_addresses(text, find, &mut wrong);
        self.check_proxies(&mut wrong);
        self.check_tls(text, &mut wrong);
        self.check_acme(text, &mut wrong);
        self.check_admin(text, &mut wrong);
        self.check_roots(&mut wrong);
        self.check_aliases(&mut wrong);
        self.check_routes(find, &mut wrong);
        self.check_logs(find, &mut wrong);
        self.check_log_names(&mut wrong);
        self.check_redirects(&mut wrong);
        self.check_policy(text, &mut wrong);
        self.check_isolated(&mut wrong);
        wrong
    }

    /// No two sites answer for a host, or have a name.
    fn check_hosts(&self, find: Find<'_>, wrong: &mut Vec<(At, Wrong)>) {
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
                    wrong.push((at, Wrong::Taken { found, by, place: find(&first.exact) }));
                    is_taken = true;
                } else {
                    hosts.insert(key, (site.name(), at));
                }
            }
            if site.hosts.is_empty() {
                if let Some((first, at)) = &default {
                    let (first, place) = (first.to_string(), find(&at.exact));
                    wrong.push((path.clone(), Wrong::SecondDefault { first, place }));
                    continue;
                }
                default = Some((site.name(), path.clone()));
            }
            if is_taken && site.name.is_none() {
                continue;
            }
            let at = path.child("name");
            if let Some(first) = names.get(&site.name()) {
                let found = format!("the name \"{}\"", site.name());
                let by = "another site".to_owned();
                wrong.push((at, Wrong::Taken { found, by, place: find(&first.exact) }));
            } else {
                names.insert(site.name(), at);
            }
        }
        if !self.sites.is_empty() {
            let top = At::default();
            if self.site.name.is_some() {
                wrong.push((top.child("name"), Wrong::BelongsToSite));
            }
            if !self.site.hosts.is_empty() {
                wrong.push((top.child("hosts"), Wrong::BelongsToSite));
            }
        }
    }

    /// No two sockets want the same address.
    fn check_addresses(
        &self,
        text: Option<&ConfigReader<'_>>,
        find: Find<'_>,
        wrong: &mut Vec<(At, Wrong)>,
    ) {
        let listeners = self.all_listeners();
        let mut known: Vec<(&Listen, At)> = Vec::new();
        for (path, listener) in &listeners {
            if listener.listen.is_empty() {
                let example = "listen = [\"127.0.0.1:8080\"]".to_owned();
                wrong.push((path.child("listen"), Wrong::Missing { example }));
            }
            for (index, endpoint) in listener.listen.iter().enumerate() {
                let (at, listen) = (path.child("listen").item(index), &endpoint.listen);
                let other = known.iter().find(|(other, _)| overlap(listen, other));
                if let Some((other, first)) = other {
                    wrong.push((at, overlapping(listen, other, first, find)));
                } else {
                    known.push((listen, at));
                }
            }
        }
        let control = match &self.process.control.socket {
            ControlSocketChoice::At(path) => Some(Listen::Unix(UnixAddress::Path(path.clone()))),
            ControlSocketChoice::Auto | ControlSocketChoice::Off => None,
        };
        let admin = self.admin_endpoints(text).into_iter();
        let admin = admin.map(|(at, endpoint)| (at, endpoint.listen.clone()));
        let control = control.map(|listen| (At::default().child("control.socket"), listen));
        let others: Vec<_> = admin.chain(control).collect();
        for (at, listen) in &others {
            if let Some((other, first)) = known.iter().find(|(other, _)| overlap(listen, other)) {
                wrong.push((at.clone(), overlapping(listen, other, first, find)));
            } else {
                known.push((listen, at.clone()));
            }
        }
    }

    /// Where the admin listener is, and where that stands.
    pub fn admin_endpoints(&self, text: Option<&ConfigReader<'_>>) -> Vec<(At, &ListenEndpoint)> {
        let list = At::default().child("admin").child("listen");
        let at = |index| match text {
            Some(text) => item(text, &list, index),
            None => list.clone(),
        };
        let endpoints = self.process.admin.listen.0.iter().enumerate();
        endpoints.map(|(index, endpoint)| (at(index), endpoint)).collect()
    }

    /// Where the admin listener speaks TLS it has a certificate, and its tokens go nowhere in clear.
    fn check_admin(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Vec<(At, Wrong)>) {
        let AdminConfig { pairs, token_file, .. } = &self.process.admin;
        let top = At::default();
        let certificate = top.child("admin").child("tls").child("certificate");
        let (certificates, keys) = (pairs.certificates.len(), pairs.keys.len());
        if certificates != keys {
            wrong.push((certificate.clone(), Wrong::Unpaired { certificates, keys }));
        }
        // one that cannot be read is told by itself
        let has_one = !pairs.is_empty() || text.is_some_and(|text| text.says(&certificate));
        for (at, ListenEndpoint { listen, tls }) in self.admin_endpoints(text) {
            if *tls && !has_one {
                wrong.push((at, Wrong::NoAdminCertificate));
            } else if !tls && token_file.is_some() && !listen.is_of_this_machine() {
                wrong.push((at, Wrong::TokenInClear { listen: listen.to_string() }));
            }
        }
    }

    /// Each certificate has its key, and where TLS is spoken there is one.
    fn check_tls(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.every_site() {
            let pairs = &site.tls.pairs;
            let (certificates, keys) = (pairs.certificates.len(), pairs.keys.len());
            if certificates != keys {
                wrong.push((path.child("tls.certificate"), Wrong::Unpaired { certificates, keys }));
            }
            if site.tls.clients.asked == AskClients::Off {
                continue;
            }
            // one that cannot be read is told by itself
            let lacks = |key: &str, is_empty: bool| {
                is_empty && !text.is_some_and(|text| text.says(&path.child(key)))
            };
            if lacks("tls.client_ca", site.tls.clients.authorities.is_empty()) {
                wrong.push((path.child("tls.client"), Wrong::NoClientAuthority));
            }
            if lacks("tls.certificate", !site.tls.acme && pairs.is_empty()) {
                wrong.push((path.child("tls.client"), Wrong::ClientsWithoutCertificate));
            }
        }
        // one that cannot be read is told by itself
        let says_one =
            |path: &At| text.is_some_and(|text| text.says(&path.child("tls.certificate")));
        let has_one = |(path, site): &(At, &SiteConfig)| {
            !site.tls.pairs.is_empty() || site.tls.acme || says_one(path)
        };
        if self.every_site().iter().any(has_one) {
            return;
        }
        for (path, listener) in self.all_listeners() {
            let endpoints = listener.listen.iter().enumerate();
            for (index, _) in endpoints.filter(|(_, endpoint)| endpoint.tls) {
                wrong.push((path.child("listen").item(index), Wrong::NoCertificate));
            }
        }
    }

    /// A listener for proxies has proxies.
    fn check_proxies(&self, wrong: &mut Vec<(At, Wrong)>) {
        if !self.process.trusted_proxies.is_empty() {
            return;
        }
        for (path, _) in self.all_listeners().iter().filter(|(_, l)| l.proxy_protocol) {
            wrong.push((path.child("proxy_protocol"), Wrong::NoProxy));
        }
    }

    /// Every site has something to answer with.
    fn check_roots(&self, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.all_sites() {
            let has_answers = site.has_answers() || self.site.has_answers();
            if site.root.is_none() && !has_answers {
                let example = "root = \"/srv/www\"".to_owned();
                wrong.push((path.child("root"), Wrong::Missing { example }));
            }
        }
    }

    /// No site has two directories beneath the same path.
    fn check_aliases(&self, wrong: &mut Vec<(At, Wrong)>) {
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

    /// No site has two routes to applications, or one and an alias, for the same path.
    fn check_routes(&self, find: Find<'_>, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.every_site() {
            let mut known: HashMap<String, At> = HashMap::new();
            for (index, alias) in site.aliases.iter().enumerate() {
                let at = path.child("alias").item(index).child("path");
                known.entry(alias.path().to_string()).or_insert(at);
            }
            let place = |list, index| path.child(list).item(index).child("path");
            let proxies = site.proxies.iter().map(ProxyConfig::path).enumerate();
            let proxies = proxies.map(|(index, scope)| (place("proxy", index), scope));
            let fastcgi = site.fastcgi.iter().map(FastCgiConfig::path).enumerate();
            let fastcgi = fastcgi.map(|(index, scope)| (place("fastcgi", index), scope));
            for (at, scope) in proxies.chain(fastcgi) {
                let plain = scope.as_str().strip_suffix('/').unwrap_or(scope.as_str());
                if let Some(first) = known.get(plain) {
                    let (found, by) = (quote(scope.as_str()), first.shown.clone());
                    wrong.push((at, Wrong::Taken { found, by, place: find(&first.exact) }));
                } else {
                    known.insert(plain.to_owned(), at);
                }
            }
        }
    }

    /// No log is where clients could read it, and none is written in two ways.
    fn check_logs(&self, find: Find<'_>, wrong: &mut Vec<(At, Wrong)>) {
        let sites = self.all_sites();
        let every_site = self.every_site();
        let aliases = every_site.iter().flat_map(|(path, site)| {
            let place = |index| path.child("alias").item(index).child("to");
            site.aliases.iter().enumerate().map(move |(at, alias)| (plain(&alias.to), place(at)))
        });
        let roots = sites
            .iter()
            .filter_map(|(path, site)| Some((plain(site.root.as_deref()?), path.child("root"))));
        let served: HashMap<&Path, At> = roots.chain(aliases).collect();
        // beside sites, the top level's log has what belongs to none
        let top = (!self.sites.is_empty()).then(|| (At::default(), &self.site));
        let mut known: HashMap<&Path, (LogFormat, At)> = HashMap::new();
        for (path, site) in top.iter().chain(&sites) {
            let AccessLog::File(log) = &site.log.access else { continue };
            match known.get(&**log) {
                Some((format, first)) if *format != site.log.format => {
                    let (at, place) = (path.child("log.format"), find(&first.exact));
                    wrong.push((at, Wrong::TwoFormats { path: log.clone(), place }));
                }
                Some(_) => {}
                None => {
                    let at = path.child("log.access");
                    if let Some((directory, place)) = directory_of(log, &served) {
                        let (path, directory) = (log.clone(), directory.to_owned());
                        let place = find(&place.exact);
                        wrong.push((at.clone(), Wrong::Served { path, directory, place }));
                    }
                    known.insert(log, (site.log.format, at));
                }
            }
        }
    }

    /// Conditions of logs are about classes and sites that there are.
    fn check_log_names(&self, wrong: &mut Vec<(At, Wrong)>) {
        let (classes, sites) = (self.class_names(), self.all_sites());
        let sites: Vec<String> = sites.iter().map(|(_, site)| site.name().to_string()).collect();
        let top = &self.site.log.conditions;
        for (path, site) in self.every_site() {
            let conditions = &site.log.conditions;
            // what is inherited is told once
            if !path.exact.is_empty() && conditions == top {
                continue;
            }
            for (index, condition) in conditions.iter().enumerate() {
                let at = path.child("log").child("if").item(index);
                let is_in = |names: &[String], name: &str| names.iter().any(|known| known == name);
                if let Some(class) = condition.class().filter(|name| !is_in(&classes, name)) {
                    let (found, known) = (class.to_owned(), classes.clone());
                    wrong.push((at, Wrong::NoClass { found, known }));
                } else if let Some(site) = condition.site().filter(|name| !is_in(&sites, name)) {
                    let near = nearest(site, sites.iter().map(String::as_str)).map(str::to_owned);
                    wrong.push((at, Wrong::NoSite { found: site.to_owned(), near }));
                }
            }
        }
    }

    /// No redirect leads back to itself.
    fn check_redirects(&self, wrong: &mut Vec<(At, Wrong)>) {
        let mut told = HashSet::new();
        for (path, site) in self.every_site() {
            let inherited = if path.exact.is_empty() { &[][..] } else { &self.site.redirects };
            let own = site.redirects.len();
            let rules: Vec<_> = site.redirects.iter().chain(inherited).collect();
            for (index, from) in redirects::endless(&rules) {
                let at = match index.checked_sub(own) {
                    None => path.child("redirect").item(index),
                    Some(index) => At::default().child("redirect").item(index),
                };
                if told.insert(at.exact.clone()) {
                    wrong.push((at.child("to"), Wrong::Endless { from }));
                }
            }
        }
    }
}

/// A path without `.` at its start.
fn plain(path: &Path) -> &Path {
    path.strip_prefix(".").unwrap_or(path)
}

/// The directory among these that a file is in, as far as their names tell. Where `..` leads is not
/// known without looking.
fn directory_of<'d>(
    file: &Path,
    directories: &'d HashMap<&'d Path, At>,
) -> Option<(&'d Path, &'d At)> {
    let file = plain(file);
    if file.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let mut above = file.ancestors().skip(1);
    above.find_map(|directory| directories.get_key_value(directory)).map(|(path, at)| (*path, at))
}

/// What is wrong with an address that overlaps with another one, which stands at `first`.
fn overlapping(listen: &Listen, other: &Listen, first: &At, find: Find<'_>) -> Wrong {
    let (found, place) = (listen.to_string(), find(&first.exact));
    match listen == other {
        true => Wrong::Taken { found: quote(&found), by: first.shown.clone(), place },
        false => Wrong::Overlap { found, other: other.to_string(), place },
    }
}

/// Whether the two want the same port of the same address. Port 0 is another one each time.
fn overlap(one: &Listen, other: &Listen) -> bool {
    if let (Listen::Unix(one), Listen::Unix(other)) = (one, other) {
        return one == other;
    }
    let share = |one: &SocketAddr| {
        addresses(other).iter().any(|other| {
            let same_family = one.is_ipv4() == other.is_ipv4();
            let any = one.ip().is_unspecified() || other.ip().is_unspecified();
            // of a link-local address, each interface has its own
            let scopes = [scope(one), scope(other)];
            let same_scope = scopes[0] == scopes[1] || scopes.contains(&0);
            let same = (one.ip() == other.ip() && same_scope) || (same_family && any);
            one.port() == other.port() && one.port() != 0 && same
        })
    };
    addresses(one).iter().any(share)
}

fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

fn addresses(listen: &Listen) -> Vec<SocketAddr> {
    match listen {
        Listen::At(address) => vec![*address],
        Listen::All(port) => {
            let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
            any.iter().map(|ip| (*ip, *port).into()).collect()
        }
        Listen::Unix(_) => Vec::new(),
    }
}
