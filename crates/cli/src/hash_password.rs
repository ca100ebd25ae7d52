//! `forebay hash-password`: makes the hash of a password that a configuration holds.

use forebay_site::rules::{HashingError, PasswordHash, Scheme};
use std::fmt;
use std::io::{self, IsTerminal, Read};

/// The longest line that is read from a pipe.
const MOST_BYTES: u64 = 64 * 1024;

/// Options of `hash-password`.
#[derive(Debug, clap::Args)]
pub(crate) struct HashPassword {
    /// Make a bcrypt hash, for other programs that read the same file [default: argon2id]
    #[arg(long)]
    bcrypt: bool,
}

/// The reason why there is no hash.
#[derive(Debug)]
pub(crate) enum PasswordError {
    /// Nothing can be read from the terminal or the pipe.
    Unreadable(io::Error),
    /// More than one line came through the pipe.
    SeveralLines,
    /// The two typed passwords differ.
    Differ,
    /// The password cannot be hashed.
    Hashing(HashingError),
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PasswordError::Unreadable(error) => write!(f, "the password cannot be read: {error}"),
            PasswordError::SeveralLines => f.write_str(
                "a password is one line, and standard input has more; write it once, and nothing behind it",
            ),
            PasswordError::Differ => f.write_str("the two passwords differ"),
            PasswordError::Hashing(error) => error.fmt(f),
        }
    }
}

/// Reads a password, twice if a person types it, and returns its hash and the end of a line.
pub(crate) fn run(options: &HashPassword) -> Result<String, PasswordError> {
    let stdin = io::stdin();
    let password = if stdin.is_terminal() { typed() } else { piped(&mut stdin.lock()) };
    let scheme = if options.bcrypt { Scheme::Bcrypt } else { Scheme::Argon2id };
    let hash = PasswordHash::make(scheme, &password?).map_err(PasswordError::Hashing)?;
    Ok(format!("{}\n", hash.as_str()))
}

/// Reads the password from the terminal, twice and without echo.
fn typed() -> Result<Vec<u8>, PasswordError> {
    let ask = |prompt| rpassword::prompt_password(prompt).map_err(PasswordError::Unreadable);
    let password = ask("Password: ")?;
    if password != ask("The same again: ")? {
        return Err(PasswordError::Differ);
    }
    Ok(password.into_bytes())
}

/// Reads the password from a pipe, which must have exactly one line.
fn piped(input: &mut impl Read) -> Result<Vec<u8>, PasswordError> {
    let mut line = Vec::new();
    input.take(MOST_BYTES).read_to_end(&mut line).map_err(PasswordError::Unreadable)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    if line.contains(&b'\n') { Err(PasswordError::SeveralLines) } else { Ok(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_read_from_a_pipe() {
        for (input, expected) in [
            ("secret\r\n", "secret"),
            ("secret", "secret"),
            (" a b ", " a b "),
            ("\n", ""),
            ("", ""),
        ] {
            assert_eq!(piped(&mut input.as_bytes()).unwrap(), expected.as_bytes(), "{input:?}");
        }
        // with several lines it is unclear which one is the password
        for input in ["secret\nmore\n", "secret\nsecret", "\nsecret\n", "secret\n\n"] {
            let read = piped(&mut input.as_bytes());
            assert!(matches!(read, Err(PasswordError::SeveralLines)), "{input:?}");
        }
    }
}
