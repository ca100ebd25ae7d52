//! The facts about a request that a policy decides by.
//!
//! Hosts and paths come in the form that rules are written for: the host in lower case without port, the
//! path decoded and in normal form, as the content sees them.

use crate::client::{TrustedProxies, client_end};
use forebay_conn::Request;
use forebay_conn::peer::ClientCertificate;
use forebay_policy::FactsNeeded;
use forebay_policy::certificate::CertificateFacts;
use forebay_policy::facts::{ConnectionFacts, RequestFacts};
use forebay_site::host_of;

/// Room for the host of one request at a time.
#[derive(Debug, Default)]
pub struct Facts {
    host: Vec<u8>,
}

impl Facts {
    /// The facts about a request for a policy with these needs. `normal` is its normal
    /// [path](Request::path) if there is one; it need not be made where no rule asks for a path. The
    /// caller adds the identity that the client has proved, once the client's address is known.
    #[inline]
    pub fn of<'f>(
        &'f mut self,
        needs: FactsNeeded,
        request: &Request<'f>,
        normal: Option<&'f [u8]>,
        trusted: &TrustedProxies,
    ) -> RequestFacts<'f, impl Iterator<Item = (&'f str, &'f [u8])> + Clone + use<'f>> {
        let Request { head, peer, .. } = *request;
        let client = client_end(peer, head, trusted);
        self.host.clear();
        if needs.host {
            self.host.extend(host_of(head.authority).iter().map(u8::to_ascii_lowercase));
        }
        let path = match normal {
            _ if !needs.path => &b""[..],
            Some(normal) => normal,
            // the request will be refused for that; until then its path is what was sent
            None => head.path,
        };
        RequestFacts {
            ends: ConnectionFacts { client, local: peer.local },
            host: &self.host,
            method: head.method_text,
            path,
            query: head.query.unwrap_or_default(),
            certificate: peer.secured.as_deref().and_then(|secured| secured.client.as_ref()).map(
                |ClientCertificate { subject, fingerprint }| CertificateFacts {
                    subject,
                    fingerprint,
                },
            ),
            identity: None,
            fields: head.fields(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::Peer;
    use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
    use forebay_http::path::NormalPath;

    const ALL: FactsNeeded = FactsNeeded {
        connections: true,
        requests: true,
        local: true,
        host: true,
        path: true,
        query: true,
        identity: true,
        fields: true,
    };

    #[test]
    fn hosts_and_paths_are_as_rules_want_them() {
        let mut facts = Facts::default();
        for (head, host, path) in [
            ("GET /a%2db//../c?q HTTP/1.1\r\nHost: Shop.Example.:80", "shop.example", "/c"),
            ("GET http://A/b HTTP/1.1\r\nHost: c", "a", "/b"),
            ("GET /%2e%2e HTTP/1.0", "", "/%2e%2e"),
            ("OPTIONS * HTTP/1.1\r\nHost: [::1]:8080", "[::1]", "*"),
        ] {
            let bytes = format!("{head}\r\n\r\n");
            let mut lines = Lines::new();
            let parsed = Head::parse(bytes.as_bytes(), &mut lines, &HeadLimits::default());
            let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{head}: {parsed:?}") };
            let peer = Peer::new(Peer::UNIX, Peer::UNIX);
            let (normal_path, trusted) = (NormalPath::default(), TrustedProxies::default());
            let request = Request::new(&head, &peer, &normal_path);
            let normal = request.path().ok();
            let known = facts.of(ALL, &request, normal.as_deref(), &trusted);
            assert_eq!((known.host, known.path), (host.as_bytes(), path.as_bytes()), "{bytes}");
            drop(known);
            let known = facts.of(FactsNeeded::default(), &request, None, &trusted);
            assert_eq!((known.host, known.path), (&b""[..], &b""[..]), "{bytes}");
        }
    }
}
