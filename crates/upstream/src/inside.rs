//! Applications that are code of this process: a request goes through a bounded pipe to a handler of
//! the program that the server is a part of, and the answer comes back through the pipe.
//!
//! A handler is straight-line code that may wait. Where the thread [hosts
//! fibers](forebay_fiber::is_hosted), each request has a fiber; elsewhere it has one of a limited
//! number of threads (`threads`). A detached handler is given the request to keep, and has neither.
//! For the protocol this is an exchange like that with any other application ([`InsideExchange`]),
//! but without a socket. The two ends of the pipe wake one another: the handler by its fiber or
//! thread, the exchange by its [slot](forebay_conn::WakeSlot).
//!
//! | module | what it holds |
//! |---|---|
//! | `pipe` | the pipe: a request's body one way, the answer the other, and how either end leaves |
//! | `request`, `response` | what a handler gets, and what it answers with |
//! | `switched` | both as one stream, after a change of protocol |
//! | `taken` | what detached handlers hold of limited resources |
//! | `run` | a handler with its request |
//! | `threads` | threads for handlers where there are no fibers |
//! | `place` | where a handler runs, and how many may |
//! | `exchange` | the exchange with a handler, as the protocol drives it |

mod exchange;
mod pipe;
mod place;
mod request;
mod response;
mod run;
mod switched;
mod taken;
mod threads;

pub use exchange::{InsideExchange, InsideFailure};
pub use pipe::HandlerHead;
pub use place::HandlerPlaces;
pub use request::{InsideRequest, RequestParts, UpgradeParts, asked_protocols};
pub use response::InsideResponse;
pub use switched::SwitchedStream;
pub use threads::ThreadShortage;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The result of a handler. An error before the head of the answer was sent becomes a 500; after
/// that, the client sees that its answer is cut off.
pub type HandlerResult = Result<(), Box<dyn std::error::Error>>;

/// Code of the program that answers requests.
pub trait RequestCode: Send + Sync + 'static {
    /// Answers `request` by writing into `response`; may wait.
    ///
    /// # Errors
    /// Any reason why the handler cannot answer.
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

/// Code of the program that is given requests to keep, and answers them later from a task or a thread
/// of its own, such as those of an async runtime. It is called on the thread of the connection and
/// must not wait.
///
/// The answer is complete when the response is [completed](InsideResponse::complete). A response that
/// is dropped before has failed.
pub trait DetachedCode: Send + Sync + 'static {
    /// Takes a request, and the response to answer it with.
    fn take(&self, request: InsideRequest, response: InsideResponse);
}

impl<F> DetachedCode for F
where
    F: Fn(InsideRequest, InsideResponse) + Send + Sync + 'static,
{
    fn take(&self, request: InsideRequest, response: InsideResponse) {
        self(request, response);
    }
}

/// The code of a handler.
#[derive(Clone)]
pub enum HandlerCode {
    /// Code that has a fiber or a thread for each request, and may wait.
    Waits(Arc<dyn RequestCode>),
    /// Code that is given each request to keep, and does not wait.
    Detached(Arc<dyn DetachedCode>),
}

impl HandlerCode {
    fn is(&self, other: &HandlerCode) -> bool {
        match (self, other) {
            (HandlerCode::Waits(one), HandlerCode::Waits(other)) => Arc::ptr_eq(one, other),
            (HandlerCode::Detached(one), HandlerCode::Detached(other)) => Arc::ptr_eq(one, other),
            (HandlerCode::Waits(_), HandlerCode::Detached(_))
            | (HandlerCode::Detached(_), HandlerCode::Waits(_)) => false,
        }
    }
}

/// A handler, its name, and where it runs.
#[derive(Clone)]
pub struct InsideCode {
    /// The handler's name in logs.
    pub name: Arc<str>,
    /// The code.
    pub code: HandlerCode,
    /// The places where the handler runs.
    pub places: Arc<HandlerPlaces>,
}

/// Two handlers are equal only if they share the same code.
impl PartialEq for InsideCode {
    fn eq(&self, other: &InsideCode) -> bool {
        self.name == other.name
            && self.code.is(&other.code)
            && Arc::ptr_eq(&self.places, &other.places)
    }
}

impl Eq for InsideCode {}

impl fmt::Debug for InsideCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InsideCode").field(&self.name).finish()
    }
}

/// The limits of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerLimits {
    /// The time until the head of its answer; `None` for no limit.
    pub head: Option<Duration>,
    /// The largest request body, in bytes.
    pub most_bytes: u64,
    /// Whether a client that has ended its direction of the connection counts as gone.
    pub abort_on_close: bool,
    /// Whether the handler may change the protocol of the connection.
    pub upgrades: bool,
    /// The longest time without a byte in either direction after a change of the protocol; `None` for
    /// no limit.
    pub silence: Option<Duration>,
}
