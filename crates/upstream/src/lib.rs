//! Applications behind this server: which upstream gets a request, what is sent to it, and what comes
//! back.
//!
//! A request whose path belongs to an application is passed on. Its head is written anew for an
//! upstream, which is chosen among those that can take it. The head of the answer is read within
//! bounds, and the client gets those fields that are for it. Most of this needs no sockets, threads
//! and clocks: bytes and time are arguments. [`exchange`], [`application`], [`upstreams`] and
//! [`pings`] have the sockets, [`ends`] and [`spool`] have files.
//!
//! | module | what it holds |
//! |---|---|
//! | [`exchange`] | one request and its answer, as the client's connection drives it |
//! | [`hand_over`] | requests that leave with their socket: a receiver answers on the client's connection |
//! | [`inside`] | applications that are code of this process |
//! | [`receivers`] | messages to and from receivers, and what becomes of a request by these |
//! | [`application`] | the application of a route: the [`pool`] of its connections, its [`upkeep`] |
//! | [`upstreams`] | upstreams as routes share them: how they are reached, which requests wait for one |
//! | [`stage`] | requests to the next stage of this server, and [`pings`], whether its instances live |
//! | [`link`] | what becomes of requests to the next stage while its processes crash or [end](ends) |
//! | `messages` | messages between this server and an application: [`target`], [`destination`], [`request`], [`response`], [`fastcgi`] |
//! | [`places`] | which request gets a place when one is free: a [`group`] and the [`queue`], by rank |
//! | [`spool`] | bodies of requests on disk |
//! | [`group`] | the upstreams of one application, and what is known of them: [`balance`], [`health`], [`retry`], [`notices`] |
//! | [`wake_bell`] | the eventfd for which a thread waits where code of this process wakes a request |
//! | [`settings`] | the settings of applications, and how an upstream's address is written |
//!
//! The crate deliberately does not know which path belongs to which application: the site decides that,
//! by the number of a route. Nor does the crate read a configuration: settings arrive parsed.
//!
//! ```
//! use forebay_conn::HeadValues;
//! use forebay_http::forwarded::ForwardedFamily;
//! use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
//! use forebay_upstream::request::{self, From, RequestSettings, UpstreamRequest};
//! use forebay_upstream::target::JudgedPath;
//!
//! let bytes = b"GET /a HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
//! let mut lines = Lines::new();
//! let Ok(ParsedHead::Complete(head)) = Head::parse(bytes, &mut lines, &HeadLimits::default()) else {
//!     unreachable!()
//! };
//! let address = [192, 0, 2, 7].into();
//! let from = From {
//!     nearest: address,
//!     client: address,
//!     is_trusted: false,
//!     is_of_stage: false,
//!     is_secure: false,
//!     nearest_is_secure: false,
//!     port: 80,
//!     family: ForwardedFamily::XForwarded,
//!     elements: 0,
//!     tells_forwarded: false,
//!     names_client: false,
//! };
//! let asked = UpstreamRequest { head: &head, judged: JudgedPath::Normal(b"/a"), rewritten: None, from, id: 1, hidden: None, given: &[], trace: None, values: &HeadValues::default() };
//! let mut out = Vec::new();
//! let settings = RequestSettings { remove: Vec::new(), ..RequestSettings::default() };
//! request::write(&asked, "10.0.0.1:9000", &settings, &mut out).unwrap();
//! assert!(out.starts_with(b"GET /a HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\n"));
//! ```
#![forbid(unsafe_code)]

pub mod application;
pub mod exchange;
pub mod group;
pub mod hand_over;
pub mod inside;
pub mod link;
mod messages;
pub mod places;
pub mod receivers;
pub mod settings;
pub mod spool;
pub mod stage;
pub mod upstreams;
pub mod wake_bell;

pub use application::{pool, upkeep};
pub use group::{balance, health, learnt, notices, retry};
pub use link::ends;
pub use messages::names::{is_forwarding, is_own};
pub use messages::{
    client_url, cookies, destination, fastcgi, request, response, sent_fields, target,
};
pub use places::queue;
pub use stage::pings;
pub use upstreams::sign_in;
