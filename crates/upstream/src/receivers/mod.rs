//! Receivers, programs that requests are handed over to: the messages between them and the server,
//! and what becomes of a request by these. There are no sockets and clocks here, whichever way a
//! receiver gets a request.
//!
//! | module | what it holds |
//! |---|---|
//! | [`frame`] | the messages between the server and a receiver, byte by byte |
//! | [`loan`] | one request on its way there and back |

pub mod frame;
pub mod loan;
