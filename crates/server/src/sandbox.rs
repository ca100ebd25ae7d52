//! The sandbox (Landlock): the parts of the file system that the server may use from its start on,
//! which are its content for reading and its logs for writing, and little else. A mistake in the
//! server, or a link that a user has put into a root, cannot lead further.
//!
//! The sandbox holds for the thread that calls [`confine`] and those it starts, and cannot be
//! undone. A reload that needs more fails as a whole.

mod needs;
mod stage_needs;

pub use needs::SandboxNeeds;

use forebay_config::Confine;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use needs::{NeededPath, PathUse};
use stage_needs::StageNeeds;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The newest kernel interface that is used (Linux 6.10); older kernels confine as far as they can.
const INTERFACE: ABI = ABI::V5;

/// The sandbox that is in force since the start.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// The allowed places; `None` if everything is allowed.
    within: Option<Vec<Reachable>>,
}

/// An allowed place: the file that was at its path at the start. A file that takes its
/// place later is not allowed.
#[derive(Clone, Debug)]
struct Reachable {
    need: NeededPath,
    /// The file's device and inode number.
    identity: (u64, u64),
}

impl Reachable {
    fn covers(&self, need: &NeededPath) -> bool {
        let Reachable { need: known, identity } = self;
        let is_below = known.what == need.what && need.path.starts_with(&known.path);
        is_below && (need.what != PathUse::Read || identity_of(&known.path) == Some(*identity))
    }
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// A setting needs a file outside of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The setting.
    pub key: &'static str,
    /// The file or directory.
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

/// The sandbox is required, and the kernel does not support it.
#[derive(Debug)]
pub struct SandboxError {
    /// The missing feature.
    pub reason: String,
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sandbox.landlock is on, but the server cannot be confined: {}", self.reason)
    }
}

impl std::error::Error for SandboxError {}

/// Confines the calling thread, and all threads that it starts, to `needs`, as far as `setting` demands.
///
/// # Errors
/// If the setting requires the sandbox, and it is not possible.
pub fn confine(needs: SandboxNeeds, setting: Confine) -> Result<Sandbox, SandboxError> {
    if setting == Confine::Off {
        return Ok(Sandbox { within: None });
    }
    let mut within = Vec::new();
    match restrict(needs, &mut within) {
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => {
            Ok(Sandbox { within: Some(within) })
        }
        Ok(RulesetStatus::NotEnforced) if setting == Confine::Auto => Ok(Sandbox { within: None }),
        Ok(RulesetStatus::NotEnforced) => {
            Err(SandboxError { reason: "this kernel has no Landlock, or it is off".to_owned() })
        }
        Err(error) if setting == Confine::On => Err(SandboxError { reason: error.to_string() }),
        Err(_) => Ok(Sandbox { within: None }),
    }
}

/// Applies the rules. A file that does not exist cannot be allowed.
fn restrict(
    needs: SandboxNeeds,
    within: &mut Vec<Reachable>,
) -> Result<RulesetStatus, landlock::RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(INTERFACE))?;
    if let Some(stage) = &needs.stage {
        rules = stage.handle(rules)?;
    }
    let mut rules = rules.create()?;
    for port in needs.stage.iter().flat_map(StageNeeds::ports) {
        rules = rules.add_rule(port)?;
    }
    for need in needs.paths {
        let Ok(place) = PathFd::new(&need.path) else { continue };
        let Some(identity) = identity_of(&need.path) else { continue };
        let access = match need.path.is_dir() {
            true => need.what.access(),
            // rights for the contents of a directory are invalid for a file
            false => need.what.access() & AccessFs::from_file(INTERFACE),
        };
        rules = rules.add_rule(PathBeneath::new(place, access))?;
        within.push(Reachable { need, identity });
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// From what Landlock can keep stages on this machine: files, TCP ports, and both
/// abstract sockets and signals.
pub fn kernel_confines() -> [bool; 3] {
    let strict = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    // a ruleset confines no thread until a thread applies it
    let files = strict().handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create);
    let ports = strict().handle_access(AccessNet::from_all(ABI::V4)).and_then(Ruleset::create);
    let scopes = strict().scope(Scope::from_all(ABI::V6)).and_then(Ruleset::create);
    [files.is_ok(), ports.is_ok(), scopes.is_ok()]
}

impl Sandbox {
    /// Checks that the sandbox allows everything in `needs` that exists or will be made.
    ///
    /// # Errors
    /// The first place that is not allowed.
    pub fn allows(&self, needs: &SandboxNeeds) -> Result<(), Outside> {
        let Some(within) = &self.within else { return Ok(()) };
        let is_outside = |need: &&NeededPath| {
            // a missing file cannot be read, with or without a sandbox
            let matters =
                need.is_of_setting() && (need.what != PathUse::Read || need.path.exists());
            matters && !within.iter().any(|known| known.covers(need))
        };
        match needs.paths.iter().find(is_outside) {
            None => Ok(()),
            Some(NeededPath { key, path, .. }) => Err(Outside { key, path: path.clone() }),
        }
    }

    /// Whether the sandbox is in force.
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
        for directory in ["root", "logs", "sockets", "else"] {
            fs::create_dir_all(base.join(directory)).unwrap();
            fs::write(base.join(directory).join("file"), "x").unwrap();
        }
        let [root, logs, sockets, other] =
            ["root", "logs", "sockets", "else"].map(|name| base.join(name));
        let later = base.join("later");
        let list = needs(&[
            (&root, PathUse::Read),
            (&logs, PathUse::Log),
            (&sockets, PathUse::Socket),
            (&later, PathUse::Read),
        ]);
        let again = needs(&[(&root.join("."), PathUse::Read)]);
        let more = needs(&[(&root, PathUse::Read), (&other, PathUse::Read)]);
        let new = needs(&[(&later, PathUse::Read)]);
        let confined = std::thread::spawn(move || {
            let sandbox = confine(list, Confine::Auto).unwrap();
            if !sandbox.is_on() {
                eprintln!("SKIPPED: this kernel has no Landlock");
                return None;
            }
            assert_eq!(fs::read(root.join("file")).unwrap(), b"x");
            fs::write(logs.join("new"), "y").unwrap();
            let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
            assert_eq!(kind(fs::write(root.join("new"), "")), ErrorKind::PermissionDenied);
            assert_eq!(kind(fs::read(other.join("file")).map(drop)), ErrorKind::PermissionDenied);
            assert_eq!(kind(fs::read("/etc/passwd").map(drop)), ErrorKind::PermissionDenied);
            // the directory can be opened for a lock, but its files cannot be read
            drop(fs::File::open(&sockets).unwrap());
            assert_eq!(kind(fs::read(sockets.join("file")).map(drop)), ErrorKind::PermissionDenied);
            assert_eq!(sandbox.allows(&again), Ok(()));
            let outside = sandbox.allows(&more).unwrap_err();
            assert!(outside.path.ends_with("else"), "{outside}");
            assert_eq!(sandbox.allows(&new), Ok(()), "there is nothing yet");
            Some((root, later, sandbox))
        });
        let outcome = confined.join();
        if let Ok(Some((root, later, sandbox))) = &outcome {
            // neither a new directory nor a replacement of an old one is allowed
            fs::create_dir(later).unwrap();
            fs::rename(root, base.join("old")).unwrap();
            fs::create_dir(root).unwrap();
            for place in [later, root] {
                let outside = sandbox.allows(&needs(&[(place, PathUse::Read)])).unwrap_err();
                assert_eq!(&outside.path, place);
            }
        }
        fs::remove_dir_all(&base).unwrap();
        outcome.unwrap();
    }

    #[test]
    fn without_it_everything_is_allowed() {
        let sandbox = confine(SandboxNeeds::default(), Confine::Off).unwrap();
        assert!(!sandbox.is_on());
        assert_eq!(sandbox.allows(&needs(&[(Path::new("/"), PathUse::Read)])), Ok(()));
    }
}
