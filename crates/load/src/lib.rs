//! The load generator: it makes the load it was asked for, and says so when it could not.
//!
//! A [`LoadPlan`] names groups of clients; [`run()`] performs it and returns a [`Report`]. A group is
//! a *closed* loop (N clients, each waits for its answer) or an *open* one (requests are due at
//! their times, whatever the answers do). Latency counts from the time a request was due, so a
//! target that stalls cannot hide it by keeping the generator waiting; and the generator watches
//! its own lateness, CPU and starvation, and reports when the figures are its own.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what a run does |
//! | [`setting`] | a group from `key=value` |
//! | [`mod@file`] | a plan from a TOML file |
//! | [`target`], [`mix`], [`fileset`] | which server is asked, and for what |
//! | [`arrivals`] | when requests are due in an open loop |
//! | [`search`] | the highest rate at which something holds |
//! | [`run`](mod@run) | threads, started and added up |
//! | `worker` | the loop of one thread |
//! | `timers` | what it has to do at a later time |
//! | `response`, `request` | HTTP/1 as a client sees it; requests of HTTP/2 |
//! | `tally`, `ledger` | counting, per interval and in all |
//! | `failure` | how a request can fail |
//! | [`report`] | results: JSON, table, HTML, comparison, expectations |
//! | [`chart`] | charts as SVG, for reports here and elsewhere |
//! | [`units`] | durations, sizes and rates as people write them |
//!
//! TLS is [`forebay_tls::TlsClient`], HTTP/2 is [`forebay_http2::Connection`]: the server's own, seen from
//! the other end. That they are right is shown by others' servers and clients, not by this one. It
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
