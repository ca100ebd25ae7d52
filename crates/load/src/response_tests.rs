//! Tests of the reader: every response is read whole, byte by byte, and split in two at every
//! place.

use super::*;

fn answer(status: u16, keep: bool, body: &[u8]) -> FinishedResponse {
    let crc32 = Some(crc32fast::hash(body));
    FinishedResponse { status, keep, body_bytes: body.len() as u64, crc32 }
}

/// Feeds the pieces to a reader; returns the responses, or `None` if one is malformed.
fn feed(pieces: &[&[u8]], bodyless: bool) -> Option<Vec<FinishedResponse>> {
    let mut reader = AnswerReader::new(true);
    let mut answers = Vec::new();
    for piece in pieces {
        let mut piece = *piece;
        loop {
            match reader.read(piece, bodyless) {
                ResponseProgress::More => break,
                ResponseProgress::Done(used) => {
                    answers.push(reader.take());
                    piece = &piece[used..];
                }
                ResponseProgress::Malformed => return None,
            }
        }
    }
    if reader.end() {
        answers.push(reader.take());
    }
    Some(answers)
}

fn reads(input: &[u8], expected: &[FinishedResponse]) {
    let text = String::from_utf8_lossy(input);
    assert_eq!(feed(&[input], false).unwrap(), expected, "whole: {text}");
    let bytes: Vec<_> = input.chunks(1).collect();
    assert_eq!(feed(&bytes, false).unwrap(), expected, "byte by byte: {text}");
    for middle in 0..input.len() {
        let (a, b) = input.split_at(middle);
        assert_eq!(feed(&[a, b], false).unwrap(), expected, "cut at {middle}: {text}");
    }
}

#[test]
fn a_length_delimits() {
    reads(
        b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH:  5 \r\n\r\nhello\
          HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        &[answer(200, true, b"hello"), answer(404, false, b"")],
    );
}

#[test]
fn chunks_delimit() {
    reads(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\nContent-Length: 3\r\n\r\n\
          5;a=b\r\nhello\r\n7\r\n, world\r\n0\r\nX-Sum: 1\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!",
        &[answer(200, true, b"hello, world"), answer(200, true, b"!")],
    );
}

#[test]
fn the_end_of_the_connection_delimits() {
    reads(b"HTTP/1.0 200 OK\r\n\r\nhello", &[answer(200, false, b"hello")]);
    reads(b"HTTP/1.1 200 OK\n\nhello", &[answer(200, false, b"hello")]);
}

#[test]
fn old_connections_are_kept_when_both_say_so() {
    reads(
        b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok",
        &[answer(200, true, b"ok")],
    );
}

#[test]
fn some_answers_have_no_body() {
    reads(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        &[answer(304, false, b"")].map(|a| FinishedResponse { keep: true, ..a }),
    );
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n";
    assert_eq!(feed(&[head], true).unwrap(), [answer(200, true, b"")]);
}

#[test]
fn what_is_not_http_is_malformed() {
    for input in [
        &b"SSH-2.0-x\r\n"[..],
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2xx OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    ] {
        assert_eq!(feed(&[input], false), None, "{}", String::from_utf8_lossy(input));
    }
    let endless = [&b"HTTP/1.1 200 OK\r\n"[..], &b"X: y\r\n".repeat(20_000)].concat();
    assert_eq!(feed(&[&endless], false), None);
}

#[test]
fn a_cut_answer_is_no_answer() {
    assert_eq!(feed(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"], false).unwrap(), []);
    let mut reader = AnswerReader::new(false);
    assert!(reader.is_fresh());
    reader.read(b"HTTP/1.1 2", false);
    assert!(!reader.is_fresh());
}

/// Whatever a server sends, in whatever pieces: the reader never panics, and reads the same
/// responses.
#[test]
fn pieces_never_change_what_is_read() {
    let seeds: [&[u8]; 3] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhello",
    ];
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..30_000 {
        let mut input = seeds[round % seeds.len()].to_vec();
        for _ in 0..rng.usize(0..4) {
            let place = rng.usize(0..input.len());
            match rng.u8(0..3) {
                0 => input[place] = rng.u8(..),
                1 => drop(input.remove(place)),
                _ => input.insert(place, *rng.choice(b"\r\n 0f:;C").unwrap()),
            }
        }
        let whole = feed(&[&input], false);
        let middle = rng.usize(0..=input.len());
        let (a, b) = input.split_at(middle);
        let cut = feed(&[a, b], false);
        assert_eq!(whole, cut, "cut at {middle}: {}", String::from_utf8_lossy(&input));
    }
}
