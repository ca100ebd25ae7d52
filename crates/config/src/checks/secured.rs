//! Checks of TLS: certificates where it is spoken, redirects to it, and settings of it without effect.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::sections::site::HSTS;
use crate::table::ConfigReader;
use crate::{AskClients, ClientCertificates, Config, KeyPairs, SiteConfig};
use forebay_site::ToHttps;
use forebay_site::rules::Host;
use std::fmt;
use std::time::Duration;

/// A fault in the settings of TLS, or a remark about them.
#[derive(Debug)]
enum TlsFinding {
    /// An address speaks TLS, and no site has a certificate.
    NoCertificate,
    /// Clients must show certificates, and no authority for these is configured.
    NoClientAuthority,
    /// Clients must show certificates to a site that has none itself.
    ClientsWithoutCertificate,
    /// A setting that refines `tls.client`, which is off.
    WithoutClients,
    /// Clients must show certificates, and can come to addresses without TLS.
    ClientsInClear,
    /// A setting about https, where neither this server nor a trusted proxy can speak it.
    NoHttps,
    /// A header rule sets the field that `tls.hsts` would set.
    HstsByRule,
    /// A setting that refines `tls.hsts`, which is not set.
    WithoutHsts,
    /// Browsers would not take the host into their preload lists.
    NotPreloaded,
}

impl Finding for TlsFinding {}

impl fmt::Display for TlsFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFinding::NoCertificate => {
                f.write_str(
                    "TLS is to be spoken here, and no site has tls.certificate and tls.key, or tls.acme",
                )
            }
            TlsFinding::NoClientAuthority => f.write_str(
                "tls.client_ca is missing: the certificates of the authorities that have signed those of \
                 the clients",
            ),
            TlsFinding::ClientsWithoutCertificate => f.write_str(
                "clients are asked by a site that shows a certificate itself: tls.certificate and tls.key \
                 are missing",
            ),
            TlsFinding::WithoutClients => {
                f.write_str("it has no effect without tls.client = \"optional\" or \"required\"")
            }
            TlsFinding::ClientsInClear => f.write_str(
                "requests that come without TLS are answered with 403; tls.redirect would send their \
                 clients to https",
            ),
            TlsFinding::NoHttps => f.write_str(
                "it has no effect, because no address of listen begins with \"https://\", and \
                 trusted_proxies names no proxy that could speak TLS",
            ),
            TlsFinding::HstsByRule => f.write_str(
                "it has no effect, because a header rule of this site is about \
                 Strict-Transport-Security",
            ),
            TlsFinding::WithoutHsts => f.write_str("it has no effect without tls.hsts"),
            TlsFinding::NotPreloaded => f.write_str(
                "browsers take no host into their lists that says less than tls.hsts = \"365d\" and \
                 tls.hsts_subdomains = true",
            ),
        }
    }
}

/// The shortest `max-age` that preload lists of browsers accept (https://hstspreload.org).
const PRELOAD_MAX_AGE: Duration = Duration::from_secs(365 * 24 * 3600);

impl Config {
    /// The port to which clients are redirected for TLS: the usual one if TLS is spoken there, or by
    /// trusted proxies alone. `None` if there is no TLS.
    pub fn https_port(&self) -> Option<u16> {
        let endpoints = self.listeners.iter().flat_map(|listener| &listener.listen);
        let ports = endpoints.filter(|endpoint| endpoint.tls);
        let mut ports = ports.filter_map(|endpoint| endpoint.listen.port()).peekable();
        let first = ports.peek().copied();
        let has_proxies = !self.trusted_proxies.is_empty();
        let usual = has_proxies.then_some(ToHttps::USUAL_PORT);
        ports.find(|port| *port == ToHttps::USUAL_PORT).or(first).or(usual)
    }
}

impl ConfigDraft {
    /// Whether any address speaks TLS, and whether all do.
    pub fn speak_tls(&self) -> (bool, bool) {
        let listeners = self.all_listeners();
        let endpoints =
            || listeners.iter().flat_map(|(_, listener)| &listener.listen).filter(|end| !end.raw);
        (endpoints().any(|endpoint| endpoint.tls), endpoints().all(|endpoint| endpoint.tls))
    }

    /// Checks that each certificate has its key, and that there is a certificate where TLS is spoken.
    pub(crate) fn check_tls(&self, text: Option<&ConfigReader<'_>>, wrong: &mut Vec<(At, Wrong)>) {
        for (path, site) in self.every_site() {
            let pairs = &site.tls.pairs;
            let (certificates, keys) = (pairs.certificates.len(), pairs.keys.len());
            if certificates != keys {
                wrong.push((path.child("tls.certificate"), Wrong::Unpaired { certificates, keys }));
            }
            if site.tls.clients.asked == AskClients::Off {
                continue;
            }
            // a list that cannot be read is reported where it is read
            let lacks = |key: &str, is_empty: bool| {
                is_empty && !text.is_some_and(|text| text.says(&path.child(key)))
            };
            if lacks("tls.client_ca", site.tls.clients.authorities.is_empty()) {
                wrong.push((path.child("tls.client"), Wrong::said(TlsFinding::NoClientAuthority)));
            }
            if lacks("tls.certificate", !site.tls.acme && pairs.is_empty()) {
                wrong.push((
                    path.child("tls.client"),
                    Wrong::said(TlsFinding::ClientsWithoutCertificate),
                ));
            }
        }
        // a certificate that cannot be read is reported where it is read
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
                wrong.push((
                    path.child("listen").item(index),
                    Wrong::said(TlsFinding::NoCertificate),
                ));
            }
        }
    }

    /// Remarks on settings of TLS where it is not spoken, or that do not do what is meant.
    pub(crate) fn remark_tls(&self, remarks: &mut Remarks) {
        let (speaks, only_tls) = self.speak_tls();
        // a trusted proxy may state that its clients have come through TLS
        let has_https = speaks || !self.process.trusted_proxies.is_empty();
        for (path, site) in &self.all_sites() {
            for (key, is_set) in [
                ("tls.certificate", !site.tls.pairs.is_empty()),
                ("tls.acme", site.has_acme()),
                ("tls.client", site.tls.clients.asked != AskClients::Off),
            ] {
                if is_set && !speaks {
                    remarks.push((path.child(key), Wrong::NoTlsAddress { list: "listen" }));
                }
            }
            for (key, is_set) in [
                ("tls.redirect", site.tls.redirect.0.is_some()),
                ("tls.hsts", site.tls.hsts.0.is_some()),
            ] {
                if is_set && !has_https {
                    remarks.push((path.child(key), Wrong::said(TlsFinding::NoHttps)));
                }
            }
            if speaks
                && !only_tls
                && site.tls.clients.asked == AskClients::Required
                && site.tls.redirect.0.is_none()
            {
                remarks.push((path.child("tls.client"), Wrong::said(TlsFinding::ClientsInClear)));
            }
            let ClientCertificates { asked, authorities, revoked } = &site.tls.clients;
            for (key, files) in [("tls.client_ca", authorities), ("tls.client_crl", revoked)] {
                if *asked == AskClients::Off && !files.is_empty() {
                    remarks.push((path.child(key), Wrong::said(TlsFinding::WithoutClients)));
                }
            }
            if has_https {
                self.remark_hsts(path, site, remarks);
            }
        }
    }

    /// Remarks on a site's settings of redirects to TLS and of HSTS.
    fn remark_hsts(&self, path: &At, site: &SiteConfig, remarks: &mut Remarks) {
        let Some(max_age) = site.tls.hsts.0 else {
            for (key, is_set) in [
                ("tls.hsts_subdomains", site.tls.hsts_subdomains),
                ("tls.hsts_preload", site.tls.hsts_preload),
            ] {
                if is_set {
                    remarks.push((path.child(key), Wrong::said(TlsFinding::WithoutHsts)));
                }
            }
            return;
        };
        if site.has_rule_for(HSTS) || self.site.has_rule_for(HSTS) {
            remarks.push((path.child("tls.hsts"), Wrong::said(TlsFinding::HstsByRule)));
        } else if site.tls.hsts_preload && (max_age < PRELOAD_MAX_AGE || !site.tls.hsts_subdomains)
        {
            remarks.push((path.child("tls.hsts_preload"), Wrong::said(TlsFinding::NotPreloaded)));
        }
    }

    /// The server's own certificates, each with the place of its section and the hosts it is for.
    pub fn all_pairs(&self) -> Vec<(At, &KeyPairs, &[Host])> {
        let of_admin = (At::default().child("admin"), &self.process.admin.pairs, &[][..]);
        let sites = self.every_site().into_iter();
        let of_sites = sites.map(|(path, site)| (path, &site.tls.pairs, &site.hosts[..]));
        of_sites.chain([of_admin]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listen, ListenEndpoint, ListenerConfig};
    use forebay_site::rules::Network;

    #[test]
    fn clients_are_led_to_where_tls_is_spoken() {
        let port = |endpoints: &[(u16, bool)], proxies: &[&str]| {
            let listen = endpoints.iter().map(|(port, tls)| {
                let (listen, tls) = (Listen::All(*port), *tls);
                ListenEndpoint { listen, tls, raw: false }
            });
            let listener = ListenerConfig { listen: listen.collect(), ..ListenerConfig::default() };
            let trusted = proxies.iter().map(|text| Network::parse(text).unwrap());
            let (listeners, trusted_proxies) = (vec![listener], trusted.collect());
            Config { listeners, trusted_proxies, ..Config::default() }.https_port()
        };
        assert_eq!(port(&[(80, false)], &[]), None);
        assert_eq!(port(&[(80, false), (8443, true), (444, true)], &[]), Some(8443));
        assert_eq!(port(&[(8443, true), (443, true)], &[]), Some(443));
        // behind a proxy, with no TLS on this server's own listeners
        assert_eq!(port(&[(80, false)], &["10.0.0.0/8"]), Some(443));
        assert_eq!(port(&[(80, false), (8443, true)], &["10.0.0.0/8"]), Some(8443));
    }
}
