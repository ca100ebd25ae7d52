//! Who may ask for a path, and the handler for tests.

use super::{Network, Pattern};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// Admits clients by their address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which paths.
    pub path: Pattern,
    /// These are admitted, also if they are denied too.
    pub allow: Vec<Network>,
    /// These are not. Without any, all who are not allowed are denied.
    pub deny: Vec<Network>,
}

impl Access {
    /// Whether a client with this address is admitted.
    pub fn admits(&self, client: IpAddr) -> bool {
        let is_among = |networks: &[Network]| networks.iter().any(|at| at.contains(client));
        let is_denied =
            if self.deny.is_empty() { !self.allow.is_empty() } else { is_among(&self.deny) };
        !is_denied || is_among(&self.allow)
    }
}

/// Asks for a name and a password (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Which paths.
    pub path: Pattern,
    /// What the client shows to its user.
    pub realm: Realm,
    /// Who may come in.
    pub users: Vec<User>,
    /// A file with more of them, a line `NAME:HASH` for each.
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

    /// As it was written.
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

/// A name and what the password must fit.
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
        Ok(User { name: name.into(), hash: PasswordHash::parse(hash)? })
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

/// What remains of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    text: Box<str>,
    scheme: Scheme,
}

/// How a password was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `$argon2id$…`
    Argon2id,
    /// `$2y$…`, `$2b$…`, `$2a$…`
    Bcrypt,
}

impl PasswordHash {
    /// Reads a hash in the form that tools write.
    ///
    /// # Errors
    /// [`AuthError::Hash`] for anything that does not begin like one of the [`Scheme`]s.
    pub fn parse(text: &str) -> Result<PasswordHash, AuthError> {
        let is_bcrypt = ["$2y$", "$2b$", "$2a$"].iter().any(|start| text.starts_with(start));
        let scheme = match text.starts_with("$argon2id$") {
            true => Scheme::Argon2id,
            false if is_bcrypt => Scheme::Bcrypt,
            false => return Err(AuthError::Hash),
        };
        Ok(PasswordHash { text: text.into(), scheme })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How it was made.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }
}

/// A hash is not shown: it can be tried against lists of passwords.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasswordHash({:?})", self.scheme)
    }
}

/// Why there is no such user or realm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// A name that no client can send.
    Name,
    /// A realm with quotes, backslashes or letters outside of ASCII.
    Realm,
    /// A hash of an unknown kind.
    Hash,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthError::Name => "a user's name is not empty and has no colon",
            AuthError::Realm => {
                "a realm has letters of ASCII, digits, blanks and signs but \" and \\"
            }
            AuthError::Hash => "a password hash begins with $argon2id$ or $2y$",
        })
    }
}

impl std::error::Error for AuthError {}

/// The handler for tests: takes CPU time, memory and bytes as the query says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Which paths.
    pub path: Pattern,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_overrules_deny() {
        let networks =
            |texts: &[&str]| texts.iter().map(|at| Network::parse(at).unwrap()).collect();
        for (allow, deny, client, expected) in [
            (&["10.0.0.0/8"][..], &["all"][..], "10.1.1.1", true),
            (&["10.0.0.0/8"], &["all"], "8.8.8.8", false),
            (&["10.0.0.0/8"], &[], "8.8.8.8", false),
            (&["10.0.0.0/8"], &[], "10.1.1.1", true),
            (&[], &["10.0.0.0/8"], "10.1.1.1", false),
            (&[], &["10.0.0.0/8"], "8.8.8.8", true),
            (&[], &[], "8.8.8.8", true),
        ] {
            let access =
                Access { path: Pattern::any(), allow: networks(allow), deny: networks(deny) };
            assert_eq!(access.admits(client.parse().unwrap()), expected, "{access:?} {client}");
        }
    }

    #[test]
    fn hashes_are_known_by_their_start_and_not_shown() {
        let user = User::parse("alice", "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA").unwrap();
        assert_eq!((user.name(), user.hash().scheme()), ("alice", Scheme::Argon2id));
        assert!(!format!("{user:?}").contains("aGFzaA"));
        assert_eq!(PasswordHash::parse("$2y$10$abc").unwrap().scheme(), Scheme::Bcrypt);
        assert_eq!(PasswordHash::parse("secret"), Err(AuthError::Hash));
        assert_eq!(User::parse("a:b", "$2y$10$abc"), Err(AuthError::Name));
        assert_eq!(Realm::parse("a \"b\""), Err(AuthError::Realm));
        assert_eq!(Realm::default(), Realm::parse("private").unwrap());
    }
}
