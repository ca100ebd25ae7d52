//! TLS as a [`Transport`](forebay_conn::Transport): bytes of the socket in, bytes of the protocol out.
//!
//! A request's journey: a connection through a listener with TLS begins as a [`Channel`] with the
//! [`Identities`] in force. When the client's hello is whole, the name in it decides which identity answers; the
//! handshake is done at once, or by a helper thread if its signature is dear ([`Handshake`]). From then on
//! the channel opens what comes and seals what leaves, and the protocol above knows nothing of it.
//!
//! The other end is a [`ClientSession`], through which applications are asked, and which the load generator speaks
//! through.
//!
//! | module | what it holds |
//! |---|---|
//! | [`channel`] | the transport: plain, or a session of TLS |
//! | [`client`] | the client's end: what it trusts (`trust`), what it resumes, why it goes no further (`fault`) |
//! | [`clients`] | certificates of clients: whose are taken, and which were revoked |
//! | [`identities`] | certificates by server name, found in O(1) |
//! | [`identity`] | the certificates of one site, and what is agreed with clients |
//! | [`pair`] | a certificate and its key: read, checked against one another, described |
//! | `distinguished_name` | the names in certificates, as text |
//! | [`proofs`] | certificates that show an authority that a name is ours |
//! | `provider` | the primitives that all of it is computed with |
//! | [`tickets`] | what seals the tickets by which sessions are resumed |
//!
//! It deliberately opens no file, knows no configuration, and resumes nothing by early data.
#![forbid(unsafe_code)]

pub mod channel;
pub mod client;
pub mod clients;
pub mod identities;
pub mod identity;
pub mod pair;
pub mod proofs;
pub mod tickets;

mod distinguished_name;
mod provider;

pub use channel::{Channel, Handshake, Handshaken, Shakes};
pub use client::{
    ClientError, ClientSession, KeptSessions, Roots, TlsClient, TlsClientSettings, TlsFault,
    TlsRefusal, Trust, Versions,
};
pub use clients::{Authorities, ClientAuth, ClientVerification, ClientsError, Revoked};
pub use identities::Identities;
pub use identity::{Identity, IdentityError};
pub use pair::{Pair, PairError};
pub use proofs::Proofs;
pub use tickets::{TicketKeys, TicketSealer};
