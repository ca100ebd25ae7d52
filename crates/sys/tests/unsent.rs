//! The bound on what the kernel keeps for a client that takes nothing: set on the listening socket,
//! and inherited.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]
#![allow(missing_docs, reason = "a test")]

use forebay_sys::socket::{ListenOptions, UNSENT_BYTES, listen, tune_listener, unsent_bound};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are not sent yet (tcp(7)).
const SIOCOUTQNSD: libc::c_ulong = 0x894B;

fn unsent(stream: &TcpStream) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: an int, which lives across the call; the descriptor is open.
    assert_eq!(unsafe { libc::ioctl(stream.as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) }, 0);
    bytes
}

/// The next connection, on which the client has sent something.
fn accept(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(b"hello").unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match listener.accept() {
            Ok((server, _)) => return (server, client),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(Instant::now() < deadline);
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn accepted_sockets_keep_little_that_is_unsent() {
    let options = ListenOptions { backlog: 16, reuse_port: false, owner: None };
    let inherited = TcpListener::bind("127.0.0.1:0").unwrap();
    tune_listener(inherited.as_fd(), true).unwrap();
    let listeners = [
        TcpListener::from(listen("127.0.0.1:0".parse().unwrap(), options).unwrap()),
        TcpListener::from(listen("[::1]:0".parse().unwrap(), options).unwrap()),
        inherited,
    ];
    for listener in listeners {
        let (mut server, _client) = accept(&listener);
        assert_eq!(unsent_bound(server.as_fd()).unwrap(), UNSENT_BYTES);
        server.set_nonblocking(true).unwrap();
        let piece = vec![0; 64 * 1024];
        let mut sent = 0;
        loop {
            match server.write(&piece) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        // bytes under way do not count, and the last piece may go beyond the bound
        let left = unsent(&server);
        assert!(
            left <= UNSENT_BYTES as libc::c_int + 2 * piece.len() as libc::c_int,
            "{left} of {sent}"
        );
    }
}
