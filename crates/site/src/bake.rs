//! Heads that are written once, when a file is loaded: all fields but Date and Connection.

use crate::disk::DiskFile;
use crate::entry::FoundFile;
use crate::fields::{AnswerFields, HeaderRuleSet, line};
use crate::head_lines::{length_line, server, status_line};
use crate::memory_budget::MemoryReservation;
use crate::variant::{Layout, Variant};
use forebay_conn::http2;
use forebay_http::coding::Coding;
use forebay_http::date;
use forebay_sys::file::{FileKind, Stamp};

/// How long after a change a file may still change without its time stamp moving.
pub(crate) const WEAK_NS: i64 = 2_000_000_000;

const SECOND_NS: i64 = 1_000_000_000;

/// Of what is no file.
const NO_STAMP: Stamp = Stamp {
    kind: FileKind::Special,
    device: 0,
    inode: 0,
    links: 1,
    size: 0,
    mtime_ns: 0,
    ctime_ns: 0,
};

/// What all variants of an answer share.
pub(crate) struct CommonHead<'c> {
    pub(crate) status: u16,
    pub(crate) is_server_named: bool,
    pub(crate) cache_control: Option<&'c str>,
    pub(crate) content_type: &'c str,
    /// What the choice among the variants depends on.
    pub(crate) vary: Option<&'static str>,
    pub(crate) header_rules: HeaderRuleSet<'c>,
    /// Nanoseconds since 1970.
    pub(crate) now_ns: i64,
}

/// The heads of one variant.
pub(crate) struct Heads {
    pub(crate) etag: Box<[u8]>,
    pub(crate) last_modified: u64,
    pub(crate) ok: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) not_modified: Box<[u8]>,
}

/// Where the body of a variant is.
pub(crate) enum BodyAt {
    /// Behind the head, in this memory.
    Memory(MemoryReservation),
    /// In the file.
    Disk(DiskFile),
    /// With the one answer it was read for.
    Nowhere,
}

impl Heads {
    /// The variant whose 200 head is in `ok`.
    pub(crate) fn variant(self, coding: Coding, stamp: &Stamp, body: BodyAt) -> Variant {
        let (reservation, file) = match body {
            BodyAt::Memory(reservation) => (Some(Box::new(reservation)), None),
            BodyAt::Disk(file) => (None, Some(file)),
            BodyAt::Nowhere => (None, None),
        };
        Variant {
            coding,
            stamp: *stamp,
            size: stamp.size,
            last_modified: self.last_modified,
            etag: self.etag,
            not_modified: self.not_modified,
            layout: self.layout,
            ready: self.ok.into_boxed_slice(),
            file,
            reservation,
        }
    }
}

impl<'c> CommonHead<'c> {
    /// Writes the heads of a variant whose file has this stamp.
    pub(crate) fn heads(&self, coding: Coding, stamp: &Stamp) -> Heads {
        let etag = entity_tag(stamp, self.now_ns);
        // Never later than Date (RFC 9110 §8.8.2.1), which a loop may have read a moment ago.
        let modified_ns = stamp.mtime_ns.min(self.now_ns - SECOND_NS).max(0);
        let last_modified = u64::try_from(modified_ns / 1_000_000_000).unwrap_or(0);
        let date = date::format(last_modified);
        let mut fields = self.begin();
        if self.status == 200 {
            self.cache_control(&mut fields);
            fields.push("Last-Modified", date.as_slice());
            fields.push("ETag", etag.as_ref());
        }
        self.vary(&mut fields);
        if coding != Coding::Identity {
            fields.push("Content-Encoding", coding.as_str().as_bytes());
        }
        if self.status == 200 {
            fields.push("Accept-Ranges", b"bytes".as_slice());
        }
        let (ok, layout) = self.end(fields, stamp.size);
        Heads { not_modified: self.not_modified(&etag), etag, last_modified, ok, layout }
    }

    /// An answer with a body that was made and is no file.
    pub(crate) fn found(&self, body: Vec<u8>) -> FoundFile {
        let size = body.len() as u64;
        let mut fields = self.begin();
        self.cache_control(&mut fields);
        self.vary(&mut fields);
        let (mut ready, layout) = self.end(fields, size);
        ready.extend_from_slice(&body);
        let identity = Variant {
            coding: Coding::Identity,
            stamp: NO_STAMP,
            size,
            last_modified: 0,
            etag: Box::default(),
            not_modified: Box::default(),
            layout,
            ready: ready.into_boxed_slice(),
            file: None,
            reservation: None,
        };
        let (status, encoded) = (self.status, Vec::new());
        FoundFile { status, is_file: false, identity, encoded, on_demand: None }
    }

    fn begin(&self) -> AnswerFields<'c> {
        let mut fields = AnswerFields::default();
        fields.push("Content-Type", self.content_type.as_bytes());
        server(self.is_server_named, &mut fields);
        fields
    }

    fn end<'f>(&self, mut fields: AnswerFields<'f>, size: u64) -> (Vec<u8>, Layout)
    where
        'c: 'f,
    {
        fields.apply(self.header_rules, None);
        if self.status >= 400 {
            fields.shorten_for_error();
        }
        let content_type = fields.take("Content-Type").unwrap_or_default();
        let mut head = status_line(self.status);
        let status_end = head.len();
        line(&mut head, "Content-Type", &content_type);
        let type_end = head.len();
        fields.write(&mut head);
        let fields_end = head.len();
        length_line(&mut head, size);
        let head_end = head.len();
        head.extend_from_slice(&http2::bake(&head));
        let (block_end, body_start) = (head.len(), head.len());
        let layout = Layout { status_end, type_end, fields_end, head_end, block_end, body_start };
        (head, layout)
    }

    fn cache_control(&self, fields: &mut AnswerFields<'c>) {
        if let Some(value) = self.cache_control {
            fields.push("Cache-Control", value.as_bytes());
        }
    }

    fn vary(&self, fields: &mut AnswerFields<'c>) {
        if let Some(name) = self.vary {
            fields.push("Vary", name.as_bytes());
        }
    }

    /// RFC 9110 §15.4.5: of the 200's fields those that tell caches which answer is meant.
    fn not_modified(&self, etag: &[u8]) -> Box<[u8]> {
        let mut head = status_line(304);
        let mut fields = AnswerFields::default();
        server(self.is_server_named, &mut fields);
        if let Some(value) = self.cache_control {
            fields.push("Cache-Control", value.as_bytes());
        }
        fields.push("ETag", etag);
        if let Some(name) = self.vary {
            fields.push("Vary", name.as_bytes());
        }
        fields.apply(self.header_rules, Some(self.content_type));
        drop(fields.take("Content-Type"));
        fields.write(&mut head);
        head.into_boxed_slice()
    }
}

/// From inode, size and time of change; weak while the file could still change unnoticed.
fn entity_tag(stamp: &Stamp, now_ns: i64) -> Box<[u8]> {
    let weak = if is_young(stamp, now_ns) { "W/" } else { "" };
    let Stamp { inode, size, mtime_ns, .. } = stamp;
    format!("{weak}\"{inode:x}-{size:x}-{mtime_ns:x}\"").into_bytes().into_boxed_slice()
}

fn is_young(stamp: &Stamp, now_ns: i64) -> bool {
    now_ns.saturating_sub(stamp.mtime_ns).unsigned_abs() < WEAK_NS.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::file::FileKind;

    fn stamp(mtime_ns: i64) -> Stamp {
        Stamp {
            kind: FileKind::Regular,
            device: 1,
            inode: 0xabc,
            links: 1,
            size: 1024,
            mtime_ns,
            ctime_ns: 0,
        }
    }

    fn common(varies: bool, now_ns: i64) -> CommonHead<'static> {
        CommonHead {
            status: 200,
            is_server_named: true,
            cache_control: Some("no-cache"),
            content_type: "text/css; charset=utf-8",
            vary: varies.then_some("Accept-Encoding"),
            header_rules: HeaderRuleSet::default(),
            now_ns,
        }
    }

    #[test]
    fn a_head_is_whole_but_for_date_and_connection() {
        let heads = common(true, 9_000_000_000).heads(Coding::Br, &stamp(1_000_000_001));
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/css; charset=utf-8\r\n\
            Server: Forebay\r\nCache-Control: no-cache\r\nLast-Modified: Thu, 01 Jan 1970 00:00:01 GMT\r\n\
            ETag: \"abc-400-3b9aca01\"\r\nVary: Accept-Encoding\r\nContent-Encoding: br\r\n\
            Accept-Ranges: bytes\r\nContent-Length: 1024\r\n";
        let (head, block) = heads.ok.split_at(heads.layout.head_end);
        assert_eq!(std::str::from_utf8(head).unwrap(), expected);
        assert_eq!(block, &*forebay_conn::http2::bake(expected.as_bytes()));
        assert_eq!(heads.layout.block_end, heads.layout.body_start);
        let expected = "HTTP/1.1 304 Not Modified\r\nServer: Forebay\r\n\
            Cache-Control: no-cache\r\nETag: \"abc-400-3b9aca01\"\r\nVary: Accept-Encoding\r\n";
        assert_eq!(String::from_utf8(heads.not_modified.into_vec()).unwrap(), expected);
    }

    #[test]
    fn a_tag_is_weak_for_two_seconds() {
        let tag = |age_ns| entity_tag(&stamp(10 * WEAK_NS), 10 * WEAK_NS + age_ns);
        assert!(tag(0).starts_with(b"W/\""));
        assert!(tag(WEAK_NS - 1).starts_with(b"W/\""));
        assert!(tag(WEAK_NS).starts_with(b"\""));
        assert!(tag(-WEAK_NS).starts_with(b"\""), "a date in the future was set on purpose");
    }

    #[test]
    fn a_date_in_the_future_is_not_sent() {
        let heads = common(false, 5_000_000_000).heads(Coding::Identity, &stamp(i64::MAX));
        assert_eq!(heads.last_modified, 4);
    }
}
