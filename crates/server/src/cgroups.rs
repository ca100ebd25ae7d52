//! Control groups of this server: where the kernel has them, how a process gets one, and how they
//! are removed.
//!
//! In: the group that this process is in. Out: groups beneath it, each with limits. The stages of
//! `isolated` have groups ([`isolated`](crate::isolated)), and so have the programs of requests
//! ([`launcher::cgi`](crate::launcher::cgi)).
//!
//! ```text
//!  the group of the server ─┬─ forebay-4711-0      stages: one for each generation, with one for each stage in it
//!                           ├─ forebay-cgi-4712-0  programs: one for each launcher, with one for each request in it
//!                           └─ forebay-supervisor  the server itself. With version 2 a group that has others in it has
//!                                                  no processes
//! ```
//!
//! Each controller is in one hierarchy: with version 2 all are in the same, with version 1 each may have its own.
//! Processes that this server has not started are never moved.

mod directories;

pub(crate) use directories::{
    BUSY, PROCESSES, kill, make, make_locked, remove_abandoned, remove_and_tell, remove_directory,
};
use forebay_sys::file::attribute;
use forebay_sys::folder::is_name;
use forebay_sys::wait_budget::WaitBudget;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the server's own group, where it needs one.
const OWN: &str = "forebay-supervisor";

/// The service manager's name for the group of a service's commands, such as those of a reload.
const OF_COMMANDS: &str = "/.control";

/// Where systemd runs (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// The beginning of the names of groups for stages; the number of the process follows.
pub(crate) const STAGES: &str = "forebay-";

/// A resource that a controller of the kernel limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupController {
    Cpu,
    Memory,
    Pids,
}

impl CgroupController {
    /// All controllers that the server uses.
    pub(crate) const ALL: [CgroupController; 3] =
        [CgroupController::Cpu, CgroupController::Memory, CgroupController::Pids];

    /// The kernel's name for the controller.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CgroupController::Cpu => "cpu",
            CgroupController::Memory => "memory",
            CgroupController::Pids => "pids",
        }
    }
}

/// The hierarchy that has a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupHierarchy {
    /// The directory of the server's group.
    pub(crate) base: PathBuf,
    /// Whether the hierarchy is of version 2.
    pub(crate) is_two: bool,
    /// Whether `base` is the root group here, which no service manager owns.
    pub(crate) is_top: bool,
}

/// Why a limit cannot be set.
#[derive(Debug)]
pub(crate) enum CgroupMissing {
    /// The kernel has no such controller, or it is mounted nowhere.
    Controller(CgroupController),
    /// The kernel refuses an operation on this path.
    Refused { path: PathBuf, error: io::Error },
    /// The group belongs to the service manager, which has not delegated it.
    NotGiven(PathBuf),
}

impl fmt::Display for CgroupMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CgroupMissing::Controller(controller) => {
                write!(f, "there is no control group controller {}", controller.name())
            }
            CgroupMissing::Refused { path, error } => write!(f, "{}: {error}", path.display()),
            CgroupMissing::NotGiven(path) => {
                let path = path.display();
                write!(f, "{path} is systemd's: Delegate=yes in the unit gives it to the server")
            }
        }
    }
}

/// Makes a [`CgroupMissing::Refused`] of an error at this path.
pub(crate) fn refused(path: &Path) -> impl FnOnce(io::Error) -> CgroupMissing {
    move |error| CgroupMissing::Refused { path: path.to_owned(), error }
}

/// The groups of this server, beneath which others are made. Changes to the server's own group are
/// undone when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct CgroupBase {
    /// The hierarchy of each controller, in the order of [`CgroupController::ALL`].
    hierarchies: [Option<CgroupHierarchy>; 3],
    /// Whether a command of the service manager started this process: such commands have a group of
    /// their own.
    is_beside: bool,
    /// The group that the server has left for a group of its own beneath it.
    left: Option<PathBuf>,
}

impl CgroupBase {
    /// Finds the groups of this process.
    pub(crate) fn find() -> CgroupBase {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (mounts, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
        let has = |base: &Path, controller: CgroupController| {
            let known = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
            known.split_whitespace().any(|one| one == controller.name())
        };
        CgroupBase {
            hierarchies: CgroupController::ALL
                .map(|controller| locate(controller, &mounts, &own, &has)),
            is_beside: own.lines().any(|line| line.ends_with(OF_COMMANDS)),
            left: None,
        }
    }

    /// Has these directories stand for groups.
    #[cfg(test)]
    pub(crate) fn standing_for(hierarchies: [Option<CgroupHierarchy>; 3]) -> CgroupBase {
        CgroupBase { hierarchies, is_beside: false, left: None }
    }

    /// Removes groups whose names begin with `prefix` and that no server uses any more.
    pub(crate) fn remove_abandoned(&self, prefix: &str) {
        // with version 2 all controllers are in the same hierarchy
        let mut bases: Vec<_> = self.hierarchies.iter().flatten().map(|one| &one.base).collect();
        bases.sort_unstable();
        bases.dedup();
        bases.into_iter().for_each(|base| remove_abandoned(base, prefix));
    }

    /// The hierarchy that has this controller.
    pub(crate) fn of(
        &self,
        controller: CgroupController,
    ) -> Result<CgroupHierarchy, CgroupMissing> {
        let at = CgroupController::ALL.iter().position(|one| *one == controller);
        let found = at.and_then(|at| self.hierarchies[at].clone());
        found.ok_or(CgroupMissing::Controller(controller))
    }

    /// Enables this controller for groups beneath the server's. If the server's processes are in
    /// the way, this process moves into a group of its own; other processes stay where they are,
    /// and the controller is then missing.
    pub(crate) fn delegate(
        &mut self,
        controller: CgroupController,
    ) -> Result<CgroupHierarchy, CgroupMissing> {
        let hierarchy = self.of(controller)?;
        let base = &hierarchy.base;
        if !hierarchy.is_two || has_enabled(base, controller)? {
            return Ok(hierarchy);
        }
        let moves = has_processes(base);
        if moves {
            self.leave(base)?;
        }
        let enabled = enable(base, controller);
        // a process that moved for an earlier controller stays in its group
        if moves && enabled.is_err() {
            self.come_back();
        }
        enabled.map(|()| hierarchy)
    }

    /// Enables all available controllers for the groups of programs, which other processes make. A
    /// group that a service manager has not delegated is left as it is.
    pub(crate) fn make_room(&mut self) {
        for controller in CgroupController::ALL {
            let is_given = self.of(controller).is_ok_and(|found| found.check_given().is_ok());
            // the launcher, which makes the groups, reports what is missing
            if is_given
                && let Ok(found) = self.delegate(controller)
                && found.is_two
                && self.is_beside
                && self.leave(&found.base).is_ok()
            {
                self.is_beside = false;
            }
        }
    }

    /// Moves this process into a group of its own beneath `base`.
    fn leave(&mut self, base: &Path) -> Result<(), CgroupMissing> {
        let own = base.join(OWN);
        make(&own)?;
        self.left = Some(base.to_owned());
        enter(&own, std::process::id())
    }

    /// Restores the group as it was found. If another server uses it, controllers stay, and the
    /// next server finds them.
    fn come_back(&mut self) {
        let Some(base) = self.left.take() else { return };
        for controller in CgroupController::ALL {
            let _ = fs::write(base.join(CONTROLS), format!("-{}", controller.name()));
        }
        // where groups of another server keep a controller enabled, this process stays in its own
        // group until it ends
        let has_left = enter(&base, std::process::id()).is_ok();
        let busy = if has_left { BUSY } else { Duration::ZERO };
        let _ = remove_directory(&base.join(OWN), &mut WaitBudget::new(busy));
    }
}

/// The controllers of this machine, in words for the operator.
pub(crate) fn controllers_in_words() -> String {
    let base = CgroupBase::find();
    let version =
        |controller| base.of(controller).ok().map(|found| if found.is_two { 2 } else { 1 });
    let word = |controller: CgroupController| match version(controller) {
        Some(version) => format!("{} of version {version}", controller.name()),
        None => format!("no {}", controller.name()),
    };
    format!("control groups have {}", CgroupController::ALL.map(word).join(", "))
}

impl Drop for CgroupBase {
    fn drop(&mut self) {
        self.come_back();
    }
}

impl CgroupHierarchy {
    /// Checks that groups may be made in this one: with version 2 systemd makes them, except where
    /// a unit has `Delegate=`.
    pub(crate) fn check_given(&self) -> Result<(), CgroupMissing> {
        let has_manager = self.is_two && !self.is_top && Path::new(SYSTEMD).exists();
        let is_given = || {
            let marks = ["user.delegate", "trusted.delegate"];
            marks.iter().any(|mark| attribute(&self.base, mark).is_some_and(|text| text == b"1"))
        };
        match has_manager && !is_given() {
            true => Err(CgroupMissing::NotGiven(self.base.clone())),
            false => Ok(()),
        }
    }
}

/// The file that names the controllers enabled for the groups in a group.
pub(crate) const CONTROLS: &str = "cgroup.subtree_control";

/// Enables a controller for the groups in this one.
pub(crate) fn enable(group: &Path, controller: CgroupController) -> Result<(), CgroupMissing> {
    if has_enabled(group, controller)? {
        return Ok(());
    }
    let path = group.join(CONTROLS);
    // With processes in the group, the kernel refuses the memory controller alone. It enables cpu
    // and pids, and then offers no memory controller there, and no group in this one takes a
    // process ("domain invalid").
    let mut file = fs::OpenOptions::new().write(true).open(&path).map_err(refused(&path))?;
    let enabled = match has_processes(group) {
        true => Err(io::ErrorKind::ResourceBusy.into()),
        false => file.write_all(format!("+{}", controller.name()).as_bytes()),
    };
    enabled.map_err(refused(&path))
}

/// Whether a controller is enabled for the groups in this one.
fn has_enabled(group: &Path, controller: CgroupController) -> Result<bool, CgroupMissing> {
    let path = group.join(CONTROLS);
    let known = fs::read_to_string(&path).map_err(refused(&path))?;
    Ok(known.split_whitespace().any(|one| one == controller.name()))
}

/// Whether processes of a group are in the way of groups in it. In the kernel's root group, which
/// has no type, they are not.
fn has_processes(group: &Path) -> bool {
    group.join("cgroup.type").exists()
        && fs::read(group.join(PROCESSES)).is_ok_and(|processes| !processes.is_empty())
}

/// Moves a process into a group.
pub(crate) fn enter(group: &Path, process: u32) -> Result<(), CgroupMissing> {
    let path = group.join(PROCESSES);
    fs::write(&path, process.to_string()).map_err(refused(&path))
}

/// Finds a controller in what the kernel says of mounts and of the groups of this process (proc(5),
/// cgroups(7)).
fn locate(
    controller: CgroupController,
    mounts: &str,
    own: &str,
    has: &dyn Fn(&Path, CgroupController) -> bool,
) -> Option<CgroupHierarchy> {
    let two = || {
        let (base, is_top) = base(mounts, own, "cgroup2", None)?;
        has(&base, controller).then_some(CgroupHierarchy { base, is_two: true, is_top })
    };
    let one = base(mounts, own, "cgroup", Some(controller.name()));
    one.map(|(base, is_top)| CgroupHierarchy { base, is_two: false, is_top }).or_else(two)
}

/// The directory of this server's group in a hierarchy, and whether that is the root group.
fn base(mounts: &str, own: &str, kind: &str, controller: Option<&str>) -> Option<(PathBuf, bool)> {
    // number:controllers:path; version 2 has number 0 and no controllers
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match controller {
            None => number == "0",
            Some(name) => controllers.split(',').any(|one| one == name),
        };
        is_it.then_some(path)
    })?;
    let path = of_server(path);
    // … root point options [tags] - type source options
    mounts.lines().find_map(|line| {
        let (mount, kind_and_options) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = kind_and_options.split(' ');
        let is_kind = fields.next() == Some(kind);
        let mut options = fields.nth(1).unwrap_or_default().split(',');
        let is_it = is_kind && controller.is_none_or(|name| options.any(|one| one == name));
        let below = Path::new(path).strip_prefix(root).ok().filter(|_| is_it)?;
        Some((Path::new(point).join(below), below.as_os_str().is_empty()))
    })
}

/// The group of the server, derived from the group of one of its processes.
fn of_server(path: &str) -> &str {
    // commands of a service with delegated groups run beside its processes
    let path = path.strip_suffix(OF_COMMANDS).unwrap_or(path);
    let path = path.strip_suffix(OWN).and_then(|path| path.strip_suffix('/')).unwrap_or(path);
    // a stage has a group of its own in that of its generation
    let around = path.rsplit_once('/').and_then(|(path, _stage)| path.rsplit_once('/'));
    let path = around.filter(|(_, name)| is_name(STAGES, name)).map_or(path, |(path, _)| path);
    if path.is_empty() { "/" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const ONE: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /jobs /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn controllers_are_found_in_either_version_and_in_both() {
        let all = |_: &Path, _| true;
        let own = "0::/system.slice/forebay.service\n";
        let found = locate(CgroupController::Memory, TWO, own, &all).unwrap();
        let base = Path::new("/sys/fs/cgroup/system.slice/forebay.service");
        assert_eq!(found, CgroupHierarchy { base: base.to_owned(), is_two: true, is_top: false });
        // the commands of a reload run in a group beside the server's
        let of_command = "0::/system.slice/forebay.service/.control\n";
        let found = locate(CgroupController::Memory, TWO, of_command, &all).unwrap();
        assert_eq!(found.base, base);
        assert_eq!(locate(CgroupController::Cpu, TWO, own, &|_, _| false), None);

        let own = "8:pids:/\n4:memory:/jobs/7\n2:cpu,cpuacct:/a\n0::/\n";
        let found = |controller, has: &dyn Fn(&Path, CgroupController) -> bool| {
            let found = locate(controller, ONE, own, has)?;
            Some((found.base.to_str().unwrap().to_owned(), found.is_two))
        };
        let none = |_: &Path, _| false;
        let one = |path: &str| Some((path.to_owned(), false));
        assert_eq!(found(CgroupController::Cpu, &all), one("/sys/fs/cgroup/cpu,cpuacct/a"));
        assert_eq!(found(CgroupController::Memory, &all), one("/sys/fs/cgroup/memory/7"));
        assert_eq!(found(CgroupController::Pids, &none), None);
        assert_eq!(
            found(CgroupController::Pids, &all),
            Some(("/sys/fs/cgroup/unified/".into(), true))
        );
        // the group lies outside of what is mounted
        assert_eq!(locate(CgroupController::Memory, ONE, "4:memory:/other\n", &none), None);
    }

    #[test]
    fn groups_of_the_server_are_known_for_its_own() {
        for (path, expected) in [
            ("/", "/"),
            ("/a.service", "/a.service"),
            ("/a.service/.control", "/a.service"),
            ("/a.service/forebay-supervisor", "/a.service"),
            ("/forebay-supervisor", "/"),
            ("/a.service/forebay-71-0/respond", "/a.service"),
            ("/forebay-71-0/respond", "/"),
            ("/not-forebay-supervisor", "/not-forebay-supervisor"),
            ("/forebay-web/one", "/forebay-web/one"),
        ] {
            assert_eq!(of_server(path), expected, "{path}");
        }
    }
}
