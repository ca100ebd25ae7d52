//! The message of a process that overflows a fiber's stack, and the lack of it in one that fails
//! otherwise. Each test runs this program again in a process of its own.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_fiber::{Options, Scheduler};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// Runs the test `name` of this program with the variable that makes it fail.
fn fail(name: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env("FAIL_NOW", name);
    command.output().unwrap()
}

fn is_to_fail(name: &str) -> bool {
    std::env::var_os("FAIL_NOW").is_some_and(|which| which == name)
}

#[inline(never)]
fn deeper(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { deeper(depth + 1) + frame[(depth % 64) as usize] }
}

fn run(f: impl FnOnce() + 'static) {
    let options = Options { stack_bytes: 64 << 10, kept_stacks: 1 };
    Scheduler::new(options).run(f).unwrap();
}

#[test]
fn a_stack_that_overflows_is_named() {
    if is_to_fail("a_stack_that_overflows_is_named") {
        run(|| println!("{}", deeper(0)));
    }
    let output = fail("a_stack_that_overflows_is_named");
    let said = String::from_utf8_lossy(&output.stderr);
    let line = "fiber: stack overflow: a fiber needs more than its 65536 bytes of stack";
    assert!(said.contains(line), "{said}");
    assert_eq!(output.status.signal(), Some(SIGABRT));
}

#[test]
fn another_fault_is_not_called_an_overflow() {
    if is_to_fail("another_fault_is_not_called_an_overflow") {
        run(|| {
            let nowhere = std::hint::black_box(8) as *const u64;
            // SAFETY: none: this is the fault whose end is looked at.
            println!("{}", unsafe { nowhere.read_volatile() });
        });
    }
    let output = fail("another_fault_is_not_called_an_overflow");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("stack overflow"), "{said}");
    assert_eq!(output.status.signal(), Some(SIGSEGV));
}

#[test]
fn a_thread_that_overflows_is_still_reported_by_rust() {
    if is_to_fail("a_thread_that_overflows_is_still_reported_by_rust") {
        run(|| ());
        std::thread::spawn(|| println!("{}", deeper(0))).join().unwrap();
    }
    let output = fail("a_thread_that_overflows_is_still_reported_by_rust");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("has overflowed its stack") && !said.contains("fiber:"), "{said}");
}
