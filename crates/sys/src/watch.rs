//! Watching directories for changes: inotify.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The name of a watched directory. The same directory always has the same name while it is
/// watched, whichever path led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchId(i32);

/// The changes in a directory that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchInterest {
    /// Names that come, go or are moved to another file.
    Names,
    /// Names as above, and changes of the files' content and attributes.
    Content,
}

/// A change in a watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent<'e> {
    /// Something happened to the file called `name` in the directory.
    Name(WatchId, &'e [u8]),
    /// The directory itself was changed, moved or removed.
    Itself(WatchId),
    /// The directory is no longer watched, and nothing more will be reported of it.
    Forgotten(WatchId),
    /// More happened than the kernel could remember: anything may have changed.
    Lost,
}

/// A set of watched directories.
#[derive(Debug)]
pub struct Watch {
    inotify: OwnedFd,
}

impl Watch {
    /// A set that watches nothing yet.
    ///
    /// # Errors
    /// `EMFILE` if the user has too many of these (`fs.inotify.max_user_instances`).
    pub fn new() -> io::Result<Watch> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Watch { inotify })
    }

    /// Watches `directory`, in addition to earlier interests in it. The descriptor may be one that
    /// can only be resolved from (`O_PATH`) and may be closed afterwards. Needs `/proc`.
    ///
    /// # Errors
    /// `ENOSPC` if the user watches too much (`fs.inotify.max_user_watches`), `EACCES` without the
    /// right to read the directory, `ENOTDIR` if it is none.
    pub fn add(&self, directory: BorrowedFd<'_>, interest: WatchInterest) -> io::Result<WatchId> {
        let mut what = WatchFlags::ONLYDIR
            | WatchFlags::MASK_ADD
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::DELETE_SELF;
        if interest == WatchInterest::Content {
            // CLOSE_WRITE also reports what was written through a memory map, which MODIFY does
            // not, at least when the writer is done.
            what |= WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
        }
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        Ok(WatchId(inotify::add_watch(&self.inotify, path.as_str(), what)?))
    }

    /// Stops watching a directory. Events that were already reported stay in the queue.
    ///
    /// # Errors
    /// `EINVAL` if the directory was not watched.
    pub fn remove(&self, directory: WatchId) -> io::Result<()> {
        Ok(inotify::remove_watch(&self.inotify, directory.0)?)
    }

    /// Waits until something has changed, at most `timeout_ms`. Returns whether it has.
    ///
    /// # Errors
    /// The error of the kernel; an interruption counts as nothing changed.
    pub fn wait(&self, timeout_ms: u64) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout_ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: (timeout_ms % 1000 * 1_000_000) as i64,
        };
        match rustix::event::poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], Some(&timeout))
        {
            Err(Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    /// Calls `each` with what has changed since the last call, up to `most` events. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&self, most: usize, mut each: impl FnMut(WatchEvent<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut buffer);
        let mut count = 0;
        // What is in the buffer was taken out of the queue, and would be lost otherwise.
        while count < most || !reader.is_buffer_empty() {
            count += 1;
            let event = match reader.next() {
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                event => event?,
            };
            let directory = WatchId(event.wd());
            let itself = ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF | ReadFlags::UNMOUNT;
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                each(WatchEvent::Lost);
            } else if event.events().contains(ReadFlags::IGNORED) {
                each(WatchEvent::Forgotten(directory));
            } else if event.events().intersects(itself) {
                each(WatchEvent::Itself(directory));
            } else if let Some(name) = event.file_name() {
                each(WatchEvent::Name(directory, name.to_bytes()));
            } else {
                each(WatchEvent::Itself(directory));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn changes_are_told_by_directory_and_name() {
        let path = std::env::temp_dir().join(format!("forebay-watch-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let fd = crate::file::open_directory(&path).unwrap();
        let watch = Watch::new().unwrap();
        let directory = watch.add(fd.as_fd(), WatchInterest::Content).unwrap();
        assert_eq!(watch.add(fd.as_fd(), WatchInterest::Names).unwrap(), directory);
        assert!(!watch.wait(0).unwrap());
        fs::write(path.join("a"), "1").unwrap();
        fs::remove_file(path.join("a")).unwrap();
        fs::remove_dir(&path).unwrap();
        drop(fd);
        assert!(watch.wait(5000).unwrap());
        let mut events = Vec::new();
        watch.read(usize::MAX, |event| events.push(format!("{event:?}"))).unwrap();
        let name = format!("{:?}", WatchEvent::Name(directory, b"a"));
        assert!(events.iter().filter(|event| **event == name).count() >= 3, "{events:?}");
        assert_eq!(events.last(), Some(&format!("{:?}", WatchEvent::Forgotten(directory))));
    }
}
