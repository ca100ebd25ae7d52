//! A process that goes on opening files and connections, and leaves other processes and the kernel alone (seccomp).
//!
//! | it can | it cannot |
//! |---|---|
//! | open, read, write, connect, accept as its user and Landlock let it | signal, trace or read other processes, take their descriptors, change their limits and priorities |
//! | start threads of its own, signal these | start processes or programs |
//! | change its own limits and where it runs | mount, change namespaces or roots, use keys, io_uring and performance counters, load anything into the kernel (but what judges packets, where it is there for that) |
//!
//! What is not allowed fails with `EPERM`. A [sealed](crate::seal) process can do less.

use crate::seal::{Condition, SealFailure, has_bits, is, is_not, load, refused};
use seccompiler::SeccompRule;
use std::collections::BTreeMap;

/// Processors of the family x86 have a second set of numbers for the same calls.
const X32: libc::c_long = 0x4000_0000;

/// The calls that have numbers of their own in that set.
const X32_ONLY: std::ops::RangeInclusive<libc::c_long> = 512..=547;

/// Orders of fcntl and ioctl that say who is signalled.
const F_SETOWN_EX: u64 = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
/// Orders of ioctl that type into the terminal from which the server was started, or paste there.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// Whatever the arguments are.
const NEVER: &[libc::c_long] = &[
    // other processes
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    // programs
    libc::SYS_execve,
    libc::SYS_execveat,
    // what the machine looks like
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_personality,
    // the kernel
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// What newer processors have no call for.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] =
    &[libc::SYS_fork, libc::SYS_vfork, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// Restrains the process, all of its threads and those that they start, for good. `judges_packets`: it loads programs
/// into the kernel, as its rights let it.
///
/// # Errors
/// [`SealFailure`]; then the process may do what it could before.
pub fn restrain(judges_packets: bool) -> Result<(), SealFailure> {
    let mut never: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    if !judges_packets {
        never.insert(libc::SYS_bpf, Vec::new());
    }
    let own = u64::from(std::process::id());
    let some = [
        // also none to its own group, where its launcher is
        (libc::SYS_kill, vec![vec![is_not(0, own)]]),
        (libc::SYS_tgkill, vec![vec![is_not(0, own)]]),
        (libc::SYS_clone, vec![vec![has_bits(0, libc::CLONE_THREAD as u64, 0)]]),
        (libc::SYS_prlimit64, vec![vec![is_not(0, 0), is_not(0, own)]]),
        // a signal for what comes to a descriptor goes to any process of the same user
        (libc::SYS_fcntl, vec![vec![is(1, libc::F_SETOWN as u64)], vec![is(1, F_SETOWN_EX)]]),
        (
            libc::SYS_ioctl,
            [FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX].map(|order| vec![is(1, order)]).into(),
        ),
    ];
    for (call, each) in some {
        never.insert(call, each.into_iter().map(rule).collect::<Result<_, _>>()?);
    }
    if cfg!(target_arch = "x86_64") {
        let twins: Vec<_> = never.iter().map(|(call, rules)| (call + X32, rules.clone())).collect();
        never.extend(twins);
        never.extend(X32_ONLY.map(|call| (call + X32, Vec::new())));
    }
    load(never, seccompiler::SeccompAction::Allow, refused())
}

fn rule(conditions: Vec<Condition>) -> Result<SeccompRule, SealFailure> {
    let conditions = conditions.into_iter().collect::<Result<_, _>>();
    let rule = conditions.and_then(SeccompRule::new);
    rule.map_err(|_| SealFailure::Processor)
}
