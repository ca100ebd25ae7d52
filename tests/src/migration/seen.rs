//! The answers of a server as a client sees them, taken apart into what can be compared.

use crate::answer::Answer;
use crate::wire;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// A request, and the name of one aspect of its answer.
pub(super) type Aspect = (String, String);

/// The answers of one server.
#[derive(Debug, Default)]
pub struct Seen(pub(super) BTreeMap<Aspect, String>);

/// Fields that no client acts on, or that concern the connection alone.
const UNSEEN: [&str; 8] = [
    "Server",
    "Date",
    "Connection",
    "Keep-Alive",
    "Transfer-Encoding",
    "Content-Length",
    "X-Request-Id",
    "X-Powered-By",
];

impl Seen {
    /// Notes one aspect.
    ///
    /// # Panics
    /// If that was noted already.
    pub fn note(&mut self, asked: &str, seen: &str, value: impl Into<String>) {
        // the value as it can stand in a cell of a table
        let value = value.into().replace('|', "/").replace('`', "'");
        let before = self.0.insert((asked.to_owned(), seen.to_owned()), value);
        assert!(before.is_none(), "{asked}, {seen}: twice");
    }

    /// Sends a request by HTTP/1.1 and notes the whole answer, under `METHOD TARGET` and the fields.
    pub fn ask(&mut self, addr: SocketAddr, line: &str, fields: &[&str], body: &[u8]) -> Answer {
        let asked = [&[line], fields].concat().join(", ");
        self.ask_as(&asked, addr, line, fields, body)
    }

    /// Sends a request and notes the answer under another name.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn ask_as(
        &mut self,
        asked: &str,
        addr: SocketAddr,
        line: &str,
        fields: &[&str],
        body: &[u8],
    ) -> Answer {
        let bytes = wire::exchange(addr, &request(line, fields, body));
        let answer = whole(&bytes, line.starts_with("HEAD "));
        let answer = answer.unwrap_or_else(|error| panic!("{asked}: {error}"));
        self.note_answer(asked, &answer, line.starts_with("HEAD "));
        answer
    }

    /// Notes status, fields and body of an answer.
    pub fn note_answer(&mut self, asked: &str, answer: &Answer, is_head: bool) {
        self.note(asked, "status", answer.status.to_string());
        let names: BTreeSet<String> =
            answer.fields.iter().map(|(name, _)| canonical(name)).collect();
        for name in names.iter().filter(|name| !UNSEEN.contains(&&***name)) {
            let values: Vec<&str> = answer.values(name).collect();
            self.note(asked, name, seen_value(name, &values.join(", ")));
        }
        if is_head && answer.status < 300 {
            let length = answer.value("Content-Length").unwrap_or("none");
            self.note(asked, "Content-Length", length);
        } else if !is_head && !(300..400).contains(&answer.status) {
            let is_coded = answer.value("Content-Encoding").is_some();
            let body = if is_coded { "compressed".to_owned() } else { seen_body(&answer.body) };
            self.note(asked, "body", body);
        }
    }
}

/// Writes `content-type` as `Content-Type`.
fn canonical(name: &str) -> String {
    let words = name.split('-').map(|word| match word.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + &rest.to_ascii_lowercase(),
        None => String::new(),
    });
    words.collect::<Vec<_>>().join("-").replace("Etag", "ETag").replace("Www-", "WWW-")
}

/// The meaning of a value to a client: the target of a link, the kind of a tag.
fn seen_value(name: &str, value: &str) -> String {
    match name {
        // a server may say whole addresses of its own, or paths: clients go to the same place
        "Location" => own_address(value),
        // tags of files are a server's own; those of applications are passed on
        "ETag" if !value.contains("app") => {
            (if value.starts_with("W/") { "weak" } else { "strong" }).to_owned()
        }
        _ => value.to_owned(),
    }
}

/// A URL of `http://example.com` as a path, whatever the port, and one of `https://` without its port:
/// the test uses other ports than 80 and 443.
fn own_address(value: &str) -> String {
    for (scheme, begin) in
        [("http://example.com", ""), ("https://example.com", "https://example.com")]
    {
        match value.strip_prefix(scheme) {
            Some(rest) if rest.is_empty() || rest.starts_with([':', '/']) => {
                return begin.to_owned() + rest.find('/').map_or("/", |at| &rest[at..]);
            }
            _ => {}
        }
    }
    value.to_owned()
}

/// A body, or a description of it.
fn seen_body(body: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(body) else { return brief(body) };
    match text {
        _ if text.contains("<center>nginx") || text.ends_with("</main>\n</body>\n</html>\n") => {
            "a page of its own".to_owned()
        }
        _ if text.len() <= 600 => text.trim_end().replace('\n', " ⏎ "),
        _ => brief(body),
    }
}

fn brief(body: &[u8]) -> String {
    let sum =
        body.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    format!("{} bytes, {sum:016x}", body.len())
}

/// The bytes of a request for `http://example.com`, which asks for the connection to be closed.
pub fn request(line: &str, fields: &[&str], body: &[u8]) -> Vec<u8> {
    let has = |name: &str| {
        fields
            .iter()
            .any(|field| field.to_ascii_lowercase().starts_with(&name.to_ascii_lowercase()))
    };
    let mut head = format!("{line} HTTP/1.1\r\n");
    if !has("Host:") {
        head += "Host: example.com\r\n";
    }
    if !has("Connection:") {
        head += "Connection: close\r\n";
    }
    for field in fields {
        head = head + field + "\r\n";
    }
    let is_sized = has("Content-Length:") || has("Transfer-Encoding:");
    if !is_sized && (!body.is_empty() || line.starts_with("POST ")) {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// The answer on a connection that was read to its end, with its body without chunks.
///
/// # Errors
/// If it is malformed or not whole.
pub fn whole(bytes: &[u8], is_head: bool) -> Result<Answer, String> {
    let mut rest = bytes;
    let mut hints = Vec::new();
    let mut answer = loop {
        let said = || String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
        let (answer, length) =
            Answer::parse_head(rest)?.ok_or_else(|| format!("no whole head: {:?}", said()))?;
        rest = &rest[length..];
        if answer.status >= 200 {
            break answer;
        }
        hints.push(("Interim".to_owned(), answer.status.to_string()));
    };
    answer.fields.extend(hints);
    if is_head || answer.never_has_body() {
        return Ok(answer);
    }
    if answer.value("Transfer-Encoding") == Some("chunked") {
        (answer.body, rest) = unchunked(rest)?;
        for line in String::from_utf8_lossy(rest).lines().filter(|line| !line.is_empty()) {
            answer.fields.push(("Trailers".to_owned(), line.to_owned()));
        }
    } else {
        let length = answer.value("Content-Length").and_then(|length| length.parse().ok());
        if length.is_some_and(|length: usize| length != rest.len()) {
            return Err(format!("cut: {} bytes of {length:?}", rest.len()));
        }
        answer.body = rest.to_vec();
    }
    Ok(answer)
}

/// The body in chunks, and the trailers behind it.
fn unchunked(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut body = Vec::new();
    loop {
        let end =
            rest.windows(2).position(|pair| pair == b"\r\n").ok_or("cut: no size of a chunk")?;
        let digits = String::from_utf8_lossy(&rest[..end]).into_owned();
        let size =
            usize::from_str_radix(&digits, 16).map_err(|_| format!("chunk of {digits:?}"))?;
        rest = &rest[end + 2..];
        if size == 0 {
            return match rest.ends_with(b"\r\n") {
                true => Ok((body, rest)),
                false => Err("cut: no end of the chunks".to_owned()),
            };
        }
        body.extend_from_slice(rest.get(..size).ok_or("cut: within a chunk")?);
        rest = rest.get(size + 2..).ok_or("cut: behind a chunk")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_as_it_was_before_it_was_cut() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = whole(format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").as_bytes(), false);
        assert_eq!(answer.unwrap().body, b"abcde");
        let answer = whole(format!("{head}3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n").as_bytes(), false);
        assert_eq!(answer.unwrap().value("Trailers"), Some("X-Sum: 42"));
        for cut in ["", "3\r\nab", "3\r\nabc\r\n", "3\r\nabc\r\n0\r\n", "x\r\n"] {
            assert!(whole(format!("{head}{cut}").as_bytes(), false).is_err(), "{cut:?}");
        }
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc";
        assert!(whole(cut, false).unwrap_err().contains("cut"));
        assert!(whole(cut, true).is_ok());
    }
}
