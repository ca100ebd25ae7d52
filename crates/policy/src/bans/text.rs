//! Bans as operators write them: one address or network, and a list in a file.

use super::{BanRecord, MOST_OF_FILE, MOST_WHY_BYTES};
use forebay_http::cidr::{CidrBlock, CidrError, mask};
use forebay_http::date;
use std::fmt;

/// The shortest IPv4 prefix that is banned without confirmation, in bits.
const LEAST_IPV4_LEN: u8 = 8;
/// The shortest IPv6 prefix that is banned without confirmation, in bits.
const LEAST_IPV6_LEN: u8 = 19;

/// Bits of an IPv6 address that tell clients apart.
const CLIENT_LEN: u8 = 64;

/// Reads an address or a network. A single IPv6 address stands for its client, which has the /64.
///
/// # Errors
/// The same as [`CidrBlock::parse`].
pub fn banned_network(text: &str) -> Result<CidrBlock, CidrError> {
    let network = CidrBlock::parse(text)?;
    if network.is_ipv4() || text.contains('/') {
        return Ok(network);
    }
    let host = !mask(CLIENT_LEN);
    Ok(CidrBlock::around(network.bits() & !host, network.bits() | host, false))
}

/// Whether a network is so large that it is more likely a typing error than intended.
pub fn is_wide(network: CidrBlock) -> bool {
    let least = if network.is_ipv4() { LEAST_IPV4_LEN } else { LEAST_IPV6_LEN };
    network.prefix_len() < least
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanLineError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    wrong: LineFault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LineFault {
    /// The line does not begin with a network.
    Network(String, CidrError),
    /// The second word is not a time.
    Expiry(String),
    /// Text after the time that is not a reason.
    More(String),
    /// The network is too large.
    Wide(CidrBlock),
    /// The line is not UTF-8.
    NoText,
    /// The file has more bans than one may have.
    TooMany,
}

impl fmt::Display for BanLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wrong {
            LineFault::Network(found, error) => write!(f, "{found:?}: {error}"),
            LineFault::Expiry(found) => write!(
                f,
                "{found:?} is no time: behind the network stands when the ban ends, such as \
                 2026-12-01T06:00:00Z; and why it is there stands behind #"
            ),
            LineFault::More(found) => {
                write!(f, "{found:?} is too much: why the ban is there stands behind #")
            }
            LineFault::Wide(network) => write!(
                f,
                "{network} is more than /{LEAST_IPV4_LEN} (IPv6: /{LEAST_IPV6_LEN}): write smaller networks; \
                 forebay policy ban has --force"
            ),
            LineFault::NoText => f.write_str("it is not UTF-8"),
            LineFault::TooMany => write!(f, "more than {MOST_OF_FILE} networks"),
        }
    }
}

impl std::error::Error for BanLineError {}

/// Reads a list: each line has a network, optionally the end of the ban, and optionally a reason after `#`.
/// Empty lines and comments are skipped. Each ban comes with the number of its line.
///
/// # Errors
/// The first line that is wrong.
pub fn parse_lines(bytes: &[u8]) -> Result<Vec<(usize, BanRecord)>, BanLineError> {
    let mut records = Vec::new();
    for (line, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let wrong = |wrong| BanLineError { line, wrong };
        let text = std::str::from_utf8(bytes).map_err(|_| wrong(LineFault::NoText))?;
        let Some(record) = parse_line(text).map_err(wrong)? else { continue };
        if records.len() >= MOST_OF_FILE {
            return Err(wrong(LineFault::TooMany));
        }
        records.push((line, record));
    }
    Ok(records)
}

fn parse_line(text: &str) -> Result<Option<BanRecord>, LineFault> {
    let (said, why) = text.split_once('#').unwrap_or((text, ""));
    let mut words = said.split_ascii_whitespace();
    let Some(word) = words.next() else { return Ok(None) };
    let network =
        banned_network(word).map_err(|error| LineFault::Network(word.to_owned(), error))?;
    let until_s = match words.next() {
        None => None,
        Some(word) => {
            let until_s = date::parse_rfc3339(word);
            Some(until_s.ok_or_else(|| LineFault::Expiry(word.to_owned()))?)
        }
    };
    if let Some(more) = words.next() {
        return Err(LineFault::More(more.to_owned()));
    }
    if is_wide(network) {
        return Err(LineFault::Wide(network));
    }
    Ok(Some(BanRecord { network, until_s, why: kept_why(why) }))
}

/// A reason in the form that is kept: one line, cut to the longest length.
pub(super) fn kept_why(text: &str) -> String {
    let mut kept = String::new();
    for letter in text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if kept.len() + letter.len_utf8() > MOST_WHY_BYTES {
            break;
        }
        kept.push(letter);
    }
    kept
}

impl BanRecord {
    /// A ban of this network; the reason is made one line, and [cut](MOST_WHY_BYTES) if it is too long.
    pub fn new(network: CidrBlock, until_s: Option<u64>, why: &str) -> BanRecord {
        BanRecord { network, until_s, why: kept_why(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read() {
        let text = "# bad networks\n\n203.0.113.0/24 # a flood # twice\r\n\
                    192.0.2.7 1970-01-01T00:01:40Z\n  2001:db8::7\t1970-01-01T01:00:00+01:00  #\n";
        let read = parse_lines(text.as_bytes()).unwrap();
        let said: Vec<_> = read
            .iter()
            .map(|(line, ban)| (*line, ban.network.to_string(), ban.until_s, ban.why.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                (3, "203.0.113.0/24".to_owned(), None, "a flood # twice"),
                (4, "192.0.2.7/32".to_owned(), Some(100), ""),
                (5, "2001:db8::/64".to_owned(), Some(0), ""),
            ]
        );
        assert_eq!(parse_lines(b"").unwrap(), []);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line, said) in [
            ("1.2.3.4\nlocalhost\n", 2, "\"localhost\": an address or a network is expected"),
            ("10.0.0.1/8", 1, "\"10.0.0.1/8\": the address has bits behind the first 8"),
            ("10.0.0.0/8\n10.0.0.0/7", 2, "10.0.0.0/7 is more than"),
            ("8.0.0.0/7", 1, "8.0.0.0/7 is more than /8 (IPv6: /19)"),
            ("2000::/18", 1, "2000::/18 is more than /8 (IPv6: /19)"),
            ("::/0", 1, "::/0 is more than"),
            ("1.2.3.4 tomorrow", 1, "\"tomorrow\" is no time"),
            ("1.2.3.4 2026-12-01", 1, "\"2026-12-01\" is no time"),
            ("1.2.3.4 2026-12-01T00:00:00Z a flood", 1, "\"a\" is too much"),
        ] {
            let error = parse_lines(text.as_bytes()).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.to_string().starts_with(said), "{text}: {error}");
        }
        assert_eq!(parse_lines(b"1.2.3.4\n\xff").unwrap_err().line, 2);
    }

    #[test]
    fn how_large_a_network_may_be() {
        let is = |text: &str| is_wide(CidrBlock::parse(text).unwrap());
        assert!(!is("10.0.0.0/8") && is("0.0.0.0/7") && is("0.0.0.0/0"));
        assert!(!is("2000::/19") && is("2000::/18") && is("::/0"));
        assert!(!is("::ffff:10.0.0.0/104"));
    }

    #[test]
    fn one_address_is_one_client() {
        let of = |text: &str| banned_network(text).unwrap().to_string();
        assert_eq!(of("2001:db8::7"), "2001:db8::/64");
        assert_eq!(of("2001:db8::7/128"), "2001:db8::7/128");
        assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1/32");
    }

    #[test]
    fn a_reason_is_one_short_line() {
        let ban = BanRecord::new(CidrBlock::ALL_IPV4, None, &format!(" a\nb{}", "ä".repeat(200)));
        assert!(ban.why.starts_with("a bä") && ban.why.len() <= MOST_WHY_BYTES);
    }
}
