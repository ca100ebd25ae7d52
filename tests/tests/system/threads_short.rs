//! A machine that gives no more threads: a reload that needs them changes nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use rustix::process::{Signal, geteuid};
use std::fs;
use std::io::{Read, Write};

/// A user for this test alone, because the kernel counts threads by user.
const USER: u32 = 61_235;

/// The number of threads that the user may have: enough for the server as it begins.
const MOST: u32 = 40;

fn get(server: &Server) -> String {
    let mut stream = server.connect();
    write!(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_reload_that_finds_no_threads_changes_nothing() {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "in CI this runs as root");
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    let folder = Folder::new();
    folder.write("index.html", "here");
    let wrapper = vec!["prlimit".to_owned(), format!("--nproc={MOST}:{MOST}")];
    let options =
        Options { wrapper, user: Some(USER), ..Options::new(folder.path()).engine("event") };
    let mut server = Server::start(&options.config("log.access = \"off\""));
    let text = fs::read_to_string(server.file()).unwrap();
    let begun = "engine = \"event\"\nworkers = 2\n";
    assert!(text.contains(begun), "{text}");
    let wanted = [
        "engine = \"pool\"\nworkers = 64\n",
        "engine = \"pipeline\"\npipeline.process = 60\n",
        "engine = \"pipeline\"\npipeline.fuse = \"never\"\npipeline.send = 60\n",
        "engine = \"event\"\nworkers = 60\n",
    ];
    for (count, engine) in wanted.into_iter().enumerate() {
        fs::write(server.file(), text.replace(begun, engine)).unwrap();
        server.signal(Signal::HUP);
        let said = || server.stderr().matches("nothing has changed").count() > count;
        assert!(soon(PATIENCE, said), "{engine}: {}", server.stderr());
        assert!(get(&server).ends_with("here"), "{engine}: {}", server.stderr());
    }
    fs::write(server.file(), &text).unwrap();
    server.signal(Signal::HUP);
    server.says("reloaded");
    server.signal(Signal::TERM);
    let status = server.wait(PATIENCE).expect("it ends");
    assert!(status.success(), "{status}: {}", server.stderr());
}
