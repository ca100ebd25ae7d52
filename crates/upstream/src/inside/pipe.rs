//! The pipe between a connection and a handler. Both directions hold a limited number of bytes: a
//! handler that writes more waits for the client, a client that sends more waits for the handler.
//!
//! An end that has changed something for which the other waits wakes it, once, after it has released
//! the lock. A handler waits by parking its fiber or thread, or, if it is detached, by the waker of a
//! task. Its two directions wait separately: after a switch of protocols one thread may read while
//! another writes.

use forebay_conn::WakeSlot;
use forebay_fiber::anywhere::{self, AnyUnparker};
use forebay_sys::clock;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The largest number of bytes of a request's body that wait for the handler, and of an answer that
/// wait for the client.
pub(super) const PIPE_BYTES: usize = 64 * 1024;

/// The name and value of a field.
pub(super) type PassedField = (Box<str>, Box<[u8]>);

/// The head of a handler's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerHead {
    /// The status.
    pub status: u16,
    /// The names and values of the fields, in their order.
    pub fields: Vec<(Box<str>, Box<[u8]>)>,
    /// The length of the body, if it is known.
    pub length: Option<u64>,
}

/// How a handler has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HandlerEnd {
    /// The answer is complete, and has these trailers.
    Whole(Vec<PassedField>),
    /// The handler has returned an error.
    Failed,
    /// The handler has returned that the body is larger than it takes.
    TooLarge,
    /// The handler has panicked.
    Panicked,
}

/// Why the connection's end has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftBy {
    /// The client is gone, or wants no more.
    Client,
    /// The time for an answer is over.
    Time,
    /// No byte has moved for the longest time allowed after a change of the protocol.
    Silence,
}

/// What the connection's end reads from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PipeRead {
    /// This number of bytes.
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
    /// The bytes of the request's body that have come, and how many of them were read.
    upload: Vec<u8>,
    upload_at: usize,
    /// The trailers of the request, once all of its body has come.
    upload_end: Option<Vec<PassedField>>,
    /// When some of the body last came, or there was room again.
    upload_ms: u64,
    head: Option<HandlerHead>,
    /// The bytes of the answer's body that were written, and how many of them were sent.
    body: Vec<u8>,
    body_at: usize,
    end: Option<HandlerEnd>,
    left: Option<LeftBy>,
    /// Whether the protocol was changed: both directions carry bytes as they are.
    is_switched: bool,
    /// How to wake the handler while it waits for bytes from the client.
    reader: Option<HandlerWait>,
    /// How to wake the handler while it waits for room.
    writer: Option<HandlerWait>,
    /// How to wake a task that waits until the connection's end leaves.
    leaver: Option<Waker>,
    /// Whether the connection waits, and must be woken.
    is_asked: bool,
}

/// How a waiting handler is woken.
enum HandlerWait {
    Parked(AnyUnparker),
    Polled(Waker),
}

impl HandlerWait {
    fn end(self) {
        match self {
            HandlerWait::Parked(unparker) => unparker.unpark(),
            HandlerWait::Polled(waker) => waker.wake(),
        }
    }
}

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

    /// How many bytes of the request's body there is room for. If there is none, the connection is
    /// woken when there is some again.
    fn room(&mut self) -> usize {
        // bytes for a handler that has switched and ended are dropped, so that the client's end is
        // noticed
        if self.is_switched && self.end.is_some() {
            return PIPE_BYTES;
        }
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

    /// Reads the next bytes from the client; 0 at their end. Returns `None` while there are none.
    fn read(&mut self, out: &mut [u8]) -> Option<io::Result<usize>> {
        let count = self.upload_bytes().min(out.len());
        if count > 0 {
            if self.upload_bytes() >= PIPE_BYTES {
                // the pipe was full, so the client could not send: its time begins now
                self.upload_ms = clock::coarse_ms();
            }
            let at = self.upload_at;
            out[..count].copy_from_slice(&self.upload[at..at + count]);
            self.upload_at += count;
            if self.upload_at == self.upload.len() {
                (self.upload, self.upload_at) = (Vec::new(), 0);
            }
            return Some(Ok(count));
        }
        if out.is_empty() || self.upload_end.is_some() {
            return Some(Ok(0));
        }
        self.left.map(|left| Err(left.error()))
    }

    /// Takes some of these bytes for the client. Returns `None` while there is no room.
    fn write(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        if let Some(left) = self.left {
            return Some(Err(left.error()));
        }
        let count = PIPE_BYTES.saturating_sub(self.body_bytes()).min(bytes.len());
        if count == 0 && !bytes.is_empty() {
            return None;
        }
        put(&mut self.body, &mut self.body_at, &bytes[..count]);
        Some(Ok(count))
    }
}

/// The two waits of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitFor {
    Bytes,
    Room,
}

impl PipeState {
    fn wait_of(&mut self, wait: WaitFor) -> &mut Option<HandlerWait> {
        match wait {
            WaitFor::Bytes => &mut self.reader,
            WaitFor::Room => &mut self.writer,
        }
    }
}

/// Appends at most `most` of the bytes from `at` on to `out`, and returns how many. The memory is
/// freed when all are used up.
fn take_some(from: &mut Vec<u8>, at: &mut usize, out: &mut Vec<u8>, most: usize) -> usize {
    let count = (from.len() - *at).min(most);
    out.extend_from_slice(&from[*at..*at + count]);
    *at += count;
    if *at == from.len() {
        (*from, *at) = (Vec::new(), 0);
    }
    count
}

/// Appends to the bytes from `at` on. The used part is removed only once it is at least as long as
/// the rest, so that small pieces move little memory.
fn put(into: &mut Vec<u8>, at: &mut usize, bytes: &[u8]) {
    if *at > 0 && *at >= into.len() - *at {
        into.drain(..std::mem::take(at));
    }
    into.extend_from_slice(bytes);
}

impl HandlerPipe {
    fn lock(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock, and wakes the connection if it waits.
    fn tell_connection(&self, mut state: MutexGuard<'_, PipeState>) {
        let is_asked = std::mem::take(&mut state.is_asked);
        drop(state);
        if is_asked {
            self.slot.wake();
        }
    }

    /// Releases the lock, and wakes the handler if it waits for this.
    fn tell_handler(&self, mut state: MutexGuard<'_, PipeState>, of: WaitFor) {
        let handler = state.wait_of(of).take();
        drop(state);
        if let Some(handler) = handler {
            handler.end();
        }
    }

    /// Parks the handler until the connection's end has done something.
    fn wait(&self, mut state: MutexGuard<'_, PipeState>, of: WaitFor) -> io::Result<()> {
        *state.wait_of(of) = Some(HandlerWait::Parked(anywhere::unparker()));
        drop(state);
        let parked = anywhere::park(None);
        // the connection's end has left the reason for an interruption
        match self.lock().left {
            Some(left) => Err(left.error()),
            None => Ok(parked?),
        }
    }

    // Functions of the handler's end.

    /// Reads the next bytes from the client, and waits for them; 0 at their end.
    pub(super) fn read_body(&self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut state = self.lock();
            match state.read(out) {
                Some(read) => return self.have_read(state, read),
                None => self.wait(state, WaitFor::Bytes)?,
            }
        }
    }

    /// As `read_body`, for a task, which is woken.
    pub(super) fn poll_read_body(
        &self,
        cx: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        match state.read(out) {
            Some(read) => Poll::Ready(self.have_read(state, read)),
            None => {
                state.reader = Some(HandlerWait::Polled(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// Releases the lock, and wakes the connection or the handler after a read.
    fn have_read(
        &self,
        state: MutexGuard<'_, PipeState>,
        read: io::Result<usize>,
    ) -> io::Result<usize> {
        if matches!(read, Ok(1..)) {
            self.tell_connection(state);
        }
        read
    }

    /// The trailers of the request, once all of its body was read.
    pub(super) fn request_trailers(&self) -> Vec<PassedField> {
        let state = self.lock();
        if state.upload_bytes() > 0 {
            Vec::new()
        } else {
            state.upload_end.clone().unwrap_or_default()
        }
    }

    /// Whether all of the request's body was read, or there is none.
    pub(super) fn is_upload_over(&self) -> bool {
        let state = self.lock();
        state.upload_end.is_some() && state.upload_bytes() == 0
    }

    /// Sends the head of the answer.
    pub(super) fn send_head(&self, head: HandlerHead) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(left) = state.left {
            return Err(left.error());
        }
        state.head = Some(head);
        self.tell_connection(state);
        Ok(())
    }

    /// Sends the head of an answer that changes the protocol. What the client sends from now on is
    /// read as it is.
    pub(super) fn switch(&self, head: HandlerHead) -> io::Result<()> {
        let mut state = self.lock();
        // a request for a switch has no body, so its upload had already ended
        (state.is_switched, state.upload_end) = (true, None);
        drop(state);
        self.send_head(head)
    }

    /// Writes to the body of the answer, and waits while there is no room.
    pub(super) fn write_body(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut state = self.lock();
            match state.write(bytes) {
                Some(written) => {
                    bytes = &bytes[written?..];
                    self.tell_connection(state);
                }
                None => self.wait(state, WaitFor::Room)?,
            }
        }
        Ok(())
    }

    /// Writes some of these bytes to the body of the answer, for a task, which is woken when there is
    /// room.
    pub(super) fn poll_write_body(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        match state.write(bytes) {
            Some(written) => {
                self.tell_connection(state);
                Poll::Ready(written)
            }
            None => {
                state.writer = Some(HandlerWait::Polled(cx.waker().clone()));
                Poll::Pending
            }
        }
    }

    /// Why the connection's end has left, once it has; then the task is woken.
    pub(super) fn poll_left(&self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut state = self.lock();
        match state.left {
            Some(left) => Poll::Ready(left.error()),
            None => {
                state.leaver = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Sends a complete answer at once, whose length is therefore known.
    pub(super) fn send_whole(&self, head: HandlerHead, body: Vec<u8>, trailers: Vec<PassedField>) {
        let mut state = self.lock();
        if state.left.is_none() {
            (state.head, state.body, state.body_at) = (Some(head), body, 0);
        }
        state.end = Some(HandlerEnd::Whole(trailers));
        self.tell_connection(state);
    }

    /// Notes that the handler has ended.
    pub(super) fn end(&self, end: HandlerEnd) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        self.tell_connection(state);
    }

    /// Whether the handler has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Whether the connection's end has left.
    pub(super) fn is_left(&self) -> bool {
        self.lock().left.is_some()
    }

    // Functions of the connection's end.

    /// How many bytes of the request's body there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.lock().room()
    }

    /// Whether more of the request's body is awaited, and since when, in milliseconds. If the body is
    /// complete or there is no room, the time is when that began.
    pub(super) fn upload(&self) -> (bool, u64) {
        let mut state = self.lock();
        (state.room() > 0, state.upload_ms)
    }

    /// Begins to wait for the request's body.
    pub(super) fn begin_upload(&self, now_ms: u64) {
        self.lock().upload_ms = now_ms;
    }

    /// Passes the next bytes of the request's body on.
    pub(super) fn give(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if state.end.is_none() {
            let PipeState { upload, upload_at, .. } = &mut *state;
            put(upload, upload_at, bytes);
        }
        state.upload_ms = clock::coarse_ms();
        self.tell_handler(state, WaitFor::Bytes);
    }

    /// Ends the request's body.
    pub(super) fn finish(&self, trailers: Vec<PassedField>) {
        let mut state = self.lock();
        state.upload_end.get_or_insert(trailers);
        state.upload_ms = clock::coarse_ms();
        self.tell_handler(state, WaitFor::Bytes);
    }

    /// Whether the head of the answer is there, or there will never be one. If not, the connection is
    /// woken when that changes.
    pub(super) fn has_answer(&self) -> bool {
        let mut state = self.lock();
        let has_answer = state.head.is_some() || state.end.is_some();
        state.is_asked |= !has_answer;
        has_answer
    }

    /// Has the connection woken by whatever happens next.
    pub(super) fn ask(&self) {
        self.lock().is_asked = true;
    }

    /// The head of the answer, if there is one; and how the handler has ended, if it has.
    pub(super) fn answer(&self) -> (Option<HandlerHead>, Option<HandlerEnd>) {
        let state = self.lock();
        (state.head.clone(), state.end.clone())
    }

    /// Appends the next bytes of the answer's body, at most `most`.
    pub(super) fn read_answer(&self, out: &mut Vec<u8>, most: usize) -> PipeRead {
        let mut state = self.lock();
        let PipeState { body, body_at, .. } = &mut *state;
        match take_some(body, body_at, out, most) {
            0 => match &state.end {
                Some(HandlerEnd::Whole(_)) => PipeRead::End,
                Some(_) => PipeRead::Broken,
                None => {
                    state.is_asked = true;
                    PipeRead::Nothing
                }
            },
            count => {
                self.tell_handler(state, WaitFor::Room);
                PipeRead::Bytes(count)
            }
        }
    }

    /// Leaves: waits of the handler end with an error. Returns whether the handler still runs.
    pub(super) fn leave(&self, left: LeftBy) -> bool {
        let mut state = self.lock();
        state.left.get_or_insert(left);
        let goes_on = state.end.is_none();
        let (reader, writer) = (state.reader.take(), state.writer.take());
        let leaver = state.leaver.take();
        drop(state);
        reader.into_iter().chain(writer).for_each(HandlerWait::end);
        if let Some(leaver) = leaver {
            leaver.wake();
        }
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
            LeftBy::Silence => io::Error::new(
                io::ErrorKind::TimedOut,
                "neither side has sent anything for as long as that may be",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
