//! Feedback and order as arithmetic: how many threads each phase gets, when the server is busy, how long an
//! idle connection is kept, in which order waiting work is done, and how much of it is let in.
//!
//! A server measures itself once per period and passes the measurements in; a decision comes out, with its
//! inputs. An engine carries the decisions out (wakes and parks threads), and the metrics show them. Two
//! modules are used on a request's journey: work waits in [`ranked`], and loops and threads learn from
//! [`versioned`] what a reload has changed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`agent`] | how much of each class is let in during overload |
//! | [`concurrency`] | how many requests an application usefully has under way, learned from its answers |
//! | [`allocation`] | threads for the four phases of a pipeline: keta's law, and one by queue delay |
//! | [`utilisation`] | the load monitor: `U = c1·W + c2·R`, busy or not busy with hysteresis |
//! | [`ranked`] | waiting work by rank, with floors, fair between clients |
//! | [`gather`] | the pause of a loop that mostly refuses |
//! | [`level`] | how overloaded the server is, by degree, with hysteresis |
//! | [`keep_alive`] | how long an idle connection is kept, by the load: duke's law |
//! | [`shared`] | counts of the same limits in several processes |
//! | [`versioned`] | a value that is replaced as a whole while readers use it: what a reload swaps |
//!
//! Modules that only tools and tests use:
//!
//! | module | what it holds | for |
//! |---|---|---|
//! | [`regression`] | `c1` and `c2` from runs at saturation | `forebay calibrate` |
//! | [`simulation`] | a pipeline in virtual time, to try controllers and constants out | `forebay calibrate`, tests |
//! | [`concurrency::simulation`] | an application with too many requests in virtual time, to try learned limits out | tests, an example |
//! | [`agent::simulation`] | a machine under overload in virtual time, to try the agent out | tests, an example |
//!
//! The crate deliberately has no thread, no clock and no counter of its own: time is an argument.
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
