//! Compression on demand: the body of a cached answer in a coding that no file has it in.
//!
//! A helper thread compresses once for each answer and coding, when the first client asks whose
//! best choice the coding is; the outcome stays with the answer. So the levels may be higher than
//! those of a server that compresses every answer anew. A file that is sent from the disk is read
//! for it first, by a job of its own: reading may hang, and threads that compute are few.
//!
//! Measured on 120 pages, scripts and style sheets of 31 KB on average (of rustdoc and mdBook),
//! with the codecs below, on one core of a virtual machine:
//!
//! | coding | level | size | per 64 KiB | beside it |
//! |---|---|---|---|---|
//! | br | 5 | 24.6 % | 2.1 ms | 4: 26.0 %, 1.7 ms; 7: 24.4 %, 6.6 ms; 11: 21.6 %, 82 ms |
//! | zstd | 7 | 26.0 % | 0.8 ms | 3: 27.8 %, 0.2 ms; 9: 25.8 %, 0.9 ms; 12: 25.7 %, 2.4 ms |
//! | gzip | 6 | 26.4 % | 0.9 ms | 4: 26.9 %, 0.6 ms; 9: 26.2 %, 1.3 ms |
//!
//! For zstd the C library is taken: ruzstd has one level, which gives 34.6 % in 0.8 ms.

use crate::bodies::memory_budget::{MemoryBudget, MemoryReservation};
use crate::bodies::variant::{Layout, Variant};
use crate::heads::fields::line;
use crate::heads::head_lines::length_line;
use forebay_conn::http2;
use forebay_http::coding::{Coding, Preference};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const BR_LEVEL: i32 = 5;
/// The window, as a power of two: 4 MiB, as much as is compressed unless set otherwise.
const BR_WINDOW: i32 = 22;
const ZSTD_LEVEL: i32 = 7;
const GZIP_LEVEL: u32 = 6;

/// Smaller bodies fit into one segment anyway.
pub(crate) const LEAST_BYTES: u64 = 1024;
/// Saving less than this is not worth decoding; the field `Content-Encoding` takes a part of it.
const LEAST_SAVED_BYTES: usize = 64;

/// Types besides `text/…`, `…+json` and `…+xml` whose bytes are not compressed already.
const TYPES: [&str; 24] = [
    "application/javascript",
    "application/json",
    "application/json5",
    "application/jsonl",
    "application/ndjson",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-shellscript",
    "application/x-sql",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// Whether bodies of this media type become smaller. Parameters do not matter.
pub(crate) fn is_compressible(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let is = |known: &str| media_type.eq_ignore_ascii_case(known);
    let ends = |end: &str| {
        let at = media_type.len().checked_sub(end.len());
        at.and_then(|at| media_type.get(at..)).is_some_and(|tail| tail.eq_ignore_ascii_case(end))
    };
    let is_text = media_type.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
    // an event stream lives from what is sent at once
    is_text && !is("text/event-stream")
        || ends("+json")
        || ends("+xml")
        || TYPES.iter().any(|known| is(known))
}

/// The codings that an answer can be had in besides those of files, the best first, and the
/// variants that were made of it.
#[derive(Debug)]
pub(crate) struct OnDemand {
    codings: Vec<Coding>,
    /// The variants in the same order. An inner `None` says that the body does not become smaller.
    made: Vec<OnceLock<Option<Variant>>>,
    /// The file that is being compressed, if the body is not in memory. One variant is made at a
    /// time.
    read: Mutex<Option<WholeFile>>,
    /// Whether there is such a file, to be asked without waiting for the thread that reads or
    /// compresses.
    is_read: AtomicBool,
}

/// A file that was read to be compressed, until that is done.
#[derive(Debug)]
struct WholeFile {
    body: Vec<u8>,
    _reservation: MemoryReservation,
}

/// The memory budget has nothing left to read a file.
pub(crate) struct NoMemory;

/// The choice of a coding for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodingChoice {
    /// The variant that files have.
    File(Coding),
    /// The one with this place, which is made.
    Made(usize),
    /// The one with this place, once it is made.
    Make(usize),
}

impl OnDemand {
    /// `None` if nothing can be made for a body of this type and size. `wanted` are the codings of
    /// the settings, `files` those that files have.
    pub(crate) fn new(
        wanted: &[Coding],
        files: &[Coding],
        content_type: &str,
        bytes: u64,
    ) -> Option<OnDemand> {
        if bytes < LEAST_BYTES || !is_compressible(content_type) {
            return None;
        }
        let is_wanted = |coding: &&Coding| **coding != Coding::Identity && !files.contains(coding);
        let codings: Vec<Coding> = wanted.iter().filter(is_wanted).copied().collect();
        let made = codings.iter().map(|_| OnceLock::new()).collect();
        (!codings.is_empty()).then_some(OnDemand {
            codings,
            made,
            read: Mutex::default(),
            is_read: AtomicBool::new(false),
        })
    }

    /// The coding of the variant in this place.
    pub(crate) fn coding(&self, place: usize) -> Option<Coding> {
        self.codings.get(place).copied()
    }

    /// What was made for the place.
    #[inline]
    pub(crate) fn variant(&self, place: usize) -> Option<&Variant> {
        self.made.get(place)?.get()?.as_ref()
    }

    /// The client's choice. `files` are the variants that files have, the identity first, with the
    /// sizes of their bodies. `None` if the client accepts none of all.
    ///
    /// The highest weight wins. Among equals a file goes before what must be made, which goes
    /// before the identity. So the choice does not depend on what was made already.
    #[inline]
    pub(crate) fn choose(
        &self,
        preference: &Preference,
        files: impl Iterator<Item = (Coding, u64)> + Clone,
    ) -> Option<CodingChoice> {
        let weight = |coding| preference.weight(coding);
        let encoded = files.clone().map(|(coding, _)| coding).filter(|at| *at != Coding::Identity);
        let of_files = encoded.filter_map(weight).max();
        let of_identity = weight(Coding::Identity);
        let mut best = None;
        for (place, coding) in self.codings.iter().enumerate() {
            let is_in_vain = self.made[place].get().is_some_and(Option::is_none);
            let Some(weight) = weight(*coding).filter(|_| !is_in_vain) else { continue };
            if best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, place));
            }
        }
        let best = best.filter(|(weight, _)| {
            of_files.is_none_or(|of_files| *weight > of_files)
                && of_identity.is_none_or(|of_identity| *weight >= of_identity)
        });
        match best {
            Some((_, place)) if self.variant(place).is_some() => Some(CodingChoice::Made(place)),
            Some((_, place)) => Some(CodingChoice::Make(place)),
            None => preference.choose(files).map(CodingChoice::File),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<WholeFile>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the identity must be [read](OnDemand::read) before anything can be made of it.
    pub(crate) fn must_read(&self, identity: &Variant) -> bool {
        identity.memory().is_none() && !self.is_read.load(Relaxed)
    }

    /// Reads the identity, if what belongs in the place is not made yet. May block.
    ///
    /// # Errors
    /// [`NoMemory`]; then nothing will be made.
    pub(crate) fn read(
        &self,
        place: usize,
        identity: &Variant,
        memory_budget: &MemoryBudget,
    ) -> Result<(), NoMemory> {
        let mut read = self.lock();
        if self.made.get(place).is_none_or(|slot| slot.get().is_some()) || read.is_some() {
            return Ok(());
        }
        let Some(reservation) = memory_budget.take(identity.size) else {
            self.give_up();
            return Err(NoMemory);
        };
        match identity.read_whole() {
            Some(body) => {
                *read = Some(WholeFile { body, _reservation: reservation });
                self.is_read.store(true, Relaxed);
            }
            // the file cannot be read, or has changed, for which the answer will be checked
            None => self.give_up(),
        }
        Ok(())
    }

    /// Gives up: no variant will be made any more.
    fn give_up(&self) {
        self.made.iter().for_each(|slot| drop(slot.set(None)));
    }

    /// Makes what belongs in the place from the identity, unless it is there. Returns the bytes
    /// that it takes. Takes CPU time.
    pub(crate) fn make(&self, place: usize, identity: &Variant) -> u64 {
        let (Some(coding), Some(slot)) = (self.codings.get(place), self.made.get(place)) else {
            return 0;
        };
        // the second job finds it made
        let mut read = self.lock();
        let whole = read.take();
        self.is_read.store(false, Relaxed);
        if slot.get().is_some() {
            return 0;
        }
        // without one, another coding was made of what was read; it is asked for again
        let body = identity.memory().or(whole.as_ref().map(|whole| &whole.body[..]));
        let Some(body) = body else { return 0 };
        let smaller = compress(*coding, body);
        let body = smaller.filter(|smaller| smaller.len() + LEAST_SAVED_BYTES <= body.len());
        let variant = body.map(|body| recode(identity, *coding, &body));
        let bytes = variant.as_ref().map_or(0, Variant::weight);
        if variant.is_none() {
            // what one codec cannot make smaller no other can
            self.give_up();
            return 0;
        }
        // the place was empty, and only this code fills it
        let _ = slot.set(variant);
        bytes
    }
}

/// The bytes in a coding; `None` if the codec fails, which only lack of memory explains.
fn compress(coding: Coding, body: &[u8]) -> Option<Vec<u8>> {
    match coding {
        Coding::Identity => None,
        Coding::Br => {
            let params = brotli::enc::BrotliEncoderParams {
                quality: BR_LEVEL,
                lgwin: BR_WINDOW,
                size_hint: body.len(),
                ..Default::default()
            };
            let mut out = Vec::with_capacity(body.len() / 3);
            brotli::BrotliCompress(&mut { body }, &mut out, &params).ok()?;
            Some(out)
        }
        Coding::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL).ok(),
        Coding::Gzip => {
            let out = Vec::with_capacity(body.len() / 3);
            let level = flate2::Compression::new(GZIP_LEVEL);
            let mut encoder = flate2::write::GzEncoder::new(out, level);
            encoder.write_all(body).ok()?;
            encoder.finish().ok()
        }
    }
}

/// The variant that differs from the identity only in coding, length and tag.
fn recode(identity: &Variant, coding: Coding, body: &[u8]) -> Variant {
    let tag = identity.tag.recoded(coding, body);
    let mut ready = identity.ready[..identity.layout.type_end].to_vec();
    copy_fields(identity.fields(), &tag.text, &mut ready);
    line(&mut ready, "Content-Encoding", coding.as_str().as_bytes());
    let fields_end = ready.len();
    length_line(&mut ready, body.len() as u64);
    let head_end = ready.len();
    ready.extend_from_slice(&http2::bake(&ready));
    let (block_end, body_start) = (ready.len(), ready.len());
    let layout = Layout { fields_end, head_end, block_end, body_start, ..identity.layout };
    ready.extend_from_slice(body);
    let mut not_modified = Vec::with_capacity(identity.not_modified.len() + 24);
    copy_fields(&identity.not_modified, &tag.text, &mut not_modified);
    Variant {
        coding,
        stamp: identity.stamp,
        size: body.len() as u64,
        last_modified: identity.last_modified,
        tag,
        not_modified: not_modified.into_boxed_slice(),
        layout,
        ready: ready.into_boxed_slice(),
        file: None,
        reservation: None,
    }
}

/// Copies lines, with another tag.
fn copy_fields(lines: &[u8], etag: &[u8], to: &mut Vec<u8>) {
    for text in lines.split_inclusive(|&byte| byte == b'\n') {
        match text.split_at_checked(6) {
            Some((name, _)) if name.eq_ignore_ascii_case(b"ETag: ") => line(to, "ETag", etag),
            _ => to.extend_from_slice(text),
        }
    }
}

#[cfg(test)]
mod tests;
