//! Answers from the cache that the kernel gives itself, to requests of HTTP/1 without TLS.
//!
//! **In:** [`learn`](Gate::learn) takes an answer as the server would give it, under listener, host and path, and
//! [`forget`](Gate::forget) takes it away; [`forget_all`](Gate::forget_all) makes all void with one store. The server
//! calls these *before* its own cache changes its mind. [`decide_by`](Gate::decide_by) says which fields of a request may change
//! an answer, besides those that always may: a request that has one is the server's. [`renew`](Gate::renew) is called
//! once a second: it says what time it is, and until when answers may be given. A server that stands still, or is killed,
//! has none given any more.
//!
//! **Out:** [`records`](Gate::records) hands out a record for each request that was answered, with its head, who sent
//! it, what it was charged to and which class it had. A record is written before the answer is sent, and a request whose
//! record has no room is the server's: none is missing. [`answer_counts`](Gate::answer_counts) says what became of requests.
//!
//! The program answers only what rules let through for certain, and only heads that it can read for certain: GET or
//! HEAD of HTTP/1.1 or 1.0 without a query, whole and alone in one segment, with one `Host`; `Connection` absent, or `close` or
//! `keep-alive` (with 1.0 only `close` or none); no field that leaves it to the server (`answers/fields.rs`); at most
//! [`MOST_LINES`] lines, each in plain ASCII, and [`MOST_HEAD_BYTES`] bytes. `Accept-Encoding` and the weights in it count as
//! they do for [`Preference`](forebay_http::coding::Preference), and `If-None-Match` with one tag as for
//! [`evaluate`](forebay_http::condition::evaluate). The answer has the bytes that the server would send, but for `Date`.
//! It is at most [`MOST_ANSWER_BYTES`] long, and given only if it fits into the client's segment and window.
//!
//! Nothing is known here of sites, rules or files: whether an answer may be learnt is for who calls to say.

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

/// Bytes of head and body of an answer.
pub const MOST_ANSWER_BYTES: usize = raw::ANSWER_BYTES;
/// Bytes of host and path together.
pub const MOST_NAME_BYTES: usize = raw::NAME_BYTES;
/// Bytes of the head of a request. A server that takes less must not have requests answered here.
pub const MOST_HEAD_BYTES: usize = 1536;
/// Lines of the head of a request, the first among them. A server that takes fewer must not have requests answered here.
pub const MOST_LINES: usize = 64;

/// What became of requests that might be answered, in the order of `enum gate_serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerCount {
    /// Answered with 200. Each request is in exactly one of those up to [`AnswerCount::LeftRecords`].
    Ok,
    /// Answered with 304.
    NotModified,
    /// Left to the server: its head cannot be read for certain, or a field of it decides.
    LeftHead,
    /// Left to the server: no such answer was learnt.
    LeftUnknown,
    /// Left to the server: the answer was forgotten with all others, nobody has [renewed](Gate::renew) them, or the
    /// client is [ignored](Gate::ignore).
    LeftVoid,
    /// Left to the server: only it has the variant that the client likes best.
    LeftVariant,
    /// Left to the server: it does not fit into the client's segment or window.
    LeftRoom,
    /// Left to the server: there is no room for its record.
    LeftRecords,
    /// An answer was sent again.
    Repeated,
    /// What came behind an answer was acknowledged.
    Acked,
    /// Behind an answer nothing is to be said.
    Held,
    /// The client has ended a connection behind an answer.
    Ended,
    /// Too much came behind the last answer: a reset.
    Cut,
    /// The next request came before the answer was acknowledged: its client sends it again.
    Early,
    /// A connection that was made in its middle.
    Adopted,
    /// A reset: the connection could not go on.
    Lost,
}

impl AnswerCount {
    /// All of them.
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

/// What the kernel has learnt.
#[derive(Debug)]
pub(crate) struct Learning {
    /// By listener, what its answers are found by. A number is never given twice.
    listeners: HashMap<SocketAddr, u32>,
    known: HashMap<RawAnswerKey, LearntAnswer>,
    most: usize,
    slots: ObjectSlots,
    /// Of the last answer.
    number: u32,
    generation: u32,
    /// Fields that were [named](Gate::decide_by).
    deciding: HashSet<String>,
    /// Which of the two dates is in force, and of which second it is.
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
    /// With `number` as the last one that was given: those of another process may still be known to connections.
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

    /// Not 0, which is no answer's.
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

    /// The same in the place of another gate.
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

    /// Whether it answers requests.
    pub fn answers_requests(&self) -> bool {
        self.learning.is_some()
    }

    /// What the answers of a listener are found by; 0 if requests are not answered.
    pub(crate) fn number_of_listener(&self, listener: SocketAddr) -> u32 {
        self.learning.as_ref().map_or(0, |learning| lock(learning).listener(listener))
    }

    fn learning(&self) -> Result<(&Mutex<Learning>, &AnswerMaps), LearnError> {
        self.learning.as_ref().zip(self.kernel.answers.as_ref()).ok_or(LearnError::NotAnswering)
    }

    /// Has the kernel answer with this from now on, in the place of what it knew under the name. The number that is
    /// returned stands in its [records](AnswerRecord::answer), and is given to no other.
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
        // from here on they are in use, whatever fails
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

    /// Has the kernel forget an answer; the number that it had. When this returns, no packet that comes is answered with it,
    /// but for a client that has not got it and sends its request again.
    pub fn forget(&self, name: &AnswerName<'_>) -> Option<u32> {
        let (learning, maps) = self.learning().ok()?;
        let mut learning = lock(learning);
        let listener = learning.listener(name.listener);
        learning.remove(maps, &name.key(listener).ok()?)
    }

    /// Has the kernel forget all answers, as [`forget`](Gate::forget) does: the first store makes all of them void.
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

    /// How many answers the kernel knows.
    pub fn answers_known(&self) -> usize {
        self.learning.as_ref().map_or(0, |learning| lock(learning).known.len())
    }

    /// Says what time it is, in seconds since 1970, for `Date`, and that answers may be given for so long from now on.
    /// To be called once a second. With no time at all, none is given any more until it is called again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn renew(&self, unix_s: u64, lasts: Duration) -> Result<(), LearnError> {
        let (learning, maps) = self.learning()?;
        let mut learning = lock(learning);
        // one that is being sent must stay whole: within a second nothing is written
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

    /// Names the fields whose presence leaves a request to the server, besides those that always do, in the place of
    /// those that were named before. New ones count before old ones are forgotten. To be called before answers are learnt
    /// that these fields could change.
    ///
    /// # Errors
    /// [`LearnError::Field`], and [`LearnError::Full`] if they are more than 100; those of before are in force then.
    pub fn decide_by(&self, names: &[&str]) -> Result<(), LearnError> {
        let (learning, maps) = self.learning()?;
        let mut learning = lock(learning);
        let of_others = names.iter().filter(|name| fields::always(name).is_none());
        let wanted: HashSet<String> = of_others.map(|name| name.to_ascii_lowercase()).collect();
        if wanted.len() > MOST_DECIDING {
            return Err(LearnError::Full);
        }
        // what can be known and is always read in one way cannot be what leaves a request
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

    /// Has the fields known that always count.
    pub(crate) fn begin_answers(&self) -> Result<(), LearnError> {
        let (_, maps) = self.learning()?;
        for (name, meaning) in fields::ALWAYS {
            set_field(maps, name, meaning)?;
        }
        Ok(())
    }

    /// Where the records of answers come from. One reader is to read them.
    ///
    /// # Errors
    /// What the kernel says, of memory above all.
    pub fn records(&self) -> Result<AnswerRecords, LearnError> {
        let (_, maps) = self.learning()?;
        Ok(AnswerRecords::of(&maps.records)?)
    }

    /// What has become of requests since the gate was loaded, in the order of [`AnswerCount::ALL`].
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

/// Fields that may be named.
const MOST_DECIDING: usize = 100;
const _: () = assert!(MOST_DECIDING + fields::ALWAYS.len() <= 128);

impl Learning {
    /// Takes an answer out of the kernel. What its places held stays there for a while, for clients that have not got it.
    fn remove(&mut self, maps: &AnswerMaps, key: &RawAnswerKey) -> Option<u32> {
        let known = self.known.remove(key)?;
        // it was never there if it could not be placed
        let _ = maps.answers.delete(key.bytes());
        let now = Instant::now();
        known.slots.into_iter().for_each(|slot| self.slots.give_back(slot, now));
        Some(known.number)
    }
}

/// Writes a variant where another one may have been. The number goes first, and comes last: the program looks at it before
/// it has copied the rest and behind that.
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
