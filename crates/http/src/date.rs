//! An instant as HTTP writes it (RFC 9110 §5.6.7), and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of an IMF-fixdate such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub const IMF_LEN: usize = 29;

/// Writes whole seconds since 1970 as an IMF-fixdate.
pub fn format(unix_seconds: u64) -> [u8; IMF_LEN] {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_seconds));
    let mut bytes = [b' '; IMF_LEN];
    bytes.copy_from_slice(text.as_bytes());
    bytes
}

/// Reads any of the three formats a recipient must accept. `None` for anything else and for
/// instants before 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_formats_name_one_instant() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
