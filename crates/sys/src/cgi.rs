//! Programs that are run for one request each (CGI): how a program is found beneath a directory,
//! how it is started from its descriptor, what it may take, and how it ends with all that it has
//! started.
//!
//! A program has a session of its own, the environment that it is given, three pipes, and no
//! descriptor of the process that starts it. That is a process of its own, too ([`fork`]): it
//! adopts what the program leaves behind ([`adopt_orphans`](crate::launch::adopt_orphans)), so that
//! it can distinguish these processes from those of other requests.

mod group;

pub use group::ProgramGroups;

use crate::launch::{descendants, kill_descendants, mark_descriptors};
use crate::privileges::SystemUser;
use crate::socket::{Received, Sent};
use rustix::fs::{AtFlags, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Gid, Pid, PidfdFlags, Resource, Rlimit, Signal, Uid, WaitOptions, WaitStatus, fchdir, getpid,
    kill_process, kill_process_group, pidfd_open, setrlimit, setsid, wait, waitpid,
};
use rustix::thread;
use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

/// The longest wait for killed processes, and the pause between two looks.
const ENDING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);

/// The number of descriptors that a program may have open: the limit that most systems give one.
const DESCRIPTORS: u64 = 1024;

/// The `oom_score_adj` of such programs, which the kernel ends before others where memory is short;
/// 1000 is the most.
const SPARED_LAST: i32 = 500;

/// The exit status of a process that did not become the program.
const UNBEGUN: i32 = 127;

/// The two processes after [`fork`], as each of them sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The process that has called it. The new process has this number.
    Parent(u32),
    /// The new process. It has all that the other one had.
    Child,
}

/// Makes a second process out of this one.
///
/// # Errors
/// The error of the kernel; or that this process has several threads: the new process would have
/// one of them, and the locks of all.
pub fn fork() -> io::Result<Forked> {
    check_alone()?;
    // SAFETY: this process has one thread, as was just checked, and nothing else could begin one:
    // so no other thread holds a lock that the new process would wait for.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        process => Ok(Forked::Parent(process.unsigned_abs())),
    }
}

/// Checks that this process has one thread.
fn check_alone() -> io::Result<()> {
    match fs::read_dir("/proc/self/task")?.count() {
        1 => Ok(()),
        _ => Err(io::Error::other("a process with several threads is not doubled")),
    }
}

/// The `oom_score_adj` of this process, which the processes it starts inherit. Must be opened
/// before the memory is [hidden](crate::launch::hide_memory), after which the file belongs to root.
#[derive(Debug)]
pub struct EndingOrder {
    file: fs::File,
    own: i32,
}

impl EndingOrder {
    /// Opens the file of this process.
    ///
    /// # Errors
    /// proc(5) is not mounted, or does not have the file.
    pub fn of_this_process() -> io::Result<EndingOrder> {
        let path = "/proc/self/oom_score_adj";
        let own = fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)?;
        Ok(EndingOrder { file: fs::OpenOptions::new().write(true).open(path)?, own })
    }

    /// Has this process, and those that it starts from here on, end before the server where memory
    /// is short; or restores the value of before.
    pub fn set(&self, is_early: bool) {
        let value = if is_early { self.own.max(SPARED_LAST) } else { self.own };
        // a program runs also where the value cannot be set
        let _ = (&self.file).write_all(value.to_string().as_bytes());
    }
}

/// Has the kernel kill this process when its parent ends. The parent's number must be `parent`.
///
/// # Errors
/// The parent has ended already.
pub fn end_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match std::os::unix::process::parent_id() == parent {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// The outcome of looking for a program.
#[derive(Debug)]
pub enum FoundProgram {
    /// A file that may be run.
    File(ProgramFile),
    /// A directory.
    Directory,
    /// The file may not be run, for this reason.
    Forbidden(&'static str),
}

/// A file that may be run. The file and its directory are open.
#[derive(Debug)]
pub struct ProgramFile {
    file: OwnedFd,
    directory: OwnedFd,
    /// The file's name in the directory.
    name: CString,
    /// An interpreter runs the file, and opens it by that name.
    is_script: bool,
}

/// Looks what `path` is beneath a directory. Only regular files are opened, no link leads out of
/// the directory, and no magic link of proc(5) is followed.
///
/// # Errors
/// The error of the kernel; see [`failure`](crate::file::failure).
pub fn find(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<FoundProgram> {
    let found = crate::file::find_beneath(root, path)?;
    let stat = rustix::fs::fstat(&found)?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => {}
        rustix::fs::FileType::Directory => return Ok(FoundProgram::Directory),
        _ => return Ok(FoundProgram::Forbidden("it is no regular file")),
    }
    if stat.st_mode & 0o6000 != 0 {
        return Ok(FoundProgram::Forbidden(
            "it is setuid or setgid, and nothing gains rights here",
        ));
    }
    if stat.st_mode & 0o111 == 0 {
        return Ok(FoundProgram::Forbidden("it is not executable (chmod +x)"));
    }
    // the directory of the file itself, so links on the way count
    let (directory, name) = match rposition(path, b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    let directory = crate::file::find_beneath(root, directory)?;
    // a file that may be run and not read is no script
    let is_script = crate::file::open_beneath(root, path).is_ok_and(|open| {
        let mut start = [0; 2];
        fs::File::from(open).read_exact(&mut start).is_ok() && start == *b"#!"
    });
    let name = CString::new([b"./", name].concat()).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(FoundProgram::File(ProgramFile { file: found, directory, name, is_script }))
}

fn rposition(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().rposition(|other| *other == byte)
}

/// The limits of each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Bytes of address space.
    pub memory_bytes: u64,
    /// Processes and threads of the user; `None` where other programs run as the same user.
    pub of_user: Option<u64>,
}

/// A program, and how it is run.
#[derive(Debug)]
pub struct CgiProgram<'p> {
    /// The file to run.
    pub program: &'p ProgramFile,
    /// The name that the program gets as its first argument.
    pub name: &'p CStr,
    /// The whole environment of the program.
    pub environment: &'p [CString],
    /// The user that the program runs as, if that is not the user of this process.
    pub user: Option<&'p SystemUser>,
    /// The limits of each of its processes.
    pub limits: ProgramLimits,
    /// The control groups that all of its processes are in.
    pub groups: &'p ProgramGroups,
}

/// A program that runs, or has ended and was not waited for yet.
#[derive(Debug)]
pub struct RunningCgi {
    process: Pid,
    /// The descriptor that is readable once the program has ended.
    ended: OwnedFd,
    /// The pipe to its standard input, non-blocking; dropping it ends the input.
    pub input: Option<OwnedFd>,
    /// The pipe from its standard output, non-blocking.
    pub output: OwnedFd,
    /// The pipe from its standard error, non-blocking.
    pub errors: OwnedFd,
}

impl CgiProgram<'_> {
    /// Starts the program. It is killed when this process ends. Only for a process with one thread.
    ///
    /// # Errors
    /// The kernel's error about the program, or lack of room for a process.
    pub fn start(&self) -> io::Result<RunningCgi> {
        let ((its_input, input), (output, its_output), (errors, its_errors)) =
            (pipe()?, pipe()?, pipe()?);
        let (told, tells) = pipe()?;
        let own = number(getpid());
        let begun = self.groups.fork()?;
        let process = match begun.forked {
            Forked::Parent(process) => process,
            Forked::Child => {
                let entered = begun.enter();
                let ends = [&its_input, &its_output, &its_errors];
                let error = entered.map_or_else(|error| error, |()| self.become_it(own, ends));
                let code = error.raw_os_error().unwrap_or(libc::EIO);
                let _ = rustix::io::write(&tells, &code.to_le_bytes());
                // SAFETY: it ends this process, without what the parent's code would do at exit.
                unsafe { libc::_exit(UNBEGUN) };
            }
        };
        drop((its_input, its_output, its_errors, tells));
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        let process = process.ok_or(io::ErrorKind::NotFound)?;
        let mut code = Vec::new();
        // the pipe closes when the program begins
        fs::File::from(told).read_to_end(&mut code)?;
        let failed = <[u8; 4]>::try_from(&code[..]).ok().map(i32::from_le_bytes);
        let ended = match failed {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => pidfd_open(process, PidfdFlags::empty()).map_err(io::Error::from),
        };
        let ended = ended.inspect_err(|_| {
            let _ = kill_process(process, Signal::KILL);
            let _ = wait_for_killed(process);
        })?;
        for end in [&input, &output, &errors] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(RunningCgi { process, ended, input: Some(input), output, errors })
    }

    /// Becomes the program. Returns the error if it has not.
    fn become_it(&self, parent: u32, ends: [&OwnedFd; 3]) -> io::Error {
        match self.prepare(parent, ends) {
            Ok(()) => self.execute(),
            Err(error) => error,
        }
    }

    fn prepare(&self, parent: u32, [input, output, errors]: [&OwnedFd; 3]) -> io::Result<()> {
        // the process group is its own, too, and there is no terminal
        setsid()?;
        let CgiProgram { user, limits, .. } = self;
        if let Some(user) = user {
            let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
            let (uid, gid) = (Uid::from_raw(user.user), Gid::from_raw(user.group));
            thread::set_thread_groups(&groups)?;
            thread::set_thread_res_gid(gid, gid, gid)?;
            thread::set_thread_res_uid(uid, uid, uid)?;
        }
        // set after the user has changed, as that change clears the signal
        end_with_parent(parent)?;
        bound(Resource::As, limits.memory_bytes)?;
        bound(Resource::Nofile, DESCRIPTORS)?;
        bound(Resource::Core, 0)?;
        if let Some(most) = limits.of_user {
            bound(Resource::Nproc, most)?;
        }
        fchdir(&self.program.directory)?;
        rustix::stdio::dup2_stdin(input)?;
        rustix::stdio::dup2_stdout(output)?;
        rustix::stdio::dup2_stderr(errors)?;
        mark_descriptors()?;
        // SAFETY: the runtime ignores this signal, which the program would inherit; the default has
        // no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        Ok(())
    }

    fn execute(&self) -> io::Error {
        let ProgramFile { file, name, is_script, .. } = self.program;
        let arguments = [self.name.as_ptr(), ptr::null()];
        let environment: Vec<_> =
            self.environment.iter().map(|one| one.as_ptr()).chain([ptr::null()]).collect();
        // An interpreter opens a script once more, in the directory that this process is in. By its
        // descriptor the script would be called /dev/fd/5, which hides the files beside it, and
        // which perl takes for something else.
        let (at, path, flags) = match is_script {
            true => (libc::AT_FDCWD, name.as_c_str(), AtFlags::empty()),
            false => (file.as_raw_fd(), c"", AtFlags::EMPTY_PATH),
        };
        // SAFETY: the path is a text that ends with a zero byte; both lists end with a null
        // pointer, and hold pointers to such texts, which live until the call is over.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                at,
                path.as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                flags.bits(),
            )
        };
        io::Error::last_os_error()
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Sets a limit to `most`, or leaves it where it is lower.
fn bound(resource: Resource, most: u64) -> io::Result<()> {
    let before = rustix::process::getrlimit(resource).maximum;
    let most = Some(before.map_or(most, |before| before.min(most)));
    Ok(setrlimit(resource, Rlimit { current: most, maximum: most })?)
}

impl RunningCgi {
    /// The descriptor that is readable once the program has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// The resources that the program and all that it has started take. Adopted processes that have
    /// ended are waited for first, so that they take nothing.
    pub fn taken(&self) -> ProcessUse {
        for adopted in crate::launch::children().into_iter().filter(|one| *one != self.process) {
            // it may still run
            let _ = waitpid(Some(adopted), WaitOptions::NOHANG);
        }
        taken()
    }

    /// Kills the program with its process group, unless it has ended, and waits for it. Returns how
    /// it has ended: by itself with this status, or by a signal. The processes that it has started
    /// are killed, too, where the wait depends on them.
    ///
    /// # Errors
    /// `TimedOut` where another process traces it, and does not end.
    pub fn end(&self) -> io::Result<Result<i32, i32>> {
        // its number is no other process's as long as it was not waited for
        let _ = kill_process_group(self.process, Signal::KILL);
        let status = wait_for_killed(self.process)?;
        Ok(match status.exit_status() {
            Some(code) => Ok(code),
            None => Err(status.terminating_signal().unwrap_or(0)),
        })
    }
}

/// Waits for a child that was killed. A traced child ends for its parent only when it has ended for
/// its tracer, which may be a process that it has started; so these are killed meanwhile.
fn wait_for_killed(process: Pid) -> io::Result<WaitStatus> {
    let until = Instant::now() + ENDING;
    loop {
        if let Some((_, status)) = again(|| waitpid(Some(process), WaitOptions::NOHANG))? {
            return Ok(status);
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        kill_descendants();
        std::thread::sleep(LOOK);
    }
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Reads what a program has written.
pub fn read(from: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
    match rustix::io::read(from, buffer) {
        Ok(0) => Received::Ended,
        Ok(count) => Received::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Received::Blocked,
        Err(_) => Received::Broken,
    }
}

/// Writes to a program's standard input.
pub fn write(to: BorrowedFd<'_>, bytes: &[u8]) -> Sent {
    match rustix::io::write(to, bytes) {
        Ok(count) => Sent::Bytes(count),
        Err(Errno::AGAIN | Errno::INTR) => Sent::Blocked,
        Err(_) => Sent::Broken,
    }
}

/// The resources of several processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// The number of processes.
    pub processes: u64,
    /// Bytes of memory in use; memory that several share counts for each.
    pub memory_bytes: u64,
}

/// The resources of this process's descendants, as far as it may see them.
fn taken() -> ProcessUse {
    let page_bytes = rustix::param::page_size() as u64;
    let pages = |process: &Pid| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/statm", number(*process))).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let all = descendants();
    let memory_bytes = all.iter().filter_map(pages).sum::<u64>() * page_bytes;
    ProcessUse { processes: all.len() as u64, memory_bytes }
}

/// Kills all descendants of this process, and processes that become one meanwhile, and waits for
/// them. Returns whether none is left. Only for a process that has
/// [adopted](crate::launch::adopt_orphans) them.
pub fn end_descendants() -> bool {
    let until = Instant::now() + ENDING;
    loop {
        // any child, whatever its process group
        match again(|| wait(WaitOptions::NOHANG)) {
            Ok(Some(_)) => continue,
            // there is no child
            Err(_) => return true,
            Ok(None) => {}
        }
        kill_descendants();
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits for children that have ended: returns their numbers, and whether they were killed.
pub fn reap() -> Vec<(u32, bool)> {
    let mut ended = Vec::new();
    while let Ok(Some((process, status))) = again(|| wait(WaitOptions::NOHANG)) {
        ended.push((number(process), status.terminating_signal().is_some()));
    }
    ended
}

/// Kills the children of this process except those with these numbers.
pub fn end_others(own: &[u32]) {
    let is_other = |one: &Pid| !own.contains(&number(*one));
    let others = crate::launch::children().into_iter().filter(is_other);
    for other in others {
        let _ = kill_process(other, Signal::KILL);
    }
}

fn number(process: Pid) -> u32 {
    process.as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod tests;
