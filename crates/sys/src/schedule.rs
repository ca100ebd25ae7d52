//! The scheduler's figures of threads: how long they ran, and how long they waited for a core.

use std::fs::File;
use std::io::{self, Read};

/// A handle to the scheduler's figures of one thread; any thread of its process may read them while
/// it lives. The handle holds no descriptor.
#[derive(Debug)]
pub struct SchedulerFigures(String);

/// How a thread has spent its time since it began, in nanoseconds. For the rest of the time it
/// slept, or waited for something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The time on a core.
    pub run_ns: u64,
    /// The time ready to run, while other threads had the cores.
    pub runnable_ns: u64,
}

impl SchedulerFigures {
    /// The figures of the calling thread.
    ///
    /// # Errors
    /// A kernel without `CONFIG_SCHED_INFO`, no `/proc`, or no permission to open it.
    pub fn of_this_thread() -> io::Result<SchedulerFigures> {
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let figures = SchedulerFigures(format!("/proc/self/task/{thread}/schedstat"));
        figures.read()?;
        Ok(figures)
    }

    /// The current figures of the thread; 1 to 4 ms behind if it runs.
    ///
    /// # Errors
    /// The thread has ended, or there is no descriptor for a moment.
    pub fn read(&self) -> io::Result<Spent> {
        let mut text = [0; 96];
        let count = File::open(&self.0)?.read(&mut text)?;
        let text = std::str::from_utf8(&text[..count]).map_err(io::Error::other)?;
        spent(text).ok_or_else(|| io::Error::other("no scheduler figures"))
    }
}

/// Names and figures of all threads of a process that live now. Figures of threads that have ended
/// are lost.
///
/// # Errors
/// No such process, a kernel without `CONFIG_SCHED_INFO`, or no `/proc`.
pub fn threads_of(process: u32) -> io::Result<Vec<(String, Spent)>> {
    let mut threads = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?.path();
        // a thread may end between the calls
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
        let Ok(text) = std::fs::read_to_string(task.join("schedstat")) else { continue };
        threads.extend(spent(&text).map(|spent| (name.trim_end().to_owned(), spent)));
    }
    if threads.is_empty() {
        return Err(io::Error::other("no scheduler figures"));
    }
    Ok(threads)
}

/// The first two numbers of a schedstat file.
fn spent(text: &str) -> Option<Spent> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(run_ns)), Some(Ok(runnable_ns))) => Some(Spent { run_ns, runnable_ns }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn threads_are_known_by_name() {
        if SchedulerFigures::of_this_thread().is_err() {
            return eprintln!("SKIPPED: this kernel has no schedstat");
        }
        let (asked, answered) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel());
        let sender = answered.0;
        let thread = std::thread::Builder::new().name("figures".to_owned()).spawn(move || {
            let begin_ns = clock::thread_cpu_ns();
            while clock::thread_cpu_ns() - begin_ns < 10_000_000 {}
            sender.send(()).unwrap();
            // until the main thread has looked
            let _ = asked.1.recv();
        });
        answered.1.recv().unwrap();
        let named = || {
            let threads = threads_of(std::process::id()).unwrap();
            threads.into_iter().find(|(name, _)| name == "figures").unwrap().1
        };
        while named().run_ns < 10_000_000 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(asked.0);
        thread.unwrap().join().unwrap();
        assert!(threads_of(0).is_err());
    }

    #[test]
    fn work_shows_and_sleep_does_not() {
        let Ok(figures) = SchedulerFigures::of_this_thread() else {
            return eprintln!("SKIPPED: this kernel has no schedstat");
        };
        let begin_ns = clock::thread_cpu_ns();
        while clock::thread_cpu_ns() - begin_ns < 30_000_000 {}
        // the kernel updates figures at ticks and when the thread sleeps
        std::thread::sleep(std::time::Duration::from_millis(1));
        let (spent, used_ns) = (figures.read().unwrap(), clock::thread_cpu_ns());
        assert!(spent.run_ns >= 30_000_000 && spent.run_ns <= used_ns + 10_000_000, "{spent:?}");
    }
}
