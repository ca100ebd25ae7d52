//! The client of a request, and what else rules of a site can depend on.

use crate::client::{TrustedProxies, client_end, scheme_of};
use crate::log::request_id::{self, RequestIds};
use crate::policy::{InForce, Ticket};
use forebay_conn::Request;
use forebay_site::{RequestContext, RequestScheme};
use forebay_upstream::request::valid_id;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

/// The identifier that a request got because its answer contains it. The line of the log has it, too.
#[derive(Debug, Default)]
pub(super) struct ToldName {
    ids: RefCell<RequestIds>,
    told: Cell<Option<u128>>,
}

impl ToldName {
    /// Takes the identifier that the last answer contains.
    #[inline]
    pub(super) fn take(&self) -> Option<u128> {
        self.told.take()
    }

    /// The identifier that the last answer contains; it stays known.
    pub(super) fn known(&self) -> Option<u128> {
        self.told.get()
    }

    fn make(&self) -> u128 {
        let made = self.told.get().unwrap_or_else(|| self.ids.borrow_mut().number());
        self.told.set(Some(made));
        made
    }
}

/// The facts about a request that rules of a site can depend on, as this loop knows them.
pub(super) struct HandlerContext<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) trusted: &'a TrustedProxies,
    pub(super) told: &'a ToldName,
    /// The identifier under which an application was asked.
    pub(super) id: Option<u128>,
    /// The policy that has judged the request, and its ticket; `None` if its class must stay unknown to
    /// the client.
    pub(super) judged: Option<(&'a InForce, Option<&'a Ticket>)>,
    /// The degree of overload, from 0 to 3.
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
