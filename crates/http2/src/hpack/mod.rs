//! HPACK (RFC 7541): the compression of fields within a connection.
//!
//! A [`HpackDecoder`] keeps the table that its peer has built. Our own blocks never refer to a table, so an
//! encoded block ([`encode`]) is the same for every connection, and is made once for answers that repeat.

mod decode;
pub mod encode;
mod huffman;
mod integer;
mod table;

pub use crate::known_names::{KnownName, STATIC};
pub use decode::HpackDecoder;

/// Why a block cannot be decoded. The connection ends, because its table no longer agrees with the peer's
/// (COMPRESSION_ERROR, RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// The block ends within a field.
    Cut,
    /// A number is larger than any that makes sense (RFC 7541 §5.1).
    Number,
    /// No field has this index (§2.3.3).
    Index,
    /// A string ends in bits that are not padding, or contains EOS (§5.2).
    Huffman,
    /// The table is resized after the first field, or to more than allowed (§4.2, §6.3).
    TableSize,
}

impl HpackError {
    /// A description in a few words, for the log.
    pub fn reason(self) -> &'static str {
        match self {
            HpackError::Cut => "a header block ends within a field",
            HpackError::Number => "a number in a header block is too large",
            HpackError::Index => "a header block names a field that its table does not have",
            HpackError::Huffman => "a Huffman string in a header block is malformed",
            HpackError::TableSize => "a header block resizes its table where or as it may not",
        }
    }
}
