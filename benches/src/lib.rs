//! Static serving, measured side by side.
//!
//! The binary `bench` starts one server after another on one core, loads it from a second core and
//! reads from `/proc` what the server's processes spent; `limit` is the floor it compares with.
//! What the numbers mean and how they mislead is in `BENCHMARKING.md`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`case`] | the workloads and the goals Forebay has in them |
//! | [`content`] | the folder that is served |
//! | [`peer`] | the servers: package, command line, configuration |
//! | [`template`] | their configurations, filled in |
//! | [`tls`] | the certificate they show |
//! | [`running`] | a server process: pinned, started, stopped whatever happens |
//! | [`reload`] | clients while the configuration changes |
//! | [`group`] | servers of several processes, and nginx before others |
//! | [`crashes`] | requests at fixed times while something is in trouble |
//! | [`probe`] | one request before each measurement: is the answer right? |
//! | [`client`] | one thread on its own core that asks: wrk for HTTP/1, h2load for HTTP/2 |
//! | [`cpu`] | processor time of processes and cores |
//! | [`row`] | one measurement and what is wrong with it |
//! | [`engines`] | the engines beside one another, in other workloads |
//! | [`forebay`] | Forebay with a configuration of one's own |
//! | [`network`] | loopback in a namespace of its own |
//! | [`shift`] | a load that shifts, on a pipeline whose threads move or stay |
//! | [`receivers`] | a thousand receivers, fast and slow, of short and long answers |
//! | [`calibration`] | constants that are wrong on purpose, calibrated |
//! | [`keepalive`] | clients that want one object and stay silent |
//! | [`profile`] | where the time of a request goes |
//! | [`overload`] | more load than a server can do |
//! | [`summary`] | medians, spreads, ratios, goals as markdown |
//! | [`measure`] | rounds, cases and servers interleaved |
//! | [`machine`] | what everything ran on |
//! | [`error`] | why a run stopped |
//!
//! ```
//! use forebay_benches::summary::Spread;
//!
//! let spread = Spread::of([5.2, 5.1, 6.0]).expect("there are values");
//! assert_eq!(format!("{spread:.1}"), "5.2 (5.1–6.0)");
//! ```
//!
//! It deliberately does not compare runs of different days: the machine is never the same.
#![forbid(unsafe_code)]

pub mod calibration;
pub mod case;
pub mod client;
pub mod content;
pub mod cpu;
pub mod crashes;
pub mod engines;
pub mod error;
pub mod forebay;
pub mod group;
pub mod keepalive;
pub mod machine;
pub mod measure;
pub mod network;
pub mod overload;
pub mod peer;
pub mod probe;
pub mod profile;
pub mod receivers;
pub mod reload;
pub mod row;
pub mod running;
pub mod shift;
pub mod summary;
pub mod template;
pub mod tls;

pub use error::Error;
