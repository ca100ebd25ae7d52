//! Directories to serve, tmpfs mounts, and files whose content tells its version.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, io, process};

/// A directory for this test alone, removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[expect(clippy::new_without_default, reason = "a default should not touch the disk")]
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("forebay-faults-{}-{number}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of `name` in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into the directory, and makes the directories above.
    ///
    /// # Panics
    /// If that fails.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(path.parent().expect("a file in a directory")).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Makes every file an hour old: the tag of a new file is weak, and becomes strong soon.
    ///
    /// # Panics
    /// If the kernel says no.
    pub fn age(&self) {
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        let mut directories = vec![self.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => directories.push(path),
                    false => fs::File::open(path).unwrap().set_modified(then).unwrap(),
                }
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A small file system in memory. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts one of `size_kib` on the existing directory `at`.
    ///
    /// # Errors
    /// Without the right to mount.
    pub fn mount(at: &Path, size_kib: u64) -> io::Result<Tmpfs> {
        let data = CString::new(format!("size={size_kib}k,mode=0777")).expect("no NUL in it");
        mount(
            "forebay-test",
            at,
            "tmpfs",
            MountFlags::NODEV | MountFlags::NOSUID,
            data.as_c_str(),
        )?;
        Ok(Tmpfs(at.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Detached: it goes when the last file in it is closed.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Makes the kernel drop the pages of a file from memory.
///
/// # Panics
/// If the file is not there.
pub fn forget(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_data().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// The bytes of one block of a [`versioned`] file. Blocks do not straddle pages.
pub const BLOCK_BYTES: usize = 64;
/// The place of the version in a block, in decimal digits.
const VERSION: std::ops::Range<usize> = 8..24;

/// Bytes that count from 0 to 250 again and again, so that a lost or moved piece shows.
pub fn counting(len: usize) -> Vec<u8> {
    let mut bytes = (0..251).collect::<Vec<u8>>().repeat(len.div_ceil(251));
    bytes.truncate(len);
    bytes
}

/// A file of `blocks` blocks, each with the file's version and its own place.
pub fn versioned(version: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = unversioned(blocks);
    let digits = format!("{version:016}");
    for block in bytes.chunks_exact_mut(BLOCK_BYTES) {
        block[VERSION].copy_from_slice(digits.as_bytes());
    }
    bytes
}

/// A file with version 0. It is made once: the tests need it thousands of times, unoptimised.
fn unversioned(blocks: usize) -> Vec<u8> {
    static MADE: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    for place in made.len() / BLOCK_BYTES..blocks {
        let text = format!("version {:016} block {place:016} {:.<16}\n", 0, "");
        made.extend_from_slice(text.as_bytes());
    }
    made[..blocks * BLOCK_BYTES].to_vec()
}

/// The versions in the blocks of `body`, in the order in which they first appear.
///
/// # Errors
/// The first block that is not whole, not at its place, or holds anything but a version.
pub fn versions(body: &[u8]) -> Result<Vec<u64>, String> {
    let mut expected = unversioned(body.len().div_ceil(BLOCK_BYTES));
    let mut found = Vec::new();
    let mut last: &[u8] = b"";
    for (is, should) in body.chunks(BLOCK_BYTES).zip(expected.chunks_exact_mut(BLOCK_BYTES)) {
        let digits = is.get(VERSION).unwrap_or_default();
        if digits != last && digits.iter().all(u8::is_ascii_digit) {
            last = digits;
            let version = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            if !found.contains(&version) {
                found.push(version);
            }
        }
        should[VERSION].copy_from_slice(if last.is_empty() { b"................" } else { last });
    }
    if expected == body {
        return Ok(found);
    }
    let mut pairs = body.chunks(BLOCK_BYTES).zip(expected.chunks_exact(BLOCK_BYTES));
    let wrong = pairs.find(|(is, should)| is != should).map(<[&[u8]; 2]>::from);
    Err(wrong.map_or_else(String::new, |wrong| {
        let [is, should] = wrong.map(String::from_utf8_lossy);
        format!("{is:?} instead of {should:?}")
    }))
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_and_anything_else_is_noticed() {
        let old = versioned(7, 200);
        let new = versioned(8, 200);
        assert_eq!(versions(&old), Ok(vec![7]));
        let torn = [&old[..100 * BLOCK_BYTES], &new[100 * BLOCK_BYTES..]].concat();
        assert_eq!(versions(&torn), Ok(vec![7, 8]));
        let shifted = [&old[..100 * BLOCK_BYTES], &new[101 * BLOCK_BYTES..]].concat();
        assert!(versions(&shifted).is_err());
        assert!(versions(&old[..old.len() - 1]).is_err());
        assert!(versions(&[old.clone(), vec![0; BLOCK_BYTES]].concat()).is_err());
        assert_eq!(versions(b""), Ok(vec![]));
    }
}
