//! The files of certificates and orders: one directory for each authority, which several servers may share.
//!
//! | file | what it holds |
//! |---|---|
//! | `account.json` | the account and its key |
//! | `HOST-NUMBER.pem` | a chain of certificates and its key; the number stands for all its hosts |
//! | `HOST-NUMBER.order` | an order under way and its key, so that a crash does not lose it |
//! | `HOST-NUMBER.records` | DNS records that were made for it and must be removed |
//! | `HOST-NUMBER.failed` | how often it has failed, and until when nothing is tried |
//! | `lock` | only the process that holds the lock orders; the kernel releases it when the process ends |
//!
//! Each file is written under another name and renamed into place, so it is always whole: the new one or the
//! old one.

use forebay_sys::file::try_lock;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The hosts of one certificate, the most important one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// The names of these hosts, at least one, in small letters.
    pub fn new<S: Into<String>>(hosts: impl IntoIterator<Item = S>) -> Names {
        Names(hosts.into_iter().map(|host| host.into().to_ascii_lowercase()).collect())
    }

    /// All names.
    pub fn all(&self) -> &[String] {
        &self.0
    }

    /// The stem of the file names: the same for the same hosts in another order.
    fn stem(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        format!("{}-{:08x}", self.first(), crc32fast::hash(sorted.join("\n").as_bytes()))
    }

    /// The first host, with another character for the star, which is awkward in file names.
    fn first(&self) -> String {
        self.0.first().map_or(String::new(), |host| host.replace('*', "_"))
    }
}

/// The extension of files with DNS records.
pub(crate) const RECORDS: &str = ".records";

/// The directory of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage(PathBuf);

/// The lock: while it is held, no other server orders.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is closed when it is dropped")] File);

impl Storage {
    /// The directory below `base` for the authority with this URL.
    pub fn new(base: &Path, url: &str) -> Storage {
        let name = url.split_once("://").map_or(url, |(_, name)| name);
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        Storage(base.join(name.trim_matches(['-', '.'])))
    }

    /// The path of the directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// The file of the certificate for these hosts.
    pub fn certificate(&self, names: &Names) -> PathBuf {
        self.0.join(names.stem() + ".pem")
    }

    /// Files of certificates for the same first host and other hosts besides, the newest first: until the
    /// wanted certificate is there, one of these is better than none.
    pub fn others(&self, names: &Names) -> Vec<PathBuf> {
        let is_one = |name: &str| {
            let number = name.strip_prefix(&names.first()).and_then(|rest| rest.strip_prefix('-'));
            let number = number.and_then(|rest| rest.strip_suffix(".pem"));
            number
                .is_some_and(|text| text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit()))
        };
        let entries = fs::read_dir(&self.0).into_iter().flatten().filter_map(Result::ok);
        let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_one));
        let changed = |entry: &fs::DirEntry| entry.metadata().and_then(|found| found.modified());
        let mut found: Vec<(SystemTime, PathBuf)> =
            named.filter_map(|entry| Some((changed(&entry).ok()?, entry.path()))).collect();
        found.sort_unstable();
        found.into_iter().rev().map(|(_, path)| path).collect()
    }

    pub(crate) fn account(&self) -> PathBuf {
        self.0.join("account.json")
    }

    pub(crate) fn order(&self, names: &Names) -> PathBuf {
        self.0.join(names.stem() + ".order")
    }

    pub(crate) fn records(&self, names: &Names) -> PathBuf {
        self.0.join(names.stem() + RECORDS)
    }

    /// The files with this extension.
    pub(crate) fn with_ending(&self, ending: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().filter_map(Result::ok);
        let paths = entries.map(|entry| entry.path());
        let mut found: Vec<PathBuf> = paths
            .filter(|path| path.as_os_str().as_encoded_bytes().ends_with(ending.as_bytes()))
            .collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn failed(&self, names: &Names) -> PathBuf {
        self.0.join(names.stem() + ".failed")
    }

    /// Makes the directory, accessible to its user alone, if it does not exist.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// Locks the directory; `None` if another process holds the lock.
    ///
    /// # Errors
    /// The error of the file system.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.0.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(NO_WAIT).open(path)?;
        Ok(try_lock(&file)?.then_some(Lock(file)))
    }
}

/// `O_NONBLOCK`, so that opening a FIFO or a device in the place of a file does not block.
const NO_WAIT: i32 = 0o4000;

/// The content of a file; `None` if there is none.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let read = || {
        let mut file = OpenOptions::new().read(true).custom_flags(NO_WAIT).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file atomically, readable by its user alone. Only the process with the [lock](Storage::lock) may
/// do so.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // a new file that a crash has left is not used by any process
    remove(new.as_ref())?;
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes).and_then(|()| file.sync_all())?;
    fs::rename(&new, path)?;
    // the rename has happened; a failed sync of the directory cannot be helped
    let _ = path.parent().map(File::open).and_then(Result::ok).map(|parent| parent.sync_all());
    Ok(())
}

/// Removes a file, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn storage(name: &str) -> (PathBuf, Storage) {
        let base = std::env::temp_dir().join(format!("forebay-acme-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let storage = Storage::new(&base, "https://acme.example:14000/dir?x");
        storage.make().unwrap();
        (base, storage)
    }

    #[test]
    fn each_authority_has_a_directory() {
        let name = |url: &str| Storage::new("/a".as_ref(), url).0;
        assert_eq!(name("https://acme.example:14000/dir"), Path::new("/a/acme.example-14000-dir"));
        assert_eq!(name("https://../x/.."), Path::new("/a/x"));
        assert_eq!(name("https://[::1]/d"), Path::new("/a/--1--d").with_file_name("1--d"));
    }

    #[test]
    fn the_same_hosts_have_the_same_file() {
        let storage = Storage::new("/a".as_ref(), "https://b/c");
        let of = |hosts: &[&str]| storage.certificate(&Names::new(hosts.iter().copied()));
        assert_eq!(of(&["a.example", "b.example", "c"]), of(&["A.example", "c", "b.example"]));
        assert_ne!(of(&["a.example", "b.example"]), of(&["a.example"]));
        assert_ne!(of(&["a.example", "b.example"]), of(&["b.example", "a.example"]));
    }

    #[test]
    fn a_file_is_there_as_a_whole_and_for_nobody_else() {
        let (base, storage) = storage("write");
        let path = storage.account();
        assert_eq!(read(&path).unwrap(), None);
        // the rest of a crash
        fs::write(path.with_extension("json.new"), "half of something longer").unwrap();
        write(&path, b"whole").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"whole");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&storage.0)), (0o600, 0o700));
        assert!(!path.with_extension("json.new").exists());
        remove(&path).unwrap();
        remove(&path).unwrap();
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn one_at_a_time_orders() {
        let (base, storage) = storage("lock");
        let first = storage.lock().unwrap();
        assert!(first.is_some() && storage.lock().unwrap().is_none());
        drop(first);
        assert!(storage.lock().unwrap().is_some());
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn one_for_other_hosts_stands_in() {
        let (base, storage) = storage("others");
        let before = storage.certificate(&Names::new(["a.example"]));
        for file in [&before, &storage.certificate(&Names::new(["a.example-b", "a.example"]))] {
            fs::write(file, "").unwrap();
        }
        for name in ["a.example-x.pem", "a.example-00000000.order", "account.json"] {
            fs::write(storage.0.join(name), "").unwrap();
        }
        assert_eq!(storage.others(&Names::new(["a.example", "b.example"])), [before]);
        fs::remove_dir_all(base).unwrap();
    }
}
