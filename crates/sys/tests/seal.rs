//! Hostile code in a sealed process: this program starts itself, seals the new process, and tries
//! there what code that has taken a process over would try.
#![allow(clippy::unwrap_used, reason = "a failed check panics")]
#![allow(missing_docs, reason = "a test")]

use forebay_sys::broker::{self, Connector};
use forebay_sys::client::{ConnectOptions, connect};
use forebay_sys::passing::{PassedSockets, Program};
use forebay_sys::seal::seal;
use std::ffi::{CStr, c_long};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::thread;

const INSIDE: &str = "FOREBAY_TEST_SEALED";

/// A system call with these arguments: 0, or the number of the error.
fn call(number: c_long, arguments: &[c_long]) -> i32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: pointers among the arguments are null or lead to constants that end in NUL; what the call
    // would change or write to is not used afterwards, and nearly all of them are refused.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

fn at(text: &'static CStr) -> c_long {
    text.as_ptr() as c_long
}

/// The attempts of hostile code, by name, each with the error that it gets.
fn attempts(parent: c_long, listening: c_long, datagrams: c_long) -> Vec<(&'static str, i32)> {
    let passwd = at(c"/etc/passwd");
    let cwd = c_long::from(libc::AT_FDCWD);
    let own = c_long::from(std::process::id());
    // addresses of sockets: an abstract name, and a path
    let mut address = [0u8; 110];
    address[0] = libc::AF_UNIX as u8;
    address[2..10].copy_from_slice(b"/dev/log");
    let to = address.as_ptr() as c_long;
    let exec = c_long::from(libc::PROT_READ | libc::PROT_EXEC);
    let private = c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let chld = c_long::from(libc::SIGCHLD);
    let tried: &[(&'static str, c_long, &[c_long])] = &[
        // files
        ("openat", libc::SYS_openat, &[cwd, passwd, 0]),
        ("openat2", libc::SYS_openat2, &[cwd, passwd, 0, 24]),
        ("statx", libc::SYS_statx, &[cwd, passwd, 0, 0, 0]),
        ("newfstatat", libc::SYS_newfstatat, &[cwd, passwd, 0, 0]),
        ("faccessat2", libc::SYS_faccessat2, &[cwd, passwd, 0, 0]),
        ("readlinkat", libc::SYS_readlinkat, &[cwd, at(c"/proc/self/exe"), 0, 0]),
        ("getdents64", libc::SYS_getdents64, &[0, 0, 0]),
        ("name_to_handle_at", libc::SYS_name_to_handle_at, &[cwd, passwd, 0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, &[cwd, 0, 0]),
        ("unlinkat", libc::SYS_unlinkat, &[cwd, at(c"/nothing"), 0]),
        ("renameat2", libc::SYS_renameat2, &[cwd, at(c"/nothing"), cwd, at(c"/n"), 0]),
        ("linkat", libc::SYS_linkat, &[cwd, passwd, cwd, at(c"/tmp/x"), 0]),
        ("symlinkat", libc::SYS_symlinkat, &[passwd, cwd, at(c"/tmp/x")]),
        ("mkdirat", libc::SYS_mkdirat, &[cwd, at(c"/tmp/x"), 0]),
        ("memfd_create", libc::SYS_memfd_create, &[at(c"x"), 0]),
        ("inotify_init1", libc::SYS_inotify_init1, &[0]),
        ("chroot", libc::SYS_chroot, &[at(c"/")]),
        ("chdir", libc::SYS_chdir, &[at(c"/")]),
        ("mount", libc::SYS_mount, &[0, 0, 0, 0, 0]),
        // connections
        ("socket inet", libc::SYS_socket, &[2, 1, 0]),
        ("socket unix", libc::SYS_socket, &[1, 1, 0]),
        ("socket netlink", libc::SYS_socket, &[16, 3, 0]),
        ("socketpair", libc::SYS_socketpair, &[1, 1, 0, 0]),
        ("connect", libc::SYS_connect, &[listening, to, 110]),
        ("bind", libc::SYS_bind, &[listening, to, 110]),
        ("listen", libc::SYS_listen, &[listening, 1]),
        ("sendto", libc::SYS_sendto, &[datagrams, passwd, 1, 0, to, 11]),
        ("sendmmsg", libc::SYS_sendmmsg, &[datagrams, 0, 0, 0]),
        // programs and processes
        ("execve", libc::SYS_execve, &[at(c"/bin/true"), 0, 0]),
        ("execveat", libc::SYS_execveat, &[cwd, at(c"/bin/true"), 0, 0, 0]),
        ("clone", libc::SYS_clone, &[chld, 0, 0, 0, 0]),
        ("clone with memory", libc::SYS_clone, &[0x100 | chld, 0, 0, 0, 0]),
        ("unshare", libc::SYS_unshare, &[0x1000_0000]),
        ("setns", libc::SYS_setns, &[0, 0]),
        ("ptrace", libc::SYS_ptrace, &[16, parent, 0, 0]),
        ("ptrace me", libc::SYS_ptrace, &[0, 0, 0, 0]),
        ("kill", libc::SYS_kill, &[parent, 0]),
        ("kill all", libc::SYS_kill, &[-1, 0]),
        ("tkill", libc::SYS_tkill, &[parent, 0]),
        ("tgkill", libc::SYS_tgkill, &[parent, parent, 0]),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, &[parent, 0, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, &[parent, 0]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, &[0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, &[parent, 0, 0, 0, 0, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, &[parent, 0, 0, 0, 0, 0]),
        ("wait4", libc::SYS_wait4, &[-1, 0, 0, 0]),
        ("fcntl owner", libc::SYS_fcntl, &[listening, 8, parent]),
        ("ioctl terminal", libc::SYS_ioctl, &[0, 0x5412, passwd]),
        // code
        ("mmap", libc::SYS_mmap, &[0, 4096, exec, private, -1, 0]),
        ("mprotect", libc::SYS_mprotect, &[0, 4096, exec]),
        ("bpf", libc::SYS_bpf, &[0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, &[1, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, &[0]),
        ("perf_event_open", libc::SYS_perf_event_open, &[0, 0, 0, 0, 0]),
        ("init_module", libc::SYS_init_module, &[0, 0, 0]),
        // rights
        ("setuid", libc::SYS_setuid, &[0]),
        ("setresuid", libc::SYS_setresuid, &[0, 0, 0]),
        ("capset", libc::SYS_capset, &[0, 0]),
        ("prctl", libc::SYS_prctl, &[4, 1]),
        ("prlimit64", libc::SYS_prlimit64, &[own, 7, 0, 0]),
        ("seccomp", libc::SYS_seccomp, &[0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, &[0, 0, 0]),
        ("setpriority", libc::SYS_setpriority, &[0, 0, 0]),
    ];
    tried.iter().map(|(name, number, arguments)| (*name, call(*number, arguments))).collect()
}

/// Runs in the sealed process, and prints the outcome of each attempt in a line.
fn sealed() {
    let mut connector = Connector::inherited().unwrap().unwrap();
    let parent = c_long::from(std::os::unix::process::parent_id());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).unwrap();
    let (datagrams, _other) = UnixDatagram::pair().unwrap();
    let (mut one, mut other) = UnixStream::pair().unwrap();
    // a thread that runs before the seal is sealed, too
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let before = thread::spawn(move || {
        told.recv().unwrap();
        File::open("/etc/passwd").unwrap_err().raw_os_error()
    });
    seal().unwrap();
    let (listening, raw) =
        (c_long::from(listener.as_raw_fd()), c_long::from(datagrams.as_raw_fd()));
    for (name, error) in attempts(parent, listening, raw) {
        println!("{name}: {error}");
    }
    #[cfg(target_arch = "x86_64")]
    for (name, number) in [
        ("open", libc::SYS_open),
        ("fork", libc::SYS_fork),
        ("vfork", libc::SYS_vfork),
        // by the numbers of this processor's other interface
        ("x32 openat", 0x4000_0000 + libc::SYS_openat),
    ] {
        println!("{name}: {}", call(number, &[at(c"/etc/passwd"), 0]));
    }
    tell.send(()).unwrap();
    println!("earlier thread: {}", before.join().unwrap().unwrap());
    println!(
        "program: {}",
        Command::new("/bin/true").status().unwrap_err().raw_os_error().unwrap()
    );
    // what the process is there for goes on
    one.write_all(b"x").unwrap();
    other.read_exact(&mut [0]).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"y").unwrap();
    (&client).read_exact(&mut [0]).unwrap();
    assert_eq!(thread::spawn(|| vec![1u8; 1 << 20].len()).join().unwrap(), 1 << 20);
    // the process that connects may be kept from its core for longer than the wait lasts
    let is_late = |made: &io::Result<OwnedFd>| {
        made.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let made = (0..60).map(|_| connector.connect(0)).find(|made| !is_late(made));
    let mut next = TcpStream::from(made.unwrap().unwrap());
    next.set_nonblocking(false).unwrap();
    next.write_all(b"z").unwrap();
    assert!(connector.connect(1).is_err());
    println!("goes on: 0");
}

#[test]
fn hostile_code_gets_nothing() {
    if std::env::var_os(INSIDE).is_some() {
        return sealed();
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asks, broker) = broker::pair().unwrap();
    let none: &[OwnedFd] = &[];
    let passing = PassedSockets::new(none).unwrap().with_connector(&asks).unwrap();
    drop(asks);
    let program = Program::open(&std::env::current_exe().unwrap()).unwrap();
    let arguments = |command: &mut Command| {
        command.args(["--exact", "hostile_code_gets_nothing", "--nocapture", "--test-threads=1"]);
        command.env(INSIDE, "1").stdout(Stdio::piped());
    };
    let child = passing.spawn(&program, arguments, "/nowhere".as_ref()).unwrap();
    let answers = thread::spawn(move || {
        while broker.answer(|number| match number {
            0 => connect(address, ConnectOptions::default()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        }) {}
    });
    let output = child.wait_with_output().unwrap();
    answers.join().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    // the connection that it asked for comes behind those that came too late for it
    let byte = listener.incoming().find_map(|stream| {
        let mut byte = [0];
        stream.unwrap().read_exact(&mut byte).ok().map(|()| byte)
    });
    assert_eq!(byte.as_ref(), Some(b"z"));
    let results: Vec<_> = said
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .filter_map(|(name, error)| Some((name, error.parse::<i32>().ok()?)))
        .collect();
    assert!(results.len() > 60 && results.iter().any(|(name, _)| *name == "goes on"), "{said}");
    for (name, error) in results {
        let expected = if name == "goes on" { 0 } else { libc::EPERM };
        assert_eq!(error, expected, "{name}");
    }
}
