//! Answers read strictly, with the rules that hold for every answer of every server.

use crate::wire::PATIENCE;
use httpdate::parse_http_date;
use regex_lite::Regex;
use std::sync::LazyLock;
use std::time::SystemTime;

/// An answer as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The first line, without CR LF.
    pub status_line: String,
    /// The three digits of the status.
    pub status: u16,
    /// The fields, each with its name as sent and its value without surrounding blanks.
    pub fields: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

static STATUS_LINE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^HTTP/1\.[01] ([1-5][0-9][0-9]) [\x20-\x7e]*$").unwrap());
static FIELD_LINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)$").unwrap()
});
static ENTITY_TAG: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"^(W/)?"[\x21\x23-\x7e]*"$"#).unwrap());
static IMF_FIXDATE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-3][0-9] (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} [0-2][0-9]:[0-5][0-9]:[0-6][0-9] GMT$").unwrap()
});

impl Answer {
    /// Parses the head at the start of `bytes`; `None` if it is not complete yet. The second value
    /// is the head's length. The body is empty.
    ///
    /// # Errors
    /// The part of the head that is malformed.
    pub fn parse_head(bytes: &[u8]) -> Result<Option<(Answer, usize)>, String> {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return if bytes.len() > 64 * 1024 {
                Err("the head does not end".into())
            } else {
                Ok(None)
            };
        };
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| "the head is not text")?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let Some(found) = STATUS_LINE.captures(status_line) else {
            return Err(format!("malformed status line {status_line:?}"));
        };
        let status = found[1].parse().map_err(|_| "the status is not a number")?;
        let mut fields = Vec::new();
        for line in lines {
            let Some(found) = FIELD_LINE.captures(line) else {
                return Err(format!("malformed field line {line:?}"));
            };
            fields.push((found[1].to_owned(), found[2].trim_end().to_owned()));
        }
        let status_line = status_line.to_owned();
        Ok(Some((Answer { status_line, status, fields, body: Vec::new() }, end + 4)))
    }

    /// The values of a field, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a field, if it is there.
    pub fn value<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.values(name).next()
    }

    /// Whether this status never has a body (RFC 9112 §6.3).
    pub fn never_has_body(&self) -> bool {
        matches!(self.status, 100..=199 | 204 | 304)
    }

    /// The number of bytes of body behind the head, unless the answer is to HEAD.
    ///
    /// # Errors
    /// If Content-Length is missing, repeated or not a number.
    pub fn body_len(&self) -> Result<usize, String> {
        if self.never_has_body() {
            return Ok(0);
        }
        let lengths: Vec<&str> = self.values("Content-Length").collect();
        let [length] = lengths[..] else {
            return Err(format!("{} Content-Length fields", lengths.len()));
        };
        length.parse().map_err(|_| format!("Content-Length {length:?} is not a number"))
    }

    /// The faults of this answer regardless of the request: the rules of RFC 9110 and 9112 that hold for
    /// every answer of an origin server with a clock.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut wrong = |is_wrong: bool, what: &str| {
            if is_wrong {
                faults.push(what.to_owned());
            }
        };
        if self.status < 200 {
            wrong(self.value("Content-Length").is_some(), "an interim answer has Content-Length");
            return faults;
        }
        wrong(self.repeats_a_field(), "a field is repeated");
        wrong(self.value("Transfer-Encoding").is_some(), "a sized answer has Transfer-Encoding");
        let date = self.value("Date");
        wrong(date.is_none() && self.status < 500, "Date is missing (RFC 9110 §6.6.1)");
        wrong(date.is_some_and(|date| !is_imf_fixdate(date)), "Date is not an IMF-fixdate");
        wrong(date.is_some_and(is_off), "Date is not now");
        let modified = self.value("Last-Modified");
        wrong(modified.is_some_and(|m| !is_imf_fixdate(m)), "Last-Modified is malformed");
        wrong(is_later(modified, date), "Last-Modified is later than Date (RFC 9110 §8.8.2.1)");
        wrong(
            self.value("ETag").is_some_and(|tag| !ENTITY_TAG.is_match(tag)),
            "ETag is not an entity-tag (RFC 9110 §8.8.3)",
        );
        wrong(self.status == 405 && self.value("Allow").is_none(), "405 without Allow");
        let content_range = self.value("Content-Range").unwrap_or_default();
        let multipart =
            self.value("Content-Type").is_some_and(|t| t.starts_with("multipart/byteranges"));
        wrong(
            self.status == 206 && multipart == content_range.starts_with("bytes "),
            "206 needs Content-Range or multipart/byteranges, not both",
        );
        wrong(
            self.status == 416 && !content_range.starts_with("bytes */"),
            "416 without the length",
        );
        wrong(
            !matches!(self.status, 206 | 416) && !content_range.is_empty(),
            "Content-Range out of place",
        );
        let varies =
            self.value("Vary").is_some_and(|v| v.to_ascii_lowercase().contains("accept-encoding"));
        wrong(
            self.value("Content-Encoding").is_some() && !varies,
            "coded, but Vary does not say so",
        );
        wrong(
            self.status == 204 && self.value("Content-Length").is_some(),
            "204 with Content-Length",
        );
        wrong(
            !self.body.is_empty() && self.value("Content-Type").is_none(),
            "a body without Content-Type",
        );
        let connection = self.value("Connection").unwrap_or("close");
        wrong(!["close", "keep-alive"].contains(&connection), "Connection says something odd");
        faults
    }

    fn repeats_a_field(&self) -> bool {
        self.fields.iter().any(|(name, _)| self.values(name).count() > 1)
    }
}

fn is_imf_fixdate(date: &str) -> bool {
    IMF_FIXDATE.is_match(date) && parse_http_date(date).is_ok()
}

/// Whether a date is too far from now: the clock that wrote it is ours, so an old date was kept.
fn is_off(date: &str) -> bool {
    let off = parse_http_date(date).map(|then| SystemTime::now().duration_since(then));
    // a date in the future is off too
    off.is_ok_and(|off| off.map_or(true, |off| off > PATIENCE * 2))
}

fn is_later(modified: Option<&str>, date: Option<&str>) -> bool {
    match (modified.map(parse_http_date), date.map(parse_http_date)) {
        (Some(Ok(modified)), Some(Ok(date))) => modified > date,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use httpdate::fmt_http_date;

    fn answer(text: &str) -> Answer {
        Answer::parse_head(text.replace('\n', "\r\n").as_bytes()).unwrap().unwrap().0
    }

    fn good() -> String {
        let date = fmt_http_date(SystemTime::now());
        format!("HTTP/1.1 200 OK\nDate: {date}\nContent-Length: 0\nETag: \"a\"\n\n")
    }

    #[test]
    fn a_good_answer_has_no_faults() {
        assert_eq!(answer(&good()).faults(), [""; 0]);
        assert_eq!(answer(&good()).body_len(), Ok(0));
    }

    #[test]
    fn each_fault_is_found() {
        for (from, to) in [
            ("Date: ", "Dat: "),
            (" GMT", " UTC"),
            (" 20", " 19"),
            ("ETag: \"a\"", "ETag: a"),
            ("ETag: \"a\"", "Content-Length: 0"),
            ("ETag: \"a\"", "Last-Modified: Tue, 29 Feb 2124 12:00:01 GMT"),
            ("ETag: \"a\"", "Content-Encoding: br"),
            ("ETag: \"a\"", "Content-Range: bytes 0-0/1"),
            ("ETag: \"a\"", "Transfer-Encoding: chunked"),
            ("200 OK", "206 Partial Content"),
            ("200 OK", "405 Method Not Allowed"),
            ("200 OK", "416 Range Not Satisfiable"),
            ("200 OK", "204 No Content"),
        ] {
            assert_eq!(answer(&good().replace(from, to)).faults().len(), 1, "{to}");
        }
    }

    #[test]
    fn malformed_heads_are_refused() {
        for text in [
            "HTTP/1.1 200 OK\nA : b\n\n",
            "HTTP/1.1 200 OK\nA: b\n c\n\n",
            "HTTP/1.1 200\n\n",
            "HTTP/1.1 200 OK\nA: b\u{1}\n\n",
        ] {
            assert!(Answer::parse_head(text.replace('\n', "\r\n").as_bytes()).is_err(), "{text}");
        }
        assert_eq!(Answer::parse_head(b"HTTP/1.1 200 OK\r\n"), Ok(None));
    }
}
