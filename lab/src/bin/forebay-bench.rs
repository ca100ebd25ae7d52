//! `forebay-bench`: runs an experiment, or shows what recorded rows come to.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay_lab::runner::main(forebay_lab::benchmarks::ALL)
}
