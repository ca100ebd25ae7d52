//! What a problem is about: what the server needs as another user, and which secret is not kept.

use std::fmt;

/// What the server needs once it is another user than root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// A root, or the directory of an alias.
    Directory,
    /// A file of users.
    Users,
    /// An error page.
    Page,
    /// The directory of a log.
    Logs,
    /// A log that is there already.
    Log,
    /// The directory of certificates by ACME.
    Storage,
}

impl Needed {
    /// What the user may not do, before the path.
    pub(super) fn act(self) -> &'static str {
        match self {
            Needed::Directory => "enter the directory",
            Needed::Users => "read the file of users",
            Needed::Page => "read the error page",
            Needed::Logs => "write to the directory",
            Needed::Log => "write to the log",
            Needed::Storage => "write to the directory",
        }
    }

    /// What comes of it.
    pub(super) fn effect(self) -> &'static str {
        match self {
            Needed::Directory => "the server does not start",
            Needed::Users => "what it protects is answered with 500 for everybody",
            Needed::Page => "clients get a short page of Forebay's own",
            Needed::Logs => "a log that is moved away cannot be made again",
            Needed::Log => "the server does not start",
            Needed::Storage => "no certificate is got or replaced",
        }
    }

    /// What would help.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Needed::Directory => "give it to a group of that user: \"chgrp\", \"chmod g+rx\"",
            Needed::Users | Needed::Page => {
                "give it to a group of that user: \"chgrp\", \"chmod g+r\""
            }
            Needed::Logs | Needed::Log | Needed::Storage => "give it to that user: \"chown\"",
        }
    }
}

/// A file that only the server should be able to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The key of a certificate.
    Key,
    /// The tokens of the admin listener.
    Tokens,
    /// The keys of identities.
    Keys,
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secret::Key => "private key",
            Secret::Tokens => "file of tokens",
            Secret::Keys => "file of keys",
        })
    }
}
