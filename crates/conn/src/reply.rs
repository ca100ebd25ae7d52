//! The pen that writes an answer: a head and a short body are copied, a long body is left to the engine.

use crate::head_block::{encode_head, encode_lines};
use crate::head_values::HeadValues;
use crate::hsts::Hsts;
use crate::one_client::of_one_client;
use crate::out::Out;
use forebay_http::date::IMF_LEN;
use forebay_http::decimal;
use forebay_http::grpc;
use forebay_http::head::{Head, Method, Version};
use forebay_http::status::reason;
use forebay_http2::frame::HEADER_BYTES;
use forebay_http2::hpack::{KnownName, encode};
use std::io::Write;
use std::sync::Arc;

/// A bound on the bytes that [`Added`] writes.
const MOST_ADDED_BYTES: usize = 320;

/// The optional fields that the pen adds to a head.
#[derive(Clone, Copy, Debug, Default)]
struct Added<'r> {
    retry_after_s: u32,
    hsts: Option<Hsts>,
    waited_ms: Option<u32>,
    is_kept_out: bool,
    request_id: Option<&'r [u8]>,
}

impl Added<'_> {
    #[inline]
    fn is_any(&self) -> bool {
        self.retry_after_s > 0
            || self.hsts.is_some()
            || self.waited_ms.is_some()
            || self.is_kept_out
            || self.request_id.is_some()
    }

    fn write(self, to: &mut impl Write) -> std::io::Result<()> {
        if self.retry_after_s > 0 {
            write!(to, "Retry-After: {}\r\n", self.retry_after_s)?;
        }
        if let Some(waited_ms) = self.waited_ms {
            write!(to, "{WAITED}: {waited_ms}\r\n")?;
        }
        if self.is_kept_out {
            write!(to, "{REFUSED}: agent\r\n")?;
        }
        if let Some(id) = self.request_id {
            to.write_all(b"X-Request-ID: ")?;
            to.write_all(id)?;
            to.write_all(b"\r\n")?;
        }
        self.hsts.map_or(Ok(()), |hsts| hsts.write(to))
    }
}

/// The field in which a stage reports to the one before how long a request has waited in it.
const WAITED: &str = "Forebay-Delay";

/// The field in which a stage reports to the one before that its agent has refused a request.
const REFUSED: &str = "Forebay-Refused";

/// Whether an answer with this status has a body, unless the request was HEAD (RFC 9110 §6.4.1).
pub(crate) fn has_body(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 304)
}

/// A head in which `fields` replace the fields of the same names, if its answer has content or stands for
/// content (304). The `Content-Type` of a multipart answer stays, because it says how the parts are
/// separated.
#[cold]
fn replaced(status: u16, head: &[u8], fields: &[u8]) -> Vec<u8> {
    if !matches!(status, 200 | 206 | 304) {
        return head.to_vec();
    }
    let name = |line: &[u8]| line.iter().position(|&b| b == b':').map(|end| line[..end].to_vec());
    let lines = |text: &'_ [u8]| -> Vec<Vec<u8>> {
        text.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec).collect()
    };
    let (own, theirs) = (lines(head), lines(fields));
    let is_in_parts = |line: &[u8]| {
        const PARTS: &[u8] = b"content-type: multipart/byteranges";
        line.get(..PARTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(PARTS))
    };
    let has_parts = status == 206 && own.iter().any(|line| is_in_parts(line));
    let is_type = |name: &[u8]| name.eq_ignore_ascii_case(b"content-type");
    let theirs: Vec<_> = theirs
        .into_iter()
        .filter_map(|line| Some((name(&line)?, line)))
        .filter(|(name, _)| !(has_parts && is_type(name)))
        .collect();
    let mut text = Vec::with_capacity(head.len() + fields.len());
    for line in own {
        let name = name(&line);
        let is_theirs = name
            .is_some_and(|name| theirs.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)));
        if !is_theirs {
            text.extend_from_slice(&line);
        }
    }
    theirs.iter().for_each(|(_, line)| text.extend_from_slice(line));
    text
}

/// The changes to a head before it is written.
#[derive(Clone, Debug, Default)]
pub struct HeadChange {
    /// Field lines that replace those of the same names in an answer with content.
    pub fields: Option<Arc<[u8]>>,
    /// The values that replace the marks of the head.
    pub values: Option<Arc<HeadValues>>,
}

/// The pen that writes one answer into [`Out`].
#[derive(Debug)]
pub struct Reply<'o, B> {
    pub(crate) out: &'o mut Out<B>,
    pub(crate) date: &'o [u8; IMF_LEN],
    /// Whether the connection stays open after this answer; the handler may set it to `false`.
    pub keep_alive: bool,
    /// Seconds after which the client may try again (`Retry-After`); 0 says nothing about it.
    pub retry_after_s: u32,
    /// HSTS, for clients that have come through TLS.
    pub hsts: Option<Hsts>,
    /// How long the request has waited here, if a stage of this server wants to know.
    pub waited_ms: Option<u32>,
    /// Whether the agent of this stage refuses the request, which the stage before must know.
    pub is_kept_out: bool,
    /// The request's identifier (`X-Request-ID`), if the client gets it: at most 128 bytes that a field
    /// value may have.
    pub request_id: Option<Box<[u8]>>,
    /// The changes to the head before it is written, if any.
    pub change: Option<HeadChange>,
    /// Further field lines, each with its CR LF, whatever the answer is. They are for one client, so that
    /// the answer becomes `private` for caches.
    pub further: Option<Arc<[u8]>>,
    /// The time for which the idle connection will be kept after this answer, in seconds, which is
    /// announced; 0 announces nothing.
    pub(crate) timeout_s: u32,
    pub(crate) http10: bool,
    /// Whether the pen writes a block of HTTP/2, with [room](HEADER_BYTES) for the header of its frame
    /// before it, and for that of the body's frame behind it.
    pub(crate) is_http2: bool,
    /// Whether the request is a call of gRPC, whose client understands a refusal in trailers, and no
    /// page.
    is_call: bool,
    /// Where the block of HTTP/2 ends.
    pub(crate) head_end: usize,
    /// Whether the request was HEAD: bodies given to this pen are not written.
    pub(crate) head_only: bool,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
}

impl<'o, B> Reply<'o, B> {
    /// A pen for one answer. `date` is the current time, as the Date field writes it.
    pub fn new(out: &'o mut Out<B>, date: &'o [u8; IMF_LEN], keep_alive: bool) -> Reply<'o, B> {
        out.begin_answer();
        Reply {
            out,
            date,
            keep_alive,
            retry_after_s: 0,
            hsts: None,
            waited_ms: None,
            is_kept_out: false,
            request_id: None,
            change: None,
            further: None,
            timeout_s: 0,
            http10: false,
            is_http2: false,
            is_call: false,
            head_end: 0,
            head_only: false,
            status: 0,
            body_bytes: 0,
        }
    }

    /// Notes that this request is answered.
    pub fn answers(&mut self, head: &Head<'_>) {
        self.http10 = head.version == Version::Http10;
        self.head_only = head.method == Method::Head;
        self.is_call = self.is_http2 && head.method == Method::Post && grpc::is_call(head);
    }

    /// The status of the head that was written; 0 before that.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of the body: those that were copied, and those left to the engine.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Writes the head of an answer that another server gives, with the field that announces where its
    /// body ends: its `length` if that is known. If the client could not see the end of the body, the
    /// connection ends with the answer. A `Date` in the head is kept.
    pub fn relayed(&mut self, status: u16, head: &[u8], length: Option<u64>, has_date: bool) {
        if let Some(further) = self.further.take() {
            return self.relayed(status, &of_one_client(head, &further), length, has_date);
        }
        let length = length.filter(|_| status != 204);
        if self.is_http2 {
            return self.block(status, !has_date, |block| {
                encode_head(block, status, head);
                if let Some(length) = length {
                    encode::plain(block, KnownName::CONTENT_LENGTH, length.to_string().as_bytes());
                }
            });
        }
        self.status = status;
        let bytes = &mut self.out.bytes;
        bytes.extend_from_slice(head);
        match length {
            Some(length) => {
                bytes.extend_from_slice(b"Content-Length: ");
                decimal::push(length, bytes);
                bytes.extend_from_slice(b"\r\n");
            }
            None if !has_body(status) || self.head_only => {}
            None if self.http10 => self.keep_alive = false,
            None => bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        if !has_date {
            return self.head(status, b"");
        }
        self.add_own();
        // the bytes that end a head also end its last line
        let len = self.out.bytes.len();
        self.out.bytes.truncate(len.saturating_sub(2));
        self.end();
    }

    /// Writes the head of an answer after which the connection speaks another protocol (101, RFC 9110
    /// §7.8), which `head` names in a field `Upgrade`. In HTTP/2 a 200 makes the stream a tunnel (RFC
    /// 8441 §5).
    pub fn switch(&mut self, head: &[u8]) {
        if let Some(further) = self.further.take() {
            return self.switch(&of_one_client(head, &further));
        }
        if self.is_http2 {
            return self.block(200, true, |block| encode_head(block, 200, head));
        }
        self.status = 101;
        let bytes = &mut self.out.bytes;
        for part in [head, b"Date: ", self.date, b"\r\nConnection: upgrade\r\n\r\n"] {
            bytes.extend_from_slice(part);
        }
    }

    /// Writes a head. `head` is the status line and the fields, each line with its CR LF; Date,
    /// Connection and the empty line are added here.
    #[inline]
    pub fn head(&mut self, status: u16, head: &[u8]) {
        if self.is_call {
            return self.trailers_only(status);
        }
        if let Some(change) = self.change.take() {
            return self.changed(status, head, &change);
        }
        if let Some(further) = self.further.take() {
            return self.head(status, &of_one_client(head, &further));
        }
        if self.is_http2 {
            return self.block(status, true, |block| encode_head(block, status, head));
        }
        self.text(status, head);
    }

    /// Writes a head that is written again and again: `block` is what [`bake`](crate::head_block::bake)
    /// has made of it.
    #[inline]
    pub fn baked(&mut self, status: u16, head: &[u8], block: &[u8]) {
        if self.change.is_some() || self.further.is_some() || self.is_call {
            return self.head(status, head);
        }
        if self.is_http2 {
            return self.block(status, true, |to| to.extend_from_slice(block));
        }
        self.text(status, head);
    }

    /// Refuses a call of gRPC in place of its application: the head is also the trailers, and nothing
    /// follows. Logs and counters have the status that other requests would get.
    #[cold]
    fn trailers_only(&mut self, status: u16) {
        self.head_only = true;
        let further = self.further.take();
        self.block(200, true, |block| {
            encode::status(block, 200);
            encode::raw(block, b"content-type", b"application/grpc");
            encode::raw(block, b"grpc-status", grpc::status_of(status).as_bytes());
            encode::raw(block, b"grpc-message", reason(status).as_bytes());
            encode_lines(block, further.as_deref().unwrap_or_default());
        });
        self.status = status;
    }

    /// Writes a head with the changes for its request.
    #[cold]
    fn changed(&mut self, status: u16, head: &[u8], change: &HeadChange) {
        let HeadChange { fields, values } = change;
        match (fields, values) {
            (None, None) => self.head(status, head),
            (Some(fields), None) => self.head(status, &replaced(status, head, fields)),
            (Some(fields), Some(values)) => {
                let mut filled = Vec::with_capacity(head.len());
                values.fill(head, &mut filled);
                self.head(status, &replaced(status, &filled, fields));
            }
            (None, Some(values)) if self.further.is_some() => {
                let mut filled = Vec::with_capacity(head.len());
                values.fill(head, &mut filled);
                self.head(status, &filled);
            }
            (None, Some(values)) if self.is_http2 => self.block(status, true, |block| {
                encode::status(block, status);
                let end = head.iter().position(|&byte| byte == b'\n');
                values.encode(end.map_or(&[], |end| &head[end + 1..]), block);
            }),
            (None, Some(values)) => {
                values.fill(head, &mut self.out.bytes);
                self.text(status, b"");
            }
        }
    }

    /// Writes a head of HTTP/2, with the date if it has none.
    #[inline]
    fn block(&mut self, status: u16, adds_date: bool, write: impl FnOnce(&mut Vec<u8>)) {
        self.status = status;
        let bytes = &mut self.out.bytes;
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        write(bytes);
        let added = Added {
            retry_after_s: self.retry_after_s,
            hsts: self.hsts,
            waited_ms: self.waited_ms,
            is_kept_out: self.is_kept_out,
            request_id: self.request_id.as_deref(),
        };
        if added.is_any() {
            let mut text = [0; MOST_ADDED_BYTES];
            let mut rest = text.as_mut_slice();
            // the buffer is large enough, so that this does not fail
            let _ = added.write(&mut rest);
            let count = MOST_ADDED_BYTES - rest.len();
            encode_lines(bytes, &text[..count]);
        }
        if adds_date {
            encode::plain(bytes, KnownName::DATE, self.date);
        }
        self.head_end = bytes.len();
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
    }

    /// Writes a head of HTTP/1.
    #[inline]
    fn text(&mut self, status: u16, head: &[u8]) {
        self.status = status;
        let bytes = &mut self.out.bytes;
        bytes.reserve(head.len() + 80);
        bytes.extend_from_slice(head);
        self.add_own();
        let bytes = &mut self.out.bytes;
        bytes.extend_from_slice(b"Date: ");
        bytes.extend_from_slice(self.date);
        self.end();
    }

    /// Adds the fields that this pen knows of the answer.
    #[inline]
    fn add_own(&mut self) {
        let added = Added {
            retry_after_s: self.retry_after_s,
            hsts: self.hsts,
            waited_ms: self.waited_ms,
            is_kept_out: self.is_kept_out,
            request_id: self.request_id.as_deref(),
        };
        if added.is_any() {
            // writing into a vector does not fail
            let _ = added.write(&mut self.out.bytes);
        }
    }

    /// Ends a head behind the value of its last field.
    #[inline]
    fn end(&mut self) {
        if self.keep_alive && self.timeout_s > 0 {
            return self.announce();
        }
        self.out.bytes.extend_from_slice(match (self.keep_alive, self.http10) {
            (true, false) => b"\r\n\r\n",
            (true, true) => b"\r\nConnection: keep-alive\r\n\r\n",
            (false, _) => b"\r\nConnection: close\r\n\r\n",
        });
    }

    /// Ends a head with the announced time for which the connection is kept. The field is for this
    /// connection only, so Connection names it (RFC 9110 §7.6.1).
    fn announce(&mut self) {
        let seconds = self.timeout_s;
        let fields =
            format_args!("\r\nConnection: keep-alive\r\nKeep-Alive: timeout={seconds}\r\n\r\n");
        // writing into a vector does not fail
        let _ = self.out.bytes.write_fmt(fields);
    }

    /// Adds a short body by copying it; nothing if the request was HEAD.
    #[inline]
    pub fn copy(&mut self, body: &[u8]) {
        if self.head_only {
            return;
        }
        self.out.bytes.extend_from_slice(body);
        self.body_bytes += body.len() as u64;
    }

    /// Leaves a long body of `len` bytes for the engine to send; nothing if the request was HEAD.
    #[inline]
    pub fn stream(&mut self, body: B, len: u64) {
        if self.head_only {
            return;
        }
        self.out.body = Some(body);
        self.body_bytes += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head_block::bake;

    const HEAD: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n";
    const DATE: &[u8; IMF_LEN] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const HSTS: Hsts = Hsts { max_age_s: u64::MAX, subdomains: true, preload: true };

    /// The bytes that a pen of HTTP/2 has written.
    fn block(write: impl FnOnce(&mut Reply<'_, ()>)) -> Vec<u8> {
        let mut out = Out::default();
        let mut reply = Reply::new(&mut out, DATE, true);
        reply.is_http2 = true;
        write(&mut reply);
        reply.copy(b"hi");
        assert_eq!((reply.status(), reply.body_bytes()), (503, 2));
        let head_end = reply.head_end;
        assert_eq!(out.bytes[..HEADER_BYTES], [0; HEADER_BYTES]);
        assert_eq!(out.bytes[head_end..], *b"\0\0\0\0\0\0\0\0\0hi");
        out.bytes[HEADER_BYTES..head_end].to_vec()
    }

    #[test]
    fn a_block_says_what_the_text_says() {
        let mut out = Out::<()>::default();
        let mut reply = Reply::new(&mut out, DATE, true);
        (reply.retry_after_s, reply.hsts) = (u32::MAX, Some(HSTS));
        (reply.waited_ms, reply.is_kept_out) = (Some(u32::MAX), true);
        reply.request_id = Some([b'a'; 128].into());
        reply.head(503, HEAD);
        let expected = bake(&out.bytes);
        let asked = |write: fn(&mut Reply<'_, ()>)| {
            block(|reply| {
                (reply.retry_after_s, reply.hsts) = (u32::MAX, Some(HSTS));
                (reply.waited_ms, reply.is_kept_out) = (Some(u32::MAX), true);
                reply.request_id = Some([b'a'; 128].into());
                write(reply);
            })
        };
        assert_eq!(asked(|reply| reply.head(503, HEAD)), *expected);
        assert_eq!(asked(|reply| reply.baked(503, HEAD, &bake(HEAD))), *expected);
    }

    #[test]
    fn a_refused_call_gets_its_status_in_trailers() {
        use forebay_http::head::{HeadLimits, Lines, ParsedHead};
        let asked = b"POST /a.B/C HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\n\r\n";
        let mut lines = Lines::new();
        let Ok(ParsedHead::Complete(call)) = Head::parse(asked, &mut lines, &HeadLimits::default())
        else {
            unreachable!()
        };
        let mut out = Out::default();
        let mut reply: Reply<'_, ()> = Reply::new(&mut out, DATE, true);
        reply.is_http2 = true;
        reply.answers(&call);
        reply.retry_after_s = 2;
        reply.baked(503, HEAD, &bake(HEAD));
        reply.copy(b"a page");
        assert_eq!((reply.status(), reply.body_bytes()), (503, 0));
        let expected = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 14\r\n\
                         grpc-message: Service Unavailable\r\nRetry-After: 2\r\n";
        let block = &out.bytes[HEADER_BYTES..];
        assert!(block.windows(19).any(|part| part == b"Service Unavailable"));
        assert!(
            block.starts_with(&bake(b"HTTP/1.1 200 OK\r\n")) && expected.len() > block.len() / 2
        );
        // over HTTP/1.1 the request is no call
        let mut out = Out::default();
        let mut reply: Reply<'_, ()> = Reply::new(&mut out, DATE, true);
        reply.answers(&call);
        reply.head(503, HEAD);
        assert!(out.bytes.starts_with(HEAD));
    }

    #[test]
    fn further_lines_are_in_every_head() {
        const LINES: &[u8] = b"Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n";
        type Write = fn(&mut Reply<'_, ()>);
        let writes: [Write; 5] = [
            |reply| {
                let values = Some(Arc::default());
                reply.change = Some(HeadChange { values, ..HeadChange::default() });
                reply.head(503, HEAD);
            },
            |reply| reply.head(503, HEAD),
            |reply| reply.baked(503, HEAD, &bake(HEAD)),
            |reply| reply.relayed(503, HEAD, Some(2), true),
            |reply| reply.switch(HEAD),
        ];
        for (number, write) in writes.into_iter().enumerate() {
            for is_http2 in [false, true] {
                let mut out = Out::<()>::default();
                let mut reply = Reply::new(&mut out, DATE, true);
                (reply.is_http2, reply.further) = (is_http2, Some(LINES.into()));
                write(&mut reply);
                let lines = [b"Cache-Control: private\r\n", LINES].concat();
                let lines = if is_http2 { bake(&[HEAD, &lines].concat()) } else { lines.into() };
                let lines = if is_http2 { &lines[bake(HEAD).len()..] } else { &lines };
                let found = out.bytes.windows(lines.len()).filter(|part| *part == lines);
                assert_eq!(found.count(), 1, "{number} {is_http2}");
            }
        }
    }

    #[test]
    fn a_baked_head_is_text_for_a_client_of_http1() {
        let written = |write: fn(&mut Reply<'_, ()>)| {
            let mut out = Out::default();
            write(&mut Reply::new(&mut out, DATE, true));
            out.bytes
        };
        let expected = written(|reply| reply.head(503, HEAD));
        assert_eq!(written(|reply| reply.baked(503, HEAD, b"no text")), expected);
    }
}
