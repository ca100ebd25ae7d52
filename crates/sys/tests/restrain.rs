//! Hostile code in a restrained process: this program starts itself, restrains what it started, and tries there what
//! code that has taken a stage over would try with other processes and with the kernel.
#![allow(clippy::unwrap_used, reason = "a failed check panics")]
#![allow(missing_docs, reason = "a test")]

use forebay_sys::restrain::restrain;
use std::ffi::{CStr, c_long};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

const INSIDE: &str = "FOREBAY_TEST_RESTRAINED";

/// A system call with these arguments: 0, or the number of the error.
fn call(number: c_long, arguments: &[c_long]) -> i32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: pointers among the arguments are null or lead to constants that end in NUL; what the call would change or
    // write to is not used afterwards, and all of them are refused.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

fn at(text: &'static CStr) -> c_long {
    text.as_ptr() as c_long
}

/// What hostile code tries, by name, with what it gets.
fn attempts(parent: c_long, listening: c_long) -> Vec<(&'static str, i32)> {
    let cwd = c_long::from(libc::AT_FDCWD);
    let chld = c_long::from(libc::SIGCHLD);
    let tried: &[(&'static str, c_long, &[c_long])] = &[
        ("kill", libc::SYS_kill, &[parent, 0]),
        ("kill its group", libc::SYS_kill, &[0, 0]),
        ("kill all", libc::SYS_kill, &[-1, 0]),
        ("tkill", libc::SYS_tkill, &[parent, 0]),
        ("tgkill", libc::SYS_tgkill, &[parent, parent, 0]),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, &[parent, 0, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, &[parent, 0]),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, &[0, 0, 0, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, &[0, 0, 0]),
        ("fcntl owner", libc::SYS_fcntl, &[listening, 8, parent]),
        ("ioctl owner", libc::SYS_ioctl, &[listening, 0x8901, 0]),
        ("ioctl group", libc::SYS_ioctl, &[listening, 0x8902, 0]),
        ("ptrace", libc::SYS_ptrace, &[16, parent, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, &[parent, 0, 0, 0, 0, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, &[parent, 0, 0, 0, 0, 0]),
        ("prlimit64", libc::SYS_prlimit64, &[parent, 7, 0, 0]),
        ("setpriority", libc::SYS_setpriority, &[0, parent, 19]),
        ("execve", libc::SYS_execve, &[at(c"/bin/true"), 0, 0]),
        ("execveat", libc::SYS_execveat, &[cwd, at(c"/bin/true"), 0, 0, 0]),
        ("clone", libc::SYS_clone, &[chld, 0, 0, 0, 0]),
        ("unshare", libc::SYS_unshare, &[0x1000_0000]),
        ("setns", libc::SYS_setns, &[0, 0]),
        ("mount", libc::SYS_mount, &[0, 0, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, &[at(c"/")]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, &[cwd, 0, 0]),
        ("bpf", libc::SYS_bpf, &[0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, &[1, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, &[0]),
        ("perf_event_open", libc::SYS_perf_event_open, &[0, 0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, &[0, 0, 0]),
        ("init_module", libc::SYS_init_module, &[0, 0, 0]),
    ];
    tried.iter().map(|(name, number, arguments)| (*name, call(*number, arguments))).collect()
}

/// What the restrained process does, and says in a line for each.
fn restrained() {
    let parent = c_long::from(std::os::unix::process::parent_id());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // one that is there before is restrained, too
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let before = thread::spawn(move || {
        told.recv().unwrap();
        call(libc::SYS_kill, &[parent, 0])
    });
    restrain(false).unwrap();
    for (name, error) in attempts(parent, c_long::from(listener.as_raw_fd())) {
        println!("{name}: {error}");
    }
    #[cfg(target_arch = "x86_64")]
    for (name, number) in [
        ("fork", libc::SYS_fork),
        ("vfork", libc::SYS_vfork),
        // by the numbers of the other interface of this processor, shared and its own
        ("x32 kill", 0x4000_0000 + libc::SYS_kill),
        ("x32 execve", 0x4000_0000 + 520),
    ] {
        println!("{name}: {}", call(number, &[parent, 0]));
    }
    tell.send(()).unwrap();
    println!("earlier thread: {}", before.join().unwrap());
    println!(
        "program: {}",
        Command::new("/bin/true").status().unwrap_err().raw_os_error().unwrap()
    );
    // and what it is there for goes on
    File::open("/etc/passwd").unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    listener.accept().unwrap();
    assert_eq!(thread::spawn(|| vec![1u8; 1 << 20].len()).join().unwrap(), 1 << 20);
    let own = c_long::from(std::process::id());
    assert_eq!(call(libc::SYS_kill, &[own, 0]), 0);
    assert_eq!(call(libc::SYS_prlimit64, &[0, 7, 0, 0]), 0);
    println!("goes on: 0");
}

#[test]
fn hostile_code_leaves_others_alone() {
    if std::env::var_os(INSIDE).is_some() {
        return restrained();
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args([
        "--exact",
        "hostile_code_leaves_others_alone",
        "--nocapture",
        "--test-threads=1",
    ]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let results: Vec<_> = said
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .filter_map(|(name, error)| Some((name, error.parse::<i32>().ok()?)))
        .collect();
    assert!(results.len() > 30 && results.iter().any(|(name, _)| *name == "goes on"), "{said}");
    for (name, error) in results {
        let expected = if name == "goes on" { 0 } else { libc::EPERM };
        assert_eq!(error, expected, "{name}");
    }
}
