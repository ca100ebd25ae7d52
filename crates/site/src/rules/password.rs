//! Hashes of passwords: argon2id and bcrypt, as text that a configuration can hold.

use argon2::password_hash::phc;
use argon2::{Argon2, Params, PasswordHasher, PasswordVerifier};
use std::fmt;
use std::str::FromStr;

/// The most memory one argon2id hash may ask for, in KiB: 1 GiB.
const MOST_MEMORY_KIB: u32 = 1 << 20;
/// The most work it may ask for: KiB of memory times passes. About a minute on one core.
const MOST_WORK_KIB: u64 = 64 << 20;
/// The most expensive bcrypt hash: each step doubles its time, which is about 5 s at this one.
const MOST_BCRYPT_COST: u32 = 16;
/// The cost that `forebay hash-password --bcrypt` sets: about 0.3 s.
const BCRYPT_COST: u32 = 12;
/// The length after which bcrypt ignores the rest of a password, in bytes.
const MOST_BCRYPT_BYTES: usize = 72;

/// The hash of one password, parsed and within bounds: it can be verified against in bounded time
/// and memory.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    text: Box<str>,
    kind: HashKind,
}

#[derive(Clone, PartialEq, Eq)]
enum HashKind {
    Argon2id(Box<phc::PasswordHash>),
    Bcrypt,
}

/// Ways to hash a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `$argon2id$…` (RFC 9106). New ones have 19 MiB, two passes and one lane, as OWASP advises:
    /// about 20 ms.
    Argon2id,
    /// `$2y$…`, `$2b$…`, `$2a$…`, for other programs that read the same file. New ones have cost 12.
    Bcrypt,
}

/// The reason why a text is not a hash that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashError {
    /// The text begins like no hash that is understood.
    Unknown,
    /// The text begins like a hash, but is none.
    Malformed {
        /// The method whose hashes begin like that.
        method: &'static str,
        /// The reason.
        reason: String,
    },
    /// Verifying the hash would take too much time or memory.
    TooExpensive {
        /// The cost that the hash asks for.
        asked: String,
        /// The most that is allowed.
        most: String,
    },
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashError::Unknown => f.write_str(
                "not a password hash: it must begin with $argon2id$, $2a$, $2b$ or $2y$; \
                 make one with forebay hash-password",
            ),
            HashError::Malformed { method, reason } => {
                write!(f, "not a whole {method} hash: {reason}")
            }
            HashError::TooExpensive { asked, most } => {
                write!(f, "too expensive to verify: {asked}, and at most {most} is allowed")
            }
        }
    }
}

impl std::error::Error for HashError {}

/// The reason why a password could not be hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashingError {
    /// An empty password protects nothing.
    Empty,
    /// A byte that cannot be in a password: an end of line or NUL.
    ControlByte,
    /// The password is longer than the part that bcrypt looks at.
    TooLongForBcrypt {
        /// The password's length.
        bytes: usize,
    },
    /// There is no memory or no randomness.
    Failed {
        /// The library's error.
        reason: String,
    },
}

impl fmt::Display for HashingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashingError::Empty => f.write_str("an empty password protects nothing"),
            HashingError::ControlByte => {
                f.write_str("a password cannot contain control characters (RFC 7617)")
            }
            HashingError::TooLongForBcrypt { bytes } => write!(
                f,
                "bcrypt ignores what comes after {MOST_BCRYPT_BYTES} bytes, and this password has \
                 {bytes}; use argon2id"
            ),
            HashingError::Failed { reason } => write!(f, "the password cannot be hashed: {reason}"),
        }
    }
}

impl std::error::Error for HashingError {}

impl PasswordHash {
    /// Reads a hash: `$argon2id$…` as in the PHC string format, or `$2a$`, `$2b$`, `$2y$` as
    /// htpasswd writes it.
    ///
    /// # Errors
    /// [`HashError`] if it is neither, or if verifying it would take more than 1 GiB or minutes.
    pub fn parse(text: &str) -> Result<PasswordHash, HashError> {
        let kind = if text.starts_with("$argon2id$") {
            HashKind::Argon2id(Box::new(read_argon2id(text)?))
        } else if ["$2a$", "$2b$", "$2y$"].iter().any(|start| text.starts_with(start)) {
            check_bcrypt(text)?;
            HashKind::Bcrypt
        } else {
            return Err(HashError::Unknown);
        };
        Ok(PasswordHash { text: text.into(), kind })
    }

    /// Hashes a password with a random salt. Takes tens of milliseconds and, for argon2id, 19 MiB.
    ///
    /// # Errors
    /// [`HashingError`] if the password is empty, or cannot be sent, or is too long for bcrypt.
    pub fn make(scheme: Scheme, password: &[u8]) -> Result<PasswordHash, HashingError> {
        if password.is_empty() {
            return Err(HashingError::Empty);
        }
        if password.iter().any(u8::is_ascii_control) {
            return Err(HashingError::ControlByte);
        }
        let failed = |reason: String| HashingError::Failed { reason };
        let text = match scheme {
            Scheme::Argon2id => {
                let hash: phc::PasswordHash = Argon2::default()
                    .hash_password(password)
                    .map_err(|error| failed(error.to_string()))?;
                hash.to_string()
            }
            Scheme::Bcrypt if password.len() > MOST_BCRYPT_BYTES => {
                return Err(HashingError::TooLongForBcrypt { bytes: password.len() });
            }
            Scheme::Bcrypt => {
                bcrypt::hash(password, BCRYPT_COST).map_err(|error| failed(error.to_string()))?
            }
        };
        PasswordHash::parse(&text).map_err(|error| failed(error.to_string()))
    }

    /// Whether this is the password's hash. Takes as long and as much memory as the hash asks for,
    /// whatever the password. `false` also if there is no memory for it.
    pub fn verify(&self, password: &[u8]) -> bool {
        match &self.kind {
            HashKind::Argon2id(hash) => {
                Argon2::default().verify_password(password, hash.as_ref()).is_ok()
            }
            HashKind::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
        }
    }

    /// The method by which the hash was made.
    pub fn scheme(&self) -> Scheme {
        match self.kind {
            HashKind::Argon2id(_) => Scheme::Argon2id,
            HashKind::Bcrypt => Scheme::Bcrypt,
        }
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for PasswordHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<PasswordHash, HashError> {
        PasswordHash::parse(text)
    }
}

/// A hash is not shown: it can be tried against lists of passwords.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasswordHash({:?})", self.scheme())
    }
}

fn read_argon2id(text: &str) -> Result<phc::PasswordHash, HashError> {
    let malformed = |reason: String| HashError::Malformed { method: "argon2id", reason };
    let hash = phc::PasswordHash::new(text).map_err(|error| malformed(error.to_string()))?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(malformed("the salt or the hash is missing at its end".to_owned()));
    }
    if hash.version.is_some_and(|version| version != 0x10 && version != 0x13) {
        return Err(malformed("its version is neither 16 nor 19".to_owned()));
    }
    let params = Params::try_from(&hash).map_err(|error| malformed(error.to_string()))?;
    let work_kib = u64::from(params.m_cost()) * u64::from(params.t_cost());
    if params.m_cost() > MOST_MEMORY_KIB || work_kib > MOST_WORK_KIB {
        return Err(HashError::TooExpensive {
            asked: format!("m={}, t={}", params.m_cost(), params.t_cost()),
            most: format!("m={MOST_MEMORY_KIB} (in KiB), and m times t={MOST_WORK_KIB}"),
        });
    }
    Ok(hash)
}

fn check_bcrypt(text: &str) -> Result<(), HashError> {
    let malformed = |reason: String| HashError::Malformed { method: "bcrypt", reason };
    let parts = bcrypt::HashParts::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let cost = parts.get_cost();
    match cost {
        4..=MOST_BCRYPT_COST => Ok(()),
        0..=3 => Err(malformed(format!("its cost is {cost}, and the least there is is 4"))),
        _ => Err(HashError::TooExpensive {
            asked: format!("cost {cost}"),
            most: format!("cost {MOST_BCRYPT_COST}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_verified() {
        for (scheme, start) in [(Scheme::Argon2id, "$argon2id$v=19$"), (Scheme::Bcrypt, "$2b$12$")]
        {
            let made = PasswordHash::make(scheme, "pässword".as_bytes()).unwrap();
            assert!(made.as_str().starts_with(start));
            let read = PasswordHash::parse(made.as_str()).unwrap();
            assert_eq!(read, made);
            assert!(read.verify("pässword".as_bytes()));
            assert!(!read.verify(b"password") && !read.verify(b""));
            assert!(!format!("{read:?}").contains(&made.as_str()[20..]));
        }
    }

    /// A test vector of the original argon2, and what htpasswd writes.
    #[test]
    fn hashes_of_others_are_verified() {
        for text in [
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi",
        ] {
            let hash = PasswordHash::parse(text).unwrap();
            assert!(hash.verify(b"password"), "{text}");
            assert!(!hash.verify(b"Password") && !hash.verify(b""), "{text}");
        }
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let bcrypt = "$2b$12$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVy";
        for (text, expected) in [
            ("", "not a password hash"),
            ("secret", "not a password hash"),
            ("$apr1$x$y", "not a password hash"),
            ("$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAA", "not a password hash"),
            ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$", "not a whole argon2id hash"),
            ("$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ", "the salt or the hash is missing"),
            (
                "$argon2id$v=18$m=64,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA",
                "its version is neither",
            ),
            (
                "$argon2id$v=19$m=4,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA",
                "not a whole argon2id hash",
            ),
            (
                "$argon2id$v=19$m=4000000,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA",
                "too expensive to verify: m=4000000, t=1",
            ),
            (
                "$argon2id$v=19$m=64,t=4294967295,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA",
                "too expensive",
            ),
            (bcrypt, "not a whole bcrypt hash"),
            ("$2b$20$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u", "cost 20"),
            ("$2b$03$L6Bc/AlTQHyd9liGgGEZyOFLPHNgyxeEPfgYfBCVxJ7JIlwxyVU3u", "its cost is 3"),
        ] {
            let error = PasswordHash::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn some_passwords_cannot_be_hashed() {
        let long = [b'a'; 73];
        let make = |scheme, password: &[u8]| PasswordHash::make(scheme, password).unwrap_err();
        assert_eq!(make(Scheme::Argon2id, b""), HashingError::Empty);
        assert_eq!(make(Scheme::Bcrypt, b"a\nb"), HashingError::ControlByte);
        assert_eq!(make(Scheme::Bcrypt, &long), HashingError::TooLongForBcrypt { bytes: 73 });
    }
}
