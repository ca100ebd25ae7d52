//! Stacks: memory with a guard page below it, kept for the next fiber when one ends.

use corosensei::stack::{MIN_STACK_SIZE, STACK_ALIGNMENT, StackPointer};
use std::io;
use std::ptr::{self, NonNull};

/// `MADV_GUARD_INSTALL` (Linux 6.13): a guard that splits no mapping, so that the number of stacks
/// is not bounded by `vm.max_map_count`.
const GUARD_INSTALL: libc::c_int = 102;

/// Stacks are shifted against one another by a multiple of this, below a page in all.
const SHIFT_BYTES: usize = 256;
const SHIFTS: usize = 16;

/// A stack with a guard page at its lower end.
pub(crate) struct FiberStack {
    /// The lowest address: that of the guard page.
    lowest: NonNull<u8>,
    bytes: usize,
    /// The number of bytes at its upper end that are left out.
    shift: usize,
}

/// The size of a page, and so of a guard.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

impl FiberStack {
    /// A fresh stack of at least `bytes`, guard not included. `number` determines its shift:
    /// otherwise the upper ends of all stacks, which are the parts in use, would compete for the
    /// same few cache sets.
    fn map(bytes: usize, number: usize) -> io::Result<FiberStack> {
        let shift = number % SHIFTS * SHIFT_BYTES;
        let page = page_bytes();
        let bytes = bytes
            .max(MIN_STACK_SIZE)
            .checked_add(SHIFTS * SHIFT_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?
            .checked_next_multiple_of(page)
            .and_then(|bytes| bytes.checked_add(page))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // MAP_STACK excludes huge pages (Linux 6.7): a stack touches only a page or two
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let lowest = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if lowest == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let lowest = NonNull::new(lowest.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let stack = FiberStack { lowest, bytes, shift };
        // SAFETY: the page belongs to the mapping above, which is not used yet.
        let guarded = unsafe { libc::madvise(lowest.as_ptr().cast(), page, GUARD_INSTALL) } == 0
            // SAFETY: as above.
            || unsafe { libc::mprotect(lowest.as_ptr().cast(), page, libc::PROT_NONE) } == 0;
        if guarded { Ok(stack) } else { Err(io::Error::last_os_error()) }
    }

    /// The address of the guard page.
    pub(crate) fn lowest(&self) -> usize {
        self.lowest.addr().get()
    }

    /// The size that every stack of this kind has at least.
    pub(crate) fn usable_bytes(&self) -> usize {
        self.bytes - page_bytes() - SHIFTS * SHIFT_BYTES
    }

    /// How many bytes of the stack have ever been used, to the word.
    fn used_bytes(&self) -> usize {
        let page = page_bytes();
        let words = (self.bytes - self.shift - page) / size_of::<usize>();
        // SAFETY: everything above the guard page is readable and, as the stack is idle, at rest;
        // fresh memory is zero.
        let unused = unsafe {
            let first = self.lowest.as_ptr().add(page).cast::<usize>();
            (0..words).take_while(|&at| first.add(at).read_volatile() == 0).count()
        };
        (words - unused) * size_of::<usize>()
    }
}

impl Drop for FiberStack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this stack's own, and a coroutine drops it only after its code has
        // ended.
        unsafe { libc::munmap(self.lowest.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: the memory is the stack's alone until it is dropped, it is larger than the minimum, and
// its lowest page is a guard.
unsafe impl corosensei::stack::Stack for FiberStack {
    fn base(&self) -> StackPointer {
        const { assert!(STACK_ALIGNMENT <= 4096) };
        self.lowest.addr().saturating_add(self.bytes - self.shift)
    }

    fn limit(&self) -> StackPointer {
        self.lowest.addr()
    }
}

/// The pool of stacks.
pub(crate) struct Stacks {
    idle: Vec<FiberStack>,
    bytes: usize,
    most_idle: usize,
    /// The number of stacks ever made.
    made: usize,
}

impl Stacks {
    pub(crate) fn new(bytes: usize, most_idle: usize) -> Stacks {
        Stacks { idle: Vec::new(), bytes, most_idle, made: 0 }
    }

    /// Takes the stack that was used last, which is most likely in the caches, or makes a fresh
    /// one.
    ///
    /// # Errors
    /// Lack of memory or of mappings (`vm.max_map_count`).
    #[inline]
    pub(crate) fn take(&mut self) -> io::Result<FiberStack> {
        match self.idle.pop() {
            Some(stack) => Ok(stack),
            None => {
                self.made = self.made.wrapping_add(1);
                FiberStack::map(self.bytes, self.made)
            }
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, stack: FiberStack) {
        if self.idle.len() < self.most_idle {
            self.idle.push(stack);
        }
    }

    pub(crate) fn deepest_bytes(&self) -> usize {
        self.idle.iter().map(FiberStack::used_bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corosensei::stack::Stack as _;

    #[test]
    fn stacks_come_back_up_to_a_number() {
        let mut stacks = Stacks::new(10_000, 2);
        let three: Vec<_> = (0..3).map(|_| stacks.take().unwrap()).collect();
        let bases: Vec<_> = three.iter().map(|stack| stack.base()).collect();
        three.into_iter().for_each(|stack| stacks.put(stack));
        assert_eq!(stacks.idle.len(), 2);
        assert_eq!(stacks.take().unwrap().base(), bases[1]);
    }

    #[test]
    fn the_depth_is_found() {
        let stack = FiberStack::map(32 << 10, 3).unwrap();
        assert_eq!(stack.used_bytes(), 0);
        let at = stack.base().get() - 5_000 / 8 * 8;
        // SAFETY: within the stack, above its guard.
        unsafe { (at as *mut u64).write_volatile(1) };
        assert_eq!(stack.used_bytes(), 5_000);
    }

    #[test]
    fn a_size_nobody_has_is_an_error() {
        assert!(FiberStack::map(usize::MAX - 4096, 0).is_err());
        assert!(FiberStack::map(usize::MAX / 2, 0).is_err());
    }
}
