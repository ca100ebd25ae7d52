//! Files and variables that a configuration names outside of its text. They come from the disk and
//! the environment of this process, or from what was kept of them for the processes of a server.

use forebay_config::IncludePattern;
use forebay_config::read::LONGEST;
use forebay_config::{ConfigSource, IncludedFile};
use forebay_sys::file::{open_listed, open_regular};
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

/// The largest number of threads that read files.
const MOST_THREADS: usize = 4;

/// The size of the buffer for one read; most files of sites are smaller.
const BUFFER_BYTES: usize = 16 * 1024;

/// The smallest number of files for which a thread is started.
const LEAST_FILES: usize = 256;

/// The source that reads the disk and the environment of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineSource;

impl ConfigSource for MachineSource {
    fn included(&mut self, pattern: &Path) -> io::Result<Vec<IncludedFile>> {
        let file = |ListedFile { path, is_plain }: ListedFile, bytes| {
            let name = path.to_string_lossy().into_owned();
            IncludedFile { name, bytes, is_link: !is_plain }
        };
        if !IncludePattern(pattern.to_owned()).has_star() {
            let bytes = read(pattern)?;
            let is_plain = !pattern.is_symlink();
            return Ok(vec![file(ListedFile { path: pattern.to_owned(), is_plain }, Ok(bytes))]);
        }
        let mut found = Vec::new();
        let parts: Vec<&OsStr> = pattern.components().map(|part| part.as_os_str()).collect();
        find(PathBuf::new(), &parts, &mut found)?;
        let order = |a: &ListedFile, b: &ListedFile| {
            a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes())
        };
        found.sort_unstable_by(order);
        let read = read_all(&found);
        Ok(found.into_iter().zip(read).map(|(found, bytes)| file(found, bytes)).collect())
    }

    fn variable(&mut self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn secret(&mut self, file: &Path) -> io::Result<Vec<u8>> {
        read(file)
    }
}

/// A file that matches a pattern.
struct ListedFile {
    path: PathBuf,
    /// Whether the directory lists the file as a regular file, and not as a link or something else.
    is_plain: bool,
}

/// Reads a file, at most one byte more than is allowed.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a found file as [`read`] does, with as few system calls as possible: one to open it, one
/// to read it, and one to close it, if it fits into the buffer.
fn read_found(file: &ListedFile, buffer: &mut [u8]) -> io::Result<Vec<u8>> {
    if !file.is_plain {
        return read(&file.path);
    }
    let mut opened = open_listed(&file.path)?;
    let length = opened.read(buffer)?;
    let mut bytes = buffer[..length].to_vec();
    // a short read of a regular file reaches its end
    if length == buffer.len() {
        opened.take(LONGEST + 1 - length as u64).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Reads many found files, several at a time, because ten thousand open calls take as long as
/// reading the contents.
fn read_all(files: &[ListedFile]) -> Vec<io::Result<Vec<u8>>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let each = files.len().div_ceil(threads).max(LEAST_FILES);
    let read_chunk = |chunk: &[ListedFile]| {
        let mut buffer = [0; BUFFER_BYTES];
        chunk.iter().map(|file| read_found(file, &mut buffer)).collect::<Vec<_>>()
    };
    if each >= files.len() {
        return read_chunk(files);
    }
    thread::scope(|scope| {
        let spawn = |chunk| {
            let builder = thread::Builder::new().name("include".to_owned());
            (chunk, builder.spawn_scoped(scope, move || read_chunk(chunk)))
        };
        let begun: Vec<_> = files.chunks(each).map(spawn).collect();
        let read = begun.into_iter().flat_map(|(chunk, thread)| {
            // without a thread the chunk is read here
            let read = thread.ok().and_then(|thread| thread.join().ok());
            read.unwrap_or_else(|| read_chunk(chunk))
        });
        read.collect()
    })
}

/// Adds the files below `directory` that match the parts of a pattern. Directories do not count as
/// files.
fn find(directory: PathBuf, parts: &[&OsStr], found: &mut Vec<ListedFile>) -> io::Result<()> {
    let Some((part, rest)) = parts.split_first() else { return Ok(()) };
    if !part.as_bytes().contains(&b'*') {
        let path = directory.join(part);
        return match rest {
            [] if path.is_file() => {
                let is_plain = !path.is_symlink();
                found.push(ListedFile { path, is_plain });
                Ok(())
            }
            [] => Ok(()),
            rest => find(path, rest, found),
        };
    }
    let looked_at = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
    let entries = match fs::read_dir(looked_at) {
        Ok(entries) => entries,
        // a missing directory has no files
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
            [] if !is_directory => found.push(ListedFile { path, is_plain: kind.is_file() }),
            rest if !rest.is_empty() && is_directory => find(path, rest, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Everything that a configuration was read from, for processes that must read it as the first one
/// did.
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
            is_link: false,
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

/// The machine as a source that also keeps everything it reads. Text that is not UTF-8 is not kept;
/// the reader refuses it.
pub(crate) struct RecordedSource(pub(crate) Rc<RefCell<ConfigBundle>>);

impl ConfigSource for RecordedSource {
    fn included(&mut self, pattern: &Path) -> io::Result<Vec<IncludedFile>> {
        let files = MachineSource.included(pattern)?;
        let kept = files.iter().filter_map(|IncludedFile { name, bytes, .. }| {
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
