//! A value that is replaced as a whole while readers use it.
//!
//! A reload reaches loops and threads in this way: settings, content, shares. A writer stores the next value
//! and gives it the next number. A reader remembers the number it has seen last. To check for a newer value
//! costs one atomic load, so a reader can check before each request; it takes the lock only when there is
//! one.
//!
//! Values and numbers are exchanged under one lock. So a reader gets each value at most once, never an older
//! one after a newer one, and the last one in the end. A value that was replaced before a reader checked is
//! never seen by it.
//!
//! ```
//! use forebay_control::versioned::Versioned;
//! use std::sync::Arc;
//!
//! let limit = Arc::new(Versioned::new(100));
//! let (mut reader, first) = limit.reader();
//! assert_eq!((first, reader.newer()), (100, None));
//! limit.replace(200);
//! assert_eq!((reader.newer(), reader.newer()), (Some(200), None));
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value and its number. Readers get a clone: a small copy, or an `Arc`.
#[derive(Debug)]
pub struct Versioned<T> {
    /// The number of the value. It changes only while `value` is locked.
    generation: AtomicU64,
    value: Mutex<T>,
}

/// A user of the value, which remembers the number it has seen.
#[derive(Clone, Debug)]
pub struct Reader<T> {
    of: Arc<Versioned<T>>,
    seen: u64,
}

impl<T: Default> Default for Versioned<T> {
    fn default() -> Versioned<T> {
        Versioned::new(T::default())
    }
}

impl<T> Versioned<T> {
    /// A value with the number 1.
    pub fn new(first: T) -> Versioned<T> {
        Versioned { generation: AtomicU64::new(1), value: Mutex::new(first) }
    }

    /// The number of the value, which counts the values so far. One atomic load.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Replaces the value, and returns the old one. Readers find the new one at their next check.
    pub fn replace(&self, next: T) -> T {
        let mut value = self.lock();
        let before = std::mem::replace(&mut *value, next);
        // only after the value: a reader that sees the new number finds the new value
        self.generation.fetch_add(1, Ordering::Release);
        before
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        // a panic cannot leave the value half replaced
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Versioned<T> {
    /// The present value.
    pub fn get(&self) -> T {
        self.lock().clone()
    }

    /// A reader, and the value it starts with.
    pub fn reader(self: &Arc<Self>) -> (Reader<T>, T) {
        let mut reader = Reader { of: Arc::clone(self), seen: 0 };
        let value = reader.take();
        (reader, value)
    }
}

impl<T: Clone> Reader<T> {
    /// The value, if it is newer than the one this reader got last; otherwise the check costs one atomic
    /// load.
    #[inline]
    pub fn newer(&mut self) -> Option<T> {
        if self.of.generation() == self.seen { None } else { Some(self.take()) }
    }

    /// Takes the value and its number, which belong together while the lock is held.
    #[cold]
    fn take(&mut self) -> T {
        let value = self.of.lock();
        self.seen = self.of.generation();
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_reader_gets_each_value_once_and_the_last_one_for_sure() {
        let value = Arc::new(Versioned::new(0));
        let (mut early, first) = value.reader();
        assert_eq!((first, early.newer(), value.generation()), (0, None, 1));
        assert_eq!([value.replace(1), value.replace(2)], [0, 1]);
        assert_eq!((early.newer(), early.newer()), (Some(2), None));
        let (mut late, first) = value.reader();
        assert_eq!((first, late.newer(), value.get(), value.generation()), (2, None, 2, 3));
    }

    #[test]
    fn the_same_value_again_is_a_newer_one() {
        let value = Arc::new(Versioned::new("same"));
        let (mut reader, _) = value.reader();
        value.replace("same");
        assert_eq!(reader.newer(), Some("same"));
    }

    /// Each writer's values are numbered. A reader must see each writer's numbers rise, every value
    /// whole and at most once, and the last one in the end.
    #[test]
    fn readers_never_go_back_and_never_see_halves() {
        const WRITERS: u64 = 2;
        const VALUES: u64 = 20_000;
        let value = Arc::new(Versioned::new([0u64; 8]));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let read = || {
                let (mut reader, first) = value.reader();
                let (mut last, mut seen) = ([0; WRITERS as usize], 0u64);
                let mut check = |value: [u64; 8]| {
                    assert!(value.iter().all(|part| *part == value[0]), "a half: {value:?}");
                    let (writer, number) = ((value[0] % WRITERS) as usize, value[0] / WRITERS);
                    assert!(number == 0 || number > last[writer], "{number} after {last:?}");
                    last[writer] = number;
                    seen += 1;
                };
                check(first);
                loop {
                    // before the check, so that no value can come after it
                    let is_last_look = is_over.load(Ordering::Acquire);
                    if let Some(next) = reader.newer() {
                        check(next);
                    } else if is_last_look {
                        assert!(seen <= 1 + WRITERS * VALUES);
                        assert!(last.contains(&VALUES), "the last one was not seen: {last:?}");
                        return;
                    }
                }
            };
            let readers = [(); 3].map(|()| scope.spawn(read));
            let writers = [0, 1].map(|writer| {
                let value = &value;
                scope.spawn(move || {
                    for number in 1..=VALUES {
                        value.replace([number * WRITERS + writer; 8]);
                    }
                })
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Release);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        assert_eq!(value.generation(), 1 + WRITERS * VALUES);
    }
}
