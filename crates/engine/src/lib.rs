//! The loops that perform the request path.
//!
//! An engine receives what clients send, lets each [`Protocol`](forebay_conn::Protocol) say what comes
//! next, and does it: receive, send, give a job to a helper thread, close. It imports neither policy
//! nor content; a [`Handler`](forebay_conn::Handler) brings both.
//!
//! | module | what it holds |
//! |---|---|
//! | [`threads`] | a new thread per connection, none kept |
//! | [`pool`] | a fixed number of threads, each accepts under a mutex |
//! | `straight` | straight-line code for one connection, over a way of waiting |
//! | `blocking` | how `threads` and `pool` wait |
//! | [`stock`] | what their threads share: workers that none uses, permits |
//! | [`event`] | one loop per core, readiness based; jobs that would block go to helper threads |
//! | [`fibers`] | one loop per core, a fiber per active connection in straight-line code |
//! | [`pipeline`] | four phases with a list and threads each, fused while nothing waits |
//! | `turn` | the steps of a connection's turn, the same for every engine |
//! | [`worker`] | what a thread needs for them: handler, buffers, clock, counters |
//! | `closing` | how connections are refused, handed over and closed |
//! | [`served`] | a connection and what must be known of it to go on |
//! | `stream` | its socket, and the transport between that and the protocol |
//! | `sockets` | the other sockets that its requests wait for |
//! | `waits` | what its requests wait for: jobs, turns, times |
//! | [`settings`] | timeouts and bounds every engine keeps |
//! | [`accept`] | which connections are accepted, and what happens when none can be |
//! | `ahead` | connections that were accepted before a thread serves them |
//! | `thread_queue` | which connection gets the next free thread, in order where threads are scarce |
//! | `accepting` | how a loop accepts, and closes an idle connection to make room |
//! | `watched_listeners` | the listening sockets of a loop: rest, and turns with other loops |
//! | [`admission`] | how many connections there are, in all and per client |
//! | `slow_readers`, `standing` | which connection is cut for another when there is no room |
//! | [`helpers`] | threads for work that may block |
//! | [`lanes`] | jobs of one file one after another, the highest rank first |
//! | [`ranks`] | the order of service: how many ranks, and what each is sure to get |
//! | `early` | requests that may not be answered yet, each with its time |
//! | `idle` | which idle connection makes room when all places are taken |
//! | `ready_queue` | the connections of a loop whose request is to be answered, in order |
//! | `permits` | which threads may answer, where each connection has one |
//! | [`send`] | how an answer leaves: memory, file, the truth about files |
//! | `send_queue` | which answer goes on first when several clients take more of theirs |
//! | `linger` | the end of connections whose clients may still send |
//! | `deadlines` | until when a connection and its requests may wait |
//! | `timer_wheel` | the deadlines of thousands of connections |
//! | [`watch`] | the stopwatch of sampled turns |
//! | `architecture` | the engines by name, and what others must know of each |
//! | [`control`] | how a running engine is told to drain or to stop |
//!
//! It deliberately contains no `unsafe` and no async runtime.
#![forbid(unsafe_code)]

pub mod accept;
mod accepting;
pub mod admission;
mod ahead;
mod architecture;
mod blocking;
mod closing;
pub mod control;
mod deadlines;
mod early;
pub mod event;
pub mod fibers;
pub mod helpers;
mod idle;
pub mod lanes;
mod linger;
mod permits;
pub mod pipeline;
pub mod pool;
pub mod ranks;
mod ready_queue;
pub mod send;
mod send_queue;
mod send_window;
pub mod served;
pub mod settings;
mod slow_readers;
mod sockets;
mod standing;
pub mod stock;
mod straight;
mod stream;
mod thread_queue;
pub mod threads;
mod timer_wheel;
mod turn;
mod waits;
pub mod watch;
mod watched_listeners;
pub mod worker;

pub use architecture::{Engine, NAMES};
