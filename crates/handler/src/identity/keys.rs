//! Keys that sign identities, and the file that has them.

use crate::signing::SigningKey;
use forebay_sys::file::open_regular;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, str};

/// The largest file of keys, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The largest number of keys in use at a time: the one that signs, and earlier ones.
pub const MOST_KEYS: usize = 16;

/// The shortest key: as long as the hash (RFC 2104 §3).
const LEAST_KEY_BYTES: usize = 32;

/// The longest name of a key.
const MOST_NAME_BYTES: usize = 16;

/// A set of keys. They do not appear in messages.
pub struct Keys {
    /// The first one signs.
    keys: Box<[(Box<str>, SigningKey)]>,
    number: u64,
}

/// Why a file has no keys.
#[derive(Debug)]
pub enum KeysError {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is longer than a file of keys can sensibly be.
    TooLong,
    /// The file has no keys.
    Empty,
    /// The file has more than [`MOST_KEYS`] keys.
    TooMany,
    /// A line does not have a name and a key.
    NoKey {
        /// The number of the line, from 1.
        line: usize,
    },
    /// A key is too short.
    Short {
        /// The number of the key's line, from 1.
        line: usize,
    },
    /// Two keys have the same name.
    SameName {
        /// The number of the second one's line, from 1.
        line: usize,
    },
}

impl Keys {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`KeysError`].
    pub fn open(path: &Path) -> Result<Keys, KeysError> {
        let mut bytes = Vec::new();
        open_regular(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
            .map_err(KeysError::Unreadable)?;
        if bytes.len() as u64 > LONGEST {
            return Err(KeysError::TooLong);
        }
        Keys::read(&bytes)
    }

    /// Reads one key from each line: a name, a space, the key as it stands. Empty lines, and those that
    /// begin with `#`, are skipped.
    pub(super) fn read(bytes: &[u8]) -> Result<Keys, KeysError> {
        static READ: AtomicU64 = AtomicU64::new(0);
        let mut keys: Vec<(Box<str>, SigningKey)> = Vec::new();
        for (index, text) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let (line, text) = (index + 1, text.trim_ascii());
            if text.is_empty() || text.starts_with(b"#") {
                continue;
            }
            let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let (Some(name), Some(key), None) = (words.next(), words.next(), words.next()) else {
                return Err(KeysError::NoKey { line });
            };
            let name = str::from_utf8(name).ok().filter(|name| is_name(name));
            let Some(name) = name else { return Err(KeysError::NoKey { line }) };
            if key.len() < LEAST_KEY_BYTES {
                return Err(KeysError::Short { line });
            }
            if keys.iter().any(|(other, _)| **other == *name) {
                return Err(KeysError::SameName { line });
            }
            if keys.len() == MOST_KEYS {
                return Err(KeysError::TooMany);
            }
            keys.push((name.into(), SigningKey::new(key)));
        }
        if keys.is_empty() {
            return Err(KeysError::Empty);
        }
        Ok(Keys { keys: keys.into(), number: READ.fetch_add(1, Relaxed) })
    }

    /// The number of this set of keys: each set that is read has a number of its own.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The key with this name.
    pub(super) fn get(&self, name: &[u8]) -> Option<&SigningKey> {
        self.keys.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, key)| key)
    }

    /// The key that signs: the one with this name, or the first.
    pub(super) fn signing(&self, name: Option<&str>) -> Option<(&str, &SigningKey)> {
        let is_meant =
            |(known, _): &&(Box<str>, SigningKey)| name.is_none_or(|name| **known == *name);
        self.keys.iter().find(is_meant).map(|(name, key)| (&**name, key))
    }

    /// The names of all keys.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(name, _)| &**name)
    }
}

/// Whether a key can have this name.
fn is_name(name: &str) -> bool {
    name.len() <= MOST_NAME_BYTES && name.chars().all(forebay_policy::identity::is_in_name)
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORM: &str = "a name of letters, digits, - and _, a blank, and a key such as \
                            \"openssl rand -hex 32\" makes";
        match self {
            KeysError::Unreadable(error) => {
                write!(f, "cannot be read: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; the user of the server must be able to read them")
                    }
                    _ => Ok(()),
                }
            }
            KeysError::TooLong => write!(f, "are longer than {LONGEST} bytes"),
            KeysError::Empty => write!(f, "there are none: a line has {FORM}"),
            KeysError::TooMany => write!(f, "there are more than {MOST_KEYS}: remove old ones"),
            KeysError::NoKey { line } => write!(f, "line {line} is not {FORM}"),
            KeysError::Short { line } => write!(
                f,
                "line {line} has a key of less than {LEAST_KEY_BYTES} characters: \"openssl rand -hex \
                 32\" makes a good one"
            ),
            KeysError::SameName { line } => {
                write!(f, "line {line} has the name of an earlier key; each has its own")
            }
        }
    }
}

impl std::error::Error for KeysError {}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_key_is_in_each_line() {
        let text = format!("# new first\nk2 {KEY}\r\n\n  old-1\t{KEY}x \n");
        let keys = Keys::read(text.as_bytes()).unwrap();
        assert_eq!(keys.names().collect::<Vec<_>>(), ["k2", "old-1"]);
        assert_eq!(keys.signing(None).unwrap().0, "k2");
        assert_eq!(keys.signing(Some("old-1")).unwrap().0, "old-1");
        assert!(keys.signing(Some("k1")).is_none());
        assert_eq!(format!("{keys:?}"), "[\"k2\", \"old-1\"]");
        let again = Keys::read(text.as_bytes()).unwrap();
        assert_ne!(keys.number(), again.number());
    }

    #[test]
    fn what_is_no_key_is_told_by_its_line() {
        let wrong = |text: &str| Keys::read(text.as_bytes()).unwrap_err();
        assert!(matches!(wrong("# none\n"), KeysError::Empty));
        for line in ["k1", KEY, "k 1 x", &format!("k.1 {KEY}"), &format!("{KEY} {KEY}"), "\u{e9} x"]
        {
            let text = format!("good {KEY}\n{line}\n");
            assert!(matches!(wrong(&text), KeysError::NoKey { line: 2 }), "{line}");
        }
        assert!(matches!(wrong(&format!("k1 {}", &KEY[1..])), KeysError::Short { line: 1 }));
        let twice = format!("k1 {KEY}\nk1 {KEY}");
        assert!(matches!(wrong(&twice), KeysError::SameName { line: 2 }));
        let many: String = (0..17).map(|number| format!("k{number} {KEY}\n")).collect();
        assert!(matches!(wrong(&many), KeysError::TooMany));
    }
}
