//! HTTP/2 (RFC 9113) with HPACK (RFC 7541) and priorities (RFC 9218): bytes in, bytes out.
//!
//! One [`Connection`] is a state machine for either [`EndpointRole`]. It stands between the bytes that an
//! engine has received, or a transport has decrypted, and the request path: received bytes go in and
//! [`Http2Event`]s come out; heads and pieces of bodies go in and frames come out. The connection has no
//! socket and no clock, and keeps no bodies: for a piece of a body it makes the header of the frame that
//! carries it.
//!
//! ```text
//!  bytes ──► frame ──► HPACK ──► DecodedFields ──► Http2Event: Request, Data …
//!                │                                                  │ caller
//!        windows, budgets                                           ▼
//!  bytes ◄── control frames ◄── flush   HEADERS ◄── head  DATA header ◄── next, data
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`frame`] | reads and writes the nine bytes before each payload |
//! | [`hpack`] | decodes fields with a table, and encodes them without one |
//! | `known_names` | the static table, and names that need not be compared as text |
//! | [`fields`] | an arena for the fields of one message, and their validation |
//! | [`settings`] | what the peer allows |
//! | `flow` | counts how much each side may still send |
//! | [`by_id`] | finds the value of a stream in one step |
//! | `stream`, `closed` | the state of an open stream, and of a closed one |
//! | [`priority`], `order` | the priority of a response, and so which stream sends next |
//! | [`budget`] | limits what a peer may do that costs more than it is worth |
//! | [`connection`] | brings these together: receives, sends, ends |
//! | [`error`] | faults of the peer, and the error codes for them |
//!
//! The crate deliberately has no server push, no trees of priorities (which RFC 9113 has deprecated) and,
//! when sending, no dynamic table: a response's fields are encoded once and sent on any connection.
//!
//! ```
//! use forebay_http2::hpack::encode;
//! use forebay_http2::{Connection, Http2Event, DecodedFields, Http2Limits, MessagePart};
//!
//! let (mut client, mut server) =
//!     (Connection::client(Http2Limits::default()), Connection::server(Http2Limits::default()));
//! let (mut fields, mut to_server, mut to_client) = (DecodedFields::default(), Vec::new(), Vec::new());
//!
//! let get = |block: &mut Vec<u8>| {
//!     for (name, value) in [(":method", "GET"), (":scheme", "https"), (":path", "/")] {
//!         encode::field(block, name.as_bytes(), value.as_bytes());
//!     }
//! };
//! let stream = client.open(&mut to_server, true, false, get).unwrap();
//!
//! let received = server.receive(&to_server, &mut fields, 0);
//! assert_eq!(received.event, Some(Http2Event::Request { stream, ends: true }));
//! assert_eq!(fields.path(), b"/");
//!
//! server.head(&mut to_client, stream, MessagePart::Head, |block| encode::status(block, 200));
//! let body = b"hello";
//! let header = server.data(stream, body.len() as u32, true).unwrap();
//! to_client.extend_from_slice(&header);
//! to_client.extend_from_slice(body);
//!
//! let received = client.receive(&to_client, &mut fields, 0);
//! assert_eq!(received.event, Some(Http2Event::Response { stream, ends: false }));
//! assert_eq!(fields.status(), 200);
//! let received = client.receive(&to_client[received.used..], &mut fields, 0);
//! assert_eq!(received.event, Some(Http2Event::Data { stream, bytes: body, ends: true }));
//! ```
#![forbid(unsafe_code)]

pub mod budget;
pub mod by_id;
mod closed;
pub mod connection;
pub mod error;
pub mod fields;
mod flow;
pub mod frame;
pub mod hpack;
mod known_names;
mod order;
pub mod priority;
pub mod settings;
mod stream;

pub use by_id::ById;
pub use connection::{
    Connection, EndpointRole, Http2Event, Http2Limits, MessagePart, ReceiveProgress, SendTurn,
};
pub use error::{ErrorCode, Fault};
pub use fields::{DecodedFields, Field, FieldLimits, MessageKind};
pub use priority::Priority;
