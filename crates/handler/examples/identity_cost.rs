//! The cost of an identity for a request: without a cookie, with one that repeats, with one that is new,
//! and with one that is forged.
//!
//! `cargo run --release -p forebay-server --example identity_cost`

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints what it measures"
)]

use forebay_handler::identity::{Keys, Remembered, Verifier, token};
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

const TIMES: u32 = 20_000;
const RUNS: usize = 15;

fn main() {
    let path = std::env::temp_dir().join(format!("identity-cost-{}", std::process::id()));
    std::fs::write(&path, "k1 0123456789abcdef0123456789abcdef0123456789abcdef\n").unwrap();
    let keys = Arc::new(Keys::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    let verifier = Verifier::new("id", &keys);
    let good = token::make(&keys, None, "gold", u64::MAX, None).unwrap();
    let forged = good.replace("gold", "bold");
    let cookies = "theme=dark; session=0123456789abcdef";
    for (what, cookie, repeats) in [
        ("no token", cookies.to_owned(), true),
        ("the same again", format!("{cookies}; id={good}"), true),
        ("a new one", format!("{cookies}; id={good}"), false),
        ("a forged one", format!("{cookies}; id={forged}"), false),
    ] {
        let text =
            format!("GET / HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nCookie: {cookie}\r\n\r\n");
        let mut lines = Lines::new();
        let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
        let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{parsed:?}") };
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut runs: Vec<f64> = (0..RUNS)
            .map(|_| {
                let mut remembered = Remembered::default();
                let begin = Instant::now();
                for _ in 0..TIMES {
                    if !repeats {
                        remembered = Remembered::default();
                    }
                    black_box(verifier.identify(black_box(&head), client, 1, &mut remembered));
                }
                begin.elapsed().as_nanos() as f64 / f64::from(TIMES)
            })
            .collect();
        runs.sort_by(f64::total_cmp);
        println!("{what:15} {:6.0} ns ({:.0} to {:.0})", runs[RUNS / 2], runs[0], runs[RUNS - 1]);
    }
}
