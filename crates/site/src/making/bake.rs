//! Heads that are written once, when a file is loaded: all fields but Date and Connection.

use crate::bodies::disk::DiskFile;
use crate::bodies::memory_budget::MemoryReservation;
use crate::bodies::variant::{Layout, Variant};
use crate::cache::entry::FoundFile;
use crate::heads::entity_tag::EntityTag;
use crate::heads::fields::{AnswerFields, HeaderRuleSet, line};
use crate::heads::head_lines::{length_line, server, status_line};
use forebay_conn::http2;
use forebay_http::coding::Coding;
use forebay_http::date;
use forebay_sys::file::{FileKind, Stamp};

const SECOND_NS: i64 = 1_000_000_000;

/// Times that mean nothing: tools that make reproducible images give all files one time. ostree has
/// 0, the store of Nix and jib have 1, which [`last_modified`] knows; buildpacks have the first
/// seconds of 1980, where ZIP begins.
const NO_TIMES: [u64; 2] = [315_532_800, 315_532_801];

/// The stamp of an answer that is no file.
const NO_STAMP: Stamp = Stamp {
    kind: FileKind::Special,
    device: 0,
    inode: 0,
    links: 1,
    size: 0,
    mtime_ns: 0,
    ctime_ns: 0,
};

/// The head that all variants of an answer share.
pub(crate) struct CommonHead<'c> {
    pub(crate) status: u16,
    pub(crate) is_server_named: bool,
    pub(crate) cache_control: Option<&'c str>,
    pub(crate) content_type: &'c str,
    /// The request fields on which the choice among the variants depends.
    pub(crate) vary: Option<&'static str>,
    pub(crate) header_rules: HeaderRuleSet<'c>,
    /// Nanoseconds since 1970.
    pub(crate) now_ns: i64,
}

/// The heads of one variant.
pub(crate) struct Heads {
    pub(crate) tag: EntityTag,
    pub(crate) last_modified: Option<u64>,
    pub(crate) ok: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) not_modified: Box<[u8]>,
}

/// The place of a variant's body.
pub(crate) enum BodyAt {
    /// The body is behind the head, in this memory.
    Memory(MemoryReservation),
    /// The body is in the file.
    Disk(DiskFile),
    /// The body is only in the one answer it was read for.
    Nowhere,
}

impl Heads {
    /// Puts the 200 head into the room before a body, which begins at `start`; `None` if there is
    /// too little room.
    pub(crate) fn before(self, mut ready: Vec<u8>, start: usize) -> Option<Heads> {
        let room = ready.get_mut(..start)?.get_mut(..self.ok.len())?;
        room.copy_from_slice(&self.ok);
        Some(Heads { ok: ready, layout: Layout { body_start: start, ..self.layout }, ..self })
    }

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
            tag: self.tag,
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
    pub(crate) fn heads(&self, coding: Coding, stamp: &Stamp, tag: EntityTag) -> Heads {
        let last_modified = last_modified(stamp, self.now_ns);
        let (ok, layout) = self.ok(coding, stamp.size, last_modified, &tag);
        Heads { not_modified: self.not_modified(&tag), tag, last_modified, ok, layout }
    }

    /// An upper bound of the room that the head of a variant takes, with a tag of its content.
    pub(crate) fn room(&self, coding: Coding, stamp: &Stamp) -> usize {
        let last_modified = last_modified(stamp, self.now_ns);
        self.ok(coding, stamp.size, last_modified, &EntityTag::widest(coding)).0.len()
    }

    fn ok(
        &self,
        coding: Coding,
        size: u64,
        last_modified: Option<u64>,
        tag: &EntityTag,
    ) -> (Vec<u8>, Layout) {
        let date = last_modified.map(date::format);
        let mut fields = self.begin();
        if self.status == 200 {
            self.cache_control(&mut fields);
            if let Some(date) = &date {
                fields.push("Last-Modified", date.as_slice());
            }
            fields.push("ETag", tag.text.as_ref());
        }
        self.vary(&mut fields);
        if coding != Coding::Identity {
            fields.push("Content-Encoding", coding.as_str().as_bytes());
        }
        if self.status == 200 {
            fields.push("Accept-Ranges", b"bytes".as_slice());
        }
        self.end(fields, size)
    }

    /// An answer with a body that is not a file's.
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
            last_modified: None,
            tag: EntityTag::none(),
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
            fields.shorten_for_error(None);
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

    /// The fields of the 200 that a 304 has, too: those that say to caches which answer is meant
    /// (RFC 9110 §15.4.5).
    fn not_modified(&self, tag: &EntityTag) -> Box<[u8]> {
        let mut head = status_line(304);
        let mut fields = AnswerFields::default();
        server(self.is_server_named, &mut fields);
        if let Some(value) = self.cache_control {
            fields.push("Cache-Control", value.as_bytes());
        }
        fields.push("ETag", tag.text.as_ref());
        if let Some(name) = self.vary {
            fields.push("Vary", name.as_bytes());
        }
        fields.apply(self.header_rules, Some(self.content_type));
        drop(fields.take("Content-Type"));
        fields.write(&mut head);
        head.into_boxed_slice()
    }
}

/// The time at which the file was changed, in seconds since 1970; `None` if its time says nothing.
fn last_modified(stamp: &Stamp, now_ns: i64) -> Option<u64> {
    // Never later than Date (RFC 9110 §8.8.2.1), which a loop may have read a moment ago.
    let modified_ns = stamp.mtime_ns.min(now_ns - SECOND_NS);
    let seconds = u64::try_from(modified_ns.div_euclid(SECOND_NS)).ok()?;
    (seconds > 1 && !NO_TIMES.contains(&seconds)).then_some(seconds)
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
        let tag = EntityTag { text: b"\"abc-br\""[..].into(), young_until_ns: None };
        let common = common(true, 9_000_000_000);
        let heads = common.heads(Coding::Br, &stamp(7_000_000_001), tag);
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/css; charset=utf-8\r\n\
            Server: Forebay\r\nCache-Control: no-cache\r\nLast-Modified: Thu, 01 Jan 1970 00:00:07 GMT\r\n\
            ETag: \"abc-br\"\r\nVary: Accept-Encoding\r\nContent-Encoding: br\r\n\
            Accept-Ranges: bytes\r\nContent-Length: 1024\r\n";
        let (head, block) = heads.ok.split_at(heads.layout.head_end);
        assert_eq!(std::str::from_utf8(head).unwrap(), expected);
        assert_eq!(block, &*forebay_conn::http2::bake(expected.as_bytes()));
        assert_eq!(heads.layout.block_end, heads.layout.body_start);
        let expected = "HTTP/1.1 304 Not Modified\r\nServer: Forebay\r\n\
            Cache-Control: no-cache\r\nETag: \"abc-br\"\r\nVary: Accept-Encoding\r\n";
        assert_eq!(String::from_utf8(heads.not_modified.into_vec()).unwrap(), expected);
    }

    #[test]
    fn a_date_in_the_future_is_not_sent() {
        assert_eq!(last_modified(&stamp(i64::MAX), 5_000_000_000), Some(4));
    }

    #[test]
    fn a_time_that_all_files_of_an_image_have_is_no_date() {
        let at = |seconds: i64| last_modified(&stamp(seconds * SECOND_NS), i64::MAX);
        for seconds in [i64::MIN / SECOND_NS, -1, 0, 1, 315_532_800, 315_532_801] {
            assert_eq!(at(seconds), None, "{seconds}");
        }
        assert_eq!((at(2), at(315_532_799)), (Some(2), Some(315_532_799)));
        let heads = common(false, i64::MAX).heads(Coding::Identity, &stamp(1), EntityTag::none());
        assert!(!String::from_utf8_lossy(&heads.ok).contains("Last-Modified"));
    }
}
