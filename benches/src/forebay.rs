//! Forebay with a configuration of one's own: on its core, known to listen, ended when dropped.

use crate::cage::Cage;
use crate::running::{self, Process};
use crate::{Error, machine, probe};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Where and how it is started.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    /// The binary.
    pub program: &'p Path,
    /// A folder for its configuration and what it says.
    pub scratch: &'p Path,
    /// The core it runs on.
    pub core: usize,
    /// Whether its memory is that of [a cage](crate::cage), on an empty page cache.
    pub caged: bool,
}

/// A server under way.
#[derive(Debug)]
pub struct Forebay {
    // ended before the cage is removed
    process: Process,
    _cage: Option<Cage>,
    port: u16,
    admin: u16,
}

impl Forebay {
    /// Starts it with `lines` besides its two listeners, on the first free ports from `from` on;
    /// `@PORT@` in `lines` is the port that clients come to.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(place: &Place<'_>, lines: &str, from: u16) -> Result<Forebay, Error> {
        let free = |from| running::free_port(from).ok_or(Error::Client("no free port".into()));
        let port = free(from)?;
        let admin = free(port + 1)?;
        let (file, said) = (place.scratch.join("forebay.toml"), place.scratch.join("said"));
        let text = format!(
            "listen = [\"127.0.0.1:{port}\"]\nadmin.listen = \"127.0.0.1:{admin}\"\n\
             control.socket = \"off\"\nlog.access = \"off\"\n\
             limits.requests_per_connection = 0\nlimits.connections_per_client = 100000\n{}",
            lines.replace("@PORT@", &port.to_string())
        );
        fs::write(&file, text).map_err(Error::io("cannot write", &file))?;
        let mut command = Command::new(place.program);
        command.args(["run", "-c"]).arg(&file);
        let cage = place.caged.then(Cage::new).transpose()?;
        if let Some(cage) = &cage {
            command = cage.around(&command);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(&said).map_err(Error::io("cannot write", &said))?);
        let process = Process::start(command, place.core)?;
        running::until_it_listens(&process, port, "forebay", &said)?;
        Ok(Forebay { process, _cage: cage, port, admin })
    }

    /// The port that clients come to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Threads alive, all told.
    pub fn threads(&self) -> u64 {
        running::status(self.process.pid(), "Threads:")
    }

    /// Its metrics as Prometheus has them; empty when it does not answer in time.
    pub fn metrics(&self) -> String {
        let answer = probe::get(self.admin, "metrics", "");
        answer.map_or(String::new(), |answer| String::from_utf8_lossy(&answer.body).into_owned())
    }
}

/// Whether this build of the program takes `lines` in its configuration, which is written to `scratch`.
///
/// # Errors
/// When it cannot be asked.
pub fn takes(program: &Path, lines: &str, scratch: &Path) -> Result<bool, Error> {
    let file = scratch.join("taken.toml");
    fs::write(&file, format!("root = {scratch:?}\n{lines}"))
        .map_err(Error::io("cannot write", &file))?;
    let mut command = Command::new(program);
    command.args(["check", "-c"]).arg(&file).stdin(Stdio::null());
    let asked = command.output().map_err(Error::io("cannot start", program))?;
    Ok(asked.status.success())
}

/// The value of a metric, its labels written as they stand in `metrics`.
pub fn value(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line?.trim().parse().ok()
}

/// The first lines of a results page: what was run, and on what.
pub fn header(title: &str, program: &str, described: &str) -> String {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let date = machine::date("+%Y-%m-%d %H:%M UTC");
    format!("# {title}\n\n- command: `{program} {}`, {date}\n{described}", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_name_and_labels() {
        let text = "# TYPE a gauge\na{phase=\"send\"} 3\na{phase=\"sender\"} 4\nab 5\n";
        assert_eq!(value(text, "a{phase=\"send\"}"), Some(3.0));
        assert_eq!(value(text, "ab"), Some(5.0));
        assert_eq!(value(text, "a"), None);
    }
}
