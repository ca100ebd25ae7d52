//! Every input kept in `fuzz/seeds` goes through the checks of its fuzz target, with the stable compiler and
//! without a fuzzer, as it is and with a byte changed. An input that once broke something stays there
//! permanently.

use crate::corpus::each_seed;
use crate::{fastcgi, told};

fn run(target: &str, check: fn(&[u8])) {
    each_seed(target, |bytes| {
        check(bytes);
        for at in 0..bytes.len() {
            for byte in [0, b'\n', b'\r', b' ', b'%', b'/', b':', b';', 1, 6, 0xff] {
                let mut changed = bytes.to_vec();
                changed[at] = byte;
                check(&changed);
            }
        }
    });
}

#[test]
fn fastcgi_seeds() {
    run("fastcgi", fastcgi::check);
}

#[test]
fn told_seeds() {
    run("told", told::check);
}
