//! The source of what a text names: the files of `include`, variables, and secrets in files. The server
//! asks the machine; a text alone has nothing outside of it.

use std::ffi::OsString;
use std::io;
use std::path::Path;

/// A file that `include` names.
#[derive(Debug)]
pub struct IncludedFile {
    /// The file's path, as messages name it.
    pub name: String,
    /// The contents of the file, at most one byte more than the limit.
    pub bytes: io::Result<Vec<u8>>,
    /// Whether the file is a link, which may lead out of its directory.
    pub is_link: bool,
}

/// Gives what texts name. The same question always gets the same answer.
pub trait ConfigSource {
    /// The files that a pattern names, in their order.
    ///
    /// # Errors
    /// When a directory cannot be looked into, or a pattern without a star names nothing.
    fn included(&mut self, pattern: &Path) -> io::Result<Vec<IncludedFile>>;

    /// The value of a variable of the environment, if it is set.
    fn variable(&mut self, name: &str) -> Option<OsString>;

    /// The contents of the file of a secret, at most one byte more than the limit.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn secret(&mut self, file: &Path) -> io::Result<Vec<u8>>;
}

/// A source without files and variables.
#[derive(Clone, Copy, Debug)]
pub struct NoSource;

impl ConfigSource for NoSource {
    fn included(&mut self, _: &Path) -> io::Result<Vec<IncludedFile>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn variable(&mut self, _: &str) -> Option<OsString> {
        None
    }

    fn secret(&mut self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }
}
