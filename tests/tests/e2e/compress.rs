//! Text is compressed on demand: the forms that clients get, and the work that they cause once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::Answer;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

const BROWSER: &str = "gzip, deflate, br, zstd";

fn text(word: &str) -> String {
    (0..400).map(|n| format!("<p>Line {n} of a page about {word}, dams and basins.\n")).collect()
}

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/page.html", text("rivers"));
    folder
}

fn serve(folder: &Folder, engine: &str, config: &str) -> WatchedServer {
    WatchedServer::with(Options::new(folder.join("site")).engine(engine).config(config))
}

fn get(served: &WatchedServer, path: &str, accepted: &str) -> Answer {
    let mut client = served.client();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accepted}\r\n\r\n");
    client.stream().write_all(request.as_bytes()).unwrap();
    client.answer().unwrap()
}

/// Unpacks with `gzip`, so that the test does not rely on the server's own library.
fn gunzip(body: &[u8]) -> Vec<u8> {
    let mut command = Command::new("gzip");
    let command = command.args(["-d", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// The entity tag of the answer, strong or weak; while the file was written a moment ago, the tag is
/// weak.
fn tag(answer: &Answer) -> String {
    answer.field("ETag").unwrap().trim_start_matches("W/").to_owned()
}

/// The head of the answer without the fields that change with time.
fn lasting(answer: &Answer) -> Vec<&str> {
    let lasts = |line: &&str| !line.starts_with("Date:") && !line.starts_with("ETag:");
    answer.head.lines().filter(lasts).collect()
}

#[test]
fn each_client_gets_what_it_likes_best() {
    let folder = site();
    for engine in ENGINES {
        let served = serve(&folder, engine, "");
        let plain = get(&served, "/page.html", "identity");
        assert_eq!(plain.body, text("rivers").as_bytes());
        let mut tags = vec![tag(&plain)];
        for (accepted, coding) in
            [("gzip", "gzip"), ("zstd, gzip", "zstd"), (BROWSER, "br"), ("br;q=0.1, gzip", "gzip")]
        {
            let answer = get(&served, "/page.html", accepted);
            assert_eq!(answer.field("Content-Encoding"), Some(coding), "{engine} {accepted}");
            assert_eq!(answer.field("Vary"), Some("Accept-Encoding"));
            assert!(answer.body.len() * 4 < plain.body.len());
            if coding == "gzip" {
                assert_eq!(gunzip(&answer.body), plain.body);
            }
            tags.push(tag(&answer));
        }
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 4, "one for each coding: {tags:?}");
    }
}

/// Twenty clients ask at once, and twenty after them: the file is loaded once and compressed once, and
/// the others wait for that. The compressed form counts in the cache.
#[test]
fn it_is_made_once() {
    let folder = site();
    // a tag that changes when the file is two seconds old would be another answer
    folder.age();
    let served = serve(&folder, ENGINES[0], "");
    let before = get(&served, "/page.html", "identity");
    let bytes = served.metric("forebay_cache_bytes");
    let mut clients: Vec<_> = (0..20).map(|_| served.client()).collect();
    for _ in 0..2 {
        for client in &mut clients {
            let request =
                format!("GET /page.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {BROWSER}\r\n\r\n");
            client.stream().write_all(request.as_bytes()).unwrap();
        }
        let answers: Vec<_> = clients.iter_mut().map(|client| client.answer().unwrap()).collect();
        assert!(answers.iter().all(|answer| lasting(answer) == lasting(&answers[0])));
        assert!(answers.iter().all(|answer| tag(answer) == tag(&answers[0])));
        assert!(answers.iter().all(|answer| answer.body == answers[0].body));
        assert!(answers[0].body.len() < before.body.len());
        let grown = served.metric("forebay_cache_bytes") - bytes;
        let once = answers[0].body.len() as u64;
        assert!((once..once + 1000).contains(&grown), "{grown} for {once}");
    }
    let jobs = served.metric("forebay_jobs_total");
    get(&served, "/page.html", BROWSER);
    assert_eq!(served.metric("forebay_jobs_total"), jobs, "a hit needs no job");
}

#[test]
fn it_changes_with_the_file() {
    let folder = site();
    let served = serve(&folder, ENGINES[0], "");
    let first = get(&served, "/page.html", "gzip");
    fs::write(folder.join("new"), text("lakes")).unwrap();
    fs::rename(folder.join("new"), folder.join("site/page.html")).unwrap();
    let is_new = || gunzip(&get(&served, "/page.html", "gzip").body) == text("lakes").as_bytes();
    assert!(soon(PATIENCE, is_new));
    assert_ne!(tag(&get(&served, "/page.html", "gzip")), tag(&first));
}

#[test]
fn a_precompressed_file_goes_first_and_it_can_be_off() {
    let folder = site();
    folder.write("site/page.html.gz", "precompressed");
    let served = serve(&folder, ENGINES[0], "");
    assert_eq!(get(&served, "/page.html", BROWSER).body, b"precompressed");
    assert_eq!(get(&served, "/page.html", "br").field("Content-Encoding"), Some("br"));
    let folder = site();
    for config in ["compress = []", "cache.bytes = \"0B\""] {
        let answer = get(&serve(&folder, ENGINES[0], config), "/page.html", BROWSER);
        assert_eq!(answer.status, 200);
        assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (None, None));
        assert_eq!(answer.body, text("rivers").as_bytes());
    }
    let gzip = serve(&folder, ENGINES[0], "compress = [\"gzip\"]");
    assert_eq!(get(&gzip, "/page.html", BROWSER).field("Content-Encoding"), Some("gzip"));
}

/// A script and a list are larger than what is kept in memory. With the default settings they are
/// compressed on every engine. A file larger than `compress_bytes` is not, and that is counted.
#[test]
fn large_files_and_lists_are_compressed() {
    let folder = Folder::new();
    let script = text("rivers").repeat(30);
    assert!(script.len() > 600_000, "more than cache.file_bytes");
    folder.write("site/app.js", &script);
    for number in 0..4000 {
        folder.write(&format!("site/list/{}-{number}", "a-long-name".repeat(8)), "");
    }
    for engine in ENGINES {
        let served = serve(&folder, engine, "listing = true");
        let answer = get(&served, "/app.js", "gzip");
        assert_eq!(answer.field("Content-Encoding"), Some("gzip"), "{engine}");
        assert_eq!(answer.field("Vary"), Some("Accept-Encoding"), "{engine}");
        assert!(gunzip(&answer.body) == script.as_bytes(), "{engine}");
        let plain = get(&served, "/app.js", "identity");
        assert_eq!(
            (plain.field("Vary"), plain.body.len()),
            (Some("Accept-Encoding"), script.len())
        );
        let list = get(&served, "/list/", BROWSER);
        assert_eq!(list.field("Content-Encoding"), Some("br"), "{engine}");
        let plain = get(&served, "/list/", "identity");
        assert!(plain.body.len() > 1_000_000, "{engine}: {}", plain.body.len());
        assert_eq!(served.metric("forebay_uncompressed_total"), 0);
    }
    let served = serve(&folder, ENGINES[0], "compress_bytes = \"512KiB\"");
    let answer = get(&served, "/app.js", BROWSER);
    assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (None, None));
    assert_eq!(served.metric("forebay_uncompressed_total"), 1);
}
