//! The pipe by itself: bounds, ends, and which end is woken.

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
        while {
            let state = pipe.lock();
            state.reader.is_none() && state.writer.is_none()
        } {
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
fn after_a_switch_both_directions_are_bytes_until_both_have_ended() {
    let pipe = HandlerPipe::default();
    pipe.finish(Vec::new());
    assert_eq!(pipe.read_body(&mut [0; 9]).unwrap(), 0, "the request has no body");
    pipe.switch(head(101)).unwrap();
    pipe.give(b"in");
    let mut out = [0; 9];
    assert_eq!(pipe.read_body(&mut out).unwrap(), 2);
    pipe.write_body(b"out").unwrap();
    assert_eq!(pipe.read_answer(&mut Vec::new(), 9), PipeRead::Bytes(3));
    pipe.end(HandlerEnd::Whole(Vec::new()));
    assert_eq!(pipe.read_answer(&mut Vec::new(), 9), PipeRead::End);
    assert_eq!(pipe.capacity(), PIPE_BYTES, "what still comes is taken");
    pipe.give(&[0; PIPE_BYTES]);
    assert_eq!(pipe.lock().upload_bytes(), 0, "and dropped");
}

#[test]
fn a_task_is_woken_by_what_it_waits_for() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    #[derive(Default)]
    struct Woken(AtomicUsize);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    let count = || woken.0.load(Ordering::Relaxed);
    let pipe = HandlerPipe::default();
    assert!(pipe.poll_read_body(&mut cx, &mut [0; 4]).is_pending());
    pipe.give(b"ab");
    assert_eq!(count(), 1);
    assert!(matches!(pipe.poll_read_body(&mut cx, &mut [0; 4]), Poll::Ready(Ok(2))));
    let much = vec![0; PIPE_BYTES];
    assert!(matches!(pipe.poll_write_body(&mut cx, &much), Poll::Ready(Ok(PIPE_BYTES))));
    assert!(pipe.poll_write_body(&mut cx, b"x").is_pending());
    pipe.read_answer(&mut Vec::new(), 10);
    assert_eq!(count(), 2);
    assert!(
        pipe.poll_left(&mut cx).is_pending() && pipe.poll_read_body(&mut cx, &mut [0]).is_pending()
    );
    pipe.leave(LeftBy::Time);
    assert_eq!(count(), 4);
    assert!(pipe.poll_left(&mut cx).is_ready());
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
