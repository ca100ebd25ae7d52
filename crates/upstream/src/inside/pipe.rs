//! The pipe between a connection and a handler. Both directions hold a bounded number of bytes: a handler that writes
//! more waits for the client, a client that sends more waits for the handler.
//!
//! Whoever has changed something that the other end waits for wakes it, once, after the lock was let go.

use forebay_conn::WakeSlot;
use forebay_fiber::anywhere::{self, AnyUnparker};
use forebay_sys::clock;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So much of a request's body waits for its handler, and so much of an answer for its client, at most.
pub(super) const PIPE_BYTES: usize = 64 * 1024;

/// Name and value of a field.
pub(super) type PassedField = (Box<str>, Box<[u8]>);

/// The head of a handler's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerHead {
    /// The status.
    pub status: u16,
    /// Names and values, in their order.
    pub fields: Vec<(Box<str>, Box<[u8]>)>,
    /// How many bytes the body has, if that is known.
    pub length: Option<u64>,
}

/// How a handler has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HandlerEnd {
    /// The answer is whole, and has these trailers.
    Whole(Vec<PassedField>),
    /// It has returned an error.
    Failed,
    /// It has panicked.
    Panicked,
}

/// Why the connection's end has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftBy {
    /// The client is gone, or has enough.
    Client,
    /// The time for an answer is over.
    Time,
}

/// What the connection's end finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipeRead {
    /// So many bytes.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// All of the answer was read.
    End,
    /// The answer has broken off.
    Broken,
}

#[derive(Debug, Default)]
struct PipeState {
    /// What has come of the request's body, and how much of it was read.
    upload: Vec<u8>,
    upload_at: usize,
    /// All of it has come; what followed it.
    upload_end: Option<Vec<PassedField>>,
    /// When something of it has come last, or there was room again.
    upload_ms: u64,
    head: Option<HandlerHead>,
    /// What was written of the answer's body, and how much of it was sent.
    body: Vec<u8>,
    body_at: usize,
    end: Option<HandlerEnd>,
    left: Option<LeftBy>,
    /// What wakes the handler, while it waits.
    handler: Option<HandlerWait>,
    /// The connection has found nothing, and is to be woken.
    is_asked: bool,
}

struct HandlerWait(AnyUnparker);

impl std::fmt::Debug for HandlerWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandlerWait")
    }
}

/// The pipe of one request.
#[derive(Debug, Default)]
pub(super) struct HandlerPipe {
    state: Mutex<PipeState>,
    pub(super) slot: WakeSlot,
}

impl PipeState {
    fn upload_bytes(&self) -> usize {
        self.upload.len() - self.upload_at
    }

    /// How many bytes of the request's body there is room for. The connection is woken when there is some again.
    fn room(&mut self) -> usize {
        if self.upload_end.is_some() || self.end.is_some() {
            return 0;
        }
        let room = PIPE_BYTES.saturating_sub(self.upload_bytes());
        self.is_asked |= room == 0;
        room
    }

    fn body_bytes(&self) -> usize {
        self.body.len() - self.body_at
    }
}

/// Appends at most `most` of what is left from `at` on to `out`; says how many. Memory of what is used up is given
/// back.
fn take_some(from: &mut Vec<u8>, at: &mut usize, out: &mut Vec<u8>, most: usize) -> usize {
    let count = (from.len() - *at).min(most);
    out.extend_from_slice(&from[*at..*at + count]);
    *at += count;
    if *at == from.len() {
        (*from, *at) = (Vec::new(), 0);
    }
    count
}

/// Appends to what is left from `at` on.
fn put(into: &mut Vec<u8>, at: &mut usize, bytes: &[u8]) {
    if *at > 0 {
        into.drain(..std::mem::take(at));
    }
    into.extend_from_slice(bytes);
}

impl HandlerPipe {
    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the lock, and wakes the connection if it waits.
    fn tell_connection(&self, mut state: MutexGuard<'_, PipeState>) {
        let is_asked = std::mem::take(&mut state.is_asked);
        drop(state);
        if is_asked {
            self.slot.wake();
        }
    }

    /// Lets go of the lock, and wakes the handler if it waits.
    fn tell_handler(&self, mut state: MutexGuard<'_, PipeState>) {
        let handler = state.handler.take();
        drop(state);
        if let Some(HandlerWait(handler)) = handler {
            handler.unpark();
        }
    }

    /// The handler waits until the connection's end has done something.
    fn wait(&self, mut state: MutexGuard<'_, PipeState>) -> io::Result<()> {
        state.handler = Some(HandlerWait(anywhere::unparker()));
        drop(state);
        let parked = anywhere::park(None);
        // why is told by who has interrupted it
        match self.lock().left {
            Some(left) => Err(left.error()),
            None => Ok(parked?),
        }
    }

    // What a handler does.

    /// The next bytes of the request's body; none at its end. Waits for them.
    pub(super) fn read_body(&self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let mut state = self.lock();
            let count = state.upload_bytes().min(out.len());
            if count > 0 {
                if state.upload_bytes() >= PIPE_BYTES {
                    // the client could not go on before
                    state.upload_ms = clock::coarse_ms();
                }
                let at = state.upload_at;
                out[..count].copy_from_slice(&state.upload[at..at + count]);
                state.upload_at += count;
                if state.upload_at == state.upload.len() {
                    (state.upload, state.upload_at) = (Vec::new(), 0);
                }
                self.tell_connection(state);
                return Ok(count);
            }
            if state.upload_end.is_some() {
                return Ok(0);
            }
            if let Some(left) = state.left {
                return Err(left.error());
            }
            self.wait(state)?;
        }
    }

    /// What followed the request's body, once all of that was read.
    pub(super) fn request_trailers(&self) -> Vec<PassedField> {
        let state = self.lock();
        if state.upload_bytes() > 0 {
            Vec::new()
        } else {
            state.upload_end.clone().unwrap_or_default()
        }
    }

    /// The head of the answer is there.
    pub(super) fn send_head(&self, head: HandlerHead) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(left) = state.left {
            return Err(left.error());
        }
        state.head = Some(head);
        self.tell_connection(state);
        Ok(())
    }

    /// Writes to the body of the answer. Waits while the client takes nothing.
    pub(super) fn write_body(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut state = self.lock();
            if let Some(left) = state.left {
                return Err(left.error());
            }
            let count = PIPE_BYTES.saturating_sub(state.body_bytes()).min(bytes.len());
            if count == 0 {
                self.wait(state)?;
                continue;
            }
            let PipeState { body, body_at, .. } = &mut *state;
            put(body, body_at, &bytes[..count]);
            bytes = &bytes[count..];
            self.tell_connection(state);
        }
        Ok(())
    }

    /// All that may be known of an answer at once: then its length is.
    pub(super) fn send_whole(&self, head: HandlerHead, body: Vec<u8>, trailers: Vec<PassedField>) {
        let mut state = self.lock();
        if state.left.is_none() {
            (state.head, state.body, state.body_at) = (Some(head), body, 0);
        }
        state.end = Some(HandlerEnd::Whole(trailers));
        self.tell_connection(state);
    }

    /// The handler has ended.
    pub(super) fn end(&self, end: HandlerEnd) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        self.tell_connection(state);
    }

    /// Whether the connection's end has left.
    pub(super) fn is_left(&self) -> bool {
        self.lock().left.is_some()
    }

    // What the connection does.

    /// How many bytes of the request's body there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.lock().room()
    }

    /// Whether more of the request's body is waited for, and since when, in milliseconds; of one that is whole or finds
    /// no room, when it came to that.
    pub(super) fn upload(&self) -> (bool, u64) {
        let mut state = self.lock();
        (state.room() > 0, state.upload_ms)
    }

    /// The request's body is waited for from now on.
    pub(super) fn begin_upload(&self, now_ms: u64) {
        self.lock().upload_ms = now_ms;
    }

    /// The next bytes of the request's body.
    pub(super) fn give(&self, bytes: &[u8]) {
        let mut state = self.lock();
        let PipeState { upload, upload_at, .. } = &mut *state;
        put(upload, upload_at, bytes);
        state.upload_ms = clock::coarse_ms();
        self.tell_handler(state);
    }

    /// The request's body is whole.
    pub(super) fn finish(&self, trailers: Vec<PassedField>) {
        let mut state = self.lock();
        state.upload_end.get_or_insert(trailers);
        state.upload_ms = clock::coarse_ms();
        self.tell_handler(state);
    }

    /// Whether the head of the answer is there, or there never will be one; else the connection is woken when it is.
    pub(super) fn has_answer(&self) -> bool {
        let mut state = self.lock();
        let has_answer = state.head.is_some() || state.end.is_some();
        state.is_asked |= !has_answer;
        has_answer
    }

    /// The connection is woken with whatever happens next.
    pub(super) fn ask(&self) {
        self.lock().is_asked = true;
    }

    /// The head of the answer, if there is one; and how the handler has ended, if it has.
    pub(super) fn answer(&self) -> (Option<HandlerHead>, Option<HandlerEnd>) {
        let state = self.lock();
        (state.head.clone(), state.end.clone())
    }

    /// Appends at most `most` of the next bytes of the answer's body.
    pub(super) fn read_answer(&self, out: &mut Vec<u8>, most: usize) -> PipeRead {
        let mut state = self.lock();
        let PipeState { body, body_at, .. } = &mut *state;
        match take_some(body, body_at, out, most) {
            0 => match &state.end {
                Some(HandlerEnd::Whole(_)) => PipeRead::End,
                Some(HandlerEnd::Failed | HandlerEnd::Panicked) => PipeRead::Broken,
                None => {
                    state.is_asked = true;
                    PipeRead::Nothing
                }
            },
            count => {
                self.tell_handler(state);
                PipeRead::Bytes(count)
            }
        }
    }

    /// The connection's end leaves: waits of the handler end with an error. Says whether the handler has not ended.
    pub(super) fn leave(&self, left: LeftBy) -> bool {
        let mut state = self.lock();
        state.left.get_or_insert(left);
        let goes_on = state.end.is_none();
        self.tell_handler(state);
        goes_on
    }
}

impl LeftBy {
    fn error(self) -> io::Error {
        match self {
            LeftBy::Client => {
                io::Error::new(io::ErrorKind::ConnectionAborted, "the client has left")
            }
            LeftBy::Time => io::Error::new(
                io::ErrorKind::TimedOut,
                "the time for the answer is over, and the client has got another",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn head(status: u16) -> HandlerHead {
        HandlerHead { status, ..HandlerHead::default() }
    }

    #[test]
    fn a_handler_that_writes_more_than_there_is_room_for_waits() {
        let pipe = Arc::<HandlerPipe>::default();
        let writer = Arc::clone(&pipe);
        let handler = std::thread::spawn(move || {
            writer.send_head(head(200)).unwrap();
            writer.write_body(&vec![b'a'; 10 * PIPE_BYTES]).unwrap();
            writer.end(HandlerEnd::Whole(Vec::new()));
        });
        let (mut out, mut most) = (Vec::new(), 0);
        loop {
            let before = out.len();
            match pipe.read_answer(&mut out, usize::MAX) {
                PipeRead::Bytes(count) => most = most.max(count),
                PipeRead::Nothing => std::thread::yield_now(),
                PipeRead::End => break,
                PipeRead::Broken => unreachable!(),
            }
            assert!(out.len() - before <= PIPE_BYTES);
        }
        handler.join().unwrap();
        assert_eq!(out.len(), 10 * PIPE_BYTES);
    }

    #[test]
    fn a_handler_whose_client_leaves_is_told_in_each_wait() {
        for waits in [
            |pipe: &HandlerPipe| pipe.read_body(&mut [0; 8]).map(|_| ()),
            |pipe: &HandlerPipe| pipe.write_body(&vec![0; 2 * PIPE_BYTES]),
        ] {
            let pipe = Arc::<HandlerPipe>::default();
            let other = Arc::clone(&pipe);
            let handler = std::thread::spawn(move || waits(&other));
            while pipe.lock().handler.is_none() {
                std::thread::yield_now();
            }
            assert!(pipe.leave(LeftBy::Client), "the handler goes on");
            let error = handler.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
            assert!(pipe.send_head(head(200)).is_err());
        }
    }

    #[test]
    fn what_has_come_of_a_body_is_read_to_its_end() {
        let pipe = HandlerPipe::default();
        pipe.give(b"abc");
        pipe.finish(vec![("x".into(), (*b"1").into())]);
        let mut out = [0; 2];
        assert_eq!(pipe.read_body(&mut out).unwrap(), 2);
        assert_eq!(pipe.request_trailers(), []);
        assert_eq!(pipe.read_body(&mut out).unwrap(), 1);
        assert_eq!(pipe.read_body(&mut out).unwrap(), 0);
        assert_eq!(pipe.request_trailers().len(), 1);
        assert_eq!(pipe.capacity(), 0, "nothing more is taken");
    }

    #[test]
    fn an_answer_that_breaks_off_is_no_whole_one() {
        let pipe = HandlerPipe::default();
        assert!(!pipe.has_answer());
        pipe.send_head(head(200)).unwrap();
        assert!(pipe.has_answer());
        pipe.write_body(b"half").unwrap();
        pipe.end(HandlerEnd::Panicked);
        let mut out = Vec::new();
        assert_eq!(pipe.read_answer(&mut out, 9), PipeRead::Bytes(4));
        assert_eq!(pipe.read_answer(&mut out, 9), PipeRead::Broken);
        assert!(!pipe.leave(LeftBy::Client), "it has ended");
    }
}
