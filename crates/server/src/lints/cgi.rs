//! CGI programs: whether they exist here, which user runs them, and whether clients can download them.

use super::LintSubject;
use forebay_config::path::Path as At;
use forebay_config::problem::{Finding, Wrong};
use forebay_config::{Account, CgiConfig, CgiPrograms, Remarks};
use forebay_sys::{privileges, process};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bits of a mode: any of the three execute bits, and write for all.
const EXECUTE: u32 = 0o111;
const ALL_WRITE: u32 = 0o002;

/// A finding about CGI programs.
#[derive(Debug)]
enum CgiFinding {
    /// The programs would be run as root.
    Root,
    /// The user does not exist.
    NoAccount { name: String },
    /// The program or the directory cannot be examined.
    Missing { path: PathBuf, error: io::Error },
    /// The setting names a file instead of a directory.
    NoDirectory,
    /// The setting names a directory, or something else that is not a file.
    NoFile,
    /// No user may execute the program.
    NotExecutable,
    /// Every user may replace the program.
    Open { path: PathBuf },
    /// The programs are also in the root of the site.
    Served { root: PathBuf },
}

impl Finding for CgiFinding {}

impl fmt::Display for CgiFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CgiFinding::Root => f.write_str(
                "the server would have to run it as root, which it does not: name a user of its own in user",
            ),
            CgiFinding::NoAccount { name } => write!(
                f,
                "there is no user {name:?} on this machine; without it the server does not start"
            ),
            CgiFinding::Missing { path, error } => {
                write!(f, "{} cannot be run here: {error}; its requests get 502", path.display())
            }
            CgiFinding::NoDirectory => f.write_str("it is no directory; one program is named by program"),
            CgiFinding::NoFile => f.write_str("it is no regular file; a directory of them is named by directory"),
            CgiFinding::NotExecutable => f.write_str("it is not executable (chmod +x): its requests get 403"),
            CgiFinding::Open { path } => write!(
                f,
                "everybody may write to {}, and so have anything run for clients",
                path.display()
            ),
            CgiFinding::Served { root } => write!(
                f,
                "lies beneath the root {}: under other paths than this route's clients get the text of the programs, and \
                 what is beside them",
                root.display()
            ),
        }
    }
}

/// Finds programs that would be run as root.
pub(super) fn root(of: &LintSubject<'_>, errors: &mut Remarks) {
    let is_root = |name: &Account| {
        let found = privileges::user(name.as_str()).ok().flatten();
        name.as_str() == "0" || found.is_some_and(|user| user.user == 0)
    };
    let process = &of.draft.process;
    for (at, one) in routes(of) {
        let is_so = match one.launched().user.as_ref().or(process.user.as_ref()) {
            Some(name) => is_root(name),
            None => process::user() == 0,
        };
        if is_so {
            errors.push((at.child(one.key()), Wrong::said(CgiFinding::Root)));
        }
    }
}

fn routes<'s>(of: &LintSubject<'s>) -> Vec<(At, &'s CgiConfig)> {
    let sites = of.draft.every_site().into_iter();
    let routes = sites.flat_map(|(at, site)| {
        let numbered = site.cgi.iter().enumerate();
        numbered.map(|(index, one)| (at.child("cgi").item(index), one)).collect::<Vec<_>>()
    });
    routes.collect()
}

/// Finds programs that do not exist or that others may change, and users that do not exist.
pub(super) fn programs(of: &LintSubject<'_>, remarks: &mut Remarks) {
    for (at, one) in routes(of) {
        let route = one.launched();
        if let Some(name) = route.user.as_ref().map(Account::as_str)
            && let Ok(None) = privileges::user(name)
        {
            let finding = CgiFinding::NoAccount { name: name.to_owned() };
            remarks.push((at.child("user"), Wrong::said(finding)));
        }
        let found = wrong_with(&route.programs);
        remarks.extend(found.map(|found| (at.child(one.key()), Wrong::said(found))));
    }
}

fn wrong_with(programs: &CgiPrograms) -> Option<CgiFinding> {
    let path = programs.path();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) => return Some(CgiFinding::Missing { path: path.to_owned(), error }),
    };
    match programs {
        CgiPrograms::Beneath(_) if !found.is_dir() => Some(CgiFinding::NoDirectory),
        CgiPrograms::One(_) if !found.is_file() => Some(CgiFinding::NoFile),
        CgiPrograms::One(_) if found.mode() & EXECUTE == 0 => Some(CgiFinding::NotExecutable),
        _ if found.mode() & ALL_WRITE != 0 => Some(CgiFinding::Open { path: path.to_owned() }),
        _ => None,
    }
}

/// Finds programs that clients can download as files of the site.
pub(super) fn served(of: &LintSubject<'_>, remarks: &mut Remarks) {
    for (at, site) in of.draft.every_site() {
        let Some(root) = site.root.as_deref().and_then(whole) else { continue };
        for (index, one) in site.cgi.iter().enumerate() {
            let launched = one.launched();
            let lies = whole(launched.programs.path());
            // files beneath the route's own path are never sent
            let own = one.path().path().map(|path| root.join(path.trim_matches('/')));
            let is_served = lies.as_deref().is_some_and(|lies| {
                lies.starts_with(&root) && own.as_deref().is_none_or(|own| !lies.starts_with(own))
            });
            if is_served {
                let at = at.child("cgi").item(index).child(one.key());
                remarks.push((at, Wrong::said(CgiFinding::Served { root: root.clone() })));
            }
        }
    }
}

fn whole(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}
