//! The pieces of a line: numbers, addresses, and text of clients, escaped so that no byte of it can end
//! the line, leave its field or reach a terminal as a control sequence.

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
    if is_all_plain(text) { out.extend_from_slice(text) } else { push_not_plain(out, text) }
}

/// Appends `text` as one word, without quotes: a space becomes `\x20`.
pub fn push_word(out: &mut Vec<u8>, text: &[u8]) {
    for (index, word) in text.split(|byte| *byte == b' ').enumerate() {
        if index > 0 {
            out.extend_from_slice(b"\\x20");
        }
        push_quoted(out, word);
    }
}

/// Appends `text` for a JSON string (RFC 8259). UTF-8 stays as it is, except characters that control a
/// terminal or the order of a text, which become `\uHHHH`. A byte that is no UTF-8 becomes `\xHH`, and so
/// does a backslash before an `x`, so that neither is taken for the other.
#[inline]
pub fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    if is_all_plain(text) { out.extend_from_slice(text) } else { push_unicode(out, text) }
}

#[cold]
fn push_unicode(out: &mut Vec<u8>, mut text: &[u8]) {
    loop {
        let (valid, rest) = match std::str::from_utf8(text) {
            Ok(valid) => (valid, &[][..]),
            Err(error) => {
                let (valid, rest) = text.split_at(error.valid_up_to());
                (std::str::from_utf8(valid).unwrap_or_default(), rest)
            }
        };
        let mut characters = valid.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if characters.peek() == Some(&'x') => out.extend_from_slice(b"\\\\x5c"),
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                // these characters are below U+FFFF; writing into a Vec does not fail
                _ if is_control(character) => drop(write!(out, "\\u{:04x}", u32::from(character))),
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        let Some((byte, after)) = rest.split_first() else { return };
        out.extend_from_slice(b"\\\\x");
        out.extend_from_slice(&hex(*byte));
        text = after;
    }
}

/// Whether a character must not reach a terminal: control characters, and those that reverse the order of
/// a text.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a byte stands for itself in all formats.
#[inline]
fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\'
}

#[inline]
fn is_all_plain(text: &[u8]) -> bool {
    // without an early exit, the compiler checks many bytes at once
    text.iter().fold(true, |plain, byte| plain & is_plain(*byte))
}

#[cold]
fn push_not_plain(out: &mut Vec<u8>, mut text: &[u8]) {
    while let Some(at) = text.iter().position(|byte| !is_plain(*byte)) {
        out.extend_from_slice(&text[..at]);
        out.extend_from_slice(b"\\x");
        out.extend_from_slice(&hex(text[at]));
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

    /// Decodes an escaped text again.
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
    fn json_is_utf8() {
        for (text, expected) in [
            (&b"/caf\xc3\xa9"[..], "/café"),
            ("🙂 ü".as_bytes(), "🙂 ü"),
            (b"caf\xe9", r"caf\\xe9"),
            (br"caf\xe9", r"caf\\x5cxe9"),
            (br#"a\b"c"#, r#"a\\b\"c"#),
            (b"\x1b[1m\n\x7f", r"\u001b[1m\u000a\u007f"),
            ("\u{9b}\u{202e}".as_bytes(), r"\u009b\u202e"),
            (b"\xf0\x9f\x99", r"\\xf0\\x9f\\x99"),
            (b"\xed\xa0\x80", r"\\xed\\xa0\\x80"),
        ] {
            let mut out = Vec::new();
            push_json(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{text:?}");
        }
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
            let mut out = Vec::new();
            push_quoted(&mut out, &text);
            prop_assert!(out.iter().all(|b| (b' '..=b'~').contains(b) && *b != b'"'));
            prop_assert_eq!(unescaped(&out, b"\\x"), text);
        }

        /// A JSON string keeps its text: any text, any bytes, and text that looks like an escape.
        #[test]
        fn a_string_of_json_says_what_it_said(
            parts in prop::collection::vec(
                prop_oneof![
                    any::<Vec<u8>>(),
                    any::<String>().prop_map(String::into_bytes),
                    "[\\\\x5cf]{0,6}".prop_map(String::into_bytes),
                ],
                0..5,
            ),
        ) {
            let (text, mut out) = (parts.concat(), vec![b'"']);
            push_json(&mut out, &text);
            out.push(b'"');
            let said: String = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(unescaped(said.as_bytes(), b"\\x"), text.clone());
            prop_assert!(!std::str::from_utf8(&out).unwrap().contains(is_control));
            if let Ok(valid) = std::str::from_utf8(&text) {
                prop_assert_eq!(said, valid.replace("\\x", "\\x5cx"));
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
