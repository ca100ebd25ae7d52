//! The role that knows the bytes of answers: where the next ones are, and whether their file has changed.

use super::{HandlerTypes, NoJob};
use std::os::fd::BorrowedFd;

/// Says where the bytes of a body are. The defaults are those of a handler without bodies: all its
/// answers are copied into [`Out`](crate::Out).
pub trait Bodies: HandlerTypes {
    /// The next bytes of `body`; `None` when all were [`advance`](Bodies::advance)d over.
    fn piece<'b>(&'b self, _body: &'b Self::Body) -> Option<Piece<'b>> {
        None
    }

    /// How many bytes of `body` are left to be sent, the current piece and those after it.
    fn left(&self, body: &Self::Body) -> u64 {
        match self.piece(body) {
            None => 0,
            Some(Piece::Memory(bytes)) => bytes.len() as u64,
            Some(Piece::File { len, .. } | Piece::Pipe { len, .. }) => len,
        }
    }

    /// Notes that `count` bytes of the current piece were sent.
    fn advance(&self, _body: &mut Self::Body, _count: u64) {}

    /// Copies the next bytes of `body` into `buffer` and [`advance`](Bodies::advance)s over them; for a
    /// transport or a protocol that cannot leave them to the kernel. The call never waits for a disk, and
    /// reports a file that has changed.
    fn read(&self, body: &mut Self::Body, buffer: &mut [u8]) -> BodyRead {
        let count = match self.piece(body) {
            None => return BodyRead::End,
            Some(Piece::Memory(bytes)) => {
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                count
            }
            // a handler with files has a `read` of its own
            Some(Piece::File { .. } | Piece::Pipe { .. }) => return BodyRead::Changed,
        };
        self.advance(body, count as u64);
        BodyRead::Bytes(count)
    }

    /// Whether the file behind the current piece is still the one that the head was written for. Asked
    /// before the head, before each piece of a file and before its last byte. If the file has changed
    /// before the head is sent, the request is processed again.
    fn is_intact(&self, _body: &Self::Body) -> bool {
        true
    }

    /// Makes the body independent of the handler's own state, because it outlives this turn.
    fn hold(&mut self, _body: &mut Self::Body) {}

    /// How many bytes of the current piece, which is a file, can be sent without waiting for a
    /// disk. At 0 a job must [`warm`](Bodies::warm) it first.
    fn warm_bytes(&self, _body: &Self::Body) -> u64 {
        0
    }

    /// A job that brings the next bytes of a file piece into memory; `None` where nothing is a file.
    fn warm(&mut self, _body: &Self::Body) -> Option<Self::Job> {
        None
    }
}

/// Bytes of a body that can be sent next.
#[derive(Debug)]
pub enum Piece<'b> {
    /// In memory.
    Memory(&'b [u8]),
    /// In a file.
    File {
        /// The open file.
        file: BorrowedFd<'b>,
        /// Where the bytes begin.
        offset: u64,
        /// How many there are.
        len: u64,
        /// Whether these are the last bytes of the body.
        is_last: bool,
    },
    /// In a pipe, which a job has filled: these bytes cannot change any more.
    Pipe {
        /// The end of the pipe to read from.
        pipe: BorrowedFd<'b>,
        /// How many there are.
        len: u64,
    },
}

/// The result of [`Bodies::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// This many bytes were copied, at least one.
    Bytes(usize),
    /// The next bytes are not in memory: they must be [warmed](Bodies::warm) first.
    Cold,
    /// The file is not the one that the head was written for.
    Changed,
    /// All bytes were read before.
    End,
}

/// The body of a handler without bodies; no value of it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBody {}

/// The log line of a handler that writes none; no value of it exists.
pub type NoLine = NoJob;
