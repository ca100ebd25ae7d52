//! The files: one directory for each authority, which several servers may share.
//!
//! | file | what it holds |
//! |---|---|
//! | `account.json` | the account and its key |
//! | `HOST-NUMBER.pem` | a chain of certificates and its key; the number stands for all hosts it is for |
//! | `HOST-NUMBER.order` | an order under way and its key, so that a crash does not lose it |
//! | `HOST-NUMBER.records` | records of the name service that were made for it and must be removed |
//! | `HOST-NUMBER.failed` | how often that has failed, and until when nothing is tried |
//! | `lock` | the process that has it orders; the kernel takes it away from a process that ends |
//!
//! Each is written beside its place and put there by a rename: it is there as a whole, or as it was.

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
    /// Of these hosts, of which there is one at least; in small letters.
    pub fn new<S: Into<String>>(hosts: impl IntoIterator<Item = S>) -> Names {
        Names(hosts.into_iter().map(|host| host.into().to_ascii_lowercase()).collect())
    }

    /// All of them.
    pub fn all(&self) -> &[String] {
        &self.0
    }

    /// What its files are called: the same for the same hosts in another order.
    fn stem(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        format!("{}-{:08x}", self.first(), crc32fast::hash(sorted.join("\n").as_bytes()))
    }

    /// The first host; a star is no good character for the name of a file.
    fn first(&self) -> String {
        self.0.first().map_or(String::new(), |host| host.replace('*', "_"))
    }
}

/// The ending of files with records of the name service.
pub(crate) const RECORDS: &str = ".records";

/// The directory of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage(PathBuf);

/// While it is there, no other server orders.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is closed when it is dropped")] File);

impl Storage {
    /// Below `base`, for the authority with this directory.
    pub fn new(base: &Path, url: &str) -> Storage {
        let name = url.split_once("://").map_or(url, |(_, name)| name);
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        Storage(base.join(name.trim_matches(['-', '.'])))
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// The file of the certificate for these hosts.
    pub fn certificate(&self, names: &Names) -> PathBuf {
        self.0.join(names.stem() + ".pem")
    }

    /// Files of certificates that were for the same first host and other ones besides, the newest first:
    /// until there is the one that is wanted, one of these is better than none.
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

    /// The files with this ending.
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

    /// Makes it, for its user alone, if it is not there.
    ///
    /// # Errors
    /// What is in the way.
    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// Locks it; `None` if another process has.
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.0.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(NO_WAIT).open(path)?;
        Ok(try_lock(&file)?.then_some(Lock(file)))
    }
}

/// Neither a FIFO nor a device that somebody has put there keeps who opens it waiting (`O_NONBLOCK`).
const NO_WAIT: i32 = 0o4000;

/// What a file holds; `None` if there is none.
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

/// Puts a file in its place as a whole, for its user alone. Only a process that has the
/// [lock](Storage::lock) does.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    // one that was left by a crash has no reader
    remove(new.as_ref())?;
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes).and_then(|()| file.sync_all())?;
    fs::rename(&new, path)?;
    // the rename has happened; whether the disk knows of it can only be tried
    let _ = path.parent().map(File::open).and_then(Result::ok).map(|parent| parent.sync_all());
    Ok(())
}

/// Removes a file, if it is there.
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
        // what a crash has left
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
