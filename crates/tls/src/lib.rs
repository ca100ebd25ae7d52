//! TLS as a [`Transport`](forebay_conn::Transport): bytes of the socket in, bytes of the protocol out.
//!
//! A request's journey: a connection through a listener with TLS begins as a [`Channel`] with the
//! [`Identities`] in force. When the client's hello is complete, the name in it decides which
//! identity answers. The handshake is done at once, or by a helper thread if its signature is
//! expensive ([`Handshake`]). From then on the channel decrypts what arrives and encrypts what is
//! sent, and the protocol above knows nothing of it.
//!
//! The client's end is a [`ClientSession`]; the server uses it for applications, and the load
//! generator for its target.
//!
//! | module | what it holds |
//! |---|---|
//! | [`channel`] | the transport: plain, a session of TLS, or bytes that are passed on |
//! | [`session`] | a session of TLS |
//! | [`client`] | the client's end: the servers it trusts (`trust`), the sessions it resumes, why it goes no further (`refusal`) |
//! | [`terms`], [`roots`] | a client's settings for its servers; certificates that it trusts |
//! | [`fault`] | why a client's connection goes no further, in one word |
//! | [`clients`] | certificates of clients: which are accepted, and which were revoked |
//! | [`identities`] | certificates by server name, found in O(1) |
//! | [`identity`] | the certificates of one site, and what is negotiated with clients |
//! | [`pair`], [`names`] | a certificate and its key: read, checked against one another, described; its names |
//! | `distinguished_name` | the names in certificates, as text |
//! | [`proofs`] | certificates that prove to an authority that a name belongs to this server |
//! | `provider` | the cryptographic primitives that all modules use |
//! | [`tickets`] | the encryption of the tickets by which sessions are resumed |
//! | `without` | the same names without the Cargo feature `tls`, whose values cannot be made |
//!
//! The crate deliberately opens no file, knows no configuration, and resumes nothing by early data.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "tls"),
    allow(dead_code, reason = "much of it is for sessions, and there are none")
)]

pub mod channel;
pub mod fault;
pub mod identities;
pub mod names;
pub mod terms;

#[cfg(feature = "tls")]
pub mod client;
#[cfg(feature = "tls")]
pub mod clients;
#[cfg(feature = "tls")]
mod distinguished_name;
#[cfg(feature = "tls")]
pub mod identity;
#[cfg(feature = "tls")]
pub mod pair;
#[cfg(feature = "tls")]
pub mod proofs;
#[cfg(feature = "tls")]
mod provider;
#[cfg(feature = "tls")]
pub mod roots;
#[cfg(feature = "tls")]
pub mod session;
#[cfg(feature = "tls")]
pub mod tickets;

#[cfg(not(feature = "tls"))]
pub mod without;
#[cfg(not(feature = "tls"))]
pub use without::{
    self as client, self as clients, self as identity, self as pair, self as proofs, self as roots,
    self as session, self as tickets,
};

pub use channel::{Channel, Shakes};
pub use client::{ClientError, ClientSession, TlsClient, TlsRefusal};
pub use clients::{Authorities, ClientAuth, ClientVerification, ClientsError, Revoked};
pub use fault::TlsFault;
pub use identities::Identities;
pub use identity::{Identity, IdentityError};
pub use pair::{Pair, PairError};
pub use proofs::Proofs;
pub use roots::Roots;
pub use session::{Handshake, Handshaken, Session};
pub use terms::{Agreed, KeptSessions, TlsClientSettings, Trust, Versions};
pub use tickets::{TicketKeys, TicketSealer};

/// Whether this program was built with TLS, the Cargo feature `tls`. Without it there is no
/// certificate and no session, and code that asks for one gets an error.
pub const IS_BUILT: bool = cfg!(feature = "tls");
