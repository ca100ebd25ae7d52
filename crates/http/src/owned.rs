//! A request head that outlives the bytes it was received in: it is kept until it can be answered,
//! and never parsed again.

use crate::framing::Framing;
use crate::head::{FieldLines, FieldSpan, Head, Method, OwnedSpan, Tunnel, Version};

/// A head with its bytes, and the places of its parts in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedHead {
    /// The head as it was received, then whatever else the head names; behind that the method and the names of fields.
    data: Box<[u8]>,
    fields: Box<[FieldSpan]>,
    places: RequestLineSpans,
    flags: Flags,
    /// The number of bytes of the head as it was received.
    len: usize,
}

/// The places of the parts of the request line, and of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestLineSpans {
    target: OwnedSpan,
    path: OwnedSpan,
    query: Option<OwnedSpan>,
    authority: OwnedSpan,
    /// Where the names begin, the method first.
    names: u32,
    /// How long the method is.
    method: u32,
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
        // exactly as much as they need
        let lengths = head.fields().map(|(name, value)| (name.len(), value.len()));
        let (count, names_len, values_len) = lengths
            .fold((0, 0, 0), |(count, names, values), (name, value)| {
                (count + 1, names + name, values + value)
            });
        let line_len = head.target.len() + head.authority.len();
        let others_len = if received.is_empty() { line_len + values_len } else { 0 };
        let names_len = head.method_text.len() + names_len;
        let mut data = Vec::with_capacity(received.len() + others_len + names_len);
        data.extend_from_slice(received);
        let mut keep = Keep { data, received };
        let target = keep.part(head.target);
        let path = keep.part_of(head.path, head.target, target);
        let query = head.query.map(|query| keep.part_of(query, head.target, target));
        let authority = keep.part_of(head.authority, head.target, target);
        let mut fields = Vec::with_capacity(count);
        fields.extend(head.fields().map(|(_, value)| {
            let value = keep.part(value);
            FieldSpan { name: OwnedSpan::default(), value }
        }));
        let mut data = keep.data;
        let names = data.len();
        data.extend_from_slice(head.method_text.as_bytes());
        for (field, (name, _)) in fields.iter_mut().zip(head.fields()) {
            let start = (data.len() - names) as u32;
            data.extend_from_slice(name.as_bytes());
            field.name = OwnedSpan { start, end: (data.len() - names) as u32 };
        }
        let (names, method) = (names as u32, head.method_text.len() as u32);
        OwnedHead {
            fields: fields.into(),
            places: RequestLineSpans { target, path, query, authority, names, method },
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
            data: data.into(),
        }
    }

    /// The head as it was parsed.
    pub fn view(&self) -> Head<'_> {
        let OwnedHead { data, fields, places, flags, len } = self;
        let (bytes, names) = data.split_at(places.names as usize);
        // they were text before, each and so all of them
        let names = std::str::from_utf8(names).unwrap_or_default();
        let part = |span: OwnedSpan| &bytes[span.range()];
        Head {
            method: flags.method,
            method_text: names.get(..places.method as usize).unwrap_or_default(),
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
        &self.data[..self.len.min(self.data.len())]
    }
}

/// The buffer of a head that is being kept.
struct Keep<'h> {
    data: Vec<u8>,
    received: &'h [u8],
}

impl Keep<'_> {
    /// A part of the received bytes is found by its address; anything else is added.
    fn part(&mut self, part: &[u8]) -> OwnedSpan {
        let start = offset(part, self.received).unwrap_or_else(|| {
            self.data.extend_from_slice(part);
            self.data.len() - part.len()
        });
        span(start, part.len())
    }

    /// The same of what may stand within another part, which is kept there.
    fn part_of(&mut self, part: &[u8], whole: &[u8], kept: OwnedSpan) -> OwnedSpan {
        match offset(part, whole) {
            Some(offset) => span(kept.start as usize + offset, part.len()),
            None => self.part(part),
        }
    }
}

/// Where in these bytes a part stands that was cut from them.
fn offset(part: &[u8], whole: &[u8]) -> Option<usize> {
    let offset = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    (offset <= whole.len() && part.len() <= whole.len() - offset).then_some(offset)
}

fn span(start: usize, len: usize) -> OwnedSpan {
    OwnedSpan { start: start as u32, end: (start + len) as u32 }
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
