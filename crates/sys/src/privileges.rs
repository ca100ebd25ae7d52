//! Becoming another user for good, and the rights of root that are kept.
//!
//! Every function concerns the calling thread and the threads it starts later, so these calls must
//! come before there are other threads.

use rustix::process::{Gid, Signal, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};
use std::ffi::CString;
use std::io;
use std::path::PathBuf;

/// The highest number that a capability of the kernel can have.
const MOST_CAPABILITIES: u64 = 63;

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// A user or group of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemUser {
    /// The user's number.
    pub user: u32,
    /// The number of the primary group.
    pub group: u32,
    /// All groups the user is in.
    pub groups: Vec<u32>,
}

/// Whether this thread may become another user.
pub fn may_become_another() -> bool {
    thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID))
}

/// The user and group that the process has.
pub fn current() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The user with this name; `None` if there is none.
///
/// # Errors
/// The error of the databases of users, or a name with a NUL byte.
pub fn user(name: &str) -> io::Result<Option<SystemUser>> {
    let Some(found) = nix::unistd::User::from_name(name)? else { return Ok(None) };
    let groups = nix::unistd::getgrouplist(&CString::new(name)?, found.gid)?;
    Ok(Some(SystemUser {
        user: found.uid.as_raw(),
        group: found.gid.as_raw(),
        groups: groups.into_iter().map(nix::unistd::Gid::as_raw).collect(),
    }))
}

/// The name and the home directory of the user with this number; `None` if there is none.
///
/// # Errors
/// The error of the databases of users.
pub fn name_and_home(user: u32) -> io::Result<Option<(String, PathBuf)>> {
    let found = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(user))?;
    Ok(found.map(|found| (found.name, found.dir)))
}

/// The number of the group with this name; `None` if there is none.
///
/// # Errors
/// The error of the databases of groups, or a name with a NUL byte.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// The rights of root that are kept, as far as the thread has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptPrivileges {
    /// The right to listen on ports below 1024 (`CAP_NET_BIND_SERVICE`).
    Binding,
    /// The same, and the rights to change the programs that judge packets in the kernel, and where
    /// they are attached (`CAP_BPF`, `CAP_NET_ADMIN`).
    BindingAndGate,
}

impl KeptPrivileges {
    fn capabilities(self) -> CapabilitySet {
        match self {
            KeptPrivileges::Binding => CapabilitySet::NET_BIND_SERVICE,
            KeptPrivileges::BindingAndGate => {
                CapabilitySet::NET_BIND_SERVICE | CapabilitySet::BPF | CapabilitySet::NET_ADMIN
            }
        }
    }
}

/// The rights for loading and attaching programs in the kernel that this thread lacks.
pub fn lacks_for_gate() -> Vec<&'static str> {
    let has = thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let needed = [
        ("CAP_BPF", CapabilitySet::BPF),
        ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        ("CAP_PERFMON", CapabilitySet::PERFMON),
    ];
    // CAP_SYS_ADMIN includes each of them except that for the network
    let admin = has.contains(CapabilitySet::SYS_ADMIN);
    let lacks = needed
        .into_iter()
        .filter(|(_, one)| !has.contains(*one) && (!admin || *one == CapabilitySet::NET_ADMIN));
    lacks.map(|(name, _)| name).collect()
}

/// Whether this thread may change the firewall of its network namespace (`CAP_NET_ADMIN`).
pub fn may_change_firewall() -> bool {
    thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Keeps `CAP_NET_ADMIN` and nothing else, for this thread and for the programs it runs. Root
/// becomes the user 65534, which most machines call `nobody`.
///
/// # Errors
/// The error of the kernel; then the process is half way between two users and must end.
pub fn keep_net_admin_only() -> io::Result<()> {
    let one = CapabilitySet::NET_ADMIN;
    if may_become_another() {
        let nobody = SystemUser { user: NOBODY, group: NOBODY, groups: Vec::new() };
        become_with(&nobody, one)?;
    }
    let sets = CapabilitySets { effective: one, permitted: one, inheritable: one };
    thread::set_capabilities(None, sets)?;
    thread::configure_capability_in_ambient_set(one, true)?;
    gain_nothing()
}

/// Keeps the rights of root by which a program is run as another user, and files of other users are
/// read (`CAP_SETUID`, `CAP_SETGID`, `CAP_KILL`, `CAP_DAC_READ_SEARCH`); a process that may not
/// become another user keeps none. With `makes_groups`, it also keeps `CAP_DAC_OVERRIDE`: the first
/// control group of a hierarchy is read-only even for its owner. The programs that are run have
/// none of these rights.
///
/// # Errors
/// The error of the kernel.
pub fn keep_to_launch(makes_groups: bool) -> io::Result<()> {
    let mut kept = match may_become_another() {
        true => {
            CapabilitySet::SETUID
                | CapabilitySet::SETGID
                | CapabilitySet::KILL
                | CapabilitySet::DAC_READ_SEARCH
        }
        false => CapabilitySet::empty(),
    };
    kept.set(CapabilitySet::DAC_OVERRIDE, makes_groups && may_become_another());
    let has = thread::capabilities(None)?.permitted;
    for number in 0..=MOST_CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        // a process without CAP_SETPCAP cannot lower the bounding set for its programs, and leaves
        // it
        if has.contains(CapabilitySet::SETPCAP)
            && !kept.contains(one)
            && thread::capability_is_in_bounding_set(one).unwrap_or(false)
        {
            thread::remove_capability_from_bounding_set(one)?;
        }
    }
    let kept = has & kept;
    // rights that a service manager passes on to programs are dropped, too
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    thread::set_capabilities(None, sets)?;
    gain_nothing()
}

/// Has files found with the rights of `user` from here on, if that is another user than that of
/// this process, and without root's rights over files; the rights that run programs as that user
/// are kept.
///
/// # Errors
/// The error of the kernel; then no file may be looked for.
pub fn find_files_as(user: Option<&SystemUser>) -> io::Result<()> {
    let mut sets = thread::capabilities(None)?;
    for set in [&mut sets.effective, &mut sets.permitted] {
        set.remove(CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE);
    }
    thread::set_capabilities(None, sets)?;
    let Some(user) = user else { return Ok(()) };
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    thread::set_thread_groups(&groups)?;
    open_files_as(user.user, user.group)
}

/// Has files opened as the process's own user again after [`find_files_as`], though without rights
/// that override permissions.
///
/// # Errors
/// The error of the kernel.
pub fn find_files_as_itself() -> io::Result<()> {
    let (user, group) = current();
    open_files_as(user, group)
}

fn open_files_as(user: u32, group: u32) -> io::Result<()> {
    // these calls return only the former user, so another call, which changes nothing, tells
    // whether they succeeded
    // SAFETY: they change the user and group by which this thread is judged where it opens files,
    // and nothing else.
    let now = unsafe {
        libc::setfsgid(group);
        libc::setfsuid(user);
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    match now == (user.cast_signed(), group.cast_signed()) {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Gives up every right of root; root becomes the user 65534, which most machines call `nobody`. A
/// `supervisor`, if that has started this process, still ends it when it ends itself. Returns
/// whether the user is another one now.
///
/// # Errors
/// The error of the kernel; then the process is half way between two users and must end.
pub fn become_nobody(supervisor: Option<u32>) -> io::Result<bool> {
    let is_root = may_become_another();
    if is_root {
        let nobody = SystemUser { user: NOBODY, group: NOBODY, groups: Vec::new() };
        become_with(&nobody, CapabilitySet::empty())?;
    }
    let none = CapabilitySet::empty();
    thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    gain_nothing()?;
    if let Some(supervisor) = supervisor {
        // the change of user has cleared this setting
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        if std::os::unix::process::parent_id() != supervisor {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(is_root)
}

/// Becomes `user` for good and gives up every right of root except those that are `kept`.
///
/// # Errors
/// The error of the kernel; then the process is half way between two users and must end.
pub fn become_user(user: &SystemUser, kept: KeptPrivileges) -> io::Result<()> {
    become_with(user, kept.capabilities())?;
    keep_only(kept)?;
    crate::passing::end_with_supervisor()
}

/// Becomes `user`; of root's rights those that are `kept` stay permitted.
fn become_with(user: &SystemUser, kept: CapabilitySet) -> io::Result<()> {
    for number in 0..=MOST_CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !kept.contains(one) && thread::capability_is_in_bounding_set(one).unwrap_or(false) {
            thread::remove_capability_from_bounding_set(one)?;
        }
    }
    thread::set_keep_capabilities(true)?;
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    thread::set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(user.user), Gid::from_raw(user.group));
    thread::set_thread_res_gid(gid, gid, gid)?;
    thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(thread::set_keep_capabilities(false)?)
}

/// Gives up every right of root except those that are `kept`. A process that is not root may still
/// have some, from a service manager.
///
/// # Errors
/// The error of the kernel.
pub fn keep_only(kept: KeptPrivileges) -> io::Result<()> {
    let has = thread::capabilities(None)?.permitted & kept.capabilities();
    thread::set_capabilities(
        None,
        CapabilitySets { effective: has, permitted: has, inheritable: CapabilitySet::empty() },
    )?;
    Ok(())
}

/// Keeps this thread and what it starts from ever gaining rights by running a program.
///
/// # Errors
/// None in practice.
pub fn gain_nothing() -> io::Result<()> {
    Ok(thread::set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_and_a_stranger_is_not() {
        let root = user("root").unwrap().unwrap();
        assert_eq!((root.user, root.group), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(group("root").unwrap(), Some(0));
        assert_eq!(user("nobody-has-this-name").unwrap(), None);
        assert_eq!(group("nobody-has-this-name").unwrap(), None);
    }

    #[test]
    fn a_thread_becomes_nobody_and_keeps_little() {
        if !may_become_another() {
            eprintln!("SKIPPED: only root can become another user");
            return;
        }
        let had = thread::capabilities(None).unwrap().permitted;
        for kept in [KeptPrivileges::Binding, KeptPrivileges::BindingAndGate] {
            let nobody = SystemUser { user: 65534, group: 65534, groups: vec![65534] };
            let after = std::thread::spawn(move || {
                become_user(&nobody, kept).unwrap();
                gain_nothing().unwrap();
                let sets = thread::capabilities(None).unwrap();
                assert_eq!(sets.permitted, kept.capabilities() & had);
                assert_eq!(sets.effective, kept.capabilities() & had);
                assert!(thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err());
                current()
            });
            assert_eq!(after.join().unwrap(), (65534, 65534));
        }
        assert_eq!(current().0, 0, "only that thread");
    }

    #[test]
    fn who_runs_programs_keeps_four_rights_and_its_programs_none() {
        if !may_become_another() {
            eprintln!("SKIPPED: only root can become another user");
            return;
        }
        assert_eq!(name_and_home(0).unwrap(), Some(("root".to_owned(), "/root".into())));
        let after = std::thread::spawn(|| {
            keep_to_launch(false).unwrap();
            let own = thread::capabilities(None).unwrap();
            assert!(!thread::capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap());
            let (nobody, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            thread::set_thread_groups(&[]).unwrap();
            thread::set_thread_res_gid(group, group, group).unwrap();
            thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            (own.permitted.bits().count_ones(), thread::capabilities(None).unwrap().permitted)
        });
        assert_eq!(after.join().unwrap(), (4, CapabilitySet::empty()));
    }

    #[test]
    fn files_are_found_as_a_user_who_may_still_be_become() {
        use std::os::unix::fs::PermissionsExt;
        if !may_become_another() {
            eprintln!("SKIPPED: only root can become another user");
            return;
        }
        let closed = std::env::temp_dir().join(format!("privileges-{}", std::process::id()));
        std::fs::create_dir_all(closed.join("in")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&closed, mode).unwrap();
        let path = closed.join("in");
        let after = std::thread::spawn(move || {
            keep_to_launch(false).unwrap();
            let before = std::fs::metadata(&path).is_ok();
            let nobody = SystemUser { user: NOBODY, group: NOBODY, groups: Vec::new() };
            find_files_as(Some(&nobody)).unwrap();
            let found = std::fs::metadata(&path).map_err(|error| error.kind());
            (before, found.map(drop), may_become_another())
        });
        let after = after.join().unwrap();
        std::fs::remove_dir_all(closed).unwrap();
        assert_eq!(after, (true, Err(io::ErrorKind::PermissionDenied), true));
    }

    #[test]
    fn who_keeps_one_right_can_do_nothing_else() {
        if !may_become_another() || !may_change_firewall() {
            eprintln!("SKIPPED: only root can become another user");
            return;
        }
        let after = std::thread::spawn(|| {
            keep_net_admin_only().unwrap();
            let sets = thread::capabilities(None).unwrap();
            assert_eq!(sets.permitted, CapabilitySet::NET_ADMIN);
            assert_eq!(sets.inheritable, CapabilitySet::NET_ADMIN);
            assert!(thread::capability_is_in_ambient_set(CapabilitySet::NET_ADMIN).unwrap());
            assert!(!thread::capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap());
            (current(), may_change_firewall(), may_become_another())
        });
        assert_eq!(after.join().unwrap(), ((NOBODY, NOBODY), true, false));
    }
}
