//! What a configuration names outside of its text: the disk and the environment of this process give it, or what was
//! kept of them for the processes of a server.

use forebay_config::IncludePattern;
use forebay_config::read::LONGEST;
use forebay_config::{ConfigSource, IncludedFile};
use forebay_sys::file::open_regular;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;

/// Most threads that read files.
const MOST_THREADS: usize = 4;

/// For fewer files there is no thread.
const LEAST_FILES: usize = 256;

/// The disk, and the environment of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineSource;

impl ConfigSource for MachineSource {
    fn included(&mut self, pattern: &Path) -> io::Result<Vec<IncludedFile>> {
        let file = |path: PathBuf, bytes| {
            let name = path.to_string_lossy().into_owned();
            IncludedFile { name, bytes }
        };
        if !IncludePattern(pattern.to_owned()).has_star() {
            let bytes = read(pattern)?;
            return Ok(vec![file(pattern.to_owned(), Ok(bytes))]);
        }
        let mut found = Vec::new();
        let parts: Vec<&OsStr> = pattern.components().map(|part| part.as_os_str()).collect();
        find(PathBuf::new(), &parts, &mut found)?;
        found.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
        let read = read_all(&found);
        Ok(found.into_iter().zip(read).map(|(path, bytes)| file(path, bytes)).collect())
    }

    fn variable(&mut self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn secret(&mut self, file: &Path) -> io::Result<Vec<u8>> {
        read(file)
    }
}

/// What is in a file: at most one byte more than may be.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    // one read, and one that finds the end
    let mut bytes = Vec::with_capacity(2048);
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same of many files: several are opened at a time, because ten thousand calls to open take as long as it takes
/// to read what is in them.
fn read_all(paths: &[PathBuf]) -> Vec<io::Result<Vec<u8>>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let each = paths.len().div_ceil(threads).max(LEAST_FILES);
    let read_chunk = |chunk: &[PathBuf]| chunk.iter().map(|path| read(path)).collect::<Vec<_>>();
    if each >= paths.len() {
        return read_chunk(paths);
    }
    thread::scope(|scope| {
        let spawn = |chunk| {
            let builder = thread::Builder::new().name("include".to_owned());
            (chunk, builder.spawn_scoped(scope, move || read_chunk(chunk)))
        };
        let begun: Vec<_> = paths.chunks(each).map(spawn).collect();
        let read = begun.into_iter().flat_map(|(chunk, thread)| {
            // without a thread it is done here
            let read = thread.ok().and_then(|thread| thread.join().ok());
            read.unwrap_or_else(|| read_chunk(chunk))
        });
        read.collect()
    })
}

/// The files below `directory` that the parts of a pattern fit. Directories are none.
fn find(directory: PathBuf, parts: &[&OsStr], found: &mut Vec<PathBuf>) -> io::Result<()> {
    let Some((part, rest)) = parts.split_first() else { return Ok(()) };
    if !part.as_bytes().contains(&b'*') {
        let path = directory.join(part);
        return match rest {
            [] if path.is_file() => {
                found.push(path);
                Ok(())
            }
            [] => Ok(()),
            rest => find(path, rest, found),
        };
    }
    let looked_at = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
    let entries = match fs::read_dir(looked_at) {
        Ok(entries) => entries,
        // what is not there has no files
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if !IncludePattern::fits(part, &name) {
            continue;
        }
        let path = directory.join(&name);
        let kind = entry.file_type()?;
        let is_directory = if kind.is_symlink() { path.is_dir() } else { kind.is_dir() };
        match rest {
            // a link that leads nowhere is an error when it is read
            [] if !is_directory => found.push(path),
            rest if !rest.is_empty() && is_directory => find(path, rest, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// All that a configuration was read from, for processes that are to read it as one of them did.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ConfigBundle {
    /// The text of the main file.
    pub text: String,
    /// The files that each pattern named.
    included: BTreeMap<PathBuf, Vec<(String, String)>>,
    variables: BTreeMap<String, String>,
    secrets: BTreeMap<PathBuf, String>,
}

impl ConfigSource for ConfigBundle {
    fn included(&mut self, pattern: &Path) -> io::Result<Vec<IncludedFile>> {
        let files = self.included.get(pattern).ok_or(ErrorKind::NotFound)?;
        let file = |(name, text): &(String, String)| IncludedFile {
            name: name.clone(),
            bytes: Ok(text.clone().into_bytes()),
        };
        Ok(files.iter().map(file).collect())
    }

    fn variable(&mut self, name: &str) -> Option<OsString> {
        self.variables.get(name).map(OsString::from)
    }

    fn secret(&mut self, file: &Path) -> io::Result<Vec<u8>> {
        let secret = self.secrets.get(file).ok_or(ErrorKind::NotFound)?;
        Ok(secret.clone().into_bytes())
    }
}

/// The machine, and everything that it gives is kept. What is not UTF-8 is refused by who reads it, and not kept.
pub(crate) struct RecordedSource(pub(crate) Rc<RefCell<ConfigBundle>>);

impl ConfigSource for RecordedSource {
    fn included(&mut self, pattern: &Path) -> io::Result<Vec<IncludedFile>> {
        let files = MachineSource.included(pattern)?;
        let kept = files.iter().filter_map(|IncludedFile { name, bytes }| {
            Some((name.clone(), String::from_utf8(bytes.as_ref().ok()?.clone()).ok()?))
        });
        self.0.borrow_mut().included.insert(pattern.to_owned(), kept.collect());
        Ok(files)
    }

    fn variable(&mut self, name: &str) -> Option<OsString> {
        let value = MachineSource.variable(name)?;
        let text = value.to_str()?.to_owned();
        self.0.borrow_mut().variables.insert(name.to_owned(), text);
        Some(value)
    }

    fn secret(&mut self, file: &Path) -> io::Result<Vec<u8>> {
        let bytes = MachineSource.secret(file)?;
        if let Ok(text) = String::from_utf8(bytes.clone()) {
            self.0.borrow_mut().secrets.insert(file.to_owned(), text);
        }
        Ok(bytes)
    }
}
