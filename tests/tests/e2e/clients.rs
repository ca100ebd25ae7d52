//! Clients of other projects load the example site completely and byte by byte: curl, wget, aria2 with
//! sixteen ranges, Python's requests, and headless Chromium; through TLS curl, Python and Chromium, and
//! Java and Go where they are installed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::server::free_addr;
use forebay_tests::tls::Authority;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options, Server};
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The example site, with the part a script makes.
fn example() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let made = Command::new(repository.join("scripts/make-example")).status();
    assert!(made.is_ok_and(|status| status.success()), "scripts/make-example fails");
    repository.join("examples/site")
}

/// All files below `root`, relative to it.
fn files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => found.push(path.strip_prefix(root).unwrap().to_owned()),
            }
        }
    }
    found
}

/// A server with the example site, its URL, its root, and a directory for the clients' output.
struct Site {
    _served: WatchedServer,
    url: String,
    root: PathBuf,
    out: Folder,
}

impl Site {
    fn serve() -> Site {
        let (root, out) = (example(), Folder::new());
        let options = Options { log: true, ..Options::new(&root) };
        let log = format!("log.access = {:?}", out.join("access.log"));
        let served = WatchedServer::with(options.config(&log));
        Site { url: format!("http://{}", served.addr()), _served: served, root, out }
    }

    /// Serves the site through TLS; the authority that clients must trust is in `ca.pem`.
    fn serve_with_tls() -> Site {
        let (root, out, authority, addr) =
            (example(), Folder::new(), Authority::new(), free_addr());
        let host = addr.ip().to_string();
        authority.write(out.path(), "a", &[&host], &PKCS_ECDSA_P256_SHA256);
        fs::write(out.join("ca.pem"), &authority.pem).unwrap();
        let lines = format!(
            "log.access = {:?}\ntls.certificate = [{:?}]\ntls.key = [{:?}]\n[[listener]]\nlisten = \
             [\"https://{addr}\"]\n",
            out.join("access.log"),
            out.join("a.crt"),
            out.join("a.key")
        );
        let options = Options { log: true, ..Options::new(&root) };
        let served = WatchedServer::with(options.config(&lines));
        Site { url: format!("https://{addr}"), _served: served, root, out }
    }

    /// The file of the authority.
    fn ca(&self) -> String {
        self.out.join("ca.pem").to_str().unwrap().to_owned()
    }

    /// The access log's lines as target and status, once it has one that satisfies `last`.
    fn log(&self, last: impl Fn(&(String, u16)) -> bool) -> Vec<(String, u16)> {
        let mut lines = Vec::new();
        let has_last = soon(PATIENCE, || {
            let text = fs::read_to_string(self.out.join("access.log")).unwrap_or_default();
            lines = text.lines().filter_map(target_and_status).collect();
            lines.iter().any(&last)
        });
        assert!(has_last, "the log lacks a line: {lines:?}");
        lines
    }
}

fn target_and_status(line: &str) -> Option<(String, u16)> {
    let mut quoted = line.split('"');
    let target = quoted.nth(1)?.split(' ').nth(1)?;
    let status = quoted.next()?.split_whitespace().next()?.parse().ok()?;
    Some((target.to_owned(), status))
}

/// Runs a program with its arguments, and ends it after five minutes.
fn run(words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    let output = command.arg("300").args(words).env_remove("http_proxy").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {}\n{said}", output.status);
    output
}

/// Whether `program` can be started at all.
fn is_there(program: &str) -> Result<(), String> {
    let output = Command::new(program).arg("--version").output();
    output.map(|_| ()).map_err(|error| format!("{program} is missing: {error}"))
}

fn assert_same(one: &Path, other: &Path) {
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "{one:?} and {other:?} differ");
}

#[test]
fn curl_loads_every_file_in_every_way() {
    let Some(()) = has(is_there("curl"), "curl") else { return };
    let site = Site::serve();
    let got = site.out.join("got");
    let (got_name, tag) = (got.to_str().unwrap(), site.out.join("tag"));
    for file in files(&site.root) {
        let (url, source) = (format!("{}/{}", site.url, file.display()), site.root.join(&file));
        let curl = |extra: &[&str]| {
            let _ = fs::remove_file(&got);
            let form = ["-o", got_name, "-w", "%{http_code} %{size_download}", &url];
            let words = [&["curl", "-sS", "--max-time", "50"], extra, &form].concat();
            String::from_utf8(run(&words).stdout).unwrap()
        };
        let http2 = "--http2-prior-knowledge";
        for ways in [
            &[][..],
            &["--http1.0"],
            &["--compressed"],
            &["--http1.0", "--compressed"],
            &[http2],
            &[http2, "--compressed"],
        ] {
            let wrote = curl(ways);
            assert!(wrote.starts_with("200 "), "{url} {ways:?}: {wrote}");
            assert_same(&got, &source);
        }
        let size = fs::metadata(&source).unwrap().len();
        assert_eq!(curl(&["-r", "5-14"]), "206 10", "{url}");
        assert_eq!(fs::read(&got).unwrap(), fs::read(&source).unwrap()[5..15], "{url}");
        assert_eq!(curl(&["-r", "-7"]), "206 7", "{url}");
        assert_eq!(curl(&["-r", &format!("{size}-")])[..3], *"416", "{url}");
        assert_eq!(curl(&["-r", "0-4,10-14"])[..3], *"206", "{url}");
        let tag = tag.to_str().unwrap();
        curl(&["--etag-save", tag]);
        assert_eq!(curl(&["--etag-compare", tag]), "304 0", "{url}");
        assert_eq!(curl(&["-z", source.to_str().unwrap()]), "304 0", "{url}");
        assert_eq!(curl(&["-I"])[..4], *"200 ", "{url}");
    }
}

/// A download that was cut off is continued where it ended.
#[test]
fn curl_continues_a_download() {
    let Some(()) = has(is_there("curl"), "curl -C") else { return };
    let site = Site::serve();
    let (source, part) = (site.root.join("files/large.bin"), site.out.join("part"));
    fs::write(&part, &fs::read(&source).unwrap()[..12_345_678]).unwrap();
    run(&[
        "curl",
        "-sS",
        "-C",
        "-",
        "-o",
        part.to_str().unwrap(),
        &format!("{}/files/large.bin", site.url),
    ]);
    assert_same(&part, &source);
}

#[test]
fn wget_mirrors_the_site() {
    let Some(()) = has(is_there("wget"), "wget") else { return };
    let site = Site::serve();
    let mirror = site.out.join("mirror");
    let start = format!("{}/", site.url);
    let prefix = format!("--directory-prefix={}", mirror.display());
    let how = ["wget", "-q", "-e", "robots=off", "--mirror", "--page-requisites", "-nH", &prefix];
    run(&[&how[..], &[&start]].concat());
    let mirrored = files(&mirror);
    for file in &mirrored {
        assert_same(&mirror.join(file), &site.root.join(file));
    }
    for page in ["index.html", "about.html", "guide.html", "css/site.css", "js/flood.js"] {
        assert!(mirrored.contains(&page.into()), "{page} is not among {mirrored:?}");
    }
    // Once more: nothing is newer, so nothing is loaded.
    run(&[&how[..], &[&start]].concat());
    let log = site.log(|line| line.1 == 304 || line.1 == 200);
    assert!(log.iter().all(|line| [200, 304].contains(&line.1)), "{log:?}");
}

#[test]
fn aria2_loads_sixteen_ranges_at_once() {
    let Some(()) = has(is_there("aria2c"), "aria2c") else { return };
    let site = Site::serve();
    let url = format!("{}/files/large.bin", site.url);
    let dir = format!("--dir={}", site.out.path().display());
    // Slow enough that the first connection cannot take the pieces of the others before they open.
    let limit = "--max-overall-download-limit=24M";
    run(&[
        "aria2c",
        "-q",
        "--no-conf",
        "-x16",
        "-s16",
        "-k1M",
        limit,
        &dir,
        "--out=large.bin",
        &url,
    ]);
    assert_same(&site.out.join("large.bin"), &site.root.join("files/large.bin"));
    // each loop hands its lines over for itself, and a while after the answers
    let mut log = Vec::new();
    let are_parts = || {
        log = site.log(|line| line.1 == 206);
        log.iter().filter(|line| line.1 == 206).count() >= 15
    };
    assert!(soon(PATIENCE, are_parts), "{} ranges: {log:?}", log.len());
}

#[test]
fn python_requests_loads_every_file() {
    let can = |python: &&str| {
        let import = Command::new(python).args(["-c", "import requests"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    let python = ["/usr/bin/python3", "python3"].into_iter().find(can).ok_or("no python3-requests");
    let Some(python) = has(python, "Python requests") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/site.py");
    let site = Site::serve();
    run(&[python, script, &site.url, site.root.to_str().unwrap()]);
    let site = Site::serve_with_tls();
    run(&[python, script, &site.url, site.root.to_str().unwrap(), &site.ca()]);
}

/// Tests each version of TLS and of HTTP, and that a client without the authority refuses.
#[test]
fn curl_comes_through_tls() {
    let Some(()) = has(is_there("curl"), "curl through TLS") else { return };
    let site = Site::serve_with_tls();
    let (got, ca) = (site.out.join("got"), site.ca());
    for (ways, version) in [
        (&["--http1.1", "--tls-max", "1.2"][..], "1.1"),
        (&["--http1.1", "--tlsv1.3"], "1.1"),
        (&["--http2", "--tls-max", "1.2"], "2"),
        (&["--http2", "--tlsv1.3"], "2"),
    ] {
        for file in files(&site.root) {
            let url = format!("{}/{}", site.url, file.display());
            let form = ["-o", got.to_str().unwrap(), "-w", "%{http_code} %{http_version}", &url];
            let words =
                [&["curl", "-sS", "--max-time", "50", "--cacert", &ca], ways, &form].concat();
            let wrote = String::from_utf8(run(&words).stdout).unwrap();
            assert_eq!(wrote, format!("200 {version}"), "{url} {ways:?}");
            assert_same(&got, &site.root.join(&file));
        }
    }
    let refused =
        Command::new("curl").args(["-sS", "--max-time", "50", &site.url]).output().unwrap();
    assert_eq!(refused.status.code(), Some(60), "{refused:?}");
}

/// Whether a program that continuous integration need not have is installed.
fn may_try(program: &str, what: &str) -> bool {
    let is_there = is_there(program);
    if let Err(error) = &is_there {
        // past the test harness, which would swallow it
        let _ = writeln!(std::io::stderr(), "\n!!! SKIPPED {program} {what}: {error}\n");
    }
    is_there.is_ok()
}

fn program_comes_through_tls(program: &str, words: &[&str]) {
    if !may_try(program, "through TLS") {
        return;
    }
    let site = Site::serve_with_tls();
    let at = [&*site.url, site.root.to_str().unwrap(), &site.ca()];
    run(&[&[program], words, &at].concat());
}

#[test]
fn java_comes_through_tls() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/Site.java");
    program_comes_through_tls("java", &[script]);
}

#[test]
fn go_comes_through_tls() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/site.go");
    program_comes_through_tls("go", &["run", script]);
}

/// Streams like those of gRPC: many on a connection, each open for long, with messages both ways and
/// trailers.
#[test]
fn go_talks_with_an_application_both_ways() {
    if !may_try("go", "talking both ways") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/talk.go");
    for engine in ENGINES {
        let (folder, application) = (Folder::new(), free_addr());
        let lines = format!("[[proxy]]\npath = \"/talk\"\nto = [\"http://{application}\"]\n");
        let server = Server::start(&Options::new(folder.path()).engine(engine).config(&lines));
        let url = format!("http://{}/talk", server.addr());
        run(&["go", "run", script, &url, &application.to_string()]);
    }
}

/// Clients that ask for much at once, or have small windows, get everything: the budgets against abuse do
/// not affect them.
#[test]
fn clients_of_http2_meet_no_budget() {
    let site = Site::serve();
    let at = |path: &str| format!("{}{path}", site.url);
    let (page, image, large) = (at("/"), at("/img/water.jpg"), at("/files/large.bin"));
    if let Some(()) = has(is_there("h2load"), "h2load") {
        let ways: [(&str, &str); 4] = [
            ("-n 5000 -c 2 -m 100", &page),
            ("-n 600 -c 3 -m 20", &image),
            // windows of 1 KiB for each stream, and of 4 KiB for all
            ("-n 40 -c 2 -m 2 -w 10 -W 12", &image),
            // not several of them: this client serves one connection as long as something comes
            ("-n 2 -c 1 -m 2", &large),
        ];
        for (way, url) in ways {
            let words: Vec<_> = ["h2load"].into_iter().chain(way.split(' ')).chain([url]).collect();
            let said = String::from_utf8(run(&words).stdout).unwrap();
            assert!(said.contains(" 0 failed, 0 errored, 0 timeout"), "{way} {url}: {said}");
            assert!(said.contains(" 0 3xx, 0 4xx, 0 5xx"), "{way} {url}: {said}");
        }
    }
    if let Some(()) = has(is_there("nghttp"), "nghttp") {
        run(&["nghttp", "--null-out", "-m", "200", &page, &image]);
    }
    if let Some(()) = has(is_there("curl"), "curl -Z") {
        // Through TLS: in clear, curl 7.88 has one request on a connection, and fails with the next.
        let site = Site::serve_with_tls();
        let (all, ca) = (format!("{}/?[1-300]", site.url), site.ca());
        let form = ["-sS", "-f", "-Z", "--parallel-max", "100", "--http2", "--cacert", &ca, &all];
        let got = run(&[&["curl", "--max-time", "50"], &form[..]].concat());
        let one = fs::read(site.root.join("index.html")).unwrap();
        assert_eq!(got.stdout.len(), 300 * one.len());
    }
}

/// A real browser shows the pages: scripts have run, and the log has every file.
#[test]
fn chromium_shows_the_pages() {
    shows_the_pages(Site::serve(), "HTTP/1.1");
}

/// A real browser shows the pages through TLS, where it chooses HTTP/2.
#[test]
fn chromium_shows_the_pages_by_http2() {
    shows_the_pages(Site::serve_with_tls(), "HTTP/2.0");
}

fn shows_the_pages(site: Site, version: &str) {
    let Some(()) = has(is_there("chromium"), "chromium") else { return };
    let profile = format!("--user-data-dir={}", site.out.join("profile").display());
    let show = |page: &str| {
        let url = format!("{}{page}", site.url);
        let quiet = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync \
                     --ignore-certificate-errors --window-size=1200,4000 --virtual-time-budget=5000 --dump-dom";
        let words: Vec<_> = ["chromium", &profile]
            .into_iter()
            .chain(quiet.split_whitespace())
            .chain([&*url])
            .collect();
        String::from_utf8(run(&words).stdout).unwrap()
    };
    let first = show("/");
    assert!(first.contains("<h1>Takes the flood in."), "{first}");
    // The page hides its model; only the script shows it and writes its numbers.
    assert!(
        first.contains("<div class=\"flood\" id=\"flood\">"),
        "the script did not run: {first}"
    );
    let second = show("/guide.html");
    assert!(second.contains("</html>") && second.contains("<nav"), "{second}");

    // each connection's lines come when its loop gets to it
    let needed = ["/", "/css/site.css", "/js/flood.js", "/favicon.svg", "/img/forebay.svg"];
    needed.iter().for_each(|needed| drop(site.log(|line| line.0 == *needed)));
    let log = site.log(|line| line.0 == "/guide.html");
    let wrong: Vec<_> = log.iter().filter(|line| ![200, 206, 304].contains(&line.1)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let text = fs::read_to_string(site.out.join("access.log")).unwrap();
    assert!(text.contains(&format!("\"GET /guide.html {version}\"")), "{text}");
}
