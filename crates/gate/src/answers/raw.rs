//! The structs of `bpf/types.h` for answers from the cache.

use crate::types::{Plain, Tuple, shared};

/// The most bytes of an answer's host and path together.
pub(crate) const NAME_BYTES: usize = 192;
pub(crate) const VARIANTS: usize = 4;
/// The most bytes of an answer's head and body together.
pub(crate) const ANSWER_BYTES: usize = 1448;
pub(crate) const FIELD_BYTES: usize = 32;
pub(crate) const TAG_BYTES: usize = 64;
pub(crate) const OBJECT_TEXT: usize = 4096;

pub(crate) const PIECE_OK: usize = 0;
pub(crate) const PIECE_NOT_MODIFIED: usize = 1;
pub(crate) const PIECE_KEPT: usize = 2;
pub(crate) const PIECE_LAST: usize = 3;
pub(crate) const PIECE_BODY: usize = 4;
pub(crate) const PIECES: usize = 5;

pub(crate) const SERVED_HEAD: u8 = 1;
pub(crate) const SERVED_NOT_MODIFIED: u8 = 2;
pub(crate) const SERVED_LAST: u8 = 4;

/// A `gate_answer_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct RawAnswerKey {
    pub(crate) listener: u32,
    pub(crate) host_bytes: u16,
    pub(crate) path_bytes: u16,
    pub(crate) text: [u8; NAME_BYTES],
}

impl Default for RawAnswerKey {
    fn default() -> RawAnswerKey {
        RawAnswerKey { listener: 0, host_bytes: 0, path_bytes: 0, text: [0; NAME_BYTES] }
    }
}

// SAFETY: numbers and an array of them; there is no padding, as the next line checks.
unsafe impl Plain for RawAnswerKey {}
const _: () = assert!(size_of::<RawAnswerKey>() == 8 + NAME_BYTES);

shared! {
    /// An answer with its variants.
    RawAnswer = "gate_answer" {
        generation: u32,
        number: u32,
        requests: u32,
        count: u32,
        slots: [u32; VARIANTS],
        codings: [u8; VARIANTS],
    }
}

shared! {
    /// A piece of an answer.
    RawPiece = "gate_piece" {
        at: u16,
        bytes: u16,
        sum: u32,
    }
}

/// A `gate_object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawObject {
    pub(crate) number: u32,
    pub(crate) tag_bytes: u32,
    pub(crate) pieces: [RawPiece; PIECES],
    pub(crate) tag: [u8; TAG_BYTES],
    pub(crate) text: [u8; OBJECT_TEXT],
}

impl Default for RawObject {
    fn default() -> RawObject {
        RawObject {
            number: 0,
            tag_bytes: 0,
            pieces: [RawPiece::default(); PIECES],
            tag: [0; TAG_BYTES],
            text: [0; OBJECT_TEXT],
        }
    }
}

// SAFETY: numbers and arrays of them; there is no padding, as the next line checks.
unsafe impl Plain for RawObject {}
const _: () = assert!(size_of::<RawObject>() == 8 + 8 * PIECES + TAG_BYTES + OBJECT_TEXT);

shared! {
    /// The value of `Date`.
    RawDate = "gate_date" {
        text: [u8; 32],
        sum: u32,
        unused: u32,
    }
}

shared! {
    /// The settings that the server changes while requests are answered.
    RawServing = "gate_serving" {
        until_ns: u64,
        generation: u32,
        date: u32,
    }
}

shared! {
    /// The record of an answer that is about to be sent.
    RawRecord = "gate_record" {
        at_ns: u64,
        ends: Tuple,
        number: u32,
        charged: u32,
        body_bytes: u32,
        sent_bytes: u32,
        request: u32,
        head_bytes: u16,
        marks: u8,
        coding: u8,
        rank: u32,
    }
}

shared! {
    /// A connection that has had an answer from the kernel.
    RawServed = "gate_served" {
        first: u32,
        next: u32,
        begin: u32,
        end: u32,
        slot: u32,
        number: u32,
        kept: u32,
        requests: u32,
        marks: u32,
        at_ms: u32,
        repeats: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::AnswerCount;
    use crate::types::tests::assert_same;
    use libbpf_rs::btf::{Btf, HasSize, types};

    #[test]
    fn kernel_and_server_have_the_same_structs() {
        let btf = Btf::from_raw("gate", crate::kernel::OBJECT).unwrap().unwrap();
        for layout in [
            RawAnswer::layout(),
            RawPiece::layout(),
            RawDate::layout(),
            RawServing::layout(),
            RawRecord::layout(),
            RawServed::layout(),
        ] {
            assert_same(&btf, layout);
        }
        let key: types::Struct<'_> = btf.type_by_name("gate_answer_key").unwrap();
        assert_eq!(key.size(), size_of::<RawAnswerKey>());
        let object: types::Struct<'_> = btf.type_by_name("gate_object").unwrap();
        assert_eq!(object.size(), size_of::<RawObject>());
        let counts: types::Enum<'_> = btf.type_by_name("gate_serve").unwrap();
        assert_eq!(counts.len(), AnswerCount::ALL.len() + 1);
        for (at, count) in AnswerCount::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at);
        }
    }
}
