//! Servers inside a program, as the program sees them.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

/// Counts what is in use.
#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// A module of tests for each engine.
macro_rules! on_each_engine {
    ($($test:ident),* $(,)?) => {
        on_each_engine!(@ fibers: "fibers"; $($test),*);
        on_each_engine!(@ event: "event"; $($test),*);
        on_each_engine!(@ threads: "threads"; $($test),*);
        on_each_engine!(@ pool: "pool"; $($test),*);
        on_each_engine!(@ pipeline: "pipeline"; $($test),*);
        on_each_engine!(@ split: "split"; $($test),*);
    };
    (@ $name:ident: $word:literal; $($test:ident),*) => {
        mod $name {
            $(#[test] fn $test() { super::$test($word); })*
        }
    };
}

mod client;
mod examples;
mod handlers;
mod http2;
mod policy;
mod process;
mod servers;
mod upgrades;
