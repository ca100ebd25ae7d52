//! The folder that is served: the same bytes and dates in every run.

use crate::Error;
use crate::case::CASES;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// 2026-01-01: old enough that no server takes the files for still changing.
const MODIFIED_UNIX_S: u64 = 1_767_225_600;

/// A folder that is removed with everything in it when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a new folder in the system's folder for temporary files.
    pub fn new() -> Result<Scratch, Error> {
        let path = std::env::temp_dir().join(format!("forebay-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(Error::io("cannot make the folder", &path))?;
        Ok(Scratch(path))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and the run's results do not depend on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the files of all cases below `root`.
///
/// # Errors
/// When the disk does not take them.
pub fn make(root: &Path) -> Result<(), Error> {
    for case in CASES {
        let path = root.join(case.file);
        write(&path, &body(case.body_bytes)).map_err(Error::io("cannot write", &path))?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.set_modified(UNIX_EPOCH + Duration::from_secs(MODIFIED_UNIX_S))
}

/// `count` letters from a fixed linear congruential generator (Numerical Recipes' constants).
pub fn body(count: usize) -> Vec<u8> {
    let mut state: u32 = 2026;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'a' + (state >> 24) as u8 % 26
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_body_is_the_start_of_a_longer_one() {
        assert_eq!(body(100), body(1000)[..100]);
        assert!(body(1000).iter().all(u8::is_ascii_lowercase));
    }
}
