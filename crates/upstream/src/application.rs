//! An application behind: its upstreams, what is known of them, and how they are reached.

use crate::group::{Group, Member, Unavailable};
use crate::health::Told;
use crate::settings::{self, Address};
use forebay_sys::client::{self, ConnectOptions};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// One application, shared by all who ask it.
#[derive(Debug)]
pub struct Application {
    number: u64,
    settings: settings::Application,
    group: Mutex<Group>,
    upstreams: Vec<Upstream>,
}

/// One of its upstreams.
#[derive(Debug)]
struct Upstream {
    /// What logs call it.
    label: String,
    /// Host and port, as a request names them.
    authority: String,
    address: Address,
    targets: RwLock<Vec<Target>>,
    /// Of several addresses, each in turn.
    next: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Socket(SocketAddr),
    Unix(PathBuf),
}

impl Application {
    /// As the settings say. Names are looked up, which may take its time; one that has no address now may
    /// have one [later](Application::look_up).
    pub fn new(settings: settings::Application, now_ms: u64) -> Arc<Application> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let upstreams = settings.group().to.iter().map(|address| Upstream {
            label: address.to_string(),
            authority: address.authority(),
            address: address.clone(),
            targets: RwLock::default(),
            next: AtomicUsize::new(0),
        });
        let application = Application {
            number,
            group: Mutex::new(Group::new(settings.group(), number, now_ms)),
            upstreams: upstreams.collect(),
            settings,
        };
        application.look_up();
        Arc::new(application)
    }

    /// Looks up the addresses of names again. One that is not found keeps those it had.
    pub fn look_up(&self) {
        for upstream in &self.upstreams {
            let targets = upstream.address.targets();
            if !targets.is_empty() {
                *upstream.targets.write().unwrap_or_else(PoisonError::into_inner) = targets;
            }
        }
    }

    /// Whether some of its upstreams have names.
    pub fn has_names(&self) -> bool {
        self.upstreams.iter().any(|upstream| matches!(upstream.address, Address::Name { .. }))
    }

    /// What a person has decided about it.
    pub fn settings(&self) -> &settings::Application {
        &self.settings
    }

    /// No other application has it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(
        &self,
        key: u64,
        tried: &[Member],
        now_ms: u64,
    ) -> Result<Member, Unavailable> {
        self.group().begin(key, tried, now_ms)
    }

    pub(crate) fn end(&self, member: Member, told: Told, now_ms: u64) {
        self.group().end(member, told, now_ms);
    }

    pub(crate) fn may_retry(&self, now_ms: u64) -> bool {
        self.group().may_retry(now_ms)
    }

    /// An upstream that is to be asked whether it is well; the answer is [told](Application::checked).
    pub(crate) fn begin_check(&self, now_ms: u64) -> Option<Member> {
        self.group().begin_check(now_ms)
    }

    pub(crate) fn checked(&self, member: Member, is_good: bool, now_ms: u64) {
        self.group().checked(member, is_good, now_ms);
    }

    /// Whether there is something to be done for it beside requests.
    pub fn needs_upkeep(&self) -> bool {
        self.has_names() || self.settings.group().check.is_some()
    }

    /// What logs call an upstream.
    pub fn label(&self, member: Member) -> &str {
        self.upstreams.get(member).map_or("", |upstream| &upstream.label)
    }

    /// Host and port of an upstream, as a request names them.
    pub fn authority(&self, member: Member) -> &str {
        self.upstreams.get(member).map_or("", |upstream| &upstream.authority)
    }

    /// Begins to connect to an upstream.
    pub(crate) fn connect(&self, member: Member) -> io::Result<OwnedFd> {
        let unknown = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let upstream = self.upstreams.get(member).ok_or_else(unknown)?;
        let target = {
            let targets = upstream.targets.read().unwrap_or_else(PoisonError::into_inner);
            let turn = upstream.next.fetch_add(1, Ordering::Relaxed);
            let at = turn.checked_rem(targets.len()).ok_or_else(unknown)?;
            targets[at].clone()
        };
        match target {
            Target::Socket(address) => client::connect(address, ConnectOptions::default()),
            Target::Unix(path) => client::connect_unix(&path),
        }
    }
}

impl Address {
    /// Where it is. May wait for a name service.
    fn targets(&self) -> Vec<Target> {
        match self {
            Address::Socket(address) => vec![Target::Socket(*address)],
            Address::Unix(path) => vec![Target::Unix(path.clone())],
            Address::Name { host, port } => {
                let found = (&**host, *port).to_socket_addrs();
                let mut targets: Vec<_> = found.into_iter().flatten().map(Target::Socket).collect();
                targets.dedup();
                targets
            }
        }
    }
}
