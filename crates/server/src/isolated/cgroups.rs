//! Limits of the stages. The processes of a stage share a control group of their own, through which
//! the kernel distributes processor time and memory.
//!
//! ```text
//!  the group of the supervisor ─┬─ forebay-4711-0 ─┬─ receive       one for each generation of stages, called as the
//!                               │                  ├─ process       directory with its sockets
//!                               │                  └─ respond
//!                               └─ forebay-supervisor               with version 2: a group that has others in it has
//!                                                                   no processes
//! ```
//!
//! A limit that the kernel does not let the supervisor set is logged once, and the stage runs
//! without it.
//!
//! A generation's group is removed with its processes. The next supervisor removes the groups of
//! one that was killed: a supervisor that uses a group holds a lock on its directory
//! ([`cgroups`](crate::cgroups)). A group that cannot be removed is logged.

use crate::cgroups::{
    BUSY, CgroupBase, CgroupController, CgroupHierarchy, CgroupMissing, STAGES, enable, enter,
    make, make_locked, refused, remove_and_tell,
};
use forebay_config::{Isolated, Role};
use forebay_sys::stderr::say;
use forebay_sys::wait_budget::WaitBudget;
use std::fs::{self, File};
use std::path::PathBuf;

/// A limit of one stage: its key, its controller, and its file by the version of control groups.
struct CgroupLimit {
    key: &'static str,
    controller: CgroupController,
    /// File and value with version 1; below it, those with version 2.
    one: (&'static str, u64),
    two: (&'static str, u64),
}

/// The limits that a stage has.
fn limits(config: &Isolated, role: Role) -> Vec<CgroupLimit> {
    let mut limits = Vec::new();
    let mut add =
        |key, controller, one, two| limits.push(CgroupLimit { key, controller, one, two });
    if let Some(weight) = config.cpu_weight.of(role) {
        // the default weight of 100 corresponds to 1024 shares of version 1, whose minimum is 2
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

/// Whether any stage has a limit.
fn are_wanted(config: &Isolated) -> bool {
    Role::ALL.into_iter().any(|role| !limits(config, role).is_empty())
}

/// The control groups of this machine, as far as they are needed.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// The groups of the server, found at the first use.
    base: Option<CgroupBase>,
}

/// The groups of one generation of stages. Dropping this removes them: its processes must have
/// ended.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The locked group in each hierarchy.
    roots: Vec<CgroupRoot>,
    /// The time left to wait for groups that other processes have locked.
    lock_wait: WaitBudget,
}

#[derive(Debug)]
struct CgroupRoot {
    path: PathBuf,
    /// While this is open, no other supervisor removes the group; `None` if another process has it
    /// locked.
    _lock: Option<File>,
    stages: Vec<Role>,
}

impl Cgroups {
    /// Makes the groups of a generation with this name, and sets the limits in them. If the
    /// generation runs programs for requests, their launcher gets room for groups, too.
    pub(super) fn groups(&mut self, name: &str, config: &Isolated, has_programs: bool) -> Groups {
        let mut groups = Groups::default();
        if !are_wanted(config) && !has_programs {
            return groups;
        }
        let base = self.base.get_or_insert_with(|| {
            let base = CgroupBase::find();
            base.remove_abandoned(STAGES);
            base
        });
        if has_programs {
            base.make_room();
        }
        for role in Role::ALL {
            for limit in limits(config, role) {
                if let Err(missing) = limit.set(base, &mut groups, name, role) {
                    say(format_args!("stage {role} has no isolated.{}: {missing}", limit.key));
                }
            }
        }
        groups
    }
}

impl CgroupLimit {
    /// Sets the limit in the groups of a generation with this name.
    fn set(
        &self,
        base: &mut CgroupBase,
        groups: &mut Groups,
        name: &str,
        role: Role,
    ) -> Result<(), CgroupMissing> {
        let hierarchy = base.delegate(self.controller)?;
        let root = groups.root(&hierarchy, name)?;
        if hierarchy.is_two {
            enable(&root.path, self.controller)?;
        }
        let group = root.stage(role)?;
        let (file, value) = if hierarchy.is_two { self.two } else { self.one };
        let path = group.join(file);
        fs::write(&path, value.to_string()).map_err(refused(&path))
    }
}

impl Groups {
    /// The group in this hierarchy, made if it does not exist.
    fn root(
        &mut self,
        hierarchy: &CgroupHierarchy,
        name: &str,
    ) -> Result<&mut CgroupRoot, CgroupMissing> {
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

    /// Moves a started process into the groups of its stage.
    pub(super) fn enter(&self, role: Role, process: u32) {
        for root in self.roots.iter().filter(|root| root.stages.contains(&role)) {
            if let Err(missing) = enter(&root.path.join(role.name()), process) {
                say(format_args!("process {process} of stage {role} has no limits: {missing}"));
            }
        }
    }
}

impl CgroupRoot {
    fn stage(&mut self, role: Role) -> Result<PathBuf, CgroupMissing> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::{CONTROLS, PROCESSES};
    use forebay_config::value::Value;
    use forebay_sys::file::try_lock;
    use std::time::Duration;

    /// A directory stands for a group of version 2 that the service manager has delegated.
    #[test]
    fn groups_are_made_with_their_limits_by_version_2() {
        let base = std::env::temp_dir().join(format!("forebay-cgroups-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        fs::write(base.join(CONTROLS), "cpu memory").unwrap();
        let mut config = Isolated::default();
        config.cpu_weight.put("respond", "50").unwrap();
        config.memory_max.put("respond", "1MiB").unwrap();
        config.tasks_max.put("process", "20").unwrap();
        let hierarchy =
            || Some(CgroupHierarchy { base: base.clone(), is_two: true, is_top: false });
        let base_of_both = CgroupBase::standing_for([hierarchy(), hierarchy(), None]);
        let mut cgroups = Cgroups { base: Some(base_of_both) };
        // the kernel makes the files of a group
        let name = "forebay-1-0";
        fs::create_dir(base.join(name)).unwrap();
        fs::write(base.join(name).join(CONTROLS), "").unwrap();
        let groups = cgroups.groups(name, &config, false);
        let read = |file: &str| fs::read_to_string(base.join(name).join(file)).unwrap();
        assert_eq!(read("respond/cpu.weight"), "50");
        assert_eq!(read("respond/memory.max"), "1048576");
        assert_eq!(read(CONTROLS), "+memory");
        groups.enter(Role::Respond, 7);
        assert_eq!(read("respond/cgroup.procs"), "7");
        // this stage has no limits, and so no group to enter
        groups.enter(Role::Process, 8);
        assert!(!base.join(name).join("process").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    /// Otherwise any user that may read the group's directory could take its limits away.
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
        let hierarchy = CgroupHierarchy { base: base.clone(), is_two: false, is_top: true };
        let mut found = CgroupBase::standing_for([None, Some(hierarchy), None]);
        let lock_wait = WaitBudget::new(Duration::ZERO);
        let mut groups = Groups { roots: Vec::new(), lock_wait };
        let limit = &limits(&config, Role::Respond)[0];
        limit.set(&mut found, &mut groups, "forebay-1-0", Role::Respond).unwrap();
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
