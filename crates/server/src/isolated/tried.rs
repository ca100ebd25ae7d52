//! Attempts at what code in a compromised stage could do. If `WANTED` is in the environment, each
//! stage makes them once it is confined, before it serves, and logs how each went. No attempt
//! changes anything.
//!
//! The manual has the table (`docs/manual/isolated.md`), and a test compares it with the stages'
//! output. The other processes are looked up beforehand: a confined stage cannot do that.

use forebay_config::{Config, Role};
use forebay_sys::stderr::say;
use forebay_sys::{attempts, privileges};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketAddress, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The environment variable with which an operator asks for the attempts.
const WANTED: &str = "FOREBAY_TRY";

/// An address without a listener: a connection that is refused there was allowed by the
/// confinement.
const NOWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 1);
const PATIENCE: Duration = Duration::from_secs(2);

/// The facts for its attempts that a stage must look up before it is confined.
#[derive(Debug)]
pub struct StageAttempts {
    role: Role,
    instance: u64,
    content: PathBuf,
    /// The configuration file.
    file: PathBuf,
    supervisor: u32,
    /// The processes of stages that were started before.
    others: Vec<u32>,
    /// A listener at an abstract name, which is in no file system.
    named: UnixListener,
}

impl StageAttempts {
    /// Prepares the attempts of this configuration's stage, if the operator asks for them. Must be
    /// called before the stage is confined.
    pub fn wanted(config: &Config) -> Option<StageAttempts> {
        let place = config.place.as_ref().filter(|_| std::env::var_os(WANTED).is_some())?;
        let supervisor = std::os::unix::process::parent_id();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let name = format!("forebay-try-{}", std::process::id());
        let named = SocketAddress::from_abstract_name(name).ok()?;
        let named = UnixListener::bind_addr(&named).ok()?;
        let others = children.split_whitespace().filter_map(|number| number.parse().ok());
        Some(StageAttempts {
            role: place.role,
            instance: place.instance,
            content: config.sites.iter().find_map(|site| site.root.clone()).unwrap_or_default(),
            file: place.file.clone(),
            supervisor,
            others: others.filter(|other| *other != std::process::id()).collect(),
            named,
        })
    }

    /// Makes all attempts, and logs how each went.
    pub fn say(&self) {
        let StageAttempts { role, instance, .. } = self;
        for (what, outcome) in self.outcomes() {
            match outcome {
                Ok(()) => say(format_args!("stage {role} {instance}: {what}: yes")),
                Err(why) => say(format_args!("stage {role} {instance}: {what}: no ({why})")),
            }
        }
    }

    fn outcomes(&self) -> [(&'static str, io::Result<()>); 13] {
        [
            ("reads the content", fs::read_dir(&self.content).map(drop)),
            ("reads the configuration file", File::open(&self.file).map(drop)),
            ("reads other directories", fs::read_dir("/usr").map(drop)),
            ("writes to the content", self.write()),
            ("connects to other ports", connect()),
            ("connects to abstract names", self.connect_to_name()),
            ("listens", TcpListener::bind("127.0.0.1:0").map(drop)),
            ("starts programs", Command::new("/bin/true").status().map(drop)),
            ("signals the first process", attempts::signal(self.supervisor)),
            ("signals other stages", self.any(attempts::signal)),
            ("looks into other stages", self.any(attempts::trace)),
            ("loads programs into the kernel", right(privileges::lacks_for_gate().is_empty())),
            ("changes the firewall", right(privileges::may_change_firewall())),
        ]
    }

    fn write(&self) -> io::Result<()> {
        let path = self.content.join(format!(".forebay-try-{}", std::process::id()));
        OpenOptions::new().write(true).create_new(true).open(&path)?;
        // a process that may create a file in a directory may remove it
        fs::remove_file(&path).or(Ok(()))
    }

    /// Connects to an abstract socket that existed before this process was confined, like those of
    /// other programs.
    fn connect_to_name(&self) -> io::Result<()> {
        UnixStream::connect_addr(&self.named.local_addr()?).map(drop)
    }

    /// Makes an attempt on the other processes, until it succeeds on one.
    fn any(&self, attempt: impl Fn(u32) -> io::Result<()>) -> io::Result<()> {
        let none = Err(io::Error::new(io::ErrorKind::NotFound, "none was there"));
        self.others.iter().fold(none, |known, other| match known {
            Ok(()) => Ok(()),
            Err(_) => attempt(*other),
        })
    }
}

fn connect() -> io::Result<()> {
    match TcpStream::connect_timeout(&SocketAddr::from(NOWHERE), PATIENCE) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        connected => connected.map(drop),
    }
}

fn right(has: bool) -> io::Result<()> {
    has.then_some(()).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
}
