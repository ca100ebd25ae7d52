//! Settings that are names: of a site, of a host, of an account.

use super::problem::Wrong;
use super::value::Written;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest name of a site, in bytes.
const LONGEST_NAME: usize = 64;

/// The name of a site in logs, metrics and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteName(String);

impl SiteName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for SiteName {
    const EXPECTED: &'static str =
        "a name of at most 64 lower-case letters, digits, \".\", \"-\" and \"_\"";
    fn read(text: &str) -> Result<SiteName, Wrong> {
        let is_letter = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        if text.is_empty() || text.len() > LONGEST_NAME || !text.bytes().all(is_letter) {
            return Err(SiteName::misread(text));
        }
        Ok(SiteName(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
    fn guess(text: &str) -> Option<String> {
        let guess = text.to_lowercase().replace([' ', '/'], "-");
        SiteName::read(&guess).is_ok().then_some(guess)
    }
}

/// A host a site answers for: a name, an address, or `*.` and a name for all names one or more
/// labels below it. Lower case, without a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host(String);

impl Host {
    /// The host as it was written, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for Host {
    const EXPECTED: &'static str =
        "a host name such as \"shop.example\" or \"*.shop.example\", without a port";
    const MAY_BE_EMPTY: bool = true;
    fn read(text: &str) -> Result<Host, Wrong> {
        let host = text.to_ascii_lowercase();
        let name = host.strip_prefix("*.").unwrap_or(&host);
        let ipv6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if is_host_name(name) || ipv6.is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()) {
            return Ok(Host(host));
        }
        Err(Host::misread(text))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
    fn guess(text: &str) -> Option<String> {
        let text = text.trim();
        let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
        let bare = bare.split('/').next().unwrap_or("");
        if bare.parse::<Ipv6Addr>().is_ok() {
            return Some(format!("[{bare}]"));
        }
        let bare = match bare.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => bare,
        };
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        let bare = bare.strip_prefix('.').map_or(bare.to_owned(), |rest| format!("*.{rest}"));
        Host::read(&bare).is_ok().then_some(bare)
    }
}

/// RFC 1123 §2.1, and underscores, which are used; an IPv4 address has the same letters.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let looks_like_ipv4 = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    name.len() <= 253
        && name.split('.').all(is_label)
        && (!looks_like_ipv4 || name.parse::<Ipv4Addr>().is_ok())
}

/// A user or group: its name, or its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account(String);

impl Account {
    /// The name or number.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Written for Account {
    const EXPECTED: &'static str = "a name such as \"www-data\", or a number in quotes";
    fn read(text: &str) -> Result<Account, Wrong> {
        let is_letter = |b: u8| b.is_ascii_graphic() && !matches!(b, b':' | b'/' | b',');
        if text.is_empty() || text.len() > 256 || !text.bytes().all(is_letter) {
            return Err(Account::misread(text));
        }
        Ok(Account(text.to_owned()))
    }
    fn text(&self) -> String {
        self.0.clone()
    }
}
