//! One request on a connection that others share: what has come for it and was not taken yet.

use crate::upstreams::http2::AnswerEnd;
use crate::upstreams::http2::text::TrailerFields;
use crate::upstreams::stream::ConnectError;
use forebay_sys::epoll::Bell;
use forebay_tls::TlsFault;
use std::io;
use std::sync::Arc;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPlace {
    /// It has none: it is to be given one when its exchange asks next.
    Nowhere,
    /// It has this connection when that has come about.
    At(u64),
    /// All connections have as many streams as they may; it waits for one.
    InLine,
    /// It has a stream of a connection.
    On {
        /// The number of the connection.
        connection: u64,
        /// The stream.
        stream: u32,
    },
}

/// A request. Whoever has news for it rings; the exchange looks then.
#[derive(Debug)]
pub(super) struct SharedRequest {
    bell: Arc<Bell>,
    is_rung: bool,
    pub(super) place: RequestPlace,
    /// So many connections it was given.
    pub(super) seats: u32,
    /// A stream is kept free for it.
    pub(super) is_called: bool,
    /// Of the answer, as HTTP/1.1 says it; from `at` on not taken.
    inbox: Vec<u8>,
    at: usize,
    /// So much at the front of that is heads, which no window counts.
    head_bytes: usize,
    pub(super) end: Option<AnswerEnd>,
    pub(super) trailers: TrailerFields,
    /// Why its connection goes no further, or has not come about.
    pub(super) failure: Option<ConnectError>,
    pub(super) fault: Option<TlsFault>,
    /// The end of the request was sent.
    pub(super) has_ended: bool,
    /// The connection had been used before, and had come to rest.
    pub(super) is_late_guest: bool,
    /// When its stream was opened.
    pub(super) opened_ms: u64,
}

/// What was taken of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TakenBytes {
    pub(super) all: usize,
    /// So much of it is body.
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

    /// There is news.
    pub(super) fn ring(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            self.bell.ring();
        }
    }

    /// The exchange looks at all there is. Not to be called when it looks at less: the bell is what its loop waits
    /// for.
    pub(super) fn hush(&mut self) {
        if std::mem::take(&mut self.is_rung) {
            self.bell.silence();
        }
    }

    /// A head has come: `write` appends it.
    pub(super) fn put_head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.inbox.len();
        write(&mut self.inbox);
        self.head_bytes += self.inbox.len() - before;
        self.ring();
    }

    /// Some of the body has come.
    pub(super) fn put_body(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        self.ring();
    }

    /// The answer has ended, or will not.
    pub(super) fn ends(&mut self, end: AnswerEnd) {
        self.end.get_or_insert(end);
        self.ring();
    }

    /// There is no connection for it.
    pub(super) fn fails(&mut self, failure: &ConnectError) {
        self.place = RequestPlace::Nowhere;
        self.failure.get_or_insert(same(failure));
        self.ring();
    }

    /// Whether something of the answer waits to be taken.
    pub(super) fn has_more(&self) -> bool {
        self.at < self.inbox.len()
    }

    /// What of the answer is in memory.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.inbox.capacity()
    }

    /// Appends at most `most` bytes of it.
    pub(super) fn take(&mut self, into: &mut Vec<u8>, most: usize) -> TakenBytes {
        let all = most.min(self.inbox.len() - self.at);
        into.extend_from_slice(&self.inbox[self.at..self.at + all]);
        self.at += all;
        let of_heads = all.min(self.head_bytes);
        self.head_bytes -= of_heads;
        if !self.has_more() {
            // what waits for long takes no memory
            (self.inbox, self.at) = (Vec::new(), 0);
        } else if self.at * 2 >= self.inbox.len() {
            // one that is never taken whole would keep all that it has ever had
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
