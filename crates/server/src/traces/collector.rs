//! One request to a collector: OTLP over HTTP/1.1, on a connection of its own,
//! blocking the thread that sends it.

use forebay_config::CollectorAddress;
use forebay_handler::live::ServingSnapshot;
use forebay_upstream::settings::UpstreamAddress;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long to wait for a connection, and for each piece that is sent or received.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest answer that is read.
const MOST_BYTES: usize = 16 * 1024;

/// The reason why a collector has not taken spans.
#[derive(Debug)]
pub(crate) enum CollectorFailure {
    /// The connection could not be made, or has ended.
    Connection(io::Error),
    /// The answer is not valid HTTP.
    Answer,
    /// The collector has answered with this status.
    Status(u16),
}

impl CollectorFailure {
    /// Whether another attempt would fail in the same way (OTLP, "Failures").
    pub(crate) fn is_final(&self) -> bool {
        match self {
            CollectorFailure::Connection(_) | CollectorFailure::Answer => false,
            CollectorFailure::Status(status) => !matches!(status, 429 | 502..=504),
        }
    }
}

impl fmt::Display for CollectorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectorFailure::Connection(error) => error.fmt(f),
            CollectorFailure::Answer => f.write_str("it does not speak HTTP"),
            CollectorFailure::Status(status) => write!(f, "it answers with status {status}"),
        }
    }
}

impl From<io::Error> for CollectorFailure {
    fn from(error: io::Error) -> CollectorFailure {
        CollectorFailure::Connection(match error.kind() {
            // the kernel reports a socket timeout as this error
            io::ErrorKind::WouldBlock => io::Error::from(io::ErrorKind::TimedOut),
            _ => error,
        })
    }
}

/// Sends one batch to the collector of this configuration.
///
/// # Errors
/// The reason why it was not taken.
pub(crate) fn send(serving: &ServingSnapshot, body: &[u8]) -> Result<(), CollectorFailure> {
    let Some(to) = &serving.traces.config.to else { return Ok(()) };
    let mut connection = connect(serving, to)?;
    let (path, host, length) = (&to.path, to.address.authority(), body.len());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: forebay/{}\r\n\
         Content-Type: application/x-protobuf\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    );
    connection.write_all(&[head.as_bytes(), body].concat())?;
    match status_of(connection)? {
        200..=299 => Ok(()),
        status => Err(CollectorFailure::Status(status)),
    }
}

/// The status of an answer; the rest is ignored.
fn status_of(mut connection: impl Read) -> Result<u16, CollectorFailure> {
    let (mut answer, mut piece) = (Vec::new(), [0; 1024]);
    // the socket's timeout is for each piece, and there may be many small ones
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(end) = answer.windows(4).position(|end| end == b"\r\n\r\n") {
            match status_in(&answer).ok_or(CollectorFailure::Answer)? {
                // an interim answer, which another head follows
                100..=199 => drop(answer.drain(..end + 4)),
                status => return Ok(status),
            }
            continue;
        }
        if Instant::now() >= until {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let length = connection.read(&mut piece)?;
        answer.extend_from_slice(&piece[..length]);
        if length == 0 || answer.len() > MOST_BYTES {
            return Err(CollectorFailure::Answer);
        }
    }
}

/// The status in a status line.
fn status_in(head: &[u8]) -> Option<u16> {
    let digits = head.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn connect(serving: &ServingSnapshot, to: &CollectorAddress) -> io::Result<TcpStream> {
    // a stage that may not connect has the supervisor do so
    let next = serving.applications.next_stage();
    let connection = match (next.and_then(|next| next.connect_beside()), &to.address) {
        (Some(socket), _) => begun(socket?)?,
        (None, UpstreamAddress::Name { host, port }) => {
            let addresses = (&**host, *port).to_socket_addrs()?;
            let mut tried = addresses.map(|at| TcpStream::connect_timeout(&at, PATIENCE));
            let first = tried.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
            first.or_else(|error| tried.find_map(Result::ok).ok_or(error))?
        }
        (None, address) => begun(address.connect()?)?,
    };
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// A connection that is being established. The first write waits until it is (tcp(7)), and a Unix
/// socket is treated in the same way.
fn begun(socket: OwnedFd) -> io::Result<TcpStream> {
    let connection = TcpStream::from(socket);
    connection.set_nonblocking(false)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_collectors() {
        let of = |text: &str| status_of(text.as_bytes());
        assert!(matches!(of("HTTP/1.1 200 OK\r\nA: b\r\n\r\nrest"), Ok(200)));
        assert!(matches!(of("HTTP/1.0 503 Busy\r\n\r\n"), Ok(503)));
        let continued = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n";
        assert!(matches!(of(continued), Ok(202)));
        for text in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n"] {
            assert!(matches!(of(text), Err(CollectorFailure::Answer)), "{text}");
        }
        for (status, is_final) in [(400, true), (429, false), (500, true), (503, false)] {
            assert_eq!(CollectorFailure::Status(status).is_final(), is_final, "{status}");
        }
        let late = CollectorFailure::from(io::Error::from(io::ErrorKind::WouldBlock));
        assert_eq!(late.to_string(), "timed out");
    }
}
