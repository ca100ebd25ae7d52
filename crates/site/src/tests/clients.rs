//! Rules about clients: addresses, passwords, and the handler for tests behind them.

use crate::rules::{
    AccessRule, Auth, ErrorPage, Network, Pattern, Realm, Redirect, Rewrite, Scope, Template,
    TryFiles, User, WorkHandler,
};
use crate::testing::{Client, Folder};
use crate::{ContentSettings, SiteSettings, settings};
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
    Auth { paths: scope(path).into(), realm: Realm::default(), users, file: None }
}

fn access(path: &str, allow: &[&str], deny: &[&str]) -> AccessRule {
    let networks = |texts: &[&str]| texts.iter().map(|at| Network::parse(at).unwrap()).collect();
    AccessRule {
        paths: scope(path).into(),
        allow: networks(allow),
        deny: networks(deny),
        conditions: Default::default(),
        refusal: None,
    }
}

fn with(folder: &Folder, change: impl FnOnce(&mut SiteSettings)) -> Client {
    let mut settings = ContentSettings::new(folder.path());
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
    // a 304 is for clients that passed, too
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
    let mut settings = ContentSettings::new(folder.path());
    settings.cache = settings::CacheSettings { bytes: 0, ..settings.cache };
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
    let mut settings = ContentSettings::new(folder.path().join("root"));
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
    let mut client = with(&folder, |site| site.work = vec![WorkHandler { path: pattern("/work") }]);
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
        site.work = vec![WorkHandler { path: pattern("/work/*") }];
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

/// bob:password
const BOB: &str = "Authorization: Basic Ym9iOnBhc3N3b3Jk\r\n";

/// Asks twice, so that the second answer is a hit, and once more on a loop that has it from the first.
#[track_caller]
fn check(client: &mut Client, path: &str, fields: &str, status: u16) {
    for _ in 0..2 {
        assert_eq!(client.get_with(path, fields).status, status, "{path} {fields}");
    }
    let mut other = client.beside();
    other.client = client.client;
    assert_eq!(other.get_with(path, fields).status, status, "{path} {fields}, another loop");
}

fn protected_by(rules: &[&str], folder: &Folder, more: impl Fn(&mut SiteSettings)) -> [Client; 2] {
    let by_password = with(folder, |site| {
        more(site);
        site.auth = rules.iter().map(|rule| auth(rule, &["alice"])).collect();
    });
    let by_address = with(folder, |site| {
        more(site);
        site.access = rules.iter().map(|rule| access(rule, &["10.0.0.0/8"], &[])).collect();
    });
    [by_password, by_address]
}

/// A client that is refused is refused under every path of a file, and one that may pass passes.
#[track_caller]
fn check_both(clients: [Client; 2], closed: &[&str], open: &[&str]) {
    let [mut by_password, mut by_address] = clients;
    for fields in
        ["", "Accept-Encoding: gzip\r\n", "Accept: application/json\r\n", "Range: bytes=0-0\r\n"]
    {
        for path in closed {
            check(&mut by_password, path, fields, 401);
            check(&mut by_address, path, fields, 403);
        }
    }
    by_address.client = "10.0.0.1".parse().unwrap();
    for path in closed {
        check(&mut by_password, path, ALICE, 200);
        check(&mut by_password, path, "", 401);
        check(&mut by_password, path, WRONG, 401);
        let answered = by_password.get_with(path, ALICE);
        assert_eq!(answered.field("Cache-Control"), Some("private, no-cache"), "{path}");
        check(&mut by_address, path, "", 200);
    }
    by_address.client = "127.0.0.1".parse().unwrap();
    for path in open {
        check(&mut by_password, path, "", 200);
        check(&mut by_address, path, "", 200);
        assert_eq!(by_password.get(path).field("Cache-Control"), Some("no-cache"), "{path}");
    }
}

#[test]
fn an_index_is_protected_under_both_its_paths() {
    let folder = Folder::new();
    for name in ["in/index.html", "in/index.html.gz", "in/other.html", "index.html", "a.txt"] {
        folder.write(name, "text");
    }
    for rule in ["/in/index.html", "=/in/index.html", "=/in/"] {
        let paths = ["/in/", "/in/index.html", "/in/index.html.gz", "/x/..//%69n/"];
        check_both(
            protected_by(&[rule], &folder, |_| {}),
            &paths,
            &["/in/other.html", "/", "/index.html"],
        );
    }
    let paths = ["/", "/index.html", "/in/", "/in/other.html"];
    check_both(protected_by(&["*.html"], &folder, |_| {}), &paths, &["/a.txt"]);
    let paths = ["/", "/index.html"];
    check_both(protected_by(&["=/"], &folder, |_| {}), &paths, &["/a.txt", "/in/"]);
}

#[test]
fn files_that_are_tried_are_protected_under_every_path() {
    let folder = Folder::new();
    for name in ["index.html", "secret.html", "in/page.html", "in/index.html", "open.html"] {
        folder.write(name, "text");
    }
    let pages = |site: &mut SiteSettings| {
        site.try_files = TryFiles::parse(&["$path", "$path.html", "$path/", "=404"]).unwrap();
    };
    for rule in ["/secret.html", "=/secret", "/secret"] {
        let closed = ["/secret", "/secret.html"];
        check_both(protected_by(&[rule], &folder, pages), &closed, &["/open", "/"]);
    }
    let closed = ["/in/page", "/in/page.html", "/in/"];
    check_both(protected_by(&["/in"], &folder, pages), &closed, &["/secret", "/"]);
    // the page of an application that is protected itself, and one where a part of it is
    let application = |site: &mut SiteSettings| {
        site.try_files = TryFiles::parse(&["$path", "/index.html"]).unwrap();
    };
    let closed = ["/route/7", "/", "/index.html", "/in"];
    let clients = protected_by(&["/index.html"], &folder, application);
    check_both(clients, &closed, &["/secret.html", "/in/page.html"]);
    let clients = protected_by(&["/admin"], &folder, application);
    check_both(clients, &["/admin", "/admin/route"], &["/route", "/index.html"]);
}

#[test]
fn what_a_rewrite_leads_to_is_protected_and_what_leads_there() {
    let folder = Folder::new();
    for name in ["app/page.txt", "app/index.html", "app/list/a", "open.txt"] {
        folder.write(name, "text");
    }
    let rewrites = |site: &mut SiteSettings| {
        let rewrite = |from: Pattern, to| Rewrite::new(from, Template::parse(to).unwrap()).unwrap();
        let regex = Pattern::regex("^/r/(.*)$").unwrap();
        site.rewrites = vec![rewrite(pattern("/v1/*"), "/app/$1"), rewrite(regex, "/app/$1")];
        site.listing = vec![Scope::any()];
    };
    let all = ["/v1/page.txt", "/v1/", "/v1/list/", "/r/page.txt", "/r/"];
    let own = ["/app/page.txt", "/app/", "/app/index.html", "/app/list/"];
    check_both(protected_by(&["/app"], &folder, rewrites), &all, &["/open.txt"]);
    check_both(protected_by(&["/app"], &folder, rewrites), &own, &["/"]);
    let closed = ["/v1/page.txt", "/v1/", "/app/page.txt", "/app/", "/app/index.html"];
    check_both(protected_by(&["/v1"], &folder, rewrites), &closed, &["/open.txt"]);
    // no client learns what is there
    let [mut by_password, _] = protected_by(&["/app"], &folder, rewrites);
    check(&mut by_password, "/v1/missing", "", 401);
    check(&mut by_password, "/v1/list", "", 401);
}

/// However the path was cut, and whatever a star stood for that `to` does not name.
#[test]
fn what_a_rewrite_leads_to_is_protected_however_it_was_made() {
    let folder = Folder::new();
    for name in ["data/a/b/index.html", "data2/x", "data3/notes.txt.txt", "store/x", "open.txt"] {
        folder.write(name, "text");
    }
    let rewrites = |site: &mut SiteSettings| {
        let rewrite = |from, to| Rewrite::new(pattern(from), Template::parse(to).unwrap()).unwrap();
        site.rewrites = vec![
            rewrite("/members/*", "/data/$1/"),
            rewrite("/m2*", "/data2/$1"),
            rewrite("/m/*", "/data3/$1.txt"),
            rewrite("/n/*/*", "/store/$2"),
            rewrite("/page/*", "/open.txt"),
        ];
    };
    for (rule, closed) in [
        ("/members", &["/members/a/b", "/data/a/b/", "/data/a/b/index.html"][..]),
        ("/m2", &["/m2/x", "/data2/x"]),
        ("/m", &["/m/notes.txt", "/data3/notes.txt.txt"]),
        ("/n", &["/n/any/x", "/store/x"]),
        // nothing shows whether it was this one
        ("/n/any", &["/n/any/x"]),
        // one page for many paths is no more protected than it says itself
        ("/page/a", &["/page/a"]),
    ] {
        check_both(protected_by(&[rule], &folder, rewrites), closed, &["/open.txt", "/page/b"]);
    }
}

/// Whatever leads to the file: its form, an index, a rewrite, `try_files`.
#[test]
fn a_regular_expression_protects_the_path_and_the_file() {
    let folder = Folder::new();
    for name in
        ["a.bak", "a.bak.gz", "B.SQL", "dir/list.old", "page.html", "page.txt", "x.bak.html"]
    {
        folder.write(name, "text");
    }
    let rule = |site: &mut SiteSettings, all: bool| {
        let path = Scope::regex(r"(?i)\.(bak|sql|old)$").unwrap();
        match all {
            true => {
                site.access = vec![AccessRule { paths: path.into(), ..access("*", &[], &["all"]) }]
            }
            false => site.auth = vec![Auth { paths: path.into(), ..auth("*", &["alice"]) }],
        }
        let rewrite = |from, to| Rewrite::new(pattern(from), Template::parse(to).unwrap()).unwrap();
        site.rewrites = vec![rewrite("/saved/*", "/$1.bak"), rewrite("/plain.BAK", "/page.txt")];
        site.index = vec!["list.old".to_owned()];
        site.try_files = TryFiles::parse(&["$path", "$path.bak", "$path.html", "$path/"]).unwrap();
    };
    for (is_access, status) in [(true, 403), (false, 401)] {
        let mut client = with(&folder, |site| rule(site, is_access));
        for _ in 0..2 {
            for target in [
                "/a.bak",
                "/a.bak.gz",
                "/%61.b%61k",
                "/B.SQL",
                "/dir/",
                "/dir/list.old",
                "/saved/a",
                "/a",
                "/plain.BAK",
                "/x.bak",
                "/x.bak.html",
                // the rule is for a name of the file, which a rewrite gives it
                "/page.txt",
            ] {
                assert_eq!(client.get(target).status, status, "{target}");
            }
            for target in ["/page.html", "/page", "/b.sql.txt"] {
                let expected = if target == "/b.sql.txt" { 404 } else { 200 };
                assert_eq!(client.get(target).status, expected, "{target}");
            }
        }
        if !is_access {
            assert_eq!(client.get_with("/saved/a", ALICE).text(), "text");
            assert_eq!(client.get_with("/a.bak", WRONG).status, 401);
        }
    }
}

#[test]
fn a_compressed_form_that_is_protected_better_does_not_stand_for_its_file() {
    let folder = Folder::new();
    folder.write("page.html", "x".repeat(2000));
    folder.write("page.html.gz", "a file");
    let [mut by_password, mut by_address] = protected_by(&["*.gz"], &folder, |_| {});
    for client in [&mut by_password, &mut by_address] {
        let answered = client.get_with("/page.html", "Accept-Encoding: gzip\r\n");
        assert_eq!(answered.field("Content-Encoding"), Some("gzip"), "compressed on demand");
        assert_ne!(answered.body, b"a file");
    }
    check(&mut by_password, "/page.html.gz", "", 401);
    check(&mut by_password, "/page.html.gz", ALICE, 200);
    check(&mut by_address, "/page.html.gz", "", 403);
}

#[test]
fn an_error_page_is_shown_to_those_who_may_see_it() {
    let folder = Folder::new();
    folder.write("in/404.html", "protected");
    folder.write("open.html", "open page");
    let errors = |site: &mut SiteSettings| {
        let page = |status, path| ErrorPage::parse(status, path).unwrap();
        site.errors = vec![
            page("401", "/open.html"),
            page("403", "/open.html"),
            page("404", "/in/404.html"),
            page("405", "/in/404.html"),
            page("416", "/in/404.html"),
        ];
    };
    let [mut by_password, mut by_address] = protected_by(&["/in"], &folder, errors);
    by_address.client = "10.0.0.1".parse().unwrap();
    for _ in 0..2 {
        for (client, fields) in [(&mut by_password, ALICE), (&mut by_address, "")] {
            let inside = client.get_with("/in/missing", fields);
            assert_eq!((inside.status, inside.text()), (404, "protected"));
            let fields = format!("{fields}Range: bytes=99-\r\n");
            let inside = client.get_with("/in/404.html", &fields);
            assert_eq!((inside.status, inside.text()), (416, "protected"));
            for (method, path, status) in [("GET", "/missing", 404), ("POST", "/in/x", 405)] {
                let outside = client.ask(method, path, &fields);
                assert_eq!((outside.status, outside.text().contains("protected")), (status, false));
            }
            let outside = client.get_with("/open.html", &fields);
            assert_eq!((outside.status, outside.text().contains("protected")), (416, false));
        }
        assert_eq!(by_password.get("/in/missing").text(), "open page");
    }
    by_address.client = "8.8.8.8".parse().unwrap();
    assert_eq!(by_address.get("/in/missing").text(), "open page");
}

#[test]
fn two_realms_must_both_know_the_client() {
    let folder = Folder::new();
    folder.write("index.html", "text");
    for cache_bytes in [1 << 24, 0] {
        let mut settings = ContentSettings::new(folder.path());
        settings.cache.bytes = cache_bytes;
        settings.sites[0].auth =
            vec![auth("=/", &["alice", "bob"]), auth("/index.html", &["alice"])];
        let mut client = Client::with(settings);
        for path in ["/", "/index.html"] {
            check(&mut client, path, "", 401);
            check(&mut client, path, BOB, 401);
            check(&mut client, path, ALICE, 200);
        }
    }
}

/// The file that answers changes: so do the rules.
#[test]
fn rules_follow_the_file_that_is_found() {
    let folder = Folder::new();
    folder.write("a.htm", "text");
    let index = |site: &mut SiteSettings| site.index = vec!["b.htm".into(), "a.htm".into()];
    let [mut client, _] = protected_by(&["/b.htm"], &folder, index);
    check(&mut client, "/", "", 200);
    fs::hard_link(folder.path().join("a.htm"), folder.path().join("b.htm")).unwrap();
    client.until("/", |answered| answered.status == 401);
    fs::remove_file(folder.path().join("b.htm")).unwrap();
    client.until("/", |answered| answered.status == 200);
}
