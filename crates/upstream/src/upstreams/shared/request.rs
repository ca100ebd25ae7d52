//! One request on a shared connection: what has come for it and was not taken yet.

use crate::upstreams::http2::AnswerEnd;
use crate::upstreams::http2::text::TrailerFields;
use crate::upstreams::stream::ConnectError;
use forebay_sys::epoll::Bell;
use forebay_tls::TlsFault;
use std::io;
use std::sync::Arc;

/// The place of a request among the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPlace {
    /// None: the request gets one when its exchange asks next.
    Nowhere,
    /// A connection that is not established yet.
    At(u64),
    /// The line for a stream: all connections have as many as they may.
    InLine,
    /// A stream of a connection.
    On {
        /// The number of the connection.
        connection: u64,
        /// The stream.
        stream: u32,
    },
}

/// A request. Its bell is rung when there is news for it; then the exchange looks.
#[derive(Debug)]
pub(super) struct SharedRequest {
    bell: Arc<Bell>,
    is_rung: bool,
    pub(super) place: RequestPlace,
    /// The number of connections that the request was given.
    pub(super) seats: u32,
    /// Whether a stream is kept free for the request.
    pub(super) is_called: bool,
    /// The bytes of the answer, as in HTTP/1.1; those before `at` were taken.
    inbox: Vec<u8>,
    at: usize,
    /// How many bytes at the front of `inbox` are heads, which no window counts.
    head_bytes: usize,
    pub(super) end: Option<AnswerEnd>,
    pub(super) trailers: TrailerFields,
    /// Why the connection has failed, or was not established.
    pub(super) failure: Option<ConnectError>,
    pub(super) fault: Option<TlsFault>,
    /// Whether the end of the request was sent.
    pub(super) has_ended: bool,
    /// Whether the connection had been used and idle before this request.
    pub(super) is_late_guest: bool,
    /// When its stream was opened.
    pub(super) opened_ms: u64,
}

/// The bytes that were taken of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TakenBytes {
    pub(super) all: usize,
    /// How many of them belong to the body.
    pub(super) body: usize,
}

impl SharedRequest {
    pub(super) fn new(bell: Arc<Bell>) -> SharedRequest {
        SharedRequest {
            bell,
            is_rung: false,
            place: RequestPlace::Nowhere,
            seats: 0,
            is_called: false,
            inbox: Vec::new(),
            at: 0,
            head_bytes: 0,
            end: None,
            trailers: Vec::new(),
            failure: None,
            fault: None,
            has_ended: false,
            is_late_guest: false,
            opened_ms: 0,
        }
    }

    /// Rings the bell.
    pub(super) fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            self.bell.ring();
        }
    }

    /// Silences the bell, because the exchange looks at all there is. It must not be called if the
    /// exchange looks at less, since its loop waits for the bell.
    pub(super) fn hush(&mut self) {
        if std::mem::take(&mut self.is_rung) {
            self.bell.silence();
        }
    }

    /// Appends a head that has come, which `write` writes.
    pub(super) fn put_head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.inbox.len();
        write(&mut self.inbox);
        self.head_bytes += self.inbox.len() - before;
        self.ring();
    }

    /// Appends some of the body that has come.
    pub(super) fn put_body(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        self.ring();
    }

    /// Notes how the answer has ended.
    pub(super) fn ends(&mut self, end: AnswerEnd) {
        self.end.get_or_insert(end);
        self.ring();
    }

    /// Notes that there is no connection for the request.
    pub(super) fn fails(&mut self, failure: &ConnectError) {
        self.place = RequestPlace::Nowhere;
        self.failure.get_or_insert(same(failure));
        self.ring();
    }

    /// Whether some of the answer waits to be taken.
    pub(super) fn has_more(&self) -> bool {
        self.at < self.inbox.len()
    }

    /// The memory that the answer takes.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.inbox.capacity()
    }

    /// Appends at most `most` bytes of the answer to `into`.
    pub(super) fn take(&mut self, into: &mut Vec<u8>, most: usize) -> TakenBytes {
        let all = most.min(self.inbox.len() - self.at);
        into.extend_from_slice(&self.inbox[self.at..self.at + all]);
        self.at += all;
        let of_heads = all.min(self.head_bytes);
        self.head_bytes -= of_heads;
        if !self.has_more() {
            // an idle request takes no memory
            (self.inbox, self.at) = (Vec::new(), 0);
        } else if self.at * 2 >= self.inbox.len() {
            // otherwise an answer that is never taken completely would keep all that it has ever had
            self.inbox.drain(..std::mem::take(&mut self.at));
        }
        TakenBytes { all, body: all - of_heads }
    }
}

/// The same failure, for another request.
fn same(failure: &ConnectError) -> ConnectError {
    match failure {
        ConnectError::Tls(fault) => ConnectError::Tls(*fault),
        ConnectError::Socket(error) => ConnectError::Socket(match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => error.kind().into(),
        }),
    }
}
