//! Certificates from an authority that speaks ACME (RFC 8555): how an account is opened, a certificate
//! ordered and kept, when it is replaced, and how long is waited after a failure.
//!
//! No request passes through here. A thread of the server calls [`CertificateKeeper::round`], which does what is due
//! and says when to call again; what comes of it are files, which the server takes over as it does any
//! certificate that changes. While an authority looks whether a name is ours, [`ChallengeAnswers`] has what
//! requests (http-01) and handshakes (tls-alpn-01, RFC 8737) answer it with; records of the name service (dns-01)
//! are made by a [`RecordHook`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`keeper`] | what is due: certificates that are missing, that lack a host, that are to be replaced |
//! | [`answers`] | what an authority is answered that looks whether a name is ours |
//! | [`records`] | records of the name service, and how it is certain that none is left |
//! | [`storage`] | the files, which several servers may share |
//! | [`schedule`] | when a certificate is replaced (RFC 9773), and when is tried again |
//! | `order` | one order, from its beginning or from where a crash has left it |
//! | [`wanted`] | what is wanted, of which authority |
//! | `order_failure`, `problems` | why an order has failed; what the authority says of it |
//! | `https` | how the authority is asked: one request, one connection |
//!
//! It deliberately starts no thread and no program, and has no part of the protocol's messages and signatures, which
//! are those of `instant-acme`.
//!
//! ```
//! use forebay_acme::{Names, Storage};
//!
//! let storage = Storage::new("/var/lib/forebay/acme".as_ref(), "https://acme.example/directory");
//! let names = Names::new(["shop.example", "www.shop.example"]);
//! let file = storage.certificate(&names);
//! assert!(file.starts_with("/var/lib/forebay/acme/acme.example-directory"));
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "acme"),
    allow(dead_code, reason = "much of it is for orders, and nothing orders")
)]

pub mod answers;
#[cfg(feature = "acme")]
mod https;
#[cfg(feature = "acme")]
pub mod keeper;
#[cfg(not(feature = "acme"))]
#[path = "keeper/without.rs"]
pub mod keeper;
#[cfg(feature = "acme")]
mod order;
mod order_failure;
#[cfg(feature = "acme")]
mod problems;
pub mod records;
pub mod schedule;
pub mod storage;
pub mod wanted;

pub use answers::{ChallengeAnswers, ChallengeKind};
pub use keeper::CertificateKeeper;
pub use order_failure::{OrderFailure, Why};
pub use records::{ChallengeRecord, RecordAction, RecordHook};
pub use storage::{Names, Storage};
pub use wanted::{AuthoritySettings, CertificateEvent, WantedCertificate};
