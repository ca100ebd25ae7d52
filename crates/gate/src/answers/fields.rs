//! The header fields of a request that may change its answer: those that the program reads, and those that
//! leave the request to the server.

use super::error::LearnError;
use super::raw::FIELD_BYTES;

/// The meaning of a field to the program; the values of `enum gate_field`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldMeaning {
    /// Only the server can answer a request with this field.
    Leaves = 1,
    Host,
    Connection,
    Codings,
    Tag,
    Since,
}

/// The fields that always have a meaning. The server may name further ones for the answers that it hands
/// over.
pub(crate) const ALWAYS: [(&str, FieldMeaning); 24] = [
    ("host", FieldMeaning::Host),
    ("connection", FieldMeaning::Connection),
    ("accept-encoding", FieldMeaning::Codings),
    ("if-none-match", FieldMeaning::Tag),
    ("if-modified-since", FieldMeaning::Since),
    // a body, or an option of the connection
    ("content-length", FieldMeaning::Leaves),
    ("transfer-encoding", FieldMeaning::Leaves),
    ("te", FieldMeaning::Leaves),
    ("trailer", FieldMeaning::Leaves),
    ("expect", FieldMeaning::Leaves),
    ("upgrade", FieldMeaning::Leaves),
    ("http2-settings", FieldMeaning::Leaves),
    ("keep-alive", FieldMeaning::Leaves),
    // conditions and parts
    ("range", FieldMeaning::Leaves),
    ("if-range", FieldMeaning::Leaves),
    ("if-match", FieldMeaning::Leaves),
    ("if-unmodified-since", FieldMeaning::Leaves),
    // the client's identity
    ("authorization", FieldMeaning::Leaves),
    ("proxy-authorization", FieldMeaning::Leaves),
    ("forwarded", FieldMeaning::Leaves),
    ("x-forwarded-for", FieldMeaning::Leaves),
    ("x-forwarded-proto", FieldMeaning::Leaves),
    ("x-forwarded-host", FieldMeaning::Leaves),
    ("early-data", FieldMeaning::Leaves),
];

/// Makes the key of a field in the kernel's table.
///
/// # Errors
/// [`LearnError::Field`].
pub(crate) fn key(name: &str) -> Result<[u8; FIELD_BYTES], LearnError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = (1..FIELD_BYTES).contains(&name.len());
    if !fits || !name.bytes().all(is_good) {
        return Err(LearnError::Field(name.to_owned()));
    }
    let mut key = [0; FIELD_BYTES];
    key[..name.len()].copy_from_slice(name.to_ascii_lowercase().as_bytes());
    Ok(key)
}

/// The meaning that a field always has, if it has one.
pub(crate) fn always(name: &str) -> Option<FieldMeaning> {
    let found = ALWAYS.iter().find(|(one, _)| one.eq_ignore_ascii_case(name));
    found.map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_keys() {
        assert_eq!(key("Cookie").unwrap()[..8], *b"cookie\0\0");
        for (name, _) in ALWAYS {
            assert_eq!(&key(name).unwrap()[..name.len()], name.as_bytes());
        }
        for wrong in ["", "a b", "a:", "x.y", &"a".repeat(32)] {
            assert!(matches!(key(wrong), Err(LearnError::Field(_))), "{wrong}");
        }
        assert_eq!(always("Host"), Some(FieldMeaning::Host));
        assert_eq!(always("cookie"), None);
    }
}
