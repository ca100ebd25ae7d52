//! Measures Forebay beside others, and beside itself.
//!
//! An experiment goes in ([`experiment::Experiment`], a file of `lab/experiments`: servers, a
//! sweep, figures, claims); rows and verdicts come out. `forebay-bench` is the program of those
//! experiments that are values in this package ([`benchmark::Benchmark`]), called by `make bench`
//! and `make bench-…`. `BENCHMARKING.md` says what the numbers mean and how they mislead.
//!
//! Modules that every experiment shares:
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@experiment`] | an experiment: a file |
//! | [`catalogue`] | all files |
//! | [`command`] | the commands of `lab` |
//! | [`round`] | experiments are measured, and rows kept |
//! | [`servers`] | the servers that can take turns |
//! | [`mod@measure`] | figures of a run |
//! | [`bridge`] | rows of experiments that are values |
//! | [`benchmark`] | an experiment that is a value |
//! | [`options`], [`arguments`] | one set of options, and those of an experiment |
//! | [`run`], [`runner`] | rounds, points and servers in turn |
//! | [`mod@rows`], [`judge`] | rows as files keep them; verdicts on them |
//! | [`mod@report`] | everything as one page, or one table |
//! | [`columns`] | the columns of the rows of an experiment that is a value |
//! | [`results`], [`summary`] | medians, spreads, ratios as markdown |
//! | [`claim`], [`mod@reference`] | claims, met or missed; the rows they are compared with |
//! | [`peers`], [`template`] | the servers beside Forebay: files in `lab/peers`, filled in |
//! | [`serving`] | a server under way, with the servers behind it |
//! | [`cage`] | memory that is small, and empty at first |
//! | [`running`] | a process: pinned, started, stopped whatever happens |
//! | [`load`] | a run of Forebay's load generator, and what the server spent meanwhile |
//! | [`client`] | other clients |
//! | [`probe`] | one request before each measurement: is the answer right? |
//! | [`forebay`] | facts that a build of Forebay states about itself |
//! | [`cpu`], [`machine`] | processor time; the machine |
//! | [`content`], [`tls`] | the files that are served; the certificate that is shown |
//! | [`network`] | loopback in a namespace of its own |
//! | [`error`] | the reason why a run stopped |
//!
//! The experiments that are values, each with its own code:
//!
//! | module | what it is about |
//! |---|---|
//! | [`benchmarks`] | all of them by name |
//! | [`static_files`], [`case`] | the cost of static answers, beside other servers |
//! | [`engines`] | the engines beside one another |
//! | [`shift`] | a load that shifts, on a pipeline whose threads move or stay |
//! | [`keepalive`] | clients that want one object and stay silent |
//! | [`profile`] | where the time of a request goes |
//! | [`reload`] | clients while the configuration changes |
//! | [`calibration`] | constants that are wrong on purpose, calibrated |
//! | [`receivers`] | a thousand receivers, fast and slow, of short and long answers |
//! | [`crashes`] | processes that are killed, frozen or cut off |
//! | [`stages`] | the cost of three processes |
//! | [`overload`] | more load than a server can do |
//!
//! ```
//! use forebay_lab::summary::Spread;
//!
//! let spread = Spread::of([5.2, 5.1, 6.0]).expect("there are values");
//! assert_eq!(format!("{spread:.1}"), "5.2 (5.1–6.0)");
//! ```
//!
//! The laboratory deliberately does not compare runs of different days: the machine is never the
//! same.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod benchmark;
pub mod benchmarks;
pub mod bridge;
pub mod cage;
pub mod calibration;
pub mod case;
pub mod catalogue;
pub mod claim;
pub mod client;
pub mod columns;
pub mod command;
pub mod content;
pub mod cpu;
pub mod crashes;
pub mod engines;
pub mod error;
pub mod experiment;
pub mod forebay;
pub mod judge;
pub mod keepalive;
pub mod load;
pub mod machine;
pub mod measure;
pub mod network;
pub mod options;
pub mod overload;
pub mod peers;
pub mod probe;
pub mod profile;
pub mod receivers;
pub mod reference;
pub mod reload;
pub mod report;
pub mod results;
pub mod round;
pub mod rows;
pub mod run;
pub mod runner;
pub mod running;
pub mod servers;
pub mod serving;
pub mod shift;
pub mod stages;
pub mod static_files;
pub mod summary;
pub mod template;
pub mod tls;

pub use error::Error;
