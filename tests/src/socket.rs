//! A client's socket, in clear or with TLS over it, and its target. Whatever a test does to a socket,
//! such as reading slowly, closing one direction or having small windows, happens to the real one either
//! way.

use crate::faults::crowd::connect_from;
use crate::wire;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The address to connect to, and the protocol there.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address.
    pub addr: SocketAddr,
    tls: Option<(Arc<ClientConfig>, &'static str)>,
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Target {
        Target { addr, tls: None }
    }
}

impl Target {
    /// A server that speaks TLS, and has this host name.
    pub fn sealed(addr: SocketAddr, client: Arc<ClientConfig>, host: &'static str) -> Target {
        Target { addr, tls: Some((client, host)) }
    }

    /// Connects to the target.
    ///
    /// # Panics
    /// If no server accepts there.
    pub fn connect(&self) -> Socket {
        self.over(wire::connect(self.addr))
    }

    /// Connects to the target from this address.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn connect_from(&self, source: IpAddr) -> io::Result<Socket> {
        Ok(self.over(connect_from(source, self.addr)?))
    }

    fn over(&self, tcp: TcpStream) -> Socket {
        let session = self.tls.as_ref().map(|(client, host)| {
            let name = ServerName::try_from(*host).unwrap();
            let mut session = ClientConnection::new(Arc::clone(client), name).unwrap();
            // bytes that a test writes before the end of the handshake wait for it
            session.set_buffer_limit(None);
            Box::new(session)
        });
        Socket { tcp, session, is_blocking: true }
    }
}

/// One connection. No byte is sent before it is first read or written.
#[derive(Debug)]
pub struct Socket {
    tcp: TcpStream,
    session: Option<Box<ClientConnection>>,
    is_blocking: bool,
}

impl From<TcpStream> for Socket {
    fn from(tcp: TcpStream) -> Socket {
        Socket { tcp, session: None, is_blocking: true }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl Socket {
    /// Sets the mode like [`TcpStream::set_nonblocking`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_nonblocking(&mut self, is_so: bool) -> io::Result<()> {
        self.is_blocking = !is_so;
        self.tcp.set_nonblocking(is_so)
    }

    /// Sets the timeout like [`TcpStream::set_read_timeout`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.tcp.set_read_timeout(patience)
    }

    /// Sets the timeout like [`TcpStream::set_write_timeout`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_write_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.tcp.set_write_timeout(patience)
    }

    /// Shuts the connection down like [`TcpStream::shutdown`]; TLS sends its close_notify first.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if let (Some(session), Shutdown::Write | Shutdown::Both) = (&mut self.session, how) {
            session.send_close_notify();
            self.flush()?;
        }
        self.tcp.shutdown(how)
    }

    /// Reads received bytes into the session. `Ok(false)` if no more come.
    fn take(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else { return Ok(false) };
        let count = session.read_tls(&mut self.tcp)?;
        if let Err(error) = session.process_new_packets() {
            // the alert says why; whether the server gets it makes no difference
            let _ = session.write_tls(&mut self.tcp);
            return Err(io::Error::other(error));
        }
        Ok(count > 0)
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(session) = &mut self.session else { return self.tcp.read(buffer) };
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            // a server that has closed takes nothing more, and may have said something before
            let _ = self.flush();
            self.take()?;
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.session.is_none() {
            return self.tcp.write(bytes);
        }
        // bytes written before this come first
        self.flush()?;
        while self.is_blocking && self.session.as_ref().is_some_and(|s| s.is_handshaking()) {
            if !self.take()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.flush()?;
        }
        let Some(session) = &mut self.session else { return Ok(0) };
        let count = session.writer().write(bytes)?;
        match self.flush() {
            // the rest goes with what is read or written next
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return self.tcp.flush() };
        while session.wants_write() {
            session.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }
}
