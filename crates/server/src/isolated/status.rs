//! What `forebay status` shows of the stages: their processes, whether they answer, and how often
//! they were started again.

use super::{configuration, machines};
use crate::command::CommandAnswer;
use crate::control_socket;
use crossbeam_channel::Sender;
use forebay_config::{Config, Role};
use forebay_upstream::pings::{self, PingFailure};
use forebay_upstream::settings::UpstreamAddress;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long an instance may take for an answer before it counts as not answering.
const PATIENCE: Duration = Duration::from_secs(1);

/// One instance of a stage, as the supervisor knows it.
pub(super) struct InstanceStatus {
    pub(super) role: Role,
    /// The instance's number, or the address of other software.
    pub(super) name: String,
    pub(super) is: Is,
    /// The address for a health check of the instance.
    pub(super) address: Option<UpstreamAddress>,
    /// How often the instance was started again since the last reload.
    pub(super) restarts: u64,
    /// Whether the instance is one of ours on another machine.
    pub(super) is_elsewhere: bool,
}

/// The state of an instance's process.
pub(super) enum Is {
    Running {
        process: u32,
        since: Instant,
    },
    /// The process was started, and does not serve yet.
    Starting(u32),
    /// The process has ended, and is started again after this time.
    Due(Duration),
    Ended,
    /// The process was replaced, and finishes its requests.
    Leaving(u32),
    /// Another machine or program runs the process.
    Other,
}

/// Everything that the status is made from.
pub(super) struct StagesStatus {
    pub(super) instances: Vec<InstanceStatus>,
    /// The configuration of the stages that serve.
    pub(super) config: Option<Config>,
    /// The control socket of receive.
    pub(super) receive: Option<PathBuf>,
}

/// Answers the command on a thread of its own, because an instance that hangs is waited for: checks
/// all instances, and asks receive for its status at its control socket.
pub(super) fn tell(all: StagesStatus, reply: Sender<CommandAnswer>) {
    let told = reply.clone();
    let answer = move || {
        let StagesStatus { instances, config, receive } = all;
        let mut text = table(&instances, config.as_ref());
        for warning in config.iter().flat_map(machines::warnings) {
            text += &format!("{warning}\n");
        }
        text += &receive.map(|socket| of_receive(&socket)).unwrap_or_default();
        // the client may have gone away
        drop(told.send(CommandAnswer { code: 0, text }));
    };
    if thread::Builder::new().name("status".to_owned()).spawn(answer).is_err() {
        let text = "there are no threads left to ask the stages\n".to_owned();
        let _ = reply.send(CommandAnswer { code: 1, text });
    }
}

/// The status of receive itself: bans, and settings that differ from the file.
fn of_receive(socket: &Path) -> String {
    let Ok(answer) = control_socket::ask(socket, "status") else { return String::new() };
    // the first line is about processes
    answer.text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

fn table(all: &[InstanceStatus], config: Option<&Config>) -> String {
    let asked = thread::scope(|scope| {
        let ask = |one: &InstanceStatus| one.address.as_ref().map(|to| health(one, to, config));
        let spawn = |one| thread::Builder::new().spawn_scoped(scope, move || ask(one));
        let threads: Vec<_> = all.iter().map(spawn).collect();
        let answers = threads.into_iter().map(|thread| thread.ok()?.join().ok()?);
        answers.collect::<Vec<_>>()
    });
    let head = ["STAGE", "INSTANCE", "PROCESS", "STATE", "RUNS FOR", "RESTARTS"];
    let rows = all.iter().zip(asked).map(|(one, answers)| row(one, answers));
    let rows: Vec<_> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Checks whether one instance answers, and with which configuration.
fn health(one: &InstanceStatus, to: &UpstreamAddress, config: Option<&Config>) -> String {
    let asks = one.role.before().filter(|_| one.is_elsewhere);
    let files =
        asks.zip(config).map_or(Ok(None), |(role, config)| machines::files_to(config, role));
    let files = match files {
        Ok(files) => files,
        Err(error) => return format!("cannot be asked: {error}"),
    };
    let answer = match pings::ask(to, files.as_ref(), PATIENCE) {
        Ok(answer) => answer,
        Err(PingFailure::Silent) => return "does not answer".to_owned(),
        Err(PingFailure::Tls(fault)) => return format!("no trust: {}", fault.words()),
    };
    // other software may not know the path of the health check
    if one.is_elsewhere && !(200..300).contains(&answer.status) {
        return format!("answers with {}", answer.status);
    }
    let theirs = answer.configuration.filter(|_| one.is_elsewhere);
    let other = config.zip(theirs).and_then(|(config, theirs)| {
        configuration::difference(&configuration::said(config), &theirs)
    });
    other.map_or_else(|| "answers".to_owned(), |other| format!("answers, {other}"))
}

fn row(one: &InstanceStatus, health: Option<String>) -> [String; 6] {
    // instances without an address are those of receive, which clients ask
    let health = || health.unwrap_or_else(|| "runs".to_owned());
    let (process, state, runs) = match &one.is {
        Is::Running { process, since } => {
            (process.to_string(), health(), format!("{} s", since.elapsed().as_secs()))
        }
        Is::Due(left) => {
            (String::new(), format!("starts in {} ms", left.as_millis()), String::new())
        }
        Is::Ended => (String::new(), "has ended".to_owned(), String::new()),
        Is::Starting(process) => (process.to_string(), "starts".to_owned(), String::new()),
        Is::Leaving(process) => {
            (process.to_string(), "finishes what it has".to_owned(), String::new())
        }
        Is::Other if one.is_elsewhere => ("elsewhere".to_owned(), health(), String::new()),
        Is::Other => ("other".to_owned(), health(), String::new()),
    };
    [one.role.to_string(), one.name.clone(), process, state, runs, one.restarts.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_sys::unix_address::UnixAddress;

    #[test]
    fn each_instance_has_a_line() {
        let one = |role, name: &str, is, restarts| InstanceStatus {
            role,
            name: name.to_owned(),
            is,
            address: None,
            restarts,
            is_elsewhere: false,
        };
        let now = Instant::now();
        let all = [
            one(Role::Receive, "1", Is::Running { process: 12, since: now }, 0),
            one(Role::Process, "2", Is::Due(Duration::from_millis(50)), 3),
            InstanceStatus {
                address: Some(UpstreamAddress::Unix(UnixAddress::Path("/nothing/there".into()))),
                ..one(Role::Respond, "unix:/nothing/there", Is::Other, 0)
            },
        ];
        assert_eq!(
            table(&all, None),
            "STAGE    INSTANCE             PROCESS  STATE            RUNS FOR  RESTARTS\n\
             receive  1                    12       runs             0 s       0\n\
             process  2                             starts in 50 ms            3\n\
             respond  unix:/nothing/there  other    does not answer            0\n"
        );
    }
}
