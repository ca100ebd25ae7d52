//! Names of Unix sockets (unix(7)): the path of a file, or a name in the kernel's abstract namespace.

use rustix::net::SocketAddrUnix;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The longest name in bytes: `sockaddr_un` has 108, of which a path needs one for the NUL after
/// it, and an abstract name one for the NUL before it.
pub const MOST_BYTES: usize = 107;

/// The address of a Unix socket. A name that begins with `@` is abstract, in the notation of the
/// system's tools: it has no file, hence no mode and no owner, and every process in the network
/// namespace may connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UnixAddress {
    /// A path.
    Path(PathBuf),
    /// A name in the abstract namespace, without the `@`.
    Abstract(Box<str>),
}

impl UnixAddress {
    /// Reads a path, or `@` and a name.
    ///
    /// # Errors
    /// [`UnixAddressError`] if the text cannot be the name of a socket.
    pub fn parse(text: &str) -> Result<UnixAddress, UnixAddressError> {
        let name = text.strip_prefix('@');
        let bytes = name.unwrap_or(text).len();
        match (name, text) {
            (Some(""), _) | (None, "") => Err(UnixAddressError::Empty),
            _ if text.contains('\0') => Err(UnixAddressError::Nul),
            _ if bytes > MOST_BYTES => Err(UnixAddressError::TooLong { bytes }),
            (Some(name), _) => Ok(UnixAddress::Abstract(name.into())),
            (None, path) if path.ends_with('/') => Err(UnixAddressError::Directory),
            (None, path) => Ok(UnixAddress::Path(path.into())),
        }
    }

    /// The path, if the address is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            UnixAddress::Path(path) => Some(path),
            UnixAddress::Abstract(_) => None,
        }
    }

    /// The path, for changes.
    pub fn path_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            UnixAddress::Path(path) => Some(path),
            UnixAddress::Abstract(_) => None,
        }
    }

    pub(crate) fn to_kernel(&self) -> io::Result<SocketAddrUnix> {
        Ok(match self {
            UnixAddress::Path(path) => SocketAddrUnix::new(path)?,
            UnixAddress::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        })
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnixAddress::Path(path) => path.display().fmt(f),
            UnixAddress::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// The reason why a text is not the name of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixAddressError {
    /// The text is empty.
    Empty,
    /// The text has a NUL in it.
    Nul,
    /// The text is longer than the kernel has room for.
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// The text is the path of a directory.
    Directory,
}

impl fmt::Display for UnixAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnixAddressError::Empty => {
                f.write_str("behind unix: stands the path of a socket, or @ and an abstract name")
            }
            UnixAddressError::Nul => f.write_str("the name of a Unix socket has no NUL in it"),
            UnixAddressError::TooLong { bytes } => write!(
                f,
                "it is {bytes} bytes long, and the name of a Unix socket has at most {MOST_BYTES} (unix(7))"
            ),
            UnixAddressError::Directory => f.write_str("a socket is a file, and no directory"),
        }
    }
}

impl std::error::Error for UnixAddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_or_abstract() {
        let longest = format!("@{}", "a".repeat(107));
        for text in ["/run/app.sock", "app.sock", "./@app", "@app", "@a/b", &longest] {
            let address = UnixAddress::parse(text).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.path().is_none(), text.starts_with('@'), "{text}");
            assert!(address.to_kernel().is_ok(), "{text}");
        }
        use UnixAddressError::*;
        for (text, expected) in [
            ("", Empty),
            ("@", Empty),
            ("/", Directory),
            ("/run/", Directory),
            ("a\0b", Nul),
            ("@a\0b", Nul),
            (&"a".repeat(108), TooLong { bytes: 108 }),
            (&format!("@{}", "a".repeat(108)), TooLong { bytes: 108 }),
        ] {
            assert_eq!(UnixAddress::parse(text), Err(expected), "{text}");
            assert!(!expected.to_string().is_empty());
        }
    }
}
