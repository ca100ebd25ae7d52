//! The launcher of CGI programs. It listens to the server alone and keeps nothing of a request.
//! When the server ends, in whatever way, no process holds the other end of the launcher's socket
//! any more, and the launcher ends, too.
//!
//! Each request is handled in a child that the launcher forks, the attendant, so that the processes
//! which one program leaves behind are told apart from those of another. Processes that outlive a
//! killed attendant become children of the launcher, which kills them.

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

/// The size of a route's number.
const ROUTE_BYTES: usize = size_of::<u64>();

/// The longest question.
const MOST_QUESTION_BYTES: usize = 64;

/// The interval at which ended attendants are looked for while there are some, and the longest wait
/// while there are none.
const LOOK_MS: u64 = 1000;
const IDLE_MS: u64 = 60_000;

/// The routes by their numbers.
type ReadyRoutes = HashMap<u64, ReadyRoute>;

/// The state of the launcher.
struct CgiLauncher {
    socket: MessageSocket,
    file: PathBuf,
    /// The copy of the file that stages share.
    copy: Option<PathBuf>,
    routes: ReadyRoutes,
    /// The routes before the last reload: requests that were begun before it may still come.
    earlier: ReadyRoutes,
    /// What was read last, and is not in force yet.
    read: Option<ReadyRoutes>,
    /// The attendants by process number, and what each is for.
    attendants: HashMap<u32, Attended>,
    /// The control groups of programs.
    groups: ProgramCgroups,
    /// The order in which the kernel kills processes when memory is short: programs before this
    /// process; `None` where it cannot be set.
    order: Option<EndingOrder>,
}

/// What an attendant is for: a route, and the control group of its program.
type Attended = (u64, Option<ProgramPlace>);

/// What a process does next.
enum NextStep {
    /// The server has ended.
    Over,
    /// This process is a child that was forked for a request.
    Attend(Box<Attendance>),
}

/// Runs the programs of `file` that the server asks for on standard input, until that is closed.
/// `copy` is the copy of the file that stages share.
///
/// # Errors
/// Why the launcher cannot begin, or cannot receive from the server.
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
            // the attendant keeps only its connection of the server's; the lock on the groups stays
            // until the attendant ends, too
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
    /// Does what the server asks, until the server has ended.
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
                // the descriptor was lost for lack of a free one: the server sees a closed connection
                (Ok(_), None) => {}
                (Err(_), _) => match LaunchRequest::decode(&message) {
                    Some((asked, request)) => self.hear(asked, &request)?,
                    // a server that sends something invalid is not the program that has started
                    // this process any more
                    None => return Ok(NextStep::Over),
                },
            }
        }
    }

    /// Removes attendants that have ended from the list.
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
        // a child that is not an attendant is an orphan whose attendant has ended
        let own: Vec<u32> = self.attendants.keys().copied().collect();
        cgi::end_others(&own);
    }

    /// Forks an attendant for a request. In the child, the result is its next step.
    fn begin(&mut self, number: u64, connection: OwnedFd) -> Option<NextStep> {
        let route = self.routes.get(&number).or_else(|| self.earlier.get(&number))?;
        let running = self.attendants.values().filter(|(route, _)| *route == number).count();
        if running >= route.most_attendants() {
            return None;
        }
        let place = self.groups.take(number, &route.route.limits);
        let set_order = |is_early| self.order.iter().for_each(|order| order.set(is_early));
        // the child inherits its order from the launcher, so it is set before the fork and reset after
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
            // the next receive sees that the server has ended
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
