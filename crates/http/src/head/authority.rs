//! The host and port that a request is for, and the bytes that they may have.

use super::HeadError;

/// Checks `uri-host [ ":" port ]` (RFC 9110 §4.2.3); user information is not allowed in requests.
pub(super) fn check_authority(authority: &[u8]) -> Result<(), HeadError> {
    let wrong = Err(HeadError::Malformed("Host is not a host and port"));
    let port = match authority {
        [b'[', ..] => {
            let Some(end) = memchr::memchr(b']', authority) else { return wrong };
            let is_address =
                |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' | b':' | b'.');
            if end == 1 || !authority[1..end].iter().all(is_address) {
                return wrong;
            }
            &authority[end + 1..]
        }
        _ => {
            let is_other = |byte: &u8| !REG_NAME[usize::from(*byte)];
            let end = authority.iter().position(is_other);
            end.map_or(&authority[..0], |end| &authority[end..])
        }
    };
    let port_is_good = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if port_is_good { Ok(()) } else { wrong }
}

/// The bytes that are [`is_reg_name`].
static REG_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = is_reg_name(byte as u8);
        byte += 1;
    }
    table
};

/// Whether a byte may be in a name or IPv4 address (`reg-name`, RFC 3986 §3.2.2).
const fn is_reg_name(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'%'
        | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}
