//! The content of the cookie with an identity.
//!
//! ```text
//! f1.KEY.UNTIL.NAME.NETWORK.MAC     f1.k1.1800000000.gold.-.Zb…
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | `f1` | the form |
//! | `KEY` | the name of the key |
//! | `UNTIL` | when it expires, in seconds since 1970, in decimal digits |
//! | `NAME` | the identity |
//! | `NETWORK` | where it is valid: `-` for everywhere, or an address in hexadecimal digits and the length of the prefix, as in `c0000200-24` |
//! | `MAC` | HMAC-SHA256 (RFC 2104) of all before the last dot, in base64url without padding |
//!
//! A client with such a token has the identity that the token states, until it expires. Tokens can be
//! copied; a network restricts where they are valid.

use super::keys::Keys;
use base64ct::{Base64UrlUnpadded, Encoding};
use forebay_http::cidr::{CidrBlock, CidrError};
use forebay_policy::identity::{MOST_NAME_BYTES, is_in_name};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::{fmt, str};

const FORM: &str = "f1";

/// The longest token.
const MOST_BYTES: usize = 256;

const MAC_BYTES: usize = 32;

/// Why a token proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The token does not have the right form; it may be cut off, for example.
    Malformed,
    /// No key has the name that the token states.
    UnknownKey,
    /// The key has not signed the token.
    Forged,
    /// The token has expired.
    Expired,
    /// The token is valid in another network.
    Elsewhere,
}

impl Rejected {
    /// The reason's name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Rejected::Malformed => "malformed",
            Rejected::UnknownKey => "unknown_key",
            Rejected::Forged => "forged",
            Rejected::Expired => "expired",
            Rejected::Elsewhere => "elsewhere",
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejected::Malformed => "it has not the form of a token",
            Rejected::UnknownKey => "no key in the file has the name that it says",
            Rejected::Forged => "its key has not signed it, or something else",
            Rejected::Expired => "it has expired",
            Rejected::Elsewhere => "it is for clients of another network",
        })
    }
}

/// The network of clients that a token is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenNetwork(CidrBlock);

impl TokenNetwork {
    /// Reads `ADDRESS` or `ADDRESS/PREFIX`: the network around a client, given by the client's address.
    ///
    /// # Errors
    /// [`CidrError`] for anything else.
    pub fn parse(text: &str) -> Result<TokenNetwork, CidrError> {
        match CidrBlock::parse(text) {
            Err(CidrError::Bits { meant, len }) => CidrBlock::new(meant, len).map(TokenNetwork),
            read => read.map(TokenNetwork),
        }
    }

    /// Whether a client is in the network.
    fn holds(self, client: IpAddr) -> bool {
        self.0.holds(client)
    }

    /// Reads a network that [`TokenNetwork::in_token`] has written.
    fn read(text: &str) -> Option<TokenNetwork> {
        let (digits, prefix) = text.split_once('-')?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if !digits.bytes().all(is_hex) {
            return None;
        }
        let ip = match digits.len() {
            8 => Ipv4Addr::from(u32::from_str_radix(digits, 16).ok()?).into(),
            32 => Ipv6Addr::from(u128::from_str_radix(digits, 16).ok()?).into(),
            _ => return None,
        };
        CidrBlock::new(ip, prefix.parse().ok()?).ok().map(TokenNetwork)
    }

    fn in_token(self) -> String {
        let prefix = self.0.prefix_len();
        match self.0.first() {
            IpAddr::V4(ip) => format!("{:08x}-{prefix}", u32::from(ip)),
            IpAddr::V6(ip) => format!("{:032x}-{prefix}", u128::from(ip)),
        }
    }
}

impl fmt::Display for TokenNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A token that some key has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    name: Box<str>,
    /// When it expires, in seconds since 1970.
    pub until_s: u64,
    /// The network in which the token is valid; `None` for everywhere.
    pub bound: Option<TokenNetwork>,
}

impl VerifiedToken {
    /// The name of the identity.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the token is valid for this client at this time, in seconds since 1970.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn holds(&self, client: IpAddr, now_s: u64) -> Result<(), Rejected> {
        if now_s >= self.until_s {
            return Err(Rejected::Expired);
        }
        match self.bound {
            Some(bound) if !bound.holds(client) => Err(Rejected::Elsewhere),
            _ => Ok(()),
        }
    }
}

/// The content of a token, if one of the keys has signed it.
///
/// # Errors
/// [`Rejected`], but neither `Expired` nor `Elsewhere`.
pub fn verify(token: &[u8], keys: &Keys) -> Result<VerifiedToken, Rejected> {
    let text = Some(token).filter(|token| token.len() <= MOST_BYTES);
    let text = text.and_then(|token| str::from_utf8(token).ok()).ok_or(Rejected::Malformed)?;
    let (signed, mac) = text.rsplit_once('.').ok_or(Rejected::Malformed)?;
    let parts: Vec<&str> = signed.split('.').collect();
    let [FORM, key, until, name, network] = parts[..] else { return Err(Rejected::Malformed) };
    let mut buffer = [0; MAC_BYTES];
    let mac = Base64UrlUnpadded::decode(mac, &mut buffer).map_err(|_| Rejected::Malformed)?;
    let said = said(until, name, network).filter(|_| mac.len() == MAC_BYTES);
    let said = said.ok_or(Rejected::Malformed)?;
    let key = keys.get(key.as_bytes()).ok_or(Rejected::UnknownKey)?;
    match key.has_signed(signed.as_bytes(), mac) {
        true => Ok(said),
        false => Err(Rejected::Forged),
    }
}

fn said(until: &str, name: &str, network: &str) -> Option<VerifiedToken> {
    let is_number = !until.is_empty() && until.bytes().all(|byte| byte.is_ascii_digit());
    let until_s = until.parse().ok().filter(|_| is_number)?;
    let bound = match network {
        "-" => None,
        network => Some(TokenNetwork::read(network)?),
    };
    is_name(name).then(|| VerifiedToken { name: name.into(), until_s, bound })
}

fn is_name(name: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&name.len()) && name.chars().all(is_in_name)
}

/// Why a token cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MakeError {
    /// No identity can have this name.
    Name,
    /// No key has this name.
    Key {
        /// The names of the keys that exist.
        known: Vec<String>,
    },
}

impl fmt::Display for MakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MakeError::Name => write!(
                f,
                "a name of an identity has 1 to {MOST_NAME_BYTES} letters of ASCII, digits, - and _"
            ),
            MakeError::Key { known } => {
                write!(f, "there is no such key; there are {}", known.join(", "))
            }
        }
    }
}

impl std::error::Error for MakeError {}

/// A token for `name`, valid until `until_s` (seconds since 1970) and for the clients of `bound`, signed
/// by the key with this name or by the first.
///
/// # Errors
/// [`MakeError`].
pub fn make(
    keys: &Keys,
    key: Option<&str>,
    name: &str,
    until_s: u64,
    bound: Option<TokenNetwork>,
) -> Result<String, MakeError> {
    if !is_name(name) {
        return Err(MakeError::Name);
    }
    let known = || MakeError::Key { known: keys.names().map(str::to_owned).collect() };
    let (key_name, key) = keys.signing(key).ok_or_else(known)?;
    let network = bound.map_or_else(|| "-".to_owned(), TokenNetwork::in_token);
    let signed = format!("{FORM}.{key_name}.{until_s}.{name}.{network}");
    let mac = Base64UrlUnpadded::encode_string(&key.sign(signed.as_bytes()));
    Ok(format!("{signed}.{mac}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn keys() -> Keys {
        let text = b"k1 0123456789abcdef0123456789abcdef\nold fedcba9876543210fedcba9876543210\n";
        Keys::read(text).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_form_is_what_others_can_make() {
        // printf f1.k1.1800000000.gold.- | openssl dgst -sha256 -mac HMAC -binary \
        //   -macopt key:0123456789abcdef0123456789abcdef | basenc --base64url | tr -d =
        let token = make(&keys(), None, "gold", NOW_S, None).unwrap();
        assert_eq!(token, "f1.k1.1800000000.gold.-.MVYCscJGLj4S6OvwFaiTwiwH1m96EP1KG2_6xYg8CDo");
        let verified = verify(token.as_bytes(), &keys()).unwrap();
        assert_eq!((verified.name(), verified.until_s, verified.bound), ("gold", NOW_S, None));
    }

    #[test]
    fn a_token_holds_until_it_expires_and_in_its_network() {
        let bound = |text: &str| Some(TokenNetwork::parse(text).unwrap());
        for (network, inside, outside) in [
            (bound("192.0.2.0/24"), "192.0.2.255", "192.0.3.0"),
            (bound("192.0.2.7"), "::ffff:192.0.2.7", "192.0.2.6"),
            (bound("192.0.2.7/24"), "192.0.2.255", "192.0.3.0"),
            (bound("::ffff:192.0.2.7"), "192.0.2.7", "192.0.2.6"),
            (bound("::ffff:192.0.2.7/120"), "192.0.2.255", "192.0.3.0"),
            (bound("2001:db8::/64"), "2001:db8::1:2:3:4", "2001:db8:0:1::"),
            (bound("0.0.0.0/0"), "8.8.8.8", "::1"),
        ] {
            let token = make(&keys(), Some("old"), "a-b_C9", NOW_S, network).unwrap();
            let verified = verify(token.as_bytes(), &keys()).unwrap();
            assert_eq!(verified.holds(ip(inside), NOW_S - 1), Ok(()), "{token}");
            assert_eq!(verified.holds(ip(outside), NOW_S - 1), Err(Rejected::Elsewhere), "{token}");
            assert_eq!(verified.holds(ip(inside), NOW_S), Err(Rejected::Expired), "{token}");
        }
        for text in
            ["", "1.2.3", "1.2.3.4/33", "::/129", "1.2.3.4/x", "1.2.3.4/-1", "::ffff:1.2.3.4/24"]
        {
            assert!(TokenNetwork::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_part_can_be_changed_or_cut_off() {
        let bound = TokenNetwork::parse("192.0.2.0/24").unwrap();
        let token = make(&keys(), None, "gold", NOW_S, Some(bound)).unwrap();
        let is_good = |bytes: &[u8]| verify(bytes, &keys()).is_ok();
        assert!(is_good(token.as_bytes()));
        for length in 0..token.len() {
            assert!(!is_good(&token.as_bytes()[..length]), "{length}");
        }
        for at in 0..token.len() {
            for other in 0..=255_u8 {
                let mut bytes = token.clone().into_bytes();
                bytes[at] = other;
                // the last character has two bits that belong to no byte: they must be 0
                assert_eq!(is_good(&bytes), other == token.as_bytes()[at], "{at} {other}");
            }
        }
        let rejected = |token: &str| verify(token.as_bytes(), &keys()).unwrap_err();
        assert_eq!(rejected(&token.replace("gold", "good")), Rejected::Forged);
        assert_eq!(rejected(&token.replace("k1", "old")), Rejected::Forged, "another key");
        assert_eq!(rejected(&token.replace("k1", "k2")), Rejected::UnknownKey);
        for malformed in [
            "",
            "......",
            &token.replace("f1", "f2"),
            &token.replace(".gold.", "..gold."),
            &token.replace("gold", "go d"),
            &token.replace("gold", ""),
            &token.replace("gold", &"g".repeat(65)),
            &token.replace("1800000000", "+1800000000"),
            &token.replace("1800000000", "18446744073709551616"),
            &token.replace("-24", "-33"),
            &token.replace("c0", "C0"),
            &format!("{token}="),
            &format!("{token}A"),
        ] {
            assert_eq!(rejected(malformed), Rejected::Malformed, "{malformed}");
        }
    }

    #[test]
    fn what_cannot_be_signed_is_said() {
        let made = |key, name| make(&keys(), key, name, NOW_S, None);
        assert_eq!(made(None, ""), Err(MakeError::Name));
        assert_eq!(made(None, "a.b"), Err(MakeError::Name));
        let known = vec!["k1".to_owned(), "old".to_owned()];
        assert_eq!(made(Some("k3"), "a"), Err(MakeError::Key { known }));
    }
}
