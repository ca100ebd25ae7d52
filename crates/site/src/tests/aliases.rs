//! Other directories beneath paths of the site.

use crate::rules::{Alias, Auth, ErrorPage, MountPath, Realm, Rewrite, Scope, User};
use crate::rules::{Pattern, Route, ScriptSuffix, Scripts, Template, TryFiles};
use crate::testing::{Client, Folder};
use crate::{ContentSettings, SiteSettings};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// "password", as cheap as bcrypt gets.
const HASH: &str = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";

fn alias(path: &str, to: PathBuf) -> Alias {
    Alias::new(MountPath::parse(path).unwrap(), to)
}

fn auth(path: &str) -> Auth {
    let users = vec![User::parse("alice", HASH).unwrap()];
    Auth { paths: Scope::parse(path).unwrap().into(), realm: Realm::default(), users, file: None }
}

/// The root is `root` of the folder.
fn with(folder: &Folder, change: impl FnOnce(&mut SiteSettings)) -> Client {
    let mut settings = ContentSettings::new(folder.path().join("root"));
    change(&mut settings.sites[0]);
    Client::with(settings)
}

#[test]
fn the_longest_path_says_which_directory() {
    let folder = Folder::new();
    for (name, text) in [
        ("root/a.txt", "root"),
        ("root/docs/a.txt", "hidden by the alias"),
        ("root/docs/only.txt", "hidden by the alias"),
        ("root/docs.txt", "beside"),
        ("docs/a.txt", "docs"),
        ("docs/index.html", "docs index"),
        ("docs/sub/a.txt", "sub"),
        ("docs/api/a.txt", "hidden by the longer"),
        ("api/a.txt", "api"),
        ("api/a.txt.gz", "api, small"),
        ("outside.txt", "outside"),
    ] {
        folder.write(name, text);
    }
    let path = |name: &str| folder.path().join(name);
    symlink("../outside.txt", path("docs/out")).unwrap();
    symlink("a.txt", path("docs/in")).unwrap();
    let mut client = with(&folder, |site| {
        site.aliases = vec![alias("/docs", path("docs")), alias("/docs/api/", path("api"))];
    });
    for _ in 0..2 {
        for (target, expected) in [
            ("/a.txt", "root"),
            ("/docs.txt", "beside"),
            ("/docs/a.txt", "docs"),
            ("/docs/", "docs index"),
            ("/docs/sub/a.txt", "sub"),
            ("/docs/api/a.txt", "api"),
            ("/docs/in", "docs"),
            ("/docs/../a.txt", "root"),
            ("/docs/api/../a.txt", "docs"),
            ("//%64ocs/./a.txt", "docs"),
        ] {
            let answered = client.get(target);
            assert_eq!((answered.status, answered.text()), (200, expected), "{target}");
        }
        let small = client.get_with("/docs/api/a.txt", "Accept-Encoding: gzip\r\n");
        assert_eq!(small.text(), "api, small");
        for target in
            ["/docs/only.txt", "/docs/out", "/docs/../outside.txt", "/docs/api/", "/docsa.txt"]
        {
            assert_eq!(client.get(target).status, 404, "{target}");
        }
        for target in ["/docs", "/docs/api", "/docs/sub"] {
            let moved = client.get(target);
            assert_eq!(
                (moved.status, moved.field("Location")),
                (301, Some(&*format!("{target}/")))
            );
        }
        assert_eq!(client.get("/docs/../../outside.txt").status, 400);
        assert_eq!(client.get("/docs/%2e%2e/%2e%2e/outside.txt").status, 400);
        assert_eq!(client.get("/docs/..%2foutside.txt").status, 404);
    }
    assert!(!client.get("/docs/a.txt").is_miss);
}

/// A script that is not run is passed over as an index file: the next one answers, as soon as it is
/// there.
#[test]
fn a_script_that_is_not_run_is_no_index() {
    let folder = Folder::new();
    for name in ["root/in/index.php", "docs/index.php", "docs/alone/index.php"] {
        folder.write(name, "<?php secret");
    }
    for name in ["root/in/index.html", "docs/index.html"] {
        folder.write(name, "a page");
    }
    let none: &[&str] = &[];
    for candidates in [none, &["$path", "$path/"]] {
        let mut client = with(&folder, |site| {
            let scripts = Scripts {
                ending: ScriptSuffix::parse(".php").unwrap(),
                index: "index.php".into(),
                fallback: None,
                only: None,
            };
            let all = Route::all(Scope::parse("/").unwrap());
            site.routes = vec![Route { scripts: Some(scripts), ..all }];
            site.index = vec!["index.php".to_owned(), "index.html".to_owned()];
            site.try_files = TryFiles::parse(candidates).unwrap();
            site.aliases = vec![alias("/docs", folder.path().join("docs"))];
        });
        for (target, status, script) in [
            ("/docs/", 200, None),
            ("/docs", 301, None),
            ("/docs/index.html", 200, None),
            ("/docs/index.php", 404, None),
            ("/docs/alone/", 404, None),
            ("/in/", 200, Some("/in/index.php")),
        ] {
            for method in ["GET", "HEAD", "GET"] {
                let answered = client.ask(method, target, "");
                let found = (answered.status, answered.field("X-Script"));
                assert_eq!(found, (status, script), "{method} {target}");
                assert!(!answered.text().contains("secret"), "{method} {target}");
            }
        }
        assert_eq!(client.get("/docs/").text(), "a page");
        folder.write("docs/alone/index.html", "a page");
        client.until("/docs/alone/", |answered| answered.text() == "a page");
        fs::remove_file(folder.path().join("docs/alone/index.html")).unwrap();
    }
}

#[test]
fn a_site_of_aliases_needs_no_root() {
    let folder = Folder::new();
    folder.write("docs/a.txt", "docs");
    folder.write("docs/404.html", "not here");
    let mut client = with(&folder, |site| {
        site.root = None;
        site.aliases = vec![alias("/docs", folder.path().join("docs"))];
        site.errors = vec![ErrorPage::parse("404", "/docs/404.html").unwrap()];
    });
    for _ in 0..2 {
        assert_eq!(client.get("/docs/a.txt").text(), "docs");
        for target in ["/", "/a.txt", "/docsa.txt", "/docs/none"] {
            let missing = client.get(target);
            assert_eq!((missing.status, missing.text()), (404, "not here"), "{target}");
        }
    }
}

#[test]
fn every_change_of_an_alias_is_seen() {
    let folder = Folder::new();
    folder.write("root/a.txt", "root");
    folder.write("1/deep/a.txt", "one");
    folder.write("2/deep/a.txt", "two");
    let point = |to: &str| {
        let new = folder.path().join("new-link");
        symlink(to, &new).unwrap();
        fs::rename(&new, folder.path().join("now")).unwrap();
    };
    point("1");
    let mut client = with(&folder, |site| {
        site.aliases = vec![alias("/docs", folder.path().join("now"))];
    });
    let is =
        |text: &'static str| move |answered: &crate::testing::Answered| answered.text() == text;
    assert_eq!(client.get("/docs/deep/a.txt").text(), "one");
    assert!(!client.get("/docs/deep/a.txt").is_miss);
    folder.replace("1/deep/a.txt", "one, changed");
    client.until("/docs/deep/a.txt", is("one, changed"));
    point("2");
    client.until("/docs/deep/a.txt", is("two"));
    client.until_noticed("RootChanged");
    folder.replace("2/deep/a.txt", "two, changed");
    client.until("/docs/deep/a.txt", is("two, changed"));
    assert_eq!(client.get("/docs/deep/b").status, 404);
    folder.write("2/deep/b", "new");
    client.until("/docs/deep/b", is("new"));
    assert_eq!(client.get("/a.txt").text(), "root");
}

#[test]
fn rules_hold_for_a_directory_under_all_its_paths() {
    let folder = Folder::new();
    for name in ["root/open.txt", "root/in/a.txt", "root/in/index.html", "docs/a.txt", "docs/s/b"] {
        folder.write(name, "text");
    }
    folder.write("open/a.txt", "text");
    let path = |name: &str| folder.path().join(name);
    let point = |to: &str| {
        symlink(to, path("new-link")).unwrap();
        fs::rename(path("new-link"), path("link")).unwrap();
    };
    point("root/../root/in");
    let mut client = with(&folder, |site| {
        site.aliases = vec![
            alias("/docs", path("docs")),
            // the same directories once more
            alias("/again", path("docs")),
            alias("/inside", path("root/in")),
            // by a link, which may be pointed elsewhere
            alias("/by-link", path("link")),
            alias("/all", path("root")),
        ];
        let to = Template::parse("/docs/$1").unwrap();
        site.rewrites = vec![Rewrite::new(Pattern::parse("/v1/*").unwrap(), to).unwrap()];
        site.auth = vec![auth("/docs/s"), auth("/in"), auth("/docs/a.txt")];
    });
    for _ in 0..2 {
        for (target, status) in [
            ("/open.txt", 200),
            ("/all/open.txt", 200),
            ("/in/a.txt", 401),
            ("/inside/a.txt", 401),
            ("/inside/", 401),
            ("/inside/index.html", 401),
            ("/by-link/a.txt", 401),
            ("/all/in/a.txt", 401),
            ("/all/in/", 401),
            ("/docs/a.txt", 401),
            ("/again/a.txt", 401),
            ("/v1/a.txt", 401),
            ("/v1/s/b", 401),
            ("/again/s/b", 401),
            ("/again/s/none", 401),
        ] {
            assert_eq!(client.get(target).status, status, "{target}");
        }
    }
    point("open");
    client.until("/by-link/a.txt", |answered| answered.status == 200);
    point("docs");
    client.until("/by-link/a.txt", |answered| answered.status == 401);
    point("open");
    client.until("/by-link/a.txt", |answered| answered.status == 200);
    // the same directory at another place, where a rule is for it
    fs::rename(path("open"), path("docs/s/open")).unwrap();
    point("docs/s/open");
    client.until("/by-link/a.txt", |answered| answered.status == 401);
}

#[test]
fn a_list_names_the_directories_beneath() {
    let folder = Folder::new();
    for name in ["root/a.txt", "root/docs", "docs/b.txt", "docs/.secret", "api/c.txt"] {
        folder.write(name, "");
    }
    let path = |name: &str| folder.path().join(name);
    let mut client = with(&folder, |site| {
        site.listing = vec![Scope::any()];
        site.aliases = vec![
            alias("/docs", path("docs")),
            alias("/docs/api", path("api")),
            alias("/.hidden", path("api")),
        ];
    });
    let mut names = |target: &str| {
        let json = client.get_with(target, "Accept: application/json\r\n");
        let names = json.text().split("{\"name\":\"").skip(1);
        names.map(|at| at.split(",\"size").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(names("/").len(), 2, "{:?}", names("/"));
        assert!(names("/")[0].starts_with("docs\",\"type\":\"directory\""), "{:?}", names("/"));
        assert!(names("/docs/")[0].starts_with("api\"") && names("/docs/").len() == 2);
        assert_eq!(names("/docs/api/").len(), 1);
    }
    assert_eq!(client.get("/.hidden/c.txt").status, 404);
}

#[test]
fn a_directory_that_is_not_there_is_told_at_the_start() {
    let folder = Folder::new();
    folder.write("root/a.txt", "root");
    let mut settings = ContentSettings::new(folder.path().join("root"));
    settings.sites[0].aliases = vec![alias("/docs", folder.path().join("none"))];
    let error = crate::Content::open(settings, |_| {}).err().unwrap();
    assert!(error.to_string().contains("none"), "{error}");
}

fn file(path: &str, to: PathBuf) -> Alias {
    Alias::of_file(MountPath::parse(path).unwrap(), &to).unwrap()
}

/// An alias of one file serves nothing else of the file's directory, and follows the file's
/// changes.
#[test]
fn one_file_is_served_at_a_path() {
    let folder = Folder::new();
    for (name, text) in [
        ("root/icon.txt", "hidden by the alias"),
        ("root/other.txt", "other"),
        ("shared/a.txt", "one file"),
        ("shared/a.txt.gz", "small"),
        ("shared/secret.txt", "secret"),
    ] {
        folder.write(name, text);
    }
    symlink("../root/other.txt", folder.path().join("shared/out.txt")).unwrap();
    let shared = |name: &str| folder.path().join("shared").join(name);
    let mut client = with(&folder, |site| {
        site.listing = vec![Scope::parse("/").unwrap()];
        site.aliases = vec![
            file("/icon.txt", shared("a.txt")),
            file("/in/icon.txt", shared("a.txt")),
            file("/none.txt", shared("none.txt")),
            file("/out.txt", shared("out.txt")),
        ];
    });
    for _ in 0..2 {
        for target in ["/icon.txt", "/in/icon.txt", "//%69con.txt"] {
            let plain = client.get_with(target, "Accept-Encoding: identity\r\n");
            assert_eq!((plain.status, plain.text()), (200, "one file"), "{target}");
            assert!(plain.field("Content-Type").unwrap().starts_with("text/plain"), "{target}");
            let small = client.get_with(target, "Accept-Encoding: gzip\r\n");
            assert_eq!((small.text(), small.field("Content-Encoding")), ("small", Some("gzip")));
        }
        assert_eq!(client.get("/other.txt").text(), "other");
        for target in [
            "/icon.txt/",
            "/icon.txt/secret.txt",
            "/secret.txt",
            "/none.txt",
            "/out.txt",
            "/in/",
            "/a.txt",
        ] {
            assert_eq!(client.get(target).status, 404, "{target}");
        }
    }
    let list = client.get("/");
    assert_eq!(list.text().matches("icon.txt").count(), 2, "{}", list.text());
    assert!(!client.get_with("/icon.txt", "Accept-Encoding: identity\r\n").is_miss);
    folder.replace("shared/a.txt", "changed");
    client
        .until_with("/icon.txt", "Accept-Encoding: identity\r\n", |seen| seen.text() == "changed");
    folder.write("shared/none.txt", "there now");
    client.until("/none.txt", |seen| seen.text() == "there now");
}

/// A rule for either name is one for the file.
#[test]
fn a_file_is_protected_under_both_names() {
    let folder = Folder::new();
    folder.write("root/in/a.txt", "secret");
    for closed in ["/in", "/icon"] {
        let mut client = with(&folder, |site| {
            site.aliases = vec![file("/icon", folder.path().join("root/in/a.txt"))];
            site.auth = vec![auth(closed)];
        });
        for target in ["/icon", "/in/a.txt"] {
            assert_eq!(client.get(target).status, 401, "{target}, {closed} is closed");
        }
    }
}
