//! A keep-alive client that notices every way an answer can fail to come whole.

use crate::socket::{Socket, Target};
use crate::wire;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The status line and the fields.
    pub head: String,
    /// The body, with exactly as many bytes as the head announced.
    pub body: Vec<u8>,
}

impl Answer {
    /// Whether the server closes the connection after it.
    pub fn is_last(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The value of the field `name`, the case of which does not matter.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// The way in which an answer ended before it was whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// No byte of the answer came: the connection was already closed, or is closed now.
    Nothing,
    /// The head was not complete.
    Head(String),
    /// The body was short.
    Body {
        /// The head, which was complete.
        head: String,
        /// The bytes that came.
        received: Vec<u8>,
        /// The number of bytes that the head announced.
        announced: usize,
    },
    /// Nothing more came within [`wire::PATIENCE`], and the connection is still open.
    Silence(String),
}

impl Cut {
    /// The same in one line, without the bytes of the body.
    pub fn brief(&self) -> String {
        match self {
            Cut::Body { head, received, announced } => {
                format!("{} of {announced} bytes after {head:?}", received.len())
            }
            other => format!("{other:?}"),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: Socket,
    /// Bytes that were received beyond the last answer.
    ahead: Vec<u8>,
}

impl Client {
    /// Connects to an address, or as a [`Target`] says.
    ///
    /// # Panics
    /// If no server accepts there.
    pub fn connect(to: impl Into<Target>) -> Client {
        Client::over(to.into().connect())
    }

    /// A client over a connection that is already there.
    pub fn over(stream: impl Into<Socket>) -> Client {
        let stream = stream.into();
        stream.set_read_timeout(Some(wire::PATIENCE)).unwrap();
        Client { stream, ahead: Vec::new() }
    }

    /// Waits at most this long for the next bytes, instead of [`wire::PATIENCE`].
    #[must_use]
    pub fn patience(self, patience: Duration) -> Client {
        self.stream.set_read_timeout(Some(patience)).unwrap();
        self
    }

    /// The socket of the connection.
    pub fn stream(&mut self) -> &mut Socket {
        &mut self.stream
    }

    /// Sends a GET without waiting for its answer; `false` if the connection did not take it.
    pub fn ask(&mut self, path: &str) -> bool {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        self.stream.write_all(request.as_bytes()).is_ok()
    }

    /// Sends a GET and reads its answer.
    ///
    /// # Errors
    /// How the answer ended before it was whole.
    pub fn get(&mut self, path: &str) -> Result<Answer, Cut> {
        self.ask(path);
        self.answer()
    }

    /// Reads one answer to a GET.
    ///
    /// # Errors
    /// How it ended before it was whole.
    ///
    /// # Panics
    /// If the answer is not HTTP/1.1 with a Content-Length, where one is due.
    pub fn answer(&mut self) -> Result<Answer, Cut> {
        let head = self.head()?;
        let status = head.get(9..12).and_then(|digits| digits.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no status in {head:?}"));
        let announced = match field(&head, "content-length") {
            _ if matches!(status, 100..=199 | 204 | 304) => 0,
            Some(digits) => digits.parse().expect("Content-Length is a number"),
            None => panic!("neither a length nor an empty body: {head:?}"),
        };
        let body = self.body(&head, announced)?;
        Ok(Answer { status, head, body })
    }

    /// Reads a head, up to and with its empty line.
    ///
    /// # Errors
    /// How it ended before it was whole.
    pub fn head(&mut self) -> Result<String, Cut> {
        let mut buffer = [0; 64 * 1024];
        loop {
            if let Some(at) = self.ahead.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = self.ahead.split_off(at + 4);
                let head = std::mem::replace(&mut self.ahead, rest);
                return Ok(String::from_utf8_lossy(&head).into_owned());
            }
            let so_far = || String::from_utf8_lossy(&self.ahead).into_owned();
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.ahead.extend_from_slice(&buffer[..count]),
                Err(error) if is_silence(&error) => return Err(Cut::Silence(so_far())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ if self.ahead.is_empty() => return Err(Cut::Nothing),
                _ => return Err(Cut::Head(so_far())),
            }
        }
    }

    /// Reads the `announced` bytes of a body whose `head` is known.
    ///
    /// # Errors
    /// How it ended before it was whole.
    pub fn body(&mut self, head: &str, announced: usize) -> Result<Vec<u8>, Cut> {
        let mut body = if self.ahead.len() > announced {
            let rest = self.ahead.split_off(announced);
            std::mem::replace(&mut self.ahead, rest)
        } else {
            std::mem::take(&mut self.ahead)
        };
        let mut at = body.len();
        // byte by byte in a test takes long without optimisation
        body.extend(&vec![0; announced - at]);
        while at < announced {
            match self.stream.read(&mut body[at..]) {
                Ok(count) if count > 0 => at += count,
                Err(error) if is_silence(&error) => return Err(Cut::Silence(head.to_owned())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => {
                    body.truncate(at);
                    return Err(Cut::Body { head: head.to_owned(), received: body, announced });
                }
            }
        }
        Ok(body)
    }

    /// Whether the other side has closed: in order, or with a reset. Waits for it as long as for
    /// an answer.
    ///
    /// # Panics
    /// If bytes come instead.
    pub fn is_closed(&mut self) -> bool {
        assert!(self.ahead.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.ahead));
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => panic!("a byte that nobody asked for: {byte:?}"),
            Err(error) => !is_silence(&error),
        }
    }
}

/// The value of the field `name` in `head`.
pub fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
