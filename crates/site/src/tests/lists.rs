//! Lists of directories.

use crate::rules::{AccessRule, Alias, MountPath, Network, Pattern, Rewrite, Scope, Template};
use crate::testing::{Client, Folder};
use crate::{ContentSettings, settings};
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

fn client(folder: &Folder) -> Client {
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].listing = vec![Scope::any()];
    Client::with(settings)
}

#[test]
fn a_directory_without_an_index_is_listed_if_that_is_wanted() {
    let folder = Folder::new();
    folder.write("a b/x&y.txt", "hello");
    folder.write("a b/sub/z", "");
    folder.write("a b/.hidden", "");
    folder.write("with/index.html", "index");
    symlink("/etc/passwd", folder.path().join("a b/out")).unwrap();
    symlink("x&y.txt", folder.path().join("a b/in")).unwrap();
    assert_eq!(Client::new(&folder).get("/a%20b/").status, 404);
    let mut client = client(&folder);
    for _ in 0..2 {
        let page = client.get("/a%20b/");
        assert_eq!(page.status, 200);
        assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.field("Vary"), Some("Accept, Accept-Encoding"));
        assert_eq!((page.field("ETag"), page.field("Accept-Ranges")), (None, None));
        for expected in ["./x&amp;y.txt", "<a href=\"./sub/\">sub/</a>", "./in", "5 B", "a b/</h1>"]
        {
            assert!(page.text().contains(expected), "{expected} in {}", page.text());
        }
        for absent in [".hidden", "out"] {
            assert!(!page.text().contains(&format!("./{absent}")), "{absent}");
        }
        let json = client.get_with("/a%20b/", "Accept: application/json\r\n");
        assert_eq!(json.field("Content-Type"), Some("application/json"));
        assert!(json.text().starts_with("{\"path\":\"/a b/\",\"entries\":[\n{\"name\":\"sub\","));
        assert!(json.text().ends_with("\n],\"complete\":true}\n"));
    }
    assert!(!client.get("/a%20b/").is_miss);
    assert_eq!(client.get("/a%20b").field("Location"), Some("/a%20b/"));
    assert_eq!(client.get("/with/").text(), "index");
    assert_eq!(client.get("/none/").status, 404);
    assert_eq!(client.get("/a%20b/x&y.txt/").status, 404);
    assert!(client.get("/").text().contains("./with/"));
}

/// All clients get the same list, so it shows only what every client of the list may have.
#[test]
fn what_is_protected_better_than_the_list_is_not_in_it() {
    let folder = Folder::new();
    let inner = Folder::new();
    inner.write("page.txt", "");
    for name in ["pub/open.txt", "pub/a.bak", "pub/page.txt", "pub/page.txt.gz", "pub/in/x"] {
        folder.write(name, "text");
    }
    folder.write("pub/team/index.html", "team");
    let access = |path: &str| AccessRule {
        paths: Scope::parse(path).unwrap().into(),
        allow: Vec::new(),
        deny: vec![Network::parse("10.0.0.0/8").unwrap()],
        conditions: Default::default(),
        refusal: None,
    };
    let names = |rules: &[&str], target: &str| {
        let mut settings = ContentSettings::new(folder.path());
        let site = &mut settings.sites[0];
        site.listing = vec![Scope::any()];
        let alias = |path, to| Alias::new(MountPath::parse(path).unwrap(), to);
        site.aliases = vec![
            alias("/pub/more", inner.path().to_owned()),
            alias("/again", folder.path().join("pub")),
        ];
        site.access = rules.iter().map(|path| access(path)).collect();
        let json = Client::with(settings).get_with(target, "Accept: application/json\r\n");
        let name =
            |line: &str| Some(line.split_once("{\"name\":\"")?.1.split_once('"')?.0.to_owned());
        assert_eq!(json.status, 200, "{target}");
        json.text().lines().filter_map(name).collect::<Vec<_>>()
    };
    let all = ["in", "more", "team", "a.bak", "open.txt", "page.txt", "page.txt.gz"];
    assert_eq!(names(&[], "/pub/"), all);
    // a client that sees the list may have all of it
    assert_eq!(names(&["*"], "/pub/"), all);
    assert_eq!(names(&["/pub"], "/pub/"), all);
    let left = ["in", "open.txt"];
    let rules = ["*.bak", "=/pub/page.txt", "/pub/team", "/pub/more"];
    assert_eq!(names(&rules, "/pub/"), left);
    assert_eq!(names(&["*", "*.bak", "=/pub/page.txt", "=/pub/team/", "/pub/more"], "/pub/"), left);
    // the same files under another path
    let left = ["in", "open.txt"];
    assert_eq!(names(&rules, "/again/"), left);
}

#[test]
fn a_list_is_no_older_than_the_interval() {
    let folder = Folder::new();
    folder.write("d/one", "1");
    let mut client = client(&folder);
    assert!(client.get("/d/").text().contains("./one"));
    folder.write("d/two", "22");
    client.pass(settings::CacheSettings::default().check_interval.as_millis() as u64);
    assert!(client.get("/d/").text().contains("./two"));
    folder.write("d/index.html", "index");
    client.until("/d/", |answered| answered.body == b"index");
    fs::remove_dir_all(folder.path().join("d")).unwrap();
    client.until("/d/", |answered| answered.status == 404);
}

#[test]
fn a_list_is_sorted_as_the_query_says() {
    let folder = Folder::new();
    folder.write("d/a", "333");
    folder.write("d/b", "1");
    folder.write("d/c", "22");
    let mut client = client(&folder);
    let names = |answered: &crate::testing::Answered| -> String {
        let rows = answered.text().split("href=\"./").skip(1);
        rows.map(|row| &row[..1]).collect()
    };
    for _ in 0..2 {
        assert_eq!(names(&client.get("/d/")), "abc");
        assert_eq!(names(&client.get("/d/?sort=size")), "bca");
        assert_eq!(names(&client.get("/d/?sort=size&order=desc")), "acb");
        assert_eq!(names(&client.get("/d/?order=desc")), "cba");
        assert_eq!(names(&client.get("/d/?whatever")), "abc");
        let json = client.get_with("/d/?sort=size", "Accept: application/json\r\n");
        let at = |name| json.text().find(name).unwrap();
        assert!(at("\"b\"") < at("\"c\"") && at("\"c\"") < at("\"a\""), "{}", json.text());
    }
    assert!(!client.get("/d/?order=desc").is_miss, "every order is kept");
    assert_eq!(client.get("/d?sort=size").field("Location"), Some("/d/?sort=size"));
}

#[test]
fn hidden_names_are_listed_only_when_served() {
    let folder = Folder::new();
    folder.write(".env", "secret");
    folder.write(".well-known/x", "");
    assert!(!client(&folder).get("/").text().contains(".env"));
    assert!(client(&folder).get("/").text().contains("./.well-known/"));
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].listing = vec![Scope::any()];
    settings.sites[0].hidden = true;
    settings.cache.check_interval = Duration::ZERO;
    assert!(Client::with(settings).get("/").text().contains("./.env"));
}

#[test]
fn a_long_list_says_that_it_is_not_whole() {
    let folder = Folder::new();
    for number in 0..10_050 {
        folder.write_now(&format!("{number}"), "");
    }
    let mut client = client(&folder);
    let page = client.get("/");
    assert_eq!(page.text().matches("<tr class=\"file\">").count(), 10_000);
    assert!(page.text().contains("There are more files"));
    let json = client.get_with("/", "Accept: application/json\r\n");
    assert!(json.text().ends_with("\"complete\":false}\n"));
}

#[test]
fn a_list_is_compressed_and_what_an_alias_leads_to_as_well() {
    let folder = Folder::new();
    folder.write("d/one", "1");
    let mut client = client(&folder);
    for _ in 0..2 {
        let page = client.get_with("/d/", "Accept-Encoding: gzip\r\n");
        assert_eq!((page.status, page.field("Content-Encoding")), (200, Some("gzip")));
        assert_eq!(
            (page.field("ETag"), page.field("Vary")),
            (None, Some("Accept, Accept-Encoding"))
        );
    }
    assert_eq!(client.get_with("/d/", "Accept-Encoding: gzip\r\n").jobs, 0);
    assert!(client.get("/d/").text().contains("./one"));
}

/// A list is shown by the rule for the directory's own path, whatever path leads there.
#[test]
fn only_the_directories_that_are_named_are_listed() {
    let folder = Folder::new();
    for name in ["pub/a", "pub/sub/b", "other/c", "public/d", "pub/with/index.html"] {
        folder.write(name, "text");
    }
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].listing = vec![Scope::parse("/pub").unwrap()];
    let rewrite = |from, to| {
        Rewrite::new(Pattern::parse(from).unwrap(), Template::parse(to).unwrap()).unwrap()
    };
    settings.sites[0].rewrites =
        vec![rewrite("/pub/r/*", "/other/$1"), rewrite("/in/*", "/pub/$1")];
    let mut client = Client::with(settings);
    for _ in 0..2 {
        for (target, status) in [
            ("/pub/", 200),
            ("/pub/sub/", 200),
            ("/in/sub/", 200),
            ("/other/", 404),
            ("/public/", 404),
            ("/pub/r/", 404),
            ("/", 404),
        ] {
            assert_eq!(client.get(target).status, status, "{target}");
        }
        assert_eq!(client.get("/pub/with/").text(), "text");
    }
}
