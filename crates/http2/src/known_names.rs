//! Names of fields that need not be compared as text: those of the static table (RFC 7541 appendix
//! A), and others that the protocol checks.

/// The static table: name and value of the fields 1 to 61.
#[rustfmt::skip]
pub const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The number of a field's name: the index of the first entry of the static table with that name, a
/// number above 61 for some other names, 0 for all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KnownName(pub u8);

/// `(name, number)`: names that are not in the static table.
const MORE: [(&str, u8); 8] = [
    ("connection", 62),
    ("keep-alive", 63),
    ("proxy-connection", 64),
    ("upgrade", 65),
    ("te", 66),
    ("priority", 67),
    ("x-forwarded-for", 68),
    (":protocol", 69),
];

#[allow(missing_docs)]
impl KnownName {
    /// Any other name.
    pub const OTHER: KnownName = KnownName(0);
    pub const AUTHORITY: KnownName = KnownName(1);
    pub const METHOD: KnownName = KnownName(2);
    pub const PATH: KnownName = KnownName(4);
    pub const SCHEME: KnownName = KnownName(6);
    pub const STATUS: KnownName = KnownName(8);
    pub const CONTENT_LENGTH: KnownName = KnownName(28);
    pub const COOKIE: KnownName = KnownName(32);
    pub const DATE: KnownName = KnownName(33);
    pub const EXPECT: KnownName = KnownName(35);
    pub const HOST: KnownName = KnownName(38);
    pub const TRANSFER_ENCODING: KnownName = KnownName(57);
    pub const CONNECTION: KnownName = KnownName(62);
    pub const KEEP_ALIVE: KnownName = KnownName(63);
    pub const PROXY_CONNECTION: KnownName = KnownName(64);
    pub const UPGRADE: KnownName = KnownName(65);
    pub const TE: KnownName = KnownName(66);
    pub const PRIORITY: KnownName = KnownName(67);
    pub const X_FORWARDED_FOR: KnownName = KnownName(68);
    pub const PROTOCOL: KnownName = KnownName(69);

    /// The number of the name `text`, which is in lower case.
    pub fn of(text: &[u8]) -> KnownName {
        KnownName(match text {
            b":authority" => 1,
            b":method" => 2,
            b":path" => 4,
            b":scheme" => 6,
            b":status" => 8,
            b"accept-charset" => 15,
            b"accept-encoding" => 16,
            b"accept-language" => 17,
            b"accept-ranges" => 18,
            b"accept" => 19,
            b"access-control-allow-origin" => 20,
            b"age" => 21,
            b"allow" => 22,
            b"authorization" => 23,
            b"cache-control" => 24,
            b"content-disposition" => 25,
            b"content-encoding" => 26,
            b"content-language" => 27,
            b"content-length" => 28,
            b"content-location" => 29,
            b"content-range" => 30,
            b"content-type" => 31,
            b"cookie" => 32,
            b"date" => 33,
            b"etag" => 34,
            b"expect" => 35,
            b"expires" => 36,
            b"from" => 37,
            b"host" => 38,
            b"if-match" => 39,
            b"if-modified-since" => 40,
            b"if-none-match" => 41,
            b"if-range" => 42,
            b"if-unmodified-since" => 43,
            b"last-modified" => 44,
            b"link" => 45,
            b"location" => 46,
            b"max-forwards" => 47,
            b"proxy-authenticate" => 48,
            b"proxy-authorization" => 49,
            b"range" => 50,
            b"referer" => 51,
            b"refresh" => 52,
            b"retry-after" => 53,
            b"server" => 54,
            b"set-cookie" => 55,
            b"strict-transport-security" => 56,
            b"transfer-encoding" => 57,
            b"user-agent" => 58,
            b"vary" => 59,
            b"via" => 60,
            b"www-authenticate" => 61,
            b"connection" => 62,
            b"keep-alive" => 63,
            b"proxy-connection" => 64,
            b"upgrade" => 65,
            b"te" => 66,
            b"priority" => 67,
            b"x-forwarded-for" => 68,
            b":protocol" => 69,
            _ => 0,
        })
    }

    /// The name, if it is a known one.
    pub fn as_str(self) -> Option<&'static str> {
        let number = usize::from(self.0);
        match number {
            0 => None,
            1..=61 => Some(STATIC[number - 1].0),
            _ => MORE.get(number - 62).map(|more| more.0),
        }
    }

    /// The index by which an encoder may refer to the name (RFC 7541 §6.2.2); 0 if there is none.
    pub(crate) fn index(self) -> usize {
        if self.0 <= 61 { usize::from(self.0) } else { 0 }
    }

    /// Whether the name begins with a colon (RFC 9113 §8.3).
    pub fn is_pseudo(self) -> bool {
        matches!(self.0, 1..=14) || self == KnownName::PROTOCOL
    }

    /// Whether the field is about a connection, which HTTP/2 does not allow (§8.2.2).
    pub fn is_of_connection(self) -> bool {
        matches!(
            self,
            KnownName::CONNECTION
                | KnownName::KEEP_ALIVE
                | KnownName::PROXY_CONNECTION
                | KnownName::UPGRADE
                | KnownName::TRANSFER_ENCODING
        )
    }
}

/// Whether `name` is a valid field name: a token without capital letters (§8.2.1). Names of
/// pseudo-fields are not.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| NAME_BYTES[usize::from(byte)])
}

const NAME_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = matches!(byte as u8, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%'
            | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    bytes
};

/// Whether `value` is a valid field value (§8.2.1): no control bytes except tabs, no white space
/// around it.
pub(crate) fn is_value(value: &[u8]) -> bool {
    // no early exit from the loop, so that the compiler can vectorise it
    let is_bad =
        |found: bool, &byte: &u8| found | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f);
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !value.iter().fold(false, is_bad) && !is_space(value.first()) && !is_space(value.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_the_first_in_the_table() {
        for (name, _) in STATIC {
            let first = STATIC.iter().position(|field| field.0 == name).unwrap() + 1;
            assert_eq!(usize::from(KnownName::of(name.as_bytes()).0), first, "{name}");
            assert_eq!(KnownName::of(name.as_bytes()).as_str(), Some(name));
        }
        for (name, number) in MORE {
            assert_eq!(KnownName::of(name.as_bytes()), KnownName(number));
            assert_eq!(KnownName(number).as_str(), Some(name));
        }
        assert_eq!(KnownName::of(b"x-other"), KnownName::OTHER);
        assert_eq!(KnownName::PATH.as_str(), Some(":path"));
        assert_eq!(KnownName::COOKIE.as_str(), Some("cookie"));
        assert_eq!(KnownName(200).as_str(), None);
    }

    #[test]
    fn names_and_values_have_the_bytes_of_the_rfc() {
        assert!(is_name(b"x-a_1") && is_name(b"te"));
        for bad in [&b""[..], b"X", b"a b", b"a:b", b":path", b"a\0", b"a\x7f", b"\xe4"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_value(b"") && is_value(b"a b\tc") && is_value(b"\xe4"));
        for bad in [&b" a"[..], b"a ", b"\ta", b"a\0", b"a\r", b"a\nb", b"\x7f"] {
            assert!(!is_value(bad), "{bad:?}");
        }
    }
}
