//! Every input kept in `fuzz/seeds/config` goes through the checks of the fuzz target, with the
//! stable compiler and without a fuzzer. An input that broke something once stays there for ever.

use crate::checks;
use std::path::Path;

/// Prints each file's name, so that a failure says which one it was.
#[test]
fn config_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/config");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of seeds is there") {
        let file = entry.expect("a seed is listed").path();
        println!("{}", file.display());
        checks::check(&std::fs::read(&file).expect("a seed can be read"));
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", folder.display());
}
