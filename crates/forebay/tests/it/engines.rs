//! Tests that run on each engine, here and in the tests of other crates.

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
