//! Measures how long a cache miss takes, apart from the disk, and how much memory is left behind.
//!
//! ```text
//! cargo run --release -p forebay-site --example miss [REQUESTS [BYTES]]
//! ```
//!
//! Asks for files in turn, of which the cache can hold few; the page cache holds all. Prints
//! microseconds per request for opening, reading and closing the files alone, and for all that
//! [`Site::process`] and its job do. Both are measured in turns; medians of the rounds are printed.

mod answering;

use answering::{Failure, ask, process};
use forebay_conn::TurnTime;
use forebay_site::{Content, ContentSettings, Site};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const FILES: usize = 1000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("forebay-miss-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let bytes = arguments.next().map_or(Ok(64 * 1024), |text| text.parse())?;
    let outcome = measure(&folder, count, bytes);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn measure(folder: &Path, count: usize, bytes: usize) -> Result<(), Failure> {
    for number in 0..FILES {
        std::fs::write(folder.join(format!("{number}.bin")), vec![b'x'; bytes])?;
    }
    // Young files are loaded again when their tags can be strong; let them grow old first.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let mut settings = ContentSettings::new(folder);
    settings.cache.bytes = 16 * bytes as u64;
    let content = Content::open(settings, |notice| eprintln!("{notice}"))?;
    let now = TurnTime { monotonic_ms: 1, unix_ms: 1 };
    let mut site = Site::new(Arc::clone(&content), Arc::default(), now, 4096);
    let texts: Vec<_> =
        (0..FILES).map(|at| format!("GET /{at}.bin HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).collect();
    let (mut reads, mut misses) = (Vec::new(), Vec::new());
    let mut buffer = Vec::with_capacity(bytes);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for number in (0..FILES).cycle().take(count) {
            buffer.clear();
            std::fs::File::open(folder.join(format!("{number}.bin")))?.read_to_end(&mut buffer)?;
            black_box(&buffer);
        }
        reads.push(start.elapsed().as_secs_f64() * 1e6 / count as f64);
        let start = Instant::now();
        ask(texts.iter().cycle().take(count), |head, out| process(&mut site, head, out))?;
        misses.push(start.elapsed().as_secs_f64() * 1e6 / count as f64);
    }
    let [read, miss] = [reads, misses].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    let held = content.figures().bytes >> 10;
    println!(
        "{FILES} files of {bytes} bytes: read {read:.1} µs, miss {miss:.1} µs, difference {:.1} µs; \
         {held} KiB cached",
        miss - read
    );
    Ok(())
}
