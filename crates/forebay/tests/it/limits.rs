//! Handlers on threads where the system grants few: requests without room are refused, and the process
//! goes on.

use crate::client::{Client, get, soon};
use crate::handlers::builder;
use forebay::HandlerOptions;
use forebay_tests::server::copy_program;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The number of clients that ask at the same time, and of those that may wait for a thread.
const CLIENTS: usize = 400;
const WAITING: usize = 10;

/// A user for this test alone, because the kernel counts threads by user.
const USER: u32 = 61_236;

#[test]
fn few_threads_of_the_user_make_few_threads() {
    if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) != 0) {
        assert!(std::env::var_os("CI").is_none(), "in CI this runs as root");
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    run_limited(&["prlimit".to_owned(), "--nproc=80:80".to_owned()], Some(USER), "RLIMIT_NPROC");
}

/// Runs the test below in a process of its own, which `wrapper` limits.
fn run_limited(wrapper: &[String], user: Option<u32>, bound: &str) {
    let folder =
        std::env::temp_dir().join(format!("forebay-limits-{bound}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    // the build directory may be closed to other users
    let own = folder.join("it");
    copy_program(&std::env::current_exe().unwrap(), &own);
    let mut command = Command::new(&wrapper[0]);
    command.args(&wrapper[1..]).arg(&own);
    command.args(["--ignored", "--exact", "limits::more_than_there_is_room_for", "--nocapture"]);
    command.env("FOREBAY_BOUND", bound).current_dir(&folder);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    let _ = fs::remove_dir_all(&folder);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

#[test]
#[ignore = "wants a process with few threads: others here run it"]
fn more_than_there_is_room_for() {
    let bound = std::env::var("FOREBAY_BOUND").unwrap();
    // handlers on fibers, and those that keep their requests, want no thread
    let plain = |engine| builder(engine).most_threads(9_900, WAITING);
    let keeps = plain("event").detached("/", HandlerOptions::default(), |_, _| ());
    for without in [plain("fibers").handler("/", |_, _| Ok(())), keeps] {
        let server = without.start().unwrap();
        assert_eq!(server.warnings(), [""; 0]);
        server.stop().unwrap();
    }
    let (sender, receiver) = forebay::channel::<()>(CLIENTS);
    let mut server = builder("event")
        .handler("/wait", move |_, response| {
            receiver.recv()?;
            Ok(response.text("waited")?)
        })
        .most_threads(9_900, WAITING)
        .start()
        .unwrap();
    assert!(server.warnings().join("\n").contains("most_threads"));
    server.reload().unwrap();
    let warnings = server.warnings().join("\n");
    assert!(warnings.contains("most_threads") && warnings.contains(&bound), "{warnings}");
    let address = server.addresses()[0];
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(address);
            client.send("GET /wait HTTP/1.1\r\nHost: here\r\n\r\n");
            client
        })
        .collect();
    let refused = || {
        let metrics = server.metrics();
        let known = "forebay_upstream_requests_total{result=\"unavailable\"} ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(known));
        count.map_or(0, |count| count.parse::<usize>().unwrap())
    };
    // all others have a thread or wait for one
    soon("some are refused", || refused() > 0);
    (0..CLIENTS).for_each(|_| sender.send(()).unwrap());
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.answer().status).collect();
    let count = |status: u16| statuses.iter().filter(|&&known| known == status).count();
    println!("{warnings}; {} answered, {} refused", count(200), count(503));
    assert_eq!(count(200) + count(503), CLIENTS, "{statuses:?}");
    assert!(count(200) > WAITING && count(503) > 0, "{statuses:?}");
    soon("refusals are counted", || refused() == count(503));
    // there is room again, and messages of the refused requests are left in the channel
    assert_eq!(get(address, "/wait").text(), "waited");
    server.stop().unwrap();
}
