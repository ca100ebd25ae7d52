//! Feeds `checks/told.rs` with the fuzzer's inputs.
#![no_main]

#[path = "../checks/told.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
