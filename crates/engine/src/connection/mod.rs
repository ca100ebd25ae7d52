//! One connection in any engine: how it is accepted, the steps of its turn, and its end.
//!
//! | module | what it holds |
//! |---|---|
//! | [`accept`] | which connections are accepted, and what happens when none can be |
//! | [`served`] | a connection and what must be known of it to go on |
//! | `turn` | the steps of its turn, the same for every engine |
//! | [`worker`] | what a thread needs for them: handler, buffers, clock, counters |
//! | `stream` | its socket, and the transport between that and the protocol |
//! | `waits` | what its requests wait for: jobs, turns, times |
//! | [`send`] | how an answer leaves: memory, file, the truth about files |
//! | `send_window` | how much its client takes, and what the kernel keeps unsent for it |
//! | `closing` | how it is refused, handed over and closed |

pub mod accept;
pub(crate) mod closing;
pub mod send;
pub(crate) mod send_window;
pub mod served;
pub(crate) mod stream;
pub(crate) mod turn;
pub(crate) mod waits;
pub mod worker;
