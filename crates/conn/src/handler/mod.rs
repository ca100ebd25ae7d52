//! What a protocol asks: a handler that knows the answers, in its five roles.
//!
//! | role | asked | module |
//! |---|---|---|
//! | [`Admission`] | which clients are served, in which order, and how the others are refused | [`admission`] |
//! | [`Process`] | what the answer is | [`process`] |
//! | [`Bodies`] | the next bytes of an answer that is not in [`Out`](crate::Out) | [`body`] |
//! | [`Journal`] | what is timed and logged | [`journal`] |
//! | [`Relay`] | an exchange with another server, which gives the answer | [`relay`] |
//! | [`Hooks`] | what else happens on a loop, and which connections leave for another process | [`hooks`] |
//!
//! | module | what goes with them |
//! |---|---|
//! | `roles` | [`HandlerRoles`]: all of them together, as a protocol asks them |
//! | `handler_types` | the types that they have in common |
//! | `job` | a [`Job`], which would block a loop or compute for long, and is done elsewhere |
//!
//! Most methods have a default: a handler that only answers implements [`Process`] and names its types.

pub mod admission;
pub mod body;
mod handler_types;
pub mod hooks;
mod job;
pub mod journal;
pub mod process;
pub mod relay;
mod roles;

pub use admission::{Admission, Admitted, Refusal, Settled, Verdict};
pub use body::{Bodies, NoBody, Piece};
pub use handler_types::HandlerTypes;
pub use hooks::{HandedOver, Hooks, TurnTime};
pub use job::{Job, JobKind, NoJob};
pub use journal::{Answered, GivenUp, Journal, TunnelOver};
pub use process::{BodyDecision, Process, ProcessOutcome};
pub use relay::{NoRelay, Relay, Relayed};
pub use roles::HandlerRoles;
