//! A request head that outlives the bytes it was received in: it is kept until it can be answered,
//! and never parsed again.

use crate::framing::Framing;
use crate::head::{FieldLines, FieldSpan, Head, Method, OwnedSpan, Tunnel, Version};

/// A head with its bytes, and the places of its parts in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedHead {
    /// The head as it was received, then the parts of the head that are not among those bytes.
    bytes: Box<[u8]>,
    /// The method and the names of fields.
    names: Box<str>,
    fields: Box<[FieldSpan]>,
    places: RequestLineSpans,
    flags: Flags,
    /// The number of bytes of the head as it was received.
    len: usize,
}

/// The places of the parts of the request line, and of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestLineSpans {
    method: OwnedSpan,
    target: OwnedSpan,
    path: OwnedSpan,
    query: Option<OwnedSpan>,
    authority: OwnedSpan,
}

/// The values that were derived from the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags {
    method: Method,
    is_https: bool,
    version: Version,
    framing: Framing,
    keep_alive: bool,
    expects_continue: bool,
    tunnel: Option<Tunnel>,
    present: u32,
}

impl OwnedHead {
    /// Keeps `head`, which was parsed from the front of `received`.
    pub fn new(head: &Head<'_>, received: &[u8]) -> OwnedHead {
        let received = &received[..head.len.min(received.len())];
        // the buffers have exactly the size that is needed
        let lengths = head.fields().map(|(name, _)| name.len());
        let (count, names_len) = lengths.fold((0, 0), |(count, all), len| (count + 1, all + len));
        let names = String::with_capacity(head.method_text.len() + names_len);
        let mut fields = Vec::with_capacity(count);
        let mut keep = Keep { bytes: received.to_vec(), names, received };
        let method = keep.name(head.method_text);
        let target = keep.part(head.target);
        let path = keep.part(head.path);
        let query = head.query.map(|query| keep.part(query));
        let authority = keep.part(head.authority);
        let field = |(name, value)| FieldSpan { name: keep.name(name), value: keep.part(value) };
        fields.extend(head.fields().map(field));
        OwnedHead {
            fields: fields.into(),
            places: RequestLineSpans { method, target, path, query, authority },
            flags: Flags {
                method: head.method,
                is_https: head.is_https,
                version: head.version,
                framing: head.framing,
                keep_alive: head.keep_alive,
                expects_continue: head.expects_continue,
                tunnel: head.tunnel,
                present: head.present,
            },
            len: head.len,
            bytes: keep.bytes.into(),
            names: keep.names.into(),
        }
    }

    /// The head as it was parsed.
    pub fn view(&self) -> Head<'_> {
        let OwnedHead { bytes, names, fields, places, flags, len } = self;
        let part = |span: OwnedSpan| &bytes[span.range()];
        Head {
            method: flags.method,
            method_text: &names[places.method.range()],
            target: part(places.target),
            path: part(places.path),
            query: places.query.map(part),
            authority: part(places.authority),
            is_https: flags.is_https,
            version: flags.version,
            framing: flags.framing,
            keep_alive: flags.keep_alive,
            expects_continue: flags.expects_continue,
            tunnel: flags.tunnel,
            len: *len,
            lines: FieldLines::Spans { names, bytes, fields },
            present: flags.present,
        }
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.flags.method
    }

    /// The framing of the body.
    pub fn framing(&self) -> Framing {
        self.flags.framing
    }

    /// The head as it was received; empty if it did not arrive as text.
    pub fn received(&self) -> &[u8] {
        &self.bytes[..self.len.min(self.bytes.len())]
    }
}

/// The buffers of a head that is being kept.
struct Keep<'h> {
    bytes: Vec<u8>,
    names: String,
    received: &'h [u8],
}

impl Keep<'_> {
    fn name(&mut self, name: &str) -> OwnedSpan {
        let start = self.names.len() as u32;
        self.names.push_str(name);
        OwnedSpan { start, end: self.names.len() as u32 }
    }

    /// Keeps a part: one of the received bytes is found by its address, anything else is added.
    fn part(&mut self, part: &[u8]) -> OwnedSpan {
        let offset = (part.as_ptr() as usize).wrapping_sub(self.received.as_ptr() as usize);
        let is_inside = offset <= self.received.len() && part.len() <= self.received.len() - offset;
        let start = match is_inside {
            true => offset,
            false => {
                self.bytes.extend_from_slice(part);
                self.bytes.len() - part.len()
            }
        };
        OwnedSpan { start: start as u32, end: (start + part.len()) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{HeadLimits, Lines, ParsedHead};

    fn owned(text: &str) -> OwnedHead {
        let mut lines = Lines::new();
        let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
        let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{text}: {parsed:?}") };
        let owned = OwnedHead::new(&head, text.as_bytes());
        assert_eq!(format!("{:?}", parts(&owned.view())), format!("{:?}", parts(&head)));
        owned
    }

    /// All values of a head.
    fn parts<'h>(head: &Head<'h>) -> impl std::fmt::Debug + use<'h> {
        let line = (head.method, head.method_text, head.target, head.path, head.query);
        let rest = (head.authority, head.version, head.framing, head.keep_alive, head.len);
        let flags = (head.is_https, head.expects_continue);
        (line, rest, flags, head.fields().collect::<Vec<_>>())
    }

    const HEADS: [&str; 6] = [
        "GET /a?b HTTP/1.1\r\nHost: h\r\nAccept: a\r\naccept:  b \r\n\r\nmore",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT http://a:80?q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET https://a/b HTTP/1.1\r\nHost: h\r\n\r\n",
        "BREW / HTTP/1.0\r\n\r\n",
    ];

    #[test]
    fn a_head_that_is_kept_says_the_same() {
        for text in HEADS {
            let head = owned(text);
            assert_eq!(head.received(), text.strip_suffix("more").unwrap_or(text).as_bytes());
        }
        let head = owned(HEADS[0]);
        let view = head.view();
        assert_eq!(view.only(crate::head::Name::Accept), None);
        assert_eq!(view.values(crate::head::Name::Accept).collect::<Vec<_>>(), [b"a", b"b"]);
    }
}
