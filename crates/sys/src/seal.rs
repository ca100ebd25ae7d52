//! Sealing a process that has what it needs (seccomp): from then on it gets nothing new from the
//! kernel, and goes on with the descriptors and the memory it has.
//!
//! | it can | it cannot |
//! |---|---|
//! | read, write and close what is open, wait for it, accept on sockets that listen | open a file, look at one by its name, make or bind a socket, connect, send to an address |
//! | start threads of its own | start processes or programs, map memory to be run |
//! | end itself | signal, trace or read other processes, own those of descriptors |
//! | read clocks, ask for randomness, be scheduled | change users, namespaces, limits, keys, devices; load anything into the kernel; use io_uring |
//!
//! What is not allowed fails with `EPERM`.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::{fmt, io};

/// The reason why a process cannot be sealed.
#[derive(Debug)]
pub enum SealFailure {
    /// There is no filter for this processor.
    Processor,
    /// The kernel takes no filter.
    Refused(io::Error),
}

impl fmt::Display for SealFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SealFailure::Processor => f.write_str("there is no seccomp filter for this processor"),
            SealFailure::Refused(error) => {
                write!(f, "the kernel takes no seccomp filter: {error}")
            }
        }
    }
}

impl std::error::Error for SealFailure {}

/// Seals the process, all of its threads and those that they start, for good.
///
/// # Errors
/// [`SealFailure`]; then the process may do what it could before.
pub fn seal() -> Result<(), SealFailure> {
    load(allowed()?, refused(), SeccompAction::Allow)
}

/// Whether this kernel takes filters of system calls.
pub fn is_known() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads four bytes at the address, which are there, and changes nothing.
    let known = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    known == 0 && TargetArch::try_from(std::env::consts::ARCH).is_ok()
}

/// What becomes of a call that is not allowed.
pub(crate) fn refused() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM as u32)
}

/// Has calls that match `rules` end as `then` says, and others as `otherwise` does, on all threads.
pub(crate) fn load(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    then: SeccompAction,
) -> Result<(), SealFailure> {
    let processor = TargetArch::try_from(std::env::consts::ARCH);
    let processor = processor.map_err(|_| SealFailure::Processor)?;
    let compile = |rules, otherwise, then| {
        let filter = SeccompFilter::new(rules, otherwise, then, processor);
        filter.and_then(BpfProgram::try_from).map_err(|_| SealFailure::Processor)
    };
    let wanted = compile(rules, otherwise, then)?;
    // its arguments are in memory, where a filter cannot look; the C library goes on with clone then
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let unknown = compile(unknown, SeccompAction::Allow, missing)?;
    for filter in [unknown, wanted] {
        apply_filter_all_threads(&filter)
            .map_err(|error| SealFailure::Refused(io::Error::other(error)))?;
    }
    Ok(())
}

/// The orders of ioctl, for which C libraries have different types.
const FIONREAD: u64 = 0x541b;
const FIONBIO: u64 = 0x5421;

/// The calls that are allowed with any arguments.
const ALWAYS: &[libc::c_long] = &[
    // open descriptors
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    // sockets that exist
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // memory
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    // threads
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // signals to the process itself
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // time and randomness
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
];

/// The calls that newer processors do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, SealFailure> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALWAYS.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    let no_code = || has_bits(2, libc::PROT_EXEC as u64, 0);
    let thread = libc::CLONE_THREAD as u64;
    let own = u64::from(std::process::id());
    let some = [
        (libc::SYS_mmap, vec![no_code()]),
        (libc::SYS_mprotect, vec![no_code()]),
        (libc::SYS_clone, vec![has_bits(0, thread, thread)]),
        (libc::SYS_tgkill, vec![is(0, own)]),
        // to the connected end, and to no address
        (libc::SYS_sendto, vec![is_nothing(4)]),
        (libc::SYS_prctl, vec![is(0, libc::PR_SET_NAME as u64)]),
        (libc::SYS_ioctl, vec![is(1, FIONBIO), is(1, FIONREAD)]),
        (
            libc::SYS_fcntl,
            Vec::from(
                [
                    libc::F_GETFL,
                    libc::F_SETFL,
                    libc::F_GETFD,
                    libc::F_SETFD,
                    libc::F_DUPFD_CLOEXEC,
                    libc::F_GETPIPE_SZ,
                    libc::F_SETPIPE_SZ,
                ]
                .map(|command| is(1, command as u64)),
            ),
        ),
    ];
    for (call, conditions) in some {
        let each = conditions.into_iter().map(|condition| {
            let condition = condition.map_err(|_| SealFailure::Processor)?;
            SeccompRule::new(vec![condition]).map_err(|_| SealFailure::Processor)
        });
        rules.insert(call, each.collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

pub(crate) type Condition = Result<SeccompCondition, seccompiler::BackendError>;

/// Argument number `at`, of 32 bits, is `value`.
pub(crate) fn is(at: u8, value: u64) -> Condition {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// The same argument is another one.
pub(crate) fn is_not(at: u8, value: u64) -> Condition {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

/// Argument number `at` is the null pointer.
fn is_nothing(at: u8) -> Condition {
    SeccompCondition::new(at, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
}

/// Of the bits of `mask`, argument number `at` has those of `value`.
pub(crate) fn has_bits(at: u8, mask: u64, value: u64) -> Condition {
    SeccompCondition::new(at, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(mask), value)
}
