//! An upgrade: another process takes the place of a running server, and no client notices.
//!
//! In: the control socket of the running server, the predecessor. Out: its listening sockets and
//! the state that must not be lost, in a process that was started as the first one was, with all
//! privileges. The predecessor serves its connections to their end.
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
//! Until the successor has said that it serves, nothing changes in the predecessor: a successor
//! that cannot serve ends, without any effect.
//!
//! | module | what it holds |
//! |---|---|
//! | [`earlier`] | replaced servers that still have connections |
//! | [`expected`] | upgrades that the service manager carries out for an operator |
//! | [`handed`] | what is handed over, as text and descriptors |
//! | [`predecessor`] | the successor's end of the connection |
//! | [`program`] | the file of the running program, and whether it was replaced |
//! | [`service`] | the systemd service of a process |
//! | [`shared`] | limits that are counted together with replaced servers |
//! | [`starting`] | the messages between a successor and the command that starts it |
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

/// The signal by which the supervisor announces to a stage that stages of another server replace
/// it. No other process sends it, and by default a process ignores it.
pub const UPGRADED: i32 = SIGURG;
