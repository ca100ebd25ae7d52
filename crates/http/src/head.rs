//! The head of a request: request line and fields, checked and taken apart without copying.

mod authority;
mod error;
mod lengths;
mod method;
mod name;
mod span;

use crate::field::members;
use crate::framing::Framing;
use authority::check_authority;
pub use error::HeadError;
use error::refused;
use lengths::Lengths;
pub use method::{Method, Tunnel, Version};
pub use name::Name;
pub use span::FieldSpan;
pub(crate) use span::OwnedSpan;
use std::mem::MaybeUninit;

/// The most field lines that a head may have, whatever the configuration allows: those that a
/// client or an application may send, and those that stages add.
pub const MOST_LINES: usize = 160;

/// The limits on the size of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// The most bytes of the whole head, the empty line included.
    pub head_bytes: usize,
    /// The most field lines, at most [`MOST_LINES`].
    pub head_lines: usize,
    /// The most bytes of the request target.
    pub target_bytes: usize,
    /// Whether `Host` may be empty: a stage passes on that a client of HTTP/1.0 has named no host.
    pub empty_host: bool,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            head_bytes: 16 * 1024,
            head_lines: 100,
            target_bytes: 8 * 1024,
            empty_host: false,
        }
    }
}

/// A buffer for the lines of one head while it is looked at.
pub struct Lines<'h> {
    pub(crate) fixed: [MaybeUninit<httparse::Header<'h>>; MOST_LINES],
    /// The lines of heads with minor versions that httparse does not know.
    pub(crate) other: Vec<httparse::Header<'h>>,
}

impl Lines<'_> {
    /// An empty buffer; costs nothing.
    pub fn new() -> Self {
        Lines { fixed: [const { MaybeUninit::uninit() }; MOST_LINES], other: Vec::new() }
    }
}

impl Default for Lines<'_> {
    fn default() -> Self {
        Lines::new()
    }
}

/// The outcome of parsing the beginning of a request.
#[derive(Debug)]
pub enum ParsedHead<'h> {
    /// The bytes begin with a complete head.
    Complete(Head<'h>),
    /// The bytes are the beginning of a head; more are needed.
    Partial,
}

/// A complete request head. It borrows the received bytes.
#[derive(Debug)]
pub struct Head<'h> {
    /// The method, for decisions.
    pub method: Method,
    /// The method as it was sent, for logs.
    pub method_text: &'h str,
    /// The target as it was sent, for logs.
    pub target: &'h [u8],
    /// The path of the target, still percent-encoded; `*` for `OPTIONS *`. Otherwise it begins with
    /// `/`.
    pub path: &'h [u8],
    /// The part of the target after the first `?`.
    pub query: Option<&'h [u8]>,
    /// The host and port that the request is for: from the target if it is absolute, else from
    /// `Host` (RFC 9112 §3.2.2). Empty if neither names one.
    pub authority: &'h [u8],
    /// Whether the target is absolute with the scheme https, which is only for connections with TLS
    /// (RFC 9110 §7.4).
    pub is_https: bool,
    /// The version.
    pub version: Version,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the client wants the connection kept (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The protocol that the stream changes to, if this is an extended CONNECT of HTTP/2.
    pub tunnel: Option<Tunnel>,
    /// The bytes of the head, the empty line included.
    pub len: usize,
    pub(crate) lines: FieldLines<'h>,
    /// The fields of [`Name`] that are present, one bit each.
    pub(crate) present: u32,
}

impl<'h> Head<'h> {
    /// The head of a request that is like this one except for its method and its target, and has no
    /// body.
    #[must_use]
    pub fn redirected(&self, method: Method, target: RequestTarget<'h>) -> Head<'h> {
        let method_text = match method {
            Method::Head => "HEAD",
            Method::Get => "GET",
            _ => self.method_text,
        };
        Head {
            method,
            method_text,
            target: target.path,
            path: target.path,
            query: target.query,
            framing: Framing::None,
            expects_continue: false,
            tunnel: None,
            present: self.present & !(1 << Name::ContentLength as u32),
            ..*self
        }
    }
}

/// The target of a request: a path, still percent-encoded, and what follows the first `?`.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'h> {
    /// The path.
    pub path: &'h [u8],
    /// The query.
    pub query: Option<&'h [u8]>,
}

/// The field lines of a head, in the buffer where they were received, or where they are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldLines<'h> {
    Received(&'h [httparse::Header<'h>]),
    Spans { names: &'h str, bytes: &'h [u8], fields: &'h [FieldSpan] },
}

/// A head that did not arrive as text, in the terms of HTTP/2. It is already taken apart, and has
/// no bytes that fields may not have, no contradicting lengths and hosts, and no fields about the
/// connection.
#[derive(Clone, Copy, Debug)]
pub struct DecodedHead<'h> {
    /// `:method`
    pub method: &'h str,
    /// `:protocol`; with it the method is CONNECT.
    pub protocol: Option<&'h [u8]>,
    /// `:path`
    pub target: &'h [u8],
    /// `:authority`, or else `host`; empty if there is neither.
    pub authority: &'h [u8],
    /// The names of the fields, in lower case.
    pub names: &'h str,
    /// The values of the fields.
    pub values: &'h [u8],
    /// The place of each field in both.
    pub fields: &'h [FieldSpan],
    /// Whether a body follows.
    pub has_body: bool,
    /// `content-length`
    pub content_length: Option<u64>,
}

impl<'h> FieldLines<'h> {
    #[inline]
    fn get(self, at: usize) -> Option<(&'h str, &'h [u8])> {
        match self {
            FieldLines::Received(lines) => lines.get(at).map(|line| (line.name, line.value)),
            FieldLines::Spans { names, bytes, fields } => {
                fields.get(at).map(|field| field.of(names, bytes))
            }
        }
    }

    #[inline]
    fn len(self) -> usize {
        match self {
            FieldLines::Received(lines) => lines.len(),
            FieldLines::Spans { fields, .. } => fields.len(),
        }
    }

    #[inline]
    fn iter(self) -> impl DoubleEndedIterator<Item = (&'h str, &'h [u8])> + Clone + use<'h> {
        (0..self.len()).filter_map(move |at| self.get(at))
    }
}

impl<'h> Head<'h> {
    /// Parses the head at the start of `bytes`. `lines` is the buffer for its fields.
    ///
    /// The parser is stricter than RFC 9112 demands where leniency has been used to smuggle
    /// requests: a bare LF, white space before a colon, folded lines, repeated or conflicting
    /// lengths are errors.
    ///
    /// # Errors
    /// A [`HeadError`] as soon as the bytes cannot become an acceptable head.
    pub fn parse(
        bytes: &'h [u8],
        lines: &'h mut Lines<'h>,
        limits: &HeadLimits,
    ) -> Result<ParsedHead<'h>, HeadError> {
        let most_lines = limits.head_lines.min(MOST_LINES);
        // what is beyond the limit is not parsed, so a head that is too large stays partial and is
        // refused
        let window = &bytes[..bytes.len().min(limits.head_bytes)];
        let mut request = httparse::Request::new(&mut []);
        let status = httparse::ParserConfig::default().parse_request_with_uninit_headers(
            &mut request,
            window,
            &mut lines.fixed[..most_lines],
        );
        let (len, minor, fields) = match status {
            Ok(httparse::Status::Complete(len)) => (len, request.version, &*request.headers),
            Ok(httparse::Status::Partial) => return partial(window, bytes, limits),
            Err(httparse::Error::Version) => {
                let Some(line) = other_version(window)? else {
                    return partial(window, bytes, limits);
                };
                match other_fields(&window[line..], &mut lines.other, most_lines) {
                    Ok(Some((len, fields))) => (line + len, Some(1), fields),
                    Ok(None) => return partial(window, bytes, limits),
                    Err(error) => return Err(refused(error)),
                }
            }
            Err(error) => return Err(refused(error)),
        };
        let (Some(method_text), Some(target), Some(minor)) = (request.method, request.path, minor)
        else {
            return Err(HeadError::Malformed("the request line is incomplete"));
        };
        check_line_ends(&window[..len])?;
        let mut head = Head {
            method: Method::from_token(method_text),
            method_text,
            target: target.as_bytes(),
            path: target.as_bytes(),
            query: None,
            authority: b"",
            is_https: false,
            version: if minor == 0 { Version::Http10 } else { Version::Http11 },
            framing: Framing::None,
            keep_alive: false,
            expects_continue: false,
            tunnel: None,
            len,
            lines: FieldLines::Received(fields),
            present: 0,
        };
        head.read_fields(limits)?;
        // after the fields, as an absolute target overrides Host (RFC 9112 §3.2.2)
        head.read_target(limits)?;
        Ok(ParsedHead::Complete(head))
    }

    /// The head of a request that was decoded. An extended CONNECT becomes the GET that it stands
    /// for.
    ///
    /// # Errors
    /// The errors of [`parse`](Head::parse).
    pub fn decoded(parts: &DecodedHead<'h>, limits: &HeadLimits) -> Result<Head<'h>, HeadError> {
        let DecodedHead { method, target, authority, names, values, fields, .. } = *parts;
        let tunnel = parts.protocol.map(Tunnel::from_token);
        let method = if tunnel.is_some() { "GET" } else { method };
        let framing = match (parts.has_body, parts.content_length) {
            _ if tunnel.is_some() => Framing::None,
            (false, _) => Framing::None,
            (true, Some(bytes)) => Framing::Sized(bytes),
            (true, None) => Framing::Chunked,
        };
        let mut head = Head {
            method: Method::from_token(method),
            method_text: method,
            target,
            path: target,
            query: None,
            authority,
            is_https: false,
            version: Version::Http2,
            framing,
            keep_alive: true,
            expects_continue: false,
            tunnel,
            len: 0,
            lines: FieldLines::Spans { names, bytes: values, fields },
            present: 0,
        };
        for (text, value) in head.lines.iter() {
            let Some(name) = Name::known_lower(text) else { continue };
            head.present |= 1 << name as u32;
            if name == Name::Expect && expects_continue(value)? {
                head.expects_continue = tunnel.is_none();
            }
        }
        if authority.is_empty() && !limits.empty_host {
            return Err(HeadError::Malformed("Host is missing"));
        }
        check_authority(authority)?;
        let is_path = matches!(target, [b'/', ..] | b"*")
            && !target.iter().any(|b| *b <= b' ' || *b == 0x7f)
            && std::str::from_utf8(target).is_ok();
        if !is_path {
            return Err(HeadError::Malformed("the target is not a path"));
        }
        if target == b"*" && head.method != Method::Options {
            return Err(HeadError::Malformed("the target is not a path"));
        }
        head.read_target(limits)?;
        Ok(head)
    }

    /// The value of the field if it is there exactly once.
    pub fn only(&self, name: Name) -> Option<&'h [u8]> {
        let mut values = self.values(name);
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }

    /// Whether the field is present.
    #[inline]
    pub fn has(&self, name: Name) -> bool {
        self.present & (1 << name as u32) != 0
    }

    /// The values of all lines of the field, in order.
    pub fn values(&self, name: Name) -> impl DoubleEndedIterator<Item = &'h [u8]> + use<'h> {
        let lines = if self.has(name) { self.lines } else { FieldLines::Received(&[]) };
        lines
            .iter()
            .filter(move |(text, _)| text.eq_ignore_ascii_case(name.as_str()))
            .map(|(_, value)| value)
    }

    /// All field lines in order: name as sent, value without surrounding white space.
    pub fn fields(&self) -> impl Iterator<Item = (&'h str, &'h [u8])> + Clone + use<'h> {
        self.lines.iter()
    }

    fn read_fields(&mut self, limits: &HeadLimits) -> Result<(), HeadError> {
        let mut length = Lengths::default();
        let mut connection = ConnectionField::default();
        let FieldLines::Received(lines) = self.lines else { return Ok(()) };
        for line in lines {
            let Some(name) = Name::known(line.name) else { continue };
            let again = self.has(name);
            self.present |= 1 << name as u32;
            match name {
                Name::Host if again => return Err(HeadError::Malformed("Host is repeated")),
                // an http URL always has a host (RFC 9110 §4.2.1), so no client has a reason to
                // send this
                Name::Host => {
                    check_authority(line.value)?;
                    self.authority = line.value;
                }
                Name::Connection => connection.read(line.value),
                Name::ContentLength => length.content_length(line.value)?,
                Name::TransferEncoding => length.transfer_encoding(line.value)?,
                // a client of HTTP/1.0 cannot expect anything (RFC 9110 §10.1.1)
                Name::Expect if self.version == Version::Http11 => {
                    self.expects_continue |= expects_continue(line.value)?;
                }
                _ => {}
            }
        }
        if self.version == Version::Http11 && !self.has(Name::Host) {
            return Err(HeadError::Malformed("Host is missing"));
        }
        // an http URL always has a host (RFC 9110 §4.2.1), so no client has a reason to send an
        // empty one
        if self.version == Version::Http11 && self.authority.is_empty() && !limits.empty_host {
            return Err(HeadError::Malformed("Host is empty"));
        }
        self.framing = length.framing(self.version)?;
        // RFC 9112 §9.3
        self.keep_alive =
            !connection.close && (self.version == Version::Http11 || connection.keep_alive);
        Ok(())
    }

    fn read_target(&mut self, limits: &HeadLimits) -> Result<(), HeadError> {
        if self.target.len() > limits.target_bytes {
            return Err(HeadError::TargetTooLong);
        }
        if memchr::memchr(b'#', self.target).is_some() {
            return Err(HeadError::Malformed("the target has a fragment"));
        }
        if self.method == Method::Connect {
            self.authority = self.target;
            return check_authority(self.authority);
        }
        let origin = match self.target {
            b"*" if self.method == Method::Options => return Ok(()),
            [b'/', ..] => self.target,
            absolute => self.read_absolute(absolute)?,
        };
        (self.path, self.query) = match memchr::memchr(b'?', origin) {
            // only an absolute target can have a query and no path; `/` is meant
            Some(0) => (b"/".as_slice(), Some(&origin[1..])),
            Some(at) => (&origin[..at], Some(&origin[at + 1..])),
            None => (origin, None),
        };
        Ok(())
    }

    /// Reads `http://authority/path?query`, or the same with https (RFC 9112 §3.2.2); returns what
    /// follows the authority.
    fn read_absolute(&mut self, target: &'h [u8]) -> Result<&'h [u8], HeadError> {
        let (is_https, rest) = match (behind(target, b"http://"), behind(target, b"https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => {
                return Err(HeadError::Malformed("the target is neither a path nor an http URL"));
            }
        };
        let end = rest.iter().position(|&b| b == b'/' || b == b'?').unwrap_or(rest.len());
        let (authority, origin) = rest.split_at(end);
        if authority.is_empty() {
            return Err(HeadError::Malformed("the target's host is empty"));
        }
        check_authority(authority)?;
        (self.authority, self.is_https) = (authority, is_https);
        Ok(match origin {
            [] if self.method == Method::Options => b"*",
            [] => b"/",
            origin => origin,
        })
    }
}

/// The part of the target after this scheme, if the target begins with it, in any case (RFC 3986
/// §3.1).
fn behind<'h>(target: &'h [u8], scheme: &[u8]) -> Option<&'h [u8]> {
    let (start, rest) = target.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The options in all `Connection` lines of a head.
#[derive(Default)]
pub(crate) struct ConnectionField {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    /// Whether some options are names of fields.
    pub(crate) names_fields: bool,
}

impl ConnectionField {
    pub(crate) fn read(&mut self, value: &[u8]) {
        for option in members(value) {
            let is = |other: &[u8]| option.eq_ignore_ascii_case(other);
            self.close |= is(b"close");
            self.keep_alive |= is(b"keep-alive");
            self.names_fields |= !(is(b"close") || is(b"keep-alive") || is(b"upgrade"));
        }
    }
}

/// Whether `Expect` is `100-continue`. Anything else is refused (RFC 9110 §10.1.1).
fn expects_continue(value: &[u8]) -> Result<bool, HeadError> {
    let mut is_said = false;
    for expectation in members(value) {
        if !expectation.eq_ignore_ascii_case(b"100-continue") {
            return Err(HeadError::Expectation);
        }
        is_said = true;
    }
    Ok(is_said)
}

/// Checks that every line ends in CR LF. httparse also takes a bare LF, which other parsers on the
/// way may read differently.
pub(crate) fn check_line_ends(head: &[u8]) -> Result<(), HeadError> {
    let pairs = head.iter().zip(head.iter().skip(1));
    // the loop has no early exit, so that the compiler can compare many bytes at once
    let is_bare =
        |found: bool, (&before, &byte): (&u8, &u8)| found | (byte == b'\n' && before != b'\r');
    if head.first() == Some(&b'\n') || pairs.fold(false, is_bare) {
        return Err(HeadError::Malformed("a line ends in a bare LF"));
    }
    Ok(())
}

fn partial<'h>(
    window: &[u8],
    bytes: &[u8],
    limits: &HeadLimits,
) -> Result<ParsedHead<'h>, HeadError> {
    check_line_ends(window)?;
    let in_request_line = memchr::memchr(b'\n', window.trim_ascii_start()).is_none();
    if bytes.len() >= limits.head_bytes {
        return Err(if in_request_line {
            HeadError::TargetTooLong
        } else {
            HeadError::HeadTooLarge
        });
    }
    Ok(ParsedHead::Partial)
}

/// The place where the field lines begin of a head whose request line has a version that httparse
/// does not know, if that is a later one of HTTP/1: it is served as HTTP/1.1 (RFC 9110 §2.5).
/// `HTTP/` digit `.` digit of another major version is 505, everything else 400. It is undecided
/// while it may become any of them, so that the answer does not depend on how the bytes arrive.
fn other_version(window: &[u8]) -> Result<Option<usize>, HeadError> {
    const SHAPE: &[u8; 8] = b"HTTP/0.0";
    let text = window.trim_ascii_start();
    let line_end = text.iter().position(|b| matches!(b, b'\r' | b'\n'));
    let line = &text[..line_end.unwrap_or(text.len())];
    let version = line.splitn(3, |&b| b == b' ').nth(2).unwrap_or(b"");
    let fits = version.iter().zip(SHAPE).all(|(byte, shape)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte == shape,
    });
    let is_of_http1 = version.starts_with(b"HTTP/1.") && version.len() <= SHAPE.len();
    match (version.len(), line_end) {
        (len, _) if fits && len >= SHAPE.len() && !is_of_http1 => Err(HeadError::Version),
        (_, None) if fits => Ok(None),
        (8, Some(end)) if fits => match text[end..] {
            [b'\r', b'\n', ..] => Ok(Some(window.len() - text.len() + end + 2)),
            [b'\r'] => Ok(None),
            _ => Err(HeadError::Malformed("a line does not end in CR LF")),
        },
        _ => Err(HeadError::Malformed("the version is malformed")),
    }
}

/// The field lines at the start of `bytes`, up to a limit, and their number of bytes, the empty
/// line included.
pub(crate) fn other_fields<'h>(
    bytes: &'h [u8],
    lines: &'h mut Vec<httparse::Header<'h>>,
    most_lines: usize,
) -> Result<Option<(usize, &'h [httparse::Header<'h>])>, httparse::Error> {
    lines.resize(most_lines, httparse::EMPTY_HEADER);
    match httparse::parse_headers(bytes, lines)? {
        httparse::Status::Complete(found) => Ok(Some(found)),
        httparse::Status::Partial => Ok(None),
    }
}

#[cfg(test)]
pub(crate) mod tests;
