//! What is looked at before all else: the conditions of a request's site, and its scheme. Clients that have come
//! through TLS are told to come back so, and others are sent there.

use crate::answering::answer;
use crate::answering::body::Body;
use crate::answering::site::Site;
use crate::request_context::{RequestContext, RequestScheme};
use crate::routing::ambiguity::Ambiguity;
use crate::routing::route;
use crate::settings::ToHttps;
use forebay_conn::{Reply, Request};

/// Where authorities look for what shows that a host is ours (RFC 8555 §8.3). They come without TLS.
const ACME_CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

impl Site {
    /// What comes before all else that a site says to a request, each time it is processed: which conditions hold
    /// for it, by which all that follows goes; clients that have come through TLS are told about it with
    /// whatever the answer is, others may be sent there. Says whether that is the answer. `context` is asked
    /// only if some site goes by it.
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
        // what has no path is refused, and what is no path of this site is not its to send
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
