//! The classes of bytes that RFC 9110 §5.5 and §5.6 name.

/// Whether a byte is a `tchar`, of which tokens are made (RFC 9110 §5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a byte is HTAB, SP, `VCHAR` or `obs-text`, of which a field value (RFC 9110 §5.5) and a
/// quoted string (§5.6.4) are made. All others are control bytes.
pub(crate) fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
