//! The schema of everything that Forebay counts or times, and its rendering.
//!
//! A loop, thread or fiber scheduler that serves requests owns one [`Local`] and is its only writer; readers
//! add up all of them on demand. So counting costs a plain addition, and a scrape never stops a request. The
//! journey's stages call [`Local::add`] and a [`Stopwatch`]; the admin listener calls [`render`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`schema`] | names, units, help texts and kinds of all counters, gauges and activities |
//! | [`local`] | the counters of one writer, and their sum |
//! | [`sites`] | counters per site under a bounded number of names |
//! | [`classes`] | the ledger of each class of service |
//! | `site_names`, `class_names` | the assignment of counters to sites and classes, through reloads |
//! | [`statuses`] | answers by exact status, durations of requests |
//! | [`histogram`] | durations, in buckets |
//! | [`upstreams`] | requests to applications, and their answers |
//! | [`firewall`] | the figures of the machine's firewall |
//! | [`gate`] | what the kernel counts, where rules judge there |
//! | [`top`] | the most frequent clients, paths and others, in bounded memory |
//! | [`stopwatch`] | time per activity of a sampled request (duke's figure 7) |
//! | [`render`] | all figures as Prometheus text and as JSON |
//! | `text` | the syntax of both formats |
//! | `cell` | a number that one thread writes |
//!
//! The crate deliberately has no clock, no thread, and no registry for metrics of other programs.
#![forbid(unsafe_code)]

mod cell;
mod class_names;
pub mod classes;
pub mod firewall;
pub mod gate;
pub mod histogram;
pub mod local;
pub mod render;
pub mod schema;
mod site_names;
pub mod sites;
pub mod statuses;
pub mod stopwatch;
mod text;
pub mod top;
pub mod upstreams;

pub use class_names::ClassNames;
pub use classes::{
    ClassEvent, ClassLimits, ClassSlot, ClassTotals, ClassTurn, RefusalReason, RefusedAt,
    Unanswered,
};
pub use firewall::FirewallFigures;
pub use gate::{GateClass, GateFigures, GateRule};
pub use histogram::{DurationTotals, SharedDurations};
pub use local::{Local, Totals};
pub use render::{Certificate, Info, RuleTotals, Snapshot};
pub use schema::{Activity, Counter, Gauge};
pub use site_names::SiteNames;
pub use sites::{SiteSlot, SiteTotals};
pub use statuses::AnswerTotals;
pub use stopwatch::{Off, Stopwatch};
pub use upstreams::{UpstreamCounts, UpstreamRow, UpstreamState, UpstreamTotals};
