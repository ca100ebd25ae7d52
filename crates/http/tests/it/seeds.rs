//! Every input kept in `fuzz/seeds` goes through the checks of its fuzz target, with the stable
//! compiler and without a fuzzer. An input that broke something once stays there for ever.

use crate::{body, condition, head, range, response, target_path};
use std::path::Path;

/// Prints each file's name, so that a failure says which one it was.
fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of seeds is there") {
        let file = entry.expect("a seed is listed").path();
        println!("{}", file.display());
        check(&std::fs::read(&file).expect("a seed can be read"));
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", folder.display());
}

#[test]
fn head_seeds() {
    run("head", head::check);
}

#[test]
fn response_seeds() {
    run("response", response::check);
}

#[test]
fn body_seeds() {
    run("body", body::check);
}

#[test]
fn target_path_seeds() {
    run("target_path", target_path::check);
}

#[test]
fn range_seeds() {
    run("range", range::check);
}

#[test]
fn condition_seeds() {
    run("condition", condition::check);
}
