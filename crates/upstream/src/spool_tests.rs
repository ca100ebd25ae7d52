//! Files of bodies: written bytes are read back, the limits hold, and nothing of the files is left.

use super::*;
use forebay_sys::poll::{self, PollInterest};
use std::path::PathBuf;

/// A directory of its own, which is removed in the end.
pub(crate) struct SpoolDirectory(pub(crate) PathBuf);

impl SpoolDirectory {
    pub(crate) fn new() -> SpoolDirectory {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-spool-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        SpoolDirectory(path)
    }
}

impl Drop for SpoolDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).unwrap();
    }
}

/// Waits until the operation is done.
pub(crate) fn wait(file: &mut SpoolFile) -> SpoolDone {
    loop {
        if let Some(done) = file.take() {
            return done;
        }
        let bell = file.bell().unwrap().1;
        poll::wait([(bell, PollInterest::Read)], 60_000).unwrap();
    }
}

/// Waits until this many bytes and files are counted.
fn until(spool: &Spool, bytes: u64, files: u64) {
    while (spool.bytes(), spool.files.load(Ordering::Relaxed)) != (bytes, files) {
        thread::yield_now();
    }
}

#[test]
fn what_is_written_is_read_and_counted() {
    let directory = SpoolDirectory::new();
    let spool = Spool::open(&directory.0, 100, 2).unwrap();
    spool.try_out().unwrap();
    let mut file = spool.file().unwrap();
    file.write(b"hello ".to_vec()).unwrap();
    assert!(file.is_busy() && matches!(wait(&mut file), SpoolDone::Written));
    file.write(b"world".to_vec()).unwrap();
    assert!(matches!(wait(&mut file), SpoolDone::Written));
    assert_eq!((file.len(), spool.bytes()), (11, 11));
    file.read(3).unwrap();
    let SpoolDone::Read { at: 3, bytes } = wait(&mut file) else { panic!("not read") };
    assert_eq!(bytes, b"lo world");
    assert!(file.read(11).is_ok() && matches!(wait(&mut file), SpoolDone::Failed));
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 0, "it has no name");
    drop(file);
    until(&spool, 0, 0);
}

#[test]
fn all_bodies_together_have_a_bound() {
    let directory = SpoolDirectory::new();
    let spool = Spool::open(&directory.0, 10, 2).unwrap();
    let mut one = spool.file().unwrap();
    one.write(vec![1; 6]).unwrap();
    let mut other = spool.file().unwrap();
    assert_eq!(spool.file().unwrap_err(), NoSpool::Descriptors);
    assert_eq!(other.write(vec![1; 5]), Err(NoSpool::Full));
    other.write(vec![1; 4]).unwrap();
    // a file that is dropped while an operation is under way
    drop(one);
    until(&spool, 4, 1);
    wait(&mut other);
    spool.set(100, 2);
    other.write(vec![1; 50]).unwrap();
    drop((other, spool.file().unwrap()));
    until(&spool, 0, 0);
}

#[test]
fn a_file_that_cannot_be_made_is_a_failure() {
    let directory = SpoolDirectory::new();
    let gone = directory.0.join("gone");
    std::fs::create_dir(&gone).unwrap();
    let spool = Spool::open(&gone, 10, 2).unwrap();
    std::fs::remove_dir(&gone).unwrap();
    spool.try_out().unwrap_err();
    let mut file = spool.file().unwrap();
    file.write(vec![1; 6]).unwrap();
    assert!(matches!(wait(&mut file), SpoolDone::Failed));
    drop(file);
    until(&spool, 0, 0);
}
