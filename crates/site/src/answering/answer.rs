//! The answer of one entry to one request: variant, conditions, ranges.

use crate::answering::body::{Body, BodyPart, BodySource, MOST_COPIED_BYTES};
use crate::bodies::compress::CodingChoice;
use crate::bodies::variant::Variant;
use crate::cache::entry::{Entry, EntryKind, FoundFile};
use crate::heads::fields::line;
use crate::heads::head_lines::length_line;
use crate::heads::pages::RefusalPage;
use crate::routing::known::KnownOfRequest;
use crate::routing::location;
use crate::routing::redirection::Redirection;
use crate::vhost::VirtualHost;
use foldhash::fast::RandomState;
use forebay_conn::{Reply, Request};
use forebay_http::coding::{Coding, Preference};
use forebay_http::condition::{self, Evaluation};
use forebay_http::head::{Head, Name};
use forebay_http::range::{self, Range, Ranges};
use std::hash::BuildHasher;
use std::io::Write;

/// Everything an answer is made with besides the entry.
pub(crate) struct AnswerParts<'a> {
    pub(crate) vhost: &'a VirtualHost,
    pub(crate) request: &'a Request<'a>,
    /// The place of the entry; needed only for a body that is not copied.
    pub(crate) source: BodySource,
    pub(crate) boundaries: &'a mut Boundaries,
    /// A buffer in which heads are put together.
    pub(crate) head_scratch: &'a mut Vec<u8>,
    /// The values of variables for this request.
    pub(crate) known: &'a KnownOfRequest,
}

/// The action that must come before the answer, or in its place.
pub(crate) enum Instead {
    /// The entry only leads on: answer with the alias's target, or with the outcome of the
    /// conditions.
    Follow,
    /// The variant that belongs in this place must be made.
    Make(usize),
    /// The work that the query asks for must be done.
    Work,
    /// An error. Boxed, so that an answer without one pays nothing for its size.
    Refuse(Box<RefusalPage>),
}

/// Separators of the parts of an answer with several ranges: random, so that the author of a file
/// cannot guess one and put it into the file.
#[derive(Default)]
pub(crate) struct Boundaries {
    seeds: [RandomState; 2],
    count: u64,
}

impl Boundaries {
    fn next(&mut self) -> String {
        self.count += 1;
        let [first, second] = self.seeds.each_ref().map(|seed| seed.hash_one(self.count));
        format!("{first:016x}{second:016x}")
    }
}

impl AnswerParts<'_> {
    /// Writes the answer, or returns what must come first or instead.
    #[inline]
    pub(crate) fn write(self, entry: &Entry, reply: &mut Reply<'_, Body>) -> Result<(), Instead> {
        match &entry.what {
            EntryKind::Found(found) => match choose(found, self.request.head) {
                ChosenVariant::Variant(index) => return self.found(found, index, reply),
                ChosenVariant::Make(place) => return Err(Instead::Make(place)),
                // the page of an error need not be in a coding that the client asked for
                ChosenVariant::None if found.status >= 400 => return self.found(found, 0, reply),
                ChosenVariant::None => {
                    let text =
                        "None of the codings this file exists in is acceptable to the client";
                    return Err(refuse(406, text));
                }
            },
            EntryKind::Redirect(redirection) => {
                let AnswerParts { vhost, request, head_scratch, known, .. } = self;
                redirect(redirection, vhost, request, known, head_scratch, reply);
            }
            // an application's entry: the application has not been asked
            EntryKind::Missing | EntryKind::Script(_) => self.vhost.pages.missing(reply),
            EntryKind::Denied => self.vhost.pages.denied(reply),
            EntryKind::Page(page) => page.write(reply),
            EntryKind::Alias(_) | EntryKind::Conditional(_) => return Err(Instead::Follow),
            EntryKind::Work => return Err(Instead::Work),
            EntryKind::Failed(status) => {
                let text = "The file system does not answer as it should";
                return Err(refuse(*status, text));
            }
        }
        Ok(())
    }

    #[inline]
    fn found(
        self,
        found: &FoundFile,
        index: usize,
        reply: &mut Reply<'_, Body>,
    ) -> Result<(), Instead> {
        let head = self.request.head;
        let Some(variant) = found.variant(index) else { return Ok(()) };
        if !found.is_file {
            reply.baked(found.status, variant.head(), variant.block());
            self.send(variant, index, Range { start: 0, len: variant.size }, reply);
            return Ok(());
        }
        match condition::evaluate(head, &variant.tag.text, variant.last_modified) {
            Evaluation::Proceed => {}
            Evaluation::NotModified => {
                reply.head(304, &variant.not_modified);
                return Ok(());
            }
            Evaluation::Failed => {
                let text = "The file is not in the state that the request asks for";
                return Err(refuse(412, text));
            }
        }
        if head.has(Name::Range)
            && condition::range_applies(head, &variant.tag.text, variant.last_modified)
        {
            match range::parse(head, variant.size) {
                Ranges::All => {}
                Ranges::One(range) => {
                    self.one(variant, index, range, reply);
                    return Ok(());
                }
                Ranges::Many(ranges) => {
                    self.many(variant, index, &ranges, reply);
                    return Ok(());
                }
                Ranges::Unsatisfiable => return Err(unsatisfiable(variant)),
            }
        }
        reply.baked(200, variant.head(), variant.block());
        self.send(variant, index, Range { start: 0, len: variant.size }, reply);
        Ok(())
    }

    /// Writes the answer of an error that `entry` holds, with more fields.
    pub(crate) fn write_error(
        self,
        entry: &Entry,
        refusal: &RefusalPage,
        reply: &mut Reply<'_, Body>,
    ) {
        let EntryKind::Found(found) = &entry.what else {
            let header_rules = self.vhost.header_rules(&entry.header_rules);
            return self.vhost.pages.refuse(refusal, header_rules, reply);
        };
        // the page of an error need not be in a coding that the client asked for
        let index = match choose(found, self.request.head) {
            ChosenVariant::Variant(index) => index,
            ChosenVariant::Make(_) | ChosenVariant::None => 0,
        };
        let Some(variant) = found.variant(index) else { return };
        self.head_scratch.clear();
        self.head_scratch.extend_from_slice(variant.head());
        for (name, value) in &refusal.fields {
            if !has_field(variant.head(), name) {
                line(self.head_scratch, name, value);
            }
        }
        reply.head(found.status, self.head_scratch);
        self.send(variant, index, Range { start: 0, len: variant.size }, reply);
    }

    /// Sends a run of the variant's bytes behind the head that was just written.
    #[inline]
    fn send(self, variant: &Variant, index: usize, range: Range, reply: &mut Reply<'_, Body>) {
        if range.len == 0 {
            return;
        }
        if range.len <= MOST_COPIED_BYTES
            && let Some(bytes) = variant.memory()
            && let Some(bytes) = bytes.get(range.start as usize..range.end() as usize)
        {
            return reply.copy(bytes);
        }
        reply.stream(Body::run(self.source, index, range), range.len);
    }

    fn one(self, variant: &Variant, index: usize, range: Range, reply: &mut Reply<'_, Body>) {
        let mut head = partial(variant.type_line(), variant);
        content_range(&mut head, range, variant.size);
        length_line(&mut head, range.len);
        reply.head(206, &head);
        self.send(variant, index, range, reply);
    }

    fn many(self, variant: &Variant, index: usize, ranges: &[Range], reply: &mut Reply<'_, Body>) {
        let boundary = self.boundaries.next();
        let mut parts = Vec::with_capacity(ranges.len() * 2 + 1);
        for (number, range) in ranges.iter().enumerate() {
            let mut text = if number == 0 { Vec::new() } else { b"\r\n".to_vec() };
            text.extend_from_slice(format!("--{boundary}\r\n").as_bytes());
            text.extend_from_slice(variant.type_line());
            content_range(&mut text, *range, variant.size);
            text.extend_from_slice(b"\r\n");
            parts.push(BodyPart::of_text(text));
            parts.push(BodyPart::of_variant(*range));
        }
        parts.push(BodyPart::of_text(format!("\r\n--{boundary}--\r\n").into_bytes()));
        let len = parts.iter().map(|part| part.range.len).sum();
        let media_type = format!("Content-Type: multipart/byteranges; boundary={boundary}\r\n");
        let mut head = partial(media_type.as_bytes(), variant);
        length_line(&mut head, len);
        reply.head(206, &head);
        // Ranges apply to GET only, so there is a body.
        reply.stream(Body::parts(self.source, index, parts), len);
    }
}

/// Writes a redirect; its head is put together in `head`.
pub(crate) fn redirect(
    redirection: &Redirection,
    vhost: &VirtualHost,
    request: &Request<'_>,
    known: &KnownOfRequest,
    head: &mut Vec<u8>,
    reply: &mut Reply<'_, Body>,
) {
    head.clear();
    head.extend_from_slice(&redirection.head);
    head.extend_from_slice(b"Location: ");
    location::write(&redirection.to, request, known, &vhost.settings.hosts, head);
    head.extend_from_slice(b"\r\n");
    reply.head(redirection.status, head);
    reply.copy(vhost.pages.moved(redirection.status, redirection.is_for_slash));
}

#[cold]
fn refuse(status: u16, text: &'static str) -> Instead {
    Instead::Refuse(Box::new(RefusalPage::new(status, text)))
}

fn unsatisfiable(variant: &Variant) -> Instead {
    let mut refusal = RefusalPage::new(416, "The file has no bytes there");
    refusal.fields.push(("Content-Range", format!("bytes */{}", variant.size).into_bytes()));
    Instead::Refuse(Box::new(refusal))
}

/// Whether a head has a line with this name.
fn has_field(head: &[u8], name: &str) -> bool {
    let mut lines = head.split(|&byte| byte == b'\n');
    lines.any(|line| {
        let split = line.split_at_checked(name.len());
        split.is_some_and(|(start, rest)| {
            start.eq_ignore_ascii_case(name.as_bytes()) && rest.starts_with(b":")
        })
    })
}

/// The choice of what the client is answered with.
pub(crate) enum ChosenVariant {
    /// The variant with this index.
    Variant(usize),
    /// The variant for this place, which must be made first.
    Make(usize),
    /// The client accepts no variant.
    None,
}

/// The variant the client likes best. Without siblings only a client that gives weights can have
/// excluded the one there is, and few do.
#[inline]
fn choose(found: &FoundFile, head: &Head<'_>) -> ChosenVariant {
    let has_field = head.has(Name::AcceptEncoding);
    let gives_weights = || head.values(Name::AcceptEncoding).any(|value| value.contains(&b';'));
    let is_alone = found.encoded.is_empty() && found.on_demand.is_none();
    if !has_field && found.encoded.is_empty() || is_alone && !gives_weights() {
        return ChosenVariant::Variant(0);
    }
    choose_by(found, &Preference::of(head))
}

/// The form of a file for a client with this preference.
pub(crate) fn choose_by(found: &FoundFile, preference: &Preference) -> ChosenVariant {
    // a file that is in a coding by its name is nothing else, whatever the client accepts
    if found.identity.coding != Coding::Identity {
        return ChosenVariant::Variant(0);
    }
    let files = found.variants().map(|variant| (variant.coding, variant.size));
    let choice = match &found.on_demand {
        Some(on_demand) => on_demand.choose(preference, files),
        None => preference.choose(files).map(CodingChoice::File),
    };
    match choice {
        Some(CodingChoice::File(coding)) => {
            let index = found.variants().position(|variant| variant.coding == coding);
            index.map_or(ChosenVariant::None, ChosenVariant::Variant)
        }
        Some(CodingChoice::Made(place)) => ChosenVariant::Variant(found.made_index(place)),
        Some(CodingChoice::Make(place)) => ChosenVariant::Make(place),
        None => ChosenVariant::None,
    }
}

/// The beginning of a 206.
fn partial(type_line: &[u8], variant: &Variant) -> Vec<u8> {
    let mut head = Vec::with_capacity(512);
    head.extend_from_slice(b"HTTP/1.1 206 Partial Content\r\n");
    head.extend_from_slice(type_line);
    head.extend_from_slice(variant.fields());
    head
}

fn content_range(head: &mut Vec<u8>, range: Range, size: u64) {
    // Writing to a vector cannot fail. A range is never empty.
    let last = range.end().saturating_sub(1);
    let _ = write!(head, "Content-Range: bytes {}-{last}/{size}\r\n", range.start);
}
