//! The head of an upstream's answer, rewritten for the client: bounded and checked, without fields
//! for the connection to the upstream, and with addresses that lead to this server.

mod moved;

pub use moved::Moved;

use forebay_http::decimal;
use forebay_http::head::{Lines, Version};
use forebay_http::response::{
    BodyFraming, ParsedResponse, Response, ResponseContext, ResponseError, ResponseHeadLimits,
};
use std::borrow::Cow;

/// The field of an answer with the milliseconds that the request has waited before it was worked on.
pub const DELAY: &str = "Forebay-Delay";

/// The field by which a stage reports that the agent has refused a request there.
pub const REFUSED: &str = "Forebay-Refused";

/// The largest number of interim answers to one request. An upstream that sends nothing else would
/// keep it for ever.
const MOST_INTERIM: u8 = 32;

/// Reads the heads that answer one request: interim ones, up to a limit, then the final one.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    asked: ResponseContext,
    limits: ResponseHeadLimits,
    interim: u8,
}

/// The result of reading some bytes.
#[derive(Debug)]
pub enum HeadRead<'h> {
    /// The head is not complete; it must be passed again with what follows.
    More,
    /// An interim answer, which another one follows (`100 Continue`, `103 Early Hints`).
    Interim(Response<'h>),
    /// The final answer.
    Final(Response<'h>),
}

impl ResponseReader {
    /// A reader for the answer to one request.
    pub fn new(asked: ResponseContext, limits: ResponseHeadLimits) -> ResponseReader {
        ResponseReader { asked, limits, interim: 0 }
    }

    /// Reads the head at the start of `bytes`, which is where the last one ended.
    ///
    /// # Errors
    /// Why the upstream cannot be understood. The client gets 502.
    pub fn read<'h>(
        &mut self,
        bytes: &'h [u8],
        lines: &'h mut Lines<'h>,
    ) -> Result<HeadRead<'h>, ResponseError> {
        match Response::parse(bytes, lines, self.asked, &self.limits)? {
            ParsedResponse::Partial => Ok(HeadRead::More),
            ParsedResponse::Complete(head) if head.is_interim() => {
                self.interim += 1;
                match self.interim > MOST_INTERIM {
                    true => Err(ResponseError::Malformed("there are too many interim answers")),
                    false => Ok(HeadRead::Interim(head)),
                }
            }
            ParsedResponse::Complete(head) => Ok(HeadRead::Final(head)),
        }
    }
}

/// Instructions of an answer to this proxy, and what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes<'h> {
    /// The path of the site whose file is sent instead (`X-Accel-Redirect`).
    pub accel_redirect: Option<&'h [u8]>,
    /// Whether the answer may be held back until there is more of it (`X-Accel-Buffering`).
    pub buffering: Option<bool>,
    /// Whether the answer has a `Date`, which is kept.
    pub has_date: bool,
    /// Whether the answer has a `Server`, which is kept.
    pub has_server: bool,
}

/// The fields that may be in an answer only once (RFC 9110, 9111; RFC 6797 §7.1; RFC 6266 §4.1), in
/// lower case. CORS fields are not among them: a browser refuses an answer that has one twice, and
/// must not get just one of the two.
const SINGLE: [&str; 13] = [
    "age",
    "content-disposition",
    "content-location",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "location",
    "retry-after",
    "server",
    "strict-transport-security",
];

/// The single fields by the length of their names: a bit for each.
const OF_LENGTH: [u16; 32] = {
    let (mut of_length, mut at) = ([0; 32], 0);
    while at < SINGLE.len() {
        of_length[SINGLE[at].len()] |= 1 << at;
        at += 1;
    }
    of_length
};

/// The single fields that were seen.
#[derive(Default)]
struct SeenSingles(u16);

impl SeenSingles {
    /// Whether this is a single field that was seen before.
    fn is_again(&mut self, name: &str) -> bool {
        // at most two of them have the same length, and most names have another length
        let mut left = OF_LENGTH.get(name.len()).copied().unwrap_or_default();
        while left != 0 {
            let (at, bit) = (left.trailing_zeros() as usize, left & left.wrapping_neg());
            if SINGLE[at].eq_ignore_ascii_case(name) {
                let was_seen = self.0 & bit != 0;
                self.0 |= bit;
                return was_seen;
            }
            left ^= bit;
        }
        false
    }
}

/// Passes the fields for the client to `each`, in order. Fields that frame the body are not among
/// them: see [`Framed`]. Of a field that may be there only once, the first counts, as in nginx: what
/// a client makes of two is unknown.
pub fn fields<'h>(
    response: &Response<'h>,
    moved: Option<&Moved<'_>>,
    mut each: impl FnMut(&'h str, Cow<'h, [u8]>),
) -> Notes<'h> {
    let mut notes = Notes::default();
    let mut singles = SeenSingles::default();
    for (name, value) in response.fields() {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        // the length rules out most names before any comparison
        match name.len() {
            _ if singles.is_again(name) => continue,
            2 if is("te") => continue,
            4 if is("date") => notes.has_date = true,
            6 if is("server") => notes.has_server = true,
            7 if is("trailer") && response.body != BodyFraming::Chunked => continue,
            7 if is("upgrade") && response.body != BodyFraming::Upgraded => continue,
            10 if is("connection") || is("keep-alive") => continue,
            13 if is(DELAY) => continue,
            15 if is(REFUSED) => continue,
            14 if is("content-length") => continue,
            16 if is("x-accel-redirect") => {
                // the first counts, as with single fields
                notes.accel_redirect.get_or_insert(value);
                continue;
            }
            17 if is("transfer-encoding") => continue,
            17 if is("x-accel-buffering") => {
                notes.buffering = match value {
                    _ if value.eq_ignore_ascii_case(b"no") => Some(false),
                    _ if value.eq_ignore_ascii_case(b"yes") => Some(true),
                    _ => None,
                };
                continue;
            }
            6.. if begins(name, "proxy-") || begins(name, "x-accel-") => continue,
            _ => {}
        }
        if response.names_fields
            && options(response).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
        {
            continue;
        }
        let rewritten = moved.and_then(|moved| match name.len() {
            8 if is("location") => moved.address(value),
            7 if is("refresh") => moved.refresh(value),
            10 if is("set-cookie") => moved.cookie(value),
            _ => None,
        });
        each(name, rewritten.map_or(Cow::Borrowed(value), Cow::Owned));
    }
    notes
}

fn begins(name: &str, start: &str) -> bool {
    name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

/// The options of `Connection`.
fn options<'h>(response: &Response<'h>) -> impl Iterator<Item = &'h [u8]> {
    let values = response.values("connection").flat_map(|value| value.split(|&b| b == b','));
    values.map(<[u8]>::trim_ascii).filter(|option| !option.is_empty())
}

/// The framing of an answer for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed {
    /// The answer has no body. If the body is left out, because the request was HEAD or the client
    /// has it (304), the number is its length, if known.
    None(Option<u64>),
    /// A body of exactly this many bytes.
    Sized(u64),
    /// Chunks; in HTTP/2 the stream ends where the last one does.
    Chunked,
    /// A body until the connection is closed, for clients without chunks.
    UntilClose,
    /// Another protocol in both directions.
    Upgraded,
}

impl Framed {
    /// The framing for a client that speaks this version.
    pub fn of(response: &Response<'_>, client: Version) -> Framed {
        match response.body {
            // RFC 9110 §8.6: neither an interim answer nor a 204 may have a `Content-Length`
            BodyFraming::None if matches!(response.status, 100..200 | 204) => Framed::None(None),
            BodyFraming::None => Framed::None(response.content_length),
            BodyFraming::Sized(length) => Framed::Sized(length),
            BodyFraming::Chunked | BodyFraming::UntilClose if client == Version::Http10 => {
                Framed::UntilClose
            }
            BodyFraming::Chunked | BodyFraming::UntilClose => Framed::Chunked,
            BodyFraming::Upgraded => Framed::Upgraded,
        }
    }

    /// Appends the field for this framing in HTTP/1, if there is one.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Framed::None(Some(length)) | Framed::Sized(length) => {
                out.extend_from_slice(b"Content-Length: ");
                decimal::push(length, out);
                out.extend_from_slice(b"\r\n");
            }
            Framed::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Framed::Upgraded => out.extend_from_slice(b"Connection: Upgrade\r\n"),
            Framed::None(None) | Framed::UntilClose => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<R>(text: &str, asked: ResponseContext, act: impl FnOnce(&Response<'_>) -> R) -> R {
        let mut lines = Lines::new();
        match Response::parse(text.as_bytes(), &mut lines, asked, &ResponseHeadLimits::default()) {
            Ok(ParsedResponse::Complete(head)) => act(&head),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn passed(lines: &str) -> (Vec<String>, bool, bool) {
        with(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"), ResponseContext::default(), |head| {
            let mut kept = Vec::new();
            let notes = fields(head, None, |name, value| {
                kept.push(format!("{name}: {}", String::from_utf8_lossy(&value)));
            });
            (kept, notes.has_date, notes.has_server)
        })
    }

    #[test]
    fn what_was_for_the_connection_is_left_out() {
        let lines = "Server: app\r\nConnection: X-Inner, keep-alive\r\nKeep-Alive: timeout=5\r\n\
                     X-Inner: a\r\nTE: x\r\nTrailer: X-B\r\nUpgrade: h2c\r\nProxy-Authenticate: Basic\r\n\
                     Content-Length: 3\r\nX-Accel-Expires: 5\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\n\
                     ETag: \"x\"\r\n";
        let (kept, has_date, has_server) = passed(lines);
        assert_eq!(kept, ["Server: app", "Set-Cookie: a=b", "set-cookie: c=d", "ETag: \"x\""]);
        assert_eq!((has_date, has_server), (false, true));
        let (kept, has_date, has_server) =
            passed("Date: x\r\nTrailer: X-B\r\nTransfer-Encoding: chunked\r\n");
        assert_eq!((has_date, has_server), (true, false));
        assert_eq!(kept, ["Date: x", "Trailer: X-B"]);
    }

    #[test]
    fn what_stands_once_is_told_once() {
        let mut lines = String::new();
        for name in SINGLE {
            lines += &format!("{name}: 1\r\n{}: 2\r\nX-{name}: 3\r\n", name.to_uppercase());
        }
        lines += "Set-Cookie: a=1\r\nSet-Cookie: a=2\r\nVary: a\r\nVary: b\r\nAccess-Control-Allow-Origin: a\r\n\
                  Access-Control-Allow-Origin: b\r\n";
        let (kept, ..) = passed(&lines);
        let single = SINGLE.iter().flat_map(|name| [format!("{name}: 1"), format!("X-{name}: 3")]);
        let others =
            ["Set-Cookie: a=1", "Set-Cookie: a=2", "Vary: a", "Vary: b"].map(str::to_owned);
        let cors = ["a", "b"].map(|value| format!("Access-Control-Allow-Origin: {value}"));
        assert_eq!(kept, single.chain(others).chain(cors).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_said_to_the_proxy_is_noted() {
        let text = "HTTP/1.1 200 OK\r\nx-accel-redirect: /files/a\r\nX-Accel-Buffering: No\r\n\
                    X-Accel-Redirect: /files/b\r\n\r\n";
        with(text, ResponseContext::default(), |head| {
            let notes = fields(head, None, |name, _| panic!("{name}"));
            assert_eq!(notes.accel_redirect, Some(b"/files/a".as_slice()));
            assert_eq!(notes.buffering, Some(false));
        });
        let text = "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
        with(text, ResponseContext { is_head: false, upgrade: true }, |head| {
            let mut kept = Vec::new();
            fields(head, None, |name, _| kept.push(name));
            assert_eq!(kept, ["Upgrade"]);
        });
    }

    #[test]
    fn each_client_is_told_what_it_understands() {
        use Version::{Http10, Http11};
        let (get, head) =
            (ResponseContext::default(), ResponseContext { is_head: true, upgrade: false });
        for (text, asked, client, expected, line) in [
            ("200 x\r\nContent-Length: 5", get, Http10, Framed::Sized(5), "Content-Length: 5\r\n"),
            (
                "200 x\r\nContent-Length: 0",
                get,
                Http11,
                Framed::None(Some(0)),
                "Content-Length: 0\r\n",
            ),
            (
                "200 x\r\nContent-Length: 5",
                head,
                Http11,
                Framed::None(Some(5)),
                "Content-Length: 5\r\n",
            ),
            (
                "304 x\r\nContent-Length: 5",
                get,
                Http11,
                Framed::None(Some(5)),
                "Content-Length: 5\r\n",
            ),
            ("204 x\r\nContent-Length: 0", get, Http11, Framed::None(None), ""),
            ("200 x\r\nTransfer-Encoding: chunked", get, Http10, Framed::UntilClose, ""),
            (
                "200 x\r\nTransfer-Encoding: chunked",
                get,
                Http11,
                Framed::Chunked,
                "Transfer-Encoding: chunked\r\n",
            ),
            ("200 x\r\nTransfer-Encoding: chunked", head, Http11, Framed::None(None), ""),
            ("200 x\r\nA: b", get, Http11, Framed::Chunked, "Transfer-Encoding: chunked\r\n"),
            ("200 x\r\nA: b", get, Http10, Framed::UntilClose, ""),
        ] {
            with(&format!("HTTP/1.1 {text}\r\n\r\n"), asked, |head| {
                let framed = Framed::of(head, client);
                let mut out = Vec::new();
                framed.write(&mut out);
                assert_eq!((framed, out.as_slice()), (expected, line.as_bytes()), "{text}");
            });
        }
    }

    #[test]
    fn interim_answers_come_first_and_end() {
        let text = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        let mut reader =
            ResponseReader::new(ResponseContext::default(), ResponseHeadLimits::default());
        let mut at = 0;
        let mut statuses = Vec::new();
        loop {
            let mut lines = Lines::new();
            match reader.read(&text[at..], &mut lines).unwrap() {
                HeadRead::Interim(head) => {
                    statuses.push(head.status);
                    at += head.len;
                }
                HeadRead::Final(head) => break statuses.push(head.status),
                HeadRead::More => panic!("it is whole"),
            }
        }
        assert_eq!(statuses, [100, 103, 200]);
        let mut reader =
            ResponseReader::new(ResponseContext::default(), ResponseHeadLimits::default());
        let mut count = 0;
        let error = loop {
            let mut lines = Lines::new();
            match reader.read(b"HTTP/1.1 100 Continue\r\n\r\n", &mut lines) {
                Ok(HeadRead::Interim(_)) => count += 1,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!((count, error.reason()), (32, "there are too many interim answers"));
        let mut lines = Lines::new();
        assert!(matches!(reader.read(b"HTTP/1.1 2", &mut lines), Ok(HeadRead::More)));
    }
}
