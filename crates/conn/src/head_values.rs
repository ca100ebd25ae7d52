//! Values that a head has for one request only. A baked head has a mark in the place of each value.

use crate::head_block::{encode_field, encode_lines};
use memchr::memchr;

/// The byte that stands before the number of a value in a head. No field value contains it (RFC 9110
/// §5.5).
const MARK: u8 = 1;

/// The most values of a site: a number is two bytes of seven bits.
pub const MOST_VALUES: usize = 1 << 14;

/// The mark that stands in a head for the value with this number.
pub fn mark(number: u16) -> [u8; 3] {
    let seven_bits = |number: u16| 0x80 | (number & 0x7f) as u8;
    [MARK, seven_bits(number >> 7), seven_bits(number)]
}

/// Whether a head, or lines of one, have a mark.
pub fn has_values(head: &[u8]) -> bool {
    memchr(MARK, head).is_some()
}

/// The number of the value that a mark stands for.
fn marked(value: &[u8]) -> Option<usize> {
    match value {
        &[MARK, high, low] => Some(usize::from(high & 0x7f) << 7 | usize::from(low & 0x7f)),
        _ => None,
    }
}

/// The values of one request, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct HeadValues {
    bytes: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
}

impl HeadValues {
    /// Removes all values.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends to the value that is being written. A byte that is no visible ASCII character is
    /// percent-encoded, and so is the percent sign: nothing that a client has sent ends a line, and
    /// different values stay different. A space stays a space, except at an end of the value, where a
    /// recipient would strip it.
    pub fn push(&mut self, bytes: &[u8]) {
        let last = bytes.len().saturating_sub(1);
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b' ' if at == 0 || at == last => self.encoded(byte),
                b'%' => self.encoded(byte),
                byte => self.visible(byte),
            }
        }
    }

    /// Appends bytes that are percent-encoded already, as a query is.
    pub fn push_encoded(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.visible(byte));
    }

    fn visible(&mut self, byte: u8) {
        match byte {
            b' '..=b'~' => self.bytes.push(byte),
            _ => self.encoded(byte),
        }
    }

    fn encoded(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let digit = |four_bits: u8| DIGITS[usize::from(four_bits & 15)];
        self.bytes.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
    }

    /// Appends text that the operator has written.
    pub fn push_text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Ends the value that is being written; the next one has the next number.
    pub fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// The value with this number; `None` if there is no such number. The value is empty where the
    /// request has nothing of the kind.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.bytes.get(start..end).map(<[u8]>::trim_ascii)
    }

    /// The value that replaces the field value of a baked head; `None` if it is empty, so that the field
    /// is not sent.
    pub fn filled<'v>(&'v self, value: &'v [u8]) -> Option<&'v [u8]> {
        match marked(value) {
            None => Some(value),
            Some(number) => self.get(number).filter(|value| !value.is_empty()),
        }
    }

    /// Appends a head, or lines of one, with its marks replaced by the values.
    pub(crate) fn fill(&self, head: &[u8], to: &mut Vec<u8>) {
        self.each(head, |line, value| match value {
            None => to.extend_from_slice(line),
            Some(value) => {
                for part in [&line[..line.len() - END_BYTES], value, b"\r\n"] {
                    to.extend_from_slice(part);
                }
            }
        });
    }

    /// Appends the lines of a head to a block of HTTP/2, with its marks replaced by the values.
    pub(crate) fn encode(&self, lines: &[u8], block: &mut Vec<u8>) {
        self.each(lines, |line, value| match value {
            None => encode_lines(block, line),
            Some(value) => {
                let name = memchr(b':', line).map_or(line, |colon| &line[..colon]);
                encode_field(block, name, value);
            }
        });
    }

    /// Calls `take` with each line of a head that is sent, and with its value if the line has a mark.
    fn each(&self, head: &[u8], mut take: impl FnMut(&[u8], Option<&[u8]>)) {
        for line in head.split_inclusive(|&byte| byte == b'\n') {
            let mark = line.len().checked_sub(END_BYTES).map(|start| &line[start..line.len() - 2]);
            match mark.and_then(marked) {
                None => take(line, None),
                Some(number) => match self.get(number) {
                    None | Some([]) => {}
                    value => take(line, value),
                },
            }
        }
    }
}

/// The length of a mark and the end of its line.
const END_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head_block::bake;

    fn values() -> HeadValues {
        let mut values = HeadValues::default();
        values.push_text("<");
        values.push(b"a\r\nSet-Cookie: b\0\xff%0d");
        values.push_text(">");
        values.end();
        values.end();
        values.push(b" x y ");
        values.end();
        values
    }

    /// Two users whose names differ get two values.
    #[test]
    fn what_is_different_stays_so() {
        let value = |bytes: &[u8]| {
            let mut values = HeadValues::default();
            values.push(bytes);
            values.end();
            values.get(0).unwrap().to_vec()
        };
        let decoded = |value: &[u8]| {
            let mut decoded = Vec::new();
            let mut rest = value.iter();
            while let Some(&byte) = rest.next() {
                decoded.push(match byte {
                    b'%' => {
                        let digits = [rest.next(), rest.next()].map(|digit| *digit.unwrap());
                        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                    }
                    byte => byte,
                });
            }
            decoded
        };
        let pieces: [&[u8]; 9] =
            [b"a", b" ", b"%", b"%20", b"%25", b"\xc3\xbc", b"%C3%BC", b"\t", b"\n"];
        for one in pieces {
            for two in pieces {
                for three in pieces {
                    let said = [one, two, three].concat();
                    let value = value(&said);
                    assert_eq!(decoded(&value), said, "{}", String::from_utf8_lossy(&value));
                    assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)));
                }
            }
        }
        assert_eq!(value(b""), b"");
    }

    fn head() -> Vec<u8> {
        let mut head = b"HTTP/1.1 200 OK\r\nX-A: ".to_vec();
        for part in [
            &mark(0)[..],
            b"\r\nX-B: ",
            &mark(1),
            b"\r\nServer: f\r\nX-C: ",
            &mark(2),
            b"\r\nY: \r\n",
        ] {
            head.extend_from_slice(part);
        }
        head
    }

    #[test]
    fn values_stand_in_their_places_and_end_no_line() {
        let mut filled = Vec::new();
        values().fill(&head(), &mut filled);
        let expected = "HTTP/1.1 200 OK\r\nX-A: <a%0D%0ASet-Cookie: b%00%FF%250d>\r\nServer: f\r\nX-C: %20x y%20\r\nY: \r\n";
        assert_eq!(String::from_utf8(filled.clone()).unwrap(), expected);
        let (mut block, text) = (bake(b"HTTP/1.1 200 OK\r\n").into_vec(), head());
        values().encode(&text[17..], &mut block);
        assert_eq!(block, *bake(&filled));
    }

    #[test]
    fn numbers_are_told_from_line_ends() {
        for number in (0..MOST_VALUES).step_by(127) {
            let mark = mark(number as u16);
            assert_eq!(marked(&mark), Some(number));
            assert!(!mark.iter().any(|byte| b"\r\n:\0".contains(byte)));
        }
        assert_eq!(values().filled(b"plain"), Some(&b"plain"[..]));
        assert_eq!(values().filled(&mark(1)), None);
    }
}
