//! The kinds of failure, with their names and descriptions.

/// How a request, or the connection it needed, can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum RequestFailure {
    /// The connection was refused: a RST answered the SYN.
    Refused,
    /// The connection could not be made for another reason: no route, unreachable.
    Unreachable,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// The connection was reset before the response was complete.
    Reset,
    /// The connection was closed before a response began.
    Closed,
    /// The connection was closed within a response.
    Short,
    /// The response was not complete within the timeout.
    Timeout,
    /// The input is not of the HTTP version that the group speaks.
    Malformed,
    /// The body does not have the expected length or content.
    WrongBody,
    /// The status is not that of a good response.
    Status,
    /// No response had come when the drain after the run was over (open loops).
    Unfinished,
    /// The request was never sent: no connection of the group was free in time.
    Unsent,
    /// The request was never sent: this machine had no local port or descriptor for it.
    Exhausted,
    /// The TLS handshake failed.
    Handshake,
    /// The server reset the request's stream.
    StreamReset,
    /// The server refused the request's stream, and has processed nothing of it.
    StreamRefused,
    /// The server sent GOAWAY before it processed the request.
    GoAway,
    /// The input is HTTP/2, but violates its rules.
    Protocol,
}

impl RequestFailure {
    /// All kinds.
    pub const ALL: [RequestFailure; 18] = [
        RequestFailure::Refused,
        RequestFailure::Unreachable,
        RequestFailure::ConnectTimeout,
        RequestFailure::Reset,
        RequestFailure::Closed,
        RequestFailure::Short,
        RequestFailure::Timeout,
        RequestFailure::Malformed,
        RequestFailure::WrongBody,
        RequestFailure::Status,
        RequestFailure::Unfinished,
        RequestFailure::Unsent,
        RequestFailure::Exhausted,
        RequestFailure::Handshake,
        RequestFailure::StreamReset,
        RequestFailure::StreamRefused,
        RequestFailure::GoAway,
        RequestFailure::Protocol,
    ];

    /// The kind's name in results.
    pub fn name(self) -> &'static str {
        match self {
            RequestFailure::Refused => "refused",
            RequestFailure::Unreachable => "unreachable",
            RequestFailure::ConnectTimeout => "connect_timeout",
            RequestFailure::Reset => "reset",
            RequestFailure::Closed => "closed",
            RequestFailure::Short => "short",
            RequestFailure::Timeout => "timeout",
            RequestFailure::Malformed => "malformed",
            RequestFailure::WrongBody => "wrong_body",
            RequestFailure::Status => "status",
            RequestFailure::Unfinished => "unfinished",
            RequestFailure::Unsent => "unsent",
            RequestFailure::Exhausted => "exhausted",
            RequestFailure::Handshake => "handshake",
            RequestFailure::StreamReset => "stream_reset",
            RequestFailure::StreamRefused => "stream_refused",
            RequestFailure::GoAway => "goaway",
            RequestFailure::Protocol => "protocol",
        }
    }

    /// A description of what happened.
    fn words(self) -> &'static str {
        match self {
            RequestFailure::Refused => "connection refused",
            RequestFailure::Unreachable => "unreachable",
            RequestFailure::ConnectTimeout => "no connection in time",
            RequestFailure::Reset => "connection reset",
            RequestFailure::Closed => "connection closed",
            RequestFailure::Short => "answer cut short",
            RequestFailure::Timeout => "no answer in time",
            RequestFailure::Malformed => "malformed answer",
            RequestFailure::WrongBody => "wrong body",
            RequestFailure::Status => "wrong status",
            RequestFailure::Unfinished => "unfinished",
            RequestFailure::Unsent => "unsent",
            RequestFailure::Exhausted => "no port or descriptor left here",
            RequestFailure::Handshake => "no TLS handshake",
            RequestFailure::StreamReset => "stream reset",
            RequestFailure::StreamRefused => "stream refused",
            RequestFailure::GoAway => "server has said goodbye",
            RequestFailure::Protocol => "rules of HTTP/2 broken",
        }
    }

    /// A description of what happened, for the operator; `kind` is the kind's name in results.
    pub(crate) fn in_words(kind: &str) -> String {
        let failure = RequestFailure::ALL.into_iter().find(|failure| failure.name() == kind);
        failure.map_or_else(|| kind.to_owned(), |failure| failure.words().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_stand_at_their_place() {
        for (place, failure) in RequestFailure::ALL.iter().enumerate() {
            assert_eq!(*failure as usize, place);
        }
    }
}
