//! Which requests go to applications, and what comes before that.

use crate::rules::{
    Access, Alias, Auth, ErrorPage, FieldName, FieldValue, HeaderRule, MountPath, Network, Pattern,
    Realm, Redirect, Rewrite, Route, Scope, Template, User, Work,
};
use crate::testing::{Answered, Client, Folder};
use crate::{Settings, SiteSettings, ToHttps};

/// "password", as cheap as bcrypt gets.
const HASH: &str = "$2y$04$Ayqf8k2/9gHzdxxo46SsvO8l1s9GGupyEZ18Jcf3lO9QV5zPt70Xi";
/// alice:password
const ALICE: &str = "Authorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n";

fn client(folder: &Folder, routes: &[&str], change: impl FnOnce(&mut SiteSettings)) -> Client {
    let mut settings = Settings::new(folder.path());
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
            ("GET", "/api/a%2fb", "404"),
            ("POST", "/api/a%5cb", "404"),
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
        site.access = vec![Access { path: scope("/inner"), allow: Vec::new(), deny }];
        let users = vec![User::parse("alice", HASH).unwrap()];
        let (path, realm) = (scope("/api/admin"), Realm::default());
        site.auth = vec![Auth { path, realm, users, file: None }];
        site.work = vec![Work { path: pattern("/api/work") }];
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
    client.is_secured = true;
    assert_eq!(route(&client.ask("POST", "/api", "")), "to 0");
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
