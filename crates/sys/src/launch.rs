//! Programs that one process runs for another: how the two processes exchange messages, and how a
//! program is started so that nothing of it is left when it is over.
//!
//! A program has a session of its own, an environment that is given, nothing on standard input, and
//! no descriptors of the process that starts it. The process that runs it becomes the parent of
//! whatever the program leaves behind ([`adopt_orphans`]), and so can end all of it ([`end_all`]).

use crate::privileges::SystemUser;
use crate::stderr;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Gid, Pid, PidfdFlags, Resource, Rlimit, Signal, Uid, WaitOptions,
    kill_process, kill_process_group, pidfd_open, setrlimit, setsid, wait,
};
use rustix::thread;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Descriptors below this are standard input, output and error.
const FIRST: libc::c_uint = 3;

/// The number below which descriptors are marked where the kernel cannot mark all in one call
/// (before Linux 5.11).
const MOST_MARKED: libc::c_int = 4096;

/// The number of descriptors that a program may have open: the limit that most systems give one.
/// The server's own limit is far higher, and some programs close each number that there may be.
const DESCRIPTORS: u64 = 1024;

/// The longest wait for killed processes, and the pause between two looks.
const ENDING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// The longest message between the two processes.
pub const MOST_MESSAGE_BYTES: usize = 64 * 1024;

/// Messages of one process to another, each of which arrives as a whole or not at all.
#[derive(Debug)]
pub struct MessageSocket(OwnedFd);

impl MessageSocket {
    /// Makes two ends. A process that holds one learns it when no process holds the other any more.
    ///
    /// # Errors
    /// Lack of descriptors.
    pub fn pair() -> io::Result<(MessageSocket, MessageSocket)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok((MessageSocket(one), MessageSocket(other)))
    }

    /// Takes the end that this process has as its standard input, which is empty from now on.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn of_input() -> io::Result<MessageSocket> {
        stderr::take_input().map(MessageSocket)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The error of the kernel, above all that the other process has ended.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        again(|| net::send(&self.0, message, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Sends one message and a descriptor, of which the other process gets a duplicate, without
    /// waiting.
    ///
    /// # Errors
    /// The error of the kernel: the other process has ended, or has too many messages to receive
    /// (`EAGAIN`).
    pub fn pass(&self, message: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.pass_so(message, descriptor, SendFlags::DONTWAIT)
    }

    /// Sends one message and a descriptor, and waits until the other process has received some of
    /// the earlier messages.
    ///
    /// # Errors
    /// The error of the kernel: the other process has ended.
    pub fn pass_in_time(&self, message: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.pass_so(message, descriptor, SendFlags::empty())
    }

    fn pass_so(
        &self,
        message: &[u8],
        descriptor: BorrowedFd<'_>,
        flags: SendFlags,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let passed = [descriptor];
        beside.push(SendAncillaryMessage::ScmRights(&passed));
        let flags = SendFlags::NOSIGNAL | flags;
        again(|| net::sendmsg(&self.0, &[IoSlice::new(message)], &mut beside, flags))?;
        Ok(())
    }

    /// Waits for a message of at most `most` bytes, and for the descriptor that may come with it,
    /// close-on-exec. Returns `None` where [`receive`](MessageSocket::receive) does.
    ///
    /// # Errors
    /// The error of the kernel. A message that is longer loses its end.
    pub fn receive_passed(&self, most: usize) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
        let mut buffer = vec![0; most];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = again(|| {
            net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut buffer)], &mut beside, flags)
        });
        let count = match received {
            Ok(received) => received.bytes,
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut passed = beside.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptor = passed.next().and_then(|mut descriptors| descriptors.next());
        buffer.truncate(count);
        Ok((count > 0).then_some((buffer, descriptor)))
    }

    /// Waits for a message; `None` when the other process has ended, or has closed its end.
    ///
    /// # Errors
    /// The error of the kernel, or that the message was too long.
    pub fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; MOST_MESSAGE_BYTES];
        match again(|| net::recv(&self.0, &mut buffer[..], RecvFlags::TRUNC)) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => Ok(None),
            Ok((_, length)) if length > buffer.len() => Err(io::ErrorKind::InvalidData.into()),
            Ok((_, length)) => {
                buffer.truncate(length);
                Ok(Some(buffer))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends both directions: the other process learns that nothing more comes, and this one
    /// receives nothing more.
    pub fn shut_down(&self) {
        // the other process may have ended
        let _ = net::shutdown(&self.0, net::Shutdown::Both);
    }
}

impl AsFd for MessageSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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

/// Starts this program anew, with these arguments, a process group of its own, `socket` as its
/// standard input, and no other descriptor of this process but standard error.
///
/// # Errors
/// The error of the kernel.
pub fn start_beside(words: &[&OsStr], socket: MessageSocket) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.args(words);
    // a signal from the terminal is for the server only
    command.process_group(0).stdin(socket.0).stdout(Stdio::null()).stderr(stderr::of_children());
    // SAFETY: it makes system calls and nothing else: it takes no lock and allocates nothing.
    unsafe { command.pre_exec(mark_descriptors) };
    command.spawn()
}

/// Hides the memory and the rights of this process from other processes of the same user.
///
/// # Errors
/// None in practice.
pub fn hide_memory() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Has this process learn how its children end, whatever its parent has set: where `SIGCHLD` is
/// ignored, no process can wait for them.
pub fn hear_of_children() {
    // SAFETY: the default of a signal, which has no handler here.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Has processes whose parents have ended become children of this one, if it is among their
/// ancestors.
///
/// # Errors
/// None in practice.
pub fn adopt_orphans() -> io::Result<()> {
    // any process number would do: the kernel looks only whether it is zero
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// A program and how it is run.
#[derive(Clone, Debug)]
pub struct LaunchedProgram<'p> {
    /// The path of the program, and its arguments.
    pub words: &'p [String],
    /// The whole environment of the program.
    pub environment: HashMap<OsString, OsString>,
    /// The user that the program runs as, if that is not the user of this process.
    pub user: Option<&'p SystemUser>,
}

/// A program that runs, or has ended and was not waited for yet.
#[derive(Debug)]
pub struct RunningLaunch {
    child: Child,
    /// The descriptor that is readable once the program has ended.
    ended: OwnedFd,
    /// The pipe from its standard output and standard error.
    output: OwnedFd,
}

impl LaunchedProgram<'_> {
    /// Starts the program. It is killed when the calling thread ends.
    ///
    /// # Errors
    /// The kernel's error about the program, or lack of room for a process.
    pub fn start(&self) -> io::Result<RunningLaunch> {
        let (program, arguments) = self.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (output, said) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(&self.environment).current_dir("/");
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let become_user = self.user.map(|user| {
            let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
            (Uid::from_raw(user.user), Gid::from_raw(user.group), groups)
        });
        let own = std::process::id();
        let prepare = move || {
            // the process group is its own, too, and there is no terminal
            setsid()?;
            if let Some((user, group, groups)) = &become_user {
                thread::set_thread_groups(groups)?;
                thread::set_thread_res_gid(*group, *group, *group)?;
                thread::set_thread_res_uid(*user, *user, *user)?;
            }
            // set after the user has changed, as that change clears the signal
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if parent_id() != own {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let most = rustix::process::getrlimit(Resource::Nofile).maximum;
            let most = Some(most.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS)));
            setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
            mark_descriptors()
        };
        // SAFETY: `prepare` makes system calls and nothing else: it takes no lock and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = process.ok_or(io::ErrorKind::NotFound)?;
        let ended = pidfd_open(process, PidfdFlags::empty());
        let mut running = match ended {
            Ok(ended) => RunningLaunch { child, ended, output },
            Err(error) => {
                let mut child = child;
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.into());
            }
        };
        // the program reads from no one, so its input ends
        drop(running.child.stdin.take());
        Ok(running)
    }
}

impl RunningLaunch {
    /// The descriptor that is readable once the program has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// The descriptor that is readable once the program has written something.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Reads what the program has written since; 0 bytes if it has written nothing. Returns
    /// `Ok(None)` when no process can write more.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match again(|| rustix::io::read(&self.output, &mut *into)) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(count)),
            Err(Errno::AGAIN) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the program with its process group, unless it has ended, and waits for it. The
    /// processes that it has started are killed, too, where the wait depends on them.
    ///
    /// # Errors
    /// `TimedOut` where another process traces it, and does not end.
    pub fn end(mut self) -> io::Result<LaunchEnd> {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // its number is no other process's as long as it was not waited for
            let _ = kill_process_group(group, Signal::KILL);
        }
        let until = Instant::now() + ENDING;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(LaunchEnd::of(status));
            }
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // a traced process ends for its parent only when it has ended for its tracer
            kill_descendants();
            std::thread::sleep(LOOK);
        }
    }
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchEnd {
    /// The program exited with this status.
    Exited(i32),
    /// A signal killed the program.
    Killed(i32),
}

impl LaunchEnd {
    fn of(status: ExitStatus) -> LaunchEnd {
        match (status.code(), status.signal()) {
            (Some(code), _) => LaunchEnd::Exited(code),
            (None, signal) => LaunchEnd::Killed(signal.unwrap_or(0)),
        }
    }
}

/// Kills every child of this process, and processes that become one meanwhile, and waits for them.
/// Returns whether none is left. Only for a process that has no other children.
pub fn end_all() -> bool {
    let until = Instant::now() + ENDING;
    loop {
        match again(|| wait(WaitOptions::NOHANG)) {
            Ok(Some(_)) => continue,
            // there is no child
            Err(_) => return true,
            Ok(None) => {}
        }
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// The children of this process.
pub(crate) fn children() -> Vec<Pid> {
    children_of(rustix::process::getpid())
}

/// The children of a process, as far as this one may see them.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    let numbers = |text: String| -> Vec<Pid> {
        text.split_ascii_whitespace().filter_map(|n| Pid::from_raw(n.parse().ok()?)).collect()
    };
    let parent = parent.as_raw_nonzero().get().unsigned_abs();
    // the process may be gone
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    // one list for each of its threads; not every kernel has the file
    let threads = threads.flatten();
    let told: Option<Vec<String>> =
        threads.map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    match told {
        Some(told) if !told.is_empty() => told.into_iter().flat_map(numbers).collect(),
        _ => by_parent(parent),
    }
}

/// The descendants of this process, parents first.
pub(crate) fn descendants() -> Vec<Pid> {
    let mut all = children();
    let mut at = 0;
    while at < all.len() {
        let more = children_of(all[at]);
        let more: Vec<_> = more.into_iter().filter(|one| !all.contains(one)).collect();
        all.extend(more);
        at += 1;
    }
    all
}

/// Kills the descendants of this process.
pub(crate) fn kill_descendants() {
    // stopped first, so that no process begins another before it is killed
    for signal in [Signal::STOP, Signal::KILL] {
        for one in descendants() {
            // the process may have ended
            let _ = kill_process(one, signal);
        }
    }
}

/// The processes that have this parent, as far as this process may see them.
fn by_parent(parent: u32) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let mut text = Vec::new();
        fs::File::open(entry.path().join("stat")).ok()?.take(4096).read_to_end(&mut text).ok()?;
        // the name of the program is in brackets, and may contain some itself
        let after = text.iter().rposition(|byte| *byte == b')')?;
        let after = std::str::from_utf8(text.get(after + 1..)?).ok()?;
        let its: u32 = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
        (its == parent).then(|| Pid::from_raw(number)).flatten()
    });
    found.collect()
}

/// Marks the descriptors of this process, except standard input, output and error, to be closed
/// when it becomes a program. It neither allocates nor locks.
pub(crate) fn mark_descriptors() -> io::Result<()> {
    let flag = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: it changes a flag of descriptors in the new process only, which become invalid when
    // it becomes the program, as all are meant to.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flag) };
    if done != 0 {
        for number in FIRST as libc::c_int..MOST_MARKED {
            // SAFETY: it changes a flag, or fails because there is no such descriptor.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;

    fn words(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    /// Runs the script to its end, and returns what it has written.
    fn run(script: &str, environment: &[(&str, &str)]) -> (LaunchEnd, String) {
        let words = words(script);
        let environment =
            environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let running = LaunchedProgram { words: &words, environment, user: None }.start().unwrap();
        let (mut said, mut buffer) = (Vec::new(), [0; 512]);
        while let Some(count) = running.read(&mut buffer).unwrap() {
            said.extend(&buffer[..count]);
            poll::wait_readable(&[running.output()], 60_000).unwrap();
        }
        poll::wait_readable(&[running.ended()], 60_000).unwrap();
        (running.end().unwrap(), String::from_utf8(said).unwrap())
    }

    #[test]
    fn a_program_has_what_it_is_given_and_no_more() {
        let (end, said) = run("env; echo error >&2; read x; echo \"$?\"; exit 3", &[("A", "b c")]);
        assert_eq!(end, LaunchEnd::Exited(3));
        let mut lines: Vec<&str> = said.lines().collect();
        // the shell itself adds these
        lines.retain(|line| !["PWD=/", "OLDPWD=/", "SHLVL=0", "_=/usr/bin/env"].contains(line));
        assert_eq!(lines, ["A=b c", "error", "1"]);
        // a descriptor that is inherited by mistake
        let open = rustix::fs::open("/dev/null", OFlags::RDONLY, rustix::fs::Mode::empty());
        let open = open.unwrap();
        let (_, said) =
            run("ls /proc/self/fd | tr '\\n' ' '; cut -d' ' -f6 /proc/$$/stat; echo $$", &[]);
        drop(open);
        let (descriptors, rest) = said.split_once('\n').unwrap_or_default();
        let (descriptors, session) = descriptors.trim().rsplit_once(' ').unwrap();
        // the last one is the directory that ls reads
        assert_eq!(descriptors, "0 1 2 3", "{said}");
        assert_eq!(session, rest.trim(), "{said}");
    }

    #[test]
    fn a_program_that_cannot_be_run_says_why() {
        let start = |path: &str| {
            let words = [path.to_owned()];
            LaunchedProgram { words: &words, environment: HashMap::new(), user: None }.start()
        };
        assert_eq!(start("/").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(start("/nowhere").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(start("/etc/passwd").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn messages_arrive_whole_and_the_end_is_told() {
        let (one, other) = MessageSocket::pair().unwrap();
        one.send(b"first").unwrap();
        one.send(&[7; 40_000]).unwrap();
        assert_eq!(other.receive().unwrap().unwrap(), b"first");
        assert_eq!(other.receive().unwrap().unwrap(), [7; 40_000]);
        one.send(&vec![7; MOST_MESSAGE_BYTES + 1]).unwrap();
        assert!(other.receive().is_err());
        drop(one);
        assert_eq!(other.receive().unwrap(), None);
        assert!(other.send(b"x").is_err());
    }
}
