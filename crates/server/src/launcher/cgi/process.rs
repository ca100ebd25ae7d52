//! The launcher of programs for requests. It hears the server alone, keeps nothing of a request, and ends when the
//! server does, in whatever way: then nothing holds the other end of its socket.
//!
//! What a request has to do with is done by a process that it makes of itself, the attendant, so that what one
//! program leaves behind can be told from what another one has started. What outlives an attendant that was killed
//! becomes the launcher's child, and is killed.

use super::attendant::{self, Attendance};
use super::groups::{ProgramCgroups, ProgramPlace};
use super::route::ReadyRoute;
use crate::config_file;
use crate::launcher::messages::{LaunchReply, LaunchRequest};
use crate::launcher::{fingerprint, process::begin};
use forebay_config::Problem;
use forebay_sys::cgi::{self, EndingOrder, Forked};
use forebay_sys::launch::MessageSocket;
use forebay_sys::poll;
use forebay_sys::stderr::say;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The number of a route, in bytes.
const ROUTE_BYTES: usize = size_of::<u64>();

/// No question is longer.
const MOST_QUESTION_BYTES: usize = 64;

/// How often is looked whether attendants have ended, and otherwise.
const LOOK_MS: u64 = 1000;
const IDLE_MS: u64 = 60_000;

/// The routes by their numbers.
type ReadyRoutes = HashMap<u64, ReadyRoute>;

/// What the process knows.
struct CgiLauncher {
    socket: MessageSocket,
    file: PathBuf,
    /// The copy of it that stages share.
    copy: Option<PathBuf>,
    routes: ReadyRoutes,
    /// Those before: requests that were begun before a reload may still come.
    earlier: ReadyRoutes,
    /// What was read last, and does not hold yet.
    read: Option<ReadyRoutes>,
    /// What each attendant is for, by its number.
    attendants: HashMap<u32, Attended>,
    /// The control groups of programs.
    groups: ProgramCgroups,
    /// Programs are ended before this process is, where memory is short; `None` where that cannot be told.
    order: Option<EndingOrder>,
}

/// What an attendant is for: a route, and the control group of its program.
type Attended = (u64, Option<ProgramPlace>);

/// What comes next in a process.
enum NextStep {
    /// The server has ended.
    Over,
    /// This process was made for a request.
    Attend(Box<Attendance>),
}

/// Has the programs of `file` run as it is told on standard input, until that ends. `copy` is the copy of the file
/// that stages share.
///
/// # Errors
/// Why it cannot begin, or hear the server.
pub fn run(file: &Path, copy: Option<&Path>) -> io::Result<()> {
    let order = EndingOrder::of_this_process().ok();
    begin("forebay-cgi", true)?;
    let mut launcher = CgiLauncher {
        socket: MessageSocket::of_input()?,
        file: file.to_owned(),
        copy: copy.map(Path::to_owned),
        routes: ReadyRoutes::new(),
        earlier: ReadyRoutes::new(),
        read: None,
        attendants: HashMap::new(),
        groups: ProgramCgroups::make(),
        order,
    };
    match launcher.serve()? {
        NextStep::Attend(attendance) => {
            // of the server an attendant has that connection alone; what the launcher has locked stays so until this
            // ends, too
            let _groups = std::mem::take(&mut launcher.groups);
            drop(launcher);
            attendant::attend(&attendance)
        }
        NextStep::Over => {
            launcher.groups.kill();
            cgi::end_descendants();
            launcher.groups.remove();
            Ok(())
        }
    }
}

impl CgiLauncher {
    /// Does what the server asks, until that has ended.
    fn serve(&mut self) -> io::Result<NextStep> {
        loop {
            self.look_after();
            let wait_ms = if self.attendants.is_empty() { IDLE_MS } else { LOOK_MS };
            let ready = poll::wait_readable(&[self.socket.as_fd()], wait_ms)?;
            if !ready.first().is_some_and(|ready| *ready) {
                continue;
            }
            let Some((message, passed)) = self.socket.receive_passed(MOST_QUESTION_BYTES)? else {
                return Ok(NextStep::Over);
            };
            match (<[u8; ROUTE_BYTES]>::try_from(&message[..]), passed) {
                (Ok(route), Some(connection)) => {
                    if let Some(next) = self.begin(u64::from_le_bytes(route), connection) {
                        return Ok(next);
                    }
                }
                // there was no descriptor for it: the server sees that the connection is closed
                (Ok(_), None) => {}
                (Err(_), _) => match LaunchRequest::decode(&message) {
                    Some((asked, request)) => self.hear(asked, &request)?,
                    // a server that says what it cannot is not the one that has started this process any more
                    None => return Ok(NextStep::Over),
                },
            }
        }
    }

    /// Takes note of attendants that have ended.
    fn look_after(&mut self) {
        let ended = cgi::reap();
        if ended.is_empty() {
            return;
        }
        let mut was_killed = false;
        for (number, is_killed) in ended {
            let Some((_, place)) = self.attendants.remove(&number) else { continue };
            was_killed |= is_killed;
            place.iter().for_each(|place| self.groups.give_back(place));
        }
        if was_killed {
            say(format_args!("the process of a CGI program was killed, and the program with it"));
        }
        // what is no attendant has lost one
        let own: Vec<u32> = self.attendants.keys().copied().collect();
        cgi::end_others(&own);
    }

    /// Has a request attended to. Says what comes next in the process that does.
    fn begin(&mut self, number: u64, connection: OwnedFd) -> Option<NextStep> {
        let route = self.routes.get(&number).or_else(|| self.earlier.get(&number))?;
        let running = self.attendants.values().filter(|(route, _)| *route == number).count();
        if running >= route.most_attendants() {
            return None;
        }
        let place = self.groups.take(number, &route.route.limits);
        let set_order = |is_early| self.order.iter().for_each(|order| order.set(is_early));
        set_order(true);
        let forked = cgi::fork();
        if !matches!(forked, Ok(Forked::Child)) {
            set_order(false);
        }
        match forked {
            Ok(Forked::Child) => {
                let route = route.clone();
                Some(NextStep::Attend(Box::new(Attendance { connection, route, place })))
            }
            Ok(Forked::Parent(process)) => {
                self.attendants.insert(process, (number, place));
                None
            }
            Err(error) => {
                place.iter().for_each(|place| self.groups.give_back(place));
                say(format_args!("no process for a CGI program: {error}"));
                None
            }
        }
    }

    fn hear(&mut self, asked: u32, request: &LaunchRequest) -> io::Result<()> {
        let reply = match request {
            LaunchRequest::Prepare => self.read(),
            LaunchRequest::Commit => {
                if let Some(read) = self.read.take() {
                    self.earlier = std::mem::replace(&mut self.routes, read);
                    let (routes, earlier) = (&self.routes, &self.earlier);
                    let is_wanted =
                        |route| routes.contains_key(&route) || earlier.contains_key(&route);
                    self.groups.keep(is_wanted);
                }
                LaunchReply { failure: None, said: self.groups.missing().to_owned() }
            }
            LaunchRequest::Run { .. } => LaunchReply::failed("this process runs no commands"),
        };
        match self.socket.send(&reply.encode(asked)) {
            // its end is heard next
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }

    /// Reads the file again.
    fn read(&mut self) -> LaunchReply {
        self.read = None;
        let config = match &self.copy {
            Some(copy) => config_file::load_kept(copy, &self.file),
            None => config_file::load(&self.file),
        };
        let config = match config {
            Ok(config) => config,
            Err(problems) => {
                let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
                return LaunchReply::failed(lines.join("\n"));
            }
        };
        let routes = super::of(&config);
        let said = fingerprint(&routes);
        let ready = routes.into_iter().map(|route| {
            let number = route.number();
            ReadyRoute::new(route, &config).map(|ready| (number, ready))
        });
        match ready.collect() {
            Ok(ready) => {
                self.read = Some(ready);
                LaunchReply { failure: None, said }
            }
            Err(why) => LaunchReply::failed(why),
        }
    }
}
