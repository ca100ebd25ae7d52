//! Certificates of clients as conditions.

use crate::glob::Glob;
use crate::place;
use std::borrow::Cow;
use std::fmt;

/// What is known of a certificate that a client has presented and that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateFacts<'f> {
    /// The subject, as RFC 4514 writes names.
    pub subject: &'f str,
    /// The SHA-256 in small hexadecimal digits.
    pub fingerprint: &'f str,
}

/// A condition for certificates: `any`, `subject=CN=worker-*,O=Example`, where each star stands for any run
/// of characters, or `fingerprint=` and the SHA-256. Case counts in subjects.
#[derive(Clone, Debug)]
pub struct CertificatePattern {
    text: Box<str>,
    meant: Meant,
}

#[derive(Clone, Debug)]
enum Meant {
    Any,
    Subject(Glob),
    Fingerprint(Box<str>),
}

impl CertificatePattern {
    /// Reads a pattern. A fingerprint may have colons between its bytes, and capitals.
    ///
    /// # Errors
    /// [`CertificatePatternError`] for what no certificate could match.
    pub fn parse(text: &str) -> Result<CertificatePattern, CertificatePatternError> {
        let meant = match text.split_once('=') {
            None if text == "any" => Meant::Any,
            Some(("subject", subject)) => {
                let is_wrong = |c: &char| !matches!(c, ' '..='~');
                if let Some(character) = subject.chars().find(is_wrong) {
                    let at = place(text, text.find(character).unwrap_or_default());
                    return Err(CertificatePatternError::Character { character, at });
                }
                Meant::Subject(Glob::new(with_separators(subject).as_bytes()))
            }
            Some(("fingerprint", digits)) => {
                let digits = digits.replace(':', "").to_ascii_lowercase();
                if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(CertificatePatternError::Fingerprint);
                }
                Meant::Fingerprint(digits.into())
            }
            _ => return Err(CertificatePatternError::Kind),
        };
        Ok(CertificatePattern { text: text.into(), meant })
    }

    /// Whether a certificate matches.
    pub fn matches(&self, certificate: &CertificateFacts<'_>) -> bool {
        match &self.meant {
            Meant::Any => true,
            Meant::Subject(glob) => glob.matches(with_separators(certificate.subject).as_bytes()),
            Meant::Fingerprint(digits) => **digits == *certificate.fingerprint,
        }
    }
}

/// Rewrites a name so that commas and plus signs stand between attributes only; within a value they become
/// numeric escapes. So a star that matches the backslash before one cannot split the name.
fn with_separators(name: &str) -> Cow<'_, str> {
    if !name.contains("\\,") && !name.contains("\\+") {
        return Cow::Borrowed(name);
    }
    let (mut written, mut characters) = (String::with_capacity(name.len() + 8), name.chars());
    while let Some(character) = characters.next() {
        written.push(character);
        if character == '\\' {
            match characters.next() {
                Some(',') => written.push_str("2C"),
                Some('+') => written.push_str("2B"),
                escaped => written.extend(escaped),
            }
        }
    }
    Cow::Owned(written)
}

impl PartialEq for CertificatePattern {
    fn eq(&self, other: &CertificatePattern) -> bool {
        self.text == other.text
    }
}

impl Eq for CertificatePattern {}

impl fmt::Display for CertificatePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a condition for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificatePatternError {
    /// The text begins with none of the known words.
    Kind,
    /// A character that no subject contains in this notation.
    Character {
        /// The character.
        character: char,
        /// The position of the character, from 1.
        at: usize,
    },
    /// The text after `fingerprint=` is not a SHA-256.
    Fingerprint,
}

impl fmt::Display for CertificatePatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificatePatternError::Kind => {
                f.write_str("write \"subject=CN=…\", \"fingerprint=…\" or \"any\"")
            }
            CertificatePatternError::Character { character, at } => write!(
                f,
                "{character:?} at character {at} never matches: subjects are written as \
                 \"openssl x509 -noout -subject -nameopt RFC2253\" does, in ASCII"
            ),
            CertificatePatternError::Fingerprint => f.write_str(
                "a fingerprint is a SHA-256 in 64 hexadecimal digits: \
                 \"openssl x509 -noout -fingerprint -sha256\" says it",
            ),
        }
    }
}

impl std::error::Error for CertificatePatternError {}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn what_fits() {
        let certificate = CertificateFacts { subject: "CN=worker-7,O=A\\, B", fingerprint: DIGITS };
        let colons: Vec<&str> = (0..64).step_by(2).map(|at| &DIGITS[at..at + 2]).collect();
        let colons = format!("fingerprint={}", colons.join(":").to_uppercase());
        for (pattern, expected) in [
            ("any", true),
            ("subject=CN=worker-7,O=A\\, B", true),
            ("subject=CN=worker-*", true),
            ("subject=*,O=A\\, B", true),
            ("subject=CN=worker-7", false),
            ("subject=cn=worker-*", false),
            ("subject=", false),
            (&*format!("fingerprint={DIGITS}"), true),
            (&*colons, true),
            (&*format!("fingerprint={}", DIGITS.replace('a', "b")), false),
        ] {
            let found = CertificatePattern::parse(pattern).unwrap();
            assert_eq!(found.matches(&certificate), expected, "{pattern}");
            assert_eq!(found.to_string(), pattern);
        }
    }

    #[test]
    fn a_star_takes_no_attribute_out_of_a_value() {
        let pattern = CertificatePattern::parse("subject=CN=worker-*,O=Example").unwrap();
        for (subject, expected) in [
            ("CN=worker-x,O=Example", true),
            ("CN=worker-x\\\\,O=Example", true),
            ("CN=worker-x\\,O=Example", false),
            ("CN=worker-x\\+O=Example", false),
            ("CN=worker-x\\\\\\,O=Example", false),
        ] {
            let certificate = CertificateFacts { subject, fingerprint: DIGITS };
            assert_eq!(pattern.matches(&certificate), expected, "{subject}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| CertificatePattern::parse(text).unwrap_err();
        for text in ["", "CN=a", "issuer=CN=a", "Any", "fingerprint"] {
            assert_eq!(error(text), CertificatePatternError::Kind, "{text}");
        }
        for text in ["fingerprint=", "fingerprint=00", &format!("fingerprint=g{}", &DIGITS[1..])] {
            assert_eq!(error(text), CertificatePatternError::Fingerprint, "{text}");
        }
        let character = CertificatePatternError::Character { character: 'é', at: 12 };
        assert_eq!(error("subject=CN=é"), character);
    }
}
