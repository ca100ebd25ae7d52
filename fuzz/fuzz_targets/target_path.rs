//! Feeds `checks/target_path.rs` with whatever the fuzzer finds.
#![no_main]

#[path = "../checks/target_path.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
