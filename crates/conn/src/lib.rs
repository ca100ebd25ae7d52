//! The request path, written once: one connection as a state machine.
//!
//! Events go in (bytes received, a job done, a turn come, bytes sent, the stream ended), a small [`Step`]
//! comes out (receive, send, do this job, hand over, close). An *engine* is the loop that performs
//! the steps; a *protocol* finds requests in the bytes and writes answers into them; a *handler* knows
//! what an answer is. This crate defines how the three meet:
//!
//! ```text
//!  engine ── bytes, RequestEvent ──► Protocol::advance ── Request ──► Handler: verdict, decide, process
//!         ◄──────── Step ──────────                   ◄── ProcessOutcome ── (answer written into Out)
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`protocol`] | [`Protocol`]: how an engine drives what is spoken on a connection |
//! | [`http1`] | [`Http1`]: the four stages of one request after another |
//! | [`http2`] | [`Http2`]: the same for many requests beside one another |
//! | [`http`] | [`Http`]: the version that the client speaks |
//! | `head_block` | conversions of heads: decoded fields to a head, a head in text to a field block |
//! | [`head_values`] | values that a head has for one request only |
//! | [`request`] | a [`Request`] as the handler sees it, and a [`KeptRequest`], which is kept while it waits |
//! | `service` | [`Handler`], which an engine is given: the roles, what is spoken, and over which transport |
//! | [`handler`] | the five roles of a handler, the [`Job`], what a [`Verdict`] may say |
//! | [`transport`] | [`Transport`]: encryption between socket and protocol, or nothing ([`PlainTransport`]) |
//! | [`step`] | what a connection tells the engine: the next [`Step`], what it waits for |
//! | [`context`], [`limits`] | what a turn of the engine lends to a connection; limits |
//! | [`rank`] | the order in which requests are served |
//! | [`socket`] | the sockets that requests wait for besides the client's |
//! | [`wake`] | how code of this process wakes a request that waits for it |
//! | [`input`] | [`Input`], the buffer bytes are received into |
//! | [`out`] | [`Out`], where an answer is written |
//! | [`reply`] | [`Reply`], the pen that writes it |
//! | `one_client` | the `Cache-Control` of an answer for one client |
//! | [`hsts`] | [`Hsts`], the field `Strict-Transport-Security` |
//! | [`peer`] | both ends of a connection, and what was agreed between them |
//! | [`preface`], [`proxy`] | what a proxy states about its client before anything else |
//! | [`hello`], [`passing`] | the name in a hello of TLS; which connections are passed on as they are |
//!
//! The crate deliberately has no socket, no clock and no thread: time and system calls are the engine's.
//! Descriptors pass through the crate, borrowed or on their way to another process, and are not used
//! here.
#![forbid(unsafe_code)]

pub mod context;
pub mod handler;
mod head_block;
pub mod head_values;
pub mod hello;
pub mod hsts;
pub mod http;
pub mod http1;
pub mod http2;
pub mod input;
pub mod limits;
mod one_client;
pub mod out;
pub mod passing;
pub mod peer;
pub mod preface;
pub mod protocol;
pub mod proxy;
pub mod rank;
pub mod reply;
pub mod request;
mod service;
pub mod socket;
pub mod step;
pub mod transport;
pub mod wake;

pub use context::{Announce, Context};
pub use handler::{
    Admission, Admitted, Answered, Bodies, BodyDecision, GivenUp, HandedOver, HandlerRoles,
    HandlerTypes, Hooks, Job, JobKind, Journal, NoBody, NoJob, NoRelay, Piece, Process,
    ProcessOutcome, Refusal, Relay, Relayed, Settled, TunnelOver, TurnTime, Verdict,
};
pub use head_values::{HeadValues, has_values};
pub use hsts::Hsts;
pub use http::Http;
pub use http1::Http1;
pub use http2::Http2;
pub use input::Input;
pub use limits::ConnectionLimits;
pub use out::Out;
pub use passing::{PassName, PassRoute, PassRoutes, PassedConnection};
pub use peer::{Peer, Secured};
pub use preface::Preface;
pub use protocol::{Awaited, Protocol};
pub use rank::Rank;
pub use reply::{HeadChange, Reply};
pub use request::{
    Answerer, ArrivalTimes, GivenField, Grant, InternalRedirect, KeptRequest, Passed, Request,
    RequestId,
};
pub use service::{Handler, Listening};
pub use socket::{SocketId, Wants};
pub use step::{Await, Closing, RequestEvent, Step};
pub use transport::{Opening, PlainTransport, Transport};
pub use wake::WakeSlot;
