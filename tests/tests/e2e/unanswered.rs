//! Commands that no server answers: the reason that they report, in time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::upgrade::upgrade;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;

/// Commands that ask a running server, each in its own way.
const COMMANDS: [&[&str]; 8] = [
    &["status"],
    &["reload"],
    &["upgrade"],
    &["policy", "show"],
    &["policy", "history"],
    &["policy", "bans"],
    &["upstream", "list"],
    &["why", "a"],
];

/// The output of a command, which fails.
fn said(command: &[&str], file: &Path) -> String {
    let output = Command::new(binary()).args(command).arg("-c").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
    said
}

fn server(folder: &Folder, lines: &str) -> Server {
    folder.write("root/index.html", "hello");
    Server::start(&Options::new(folder.join("root")).engine("event").config(lines))
}

fn is_stopped(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|status| status.contains("State:\tT"))
}

#[test]
fn a_server_that_is_stopped_is_named() {
    let folder = Folder::new();
    let server = server(&folder, "");
    let process = server.pid();
    server.signal(Signal::STOP);
    assert!(soon(PATIENCE, || is_stopped(process)));
    let at = thread::scope(|scope| {
        let file = server.file();
        let asked = COMMANDS.map(|command| {
            let file = file.clone();
            scope.spawn(move || (command, said(command, &file)))
        });
        asked.map(|thread| thread.join().unwrap())
    });
    for (command, said) in at {
        let expected = format!("process {process} (forebay), which listens at ");
        assert!(said.contains(&expected) && said.contains("is stopped"), "{command:?}: {said}");
        assert!(
            said.contains(&format!("kill -CONT {process} has it go on")),
            "{command:?}: {said}"
        );
        assert!(!said.contains("no server"), "{command:?}: {said}");
    }
    // the file has other settings than this server
    let explain = ["policy", "explain", "--client", "192.0.2.1", "GET /"];
    let said = said(&explain, &server.file());
    assert!(said.contains("is stopped") && !said.contains("no server runs"), "{said}");
    server.signal(Signal::CONT);
    assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    // after an upgrade, the command asks the new server
    let successor = upgrade(&server);
    let number = Pid::from_raw(successor.number()).unwrap();
    kill_process(number, Signal::STOP).unwrap();
    assert!(soon(PATIENCE, || is_stopped(successor.number().unsigned_abs())));
    let said = self::said(&["status"], &server.file());
    kill_process(number, Signal::CONT).unwrap();
    assert!(said.contains(&format!("process {} (forebay)", successor.number())), "{said}");
}

#[test]
fn the_socket_of_a_server_that_was_killed_is_named() {
    let folder = Folder::new();
    let mut server = server(&folder, "");
    server.signal(Signal::KILL);
    server.wait(PATIENCE).unwrap();
    for command in COMMANDS {
        let said = said(command, &server.file());
        assert!(
            said.contains("the process that has left this socket has ended"),
            "{command:?}: {said}"
        );
    }
    // without a server, explain judges by the file
    let explain = ["policy", "explain", "--client", "192.0.2.1", "GET /", "-c"];
    let output = Command::new(binary()).args(explain).arg(server.file()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("no server runs"), "{said}");
}

#[test]
fn another_program_behind_the_socket_is_named() {
    let folder = Folder::new();
    let socket = folder.join("other.sock");
    let line = format!("control.socket = {socket:?}\nlisten = [\"127.0.0.1:0\"]\n");
    let file = folder.write("forebay.toml", format!("{line}root = {:?}\n", folder.path()));
    for command in COMMANDS {
        let said = said(command, &file);
        assert!(said.contains("there is no such socket"), "{command:?}: {said}");
    }
    for answer in ["", "220 mail.example ESMTP\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let listener = UnixListener::bind(&socket).unwrap();
        let serves = thread::spawn(move || {
            // a reload asks twice: whether an upgrade is expected, too
            for stream in listener.incoming().take(COMMANDS.len() + 1) {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 100]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        for command in COMMANDS {
            let said = said(command, &file);
            let own = format!("process {} (", std::process::id());
            assert!(said.contains(&own), "{command:?} {answer:?}: {said}");
            assert!(said.contains("does not answer as Forebay does"), "{command:?}: {said}");
        }
        serves.join().unwrap();
        fs::remove_file(&socket).unwrap();
    }
    fs::write(&socket, "").unwrap();
    let said = said(&["status"], &file);
    assert!(said.contains("what is there is no control socket"), "{said}");
}
