//! The cookies of a first request, as far as its first segment shows them plainly.
//!
//! A whole cookie in the segment is seen, wherever the head ends. The absence of a cookie is certain only if
//! the segment has the whole head and all cookies in it are plain: short, few, and without blanks within.

use super::{Alternatives, Holds};
use crate::field::FieldCondition;

/// How many bytes of the segment are searched for cookies at most.
pub const MOST_HEAD: usize = 1536;
/// How many cookies are read at most.
pub const MOST_PAIRS: usize = 16;
/// The longest cookie that is read, with name and equals sign, in bytes.
pub const MOST_PAIR: usize = 63;

/// The cookies of a first request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstCookies<'s> {
    pairs: Vec<&'s [u8]>,
    /// Whether there are certainly no others.
    are_all: bool,
}

impl<'s> FirstCookies<'s> {
    /// Reads the cookies in the data of a segment that begins with a request line.
    pub fn read(data: &'s [u8]) -> FirstCookies<'s> {
        let data = &data[..data.len().min(MOST_HEAD)];
        let mut cookies = FirstCookies { pairs: Vec::new(), are_all: true };
        let mut lines = data.split_inclusive(|byte| *byte == b'\n').skip(1);
        loop {
            match lines.next() {
                Some(b"\r\n" | b"\n") => return cookies,
                Some(line) if line.starts_with(b"\r") => break,
                Some(line) => {
                    let is_whole = cookies.take_line(line);
                    if !is_whole {
                        break;
                    }
                }
                None => break,
            }
        }
        cookies.are_all = false;
        cookies
    }

    /// Reads the cookies in a line; `false` if the line does not end in the segment, or cannot be read to its
    /// end.
    fn take_line(&mut self, line: &'s [u8]) -> bool {
        let whole = line.strip_suffix(b"\n");
        let Some((name, value)) = line.split_at_checked(7) else { return whole.is_some() };
        if !name.eq_ignore_ascii_case(b"cookie:") {
            return whole.is_some();
        }
        let value = whole.map_or(value, |whole| &whole[7..]);
        let value =
            if whole.is_some() { value.strip_suffix(b"\r").unwrap_or(value) } else { value };
        // nothing is certain after a bare CR
        let end = value.iter().position(|byte| *byte == b'\r');
        let mut pairs = value[..end.unwrap_or(value.len())].split(|byte| *byte == b';');
        if whole.is_none() || end.is_some() {
            // the last cookie is cut off
            pairs.next_back();
        }
        pairs.for_each(|pair| self.take(pair));
        whole.is_some() && end.is_none()
    }

    fn take(&mut self, pair: &'s [u8]) {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let begin = pair.iter().position(|byte| !is_blank(byte)).unwrap_or(pair.len());
        let end = pair.iter().rposition(|byte| !is_blank(byte)).map_or(begin, |last| last + 1);
        let pair = &pair[begin..end];
        let is_odd = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
        let is_plain = pair.len() <= MOST_PAIR && !pair.iter().any(is_odd);
        match pair.is_empty() {
            true => {}
            false if is_plain && self.pairs.len() < MOST_PAIRS => self.pairs.push(pair),
            false => self.are_all = false,
        }
    }

    /// Whether one of the cookies matches one of these alternatives.
    pub fn hold(&self, asked: &Alternatives) -> Holds {
        let tried = self.pairs.iter().map(|pair| asked.hold(pair));
        match tried.max().unwrap_or(Holds::No) {
            Holds::No if !self.are_all || asked.needs_more => Holds::CannotTell,
            tried => tried,
        }
    }
}

/// The alternatives of a condition on cookies, if there is one: each is a whole cookie, or the beginning of
/// one.
pub(super) fn asked(conditions: &[FieldCondition]) -> Option<Alternatives> {
    let mut all = Alternatives::default();
    for condition in conditions {
        match condition.beginning() {
            None => all.needs_more = true,
            Some((value, is_prefix)) => {
                let name = condition.name().as_bytes();
                all.texts.push(([name, b"=", value].concat().into(), is_prefix));
                // a cookie without an equals sign has an empty value
                if value.is_empty() {
                    all.texts.push((name.into(), false));
                }
            }
        }
    }
    // a longer text cannot begin a cookie that is short enough to be read
    all.texts.retain(|(text, _)| text.len() <= MOST_PAIR);
    (!conditions.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, bool) {
        let data = format!("GET / HTTP/1.1\r\n{text}");
        let found = FirstCookies::read(data.as_bytes());
        let texts = found.pairs.iter().map(|pair| String::from_utf8_lossy(pair).into_owned());
        (texts.collect(), found.are_all)
    }

    #[test]
    fn cookies_are_seen_that_stand_there_whole() {
        let found = |pairs: &[&str], all| (pairs.iter().map(|&one| one.to_owned()).collect(), all);
        for (text, pairs, all) in [
            ("\r\n", &[][..], true),
            ("Host: a\r\n\r\n", &[], true),
            ("Host: a\r\n", &[], false),
            ("Cookie: a=b\r\n\r\n", &["a=b"], true),
            ("cOOKIE:a=b\r\n\r\n", &["a=b"], true),
            ("Cookie: a=b; c=d;e \r\n\r\n", &["a=b", "c=d", "e"], true),
            ("Cookie: a=b; c=d\r\n", &["a=b", "c=d"], false),
            ("Cookie: a=b; c=d", &["a=b"], false),
            ("Cookie: a=b", &[], false),
            ("Cookie: a=b\r", &[], false),
            ("Cookie: a=b\n\n", &["a=b"], true),
            ("Cookie: a=b\r\nX: y\r\nCookie: c=d\r\n\r\nCookie: e=f\r\n", &["a=b", "c=d"], true),
            ("Cookie: a = b; c=d\r\n\r\n", &["c=d"], false),
            ("Cookie: a=b\rc; d=e\r\n\r\n", &[], false),
            ("Cookie: a=b;;\r\n\r\n", &["a=b"], true),
            ("Cookies: a=b\r\n\r\n", &[], true),
            ("Cookie : a=b\r\n\r\n", &[], true),
            ("Cookie\r\n\r\n", &[], true),
            ("\rCookie: a=b\r\n\r\n", &[], false),
        ] {
            assert_eq!(read(text), found(pairs, all), "{text:?}");
        }
        let long = "x".repeat(MOST_PAIR - 2);
        let fits = read(&format!("Cookie: a={long}\r\n\r\n"));
        assert_eq!((fits.0.len(), fits.1), (1, true));
        assert_eq!(read(&format!("Cookie: a={long}x; b=c\r\n\r\n")), found(&["b=c"], false));
        let many =
            |count: usize| read(&format!("Cookie: {}\r\n\r\n", vec!["a=b"; count].join("; ")));
        assert_eq!((many(MOST_PAIRS).0.len(), many(MOST_PAIRS).1), (16, true));
        assert_eq!((many(MOST_PAIRS + 1).0.len(), many(MOST_PAIRS + 1).1), (16, false));
        let far = format!("X: {}\r\nCookie: a=b\r\n\r\n", "x".repeat(MOST_HEAD));
        assert_eq!(read(&far), found(&[], false));
    }

    #[test]
    fn what_is_told_is_what_the_whole_head_says() {
        let holds = |condition: &str, cookies: &str| {
            let data = format!("GET / HTTP/1.1\r\n{cookies}\r\n");
            let asked = asked(&[FieldCondition::parse(condition).unwrap()]).unwrap();
            FirstCookies::read(data.as_bytes()).hold(&asked)
        };
        for (condition, cookies, expected) in [
            ("tier=gold", "Cookie: a=b; tier=gold\r\n", Holds::Yes),
            ("tier=gold", "Cookie: tier=golden\r\n", Holds::No),
            ("tier=gold", "Cookie: Tier=gold\r\n", Holds::No),
            ("tier=go*", "Cookie: tier=golden\r\n", Holds::Yes),
            ("tier=*d", "Cookie: tier=gold\r\n", Holds::CannotTell),
            ("tier=~^g", "Cookie: tier=gold\r\n", Holds::CannotTell),
            ("tier", "Cookie: tier\r\n", Holds::Yes),
            ("tier", "Cookie: tier=x\r\n", Holds::Yes),
            ("tier", "Cookie: tiers=x\r\n", Holds::No),
            ("tier=", "Cookie: tier\r\n", Holds::Yes),
            ("tier=", "Cookie: tier=x\r\n", Holds::No),
            ("tier=gold", "Cookie: tier = gold\r\n", Holds::CannotTell),
            ("tier=gold", "", Holds::No),
        ] {
            assert_eq!(holds(condition, cookies), expected, "{condition} {cookies}");
        }
    }
}
