//! What a connection tells the engine: its next step, and what it waits for; and what has happened meanwhile.

use crate::request::RequestId;

/// What the engine does next.
#[derive(Debug)]
pub enum Step<J> {
    /// Receive more bytes into the input, then advance.
    Receive,
    /// Receive what has come meanwhile, whether or not the socket is known to have more; then advance, also if that
    /// was nothing.
    Look,
    /// Send all of [`Out`](crate::Out), then tell [`sent`](crate::Protocol::sent) and advance.
    Send,
    /// Have this done for the request, then advance with [`RequestEvent::Done`].
    Job(RequestId, J),
    /// This request is ready: it is to be answered in a turn that [answers](crate::Context::answers) its rank,
    /// with [`RequestEvent::Called`].
    Enqueue(RequestId),
    /// This request may not be answered before so many milliseconds have passed; then advance with
    /// [`RequestEvent::Due`].
    NotBefore(RequestId, u32),
    /// This request is given up: a job that was not begun for it never is. Then advance.
    Forget(RequestId),
    /// Nothing until there is an event.
    Wait,
    /// The turn's budget is used up; advance again after the neighbours had theirs.
    Yield,
    /// End our direction: nothing more is sent, but the client may go on. Only when all of [`Out`](crate::Out) has
    /// been sent, and once; then advance.
    End,
    /// The client's socket goes to another process for a while: watch it no longer, then
    /// [lend](crate::Protocol::lend) it and advance. Watch it again when it is no longer
    /// [lent](crate::Protocol::is_lent).
    Lend,
    /// Give socket and received bytes to [`hand_over`](crate::Hooks::hand_over).
    HandOver,
    /// Close the connection.
    Close(Closing),
}

/// What has happened to a request.
#[derive(Debug)]
pub enum RequestEvent<D> {
    /// Its job is done, with this result.
    Done(RequestId, D),
    /// Its job has panicked.
    Failed(RequestId),
    /// Its turn to be answered has come.
    Called(RequestId),
    /// The time has come from which it may be answered.
    Due(RequestId),
    /// The socket it waits for can be read or written, or has failed: it is tried.
    Socket(RequestId),
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Everything received was used: a plain close sends FIN.
    Now,
    /// Input may be unread, and closing on it would send a RST that destroys the answer on its way
    /// (RFC 9112 §9.6): shut down writing, read and drop for a while, then close.
    Linger,
    /// Send a RST.
    Reset,
}

/// What is waited for, which decides the time it is given.
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
    /// A place among the requests at once of a rule: until when this and the next six may last, the
    /// protocol [says](crate::Protocol::deadline_ms).
    Place,
    /// That another server may be asked.
    Slot,
    /// A connection to another server.
    Connect,
    /// The head of another server's answer.
    Answer,
    /// That a body moves that is passed on.
    Flow,
    /// That the other direction of a tunnel ends, or moves, of which one has ended.
    Ending,
    /// Any of the four before, and the time at which an exchange looks whether its upstream still lives: when
    /// it has come, nothing need be wrong (see [`Relay::looks`](crate::Relay::looks)).
    Link,
    /// The same, of an exchange that no upstream has: it is over sooner than what was waited for before.
    Rest,
}

impl Await {
    /// Whether another server is to be asked first: that takes what it takes, whatever the client does.
    pub(crate) fn is_before_asking(self) -> bool {
        matches!(self, Await::Slot | Await::Connect)
    }
}
