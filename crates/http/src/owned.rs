//! A request head that outlives the bytes it was received in: put aside until it can be answered, or
//! sent to another process that answers it. It is never parsed again.

use crate::framing::Framing;
use crate::head::{FieldLines, FieldSpan, Head, Method, OwnedSpan, Tunnel, Version};

/// A head with its bytes, and where in them everything stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedHead {
    /// The head as it was received, then whatever else the head names.
    bytes: Box<[u8]>,
    /// The method and the names of fields.
    names: Box<str>,
    fields: Box<[FieldSpan]>,
    places: RequestLineSpans,
    flags: Flags,
    /// Bytes of the head as it was received.
    len: usize,
}

/// Where the parts of the request line stand, and which host is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RequestLineSpans {
    method: OwnedSpan,
    target: OwnedSpan,
    path: OwnedSpan,
    query: Option<OwnedSpan>,
    authority: OwnedSpan,
}

/// What was worked out of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags {
    method: Method,
    version: Version,
    framing: Framing,
    keep_alive: bool,
    expects_continue: bool,
    tunnel: Option<Tunnel>,
    present: u32,
}

/// Why bytes are no [encoded](OwnedHead::encode) head: they are cut short, or their writer is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedHead;

impl OwnedHead {
    /// Keeps `head`, which was parsed from the front of `received`.
    pub fn new(head: &Head<'_>, received: &[u8]) -> OwnedHead {
        let received = &received[..head.len.min(received.len())];
        // exactly as much as they need
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

    /// How the body is framed.
    pub fn framing(&self) -> Framing {
        self.flags.framing
    }

    /// The head as it was received; empty if it did not come as text.
    pub fn received(&self) -> &[u8] {
        &self.bytes[..self.len.min(self.bytes.len())]
    }

    /// Writes it for another process of the same version of this program.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let OwnedHead { bytes, names, fields, places, flags, len } = self;
        let mut number = |number: u64| out.extend_from_slice(&number.to_le_bytes());
        number(*len as u64);
        let framing = match flags.framing {
            Framing::None => (0, 0),
            Framing::Sized(bytes) => (1, bytes),
            Framing::Chunked => (2, 0),
        };
        [framing.0, framing.1].into_iter().for_each(&mut number);
        number(match flags.version {
            Version::Http10 => 10,
            Version::Http11 => 11,
            Version::Http2 => 20,
        });
        let tunnel = match flags.tunnel {
            None => 0,
            Some(Tunnel::WebSocket) => 1,
            Some(Tunnel::Unknown) => 2,
        };
        let said = u64::from(flags.keep_alive) | u64::from(flags.expects_continue) << 1;
        number(said | tunnel << 2);
        number(u64::from(flags.present));
        let mut span = |span: OwnedSpan| number(u64::from(span.start) << 32 | u64::from(span.end));
        let RequestLineSpans { method, target, path, query, authority } = *places;
        let no_query = OwnedSpan { start: u32::MAX, end: 0 };
        [method, target, path, query.unwrap_or(no_query), authority]
            .into_iter()
            .for_each(&mut span);
        number(fields.len() as u64);
        let mut span = |span: OwnedSpan| number(u64::from(span.start) << 32 | u64::from(span.end));
        fields.iter().flat_map(|field| [field.name, field.value]).for_each(&mut span);
        number(names.len() as u64);
        number(bytes.len() as u64);
        out.extend_from_slice(names.as_bytes());
        out.extend_from_slice(bytes);
    }

    /// Reads what [`encode`](OwnedHead::encode) wrote at the front of `bytes`, and says how long it is.
    ///
    /// # Errors
    /// [`DamagedHead`] if a part is missing or a place lies outside.
    pub fn decode(bytes: &[u8]) -> Result<(OwnedHead, usize), DamagedHead> {
        let mut read = Read { bytes, at: 0 };
        let len = read.size()?;
        let framing = match (read.number()?, read.number()?) {
            (0, _) => Framing::None,
            (1, bytes) => Framing::Sized(bytes),
            (2, _) => Framing::Chunked,
            _ => return Err(DamagedHead),
        };
        let version = match read.number()? {
            10 => Version::Http10,
            11 => Version::Http11,
            20 => Version::Http2,
            _ => return Err(DamagedHead),
        };
        let said = read.number()?;
        let present = u32::try_from(read.number()?).map_err(|_| DamagedHead)?;
        let [method, target, path] = [read.span()?, read.span()?, read.span()?];
        let query = Some(read.span()?).filter(|span| span.start != u32::MAX);
        let authority = read.span()?;
        let count = read.size()?;
        if count > read.left() {
            return Err(DamagedHead);
        }
        let fields: Result<Box<[_]>, _> =
            (0..count).map(|_| Ok(FieldSpan { name: read.span()?, value: read.span()? })).collect();
        let fields = fields?;
        let (names_len, bytes_len) = (read.size()?, read.size()?);
        let names = std::str::from_utf8(read.take(names_len)?).map_err(|_| DamagedHead)?;
        let kept = read.take(bytes_len)?;
        let places = RequestLineSpans { method, target, path, query, authority };
        let in_names = |span: &OwnedSpan| names.get(span.range()).is_some();
        let in_bytes = |span: &OwnedSpan| kept.get(span.range()).is_some();
        let parts = [target, path, authority].into_iter().chain(query);
        let is_whole = in_names(&method)
            && parts.into_iter().all(|span| in_bytes(&span))
            && fields.iter().all(|field| in_names(&field.name) && in_bytes(&field.value))
            && len <= kept.len();
        if !is_whole {
            return Err(DamagedHead);
        }
        let flags = Flags {
            method: Method::from_token(&names[method.range()]),
            version,
            framing,
            keep_alive: said & 1 != 0,
            expects_continue: said & 2 != 0,
            tunnel: match said >> 2 {
                0 => None,
                1 => Some(Tunnel::WebSocket),
                2 => Some(Tunnel::Unknown),
                _ => return Err(DamagedHead),
            },
            present,
        };
        let head =
            OwnedHead { bytes: kept.into(), names: names.into(), fields, places, flags, len };
        Ok((head, read.at))
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

    /// A part of the received bytes is found by its address; anything else is added.
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

/// An encoded head while it is read.
struct Read<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Read<'b> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], DamagedHead> {
        let end = self.at.checked_add(count).ok_or(DamagedHead)?;
        let taken = self.bytes.get(self.at..end).ok_or(DamagedHead)?;
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, DamagedHead> {
        let bytes = self.take(8)?.try_into().map_err(|_| DamagedHead)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn size(&mut self) -> Result<usize, DamagedHead> {
        usize::try_from(self.number()?).map_err(|_| DamagedHead)
    }

    fn span(&mut self) -> Result<OwnedSpan, DamagedHead> {
        let number = self.number()?;
        Ok(OwnedSpan { start: (number >> 32) as u32, end: number as u32 })
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

    /// Everything a head says.
    fn parts<'h>(head: &Head<'h>) -> impl std::fmt::Debug + use<'h> {
        let line = (head.method, head.method_text, head.target, head.path, head.query);
        let rest = (head.authority, head.version, head.framing, head.keep_alive, head.len);
        (line, rest, head.expects_continue, head.fields().collect::<Vec<_>>())
    }

    const HEADS: [&str; 5] = [
        "GET /a?b HTTP/1.1\r\nHost: h\r\nAccept: a\r\naccept:  b \r\n\r\nmore",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\nExpect: 100-continue\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT http://a:80?q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
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

    #[test]
    fn another_process_reads_the_same() {
        for text in HEADS {
            let head = owned(text);
            let mut encoded = Vec::new();
            head.encode(&mut encoded);
            let len = encoded.len();
            for end in 0..len {
                assert_eq!(OwnedHead::decode(&encoded[..end]), Err(DamagedHead), "{end}");
            }
            encoded.extend_from_slice(b"next");
            assert_eq!(OwnedHead::decode(&encoded), Ok((head, len)));
        }
    }

    #[test]
    fn damage_is_found_and_nothing_panics() {
        let mut encoded = Vec::new();
        owned(HEADS[0]).encode(&mut encoded);
        for at in 0..encoded.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = encoded.clone();
                damaged[at] = byte;
                if let Ok((head, _)) = OwnedHead::decode(&damaged) {
                    let _ = format!("{:?}", parts(&head.view()));
                }
            }
        }
    }
}
