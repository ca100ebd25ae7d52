//! The load generator: it makes the requested load, and reports when it could not.
//!
//! A [`LoadPlan`] names groups of clients; [`run()`] carries it out and returns a [`Report`]. A group is a
//! *closed* loop (N clients, each of which waits for its answer) or an *open* one (requests are due at given
//! times, whatever the answers do). Latency counts from the time at which a request was due, so a target that
//! stalls cannot hide that by keeping the generator waiting. The generator measures its own lateness, CPU
//! time and starvation, and reports when they distort the figures.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | the settings of a run |
//! | [`setting`] | a group from `key=value` |
//! | [`mod@file`] | a plan from a TOML file |
//! | [`target`], [`mix`], [`fileset`] | the server, and the paths that are requested |
//! | [`arrivals`] | when requests are due in an open loop |
//! | [`search`] | the search for the highest rate at which a condition holds |
//! | [`run`](mod@run) | the threads of a run, and the sums of their counts |
//! | `worker` | the loop of one thread |
//! | `timers` | the times at which a thread must look at a client |
//! | `response`, `request` | HTTP/1 as a client sees it; requests of HTTP/2 |
//! | `tally`, `ledger` | counting, per interval and in all |
//! | `failure` | how a request can fail |
//! | [`report`] | results: JSON, table, HTML, comparison, expectations |
//! | [`chart`] | charts as SVG, for reports here and elsewhere |
//! | [`units`] | durations, sizes and rates as people write them |
//!
//! TLS is [`forebay_tls::TlsClient`], HTTP/2 is [`forebay_http2::Connection`]: the code of the server, used
//! from the client's side. Tests of their correctness use other servers and clients, not this one. The crate
//! deliberately has no HTTP/3, no early data and no async runtime, and it follows no redirects.
//!
//! ```no_run
//! use forebay_load::{GroupDraft, LoadPlan, LoadTarget, run};
//! use std::sync::atomic::AtomicBool;
//!
//! let target = LoadTarget::parse("http://127.0.0.1:8080/")?;
//! let group = GroupDraft::parse("gold:rate=200/s,url=/buy", Some(&target)).unwrap().finish().unwrap();
//! let plan = LoadPlan { groups: vec![group], ..LoadPlan::default() };
//! let report = run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
//! println!("{}", report.to_table());
//! # Ok::<(), forebay_load::TargetError>(())
//! ```
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod chart;
mod failure;
pub mod file;
pub mod fileset;
mod ledger;
pub mod mix;
pub mod plan;
pub mod report;
mod request;
mod response;
pub mod run;
pub mod search;
pub mod setting;
mod tally;
pub mod target;
mod timers;
pub mod units;
mod worker;

pub use failure::RequestFailure;
pub use ledger::RunProgress;
pub use plan::{ClientGroup, LoadModel, LoadPlan};
pub use report::Report;
pub use run::{LoadError, run};
pub use setting::GroupDraft;
pub use target::{LoadTarget, TargetError};
