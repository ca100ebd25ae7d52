//! What a loop has that serves many connections: sockets, queues and times. Threads that serve one
//! connection each use its deadlines, too.
//!
//! | module | what it holds |
//! |---|---|
//! | `accepting` | how a loop accepts, and closes an idle connection to make room |
//! | `watched_listeners` | the loop's listening sockets: rest, and turns with other loops |
//! | `sockets` | the other sockets that requests of the loop wait for |
//! | `ready_queue` | connections whose request waits to be answered, in order |
//! | `send_queue` | which answer goes on first when several clients take more of theirs |
//! | `deadlines` | until when a connection and its requests may wait |
//! | `timer_wheel` | the deadlines of thousands of connections |

pub(crate) mod accepting;
pub(crate) mod deadlines;
pub(crate) mod ready_queue;
pub(crate) mod send_queue;
pub(crate) mod sockets;
pub(crate) mod timer_wheel;
pub(crate) mod watched_listeners;
