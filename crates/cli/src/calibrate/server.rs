//! The server that is measured: this program's own, on loopback, on one core, ended when dropped.

use super::error::CalibrateError;
use forebay_sys::process;
use forebay_sys::schedule::{self, Spent};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// This very program, also when its file was replaced meanwhile.
const OWN: &str = "/proc/self/exe";
const READY_WITHIN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// A folder that is removed with everything in it when dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Scratch, CalibrateError> {
        let path = std::env::temp_dir().join(format!("forebay-calibrate-{}", std::process::id()));
        fs::create_dir(&path).map_err(CalibrateError::io("cannot make the folder", &path))?;
        Ok(Scratch(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // nothing can be done about a failure
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server under way.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    clients: SocketAddr,
    admin: SocketAddr,
}

impl Server {
    /// Starts `forebay run` on `core` for the files of `root`, with `lines` of configuration besides,
    /// and waits until it listens. `name` is that of its files in `root`'s folder.
    pub(super) fn start(
        root: &Path,
        name: &str,
        lines: &str,
        core: usize,
        stop: &AtomicBool,
    ) -> Result<Server, CalibrateError> {
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
        // a Ctrl-C is for this process, which then ends the server
        command.process_group(0);
        let child = spawn_on(core, &mut command).map_err(CalibrateError::io("cannot run", OWN))?;
        let mut server = Server { child, clients, admin };
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

    /// Where clients come to.
    pub(super) fn address(&self) -> SocketAddr {
        self.clients
    }

    /// What each of its threads has spent so far, by name.
    pub(super) fn threads(&self) -> Result<Vec<(String, Spent)>, CalibrateError> {
        let pid = self.child.id();
        let path = format!("/proc/{pid}/task");
        schedule::threads_of(pid)
            .map_err(CalibrateError::io("no figures of the scheduler in", path))
    }

    /// What all its threads have spent so far.
    pub(super) fn spent(&self) -> Result<Spent, CalibrateError> {
        let sum = |sum: Spent, one: &Spent| Spent {
            run_ns: sum.run_ns + one.run_ns,
            runnable_ns: sum.runnable_ns + one.runnable_ns,
        };
        Ok(self.threads()?.iter().map(|(_, spent)| spent).fold(Spent::default(), sum))
    }

    /// Its metrics, as Prometheus has them; nothing while it does not answer.
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

impl Drop for Server {
    fn drop(&mut self) {
        // it writes nothing that could be left half done
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a process that is bound to a core, as all its threads are then.
fn spawn_on(core: usize, command: &mut Command) -> io::Result<Child> {
    // a child has the cores of the thread that starts it
    let start = || {
        process::pin_to_core(core)?;
        command.spawn()
    };
    std::thread::scope(|scope| {
        let ended = scope.spawn(start).join();
        ended.unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")))
    })
}

/// Two addresses nobody listens at. Of 127.0.0.1 a connection that just begins could take the port
/// before the server does: connections do not come from the loopback address of this process.
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
