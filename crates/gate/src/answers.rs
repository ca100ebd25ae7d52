//! Answers from the cache that the kernel gives itself, to requests of HTTP/1 without TLS.
//!
//! **In:** [`learn`](Gate::learn) takes an answer as the server would give it, under listener, host and path,
//! and [`forget`](Gate::forget) removes it; [`forget_all`](Gate::forget_all) makes all of them void with one
//! store. The server calls these *before* its own cache changes. [`decide_by`](Gate::decide_by) names the
//! fields of a request that may change an answer, besides those that always may: a request with one of them
//! is left to the server. [`renew`](Gate::renew), called once a second, sets the date and how long answers
//! may be given. When the server hangs or is killed, that time runs out and no more answers are given.
//!
//! **Out:** [`records`](Gate::records) hands out a record for each request that was answered, with its head,
//! its client, the rule that it was charged to, and its class. A record is written before the answer is sent,
//! and a request whose record has no room is left to the server, so no record is missing.
//! [`answer_counts`](Gate::answer_counts) has the number of requests by result.
//!
//! The program answers only requests that rules admit for certain, and only heads that it can read for
//! certain: GET or HEAD of HTTP/1.1 or 1.0 without a query, whole and alone in one segment, with one `Host`;
//! `Connection` absent, or `close` or `keep-alive` (with 1.0 only absent or `close`); no field that leaves
//! the request to the server (`answers/fields.rs`); at most [`MOST_LINES`] lines, each in plain ASCII, and
//! [`MOST_HEAD_BYTES`] bytes. `Accept-Encoding` and the weights in it count as they do for
//! [`Preference`](forebay_http::coding::Preference), and `If-None-Match` with one tag as for
//! [`evaluate`](forebay_http::condition::evaluate). The answer has the bytes that the server would send,
//! except the value of `Date`. It is at most [`MOST_ANSWER_BYTES`] long, and given only if it fits into the
//! client's segment and window.
//!
//! This module knows nothing of sites, rules or files: the caller decides whether an answer may be learnt.

mod baked;
mod error;
mod fields;
pub(crate) mod raw;
mod records;
mod slots;

use crate::kernel::{AnswerMaps, AnswerRoom, Word, plain};
use crate::maps::{per_cpu, read_u64};
use crate::types::{NO_SLOT, Plain};
use crate::{Charge, Gate, GateError, HandedGate, lock};
pub use baked::{AnswerName, KernelAnswer, KernelVariant, SentVariant};
pub use error::LearnError;
use fields::FieldMeaning;
use libbpf_rs::{MapCore, MapFlags};
use raw::{RawAnswer, RawAnswerKey, RawObject, RawServing, VARIANTS};
pub use records::{AnswerRecord, AnswerRecords};
use slots::ObjectSlots;
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Release;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// The most bytes of an answer's head and body.
pub const MOST_ANSWER_BYTES: usize = raw::ANSWER_BYTES;
/// The most bytes of host and path together.
pub const MOST_NAME_BYTES: usize = raw::NAME_BYTES;
/// The most bytes of a request's head. A server with a lower limit must not have requests answered here.
pub const MOST_HEAD_BYTES: usize = 1536;
/// The most lines of a request's head, with the request line. A server with a lower limit must not have
/// requests answered here.
pub const MOST_LINES: usize = 64;

/// The counters of requests that might be answered, by result, in the order of `enum gate_serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerCount {
    /// Answered with 200. Each request is in exactly one of those up to [`AnswerCount::LeftRecords`].
    Ok,
    /// Answered with 304.
    NotModified,
    /// Left to the server: the head cannot be read for certain, or has a field that only the server knows.
    LeftHead,
    /// Left to the server: no such answer was learnt.
    LeftUnknown,
    /// Left to the server: the answer was forgotten with all others, the server has not
    /// [renewed](Gate::renew) them, or the client is [ignored](Gate::ignore).
    LeftVoid,
    /// Left to the server: only it has the variant that the client prefers.
    LeftVariant,
    /// Left to the server: the answer does not fit into the client's segment or window.
    LeftRoom,
    /// Left to the server: there is no room for the record.
    LeftRecords,
    /// An answer was sent again.
    Repeated,
    /// A segment behind an answer was acknowledged.
    Acked,
    /// A segment behind an answer was dropped: there was nothing to send.
    Held,
    /// The client has closed a connection behind an answer.
    Ended,
    /// A reset: the client sent too much behind the last answer.
    Cut,
    /// The next request came before the answer was acknowledged, and was dropped: its client retransmits it.
    Early,
    /// The kernel made a connection in its middle, for a request that the server answers.
    Adopted,
    /// A reset: the connection could not go on.
    Lost,
}

impl AnswerCount {
    /// All counters, in their order.
    pub const ALL: [AnswerCount; 16] = [
        AnswerCount::Ok,
        AnswerCount::NotModified,
        AnswerCount::LeftHead,
        AnswerCount::LeftUnknown,
        AnswerCount::LeftVoid,
        AnswerCount::LeftVariant,
        AnswerCount::LeftRoom,
        AnswerCount::LeftRecords,
        AnswerCount::Repeated,
        AnswerCount::Acked,
        AnswerCount::Held,
        AnswerCount::Ended,
        AnswerCount::Cut,
        AnswerCount::Early,
        AnswerCount::Adopted,
        AnswerCount::Lost,
    ];
}

/// The answers that the kernel has learnt.
#[derive(Debug)]
pub(crate) struct Learning {
    /// The number by which a listener's answers are found. A number is never used twice.
    listeners: HashMap<SocketAddr, u32>,
    known: HashMap<RawAnswerKey, LearntAnswer>,
    most: usize,
    slots: ObjectSlots,
    /// The number of the last answer.
    number: u32,
    generation: u32,
    /// The fields that were [named](Gate::decide_by).
    deciding: HashSet<String>,
    /// The one of the two dates that is in force, and its second.
    date: u32,
    date_s: Option<u64>,
}

/// An answer that is in the kernel.
#[derive(Debug)]
struct LearntAnswer {
    number: u32,
    slots: Vec<u32>,
}

impl Learning {
    /// Begins behind `number`, since connections may still know numbers that another process has used.
    pub(crate) fn new(room: &AnswerRoom, number: u32) -> Learning {
        Learning {
            listeners: HashMap::new(),
            known: HashMap::new(),
            most: room.answers as usize,
            slots: ObjectSlots::new(room.variants),
            number,
            generation: 1,
            deciding: HashSet::new(),
            date: 0,
            date_s: None,
        }
    }

    /// The next number; never 0, which marks an object that is being written.
    fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1).max(1);
        self.number
    }

    fn listener(&mut self, listener: SocketAddr) -> u32 {
        let next = self.listeners.len() as u32 + 1;
        *self.listeners.entry(listener).or_insert(next)
    }
}

impl Gate {
    /// Loads a gate that steers, judges first requests, and answers requests from the cache.
    ///
    /// # Errors
    /// As [`load_steering`](Gate::load_steering).
    pub fn load_answering(charge: Charge, room: &AnswerRoom) -> Result<Gate, GateError> {
        Ok(Gate::steering(charge, &[], false, Some(room))?.judging_requests())
    }

    /// Loads such a gate in the place of another one.
    ///
    /// # Errors
    /// As [`load_after`](Gate::load_after).
    pub fn load_answering_after(
        charge: Charge,
        room: &AnswerRoom,
        before: HandedGate,
    ) -> Result<Gate, GateError> {
        Ok(Gate::after(charge, true, Some(room), before)?.judging_requests())
    }

    /// Whether this gate answers requests from the cache.
    pub fn answers_requests(&self) -> bool {
        self.learning.is_some()
    }

    /// The number by which the answers of a listener are found; 0 if requests are not answered.
    pub(crate) fn number_of_listener(&self, listener: SocketAddr) -> u32 {
        self.learning.as_ref().map_or(0, |learning| lock(learning).listener(listener))
    }

    fn learning(&self) -> Result<(&Mutex<Learning>, &AnswerMaps), LearnError> {
        self.learning.as_ref().zip(self.kernel.answers.as_ref()).ok_or(LearnError::NotAnswering)
    }

    /// Has the kernel give this answer from now on, instead of an earlier one under the same name. Its
    /// [records](AnswerRecord::answer) have the number that is returned, which no other answer gets.
    ///
    /// # Errors
    /// [`LearnError`]; then the kernel has no answer under the name.
    pub fn learn(
        &self,
        name: &AnswerName<'_>,
        answer: &KernelAnswer<'_>,
    ) -> Result<u32, LearnError> {
        let (learning, maps) = self.learning()?;
        let mut learning = lock(learning);
        let listener = learning.listener(name.listener);
        let key = name.key(listener)?;
        learning.remove(maps, &key);
        let variants = baked::in_order(answer.variants)?;
        let number = learning.next_number();
        let mut raw = RawAnswer {
            generation: learning.generation,
            number,
            requests: answer.requests,
            count: variants.len() as u32,
            slots: [NO_SLOT; VARIANTS],
            ..RawAnswer::default()
        };
        let mut objects = Vec::new();
        for (at, variant) in variants.iter().enumerate() {
            raw.codings[at] = variant.coding as u8;
            let sent = variant.sent.as_ref();
            let object =
                sent.map(|sent| baked::object(number, answer.timeout_s, sent)).transpose()?;
            objects.extend(object.flatten().map(|object| (at, object)));
        }
        if objects.is_empty() {
            return Err(LearnError::TooLarge);
        }
        if learning.known.len() == learning.most {
            return Err(LearnError::Full);
        }
        let slots = learning.slots.take(objects.len(), Instant::now()).ok_or(LearnError::Full)?;
        // entered before the slots are written, so that `remove` frees them if a write fails. The answer is
        // written last: only then does the program find the variants
        learning.known.insert(key, LearntAnswer { number, slots: slots.clone() });
        let placed = objects.iter().zip(&slots).try_for_each(|((at, object), slot)| {
            raw.slots[*at] = *slot;
            write_object(maps, *slot, object)
        });
        let placed = placed.and_then(|()| {
            maps.answers.update(key.bytes(), raw.bytes(), MapFlags::ANY).map_err(plain)
        });
        if let Err(error) = placed {
            learning.remove(maps, &key);
            return Err(error.into());
        }
        Ok(number)
    }

    /// Has the kernel forget an answer; returns its number. From then on no packet is answered with it,
    /// except the retransmission of a client that has not received it.
    pub fn forget(&self, name: &AnswerName<'_>) -> Option<u32> {
        let (learning, maps) = self.learning().ok()?;
        let mut learning = lock(learning);
        let listener = learning.listener(name.listener);
        learning.remove(maps, &name.key(listener).ok()?)
    }

    /// Has the kernel forget all answers, as [`forget`](Gate::forget) does. One store makes all of them void
    /// at once.
    pub fn forget_all(&self) {
        let Ok((learning, maps)) = self.learning() else { return };
        let mut learning = lock(learning);
        learning.generation = learning.generation.wrapping_add(1);
        serving_word::<AtomicU32>(maps, offset_of!(RawServing, generation))
            .inspect(|word| word.store(learning.generation, Release));
        let all: Vec<RawAnswerKey> = learning.known.keys().copied().collect();
        for key in all {
            learning.remove(maps, &key);
        }
    }

    /// The number of answers that the kernel knows.
    pub fn answers_known(&self) -> usize {
        self.learning.as_ref().map_or(0, |learning| lock(learning).known.len())
    }

    /// Sets the value of `Date`, in seconds since 1970, and lets answers be given for the time `lasts` from
    /// now on. The server calls this once a second. With a `lasts` of zero no answer is given until the next
    /// call.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn renew(&self, unix_s: u64, lasts: Duration) -> Result<(), LearnError> {
        let (learning, maps) = self.learning()?;
        let mut learning = lock(learning);
        // a program may be copying the date in force: the other one is written, and no date twice within a
        // second
        if learning.date_s != Some(unix_s) {
            let next = 1 - learning.date;
            let date = baked::date(unix_s);
            maps.dates.update(&next.to_ne_bytes(), date.bytes(), MapFlags::ANY).map_err(plain)?;
            (learning.date, learning.date_s) = (next, Some(unix_s));
        }
        for (at, value) in [
            (offset_of!(RawServing, generation), learning.generation),
            (offset_of!(RawServing, date), learning.date),
        ] {
            serving_word::<AtomicU32>(maps, at).inspect(|word| word.store(value, Release));
        }
        let until_ns = match lasts.is_zero() {
            true => 0,
            false => now_ns().saturating_add(lasts.as_nanos().try_into().unwrap_or(u64::MAX)),
        };
        serving_word::<AtomicU64>(maps, offset_of!(RawServing, until_ns))
            .inspect(|word| word.store(until_ns, Release));
        Ok(())
    }

    /// Names the fields whose presence leaves a request to the server, besides those that always do; they
    /// replace the ones named before. New fields take effect before old ones are removed. The caller names
    /// fields before it hands over answers that these fields could change.
    ///
    /// # Errors
    /// [`LearnError::Field`], and [`LearnError::Full`] for more than 100 fields; the earlier fields stay in
    /// force then.
    pub fn decide_by(&self, names: &[&str]) -> Result<(), LearnError> {
        let (learning, maps) = self.learning()?;
        let mut learning = lock(learning);
        let of_others = names.iter().filter(|name| fields::always(name).is_none());
        let wanted: HashSet<String> = of_others.map(|name| name.to_ascii_lowercase()).collect();
        if wanted.len() > MOST_DECIDING {
            return Err(LearnError::Full);
        }
        // a field that the program always reads with a meaning of its own cannot be one that leaves a request
        let read = names.iter().find(|name| {
            fields::always(name).is_some_and(|meaning| meaning != FieldMeaning::Leaves)
        });
        if let Some(read) = read {
            return Err(LearnError::Field((*read).to_owned()));
        }
        wanted.iter().try_for_each(|name| fields::key(name).map(drop))?;
        for name in wanted.difference(&learning.deciding) {
            set_field(maps, name, FieldMeaning::Leaves)?;
        }
        for name in learning.deciding.difference(&wanted) {
            maps.fields.delete(&fields::key(name)?).map_err(plain)?;
        }
        learning.deciding = wanted;
        Ok(())
    }

    /// Writes the fields that always have a meaning into the kernel's table.
    pub(crate) fn begin_answers(&self) -> Result<(), LearnError> {
        let (_, maps) = self.learning()?;
        for (name, meaning) in fields::ALWAYS {
            set_field(maps, name, meaning)?;
        }
        Ok(())
    }

    /// Opens the records of answers. There must be only one reader.
    ///
    /// # Errors
    /// Errors of the kernel, mostly a lack of memory.
    pub fn records(&self) -> Result<AnswerRecords, LearnError> {
        let (_, maps) = self.learning()?;
        Ok(AnswerRecords::of(&maps.records)?)
    }

    /// The number of requests by result since the gate was loaded, in the order of [`AnswerCount::ALL`].
    pub fn answer_counts(&self) -> [u64; AnswerCount::ALL.len()] {
        let mut counts = [0; AnswerCount::ALL.len()];
        let Some(maps) = &self.kernel.answers else { return counts };
        for (at, count) in counts.iter_mut().enumerate() {
            let numbers = per_cpu(&maps.counts, at as u32);
            *count = numbers.iter().filter_map(|bytes| read_u64(bytes)).sum();
        }
        counts
    }
}

/// The most fields that may be named.
const MOST_DECIDING: usize = 100;
const _: () = assert!(MOST_DECIDING + fields::ALWAYS.len() <= 128);

impl Learning {
    /// Removes an answer from the kernel. Its slots keep their content for a while, for clients that have not
    /// received it.
    fn remove(&mut self, maps: &AnswerMaps, key: &RawAnswerKey) -> Option<u32> {
        let known = self.known.remove(key)?;
        // if writing it failed, the answer was never in the map
        let _ = maps.answers.delete(key.bytes());
        let now = Instant::now();
        known.slots.into_iter().for_each(|slot| self.slots.give_back(slot, now));
        Some(known.number)
    }
}

/// Writes a variant into a slot that may have held another one. The number is cleared before and set after
/// everything else: the program compares it before and after it copies the rest, and so never sends a
/// mixture.
fn write_object(maps: &AnswerMaps, slot: u32, object: &RawObject) -> std::io::Result<()> {
    let none = RawObject { number: 0, ..*object };
    let unnumbered = maps.objects.lookup(&slot.to_ne_bytes(), MapFlags::ANY).map_err(plain)?;
    let before = unnumbered.as_deref().and_then(RawObject::of).unwrap_or_default();
    for object in [&RawObject { number: 0, ..before }, &none, object] {
        maps.objects.update(&slot.to_ne_bytes(), object.bytes(), MapFlags::ANY).map_err(plain)?;
    }
    Ok(())
}

fn set_field(maps: &AnswerMaps, name: &str, meaning: FieldMeaning) -> Result<(), LearnError> {
    let (key, value) = (fields::key(name)?, (meaning as u32).to_ne_bytes());
    Ok(maps.fields.update(&key, &value, MapFlags::ANY).map_err(plain)?)
}

fn serving_word<T: Word>(maps: &AnswerMaps, at: usize) -> Option<&'static T> {
    maps.serving.word(at)
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
