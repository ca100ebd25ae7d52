//! More files than the page cache keeps: files that are read around it and sent from pipes are as
//! complete and correct as those that are read into memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::{Answer, Client};
use forebay_tests::faults::process::open_pipes;
use forebay_tests::faults::site::{BLOCK_BYTES, Folder, forget, versioned, versions};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::{fs, thread};

forebay_tests::on_each_engine! {
    files_that_memory_does_not_keep_come_whole,
}

const FILES: usize = 100;

/// The number of blocks of a file: some need more than the 16 pages that a pipe has room for at first,
/// some end within a page.
fn blocks(file: usize) -> usize {
    (30_000 + file * 2_003) / BLOCK_BYTES
}

fn name(file: usize) -> String {
    format!("{file}.png")
}

/// Has this number of clients ask for all files, of which nothing is in memory at first.
fn ask_for_all(
    clients: usize,
    served: &WatchedServer,
    folder: &Folder,
    check: impl Fn(&mut Client, usize) + Sync,
) {
    (0..FILES).for_each(|file| forget(&folder.join(&name(file))));
    thread::scope(|scope| {
        for number in 0..clients {
            let check = &check;
            scope.spawn(move || {
                let mut client = served.client();
                (0..FILES).for_each(|at| check(&mut client, (number * 7 + at) % FILES));
            });
        }
    });
}

/// Asks for a file with another field.
fn get_with(client: &mut Client, file: usize, field: &str) -> Answer {
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n", name(file));
    client.stream().write_all(request.as_bytes()).unwrap();
    client.answer().unwrap()
}

/// Whether the folder is in memory or on an overlay, where a program cannot learn that a file is not in
/// memory.
fn hides_its_pages(folder: &Folder) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const OVERLAY: i64 = 0x794c_7630;
    [TMPFS, OVERLAY].contains(&(rustix::fs::statfs(folder.path()).unwrap().f_type as i64))
}

fn files_that_memory_does_not_keep_come_whole(engine: &str) {
    let folder = Folder::new();
    for file in 0..FILES {
        folder.write(&name(file), versioned(1, blocks(file)));
    }
    let served = WatchedServer::alone(engine, folder.path(), "cache.bytes = \"4MiB\"\n");
    // some are those it was started with
    let others = open_pipes(served.pid());
    let is_whole = |client: &mut Client, file: usize| {
        let answer = client.get(&format!("/{}", name(file))).unwrap();
        assert!(answer.body == versioned(1, blocks(file)), "{file}: {}", answer.head);
    };
    // one round to know the files, and half of another to learn that none is found again
    (0..3).for_each(|_| ask_for_all(1, &served, &folder, is_whole));
    // on a busy machine a file is back in memory before it is asked for: then once more
    let mut at_first = others;
    for _ in 0..10 {
        ask_for_all(4, &served, &folder, is_whole);
        at_first = open_pipes(served.pid());
        if at_first > others {
            break;
        }
    }
    if at_first == others && hides_its_pages(&folder) {
        return eprintln!("SKIPPED: {engine}: on this file system nothing is sent from a pipe");
    }
    assert!(at_first > others, "nothing was sent from a pipe");

    // parts, heads and conditions are not for pipes
    ask_for_all(4, &served, &folder, |client, file| {
        let part = get_with(client, file, "Range: bytes=100-199");
        assert_eq!(
            (part.status, part.body.as_slice()),
            (206, &versioned(1, blocks(file))[100..200])
        );
        let same = get_with(client, file, "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT");
        assert_eq!(same.status, 304);
    });

    // a client that leaves in the middle leaves nothing in a pipe that another gets
    ask_for_all(4, &served, &folder, |_, file| {
        let mut leaving = served.client();
        leaving.ask(&format!("/{}", name(file)));
        leaving.stream().read_exact(&mut [0; 500]).unwrap();
    });
    ask_for_all(4, &served, &folder, is_whole);
    // half of them are ends that bytes go in at; some of those that left were still served when others came
    let are_few = || open_pipes(served.pid()) <= 2 * 40 + at_first;
    assert!(soon(PATIENCE, are_few), "pipes are not used again");

    // a file that is replaced is one version or the other
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for version in 2_u64.. {
                for file in 0..FILES {
                    let fresh = folder.write("fresh", versioned(version, blocks(file)));
                    forget(&fresh);
                    fs::rename(fresh, folder.join(&name(file))).unwrap();
                }
                if done.load(SeqCst) {
                    break;
                }
            }
        });
        for _ in 0..3 {
            ask_for_all(4, &served, &folder, |client, file| {
                let answer = client.get(&format!("/{}", name(file))).unwrap();
                assert_eq!(answer.body.len(), blocks(file) * BLOCK_BYTES);
                assert_eq!(versions(&answer.body).unwrap().len(), 1, "{}", answer.head);
            });
        }
        done.store(true, SeqCst);
    });

    // content that a reload has replaced keeps none, even without another request
    let text = fs::read_to_string(served.file()).unwrap();
    served.configure_with(&text.replace("4MiB", "5MiB"));
    let (code, said) = served.reload();
    assert_eq!(code, Some(0), "{said}");
    let is_closed = || open_pipes(served.pid()) == others;
    assert!(soon(PATIENCE, is_closed), "{} pipes", open_pipes(served.pid()));
}
