//! Tokens that clients bring (RFC 6750), and their file.

use crate::signing::SigningKey;
use base64ct::{Base64UrlUnpadded, Encoding};
use forebay_http::head::{Head, Name};
use forebay_sys::file::open_regular;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, str};
use subtle::{Choice, ConstantTimeEq};

/// The largest file of tokens, in bytes. Hundreds of tokens fit.
const LONGEST: u64 = 64 * 1024;

/// A set of tokens, each of which is accepted. They do not appear in messages.
#[derive(Clone)]
pub struct Tokens(Arc<[Box<[u8]>]>);

/// Why a file has no tokens.
#[derive(Debug)]
pub enum TokensError {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is longer than a file of tokens can sensibly be.
    TooLong,
    /// The file has no tokens.
    Empty,
    /// A line that is no token: no client could send it.
    NoToken {
        /// The number of the line, from 1.
        line: usize,
    },
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`TokensError`].
    pub fn open(path: &Path) -> Result<Tokens, TokensError> {
        let mut bytes = Vec::new();
        open_regular(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
            .map_err(TokensError::Unreadable)?;
        if bytes.len() as u64 > LONGEST {
            return Err(TokensError::TooLong);
        }
        Tokens::read(&bytes)
    }

    /// Reads one token from each line. Empty lines, and those that begin with `#`, are skipped.
    fn read(bytes: &[u8]) -> Result<Tokens, TokensError> {
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"));
        let tokens = lines.map(|(index, line)| match is_token(line) {
            true => Ok(line.into()),
            false => Err(TokensError::NoToken { line: index + 1 }),
        });
        let tokens: Arc<[Box<[u8]>]> = tokens.collect::<Result<_, _>>()?;
        if tokens.is_empty() { Err(TokensError::Empty) } else { Ok(Tokens(tokens)) }
    }

    /// Whether a request has one of the tokens in its only `Authorization` field.
    pub fn admit(&self, head: &Head<'_>) -> bool {
        head.only(Name::Authorization).and_then(bearer).is_some_and(|token| self.contains(token))
    }

    /// The cookie for a browser that has brought one of the tokens, valid until `until_s` seconds since
    /// 1970. It has that time and a signature with the token, so that it becomes invalid when the token
    /// is removed.
    pub fn cookie(&self, head: &Head<'_>, until_s: u64) -> Option<String> {
        let token = head.only(Name::Authorization).and_then(bearer)?;
        self.contains(token).then(|| {
            let mac = SigningKey::new(token).sign(signed(until_s).as_bytes());
            format!("{until_s}.{}", Base64UrlUnpadded::encode_string(&mac))
        })
    }

    /// Whether this is a cookie from [`cookie`](Tokens::cookie) whose time is not over.
    pub fn admit_cookie(&self, cookie: &str, now_s: u64) -> bool {
        let read = || {
            let (until_s, mac) = cookie.split_once('.')?;
            let until_s: u64 = until_s.parse().ok()?;
            Some((until_s, Base64UrlUnpadded::decode_vec(mac).ok()?))
        };
        let Some((until_s, mac)) = read().filter(|(until_s, _)| now_s < *until_s) else {
            return false;
        };
        let text = signed(until_s);
        self.0.iter().any(|token| SigningKey::new(token).has_signed(text.as_bytes(), &mac))
    }

    /// Whether this is one of the tokens. The time taken depends only on their lengths, not on their
    /// bytes.
    fn contains(&self, token: &[u8]) -> bool {
        let equal = self.0.iter().map(|known| known.ct_eq(token));
        equal.fold(Choice::from(0), |any, one| any | one).into()
    }
}

/// The signed text, which differs from all else that a token signs.
fn signed(until_s: u64) -> String {
    format!("forebay page until {until_s}")
}

/// The token in the value of `Authorization`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(rest.trim_ascii_start())
}

/// Whether a line can be sent as a token (`b64token` of RFC 6750 §2.1).
fn is_token(line: &[u8]) -> bool {
    let text = str::from_utf8(line).unwrap_or("").trim_end_matches('=');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl fmt::Display for TokensError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokensError::Unreadable(error) => {
                write!(f, "cannot be read: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; the user of the server must be able to read them")
                    }
                    _ => Ok(()),
                }
            }
            TokensError::TooLong => write!(f, "are longer than {LONGEST} bytes"),
            TokensError::Empty => f.write_str(
                "there are none: write one in a line, such as \"openssl rand -hex 32\" makes",
            ),
            TokensError::NoToken { line } => write!(
                f,
                "line {line} is no token: only letters, digits and -._~+/ are, with = at the end"
            ),
        }
    }
}

impl std::error::Error for TokensError {}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::head::{HeadLimits, Lines, ParsedHead};

    #[test]
    fn a_token_is_in_each_line() {
        let tokens = Tokens::read(b"# old\nabc-._~+/==\r\n\n  def \n").unwrap();
        for good in ["abc-._~+/==", "def"] {
            assert!(tokens.contains(good.as_bytes()), "{good}");
        }
        for bad in ["", "abc", "abc-._~+/=", "de", "deg", "defdef", "# old", "DEF"] {
            assert!(!tokens.contains(bad.as_bytes()), "{bad}");
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(2)");
    }

    #[test]
    fn a_cookie_is_good_until_its_time_and_while_its_token_is() {
        let head = |text: &str, ask: &dyn Fn(&Head<'_>) -> Option<String>| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: {text}\r\n\r\n");
            let mut lines = Lines::new();
            match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()).unwrap() {
                ParsedHead::Complete(head) => ask(&head),
                _ => panic!("the head is incomplete"),
            }
        };
        let tokens = Tokens::read(b"first\nsecond\n").unwrap();
        assert_eq!(head("Bearer third", &|head| tokens.cookie(head, 100)), None);
        let cookie = head("Bearer second", &|head| tokens.cookie(head, 100)).unwrap();
        assert!(tokens.admit_cookie(&cookie, 99) && !tokens.admit_cookie(&cookie, 100));
        let later = cookie.replacen("100.", "200.", 1);
        for forged in
            [later.as_str(), "", ".", "100.", "100.AAAA", "first", "18446744073709551616.A"]
        {
            assert!(!tokens.admit_cookie(forged, 99), "{forged}");
        }
        assert!(!Tokens::read(b"first\n").unwrap().admit_cookie(&cookie, 99), "its token is gone");
    }

    #[test]
    fn what_could_not_be_sent_is_refused_by_its_line() {
        for text in ["", "\n \n", "# none\n"] {
            assert!(matches!(Tokens::read(text.as_bytes()), Err(TokensError::Empty)), "{text:?}");
        }
        for line in ["a b", "=", "a=b", "\"a\"", "\u{e9}", "user:password", "\u{feff}a"] {
            let read = Tokens::read(format!("good\n{line}\n").as_bytes());
            assert!(matches!(read, Err(TokensError::NoToken { line: 2 })), "{line}");
        }
    }

    #[test]
    fn it_is_brought_as_a_bearer_token_and_once() {
        let tokens = Tokens::read(b"secret\n").unwrap();
        let admits = |fields: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut lines = Lines::new();
            match Head::parse(text.as_bytes(), &mut lines, &HeadLimits::default()).unwrap() {
                ParsedHead::Complete(head) => tokens.admit(&head),
                _ => panic!("the head is incomplete"),
            }
        };
        for good in ["Bearer secret", "bearer secret", "BEARER   secret  "] {
            assert!(admits(&format!("Authorization: {good}\r\n")), "{good}");
        }
        for bad in
            ["", "Bearer", "Bearer ", "secret", "Basic secret", "Bearer secret,", "Bearersecret"]
        {
            assert!(!admits(&format!("Authorization: {bad}\r\n")), "{bad}");
        }
        assert!(!admits(""));
        assert!(!admits("Authorization: Bearer secret\r\nAuthorization: Bearer secret\r\n"));
    }
}
