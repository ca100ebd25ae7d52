//! The handler that an engine serves: requests in, answers out, and a line in the log.
//!
//! In a request's journey this crate decides about the request: whether it is served and in which
//! order, what its answer is, whether an application is asked, what is logged. It brings `site`,
//! `policy`, `upstream` and `tls` together, as a [`ServingSnapshot`](live::ServingSnapshot) of a
//! configuration.
//!
//! | module | what it holds |
//! |---|---|
//! | [`request_handler`] | the roles of a handler: admission, process, relay, the bytes of an answer, the log line |
//! | [`job`] | its work for helper threads |
//! | [`kernel_answers`] | answers that the kernel gives in this server's place |
//! | [`live`] | the snapshot that handlers serve from, replaced as a whole by a reload |
//! | [`client`] | the client and the scheme of a request, as trusted proxies state them |
//! | [`policy`] | classes, rules and the agent's limits, as they are in force |
//! | [`identity`] | identities that clients prove by a cookie |
//! | [`certificates`] | which certificate answers for which name, and which are wanted by ACME |
//! | [`applications`] | the applications behind the sites, the next stage, and the requests to them |
//! | `detour`, `passing` | what a request waits for elsewhere; an exchange and its body on the way to the client |
//! | [`upstream_sockets`], [`upstream_threads`] | descriptors and threads that requests for applications may keep |
//! | [`refusals`] | the last requests that were refused, and why: for `forebay why` |
//! | [`sightings`] | the clients that ask most, for the page of the admin listener |
//! | [`traces`] | spans of requests, for a collector of OpenTelemetry |
//! | [`log`] | the access log, off the hot path |
//! | `signing` | texts that a key signs |
//! | `limits_told` | warnings that a limit of connections is reached |
//!
//! The crate deliberately starts nothing and listens nowhere: threads, listeners, signals, reloads and
//! stages are the server's. Nothing here is about HTTP itself either: that is `conn`'s.
//!
//! ```
//! use forebay_handler::policy::{InForce, PolicySettings};
//! use forebay_metrics::ClassSlot;
//!
//! let text = "root = \"/srv/www\"\n[[rule]]\nname = \"report\"\npath = \"/report\"\nin_flight = { most = 1 }\n";
//! let config = forebay_config::parse(text, "forebay.toml").unwrap();
//! let policy = config.policy().unwrap().into();
//! let settings =
//!     PolicySettings { policy, shares: [1.0].into(), slots: [ClassSlot(0)].into(), agent: false };
//! assert_eq!(InForce::new(settings, None).queued_by_rules(), 0);
//! ```
#![forbid(unsafe_code)]

pub mod applications;
pub mod certificates;
pub mod client;
mod detour;
pub mod identity;
pub mod job;
pub mod kernel_answers;
mod limits_told;
pub mod live;
pub mod log;
mod passing;
pub mod policy;
pub mod refusals;
pub mod request_handler;
pub mod sightings;
mod signing;
pub mod traces;
pub mod upstream_sockets;
pub mod upstream_threads;

pub use request_handler::{RAW, RequestHandler, TLS};
