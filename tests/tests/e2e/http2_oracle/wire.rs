//! The wire between both sides, and the rounds in which both are driven.

use super::ours::Ours;
use fastrand::Rng;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The end of the wire that `h2` holds.
#[derive(Clone, Default)]
pub(super) struct Wire(Rc<RefCell<Bytes>>);

#[derive(Default)]
struct Bytes {
    to_h2: Vec<u8>,
    from_h2: Vec<u8>,
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = &mut self.0.borrow_mut().to_h2;
        if bytes.is_empty() {
            return Poll::Pending;
        }
        let count = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..count]);
        bytes.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().from_h2.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The number of rounds after which both sides wait for each other for ever.
const MOST_ROUNDS: usize = 200_000;

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Drives both sides until `is_done` and all tasks but those in `background` are over.
pub(super) fn drive(
    wire: &Wire,
    ours: &mut Ours,
    mut tasks: Vec<Task>,
    background: &mut Task,
    random: &mut Rng,
) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..MOST_ROUNDS {
        let _ = background.as_mut().poll(&mut cx);
        tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        let piece = piece(&mut wire.0.borrow_mut().from_h2, random);
        ours.receive(&piece);
        let sent = ours.send(random);
        wire.0.borrow_mut().to_h2.extend_from_slice(&sent);
        let is_quiet = piece.is_empty() && sent.is_empty() && wire.0.borrow().from_h2.is_empty();
        if tasks.is_empty() && ours.is_done() && is_quiet {
            return;
        }
    }
    panic!("{} tasks wait; ours is done: {}", tasks.len(), ours.is_done());
}

/// Takes a piece of random size from the front.
fn piece(bytes: &mut Vec<u8>, random: &mut Rng) -> Vec<u8> {
    let most = [1, 9, 100, 20_000][random.usize(..4)];
    let count = random.usize(..=most).min(bytes.len());
    bytes.drain(..count).collect()
}
