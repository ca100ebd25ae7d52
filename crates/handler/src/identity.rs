//! Identities that clients prove by a cookie. A program that has a key signs the identity.
//!
//! In: the configuration, and the `Cookie` fields of a request. Out: the name of an identity, or why there
//! is none. Rules match it ([`forebay_policy::identity`]). A cookie that repeats on its connection is
//! verified once.
//!
//! | module | what it holds |
//! |---|---|
//! | [`keys`] | keys by their names, read from a file |
//! | [`token`] | what is in such a cookie, and whether it is good |

pub mod keys;
pub mod token;

pub use keys::{Keys, KeysError};
pub use token::{Rejected, TokenNetwork};

use forebay_http::head::{Head, Name};
use forebay_metrics::Counter;
use std::net::IpAddr;
use std::sync::Arc;
use token::VerifiedToken;

/// The verifier of identities.
#[derive(Clone, Debug)]
pub struct Verifier {
    /// The name of the cookie that has the token.
    pub cookie: Box<str>,
    keys: Arc<Keys>,
}

/// The result of looking for a token in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PresentedToken {
    /// The request has no token.
    #[default]
    Nothing,
    /// The token is valid.
    Accepted,
    /// The token is not valid, for this reason.
    Rejected(Rejected),
}

impl PresentedToken {
    /// The name of the result in logs and metrics; `None` if there was no token.
    pub fn name(self) -> Option<&'static str> {
        match self {
            PresentedToken::Nothing => None,
            PresentedToken::Accepted => Some("accepted"),
            PresentedToken::Rejected(why) => Some(why.name()),
        }
    }

    /// The counter of the result.
    pub fn counter(self) -> Option<Counter> {
        match self {
            PresentedToken::Nothing => None,
            PresentedToken::Accepted => Some(Counter::TokenAccepted),
            PresentedToken::Rejected(Rejected::Malformed) => Some(Counter::TokenMalformed),
            PresentedToken::Rejected(Rejected::UnknownKey) => Some(Counter::TokenUnknownKey),
            PresentedToken::Rejected(Rejected::Forged) => Some(Counter::TokenForged),
            PresentedToken::Rejected(Rejected::Expired) => Some(Counter::TokenExpired),
            PresentedToken::Rejected(Rejected::Elsewhere) => Some(Counter::TokenElsewhere),
        }
    }
}

/// The last token of a connection, kept with it: a token that repeats is not verified again.
#[derive(Debug, Default)]
pub struct Remembered(Option<Box<LastToken>>);

#[derive(Debug)]
struct LastToken {
    /// The [number](Keys::number) of the keys with which it was verified.
    keys: u64,
    token: Box<[u8]>,
    /// The result of verification; times and networks are checked for each request.
    found: Result<VerifiedToken, Rejected>,
}

impl Verifier {
    /// A verifier for tokens that these keys have signed, in the cookie of this name.
    pub fn new(cookie: &str, keys: &Arc<Keys>) -> Verifier {
        Verifier { cookie: cookie.into(), keys: Arc::clone(keys) }
    }

    /// The keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The identity of the client that sends this head from this address at this time, in seconds since
    /// 1970. Only the first cookie of the name counts.
    pub fn identify<'r>(
        &self,
        head: &Head<'_>,
        client: IpAddr,
        now_s: u64,
        remembered: &'r mut Remembered,
    ) -> (Option<&'r str>, PresentedToken) {
        let mut pairs = head.values(Name::Cookie).flat_map(pairs);
        let is_ours = |(name, _): &(&[u8], &[u8])| *name == self.cookie.as_bytes();
        let Some((_, token)) = pairs.find(is_ours) else { return (None, PresentedToken::Nothing) };
        let found = match self.verified(token, remembered) {
            Ok(verified) => verified.holds(client, now_s).map(|()| verified.name()),
            Err(why) => Err(why),
        };
        match found {
            Ok(name) => (Some(name), PresentedToken::Accepted),
            Err(why) => (None, PresentedToken::Rejected(why)),
        }
    }

    fn verified<'r>(
        &self,
        token: &[u8],
        remembered: &'r mut Remembered,
    ) -> Result<&'r VerifiedToken, Rejected> {
        let number = self.keys.number();
        let is_known = |last: &LastToken| last.keys == number && *last.token == *token;
        if !remembered.0.as_deref().is_some_and(is_known) {
            let found = token::verify(token, &self.keys);
            // a token that is too long is not worth its memory
            if found == Err(Rejected::Malformed) {
                return Err(Rejected::Malformed);
            }
            remembered.0 = Some(Box::new(LastToken { keys: number, token: token.into(), found }));
        }
        match &remembered.0 {
            Some(last) => last.found.as_ref().map_err(|why| *why),
            None => Err(Rejected::Malformed),
        }
    }
}

/// The names and values in the value of a `Cookie` field (RFC 6265 §4.2.1).
fn pairs(value: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    value.split(|byte| *byte == b';').map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(at);
        (name.trim_ascii(), value.get(1..).unwrap_or_default().trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::{HeadLimits, Lines, ParsedHead};

    const NOW_S: u64 = 1_800_000_000;
    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn keys(text: &str) -> Arc<Keys> {
        Arc::new(Keys::read(text.as_bytes()).unwrap())
    }

    fn verifier() -> Verifier {
        Verifier::new("id", &keys("k1 0123456789abcdef0123456789abcdef\n"))
    }

    fn token(verifier: &Verifier, name: &str) -> String {
        token::make(verifier.keys(), None, name, NOW_S + 60, None).unwrap()
    }

    /// The identity that these fields prove.
    fn asked(
        verifier: &Verifier,
        fields: &str,
        remembered: &mut Remembered,
    ) -> (Option<String>, PresentedToken) {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut lines = Lines::new();
        let parsed = Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default());
        let Ok(ParsedHead::Complete(head)) = parsed else { panic!("{fields:?}") };
        let (name, brought) = verifier.identify(&head, CLIENT, NOW_S, remembered);
        (name.map(str::to_owned), brought)
    }

    #[test]
    fn the_token_stands_in_the_first_cookie_of_the_name() {
        let verifier = verifier();
        let (gold, silver) = (token(&verifier, "gold"), token(&verifier, "silver"));
        for (fields, expected) in [
            (format!("Cookie: id={gold}\r\n"), Some("gold")),
            (format!("Cookie: a=b;id = {gold} ; c\r\n"), Some("gold")),
            // HTTP/2 has each cookie in a line of its own
            (
                format!("cookie: a=b\r\ncookie: id={silver}\r\ncookie: id={gold}\r\n"),
                Some("silver"),
            ),
            (format!("Cookie: id=x; id={gold}\r\n"), None),
            (format!("Cookie: Id={gold}\r\n"), None),
            (format!("Cookie: id=\"{gold}\"\r\n"), None),
            (format!("X-Cookie: id={gold}\r\n"), None),
            ("Cookie: id\r\n".to_owned(), None),
        ] {
            let (name, brought) = asked(&verifier, &fields, &mut Remembered::default());
            assert_eq!(name.as_deref(), expected, "{fields}");
            assert_eq!(brought == PresentedToken::Accepted, expected.is_some(), "{fields}");
        }
        assert_eq!(
            asked(&verifier, "", &mut Remembered::default()),
            (None, PresentedToken::Nothing)
        );
    }

    #[test]
    fn what_is_remembered_is_the_same_token_under_the_same_keys() {
        let verifier = verifier();
        let mut remembered = Remembered::default();
        let gold = format!("Cookie: id={}\r\n", token(&verifier, "gold"));
        let accepted = (Some("gold".to_owned()), PresentedToken::Accepted);
        assert_eq!(asked(&verifier, &gold, &mut remembered), accepted);
        let first = remembered.0.as_ref().map(|last| last.token.as_ptr());
        assert_eq!(asked(&verifier, &gold, &mut remembered), accepted);
        assert_eq!(remembered.0.as_ref().map(|last| last.token.as_ptr()), first, "verified once");
        // a token with a changed name, and one that is no token
        let forged = gold.replace("gold", "bold");
        let (_, brought) = asked(&verifier, &forged, &mut remembered);
        assert_eq!(brought, PresentedToken::Rejected(Rejected::Forged));
        let (_, brought) = asked(&verifier, "Cookie: id=x\r\n", &mut remembered);
        assert_eq!(brought, PresentedToken::Rejected(Rejected::Malformed));
        assert_eq!(asked(&verifier, &gold, &mut remembered), accepted);
        // the key is gone
        let other = Verifier::new("id", &keys("k2 0123456789abcdef0123456789abcdef\n"));
        let (_, brought) = asked(&other, &gold, &mut remembered);
        assert_eq!(brought, PresentedToken::Rejected(Rejected::UnknownKey));
    }
}
