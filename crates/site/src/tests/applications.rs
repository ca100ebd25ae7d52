//! Requests that applications answer, and the rules that come before that.

use crate::rules::{
    AccessRule, Alias, Auth, ErrorPage, FieldName, FieldValue, HeaderRule, MountPath, Network,
    Pattern, Realm, Redirect, Rewrite, Route, Scope, ScriptSuffix, Scripts, Template, TryFiles,
    User, WorkHandler,
};
use crate::testing::{Answered, Client, Folder, TestContext, with_request};
use crate::{ContentSettings, FilesLocation, RequestScheme, Routed, SiteSettings, ToHttps};
use std::os::unix::fs::symlink;

/// "password", as cheap as bcrypt gets.
const HASH: &str = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
/// alice:password
const ALICE: &str = "Authorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n";

fn client(folder: &Folder, routes: &[&str], change: impl FnOnce(&mut SiteSettings)) -> Client {
    let mut settings = ContentSettings::new(folder.path());
    let route = |path: &&str| Route::all(Scope::parse(path).unwrap());
    settings.sites[0].routes = routes.iter().map(route).collect();
    change(&mut settings.sites[0]);
    Client::with(settings)
}

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

/// The route, or the status.
fn route(answered: &Answered) -> String {
    let status = answered.status.to_string();
    answered.field("X-Route").map_or(status, |route| format!("to {route}"))
}

#[test]
fn the_longest_path_answers_whatever_the_method() {
    let folder = Folder::new();
    folder.write("index.html", "page");
    folder.write("static/a.css", "a {}");
    folder.write("api/never", "seen");
    let other = Folder::new();
    other.write("b.css", "b {}");
    let mut client = client(&folder, &["/api", "/app", "=/app/health"], |site| {
        site.aliases = vec![Alias::new(MountPath::parse("/app/assets").unwrap(), other.path())];
    });
    for _ in 0..2 {
        for (method, target, expected) in [
            ("GET", "/", "200"),
            ("GET", "/static/a.css", "200"),
            ("POST", "/static/a.css", "405"),
            ("GET", "/api", "to 0"),
            ("GET", "/api/never", "to 0"),
            ("HEAD", "/x/../api/never", "to 0"),
            ("POST", "/%61pi/new?a", "to 0"),
            ("PROPFIND", "/api/new", "to 0"),
            ("OPTIONS", "/api/new", "to 0"),
            ("GET", "/app/x", "to 1"),
            ("GET", "/app/health", "to 2"),
            ("GET", "/app/assets/b.css", "200"),
            ("POST", "/app/assets/b.css", "405"),
            ("TRACE", "/api/new", "405"),
            ("OPTIONS", "*", "204"),
            ("GET", "/apis", "404"),
            // what no rule can judge goes nowhere
            ("GET", "/api/%2e%2e/%2e%2e/", "400"),
            ("GET", "/api/a%2fb", "400"),
            ("POST", "/api/a%5cb", "400"),
        ] {
            assert_eq!(route(&client.ask(method, target, "")), expected, "{method} {target}");
        }
    }
}

#[test]
fn rules_come_before_applications() {
    let folder = Folder::new();
    let scope = |text: &str| Scope::parse(text).unwrap();
    let mut client = client(&folder, &["/api", "/inner", "*.php"], |site| {
        let to = |text: &str| Template::parse(text).unwrap();
        site.redirects = vec![Redirect::new(pattern("/api/old"), to("/api/new"), 307).unwrap()];
        site.rewrites = vec![
            Rewrite::new(pattern("/public/*"), to("/inner/$1")).unwrap(),
            Rewrite::new(pattern("/api/file"), to("/file.txt")).unwrap(),
        ];
        let deny = vec![Network::parse("192.0.2.0/24").unwrap()];
        site.access = vec![AccessRule {
            paths: scope("/inner").into(),
            allow: Vec::new(),
            deny,
            conditions: Default::default(),
            refusal: None,
        }];
        let users = vec![User::parse("alice", HASH).unwrap()];
        let (path, realm) = (scope("/api/admin"), Realm::default());
        site.auth = vec![Auth { paths: path.into(), realm, users, file: None }];
        site.work = vec![WorkHandler { path: pattern("/api/work") }];
        site.errors = vec![ErrorPage::parse("401", "/sorry.html").unwrap()];
    });
    folder.write("file.txt", "a file");
    folder.write("sorry.html", "sorry");
    for _ in 0..2 {
        assert_eq!(route(&client.get("/api/new")), "to 0");
        let moved = client.ask("POST", "/api/old", "");
        assert_eq!((moved.status, moved.field("Location")), (307, Some("/api/new")));
        let inner = client.get("/public/a%20b");
        assert_eq!(route(&inner), "to 1");
        assert_eq!(inner.field("X-Path"), Some("/inner/a b"));
        // where a rule leads decides, as for files
        assert_eq!(client.get("/api/file").text(), "a file");
        assert_eq!(client.get("/api/work?cpu=0").status, 200);
        client.client = "192.0.2.7".parse().unwrap();
        assert_eq!(route(&client.get("/public/a")), "403");
        assert_eq!(route(&client.get("/inner")), "403");
        client.client = "127.0.0.1".parse().unwrap();
        let refused = client.get("/api/admin/x");
        assert_eq!((refused.status, refused.text()), (401, "sorry"));
        assert_eq!(route(&client.ask("POST", "/api/admin/x", ALICE)), "to 0");
    }
    let answered = client.ask("GET", "/api/admin?Cache-Control=no-store", ALICE);
    assert_eq!(answered.field("Cache-Control"), Some("no-store"), "the application knows better");
    assert_eq!(
        client.ask("GET", "/api/admin", ALICE).field("Cache-Control"),
        Some("private, no-cache")
    );
    assert_eq!(client.get("/api/new").field("Cache-Control"), None);
}

#[test]
fn tls_comes_before_applications() {
    let folder = Folder::new();
    let mut client = client(&folder, &["/"], |site| {
        site.to_https = Some(ToHttps { status: 308, port: 443 });
    });
    assert_eq!(client.ask("POST", "/api", "").status, 308);
    client.scheme = RequestScheme::Https;
    assert_eq!(route(&client.ask("POST", "/api", "")), "to 0");
}

#[test]
fn paths_with_several_readings_are_passed_where_the_route_says_so() {
    let folder = Folder::new();
    folder.write("a.txt", "own");
    let mut client = client(&folder, &["/api", "/told", "/api/other"], |site| {
        site.routes[0].passes = true;
        site.access = vec![AccessRule {
            paths: Scope::parse("/api/closed").unwrap().into(),
            allow: Vec::new(),
            deny: vec![Network::parse("all").unwrap()],
            conditions: Default::default(),
            refusal: None,
        }];
        let to = Template::parse("/elsewhere").unwrap();
        let moved = Pattern::parse("/api/moved/*").unwrap();
        site.redirects = vec![Redirect::new(moved, to, 301).unwrap()];
    });
    for (path, expected) in [("/api/a%2Fb", "to 0"), ("/api/a//b", "to 0"), ("/told//b", "to 1")] {
        assert_eq!(route(&client.get(path)), expected, "{path}");
    }
    for (path, status) in [
        // in one of its readings it is for files, or for another application
        ("/api%2Fa", 400),
        ("//api/a", 400),
        ("/api/other%2Fa", 400),
        ("/api/x/..%2Fa", 400),
        ("/api/moved%2Fa", 400),
        ("/api/closed%2Fa", 403),
        ("/told/a%2Fb", 400),
        ("/told/a%5cb", 400),
        ("/a%2Ftxt", 404),
        ("//a.txt", 200),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
}

#[test]
fn clients_are_sent_to_https_with_the_path_that_they_sent() {
    let folder = Folder::new();
    let mut client = client(&folder, &["/"], |site| {
        site.routes[0].passes = true;
        site.to_https = Some(ToHttps { status: 308, port: 443 });
    });
    for path in ["/@acme%2ftool", "/web/http://h/"] {
        let answer = client.get(path);
        let to = answer.field("Location").map(|to| to.ends_with(path));
        assert_eq!((answer.status, to), (308, Some(true)), "{path}");
    }
}

#[test]
fn header_rules_change_answers_of_applications() {
    let folder = Folder::new();
    let mut client = client(&folder, &["/api"], |site| {
        let field = |name: &str, value: &str| {
            (FieldName::parse(name).unwrap(), FieldValue::parse(value).unwrap())
        };
        let set = vec![field("Cache-Control", "public, max-age=60"), field("X-A", "ours")];
        let remove = vec![FieldName::parse("X-Powered-By").unwrap()];
        site.headers =
            vec![HeaderRule::new(Some(pattern("/api/kept")), None, set, remove).unwrap()];
    });
    let said = "X-A=1&X-B=2&X-a=3&X-Powered-By=a&x-powered-by=b&Server=theirs";
    let answered = client.get(&format!("/api/kept?{said}"));
    assert_eq!(answered.field("Cache-Control"), Some("public, max-age=60"));
    assert_eq!(answered.head.to_lowercase().matches("x-a: ").count(), 1, "{}", answered.head);
    assert_eq!(answered.field("X-A"), Some("ours"));
    assert_eq!(answered.field("X-Powered-By"), None);
    assert_eq!(answered.field("Server"), Some("theirs"));
    assert_eq!(client.get("/api/kept?status=500").field("Cache-Control"), None);
    let answered =
        client.get("/api/x?Set-Cookie=a&Set-Cookie=b&Cache-Control=max-age=5&status=404");
    assert_eq!(answered.head.matches("Set-Cookie: ").count(), 2);
    assert_eq!(answered.field("Cache-Control"), Some("max-age=5"), "what is theirs stays");
    assert_eq!(answered.field("Server"), Some("Forebay"));
}

/// A route to an application that runs files that end in `.php`.
fn php(path: &str, fallback: Option<&str>) -> Route {
    let scripts = Scripts {
        ending: ScriptSuffix::parse(".php").unwrap(),
        index: "index.php".into(),
        fallback: fallback.map(|path| MountPath::parse(path).unwrap()),
        only: None,
    };
    Route { scripts: Some(scripts), ..Route::all(Scope::parse(path).unwrap()) }
}

/// The script and what follows it, or the status.
fn script(answered: &Answered) -> String {
    let field = |name| answered.field(name).unwrap_or_default();
    match answered.field("X-Script") {
        Some(name) => format!("{name} {}", field("X-Info")).trim_end().to_owned(),
        None => answered.status.to_string(),
    }
}

#[test]
fn scripts_are_run_and_everything_else_is_sent() {
    let folder = Folder::new();
    for name in ["index.php", "a.php", "b/index.php", "b/c d.php", ".f/g.php"] {
        folder.write(name, "<?php secret");
    }
    folder.write("e/index.html", "a page");
    folder.write("b/style.css", "b {}");
    folder.write("picture.png", "a picture");
    folder.write("x.php/y/z.php", "<?php secret");
    folder.write("x.php/y/picture.png", "a picture");
    let mut client = client(&folder, &[], |site| site.routes = vec![php("/", None)]);
    for _ in 0..2 {
        for (method, target, expected) in [
            ("GET", "/", "/index.php"),
            ("POST", "/?q", "/index.php"),
            ("GET", "/a.php", "/a.php"),
            ("DELETE", "/%61.php", "/a.php"),
            ("GET", "/a.php/", "/a.php /"),
            ("PUT", "/a.php/b/c.php", "/a.php /b/c.php"),
            ("GET", "/b/", "/b/index.php"),
            ("GET", "/b", "301"),
            ("GET", "/b/c%20d.php", "/b/c d.php"),
            ("GET", "/b/style.css", "200"),
            ("POST", "/b/style.css", "405"),
            ("GET", "/e/", "200"),
            // the script must be there, whatever the application would make of it
            ("GET", "/picture.png/x.php", "404"),
            ("GET", "/none.php", "404"),
            ("GET", "/none", "404"),
            ("GET", "/.f/g.php", "404"),
            ("GET", "/x.php", "301"),
            // nor is a directory a script, whatever its name
            ("GET", "/x.php/y/z.php", "/x.php/y/z.php"),
            ("POST", "/x.php/y/z.php/x.php/a", "/x.php/y/z.php /x.php/a"),
            ("GET", "/x.php/y/picture.png", "200"),
            ("GET", "/x.php/none.php", "404"),
            ("GET", "/a.php%00", "404"),
            ("OPTIONS", "/b/style.css", "204"),
            ("TRACE", "/a.php", "405"),
        ] {
            let answered = client.ask(method, target, "");
            assert_eq!(script(&answered), expected, "{method} {target}");
            assert!(!String::from_utf8_lossy(&answered.body).contains("secret"), "{target}");
        }
    }
}

#[test]
fn a_front_controller_answers_what_nothing_else_does() {
    let folder = Folder::new();
    folder.write("index.php", "<?php secret");
    folder.write("wp-admin/index.php", "<?php secret");
    folder.write("style.css", "a {}");
    std::fs::create_dir(folder.path().join("uploads")).unwrap();
    let fallback = Some("/index.php");
    let mut client = client(&folder, &[], |site| {
        site.routes = vec![php("/", fallback), Route::all(Scope::parse("/api").unwrap())];
    });
    for _ in 0..2 {
        for (method, target, expected) in [
            ("GET", "/2026/may/a-post/", "/index.php"),
            ("GET", "/a-post", "/index.php"),
            ("POST", "/wp-json/x", "/index.php"),
            ("GET", "/none.php/x", "/index.php"),
            ("GET", "/uploads/", "/index.php"),
            ("GET", "/style.css", "200"),
            ("GET", "/wp-admin/", "/wp-admin/index.php"),
            ("GET", "/wp-admin", "301"),
        ] {
            assert_eq!(script(&client.ask(method, target, "")), expected, "{method} {target}");
        }
        assert_eq!(route(&client.get("/api/a.php")), "to 1");
    }
    // what is known of files follows them
    assert_eq!(script(&client.get("/new.txt")), "/index.php");
    folder.write("new.txt", "new");
    client.until("/new.txt", |answered| answered.status == 200);
    folder.write("new.php", "<?php secret");
    client.until("/new.php", |answered| script(answered) == "/new.php");
    std::fs::remove_file(folder.path().join("new.php")).unwrap();
    client.until("/new.php", |answered| script(answered) == "/index.php");
    std::fs::remove_file(folder.path().join("index.php")).unwrap();
    client.until("/a-post", |answered| answered.status == 404);
}

#[test]
fn the_source_of_a_script_is_never_sent() {
    let folder = Folder::new();
    for name in ["index.php", "front.php", "error.php", "a/index.php"] {
        folder.write(name, "<?php secret");
    }
    let other = Folder::new();
    other.write("b.php", "<?php secret");
    let mut client = client(&folder, &[], |site| {
        site.routes = vec![php("*.php", None)];
        site.index = vec!["index.php".to_owned()];
        site.try_files = TryFiles::parse(&["$path", "$path/", "/front.php"]).unwrap();
        site.errors = vec![ErrorPage::parse("403", "/error.php").unwrap()];
        site.aliases = vec![Alias::new(MountPath::parse("/other").unwrap(), other.path())];
        let (path, allow) = (Scope::parse("/closed").unwrap(), Vec::new());
        let deny = vec![Network::parse("all").unwrap()];
        site.access = vec![AccessRule {
            paths: path.into(),
            allow,
            deny,
            conditions: Default::default(),
            refusal: None,
        }];
        let to = Template::parse("/a/index.php").unwrap();
        site.rewrites = vec![Rewrite::new(pattern("/short"), to).unwrap()];
    });
    for _ in 0..2 {
        for (target, expected) in [
            ("/", "/index.php"),
            ("/a/", "/a/index.php"),
            ("/anything", "/front.php"),
            ("/short", "/a/index.php"),
            ("/other/b.php", "/other/b.php"),
            ("/closed", "403"),
        ] {
            let answered = client.get(target);
            assert_eq!(script(&answered), expected, "{target}");
            assert!(!String::from_utf8_lossy(&answered.body).contains("secret"), "{target}");
        }
    }
    let file = format!("{}/b.php", other.path().display());
    assert_eq!(client.get("/other/b.php").field("X-File"), Some(&*file));
    assert_eq!(client.get("/short").field("X-Path"), Some("/a/index.php"));
}

/// A script is not sent where another directory of the site has it, nor in a compressed form.
#[test]
fn the_source_of_a_script_is_not_sent_under_other_paths_either() {
    let folder = Folder::new();
    for name in ["app/a.php", "app/a.php.gz", "app/index.php", "app/page.txt", "free/b.php"] {
        folder.write(name, "<?php secret");
    }
    folder.write("app/style.css.gz", "small");
    let mut client = client(&folder, &[], |site| {
        site.routes = vec![php("/app", None)];
        site.index = vec!["index.php".to_owned()];
        site.try_files = TryFiles::parse(&["$path", "$path.php", "$path/"]).unwrap();
        let alias = |path, to| Alias::new(MountPath::parse(path).unwrap(), to);
        site.aliases =
            vec![alias("/up", folder.path().to_owned()), alias("/of", folder.path().join("app"))];
    });
    let closed = ["/up/app/a.php", "/up/app/a", "/up/app/", "/of/a.php", "/of/a.php.gz", "/of/"];
    for _ in 0..2 {
        for target in closed.into_iter().chain(["/app/a.php.gz", "/up/app/a.php.gz", "/of/a"]) {
            for method in ["GET", "HEAD"] {
                let answered = client.ask(method, target, "");
                assert_eq!(script(&answered), "404", "{method} {target}");
            }
        }
        assert_eq!(script(&client.get("/app/a.php")), "/app/a.php");
        // no application has these
        for target in ["/of/page.txt", "/app/style.css.gz", "/free/b.php", "/up/free/b"] {
            assert_eq!(client.get(target).status, 200, "{target}");
        }
    }
}

/// A link is a part of the root, whose scripts are run. An alias has its files for itself: none is
/// run, and files that would be scripts are not sent.
#[test]
fn the_source_of_a_script_is_not_sent_from_directories_beneath_its_route() {
    let (folder, other) = (Folder::new(), Folder::new());
    folder.write("index.php", "<?php secret");
    for directory in ["linked", "aliased"] {
        for name in ["x.php", "x.php.gz", "in/index.php"] {
            other.write(&format!("{directory}/{name}"), "<?php secret");
        }
        other.write(&format!("{directory}/page.txt"), "a page");
    }
    symlink(other.path().join("linked"), folder.path().join("media")).unwrap();
    for precompressed in [true, false] {
        let mut client = client(&folder, &[], |site| {
            site.routes = vec![php("/", Some("/index.php"))];
            let mount = |path, to| Alias::new(MountPath::parse(path).unwrap(), to);
            site.links = vec![mount("/media", folder.path().join("media"))];
            site.aliases = vec![mount("/user/al", other.path().join("aliased"))];
            site.index = vec!["index.php".to_owned()];
            site.precompressed = precompressed;
            let to = Template::parse("/user/al/$1").unwrap();
            site.rewrites = vec![Rewrite::new(pattern("/short/*"), to).unwrap()];
        });
        for (target, expected) in [
            ("/media/x.php", "/media/x.php"),
            ("/media/x.php/a", "/media/x.php /a"),
            ("/media/in/", "/media/in/index.php"),
            ("/media/none", "/index.php"),
            ("/media/x.php.gz", "404"),
            ("/media/page.txt", "200"),
            ("/user/al/x.php", "404"),
            ("/user/al/x.php/a", "404"),
            ("/user/al/in/", "404"),
            ("/user/al/none", "404"),
            ("/user/al/x.php.gz", "404"),
            ("/user/al/page.txt", "200"),
            ("/short/x.php", "404"),
            ("/short/page.txt", "200"),
        ] {
            for method in ["GET", "HEAD", "GET"] {
                let answered = client.ask(method, target, "");
                assert_eq!(script(&answered), expected, "{method} {target}");
                assert!(!String::from_utf8_lossy(&answered.body).contains("secret"), "{target}");
            }
        }
        // beneath the root, wherever that is for the application
        assert_eq!(client.get("/media/x.php").field("X-File"), None);
    }
}

/// Files that clients cannot ask for are sent at the application's request, whatever their names.
#[test]
fn files_that_an_application_has_sent_are_no_scripts_in_an_alias() {
    let (folder, other) = (Folder::new(), Folder::new());
    for folder in [&folder, &other] {
        folder.write("kept/a.php", "<?php secret");
    }
    let client = client(&folder, &[], |site| {
        site.routes = vec![php("/", None)];
        site.internal = vec![Scope::parse("/sent").unwrap(), Scope::parse("/kept").unwrap()];
        let alias = |path| Alias::new(MountPath::parse(path).unwrap(), other.path().join("kept"));
        site.aliases = vec![alias("/sent")];
    });
    let vhost = &client.content.vhosts[0];
    assert!(!vhost.is_source(b"/sent/a.php"));
    assert!(vhost.is_source(b"/kept/a.php"), "one of the root");
}

/// Nothing is run for a client that policy refuses.
#[test]
fn a_script_is_no_page_for_clients_that_are_refused() {
    let folder = Folder::new();
    folder.write("errors/403.php", "<?php secret");
    folder.write("errors/404.html", "not here");
    let mut client = client(&folder, &[], |site| {
        site.routes = vec![php("/", None)];
        let page = |status, path| ErrorPage::parse(status, path).unwrap();
        site.errors = vec![page("403", "/errors/403.php"), page("404", "/errors/404.html")];
    });
    let refused = client.turned_away(403);
    assert!(refused.contains("<h1>403 Forbidden</h1>"), "{refused}");
    assert!(!refused.contains("secret"), "{refused}");
    assert!(client.turned_away(404).ends_with("not here"));
}

/// Text behind a semicolon is no part of a name for some applications.
#[test]
fn rules_hold_for_paths_with_parameters() {
    let folder = Folder::new();
    folder.write("api;v=2/a.txt", "a file");
    let scope = |text: &str| Scope::parse(text).unwrap();
    let mut client = client(&folder, &["/api", "/all"], |site| {
        let deny = vec![Network::parse("all").unwrap()];
        site.access = vec![AccessRule {
            paths: scope("/api/admin").into(),
            allow: Vec::new(),
            deny,
            conditions: Default::default(),
            refusal: None,
        }];
        let users = vec![User::parse("alice", HASH).unwrap()];
        let (path, realm) = (scope("=/api/one"), Realm::default());
        site.auth = vec![Auth { paths: path.into(), realm, users, file: None }];
        let to = Template::parse("/api/$1").unwrap();
        site.rewrites = vec![Rewrite::new(pattern("/v1/*"), to).unwrap()];
    });
    for _ in 0..2 {
        for (target, expected) in [
            ("/api/admin;x", "403"),
            ("/api/admin;a=b;c/users;d", "403"),
            ("/api/;/admin", "403"),
            ("/api/admin%3bx", "403"),
            ("/v1/admin;x", "403"),
            ("/v1;x/admin", "404"),
            ("/api/one;x", "401"),
            ("/api/one/;x", "to 0"),
            ("/api/map;v=2", "to 0"),
            ("/all/a;b", "to 1"),
            ("/api;v=2/a.txt", "200"),
        ] {
            assert_eq!(route(&client.get(target)), expected, "{target}");
        }
    }
}

/// Other software that answers in a stage's place may ignore path parameters, too, and knows no
/// rules.
#[test]
fn rules_hold_for_paths_with_parameters_where_other_software_answers() {
    let folder = Folder::new();
    let scope = |text: &str| Scope::parse(text).unwrap();
    let mut settings = ContentSettings::new(folder.path());
    settings.files = FilesLocation::Elsewhere;
    settings.is_answered_elsewhere = true;
    let site = &mut settings.sites[0];
    let deny = vec![Network::parse("all").unwrap()];
    site.access = vec![AccessRule {
        paths: scope("/admin").into(),
        allow: Vec::new(),
        deny,
        conditions: Default::default(),
        refusal: None,
    }];
    let users = vec![User::parse("alice", HASH).unwrap()];
    let (path, realm) = (scope("/private"), Realm::default());
    site.auth = vec![Auth { paths: path.into(), realm, users, file: None }];
    let mut client = Client::with(settings);
    for method in ["GET", "PUT", "OPTIONS"] {
        for (target, expected) in [
            ("/admin/users", Some(403)),
            ("/admin;x/users", Some(403)),
            ("/admin;/users", Some(403)),
            ("/admin%3b/users", Some(403)),
            ("/;x/admin", Some(403)),
            ("/private;a=b/x", Some(401)),
            ("/admin%2fusers", Some(404)),
            ("/../admin/users", Some(400)),
            ("/map;v=2", None),
            ("/x;/../map", None),
        ] {
            let status = client.answered_by(method, target, |site, request, reply| {
                let client = "192.0.2.7".parse().unwrap();
                let by = TestContext { client, scheme: RequestScheme::Http, class: "" };
                match site.decide(request, &by, None, reply) {
                    Routed::Replied => true,
                    Routed::Here(None) => false,
                    _ => panic!("{method} {target}: nothing is to be done or asked first"),
                }
            });
            assert_eq!(status, expected, "{method} {target}");
        }
    }
}

/// For a next stage that is other software, or one before such a stage.
#[test]
fn what_rules_judge_is_what_other_software_may_read() {
    let folder = Folder::new();
    let bare = |client: &mut Client, method: &str, target: &str| {
        let judged = with_request(method, target, |request| client.site.judged_paths(request));
        judged.into_iter().next().map(|bare| String::from_utf8(bare).unwrap())
    };
    let mut client = Client::with(ContentSettings::new(folder.path()));
    assert_eq!(bare(&mut client, "GET", "/intern;/x"), None);
    let mut settings = ContentSettings::new(folder.path());
    settings.is_answered_elsewhere = true;
    let mut client = Client::with(settings);
    for (method, target, expected) in [
        ("GET", "/intern;/x", Some("/intern/x")),
        ("PUT", "/%69ntern%3bx/y", Some("/intern/y")),
        ("GET", "/intern/x?a;b", None),
        ("GET", "/intern;%2f", None),
        ("TRACE", "/intern;/x", None),
        ("OPTIONS", "*", None),
    ] {
        let bare = bare(&mut client, method, target);
        assert_eq!(bare.as_deref(), expected, "{method} {target}");
    }
    for (method, target, expected) in [
        ("GET", "/intern%2fx", Some(404)),
        ("PUT", "/intern%5cx", Some(404)),
        ("OPTIONS", "/../intern", Some(400)),
        ("GET", "/%zz", Some(400)),
        ("GET", "/x/../intern;x", None),
        ("OPTIONS", "*", None),
    ] {
        let answer = client.answered_by(method, target, |site, request, reply| {
            site.refuses_no_path(request, reply)
        });
        assert_eq!(answer, expected, "{method} {target}");
    }
}

#[test]
fn scripts_are_protected_like_files() {
    let folder = Folder::new();
    folder.write("index.php", "<?php secret");
    folder.write("admin/index.php", "<?php secret");
    let scope = |text: &str| Scope::parse(text).unwrap();
    let mut client = client(&folder, &[], |site| {
        site.routes = vec![php("/", Some("/index.php"))];
        let users = vec![User::parse("alice", HASH).unwrap()];
        // the folder is the script, and the script the folder
        let (path, realm) = (scope("=/admin/"), Realm::default());
        site.auth = vec![Auth { paths: path.into(), realm, users, file: None }];
        let deny = vec![Network::parse("192.0.2.0/24").unwrap()];
        site.access = vec![AccessRule {
            paths: scope("/index.php").into(),
            allow: Vec::new(),
            deny,
            conditions: Default::default(),
            refusal: None,
        }];
    });
    for _ in 0..2 {
        for target in ["/admin/", "/admin/index.php", "/admin/index.php/x"] {
            assert_eq!(client.get(target).status, 401, "{target}");
            let answered = client.ask("POST", target, ALICE);
            assert_eq!(answered.field("X-Script"), Some("/admin/index.php"), "{target}");
        }
        client.client = "192.0.2.7".parse().unwrap();
        // whichever way it is reached
        for target in ["/", "/index.php", "/index.php/x", "/a-post"] {
            assert_eq!(client.get(target).status, 403, "{target}");
        }
        client.client = "127.0.0.1".parse().unwrap();
        assert_eq!(script(&client.get("/a-post")), "/index.php");
    }
}
