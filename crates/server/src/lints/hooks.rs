//! Commands in the configuration: whether they can be run here, and whether other users could replace them.

use super::LintSubject;
use forebay_config::Remarks;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_sys::process;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bits of a mode: any of the three execute bits, and write for all.
const EXECUTE: u32 = 0o111;
const ALL_WRITE: u32 = 0o002;
/// In a sticky directory that all may write to, a user may replace only own files.
const STICKY: u32 = 0o1000;

/// A finding about a command.
#[derive(Debug)]
enum CommandFinding {
    /// The command cannot be examined.
    Missing(io::Error),
    /// The path names a directory, or something else that is not a file.
    NoFile,
    /// No user may execute the command.
    NotExecutable,
    /// Every user may change the command.
    Open {
        /// The file, or its directory.
        path: PathBuf,
    },
    /// The command would be run as root. A server whose file is checked by root is
    /// assumed to be started by root.
    Root,
}

impl Finding for CommandFinding {}

impl fmt::Display for CommandFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandFinding::Missing(error) => write!(f, "cannot be run here: {error}"),
            CommandFinding::NoFile => f.write_str("cannot be run: it is no regular file"),
            CommandFinding::NotExecutable => {
                f.write_str("cannot be run: it is not executable (chmod +x)")
            }
            CommandFinding::Open { path } => write!(
                f,
                "everybody may write to {}, and so have anything run in its place",
                path.display()
            ),
            CommandFinding::Root => f.write_str(
                "started as root, the server would have to run it as root, which it does not: name a user in \
                 acme.dns_user",
            ),
        }
    }
}

/// Finds a command that would be run as root.
pub(super) fn root(of: &LintSubject<'_>, errors: &mut Remarks) {
    let process = &of.draft.process;
    let is_root = process.user.is_none() && process::user() == 0;
    if is_root && process.acme.dns_user.is_none() && !process.acme.dns_hook.is_empty() {
        errors.push((At::default().child("acme.dns_hook"), Wrong::said(CommandFinding::Root)));
    }
}

/// Finds a command that cannot be run, or that others may change.
pub(super) fn commands(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let hook = of.draft.process.acme.hook();
    let Some(path) = hook.first().map(Path::new) else { return };
    let found = match fs::metadata(path) {
        Err(error) => Some(CommandFinding::Missing(error)),
        Ok(found) if !found.is_file() => Some(CommandFinding::NoFile),
        Ok(found) if found.mode() & EXECUTE == 0 => Some(CommandFinding::NotExecutable),
        Ok(found) => {
            let is_open = found.mode() & ALL_WRITE != 0;
            let file = is_open.then(|| path.to_owned());
            let directory = path.parent().filter(|parent| {
                let mode = fs::metadata(parent).map_or(0, |found| found.mode());
                mode & ALL_WRITE != 0 && mode & STICKY == 0
            });
            let open = file.or_else(|| directory.map(Path::to_owned));
            open.map(|path| CommandFinding::Open { path })
        }
    };
    let at = At::default().child("acme.dns_hook").item(0);
    remarks.extend(found.map(|found| (at, Wrong::said(found))));
}
