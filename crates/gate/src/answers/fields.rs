//! Fields of a request that decide about its answer: which of them the program reads, and which leave the request to the
//! server.

use super::error::LearnError;
use super::raw::FIELD_BYTES;

/// What a field means to the program, as `enum gate_field` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldMeaning {
    /// Only the server can answer a request that has it.
    Leaves = 1,
    Host,
    Connection,
    Codings,
    Tag,
    Since,
}

/// What always counts. The server of each entry may name more.
pub(crate) const ALWAYS: [(&str, FieldMeaning); 24] = [
    ("host", FieldMeaning::Host),
    ("connection", FieldMeaning::Connection),
    ("accept-encoding", FieldMeaning::Codings),
    ("if-none-match", FieldMeaning::Tag),
    ("if-modified-since", FieldMeaning::Since),
    // a body, or a wish about the connection
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
    // who asks
    ("authorization", FieldMeaning::Leaves),
    ("proxy-authorization", FieldMeaning::Leaves),
    ("forwarded", FieldMeaning::Leaves),
    ("x-forwarded-for", FieldMeaning::Leaves),
    ("x-forwarded-proto", FieldMeaning::Leaves),
    ("x-forwarded-host", FieldMeaning::Leaves),
    ("early-data", FieldMeaning::Leaves),
];

/// The key of a field in the kernel's table.
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

/// What a field always means, if it means anything.
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
