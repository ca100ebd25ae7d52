//! The part of an answer that is not copied: the bytes of a variant that are still to be sent.

use crate::bodies::disk::DiskFile;
use crate::bodies::piped::Piped;
use crate::bodies::variant::Variant;
use crate::cache::entry::{Entry, EntryKind};
use crate::cache::front::{Front, SlotRef};
use forebay_conn::handler::body::BodyRead;
use forebay_conn::{Piece, Reply};
use forebay_http::range::Range;
use forebay_sys::pipe;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The largest body that is copied behind the head; larger ones are sent from where they are.
pub(crate) const MOST_COPIED_BYTES: u64 = 16 * 1024;

/// A body that the engine asks for piece by piece.
///
/// While the turn lasts it only names a slot of the loop's own table, and counts no reference;
/// [`Site::hold`](crate::Site::hold) makes it independent of the table.
#[derive(Debug)]
pub struct Body {
    source: BodySource,
    /// The index of the entry's variant.
    variant: usize,
    part: BodyPart,
    /// The parts that follow, the next one last.
    rest: Vec<BodyPart>,
}

/// The place of the entry.
#[derive(Debug)]
pub(crate) enum BodySource {
    /// The entry is in a slot that does not change before the next request is processed.
    Slot(SlotRef),
    /// The entry is held here.
    Held(Arc<Entry>),
    /// There is no entry: the bytes were read for this answer alone.
    Piped(Box<Piped>),
}

impl BodySource {
    #[inline]
    pub(crate) fn entry<'s>(&'s self, front: &'s Front) -> Option<&'s Arc<Entry>> {
        match self {
            BodySource::Held(entry) => Some(entry),
            BodySource::Slot(ticket) => front.entry(*ticket),
            BodySource::Piped(_) => None,
        }
    }
}

/// A run of bytes.
#[derive(Debug)]
pub(crate) struct BodyPart {
    /// The text, if the bytes are not the variant's.
    pub(crate) text: Option<Box<[u8]>>,
    pub(crate) range: Range,
}

impl BodyPart {
    pub(crate) fn of_variant(range: Range) -> BodyPart {
        BodyPart { text: None, range }
    }

    pub(crate) fn of_text(text: Vec<u8>) -> BodyPart {
        let range = Range { start: 0, len: text.len() as u64 };
        BodyPart { text: Some(text.into_boxed_slice()), range }
    }
}

impl Body {
    /// One run of the variant's bytes.
    pub(crate) fn run(source: BodySource, variant: usize, range: Range) -> Body {
        Body { source, variant, part: BodyPart::of_variant(range), rest: Vec::new() }
    }

    /// Sends a text of one answer's own behind the head that was just written.
    pub(crate) fn send_text(text: Vec<u8>, entry: &Arc<Entry>, reply: &mut Reply<'_, Body>) {
        if text.len() as u64 <= MOST_COPIED_BYTES {
            return reply.copy(&text);
        }
        let (source, part) = (BodySource::Held(Arc::clone(entry)), BodyPart::of_text(text));
        let len = part.range.len;
        reply.stream(Body::parts(source, 0, vec![part]), len);
    }

    /// Several parts, in order.
    pub(crate) fn parts(source: BodySource, variant: usize, mut parts: Vec<BodyPart>) -> Body {
        parts.reverse();
        let none = BodyPart::of_variant(Range::default());
        let part = parts.pop().unwrap_or(none);
        let mut body = Body { source, variant, part, rest: parts };
        body.skip_empty();
        body
    }

    fn skip_empty(&mut self) {
        while self.part.range.len == 0 {
            let Some(next) = self.rest.pop() else { return };
            self.part = next;
        }
    }

    fn found<'b>(&'b self, front: &'b Front) -> Option<&'b Variant> {
        let entry = self.source.entry(front);
        debug_assert!(entry.is_some(), "a body outlived its slot without being held");
        match &entry?.what {
            EntryKind::Found(found) => found.variant(self.variant),
            _ => None,
        }
    }

    pub(crate) fn piece<'b>(&'b self, front: &'b Front) -> Option<Piece<'b>> {
        let Range { start, len } = self.part.range;
        if len == 0 {
            return None;
        }
        if let Some(text) = &self.part.text {
            return slice(text, start, len).map(|bytes| in_memory(bytes, front));
        }
        if let BodySource::Piped(piped) = &self.source {
            return Some(Piece::Pipe { pipe: piped.filled.end()?, len });
        }
        let variant = self.found(front)?;
        match &variant.file {
            Some(file) => {
                let is_last = self.rest.is_empty();
                Some(Piece::File { file: file.as_fd(), offset: start, len, is_last })
            }
            None => slice(variant.memory()?, start, len).map(|bytes| in_memory(bytes, front)),
        }
    }

    pub(crate) fn left(&self) -> u64 {
        let parts = std::iter::once(&self.part).chain(&self.rest);
        parts.map(|part| part.range.len).sum()
    }

    pub(crate) fn advance(&mut self, count: u64) {
        let count = count.min(self.part.range.len);
        self.part.range.start += count;
        self.part.range.len -= count;
        if let BodySource::Piped(piped) = &mut self.source {
            piped.filled.taken(count);
        }
        self.skip_empty();
    }

    /// Reads the next bytes of the body, as many as there is room for, and advances.
    pub(crate) fn read(&mut self, front: &Front, buffer: &mut [u8]) -> BodyRead {
        let read = match self.piece(front) {
            None => BodyRead::End,
            Some(Piece::Memory(bytes)) => {
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                BodyRead::Bytes(count)
            }
            Some(Piece::Pipe { pipe, .. }) => {
                let buffer = fitted(buffer, self.part.range.len);
                // the whole body was in the pipe before the head was written
                pipe::read(pipe, buffer)
                    .ok()
                    .filter(|count| *count > 0)
                    .map_or(BodyRead::Changed, BodyRead::Bytes)
            }
            Some(Piece::File { .. }) => self.read_file(front, buffer),
        };
        if let BodyRead::Bytes(count) = read {
            self.advance(count as u64);
        }
        read
    }

    /// Reads, and looks at the file's state after each reading, not before. So what was read, the
    /// last byte included, is known to be of the file that the head was written for.
    fn read_file(&self, front: &Front, buffer: &mut [u8]) -> BodyRead {
        let Some((variant, file)) = self.file(front) else { return BodyRead::Changed };
        match file.read_warm(self.part.range, buffer) {
            Ok(0) => BodyRead::Changed,
            Ok(count) if variant.is_intact() => BodyRead::Bytes(count),
            Ok(_) => BodyRead::Changed,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => BodyRead::Cold,
            Err(_) => BodyRead::Changed,
        }
    }

    /// Whether the file is still the one the head was written for. A text has no file, and the
    /// bytes in a pipe are not the file's any more.
    pub(crate) fn is_intact(&self, front: &Front) -> bool {
        let is_text_only = self.part.text.is_some() && self.rest.is_empty();
        let is_piped = matches!(self.source, BodySource::Piped(_));
        is_text_only || is_piped || self.found(front).is_some_and(Variant::is_intact)
    }

    /// Takes a reference of its own.
    pub(crate) fn hold(&mut self, front: &Front) {
        if let BodySource::Slot(ticket) = self.source
            && let Some(entry) = front.entry(ticket)
        {
            self.source = BodySource::Held(Arc::clone(entry));
        }
        debug_assert!(!matches!(self.source, BodySource::Slot(_)), "a body was held too late");
    }

    /// The number of bytes of the file to be sent next that can be sent without waiting for the
    /// disk.
    pub(crate) fn warm_bytes(&self, front: &Front) -> u64 {
        self.file(front).map_or(0, |(_, file)| file.warm_bytes(self.part.range))
    }

    /// The file that the variant is sent from.
    fn file<'b>(&'b self, front: &'b Front) -> Option<(&'b Variant, &'b DiskFile)> {
        let variant = self.found(front)?;
        Some((variant, variant.file.as_ref()?))
    }

    /// The arguments of [`warm`](crate::Site::warm): entry, variant, and the place to be sent next;
    /// `None` if no file is sent.
    pub(crate) fn next_place<'b>(
        &'b self,
        front: &'b Front,
    ) -> Option<(&'b Arc<Entry>, usize, u64)> {
        let is_file = self.part.text.is_none() && self.file(front).is_some();
        let entry = self.source.entry(front).filter(|_| is_file)?;
        Some((entry, self.variant, self.part.range.start))
    }
}

/// The front of `buffer`, no longer than `len`.
fn fitted(buffer: &mut [u8], len: u64) -> &mut [u8] {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
    &mut buffer[..len]
}

/// The next of these bytes that are given to the kernel at once.
fn in_memory<'b>(bytes: &'b [u8], front: &Front) -> Piece<'b> {
    Piece::Memory(&bytes[..front.piece_bytes(bytes.len())])
}

fn slice(bytes: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}
