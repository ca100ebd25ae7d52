//! Access to paths by name and password.

use super::GuardedPaths;
use super::password::{HashError, PasswordHash};
use std::fmt;
use std::path::PathBuf;

/// A rule that asks for a name and a password (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The paths that the rule protects.
    pub paths: GuardedPaths,
    /// The name that a browser shows to its user.
    pub realm: Realm,
    /// The users that may pass.
    pub users: Vec<User>,
    /// A file with more users, a line `NAME:HASH` for each.
    pub file: Option<PathBuf>,
}

/// A name for what is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm(Box<str>);

impl Realm {
    /// Reads visible characters of ASCII and blanks, without quotes and backslashes.
    ///
    /// # Errors
    /// [`AuthError::Realm`] for anything else.
    pub fn parse(text: &str) -> Result<Realm, AuthError> {
        let is_good = |c: char| (c.is_ascii_graphic() || c == ' ') && c != '"' && c != '\\';
        if text.chars().all(is_good) { Ok(Realm(text.into())) } else { Err(AuthError::Realm) }
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Realm {
    fn default() -> Realm {
        Realm("private".into())
    }
}

impl fmt::Display for Realm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A user's name and the hash of the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: Box<str>,
    hash: PasswordHash,
}

impl User {
    /// A user by name and hash.
    ///
    /// # Errors
    /// [`AuthError`] for a name that no client can send, or a hash of an unknown kind.
    pub fn parse(name: &str, hash: &str) -> Result<User, AuthError> {
        if name.is_empty() || name.chars().any(|c| c.is_control() || c == ':') {
            return Err(AuthError::Name);
        }
        Ok(User { name: name.into(), hash: PasswordHash::parse(hash).map_err(AuthError::Hash)? })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The hash.
    pub fn hash(&self) -> &PasswordHash {
        &self.hash
    }
}

/// The reason why a user or realm is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// A name that no client can send.
    Name,
    /// A realm with quotes, backslashes or letters outside of ASCII.
    Realm,
    /// A hash that cannot be verified against.
    Hash(HashError),
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthError::Name => f.write_str("a user's name is not empty and has no colon"),
            AuthError::Realm => {
                f.write_str("a realm has letters of ASCII, digits, blanks and signs but \" and \\")
            }
            AuthError::Hash(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AuthError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_realms_are_checked() {
        let hash = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
        let user = User::parse("alice", hash).unwrap();
        assert_eq!((user.name(), user.hash().as_str()), ("alice", hash));
        assert!(!format!("{user:?}").contains(hash));
        assert_eq!(User::parse("alice", "secret"), Err(AuthError::Hash(HashError::Unknown)));
        assert_eq!(User::parse("a:b", hash), Err(AuthError::Name));
        assert_eq!(Realm::parse("a \"b\""), Err(AuthError::Realm));
        assert_eq!(Realm::default(), Realm::parse("private").unwrap());
    }
}
