//! Bodies that must be collected before a script is asked, and are too large for memory: they are in
//! files without a name, have a bound together, and leave nothing behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::process::resident_kib;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::http2::Client;
use forebay_tests::php::Fpm;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options, on_each_engine, on_isolated};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SUM: &str =
    "<?php $body = file_get_contents('php://input'); $said = strlen($body) . ' ' . md5($body);
    header('Content-Length: ' . strlen($said)); echo $said;";

/// A size beyond any part that is written or read at a time.
const BODY_BYTES: usize = 3_000_000;

on_each_engine!(
    a_body_without_length_reaches_a_script_whole,
    a_body_without_room_is_refused_alone,
    a_full_disk_refuses_one_body_alone,
    a_client_that_leaves_takes_its_body_along,
    a_body_goes_to_another_upstream_whole,
    bodies_that_wait_take_little_memory,
    a_push_of_git_is_received,
);

on_isolated!(
    a_body_without_length_reaches_a_script_whole,
    a_body_without_room_is_refused_alone,
    a_full_disk_refuses_one_body_alone,
    a_client_that_leaves_takes_its_body_along,
    a_body_goes_to_another_upstream_whole,
    a_push_of_git_is_received,
);

/// Starts a php-fpm with a script that reports the body that it got, and an empty directory.
fn start() -> Option<(Fpm, PathBuf)> {
    let folder = Folder::new();
    folder.write("root/sum.php", SUM);
    let spool = folder.join("spool");
    fs::create_dir(&spool).unwrap();
    Some((Fpm::start(folder, 2, "a test of spool.rs")?, spool))
}

fn serve(fpm: &Fpm, engine: &str, top: &str, more: &str) -> WatchedServer {
    let lines = format!("{top}\n{}", fpm.lines(more));
    WatchedServer::with(Options::new(fpm.root()).engine(engine).config(&lines))
}

fn lines_of(spool: &Path, bytes: &str, engine: &str) -> String {
    // each process has its part
    let alone = if engine == ISOLATED { "isolated.respond = 1\n" } else { "" };
    format!("spool_dir = {spool:?}\nspool_dir_bytes = \"{bytes}\"\n{alone}")
}

/// A body whose parts all differ.
fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 251) as u8).collect()
}

/// Begins a request with a body of chunks.
fn begin(served: &WatchedServer, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(served.listens_at()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "PUT /sum.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn send(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    for part in bytes.chunks(100_003) {
        stream.write_all(format!("{:x}\r\n", part.len()).as_bytes())?;
        stream.write_all(part)?;
        stream.write_all(b"\r\n")?;
    }
    Ok(())
}

/// The status and body of the answer, even if the rest of the request is not taken.
fn end(stream: &mut TcpStream) -> (u16, String) {
    let _ = stream.write_all(b"0\r\n\r\n");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.rsplit_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn upload(served: &WatchedServer, bytes: &[u8]) -> (u16, String) {
    let mut stream = begin(served, "");
    let _ = send(&mut stream, bytes);
    end(&mut stream)
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

/// The report of the script on a body with these bytes.
fn sum(served: &WatchedServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.listens_at()).unwrap();
    let head =
        format!("PUT /sum.php HTTP/1.0\r\nHost: a\r\nContent-Length: {}\r\n\r\n", bytes.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.rsplit_once("\r\n\r\n").unwrap().1.to_owned()
}

fn a_body_without_length_reaches_a_script_whole(engine: &str) {
    let Some((fpm, spool)) = start() else { return };
    let served = serve(&fpm, engine, &lines_of(&spool, "100MiB", engine), "");
    let sent = body(BODY_BYTES);
    let expected = (200, sum(&served, &sent));
    assert!(expected.1.starts_with("3000000 "), "{engine}: {expected:?}");
    assert_eq!(upload(&served, &sent), expected, "{engine}");
    // some is on disk while it comes, and has no name
    let mut stream = begin(&served, "Expect: 100-continue\r\n");
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim[..], b"HTTP/1.1 100 Continue\r\n\r\n", "{engine}");
    send(&mut stream, &sent[..1_000_000]).unwrap();
    assert!(is_empty(&spool), "{engine}");
    send(&mut stream, &sent[1_000_000..]).unwrap();
    assert_eq!(end(&mut stream), expected, "{engine}");
    // without content-length
    let mut client = Client::connect(served.listens_at());
    let stream = client.begin("PUT", "/sum.php", &[], false);
    client.send_all(stream, &sent);
    let answer = client.answer(stream);
    assert_eq!(answer.status, 200, "{engine}");
    assert_eq!(String::from_utf8_lossy(&answer.body), expected.1, "{engine}");
    // curl sends a body of unknown length, as clients of WebDAV do
    let file = fpm.folder().write("sent", &sent);
    let url = format!("http://{}/sum.php", served.listens_at());
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let mut curl = Command::new("curl");
        let curl = curl.args(["-sS", version, "-T", "-", &url]);
        let given = curl.stdin(fs::File::open(&file).unwrap()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&given.stdout), expected.1, "{engine} {version}");
    }
}

fn a_body_without_room_is_refused_alone(engine: &str) {
    let Some((fpm, spool)) = start() else { return };
    let served = serve(&fpm, engine, &lines_of(&spool, "2MiB", engine), "body_bytes = \"4MiB\"");
    let sent = body(500_000);
    let expected = (200, sum(&served, &sent));
    // one body has a part of the room, while another finds none
    let mut one = begin(&served, "");
    send(&mut one, &sent[..200_000]).unwrap();
    let (status, page) = upload(&served, &body(BODY_BYTES));
    assert_eq!(status, 507, "{engine}: {page}");
    // the room is free in a moment, when the file is closed
    let is_free = || soon(PATIENCE, || upload(&served, &sent) == expected);
    assert!(is_free(), "{engine}: {}", served.stderr());
    assert_eq!(upload(&served, &body(5_000_000)).0, 507, "{engine}");
    assert!(is_free(), "{engine}: {}", served.stderr());
    send(&mut one, &sent[200_000..]).unwrap();
    assert_eq!(end(&mut one), expected, "{engine}");
    served.says("spool_dir: request bodies have as much as they may (spool_dir_bytes)");
    // each has a bound, too
    let served = serve(&fpm, engine, &lines_of(&spool, "20MiB", engine), "body_bytes = \"2MiB\"");
    let (status, page) = upload(&served, &body(BODY_BYTES));
    assert!(status == 413 && !page.contains("spool"), "{engine}: {status} {page}");
    // without a directory it is said what would help
    let served = serve(&fpm, engine, "", "");
    let (status, page) = upload(&served, &sent);
    assert_eq!(status, 413, "{engine}");
    assert!(page.contains("spool_dir") || engine == ISOLATED, "{engine}: {page}");
}

/// A file system of its own in a directory, until this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it with this size; `None` without the right to mount.
    fn mount(at: &Path, size: &str) -> Option<SmallDisk> {
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=0777"), "tmpfs"]);
        if rustix::process::geteuid().is_root() && mount.arg(at).status().unwrap().success() {
            return Some(SmallDisk(at.to_owned()));
        }
        eprintln!("SKIPPED: a full disk: no file system can be mounted here");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn a_full_disk_refuses_one_body_alone(engine: &str) {
    let Some((fpm, spool)) = start() else { return };
    let Some(_disk) = SmallDisk::mount(&spool, "2m") else { return };
    let served = serve(&fpm, engine, &lines_of(&spool, "100MiB", engine), "");
    let sent = body(500_000);
    let expected = (200, sum(&served, &sent));
    // one body has a part of the disk, while there is no room for another
    let mut one = begin(&served, "");
    send(&mut one, &sent).unwrap();
    let (status, page) = upload(&served, &body(BODY_BYTES));
    assert_eq!(status, 507, "{engine}: {page}");
    // the room is free in a moment, when the file is closed
    assert!(soon(PATIENCE, || upload(&served, &sent) == expected), "{engine}");
    assert_eq!(end(&mut one), expected, "{engine}");
    served.says("request bodies get 507");
    // nothing is left
    if engine != ISOLATED {
        let is_free = || served.metric("forebay_spool_bytes") == 0;
        assert!(soon(PATIENCE, is_free), "{engine}");
    }
}

fn a_client_that_leaves_takes_its_body_along(engine: &str) {
    let Some((fpm, spool)) = start() else { return };
    let served = serve(&fpm, engine, &lines_of(&spool, "2MiB", engine), "");
    let sent = body(1_500_000);
    let expected = (200, sum(&served, &sent));
    let mut gone = begin(&served, "");
    send(&mut gone, &sent).unwrap();
    drop(gone);
    let mut reset = Client::connect(served.listens_at());
    let stream = reset.begin("PUT", "/sum.php", &[], false);
    while reset.send(stream, &sent, false) == 0 {
        reset.receive();
    }
    reset.reset(stream);
    // their bytes leave no room for it
    let is_free = soon(PATIENCE, || upload(&served, &sent) == expected);
    assert!(is_free, "{engine}: {}", served.stderr());
    // a server that is killed leaves nothing, either
    let mut last = begin(&served, "");
    send(&mut last, &sent[..1_000_000]).unwrap();
    let pid = served.pid();
    Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(is_empty(&spool), "{engine}");
}

fn a_body_goes_to_another_upstream_whole(engine: &str) {
    let Some((fpm, spool)) = start() else { return };
    let nobody = fpm.folder().join("nobody.sock");
    let lines = format!(
        "{}\n[[fastcgi]]\nto = [\"unix:{}\", \"unix:{}\"]\nbalance = \"round-robin\"\nmax_fails = 0\n",
        lines_of(&spool, "100MiB", engine),
        nobody.display(),
        fpm.socket().display()
    );
    let served = WatchedServer::with(Options::new(fpm.root()).engine(engine).config(&lines));
    let sent = body(BODY_BYTES);
    let expected = format!("{BODY_BYTES} ");
    for _ in 0..4 {
        let (status, said) = upload(&served, &sent);
        assert!(status == 200 && said.starts_with(&expected), "{engine}: {status} {said}");
    }
}

fn bodies_that_wait_take_little_memory(engine: &str) {
    let Some((fpm, spool)) = start() else { return };
    let served = serve(&fpm, engine, &lines_of(&spool, "1GiB", engine), "");
    let sent = body(4_000_000);
    let expected = (200, sum(&served, &sent));
    let before_kib = resident_kib(served.pid());
    let mut all: Vec<_> = (0..20).map(|_| begin(&served, "")).collect();
    for part in sent.chunks(1_000_000) {
        all.iter_mut().for_each(|stream| send(stream, part).unwrap());
    }
    // all that was sent is taken, but for what is in the sockets
    let after_kib = resident_kib(served.pid());
    assert!(after_kib < before_kib + 20_000, "{engine}: {before_kib} KiB before, now {after_kib}");
    for mut stream in all {
        assert_eq!(end(&mut stream), expected, "{engine}");
    }
}

/// A running fcgiwrap, which runs CGI programs. It ends when this is dropped.
struct CgiWrap(Child);

impl Drop for CgiWrap {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl CgiWrap {
    fn start(socket: &Path) -> Option<CgiWrap> {
        let mut command = Command::new("/usr/sbin/fcgiwrap");
        command.args(["-c", "1", "-s"]).arg(format!("unix:{}", socket.display()));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let missing = |error| format!("fcgiwrap: {error}, see scripts/install");
        let wrap = CgiWrap(has(child.map_err(missing), "a push of git")?);
        assert!(soon(PATIENCE, || socket.exists()), "fcgiwrap does not listen");
        Some(wrap)
    }
}

fn git(at: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    let given = command.current_dir(at).output().unwrap();
    assert!(given.status.success(), "git {arguments:?}: {given:?}");
}

fn a_push_of_git_is_received(engine: &str) {
    const BACKEND: &str = "/usr/lib/git-core/git-http-backend";
    let there = fs::metadata(BACKEND).map_err(|error| format!("{BACKEND}: {error}"));
    if has(there, "a push of git").is_none() {
        return;
    }
    let folder = Folder::new();
    let [socket, spool, bare, work] =
        ["cgi.sock", "spool", "bare", "work"].map(|name| folder.join(name));
    [&spool, &bare, &work].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    let Some(_wrap) = CgiWrap::start(&socket) else { return };
    git(&bare, &["init", "-q", "--bare"]);
    git(&bare, &["config", "http.receivepack", "true"]);
    git(&work, &["init", "-q"]);
    // nothing that git could make smaller
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(6_000_000).collect();
    fs::write(work.join("noise"), &noise).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "noise"]);
    let lines = format!(
        "{}\n[[fastcgi]]\npath = \"/\"\nto = \"unix:{}\"\ncheck_local = false\n\
         set = {{ GIT_PROJECT_ROOT = {:?}, GIT_HTTP_EXPORT_ALL = \"1\", SCRIPT_FILENAME = {BACKEND:?} }}\n",
        lines_of(&spool, "100MiB", engine),
        socket.display(),
        folder.path(),
    );
    let options = Options::new(folder.path()).engine(engine).config(&lines);
    let served = WatchedServer::with(options);
    let url = format!("http://{}/bare", served.listens_at());
    git(&work, &["push", "-q", &url, "HEAD:refs/heads/main"]);
    git(&work, &["fetch", "-q", &url, "main"]);
    git(&bare, &["fsck", "--strict"]);
    let mut shown = Command::new("git");
    let shown = shown.args(["cat-file", "blob", "main:noise"]).current_dir(&bare).output().unwrap();
    assert!(shown.stdout == noise, "{engine}: another file was received");
}
