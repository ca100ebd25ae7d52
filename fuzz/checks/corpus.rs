//! Every input kept in `fuzz/seeds`, for tests that run the checks with the stable compiler and without a fuzzer.
//! An input that broke something once stays there for ever.

use std::path::Path;

/// Gives `check` each input kept for a target. Prints each file's name, so that a failure says which one it was.
pub(crate) fn each_seed(target: &str, mut check: impl FnMut(&[u8])) {
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
