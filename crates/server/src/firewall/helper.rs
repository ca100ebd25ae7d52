//! The process beside the server that changes the firewall. It alone keeps the right to; it hears no
//! client, and does no more than [`HelperMessage`] says: it changes one table, and reads sets of others.
//!
//! It ends when the server does, in whatever way: its input ends then, and it removes the table.

use super::ruleset::{self, Ban, Ruleset};
use super::set_text;
use forebay_sys::privileges;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the helper of a server that has just ended may hold the table.
const HELD: Duration = Duration::from_secs(5);

/// Where `nft` lies when the server's search path does not say.
const PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// What the server wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HelperMessage {
    /// The table is made anew, with these clients.
    Install(Ruleset, Vec<Ban>),
    /// These are dropped, too: those that are not in the table, and those that may be.
    Ban(Vec<Ban>, Vec<Ban>),
    /// The table stays in force.
    Renew,
    /// What has it counted?
    Count,
    /// The table stays as it is, for the helper of another server.
    Leave,
    /// What do these sets hold, each by family, table and name?
    Sets(Vec<[String; 3]>),
}

/// What became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HelperReply {
    /// It is done; SYNs dropped since the start, of clients and of addresses in lists.
    Done([u64; 2]),
    /// Nothing has changed, and why.
    Failed(String),
    /// Of each set the networks in it, by their first address and the bits that count, or why it cannot be read.
    Sets(Vec<Result<Vec<(IpAddr, u8)>, String>>),
}

/// The table as far as the helper has made it.
struct Table {
    nft: PathBuf,
    rules: Option<Ruleset>,
    /// No other server of this network namespace has a table of that name while this is held.
    _lock: Option<UnixListener>,
    /// What was counted since the start.
    counted: [u64; 2],
}

/// Where `nft` is, if it is here.
pub fn nft() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(PLACES.map(PathBuf::from));
    let files = places.filter(|place| place.is_absolute()).map(|place| place.join("nft"));
    files.into_iter().find(|file| file.is_file())
}

/// Why this machine has no firewall for us, as far as a process can see without rights.
pub fn lack() -> Option<String> {
    let is_missing = nft().is_none();
    is_missing.then(|| "there is no nft here; the package nftables has it".to_owned())
}

/// Does what comes in on standard input, line by line, until it ends.
///
/// # Errors
/// Why it cannot begin.
pub fn run() -> io::Result<()> {
    // a signal to the whole group is for the server, which may have clients yet
    for signal in [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    privileges::keep_net_admin_only()?;
    let nft = nft().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut table = Table { nft, rules: None, _lock: None, counted: [0; 2] };
    for line in io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(message) => table.answer(message),
            Err(error) => HelperReply::Failed(format!("a message that cannot be read: {error}")),
        };
        let text = serde_json::to_string(&answer).map_err(io::Error::other)?;
        if writeln!(io::stdout(), "{text}").is_err() {
            break;
        }
    }
    table.remove();
    Ok(())
}

impl Table {
    fn answer(&mut self, message: HelperMessage) -> HelperReply {
        let done = match message {
            HelperMessage::Install(rules, clients) => self.install(rules, &clients),
            HelperMessage::Ban(fresh, again) => {
                self.with(|name| ruleset::ban(name, &fresh, &again))
            }
            HelperMessage::Renew => self.with(ruleset::renew),
            HelperMessage::Count => self.with(ruleset::count),
            HelperMessage::Leave => {
                (self.rules, self._lock) = (None, None);
                Ok(())
            }
            HelperMessage::Sets(names) => {
                let read = |[family, table, name]: &[String; 3]| {
                    let said = ask(&self.nft, &ruleset::list_set(family, table, name))?;
                    set_text::networks(&said)
                };
                return HelperReply::Sets(names.iter().map(read).collect());
            }
        };
        match done {
            Ok(()) => HelperReply::Done(self.counted),
            Err(why) => HelperReply::Failed(why),
        }
    }

    fn install(&mut self, rules: Ruleset, clients: &[Ban]) -> Result<(), String> {
        // whoever says the rules may be a process that was taken over
        if self.rules.as_ref().is_some_and(|known| known.table != rules.table) {
            return Err(format!("{:?} is the table of something else", rules.table));
        }
        if self._lock.is_none() {
            self._lock = Some(lock(&rules.table)?);
        }
        if self.rules.is_some() {
            // what it has counted goes with it; it may have gone already
            let _ = self.with(ruleset::count);
        }
        ask(&self.nft, &ruleset::install(&rules, clients))?;
        self.rules = Some(rules);
        Ok(())
    }

    /// Has the table, if there is one, changed or asked.
    fn with(&mut self, change: impl FnOnce(&str) -> Value) -> Result<(), String> {
        let Some(rules) = &self.rules else { return Err("there is no table yet".to_owned()) };
        let said = ask(&self.nft, &change(&rules.table))?;
        for (total, more) in
            self.counted.iter_mut().zip(ruleset::counted(&said).unwrap_or_default())
        {
            *total += more;
        }
        Ok(())
    }

    fn remove(&mut self) {
        if let Some(rules) = self.rules.take() {
            // it may have been removed by another program
            let _ = ask(&self.nft, &ruleset::remove(&rules.table));
        }
    }
}

/// Takes the name of a table, which goes with the process.
fn lock(table: &str) -> Result<UnixListener, String> {
    let deadline = Instant::now() + HELD;
    let address = SocketAddr::from_abstract_name(format!("forebay-firewall-{table}"));
    let address = address.map_err(|error| error.to_string())?;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error.to_string()),
            Err(_) if Instant::now() >= deadline => {
                return Err(format!(
                    "another server has the table {table:?}: give each one of its own by \
                     firewall.table"
                ));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Has `nft` do what a document says, as one transaction, and says what it has printed.
fn ask(nft: &Path, document: &Value) -> Result<Value, String> {
    let run = || {
        let mut child = Command::new(nft)
            .args(["-j", "-f", "-"])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // what it does not read it says something about
            let _ = input.write_all(document.to_string().as_bytes());
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| format!("cannot run {}: {error}", nft.display()))?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).unwrap_or_default());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim();
    let first: String = first.chars().take(300).collect();
    Err(format!("nft says: {}", first.trim_start_matches("internal:0:0-0: ")))
}
