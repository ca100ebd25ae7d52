//! Bodies that wait in pipes: read from the disk for one answer, and sent without having been copied.
//!
//! A file that is read around the page cache is not worth keeping, so it need not come into this
//! process. A job fills a pipe with the file, which is one reading like any other: its stamp is
//! compared after it, and later changes of the file do not matter. Then the pipe belongs to the
//! answer. When it is empty it serves the next one; if its client leaves, it is closed.
//!
//! The number of pipes is bounded, because each costs two descriptors; so are the bytes they can
//! hold, empty or not, because the kernel counts those against what all programs of a user may
//! have. A job that finds none left reads into memory.

use crate::bodies::memory_budget::MemoryReservation;
use forebay_sys::pages::AROUND_BYTES;
use forebay_sys::pipe::Pipe;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of bytes that all pipes together can hold: half of what a user has for pipes by
/// default (`pipe-user-pages-soft`, 64 MiB). Beyond that, other programs of this user would get
/// pipes of two pages.
const MOST_BYTES: usize = 32 << 20;

/// Pipes for all answers.
#[derive(Debug)]
pub(crate) struct Pipes(Arc<PipePool>);

#[derive(Debug, Default)]
struct PipePool(Mutex<PipesState>);

#[derive(Debug, Default)]
struct PipesState {
    most: usize,
    /// All existing pipes.
    open: usize,
    /// The number of bytes that all existing pipes can hold.
    bytes: usize,
    /// The pipes that are empty.
    spare: Vec<Pipe>,
}

/// A pipe with bytes that were not taken yet.
#[derive(Debug)]
pub(crate) struct FilledPipe {
    /// Present until this is dropped.
    pipe: Option<Pipe>,
    left: u64,
    pipes: Arc<PipePool>,
}

/// The body of one answer, and its part of the budget.
#[derive(Debug)]
pub(crate) struct Piped {
    pub(crate) filled: FilledPipe,
    /// Given back with the pipe.
    pub(crate) _reservation: MemoryReservation,
}

impl Pipes {
    /// A pool of at most `most` pipes.
    pub(crate) fn new(most: usize) -> Pipes {
        let state = PipesState { most, ..PipesState::default() };
        Pipes(Arc::new(PipePool(Mutex::new(state))))
    }

    /// Keeps no pipes any more but those that a request waits for.
    pub(crate) fn retire(&self) {
        let mut state = self.0.state();
        state.most = 0;
        while state.close_spare() {}
    }

    /// A pipe with all of a file, if the file has `size` bytes. The file is read around the page
    /// cache ([`read_around`](forebay_sys::pages::read_around)). `None` if too little of the pipes'
    /// memory is left, or the file cannot be read that way. May block.
    pub(crate) fn fill(&self, file: BorrowedFd<'_>, size: usize) -> Option<FilledPipe> {
        let pipe = self.0.take(size.next_multiple_of(AROUND_BYTES))?;
        let count = pipe.fill(file, size);
        let is_whole = count.is_ok_and(|count| count == size);
        // with bytes left it is not used again
        let filled = FilledPipe { pipe: Some(pipe), left: size as u64, pipes: Arc::clone(&self.0) };
        is_whole.then_some(filled)
    }
}

impl PipePool {
    fn state(&self) -> MutexGuard<'_, PipesState> {
        // a panic leaves at worst a pipe too few
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty pipe that can hold `bytes`.
    fn take(&self, bytes: usize) -> Option<Pipe> {
        let mut state = self.state();
        let fits = |pipe: &Pipe| pipe.capacity() >= bytes;
        if let Some(at) = state.spare.iter().rposition(fits) {
            return Some(state.spare.swap_remove(at));
        }
        // the size that the kernel gives a pipe, with pages of 4 KiB
        let capacity = bytes.next_power_of_two().max(1 << 16);
        // smaller ones make room for it
        while !state.has_room(capacity) {
            state.close_spare().then_some(())?;
        }
        state.open += 1;
        state.bytes += capacity;
        drop(state);
        let made = Pipe::new(bytes).ok().filter(fits);
        let mut state = self.state();
        state.bytes = state.bytes - capacity + made.as_ref().map_or(0, Pipe::capacity);
        state.open -= usize::from(made.is_none());
        made
    }
}

impl PipesState {
    fn has_room(&self, bytes: usize) -> bool {
        self.open < self.most && self.bytes + bytes <= MOST_BYTES
    }

    /// Closes an empty pipe. Returns whether there was one.
    fn close_spare(&mut self) -> bool {
        let pipe = self.spare.pop();
        pipe.inspect(|pipe| self.closed(pipe)).is_some()
    }

    fn closed(&mut self, pipe: &Pipe) {
        self.open -= 1;
        self.bytes -= pipe.capacity();
    }
}

impl FilledPipe {
    /// Notes that `count` bytes were sent.
    pub(crate) fn taken(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
    }

    /// The end from which bytes are read.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(Pipe::as_fd)
    }
}

impl Drop for FilledPipe {
    fn drop(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        let mut state = self.pipes.state();
        if self.left == 0 && state.open <= state.most {
            state.spare.push(pipe);
        } else {
            state.closed(&pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answering::body::{Body, BodySource};
    use crate::cache::front::Front;
    use forebay_conn::handler::body::BodyRead;
    use forebay_http::range::Range;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn file(bytes: usize) -> OwnedFd {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-piped-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, vec![7; bytes]).unwrap();
        let file = std::fs::File::open(&path).unwrap().into();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn read(filled: &mut FilledPipe, bytes: u64) {
        let pipe = filled.end().unwrap().try_clone_to_owned().unwrap();
        let mut pipe = std::fs::File::from(pipe);
        std::io::Read::read_exact(&mut pipe, &mut vec![0; bytes as usize]).unwrap();
        filled.taken(bytes);
    }

    #[test]
    fn an_empty_pipe_is_used_again_and_another_is_not() {
        let (pipes, file) = (Pipes::new(1), file(50_000));
        for taken in [50_000, 49_999, 0, 50_000] {
            let mut filled = pipes.fill(file.as_fd(), 50_000).unwrap();
            assert!(pipes.fill(file.as_fd(), 50_000).is_none(), "there is only one");
            read(&mut filled, taken);
            drop(filled);
            assert_eq!(pipes.0.state().spare.len(), usize::from(taken == 50_000));
        }
    }

    #[test]
    fn a_body_in_a_pipe_is_copied_to_its_end() {
        let (pipes, file) = (Pipes::new(1), file(50_000));
        let memory_budget = crate::bodies::memory_budget::MemoryBudget::new(1 << 20);
        for most in [1000, 50_000, 60_000] {
            let filled = pipes.fill(file.as_fd(), 50_000).unwrap();
            let piped = Piped { filled, _reservation: memory_budget.take(50_000).unwrap() };
            let range = Range { start: 0, len: 50_000 };
            let mut body = Body::run(BodySource::Piped(Box::new(piped)), 0, range);
            let (front, mut buffer, mut read) = (Front::new(4), vec![0; most], 0);
            while let BodyRead::Bytes(count) = body.read(&front, &mut buffer) {
                assert!(count > 0 && buffer[..count].iter().all(|byte| *byte == 7));
                read += count;
            }
            assert_eq!((read, body.read(&front, &mut buffer)), (50_000, BodyRead::End));
            drop(body);
            assert_eq!(pipes.0.state().spare.len(), 1, "it is empty");
        }
    }

    #[test]
    fn a_larger_pipe_takes_the_place_of_a_smaller_one() {
        let pipes = Pipes::new(1);
        for bytes in [20_000, 200_000, 30_000] {
            let mut filled = pipes.fill(file(bytes).as_fd(), bytes).unwrap();
            read(&mut filled, bytes as u64);
        }
        assert_eq!(pipes.0.state().open, 1);
        assert!(Pipes::new(0).fill(file(20_000).as_fd(), 20_000).is_none());
    }

    #[test]
    fn all_together_have_only_so_much_room() {
        let (pipes, file) = (Pipes::new(1000), file(300_000));
        let fill = || pipes.fill(file.as_fd(), 300_000);
        let filled: Vec<_> = std::iter::from_fn(fill).collect();
        let count = filled.len();
        let bytes = || pipes.0.state().bytes;
        assert!(count > 0 && count < 1000 && bytes() <= MOST_BYTES, "{count}");
        for mut filled in filled {
            read(&mut filled, 300_000);
        }
        assert_eq!(pipes.0.state().spare.len(), count);
        assert!(pipes.fill(self::file(600_000).as_fd(), 600_000).is_some(), "in place of others");
        assert!(bytes() <= MOST_BYTES && pipes.0.state().spare.len() < count);
        pipes.retire();
        assert_eq!(bytes(), 0);
    }

    #[test]
    fn who_is_retired_gives_all_back() {
        let (pipes, file) = (Pipes::new(3), file(40_000));
        let mut filled = [(); 2].map(|()| pipes.fill(file.as_fd(), 40_000).unwrap());
        read(&mut pipes.fill(file.as_fd(), 40_000).unwrap(), 40_000);
        assert_eq!(pipes.0.state().spare.len(), 1);
        pipes.retire();
        assert!(pipes.fill(file.as_fd(), 40_000).is_none());
        read(&mut filled[0], 40_000);
        drop(filled);
        let state = pipes.0.state();
        assert_eq!((state.open, state.bytes, state.spare.len()), (0, 0, 0));
    }

    #[test]
    fn a_file_that_has_another_length_is_not_taken() {
        let (pipes, file) = (Pipes::new(2), file(70_000));
        assert!(
            pipes.fill(file.as_fd(), 69_000).is_none()
                && pipes.fill(file.as_fd(), 80_000).is_none()
        );
        assert_eq!(pipes.0.state().open, 0, "what is in them is not kept");
    }
}
