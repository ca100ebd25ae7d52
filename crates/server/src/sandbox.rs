//! What the server may reach in the file system from its start on (Landlock): what it serves, to
//! read; what it logs to, to write; nothing else. A mistake in the server, or in a link that a user
//! put into a root, cannot lead further.
//!
//! It holds for the thread that [`confine`]s itself and those it starts, and cannot be taken back. A
//! reload that needs more fails as a whole.

use crate::acme;
use crate::config::{Config, Confine, Listen, SiteConfig};
use crate::isolated;
use crate::privileges;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use std::fmt;
use std::path::{Path, PathBuf};

/// The newest kernel interface that is asked for (Linux 6.10); older ones confine as far as they can.
const INTERFACE: ABI = ABI::V5;

/// One place, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NeededPath {
    key: &'static str,
    path: PathBuf,
    /// Why it must be reached.
    what: PathUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathUse {
    Read,
    /// Log files: made, appended to, found again after a rotation.
    Log,
    /// Sockets: made and removed.
    Socket,
    /// Files that are made, replaced by a rename, and removed.
    Store,
}

impl PathUse {
    fn access(self) -> BitFlags<AccessFs> {
        match self {
            PathUse::Read => AccessFs::ReadFile | AccessFs::ReadDir,
            PathUse::Log => AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::ReadDir,
            PathUse::Socket => AccessFs::MakeSock | AccessFs::RemoveFile,
            PathUse::Store => {
                let read = AccessFs::ReadFile | AccessFs::ReadDir;
                let write = AccessFs::WriteFile | AccessFs::Truncate;
                read | write | AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::RemoveFile
            }
        }
    }
}

/// Everything that a configuration needs to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxNeeds(Vec<NeededPath>);

impl SandboxNeeds {
    /// Of `config`, which was read from `file`; the control socket is at `control`.
    pub fn of(config: &Config, file: Option<&Path>, control: Option<&Path>) -> SandboxNeeds {
        let mut needs = SandboxNeeds::default();
        if isolated::is_sealed(config) {
            // held back as a spare descriptor
            needs.add("", PathBuf::from("/dev/null"), PathUse::Read);
            return needs;
        }
        for site in &config.sites {
            // a new version of a root takes its place by a link or a rename beside it
            let roots = site.root.iter().flat_map(|root| forebay_site::root_directories(root));
            roots.for_each(|directory| needs.add("root", directory, PathUse::Read));
            for mount in site.mounts() {
                let key = if site.aliases.contains(&mount) { "alias.to" } else { "links" };
                let directories = forebay_site::root_directories(&mount.to);
                directories.into_iter().for_each(|at| needs.add(key, at, PathUse::Read));
            }
            for file in site.auth.iter().filter_map(|auth| auth.file.as_deref()) {
                needs.add_directory_of("auth.file", file, PathUse::Read);
            }
        }
        for site in &config.sites {
            site.tls.pairs.files().for_each(|file| needs.add_file("tls.certificate", file));
            site.tls.clients.files().for_each(|file| needs.add_file("tls.client_ca", file));
        }
        let admin = &config.admin;
        admin.pairs.files().for_each(|file| needs.add_file("admin.tls.certificate", file));
        admin.token_file.iter().for_each(|file| needs.add_file("admin.token_file", file));
        config.identity.keys.iter().for_each(|file| needs.add_file("identity.keys", file));
        // names are looked up as the machine says, which others replace by a rename
        let with_acme = config.sites.iter().any(SiteConfig::has_acme);
        if with_acme {
            needs.add("acme.storage", config.acme.files().directory().to_owned(), PathUse::Store);
            match &config.acme.ca {
                Some(file) => needs.add_file("acme.ca", file),
                None => {
                    acme::ROOTS.iter().for_each(|at| needs.add("acme", at.into(), PathUse::Read))
                }
            }
        }
        if with_acme || config.sites.iter().any(SiteConfig::names_upstreams) {
            needs.add_directory_of("to", Path::new("/etc/hosts"), PathUse::Read);
            if let Ok(target) = std::fs::canonicalize("/etc/resolv.conf") {
                needs.add_directory_of("to", &target, PathUse::Read);
            }
        }
        for path in &config.sandbox.read {
            needs.add("sandbox.read", path.clone(), PathUse::Read);
        }
        if let Some(file) = file {
            needs.add_directory_of("the configuration file", file, PathUse::Read);
        }
        if let Some(file) = &config.pipeline.calibration {
            needs.add_directory_of("pipeline.calibration", file, PathUse::Read);
        }
        for path in privileges::logs(config) {
            needs.add_directory_of("log.access", path, PathUse::Log);
        }
        for endpoint in config.listeners.iter().flat_map(|listener| &listener.listen) {
            if let Listen::Unix(path) = &endpoint.listen {
                needs.add_directory_of("listen", path, PathUse::Socket);
            }
        }
        for endpoint in &config.admin.listen.0 {
            if let Listen::Unix(path) = &endpoint.listen {
                needs.add_directory_of("admin.listen", path, PathUse::Socket);
            }
        }
        if let Some(control) = control {
            needs.add_directory_of("control.socket", control, PathUse::Socket);
        }
        // the scheduler's figures of threads, for the controller of a pipeline
        needs.add("", PathBuf::from("/proc/self/task"), PathUse::Read);
        // held back as a spare descriptor
        needs.add("", PathBuf::from("/dev/null"), PathUse::Read);
        needs
    }

    /// A file that is read again when it changes.
    fn add_file(&mut self, key: &'static str, file: &Path) {
        self.add_directory_of(key, file, PathUse::Read);
        // programs that replace such files keep them elsewhere, and links to them
        if let Ok(target) = std::fs::canonicalize(file) {
            self.add_directory_of(key, &target, PathUse::Read);
        }
    }

    fn add_directory_of(&mut self, key: &'static str, path: &Path, what: PathUse) {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.add(key, directory.to_owned(), what);
    }

    fn add(&mut self, key: &'static str, path: PathBuf, what: PathUse) {
        // what is not there cannot be opened either, and what needs it says so
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let need = NeededPath { key, path, what };
        if !self.0.iter().any(|known| (&known.path, known.what) == (&need.path, what)) {
            self.0.push(need);
        }
    }
}

/// What holds since the start.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// What may be reached; `None` if everything may.
    within: Option<SandboxNeeds>,
}

/// Something lies outside of what the server may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The setting that needs it.
    pub key: &'static str,
    /// What it needs.
    pub path: PathBuf,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outside { key, path } = self;
        write!(
            f,
            "{key}: {} lies outside of what the server may reach since its start: restart it, and \
             name such directories in sandbox.read",
            path.display()
        )
    }
}

/// The kernel does not confine, but is told to.
#[derive(Debug)]
pub struct SandboxError {
    /// What is missing.
    pub reason: String,
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox.landlock is on, but the server cannot be confined: {}", self.reason)
    }
}

impl std::error::Error for SandboxError {}

/// Confines the calling thread, and all it starts, to `needs`, as `setting` says.
///
/// # Errors
/// If it must be and cannot.
pub fn confine(needs: SandboxNeeds, setting: Confine) -> Result<Sandbox, SandboxError> {
    if setting == Confine::Off {
        return Ok(Sandbox { within: None });
    }
    match restrict(&needs) {
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {
            Ok(Sandbox { within: Some(needs) })
        }
        Ok(RulesetStatus::NotEnforced) if setting == Confine::Auto => Ok(Sandbox { within: None }),
        Ok(RulesetStatus::NotEnforced) => {
            Err(SandboxError { reason: "this kernel has no Landlock, or it is off".to_owned() })
        }
        Err(error) if setting == Confine::On => Err(SandboxError { reason: error.to_string() }),
        Err(_) => Ok(Sandbox { within: None }),
    }
}

fn restrict(needs: &SandboxNeeds) -> Result<RulesetStatus, landlock::RulesetError> {
    let handled = AccessFs::from_all(INTERFACE);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        .create()?;
    for need in &needs.0 {
        let Ok(place) = PathFd::new(&need.path) else { continue };
        let access = match need.path.is_dir() {
            true => need.what.access(),
            // rights to what is in a directory mean nothing for a file
            false => need.what.access() & AccessFs::from_file(INTERFACE),
        };
        rules = rules.add_rule(PathBeneath::new(place, access))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

impl Sandbox {
    /// Whether everything that `needs` names can be reached.
    ///
    /// # Errors
    /// The first thing that cannot.
    pub fn allows(&self, needs: &SandboxNeeds) -> Result<(), Outside> {
        let Some(within) = &self.within else { return Ok(()) };
        let is_within = |need: &&NeededPath| {
            let mut known = within.0.iter().filter(|known| known.what == need.what);
            known.any(|known| need.path.starts_with(&known.path))
        };
        match needs.0.iter().find(|need| !is_within(need)) {
            None => Ok(()),
            Some(NeededPath { key, path, .. }) => Err(Outside { key, path: path.clone() }),
        }
    }

    /// Whether the kernel confines the server.
    pub fn is_on(&self) -> bool {
        self.within.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;

    fn needs(list: &[(&Path, PathUse)]) -> SandboxNeeds {
        let mut needs = SandboxNeeds::default();
        list.iter().for_each(|(path, what)| needs.add("test", path.to_path_buf(), *what));
        needs
    }

    #[test]
    fn nothing_else_can_be_reached() {
        let base = std::env::temp_dir().join(format!("forebay-sandbox-{}", std::process::id()));
        for directory in ["root", "logs", "else"] {
            fs::create_dir_all(base.join(directory)).unwrap();
            fs::write(base.join(directory).join("file"), "x").unwrap();
        }
        let [root, logs, other] = ["root", "logs", "else"].map(|name| base.join(name));
        let list = needs(&[(&root, PathUse::Read), (&logs, PathUse::Log)]);
        let again = needs(&[(&root.join("."), PathUse::Read)]);
        let more = needs(&[(&root, PathUse::Read), (&other, PathUse::Read)]);
        let confined = std::thread::spawn(move || {
            let sandbox = confine(list, Confine::Auto).unwrap();
            if !sandbox.is_on() {
                eprintln!("SKIPPED: this kernel has no Landlock");
                return;
            }
            assert_eq!(fs::read(root.join("file")).unwrap(), b"x");
            fs::write(logs.join("new"), "y").unwrap();
            let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
            assert_eq!(kind(fs::write(root.join("new"), "")), ErrorKind::PermissionDenied);
            assert_eq!(kind(fs::read(other.join("file")).map(drop)), ErrorKind::PermissionDenied);
            assert_eq!(kind(fs::read("/etc/passwd").map(drop)), ErrorKind::PermissionDenied);
            assert_eq!(sandbox.allows(&again), Ok(()));
            let outside = sandbox.allows(&more).unwrap_err();
            assert!(outside.path.ends_with("else"), "{outside}");
        });
        let outcome = confined.join();
        fs::remove_dir_all(&base).unwrap();
        outcome.unwrap();
    }

    #[test]
    fn names_of_applications_can_be_looked_up() {
        let needs = |to: &str| {
            let text = format!("[[proxy]]\npath = \"/\"\nto = \"{to}\"\n");
            let config = crate::config::parse(&text, "/etc/forebay/forebay.toml").unwrap();
            SandboxNeeds::of(&config, None, None)
        };
        let has_etc = |needs: SandboxNeeds| {
            needs.0.iter().any(|need| need.path == Path::new("/etc") && need.what == PathUse::Read)
        };
        assert!(has_etc(needs("http://app.internal")));
        assert!(!has_etc(needs("http://10.0.0.1")));
    }

    #[test]
    fn without_it_everything_is_allowed() {
        let sandbox = confine(SandboxNeeds::default(), Confine::Off).unwrap();
        assert!(!sandbox.is_on());
        assert_eq!(sandbox.allows(&needs(&[(Path::new("/"), PathUse::Read)])), Ok(()));
    }
}
