//! What it costs to parse a request head: `cargo run --release -p forebay-http --example head_cost`.
//!
//! Prints nanoseconds per head, best and median of some rounds. With a number as argument it only
//! parses each head that many times, for `valgrind --tool=callgrind`.

use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use std::hint::black_box;
use std::time::Instant;

/// What wrk sends: two fields.
const SHORT: &[u8] =
    b"GET /1k.bin HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: keep-alive\r\n\r\n";

/// What a browser sends: twelve fields.
const LONG: &[u8] = b"GET /assets/styles/main.css?v=17 HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
    Accept: text/css,*/*;q=0.1\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: no-cors\r\n\
    Referer: http://www.example.com/index.html\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    If-None-Match: \"1f2e3d4c-5b6a-79880\"\r\n\r\n";

fn parse(bytes: &[u8], times: u32) {
    let limits = HeadLimits::default();
    for _ in 0..times {
        let mut lines = Lines::new();
        match Head::parse(black_box(bytes), &mut lines, &limits) {
            Ok(ParsedHead::Complete(head)) => drop(black_box(head)),
            other => unreachable!("a complete head gave {other:?}"),
        }
    }
}

fn main() {
    let heads = [("2 fields", SHORT), ("12 fields", LONG)];
    if let Some(times) = std::env::args().nth(1).and_then(|text| text.parse().ok()) {
        heads.iter().for_each(|(_, bytes)| parse(bytes, times));
        return;
    }
    const TIMES: u32 = 200_000;
    for (what, bytes) in heads {
        let mut rounds: Vec<f64> = (0..15)
            .map(|_| {
                let start = Instant::now();
                parse(bytes, TIMES);
                start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        println!(
            "{what}, {} bytes: best {:.0} ns, median {:.0} ns",
            bytes.len(),
            rounds[0],
            rounds[7]
        );
    }
}
