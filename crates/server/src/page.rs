//! The page of the admin listener: what browsers are shown of the server, now and in the last hour.
//!
//! A thread looks once a second at the same [`Snapshot`](forebay_metrics::Snapshot) that `/metrics` and `/status` are
//! made from, and keeps what has changed in [`PageMemory`], whose size is bounded. The admin listener answers from
//! there: nothing is computed while nobody looks, and a page that is opened later sees the hour before.
//!
//! | module | what it holds |
//! |---|---|
//! | `columns` | two snapshots into the figures of the time between them |
//! | `history` | the figures of an hour |
//! | `events` | what was decided and what has changed: the marks in the charts |
//! | `stages` | the stages of `isolated` |
//! | `windows` | who asks most in 1, 10 and 60 minutes |
//! | `memory` | all of that, and the thread that fills it |
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
