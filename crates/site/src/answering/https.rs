//! The conditions of a request's site, and its scheme, which come before all else. Clients that
//! come through TLS get Strict-Transport-Security, and others may be redirected to https.

use crate::answering::answer;
use crate::answering::body::Body;
use crate::answering::site::Site;
use crate::request_context::{RequestContext, RequestScheme};
use crate::routing::ambiguity::Ambiguity;
use crate::routing::route;
use crate::settings::ToHttps;
use forebay_conn::{Reply, Request};

/// The path of challenges by which authorities verify that a host is ours (RFC 8555 §8.3). They
/// come without TLS.
const ACME_CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

impl Site {
    /// Does what comes first, each time a request is processed. Finds out which conditions of the
    /// site hold for the request, as all later steps depend on them. Clients that have come through
    /// TLS get the site's Strict-Transport-Security with any answer; others may be redirected.
    /// Returns whether the redirect is the answer. `context` is asked only if some site depends on
    /// it.
    #[inline]
    pub fn secures(
        &mut self,
        request: &Request<'_>,
        context: &impl RequestContext,
        reply: &mut Reply<'_, Body>,
    ) -> bool {
        self.content.looks_first && self.looks_first(request, context, reply)
    }

    #[cold]
    fn looks_first(
        &mut self,
        request: &Request<'_>,
        context: &impl RequestContext,
        reply: &mut Reply<'_, Body>,
    ) -> bool {
        let Some(site) = self.site_of(request) else { return false };
        self.look_at(site, request, context);
        self.lend_values(site, reply);
        let vhost = &self.content.vhosts[site as usize];
        if !vhost.is_about_tls() {
            return false;
        }
        let scheme = context.scheme();
        if scheme == RequestScheme::Https {
            reply.hsts = vhost.settings.hsts;
            return false;
        }
        let (Some(own), Some(ready)) = (vhost.settings.to_https, &vhost.to_https) else {
            return false;
        };
        // a target without a path is refused later, and challenges are answered without TLS
        let is_passed = matches!(vhost.settings.ambiguity(request), Ambiguity::Passed { .. });
        if !is_passed && !request.path().is_ok_and(|path| !path.starts_with(ACME_CHALLENGES)) {
            return false;
        }
        let mut to = own;
        if scheme == RequestScheme::ProxiedHttp {
            // the port of this server may lead around the proxy, or nowhere
            to.port = ToHttps::USUAL_PORT;
        }
        let header_rules = self.header_rules_of(site, request);
        let sent = is_passed.then_some(request.head.path);
        let made = (to != own || is_passed || !header_rules.is_empty()).then(|| {
            let header_rules = vhost.header_rules(&header_rules);
            route::to_https(&vhost.pages, header_rules, to, sent)
        });
        let redirection = made.as_ref().unwrap_or(ready);
        self.credentials.has_passed = false;
        answer::redirect(redirection, vhost, request, &self.known, &mut self.head_scratch, reply);
        true
    }
}
