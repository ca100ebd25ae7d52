//! Bytes out, bytes in, with a deadline.

use crate::socket::Socket;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The time that a test waits for something that should happen at once. It is long, because a loaded
/// machine is slow; it is only used up when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The way in which reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The other side closed its direction in order.
    Closed,
    /// The other side reset the connection.
    Reset,
    /// The deadline passed; the connection is still there.
    Silent,
}

/// Connects, with a deadline and without Nagle's delay.
///
/// # Panics
/// If the server does not accept.
pub fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE)
        .unwrap_or_else(|error| panic!("cannot connect to {addr}: {error}"));
    stream.set_nodelay(true).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A connection that can be read with a bound on the time.
pub trait Patient: Read {
    /// Bounds the time that a read waits.
    ///
    /// # Errors
    /// What the kernel says.
    fn wait(&self, patience: Duration) -> io::Result<()>;
}

impl Patient for TcpStream {
    fn wait(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

impl Patient for Socket {
    fn wait(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

/// Reads the bytes that come until `deadline` into `into`; returns as soon as some have come (`None`) or
/// none can come any more.
pub fn read_some(stream: &mut impl Patient, into: &mut Vec<u8>, deadline: Instant) -> Option<End> {
    let mut buffer = [0; 64 * 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Some(End::Silent);
        }
        stream.wait(left).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => return Some(End::Closed),
            Ok(count) => {
                into.extend_from_slice(&buffer[..count]);
                return None;
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Some(End::Silent),
                ErrorKind::Interrupted => {}
                _ => return Some(End::Reset),
            },
        }
    }
}

/// Reads until the other side closes, resets, or `patience` has passed.
pub fn read_to_end(stream: &mut impl Patient, patience: Duration) -> (Vec<u8>, End) {
    let deadline = Instant::now() + patience;
    let mut received = Vec::new();
    loop {
        if let Some(end) = read_some(stream, &mut received, deadline) {
            return (received, end);
        }
    }
}

/// Opens a connection, sends `request` and returns all bytes that come back until the server closes. The
/// request should therefore ask for that (`Connection: close`).
///
/// # Panics
/// If the server does not accept, or does not close within [`PATIENCE`].
pub fn exchange(addr: SocketAddr, request: &[u8]) -> Vec<u8> {
    exchange_within(addr, request, PATIENCE)
}

/// Does the same as [`exchange`], where the server computes for longer than it otherwise may.
///
/// # Panics
/// The same as of [`exchange`], within `patience`.
pub fn exchange_within(addr: SocketAddr, request: &[u8], patience: Duration) -> Vec<u8> {
    let mut stream = connect(addr);
    // a server that refuses may close before it has read everything
    let _ = stream.write_all(request);
    let (received, end) = read_to_end(&mut stream, patience);
    assert_ne!(end, End::Silent, "no close after {} bytes", received.len());
    received
}
