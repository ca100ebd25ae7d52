//! A TCP echo server: `cargo run --example echo`, then `nc 127.0.0.1 7007`.

use forebay_fiber as fiber;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};

fn echo(mut stream: TcpStream) -> Result<()> {
    stream.set_nonblocking(true)?;
    let mut buffer = [0; 4096];
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                fiber::readable(&stream)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => fiber::writable(&stream)?,
                Err(error) => return Err(error),
            }
        }
    }
}

fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7007")?;
    listener.set_nonblocking(true)?;
    fiber::run(move || {
        loop {
            fiber::readable(&listener)?;
            while let Ok((stream, _)) = listener.accept() {
                fiber::spawn(move || echo(stream))?;
            }
        }
    })?
}
