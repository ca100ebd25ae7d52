//! Services of tower beside sites, as clients and as their programs see them.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

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

#[path = "../../../forebay/tests/it/client.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod client;
#[path = "../../examples/beside_sites.rs"]
#[allow(dead_code, unreachable_pub, reason = "an example is a program")]
mod example;
mod services;
mod streams;
mod upgrades;
