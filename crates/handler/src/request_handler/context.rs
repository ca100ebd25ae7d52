//! Who asks, for rules of a site that go by that.

use crate::client::{TrustedProxies, client_end, scheme_of};
use crate::log::request_id::{self, RequestIds};
use crate::policy::{InForce, Ticket};
use forebay_conn::Request;
use forebay_site::{RequestContext, RequestScheme};
use forebay_upstream::request::valid_id;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

/// The name that a request got because its answer has it. The line of the log has it, too.
#[derive(Debug, Default)]
pub(super) struct ToldName {
    ids: RefCell<RequestIds>,
    told: Cell<Option<u128>>,
}

impl ToldName {
    /// The name that was told with the answer that was written last.
    #[inline]
    pub(super) fn take(&self) -> Option<u128> {
        self.told.take()
    }

    /// The same, which stays known.
    pub(super) fn known(&self) -> Option<u128> {
        self.told.get()
    }

    fn make(&self) -> u128 {
        let made = self.told.get().unwrap_or_else(|| self.ids.borrow_mut().number());
        self.told.set(Some(made));
        made
    }
}

/// Who asks for one request, as this loop knows it.
pub(super) struct HandlerContext<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) trusted: &'a TrustedProxies,
    pub(super) told: &'a ToldName,
    /// Under which number an application was asked.
    pub(super) id: Option<u128>,
    /// By what it was judged, and its ticket; `None` if its class is nobody's to know.
    pub(super) judged: Option<(&'a InForce, Option<&'a Ticket>)>,
    /// How overloaded the server is, from 0 to 3.
    pub(super) overload: u8,
    /// The application that has answered; empty if none has.
    pub(super) upstream: &'a str,
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

    fn begin(&self) {
        self.told.take();
    }

    fn request_id(&self, id: &mut Vec<u8>) {
        let is_believed = self.trusted.are_believed(self.request.peer);
        if let Some(given) = valid_id(self.request.head).filter(|_| is_believed) {
            return id.extend_from_slice(given);
        }
        let asked = self.id.or_else(|| self.request.passed?.id);
        id.extend_from_slice(&request_id::text(asked.unwrap_or_else(|| self.told.make())));
    }

    fn class(&self) -> &str {
        self.judged.map_or("", |(policy, ticket)| policy.class(ticket))
    }

    fn overload(&self) -> u8 {
        self.overload
    }

    fn upstream(&self) -> &str {
        self.upstream
    }
}
