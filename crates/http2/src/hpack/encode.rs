//! Encodes fields without the dynamic table: names by their index in the static table, values literally.
//!
//! The result may be sent on any connection, so blocks that repeat are encoded once.

use super::huffman;
use super::integer;
use crate::known_names::{KnownName, STATIC};

/// The first bits of a field that is not added to the peer's table (RFC 7541 §6.2.2).
const PLAIN: u8 = 0x00;
/// The same, for a field that no intermediary may add to a table either (§6.2.3).
const NEVER: u8 = 0x10;

/// Sets the size of the table to 0, once for the connection, because our blocks do not use it (§6.3).
pub const NO_TABLE: u8 = 0x20;

/// Appends `:status`.
#[inline]
pub fn status(out: &mut Vec<u8>, status: u16) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digit = |value: u16| b'0' + (value % 10) as u8;
            out.extend_from_slice(&[PLAIN | KnownName::STATUS.0, 3]);
            return out.extend_from_slice(&[
                digit(status / 100),
                digit(status / 10),
                digit(status),
            ]);
        }
    };
    out.push(0x80 | index);
}

/// Appends a field. `name` is in lower case. The shorter of text and Huffman code is used.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let known = KnownName::of(name);
    let same = |field: &(&str, &str)| field.0.as_bytes() == name && field.1.as_bytes() == value;
    let first = usize::from(known.0).max(1) - 1;
    if known.index() > 0
        && let Some(further) = STATIC[first..].iter().take(7).position(same)
    {
        return integer::write(out, 0x80, 7, first + further + 1);
    }
    literal(out, PLAIN, known, name);
    string(out, value);
}

/// Appends a field whose value is secret: intermediaries do not add it to a table either.
pub fn secret(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    literal(out, NEVER, KnownName::of(name), name);
    string(out, value);
}

/// Appends a field whose value differs from answer to answer, such as a date or a length, without looking for
/// a shorter code.
#[inline]
pub fn plain(out: &mut Vec<u8>, name: KnownName, value: &[u8]) {
    literal(out, PLAIN, name, name.as_str().unwrap_or_default().as_bytes());
    integer::write(out, 0, 7, value.len());
    out.extend_from_slice(value);
}

/// Appends a field as plain text, without looking for a shorter code: for a peer that is near. `name` is in
/// lower case.
pub fn raw(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let known = KnownName::of(name);
    integer::write(out, PLAIN, 4, known.index());
    if known.index() == 0 {
        integer::write(out, 0, 7, name.len());
        out.extend_from_slice(name);
    }
    integer::write(out, 0, 7, value.len());
    out.extend_from_slice(value);
}

#[inline]
fn literal(out: &mut Vec<u8>, kind: u8, known: KnownName, name: &[u8]) {
    integer::write(out, kind, 4, known.index());
    if known.index() == 0 {
        string(out, name);
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    let coded = huffman::len(text);
    if coded < text.len() {
        integer::write(out, 0x80, 7, coded);
        huffman::encode(text, out);
    } else {
        integer::write(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Vec<u8> {
        let mut out = Vec::new();
        field(&mut out, name.as_bytes(), value.as_bytes());
        out
    }

    #[test]
    fn the_static_table_is_used() {
        assert_eq!(one(":method", "GET"), [0x82]);
        assert_eq!(one(":method", "POST"), [0x83]);
        assert_eq!(one(":path", "/index.html"), [0x85]);
        assert_eq!(one(":scheme", "https"), [0x87]);
        assert_eq!(one(":status", "500"), [0x8e]);
        assert_eq!(one("accept-encoding", "gzip, deflate"), [0x90]);
        // RFC 7541 §C.2.2, with Huffman code where that is shorter
        assert_eq!(one(":path", "/sample/path")[..2], [0x04, 0x89]);
        assert_eq!(one("age", "")[..], [0x95]);
    }

    #[test]
    fn statuses_are_short() {
        for status_code in [200, 204, 206, 304, 400, 404, 500] {
            let mut out = Vec::new();
            status(&mut out, status_code);
            assert_eq!(out, one(":status", &status_code.to_string()));
            assert_eq!(out.len(), 1);
        }
        let mut out = Vec::new();
        status(&mut out, 103);
        assert_eq!(out, [8, 3, b'1', b'0', b'3']);
    }

    #[test]
    fn what_is_near_is_told_in_plain_words() {
        let mut out = Vec::new();
        raw(&mut out, b"etag", b"\"x\"");
        raw(&mut out, b"forebay-attempt", b"1");
        assert_eq!(out, b"\x0f\x13\x03\"x\"\x00\x0fforebay-attempt\x011");
    }

    #[test]
    fn a_secret_is_marked() {
        let mut out = Vec::new();
        secret(&mut out, b"authorization", b"x");
        assert_eq!(out, [0x1f, 23 - 15, 1, b'x']);
        out.clear();
        plain(&mut out, KnownName::PRIORITY, b"u=1");
        assert_eq!(out[0], 0);
    }
}
