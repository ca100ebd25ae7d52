//! Compression of answers that applications give, as they pass by.
//!
//! The rules are those for files: the same types, the same codings, nothing small. What was received is
//! passed on before anything more is waited for, so that a page that is made slowly arrives as it is made. A
//! codec has little memory, because every answer that is under way has one: windows of 128 KiB, and levels
//! below those of [`compress`](crate::bodies::compress), because nothing of it is kept.

use crate::bodies::compress::{LEAST_BYTES, is_compressible};
use flate2::write::GzEncoder;
use forebay_http::coding::{Coding, Preference};
use forebay_http::head::Head;
use std::borrow::Cow;
use std::io::{self, Write};

const BR_LEVEL: i32 = 3;
const ZSTD_LEVEL: i32 = 3;
const GZIP_LEVEL: u32 = 4;
/// The window, as a power of two.
const WINDOW: u32 = 17;
/// Room for what the codec for brotli gives at a time, bytes.
const BR_ROOM_BYTES: usize = 4096;

type FieldPair<'f> = (&'f str, Cow<'f, [u8]>);

/// Fields that hold for the bytes as they are, and for no coding of them.
const DIGESTS: [&str; 4] = ["Content-MD5", "Digest", "Content-Digest", "Repr-Digest"];

/// The conditions under which an answer is passed on in a coding.
pub(crate) struct CodingRules<'r> {
    /// The codings, the best first.
    pub(crate) codings: &'r [Coding],
    /// Larger bodies stay as they are.
    pub(crate) most_bytes: u64,
    /// Whether answers with a strong tag stay as they are, too.
    pub(crate) keeps_strong_tags: bool,
}

impl CodingRules<'_> {
    /// The coding in which an answer with this status and these fields is passed on; the fields are
    /// changed to match. If only the client's preference is against a coding, they say so.
    pub(crate) fn choose(
        &self,
        head: &Head<'_>,
        status: u16,
        length: Option<u64>,
        said: &mut Vec<FieldPair<'_>>,
    ) -> Option<Coding> {
        if !self.fit(status, length, said) {
            return None;
        }
        if !lists(said, "Vary", b"Accept-Encoding") && !lists(said, "Vary", b"*") {
            said.push(("Vary", Cow::Borrowed(b"Accept-Encoding")));
        }
        let coding = self.best(&Preference::of(head))?;
        said.retain(|(name, _)| !name.eq_ignore_ascii_case("Accept-Ranges"));
        for (name, value) in said.iter_mut() {
            // the same content in other bytes (RFC 9110 §8.8.1)
            if is_strong_tag(name, value) {
                *value = Cow::Owned([b"W/", &**value].concat());
            }
        }
        said.push(("Content-Encoding", Cow::Borrowed(coding.as_str().as_bytes())));
        Some(coding)
    }

    /// Whether an answer may be compressed, for a client that takes it.
    fn fit(&self, status: u16, length: Option<u64>, said: &[FieldPair<'_>]) -> bool {
        // of a part of something nothing can be compressed, and what has no body is not changed
        let may_be = !matches!(status, 100..=199 | 204..=206 | 304);
        let fits = length.is_none_or(|length| (LEAST_BYTES..=self.most_bytes).contains(&length));
        let media_type = said.iter().find(|(name, _)| name.eq_ignore_ascii_case("Content-Type"));
        let is_text =
            |(_, value): &FieldPair<'_>| std::str::from_utf8(value).is_ok_and(is_compressible);
        let has = |name: &str| said.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let is_fixed = || {
            ["Content-Encoding", "Content-Range"].iter().chain(&DIGESTS).any(|name| has(name))
                || lists(said, "Cache-Control", b"no-transform")
                || self.keeps_strong_tags
                    && said.iter().any(|(name, value)| is_strong_tag(name, value))
        };
        !self.codings.is_empty() && may_be && fits && media_type.is_some_and(is_text) && !is_fixed()
    }

    /// The client's favourite coding, if that is not the body as it is.
    fn best(&self, preference: &Preference) -> Option<Coding> {
        let of_identity = preference.weight(Coding::Identity);
        let mut best = None;
        for coding in self.codings.iter().filter(|coding| **coding != Coding::Identity) {
            let Some(weight) = preference.weight(*coding) else { continue };
            if best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, *coding));
            }
        }
        let best = best.filter(|(weight, _)| of_identity.is_none_or(|least| *weight >= least));
        best.map(|(_, coding)| coding)
    }
}

/// Whether a field is a tag that says that bytes are the same.
fn is_strong_tag(name: &str, value: &[u8]) -> bool {
    name.eq_ignore_ascii_case("ETag") && value.starts_with(b"\"")
}

/// Whether a field that is a list names this.
fn lists(said: &[FieldPair<'_>], name: &str, item: &[u8]) -> bool {
    let lines = said.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let mut items = lines.flat_map(|(_, value)| value.split(|&b| b == b','));
    items.any(|found| found.trim_ascii().eq_ignore_ascii_case(item))
}

/// Compresses one body as it comes.
pub struct Recoder(Codec);

enum Codec {
    /// `None` when it has ended.
    Br(Option<Box<brotli::CompressorWriter<Vec<u8>>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl Recoder {
    /// A recoder to this coding, which is not the identity.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(coding: Coding) -> io::Result<Recoder> {
        Ok(Recoder(match coding {
            Coding::Br => {
                let params = brotli::enc::BrotliEncoderParams {
                    quality: BR_LEVEL,
                    lgwin: WINDOW as i32,
                    ..Default::default()
                };
                let writer =
                    brotli::CompressorWriter::with_params(Vec::new(), BR_ROOM_BYTES, &params);
                Codec::Br(Some(Box::new(writer)))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.window_log(WINDOW)?;
                Codec::Zstd(Box::new(encoder))
            }
            Coding::Gzip | Coding::Identity => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Codec::Gzip(Box::new(GzEncoder::new(Vec::new(), level)))
            }
        }))
    }

    /// More of the body. What it becomes is appended to `out` when there is enough of it, or at the next
    /// [`flush`](Recoder::flush).
    ///
    /// # Errors
    /// If the codec fails, which only lack of memory explains.
    pub fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.with(out, |writer| writer.write_all(bytes))
    }

    /// Appends all that the bytes before have become, so that a client can read them.
    ///
    /// # Errors
    /// As for [`write`](Recoder::write).
    pub fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.with(out, |writer| writer.flush())
    }

    /// The body is whole: appends what is left.
    ///
    /// # Errors
    /// As for [`write`](Recoder::write).
    pub fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.0 {
            Codec::Br(writer) => {
                if let Some(writer) = writer.take() {
                    out.append(&mut writer.into_inner());
                }
            }
            Codec::Zstd(encoder) => {
                encoder.do_finish()?;
                out.append(encoder.get_mut());
            }
            Codec::Gzip(encoder) => {
                encoder.try_finish()?;
                out.append(encoder.get_mut());
            }
        }
        Ok(())
    }

    fn with(
        &mut self,
        out: &mut Vec<u8>,
        act: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        match &mut self.0 {
            Codec::Br(Some(writer)) => {
                act(writer)?;
                out.append(writer.get_mut());
            }
            Codec::Br(None) => {}
            Codec::Zstd(encoder) => {
                act(encoder)?;
                out.append(encoder.get_mut());
            }
            Codec::Gzip(encoder) => {
                act(encoder)?;
                out.append(encoder.get_mut());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::{HeadLimits, Lines, ParsedHead};
    use std::io::Read;

    const ALL: [Coding; 3] = [Coding::Br, Coding::Zstd, Coding::Gzip];

    /// The coding, and the fields afterwards, where the route says which codings.
    fn chosen(
        accept: &str,
        status: u16,
        length: Option<u64>,
        fields: &[(&'static str, &'static str)],
    ) -> (Option<Coding>, String) {
        chosen_by(false, accept, status, length, fields)
    }

    fn chosen_by(
        keeps_strong_tags: bool,
        accept: &str,
        status: u16,
        length: Option<u64>,
        fields: &[(&'static str, &'static str)],
    ) -> (Option<Coding>, String) {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{accept}\r\n");
        let mut lines = Lines::new();
        let Ok(ParsedHead::Complete(head)) =
            Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default())
        else {
            panic!("{text:?}");
        };
        let mut said: Vec<FieldPair<'_>> =
            fields.iter().map(|(name, value)| (*name, Cow::Borrowed(value.as_bytes()))).collect();
        let rules = CodingRules { codings: &ALL, most_bytes: 1 << 20, keeps_strong_tags };
        let coding = rules.choose(&head, status, length, &mut said);
        let line =
            |(name, value): &FieldPair<'_>| format!("{name}: {}", String::from_utf8_lossy(value));
        (coding, said.iter().map(line).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn what_files_would_be_is_compressed() {
        const TEXT: (&str, &str) = ("Content-Type", "text/html; charset=utf-8");
        const ANY: &str = "Accept-Encoding: gzip, br\r\n";
        let (coding, said) = chosen(ANY, 200, None, &[TEXT, ("ETag", "\"a\"")]);
        assert_eq!(coding, Some(Coding::Br));
        assert_eq!(
            said,
            "Content-Type: text/html; charset=utf-8; ETag: W/\"a\"; Vary: Accept-Encoding; \
             Content-Encoding: br"
        );
        let coding =
            |accept, status, length, fields: &[_]| chosen(accept, status, length, fields).0;
        assert_eq!(coding(ANY, 404, Some(5000), &[TEXT]), Some(Coding::Br));
        assert_eq!(coding("Accept-Encoding: gzip\r\n", 200, None, &[TEXT]), Some(Coding::Gzip));
        for (status, length, fields) in [
            (200, Some(100), &[TEXT][..]),
            (200, Some(2 << 20), &[TEXT]),
            (206, None, &[TEXT]),
            (304, None, &[TEXT]),
            (200, None, &[]),
            (200, None, &[("Content-Type", "image/png")]),
            (200, None, &[("Content-Type", "text/event-stream")]),
            (200, None, &[TEXT, ("content-encoding", "gzip")]),
            (200, None, &[TEXT, ("Cache-Control", "private, No-Transform")]),
            (200, None, &[TEXT, ("Repr-Digest", "sha-256=:x:")]),
        ] {
            let (coding, said) = chosen(ANY, status, length, fields);
            assert_eq!((coding, said.contains("Vary")), (None, false), "{status} {fields:?}");
        }
        // a client that does not accept the coding learns from Vary that others do
        let (coding, said) = chosen("", 200, None, &[TEXT, ("Vary", "Cookie")]);
        assert!(
            coding.is_none() && said.ends_with("Vary: Cookie; Vary: Accept-Encoding"),
            "{said}"
        );
        let (_, said) = chosen(ANY, 200, None, &[TEXT, ("Vary", "Cookie, accept-encoding")]);
        assert_eq!(said.matches("ccept-").count(), 1, "{said}");
    }

    #[test]
    fn a_strong_tag_stays_unless_the_route_says_otherwise() {
        const TEXT: (&str, &str) = ("Content-Type", "text/html");
        const ANY: &str = "Accept-Encoding: gzip, br\r\n";
        for (tag, is_coded) in [("\"a\"", false), ("W/\"a\"", true), ("a", true)] {
            let (coding, said) = chosen_by(true, ANY, 200, None, &[TEXT, ("etag", tag)]);
            assert_eq!((coding.is_some(), said.contains("Vary")), (is_coded, is_coded), "{tag}");
            assert!(said.contains(&format!("etag: {tag}")), "{said}");
        }
        assert!(chosen_by(true, ANY, 200, None, &[TEXT]).0.is_some());
    }

    fn plain(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        // of what is not whole, all that can be read
        let _ = match coding {
            Coding::Br => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain),
            Coding::Zstd => {
                zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut plain)
            }
            _ => flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain),
        };
        plain
    }

    #[test]
    fn what_was_flushed_can_be_read_and_the_whole_is_the_same() {
        let text = |number: usize| format!("<p>paragraph {number} of many that are alike</p>\n");
        for coding in ALL {
            let mut recoder = Recoder::new(coding).unwrap();
            let (mut out, mut body) = (Vec::new(), Vec::new());
            for number in 0..2000 {
                body.extend_from_slice(text(number).as_bytes());
                recoder.write(text(number).as_bytes(), &mut out).unwrap();
                if number % 500 == 0 {
                    recoder.flush(&mut out).unwrap();
                    assert_eq!(plain(coding, &out), body, "{coding:?} {number}");
                }
            }
            recoder.finish(&mut out).unwrap();
            assert_eq!(plain(coding, &out), body, "{coding:?}");
            assert!(out.len() * 4 < body.len(), "{coding:?} {}", out.len());
        }
    }
}
