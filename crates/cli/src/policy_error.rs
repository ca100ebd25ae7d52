//! The errors of `forebay policy`, besides those of the configuration and of the connection to the server.

use forebay_handler::identity::token::MakeError;
use forebay_handler::identity::{KeysError, Rejected};
use forebay_server::policy_command::ExplainError;
use std::path::PathBuf;
use std::{fmt, io};

/// The error of a command about a policy.
#[derive(Debug)]
pub(crate) enum PolicyCommandError {
    /// Standard input cannot be read.
    Stdin(io::Error),
    /// The request or the connection cannot be explained.
    Explain(ExplainError),
    /// Classes and rules do not make a valid policy.
    Policy(forebay_policy::PolicyError),
    /// There is no token, or it proves nothing.
    Token(TokenError),
}

/// The reason why there is no token, or why one is rejected.
#[derive(Debug)]
pub(crate) enum TokenError {
    /// The configuration names no keys.
    NoKeys,
    /// The keys cannot be used.
    Keys {
        /// The file of the keys.
        path: PathBuf,
        /// The error.
        error: KeysError,
    },
    /// The token cannot be made.
    Make(MakeError),
    /// The token proves nothing.
    Rejected(Rejected),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenError::NoKeys => {
                f.write_str("the configuration has no identity.keys; --keys names a file")
            }
            TokenError::Keys { path, error } => write!(f, "the keys in {path:?}: {error}"),
            TokenError::Make(error) => error.fmt(f),
            TokenError::Rejected(why) => write!(f, "the token proves nothing: {why}"),
        }
    }
}

impl fmt::Display for PolicyCommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyCommandError::Stdin(error) => write!(f, "the head cannot be read: {error}"),
            PolicyCommandError::Explain(error) => error.fmt(f),
            PolicyCommandError::Policy(error) => error.fmt(f),
            PolicyCommandError::Token(error) => error.fmt(f),
        }
    }
}
