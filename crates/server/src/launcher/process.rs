//! The launcher process, which runs the commands of the configuration file for the server. It listens
//! to no client and no signal, and runs one command at a time. When the server ends, in whatever way,
//! no process holds the other end of the launcher's socket any more, and the launcher ends, too.

use super::commands;
use super::fingerprint;
use super::messages::{LaunchReply, LaunchRequest};
use super::runs::{CommandRun, ReadyCommand};
use crate::config_file;
use forebay_config::Problem;
use forebay_sys::launch::{self, MessageSocket};
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::{privileges, process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The largest number of commands that wait until others have ended.
const MOST_WAITING: usize = 16;

/// The longest single wait while no command runs.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The state of the launcher.
struct LauncherProcess {
    socket: MessageSocket,
    file: PathBuf,
    /// The copy of the file that stages share.
    copy: Option<PathBuf>,
    commands: Vec<ReadyCommand>,
    /// What was read last, and is not in force yet.
    read: Option<Vec<ReadyCommand>>,
    /// The command that runs. Only one runs at a time, because what one command leaves running
    /// cannot be told from what another has started.
    run: Option<CommandRun>,
    waiting: VecDeque<(u32, u16, Vec<String>)>,
}

/// Runs commands of `file` that the server asks for on standard input, until that is closed. `copy`
/// is the copy of the file that stages share.
///
/// # Errors
/// Why the launcher cannot begin, or cannot receive from the server.
pub fn run(file: &Path, copy: Option<&Path>) -> io::Result<()> {
    begin("forebay-launch", false)?;
    let mut launcher = LauncherProcess {
        socket: MessageSocket::of_input()?,
        file: file.to_owned(),
        copy: copy.map(Path::to_owned),
        commands: Vec::new(),
        read: None,
        run: None,
        waiting: VecDeque::new(),
    };
    let served = launcher.serve();
    // the server has ended, or the socket is broken
    if let Some(run) = launcher.run.take() {
        run.finish(false);
    }
    served
}

/// Makes this process a launcher with this name: it ignores signals, keeps only those privileges of
/// root that are needed to run programs as other users, and to make control groups for them if it
/// `makes_groups`, and adopts the orphans that its programs leave.
///
/// # Errors
/// The error of the kernel.
pub(super) fn begin(name: &str, makes_groups: bool) -> io::Result<()> {
    // a signal to the process group is meant for the server, which may still need its launchers
    for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    launch::hear_of_children();
    process::set_name(name);
    launch::adopt_orphans()?;
    privileges::keep_to_launch(makes_groups)?;
    // the file may hold secrets, and this process has more privileges than the server
    launch::hide_memory()
}

impl LauncherProcess {
    /// Does what the server asks, until the server has ended.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            self.begin_next()?;
            let (has_ended, has_said, is_asked) = self.wait()?;
            if let Some(run) = self.run.as_mut().filter(|_| has_said) {
                run.listen();
            }
            let is_late = self.run.as_ref().is_some_and(|run| run.left().is_zero());
            if let Some(run) = self.run.take_if(|_| has_ended || is_late) {
                let asked = run.asked;
                self.answer(asked, &run.finish(is_late && !has_ended))?;
            }
            if is_asked && !self.hear()? {
                return Ok(());
            }
        }
    }

    /// Waits for an event. The result says whether the command has ended, whether it has written
    /// output, and whether there is a question.
    fn wait(&self) -> io::Result<(bool, bool, bool)> {
        let mut fds = vec![(self.socket.as_fd(), PollInterest::Read)];
        let mut left = LONGEST_WAIT;
        if let Some(run) = &self.run {
            fds.push((run.ended(), PollInterest::Read));
            fds.extend(run.output().map(|output| (output, PollInterest::Read)));
            left = left.min(run.left());
        }
        // rounded up, so that the wait does not end just before its time
        let left_ms = left.as_nanos().div_ceil(1_000_000) as u64;
        let ready = poll::wait_any(&fds, left_ms)?;
        let is_ready = |at: usize| ready.get(at).is_some_and(|ready| ready.ready);
        Ok((is_ready(1), is_ready(2), is_ready(0)))
    }

    /// Receives a question. The result is whether more may come.
    fn hear(&mut self) -> io::Result<bool> {
        let Some(message) = self.socket.receive()? else { return Ok(false) };
        // a server that sends something invalid is not the program that has started this process any more
        let Some((asked, request)) = LaunchRequest::decode(&message) else { return Ok(false) };
        match request {
            LaunchRequest::Prepare => {
                let reply = self.read();
                self.answer(asked, &reply)?;
            }
            LaunchRequest::Commit => {
                if let Some(read) = self.read.take() {
                    self.commands = read;
                }
                self.answer(asked, &LaunchReply::default())?;
            }
            LaunchRequest::Run { command, values } if self.waiting.len() < MOST_WAITING => {
                self.waiting.push_back((asked, command, values));
            }
            LaunchRequest::Run { .. } => {
                self.answer(asked, &LaunchReply::failed("too many commands wait to be run"))?;
            }
        }
        Ok(true)
    }

    /// Begins commands from the queue, up to the first that runs.
    fn begin_next(&mut self) -> io::Result<()> {
        while self.run.is_none() {
            let Some((asked, number, values)) = self.waiting.pop_front() else { break };
            let command = self.commands.get(usize::from(number));
            let begun = command.ok_or_else(|| "the file names no such command".to_owned());
            match begun.and_then(|command| command.begin(asked, values)) {
                Ok(run) => self.run = Some(run),
                Err(why) => self.answer(asked, &LaunchReply::failed(why))?,
            }
        }
        Ok(())
    }

    /// Reads the file again.
    fn read(&mut self) -> LaunchReply {
        self.read = None;
        let read = match &self.copy {
            Some(copy) => config_file::load_kept(copy, &self.file),
            None => config_file::load(&self.file),
        };
        let config = match read {
            Ok(config) => config,
            Err(problems) => {
                let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
                return LaunchReply::failed(lines.join("\n"));
            }
        };
        let commands = commands::of(&config);
        let said = fingerprint(&commands);
        match commands.into_iter().map(ReadyCommand::new).collect() {
            Ok(ready) => {
                self.read = Some(ready);
                LaunchReply { failure: None, said }
            }
            Err(why) => LaunchReply::failed(why),
        }
    }

    fn answer(&self, asked: u32, reply: &LaunchReply) -> io::Result<()> {
        match self.socket.send(&reply.encode(asked)) {
            // the next receive sees that the server has ended
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }
}
