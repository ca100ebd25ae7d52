//! The configuration that serves the manual as a site.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, free_addr};
use forebay_tests::wire::{self, PATIENCE};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_manual_is_served_by_its_example() {
    let folder = Folder::new();
    folder.write("index.html", "the manual");
    folder.write("404.html", "not there");
    folder.write("book-0123abcd.js", "");
    folder.write("clipboard-0123abcd.min.js", "");
    let addr = free_addr();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/manual.toml");
    let forebay = |command: &str| {
        let mut forebay = Command::new(binary());
        forebay.arg(command).arg("-c").arg(&file);
        forebay.env("MANUAL", folder.path()).env("LISTEN", addr.to_string());
        forebay
    };
    let checked = forebay("check").arg("--strict").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut command = forebay("run");
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _server = Ended(server);
    assert!(soon(PATIENCE, || TcpStream::connect(addr).is_ok()));
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.0\r\nHost: a\r\n\r\n");
        String::from_utf8(wire::exchange(addr, request.as_bytes())).unwrap()
    };
    let page = get("/");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.ends_with("the manual"), "{page}");
    let policy = page.lines().find(|line| line.starts_with("Content-Security-Policy: ")).unwrap();
    assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
    let is_kept = |answer: &str| {
        answer.contains("\r\nCache-Control: public, max-age=31536000, immutable\r\n")
    };
    assert!(!is_kept(&page), "{page}");
    for path in ["/book-0123abcd.js", "/clipboard-0123abcd.min.js"] {
        assert!(is_kept(&get(path)), "{path}: {}", get(path));
    }
    let missing = get("/none.html");
    assert!(missing.starts_with("HTTP/1.1 404 ") && missing.ends_with("not there"), "{missing}");
}
