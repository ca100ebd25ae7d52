//! Rules about who may ask: addresses, passwords, and the handler for tests behind them.

use crate::rules::{Access, Auth, Network, Pattern, Realm, Redirect, Scope, Template, User, Work};
use crate::testing::{Client, Folder};
use crate::{Settings, SiteSettings, settings};
use std::fs;

/// "password", as cheap as bcrypt gets.
const HASH: &str = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
/// alice:password
const ALICE: &str = "Authorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n";
/// alice:wrong
const WRONG: &str = "Authorization: Basic YWxpY2U6d3Jvbmc=\r\n";

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn scope(text: &str) -> Scope {
    Scope::parse(text).unwrap()
}

fn auth(path: &str, users: &[&str]) -> Auth {
    let users = users.iter().map(|name| User::parse(name, HASH).unwrap()).collect();
    Auth { path: scope(path), realm: Realm::default(), users, file: None }
}

fn access(path: &str, allow: &[&str], deny: &[&str]) -> Access {
    let networks = |texts: &[&str]| texts.iter().map(|at| Network::parse(at).unwrap()).collect();
    Access { path: scope(path), allow: networks(allow), deny: networks(deny) }
}

fn with(folder: &Folder, change: impl FnOnce(&mut SiteSettings)) -> Client {
    let mut settings = Settings::new(folder.path());
    change(&mut settings.sites[0]);
    Client::with(settings)
}

#[test]
fn only_admitted_addresses_are_answered() {
    let folder = Folder::new();
    folder.write("page.txt", "page");
    folder.write("in/page.txt", "inside");
    let mut client = with(&folder, |site| {
        site.access =
            vec![access("/in/*", &["10.0.0.0/8"], &[]), access("*", &[], &["192.0.2.0/24"])];
    });
    for _ in 0..2 {
        for (address, page, inside) in [
            ("127.0.0.1", 200, 403),
            ("10.1.2.3", 200, 200),
            ("192.0.2.9", 403, 403),
            ("::ffff:10.1.2.3", 200, 200),
        ] {
            client.client = address.parse().unwrap();
            assert_eq!(client.get("/page.txt").status, page, "{address}");
            assert_eq!(client.get("/in/page.txt").status, inside, "{address}");
            // however the path is spelt, and whether anything is there
            assert_eq!(client.get("//x/../%69n/page.txt").status, inside, "{address}");
            let missing = if inside == 403 { 403 } else { 404 };
            assert_eq!(client.get("/in/missing").status, missing, "{address}");
        }
    }
    client.client = "10.1.2.3".parse().unwrap();
    assert!(!client.get("/in/page.txt").is_miss, "it is answered from the loop's own table");
}

#[test]
fn a_path_is_protected_with_all_below_it() {
    let folder = Folder::new();
    for name in ["in/page.txt", "in/index.html", "in/deep/x", "inside", "only", "only.d/x"] {
        folder.write(name, "text");
    }
    let mut client = with(&folder, |site| {
        site.access = vec![access("/in", &["10.0.0.0/8"], &[])];
        site.auth = vec![auth("=/only", &["alice"]), auth("/in/deep/", &["alice"])];
    });
    for _ in 0..2 {
        for (path, stranger, known) in [
            ("/in", 403, 301),
            ("/in/", 403, 200),
            ("/in/page.txt", 403, 200),
            ("/in/missing", 403, 404),
            ("/in/deep/x", 403, 401),
            ("/in/deep", 403, 401),
            ("/x/../in/page.txt", 403, 200),
            ("/inside", 200, 200),
            ("/only", 401, 401),
            ("/only.d/x", 200, 200),
        ] {
            client.client = "127.0.0.1".parse().unwrap();
            assert_eq!(client.get(path).status, stranger, "{path}");
            client.client = "10.0.0.1".parse().unwrap();
            assert_eq!(client.get(path).status, known, "{path}");
        }
    }
    assert_eq!(
        client.get_with("/in/deep/x", ALICE).field("Cache-Control"),
        Some("private, no-cache")
    );
    assert_eq!(client.get("/in/page.txt").field("Cache-Control"), Some("no-cache"));
}

#[test]
fn the_right_password_opens_and_is_verified_once() {
    let folder = Folder::new();
    folder.write("in/page.txt", "inside");
    folder.write("page.txt", "page");
    let mut client = with(&folder, |site| site.auth = vec![auth("/in/*", &["alice"])]);
    let refused = client.get("/in/page.txt");
    assert_eq!((refused.status, refused.jobs), (401, 0));
    let challenge = "Basic realm=\"private\", charset=\"UTF-8\"";
    assert_eq!(refused.field("WWW-Authenticate"), Some(challenge));
    let first = client.get_with("/in/page.txt", ALICE);
    assert_eq!((first.status, first.text(), first.jobs), (200, "inside", 2));
    assert_eq!(first.field("Cache-Control"), Some("private, no-cache"));
    assert_eq!(client.get("/page.txt").field("Cache-Control"), Some("no-cache"));
    let second = client.get_with("/in/page.txt", ALICE);
    assert_eq!((second.status, second.jobs), (200, 0));
    assert_eq!(client.get_with("/in/page.txt", WRONG).status, 401);
    let again = client.get_with("/in/page.txt", WRONG);
    assert_eq!((again.status, again.jobs), (401, 0));
    assert_eq!(client.get("/in/page.txt").status, 401, "who sends nothing is asked again");
    assert_eq!(client.get_with("/in/missing", ALICE).status, 404);
    assert_eq!(client.get("/in/missing").status, 401);
    // another loop learns it without another verification
    let mut other = client.beside();
    assert_eq!(other.get_with("/in/page.txt", ALICE).jobs, 0);
    // and in time it is verified again
    client.pass(301_000);
    assert_eq!(client.get_with("/in/page.txt", ALICE).jobs, 2);
    // a 304 is for those who passed, too
    let tag = first.field("ETag").unwrap();
    let fields = format!("If-None-Match: {tag}\r\n");
    assert_eq!(client.get_with("/in/page.txt", &fields).status, 401);
    let not_modified = client.get_with("/in/page.txt", &format!("{ALICE}{fields}"));
    assert_eq!(not_modified.status, 304);
    assert_eq!(not_modified.field("Cache-Control"), Some("private, no-cache"));
}

#[test]
fn addresses_go_before_passwords_and_both_before_redirects() {
    let folder = Folder::new();
    let mut client = with(&folder, |site| {
        site.access = vec![access("*", &["10.0.0.0/8"], &[])];
        site.auth = vec![auth("*", &["alice"])];
        let to = Template::parse("/new").unwrap();
        site.redirects = vec![Redirect::new(pattern("/old"), to, 302).unwrap()];
    });
    for _ in 0..2 {
        client.client = "8.8.8.8".parse().unwrap();
        let refused = client.get_with("/old", ALICE);
        assert_eq!((refused.status, refused.jobs), (403, 0));
        client.client = "10.0.0.1".parse().unwrap();
        assert_eq!(client.get("/old").status, 401);
        assert_eq!(client.ask("POST", "/old", "").status, 401);
        assert_eq!(client.get_with("/old", ALICE).status, 302);
    }
}

#[test]
fn without_a_cache_nothing_opens_either() {
    let folder = Folder::new();
    folder.write("page.txt", "page");
    let mut settings = Settings::new(folder.path());
    settings.cache = settings::Cache { bytes: 0, ..settings.cache };
    settings.sites[0].auth = vec![auth("*", &["alice"])];
    settings.sites[0].access = vec![access("*", &[], &["192.0.2.0/24"])];
    let mut client = Client::with(settings);
    for _ in 0..2 {
        assert_eq!(client.get("/page.txt").status, 401);
        assert_eq!(client.get_with("/page.txt", WRONG).status, 401);
        assert_eq!(client.get_with("/page.txt", ALICE).text(), "page");
    }
    client.client = "192.0.2.1".parse().unwrap();
    assert_eq!(client.get_with("/page.txt", ALICE).status, 403);
}

#[test]
fn a_file_of_users_is_followed() {
    let folder = Folder::new();
    folder.write("root/page.txt", "page");
    let mut settings = Settings::new(folder.path().join("root"));
    let file = Some(folder.path().join("users"));
    settings.sites[0].auth = vec![Auth { file, ..auth("*", &[]) }];
    let mut client = Client::with(settings);
    client.until_noticed("Users");
    let broken = client.get_with("/page.txt", ALICE);
    assert_eq!((broken.status, broken.jobs), (500, 0));
    folder.write("users", format!("alice:{HASH}\n"));
    client.until_with("/page.txt", ALICE, |answered| answered.status == 200);
    assert_eq!(client.get("/page.txt").status, 401);
    // what was remembered does not outlive the user
    folder.write("users", format!("bob:{HASH}\n"));
    client.until_with("/page.txt", ALICE, |answered| answered.status == 401);
    fs::remove_file(folder.path().join("users")).unwrap();
    client.until_with("/page.txt", ALICE, |answered| answered.status == 500);
}

#[test]
fn work_is_done_as_the_query_says() {
    let folder = Folder::new();
    folder.write("work", "a file");
    let mut client = with(&folder, |site| site.work = vec![Work { path: pattern("/work") }]);
    for _ in 0..2 {
        let answered = client.get("/work?cpu=2ms&mem=1MiB&out=40KiB");
        assert_eq!((answered.status, answered.body.len()), (200, 40 * 1024));
        assert_eq!(answered.field("Cache-Control"), Some("no-store"));
        let timing = answered.field("Server-Timing").unwrap();
        let cpu_ms: f64 = timing.strip_prefix("cpu;dur=").unwrap().parse().unwrap();
        assert!(cpu_ms >= 2.0, "{timing}");
        assert_eq!(client.get("/work?out=5").text(), "wwwww");
        let head = client.ask("HEAD", "/work?out=40KiB", "");
        assert_eq!(head.field("Content-Length"), Some("40960"));
        let empty = client.get("/work");
        assert_eq!((empty.status, empty.field("Content-Length")), (200, Some("0")));
        let wrong = client.get("/work?cpu=5");
        assert_eq!(wrong.status, 400);
        assert!(wrong.text().contains("cpu is a duration"), "{}", wrong.text());
        assert_eq!(client.ask("POST", "/work?cpu=1ms", "").status, 405);
    }
    assert_eq!(Client::new(&folder).get("/work?cpu=1ms").text(), "a file", "it is off by default");
}

#[test]
fn work_needs_no_root_and_can_be_protected() {
    let folder = Folder::new();
    let mut client = with(&folder, |site| {
        site.root = None;
        site.work = vec![Work { path: pattern("/work/*") }];
        site.auth = vec![auth("/work/*", &["alice"])];
    });
    assert_eq!(client.get("/work/a?out=1").status, 401);
    for jobs in [3, 1] {
        let answered = client.get_with("/work/a?out=1", ALICE);
        assert_eq!((answered.status, answered.jobs), (200, jobs));
        assert_eq!(answered.field("Cache-Control"), Some("no-store"));
    }
    assert_eq!(client.get("/other").status, 404);
}
