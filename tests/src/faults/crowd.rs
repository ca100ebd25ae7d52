//! Thousands of connections in one thread, from many client addresses.

use crate::socket::{Socket, Target};
use crate::wire;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{io, process, thread};

/// Makes room for `needed` descriptors in this process.
///
/// # Errors
/// What is missing, if the hard limit is lower.
pub fn allow_descriptors(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < needed) {
        return Err(format!("{needed} descriptors are needed, {limit:?} are allowed"));
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|error| error.to_string())
}

/// Connects from a chosen source address, so that one machine looks like many clients.
///
/// # Errors
/// The error of the kernel.
pub fn connect_from(source: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // a bound port is lost for a minute, and 127.0.0.1, which all tests use, has too few
    if source != IpAddr::V4(Ipv4Addr::LOCALHOST) {
        bind_somewhere(&socket, source)?;
    }
    connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Binds to a free port that is none of those the kernel chooses: a port that was chosen by `bind` is
/// lost to every `connect` on this machine, also for the minute after its end, and there are 28,000.
fn bind_somewhere(socket: impl AsFd, source: IpAddr) -> io::Result<()> {
    const PORTS: Range<u32> = 10_000..30_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in PORTS {
        // processes that run at the same time begin at different ports
        let number = NEXT.fetch_add(1, Relaxed) + process::id() % 200 * 100;
        let port = PORTS.start + number % PORTS.len() as u32;
        match bind(&socket, &SocketAddr::new(source, port as u16)) {
            Err(Errno::ADDRINUSE) => {}
            result => return Ok(result?),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// The `number`-th client address, other than 127.0.0.1.
pub fn client_address(number: usize) -> IpAddr {
    let [.., high, low] = u32::try_from(number + 2).expect("few clients").to_be_bytes();
    Ipv4Addr::new(127, 0, high, low).into()
}

/// One connection of a [`Crowd`].
#[derive(Debug)]
pub struct CrowdMember {
    stream: Socket,
    /// The bytes that were received.
    pub received: Vec<u8>,
    /// The way in which the connection ended, if it did.
    pub end: Option<wire::End>,
}

impl CrowdMember {
    /// The socket; it does not block.
    pub fn stream(&mut self) -> &mut Socket {
        &mut self.stream
    }

    /// Reads what has come, without waiting.
    pub fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        while self.end.is_none() {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.end = Some(wire::End::Closed),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.end = Some(wire::End::Reset),
            }
        }
    }

    /// Sends a few bytes; a close of the other side is noticed when reading.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write(bytes);
    }
}

/// Many connections to one server.
#[derive(Debug)]
pub struct Crowd {
    /// All connections, ended ones too.
    pub members: Vec<CrowdMember>,
}

impl Crowd {
    /// Opens `count` connections, `each` from one client address.
    ///
    /// # Errors
    /// When one of them cannot be opened.
    pub fn connect(to: impl Into<Target>, count: usize, each: usize) -> io::Result<Crowd> {
        let to = to.into();
        let mut members = Vec::with_capacity(count);
        for number in 0..count {
            let mut stream = to.connect_from(client_address(number / each))?;
            stream.set_nonblocking(true)?;
            members.push(CrowdMember { stream, received: Vec::new(), end: None });
        }
        Ok(Crowd { members })
    }

    /// Sends the same bytes on every connection.
    pub fn send(&mut self, bytes: &[u8]) {
        for member in &mut self.members {
            member.send(bytes);
        }
    }

    /// Reads what has come on every connection, without waiting.
    pub fn read(&mut self) {
        for member in &mut self.members {
            member.read();
        }
    }

    /// The number of connections that are still open, as far as was read.
    pub fn open(&self) -> usize {
        self.members.iter().filter(|member| member.end.is_none()).count()
    }

    /// Reads until `is_enough` holds for the crowd; `false` if it does not within `patience`.
    pub fn read_until(
        &mut self,
        patience: Duration,
        mut is_enough: impl FnMut(&Crowd) -> bool,
    ) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            self.read();
            if is_enough(self) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The number of connections that have received a whole head with this status.
    pub fn answered(&self, status: u16) -> usize {
        let start = format!("HTTP/1.1 {status} ");
        let is_whole = |bytes: &[u8]| bytes.windows(4).any(|four| four == b"\r\n\r\n");
        let is_it =
            |m: &&CrowdMember| m.received.starts_with(start.as_bytes()) && is_whole(&m.received);
        self.members.iter().filter(is_it).count()
    }
}
