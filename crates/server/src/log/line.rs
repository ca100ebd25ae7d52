//! One request as a line of the access log, written so that no byte a client sends can end the
//! line, leave its field or reach a terminal as a control sequence.
//!
//! The fields Authorization and Cookie are never looked at.

use forebay_conn::{Peer, Request};
use forebay_http::date;
use forebay_http::head::{Name, Version};
use std::io::Write;
use std::net::IpAddr;

/// The time of the current turn, in the form both formats want it; made anew once a second.
#[derive(Debug)]
pub struct Stamp {
    second: u64,
    /// `06/Nov/1994:08:49:37 +0000`
    clf: [u8; 26],
    /// `1994-11-06T08:49:37.000Z`
    rfc3339: [u8; 24],
}

/// The last second of the year 9999, which neither format can go beyond.
const LAST_SECOND: u64 = 253_402_300_799;

const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

impl Default for Stamp {
    fn default() -> Stamp {
        let mut stamp = Stamp {
            second: 0,
            clf: *b"01/Jan/1970:00:00:00 +0000",
            rfc3339: *b"1970-01-01T00:00:00.000Z",
        };
        stamp.set_second(0);
        stamp
    }
}

impl Stamp {
    /// Sets the time, in milliseconds since 1970.
    #[inline]
    pub fn set(&mut self, unix_ms: u64) {
        let second = (unix_ms / 1000).min(LAST_SECOND);
        if second != self.second {
            self.set_second(second);
        }
        let ms = unix_ms % 1000;
        for (digit, power) in self.rfc3339[20..23].iter_mut().zip([100, 10, 1]) {
            *digit = b'0' + (ms / power % 10) as u8;
        }
    }

    fn set_second(&mut self, second: u64) {
        self.second = second;
        // Sun, 06 Nov 1994 08:49:37 GMT
        let imf = date::format(second);
        let (day, month, year, time) = (&imf[5..7], &imf[8..11], &imf[12..16], &imf[17..25]);
        let number = MONTHS.chunks(3).position(|name| name == month).map_or(0, |at| at + 1) as u8;
        self.clf[..2].copy_from_slice(day);
        self.clf[3..6].copy_from_slice(month);
        self.clf[7..11].copy_from_slice(year);
        self.clf[12..20].copy_from_slice(time);
        self.rfc3339[..4].copy_from_slice(year);
        self.rfc3339[5..7].copy_from_slice(&[b'0' + number / 10, b'0' + number % 10]);
        self.rfc3339[8..10].copy_from_slice(day);
        self.rfc3339[11..19].copy_from_slice(time);
    }
}

/// Writes a line in the combined format; returns where the number of bytes is to be put.
///
/// `client - - [time] "METHOD target HTTP/1.1" status bytes "referer" "user agent"`. Bytes outside
/// printable ASCII, `"` and `\` are written as `\xHH`.
pub fn combined(
    out: &mut Vec<u8>,
    stamp: &Stamp,
    peer: &Peer,
    request: Option<&Request<'_>>,
    status: u16,
) -> usize {
    push_address(out, peer.address().ip());
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(&stamp.clf);
    out.extend_from_slice(b"] \"");
    match request {
        Some(Request { head, .. }) => {
            push_escaped(out, head.method_text.as_bytes(), as_hex);
            out.push(b' ');
            push_escaped(out, head.target, as_hex);
            out.extend_from_slice(match head.version {
                Version::Http10 => b" HTTP/1.0\" ",
                Version::Http11 => b" HTTP/1.1\" ",
            });
        }
        None => out.extend_from_slice(b"-\" "),
    }
    push_number(out, u64::from(status));
    out.push(b' ');
    let gap = out.len();
    for name in [Name::Referer, Name::UserAgent] {
        out.extend_from_slice(b" \"");
        match request.and_then(|request| request.head.values(name).next()) {
            Some(value) => push_escaped(out, value, as_hex),
            None => out.push(b'-'),
        }
        out.push(b'"');
    }
    out.push(b'\n');
    gap
}

/// Writes a line as a JSON object; returns where the number of bytes is to be put.
///
/// What the request does not have is left out. Bytes outside printable ASCII are written as
/// `\u00HH`, each for itself: they may be in any encoding.
pub fn json(
    out: &mut Vec<u8>,
    stamp: &Stamp,
    peer: &Peer,
    request: Option<&Request<'_>>,
    status: u16,
) -> usize {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(&stamp.rfc3339);
    out.extend_from_slice(b"\",\"client\":\"");
    push_address(out, peer.address().ip());
    out.push(b'"');
    if let Some(Request { head, .. }) = request {
        push_member(out, "method", head.method_text.as_bytes());
        push_member(out, "target", head.target);
        push_member(out, "version", if head.version == Version::Http10 { b"1.0" } else { b"1.1" });
        push_member(out, "host", head.authority);
        for (name, member) in [(Name::Referer, "referer"), (Name::UserAgent, "user_agent")] {
            if let Some(value) = head.values(name).next() {
                push_member(out, member, value);
            }
        }
    }
    out.extend_from_slice(b",\"status\":");
    push_number(out, u64::from(status));
    out.extend_from_slice(b",\"bytes\":");
    let gap = out.len();
    out.extend_from_slice(b"}\n");
    gap
}

fn push_member(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":\"");
    push_escaped(out, value, as_unicode);
    out.push(b'"');
}

/// Appends a number in decimal.
#[inline]
pub fn push_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let start = digits_before(&mut digits, 20, number);
    out.extend_from_slice(&digits[start..]);
}

/// Writes a number so that it ends before `end`; returns where it starts.
#[inline]
fn digits_before(room: &mut [u8; 20], end: usize, mut number: u64) -> usize {
    let mut start = end;
    loop {
        start -= 1;
        room[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(ip) => {
            let mut room = [b'.'; 20];
            let [a, b, c, d] = ip.octets();
            let start = [d, c, b]
                .into_iter()
                .fold(20, |end, octet| digits_before(&mut room, end, u64::from(octet)) - 1);
            let start = digits_before(&mut room, start, u64::from(a));
            out.extend_from_slice(&room[start..]);
        }
        // writing into a Vec does not fail
        IpAddr::V6(ip) => drop(write!(out, "{ip}")),
    }
}

/// Whether a byte stands for itself in both formats.
#[inline]
fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\'
}

/// Appends `text`; what is not plain goes through `escape`.
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

fn as_hex(byte: u8) -> [u8; 6] {
    let [high, low] = hex(byte);
    [0, 0, b'\\', b'x', high, low]
}

fn as_unicode(byte: u8) -> [u8; 6] {
    let [high, low] = hex(byte);
    [b'\\', b'u', b'0', b'0', high, low]
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::{Head, Limits, Lines, Parsed};
    use proptest::prelude::*;

    /// 2026-11-20 06:41:03.007 UTC
    const NOW_MS: u64 = 1_795_156_863_007;

    type Write = fn(&mut Vec<u8>, &Stamp, &Peer, Option<&Request<'_>>, u16) -> usize;

    /// The whole line with 512 bytes of body for a request, or for none.
    fn line(write: Write, remote: &str, request: &[u8]) -> String {
        let peer = Peer::new(remote.parse().unwrap(), "127.0.0.1:80".parse().unwrap());
        let mut stamp = Stamp::default();
        stamp.set(NOW_MS);
        let mut room = Lines::new();
        let mut out = Vec::new();
        let gap = match Head::parse(request, &mut room, &Limits::default()) {
            Ok(Parsed::Complete(head)) => {
                let request = Request { head: &head, peer: &peer };
                write(&mut out, &stamp, &peer, Some(&request), 200)
            }
            _ => write(&mut out, &stamp, &peer, None, 400),
        };
        let mut number = Vec::new();
        push_number(&mut number, 512);
        out.splice(gap..gap, number);
        String::from_utf8(out).unwrap()
    }

    const BROWSER: &[u8] =
        b"GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nUser-Agent: x \"y\" \\ \xc3\xa9\r\n\
        Referer: http://r/\r\nCookie: secret\r\nAuthorization: Basic secret\r\n\r\n";

    #[test]
    fn the_combined_format() {
        assert_eq!(
            line(combined, "192.0.2.7:4711", BROWSER),
            "192.0.2.7 - - [20/Nov/2026:06:41:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 512 \
             \"http://r/\" \"x \\x22y\\x22 \\x5c \\xc3\\xa9\"\n"
        );
        assert_eq!(
            line(combined, "[::ffff:192.0.2.7]:1", b"rubbish\r\n\r\n"),
            "192.0.2.7 - - [20/Nov/2026:06:41:03 +0000] \"-\" 400 512 \"-\" \"-\"\n"
        );
    }

    #[test]
    fn the_json_format() {
        assert_eq!(
            line(json, "[2001:db8::1]:4711", BROWSER),
            r#"{"time":"2026-11-20T06:41:03.007Z","client":"2001:db8::1","method":"GET",\
"target":"/a?b=c","version":"1.1","host":"example.org","referer":"http://r/",\
"user_agent":"x \u0022y\u0022 \u005c \u00c3\u00a9","status":200,"bytes":512}"#
                .replace("\\\n", "")
                + "\n"
        );
        assert_eq!(
            line(json, "127.0.0.1:1", b"rubbish\r\n\r\n"),
            "{\"time\":\"2026-11-20T06:41:03.007Z\",\"client\":\"127.0.0.1\",\"status\":400,\
             \"bytes\":512}\n"
        );
    }

    #[test]
    fn the_time_follows_the_clock_in_both_directions() {
        let mut stamp = Stamp::default();
        let mut clf = |unix_ms| {
            stamp.set(unix_ms);
            let text = [&stamp.clf[..], b" ", &stamp.rfc3339].concat();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(clf(0), "01/Jan/1970:00:00:00 +0000 1970-01-01T00:00:00.000Z");
        assert_eq!(clf(NOW_MS), "20/Nov/2026:06:41:03 +0000 2026-11-20T06:41:03.007Z");
        assert_eq!(clf(NOW_MS - 8), "20/Nov/2026:06:41:02 +0000 2026-11-20T06:41:02.999Z");
        assert_eq!(clf(951_782_400_000), "29/Feb/2000:00:00:00 +0000 2000-02-29T00:00:00.000Z");
        assert_eq!(clf(u64::MAX), "31/Dec/9999:23:59:59 +0000 9999-12-31T23:59:59.615Z");
    }

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

    proptest! {
        #[test]
        fn escaped_text_is_plain_and_says_what_it_said(text: Vec<u8>) {
            for (escape, prefix) in [(as_hex as fn(u8) -> [u8; 6], &b"\\x"[..]), (as_unicode, b"\\u00")] {
                let mut out = Vec::new();
                push_escaped(&mut out, &text, escape);
                prop_assert!(out.iter().all(|b| (b' '..=b'~').contains(b) && *b != b'"'));
                prop_assert_eq!(unescaped(&out, prefix), text.clone());
            }
        }

        #[test]
        fn no_request_forges_a_line(
            target in proptest::collection::vec(any::<u8>(), 0..40),
            agent in proptest::collection::vec(any::<u8>(), 0..40),
            referer in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let request = [
                b"GET /", &target[..], b" HTTP/1.1\r\nHost: h\r\nUser-Agent: ", &agent,
                b"\r\nReferer: ", &referer, b"\r\n\r\n",
            ].concat();
            let text = line(combined, "127.0.0.1:1", &request);
            prop_assert_eq!(text.find('\n'), Some(text.len() - 1));
            prop_assert_eq!(text.matches('"').count(), 6);
            prop_assert!(text.trim_end().bytes().all(|b| (b' '..=b'~').contains(&b)));

            let text = line(json, "127.0.0.1:1", &request);
            prop_assert_eq!(text.find('\n'), Some(text.len() - 1));
            let object: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&object["client"], "127.0.0.1");
            if let Some(logged) = object["user_agent"].as_str() {
                let bytes: Vec<u8> = logged.chars().map(|c| c as u8).collect();
                prop_assert_eq!(&bytes[..], agent.trim_ascii());
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
