//! Certificates from an authority that speaks ACME (RFC 8555): how an account is opened, how a certificate is
//! ordered and stored, when it is replaced, and how long the server waits after a failure.
//!
//! No request passes through this crate. A thread of the server calls [`CertificateKeeper::round`], which
//! does the work that is due and returns when to call again. The results are files, which the server loads
//! like any certificate that changes. While an authority validates a name, [`ChallengeAnswers`] has the
//! answers for requests (http-01) and handshakes (tls-alpn-01, RFC 8737); DNS records (dns-01) are made by a
//! [`RecordHook`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`keeper`] | the work that is due: certificates that are missing, lack a host, or must be replaced |
//! | [`answers`] | the answers to challenges, by which an authority validates a name |
//! | [`records`] | DNS records for challenges, and how none is left behind |
//! | [`storage`] | the files, which several servers may share |
//! | [`schedule`] | when a certificate is replaced (RFC 9773), and when a failed one is tried again |
//! | `order` | one order, from its beginning or from where a crash has left it |
//! | [`wanted`] | the certificates to get, and their authority |
//! | `order_failure`, `problems` | why an order has failed, and the authority's words for it |
//! | `https` | requests to the authority: one request, one connection |
//!
//! The crate deliberately starts no thread and no program. The messages and signatures of the protocol come
//! from `instant-acme`.
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
