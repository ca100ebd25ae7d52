//! Processes of `isolated` that end or hang, or that the supervisor or an operator ends, one or all at
//! once.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::isolated::{UNHURRIED, end, get, links, signal, site, stage, stages, told, until_gone};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, copy_program, free_addr};
use forebay_tests::{Options, Server, wire};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The delay after which another signal counts as a second one.
const LATER: Duration = Duration::from_millis(300);

/// Starts a server by `wrapper`.
fn start(folder: &Folder, wrapper: &[&str], more: &str) -> Server {
    let config = format!("{UNHURRIED}timeouts.send_window = \"1h\"\n{more}");
    let mut options = Options::new(folder.join(".")).engine("isolated").config(&config);
    options.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
    Server::start(&options)
}

/// An answer of which a part has come.
struct Download {
    client: TcpStream,
    received: Vec<u8>,
}

impl Download {
    fn begin(server: &Server) -> Download {
        let mut client = server.connect();
        client.set_read_timeout(Some(wire::PATIENCE)).unwrap();
        let request = b"GET /large.bin HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        client.write_all(request).unwrap();
        let mut received = vec![0; 1000];
        client.read_exact(&mut received).unwrap();
        Download { client, received }
    }

    fn end(mut self) {
        self.client.read_to_end(&mut self.received).unwrap();
        let (status, _, body) = told(&self.received);
        assert!(status.contains(" 200 "), "{status}");
        assert!(body == counting(body.len()), "another body");
        assert_eq!(body.len(), 16 * 1024 * 1024);
    }
}

/// The output of `forebay status` about the server.
fn status(server: &Server) -> String {
    let output = Command::new(binary()).args(["status", "-c"]).arg(server.file()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_stage_that_an_operator_ends_finishes_what_it_has() {
    let folder = site();
    let server = start(&folder, &[], "isolated.process = 1\nisolated.respond = 1\n");
    for name in ["respond 1", "process 1"] {
        let download = Download::begin(&server);
        let pid = stage(&server, name, 0);
        let socket = links(pid).join(format!("{}.sock", name.replace(' ', "-")));
        signal(pid, Signal::TERM);
        // a process that drains no longer listens, so it cannot be pinged
        let drains = || UnixStream::connect(&socket).is_err();
        assert!(soon(wire::PATIENCE, drains), "it goes on");
        thread::sleep(LATER);
        download.end();
        stage(&server, name, pid);
        assert!(told(&get(server.addr(), "/")).0.contains(" 200 "), "{}", server.stderr());
    }
    end(server);
}

/// Ends all processes at once, as a terminal does, and as `docker stop` or `kill` do with a group.
#[test]
fn a_process_group_ends_in_order() {
    let folder = site();
    let mut server = start(&folder, &["setsid"], "");
    let download = Download::begin(&server);
    let before = stages(&server);
    let group = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    download.end();
    assert!(server.wait(wire::PATIENCE).expect("it does not end").success());
    until_gone(&before);
}

#[test]
fn a_frozen_stage_does_not_keep_the_others_from_ending() {
    let folder = site();
    // at the first signal what hangs has as long as a drain may take, at the second it has not
    for drain in ["100ms", "1h"] {
        let mut server = start(&folder, &[], &format!("timeouts.drain = \"{drain}\"\n"));
        let before = stages(&server);
        freeze(stage(&server, "respond 2", 0));
        server.signal(Signal::TERM);
        if drain == "1h" {
            // the others have ended
            let others: Vec<_> =
                before.iter().filter(|(name, _)| !name.starts_with("respond")).cloned().collect();
            until_gone(&others);
            thread::sleep(LATER);
            server.signal(Signal::TERM);
        }
        assert!(server.wait(wire::PATIENCE).expect("it does not end").success());
        until_gone(&before);
        let told = server.stderr();
        assert!(told.contains("has not ended in time: it is killed"), "{told}");
    }
}

/// Starts the server from a copy of the program, which can be replaced, in a folder of its own.
fn start_copy(folder: &Folder, program: &Path) -> Server {
    copy_program(&binary(), program);
    let (at, program) = (folder.path().display(), program.display());
    start(folder, &["sh", "-c", &format!("cd '{at}'; shift; exec '{program}' \"$@\""), "sh"], "")
}

/// Replaces the program as an installation does.
fn replace(program: &Path, by: &Path) {
    fs::remove_file(program).unwrap();
    copy_program(by, program);
}

#[test]
fn while_a_reload_waits_stages_are_started_again_and_may_end() {
    let folder = site();
    let program = folder.join("a program");
    let mut server = start_copy(&folder, &program);
    let serves = stage(&server, "process 1", 0);
    // the arguments of a stage make this shell hang
    fs::write(folder.join("stage"), "exec sleep 3600\n").unwrap();
    replace(&program, "/bin/sh".as_ref());
    server.signal(Signal::HUP);
    let waits = || status(&server).lines().filter(|line| line.contains("starts")).count() == 2;
    assert!(soon(wire::PATIENCE, waits), "{}{}", status(&server), server.stderr());
    signal(serves, Signal::KILL);
    let is_back = || {
        let text = status(&server);
        let mut lines = text.lines().filter(|line| line.starts_with("process"));
        let is_again = |line: &str| line.contains("answers") && line.ends_with(" 1");
        lines.any(is_again)
    };
    assert!(soon(wire::PATIENCE, is_back), "{}", status(&server));
    assert!(told(&get(server.addr(), "/")).0.contains(" 200 "), "{}", server.stderr());
    // a second reload waits for the first, and neither keeps the server from ending
    server.signal(Signal::HUP);
    let all = stages(&server);
    server.signal(Signal::TERM);
    thread::sleep(LATER);
    server.signal(Signal::TERM);
    assert!(server.wait(wire::PATIENCE).expect("it does not end").success());
    until_gone(&all);
}

/// The file may have been changed since the first processes have read it.
#[test]
fn a_reload_that_is_asked_for_at_the_start_is_done() {
    let folder = site();
    let (file, errors) = (folder.join("forebay.toml"), folder.join("errors"));
    let listen = free_addr();
    let text = format!(
        "listen = [\"{listen}\"]\nroot = {:?}\nengine = \"isolated\"\nlog.access = \"off\"\n",
        folder.path()
    );
    fs::write(&file, text).unwrap();
    let mut command = Command::new(binary());
    command.args(["run", "-c"]).arg(&file).stderr(fs::File::create(&errors).unwrap());
    let mut server = command.spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", server.id());
    let has_children = || fs::read_to_string(&children).is_ok_and(|text| !text.is_empty());
    assert!(soon(wire::PATIENCE, has_children), "{}", fs::read_to_string(&errors).unwrap());
    signal(server.id(), Signal::HUP);
    let said = |what: &str| fs::read_to_string(&errors).unwrap().contains(what);
    let replaced = || said("the stages are replaced");
    assert!(soon(wire::PATIENCE, replaced), "{}", fs::read_to_string(&errors).unwrap());
    signal(server.id(), Signal::TERM);
    assert!(server.wait().unwrap().success());
}

/// Other stages may have come between two requests of a client.
#[test]
fn a_kept_connection_has_one_more_answer_after_a_reload() {
    let folder = site();
    let server = start(&folder, &[], "timeouts.drain = \"1h\"\n");
    let mut clients: Vec<_> = (0..2).map(|_| Client::connect(server.target())).collect();
    for client in &mut clients {
        assert!(!client.get("/").unwrap().is_last());
    }
    let before = stages(&server);
    server.signal(Signal::HUP);
    let replaced = || server.stderr().contains("each gets one more answer");
    assert!(soon(wire::PATIENCE, replaced), "{}", server.stderr());
    assert!(clients[0].get("/").unwrap().is_last(), "{}", server.stderr());
    // an operator that ends the server does not wait for idle connections
    end(server);
    until_gone(&before);
}

/// Stages that were replaced drain by themselves after half of the time. An operator's first signal then
/// counts as a first signal, and does not stop them.
#[test]
fn a_replaced_stage_is_told_to_drain_once() {
    let folder = site();
    let server = start(&folder, &[], "timeouts.drain = \"40s\"\n");
    let download = Download::begin(&server);
    let before = stages(&server);
    server.signal(Signal::HUP);
    let drains = || server.stderr().contains("SIGTERM: draining, connections open: 1");
    assert!(soon(wire::PATIENCE, drains), "{}", server.stderr());
    thread::sleep(LATER);
    server.signal(Signal::TERM);
    thread::sleep(LATER);
    download.end();
    until_gone(&before);
}

/// Clients of stages that were replaced have the same rights: a process that ends meanwhile is started
/// again for them.
#[test]
fn replaced_stages_are_started_again_while_they_have_clients() {
    let folder = site();
    let more = "timeouts.drain = \"1h\"\nisolated.process = 1\nisolated.respond = 1\n";
    let server = start(&folder, &[], more);
    let mut client = Client::connect(server.target());
    assert!(!client.get("/").unwrap().is_last());
    let before = stages(&server);
    server.signal(Signal::HUP);
    let replaced = || server.stderr().contains("the stages are replaced");
    assert!(soon(wire::PATIENCE, replaced), "{}", server.stderr());
    for (name, pid) in before.iter().filter(|(name, _)| !name.starts_with("receive")) {
        signal(*pid, Signal::KILL);
        until_gone(&[(name.clone(), *pid)]);
    }
    let answer = client.get("/").unwrap();
    assert!(answer.head.contains(" 200 ") && answer.is_last(), "{}", answer.head);
    end(server);
}

/// Another program serves after a successful reload, and not before.
#[test]
fn a_program_that_does_not_serve_replaces_none() {
    let folder = site();
    let program = folder.join("a program");
    let server = start_copy(&folder, &program);
    let before = stages(&server);
    let name = fs::read_to_string(format!("/proc/{}/comm", before[0].1)).unwrap();
    assert!(name.starts_with("forebay-"), "{name}");
    replace(&program, "/bin/false".as_ref());
    server.signal(Signal::HUP);
    let stay = || server.stderr().contains("the stages stay as they are");
    assert!(soon(wire::PATIENCE, stay), "{}", server.stderr());
    for (name, pid) in &before {
        signal(*pid, Signal::KILL);
        stage(&server, name, *pid);
    }
    let serves = || get(server.addr(), "/").starts_with(b"HTTP/1.1 200 ");
    assert!(soon(wire::PATIENCE, serves), "{}", server.stderr());
    replace(&program, &binary());
    server.signal(Signal::HUP);
    let replaced = || server.stderr().contains("the stages are replaced");
    assert!(soon(wire::PATIENCE, replaced), "{}", server.stderr());
    assert!(serves());
    end(server);
}

/// More stages report at once that they serve than the kernel keeps messages for a socket.
#[test]
fn many_instances_start() {
    let folder = site();
    let server = start(&folder, &[], "isolated.process = 2\nisolated.respond = 24\n");
    assert_eq!(stages(&server).len(), 27);
    assert!(told(&get(server.addr(), "/")).0.contains(" 200 "), "{}", server.stderr());
    end(server);
}
