//! Feeds `checks/hello.rs` with whatever the fuzzer finds.
#![no_main]

#[path = "../checks/hello.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
