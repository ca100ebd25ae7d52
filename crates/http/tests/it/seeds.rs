//! Every input kept in `fuzz/seeds` goes through the checks of its fuzz target, with the stable
//! compiler and without a fuzzer. An input that broke something once stays there for ever.

use crate::corpus::each_seed;
use crate::{body, condition, forwarded, head, range, response, target_path};

#[test]
fn head_seeds() {
    each_seed("head", head::check);
}

#[test]
fn response_seeds() {
    each_seed("response", response::check);
}

#[test]
fn body_seeds() {
    each_seed("body", body::check);
}

#[test]
fn target_path_seeds() {
    each_seed("target_path", target_path::check);
}

#[test]
fn range_seeds() {
    each_seed("range", range::check);
}

#[test]
fn forwarded_seeds() {
    each_seed("forwarded", forwarded::check);
}

#[test]
fn condition_seeds() {
    each_seed("condition", condition::check);
}
