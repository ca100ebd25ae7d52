//! The reasons why a run stops.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Everything that ends a run. Bad measurements do not: they are flagged in their row.
#[derive(Debug)]
pub enum Error {
    /// Programs that are missing.
    NotInstalled(Vec<MissingProgram>),
    /// Fewer cores than the comparison needs, or a core this process may not use.
    Core(usize),
    /// A file or a process: the action that failed, and its path.
    Io {
        /// The action that failed.
        what: &'static str,
        /// The file, folder or program.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A server ended, or did not answer in time.
    NotReady {
        /// The server's name.
        server: String,
        /// The last lines it wrote.
        said: String,
    },
    /// A server answered something else than the case expects.
    WrongAnswer {
        /// The server's name.
        server: String,
        /// The case.
        case: &'static str,
        /// The error.
        what: String,
    },
    /// The client failed or took too long.
    Client(String),
    /// A signal asked to stop.
    Interrupted,
}

/// A program that is missing.
#[derive(Clone, Copy, Debug)]
pub struct MissingProgram {
    /// The program.
    pub program: &'static str,
    /// The Debian package that has it; empty if it is built here.
    pub package: &'static str,
}

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingProgram { program, package } = self;
        match *package {
            "" => write!(f, "{program} is missing: build it with cargo build --release"),
            _ => write!(f, "{program} is missing: install the Debian package {package}"),
        }
    }
}

impl Error {
    /// For `map_err`: notes the action that failed, and `path`.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { what, path, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotInstalled(missing) => {
                let lines: Vec<String> = missing.iter().map(MissingProgram::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
            Error::Core(core) => {
                write!(
                    f,
                    "core {core} cannot be used: two free cores are needed, one for the servers, one for the client"
                )
            }
            Error::Io { what, path, source } => write!(f, "{what} {}: {source}", path.display()),
            Error::NotReady { server, said } => {
                write!(f, "{server} did not come up; it said:\n{said}")
            }
            Error::WrongAnswer { server, case, what } => {
                write!(f, "{server} in case {case}: {what}")
            }
            Error::Client(what) => write!(f, "the client: {what}"),
            Error::Interrupted => write!(f, "interrupted; the rows measured so far are kept"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
