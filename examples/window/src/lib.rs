//! The parts of a program with a window that need no window: its state, how code elsewhere reaches that, the page by
//! which a browser controls it, and which requests may.
//!
//! A request's journey ends here in a handler: it sends a closure to the thread that has the state
//! ([`access::OnMainThread`]), or takes a lock ([`access::UnderLock`]), and answers with what comes back. The program is
//! `src/main.rs`, with the feature `gtk`; `cargo run -p forebay-window --features gtk` shows it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`panel`] | the state: lamps, and the subscribers that learn of changes |
//! | [`access`] | the two ways to it |
//! | [`page`] | the server's pages |
//! | [`guard`] | which requests may read and write |
//!
//! This crate deliberately has no list of users: the person who starts the program has the link that
//! opens it.
//!
//! ```
//! use forebay_window::panel::LampPanel;
//!
//! let mut panel = LampPanel::default();
//! assert_eq!(panel.switch(3, true), Some(true));
//! assert_eq!(panel.switch(8, true), None);
//! ```
#![forbid(unsafe_code)]

pub mod access;
pub mod guard;
pub mod page;
pub mod panel;
