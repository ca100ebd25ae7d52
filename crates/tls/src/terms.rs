//! The settings of a TLS client for its servers, and the result of the negotiation.

use crate::pair::Pair;
use crate::roots::Roots;

/// The versions of TLS that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.3, and 1.2 with servers that do not speak 1.3.
    #[default]
    Both,
    /// TLS 1.2 only.
    Only12,
    /// TLS 1.3 only.
    Only13,
}

/// The settings of a client for its servers.
#[derive(Clone, Debug)]
pub struct TlsClientSettings {
    /// The authorities that the client trusts.
    pub trust: Trust,
    /// The versions that the client speaks.
    pub versions: Versions,
    /// Whether the client speaks only HTTP/2; otherwise HTTP/1.1.
    pub is_for_http2: bool,
    /// The sessions that the client resumes.
    pub sessions: KeptSessions,
    /// Whether the client offers X25519 with ML-KEM first, as new browsers do; otherwise X25519
    /// first.
    pub is_post_quantum: bool,
    /// The certificate that the client shows to servers which ask for one.
    pub shows: Option<Pair>,
}

/// The sessions that a client resumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptSessions {
    /// No session is resumed: each handshake is a full one.
    #[default]
    None,
    /// The last session is resumed.
    Last,
    /// As many sessions are kept as parallel connections need: each of them uses one up.
    Several,
}

/// The servers that a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers whose certificate one of these has signed, or is itself one of a
    /// [text](Roots::of_pem): for their name and in force.
    Roots(Roots),
    /// Any server.
    Anybody,
}

/// The result of the negotiation in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The version, `1.2` or `1.3`.
    pub version: &'static str,
    /// The suite of ciphers, by its registered name.
    pub cipher: &'static str,
    /// The group of the key exchange; `None` if there was none, as in resuming TLS 1.2.
    pub group: Option<&'static str>,
    /// The protocol above, if the server has chosen one.
    pub alpn: Option<&'static str>,
    /// The handshake has resumed an earlier session.
    pub resumed: bool,
}
