//! The smallest driver: answers every request on plain TCP with one page.
//!
//! ```text
//! cargo run -p forebay-http2 --example serve -- 127.0.0.1:8088
//! h2spec -S -h 127.0.0.1 -p 8088
//! curl --http2-prior-knowledge http://127.0.0.1:8088/
//! ```
//!
//! This driver uses a thread for each connection and no time limits: it shows the order of calls and is no
//! real server.

use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields, Http2Event, Http2Limits, MessagePart};
use std::collections::HashMap;
use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

const PAGE: &[u8] = &[b'x'; 1024];

fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("http://{}/", listener.local_addr()?);
    for socket in listener.incoming() {
        let socket = socket?;
        thread::spawn(move || serve(socket));
    }
    Ok(())
}

fn serve(mut socket: TcpStream) -> Result<()> {
    socket.set_nodelay(true)?;
    let (mut connection, mut fields) =
        (Connection::server(Http2Limits::default()), DecodedFields::default());
    let (mut input, mut out) = (vec![0; 32 * 1024], Vec::new());
    // how much of each stream's page has been sent
    let mut pages: HashMap<u32, usize> = HashMap::new();
    let (mut end, start) = (0, Instant::now());
    loop {
        connection.flush(&mut out);
        socket.write_all(&out)?;
        out.clear();
        if connection.fault().is_some() {
            return Ok(());
        }
        let count = socket.read(&mut input[end..])?;
        if count == 0 {
            return Ok(());
        }
        end += count;
        let mut used = 0;
        loop {
            let now_ms = start.elapsed().as_millis() as u64;
            let received = connection.receive(&input[used..end], &mut fields, now_ms);
            used += received.used;
            let Some(event) = received.event else { break };
            match event {
                Http2Event::Request { stream, ends } | Http2Event::TooLarge { stream, ends } => {
                    let status =
                        if matches!(event, Http2Event::Request { .. }) { 200 } else { 431 };
                    pages.insert(stream, 0);
                    if ends {
                        answer(&mut connection, &mut out, stream, status);
                    }
                }
                Http2Event::Data { stream, bytes, ends } => {
                    connection.consumed(stream, bytes.len());
                    if ends {
                        answer(&mut connection, &mut out, stream, 200);
                    }
                }
                Http2Event::Trailers { stream } => answer(&mut connection, &mut out, stream, 200),
                Http2Event::Reset { stream, .. } => drop(pages.remove(&stream)),
                _ => {}
            }
        }
        input.copy_within(used..end, 0);
        end -= used;
        // before data, so that the acknowledgement of settings precedes what they allow
        connection.flush(&mut out);
        while let Some(turn) = connection.next() {
            let sent = pages.entry(turn.stream).or_default();
            let piece = &PAGE[*sent..(*sent + turn.most as usize).min(PAGE.len())];
            *sent += piece.len();
            let ends = *sent == PAGE.len();
            let Some(header) = connection.data(turn.stream, piece.len() as u32, ends) else {
                break;
            };
            out.extend_from_slice(&header);
            out.extend_from_slice(piece);
            if ends {
                pages.remove(&turn.stream);
            }
        }
    }
}

/// Writes the head, and offers the page to be sent in turn.
fn answer(connection: &mut Connection, out: &mut Vec<u8>, stream: u32, status: u16) {
    connection.head(out, stream, MessagePart::Head, |block| {
        encode::status(block, status);
        encode::field(block, b"content-type", b"text/plain");
        encode::field(block, b"content-length", PAGE.len().to_string().as_bytes());
    });
    connection.offer(stream);
}
