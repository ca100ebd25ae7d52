//! What code could do that has taken a stage over: the stages try it once they are confined (`FOREBAY_TRY`), started by root and
//! as by the unit of the package. The table is that of `docs/manual/isolated.md`. It needs root, and a kernel with Landlock
//! of Linux 6.12.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::net::is_root;
use forebay_tests::faults::site::Folder;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options, Server};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

/// A number that is no user's.
const USER: u32 = 54_322;

/// What each stage could do. Who may read the configuration file, its permissions say.
const ATTEMPTS: [(&str, &[&str]); 12] = [
    ("reads the content", &["receive", "respond"]),
    ("reads other directories", &[]),
    ("writes to the content", &[]),
    ("connects to other ports", &[]),
    ("connects to abstract names", &[]),
    ("listens", &[]),
    ("starts programs", &[]),
    ("signals the first process", &[]),
    ("signals other stages", &[]),
    ("looks into other stages", &[]),
    ("loads programs into the kernel", &[]),
    ("changes the firewall", &[]),
];

/// A server that was started by root, which has a user for its stages, or as by the unit; its stages try.
fn trying(folder: &Folder, by_unit: bool, lines: &str) -> Server {
    folder.write("root/index.html", "hello");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let (user, lines) = match by_unit {
        false => (None, format!("user = \"{USER}\"\ngroup = \"{USER}\"\n{lines}")),
        true => {
            chown(folder.path(), Some(USER), Some(USER)).unwrap();
            (Some(USER), lines.to_owned())
        }
    };
    let wrapper = ["env", "FOREBAY_TRY=1"].map(str::to_owned).to_vec();
    let options = Options::new(folder.join("root")).engine(ISOLATED).config(&lines);
    Server::start(&Options { wrapper, user, ..options })
}

/// What a stage says of each attempt.
fn outcomes(server: &Server, stage: &str) -> Vec<(String, String)> {
    let said = server.stderr();
    let start = format!("stage {stage}: ");
    let lines = said.lines().filter_map(|line| line.split_once(&start));
    let outcomes = lines.filter_map(|(_, rest)| rest.split_once(": "));
    outcomes.map(|(what, outcome)| (what.to_owned(), outcome.to_owned())).collect()
}

#[test]
fn a_stage_that_was_taken_over_does_what_the_manual_says() {
    if !is_root() {
        return;
    }
    for by_unit in [false, true] {
        let folder = Folder::new();
        let mut server = trying(&folder, by_unit, "");
        // the first to be started finds no other
        for stage in ["receive 1", "process 1", "respond 2"] {
            let outcomes = outcomes(&server, stage);
            let name = stage.split(' ').next().unwrap();
            for (what, who) in ATTEMPTS {
                let found = outcomes.iter().find(|(tried, _)| tried == what);
                let (_, outcome) = found.unwrap_or_else(|| panic!("{stage}: {}", server.stderr()));
                assert_eq!(
                    outcome == "yes",
                    who.contains(&name),
                    "{stage} {what}: {outcome}, by the unit: {by_unit}"
                );
            }
        }
        server.signal(Signal::TERM);
        server.wait(PATIENCE).unwrap();
    }
}
