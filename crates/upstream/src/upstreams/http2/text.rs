//! Conversion between messages of HTTP/1.1, in text, and fields and frames of HTTP/2.

use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields};
use std::io::Write;

/// The names and values of trailers.
pub(crate) type TrailerFields = Vec<(Box<str>, Box<[u8]>)>;

/// A stream that was opened for a head in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedStream {
    pub(crate) number: u32,
    /// The length of the head.
    pub(crate) head_bytes: usize,
    /// Whether nothing follows the head.
    pub(crate) has_ended: bool,
}

/// Opens a stream for the head at the front of `bytes`, of a request with this scheme; `ends` says
/// that nothing follows `bytes`. Returns `None` if the peer takes no request.
pub(crate) fn open(
    machine: &mut Connection,
    output: &mut Vec<u8>,
    scheme: &[u8],
    bytes: &[u8],
    ends: bool,
) -> Option<OpenedStream> {
    const END: &[u8] = b"\r\n\r\n";
    let head_bytes = memchr::memmem::find(bytes, END)? + END.len();
    let head = &bytes[..head_bytes];
    // an empty chunked body is a body all the same: servers of gRPC wait for one that does not end
    // with its head
    let has_body = || memchr::memmem::find(head, b"\r\nTransfer-Encoding: chunked\r\n").is_some();
    let has_ended = ends && head_bytes == bytes.len() && !has_body();
    let line_end = memchr::memchr(b'\r', head)?;
    let mut words = head[..line_end].split(|&byte| byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_head = method == b"HEAD";
    let number = machine.open(output, has_ended, is_head, |block| {
        encode::field(block, b":method", method);
        encode::field(block, b":scheme", scheme);
        encode::raw(block, b":path", target);
        lines(block, &head[line_end + 2..]);
    })?;
    Some(OpenedStream { number, head_bytes, has_ended })
}

/// Makes frames of the next bytes of a body, as far as the windows allow and until `most_output`
/// bytes of `output` are unsent; `ends` says that the bytes are the last. Returns how many were used,
/// and whether the stream has ended with them.
pub(crate) fn data(
    machine: &mut Connection,
    output: &mut Vec<u8>,
    most_output: usize,
    stream: u32,
    bytes: &[u8],
    ends: bool,
) -> (usize, bool) {
    let mut used = 0;
    loop {
        let rest = &bytes[used..];
        let capacity = match output.len() < most_output {
            true => machine.send_capacity(stream) as usize,
            false => 0,
        };
        let count = rest.len().min(capacity);
        let is_last = ends && count == rest.len();
        if count == 0 && !is_last {
            return (used, false);
        }
        // at most what there is room for
        let Some(header) = machine.data(stream, count as u32, is_last) else {
            return (used, false);
        };
        output.extend_from_slice(&header);
        output.extend_from_slice(&rest[..count]);
        used += count;
        if is_last {
            return (used, true);
        }
    }
}

/// Appends a head in text.
pub(crate) fn head(fields: &DecodedFields, into: &mut Vec<u8>) {
    // writing into a vector does not fail
    let _ = write!(into, "HTTP/1.1 {} \r\n", fields.status());
    for (name, value) in fields.iter() {
        push_name(name, into);
        for part in [b": ", value, b"\r\n"] {
            into.extend_from_slice(part);
        }
    }
    into.extend_from_slice(b"\r\n");
}

/// The trailers of a body.
pub(crate) fn trailers(fields: &DecodedFields) -> TrailerFields {
    let text = |name| std::str::from_utf8(name).unwrap_or_default();
    fields.iter().map(|(name, value)| (text(name).into(), value.into())).collect()
}

/// Appends a name in the capitalisation of HTTP/1.1. HTTP/2 has only lower case, and some clients
/// look for capitals.
fn push_name(name: &[u8], into: &mut Vec<u8>) {
    match name {
        b"etag" => return into.extend_from_slice(b"ETag"),
        b"www-authenticate" => return into.extend_from_slice(b"WWW-Authenticate"),
        _ => {}
    }
    let begin = into.len();
    into.extend_from_slice(name);
    let mut is_first = true;
    for byte in &mut into[begin..] {
        if is_first {
            byte.make_ascii_uppercase();
        }
        is_first = *byte == b'-';
    }
}

/// Writes fields given in text, except those about the connection (RFC 9113 §8.2.2).
pub(crate) fn lines(block: &mut Vec<u8>, text: &[u8]) {
    let mut lower = Vec::with_capacity(64);
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_end();
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let value = line[colon + 1..].trim_ascii_start();
        lower.clear();
        lower.extend_from_slice(&line[..colon]);
        lower.make_ascii_lowercase();
        match &*lower {
            b"connection" | b"transfer-encoding" | b"keep-alive" | b"upgrade" => {}
            b"host" => encode::raw(block, b":authority", value),
            name => encode::raw(block, name, value),
        }
    }
}
