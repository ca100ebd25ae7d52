//! The server behind: a thread per connection, which reads a line with a path and does what that
//! says. Its answers begin with a line: a status, and the length of the body or `-`; they end with
//! the connection.

use forebay_sys::socket::reset_on_close;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// This many bytes, always the same.
pub(super) fn gift(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// A checksum of these bytes.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    came: AtomicUsize,
    /// The number of connections whose exchange was cut by the other side.
    left: AtomicUsize,
    flooded: AtomicU64,
    /// Whether connections that should die may do so.
    dying: AtomicUsize,
}

impl Server {
    pub(super) fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let shared = Arc::clone(&counts);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counts = Arc::clone(&shared);
                // a client may end at any time
                std::thread::spawn(move || _ = answer(stream, &counts));
            }
        });
        Server { address, counts }
    }

    /// Waits until this many have come.
    pub(super) fn wait_came(&self, count: usize) {
        while self.counts.came.load(SeqCst) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until this many were cut.
    pub(super) fn wait_left(&self, count: usize) {
        while self.counts.left.load(SeqCst) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets connections die that should do so in the middle of their answer.
    pub(super) fn die(&self) {
        self.counts.dying.store(1, SeqCst);
    }

    /// The number of bytes that `/flood` has sent.
    pub(super) fn flooded(&self) -> u64 {
        self.counts.flooded.load(SeqCst)
    }
}

/// The body of a request, in pieces that each begin with a length.
struct Body<'r> {
    reader: &'r mut BufReader<TcpStream>,
    left: usize,
    has_ended: bool,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && !self.has_ended {
            let mut len = [0; 4];
            self.reader.read_exact(&mut len)?;
            self.left = u32::from_be_bytes(len) as usize;
            self.has_ended = self.left == 0;
        }
        if self.has_ended {
            return Ok(0);
        }
        let most = self.left.min(buffer.len());
        let count = self.reader.read(&mut buffer[..most])?;
        self.left -= count;
        Ok(count)
    }
}

fn answer(mut stream: TcpStream, counts: &Counts) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut path = String::new();
    reader.read_line(&mut path)?;
    let path = path.trim_end();
    counts.came.fetch_add(1, SeqCst);
    let mut buffer = vec![0; 64 * 1024];
    let mut body = Body { reader: &mut reader, left: 0, has_ended: false };
    if let Some(len) = path.strip_prefix("/gift/") {
        stream.write_all(format!("200 {len}\n").as_bytes())?;
        stream.write_all(&gift(len.parse().unwrap()))?;
    } else if let Some(len) = path.strip_prefix("/stream/") {
        stream.write_all(b"200 -\n")?;
        stream.write_all(&gift(len.parse().unwrap()))?;
    } else if path == "/echo" {
        stream.write_all(b"200 -\n")?;
        std::io::copy(&mut body, &mut stream)?;
    } else if path == "/sum" {
        let mut all = Vec::new();
        body.read_to_end(&mut all)?;
        let sum = sum(&all).to_string();
        stream.write_all(format!("200 {}\n{sum}", sum.len()).as_bytes())?;
    } else if path == "/early" {
        stream.write_all(b"413 5\nlarge")?;
    } else if path == "/tunnel" {
        stream.write_all(b"101 -\n")?;
        // a tunnel has no pieces
        std::io::copy(&mut reader, &mut stream)?;
        stream.write_all(b"end")?;
    } else if let "/slow" | "/slower" = path {
        let (pieces, pause_ms) = if path == "/slow" { (10, 50) } else { (5, 2_500) };
        writeln!(stream, "200 {pieces}")?;
        for _ in 0..pieces {
            std::thread::sleep(Duration::from_millis(pause_ms));
            stream.write_all(b"x")?;
        }
    } else if path == "/flood" {
        stream.write_all(b"200 -\n")?;
        while let Ok(count) = stream.write(&buffer) {
            counts.flooded.fetch_add(count as u64, SeqCst);
        }
        counts.left.fetch_add(1, SeqCst);
    } else if path.starts_with("/silent") {
        if path == "/silent-in-body" {
            stream.write_all(b"200 10\nhalf")?;
        }
        while matches!(reader.read(&mut buffer), Ok(1..)) {}
        counts.left.fetch_add(1, SeqCst);
    } else {
        match path {
            "/die/at-once" => {}
            "/die/in-head" => stream.write_all(b"20")?,
            "/die/in-body" => stream.write_all(b"200 1000\nsome")?,
            "/die/in-stream" => {
                stream.write_all(b"200 -\nsome")?;
                while counts.dying.load(SeqCst) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                reset_on_close(stream.as_fd());
            }
            other => panic!("{other}"),
        }
        return Ok(());
    }
    stream.shutdown(Shutdown::Write)
}
