//! What a client of TLS asks of its servers, and what was agreed on.

use crate::pair::Pair;
use crate::roots::Roots;

/// Which versions of TLS a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// 1.3, and 1.2 with servers that do not speak it.
    #[default]
    Both,
    /// 1.2 only.
    Only12,
    /// 1.3 only.
    Only13,
}

/// What a client asks of its servers.
#[derive(Clone, Debug)]
pub struct TlsClientSettings {
    /// Which authorities it trusts.
    pub trust: Trust,
    /// Which versions it speaks.
    pub versions: Versions,
    /// It speaks HTTP/2 and nothing else; HTTP/1.1 otherwise.
    pub is_for_http2: bool,
    /// Which sessions it resumes.
    pub sessions: KeptSessions,
    /// It offers X25519 with ML-KEM first, as new browsers do; X25519 first otherwise.
    pub is_post_quantum: bool,
    /// What it shows to servers that ask who it is.
    pub shows: Option<Pair>,
}

/// Which sessions a client resumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptSessions {
    /// None: each handshake is a full one.
    #[default]
    None,
    /// The one it had last.
    Last,
    /// As many as connections that begin side by side need: each of them uses one up.
    Several,
}

/// Which servers a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Servers with a certificate that one of these has signed, or that is one of these of a
    /// [text](Roots::of_pem): for their name and in force.
    Roots(Roots),
    /// Any server.
    Anybody,
}

/// What was agreed on in a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// The suite of ciphers, by its registered name.
    pub cipher: &'static str,
    /// The group of the key exchange; `None` if there was none, as in resuming TLS 1.2.
    pub group: Option<&'static str>,
    /// The protocol above, if the server has chosen one.
    pub alpn: Option<&'static str>,
    /// It continues an earlier session.
    pub resumed: bool,
}
