//! `lab`: lists experiments, checks their files, runs them.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay_lab::command::main()
}
