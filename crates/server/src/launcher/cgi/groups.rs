//! The control groups of programs: one for each request under way, and one around them, which makes
//! all programs together yield to the server.
//!
//! ```text
//!  forebay-cgi-4712-0           cpu.weight: what all programs get where the server has work, too
//!    ├─ 5d1e…-0   memory.max, pids.max, cpu.max      the first place of a route
//!    └─ 5d1e…-1                                      the second
//! ```
//!
//! A group is used again by the next request of its place: making one takes longer than using it,
//! and the kernel would keep a removed one in memory for as long as its files are in the page
//! cache. Where there can be none, programs run without, and the operator is informed.

use crate::cgroups::{
    CgroupBase, CgroupController, CgroupMissing, PROCESSES, enable, kill, make, make_locked,
    refused, remove_and_tell,
};
use forebay_config::CgiLimits;
use forebay_sys::cgi::ProgramGroups;
use forebay_sys::stderr::say;
use forebay_sys::wait_budget::WaitBudget;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first part of the names of launchers' groups, before the process number.
const PREFIX: &str = "forebay-cgi-";

/// The CPU weight of all programs together, against the server's 100; and the same for version 1,
/// where the default is 1024.
const WEIGHT: (&str, u64) = ("cpu.weight", 10);
const SHARES: (&str, u64) = ("cpu.shares", 102);

/// The number of tasks that a request may have beyond its limit of processes, because
/// the kernel counts threads.
const MORE_TASKS: u64 = 64;

/// The period over which the kernel enforces the CPU limit, in microseconds.
const PERIOD_US: u64 = 100_000;

/// How long the removal of a group is retried while its processes, which were just killed, still end.
const BUSY: Duration = Duration::from_secs(1);

/// The groups of a launcher.
#[derive(Debug, Default)]
pub(super) struct ProgramCgroups {
    /// One for each hierarchy.
    roots: Vec<ProgramRoot>,
    /// For each route, which of its places are taken.
    taken: HashMap<u64, Vec<bool>>,
    /// What is missing on this machine, in lines.
    missing: String,
    /// The operator was already informed that a request has no group.
    is_told: bool,
}

/// The group around all programs, in one hierarchy.
#[derive(Debug)]
struct ProgramRoot {
    path: PathBuf,
    is_two: bool,
    controllers: Vec<CgroupController>,
    /// A lock on the group: no other launcher removes it while a launcher or an attendant has this open.
    _lock: Option<File>,
}

/// The group of one request, in each hierarchy.
#[derive(Clone, Debug)]
pub(super) struct ProgramPlace {
    route: u64,
    at: usize,
    two: Option<PathBuf>,
    one: Vec<PathBuf>,
    /// The file in which the kernel counts the processes that it has killed for lack of memory.
    memory: Option<PathBuf>,
}

impl ProgramCgroups {
    /// Makes the outer groups, and removes those of launchers that were killed.
    pub(super) fn make() -> ProgramCgroups {
        let base = CgroupBase::find();
        base.remove_abandoned(PREFIX);
        let mut groups = ProgramCgroups::default();
        let mut missing: Vec<(CgroupController, CgroupMissing)> = Vec::new();
        for controller in CgroupController::ALL {
            if let Err(why) = groups.add(&base, controller) {
                missing.push((controller, why));
            }
        }
        groups.missing = in_words(&missing);
        groups
    }

    /// Adds a controller to the groups.
    fn add(
        &mut self,
        base: &CgroupBase,
        controller: CgroupController,
    ) -> Result<(), CgroupMissing> {
        let hierarchy = base.of(controller)?;
        hierarchy.check_given()?;
        if hierarchy.is_two {
            // the server has already made this possible, unless it could not
            enable(&hierarchy.base, controller)?;
        }
        let path = hierarchy.base.join(format!("{PREFIX}{}-0", std::process::id()));
        let at = match self.roots.iter().position(|root| root.path == path) {
            Some(at) => at,
            None => {
                let lock = make_locked(&path, &mut WaitBudget::default())?;
                let is_two = hierarchy.is_two;
                self.roots.push(ProgramRoot { path, is_two, controllers: vec![], _lock: lock });
                self.roots.len() - 1
            }
        };
        let root = &mut self.roots[at];
        if root.is_two {
            enable(&root.path, controller)?;
        }
        if controller == CgroupController::Cpu {
            let (file, weight) = if root.is_two { WEIGHT } else { SHARES };
            write(&root.path, file, weight)?;
        }
        root.controllers.push(controller);
        Ok(())
    }

    /// What is missing on this machine, in lines.
    pub(super) fn missing(&self) -> &str {
        &self.missing
    }

    /// Takes a place for a request of this route, with these limits; `None` where there are no groups.
    pub(super) fn take(&mut self, route: u64, limits: &CgiLimits) -> Option<ProgramPlace> {
        if self.roots.is_empty() {
            return None;
        }
        let taken = self.taken.entry(route).or_default();
        // a process that could not be killed may still be in a place that was given back
        let free = (0..taken.len()).find(|at| !taken[*at] && is_empty(&self.roots, route, *at));
        let at = free.unwrap_or(taken.len());
        forget_files(&self.roots, route, at, limits);
        match place(&self.roots, route, at, limits) {
            Ok(place) => {
                taken.resize(taken.len().max(at + 1), false);
                taken[at] = true;
                Some(place)
            }
            Err(missing) => {
                if !std::mem::replace(&mut self.is_told, true) {
                    say(format_args!("a CGI program runs without a control group: {missing}"));
                }
                None
            }
        }
    }

    /// Gives a place back: the request is over, or its attendant is.
    pub(super) fn give_back(&mut self, place: &ProgramPlace) {
        place.kill();
        let taken = self.taken.get_mut(&place.route).and_then(|all| all.get_mut(place.at));
        taken.into_iter().for_each(|taken| *taken = false);
    }

    /// Removes the groups of routes that are not configured any more, except those in use.
    pub(super) fn keep(&mut self, is_wanted: impl Fn(u64) -> bool) {
        let mut wait = WaitBudget::new(Duration::ZERO);
        let roots = &self.roots;
        self.taken.retain(|route, taken| {
            let goes = !is_wanted(*route) && !taken.contains(&true);
            if goes {
                for at in 0..taken.len() {
                    paths(roots, *route, at)
                        .for_each(|(path, _)| remove_and_tell(&path, &mut wait));
                }
            }
            !goes
        });
    }

    /// Kills all processes in the groups, where the kernel can do that at once.
    pub(super) fn kill(&self) {
        self.roots.iter().for_each(|root| kill(&root.path));
    }

    /// Removes all groups, which must be empty.
    pub(super) fn remove(&self) {
        let mut wait = WaitBudget::new(BUSY);
        self.roots.iter().for_each(|root| remove_and_tell(&root.path, &mut wait));
    }
}

impl ProgramPlace {
    /// Opens the files through which a program enters the group.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(super) fn open(&self) -> io::Result<ProgramGroups> {
        ProgramGroups::open(self.two.as_deref(), &self.one)
    }

    /// How many processes of the group the kernel has killed so far for lack of memory.
    pub(super) fn out_of_memory(&self) -> u64 {
        let text = self.memory.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let text = text.unwrap_or_default();
        let count =
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        count.unwrap_or(0)
    }

    /// Kills all processes in the group, where the kernel can do that at once.
    pub(super) fn kill(&self) {
        self.two.iter().for_each(|path| kill(path));
    }
}

/// The path of a place in each hierarchy.
fn paths(
    roots: &[ProgramRoot],
    route: u64,
    at: usize,
) -> impl Iterator<Item = (PathBuf, &ProgramRoot)> {
    roots.iter().map(move |root| (root.path.join(format!("{route:016x}-{at}")), root))
}

fn is_empty(roots: &[ProgramRoot], route: u64, at: usize) -> bool {
    paths(roots, route, at)
        .all(|(path, _)| fs::read(path.join(PROCESSES)).is_ok_and(|text| text.is_empty()))
}

/// Removes a free memory group to which much is still charged: files that earlier programs have
/// left in a tmpfs stay charged to it for as long as they exist.
fn forget_files(roots: &[ProgramRoot], route: u64, at: usize, limits: &CgiLimits) {
    for (path, root) in paths(roots, route, at) {
        let is_memory = root.controllers.contains(&CgroupController::Memory);
        if is_memory && shared_bytes(&path) > limits.memory.0 / 16 {
            let _ = fs::remove_dir(path);
        }
    }
}

/// The bytes of shared memory and tmpfs files that are charged to a group.
fn shared_bytes(path: &Path) -> u64 {
    let stat = fs::read_to_string(path.join("memory.stat")).unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("shmem "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Makes the groups of a place, or takes the existing ones.
fn place(
    roots: &[ProgramRoot],
    route: u64,
    at: usize,
    limits: &CgiLimits,
) -> Result<ProgramPlace, CgroupMissing> {
    let mut place = ProgramPlace { route, at, two: None, one: Vec::new(), memory: None };
    for (path, root) in paths(roots, route, at) {
        if !path.exists() {
            make(&path)?;
            let mut controllers = root.controllers.iter();
            let limited = controllers.try_for_each(|one| limit(&path, root.is_two, *one, limits));
            if let Err(missing) = limited {
                // the next request must not find the group without its limits
                let _ = fs::remove_dir(&path);
                return Err(missing);
            }
        }
        if root.controllers.contains(&CgroupController::Memory) {
            let file = if root.is_two { "memory.events" } else { "memory.oom_control" };
            place.memory = Some(path.join(file));
        }
        match root.is_two {
            true => place.two = Some(path),
            false => place.one.push(path),
        }
    }
    Ok(place)
}

/// Sets the limit that a controller enforces.
fn limit(
    path: &Path,
    is_two: bool,
    controller: CgroupController,
    limits: &CgiLimits,
) -> Result<(), CgroupMissing> {
    match (controller, is_two) {
        (CgroupController::Memory, true) => {
            write(path, "memory.max", limits.memory.0)?;
            // swapped memory counts, too; and a program that lost one of its processes is of little
            // use, so the kernel kills all. Not every kernel has these two files
            let _ = write(path, "memory.swap.max", 0);
            let _ = write(path, "memory.oom.group", 1);
            Ok(())
        }
        (CgroupController::Memory, false) => write(path, "memory.limit_in_bytes", limits.memory.0),
        (CgroupController::Pids, _) => {
            write(path, "pids.max", limits.processes.saturating_add(MORE_TASKS))
        }
        (CgroupController::Cpu, _) => {
            let Some(part) = limits.cpu.0 else { return Ok(()) };
            let quota_us = part.0.saturating_mul(PERIOD_US) / forebay_config::Percent::WHOLE.0;
            match is_two {
                true => write_text(path, "cpu.max", &format!("{quota_us} {PERIOD_US}")),
                false => {
                    write(path, "cpu.cfs_period_us", PERIOD_US)?;
                    write(path, "cpu.cfs_quota_us", quota_us)
                }
            }
        }
    }
}

fn write(group: &Path, file: &str, value: u64) -> Result<(), CgroupMissing> {
    write_text(group, file, &value.to_string())
}

fn write_text(group: &Path, file: &str, text: &str) -> Result<(), CgroupMissing> {
    let path = group.join(file);
    fs::write(&path, text).map_err(refused(&path))
}

/// The message for the operator about missing controllers: what is not enforced without each, and why.
fn in_words(missing: &[(CgroupController, CgroupMissing)]) -> String {
    if let [(_, first), _, _] = missing {
        // where the group is not delegated, its controllers are missing, too; the first cause is reported
        let mut all = missing.iter().map(|(_, why)| why);
        let why = all.find(|why| !matches!(why, CgroupMissing::Controller(_))).unwrap_or(first);
        return format!(
            "CGI programs have no control group ({why}): they share the processors evenly with the server, limits.memory \
             and limits.processes are looked at ten times a second, and limits.cpu does nothing\n"
        );
    }
    let line = |(controller, why): &(CgroupController, CgroupMissing)| {
        let what = match controller {
            CgroupController::Cpu => {
                "CGI programs share the processors evenly with the server, and limits.cpu does nothing"
            }
            CgroupController::Memory => {
                "limits.memory of CGI programs is looked at ten times a second"
            }
            CgroupController::Pids => {
                "limits.processes of CGI programs is looked at ten times a second"
            }
        };
        format!("{what}: no control group ({why})\n")
    };
    missing.iter().map(line).collect()
}
