//! Who asks, for rules of a site that go by that.

use crate::client::{TrustedProxies, client_end, scheme_of};
use crate::policy::{InForce, Ticket};
use forebay_conn::Request;
use forebay_site::{RequestContext, RequestScheme};
use std::net::SocketAddr;

/// Who asks for one request, as this loop knows it.
pub(super) struct HandlerContext<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) trusted: &'a TrustedProxies,
    /// By what it was judged, and its ticket; `None` if its class is nobody's to know.
    pub(super) judged: Option<(&'a InForce, Option<&'a Ticket>)>,
}

impl RequestContext for HandlerContext<'_> {
    #[inline]
    fn client(&self) -> SocketAddr {
        client_end(self.request.peer, self.request.head, self.trusted)
    }

    #[inline]
    fn scheme(&self) -> RequestScheme {
        scheme_of(self.request.peer, self.request.head, self.trusted)
    }

    fn class(&self) -> &str {
        self.judged.map_or("", |(policy, ticket)| policy.class(ticket))
    }
}
