//! Measures what a request costs: `cargo run --release -p forebay-http2 --example request_cost`.
//!
//! 16 connections send 10 requests each in turn, as h2load does with 10 streams: a request of 8 fields is
//! decoded, and a head and the frame of a body of 1 KB, which is not copied, are written. The output is
//! nanoseconds per request, best and median of some rounds. With a number as argument the example only runs
//! that many turns, for `valgrind --tool=callgrind`.

use forebay_http2::frame::{self, PREFACE, flag, kind};
use forebay_http2::hpack::{KnownName, encode};
use forebay_http2::{Connection, DecodedFields, Http2Event, Http2Limits, MessagePart};
use std::hint::black_box;
use std::time::Instant;

const CONNECTIONS: usize = 16;
const STREAMS: u32 = 10;

const REQUEST: [(&str, &str); 8] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "www.example.com"),
    (":path", "/assets/styles/main.css?v=17"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0"),
    ("accept", "text/css,*/*;q=0.1"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9,de;q=0.8"),
];

/// The way in which a client encodes the path of a request.
#[derive(Clone, Copy)]
enum Path {
    /// By its index, because the client requests the same path again and again.
    Indexed,
    /// In Huffman code, because the client requests another path each time.
    Spelled,
}

/// The first request of a connection, which puts all fields into the table, and the later ones.
fn blocks(path: Path) -> (Vec<u8>, Vec<u8>) {
    let mut first = vec![0x82, 0x87];
    for (name, value) in &REQUEST[2..] {
        first.extend_from_slice(&[0x40, name.len() as u8]);
        first.extend_from_slice(name.as_bytes());
        first.push(value.len() as u8);
        first.extend_from_slice(value.as_bytes());
    }
    let mut next = vec![0x82, 0x87, 67];
    match path {
        Path::Indexed => next.push(0x80 | 66),
        Path::Spelled => encode::field(&mut next, b":path", REQUEST[3].1.as_bytes()),
    }
    next[2] |= 0x80;
    next.extend_from_slice(&[0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62]);
    (first, next)
}

struct Bench {
    connections: Vec<Connection>,
    fields: DecodedFields,
    out: Vec<u8>,
    baked: Vec<u8>,
    next: Vec<u8>,
    input: Vec<u8>,
    stream: u32,
}

impl Bench {
    fn new(path: Path) -> Bench {
        let (first, next) = blocks(path);
        let mut start = PREFACE.to_vec();
        frame::write(&mut start, kind::SETTINGS, 0, 0, &[]);
        frame::write(&mut start, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &first);
        let mut baked = Vec::new();
        for (name, value) in [
            ("content-type", "text/css"),
            ("last-modified", "Mon, 21 Oct 2013 20:13:21 GMT"),
            ("etag", "\"1f2e3d4c-5b6a-400\""),
            ("accept-ranges", "bytes"),
            ("content-length", "1024"),
        ] {
            encode::field(&mut baked, name.as_bytes(), value.as_bytes());
        }
        let mut bench = Bench {
            connections: Vec::new(),
            fields: DecodedFields::default(),
            out: Vec::with_capacity(64 * 1024),
            baked,
            next,
            input: Vec::new(),
            stream: 3,
        };
        for _ in 0..CONNECTIONS {
            let mut connection = Connection::server(Http2Limits::default());
            let served =
                serve(&mut connection, &start, &mut bench.fields, &bench.baked, &mut bench.out);
            assert_eq!(served, 1);
            bench.connections.push(connection);
        }
        bench
    }

    /// Passes each connection all its requests in one piece.
    fn turn(&mut self) -> u32 {
        self.input.clear();
        for stream in 0..STREAMS {
            let flags = flag::END_HEADERS | flag::END_STREAM;
            frame::write(
                &mut self.input,
                kind::HEADERS,
                flags,
                self.stream + 2 * stream,
                &self.next,
            );
        }
        self.stream += 2 * STREAMS;
        // the client opens the window again by what the bodies took
        frame::write_window_update(&mut self.input, 0, STREAMS * 1024);
        let mut served = 0;
        for connection in &mut self.connections {
            let input = black_box(&self.input);
            served += serve(connection, input, &mut self.fields, &self.baked, &mut self.out);
            black_box(&self.out);
        }
        served
    }
}

fn serve(
    connection: &mut Connection,
    mut input: &[u8],
    fields: &mut DecodedFields,
    baked: &[u8],
    out: &mut Vec<u8>,
) -> u32 {
    let mut served = 0;
    out.clear();
    loop {
        let received = connection.receive(input, fields, 0);
        input = &input[received.used..];
        match received.event {
            Some(Http2Event::Request { stream, .. }) => {
                black_box(fields.path());
                connection.head(out, stream, MessagePart::Head, |block| {
                    encode::status(block, 200);
                    block.extend_from_slice(baked);
                    encode::plain(block, KnownName::DATE, b"Mon, 21 Oct 2013 20:13:21 GMT");
                });
                assert!(connection.send_capacity(stream) >= 1024);
                let header = connection.data(stream, 1024, true);
                out.extend_from_slice(&header.unwrap_or_default());
                served += 1;
            }
            Some(other) => unreachable!("{other:?}"),
            None => break,
        }
    }
    connection.flush(out);
    served
}

fn main() {
    let paths = [("path by its index", Path::Indexed), ("path spelled out", Path::Spelled)];
    if let Some(turns) = std::env::args().nth(1).and_then(|text| text.parse::<u32>().ok()) {
        for (_, path) in paths {
            let mut bench = Bench::new(path);
            let served: u32 = (0..turns).map(|_| bench.turn()).sum();
            println!("{served} requests");
        }
        return;
    }
    const TURNS: u32 = 1000;
    for (what, path) in paths {
        let mut rounds: Vec<f64> = (0..15)
            .map(|_| {
                let mut bench = Bench::new(path);
                let start = Instant::now();
                let served: u32 = (0..TURNS).map(|_| bench.turn()).sum();
                start.elapsed().as_secs_f64() * 1e9 / f64::from(served)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        println!("{what}: best {:.0} ns, median {:.0} ns", rounds[0], rounds[7]);
    }
}
