//! What is right in a configuration and yet hardly what is meant: `forebay check` warns of it, and so does a
//! server.

use crate::problems::path::Path as At;
use crate::problems::problem::Wrong;
use crate::reading::draft::{ConfigDraft, numbered};
use crate::table::ConfigReader;
use crate::{
    AdminConfig, AutoCount, ForwardAuth, Fuse, Listen, ListenEndpoint, ListenerConfig,
    LogCondition, LogConfig, LogFormat, Member, OverChoice, RuleConfig,
};
use forebay_engine::Engine;
use forebay_http::path;
use forebay_policy::near::nearest;
use forebay_policy::pattern::SitePattern;
use forebay_policy::rule::MOST_QUEUED;
use forebay_site::rules::{Host, Network, Pattern};
use std::net::IpAddr;
use std::time::Duration;

/// Threads that stay longer with clients that take nothing are missed.
const LONG_SEND_WAIT: Duration = Duration::from_millis(100);

/// What is remarked, each with where.
pub type Remarks = Vec<(At, Wrong)>;

impl ConfigDraft {
    /// What will have no effect, or not the one that is probably meant, as far as the text tells by itself.
    pub fn remarks_of_text(&self, text: &ConfigReader<'_>) -> Remarks {
        let mut all = Vec::new();
        let remarks = &mut all;
        self.remark_admin(text, remarks);
        self.remark_hosts(text, remarks);
        self.remark_order(text, remarks);
        self.remark_paths(text, remarks);
        self.remark_unused(text, remarks);
        self.remark_held(remarks);
        self.remark_unseen(remarks);
        self.remark_applications(text, remarks);
        self.remark_caching(remarks);
        self.remark_tls(remarks);
        self.remark_acme(remarks);
        self.remark_logs(remarks);
        self.remark_gate(remarks);
        self.remark_firewall(remarks);
        self.remark_literals(remarks);
        all
    }

    /// An admin listener that no client can read, or fewer than its address invites.
    fn remark_admin(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let AdminConfig { allow, pairs, token_file, .. } = &self.process.admin;
        let is_open = token_file.is_none() && allow.iter().any(Network::has_everybody);
        let endpoints = self.admin_endpoints(Some(text));
        let admin = At::default().child("admin");
        if !pairs.is_empty() && !endpoints.iter().any(|(_, endpoint)| endpoint.tls) {
            let wrong = Wrong::NoTlsAddress { list: "admin.listen" };
            remarks.push((admin.child("tls.certificate"), wrong));
        }
        for (at, ListenEndpoint { listen, .. }) in endpoints {
            let wrong = match listen {
                _ if !may_anybody(allow, listen) => Wrong::Nobody { listen: listen.to_string() },
                _ if is_for_all(listen) && !text.says(&admin.child("allow")) => {
                    Wrong::ThisMachineOnly { listen: listen.to_string() }
                }
                _ if is_open && !listen.is_of_this_machine() => {
                    Wrong::AdminForAll { listen: listen.to_string() }
                }
                _ => continue,
            };
            let at = if matches!(wrong, Wrong::Nobody { .. }) { admin.child("allow") } else { at };
            remarks.push((at, wrong));
        }
    }

    /// Threads that slow clients hold, or requests that wait for others of their rule.
    fn remark_held(&self, remarks: &mut Remarks) {
        let listeners = self.all_listeners();
        let is_local = |listen: &Listen| match listen {
            Listen::All(_) => false,
            Listen::At(address) => address.ip().is_loopback(),
            Listen::Unix(_) => true,
        };
        for (path, listener) in &listeners {
            if matches!(listener.engine, Engine::Pool | Engine::Threads)
                && listener.listen.iter().any(|endpoint| !is_local(&endpoint.listen))
            {
                remarks.push((path.child("engine"), Wrong::HeldBySlowClients));
            }
        }
        let pipeline = &self.process.pipeline;
        if pipeline.fuse == Fuse::Never
            && pipeline.send_wait > LONG_SEND_WAIT
            && listeners.iter().any(|(_, listener)| listener.engine == Engine::Pipeline)
        {
            let at = At::default().child("pipeline.send_wait");
            remarks.push((at, Wrong::HeldBySlowReaders));
        }
        for (at, rule) in numbered("rule", &self.rules) {
            let limit = &rule.in_flight;
            let (Some(most), Some(OverChoice::Queue)) = (limit.most.0, limit.over.0) else {
                continue;
            };
            let requests = limit.queue.0.unwrap_or(MOST_QUEUED.into());
            let may_take_all = |listener: &ListenerConfig| match listener.engine {
                Engine::Pool | Engine::Threads => match listener.workers {
                    AutoCount::Auto => true,
                    AutoCount::Fixed(workers) => workers <= most.saturating_add(requests),
                },
                _ => false,
            };
            if let Some((_, listener)) = listeners.iter().find(|(_, it)| may_take_all(it)) {
                let (engine, key) = (listener.engine.name(), "in_flight.queue");
                let wrong = Wrong::WaitKeepsThread { engine, requests, key };
                remarks.push((at.child("in_flight.over"), wrong));
            }
        }
    }

    /// What only JSON lines have, asked of others.
    fn remark_logs(&self, remarks: &mut Remarks) {
        let (top, sites) = (&self.site.log, self.every_site());
        let is_json = |log: &LogConfig| log.format == LogFormat::Json;
        for (at, site) in &sites {
            let log = &site.log;
            // what is inherited is told at the top, if none of those that inherit it can use it
            let is_unused = |is_inherited: &dyn Fn(&LogConfig) -> bool| match at.exact.is_empty() {
                true => {
                    !sites.iter().any(|(_, site)| is_inherited(&site.log) && is_json(&site.log))
                }
                false => !is_inherited(log) && !is_json(log),
            };
            let at = at.child("log");
            if log.fields != Member::ALL && is_unused(&|log| log.fields == top.fields) {
                remarks.push((at.child("fields"), Wrong::JsonOnly));
            }
            let none = log.conditions.iter().position(LogCondition::is_without_answer);
            if let Some(index) = none.filter(|_| is_unused(&|log| log.conditions == top.conditions))
            {
                remarks.push((at.child("if").item(index), Wrong::JsonOnly));
            }
        }
    }

    /// Rules for hosts that no site has. A site without hosts has them all.
    fn remark_hosts(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let sites = self.all_sites();
        if sites.iter().any(|(_, site)| site.hosts.is_empty()) {
            return;
        }
        let hosts: Vec<&Host> = sites.iter().flat_map(|(_, site)| &site.hosts).collect();
        for (at, rule) in numbered("rule", &self.rules) {
            for (index, asked) in rule.site.0.iter().enumerate() {
                if !hosts.iter().any(|host| meets(asked, host)) {
                    let found = asked.as_str().to_owned();
                    let near = nearest(&found, hosts.iter().map(|host| host.as_str()));
                    let wrong = Wrong::Unserved { near: near.map(str::to_owned), found };
                    remarks.push((item(text, &at.child("site"), index), wrong));
                }
            }
        }
    }

    /// Rules behind one that fits everything and decides all that they would.
    fn remark_order(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let mut general: Vec<(usize, At, &RuleConfig)> = Vec::new();
        for (index, (at, rule)) in numbered("rule", &self.rules).enumerate() {
            if let Some((first, place, by)) = general.iter().find(|(.., by)| by.outdoes(rule)) {
                let place = text.place(&place.exact);
                remarks.push((at, Wrong::Outdone { by: by.name(*first), place }));
            } else if rule.fits_always() {
                general.push((index, at, rule));
            }
        }
    }

    /// Patterns for paths that are written as in a URL.
    fn remark_paths(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        for (at, rule) in numbered("rule", &self.rules) {
            for (index, pattern) in rule.path.0.iter().enumerate() {
                let at = item(text, &at.child("path"), index);
                remarks.extend(encoded(pattern.as_str()).map(|wrong| (at, wrong)));
            }
        }
        for (at, site) in self.every_site() {
            let links = site.links.iter().enumerate();
            links.for_each(|(index, link)| {
                let at = item(text, &at.child("links"), index);
                remarks.extend(encoded(link.as_str()).map(|wrong| (at, wrong)));
            });
            for (key, scopes) in [
                ("listing", &site.listing.0),
                ("appended", &site.appended.0),
                ("try_files_except", &site.try_files_except),
            ] {
                for (index, scope) in scopes.iter().enumerate() {
                    let at = item(text, &at.child(key), index);
                    remarks.extend(encoded(scope.as_str()).map(|wrong| (at, wrong)));
                }
            }
            let mut note = |list: &str, index, text: &str| {
                let at = at.child(list).item(index).child("path");
                remarks.extend(encoded(text).map(|wrong| (at, wrong)));
            };
            let access = site.access.iter().map(|rule| &rule.path).enumerate();
            let access = access.filter(|(_, scope)| scope.as_regex().is_none());
            access.for_each(|(index, scope)| note("access", index, scope.as_str()));
            let auth = site.auth.iter().map(|rule| &rule.path).enumerate();
            let auth = auth.filter(|(_, scope)| scope.as_regex().is_none());
            auth.for_each(|(index, scope)| note("auth", index, scope.as_str()));
            let asks = site.authorities.iter().map(ForwardAuth::path).enumerate();
            let asks = asks.filter(|(_, scope)| scope.as_regex().is_none());
            asks.for_each(|(index, scope)| note("forward_auth", index, scope.as_str()));
            let aliases = site.aliases.iter().enumerate();
            aliases.for_each(|(index, alias)| note("alias", index, alias.path().as_str()));
            let proxies = site.proxies.iter().enumerate();
            proxies.for_each(|(index, proxy)| note("proxy", index, proxy.path().as_str()));
            let fastcgi = site.fastcgi.iter().enumerate();
            fastcgi.for_each(|(index, one)| note("fastcgi", index, one.path().as_str()));
            let mut look = |list: &str, index, pattern: &Pattern| {
                if !pattern.is_regex() {
                    note(list, index, pattern.as_str());
                }
            };
            site.work.iter().enumerate().for_each(|(index, rule)| look("work", index, &rule.path));
            let redirects = site.redirects.iter().enumerate();
            redirects.for_each(|(index, rule)| look("redirect", index, rule.pattern()));
            let rewrites = site.rewrites.iter().enumerate();
            rewrites.for_each(|(index, rule)| look("rewrite", index, rule.pattern()));
            let headers = site.headers.iter().enumerate();
            let headers = headers.filter_map(|(index, rule)| Some((index, rule.path()?)));
            headers.for_each(|(index, pattern)| look("header", index, pattern));
        }
    }
}

/// Whether a client among these can come to the address.
fn may_anybody(allowed: &[Network], listen: &Listen) -> bool {
    // a client that comes to an address of the network has one of the network, mostly
    let may_come = |network: &&Network| match listen {
        Listen::At(address) if !is_local(address.ip()) => network.has_others(),
        _ => true,
    };
    let able: Vec<_> = allowed.iter().filter(may_come).collect();
    let mut sources = sources(listen).iter().flat_map(|text| Network::parse(text));
    sources.any(|source| able.iter().any(|network| network.overlaps(&source)))
}

/// The addresses that clients of a listener may have, as networks.
fn sources(listen: &Listen) -> &'static [&'static str] {
    match listen {
        Listen::Unix(_) => &["unix"],
        Listen::All(_) => &["0.0.0.0/0", "::/0"],
        Listen::At(address) => match address.ip() {
            // from which of them a client comes is its choice
            IpAddr::V4(ip) if ip.is_loopback() => &["127.0.0.0/8"],
            IpAddr::V6(ip) if ip.is_loopback() => &["::1"],
            IpAddr::V4(_) => &["0.0.0.0/0"],
            IpAddr::V6(_) => &["::/0"],
        },
    }
}

/// Whether clients of this machine come to the address from loopback.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

fn is_for_all(listen: &Listen) -> bool {
    match listen {
        Listen::All(_) => true,
        Listen::At(address) => address.ip().is_unspecified(),
        Listen::Unix(_) => false,
    }
}

/// The place of an item, which may stand alone where a list could.
pub fn item(text: &ConfigReader<'_>, list: &At, index: usize) -> At {
    Some(list.item(index)).filter(|item| text.says(item)).unwrap_or_else(|| list.clone())
}

/// Whether some host is meant by both.
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

/// What is wrong with a pattern that has `%20` or the like.
fn encoded(pattern: &str) -> Option<Wrong> {
    let is_escape = |three: &[u8]| three[0] == b'%' && three[1..].iter().all(u8::is_ascii_hexdigit);
    pattern.as_bytes().windows(3).any(is_escape).then(|| {
        let decoded = decoded(pattern);
        Wrong::Encoded { found: pattern.to_owned(), decoded }
    })
}

/// The same as rules see it, if that means the same in a pattern.
fn decoded(pattern: &str) -> Option<String> {
    let mut path = Vec::new();
    let has_slash = pattern.starts_with('/');
    let raw = if has_slash { pattern.to_owned() } else { format!("/{pattern}") };
    path::normalise(raw.as_bytes(), &mut path).ok()?;
    let text = String::from_utf8(path).ok()?;
    let text = if has_slash { text } else { text.strip_prefix('/')?.to_owned() };
    let is_same = text.matches('*').count() == pattern.matches('*').count();
    (is_same && !text.contains(['?', '#'])).then_some(text)
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

    #[test]
    fn what_is_encoded_is_found_and_decoded() {
        for (pattern, expected) in [
            ("/a%20b/*", Some(Some("/a b/*"))),
            ("*%c3%A9.html", Some(Some("*é.html"))),
            ("/a%2fb", Some(None)),
            ("/a%2Ab", Some(None)),
            ("/%ff", Some(None)),
            ("/100%", None),
            ("/100%.html", None),
            ("/a b", None),
        ] {
            let found = encoded(pattern).map(|wrong| match wrong {
                Wrong::Encoded { decoded, .. } => decoded,
                wrong => panic!("{wrong}"),
            });
            assert_eq!(found, expected.map(|text| text.map(str::to_owned)), "{pattern}");
        }
    }
}
