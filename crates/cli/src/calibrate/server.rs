//! The server that is measured: this program's own, on loopback, on one core, ended when dropped, and
//! killed with this process.

use super::error::CalibrateError;
use forebay_sys::process;
use forebay_sys::schedule::{self, Spent};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The path of the running program, valid even after its file was replaced.
const OWN: &str = "/proc/self/exe";
const READY_WITHIN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// A running server.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    clients: SocketAddr,
    admin: SocketAddr,
}

impl ServerProcess {
    /// Starts `forebay run` on `core` for the files of `root`, with further `lines` of configuration, and
    /// waits until it listens. The server's own files in `root`'s folder begin with `name`.
    pub(super) fn start(
        root: &Path,
        name: &str,
        lines: &str,
        core: usize,
        stop: &AtomicBool,
    ) -> Result<ServerProcess, CalibrateError> {
        let folder = root.parent().unwrap_or(root);
        let (file, said) = (folder.join(format!("{name}.toml")), folder.join(name));
        let (clients, admin) = free_addresses()?;
        let text = format!(
            "root = {root:?}\nlisten = [\"{clients}\"]\nadmin.listen = \"{admin}\"\n\
             engine = \"pipeline\"\nworkers = 1\nlog.access = \"off\"\ncontrol.socket = \"off\"\n\
             limits.requests_per_connection = 0\nlimits.connections_per_client = 100000\n\
             sample = 0\n{lines}"
        );
        fs::write(&file, text).map_err(CalibrateError::io("cannot write", &file))?;
        let errors = File::create(&said).map_err(CalibrateError::io("cannot write", &said))?;
        let mut command = Command::new(OWN);
        command.arg0("forebay").args(["run", "-c"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        // a process group of its own: Ctrl-C must reach only this process, which then ends the server
        command.process_group(0);
        let child = process::spawn_on_core(core, &mut command);
        let child = child.map_err(CalibrateError::io("cannot run", OWN))?;
        let mut server = ServerProcess { child, clients, admin };
        server.wait(&said, stop)?;
        Ok(server)
    }

    fn wait(&mut self, said: &Path, stop: &AtomicBool) -> Result<(), CalibrateError> {
        let end = Instant::now() + READY_WITHIN;
        while TcpStream::connect(self.clients).is_err() {
            if stop.load(Ordering::Relaxed) {
                return Err(CalibrateError::Interrupted);
            }
            let has_ended = !matches!(self.child.try_wait(), Ok(None));
            if has_ended || Instant::now() > end {
                let said = fs::read_to_string(said).unwrap_or_default();
                return Err(CalibrateError::Server { said: said.trim_end().to_owned() });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The address for clients.
    pub(super) fn address(&self) -> SocketAddr {
        self.clients
    }

    /// The time that each of the server's threads has used so far, by name.
    pub(super) fn threads(&self) -> Result<Vec<(String, Spent)>, CalibrateError> {
        let pid = self.child.id();
        let path = format!("/proc/{pid}/task");
        schedule::threads_of(pid)
            .map_err(CalibrateError::io("no figures of the scheduler in", path))
    }

    /// The time that all of the server's threads have used so far.
    pub(super) fn spent(&self) -> Result<Spent, CalibrateError> {
        let sum = |sum: Spent, one: &Spent| Spent {
            run_ns: sum.run_ns + one.run_ns,
            runnable_ns: sum.runnable_ns + one.runnable_ns,
        };
        Ok(self.threads()?.iter().map(|(_, spent)| spent).fold(Spent::default(), sum))
    }

    /// The server's answer to a client that accepts every coding, without the date.
    pub(super) fn answer(&self, path: &str) -> Result<Vec<u8>, CalibrateError> {
        let request = format!(
            "GET /{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Accept-Encoding: br, zstd, gzip\r\n\r\n",
            self.clients
        );
        let ask = || -> io::Result<Vec<u8>> {
            let mut socket = TcpStream::connect_timeout(&self.clients, READY_WITHIN)?;
            socket.set_read_timeout(Some(READY_WITHIN))?;
            socket.write_all(request.as_bytes())?;
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer)?;
            Ok(without_date(&answer))
        };
        ask().map_err(CalibrateError::io("no answer for", path))
    }

    /// The server's metrics in Prometheus' format; empty while it does not answer.
    pub(super) fn metrics(&self) -> String {
        let ask = || -> io::Result<String> {
            let mut socket = TcpStream::connect_timeout(&self.admin, PATIENCE)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            let request = format!("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.admin);
            socket.write_all(request.as_bytes())?;
            let mut answer = String::new();
            socket.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().unwrap_or_default()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // the server writes no file that a kill could leave half written
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer without the field `Date`.
fn without_date(answer: &[u8]) -> Vec<u8> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(answer.len());
    let (head, rest) = answer.split_at(end);
    let is_date =
        |line: &&[u8]| line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"date:"));
    let lines = head.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_date(line));
    lines.chain([rest]).flatten().copied().collect()
}

/// Two free addresses, on a loopback address of this process's own. At 127.0.0.1 an outgoing connection could
/// take the port before the server does.
fn free_addresses() -> Result<(SocketAddr, SocketAddr), CalibrateError> {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    // process ids have 22 bits
    let own = Ipv4Addr::new(127, a | 64, b, c);
    let bind = || TcpListener::bind((own, 0));
    let both = bind().and_then(|one| {
        let other = bind()?;
        Ok((one.local_addr()?, other.local_addr()?))
    });
    both.map_err(CalibrateError::io("no free port on", own.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_differ_in_more_than_the_time_of_day() {
        let answer = |date, body| {
            let head = format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 2\r\n\r\n");
            without_date(&[head.as_bytes(), body].concat())
        };
        assert_eq!(answer("now", b"a\n"), answer("later", b"a\n"));
        assert_ne!(answer("now", b"a\n"), answer("now", b"b\n"));
        assert!(answer("now", b"date:").ends_with(b"2\r\n\r\ndate:"));
    }
}
