//! Receivers: programs that requests are handed over to with their sockets, as far as tests need one.
//!
//! Each link has a thread. Each request goes to the function of the test, which may report the truth,
//! lies or nothing.

use crate::faults::site::Folder;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// The bytes of the header of an offer.
const HEADER_BYTES: usize = 20;

/// A running receiver. Its links end with the test.
pub struct SocketReceiver {
    path: PathBuf,
    _folder: Folder,
    offered: Arc<AtomicUsize>,
}

/// A request that was handed over.
pub struct ReceivedRequest {
    link: UnixStream,
    /// The client's socket.
    pub client: TcpStream,
    /// Facts about the request, one in each line.
    pub lines: String,
    /// The head, and the part of the body that has come.
    pub request: Vec<u8>,
    /// Bytes of the body that are still to come; `None` if only the framing shows the end.
    pub body_left: Option<u64>,
    /// Whether the connection will be closed after this request.
    pub is_last: bool,
    /// Whether the request belongs to this receiver once it has read the message, unless it was
    /// [withdrawn].
    ///
    /// [withdrawn]: ReceivedRequest::is_withdrawn
    pub is_taken: bool,
}

impl SocketReceiver {
    /// Starts a receiver that does this with each request.
    pub fn start(act: impl Fn(&mut ReceivedRequest) + Send + Sync + 'static) -> SocketReceiver {
        let folder = Folder::new();
        let path = folder.path().join("receiver.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let offered = Arc::new(AtomicUsize::new(0));
        let (act, count) = (Arc::new(act), Arc::clone(&offered));
        thread::spawn(move || {
            for link in listener.incoming().map_while(Result::ok) {
                let (act, count) = (Arc::clone(&act), Arc::clone(&count));
                thread::spawn(move || {
                    while let Ok(Some(mut handed)) = ReceivedRequest::receive(&link) {
                        count.fetch_add(1, SeqCst);
                        act(&mut handed);
                    }
                });
            }
        });
        SocketReceiver { path, _folder: folder, offered }
    }

    /// The address of the receiver, as `to` has it.
    pub fn to(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    /// The number of requests that were offered to it.
    pub fn offered(&self) -> usize {
        self.offered.load(SeqCst)
    }
}

impl ReceivedRequest {
    /// Reads the next request from this link, if one comes.
    pub fn of(link: &UnixStream) -> Option<ReceivedRequest> {
        ReceivedRequest::receive(link).ok().flatten()
    }

    /// Reads the next request from this link.
    fn receive(link: &UnixStream) -> io::Result<Option<ReceivedRequest>> {
        let mut header = [0; HEADER_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut header)];
        let received = recvmsg(link, slices, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        let mut given = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        let Some(client): Option<OwnedFd> = given.next() else { return Ok(None) };
        let mut link = link.try_clone()?;
        link.read_exact(&mut header[received.bytes..])?;
        assert_eq!(&header[..5], b"FBHO\x01");
        let number = |at: usize, bytes: usize| {
            header[at..at + bytes].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let mut lines = vec![0; number(6, 2) as usize];
        link.read_exact(&mut lines)?;
        let mut request = vec![0; number(8, 4) as usize];
        link.read_exact(&mut request)?;
        let client = TcpStream::from(client);
        client.set_nonblocking(false)?;
        Ok(Some(ReceivedRequest {
            link,
            client,
            lines: String::from_utf8(lines).unwrap(),
            request,
            body_left: Some(number(12, 8)).filter(|left| *left != u64::MAX),
            is_last: header[5] & 2 != 0,
            is_taken: header[5] & 4 != 0,
        }))
    }

    /// The request as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.request).into_owned()
    }

    /// The path and query of the request.
    pub fn target(&self) -> String {
        self.text().split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Sends these bytes to the server. Returns whether the server still listens.
    pub fn say(&mut self, bytes: &[u8]) -> bool {
        self.link.write_all(bytes).is_ok()
    }

    /// Reports that the receiver has the request.
    pub fn take(&mut self) -> bool {
        self.report(b'T', 0, 0)
    }

    /// Whether the server has shut the link by now: it gives the request to another receiver.
    pub fn is_withdrawn(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(recv(&self.link, &mut [0u8; 1][..], flags), Err(rustix::io::Errno::AGAIN))
    }

    /// The link that it has come over.
    pub fn link(&self) -> UnixStream {
        self.link.try_clone().unwrap()
    }

    /// Says how it was answered: `D` or `B`.
    pub fn report(&mut self, kind: u8, status: u16, body_bytes: u64) -> bool {
        let mut report = [0; 16];
        report[0] = kind;
        report[2..4].copy_from_slice(&status.to_be_bytes());
        report[8..].copy_from_slice(&body_bytes.to_be_bytes());
        self.say(&report)
    }

    /// Sends these bytes, and with them this number of descriptors that the server has not asked for.
    pub fn say_with_gifts(&mut self, bytes: &[u8], count: usize) {
        let nothing = File::open("/dev/null").unwrap();
        let gifts = vec![nothing.as_fd(); count];
        let mut space = vec![MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(&gifts).size()];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&gifts)));
        // the server may have ended the link
        let _ = sendmsg(&self.link, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
    }

    /// Writes an answer with this body to the client.
    pub fn write(&mut self, body: &str) {
        let close = if self.is_last { "Connection: close\r\n" } else { "" };
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {length}\r\n\r\n{body}");
        // the client may have left
        let _ = self.client.write_all(answer.as_bytes());
    }

    /// Takes the request, answers with this body and gives the connection back.
    pub fn answer(&mut self, body: &str) {
        let is_mine = match self.is_taken {
            true => !self.is_withdrawn(),
            false => self.take(),
        };
        if is_mine {
            self.write(body);
            let kind = if self.is_last { b'D' } else { b'B' };
            self.report(kind, 200, body.len() as u64);
        }
    }

    /// Reads the rest of a body whose length is known.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = vec![0; self.body_left.unwrap_or_default() as usize];
        self.client.read_exact(&mut rest).unwrap();
        rest
    }

    /// Ends the link.
    pub fn hang_up(&mut self) {
        let _ = self.link.shutdown(Shutdown::Both);
    }

    /// Waits until the server has ended the link.
    pub fn wait_for_end(&mut self) {
        let _ = self.link.read(&mut [0; 1]);
    }
}
