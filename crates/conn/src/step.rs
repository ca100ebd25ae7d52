//! A connection's messages to the engine: its next step, and what it waits for; and the events that
//! answer them.

use crate::request::RequestId;

/// The next action of the engine.
#[derive(Debug)]
pub enum Step<J> {
    /// Receive more bytes into the input, then advance.
    Receive,
    /// Receive what has come meanwhile, whether or not the socket is known to have more; then advance,
    /// even if nothing was received.
    Look,
    /// Send all of [`Out`](crate::Out), then call [`sent`](crate::Protocol::sent) and advance.
    Send,
    /// Run this job for the request, then advance with [`RequestEvent::Done`].
    Job(RequestId, J),
    /// Put this request into the ready queue: it is answered in a turn that
    /// [answers](crate::Context::answers) its rank, with [`RequestEvent::Called`].
    Enqueue(RequestId),
    /// Hold this request back until this many milliseconds have passed; then advance with
    /// [`RequestEvent::Due`].
    NotBefore(RequestId, u32),
    /// Drop this request's job if it has not begun, because the request is given up. Then advance.
    Forget(RequestId),
    /// Wait for an event.
    Wait,
    /// Give the turn to other connections, because its budget is used up; then advance again.
    Yield,
    /// End our direction: nothing more is sent, but the client may go on. Returned only when all of
    /// [`Out`](crate::Out) has been sent, and once; then advance.
    End,
    /// Stop watching the client's socket, which goes to another process for a while; then
    /// [lend](crate::Protocol::lend) it and advance. Watch it again when it is no longer
    /// [lent](crate::Protocol::is_lent).
    Lend,
    /// Give the socket and the received bytes to [`hand_over`](crate::Hooks::hand_over).
    HandOver,
    /// Close the connection.
    Close(Closing),
}

/// An event of a request.
#[derive(Debug)]
pub enum RequestEvent<D> {
    /// The job is done, with this result.
    Done(RequestId, D),
    /// The job has panicked.
    Failed(RequestId),
    /// The request's turn to be answered has come.
    Called(RequestId),
    /// The time from which the request may be answered has come.
    Due(RequestId),
    /// A socket that the request waits for can be read or written, or has failed: the request must try
    /// it.
    Socket(RequestId),
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Close at once: everything received was used, and the plain close sends FIN.
    Now,
    /// Shut down writing, read and drop for a while, then close: input may be unread, and closing on it
    /// would send a RST that destroys the answer on its way (RFC 9112 §9.6).
    Linger,
    /// Send a RST.
    Reset,
}

/// An awaited event, which decides the time it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Await {
    /// The first byte of the next request.
    Idle,
    /// The rest of a head; also the first byte on a new connection, a PROXY header, a handshake.
    Head,
    /// The rest of a request body.
    Body,
    /// A job, or a turn in which the request is answered.
    Job,
    /// The time from which an admitted request may be answered.
    Admission,
    /// Room in the client's receive window.
    Send,
    /// A place among the requests at once of a rule. For this and the next six, the protocol
    /// [says](crate::Protocol::deadline_ms) how long they may last.
    Place,
    /// The permission to ask another server: a place at it.
    Slot,
    /// A connection to another server.
    Connect,
    /// The head of another server's answer.
    Answer,
    /// A movement of a body that is passed on.
    Flow,
    /// The end of the other direction of a tunnel, or a movement in it, after one direction has ended.
    Ending,
    /// Any of the four before, and the time at which an exchange checks whether its upstream still lives:
    /// when that time has come, nothing need be wrong (see [`Relay::looks`](crate::Relay::looks)).
    Link,
    /// What [`Link`](Await::Link) says, for an exchange that no upstream has: this wait is over sooner
    /// than the one before it.
    Rest,
}

impl Await {
    /// Whether another server must be asked first, which takes its time whatever the client does.
    pub(crate) fn is_before_asking(self) -> bool {
        matches!(self, Await::Slot | Await::Connect)
    }
}
