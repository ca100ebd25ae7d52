//! Limits of the stages: the processes of a stage share a control group of their own, by which the kernel shares
//! processor and memory out.
//!
//! ```text
//!  the group of the supervisor ─┬─ forebay-4711-0 ─┬─ receive       one for each generation of stages, called as the
//!                               │                  ├─ process       directory with its sockets
//!                               │                  └─ respond
//!                               └─ forebay-supervisor               with version 2: a group that has others in it has
//!                                                                   no processes
//! ```
//!
//! Each controller is in one hierarchy: with version 2 all are in the same, with version 1 each may have its own.
//! What the kernel does not let the supervisor do is told once for each limit, and the stage goes on without it.
//!
//! A generation's group goes with its processes. What a supervisor leaves that is killed, the next one removes:
//! who uses a group holds a lock on its directory ([`directories`]). A group that cannot be removed is told.

mod directories;

use directories::{
    BUSY, PROCESSES, make, make_locked, remove_abandoned, remove_and_tell, remove_directory,
};
use forebay_config::{Isolated, Role};
use forebay_sys::stderr::say;
use forebay_sys::wait_budget::WaitBudget;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The group of the supervisor itself, where it needs one.
const OWN: &str = "forebay-supervisor";

/// What the kernel has a controller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupController {
    Cpu,
    Memory,
    Pids,
}

impl CgroupController {
    const ALL: [CgroupController; 3] =
        [CgroupController::Cpu, CgroupController::Memory, CgroupController::Pids];

    fn name(self) -> &'static str {
        match self {
            CgroupController::Cpu => "cpu",
            CgroupController::Memory => "memory",
            CgroupController::Pids => "pids",
        }
    }
}

/// A limit of one stage: its key, who keeps it, and in which file, by the version of control groups.
struct CgroupLimit {
    key: &'static str,
    controller: CgroupController,
    /// File and text with version 1, and with version 2.
    one: (&'static str, u64),
    two: (&'static str, u64),
}

/// The limits that a stage has.
fn limits(config: &Isolated, role: Role) -> Vec<CgroupLimit> {
    let mut limits = Vec::new();
    let mut add =
        |key, controller, one, two| limits.push(CgroupLimit { key, controller, one, two });
    if let Some(weight) = config.cpu_weight.of(role) {
        // 100 is what others have, who have 1024 shares with version 1; fewer than 2 there are not
        let shares = (weight * 1024 / 100).max(2);
        add("cpu_weight", CgroupController::Cpu, ("cpu.shares", shares), ("cpu.weight", weight));
    }
    if let Some(high) = config.memory_high.of(role) {
        let (one, two) = ("memory.soft_limit_in_bytes", "memory.high");
        add("memory_high", CgroupController::Memory, (one, high.0), (two, high.0));
    }
    if let Some(max) = config.memory_max.of(role) {
        let (one, two) = ("memory.limit_in_bytes", "memory.max");
        add("memory_max", CgroupController::Memory, (one, max.0), (two, max.0));
    }
    if let Some(tasks) = config.tasks_max.of(role) {
        add("tasks_max", CgroupController::Pids, ("pids.max", tasks), ("pids.max", tasks));
    }
    limits
}

/// Whether any stage is to have one.
fn are_wanted(config: &Isolated) -> bool {
    Role::ALL.into_iter().any(|role| !limits(config, role).is_empty())
}

/// Where a controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// The group of the supervisor.
    base: PathBuf,
    is_two: bool,
}

/// The control groups of this machine, as far as they are needed.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// By the order of [`CgroupController::ALL`]; found at the first use.
    hierarchies: Option<[Option<Hierarchy>; 3]>,
    /// The supervisor has gone into a group of its own in this one.
    left: Option<PathBuf>,
}

/// What is in the way of a limit.
#[derive(Debug)]
enum Missing {
    /// The kernel has no such controller, or it is mounted nowhere.
    Controller(CgroupController),
    /// Something may not be done.
    Refused { path: PathBuf, error: io::Error },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Controller(controller) => {
                write!(f, "there is no control group controller {}", controller.name())
            }
            Missing::Refused { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

fn refused(path: &Path) -> impl FnOnce(io::Error) -> Missing {
    move |error| Missing::Refused { path: path.to_owned(), error }
}

/// The groups of one generation of stages. They go with it: its processes must have ended.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// By hierarchy, locked.
    roots: Vec<CgroupRoot>,
    /// How long those are waited for that other processes have locked.
    lock_wait: WaitBudget,
}

#[derive(Debug)]
struct CgroupRoot {
    path: PathBuf,
    /// For as long as it is open, no other supervisor removes the group; `None` if another process has it locked.
    _lock: Option<File>,
    stages: Vec<Role>,
}

impl Cgroups {
    /// The groups of a generation with this name, and the limits in them.
    pub(super) fn groups(&mut self, name: &str, config: &Isolated) -> Groups {
        let mut groups = Groups::default();
        if !are_wanted(config) {
            return groups;
        }
        if self.hierarchies.is_none() {
            self.hierarchies = Some(find());
            // with version 2 all are in the same
            let found = self.hierarchies.iter().flatten().flatten();
            let mut bases: Vec<_> = found.map(|hierarchy| &hierarchy.base).collect();
            bases.sort_unstable();
            bases.dedup();
            for base in bases {
                remove_abandoned(base);
            }
        }
        for role in Role::ALL {
            for limit in limits(config, role) {
                if let Err(missing) = self.limit(&mut groups, name, role, &limit) {
                    say(format_args!("stage {role} has no isolated.{}: {missing}", limit.key));
                }
            }
        }
        groups
    }

    fn limit(
        &mut self,
        groups: &mut Groups,
        name: &str,
        role: Role,
        limit: &CgroupLimit,
    ) -> Result<(), Missing> {
        let at = CgroupController::ALL.iter().position(|one| *one == limit.controller);
        let found = self.hierarchies.as_ref().zip(at).and_then(|(all, at)| all[at].clone());
        let hierarchy = found.ok_or(Missing::Controller(limit.controller))?;
        if hierarchy.is_two {
            self.delegate(&hierarchy.base, limit.controller)?;
        }
        let root = groups.root(&hierarchy, name)?;
        if hierarchy.is_two {
            enable(&root.path, limit.controller)?;
        }
        let group = root.stage(role)?;
        let (file, value) = if hierarchy.is_two { limit.two } else { limit.one };
        let path = group.join(file);
        fs::write(&path, value.to_string()).map_err(refused(&path))
    }

    /// Has groups in that of the supervisor have this controller. If processes are in the way, the supervisor
    /// goes into a group of its own.
    fn delegate(&mut self, base: &Path, controller: CgroupController) -> Result<(), Missing> {
        match enable(base, controller) {
            Err(Missing::Refused { error, .. }) if error.kind() == io::ErrorKind::ResourceBusy => {
                let own = base.join(OWN);
                make(&own)?;
                self.left = Some(base.to_owned());
                enter(&own, std::process::id())?;
                enable(base, controller)
            }
            other => other,
        }
    }
}

impl Drop for Cgroups {
    /// As it was found. A group that another supervisor is in stays, and is found as it is by the next.
    fn drop(&mut self) {
        let Some(base) = &self.left else { return };
        for controller in CgroupController::ALL {
            let _ = fs::write(base.join(CONTROLS), format!("-{}", controller.name()));
        }
        // where groups of another supervisor keep a controller, this one stays in its own until it has ended
        let has_left = enter(base, std::process::id()).is_ok();
        let busy = if has_left { BUSY } else { Duration::ZERO };
        let _ = remove_directory(&base.join(OWN), &mut WaitBudget::new(busy));
    }
}

impl Groups {
    /// That of this hierarchy, made if need be.
    fn root(&mut self, hierarchy: &Hierarchy, name: &str) -> Result<&mut CgroupRoot, Missing> {
        let path = hierarchy.base.join(name);
        let at = match self.roots.iter().position(|root| root.path == path) {
            Some(at) => at,
            None => {
                let lock = make_locked(&path, &mut self.lock_wait)?;
                self.roots.push(CgroupRoot { path, _lock: lock, stages: Vec::new() });
                self.roots.len() - 1
            }
        };
        Ok(&mut self.roots[at])
    }

    /// A process that has been started is one of a stage.
    pub(super) fn enter(&self, role: Role, process: u32) {
        for root in self.roots.iter().filter(|root| root.stages.contains(&role)) {
            if let Err(missing) = enter(&root.path.join(role.name()), process) {
                say(format_args!("process {process} of stage {role} has no limits: {missing}"));
            }
        }
    }
}

impl CgroupRoot {
    fn stage(&mut self, role: Role) -> Result<PathBuf, Missing> {
        let path = self.path.join(role.name());
        if !self.stages.contains(&role) {
            make(&path)?;
            self.stages.push(role);
        }
        Ok(path)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let mut wait = WaitBudget::new(BUSY);
        self.roots.iter().for_each(|root| remove_and_tell(&root.path, &mut wait));
    }
}

/// The file that says which controllers the groups in a group have.
const CONTROLS: &str = "cgroup.subtree_control";

fn enable(group: &Path, controller: CgroupController) -> Result<(), Missing> {
    let path = group.join(CONTROLS);
    let known = fs::read_to_string(&path).map_err(refused(&path))?;
    if known.split_whitespace().any(|one| one == controller.name()) {
        return Ok(());
    }
    fs::write(&path, format!("+{}", controller.name())).map_err(refused(&path))
}

fn enter(group: &Path, process: u32) -> Result<(), Missing> {
    let path = group.join(PROCESSES);
    fs::write(&path, process.to_string()).map_err(refused(&path))
}

/// Where each controller is.
fn find() -> [Option<Hierarchy>; 3] {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (mounts, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
    let has = |base: &Path, controller: CgroupController| {
        let known = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
        known.split_whitespace().any(|one| one == controller.name())
    };
    CgroupController::ALL.map(|controller| locate(controller, &mounts, &own, &has))
}

/// Where a controller is, by what the kernel says of mounts and of the groups of this process (proc(5),
/// cgroups(7)).
fn locate(
    controller: CgroupController,
    mounts: &str,
    own: &str,
    has: &dyn Fn(&Path, CgroupController) -> bool,
) -> Option<Hierarchy> {
    let two = || {
        let base = base(mounts, own, "cgroup2", None)?;
        has(&base, controller).then_some(Hierarchy { base, is_two: true })
    };
    let one = base(mounts, own, "cgroup", Some(controller.name()));
    one.map(|base| Hierarchy { base, is_two: false }).or_else(two)
}

/// The directory of the group of this process in a hierarchy.
fn base(mounts: &str, own: &str, kind: &str, controller: Option<&str>) -> Option<PathBuf> {
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
    // commands of a service with delegated groups run beside its processes
    let path = path.strip_suffix("/.control").unwrap_or(path);
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
        Some(Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::value::Value;
    use forebay_sys::file::try_lock;

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
        assert_eq!(found, Hierarchy { base: base.to_owned(), is_two: true });
        // the commands of a reload run there
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
        // outside of what is mounted
        assert_eq!(locate(CgroupController::Memory, ONE, "4:memory:/other\n", &none), None);
    }

    /// A directory stands for the group of version 2 that a service manager has given.
    #[test]
    fn groups_are_made_with_their_limits_by_version_2() {
        let base = std::env::temp_dir().join(format!("forebay-cgroups-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        fs::write(base.join(CONTROLS), "cpu memory").unwrap();
        let mut config = Isolated::default();
        config.cpu_weight.put("respond", "50").unwrap();
        config.memory_max.put("respond", "1MiB").unwrap();
        config.tasks_max.put("process", "20").unwrap();
        let hierarchy = || Some(Hierarchy { base: base.clone(), is_two: true });
        let hierarchies = Some([hierarchy(), hierarchy(), None]);
        let mut cgroups = Cgroups { hierarchies, left: None };
        // the kernel makes the files of a group
        let name = "forebay-1-0";
        fs::create_dir(base.join(name)).unwrap();
        fs::write(base.join(name).join(CONTROLS), "").unwrap();
        let groups = cgroups.groups(name, &config);
        let read = |file: &str| fs::read_to_string(base.join(name).join(file)).unwrap();
        assert_eq!(read("respond/cpu.weight"), "50");
        assert_eq!(read("respond/memory.max"), "1048576");
        assert_eq!(read(CONTROLS), "+memory");
        groups.enter(Role::Respond, 7);
        assert_eq!(read("respond/cgroup.procs"), "7");
        // there is no controller for it, and so nothing to enter
        groups.enter(Role::Process, 8);
        assert!(!base.join(name).join("process").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    /// Any user could take limits away who may read the directory of a group.
    #[test]
    fn a_group_that_another_process_has_locked_has_its_limits() {
        let name = format!("forebay-cgroups-locked-{}", std::process::id());
        let base = std::env::temp_dir().join(name);
        let path = base.join("forebay-1-0");
        fs::create_dir_all(&path).unwrap();
        let other = File::open(&path).unwrap();
        assert!(try_lock(&other).unwrap());
        let mut config = Isolated::default();
        config.memory_max.put("respond", "1MiB").unwrap();
        let hierarchy = Hierarchy { base: base.clone(), is_two: false };
        let mut cgroups = Cgroups { hierarchies: Some([None, Some(hierarchy), None]), left: None };
        let lock_wait = WaitBudget::new(Duration::ZERO);
        let mut groups = Groups { roots: Vec::new(), lock_wait };
        let limit = &limits(&config, Role::Respond)[0];
        cgroups.limit(&mut groups, "forebay-1-0", Role::Respond, limit).unwrap();
        groups.enter(Role::Respond, 7);
        let read = |file: &str| fs::read_to_string(path.join("respond").join(file)).unwrap();
        assert_eq!(read("memory.limit_in_bytes"), "1048576");
        assert_eq!(read(PROCESSES), "7");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn weights_become_shares() {
        let mut config = Isolated::default();
        for (weight, shares) in [("100", 1024), ("50", 512), ("1", 10), ("10000", 102_400)] {
            config.cpu_weight.put("receive", weight).unwrap();
            assert_eq!(limits(&config, Role::Receive)[0].one, ("cpu.shares", shares));
        }
        assert!(limits(&config, Role::Respond).is_empty() && are_wanted(&config));
    }
}
