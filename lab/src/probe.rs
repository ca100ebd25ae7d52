//! One request before each measurement: a fast wrong answer is no result.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);
/// A bound on heads, longer than any of the servers measured here.
const LONGEST_HEAD_BYTES: usize = 64 * 1024;

/// An answer, taken apart as far as it is needed.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Status line and fields, without the empty line.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of the field `name`, in any case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// The same through TLS, by curl, which accepts any certificate.
///
/// # Errors
/// When no answer comes.
pub fn sealed(port: u16, file: &str, http2: bool, fields: &str) -> io::Result<Answer> {
    let mut curl = Command::new("curl");
    let version = if http2 { "--http2" } else { "--http1.1" };
    curl.args(["-sSki", version, "--max-time", "2"])
        .arg(format!("https://127.0.0.1:{port}/{file}"));
    fields.lines().for_each(|field| _ = curl.args(["-H", field]));
    let output = curl.output()?;
    read(&mut output.stdout.as_slice())
}

/// Asks for `/file` with these extra field lines (each with its CR LF) and reads the answer.
pub fn get(port: u16, file: &str, fields: &str) -> io::Result<Answer> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    // The request is written at once, as `limit` takes whatever its first read finds for the whole
    // request.
    let request = format!("GET /{file} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{fields}\r\n");
    socket.write_all(request.as_bytes())?;
    read(&mut socket)
}

fn read(socket: &mut impl Read) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > LONGEST_HEAD_BYTES {
            return Err(invalid("a head without end"));
        }
        more(socket, &mut bytes)?;
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| invalid("no status code"))?;
    let mut answer = Answer { status, head, body: bytes.split_off(end + 4) };
    let length = if status == 304 { Some(0) } else { content_length(&answer) };
    let length = length.ok_or_else(|| invalid("no Content-Length"))?;
    while answer.body.len() < length {
        more(socket, &mut answer.body)?;
    }
    // `limit` sends several answers to one request when it expects a pipelining client.
    answer.body.truncate(length);
    Ok(answer)
}

fn content_length(answer: &Answer) -> Option<usize> {
    answer.field("content-length")?.parse().ok()
}

fn more(socket: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 16 * 1024];
    match socket.read(&mut chunk)? {
        0 => Err(invalid("the connection ended within the answer")),
        count => {
            bytes.extend_from_slice(&chunk[..count]);
            Ok(())
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_answer_of_several() {
        let mut bytes =
            &b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\ncontent-LENGTH: 2\r\n\r\nhiHTTP/1.1"[..];
        let answer = read(&mut bytes).expect("a whole answer");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"hi"[..]));
        assert_eq!(answer.field("etag"), Some("\"a\""));
    }

    #[test]
    fn an_answer_cut_short_is_an_error() {
        assert!(read(&mut &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi"[..]).is_err());
        assert!(read(&mut &b"HTTP/1.1 200 OK\r\nConte"[..]).is_err());
    }
}
