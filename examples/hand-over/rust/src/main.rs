//! A receiver in Rust: answers each request that Forebay hands over with its first line, on the client's own socket, and
//! gives the connection back. One thread for each link: `cargo run -- /run/app/receiver.sock`
#![forbid(unsafe_code)]

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::{env, fs, thread};

fn report(link: &mut UnixStream, kind: u8, status: u16, body_bytes: u64) -> io::Result<()> {
    let mut report = [0; 16];
    report[0] = kind;
    report[2..4].copy_from_slice(&status.to_be_bytes());
    report[8..].copy_from_slice(&body_bytes.to_be_bytes());
    link.write_all(&report)
}

/// Answers the next request; fails at the end of the link.
fn serve_next(link: &mut UnixStream) -> io::Result<()> {
    let mut header = [0; 20];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(&mut header)];
    let received = recvmsg(&*link, slices, &mut beside, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut given = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    let mut client = TcpStream::from(given.next().ok_or(io::ErrorKind::UnexpectedEof)?);
    link.read_exact(&mut header[received..])?;
    if header[..5] != *b"FBHO\x01" {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let lines = usize::from(u16::from_be_bytes([header[6], header[7]]));
    let count = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    report(link, b'T', 0, 0)?;
    let mut text = vec![0; lines + count];
    link.read_exact(&mut text)?;
    let first = String::from_utf8_lossy(&text[lines..]).lines().next().unwrap_or_default().to_owned();
    let (length, is_last) = (first.len(), header[5] & 2 != 0);
    let close = if is_last { "Connection: close\r\n" } else { "" };
    client.set_nonblocking(false)?;
    let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {length}\r\n\r\n{first}");
    let is_sent = client.write_all(answer.as_bytes()).is_ok();
    drop(client);
    // the rest of a body would be taken for the next request
    let comes_back = is_sent && !is_last && header[12..] == [0; 8];
    report(link, if comes_back { b'B' } else { b'D' }, 200, length as u64)
}

fn main() -> io::Result<()> {
    let path = env::args().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let _ = fs::remove_file(&path);
    let links = UnixListener::bind(path)?;
    links.incoming().flatten().for_each(|mut link| drop(thread::spawn(move || while serve_next(&mut link).is_ok() {})));
    Ok(())
}
