//! Every input kept in `fuzz/seeds` goes through the checks of its fuzz target, with the stable compiler and
//! without a fuzzer, as it is and with a byte changed. An input that broke something once stays there for
//! ever.

use crate::{fastcgi, told};
use std::path::Path;

/// Prints each file's name, so that a failure says which one it was.
fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the folder of seeds is there") {
        let file = entry.expect("a seed is listed").path();
        println!("{}", file.display());
        let bytes = std::fs::read(&file).expect("a seed can be read");
        check(&bytes);
        for at in 0..bytes.len() {
            for byte in [0, b'\n', b'\r', b' ', b'%', b'/', b':', b';', 1, 6, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                check(&changed);
            }
        }
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", folder.display());
}

#[test]
fn fastcgi_seeds() {
    run("fastcgi", fastcgi::check);
}

#[test]
fn told_seeds() {
    run("told", told::check);
}
