//! What code could do that has taken a stage over. Where [`WANTED`] is in the environment, each stage tries it once it is
//! confined, before it serves, and says how each attempt went. None of them changes anything.
//!
//! The manual has the table (`docs/manual/isolated.md`), and a test compares it with what the stages say.
//! Which processes there are is looked up before: a stage that is confined cannot.

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

/// The variable of the environment by which an operator asks for it.
const WANTED: &str = "FOREBAY_TRY";

/// Where nobody listens: who is refused there may connect.
const NOWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 1);
const PATIENCE: Duration = Duration::from_secs(2);

/// What a stage must know beforehand of what it tries.
#[derive(Debug)]
pub struct StageAttempts {
    role: Role,
    instance: u64,
    content: PathBuf,
    /// The configuration file.
    file: PathBuf,
    supervisor: u32,
    /// Stages that were started before.
    others: Vec<u32>,
    /// Listens at a name that is in no file system.
    named: UnixListener,
}

impl StageAttempts {
    /// Those of the stage that this configuration is for, if they are asked for. To be called before it is confined.
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

    /// Tries all of it, and says how it went.
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
        // who may make a file in a directory may remove it
        fs::remove_file(&path).or(Ok(()))
    }

    /// To a socket that was there before this process was confined, as those of other programs are.
    fn connect_to_name(&self) -> io::Result<()> {
        UnixStream::connect_addr(&self.named.local_addr()?).map(drop)
    }

    /// Whether it can be done to any of the others.
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
