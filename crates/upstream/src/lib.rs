//! Applications behind: what they are told, what comes back, and which one is asked.
//!
//! A request whose path belongs to an application does not end here. Its head is written anew for an
//! upstream, which is chosen among those that can take it; the head of the answer is read, within
//! bounds, and what is for the client is told it. Most of this is said without sockets, threads and
//! clocks: bytes and time are arguments. The first modules, down to `ends`, have the sockets and the file.
//!
//! | module | what it holds |
//! |---|---|
//! | [`exchange`] | one request and its answer, as the client's connection drives it |
//! | [`application`] | the application of a route |
//! | [`upstreams`] | upstreams as routes share them: how they are reached, which requests wait for one |
//! | [`pool`] | connections that wait for their next request |
//! | [`sign_in`] | what becomes of a sign-in that counts for a connection |
//! | `drains` | requests whose client has left and that an application still works on |
//! | `http2` | HTTP/2 to the next stage, as an exchange speaks HTTP/1.1 |
//! | [`upkeep`] | checks of upstreams, and names that are looked up again |
//! | [`pings`] | whether the instances of the next stage live |
//! | [`ends`] | how its processes have ended |
//! | [`stage`] | what the next stage of this server is told |
//! | [`sent_fields`] | which fields about the client a trusted proxy has sent, as stages tell one another |
//! | [`target`] | the path that an upstream is asked for: the one that was judged |
//! | [`request`] | the head of a request, as an upstream is told it |
//! | [`response`] | the head of an answer, as the client is told it |
//! | [`fastcgi`] | the same for applications that speak FastCGI |
//! | [`places`] | what upstreams may have under way, and which request is next: the next two together |
//! | [`queue`] | those that wait, by rank |
//! | [`group`] | upstreams that do the same, and what is known of them: the next three together |
//! | [`balance`] | which of them is asked next |
//! | [`health`] | which of them are asked at all |
//! | [`link`] | the next stage of a server whose stages are processes: what becomes of requests while instances crash |
//! | [`retry`] | which requests may be sent again, and how many of all |
//! | [`notices`] | what an operator is told of them |
//! | [`settings`] | what a person decides about applications |
//! | `upstream_address` | how a person writes where an upstream is |
//!
//! It deliberately does not know which path belongs to which application: the site decides that, by the
//! number of a route. Nor does it read a configuration: settings arrive parsed.
//!
//! ```
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
//! };
//! let asked = UpstreamRequest { head: &head, judged: JudgedPath::Normal(b"/a"), rewritten: None, from, id: 1, hidden: None, given: &[] };
//! let mut out = Vec::new();
//! let settings = RequestSettings { remove: Vec::new(), ..RequestSettings::default() };
//! request::write(&asked, "10.0.0.1:9000", &settings, &mut out).unwrap();
//! assert!(out.starts_with(b"GET /a HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\n"));
//! ```
#![forbid(unsafe_code)]

mod addresses;
pub mod application;
pub mod balance;
pub mod client_url;
mod connection;
mod cookies;
mod drains;
pub mod ends;
pub mod exchange;
pub mod fastcgi;
pub mod group;
pub mod health;
mod http2;
pub mod link;
mod names;
pub mod notices;
pub mod pings;
pub mod places;
pub mod pool;
pub mod queue;
pub mod request;
pub mod response;
pub mod retry;
pub mod sent_fields;
pub mod settings;
pub mod sign_in;
pub mod stage;
pub mod target;
mod text;
pub mod upkeep;
mod upstream_address;
pub mod upstreams;

pub use names::{is_forwarding, is_own};
