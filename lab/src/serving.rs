//! A server under way: Forebay or another, with the servers behind it. Ended when dropped.

use crate::cage::{Cage, CageLimits};
use crate::run::Run;
use crate::running::{self, ChildProcess};
use crate::{Error, peers, probe};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const READY_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// The parameters with which Forebay is started.
#[derive(Clone, Copy, Debug)]
pub struct Forebay<'f> {
    /// The configuration but for listeners; `@PORT@` is the port that clients connect to, `@TMP@`
    /// the server's folder.
    pub lines: &'f str,
    /// The binary, if it is not the one of the run.
    pub program: Option<&'f Path>,
    /// The limits of what it gets of the machine; all of it if `None`.
    pub cage: Option<CageLimits>,
    /// Whether the server can be asked for its metrics.
    pub admin: bool,
}

impl<'f> Forebay<'f> {
    /// The program of the run with these lines and metrics.
    pub fn new(lines: &'f str) -> Forebay<'f> {
        Forebay { lines, program: None, cage: None, admin: true }
    }
}

/// A process of a server.
#[derive(Clone, Copy, Debug)]
pub struct PeerProcess<'p> {
    /// The peer's file in `lab/peers`.
    pub peer: &'p str,
    /// The program, if it is not the file's.
    pub program: Option<&'p Path>,
    /// A folder of its own within that of the server, if the server has several.
    pub folder: &'p str,
    /// Lines that stay or go.
    pub tags: &'p [(&'p str, bool)],
    /// Words besides `@PORT@`, `@ADMIN@`, `@ROOT@` and `@TMP@`.
    pub words: &'p [(&'p str, String)],
    /// The limits of what it gets of the machine, together with the server's other processes; all
    /// of it if `None`.
    pub cage: Option<CageLimits>,
}

impl<'p> PeerProcess<'p> {
    /// A process that needs nothing but its file.
    pub fn new(peer: &'p str) -> PeerProcess<'p> {
        PeerProcess { peer, program: None, folder: "", tags: &[], words: &[], cage: None }
    }
}

/// All processes of a server, the one that clients connect to first.
#[derive(Debug)]
pub struct Serving {
    // ended before the cage is removed
    processes: Vec<ChildProcess>,
    cage: Option<Cage>,
    port: u16,
    admin: Option<u16>,
    folder: PathBuf,
}

impl Serving {
    /// Starts Forebay in a new folder and waits until it listens.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn forebay(run: &Run, forebay: &Forebay<'_>) -> Result<Serving, Error> {
        let (folder, port, admin) = (run.folder()?, run.port()?, run.port()?);
        // `LINES` is filled in before the other words, so lines may have words themselves
        let mut serving = Serving::empty(&folder, port);
        serving.admin = forebay.admin.then_some(admin);
        let words = [("LINES", format!("{}{}", forebay.lines, run.options.set))];
        let part = PeerProcess {
            program: Some(forebay.program.unwrap_or(&run.options.program)),
            tags: &[("admin", forebay.admin)],
            words: &words,
            cage: forebay.cage,
            ..PeerProcess::new("forebay.toml")
        };
        serving.add(run, &part)?;
        serving.until(run, "forebay", listens)?;
        Ok(serving)
    }

    /// Starts another in a new folder and waits until it listens.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn peer(run: &Run, part: &PeerProcess<'_>) -> Result<Serving, Error> {
        let mut serving = Serving::empty(&run.folder()?, run.port()?);
        serving.add(run, part)?;
        serving.until(run, part.peer, listens)?;
        Ok(serving)
    }

    /// A server without processes yet, in a folder.
    pub fn empty(folder: &Path, port: u16) -> Serving {
        let folder = folder.to_owned();
        Serving { processes: Vec::new(), cage: None, port, admin: None, folder }
    }

    /// Starts another process.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn add(&mut self, run: &Run, part: &PeerProcess<'_>) -> Result<(), Error> {
        let process = self.begun(run, part)?;
        self.processes.push(process);
        Ok(())
    }

    /// Starts a process in the place of another.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn replace(&mut self, run: &Run, at: usize, part: &PeerProcess<'_>) -> Result<(), Error> {
        self.processes[at].end();
        self.processes[at] = self.begun(run, part)?;
        Ok(())
    }

    /// The process started as number `at`.
    pub fn process(&self, at: usize) -> &ChildProcess {
        &self.processes[at]
    }

    /// Starts another command, which has its standard input and output.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn spawn(&mut self, run: &Run, mut command: Command) -> Result<(), Error> {
        let said = fs::OpenOptions::new().create(true).append(true).open(self.said());
        command.stderr(said.map_err(Error::io("cannot write", &self.folder))?);
        self.processes.push(ChildProcess::start(command, run.core)?);
        Ok(())
    }

    /// Reads all files in the cage that are in memory then. The first ones, which are asked for
    /// most, are read last.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read_once(&self, files: &Path) -> Result<(), Error> {
        let Some(cage) = &self.cage else { return Ok(()) };
        let mut reader = Command::new("sh");
        reader.arg("-c").arg("find \"$0\" -type f | sort -r | xargs -d '\\n' cat >/dev/null");
        reader.arg(files);
        let status = cage.around(&reader).status().map_err(Error::io("cannot start", "sh"))?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Client(format!("{}: files cannot be read", files.display()))),
        }
    }

    /// Bounds the server's processor time from here on, where that is asked for.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn throttle(&self) -> Result<(), Error> {
        self.cage.as_ref().map_or(Ok(()), Cage::throttle)
    }

    /// Ends all processes. Returns whether one had to be killed.
    pub fn end(&mut self) -> bool {
        self.processes
            .iter_mut()
            .map(ChildProcess::end)
            .fold(false, |any, is_killed| any | is_killed)
    }

    /// The server's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn begun(&mut self, run: &Run, part: &PeerProcess<'_>) -> Result<ChildProcess, Error> {
        let folder = self.folder.join(part.folder);
        fs::create_dir_all(&folder).map_err(Error::io("cannot make the folder", &folder))?;
        let own = [
            ("PORT", self.port.to_string()),
            ("ADMIN", self.admin.unwrap_or_default().to_string()),
            ("ROOT", run.root.display().to_string()),
        ];
        let name = Path::new(part.peer).file_name().unwrap_or_default();
        let file = folder.join(name);
        let words = [part.words, &own].concat();
        peers::write(part.peer, &file, part.tags, &words)?;
        let mut command = peers::command(part.peer, "run", part.program, &file, &words);
        if let Some(limits) = &part.cage {
            let cage = match self.cage.take() {
                Some(cage) => cage,
                None => Cage::new(limits)?,
            };
            command = cage.around(&command);
            self.cage = Some(cage);
        }
        let said = fs::OpenOptions::new().create(true).append(true).open(self.said());
        command.stderr(said.map_err(Error::io("cannot write", &self.folder))?);
        ChildProcess::start(command, run.core)
    }

    /// Waits until `is_there` succeeds.
    ///
    /// # Errors
    /// When a process has ended, or it takes longer than any server should.
    pub fn until(
        &self,
        run: &Run,
        name: &str,
        is_there: impl Fn(&Serving) -> io::Result<()>,
    ) -> Result<(), Error> {
        let end = Instant::now() + READY_WITHIN;
        while let Err(error) = is_there(self) {
            run.go_on()?;
            if self.processes.iter().any(ChildProcess::has_ended) || Instant::now() > end {
                let said = fs::read_to_string(self.said()).unwrap_or_default();
                let said = format!("{error}\n{}", running::last_lines(&said));
                return Err(Error::NotReady { server: name.to_owned(), said });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// The file of the processes' standard error.
    pub fn said(&self) -> PathBuf {
        self.folder.join("said")
    }

    /// Asks for a file once.
    ///
    /// # Errors
    /// When it is not answered.
    pub fn get(&self, file: &str) -> io::Result<probe::Answer> {
        probe::get(self.port, file, "Connection: close\r\n")
    }

    /// Asks for a file once, so that it stays in memory.
    ///
    /// # Errors
    /// When it is not answered.
    pub fn asked(&self, file: &str) -> Result<(), Error> {
        self.get(file).map(|_| ()).map_err(Error::io("no answer for", file))
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// All the server's processes.
    pub fn family(&self) -> Vec<u32> {
        self.processes.iter().flat_map(running::family).collect()
    }

    /// The number of threads that are alive, of all processes.
    pub fn threads(&self) -> u64 {
        self.family().iter().map(|pid| running::status(*pid, "Threads:")).sum()
    }

    /// Forebay's metrics as Prometheus has them; empty when there are none, or not in time.
    pub fn metrics(&self) -> String {
        let answer = self.admin.map(|admin| probe::get(admin, "metrics", ""));
        match answer {
            Some(Ok(answer)) => String::from_utf8_lossy(&answer.body).into_owned(),
            _ => String::new(),
        }
    }
}

/// Checks that the server listens.
pub fn listens(serving: &Serving) -> io::Result<()> {
    std::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, serving.port)).map(|_| ())
}
