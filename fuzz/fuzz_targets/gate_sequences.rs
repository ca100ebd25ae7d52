//! Feeds `checks/gate_sequences.rs` with whatever the fuzzer finds. Only root can.
#![no_main]

#[path = "../checks/gate.rs"]
#[allow(dead_code, reason = "its own check is another target")]
mod check;
#[path = "../checks/gate_sequences.rs"]
mod sequences;

use check::WatchedGate;
use std::cell::RefCell;

thread_local! {
    static WATCHED: RefCell<Option<WatchedGate>> = const { RefCell::new(None) };
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    WATCHED.with_borrow_mut(|watched| {
        sequences::check(watched.get_or_insert_with(WatchedGate::alone), bytes);
    });
});
