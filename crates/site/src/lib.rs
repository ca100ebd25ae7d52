//! What a URL means: sites and their rules, files and their variants, and the data cache that holds
//! whole answers.
//!
//! This is the process stage of a request's journey for static content. A [`Site`] belongs to one
//! loop and answers from its own table without a lock, an allocation or a system call. What is not
//! there is looked up in the cache that all loops share; what is not there either becomes a
//! [`SiteJob`] for a helper thread, which asks the file system. Watched directories tell when an
//! answer is no longer true. Rules are applied when an entry is made, so that a hit pays nothing for
//! them.
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
//! | [`settings`], [`rules`] | what a person may decide, and what the operator should know |
//! | `hosts`, `vhost` | which site a host belongs to, and what a site is while it is served |
//! | `https` | by which scheme clients have come: who is sent to https, and who is told to stay there |
//! | `site`, `answer`, `refuse`, `pages`, `redirection`, `head_lines` | from a request to what is written: variant, conditions, ranges |
//! | `body` | the part of an answer that is sent piece by piece |
//! | `front`, `store`, `entry`, `variant` | a loop's own table, the shared cache, and what both hold |
//! | `entity_tag`, `known_hashes` | what tells one content of a file from another |
//! | `memory_budget`, `spare` | how much memory bodies may take, and memory that is used again |
//! | `piped` | bodies that are read for one answer, and wait in the kernel |
//! | `guard`, `names`, `inverse`, `auth` | who may ask for a path, and for the file that answers: addresses and passwords |
//! | `application` | requests that applications answer, and the rules that come before them |
//! | `work` | the handler for tests |
//! | `route`, `look` | what rules make of a path, and what is there: redirect, alias, file, list, error |
//! | `job`, `load`, `read`, `bake`, `fields`, `listing`, `listing_format` | making an entry: open, read, write its heads |
//! | `compress` | bodies in codings that no file has |
//! | `recode` | the same for answers of applications, as they pass by |
//! | `content`, `watch`, `graph`, `forms`, `root` | keeping entries true |
//!
//! It deliberately knows no connection and reads no configuration: settings arrive parsed.
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

mod ambiguity;
mod answer;
mod application;
mod application_answer;
mod auth;
mod bake;
mod body;
mod compress;
mod content;
mod disk;
mod entity_tag;
mod entry;
mod entry_key;
mod fields;
mod forms;
mod front;
mod graph;
mod guard;
mod head_lines;
mod hosts;
mod https;
mod inverse;
mod job;
mod known_hashes;
mod listing;
mod listing_format;
mod load;
mod location;
mod look;
mod media_types;
mod memory_budget;
mod names;
mod notice;
mod pages;
mod piped;
mod read;
mod recode;
mod redirection;
mod refuse;
mod root;
mod route;
pub mod rules;
pub mod settings;
mod site;
mod site_request;
mod spare;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod turned;
mod variant;
mod vhost;
mod watch;
mod work;

pub use application::{Destination, Routed, judged_paths};
pub use auth::{UsersError, users_errors};
pub use body::Body;
pub use content::{CacheFigures, Content};
pub use entry::Script;
pub use hosts::host_of;
pub use https::RequestScheme;
pub use job::{SiteJob, SiteJobDone};
pub use notice::{Notice, OpenError};
pub use recode::Recoder;
pub use root::root_directories;
pub use route::route_of;
pub use settings::{ContentSettings, EtagMode, FilesLocation, SiteSettings, ToHttps};
pub use site::Site;
