//! Tests of programs that are run, in processes of one thread.

use super::*;
use crate::{launch, poll};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

/// A directory that is removed when this is dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("cgi-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("more")).unwrap();
        let directory = Directory(path);
        directory.write("plain", "#!/bin/sh\necho plain\n", 0o755);
        directory.write("more/below", "#!/bin/sh\necho below\n", 0o755);
        directory.write("closed", "#!/bin/sh\n", 0o644);
        directory.write("strong", "#!/bin/sh\n", 0o4755);
        symlink("more/below", directory.0.join("inside")).unwrap();
        symlink("/bin/sh", directory.0.join("outside")).unwrap();
        symlink("more", directory.0.join("way")).unwrap();
        symlink("..", directory.0.join("up")).unwrap();
        directory
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn find(&self, path: &str) -> io::Result<FoundProgram> {
        let root = crate::file::open_directory(&self.0).unwrap();
        find(root.as_fd(), path.as_bytes())
    }
}

#[test]
fn only_what_may_be_run_is_found() {
    let directory = Directory::new("find");
    for path in ["plain", "more/below", "inside", "way/below"] {
        let Ok(FoundProgram::File(found)) = directory.find(path) else { panic!("{path}") };
        assert!(found.is_script, "{path}");
    }
    for path in ["closed", "strong"] {
        assert!(matches!(directory.find(path), Ok(FoundProgram::Forbidden(_))), "{path}");
    }
    for path in ["more", "way", ""] {
        assert!(matches!(directory.find(path), Ok(FoundProgram::Directory)), "{path}");
    }
    for path in ["none", "outside", "up", "up/tmp", "../", "/bin/sh", "plain/x", "a\0b"] {
        let error = directory.find(path).unwrap_err();
        let failure = crate::file::failure(&error);
        assert_eq!(failure, crate::file::OpenFailure::Nowhere, "{path}: {error}");
    }
}

/// Runs the check in a process of its own that has one thread, like the processes that run
/// programs.
fn alone(check: fn()) {
    // SAFETY: the new process does what the fork of one of several threads may do with the C
    // library of Linux, which releases the locks of its allocator there, and it ends without
    // handlers of other threads.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let outcome = std::panic::catch_unwind(check);
        let failed = outcome.is_err();
        if let Err(why) = outcome {
            let text = why.downcast_ref::<String>().map_or("it has panicked", String::as_str);
            let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
        }
        // SAFETY: it ends this process.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let (_, status) = waitpid(Pid::from_raw(process), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "what it says is on standard error");
}

fn start(program: &ProgramFile, environment: &[&str]) -> RunningCgi {
    let environment: Vec<_> = environment.iter().map(|text| CString::new(*text).unwrap()).collect();
    let limits = ProgramLimits { memory_bytes: 1 << 30, of_user: None };
    let (name, environment) = (c"program", &environment[..]);
    let groups = &ProgramGroups::default();
    CgiProgram { program, name, environment, user: None, limits, groups }.start().unwrap()
}

fn run(program: &ProgramFile, environment: &[&str]) -> (String, Result<i32, i32>) {
    let mut running = start(program, environment);
    running.input.take();
    let (mut said, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        poll::wait_readable(&[running.output.as_fd()], 60_000).unwrap();
        match rustix::io::read(&running.output, &mut buffer) {
            Ok(0) => break,
            Ok(count) => said.extend(&buffer[..count]),
            Err(_) => {}
        }
    }
    poll::wait_readable(&[running.ended()], 60_000).unwrap();
    (String::from_utf8(said).unwrap(), running.end().unwrap())
}

/// The order is the same where the launcher is not root, and hides its memory.
#[test]
fn what_is_started_is_ended_first_and_who_starts_it_is_not() {
    alone(|| {
        if crate::privileges::may_become_another() {
            let nobody = Uid::from_raw(65534);
            thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let dumpable = rustix::process::DumpableBehavior::Dumpable;
            rustix::process::set_dumpable_behavior(dumpable).unwrap();
        }
        let score = || fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        let before = score();
        let order = EndingOrder::of_this_process().unwrap();
        launch::hide_memory().unwrap();
        order.set(true);
        let forked = fork().unwrap();
        if forked == Forked::Child {
            // SAFETY: it ends this process, which has nothing to do at its end.
            unsafe { libc::_exit(i32::from(score().trim() != "500")) };
        }
        order.set(false);
        let (_, status) = wait(WaitOptions::empty()).unwrap().unwrap();
        assert_eq!((status.exit_status(), score()), (Some(0), before));
    });
}

/// The program is no zombie that can be waited for, until its tracer has ended.
#[test]
fn a_program_that_is_traced_by_what_it_has_started_ends() {
    alone(|| {
        launch::adopt_orphans().unwrap();
        let directory = Directory::new("traced");
        // PTRACE_SEIZE is 0x4206, PR_SET_PTRACER 0x59616d61; where ptrace(2) is not allowed it is a plain program
        let traced = "#!/usr/bin/env python3\nimport ctypes, os, sys, time\nc = ctypes.CDLL(None)\n\
            c.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)\nme = os.getpid()\nif os.fork() == 0:\n    os.setsid()\n\
            \x20   print(c.ptrace(0x4206, me, None, OPTIONS), flush=True)\n    time.sleep(600)\nsys.stdin.read()\n";
        // PTRACE_O_TRACEEXIT is 0x40: the program stops where it would end
        for (name, options) in [("ends", "None"), ("stays", "ctypes.c_void_p(0x40)")] {
            let text = traced.replace("OPTIONS", options);
            directory.write(name, &text, 0o755);
            let Ok(FoundProgram::File(program)) = directory.find(name) else { panic!() };
            let mut running = start(&program, &["PATH=/usr/local/bin:/usr/bin:/bin"]);
            poll::wait_readable(&[running.output.as_fd()], 60_000).unwrap();
            let mut said = [0; 8];
            let count = rustix::io::read(&running.output, &mut said).unwrap_or(0);
            if !said[..count].starts_with(b"0") {
                eprintln!("SKIPPED: no python3, or no ptrace(2)");
            }
            if name == "ends" {
                running.input.take();
                poll::wait_readable(&[running.ended()], 60_000).unwrap();
            }
            running.end().unwrap().ok();
            assert!(end_descendants(), "{name}");
        }
    });
}

#[test]
fn what_has_ended_is_not_counted() {
    alone(|| {
        launch::adopt_orphans().unwrap();
        let directory = Directory::new("many");
        let many = "#!/bin/sh\nfor n in $(seq 100); do (true &); done\necho done\nread end\n";
        directory.write("many", many, 0o755);
        let Ok(FoundProgram::File(program)) = directory.find("many") else { panic!() };
        let mut running = start(&program, &[]);
        poll::wait_readable(&[running.output.as_fd()], 60_000).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while running.taken().processes > 1 && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        assert_eq!(running.taken().processes, 1);
        running.input.take();
        poll::wait_readable(&[running.ended()], 60_000).unwrap();
        assert!(running.end().unwrap().is_ok());
        assert!(end_descendants());
    });
}

#[test]
fn a_program_has_what_it_is_given_and_ends_with_all_it_has_started() {
    alone(|| {
        launch::adopt_orphans().unwrap();
        let directory = Directory::new("run");
        let leaves = "#!/bin/sh\nenv\npwd\nls /proc/self/fd | tr '\\n' ' '\ndirname \"$0\"\n\
                      (setsid sleep 600 >/dev/null 2>&1 &)\nexit 3\n";
        directory.write("leaves", leaves, 0o755);
        let Ok(FoundProgram::File(program)) = directory.find("leaves") else { panic!() };
        let (said, end) = run(&program, &["A=b c"]);
        assert_eq!(end, Ok(3), "{said}");
        assert!(said.starts_with("A=b c\n") && said.contains("\n0 1 2 3 .\n"), "{said}");
        assert!(said.contains(&format!("{}\n", directory.0.display())), "{said}");
        assert!(taken().processes >= 1);
        assert!(end_descendants());
        assert_eq!(taken().processes, 0);
    });
}
