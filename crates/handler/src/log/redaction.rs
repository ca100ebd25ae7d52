//! The parts that lines leave out: queries, values of parameters, fields.
//!
//! A parameter is found in every way in which an application, or a reader of the line, could find it:
//! percent-encoded, also several times; after `?`, `&`, `;` or `#`, or inside another value, such as a
//! return address; as a path parameter (`;token=`); with brackets behind its name. The hidden part goes
//! on to the next `&` that is not encoded, or in a path to the end of its segment: rather too much than
//! too little.

use forebay_config::{LogConfig, Redacted};
use forebay_http::head::Name;
use std::borrow::Cow;

/// The text that replaces hidden parts.
const HIDDEN: &[u8] = b"***";

/// The largest number of encodings on top of one another; a text with more is hidden as a whole.
const MOST_LAYERS: usize = 4;

/// The parts that the lines of a log leave out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    without_queries: bool,
    /// The names of parameters, [in the form in which they are compared](comparable).
    names: Vec<Vec<u8>>,
    referer: bool,
    user_agent: bool,
}

impl Redaction {
    /// The redaction that a configuration asks for; `None` if there is none.
    pub fn of(log: &LogConfig) -> Option<Redaction> {
        let mut all = Redaction { without_queries: !log.query, ..Redaction::default() };
        for one in &log.redact {
            match one {
                Redacted::Parameter(name) => all.names.push(comparable(name.as_bytes())),
                Redacted::Referer => all.referer = true,
                Redacted::UserAgent => all.user_agent = true,
            }
        }
        (all != Redaction::default()).then_some(all)
    }

    /// An address, which is a target or a path, as a line shows it.
    pub fn address<'t>(&self, address: &'t [u8]) -> Cow<'t, [u8]> {
        let end = address.iter().position(|byte| matches!(byte, b'?' | b'#'));
        let address = match end.filter(|_| self.without_queries) {
            Some(end) => &address[..end],
            None => address,
        };
        if self.names.is_empty() || !address.iter().any(|byte| matches!(byte, b'=' | b'%')) {
            return Cow::Borrowed(address);
        }
        self.without_values(address)
    }

    /// A field as a line shows it.
    pub fn field<'v>(&self, name: Name, value: &'v [u8]) -> Cow<'v, [u8]> {
        match name {
            Name::Referer if self.referer => Cow::Borrowed(HIDDEN),
            Name::Referer => self.address(value),
            Name::UserAgent if self.user_agent => Cow::Borrowed(HIDDEN),
            _ => Cow::Borrowed(value),
        }
    }

    fn without_values<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let Some(decoded) = Decoded::of(text) else {
            // so many encodings have no purpose other than hiding something
            let start = text.iter().position(|byte| matches!(byte, b'?' | b';' | b'#' | b'%'));
            return Cow::Owned([&text[..start.unwrap_or_default()], HIDDEN].concat());
        };
        let mut out = Vec::new();
        let (mut written, mut name_start, mut in_query) = (0, None, false);
        let mut at = 0;
        while at < decoded.bytes.len() {
            let byte = decoded.bytes[at];
            let name = name_start.map(|start: usize| &decoded.bytes[start..at]);
            if byte == b'=' && name.is_some_and(|name| self.is_hidden(name)) {
                let ends: &[u8] = if in_query { b"&" } else { b"/?#" };
                let is_end =
                    |end: &usize| decoded.raw(*end).is_some_and(|byte| ends.contains(&byte));
                let end = (at + 1..decoded.bytes.len()).find(is_end).unwrap_or(decoded.bytes.len());
                let (value, value_end) = (decoded.start(at + 1), decoded.start(end));
                if value < value_end {
                    out.extend_from_slice(&text[written..value]);
                    out.extend_from_slice(HIDDEN);
                    written = value_end;
                }
                (at, name_start) = (end, None);
                continue;
            }
            in_query |= matches!(decoded.raw(at), Some(b'?' | b'#'));
            // a value may hold parameters of its own
            let begins_name = matches!(byte, b'?' | b'&' | b';' | b'#' | b'=');
            if begins_name && !(byte == b'=' && name_start.is_none()) {
                name_start = Some(at + 1);
            } else if byte == b'/' {
                // a new segment of a path, or of an address within a value
                name_start = None;
            }
            at += 1;
        }
        if written == 0 {
            return Cow::Borrowed(text);
        }
        out.extend_from_slice(&text[written..]);
        Cow::Owned(out)
    }

    fn is_hidden(&self, name: &[u8]) -> bool {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = name.strip_prefix(b"\xef\xbb\xbf").unwrap_or(name);
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'+' | b'\t'..=b'\r');
        let blanks = name.iter().take_while(|byte| is_blank(byte)).count();
        let after = name[blanks..].iter().rev().take_while(|byte| is_blank(byte)).count();
        let name = &name[blanks..name.len() - after];
        let bracket = name.iter().position(|byte| *byte == b'[').filter(|at| *at > 0);
        let (whole, list) = (comparable(name), comparable(&name[..bracket.unwrap_or(name.len())]));
        self.names.iter().any(|known| *known == whole || *known == list)
    }
}

/// A name in the form in which applications may read it that ignore case, or differences between these
/// characters.
fn comparable(name: &[u8]) -> Vec<u8> {
    let one = |byte: &u8| match byte {
        b' ' | b'+' | b'.' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    name.iter().map(one).collect()
}

/// A text without its encodings, and the positions of its bytes in the original.
struct Decoded {
    bytes: Vec<u8>,
    /// Where each byte begins, and where the last one ends.
    starts: Vec<usize>,
}

impl Decoded {
    /// The decoded text; `None` if it is encoded more than [`MOST_LAYERS`] times.
    fn of(text: &[u8]) -> Option<Decoded> {
        let mut all = Decoded { bytes: text.to_vec(), starts: (0..=text.len()).collect() };
        for _ in 0..MOST_LAYERS {
            if !all.decode() {
                return Some(all);
            }
        }
        (!all.decode()).then_some(all)
    }

    /// Removes one layer of encoding; returns whether there was one.
    fn decode(&mut self) -> bool {
        let (mut from, mut to) = (0, 0);
        let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
        while from < self.bytes.len() {
            let code = || {
                let (high, low) =
                    (digit(self.bytes.get(from + 1))?, digit(self.bytes.get(from + 2))?);
                (self.bytes[from] == b'%').then_some((high << 4 | low) as u8)
            };
            let (byte, len) = code().map_or((self.bytes[from], 1), |byte| (byte, 3));
            (self.bytes[to], self.starts[to]) = (byte, self.starts[from]);
            (from, to) = (from + len, to + 1);
        }
        self.starts[to] = self.starts[from];
        self.bytes.truncate(to);
        self.starts.truncate(to + 1);
        from != to
    }

    fn start(&self, at: usize) -> usize {
        self.starts[at]
    }

    /// The byte at this position, if it is not encoded.
    fn raw(&self, at: usize) -> Option<u8> {
        (self.starts[at + 1] - self.starts[at] == 1).then(|| self.bytes[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redaction(query: bool, names: &[&str]) -> Redaction {
        let redact = names.iter().map(|name| Redacted::parse(name).unwrap()).collect();
        Redaction::of(&LogConfig { query, redact, ..LogConfig::default() }).unwrap_or_default()
    }

    fn said(redaction: &Redaction, address: &str) -> String {
        String::from_utf8_lossy(&redaction.address(address.as_bytes())).into_owned()
    }

    #[test]
    fn nothing_asked_for_is_nothing() {
        let log = LogConfig { query: true, ..LogConfig::default() };
        assert_eq!(Redaction::of(&log), None);
    }

    #[test]
    fn addresses_without_queries() {
        let redaction = redaction(false, &[]);
        for (address, expected) in [
            ("/a?token=1", "/a"),
            ("/a", "/a"),
            ("/a?", "/a"),
            ("/a#token=1", "/a"),
            ("http://a.example/x?y#z", "http://a.example/x"),
            ("/a%3Fb", "/a%3Fb"),
        ] {
            assert_eq!(said(&redaction, address), expected);
        }
        let value = redaction.field(Name::Referer, b"https://a.example/x?token=1");
        assert_eq!(&*value, b"https://a.example/x");
        assert_eq!(&*redaction.field(Name::UserAgent, b"a?b"), b"a?b");
    }

    #[test]
    fn a_parameter_is_found_however_it_is_written() {
        let redaction = redaction(true, &["query.token", "query.access_token"]);
        for (address, expected) in [
            ("/a?token=abc", "/a?token=***"),
            ("/a?token=abc&b=c", "/a?token=***&b=c"),
            ("/a?b=c&token=1&d=e&token=2", "/a?b=c&token=***&d=e&token=***"),
            ("/a?to%6ben=abc&x=1", "/a?to%6ben=***&x=1"),
            ("/a?%74%6F%6b%65%6e=abc", "/a?%74%6F%6b%65%6e=***"),
            ("/a?to%256ben=abc", "/a?to%256ben=***"),
            ("/a?TOKEN=abc", "/a?TOKEN=***"),
            ("/a?x=1;token=abc;y=2&z=3", "/a?x=1;token=***&z=3"),
            ("/a?token=a;b#c", "/a?token=***"),
            ("/a?token=a%26b=c", "/a?token=***"),
            ("/a?token=a=b&c", "/a?token=***&c"),
            ("/a?token=a/b&c", "/a?token=***&c"),
            ("/a?token%3Dabc&c", "/a?token%3D***&c"),
            (
                "/a?token[]=1&token[a][b]=2&token%5B0%5D=3",
                "/a?token[]=***&token[a][b]=***&token%5B0%5D=***",
            ),
            ("/a?+token=1&%20token=2&%0atoken=3", "/a?+token=***&%20token=***&%0atoken=***"),
            ("/a?token%00x=1&token+=2", "/a?token%00x=***&token+=***"),
            (
                "/a?access.token=1&access+token=2&access%5Btoken=3",
                "/a?access.token=***&access+token=***&access%5Btoken=***",
            ),
            ("/a#token=abc", "/a#token=***"),
            ("/a?x#token=abc", "/a?x#token=***"),
            ("/a;token=abc/b;c=d", "/a;token=***/b;c=d"),
            ("/a;x;token=abc;v=1?y=1", "/a;x;token=***?y=1"),
            ("/a%3btoken=abc/b", "/a%3btoken=***/b"),
            ("/a?next=%2Fx%3Ftoken%3Dabc%26b%3D1&c=2", "/a?next=%2Fx%3Ftoken%3D***&c=2"),
            ("/a?next=/x?token=abc&c=2", "/a?next=/x?token=***&c=2"),
            ("/a?next=%252Fx%253Ftoken%253Dabc&c=2", "/a?next=%252Fx%253Ftoken%253D***&c=2"),
            ("/a?state=token%3Dabc%26x&c=2", "/a?state=token%3D***&c=2"),
            ("http://a.example/x?token=abc", "http://a.example/x?token=***"),
            // other parameters stay as they are
            ("/a?token", "/a?token"),
            ("/a?token=", "/a?token="),
            ("/a?token=&b=c", "/a?token=&b=c"),
            ("/token=a?b=c", "/token=a?b=c"),
            ("/a?mytoken=1&tokens=2&token2=3", "/a?mytoken=1&tokens=2&token2=3"),
            ("/a?x=token&y=%zz%2", "/a?x=token&y=%zz%2"),
            ("/a?x=1%25&y=2", "/a?x=1%25&y=2"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(said(&redaction, address), expected);
        }
        let often = format!("/a?%{}74oken=abc", "25".repeat(9));
        assert_eq!(said(&redaction, &often), "/a***");
    }

    #[test]
    fn fields_are_hidden_by_name() {
        let redaction = redaction(true, &["header.Referer", "header.User-Agent"]);
        assert_eq!(&*redaction.field(Name::Referer, b"https://a.example/"), b"***");
        assert_eq!(&*redaction.field(Name::UserAgent, b"curl"), b"***");
        assert_eq!(said(&redaction, "/a?b=c"), "/a?b=c");
    }

    proptest! {
        /// The value does not appear, however a client writes it; an address without such a parameter
        /// stays as it is.
        #[test]
        fn no_value_of_a_parameter_is_left(
            front in "/[a-z/;%]{0,8}[?][a-z=;%]{0,8}",
            layers in 0..4_usize,
            encoded in prop::collection::vec(any::<bool>(), 5),
            value in "[A-Z]{6}[A-Z;=/#?%]{0,8}",
            separator in "[&;?#]",
            rest in "(&[a-z=]{0,8})?",
        ) {
            let redaction = redaction(true, &["query.token"]);
            let mut name = String::new();
            for (character, is_encoded) in "token".chars().zip(encoded) {
                match is_encoded {
                    true => name += &format!("%{}{:02x}", "25".repeat(layers), character as u32),
                    false => name.push(character),
                }
            }
            let said = said(&redaction, &format!("{front}{separator}{name}={value}{rest}"));
            prop_assert!(!said.contains(&value[..6]), "{}", said);
            prop_assert!(said.ends_with(&rest), "{}", said);
        }

        #[test]
        fn whatever_is_sent_is_read(text in prop::collection::vec(any::<u8>(), 0..60)) {
            let redaction = redaction(true, &["query.token"]);
            let _ = redaction.address(&text);
            let plain = redaction.address(&text);
            if !text.windows(5).any(|part| part.eq_ignore_ascii_case(b"token")) && !text.contains(&b'%') {
                prop_assert_eq!(&*plain, &text[..]);
            }
        }
    }
}
