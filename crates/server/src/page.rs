//! The page of the admin listener: the state of the server, now and in the last hour, for browsers.
//!
//! Once a second a thread takes the same [`Snapshot`](forebay_metrics::Snapshot) from which
//! `/metrics` and `/status` are made, and records changes in [`PageMemory`], whose size is bounded.
//! The admin listener answers from there: a request computes little, and a page that is opened
//! later shows the hour before.
//!
//! | module | what it holds |
//! |---|---|
//! | `columns` | turns two snapshots into the figures of the time between them |
//! | `history` | the figures of an hour |
//! | `events` | decisions and changes: the marks in the charts |
//! | `stages` | the stages of `isolated` |
//! | `windows` | the most frequent clients and paths of 1, 10 and 60 minutes |
//! | `memory` | the memory of all that, and the thread that fills it |
//! | `answers` | the documents below `/page` |
//!
//! The files of the page are in `assets`; uPlot draws the charts, as it was published, with its licence beside it.

pub(crate) mod answers;
mod columns;
mod events;
mod history;
pub(crate) mod memory;
pub(crate) mod stages;
mod windows;

pub(crate) use memory::PageMemory;
