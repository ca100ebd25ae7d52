//! Messages of static content to the operator: notices, and errors for which it cannot be served.

use crate::access::auth::UsersError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Something the operator should know. Each is given once to the callback of
/// [`Content::open`](crate::Content::open), except that a root may come and go repeatedly.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Directories cannot be watched at all; answers are checked at the interval.
    CannotWatch {
        /// The kernel's error.
        error: io::Error,
    },
    /// A directory cannot be watched; what is below it is checked at the interval.
    CannotWatchDirectory {
        /// The directory, relative to the root.
        directory: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The number of watched directories has reached the settings' bound; the others are checked at
    /// the interval.
    TooManyDirectories {
        /// The bound.
        watched_directories: usize,
    },
    /// A file system does not report changes; what is on it is checked at the interval.
    SilentFileSystem {
        /// The directory where the file system begins, relative to the root.
        directory: PathBuf,
    },
    /// More changed at once than the kernel could report. Everything cached was dropped; for some
    /// seconds answers are checked at the interval.
    EventsLost,
    /// The root is gone or cannot be reached. Its last directory is served until it is back.
    RootMissing {
        /// The root as configured.
        root: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The root's path leads to another directory now, which is served from now on.
    RootChanged {
        /// The root as configured.
        root: PathBuf,
    },
    /// A file of users has an error. Given each time the file changes.
    Users {
        /// The file as configured.
        file: PathBuf,
        /// The error.
        error: UsersError,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::CannotWatch { error } => write!(
                f,
                "cannot watch for changed files ({error}); cached answers are checked at the \
                 interval instead. Raise fs.inotify.max_user_instances"
            ),
            Notice::CannotWatchDirectory { directory, error } => write!(
                f,
                "cannot watch {} below the root ({error}); cached answers from there are checked \
                 at the interval. If watches ran out, raise fs.inotify.max_user_watches",
                directory.display()
            ),
            Notice::TooManyDirectories { watched_directories } => write!(
                f,
                "{watched_directories} directories are watched, which is the bound; cached answers \
                 from others are checked at the interval. Raise watched_directories"
            ),
            Notice::SilentFileSystem { directory } => write!(
                f,
                "the file system at {} below the root does not tell of changes; cached answers \
                 from there are checked at the interval",
                directory.display()
            ),
            Notice::EventsLost => write!(
                f,
                "more files changed at once than the kernel could tell; the cache was emptied. \
                 Raise fs.inotify.max_queued_events if this comes often"
            ),
            Notice::RootMissing { root, error } => {
                write!(f, "the root {} cannot be reached any more: {error}", root.display())
            }
            Notice::RootChanged { root } => {
                write!(f, "the root {} is another directory now", root.display())
            }
            Notice::Users { file, error: UsersError::Unreadable(error) } => write!(
                f,
                "the file of users {file:?} cannot be read ({error}); nobody is let in until it can"
            ),
            Notice::Users { file, error } => {
                write!(f, "the file of users {file:?}: {error}; this user is not let in")
            }
        }
    }
}

/// The reason why content cannot be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The root is not a directory that can be entered.
    Root {
        /// The root as configured.
        root: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel does not resolve paths beneath a directory: it is older than Linux 5.6, or a
    /// filter forbids openat2(2).
    Beneath {
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel has no random numbers, without which passwords cannot be remembered safely.
    Random {
        /// The kernel's error.
        error: io::Error,
    },
    /// The thread that waits for changes could not be started.
    Thread {
        /// The kernel's error.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Root { root, error } => {
                write!(f, "cannot serve the directory {}: {error}", root.display())
            }
            OpenError::Beneath { error } => write!(
                f,
                "cannot resolve paths beneath the root ({error}); openat2(2) is needed, which Linux \
                 has since 5.6 and some sandboxes forbid"
            ),
            OpenError::Random { error } => {
                write!(f, "the kernel has no random numbers: {error}")
            }
            OpenError::Thread { error } => {
                write!(f, "cannot start the thread that watches for changed files: {error}")
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Root { error, .. }
            | OpenError::Beneath { error }
            | OpenError::Random { error }
            | OpenError::Thread { error } => Some(error),
        }
    }
}
