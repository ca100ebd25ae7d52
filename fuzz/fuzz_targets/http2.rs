//! Feeds `checks/http2.rs` with whatever the fuzzer finds.
#![no_main]

#[path = "../checks/http2.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
