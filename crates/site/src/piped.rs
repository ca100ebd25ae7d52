//! Bodies that wait in pipes: read from the disk for one answer, and sent without having been copied.
//!
//! What is read around the page cache is not worth keeping, so it need not come into this process. A
//! job fills a pipe with the file, which is one reading like any other: its stamp is compared after it,
//! and what others do to the file later changes nothing. Then the pipe belongs to the answer. When it
//! is empty it serves the next one; a client who leaves takes it along.
//!
//! There are only so many pipes, because each costs two descriptors. Who finds none left reads into
//! memory.

use crate::room::Room;
use forebay_sys::pages::AROUND_BYTES;
use forebay_sys::pipe::Pipe;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pipes for all answers.
#[derive(Debug)]
pub(crate) struct Pipes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// All there are.
    open: usize,
    /// Those that are empty.
    spare: Vec<Pipe>,
}

/// A pipe with bytes that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Filled {
    /// There until it is dropped.
    pipe: Option<Pipe>,
    left: u64,
    pipes: Arc<Shared>,
}

/// The body of one answer, and its room.
#[derive(Debug)]
pub(crate) struct Piped {
    pub(crate) filled: Filled,
    /// Given back with the pipe.
    pub(crate) _room: Room,
}

impl Pipes {
    /// At most so many.
    pub(crate) fn new(most: usize) -> Pipes {
        Pipes(Arc::new(Shared { most, state: Mutex::default() }))
    }

    /// A pipe with all of a file, if that has so many bytes. It is to be read around the page cache
    /// ([`read_around`](forebay_sys::pages::read_around)). `None` if there is no pipe for so much left,
    /// or the file cannot be read that way. May block.
    pub(crate) fn fill(&self, file: BorrowedFd<'_>, size: usize) -> Option<Filled> {
        let pipe = self.0.take(size.next_multiple_of(AROUND_BYTES))?;
        let count = pipe.fill(file, size);
        let is_whole = count.is_ok_and(|count| count == size);
        // with bytes left it is not used again
        let filled = Filled { pipe: Some(pipe), left: size as u64, pipes: Arc::clone(&self.0) };
        is_whole.then_some(filled)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // a panic leaves at worst a pipe too few
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty pipe with room for so many bytes.
    fn take(&self, bytes: usize) -> Option<Pipe> {
        let mut state = self.state();
        let fits = |pipe: &Pipe| pipe.room() >= bytes;
        if let Some(at) = state.spare.iter().rposition(fits) {
            return Some(state.spare.swap_remove(at));
        }
        if state.open >= self.most {
            // a smaller one makes room for it
            state.spare.pop()?;
            state.open -= 1;
        }
        state.open += 1;
        drop(state);
        let made = Pipe::new(bytes).ok().filter(fits);
        if made.is_none() {
            self.state().open -= 1;
        }
        made
    }
}

impl Filled {
    /// So many bytes were sent.
    pub(crate) fn taken(&mut self, count: u64) {
        self.left = self.left.saturating_sub(count);
    }

    /// The end that bytes come out of.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(Pipe::as_fd)
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let empty = self.pipe.take().filter(|_| self.left == 0);
        let mut state = self.pipes.state();
        match empty {
            Some(pipe) => state.spare.push(pipe),
            None => state.open -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn file(bytes: usize) -> OwnedFd {
        let path =
            std::env::temp_dir().join(format!("forebay-piped-{}-{bytes}", std::process::id()));
        std::fs::write(&path, vec![7; bytes]).unwrap();
        let file = std::fs::File::open(&path).unwrap().into();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn read(filled: &mut Filled, bytes: u64) {
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
    fn a_file_that_has_another_length_is_not_taken() {
        let (pipes, file) = (Pipes::new(2), file(70_000));
        assert!(
            pipes.fill(file.as_fd(), 69_000).is_none()
                && pipes.fill(file.as_fd(), 80_000).is_none()
        );
        assert_eq!(pipes.0.state().open, 0, "what is in them is not kept");
    }
}
