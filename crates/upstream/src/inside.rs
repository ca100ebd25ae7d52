//! Applications that are code of this process: a request goes through a bounded pipe to a handler of the program
//! that the server is a part of, and the answer comes back through it.
//!
//! A handler is straight-line code that may wait. Where the thread [hosts fibers](forebay_fiber::is_hosted), each
//! request has a fiber; elsewhere it has one of a bounded number of threads (`threads`). To the protocol it is an
//! exchange like that with any other application ([`InsideExchange`]), but there is no socket: the two ends of the
//! pipe wake one another, the handler by its fiber or thread, the exchange by its [slot](forebay_conn::WakeSlot).
//!
//! | module | what it holds |
//! |---|---|
//! | `pipe` | the pipe: a request's body one way, the answer the other, and how either end leaves |
//! | `request`, `response` | what a handler is given |
//! | `run` | a handler with its request |
//! | `threads` | threads for handlers where no fibers are |
//! | `place` | where a handler runs, and how many may |
//! | `exchange` | the exchange |

mod exchange;
mod pipe;
mod place;
mod request;
mod response;
mod run;
mod threads;

pub use exchange::{InsideExchange, InsideFailure};
pub use pipe::HandlerHead;
pub use place::HandlerPlaces;
pub use request::{InsideRequest, RequestParts};
pub use response::InsideResponse;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a handler has come to. An error before the head of the answer was sent is a 500; later the client sees that its
/// answer is broken.
pub type HandlerResult = Result<(), Box<dyn std::error::Error>>;

/// Code of the program that answers requests.
pub trait RequestCode: Send + Sync + 'static {
    /// Answers `request` by writing into `response`; may wait.
    ///
    /// # Errors
    /// Whatever keeps it from an answer.
    fn answer(&self, request: &mut InsideRequest, response: &mut InsideResponse) -> HandlerResult;
}

impl<F> RequestCode for F
where
    F: Fn(&mut InsideRequest, &mut InsideResponse) -> HandlerResult + Send + Sync + 'static,
{
    fn answer(&self, request: &mut InsideRequest, response: &mut InsideResponse) -> HandlerResult {
        self(request, response)
    }
}

/// A handler, what it is called, and where it runs.
#[derive(Clone)]
pub struct InsideCode {
    /// What logs call it.
    pub name: Arc<str>,
    /// The code.
    pub code: Arc<dyn RequestCode>,
    /// Where it runs.
    pub places: Arc<HandlerPlaces>,
}

/// The same code is equal to itself alone.
impl PartialEq for InsideCode {
    fn eq(&self, other: &InsideCode) -> bool {
        self.name == other.name
            && Arc::ptr_eq(&self.code, &other.code)
            && Arc::ptr_eq(&self.places, &other.places)
    }
}

impl Eq for InsideCode {}

impl fmt::Debug for InsideCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InsideCode").field(&self.name).finish()
    }
}

/// Bounds of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerLimits {
    /// Time until the head of its answer; `None` for as long as it takes.
    pub head: Option<Duration>,
    /// Bodies of requests may have so many bytes.
    pub most_bytes: u64,
    /// Whether a client has left that has ended its direction of the connection.
    pub abort_on_close: bool,
}
