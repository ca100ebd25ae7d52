//! The helper process that changes the firewall for the server, and alone keeps the right to. It
//! speaks to no client, and does no more than [`HelperMessage`] says: it changes one table, and
//! reads sets of other tables.
//!
//! The helper ends when the server does, in whatever way: its standard input ends then, and it
//! removes the table.

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

/// The directories where `nft` is looked for beyond the server's search path.
const PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// A request of the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HelperMessage {
    /// Make the table anew, with these clients.
    Install(Ruleset, Vec<Ban>),
    /// Drop these clients, too: first those that are not in the table, then those that may be.
    Ban(Vec<Ban>, Vec<Ban>),
    /// Keep the table in force for another while.
    Renew,
    /// Report what the table has counted.
    Count,
    /// Leave the table as it is, for the helper of another server.
    Leave,
    /// Read these sets, each named by family, table and name.
    Sets(Vec<[String; 3]>),
}

/// The answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HelperReply {
    /// The request was carried out; the numbers of SYNs dropped since the start, of clients and of
    /// addresses in lists.
    Done([u64; 2]),
    /// Nothing has changed, and why.
    Failed(String),
    /// For each set the networks in it, by their first address and prefix length, or why the set
    /// cannot be read.
    Sets(Vec<Result<Vec<(IpAddr, u8)>, String>>),
}

/// The table as far as the helper has made it.
struct Table {
    nft: PathBuf,
    rules: Option<Ruleset>,
    /// While this is held, no other server in this network namespace has a table of that name.
    _lock: Option<UnixListener>,
    /// The SYNs that were dropped since the start.
    counted: [u64; 2],
}

/// The path of `nft`, if it is installed.
pub fn nft() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(PLACES.map(PathBuf::from));
    let files = places.filter(|place| place.is_absolute()).map(|place| place.join("nft"));
    files.into_iter().find(|file| file.is_file())
}

/// Why the server cannot use a firewall on this machine, as far as a process without rights can
/// see.
pub fn lack() -> Option<String> {
    let is_missing = nft().is_none();
    is_missing.then(|| "there is no nft here; the package nftables has it".to_owned())
}

/// Carries out the requests that come on standard input, line by line, until it ends.
///
/// # Errors
/// Why the helper cannot start.
pub fn run() -> io::Result<()> {
    // signals to the whole process group are for the server, which may still have clients
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
        // the rules may come from a compromised process
        if self.rules.as_ref().is_some_and(|known| known.table != rules.table) {
            return Err(format!("{:?} is the table of something else", rules.table));
        }
        if self._lock.is_none() {
            self._lock = Some(lock(&rules.table)?);
        }
        if self.rules.is_some() {
            // the old table's counters go with it, so they are read first; the table may be gone
            // already
            let _ = self.with(ruleset::count);
        }
        ask(&self.nft, &ruleset::install(&rules, clients))?;
        self.rules = Some(rules);
        Ok(())
    }

    /// Changes or reads the table, if there is one, and adds up its counters.
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
            // another program may have removed the table
            let _ = ask(&self.nft, &ruleset::remove(&rules.table));
        }
    }
}

/// Takes a lock on the name of a table; the kernel releases it with the process.
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

/// Has `nft` carry out a document as one transaction, and returns its output.
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
            // if nft stops reading, its exit status and error output say why
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
