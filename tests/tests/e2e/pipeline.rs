//! The pipeline's threads with the real program: what moves them, and what does not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::crowd::Crowd;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

const PHASES: [&str; 4] = ["accept", "receive", "process", "send"];
/// The most threads of the pipeline: as many as its phases begin with.
const MOST: usize = 8;
/// Settings with which clients that take nothing hold a thread each, as in the paper.
const SETTINGS: &str = "pipeline.threads = 8\npipeline.period = \"500ms\"\npipeline.send_wait = \"1d\"\npipeline.accept = 2\n\
    pipeline.receive = 2\npipeline.process = 2\npipeline.send = 2\ntimeouts.send_window = \"1h\"\n";

fn threads(served: &WatchedServer, phase: &str) -> u64 {
    served.metric(&format!("forebay_pipeline_threads{{phase=\"{phase}\"}}"))
}

fn moved(served: &WatchedServer) -> u64 {
    served.metric("forebay_pipeline_threads_moved_total{how=\"transferred\"}")
}

fn is_of(name: &str, phase: &str) -> bool {
    name.strip_prefix(phase).is_some_and(|rest| rest.starts_with('-'))
}

/// The ids of the server's threads that are in a phase, by their names.
fn of_phases(served: &WatchedServer) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", served.pid())).unwrap().flatten();
    let is_of_phase = |name: &str| PHASES.iter().any(|phase| is_of(name, phase));
    let named = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        is_of_phase(&name).then(|| task.file_name().to_string_lossy().into_owned())
    });
    named.collect()
}

/// "keta's controller: 0 transfers in 10 s of empty lists", after a load for which threads have moved.
/// Threads change their phase; none starts or ends.
#[test]
fn threads_move_to_where_tasks_wait_and_not_between_empty_lists() {
    let folder = Folder::new();
    folder.write("large.bin", vec![0; 16 << 20]);
    let served = WatchedServer::start("pipeline:never", folder.path(), SETTINGS);
    let at_first = || PHASES.iter().all(|phase| threads(&served, phase) == 2);
    assert!(soon(PATIENCE, at_first), "{}", served.metrics());
    assert!(soon(PATIENCE, || of_phases(&served).len() == MOST), "{:?}", of_phases(&served));
    let begun = of_phases(&served);

    let mut slow = Crowd::connect(served.target(), 20, 1).unwrap();
    slow.send(b"GET /large.bin HTTP/1.1\r\nHost: slow\r\n\r\n");
    assert!(soon(PATIENCE, || threads(&served, "send") == 5), "{}", served.metrics());
    let transferred = moved(&served);
    assert!(transferred >= 3, "{}", served.metrics());
    let name = |id: &String| fs::read_to_string(format!("/proc/{}/task/{id}/comm", served.pid()));
    let is_sending = |id: &&String| name(id).is_ok_and(|name| is_of(&name, "send"));
    let sending = || of_phases(&served).iter().filter(is_sending).count();
    assert!(soon(PATIENCE, || sending() == 5), "{:?}", of_phases(&served));
    assert_eq!(of_phases(&served), begun, "the same threads");

    drop(slow);
    assert!(soon(PATIENCE, at_first), "what is free goes back: {}", served.metrics());
    // the last of them may still be on its way
    let stays = || {
        let transferred = moved(&served);
        sleep(Duration::from_secs(10));
        moved(&served) == transferred && at_first()
    };
    assert!((0..2).any(|_| stays()), "{}", served.metrics());
}
