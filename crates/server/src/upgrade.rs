//! How another process takes the place of a running server, and no client notices.
//!
//! In: the control socket of the server that runs. Out: its listening sockets and what must not be lost, in a
//! process that was started as the first one was, with all rights; the server before serves what it has to the end.
//!
//! ```text
//!  successor                                    predecessor
//!     │ take over                                   │ serves
//!     ├────────────────────────────────────────────►│
//!     │◄─────────────────── what is handed, sockets ┤
//!     │ opens all else, begins to accept            │ serves as well
//!     │ serves                                      │
//!     ├────────────────────────────────────────────►│ accepts no more
//!     │◄──────────────────────── what it knows last ┤
//!     │◄───────────────────── connections it has, … ┤ until it has none
//! ```
//!
//! Until the successor has said that it serves, nothing changes in the server before: one that cannot serve ends,
//! and that is all.
//!
//! | module | what it holds |
//! |---|---|
//! | [`earlier`] | servers that were replaced, and have connections yet |
//! | [`expected`] | what an operator and the service manager have to do with it |
//! | [`handed`] | what is handed, as a text and descriptors |
//! | [`predecessor`] | the successor's end of the connection |
//! | [`program`] | which program runs, and whether another lies in its place |
//! | [`service`] | which service of systemd a process belongs to |
//! | [`shared`] | what is counted together with the servers before |
//! | [`starting`] | what the command that starts the successor tells it, and hears of it |
//! | [`successor`] | the predecessor's end |

pub mod earlier;
pub mod expected;
pub mod handed;
pub mod predecessor;
pub mod program;
pub mod service;
pub mod shared;
pub mod starting;
pub mod successor;

use signal_hook::consts::SIGURG;

/// Tells a stage that stages of another server replace it. Nobody else sends this, and who does not know it ignores it.
pub const UPGRADED: i32 = SIGURG;
