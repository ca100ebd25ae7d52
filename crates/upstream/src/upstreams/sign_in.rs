//! What becomes of a client's sign-in where that counts for the connection to an upstream, and not for a request (NTLM,
//! Negotiate): no other client may have that connection.

use crate::group::MemberIndex;
use crate::upstreams::connection::UpstreamConnection;
use forebay_http::challenge::{offers_connection, without_connection};
use forebay_http::response::Response;
use std::sync::Arc;

/// Where a sign-in of a request's client may be kept.
#[derive(Clone, Debug, Default)]
pub enum SignIn {
    /// Nowhere, and none is looked for: each request says by itself who asks.
    #[default]
    OfRequest,
    /// In a connection that belongs to the client's, which lives as long as others have this
    /// ([`ConnectionLife`](forebay_conn::peer::ConnectionLife)).
    OfConnection(Arc<()>),
    /// In none to here, since requests of one client's connection are under way at a time: the client is to come again
    /// over HTTP/1.1.
    NeedsHttp1,
    /// In none to here, since that carries many clients, or because none may: such schemes are not offered.
    Withheld,
}

/// How one exchange is bound to its client's connection.
#[derive(Debug)]
pub(crate) struct Binding {
    sign_in: SignIn,
    /// The connection to the upstream is for no other client: credentials were sent on it, or asked for.
    is_private: bool,
    /// The one that belongs to the client's, until it is known whether it can be used.
    own: Option<(MemberIndex, UpstreamConnection)>,
    /// The request was sent on that one.
    is_used: bool,
    /// The upstream has refused the request, and has offered such a scheme.
    is_offered: bool,
}

impl Binding {
    /// Of a request; `shows` such credentials or not.
    pub(crate) fn new(sign_in: SignIn, shows: bool) -> Binding {
        let is_private = shows && !matches!(sign_in, SignIn::OfRequest);
        Binding { sign_in, is_private, own: None, is_used: false, is_offered: false }
    }

    /// What the connection is kept for, if it is.
    pub(crate) fn owner(&self) -> Option<&Arc<()>> {
        match &self.sign_in {
            SignIn::OfConnection(owner) => Some(owner),
            _ => None,
        }
    }

    /// The connection that belongs to the client's.
    pub(crate) fn have(&mut self, own: Option<(MemberIndex, UpstreamConnection)>) {
        self.is_private |= own.is_some();
        self.own = own;
    }

    /// Where that leads.
    pub(crate) fn member(&self) -> Option<MemberIndex> {
        self.own.as_ref().map(|(member, _)| *member)
    }

    /// The connection of the client's, if it was not used.
    pub(crate) fn take(&mut self) -> Option<(MemberIndex, UpstreamConnection)> {
        self.own.take()
    }

    /// The request is sent on that now.
    pub(crate) fn uses(&mut self, is_used: bool) {
        self.is_used = is_used;
    }

    /// Whether the request was sent on that.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether no other client may have the connection.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Looks at an answer. Says whether nothing is left of what it offers.
    pub(crate) fn look(&mut self, answer: &Response<'_>) -> bool {
        if !answer.has_challenge {
            return false;
        }
        let offers = || answer.values("www-authenticate");
        if matches!(self.sign_in, SignIn::OfRequest) || !offers().any(offers_connection) {
            return false;
        }
        self.is_private |= self.owner().is_some();
        self.is_offered = answer.status == 401;
        self.withholds() && offers().all(|offered| without_connection(offered).is_none())
    }

    /// Whether the client is told of no scheme that signs in a connection, though the upstream has offered one.
    pub(crate) fn withholds(&self) -> bool {
        self.is_offered && matches!(self.sign_in, SignIn::Withheld)
    }

    /// Whether the client can sign in over HTTP/1.1 only.
    pub(crate) fn needs_http1(&self) -> bool {
        self.is_offered && matches!(self.sign_in, SignIn::NeedsHttp1)
    }
}
