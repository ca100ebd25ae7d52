//! Passes bytes between the server and a program that runs: the request's body to its input, and
//! its output and standard error into records, neither further than the other side takes it. It
//! also enforces what the program may use of the machine.
//!
//! A request is over when the program ends, not when its output does. The processes it has left are
//! killed then, so that nothing of a request is left when its place is free.

use super::groups::ProgramPlace;
use super::records::{self, RequestRecords};
use forebay_config::CgiLimits;
use forebay_sys::cgi::{self, RunningCgi};
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::socket::{self, Received, Sent};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The most bytes that wait for the program, or for the server. At that many, reading pauses.
const WAITING_BYTES: usize = 128 * 1024;

const READ_BYTES: usize = 32 * 1024;

/// The most bytes of a program's standard error that are passed on. The server keeps 8 KiB of a
/// request; the last of it is for why a program was killed.
const MOST_ERROR_BYTES: usize = 7 * 1024;

/// How often the resources of a request's processes are checked.
const LOOK: Duration = Duration::from_millis(100);

/// How long a program may live on after it has closed its output.
const SILENT: Duration = Duration::from_secs(5);

/// The answer where the program has given none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CgiRefusal {
    /// The status line's code and text. Without it the server answers as for an application that
    /// has said nothing.
    pub(super) status: Option<&'static str>,
    /// The reason, for the log.
    pub(super) why: String,
}

/// The way a program has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PumpEnd {
    /// All output was passed on. The text is for the log, if it is not empty.
    Answered(String),
    /// The program was killed before it has written anything.
    Unanswered(CgiRefusal),
    /// The program was killed in the middle of its answer, for this reason.
    BrokenOff(String),
    /// The server does not want the answer any more.
    Left,
}

/// The reason why a program is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillReason {
    /// The client has left.
    Left,
    Time,
    Output,
    Memory,
    Processes,
    /// The program has closed its output, and has gone on.
    Silent,
}

/// A program that runs, and the server that waits for its answer.
pub(super) struct Pump<'p> {
    connection: &'p OwnedFd,
    request: &'p mut RequestRecords,
    program: RunningCgi,
    limits: &'p CgiLimits,
    /// The control group of the program, and how many of its processes the kernel had killed for
    /// lack of memory before.
    place: Option<(&'p ProgramPlace, u64)>,
    /// Bytes for the server that it has not taken yet.
    out: Vec<u8>,
    buffer: Vec<u8>,
    has_output: bool,
    has_errors: bool,
    /// The exit code, or the signal that ended the program.
    ended: Option<Result<i32, i32>>,
    killed: Option<KillReason>,
    output_bytes: u64,
    error_bytes: usize,
    until: Instant,
    next_look: Instant,
}

impl<'p> Pump<'p> {
    pub(super) fn new(
        connection: &'p OwnedFd,
        request: &'p mut RequestRecords,
        program: RunningCgi,
        limits: &'p CgiLimits,
        place: Option<&'p ProgramPlace>,
    ) -> Pump<'p> {
        let now = Instant::now();
        Pump {
            connection,
            request,
            program,
            limits,
            place: place.map(|place| (place, place.out_of_memory())),
            out: Vec::new(),
            buffer: vec![0; READ_BYTES],
            has_output: true,
            has_errors: true,
            ended: None,
            killed: None,
            output_bytes: 0,
            error_bytes: 0,
            until: now + limits.time,
            next_look: now + LOOK,
        }
    }

    /// Passes bytes on until the request is over.
    pub(super) fn run(mut self) -> io::Result<PumpEnd> {
        loop {
            if self.killed.is_some() && self.ended.is_none() {
                self.end()?;
            }
            if self.killed == Some(KillReason::Left) {
                return Ok(PumpEnd::Left);
            }
            // the output of a program that was killed is not waited for
            let is_over = self.ended.is_some() && (!self.has_output || self.killed.is_some());
            if is_over && self.out.is_empty() {
                return Ok(self.outcome());
            }
            self.turn()?;
            self.look();
        }
    }

    /// Ends the program and all that it has started, so that no process holds its output.
    fn end(&mut self) -> io::Result<()> {
        self.program.input.take();
        let ended = self.program.end();
        // where the kernel kills a whole group, none of its processes can fork meanwhile
        self.place.iter().for_each(|(place, _)| place.kill());
        let ended = ended?;
        cgi::end_descendants();
        if ended.is_err() && self.is_out_of_memory() {
            self.kill(KillReason::Memory);
        }
        self.ended = Some(ended);
        Ok(())
    }

    /// Whether the kernel has killed one of the processes because the group was at its memory limit.
    fn is_out_of_memory(&self) -> bool {
        self.place.is_some_and(|(place, before)| place.out_of_memory() > before)
    }

    /// Waits, and does what can be done.
    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        let is_ready = |end| ready.iter().any(|(other, _)| *other == end);
        // an ended program writes nothing more: all of its output is in the pipes, even if another
        // process holds them open
        let is_last = self.ended.is_some() && self.has_room();
        if is_ready(PumpedEnd::Errors) || (is_last && self.has_errors) {
            self.read_errors();
        }
        if is_ready(PumpedEnd::Output) || (is_last && self.has_output) {
            self.read_output();
        }
        let left = ready.iter().any(|(end, has_ended)| *end == PumpedEnd::Server && *has_ended);
        if left || (is_ready(PumpedEnd::Server) && !self.hear()) {
            self.kill(KillReason::Left);
        }
        self.write_input();
        if is_ready(PumpedEnd::Program) && self.ended.is_none() {
            self.end()?;
        }
        if !self.out.is_empty() {
            self.send();
        }
        Ok(())
    }

    /// Waits until something can be done: at which ends, and whether the server has shut down writing.
    fn wait(&self) -> io::Result<Vec<(PumpedEnd, bool)>> {
        let (has_room, waits) = (self.has_room(), self.request.body().len());
        let hears = !self.request.has_whole_body() && waits < WAITING_BYTES;
        let interest = if hears { PollInterest::Read } else { PollInterest::PeerEnd };
        let mut fds = vec![(self.connection.as_fd(), interest)];
        let mut ends = vec![PumpedEnd::Server];
        let mut add = |end, fd, interest| {
            ends.push(end);
            fds.push((fd, interest));
        };
        if !self.out.is_empty() {
            add(PumpedEnd::Taken, self.connection.as_fd(), PollInterest::Write);
        }
        if let Some(input) = self.program.input.as_ref().filter(|_| waits > 0) {
            add(PumpedEnd::Input, input.as_fd(), PollInterest::Write);
        }
        if self.has_output && has_room {
            add(PumpedEnd::Output, self.program.output.as_fd(), PollInterest::Read);
        }
        if self.has_errors && has_room {
            add(PumpedEnd::Errors, self.program.errors.as_fd(), PollInterest::Read);
        }
        if self.ended.is_none() {
            add(PumpedEnd::Program, self.program.ended(), PollInterest::Read);
        }
        let next = match self.ended {
            // the rest of the output is in the pipe: no need to wait
            Some(_) if self.has_output && has_room => Instant::now(),
            Some(_) => self.next_look,
            None => self.until.min(self.next_look),
        };
        let left = next.saturating_duration_since(Instant::now());
        // rounded up, so that the wait does not end just before its time
        let left_ms = left.as_nanos().div_ceil(1_000_000) as u64;
        let ready = poll::wait_any(&fds, left_ms)?;
        let ready = ends.into_iter().zip(ready).filter(|(_, ready)| ready.ready);
        Ok(ready.map(|(end, ready)| (end, ready.ended || ready.broken)).collect())
    }

    /// Whether more of the program's output is read.
    fn has_room(&self) -> bool {
        self.out.len() < WAITING_BYTES
    }

    /// Receives more of the body. The result is whether the server still wants an answer.
    fn hear(&mut self) -> bool {
        if self.request.has_whole_body() {
            return true;
        }
        match socket::receive(self.connection.as_fd(), &mut self.buffer) {
            Received::Bytes(count) => self.request.take(&self.buffer[..count]).is_ok(),
            Received::Blocked => true,
            Received::Ended | Received::Broken => false,
        }
    }

    /// Writes what has come of the body to the program. A program that reads no input does not notice.
    fn write_input(&mut self) {
        match &self.program.input {
            Some(_) if self.request.body().is_empty() => {}
            Some(input) => match cgi::write(input.as_fd(), self.request.body()) {
                Sent::Bytes(count) => self.request.consume(count),
                Sent::Blocked => {}
                Sent::Broken => {
                    self.program.input.take();
                }
            },
            None => self.request.consume(self.request.body().len()),
        }
        if self.request.body().is_empty() && self.request.has_whole_body() {
            self.program.input.take();
        }
    }

    fn read_output(&mut self) {
        match cgi::read(self.program.output.as_fd(), &mut self.buffer) {
            Received::Bytes(count) => {
                self.output_bytes += count as u64;
                match self.output_bytes > self.limits.output.0 {
                    true => self.kill(KillReason::Output),
                    false => records::stdout(&self.buffer[..count], &mut self.out),
                }
            }
            Received::Blocked if self.ended.is_some() => self.has_output = false,
            Received::Blocked => {}
            Received::Ended | Received::Broken => {
                self.has_output = false;
                // the program either ends soon, or lives on without output
                self.until = self.until.min(Instant::now() + SILENT);
            }
        }
    }

    fn read_errors(&mut self) {
        match cgi::read(self.program.errors.as_fd(), &mut self.buffer) {
            Received::Bytes(count) => {
                let passed = count.min(MOST_ERROR_BYTES - self.error_bytes);
                self.error_bytes += passed;
                records::stderr(&self.buffer[..passed], &mut self.out);
            }
            Received::Blocked if self.ended.is_none() => {}
            Received::Blocked | Received::Ended | Received::Broken => self.has_errors = false,
        }
    }

    fn send(&mut self) {
        match socket::send(self.connection.as_fd(), &self.out, false) {
            Sent::Bytes(count) => drop(self.out.drain(..count)),
            Sent::Blocked => {}
            Sent::Broken => {
                self.out.clear();
                self.kill(KillReason::Left);
            }
        }
    }

    /// Checks whether the program's time is over, and whether it has used more than it may.
    fn look(&mut self) {
        let now = Instant::now();
        if self.ended.is_some() {
            self.next_look = now + LOOK;
            return;
        }
        if now >= self.until {
            self.kill(if self.has_output { KillReason::Time } else { KillReason::Silent });
        }
        if now >= self.next_look {
            self.next_look = now + LOOK;
            let taken = self.program.taken();
            if taken.processes > self.limits.processes {
                self.kill(KillReason::Processes);
            } else if taken.memory_bytes > self.limits.memory.0 || self.is_out_of_memory() {
                self.kill(KillReason::Memory);
            }
        }
    }

    /// Kills the program. The first reason is kept.
    fn kill(&mut self, reason: KillReason) {
        if reason == KillReason::Left {
            self.killed = Some(reason);
        }
        self.killed.get_or_insert(reason);
    }

    /// The end of the request, from the way the program ended.
    fn outcome(&self) -> PumpEnd {
        let limits = self.limits;
        let why = match self.killed {
            // a program that has closed its output has answered
            None | Some(KillReason::Left | KillReason::Silent) => {
                return PumpEnd::Answered(self.last_word());
            }
            Some(KillReason::Time) => format!("killed after {:?} (limits.time)", limits.time),
            Some(KillReason::Output) => {
                format!("killed: it has answered more than {} (limits.output)", limits.output)
            }
            Some(KillReason::Memory) => format!(
                "killed: it has taken more than {} of memory (limits.memory)",
                limits.memory
            ),
            Some(KillReason::Processes) => {
                format!(
                    "killed: it has begun more than {} processes (limits.processes)",
                    limits.processes
                )
            }
        };
        let status = (self.killed == Some(KillReason::Time)).then_some("504 Gateway Timeout");
        match self.output_bytes {
            0 => PumpEnd::Unanswered(CgiRefusal { status, why }),
            _ => PumpEnd::BrokenOff(why),
        }
    }

    /// The text for the log where the program has not ended as it should.
    fn last_word(&self) -> String {
        match self.ended {
            Some(Ok(0)) | None => String::new(),
            _ if self.killed == Some(KillReason::Silent) => {
                format!("killed: it has closed its output, and has not ended within {SILENT:?}")
            }
            Some(Ok(code)) => format!("ended with exit code {code}"),
            Some(Err(signal)) => format!("killed by signal {signal}"),
        }
    }
}

/// An end of a pipe or socket at which something can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PumpedEnd {
    /// The server has sent something.
    Server,
    /// The server takes more.
    Taken,
    /// The program takes more input.
    Input,
    /// The program has written to its standard output.
    Output,
    /// The program has written to its standard error.
    Errors,
    /// The program has ended.
    Program,
}
