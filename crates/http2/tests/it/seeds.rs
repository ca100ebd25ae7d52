//! Runs every input in `fuzz/seeds` through the checks of its fuzz target, with the stable compiler
//! and without a fuzzer, and also inputs that were damaged at random.

use crate::corpus::each_seed;
use crate::{hpack, http2};

fn run(target: &str, check: fn(&[u8])) {
    let mut random = fastrand::Rng::with_seed(9);
    each_seed(target, |bytes| {
        check(bytes);
        for _ in 0..100 {
            let mut bytes = bytes.to_vec();
            for _ in 0..random.usize(1..5) {
                if !bytes.is_empty() {
                    let at = random.usize(..bytes.len());
                    bytes[at] = random.u8(..);
                }
            }
            println!("{}", bytes.escape_ascii());
            check(&bytes);
        }
    });
}

#[test]
fn http2_seeds() {
    run("http2", http2::check);
}

#[test]
fn hpack_seeds() {
    run("hpack", hpack::check);
}
