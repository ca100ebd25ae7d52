//! Every input kept in `fuzz/seeds` goes through the checks of its fuzz target, with the stable
//! compiler and without a fuzzer. An input that broke something once stays there for ever.

#![allow(clippy::unwrap_used, reason = "a failed check panics")]

use std::path::Path;

#[path = "../../../../fuzz/checks/policy.rs"]
mod policy;

#[test]
fn policy_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/policy");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        println!("{}", file.display());
        policy::check(&std::fs::read(&file).unwrap());
        count += 1;
    }
    assert!(count > 0, "no seeds");
}
