//! HTTP/1 messages: bytes in, bytes out.
//!
//! This crate holds everything that a server must decide about a message from its bytes alone: the
//! head of a request and how its body is framed, conditions, ranges, content codings, the path that
//! a target names, and the heads of answers. On a request's journey it is between the bytes that an
//! engine has received and the request path (`forebay-conn`), which asks it for their meaning. It
//! also defines which addresses are one [`client`], for all code that counts or orders by client.
//!
//! | module | question it answers |
//! |---|---|
//! | [`head`] | What does this request head say, and how long is it? |
//! | [`owned`] | How is a head kept that cannot be answered at once? |
//! | [`framing`] | How many bytes of body follow? |
//! | [`body`] | Which of the bytes that arrive are data, and where do they end? The same for bodies that are sent |
//! | [`path`] | Which path below the root does the target name? |
//! | [`readings`] | In which ways may applications read a path with `//`, `%2F` or `%5C`? |
//! | [`condition`] | Do `If-Match`, `If-None-Match`, … allow the answer (RFC 9110 §13.2.2)? |
//! | [`range`] | Which bytes of it were asked for (RFC 9110 §14)? |
//! | [`accept`] | Which media type does the client prefer (RFC 9110 §12.5.1)? |
//! | [`coding`] | Which content coding does the client prefer (RFC 9110 §12.5.3)? |
//! | [`challenge`] | Which schemes does `WWW-Authenticate` offer, and which sign in a connection (RFC 9110 §11.6.1)? |
//! | [`response`] | What does the head of an answer say, how long is it, and what follows? |
//! | [`forwarded`] | What do proxies state about the requests that they pass on (RFC 7239)? |
//! | [`grpc`] | Is this request a call of gRPC, and what does a status mean to its client? |
//! | [`field`] | Is this a name or a value of a field? |
//! | `octet` | In which class is this byte (RFC 9110 §5.5, §5.6)? |
//! | [`cidr`] | Which addresses are in a network? |
//! | [`client`] | Which addresses are one client? |
//! | [`date`] | An instant in the formats of HTTP, written and read |
//! | [`decimal`] | A number as decimal digits |
//! | [`status`] | Status codes and their reasons |
//! | [`trace_context`] | Which place has a request in a trace (W3C Trace Context)? |
//! | [`websocket`] | Where in the frames of a WebSocket is a stream of bytes? |
//!
//! The crate deliberately has no socket, no clock and no allocation on the way of an ordinary request.
//! HTTP/2 is another crate.
//!
//! ```
//! use forebay_http::head::{Head, HeadLimits, Lines, Method, ParsedHead};
//!
//! let bytes = b"GET /index.html HTTP/1.1\r\nHost: example.com\r\n\r\n";
//! let mut lines = Lines::new();
//! let Ok(ParsedHead::Complete(head)) = Head::parse(bytes, &mut lines, &HeadLimits::default()) else {
//!     unreachable!()
//! };
//! assert_eq!(head.method, Method::Get);
//! assert_eq!(head.path, b"/index.html");
//! assert_eq!(head.len, bytes.len());
//! ```
#![forbid(unsafe_code)]

pub mod accept;
pub mod body;
pub mod challenge;
pub mod cidr;
pub mod client;
pub mod coding;
pub mod condition;
pub mod date;
pub mod decimal;
pub mod field;
pub mod forwarded;
pub mod framing;
pub mod grpc;
pub mod head;

mod octet;
pub mod owned;
pub mod path;
pub mod range;
pub mod readings;
pub mod response;
pub mod status;
pub mod trace_context;
pub mod websocket;
