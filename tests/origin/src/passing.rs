//! The handler: passes a request on to the second server, and passes the answer back.

use forebay::{Handler, HandlerResult, Request, Response, readable, writable};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Fields of a connection, not of a request or an answer.
const OF_CONNECTION: [&str; 9] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Host",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

/// The most bytes of a body that is passed on.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The server with the files, at this address.
pub(crate) struct FilesBehind(pub(crate) SocketAddr);

impl Handler for FilesBehind {
    fn answer(&self, request: &mut Request, response: &mut Response) -> HandlerResult {
        let body = request.body(MOST_BYTES)?;
        let stream = TcpStream::connect(self.0)?;
        stream.set_nonblocking(true)?;
        let mut stream = WaitingStream(stream);
        stream.write_all(&head_of(request, &body))?;
        stream.write_all(&body)?;
        stream.flush()?;
        pass_back(request.method() == "HEAD", &mut BufReader::new(stream), response)
    }
}

fn is_of_connection(name: &str) -> bool {
    OF_CONNECTION.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The head of the request for the second server, on a connection for it alone.
fn head_of(request: &Request, body: &[u8]) -> Vec<u8> {
    let mut head = request.method().as_bytes().to_vec();
    head.push(b' ');
    head.extend_from_slice(request.target());
    head.extend_from_slice(if request.version() == 10 {
        b" HTTP/1.0\r\n"
    } else {
        b" HTTP/1.1\r\n"
    });
    let mut field = |name: &str, value: &[u8]| {
        head.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    };
    if request.version() != 10 || !request.host().is_empty() {
        field("Host", request.host().as_bytes());
    }
    field("Connection", b"close");
    for (name, value) in request.fields().filter(|(name, _)| !is_of_connection(name)) {
        field(name, value);
    }
    if !body.is_empty() {
        field("Content-Length", body.len().to_string().as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Passes the answer of the second server back.
fn pass_back(
    is_head: bool,
    answer: &mut BufReader<WaitingStream>,
    response: &mut Response,
) -> HandlerResult {
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let status: u16 = line.split(' ').nth(1).ok_or("no status")?.trim().parse()?;
    response.status(status)?;
    let mut length = None;
    loop {
        line.clear();
        answer.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        if name.eq_ignore_ascii_case("Content-Length") {
            length = Some(value.parse()?);
        } else if name.eq_ignore_ascii_case("Transfer-Encoding") {
            return Err("the second server sends chunks".into());
        } else if !is_of_connection(name) {
            response.field(name, value)?;
        }
    }
    if let Some(length) = length {
        response.length(length)?;
    }
    let mut left = length.unwrap_or(0);
    let mut buffer = [0; 16 * 1024];
    while left > 0 && !is_head && !matches!(status, 204 | 304) {
        let most = left.min(buffer.len() as u64) as usize;
        let count = answer.read(&mut buffer[..most])?;
        if count == 0 {
            return Err("the second server has broken off".into());
        }
        response.write_all(&buffer[..count])?;
        left -= count as u64;
    }
    Ok(())
}

/// A socket that does not block: a fiber that waits for it lets others run.
struct WaitingStream(TcpStream);

impl Read for WaitingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => readable(&self.0)?,
                read => return read,
            }
        }
    }
}

impl Write for WaitingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => writable(&self.0)?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
