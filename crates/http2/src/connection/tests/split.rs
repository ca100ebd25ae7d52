//! Tests with bytes split at any place, and with arbitrary bytes.

use super::*;

/// A conversation with all kinds of frames.
fn conversation() -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    bytes.extend(settings(&[(4, 100), (3, 7)]));
    bytes.extend(frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=2"));
    bytes.extend(post(1));
    bytes.extend(data(1, b"\x03hello\0\0\0", flag::PADDED));
    bytes.extend(frame(kind::HEADERS, END, 3, &block(&GET)[..3]));
    bytes.extend(frame(kind::CONTINUATION, 0, 3, &block(&GET)[3..4]));
    bytes.extend(frame(kind::CONTINUATION, WHOLE, 3, &block(&GET)[4..]));
    bytes.extend(frame(0x55, 1, 2, b"unknown"));
    bytes.extend(data(1, b"world", 0));
    bytes.extend(window_update(1, 3));
    bytes.extend(frame(kind::HEADERS, END | WHOLE, 1, &block(&[("x-sum", "9")])));
    bytes.extend(frame(kind::PING, 0, 0, b"12345678"));
    bytes.extend(rst(3, ErrorCode::CANCEL));
    bytes.extend(post(5));
    bytes.extend(data(5, b"\x02\0\0", flag::PADDED | END));
    bytes.extend(frame(kind::GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0bye"));
    bytes
}

/// Plays `bytes` in pieces that end at `cuts`; data that came in pieces is joined.
fn play(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (Vec<String>, Vec<Sent>, Vec<String>) {
    let mut end = End::of(Connection::server(Http2Limits::default()));
    let (mut events, mut held): (Vec<String>, Vec<u8>) = (Vec::new(), Vec::new());
    let mut start = 0;
    for cut in cuts.chain([bytes.len()]) {
        held.extend_from_slice(&bytes[start..cut]);
        start = cut;
        let (more, used) = end.take(&held);
        held.drain(..used);
        for event in more {
            let joined = event.split_once(" data ").and_then(|(stream, rest)| {
                let last = events.last()?.strip_prefix(&format!("{stream} data "))?;
                Some(format!("{stream} data {last}{rest}"))
            });
            match joined {
                Some(joined) => *events.last_mut().unwrap() = joined,
                None => events.push(event),
            }
        }
    }
    assert!(held.is_empty() || end.connection.fault().is_none());
    (events, end.sent(), end.heads)
}

#[test]
fn every_cut_gives_the_same() {
    let bytes = conversation();
    let whole = play(&bytes, 0..0);
    assert_eq!(whole.0.len(), 9, "{:?}", whole.0);
    for cut in 0..bytes.len() {
        assert_eq!(play(&bytes, cut..cut + 1), whole, "cut at {cut}");
    }
    assert_eq!(play(&bytes, 0..bytes.len()), whole, "byte by byte");
}

#[test]
fn damage_is_told_whatever_it_is_and_however_it_is_cut() {
    let mut random = fastrand::Rng::with_seed(42);
    let original = conversation();
    for _ in 0..3000 {
        let mut bytes = original.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] ^= 1 << random.u8(..8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        let mut cuts: Vec<_> =
            (0..random.usize(..10)).map(|_| random.usize(..bytes.len())).collect();
        cuts.sort_unstable();
        assert_eq!(play(&bytes, cuts.into_iter()), play(&bytes, 0..0), "{bytes:?}");
    }
}
