//! What is said with receivers, programs that requests are handed over to, and what becomes of a request by that: without
//! sockets and clocks, whichever way a receiver gets a request.
//!
//! | module | what it holds |
//! |---|---|
//! | [`frame`] | what is said between the server and a receiver, byte by byte |
//! | [`loan`] | one request on its way there and back |

pub mod frame;
pub mod loan;
