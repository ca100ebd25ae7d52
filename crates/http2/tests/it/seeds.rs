//! Every input kept in `fuzz/seeds` goes through the checks of its fuzz target, with the stable
//! compiler and without a fuzzer; and so do inputs that were damaged at random.

use crate::{hpack, http2};
use std::path::Path;

/// Prints each file's name, so that a failure says which one it was.
fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut count = 0;
    let mut random = fastrand::Rng::with_seed(9);
    for entry in std::fs::read_dir(&folder).expect("the folder of seeds is there") {
        let file = entry.expect("a seed is listed").path();
        println!("{}", file.display());
        let bytes = std::fs::read(&file).expect("a seed can be read");
        check(&bytes);
        for _ in 0..100 {
            let mut bytes = bytes.clone();
            for _ in 0..random.usize(1..5) {
                if !bytes.is_empty() {
                    let at = random.usize(..bytes.len());
                    bytes[at] = random.u8(..);
                }
            }
            println!("{}", bytes.escape_ascii());
            check(&bytes);
        }
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", folder.display());
}

#[test]
fn http2_seeds() {
    run("http2", http2::check);
}

#[test]
fn hpack_seeds() {
    run("hpack", hpack::check);
}
