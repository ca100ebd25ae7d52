//! Feeds `checks/gate.rs` with whatever the fuzzer finds. Only root can.
#![no_main]

#[path = "../checks/gate.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
