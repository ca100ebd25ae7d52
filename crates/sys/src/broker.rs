//! Connections that one process makes for another, which may not make any itself. The other process
//! asks by a number, over a socket that both have, and is given the descriptor.

use crate::inherited;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The variable of the environment that holds the number of a process's end.
pub(crate) const CONNECTOR: &str = "FOREBAY_CONNECTOR";

/// The longest wait for the process that connects: it answers at once, or has gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// The length of a message of two numbers: the question's, and what is asked or its outcome.
const MESSAGE_BYTES: usize = 8;

/// The end of the process that asks.
#[derive(Debug)]
pub struct Connector {
    socket: OwnedFd,
    asked: u32,
}

/// The end of the process that connects.
#[derive(Debug)]
pub struct Broker(OwnedFd);

/// Whether this process was started with an end of a pair.
pub fn is_offered() -> bool {
    inherited::is_named(CONNECTOR)
}

/// Makes two ends: the first is [passed](crate::passing::PassedSockets::with_connector) to a
/// process that is started.
///
/// # Errors
/// Lack of descriptors.
pub fn pair() -> io::Result<(OwnedFd, Broker)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (asks, answers) = net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    Ok((asks, Broker(answers)))
}

impl Connector {
    /// The connector that this process was started with; `None` if there is none, or it was taken
    /// before.
    ///
    /// # Errors
    /// The kernel's error about the descriptor.
    pub fn inherited() -> io::Result<Option<Connector>> {
        inherited::take_named(CONNECTOR)?.map(Connector::new).transpose()
    }

    /// A connector with this end of a pair.
    ///
    /// # Errors
    /// The kernel's error about the descriptor.
    pub fn new(socket: OwnedFd) -> io::Result<Connector> {
        Connector::with_patience(socket, PATIENCE)
    }

    /// A connector that waits for this long.
    fn with_patience(socket: OwnedFd, patience: Duration) -> io::Result<Connector> {
        set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
        set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
        Ok(Connector { socket, asked: 0 })
    }

    /// Asks for a connection to the target of this number, begun as by [`client`](crate::client).
    /// Waits for the other process, for a second at most.
    ///
    /// # Errors
    /// The kernel's error in the other process, with its number. Without a number: the other
    /// process has gone, or has not answered.
    pub fn connect(&mut self, number: u32) -> io::Result<OwnedFd> {
        let code = self.ask(number).map_err(|error| io::Error::from(error.kind()))?;
        code.map_err(|code| io::Error::from_raw_os_error(code as i32))
    }

    fn ask(&mut self, number: u32) -> io::Result<Result<OwnedFd, u32>> {
        self.asked = self.asked.wrapping_add(1);
        let asked = self.asked;
        again(|| net::send(&self.socket, &message(asked, number), SendFlags::NOSIGNAL))?;
        loop {
            let (answer, socket) = self.receive()?;
            // an answer that came too late is dropped, and its socket is closed
            match (answer, socket) {
                ((to, _), _) if to != asked => {}
                ((_, 0), Some(socket)) => return Ok(Ok(socket)),
                ((_, code), _) => return Ok(Err(code)),
            }
        }
    }

    fn receive(&self) -> io::Result<((u32, u32), Option<OwnedFd>)> {
        let mut buffer = [0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = again(|| {
            net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut buffer)], &mut beside, flags)
        })?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut sockets = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let socket = sockets.next().and_then(|mut sockets| sockets.next());
        Ok((numbers(buffer), socket))
    }
}

impl Broker {
    /// Waits for a question, and answers it with what `connect` makes of its number. Returns
    /// whether there may be another: not if the process that asks has gone.
    pub fn answer(&self, connect: impl FnOnce(u32) -> io::Result<OwnedFd>) -> bool {
        let mut buffer = [0; MESSAGE_BYTES];
        match again(|| net::recv(&self.0, &mut buffer, RecvFlags::empty())) {
            Ok((MESSAGE_BYTES, _)) => {}
            _ => return false,
        }
        let (asked, number) = numbers(buffer);
        let made = connect(number);
        let code = match &made {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EADDRNOTAVAIL) as u32,
        };
        let sockets: Vec<_> = made.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        let text = message(asked, code);
        let flags = SendFlags::NOSIGNAL;
        let sent = again(|| net::sendmsg(&self.0, &[IoSlice::new(&text)], &mut beside, flags));
        // a socket that the kernel does not pass on now is an error to report, and not the end
        let sent = sent.or_else(|error| {
            let code = error.raw_os_error().unwrap_or(libc::ENOBUFS) as u32;
            again(|| net::send(&self.0, &message(asked, code), flags))
        });
        sent.is_ok()
    }
}

fn message(asked: u32, what: u32) -> [u8; MESSAGE_BYTES] {
    ((u64::from(asked) << 32) | u64::from(what)).to_le_bytes()
}

fn numbers(message: [u8; MESSAGE_BYTES]) -> (u32, u32) {
    let both = u64::from_le_bytes(message);
    ((both >> 32) as u32, both as u32)
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn connections_are_made_by_number_and_errors_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asks, broker) = pair().unwrap();
        // the answering thread may be kept from its core
        let mut connector = Connector::with_patience(asks, Duration::from_secs(60)).unwrap();
        let answers = thread::spawn(move || {
            while broker.answer(|number| match number {
                7 => client::connect(address, client::ConnectOptions::default()),
                _ => Err(io::Error::from_raw_os_error(libc::ECONNREFUSED)),
            }) {}
        });
        for _ in 0..3 {
            let socket = connector.connect(7).unwrap();
            let (_, from) = listener.accept().unwrap();
            let own = net::getsockname(&socket).unwrap();
            assert_eq!(std::net::SocketAddr::try_from(own).unwrap(), from);
            let error = connector.connect(8).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        drop(connector);
        answers.join().unwrap();
    }

    #[test]
    fn who_has_gone_connects_nobody() {
        let (asks, broker) = pair().unwrap();
        drop(broker);
        assert!(Connector::new(asks).unwrap().connect(0).is_err());
    }
}
