//! Sign-ins that authenticate the connection to an upstream, and not a single request (NTLM,
//! Negotiate). No other client may use such a connection.

use crate::group::MemberIndex;
use crate::upstreams::connection::UpstreamConnection;
use forebay_http::challenge::{offers_connection, without_connection};
use forebay_http::response::Response;
use std::sync::Arc;

/// Where the sign-in of a request's client may be kept.
#[derive(Clone, Debug, Default)]
pub enum SignIn {
    /// Nowhere: each request authenticates itself.
    #[default]
    OfRequest,
    /// In a connection to the upstream that belongs to the client's connection. It lives as long as
    /// others hold this ([`ConnectionLife`](forebay_conn::peer::ConnectionLife)).
    OfConnection(Arc<()>),
    /// Not in this connection, on which a client has several requests under way at a time. The client
    /// must come again over HTTP/1.1.
    NeedsHttp1,
    /// Not in this connection, because it carries many clients, or because sign-ins are not allowed:
    /// such schemes are not offered.
    Withheld,
}

/// How one exchange is bound to its client's connection.
#[derive(Debug)]
pub(crate) struct Binding {
    sign_in: SignIn,
    /// Whether the connection to the upstream is for no other client: credentials were sent on it, or
    /// asked for.
    is_private: bool,
    /// The connection that belongs to the client's, until it is known whether it can be used.
    own: Option<(MemberIndex, UpstreamConnection)>,
    /// Whether the request was sent on that connection.
    is_used: bool,
    /// Whether the upstream has refused the request, and offered such a scheme.
    is_offered: bool,
}

impl Binding {
    /// The binding of a request; `shows` says whether it has such credentials.
    pub(crate) fn new(sign_in: SignIn, shows: bool) -> Binding {
        let is_private = shows && !matches!(sign_in, SignIn::OfRequest);
        Binding { sign_in, is_private, own: None, is_used: false, is_offered: false }
    }

    /// The owner for which the connection is kept, if it is.
    pub(crate) fn owner(&self) -> Option<&Arc<()>> {
        match &self.sign_in {
            SignIn::OfConnection(owner) => Some(owner),
            _ => None,
        }
    }

    /// Sets the connection that belongs to the client's.
    pub(crate) fn have(&mut self, own: Option<(MemberIndex, UpstreamConnection)>) {
        self.is_private |= own.is_some();
        self.own = own;
    }

    /// The upstream of that connection.
    pub(crate) fn member(&self) -> Option<MemberIndex> {
        self.own.as_ref().map(|(member, _)| *member)
    }

    /// Takes the client's connection, if it was not used.
    pub(crate) fn take(&mut self) -> Option<(MemberIndex, UpstreamConnection)> {
        self.own.take()
    }

    /// Notes whether the request is sent on the client's connection.
    pub(crate) fn uses(&mut self, is_used: bool) {
        self.is_used = is_used;
    }

    /// Whether the request was sent on the client's connection.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Whether no other client may have the connection.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Looks at an answer. Returns whether nothing is left of what it offers.
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

    /// Whether schemes that sign in a connection are removed from an answer that offers them.
    pub(crate) fn withholds(&self) -> bool {
        self.is_offered && matches!(self.sign_in, SignIn::Withheld)
    }

    /// Whether the client can sign in over HTTP/1.1 only.
    pub(crate) fn needs_http1(&self) -> bool {
        self.is_offered && matches!(self.sign_in, SignIn::NeedsHttp1)
    }
}
