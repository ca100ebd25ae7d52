//! Static content: sites and their rules, files and their variants, and the data cache that holds
//! whole answers.
//!
//! This is the process stage of a request's journey for static content. A [`Site`] belongs to one
//! loop and answers from its own table without a lock, an allocation or a system call. A path that
//! is not there is looked up in the cache that all loops share, and one that is not there either
//! becomes a [`SiteJob`] for a helper thread, which asks the file system. Watched directories
//! report when an answer is outdated. Rules are applied when an entry is made, so that a hit pays
//! nothing for them.
//!
//! ```text
//!  Request ─► Site ─► front (by the path as sent) ─► store (by normalised path) ─► SiteJob ─► look, load
//!               │         ▲ dead? look again             ▲ remove                   │ register,
//!               ▼         └──────── Entry ───────────────┤                          ▼ then read
//!       Reply or Body                                  watch ◄── inotify ◄── the file system
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`], [`rules`] | the settings of content and its rules |
//! | `vhost` | a site while it is served: its directories, its small pages |
//! | `routing` | the site of a host, and the effect of rules on a path |
//! | `answering` | one loop's part: from a request to what is written, and to an application |
//! | `access` | access to a path, and to the file that answers: addresses and passwords |
//! | `cache` | a loop's own table, the shared cache, what both hold, and which change of a file concerns it |
//! | `making` | a helper thread's part: look, open, read, write the heads of an entry |
//! | `bodies` | the places of an answer's bytes: memory, disk, pipes; codings that no file has |
//! | `heads` | parts of heads: fields, media types, entity tags, small pages |
//! | `content` | what all loops share: sites with their roots, the cache, the thread that keeps entries true |
//! | `request_context` | facts about a request that are not in its head: client, scheme, class |
//! | `notice` | notices for the operator |
//! | `work` | the handler for tests |
//!
//! This package deliberately knows no connection and reads no configuration: settings arrive
//! parsed.
//!
//! ```
//! use forebay_conn::TurnTime;
//! use forebay_site::{Content, ContentSettings, Site};
//! use std::sync::Arc;
//!
//! let settings = ContentSettings::new(std::env::temp_dir());
//! let content = Content::open(settings, |notice| eprintln!("{notice}"))?;
//! let now = TurnTime { monotonic_ms: 1, unix_ms: 1_795_000_000_000 };
//! let site = Site::new(Arc::clone(&content), Arc::default(), now, 4096);
//! assert_eq!(content.figures().entries, 0);
//! # drop(site);
//! # Ok::<(), forebay_site::OpenError>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod answering;
mod bodies;
mod cache;
mod content;
mod heads;
mod making;
mod notice;
mod request_context;
mod routing;
pub mod rules;
pub mod settings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod vhost;
mod work;

pub use access::auth::{UsersError, users_errors};
pub use answering::application::{Destination, Routed, judged_paths};
pub use answering::body::Body;
pub use answering::fixed::{FixedAnswer, FixedBytes, FixedForm, NotFixed};
pub use answering::site::Site;
pub use answering::site::hot::HotAnswer;
pub use bodies::recode::Recoder;
pub use cache::entry::{LetGo, Script};
pub use content::{CacheFigures, Content};
pub use making::job::{SiteJob, SiteJobDone};
pub use notice::{Notice, OpenError};
pub use request_context::{RequestContext, RequestScheme};
pub use routing::hosts::host_of;
pub use routing::route::route_of;
pub use settings::{ContentSettings, EtagMode, FilesLocation, SiteSettings, ToHttps};
pub use vhost::root::root_directories;
