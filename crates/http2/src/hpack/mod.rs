//! HPACK (RFC 7541): how fields are compressed within a connection.
//!
//! A [`HpackDecoder`] keeps the table its peer has built. What is sent never refers to a table, so an encoded
//! block ([`encode`]) is the same for every connection and is made once for answers that repeat.

mod decode;
pub mod encode;
mod huffman;
mod integer;
mod table;

pub use crate::known_names::{KnownName, STATIC};
pub use decode::HpackDecoder;

/// Why a block cannot be decoded. The connection ends with it: its table is not what the peer believes
/// (COMPRESSION_ERROR, RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// The block ends within a field.
    Cut,
    /// A number is larger than any that could be meant (RFC 7541 §5.1).
    Number,
    /// No field has this index (§2.3.3).
    Index,
    /// A string ends in bits that are no padding, or has EOS in it (§5.2).
    Huffman,
    /// The table is resized after the first field, or to more than was allowed (§4.2, §6.3).
    TableSize,
}

impl HpackError {
    /// What is wrong, in a few words for the log.
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
