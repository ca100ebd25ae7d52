//! The program that a path means: the first file on the way beneath the directory of the route.

use super::route::ReadyRoute;
use forebay_config::CgiPrograms;
use forebay_sys::cgi::{self, FoundProgram, ProgramFile};
use forebay_sys::file::{self, OpenFailure};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest number of parts of a path that are looked at.
const MOST_PARTS: usize = 32;

/// A program and how it was found.
#[derive(Debug)]
pub(super) struct MeantProgram {
    pub(super) program: ProgramFile,
    /// The path at which it was found.
    pub(super) file: PathBuf,
    /// How much of the path names the program; the rest is for the program.
    pub(super) used: usize,
}

/// The reason why no program is run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoProgram {
    /// There is no program at this path.
    Nowhere,
    /// The program exists but must not be run, for this reason.
    Forbidden(String),
    /// The search failed, for this reason.
    Failed(String),
}

impl NoProgram {
    /// The error for `shown`, which cannot be opened. This process searches as the user
    /// who would run the program.
    fn of(shown: &Path, error: &io::Error) -> NoProgram {
        let why = format!("cannot open {}: {error}", shown.display());
        match error.kind() {
            io::ErrorKind::PermissionDenied => NoProgram::Forbidden(format!(
                "{why}: the user who runs it may not enter a directory on the way"
            )),
            _ => NoProgram::Failed(why),
        }
    }
}

/// The program that a path means; `path` is the part after the route's path.
pub(super) fn find(route: &ReadyRoute, path: &[u8]) -> Result<MeantProgram, NoProgram> {
    match &route.route.programs {
        CgiPrograms::Beneath(directory) => beneath(directory, path),
        CgiPrograms::One(program) => one(program),
    }
}

/// The one program that the operator has named, whatever links lead to it.
fn one(program: &Path) -> Result<MeantProgram, NoProgram> {
    let shown = program.display();
    let failed = |error: io::Error| NoProgram::of(program, &error);
    let whole = fs::canonicalize(program).map_err(failed)?;
    let (Some(directory), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(NoProgram::Forbidden(format!("{shown}: it is a directory")));
    };
    let directory = file::open_directory(directory).map_err(failed)?;
    match cgi::find(directory.as_fd(), name.as_bytes()).map_err(failed)? {
        FoundProgram::File(found) => {
            Ok(MeantProgram { program: found, file: told(program), used: 0 })
        }
        FoundProgram::Directory => Err(NoProgram::Forbidden(format!("{shown}: it is a directory"))),
        FoundProgram::Forbidden(why) => Err(NoProgram::Forbidden(format!("{shown}: {why}"))),
    }
}

/// The absolute path of a program, for the program itself, which runs in another directory than this process.
fn told(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn beneath(directory: &Path, path: &[u8]) -> Result<MeantProgram, NoProgram> {
    let root = file::open_directory(directory).map_err(|error| NoProgram::of(directory, &error))?;
    let Some(names) = path.strip_prefix(b"/") else { return Err(NoProgram::Nowhere) };
    let mut end = 0;
    for part in names.split(|byte| *byte == b'/').take(MOST_PARTS) {
        // hidden files are not served, and an empty name would be a detour
        if part.is_empty() || part.starts_with(b".") || part.contains(&0) {
            return Err(NoProgram::Nowhere);
        }
        end += usize::from(end > 0) + part.len();
        let name = &names[..end];
        let whole = || directory.join(OsStr::from_bytes(name));
        match cgi::find(root.as_fd(), name) {
            Ok(FoundProgram::Directory) => {}
            Ok(FoundProgram::File(program)) => {
                return Ok(MeantProgram { program, file: told(&whole()), used: end + 1 });
            }
            Ok(FoundProgram::Forbidden(why)) => {
                return Err(NoProgram::Forbidden(format!("{}: {why}", whole().display())));
            }
            Err(error) => {
                return Err(match file::failure(&error) {
                    OpenFailure::Nowhere => NoProgram::Nowhere,
                    _ => NoProgram::of(&whole(), &error),
                });
            }
        }
    }
    Err(NoProgram::Nowhere)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_first_file_on_the_way_is_run() {
        let directory = std::env::temp_dir().join(format!("cgi-script-{}", std::process::id()));
        fs::create_dir_all(directory.join("more/deep")).unwrap();
        for (name, mode) in
            [("a.cgi", 0o755), ("more/b.cgi", 0o755), ("no.cgi", 0o644), (".hidden", 0o755)]
        {
            let path = directory.join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("/bin/sh", directory.join("sh")).unwrap();
        symlink("..", directory.join("more/up")).unwrap();
        for (path, expected) in [
            ("/a.cgi", Some("")),
            ("/a.cgi/", Some("/")),
            ("/a.cgi/x/../y", Some("/x/../y")),
            ("/more/b.cgi/c", Some("/c")),
            ("/more/up/a.cgi", Some("")),
            ("", None),
            ("/", None),
            ("a.cgi", None),
            ("/more", None),
            ("/more/deep/", None),
            ("/more//b.cgi", None),
            ("/./a.cgi", None),
            ("/more/../a.cgi", None),
            ("/../../bin/sh", None),
            ("/.hidden", None),
            ("/sh", None),
            ("/none", None),
            ("/a.cgi\0/x", None),
        ] {
            let found = beneath(&directory, path.as_bytes());
            let rest = found.as_ref().ok().map(|found| &path[found.used..]);
            assert_eq!(rest, expected, "{path:?}: {found:?}");
            assert!(expected.is_some() || found.unwrap_err() == NoProgram::Nowhere, "{path:?}");
        }
        assert!(matches!(beneath(&directory, b"/no.cgi"), Err(NoProgram::Forbidden(_))));
        assert!(matches!(one(&directory.join("no.cgi")), Err(NoProgram::Forbidden(_))));
        assert!(matches!(one(&directory), Err(NoProgram::Forbidden(_))));
        assert!(matches!(one(&directory.join("none")), Err(NoProgram::Failed(_))));
        assert_eq!(one(&directory.join("sh")).unwrap().file, directory.join("sh"));
        fs::remove_dir_all(directory).unwrap();
    }
}
