//! Sending answers: bytes from memory in one call, files by `sendfile`, what was read into a pipe
//! by `splice`, and never a file that has changed since its head was written. The head of a file is
//! sent when the file's first bytes are in memory, and only if the file has not changed.

use crate::connection::stream::{SEAL_BYTES, SocketStream, Wire};
use forebay_conn::handler::body::BodyRead;
use forebay_conn::{Handler, Out, Piece};
use forebay_metrics::{Activity, Counter, Local, Stopwatch};
use forebay_sys::pipe;
use forebay_sys::socket::{self, Sent};
use std::os::fd::{AsFd, BorrowedFd};

/// Why sending has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProgress {
    /// Everything is sent.
    Done,
    /// The client must take something first.
    Blocked,
    /// The bytes that a turn may send are used up.
    Budget,
    /// The next bytes of the file are not in memory: [`Bodies::warm`](forebay_conn::Bodies::warm).
    Cold,
    /// The file is not the one the head was written for, and nothing of the answer has left.
    Outdated,
    /// The file is not the one that the head was written for, and its answer cannot be finished.
    Changed,
    /// The connection failed.
    Broken,
}

/// What one turn has sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentBytes {
    /// All bytes, of heads and bodies.
    pub bytes: u64,
    /// The bytes of the streamed body.
    pub body_bytes: u64,
    /// What the sending costs a turn: its bytes, but a system call for few bytes costs more.
    pub cost_bytes: u64,
}

/// About how many encrypted bytes leave with one system call. What a client does not take of them
/// waits in memory, for each such client. Half of this number costs 9 % more at 100 KB, and 14 %
/// with HTTP/2.
const BATCH_BYTES: usize = 4 * SEAL_BYTES;

/// The least that a system call costs a turn, in bytes.
const CALL_BYTES: u64 = 8 * 1024;

/// Sends as much of `out` as the client takes, at most about `budget` bytes.
#[inline]
pub fn send<H: Handler>(
    stream: &mut SocketStream<H>,
    out: &mut Out<H::Body>,
    handler: &mut H,
    budget: u64,
    wire: &mut Wire,
    metrics: &Local,
    watch: &mut impl Stopwatch,
) -> (SendProgress, SentBytes) {
    let mut tally = SentBytes::default();
    if !stream.is_plain() || stream.has_unsent() {
        let progress = send_sealed(stream, out, handler, budget, wire, &mut tally);
        watch.lap(Activity::Send);
        metrics.add(Counter::SentBytes, tally.bytes);
        return (progress, tally);
    }
    let mut warm = None;
    let progress = loop {
        match send_once(stream.as_fd(), out, handler, &mut warm, &mut tally, watch) {
            None if out.is_empty() => break SendProgress::Done,
            None if tally.cost_bytes >= budget => break SendProgress::Budget,
            None => {}
            Some(progress) => break progress,
        }
    };
    metrics.add(Counter::SentBytes, tally.bytes);
    (progress, tally)
}

/// Makes one system call; returns `Some` if there is a reason to stop. `warm` is how much of the
/// file can be sent, if the call before has looked.
#[inline]
fn send_once<H: Handler>(
    socket: BorrowedFd<'_>,
    out: &mut Out<H::Body>,
    handler: &H,
    warm: &mut Option<u64>,
    tally: &mut SentBytes,
    watch: &mut impl Stopwatch,
) -> Option<SendProgress> {
    let head = &out.bytes[out.sent..];
    let piece = out.body.as_ref().map(|body| (body, handler.piece(body)));
    let (sent, wanted) = match piece {
        Some((_, None)) => {
            out.body = None;
            if out.sent == out.bytes.len() {
                out.clear();
            }
            return None;
        }
        None if head.is_empty() => {
            out.clear();
            return None;
        }
        None => (socket::send(socket, head, false), head.len()),
        Some((_, Some(Piece::Memory(body)))) => {
            let sent = match head {
                [] => socket::send(socket, body, false),
                head => socket::send_two(socket, head, body),
            };
            (sent, head.len() + body.len())
        }
        Some((_, Some(Piece::Pipe { .. }))) if !head.is_empty() => {
            (socket::send(socket, head, true), head.len())
        }
        Some((_, Some(Piece::Pipe { pipe, len }))) => {
            let count = usize::try_from(len).unwrap_or(usize::MAX);
            (pipe::send(socket, pipe, count), 0)
        }
        Some((body, Some(Piece::File { file, offset, len, is_last }))) => {
            // the file is compared before each call, except for the one after its head, which uses
            // that look
            let chunk = match warm.take() {
                Some(chunk) => chunk,
                None if handler.is_intact(body) => handler.warm_bytes(body).min(len),
                None if out.earlier().is_some() => return Some(SendProgress::Outdated),
                None => return Some(SendProgress::Changed),
            };
            if !head.is_empty() {
                match (chunk, out.earlier()) {
                    // answers before this one are sent, and do not wait for the disk
                    (0, Some(earlier)) if earlier > 0 => {
                        (socket::send(socket, &head[..earlier], false), earlier)
                    }
                    (0, Some(_)) => return Some(SendProgress::Cold),
                    _ => {
                        *warm = (chunk > 0).then_some(chunk);
                        (socket::send(socket, head, true), head.len())
                    }
                }
            } else if chunk == 0 {
                return Some(SendProgress::Cold);
            } else {
                // the last byte waits until the file was compared once more
                let count = if is_last && chunk == len && len > 1 { len - 1 } else { chunk };
                let sent = socket::send_file(socket, file, offset, count as usize);
                watch.lap(Activity::Sendfile);
                if sent == Sent::Bytes(0) {
                    return Some(SendProgress::Changed);
                }
                // how much the client takes is known only when it takes nothing
                (sent, 0)
            }
        }
    };
    watch.lap(Activity::Send);
    let count = match sent {
        Sent::Bytes(count) => count,
        Sent::Blocked => return Some(SendProgress::Blocked),
        Sent::Broken => return Some(SendProgress::Broken),
    };
    let of_head = count.min(head.len());
    out.sent += of_head;
    tally.bytes += count as u64;
    tally.cost_bytes += (count as u64).max(CALL_BYTES);
    tally.body_bytes += (count - of_head) as u64;
    if let Some(body) = &mut out.body {
        handler.advance(body, (count - of_head) as u64);
    } else if out.sent == out.bytes.len() {
        out.clear();
    }
    (count < wanted).then_some(SendProgress::Blocked)
}

/// Does the same as [`send`], through a transport that encrypts: bodies are read into memory, a
/// record's worth at a time, and some records leave with one system call. What is encrypted counts
/// as sent of the body; what the client took counts in all.
fn send_sealed<H: Handler>(
    stream: &mut SocketStream<H>,
    out: &mut Out<H::Body>,
    handler: &mut H,
    budget: u64,
    wire: &mut Wire,
    tally: &mut SentBytes,
) -> SendProgress {
    loop {
        let (sent, count) = stream.flush();
        tally.bytes += count as u64;
        match sent {
            Sent::Bytes(_) => {}
            Sent::Blocked => return SendProgress::Blocked,
            Sent::Broken => return SendProgress::Broken,
        }
        if tally.cost_bytes >= budget.max(CALL_BYTES + 1) && !out.is_empty() {
            return SendProgress::Budget;
        }
        let stop = loop {
            if wire.sealed().len() >= BATCH_BYTES {
                break None;
            }
            if let Some(stop) = seal_record(stream, out, handler, wire, tally) {
                break Some(stop);
            }
        };
        let count = wire.sealed().len() as u64;
        match stop {
            Some(stop) if count == 0 => return stop,
            _ => {}
        }
        tally.cost_bytes += count.max(CALL_BYTES);
        tally.bytes += stream.send_sealed(wire) as u64;
    }
}

/// Encrypts the next record; returns `Some` if there is a reason to stop, perhaps after a record.
fn seal_record<H: Handler>(
    stream: &mut SocketStream<H>,
    out: &mut Out<H::Body>,
    handler: &mut H,
    wire: &mut Wire,
    tally: &mut SentBytes,
) -> Option<SendProgress> {
    let ready = match head_ready(out, handler) {
        Ok(ready) => ready.min(SEAL_BYTES),
        Err(progress) => return Some(progress),
    };
    let head = &out.bytes[out.sent..out.sent + ready];
    let left = SEAL_BYTES - ready;
    let is_last_of_heads = out.sent + ready == out.bytes.len();
    out.sent += ready;
    let read = match &mut out.body {
        Some(body) if is_last_of_heads && left > 0 => {
            if let Some(Piece::Memory(bytes)) = handler.piece(body) {
                let count = bytes.len().min(left);
                stream.seal_memory(head, &bytes[..count], wire);
                handler.advance(body, count as u64);
                tally.body_bytes += count as u64;
                return None;
            }
            handler.read(body, &mut wire.plain()[..left])
        }
        None if ready == 0 => {
            out.clear();
            return Some(SendProgress::Done);
        }
        _ => BodyRead::Bytes(0),
    };
    let count = if let BodyRead::Bytes(count) = read { count } else { 0 };
    if ready + count > 0 {
        stream.seal_plain(head, count, wire);
    }
    tally.body_bytes += count as u64;
    match read {
        BodyRead::Bytes(_) => {}
        BodyRead::Cold => return Some(SendProgress::Cold),
        BodyRead::Changed => return Some(SendProgress::Changed),
        BodyRead::End => out.body = None,
    }
    None
}

/// The number of bytes of heads that may be encrypted now. The head of a file waits until the first
/// bytes of the file are in memory, and the file was compared; answers before it do not wait.
fn head_ready<H: Handler>(out: &Out<H::Body>, handler: &H) -> Result<usize, SendProgress> {
    let all = out.bytes.len() - out.sent;
    let Some(body) = &out.body else { return Ok(all) };
    let (Some(Piece::File { .. }), Some(earlier)) = (handler.piece(body), out.earlier()) else {
        return Ok(all);
    };
    if !handler.is_intact(body) {
        return Err(SendProgress::Outdated);
    }
    match handler.warm_bytes(body) {
        0 if earlier == 0 => Err(SendProgress::Cold),
        0 => Ok(earlier),
        _ => Ok(all),
    }
}
