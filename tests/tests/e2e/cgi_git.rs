//! Real programs of CGI: git-http-backend, by which git clones and pushes, and gitweb.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has};
use forebay_tests::{ISOLATED, Options, on_each_engine, on_isolated};
use rustix::process::geteuid;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

on_each_engine!(git_clones_and_pushes, gitweb_shows_a_repository);
on_isolated!(git_clones_and_pushes, gitweb_shows_a_repository);

const BACKEND: &str = "/usr/lib/git-core/git-http-backend";
const GITWEB: &str = "/usr/share/gitweb/gitweb.cgi";

/// The user of the programs where the tests run as root, and its number.
const USER: (&str, u32) = ("games", 5);

fn git(at: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
    command.args(["-c", "safe.directory=*"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    let given = command.current_dir(at).output().unwrap();
    assert!(given.status.success(), "git {arguments:?}: {given:?}");
    given.stdout
}

fn give(path: &Path) {
    give_to(path, USER.1);
}

fn take(path: &Path) {
    give_to(path, geteuid().as_raw());
}

fn give_to(path: &Path, user: u32) {
    if geteuid().is_root() {
        chown(path, Some(user), None).unwrap();
    }
    if path.is_dir() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| give_to(&entry.path(), user));
    }
}

/// Makes a folder with a repository that is served, `repos/one.git`, and a work tree, `work`.
fn repositories() -> Folder {
    let folder = Folder::new();
    let [bare, work] = ["repos/one.git", "work"].map(|name| folder.join(name));
    [&bare, &work].into_iter().for_each(|path| fs::create_dir_all(path).unwrap());
    git(&bare, &["init", "-q", "--bare"]);
    git(&bare, &["config", "http.receivepack", "true"]);
    git(&work, &["init", "-q"]);
    // nothing that git could make smaller
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    });
    fs::write(work.join("noise"), noise.take(3_000_000).collect::<Vec<u8>>()).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "a first commit"]);
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    give(&folder.join("repos"));
    folder
}

fn user() -> String {
    if geteuid().is_root() { format!("user = \"{}\"\n", USER.0) } else { String::new() }
}

fn git_clones_and_pushes(engine: &str) {
    let there = fs::metadata(BACKEND).map_err(|error| format!("{BACKEND}: {error}"));
    if has(there, "git over HTTP").is_none() {
        return;
    }
    let folder = repositories();
    let (repos, spool) = (folder.join("repos"), folder.join("spool"));
    fs::create_dir(&spool).unwrap();
    // a push is chunked, and longer than what is collected in memory
    let alone = if engine == ISOLATED { "isolated.respond = 1\n" } else { "" };
    let lines = format!(
        "spool_dir = {spool:?}\n{alone}[[cgi]]\npath = \"/git\"\nprogram = {BACKEND:?}\n{}\
         set = {{ GIT_PROJECT_ROOT = {repos:?}, GIT_HTTP_EXPORT_ALL = \"1\" }}\n",
        user()
    );
    let options = Options::new(folder.path()).engine(engine).config(&lines);
    let served = WatchedServer::with(options);
    let url = format!("http://{}/git/one.git", served.listens_at());
    let work = folder.join("work");
    git(&work, &["push", "-q", &url, "HEAD:refs/heads/main"]);
    git(folder.path(), &["clone", "-q", "-b", "main", &url, "clone"]);
    let noise = fs::read(work.join("noise")).unwrap();
    assert!(fs::read(folder.join("clone/noise")).unwrap() == noise, "{engine}");
    fs::write(work.join("small"), "small").unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "a second commit"]);
    git(&work, &["push", "-q", &url, "HEAD:refs/heads/main"]);
    git(&folder.join("clone"), &["pull", "-q"]);
    assert_eq!(fs::read(folder.join("clone/small")).unwrap(), b"small", "{engine}");
    git(&repos.join("one.git"), &["fsck", "--strict"]);
}

fn gitweb_shows_a_repository(engine: &str) {
    let there = fs::metadata(GITWEB).map_err(|error| format!("{GITWEB}: {error}"));
    if has(there, "gitweb").is_none() {
        return;
    }
    let folder = repositories();
    let (repos, work) = (folder.join("repos"), folder.join("work"));
    // before it is another user's
    let bare = repos.join("one.git");
    take(&bare);
    git(&work, &["push", "-q", bare.to_str().unwrap(), "HEAD:refs/heads/main"]);
    git(&bare, &["symbolic-ref", "HEAD", "refs/heads/main"]);
    give(&repos);
    let text = format!(
        "$projectroot = '{}';\n$feature{{'pathinfo'}}{{'default'}} = [1];\n1;\n",
        repos.display()
    );
    let config = folder.write("gitweb.conf", text);
    let lines = format!(
        "[[cgi]]\npath = \"/gitweb\"\nprogram = {GITWEB:?}\n{}set = {{ GITWEB_CONFIG = {config:?} }}\n",
        user()
    );
    let options = Options::new(folder.path()).engine(engine).config(&lines);
    let served = WatchedServer::with(options);
    for (path, words) in [
        ("/gitweb", ["one.git", "/gitweb/one.git"]),
        ("/gitweb/one.git", ["a first commit", "/gitweb/one.git/shortlog"]),
        ("/gitweb?p=one.git;a=tree", ["noise", "/gitweb/one.git/blob"]),
        ("/gitweb/one.git/log", ["a first commit", "/gitweb/one.git/commit"]),
    ] {
        let text = format!("GET {path} HTTP/1.0\r\nHost: git.example\r\n\r\n");
        let answer = String::from_utf8_lossy(&served.exchange(text.as_bytes())).into_owned();
        assert!(
            answer.starts_with("HTTP/1.1 200 "),
            "{engine} {path}: {answer} {}",
            served.stderr()
        );
        for word in words {
            assert!(answer.contains(word), "{engine} {path}: no {word} in {answer}");
        }
    }
}
