//! The pieces of a line: numbers, addresses, and what clients sent, escaped so that no byte of it
//! can end the line, leave its field or reach a terminal as a control sequence.

use std::io::Write;
use std::net::IpAddr;

/// Appends a number in decimal.
#[inline]
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let start = digits_before(&mut digits, 20, number);
    out.extend_from_slice(&digits[start..]);
}

/// Writes a number so that it ends before `end`; returns where it starts.
#[inline]
fn digits_before(digits: &mut [u8; 20], end: usize, mut number: u64) -> usize {
    let mut start = end;
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

/// Appends an address; `unix` for the client of a Unix socket, which has none.
pub fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        ip if ip.is_unspecified() => out.extend_from_slice(b"unix"),
        IpAddr::V4(ip) => {
            let mut digits = [b'.'; 20];
            let [a, b, c, d] = ip.octets();
            let start = [d, c, b]
                .into_iter()
                .fold(20, |end, octet| digits_before(&mut digits, end, u64::from(octet)) - 1);
            let start = digits_before(&mut digits, start, u64::from(a));
            out.extend_from_slice(&digits[start..]);
        }
        // writing into a Vec does not fail
        IpAddr::V6(ip) => drop(write!(out, "{ip}")),
    }
}

/// Appends `text` for a field in quotes of the common and combined formats: bytes outside printable
/// ASCII, `"` and `\` become `\xHH`.
#[inline]
pub fn push_quoted(out: &mut Vec<u8>, text: &[u8]) {
    push_escaped(out, text, |byte| {
        let [high, low] = hex(byte);
        [0, 0, b'\\', b'x', high, low]
    });
}

/// The same without quotes: a blank becomes `\x20`, so that it is one word.
pub fn push_word(out: &mut Vec<u8>, text: &[u8]) {
    for (index, word) in text.split(|byte| *byte == b' ').enumerate() {
        if index > 0 {
            out.extend_from_slice(b"\\x20");
        }
        push_quoted(out, word);
    }
}

/// Appends `text` for a JSON string: bytes outside printable ASCII, `"` and `\` become `\u00HH`,
/// each for itself, as they may be in any encoding.
#[inline]
pub fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    push_escaped(out, text, |byte| {
        let [high, low] = hex(byte);
        [b'\\', b'u', b'0', b'0', high, low]
    });
}

/// Whether a byte stands for itself in all formats.
#[inline]
fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\'
}

#[inline]
fn push_escaped(out: &mut Vec<u8>, text: &[u8], escape: fn(u8) -> [u8; 6]) {
    // without an early exit the compiler looks at many bytes at once
    if text.iter().fold(true, |plain, byte| plain & is_plain(*byte)) {
        out.extend_from_slice(text);
    } else {
        push_not_plain(out, text, escape);
    }
}

#[cold]
fn push_not_plain(out: &mut Vec<u8>, mut text: &[u8], escape: fn(u8) -> [u8; 6]) {
    while let Some(at) = text.iter().position(|byte| !is_plain(*byte)) {
        out.extend_from_slice(&text[..at]);
        let escaped = escape(text[at]);
        // the shorter form is padded in front
        out.extend(escaped.into_iter().skip_while(|byte| *byte == 0));
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

/// Two hexadecimal digits.
#[inline]
pub fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes an escaped text apart again.
    fn unescaped(text: &[u8], escape: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rest = text;
        while let Some((first, tail)) = rest.split_first() {
            if let Some(code) = rest.strip_prefix(escape) {
                let code = std::str::from_utf8(&code[..2]).unwrap();
                bytes.push(u8::from_str_radix(code, 16).unwrap());
                rest = &rest[escape.len() + 2..];
            } else {
                bytes.push(*first);
                rest = tail;
            }
        }
        bytes
    }

    fn address(text: &str) -> String {
        let mut out = Vec::new();
        push_address(&mut out, text.parse().unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn addresses_are_short() {
        assert_eq!(address("192.0.2.7"), "192.0.2.7");
        assert_eq!(address("::ffff:192.0.2.70"), "192.0.2.70");
        assert_eq!(address("2001:DB8:0::1"), "2001:db8::1");
        assert_eq!(address("0.0.0.0"), "unix");
    }

    proptest! {
        #[test]
        fn escaped_text_is_plain_and_says_what_it_said(text: Vec<u8>) {
            type Push = fn(&mut Vec<u8>, &[u8]);
            for (push, prefix) in [(push_quoted as Push, &b"\\x"[..]), (push_json, b"\\u00")] {
                let mut out = Vec::new();
                push(&mut out, &text);
                prop_assert!(out.iter().all(|b| (b' '..=b'~').contains(b) && *b != b'"'));
                prop_assert_eq!(unescaped(&out, prefix), text.clone());
            }
        }

        #[test]
        fn numbers_are_decimal(number: u64) {
            let mut out = Vec::new();
            push_number(&mut out, number);
            prop_assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
