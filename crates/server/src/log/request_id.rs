//! What tells one request from all others: 128 bits, made here or by a trusted proxy.

use forebay_conn::Request;
use std::hash::{BuildHasher, RandomState};

/// The longest name of a proxy's that is taken over.
const MOST_BYTES: usize = 128;

/// The name a trusted proxy gave the request in `X-Request-Id`, if it gave one and that can stand in
/// a log as it is: letters, digits and `-_.:/+=@`.
pub fn given<'r>(request: &Request<'r>) -> Option<&'r [u8]> {
    let mut values =
        request.head.fields().filter(|field| field.0.eq_ignore_ascii_case("x-request-id"));
    let (_, value) = values.next()?;
    let is_sane = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    let fits = !value.is_empty() && value.len() <= MOST_BYTES && value.iter().all(is_sane);
    (fits && values.next().is_none()).then_some(value)
}

/// Makes names: a sequence that starts anywhere, different for each loop and each start.
///
/// Two of one loop never are the same. They look random and are not secret.
#[derive(Clone, Debug)]
pub struct RequestIds {
    next: u64,
    key: u64,
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        // keyed by the operating system's random numbers
        let random = RandomState::new();
        RequestIds { next: random.hash_one(0), key: random.hash_one(1) }
    }
}

impl RequestIds {
    /// The next name, as a number.
    #[inline]
    pub fn number(&mut self) -> u128 {
        // 2⁶⁴ divided by the golden ratio: neighbours in the sequence are far apart
        self.next = self.next.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let first = mixed(self.next);
        let second = mixed(first ^ self.key);
        u128::from(first) << 64 | u128::from(second)
    }

    /// The next name: 32 hexadecimal digits.
    #[inline]
    pub fn make(&mut self) -> [u8; 32] {
        let mut text = [0; 32];
        let number = self.number();
        for (digits, byte) in text.chunks_exact_mut(2).zip(number.to_be_bytes()) {
            digits.copy_from_slice(&super::text::hex(byte));
        }
        text
    }
}

/// Each number to another one that has nothing visible to do with it (the finaliser of SplitMix64).
#[inline]
pub(super) fn mixed(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_conn::Peer;
    use forebay_http::head::{Head, Limits, Lines, Parsed};
    use forebay_http::path::NormalPath;
    use std::collections::HashSet;

    #[test]
    fn names_differ() {
        let mut loops: Vec<_> = (0..4).map(|_| RequestIds::default()).collect();
        let names: HashSet<_> = (0..40_000).map(|number: usize| loops[number % 4].make()).collect();
        assert_eq!(names.len(), 40_000);
        assert!(names.iter().flatten().all(|byte| b"0123456789abcdef".contains(byte)));
        // each digit's place shows all 16
        let digits: HashSet<_> = names.iter().flat_map(|n| n.iter().enumerate()).collect();
        assert_eq!(digits.len(), 32 * 16);
    }

    fn given_by(fields: &str) -> Option<Vec<u8>> {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut room = Lines::new();
        let Ok(Parsed::Complete(head)) =
            Head::parse(text.as_bytes(), &mut room, &Limits::default())
        else {
            panic!("{fields:?} is no field")
        };
        let address = "127.0.0.1:1".parse().unwrap();
        let peer = Peer::new(address, address);
        given(&Request::new(&head, &peer, &NormalPath::default())).map(<[u8]>::to_vec)
    }

    #[test]
    fn only_sane_names_are_taken_over() {
        let name = "0af7651916cd43dd-8448eb211c80319c:1@a/b=";
        assert_eq!(given_by(&format!("X-REQUEST-ID:  {name} \r\n")).unwrap(), name.as_bytes());
        for fields in ["", "X-Request-Id:\r\n", "X-Request-Id: a b\r\n", "X-Request-Id: a\"b\r\n"] {
            assert_eq!(given_by(fields), None);
        }
        assert_eq!(given_by("X-Request-Id: a\r\nX-Request-Id: a\r\n"), None);
        let longest = "a".repeat(MOST_BYTES);
        assert!(given_by(&format!("X-Request-Id: {longest}\r\n")).is_some());
        assert_eq!(given_by(&format!("X-Request-Id: {longest}a\r\n")), None);
    }
}
