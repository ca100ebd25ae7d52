//! A target that stands still for one second of every five, which a closed loop hides.
//!
//! ```text
//! cargo run --release -p forebay-load --example stalling -- 8090
//! forebay load http://127.0.0.1:8090/ -c 10 -d 20s          closed: p99 looks fine
//! forebay load http://127.0.0.1:8090/ -r 1000 -d 20s        open: a fifth of all users waited
//! ```
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(5);
const STALL: Duration = Duration::from_secs(1);

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8090);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let begin = Instant::now();
    loop {
        let (stream, _) = listener.accept()?;
        // a connection that fails ends its thread and nothing else
        thread::spawn(move || serve(stream, begin));
    }
}

/// Answers 1 KB to every request, after about a millisecond of work.
fn serve(mut stream: TcpStream, begin: Instant) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n";
    let mut answer = head.as_bytes().to_vec();
    answer.resize(answer.len() + 1024, b'f');
    let mut input = [0; 4096];
    while stream.read(&mut input)? > 0 {
        thread::sleep(Duration::from_millis(1) + stall_left(begin.elapsed()));
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// How long the target will still stand still; zero in the first four of five seconds.
fn stall_left(elapsed: Duration) -> Duration {
    let phase = Duration::from_nanos((elapsed.as_nanos() % EVERY.as_nanos()) as u64);
    if phase < EVERY - STALL { Duration::ZERO } else { EVERY - phase }
}
