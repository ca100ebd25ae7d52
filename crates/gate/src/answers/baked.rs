//! Answers in the kernel's form: pieces with their checksums.

use super::error::LearnError;
use super::raw::{
    ANSWER_BYTES, NAME_BYTES, OBJECT_TEXT, PIECE_BODY, PIECE_KEPT, PIECE_LAST, PIECE_NOT_MODIFIED,
    PIECE_OK, PIECES, RawAnswerKey, RawDate, RawObject, RawPiece, TAG_BYTES, VARIANTS,
};
use crate::pages::sum;
use forebay_http::coding::Coding;
use forebay_http::date;
use std::net::SocketAddr;

/// The key of an answer: listener, host and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnswerName<'a> {
    /// The address that the listener is bound to.
    pub listener: SocketAddr,
    /// The value of the `Host` field in lower case, with its port if there is one.
    pub host: &'a [u8],
    /// The target of the request, byte by byte, without a query.
    pub path: &'a [u8],
}

/// An answer in all the variants that the server would choose from.
#[derive(Clone, Copy, Debug)]
pub struct KernelAnswer<'a> {
    /// The most requests of one connection; the answer to the last one closes it.
    pub requests: u32,
    /// The timeout in `Keep-Alive`, in seconds; 0 for no such field.
    pub timeout_s: u32,
    /// The variants in the server's order, each coding once.
    pub variants: &'a [KernelVariant<'a>],
}

/// A variant of an answer.
#[derive(Clone, Copy, Debug)]
pub struct KernelVariant<'a> {
    /// The content coding, or [`Coding::Identity`].
    pub coding: Coding,
    /// The size that the server compares when a client prefers two codings equally
    /// ([`choose`](forebay_http::coding::Preference::choose)).
    pub compared_bytes: u64,
    /// The bytes to send; `None` if only the server can send the variant. A request for which it would be
    /// chosen is left to the server then.
    pub sent: Option<SentVariant<'a>>,
}

/// The bytes of a variant that the kernel sends.
#[derive(Clone, Copy, Debug)]
pub struct SentVariant<'a> {
    /// Status line and all fields of a 200, each ended by CR LF, except `Date`, `Connection` and
    /// `Keep-Alive`, which follow in this order.
    pub lines: &'a [u8],
    /// Status line and fields of a 304, in the same form.
    pub not_modified: &'a [u8],
    /// The value of `ETag`; empty for none. Without one, requests with `If-None-Match` are left to the
    /// server.
    pub etag: &'a [u8],
    /// The body of a 200, in this coding.
    pub body: &'a [u8],
}

const LAST: &[u8] = b"\r\nConnection: close\r\n\r\n";

impl AnswerName<'_> {
    /// Makes the key of the kernel's table.
    ///
    /// # Errors
    /// [`LearnError::Name`].
    pub(crate) fn key(&self, listener: u32) -> Result<RawAnswerKey, LearnError> {
        let is_of_host = |byte: &u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:[]".contains(byte)
        };
        let is_of_path = |byte: &u8| byte.is_ascii_graphic() && !b"?#".contains(byte);
        let is_plain = !self.host.is_empty()
            && self.host.iter().all(is_of_host)
            && self.path.first() == Some(&b'/')
            && self.path.iter().all(is_of_path);
        let all = self.host.len() + self.path.len();
        if !is_plain || all > NAME_BYTES {
            return Err(LearnError::Name);
        }
        let mut key = RawAnswerKey {
            listener,
            host_bytes: self.host.len() as u16,
            path_bytes: self.path.len() as u16,
            ..RawAnswerKey::default()
        };
        key.text[..self.path.len()].copy_from_slice(self.path);
        key.text[self.path.len()..all].copy_from_slice(self.host);
        Ok(key)
    }
}

/// The variants in the order in which the program takes the first of those that a client prefers most: the
/// smallest body first, and the server's order among equals.
pub(crate) fn in_order<'a>(
    variants: &'a [KernelVariant<'a>],
) -> Result<Vec<KernelVariant<'a>>, LearnError> {
    let mut ordered = variants.to_vec();
    ordered.sort_by_key(|variant| variant.compared_bytes);
    let is_twice = |at: usize| ordered[..at].iter().any(|one| one.coding == ordered[at].coding);
    if ordered.len() > VARIANTS || (0..ordered.len()).any(is_twice) {
        return Err(LearnError::Head("it has a coding twice"));
    }
    Ok(ordered)
}

/// One variant in the form that the kernel sends; `None` if it is too large.
pub(crate) fn object(
    number: u32,
    timeout_s: u32,
    sent: &SentVariant<'_>,
) -> Result<Option<Box<RawObject>>, LearnError> {
    check_lines(sent.lines, b"HTTP/1.1 200 ")?;
    if !sent.not_modified.is_empty() {
        check_lines(sent.not_modified, b"HTTP/1.1 304 ")?;
    }
    let kept = match timeout_s {
        0 => b"\r\n\r\n".to_vec(),
        s => format!("\r\nConnection: keep-alive\r\nKeep-Alive: timeout={s}\r\n\r\n").into_bytes(),
    };
    let [ok, not_modified] =
        [sent.lines, sent.not_modified].map(|lines| [lines, b"Date: "].concat());
    let end = kept.len().max(LAST.len());
    let heads = ok.len().max(not_modified.len()) + date::IMF_LEN + end;
    let all = ok.len() + date::IMF_LEN + end + sent.body.len();
    if heads > ANSWER_BYTES || all > ANSWER_BYTES {
        return Ok(None);
    }
    let mut object = Box::new(RawObject { number, ..RawObject::default() });
    let tag = opaque(sent.etag).filter(|_| !sent.not_modified.is_empty());
    if let Some(tag) = tag {
        object.tag_bytes = tag.len() as u32;
        object.tag[..tag.len()].copy_from_slice(tag);
    }
    let mut pieces: [&[u8]; PIECES] = [b""; PIECES];
    (pieces[PIECE_OK], pieces[PIECE_NOT_MODIFIED]) = (&ok, &not_modified);
    (pieces[PIECE_KEPT], pieces[PIECE_LAST]) = (&kept, LAST);
    pieces[PIECE_BODY] = sent.body;
    let mut at = 0;
    for (piece, bytes) in object.pieces.iter_mut().zip(pieces) {
        *piece = RawPiece { at: at as u16, bytes: bytes.len() as u16, sum: sum(bytes) };
        object.text[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    // the program masks the offset of a piece to the first half of the text, to show the verifier a bound
    if usize::from(object.pieces[PIECE_BODY].at) >= OBJECT_TEXT / 2 {
        return Ok(None);
    }
    Ok(Some(object))
}

/// Checks that `lines` are a head with this status, without the fields that the kernel adds.
fn check_lines(lines: &[u8], status: &[u8]) -> Result<(), LearnError> {
    if !lines.starts_with(status) {
        return Err(LearnError::Head("it has another status"));
    }
    if !lines.ends_with(b"\r\n") || lines.windows(4).any(|four| four == b"\r\n\r\n") {
        return Err(LearnError::Head("its lines are not those before Date"));
    }
    let names = lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some(&line[..colon])
    });
    for name in names {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("date") || is("connection") || is("keep-alive") || is("transfer-encoding") {
            return Err(LearnError::Head("it has a field that the kernel adds"));
        }
    }
    Ok(())
}

/// The text between the quotes of an entity tag, if the program can compare it.
fn opaque(etag: &[u8]) -> Option<&[u8]> {
    let quoted = etag.strip_prefix(b"W/").unwrap_or(etag);
    let inside = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'"';
    let fits = (1..TAG_BYTES).contains(&inside.len());
    (fits && inside.iter().all(is_plain)).then_some(inside)
}

/// The value of `Date` at this second.
pub(crate) fn date(unix_s: u64) -> RawDate {
    let mut value = RawDate::default();
    let text = date::format(unix_s);
    value.text[..text.len()].copy_from_slice(&text);
    value.sum = sum(&text);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<'a>(host: &'a str, path: &'a str) -> AnswerName<'a> {
        let listener = "127.0.0.1:80".parse().unwrap();
        AnswerName { listener, host: host.as_bytes(), path: path.as_bytes() }
    }

    const SENT: SentVariant<'_> = SentVariant {
        lines: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        not_modified: b"HTTP/1.1 304 Not Modified\r\n",
        etag: b"W/\"abc\"",
        body: b"hello",
    };

    #[test]
    fn names_are_plain() {
        let key = name("a.example:80", "/%41").key(7).unwrap();
        assert_eq!((key.listener, key.host_bytes, key.path_bytes), (7, 12, 4));
        assert_eq!(&key.text[..17], b"/%41a.example:80\0");
        let longest = format!("/{}", "p".repeat(NAME_BYTES - 2));
        assert!(name("a", &longest).key(1).is_ok());
        assert!(name("ab", &longest).key(1).is_err());
        for (host, path) in
            [("", "/"), ("A", "/"), ("a", ""), ("a", "x"), ("a", "/?"), ("a", "/ "), ("a\0", "/")]
        {
            assert!(name(host, path).key(1).is_err(), "{host} {path}");
        }
    }

    #[test]
    fn an_object_holds_its_pieces() {
        let object = object(9, 5, &SENT).unwrap().unwrap();
        let piece = |which: usize| {
            let RawPiece { at, bytes, .. } = object.pieces[which];
            let at = usize::from(at);
            std::str::from_utf8(&object.text[at..at + usize::from(bytes)]).unwrap()
        };
        assert_eq!(piece(PIECE_OK), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: ");
        assert_eq!(piece(PIECE_NOT_MODIFIED), "HTTP/1.1 304 Not Modified\r\nDate: ");
        let kept = "\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n";
        assert_eq!((piece(PIECE_KEPT), piece(PIECE_BODY)), (kept, "hello"));
        assert_eq!(piece(PIECE_LAST).as_bytes(), LAST);
        assert_eq!((object.number, object.tag_bytes, &object.tag[..4]), (9, 3, &b"abc\0"[..]));
    }

    #[test]
    fn what_no_segment_holds_is_not_sent() {
        let body = vec![b'x'; ANSWER_BYTES];
        for (bytes, fits) in [(1300, true), (1354, true), (1355, false), (ANSWER_BYTES, false)] {
            let sent = SentVariant { body: &body[..bytes], ..SENT };
            assert_eq!(object(1, 0, &sent).unwrap().is_some(), fits, "{bytes}");
        }
        for lines in [
            &b"HTTP/1.1 404 Not Found\r\n"[..],
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ndate: x\r\n",
        ] {
            assert!(object(1, 0, &SentVariant { lines, ..SENT }).is_err());
        }
        // a tag that the program cannot compare leaves conditions to the server
        for etag in [&b"\"\xfc\""[..], b"", b"\"\"", b"x"] {
            let object = object(1, 0, &SentVariant { etag, ..SENT }).unwrap().unwrap();
            assert_eq!(object.tag_bytes, 0);
        }
    }

    #[test]
    fn the_smallest_body_comes_first() {
        let of = |coding, compared_bytes| KernelVariant { coding, compared_bytes, sent: None };
        let variants = [of(Coding::Identity, 9), of(Coding::Gzip, 5), of(Coding::Br, 5)];
        let ordered: Vec<Coding> =
            in_order(&variants).unwrap().iter().map(|one| one.coding).collect();
        assert_eq!(ordered, [Coding::Gzip, Coding::Br, Coding::Identity]);
        assert!(in_order(&[of(Coding::Gzip, 1), of(Coding::Gzip, 2)]).is_err());
    }
}
