//! An answer is one version of a file ("Where truth comes from" in ARCHITECTURE.md), under load: eight
//! clients read a small and a large file while it changes. (What happens to one answer that is being
//! sent is in `faults_sending.rs`.)
//!
//! Every file has its version in each of its blocks, and an answer that came whole is compared with the
//! versions of the file. There is one loop, so that "after the change is seen" has one meaning (with a
//! thread for each reader it has the same, because the mark on a dead entry is shared).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::ALONE;
use forebay_tests::faults::client::{Answer, Client, Cut, field};
use forebay_tests::faults::site::{BLOCK_BYTES, Folder, versioned, versions};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::is_full_matrix;
use forebay_tests::socket::Target;
use forebay_tests::wire::PATIENCE;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

forebay_tests::on_each_engine! {
    replaced_by_rename_every_answer_is_one_whole_version,
    written_in_place_answers_are_whole_or_cut_short,
    truncated_and_grown_answers_are_whole_or_cut_short,
    removed_and_created_files_are_noticed,
    a_symlinked_root_that_is_re_pointed_is_seen,
}

forebay_tests::on_isolated! {
    replaced_by_rename_every_answer_is_one_whole_version,
    written_in_place_answers_are_whole_or_cut_short,
    truncated_and_grown_answers_are_whole_or_cut_short,
    removed_and_created_files_are_noticed,
    a_symlinked_root_that_is_re_pointed_is_seen,
}

/// Clients that read while the file changes.
const READERS: usize = 8;
/// The time that each kind of change goes on, and the time in the full matrix.
const STORM: Duration = Duration::from_millis(700);
const LONG_STORM: Duration = Duration::from_millis(2500);
/// The time between two changes.
const PAUSE: Duration = Duration::from_millis(12);

/// The two files: one that fits into the data cache, one that is sent from the file (with the
/// default `cache.file_bytes` of 1 MiB).
const FILES: [Kind; 2] =
    [Kind { path: "/small.txt", blocks: 40 }, Kind { path: "/large.bin", blocks: 19_200 }];

/// One file that changes, and its usual size.
#[derive(Clone, Copy, Debug)]
struct Kind {
    path: &'static str,
    blocks: usize,
}

impl Kind {
    /// The file at `version`; its length depends on it.
    fn at(self, version: u64) -> Vec<u8> {
        versioned(version, self.blocks + version as usize % 7)
    }

    fn file(self, folder: &Folder) -> std::path::PathBuf {
        folder.join(&self.path[1..])
    }
}

/// The number of answers that came whole during this change.
static WHOLE: AtomicU64 = AtomicU64::new(0);

/// The observations of all readers together.
#[derive(Debug, Default)]
struct Seen {
    whole: AtomicU64,
    cut: AtomicU64,
    /// The number of refusals because the file had changed each time the server looked at it, before
    /// anything was sent.
    refused: AtomicU64,
}

/// A client that connects again when its connection has ended.
struct Reader {
    to: Target,
    client: Client,
}

impl Reader {
    fn new(to: &Target) -> Reader {
        Reader { client: Client::connect(to.clone()), to: to.clone() }
    }

    /// Gets one answer. After an answer that announces the end, and after one that was cut short, no more
    /// can come on the same connection.
    fn get(&mut self, path: &str) -> Result<Answer, Cut> {
        let result = self.client.get(path);
        if !result.as_ref().is_ok_and(|answer| !answer.is_last()) {
            self.client = Client::connect(self.to.clone());
        }
        result
    }
}

/// Eight clients ask for both files in turn until `writer` returns. Each answer, whole or cut short, goes
/// to `check` with the number of the file and the result of `before` when it was asked for.
fn under_load<B>(
    to: &Target,
    before: impl Fn(usize) -> B + Sync,
    check: impl Fn(usize, B, Result<&Answer, &Cut>) + Sync,
    writer: impl FnOnce(),
) -> Seen {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (seen, done) = (Seen::default(), AtomicBool::new(false));
    WHOLE.store(0, SeqCst);
    let read = |reader: usize| {
        let mut client = Reader::new(to);
        for turn in reader.. {
            let number = turn % FILES.len();
            let at_first = before(number);
            let result = client.get(FILES[number].path);
            check(number, at_first, result.as_ref());
            match result {
                Ok(answer) if answer.status == 503 => _ = seen.refused.fetch_add(1, SeqCst),
                Ok(_) => {
                    seen.whole.fetch_add(1, SeqCst);
                    WHOLE.fetch_add(1, SeqCst);
                }
                Err(Cut::Silence(head)) => panic!("no more bytes, and no end, after {head:?}"),
                Err(_) => _ = seen.cut.fetch_add(1, SeqCst),
            }
            if done.load(SeqCst) {
                break;
            }
        }
    };
    thread::scope(|scope| {
        let readers: Vec<_> =
            (0..READERS).map(|reader| scope.spawn(move || read(reader))).collect();
        writer();
        done.store(true, SeqCst);
        for reader in readers {
            if let Err(panic) = reader.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    assert!(seen.whole.load(SeqCst) > READERS as u64, "{seen:?}: nothing was tested");
    println!("{seen:?}");
    seen
}

/// Calls `change` with the versions 2, 3, … while the storm lasts, on a slow machine until each reader
/// has had an answer; returns the last one.
fn storm(mut change: impl FnMut(u64)) -> u64 {
    let most = if is_full_matrix() { LONG_STORM } else { STORM };
    let begun = Instant::now();
    let goes_on = || match begun.elapsed() {
        time if time < most => true,
        time => WHOLE.load(SeqCst) <= READERS as u64 && time < most + PATIENCE,
    };
    let mut version = 1;
    while goes_on() {
        version += 1;
        change(version);
        thread::sleep(PAUSE);
    }
    version
}

/// The most requests of a connection: fewer than come by default, so that readers come to the last one
/// however fast the machine is.
const FEW_REQUESTS: &str = "limits.requests_per_connection = 500";

/// The number of releases of a root that stay beside the newest.
const KEPT: u64 = 40;

/// A server over `folder` in which version 1 of both files lies, written by `write`.
fn serve(engine: &str, folder: &Folder, write: impl Fn(&Path, Kind, u64)) -> WatchedServer {
    for kind in FILES {
        write(&kind.file(folder), kind, 1);
    }
    WatchedServer::alone(engine, folder.path(), FEW_REQUESTS)
}

fn only_version(answer: &Answer) -> u64 {
    match versions(&answer.body).as_deref() {
        Ok([version]) => *version,
        other => panic!("not one version but {other:?}: {}", answer.head),
    }
}

/// Whether `version` of both files is served in the end, when nothing changes any more.
fn settles_at(served: &WatchedServer, version: u64) -> bool {
    let mut client = Reader::new(&served.target());
    soon(PATIENCE, || {
        FILES.iter().all(|kind| client.get(kind.path).is_ok_and(|it| it.body == kind.at(version)))
    })
}

fn rename_into(path: &Path, content: &[u8]) {
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, content).unwrap();
    fs::rename(&fresh, path).unwrap();
}

/// "A file replaced by rename: every answer is one whole version", none is cut short, an entity tag
/// stands for one version, and after any client has seen a version, no client gets an older one.
fn replaced_by_rename_every_answer_is_one_whole_version(engine: &str) {
    let folder = Folder::new();
    let write = |path: &Path, kind: Kind, version| rename_into(path, &kind.at(version));
    let served = serve(engine, &folder, write);
    let newest = FILES.map(|_| AtomicU64::new(1));
    let tags = Mutex::new(HashMap::new());
    let check = |number: usize, floor, result: Result<&Answer, &Cut>| {
        let answer = result.unwrap_or_else(|cut| panic!("not whole: {}", cut.brief()));
        assert_eq!(answer.status, 200, "{}", answer.head);
        let version = only_version(answer);
        assert_eq!(answer.body.len(), FILES[number].at(version).len(), "{}", answer.head);
        assert!(version >= floor, "version {version} after {floor} was seen: {}", answer.head);
        newest[number].fetch_max(version, SeqCst);
        let tag = answer.field("etag").expect("an ETag").trim_start_matches("W/").to_owned();
        let first = *tags.lock().unwrap().entry((number, tag)).or_insert(version);
        assert_eq!(first, version, "one entity tag for two versions: {}", answer.head);
    };
    let before = |number: usize| newest[number].load(SeqCst);
    let mut last = 0;
    under_load(&served.target(), before, check, || {
        last = storm(|version| {
            for kind in FILES {
                write(&kind.file(&folder), kind, version);
            }
        });
    });
    assert!(settles_at(&served, last), "version {last} is not served");
    assert_eq!(served.metric("forebay_responses_aborted_total{reason=\"file_changed\"}"), 0);
}

/// A file that changes in place is torn for a moment on the disk itself. So the writer sets its
/// modification time last, to a second that names the version: an answer with such a Last-Modified
/// was begun when the file was settled.
fn settled(version: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + version)
}

/// The version whose settled time the answer gives.
fn settled_version(head: &str, up_to: u64) -> Option<u64> {
    let given = field(head, "last-modified").expect("a Last-Modified");
    (1..=up_to).rev().find(|&version| http_date(1_700_000_000 + version) == given)
}

/// A date of November 2023 in the form of RFC 9110 §5.6.7.
fn http_date(unix: u64) -> String {
    // 2023-11-14 22:13:20 GMT, a Tuesday, was second 1,700,000,000.
    let since_midnight = unix - 1_699_920_000;
    let (day, second) = (since_midnight / 86_400, since_midnight % 86_400);
    let name = ["Tue", "Wed", "Thu"][day as usize];
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{name}, {:02} Nov 2023 {hour:02}:{minute:02}:{:02} GMT", 14 + day, second % 60)
}

/// "A file written in place while it is sent: on change the connection is reset, never reused,
/// never padded. The cache takes a file only if fstat before and after reading agree."
fn written_in_place_answers_are_whole_or_cut_short(engine: &str) {
    let folder = Folder::new();
    let write = |path: &Path, kind: Kind, version| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        file.write_all(&versioned(version, kind.blocks)).unwrap();
        file.set_modified(settled(version)).unwrap();
    };
    let served = serve(engine, &folder, write);
    let (newest, begun) = (FILES.map(|_| AtomicU64::new(1)), AtomicU64::new(1));
    let check = |number: usize, (floor, asked): (u64, u64), result: Result<&Answer, &Cut>| {
        let Some(answer) = result.ok().filter(|answer| answer.status != 503) else { return };
        assert_eq!(answer.body.len(), FILES[number].blocks * BLOCK_BYTES, "{}", answer.head);
        let found = versions(&answer.body).unwrap_or_else(|what| panic!("{what}: {}", answer.head));
        let latest = begun.load(SeqCst);
        assert!(
            found.iter().all(|version| (floor..=latest).contains(version)),
            "{found:?} at {floor}"
        );
        let Some(version) = settled_version(&answer.head, latest) else { return };
        assert!(version >= floor, "version {version} after {floor} was seen: {}", answer.head);
        // Pages that wait in a socket after sendfile still belong to the file: if it is written before
        // the client has read them, the server cannot know. The small file is sent from there, too, if it
        // has changed each time it was looked at; but that answer is not cached, so a client that asks
        // after the write has begun does not get it.
        let is_in_flight = latest > version && (number == 1 || asked <= version);
        assert!(found == [version] || is_in_flight, "{found:?}, head of {version}");
        if found == [version] {
            newest[number].fetch_max(version, SeqCst);
        }
    };
    let before = |number: usize| (newest[number].load(SeqCst), begun.load(SeqCst));
    let mut last = 0;
    under_load(&served.target(), before, check, || {
        last = storm(|version| {
            begun.store(version, SeqCst);
            for kind in FILES {
                write(&kind.file(&folder), kind, version);
            }
        });
    });
    let mut client = Reader::new(&served.target());
    let is_last = |answer: Answer| versions(&answer.body) == Ok(vec![last]);
    assert!(soon(PATIENCE, || FILES.iter().all(|kind| client.get(kind.path).is_ok_and(is_last))));
}

/// "A file truncated while it is sent: … never padded", and one that grows: an answer is as long as
/// its head says and as the file was at that moment, or it is cut short.
fn truncated_and_grown_answers_are_whole_or_cut_short(engine: &str) {
    let folder = Folder::new();
    let blocks = |kind: Kind, version: u64| kind.blocks - kind.blocks / 3 * (version % 3) as usize;
    let write = |path: &Path, kind: Kind, version| {
        let file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        let (is, should) =
            (file.metadata().unwrap().len() as usize, blocks(kind, version) * BLOCK_BYTES);
        if is > should {
            file.set_len(should as u64).unwrap();
        } else {
            (&file).write_all(&versioned(1, blocks(kind, version))[is..]).unwrap();
        }
        file.set_modified(settled(version)).unwrap();
    };
    let served = serve(engine, &folder, write);
    let begun = AtomicU64::new(1);
    let check = |number: usize, (), result: Result<&Answer, &Cut>| {
        let (head, body) = match result {
            Ok(answer) if answer.status == 503 => return,
            Ok(answer) => (&answer.head, &answer.body),
            Err(Cut::Body { head, received, .. }) => (head, received),
            Err(_) => return,
        };
        let latest = begun.load(SeqCst);
        let version = settled_version(head, latest);
        // As above: pages in flight belong to the file, and the kernel zeroes those that are cut off. The
        // small file is sent from there, too, when it has changed each time it was looked at.
        let is_in_flight = version != Some(latest);
        let whole_blocks = &body[..body.len() / BLOCK_BYTES * BLOCK_BYTES];
        let zeroes =
            whole_blocks.rchunks(BLOCK_BYTES).take_while(|block| *block == [0; BLOCK_BYTES]);
        let kept = &whole_blocks[..whole_blocks.len() - zeroes.count() * BLOCK_BYTES];
        let found = versions(if is_in_flight { kept } else { whole_blocks });
        assert!(is_in_flight && number == 1 || found.is_ok(), "{found:?}: {head}");
        if let (Some(version), true) = (version, result.is_ok()) {
            let expected = |version| blocks(FILES[number], version) * BLOCK_BYTES;
            // A file that is cut has its new size before its new time (ext4_setattr sets the one,
            // ext4_truncate the other), so for a moment it really is what this head says.
            let is_being_cut = latest > version && expected(version + 1) < expected(version);
            assert!(
                body.len() == expected(version)
                    || is_being_cut && body.len() == expected(version + 1),
                "{} bytes of version {version}: {head}",
                body.len()
            );
        }
    };
    let mut last = 0;
    under_load(
        &served.target(),
        |_| (),
        check,
        || {
            last = storm(|version| {
                begun.store(version, SeqCst);
                for kind in FILES {
                    write(&kind.file(&folder), kind, version);
                }
            });
        },
    );
    let mut client = Reader::new(&served.target());
    let is_last = |kind: &Kind, answer: Answer| answer.body == versioned(1, blocks(*kind, last));
    assert!(soon(PATIENCE, || {
        FILES.iter().all(|kind| client.get(kind.path).is_ok_and(|answer| is_last(kind, answer)))
    }));
}

/// A removed file is gone soon, and one created after a (cached) 404 is there soon; while neither
/// happens, and one state was seen, every client gets that state.
fn removed_and_created_files_are_noticed(engine: &str) {
    let folder = Folder::new();
    let served =
        serve(engine, &folder, |path, kind, version| fs::write(path, kind.at(version)).unwrap());
    // Even: the file is seen to be there, at this half. Odd: it is seen to be gone, or unknown (0).
    let phase = AtomicU64::new(2);
    let check = |number: usize, before: u64, result: Result<&Answer, &Cut>| {
        let answer = result.unwrap_or_else(|cut| panic!("not whole: {}", cut.brief()));
        match answer.status {
            200 => _ = only_version(answer),
            404 => {}
            _ => panic!("{}", answer.head),
        }
        if before == 0 || before != phase.load(SeqCst) {
            return;
        }
        let expected = if before.is_multiple_of(2) { 200 } else { 404 };
        assert_eq!(answer.status, expected, "in phase {before}: {}", answer.head);
        if expected == 200 {
            assert_eq!(answer.body, FILES[number].at(before / 2), "in phase {before}");
        }
    };
    under_load(
        &served.target(),
        |_| phase.load(SeqCst),
        check,
        || {
            let mut client = Reader::new(&served.target());
            let mut until = |is_it: &dyn Fn(&Answer, Kind) -> bool| {
                let mut both =
                    || FILES.iter().all(|&kind| is_it(&client.get(kind.path).unwrap(), kind));
                assert!(soon(PATIENCE, &mut both), "the change is not noticed");
            };
            storm(|version| {
                phase.store(0, SeqCst);
                FILES.iter().for_each(|kind| fs::remove_file(kind.file(&folder)).unwrap());
                until(&|answer, _| answer.status == 404);
                phase.store(2 * version - 1, SeqCst);
                thread::sleep(PAUSE);
                phase.store(0, SeqCst);
                for kind in FILES {
                    rename_into(&kind.file(&folder), &kind.at(version));
                }
                until(&|answer, kind| answer.body == kind.at(version));
                phase.store(2 * version, SeqCst);
            });
        },
    );
}

/// "A symlinked root that is re-pointed (`current → releases/42`) is seen at once", by relative and
/// absolute links alike, and never an older release after a newer one was seen.
fn a_symlinked_root_that_is_re_pointed_is_seen(engine: &str) {
    let folder = Folder::new();
    let release = |version: u64| {
        for kind in FILES {
            folder.write(&format!("releases/{version}{}", kind.path), kind.at(version));
        }
        let target = match version % 2 {
            0 => folder.join(&format!("releases/{version}")),
            _ => format!("releases/{version}").into(),
        };
        symlink(target, folder.join("next")).unwrap();
        fs::rename(folder.join("next"), folder.join("current")).unwrap();
    };
    release(1);
    let served = WatchedServer::alone(engine, &folder.join("current"), FEW_REQUESTS);
    let newest = FILES.map(|_| AtomicU64::new(1));
    let check = |number: usize, floor, result: Result<&Answer, &Cut>| {
        let answer = result.unwrap_or_else(|cut| panic!("not whole: {}", cut.brief()));
        let version = only_version(answer);
        assert!(version >= floor, "release {version} after {floor} was seen");
        newest[number].fetch_max(version, SeqCst);
    };
    let before = |number: usize| newest[number].load(SeqCst);
    under_load(&served.target(), before, check, || {
        let mut client = Reader::new(&served.target());
        let (mut late, mut slowest) = (0, Duration::ZERO);
        let last = storm(|version| {
            release(version);
            let pointed = Instant::now();
            // Read from one file, then, in the same breath, from the other one.
            for kind in FILES {
                let is_new = |answer: Answer| only_version(&answer) == version;
                if !client.get(kind.path).is_ok_and(is_new) {
                    let mut again = || client.get(kind.path).is_ok_and(is_new);
                    assert!(soon(PATIENCE, &mut again), "release {version} not seen");
                    (late, slowest) = (late + 1, slowest.max(pointed.elapsed()));
                }
            }
            // Long after requests are sent there: a thread that was on its way there a moment ago would
            // find nothing.
            if version > KEPT {
                let _ = fs::remove_dir_all(folder.join(&format!("releases/{}", version - KEPT)));
            }
        });
        let all = 2 * (last - 1);
        println!("{late} of {all} answers were late, {slowest:?} after the change at most");
    });
}
