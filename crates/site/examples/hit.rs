//! How long a cache hit takes, beside the work it cannot do without.
//!
//! ```text
//! cargo run --release -p forebay-site --example hit [REQUESTS]
//! ```
//!
//! Serves files of 1 KiB from a temporary directory and prints nanoseconds per request: for
//! reading the head and writing an answer of the same length from one buffer, and for reading the
//! head and [`Site::process`]. Both are measured in turns; medians of the rounds are printed.

use forebay_conn::{Job, Now, Out, Outcome, Peer, Reply, Request};
use forebay_http::head::{Head, Limits, Lines, Parsed};
use forebay_metrics::{Local, Off};
use forebay_site::{Body, Content, Settings, Site};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const FILES: usize = 1000;
const ROUNDS: usize = 9;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("forebay-hit-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let count = std::env::args().nth(1).map_or(Ok(400_000), |text| text.parse())?;
    let outcome = serve(&folder, count);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn serve(folder: &std::path::Path, count: usize) -> Result<(), Failure> {
    let mut requests = Vec::new();
    for number in 0..FILES {
        std::fs::write(folder.join(format!("{number}.html")), vec![b'x'; 1024])?;
        requests.push(format!(
            "GET /{number}.html HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n\r\n"
        ));
    }
    // Young files are loaded again when their tags can be strong; let them grow old first.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let mut settings = Settings::new(folder);
    // whole files are to be sent, and these texts would be compressed
    settings.sites.iter_mut().for_each(|site| site.compress.clear());
    let content = Content::open(settings, |notice| eprintln!("{notice}"))?;
    let mut site = Site::new(content, Arc::default(), Now { monotonic_ms: 1, unix_ms: 1 }, 4096);
    for few in [1, 16, FILES] {
        let requests = &requests[..few];
        let answer = vec![b'x'; ask(requests, few, |head, out| process(&mut site, head, out))?];
        let answer = &answer[..answer.len() / few];
        let (mut copies, mut hits) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            ask(requests, count, |_, out| out.bytes.extend_from_slice(black_box(answer)))?;
            copies.push(start.elapsed().as_nanos() as f64 / count as f64);
            let start = Instant::now();
            ask(requests, count, |head, out| process(&mut site, head, out))?;
            hits.push(start.elapsed().as_nanos() as f64 / count as f64);
        }
        let [copied, hit] = [copies, hits].map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        println!(
            "{few:5} files, answers of {} bytes: read and copy {copied:.1} ns, read and process \
             {hit:.1} ns, difference {:.1} ns",
            answer.len(),
            hit - copied
        );
    }
    Ok(())
}

/// Reads `count` heads and has each answered; the bytes of all answers.
fn ask(
    requests: &[String],
    count: usize,
    mut answer: impl FnMut(&Head<'_>, &mut Out<Body>),
) -> Result<usize, Failure> {
    let limits = Limits::default();
    let mut out: Out<Body> = Out::default();
    let mut bytes = 0;
    for text in requests.iter().cycle().take(count) {
        let mut lines = Lines::new();
        match Head::parse(black_box(text.as_bytes()), &mut lines, &limits) {
            Ok(Parsed::Complete(head)) => answer(&head, &mut out),
            _ => return Err("a request was not understood".into()),
        }
        bytes += black_box(&out.bytes).len();
        out.clear();
    }
    Ok(bytes)
}

#[inline(never)]
fn process(site: &mut Site, head: &Head<'_>, out: &mut Out<Body>) {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
    let peer = Peer::new(address, address);
    let mut done = None;
    loop {
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        let mut reply = Reply::new(out, date, true);
        let request = Request { head, peer: &peer };
        match site.process(&request, || peer.address().ip(), done.take(), &mut reply) {
            Outcome::Job(job) => done = Some(job.run(&Local::default(), &mut Off)),
            _ => return,
        }
    }
}
