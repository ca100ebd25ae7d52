//! A program that stays: a connection whose lines are objects of JSON, under a lease.

use super::deadline_stream::is_late;
use super::request::{AgentRequest, Wish, answer};
use super::{LONGEST_WORK, PATIENCE};
use crate::command::{CommandKind, CommandRequest, PolicyChange};
use crossbeam_channel::bounded;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The largest number of programs at the same time.
const MOST_AGENTS: usize = 8;
/// The longest line.
const MOST_LINE_BYTES: usize = 256 * 1024;

/// The names of the programs that are connected.
pub(super) type Owners = Arc<Mutex<Vec<String>>>;

/// The session of one program, and when its lease ends.
struct ControlSession<'t, T: Fn(CommandRequest)> {
    stream: UnixStream,
    tell: &'t T,
    owner: Option<OwnedName>,
    lease: Duration,
    until: Instant,
    /// The interval between statistics, and when the next ones are sent.
    stats: Option<(Duration, Instant)>,
}

/// A program's name, which no other program can have until this is dropped.
struct OwnedName {
    name: String,
    owners: Owners,
}

impl Drop for OwnedName {
    fn drop(&mut self) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|name| *name != self.name);
    }
}

/// Answers lines until the program leaves or its lease ends. `received` has come already.
pub(super) fn serve<T: Fn(CommandRequest)>(
    stream: UnixStream,
    mut received: Vec<u8>,
    owners: &Owners,
    tell: &T,
) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut session =
        ControlSession { stream, tell, owner: None, lease: PATIENCE, until, stats: None };
    let why = session.talk(&mut received, owners);
    if let Some(owner) = &session.owner {
        let _ = session.ask(CommandKind::Change(owner.name.clone(), PolicyChange::Leave(why)));
    }
    Ok(())
}

impl<T: Fn(CommandRequest)> ControlSession<'_, T> {
    /// Answers requests until the session ends, and returns the reason.
    fn talk(&mut self, received: &mut Vec<u8>, owners: &Owners) -> &'static str {
        let mut piece = [0; 4096];
        loop {
            while let Some(end) = memchr_line(received) {
                let line: Vec<u8> = received.drain(..=end).collect();
                let text = self.line(&String::from_utf8_lossy(&line), owners);
                if self.stream.write_all(text.as_bytes()).is_err() {
                    return "it takes no answers";
                }
            }
            if received.len() > MOST_LINE_BYTES {
                let error = format!("a line has at most {} KiB", MOST_LINE_BYTES >> 10);
                let _ = self.stream.write_all(answer(&Value::Null, Err(error)).as_bytes());
                return "its line was too long";
            }
            let now = Instant::now();
            if now >= self.until {
                let _ = self.stream.write_all(b"{\"event\":\"lease_ended\"}\n");
                return "its lease has ended";
            }
            if let Some((every, due)) = self.stats.filter(|(_, due)| *due <= now) {
                self.stats = Some((every, (due + every).max(now)));
                if self.send_stats().is_err() {
                    return "it takes no statistics";
                }
            }
            let next = self.stats.map_or(self.until, |(_, due)| due.min(self.until));
            let wait = next.saturating_duration_since(now).max(Duration::from_millis(1));
            if self.stream.set_read_timeout(Some(wait)).is_err() {
                return "its connection failed";
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return "it has left",
                Ok(count) => received.extend_from_slice(&piece[..count]),
                Err(error) if is_late(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return "its connection failed",
            }
        }
    }

    fn line(&mut self, line: &str, owners: &Owners) -> String {
        match AgentRequest::parse(line) {
            Ok(AgentRequest { id, wish }) => answer(&id, self.grant(wish, owners)),
            Err((id, error)) => answer(&id, Err(error)),
        }
    }

    fn grant(&mut self, wish: Wish, owners: &Owners) -> Result<Value, String> {
        if let Wish::Hello { owner, lease } = wish {
            return self.hello(owner, lease, owners);
        }
        let Some(owner) = &self.owner else { return Err("say hello first".to_owned()) };
        let owner = owner.name.clone();
        let result = match wish {
            Wish::Put(text) => self.ask(CommandKind::Change(owner, PolicyChange::Put(text))),
            Wish::Remove { rules, classes } => {
                self.ask(CommandKind::Change(owner, PolicyChange::Remove { rules, classes }))
            }
            Wish::Stats(every) => {
                self.stats = (!every.is_zero()).then(|| (every, Instant::now()));
                Ok(Value::Null)
            }
            Wish::Renew | Wish::Hello { .. } => Ok(Value::Null),
        };
        // the server's own time does not count against the lease
        self.until = Instant::now() + self.lease;
        result
    }

    fn hello(&mut self, name: String, lease: Duration, owners: &Owners) -> Result<Value, String> {
        if self.owner.is_some() {
            return Err("hello was said".to_owned());
        }
        let mut known = owners.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&name) {
            return Err(format!("another program is called {name:?}"));
        }
        if known.len() >= MOST_AGENTS {
            return Err(format!("{MOST_AGENTS} programs are there, and no more may be"));
        }
        known.push(name.clone());
        drop(known);
        self.owner = Some(OwnedName { name, owners: Arc::clone(owners) });
        (self.lease, self.until) = (lease, Instant::now() + lease);
        Ok(json!({ "lease_ms": lease.as_millis() as u64 }))
    }

    /// Has the main thread carry out a command.
    fn ask(&self, asked: CommandKind) -> Result<Value, String> {
        let (reply, answers) = bounded(1);
        (self.tell)(CommandRequest { asked, reply });
        let answer = answers.recv_timeout(LONGEST_WORK).map_err(|_| "the server has stopped")?;
        let text = answer.text.trim_end().to_owned();
        if answer.code == 0 { Ok(text.into()) } else { Err(text) }
    }

    fn send_stats(&mut self) -> io::Result<()> {
        match self.ask(CommandKind::Command("policy stats".to_owned())) {
            Ok(Value::String(text)) => self.stream.write_all(format!("{text}\n").as_bytes()),
            _ => Ok(()),
        }
    }
}

fn memchr_line(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
