//! Feedback and order as arithmetic: how many threads each phase gets, what "busy" means,
//! how long an idle connection is kept, in which order waiting work is done, and how much is let in.
//!
//! A server measures itself once per period; what it measured goes in, a decision comes out, with
//! the inputs it was made from. An engine performs the decisions (wakes and parks threads), and the
//! metrics show them. [`ranked`] lies on a request's journey: where work waits, it waits there;
//! [`versioned`] beside it: loops and threads look there for what a reload has changed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`agent`] | how much of each class is let in during overload |
//! | [`concurrency`] | how many requests an application usefully has under way, learnt while it is asked |
//! | [`allocation`] | threads for the four phases of a pipeline: keta's law, and one by queue delay |
//! | [`utilisation`] | the load monitor: `U = c1·W + c2·R`, busy or not busy with hysteresis |
//! | [`ranked`] | waiting work by rank, with floors, fair between clients |
//! | [`gather`] | when a loop that mostly refuses looks for news less often |
//! | [`level`] | how overloaded the server is, by degree, with hysteresis |
//! | [`keep_alive`] | how long an idle connection is kept, by the load: duke's law |
//! | [`shared`] | what several processes have of the same limits |
//! | [`versioned`] | a value that is replaced as a whole while others use it: what a reload swaps |
//!
//! What no server runs, but tools and tests:
//!
//! | module | what it holds | for |
//! |---|---|---|
//! | [`regression`] | `c1` and `c2` from runs at saturation | `forebay calibrate` |
//! | [`simulation`] | a pipeline in virtual time, to try controllers and constants out | `forebay calibrate`, tests |
//! | [`concurrency::simulation`] | an application with too many requests in virtual time, to try learnt limits out | tests, an example |
//! | [`agent::simulation`] | a machine under overload in virtual time, to try rules of the agent out | tests, an example |
//!
//! It deliberately has no thread, no clock and no counter of its own: time is an argument.
//!
//! ```
//! use forebay_control::allocation::{Controller, Phase, Sample, AllocationSettings};
//!
//! let mut controller = Controller::new(AllocationSettings::for_cores(2)).unwrap();
//! let mut sample = Sample::of(100_000_000, controller.targets());
//! // Twenty answers wait for a thread, and every thread of the phase hangs on a slow receiver.
//! let send = &mut sample.phases[Phase::Send.index()];
//! (send.waiting, send.busy, send.blocked) = (20, f64::from(send.threads), 1.0);
//! let before = send.threads;
//! let decision = controller.step(&sample);
//! assert!(decision.targets[Phase::Send.index()] > before);
//! ```
#![forbid(unsafe_code)]

pub mod agent;
pub mod allocation;
pub mod concurrency;
pub mod gather;
pub mod keep_alive;
pub mod level;
pub mod ranked;
pub mod regression;
pub mod shared;
pub mod simulation;
pub mod utilisation;
pub mod versioned;
