//! Detection of overflows. A fiber that overflows its stack runs into the guard page. This module
//! turns the SIGSEGV into a clear message and an abort; every other SIGSEGV goes where it would
//! have gone.

use super::entry;
use crate::stack::page_bytes;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

/// The earlier handler of SIGSEGV.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

const ALTERNATE_BYTES: usize = 64 * 1024;

thread_local! {
    /// The signal stack of this thread, if it had none before.
    static ALTERNATE: RefCell<Option<Alternate>> = const { RefCell::new(None) };
}

/// An alternate signal stack that is in force until it is dropped.
struct Alternate {
    _memory: Box<[MaybeUninit<u8>]>,
}

impl Drop for Alternate {
    fn drop(&mut self) {
        let off = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: takes the stack of this thread, which installed it, out of use.
        unsafe { libc::sigaltstack(&raw const off, ptr::null_mut()) };
    }
}

/// Prepares the process (once) and this thread.
pub(crate) fn watch() {
    give_alternate_stack();
    BEFORE.get_or_init(|| {
        // SAFETY: both structures are plain data for which zero is valid, and `act` is complete when
        // it is installed.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut act: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut before);
            act.sa_sigaction = on_fault as *const () as usize;
            act.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut act.sa_mask);
            libc::sigaction(libc::SIGSEGV, &raw const act, ptr::null_mut());
            before
        }
    });
}

/// Gives the thread an alternate signal stack, because the handler cannot run on a used-up stack.
/// Rust gives its own threads one; a thread started otherwise may have none.
fn give_alternate_stack() {
    // SAFETY: `current` is plain data that the kernel fills in.
    let has_one = unsafe {
        let mut current: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut current) == 0
            && current.ss_flags & libc::SS_DISABLE == 0
    };
    if has_one {
        return;
    }
    let mut memory = Box::new_uninit_slice(ALTERNATE_BYTES);
    let stack =
        libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the memory stays where it is until `Alternate` takes it out of use.
    if unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) } == 0 {
        let alternate = Alternate { _memory: memory };
        ALTERNATE.with(|place| *place.borrow_mut() = Some(alternate));
    }
}

/// Handles a SIGSEGV: reads thread-locals that need no initialisation, writes, and aborts.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo_t to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    if let Some((lowest, stack_bytes)) = entry::running_stack()
        && (lowest..lowest + page_bytes()).contains(&address)
    {
        let mut line = MessageLine { text: [0; 240], len: 0 };
        line.push(b"fiber: stack overflow: ");
        match entry::running_name() {
            // SAFETY: a fiber that has a name holds its text until it has none.
            Some((text, len)) => line.push(unsafe { std::slice::from_raw_parts(text, len) }),
            None => line.push(b"a fiber"),
        }
        line.push(b" needs more than its ");
        line.push_number(stack_bytes);
        line.push(b" bytes of stack; raise stack_bytes. Aborting.\n");
        // SAFETY: `write` and `abort` may be called in a signal handler; the buffer is local.
        unsafe {
            libc::write(2, line.text.as_ptr().cast(), line.len);
            libc::abort();
        }
    }
    pass_on(signal, info, context);
}

/// Calls the earlier handler, or restores the default action for the next fault.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: puts back what was there; the instruction that failed fails again and meets it.
            unsafe { libc::sigaction(signal, &raw const *before, ptr::null_mut()) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: with SA_SIGINFO the address is that of a handler with three arguments.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the address is that of a handler with one argument.
            let handler =
                unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
    }
}

/// A line of text that is built without the allocator.
struct MessageLine {
    text: [u8; 240],
    len: usize,
}

impl MessageLine {
    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.text.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn push_number(&mut self, number: usize) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push(&[b'0' + (number % 10) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_whole_and_lines_end_at_their_bound() {
        let mut line = MessageLine { text: [0; 240], len: 0 };
        line.push_number(1_234_050);
        assert_eq!(&line.text[..line.len], b"1234050");
        line.push(&[b'x'; 300]);
        assert_eq!(line.len, 240);
    }
}
