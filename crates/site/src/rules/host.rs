//! The names by which clients ask for a site, and its name for people.

use super::place;
use std::fmt;

/// The longest name in the DNS (RFC 1035 §2.3.4).
pub(crate) const MOST_HOST_BYTES: usize = 253;

/// A host name, or all names below one: `shop.example`, `*.shop.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    text: Box<str>,
    /// The name in lower case, without `*.`.
    name: Box<str>,
    is_wildcard: bool,
}

impl Host {
    /// Reads a name or an address; an IPv6 address stands in brackets. Case does not matter.
    ///
    /// # Errors
    /// [`HostError`] for anything else, a port above all.
    pub fn parse(text: &str) -> Result<Host, HostError> {
        let (name, is_wildcard) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let name = name.to_ascii_lowercase();
        let is_address = !is_wildcard && name.starts_with('[');
        match is_address {
            true => check_address(&name)?,
            false => check_name(text, &name)?,
        }
        Ok(Host { text: text.into(), name: name.into(), is_wildcard })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name in lower case; that of the parent of all names for a wildcard.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this stands for all names below [`name`](Host::name), at any depth, but not for that
    /// name itself.
    pub fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }

    /// Whether this stands for a name in lower case.
    pub fn covers(&self, name: &str) -> bool {
        match self.is_wildcard() {
            true => name.strip_suffix(self.name()).is_some_and(|front| front.ends_with('.')),
            false => name == self.name(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn check_address(name: &str) -> Result<(), HostError> {
    let Some((address, rest)) = name[1..].split_once(']') else { return Err(HostError::Address) };
    if rest.starts_with(':') {
        return Err(HostError::Port);
    }
    match address.parse::<std::net::Ipv6Addr>() {
        Ok(_) if rest.is_empty() => Ok(()),
        _ => Err(HostError::Address),
    }
}

fn check_name(text: &str, name: &str) -> Result<(), HostError> {
    if text.contains("://") {
        return Err(HostError::Url);
    }
    if text == "_" {
        return Err(HostError::Nobody);
    }
    if let Some(name) = text.strip_prefix('.')
        && check_name(name, name).is_ok()
    {
        return Err(HostError::Dot { name: name.into() });
    }
    let is_wrong = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let offset = text.len() - name.len();
    match name.char_indices().find(|(_, c)| is_wrong(c)) {
        Some((_, '*')) => return Err(HostError::Star),
        Some((_, ':')) => return Err(HostError::Port),
        Some((at, c)) if !c.is_ascii() => {
            return Err(HostError::NotAscii { at: place(text, offset + at) });
        }
        Some((at, character)) => {
            return Err(HostError::Character { character, at: place(text, offset + at) });
        }
        None => {}
    }
    if name.len() > MOST_HOST_BYTES
        || name.split('.').any(|label| label.is_empty() || label.len() > 63)
    {
        return Err(HostError::Label);
    }
    Ok(())
}

/// The reason why a text is not a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// A star that is not the whole first label.
    Star,
    /// A port, which does not decide which site is meant.
    Port,
    /// A letter outside of ASCII.
    NotAscii {
        /// The character's place; the first is 1.
        at: usize,
    },
    /// A character that is in no host name.
    Character {
        /// The character.
        character: char,
        /// The character's place; the first is 1.
        at: usize,
    },
    /// A label is empty or longer than 63 bytes, or the name is longer than 253.
    Label,
    /// Brackets without an IPv6 address.
    Address,
    /// A URL, which has more than a host.
    Url,
    /// A dot before a name, which other servers take for the name and all below it.
    Dot {
        /// The name behind the dot.
        name: Box<str>,
    },
    /// `_`, which other servers have for a host that no client asks for.
    Nobody,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Star => {
                f.write_str("a star stands only for the first label, as in *.example.com")
            }
            HostError::Port => {
                f.write_str("a host has no port here; a site answers on all listeners")
            }
            HostError::NotAscii { at } => write!(
                f,
                "the letter at character {at} is not ASCII; write the name as clients send it, \
                 with xn--"
            ),
            HostError::Character { character, at } => {
                write!(f, "{character:?} at character {at} cannot be in a host name")
            }
            HostError::Label => f.write_str(
                "a host name has 1 to 63 characters between its dots, none at its end, and at \
                 most 253 in all",
            ),
            HostError::Address => f.write_str("an IPv6 address is written [::1]"),
            HostError::Url => {
                f.write_str("a host is a name or an address alone, without http:// and a path")
            }
            HostError::Dot { name } => write!(f, "write {name:?} and \"*.{name}\""),
            HostError::Nobody => f.write_str(
                "no client asks for it; a site without hosts answers for every host that no other \
                 site has",
            ),
        }
    }
}

impl std::error::Error for HostError {}

/// The name of a site in logs, metrics and messages: small letters, digits, `.`, `-`, `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SiteName(Box<str>);

impl SiteName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`HostError`] for an empty name ([`HostError::Label`]) or one with another character.
    pub fn parse(text: &str) -> Result<SiteName, HostError> {
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
        match text.char_indices().find(|(_, c)| !is_good(*c)) {
            _ if text.is_empty() || text.len() > MOST_HOST_BYTES => Err(HostError::Label),
            Some((at, character)) => Err(HostError::Character { character, at: place(text, at) }),
            None => Ok(SiteName(text.into())),
        }
    }

    /// The name of a site that was given none: that of its first host, else `default`.
    pub fn of(hosts: &[Host]) -> SiteName {
        let name = hosts.first().map_or("default", |host| host.name());
        // an IPv6 address has characters that names of sites do not have
        SiteName(name.replace(['[', ']'], "").replace(':', "-").into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_wildcards_and_addresses() {
        for (text, name, is_wildcard) in [
            ("shop.example", "shop.example", false),
            ("Shop.Example", "shop.example", false),
            ("*.Shop.example", "shop.example", true),
            ("localhost", "localhost", false),
            ("127.0.0.1", "127.0.0.1", false),
            ("[::1]", "[::1]", false),
            ("a_b.example", "a_b.example", false),
        ] {
            let host = Host::parse(text).unwrap();
            assert_eq!((host.as_str(), host.name(), host.is_wildcard()), (text, name, is_wildcard));
        }
        let label = "a host name has 1 to 63 characters between its dots, none at its end, and at \
                     most 253 in all";
        for (text, expected) in [
            ("", label),
            ("a..b", label),
            ("a.", label),
            ("*.", label),
            ("*", "a star stands only for the first label, as in *.example.com"),
            ("a.*.b", "a star stands only for the first label, as in *.example.com"),
            ("a:80", "a host has no port here; a site answers on all listeners"),
            ("[::1]:80", "a host has no port here; a site answers on all listeners"),
            ("https://a/b", "a host is a name or an address alone, without http:// and a path"),
            (".a.example", "write \"a.example\" and \"*.a.example\""),
            ("..a", label),
            (
                "_",
                "no client asks for it; a site without hosts answers for every host that no other \
                 site has",
            ),
            ("[::g]", "an IPv6 address is written [::1]"),
            ("a/b", "'/' at character 2 cannot be in a host name"),
            ("*.a b", "' ' at character 4 cannot be in a host name"),
            (
                "größe.example",
                "the letter at character 3 is not ASCII; write the name as clients send it, with \
                 xn--",
            ),
        ] {
            assert_eq!(Host::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn a_site_is_named_after_its_first_host() {
        let hosts = |texts: &[&str]| {
            texts.iter().map(|text| Host::parse(text).unwrap()).collect::<Vec<_>>()
        };
        for (list, expected) in [
            (&[][..], "default"),
            (&["Shop.example", "b"], "shop.example"),
            (&["*.shop.example"], "shop.example"),
            (&["[::1]"], "--1"),
        ] {
            let name = SiteName::of(&hosts(list));
            assert_eq!(name.as_str(), expected);
            assert_eq!(SiteName::parse(name.as_str()), Ok(name));
        }
        for text in ["", "A", "a b", "ä"] {
            assert!(SiteName::parse(text).is_err(), "{text}");
        }
    }
}
