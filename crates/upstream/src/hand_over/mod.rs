//! Requests that leave with their socket: another process, a *receiver*, reads and answers them on the client's own
//! connection (keta §3). The connection stays one of its loop or thread, with its place, its count of requests, its
//! ticket and its deadline; what leaves is its socket.
//!
//! | module | what it holds |
//! |---|---|
//! | [`frame`] | what is said between the server and a receiver, byte by byte |
//! | [`loan`] | one request on its way there and back, without sockets and clocks |
//! | `link` | a link to a receiver, and the client's socket while that has it |
//! | [`exchange`] | the same with them: which receiver, in which order, for how long |
//! | [`offered`] | a link and a pair of sockets, for a client whose own socket is of no use to a receiver |

pub mod exchange;
pub mod frame;
mod link;
pub mod loan;
pub mod offered;
