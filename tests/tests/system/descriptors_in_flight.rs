//! Descriptors on their way to other processes, of which the kernel allows a user only a limited number
//! (unix(7), ETOOMANYREFS): a server that may hand none over says so, and blames no receiver.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::WatchedServer;
use forebay_tests::faults::client::Client;
use forebay_tests::faults::site::Folder;
use forebay_tests::receiver::SocketReceiver;
use forebay_tests::{ENGINES, Options, http2};
use rustix::fs::Uid;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::geteuid;
use std::fs::{self, File, Permissions};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::thread;

/// A user for this test alone, because the kernel counts descriptors on their way by user.
const USER: u32 = 61_236;

/// The number of descriptors that the server may have, and that may be on their way.
const MOST: usize = 300;

/// The number of descriptors in one message.
const BATCH: usize = 200;

/// Has as many descriptors on their way as the user may have, until the result is dropped.
fn fill() -> (UnixStream, UnixStream) {
    // the thread changes its user, and the process does not
    let fill = || {
        let user = Uid::from_raw(USER);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let given = [file.as_fd(); BATCH];
        for _ in 0..MOST.div_ceil(BATCH) + 1 {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            assert!(beside.push(SendAncillaryMessage::ScmRights(&given)));
            let sent = sendmsg(&here, &[IoSlice::new(b"x")], &mut beside, SendFlags::empty());
            assert_eq!(sent, Ok(1));
        }
        (here, there)
    };
    thread::spawn(fill).join().unwrap()
}

#[test]
fn a_server_that_may_hand_nothing_over_blames_no_receiver() {
    if !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "in CI this runs as root");
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    let receiver = SocketReceiver::start(|handed| handed.answer("handed"));
    let to = receiver.to();
    // a user that may write to the socket may connect
    fs::set_permissions(to.trim_start_matches("unix:"), Permissions::from_mode(0o777)).unwrap();
    let folder = Folder::new();
    folder.write("site/index.html", "a static page");
    let lines = format!(
        "[control]\nsocket = \"off\"\n[[hand_over]]\npath = \"/app\"\nrelay = true\nmax_fails = 1\nto = {to:?}\n"
    );
    for engine in ENGINES {
        let wrapper = vec!["prlimit".to_owned(), format!("--nofile={MOST}:{MOST}")];
        let options = Options::new(folder.join("site")).engine(engine).config(&lines);
        let served = WatchedServer::with(Options { wrapper, user: Some(USER), ..options });
        let get = |path| Client::over(served.connect()).get(path).unwrap();
        let stream = |path| http2::Client::connect(served.listens_at()).get(path);
        assert_eq!(get("/app").body, b"handed", "{engine}");
        assert_eq!(stream("/app").body, b"handed", "{engine}");
        let full = fill();
        for _ in 0..3 {
            assert_eq!(get("/app").status, 503, "{engine}");
            assert_eq!(stream("/app").status, 503, "{engine}");
            assert_eq!(get("/").body, b"a static page", "{engine}");
        }
        drop(full);
        // the receiver was not at fault, so it is asked at once
        assert_eq!(get("/app").body, b"handed", "{engine}");
        assert_eq!(stream("/app").body, b"handed", "{engine}");
    }
}
