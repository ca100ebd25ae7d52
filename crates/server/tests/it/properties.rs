//! Properties of every text given as a configuration. The check is that of the fuzz target; here it
//! gets the cases of `config/` with pieces cut out, doubled and exchanged, and the inputs kept in
//! `fuzz/seeds`.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::checks;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::path::Path;
use std::sync::LazyLock;

/// The inputs of all cases.
static INPUTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let input = |case: Vec<u8>| {
        let end = case.windows(4).position(|window| window == b"---\n").unwrap();
        case[..end].to_vec()
    };
    files("tests/config").into_iter().map(input).collect()
});

/// The lines of all inputs.
static LINES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let lines = INPUTS.iter().flat_map(|input| input.split_inclusive(|byte| *byte == b'\n'));
    lines.map(<[u8]>::to_vec).collect()
});

fn files(directory: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_kept_input_passes() {
    let seeds = files("../../fuzz/seeds/config");
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| checks::check(seed));
}

proptest! {
    #[test]
    fn lines_in_any_order(lines in vec(select(LINES.clone()), 0..12)) {
        checks::check(&lines.concat());
    }

    #[test]
    fn a_byte_changed_and_a_piece_cut_out(
        mut text in select(INPUTS.clone()).prop_filter("not empty", |text| !text.is_empty()),
        at: Index, byte in select(&b"\"'[]{}=.,#\\\n\r\0 -0a\xc3"[..]), from: Index, len in 0..8usize,
    ) {
        let at = at.index(text.len());
        text[at] = byte;
        let from = from.index(text.len());
        text.drain(from..(from + len).min(text.len()));
        checks::check(&text);
    }

    #[test]
    fn any_text(text: String) {
        checks::check(text.as_bytes());
    }
}
