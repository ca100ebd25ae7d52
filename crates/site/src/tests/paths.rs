//! Paths that are never served, however they are written.

use crate::ContentSettings;
use crate::testing::{Client, Folder};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

#[test]
fn nothing_outside_of_the_root_is_served() {
    let folder = Folder::new();
    folder.write("secret", "secret");
    folder.write("root/inside", "inside");
    let root = folder.path().join("root");
    symlink("../secret", root.join("out")).unwrap();
    symlink(folder.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("circle", root.join("circle")).unwrap();
    symlink("inside", root.join("in")).unwrap();
    let mut client = Client::with(ContentSettings::new(&root));
    assert_eq!(client.get("/in").text(), "inside");
    for target in ["/out", "/absolute", "/up/secret", "/up/", "/circle", "/circle/x"] {
        for _ in 0..2 {
            assert_eq!(client.get(target).status, 404, "{target}");
        }
    }
    for target in ["/../secret", "/%2e%2e/secret", "/x/../../secret"] {
        for method in ["GET", "HEAD", "OPTIONS", "POST", "DELETE", "TRACE", "PROPFIND"] {
            assert_eq!(client.ask(method, target, "").status, 400, "{method} {target}");
        }
    }
    assert_eq!(client.ask("OPTIONS", "*", "").status, 204);
    for target in ["/in%00", "/..%2fsecret", "/x%2f..%2f..%2fsecret", "/..%5csecret"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert_eq!(client.get("/%zz").status, 400);
}

#[test]
fn what_is_not_a_file_is_as_good_as_missing_and_never_blocks() {
    let folder = Folder::new();
    let socket = UnixListener::bind(folder.path().join("socket")).unwrap();
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let mut client = Client::new(&folder);
    for target in ["/socket", "/fifo", "/fifo/"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    drop(socket);
}

#[test]
fn devices_are_never_opened() {
    let mut client = Client::with(ContentSettings::new("/dev"));
    for target in ["/null", "/zero", "/tty"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
}

#[test]
fn magic_links_lead_nowhere() {
    let mut client = Client::with(ContentSettings::new("/proc/self"));
    for target in ["/root/etc/passwd", "/cwd/", "/exe", "/fd/0"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert!(client.has_noticed("SilentFileSystem"));
}

#[test]
fn hidden_files_are_shown_only_when_asked_for() {
    let folder = Folder::new();
    folder.write(".git/config", "config");
    folder.write("a/.htaccess", "htaccess");
    folder.write(".well-known/security.txt", "security");
    let mut client = Client::new(&folder);
    for target in ["/.git/config", "/.git/", "/.git", "/a/.htaccess", "/%2egit/config"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert_eq!(client.get("/.well-known/security.txt").text(), "security");
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].hidden = true;
    let mut client = Client::with(settings);
    assert_eq!(client.get("/.git/config").text(), "config");
    assert_eq!(client.get("/.git").status, 301);
}

#[test]
fn names_may_be_any_bytes_and_of_any_length() {
    let folder = Folder::new();
    folder.write("über #1?.txt", "x");
    let mut client = Client::new(&folder);
    assert_eq!(client.get("/%C3%BCber%20%231%3F.txt").text(), "x");
    assert_eq!(client.get("/%ff%fe").status, 404);
    assert_eq!(client.get(&format!("/{}", "a".repeat(300))).status, 404);
    assert_eq!(client.get(&format!("/{}", "a/".repeat(3000))).status, 404);
}

#[test]
fn a_file_that_may_not_be_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("closed", "x");
    let path = folder.path().join("closed");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let may_read_anything = std::fs::read(&path).is_ok();
    let mut client = Client::new(&folder);
    // The superuser may read everything; then there is nothing to refuse.
    assert_eq!(client.get("/closed").status, if may_read_anything { 200 } else { 403 });
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    client.until("/closed", |answered| answered.status == 200);
}
