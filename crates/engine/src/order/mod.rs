//! The order in which requests are answered.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ranks`] | how many ranks there are, and what each is sure to get |
//! | [`lanes`] | jobs of one file one after another, the highest rank first |
//! | `early` | requests that may not be answered yet, each with its time |
//! | `permits` | which threads may answer, where each connection has one |
//! | `thread_queue` | which connection gets the next free thread, in order where threads are scarce |

pub(crate) mod early;
pub mod lanes;
pub(crate) mod permits;
pub mod ranks;
pub(crate) mod thread_queue;
