//! The attendant: a process for one request, which receives it, starts its program, and ends with
//! all that the program has started.

use super::environment::{self, ProgramPath};
use super::groups::ProgramPlace;
use super::pump::{CgiRefusal, Pump, PumpEnd};
use super::records::{self, RequestRecords};
use super::route::ReadyRoute;
use super::script::{self, MeantProgram, NoProgram};
use forebay_sys::cgi::{self, CgiProgram, RunningCgi};
use forebay_sys::poll::{self, PollInterest};
use forebay_sys::socket::{self, Received, Sent};
use forebay_sys::{launch, privileges, process};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// How long the server may take to send a request's head, or to take bytes of the answer. A server
/// that works does so at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the rest of a request is still read once the request is answered.
const LINGER: Duration = Duration::from_secs(5);

const READ_BYTES: usize = 16 * 1024;

/// The task of an attendant.
pub(super) struct Attendance {
    /// The connection on which the server sends the request.
    pub(super) connection: OwnedFd,
    pub(super) route: ReadyRoute,
    /// The control group of its program, if it has one.
    pub(super) place: Option<ProgramPlace>,
}

/// Attends to the request on this connection, until the request is over or the server has ended. A
/// request under way therefore comes to its end even where the launcher was killed.
///
/// # Errors
/// When the bytes are not a request, or the kernel refuses something.
pub(super) fn attend(attendance: &Attendance) -> io::Result<()> {
    let Attendance { connection, route, place } = attendance;
    launch::adopt_orphans()?;
    process::set_name("forebay-cgi-run");
    // a server that was taken over may pass a blocking socket
    socket::never_wait(connection.as_fd())?;
    let Some(mut request) = hear(connection)? else { return Ok(()) };
    let mut out = Vec::new();
    match start(&request, route, place.as_ref()) {
        Ok(program) => {
            let pump =
                Pump::new(connection, &mut request, program, &route.route.limits, place.as_ref());
            let end = pump.run()?;
            // however the request has ended, none of its processes may be left
            if !cgi::end_descendants() {
                say("processes that it has started cannot be killed", &mut out);
            }
            match end {
                PumpEnd::Left => return Ok(()),
                PumpEnd::Answered(word) => {
                    say(&word, &mut out);
                    records::end(&mut out);
                }
                PumpEnd::Unanswered(refusal) => refuse(&refusal, &mut out),
                PumpEnd::BrokenOff(why) => {
                    say(&why, &mut out);
                    // a connection that is closed without an end record shows the server that the
                    // answer is incomplete
                    return send(connection, &out).map(drop);
                }
            }
        }
        Err(refusal) => refuse(&refusal, &mut out),
    }
    if send(connection, &out)? {
        linger(connection);
    }
    Ok(())
}

/// Sends a line for the log, if `word` is not empty.
fn say(word: &str, out: &mut Vec<u8>) {
    if !word.is_empty() {
        records::stderr(format!("\nforebay: {word}").as_bytes(), out);
    }
}

fn refuse(refusal: &CgiRefusal, out: &mut Vec<u8>) {
    say(&refusal.why, out);
    if let Some(status) = refusal.status {
        let text = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n{status}\n");
        records::stdout(text.as_bytes(), out);
    }
    records::end(out);
}

/// Receives the request up to its body; `None` if the server has gone.
fn hear(connection: &OwnedFd) -> io::Result<Option<RequestRecords>> {
    let mut request = RequestRecords::default();
    let until = Instant::now() + PATIENCE;
    let mut buffer = vec![0; READ_BYTES];
    while Instant::now() < until {
        if request.params().is_some() {
            return Ok(Some(request));
        }
        match socket::receive(connection.as_fd(), &mut buffer) {
            Received::Bytes(count) => {
                request.take(&buffer[..count]).map_err(|_| io::ErrorKind::InvalidData)?;
            }
            Received::Blocked => {
                poll::wait([(connection.as_fd(), PollInterest::Read)], 1000)?;
            }
            Received::Ended | Received::Broken => return Ok(None),
        }
    }
    Ok(None)
}

/// Starts the program that a request is for.
fn start(
    request: &RequestRecords,
    route: &ReadyRoute,
    place: Option<&ProgramPlace>,
) -> Result<RunningCgi, CgiRefusal> {
    let failed = |why: &str| CgiRefusal { status: None, why: why.to_owned() };
    let params = request.params().and_then(Result::ok).ok_or_else(|| failed("it is no request"))?;
    let value = |name: &[u8]| {
        params.iter().find(|(other, _)| *other == name).map_or(&[][..], |(_, value)| value)
    };
    let (own, path) = (value(b"SCRIPT_NAME"), value(b"PATH_INFO"));
    let user = route.user.as_ref();
    let groups = place.map(ProgramPlace::open).transpose();
    let groups =
        groups.map_err(|error| failed(&format!("no control group for a program: {error}")))?;
    let groups = groups.unwrap_or_default();
    // paths are resolved with the rights of the program's user
    privileges::find_files_as(user)
        .map_err(|error| failed(&format!("cannot look for programs as their user: {error}")))?;
    let MeantProgram { program, file, used } =
        script::find(route, path).map_err(|no| match no {
            NoProgram::Nowhere => CgiRefusal { status: Some("404 Not Found"), why: String::new() },
            NoProgram::Forbidden(why) => CgiRefusal { status: Some("403 Forbidden"), why },
            NoProgram::Failed(why) => CgiRefusal { status: None, why },
        })?;
    // control groups can be entered only with this process's rights
    privileges::find_files_as_itself()
        .map_err(|error| failed(&format!("cannot be the user of the server again: {error}")))?;
    let (name, path_info) = path.split_at(used);
    let told = ProgramPath { name: (own, name), path_info, file: &file };
    let environment = environment::of(&params, &told, &route.route.set);
    let shown = file.display();
    let name = CString::new(file.as_os_str().as_bytes());
    let name = name.map_err(|_| failed("the name of a program has a zero byte"))?;
    let (program, limits) = (&program, route.limits());
    let (environment, groups) = (&environment, &groups);
    let program = CgiProgram { program, name: &name, environment, user, limits, groups };
    program.start().map_err(|error| {
        let (status, hint) = match error.kind() {
            io::ErrorKind::NotFound => {
                (None, ": the interpreter that its first line names is not there, or the user who runs it may not read it")
            }
            io::ErrorKind::PermissionDenied => {
                let hint =
                    ": the user who runs it may not execute it, or may not enter its directory";
                (Some("403 Forbidden"), hint)
            }
            _ => (None, ""),
        };
        CgiRefusal { status, why: format!("cannot run {shown} ({error}){hint}") }
    })
}

/// Sends all bytes. The result is whether the server has taken them.
fn send(connection: &OwnedFd, bytes: &[u8]) -> io::Result<bool> {
    let (mut at, until) = (0, Instant::now() + PATIENCE);
    while at < bytes.len() {
        match socket::send(connection.as_fd(), &bytes[at..], false) {
            Sent::Bytes(count) => at += count,
            Sent::Blocked if Instant::now() < until => {
                poll::wait([(connection.as_fd(), PollInterest::Write)], 1000)?;
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Reads the rest of an answered request, until the server has closed. Closing with unread bytes
/// would make the kernel report a failed connection to the server.
fn linger(connection: &OwnedFd) {
    let until = Instant::now() + LINGER;
    let mut buffer = vec![0; READ_BYTES];
    while Instant::now() < until {
        match socket::receive(connection.as_fd(), &mut buffer) {
            Received::Bytes(_) => {}
            Received::Blocked => {
                let _ = poll::wait([(connection.as_fd(), PollInterest::Read)], 100);
            }
            Received::Ended | Received::Broken => return,
        }
    }
}
