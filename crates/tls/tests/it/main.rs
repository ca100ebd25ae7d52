//! The crate from outside: what a fuzzer found, and what it begins with.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "../../../../fuzz/checks/tls.rs"]
mod checks;

use std::path::Path;

/// Every input kept in `fuzz/seeds/tls`; prints each file's name, so that a failure says which one it was.
#[test]
fn tls_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/tls");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let file = entry.unwrap().path();
        println!("{}", file.display());
        checks::check(&std::fs::read(&file).unwrap());
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", folder.display());
}
