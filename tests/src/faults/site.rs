//! Directories to serve, tmpfs mounts, and files whose content tells its version.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

/// A directory of this test alone, removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// An empty one.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of `name` in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into it, with the directories above.
    ///
    /// # Panics
    /// If that fails.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(path.parent().expect("a file in a directory")).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A small file system in memory, unmounted when dropped.
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

/// Bytes of one block of a [`versioned`] file. Blocks do not straddle pages.
pub const BLOCK_BYTES: usize = 64;
/// Where in a block its version stands, in decimal.
const VERSION: std::ops::Range<usize> = 8..24;
/// Where in a block its place in the file stands.
const PLACE: std::ops::Range<usize> = 31..47;

/// A file of `blocks` blocks, each of which says the file's version and its own place.
pub fn versioned(version: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks * BLOCK_BYTES);
    let mut block = first_block(version);
    for _ in 0..blocks {
        bytes.extend_from_slice(&block);
        count_up(&mut block[PLACE]);
    }
    bytes
}

/// The versions that the blocks of `body` say, in the order they first appear.
///
/// # Errors
/// The first block that is not whole, not at its place, or holds anything but a version.
pub fn versions(body: &[u8]) -> Result<Vec<u64>, String> {
    let mut found = Vec::new();
    let mut expected = first_block(0);
    for bytes in body.chunks(BLOCK_BYTES) {
        let digits = bytes.get(VERSION).filter(|digits| digits.iter().all(u8::is_ascii_digit));
        if let Some(digits) =
            digits.filter(|&digits| digits != &expected[VERSION] || found.is_empty())
        {
            expected[VERSION].copy_from_slice(digits);
            let version = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            if !found.contains(&version) {
                found.push(version);
            }
        }
        if expected != *bytes {
            let [is, should] = [bytes, &expected].map(String::from_utf8_lossy);
            return Err(format!("{is:?} instead of {should:?}"));
        }
        count_up(&mut expected[PLACE]);
    }
    Ok(found)
}

fn first_block(version: u64) -> [u8; BLOCK_BYTES] {
    let mut bytes = [b'.'; BLOCK_BYTES];
    let text = format!("version {version:016} block {:016} ", 0);
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes[BLOCK_BYTES - 1] = b'\n';
    bytes
}

/// Adds one to a number written in decimal digits.
fn count_up(digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
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
