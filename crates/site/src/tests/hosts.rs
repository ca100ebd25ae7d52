//! Several sites: which one answers, and that none answers with another's files.

use crate::rules::{Host, Redirect, SiteName};
use crate::testing::{Client, Folder};
use crate::{ContentSettings, SiteSettings};
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

fn site(hosts: &[&str], folder: &Folder) -> SiteSettings {
    let hosts: Vec<_> = hosts.iter().map(|host| Host::parse(host).unwrap()).collect();
    SiteSettings { name: SiteName::of(&hosts), hosts, ..SiteSettings::new(folder.path()) }
}

fn sites(sites: Vec<SiteSettings>) -> ContentSettings {
    ContentSettings { sites, ..ContentSettings::new("/") }
}

#[test]
fn each_site_has_its_own_files() {
    let folders: Vec<_> = (0..3).map(|_| Folder::new()).collect();
    for (folder, text) in folders.iter().zip(["one", "two", "other"]) {
        folder.write("index.html", text);
    }
    folders[1].write("only-two", "two");
    let mut client = Client::with(sites(vec![
        site(&["one.example", "*.one.example"], &folders[0]),
        site(&["two.example"], &folders[1]),
        site(&[], &folders[2]),
    ]));
    for _ in 0..3 {
        for (host, text) in [
            ("one.example", "one"),
            ("ONE.example:8080", "one"),
            ("a.b.one.example", "one"),
            ("two.example.", "two"),
            ("three.example", "other"),
            ("", "other"),
        ] {
            client.host = host;
            assert_eq!(client.get("/").text(), text, "{host}");
            assert_eq!(client.get("/only-two").status, if text == "two" { 200 } else { 404 });
        }
    }
    assert_eq!(client.content.figures().entries, 6);
    // the host of an absolute target counts, not the field (RFC 9112 §3.2.2)
    assert_eq!(client.get("http://two.example/").text(), "two");
}

#[test]
fn a_stranger_is_misdirected_without_a_default_site() {
    let folder = Folder::new();
    folder.write("index.html", "one");
    let mut client = Client::with(sites(vec![site(&["one.example"], &folder)]));
    for method in ["GET", "POST", "OPTIONS"] {
        let answered = client.ask(method, "/", "");
        assert_eq!(answered.status, 421);
        assert!(answered.text().contains("No site here has the host that the request names"));
    }
    client.host = "";
    assert!(client.get("/").text().contains("names no host"));
    client.host = "one.example";
    assert_eq!(client.get("/").text(), "one");
}

#[test]
fn a_site_may_have_no_files() {
    let to = crate::rules::Template::parse("https://$host$path").unwrap();
    let pattern = crate::rules::Pattern::parse("/old*").unwrap();
    let redirects = vec![Redirect::new(pattern, to, 308).unwrap()];
    let bare = SiteSettings { redirects, ..SiteSettings::default() };
    let mut client = Client::with(sites(vec![bare]));
    for _ in 0..2 {
        let moved = client.get("/old/x?q=1");
        assert_eq!((moved.status, moved.field("location")), (308, Some("https://a/old/x?q=1")));
        assert_eq!(client.get("/new").status, 404);
    }
    assert!(!client.get("/old/x").is_miss);
}

#[test]
fn a_root_that_moves_concerns_its_own_site_only() {
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name);
    folder.write("one/index.html", "one");
    folder.write("next/index.html", "next");
    folder.write("two/index.html", "two");
    symlink("one", path("current")).unwrap();
    let mut first = site(&["one.example"], &folder);
    first.root = Some(path("current"));
    let mut second = site(&["two.example"], &folder);
    second.root = Some(path("two"));
    let mut client = Client::with(sites(vec![first, second]));
    client.host = "two.example";
    assert_eq!(client.get("/").text(), "two");
    client.host = "one.example";
    assert_eq!(client.get("/").text(), "one");
    symlink("next", path("link")).unwrap();
    fs::rename(path("link"), path("current")).unwrap();
    client.until("/", |answered| answered.text() == "next");
    client.host = "two.example";
    assert!(!client.get("/").is_miss, "another site's cache was flushed");
}

#[test]
fn retired_content_keeps_nothing_and_still_answers() {
    let folder = Folder::new();
    folder.write("index.html", "one");
    let mut client = Client::new(&folder);
    let mut beside = client.beside();
    assert_eq!(beside.get("/").text(), "one");
    assert!(client.content.figures().watched_directories > 0);
    client.content.retire();
    let figures = client.content.figures();
    assert_eq!((figures.entries, figures.watched_directories), (0, 0));
    for client in [&mut client, &mut beside] {
        for _ in 0..2 {
            let answered = client.get("/");
            assert_eq!((answered.text(), answered.is_miss), ("one", true));
            assert_eq!(client.get("/missing").status, 404);
        }
    }
    let figures = client.content.figures();
    assert_eq!((figures.entries, figures.watched_directories), (0, 0));
}

#[test]
fn who_lets_go_of_content_last_does_not_end_the_watching() {
    for is_retired in [false, true] {
        let folder = Folder::new();
        let client = Client::new(&folder);
        let watcher = client.content.watcher();
        let owners = || watcher.strong_count();
        assert_eq!(owners(), 2, "the content and the thread that watches");
        if is_retired {
            client.content.retire();
            // the thread has had time to see that
            std::thread::sleep(Duration::from_millis(1500));
        }
        assert_eq!(owners(), 2);
        drop(client);
        let start = Instant::now();
        while owners() > 0 {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn what_a_job_for_older_content_brings_is_not_looked_at() {
    let (old, new) = (Folder::new(), Folder::new());
    old.write("a", "old");
    new.write("a", "new");
    let before = Client::new(&old);
    let mut after = Client::new(&new);
    assert_ne!(before.content.settings(), after.content.settings());
    let done = before.job("/a");
    assert_eq!(after.get_after(done, "/a").text(), "new");
    let done = after.job("/a");
    assert_eq!(after.get_after(done, "/a").text(), "new");
}
