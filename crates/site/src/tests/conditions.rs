//! Rules under conditions: what they change, what is kept of it, and that no request gets another's
//! answer.

use crate::rules::{
    FieldName, FieldValue, HeaderRule, Pattern, Redirect, RequestConditions, Rewrite, Route, Scope,
    ScriptSuffix, Scripts, Template,
};
use crate::testing::{Client, Folder};
use crate::{ContentSettings, RequestScheme, SiteSettings};
use forebay_policy::condition::Conditions;
use forebay_policy::field::FieldCondition;

/// Fields and cookies that are asked for.
fn asks(header: &[&str], cookie: &[&str]) -> RequestConditions {
    let parse = |text: &&str| FieldCondition::parse(text).unwrap();
    let of_policy = Conditions {
        header: header.iter().map(parse).collect(),
        cookie: cookie.iter().map(parse).collect(),
        ..Conditions::default()
    };
    RequestConditions { of_policy, ..RequestConditions::default() }
}

fn header(path: Option<&str>, set: (&str, &str), conditions: RequestConditions) -> HeaderRule {
    let path = path.map(|path| Pattern::parse(path).unwrap());
    let set = (FieldName::parse(set.0).unwrap(), FieldValue::parse(set.1).unwrap());
    HeaderRule::new(path, None, vec![set], Vec::new()).unwrap().under(conditions)
}

fn redirect(path: &str, to: &str, conditions: RequestConditions) -> Redirect {
    let (path, to) = (Pattern::parse(path).unwrap(), Template::parse(to).unwrap());
    Redirect::new(path, to, 302).unwrap().under(conditions)
}

fn rewrite(path: &str, to: &str, conditions: RequestConditions) -> Rewrite {
    let (path, to) = (Pattern::parse(path).unwrap(), Template::parse(to).unwrap());
    Rewrite::new(path, to).unwrap().under(conditions)
}

/// A site for two origins.
fn cors(folder: &Folder) -> ContentSettings {
    let origin = |origin: &'static str| {
        let asked = format!("Origin={origin}");
        header(None, ("Access-Control-Allow-Origin", origin), asks(&[&asked], &[]))
    };
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].headers = vec![origin("https://a.example"), origin("https://b.example")];
    settings
}

fn allowed(client: &mut Client, target: &str, fields: &str) -> (Option<String>, Option<String>) {
    let answer = client.get_with(target, fields);
    assert_eq!(answer.status, 200, "{}", answer.head);
    let field = |name: &str| answer.field(name).map(str::to_owned);
    (field("Access-Control-Allow-Origin"), field("Vary"))
}

#[test]
fn each_origin_is_told_itself_and_caches_are_told_so() {
    let folder = Folder::new();
    folder.write("a.bin", "one");
    folder.write("index.html", "two");
    let mut client = Client::with(cors(&folder));
    let mut other = client.beside();
    for _ in 0..3 {
        for target in ["/a.bin", "/"] {
            for (fields, expected) in [
                ("Origin: https://a.example\r\n", Some("https://a.example")),
                ("Origin: https://b.example\r\n", Some("https://b.example")),
                ("Origin: https://c.example\r\n", None),
                ("", None),
            ] {
                for client in [&mut client, &mut other] {
                    let (origin, vary) = allowed(client, target, fields);
                    assert_eq!(origin.as_deref(), expected, "{target} {fields}");
                    assert!(vary.is_some_and(|vary| vary.contains("Origin")), "{target} {fields}");
                }
            }
        }
    }
}

#[test]
fn a_hit_under_conditions_is_one() {
    let folder = Folder::new();
    folder.write("a.bin", "one");
    folder.write("index.html", "two");
    let mut client = Client::with(cors(&folder));
    for target in ["/a.bin", "/"] {
        let fields = "Origin: https://a.example\r\n";
        let first = client.get_with(target, fields);
        assert!(first.is_miss);
        for _ in 0..3 {
            let again = client.get_with(target, fields);
            assert_eq!((again.is_miss, again.jobs, &again.head), (false, 0, &first.head));
        }
    }
}

#[test]
fn errors_and_conditional_answers_have_the_fields_too() {
    let folder = Folder::new();
    folder.write("a.bin", "one");
    let mut client = Client::with(cors(&folder));
    let origin = "Origin: https://b.example\r\n";
    let tag = client.get("/a.bin").field("ETag").unwrap().to_owned();
    for (method, target, fields, status) in [
        ("GET", "/a.bin", format!("{origin}If-None-Match: {tag}\r\n"), 304),
        ("GET", "/a.bin", format!("{origin}Range: bytes=1-\r\n"), 206),
        ("GET", "/a.bin", format!("{origin}If-Match: \"x\"\r\n"), 412),
        ("HEAD", "/a.bin", origin.to_owned(), 200),
        ("GET", "/nothing", origin.to_owned(), 404),
        ("OPTIONS", "/a.bin", origin.to_owned(), 204),
        ("POST", "/a.bin", origin.to_owned(), 405),
    ] {
        for _ in 0..2 {
            let answer = client.ask(method, target, &fields);
            let field = answer.field("Access-Control-Allow-Origin");
            let expected = (status, Some("https://b.example"), Some("Origin"));
            assert_eq!((answer.status, field, answer.field("Vary")), expected, "{method} {target}");
        }
        let plain = client.ask(method, target, fields.strip_prefix(origin).unwrap());
        assert_eq!(plain.field("Access-Control-Allow-Origin"), None, "{method} {target}");
        assert_eq!((plain.status, plain.field("Vary")), (status, Some("Origin")));
    }
}

#[test]
fn redirects_depend_on_cookies_and_methods() {
    let folder = Folder::new();
    folder.write("shop.html", "old");
    let mut settings = ContentSettings::new(folder.path());
    let mut posts = asks(&[], &[]);
    posts.of_policy.method = vec![forebay_policy::pattern::MethodPattern::parse("POST").unwrap()];
    settings.sites[0].redirects = vec![
        redirect("/shop.html", "/beta", asks(&[], &["beta=1"])),
        redirect("/form", "/elsewhere", posts),
        redirect("/form", "/", RequestConditions::default()),
    ];
    let mut client = Client::with(settings);
    for _ in 0..3 {
        for (method, target, fields, status, to) in [
            ("GET", "/shop.html", "Cookie: beta=1\r\n", 302, Some("/beta")),
            ("GET", "/shop.html", "Cookie: beta=2\r\n", 200, None),
            ("GET", "/shop.html", "", 200, None),
            ("POST", "/shop.html", "Cookie: a=b; beta=1\r\n", 302, Some("/beta")),
            ("POST", "/shop.html", "", 405, None),
            ("POST", "/form", "", 302, Some("/elsewhere")),
            ("GET", "/form", "", 302, Some("/")),
        ] {
            let answer = client.ask(method, target, fields);
            let got = (answer.status, answer.field("Location"));
            assert_eq!(got, (status, to), "{method} {target} {fields}");
            let varies = answer.field("Vary").is_some_and(|vary| vary.contains("Cookie"));
            assert_eq!(varies, target == "/shop.html", "{method} {target} {fields}");
        }
    }
}

#[test]
fn clients_classes_schemes_and_hosts_are_told_apart() {
    let folder = Folder::new();
    folder.write("a.bin", "one");
    let says = |name: &str, conditions| header(None, (name, "yes"), conditions);
    let of = |of_policy| RequestConditions { of_policy, ..RequestConditions::default() };
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].headers = vec![
        says(
            "X-Near",
            of(Conditions {
                client: vec![forebay_policy::endpoint::Endpoint::parse("10.0.0.0/8").unwrap()],
                ..Conditions::default()
            }),
        ),
        says("X-Gold", RequestConditions { classes: vec!["gold".into()], ..Default::default() }),
        says("X-Safe", RequestConditions { is_https: Some(true), ..Default::default() }),
        says(
            "X-Shop",
            of(Conditions {
                site: vec![forebay_policy::pattern::SitePattern::parse("shop.example").unwrap()],
                ..Conditions::default()
            }),
        ),
    ];
    let mut client = Client::with(settings);
    for round in 0..32 {
        let is = |bit: u32| round & 1 << bit != 0;
        client.client = if is(0) { "10.1.2.3" } else { "192.0.2.1" }.parse().unwrap();
        client.class = if is(1) { "gold" } else { "" };
        client.scheme = if is(2) { RequestScheme::Https } else { RequestScheme::ProxiedHttp };
        client.host = if is(3) { "Shop.Example.:80" } else { "b" };
        let answer = client.get("/a.bin");
        for (bit, name) in ["X-Near", "X-Gold", "X-Safe", "X-Shop"].into_iter().enumerate() {
            assert_eq!(answer.field(name).is_some(), is(bit as u32), "{name} {round}");
        }
        // what a cache cannot see
        assert_eq!(answer.field("Vary"), Some("*"), "{round}");
    }
}

#[test]
fn of_too_many_outcomes_some_are_made_each_time() {
    let folder = Folder::new();
    folder.write("a.txt", "a file that can be compressed".repeat(10));
    let mut settings = ContentSettings::new(folder.path());
    let rule = |n: usize| {
        let name = format!("X-{n}");
        header(None, (&name, "yes"), asks(&[&format!("Ask-{n}")], &[]))
    };
    settings.sites[0].headers = (0..7).map(rule).collect();
    let mut client = Client::with(settings);
    let fields = |bits: usize| -> String {
        let is = |n: &usize| bits & 1 << n != 0;
        (0..7).filter(is).map(|n| format!("Ask-{n}: 1\r\n")).collect()
    };
    for round in 0..2 {
        let mut missed = 0;
        for bits in 0..128 {
            let answer = client.get_with("/a.txt", &fields(bits));
            assert_eq!(answer.text(), "a file that can be compressed".repeat(10));
            for n in 0..7 {
                let is_said = answer.field(&format!("X-{n}")).is_some();
                assert_eq!(is_said, bits & 1 << n != 0, "{bits} {n}");
            }
            missed += usize::from(answer.is_miss);
        }
        let kept = client.content.figures().entries;
        assert_eq!((missed, kept), (if round == 0 { 128 } else { 96 }, 33));
    }
}

#[test]
fn where_an_application_answers_its_fields_are_changed_by_conditions_too() {
    let folder = Folder::new();
    let mut settings = cors(&folder);
    settings.sites[0] = SiteSettings {
        routes: vec![Route::all(Scope::parse("/api").unwrap())],
        redirects: vec![redirect("/api/old", "/api/new", asks(&["X-New"], &[]))],
        ..settings.sites[0].clone()
    };
    let mut client = Client::with(settings);
    for _ in 0..2 {
        let (origin, vary) = allowed(&mut client, "/api/x", "Origin: https://a.example\r\n");
        assert_eq!(origin.as_deref(), Some("https://a.example"));
        assert_eq!(vary.as_deref(), Some("Origin"));
        assert_eq!(allowed(&mut client, "/api/x", "").0, None);
        assert_eq!(client.get_with("/api/old", "X-New: 1\r\n").status, 302);
        assert_eq!(client.get("/api/old").field("X-Route"), Some("0"));
    }
}

/// The first rewrite whose conditions hold is applied, whatever was kept for other requests.
#[test]
fn a_rewrite_is_for_the_requests_it_names() {
    let folder = Folder::new();
    for (name, text) in [("a.txt", "old"), ("beta/a.txt", "beta"), ("all/a.txt", "all")] {
        folder.write(name, text);
    }
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].rewrites = vec![
        rewrite("/*.txt", "/beta/$1.txt", asks(&[], &["beta=1"])),
        rewrite("/*.txt", "/all/$1.txt", asks(&["X-All"], &[])),
    ];
    let mut client = Client::with(settings);
    for _ in 0..3 {
        for (fields, expected) in [
            ("Cookie: beta=1\r\n", "beta"),
            ("", "old"),
            ("X-All: 1\r\n", "all"),
            ("X-All: 1\r\nCookie: beta=1\r\n", "beta"),
            ("Cookie: beta=2\r\n", "old"),
        ] {
            let answer = client.get_with("/a.txt", fields);
            assert_eq!((answer.status, answer.text()), (200, expected), "{fields}");
            let vary = answer.field("Vary").unwrap_or_default();
            assert!(vary.contains("Cookie") && vary.contains("X-All"), "{fields}: {vary}");
        }
    }
    assert!(!client.get_with("/a.txt", "Cookie: beta=1\r\n").is_miss);
}

/// A route whose conditions do not hold leaves the path to the next one, and to files; a script stays one.
#[test]
fn a_route_is_for_the_requests_it_names() {
    let folder = Folder::new();
    folder.write("a.txt", "the file");
    folder.write("a.php", "<?php secret");
    folder.write("api/a.txt", "below the api");
    let route = |path: &str, cookie: &[&str]| Route {
        conditions: asks(&[], cookie),
        ..Route::all(Scope::parse(path).unwrap())
    };
    let scripts = Scripts {
        ending: ScriptSuffix::parse(".php").unwrap(),
        index: "index.php".into(),
        fallback: None,
        only: None,
    };
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].routes = vec![
        route("/", &["beta=1"]),
        route("/api", &["gold=1"]),
        route("/api", &[]),
        Route { scripts: Some(scripts), ..route("*.php", &[]) },
    ];
    let mut client = Client::with(settings);
    for _ in 0..3 {
        for (target, fields, expected) in [
            ("/a.txt", "", None),
            ("/a.txt", "Cookie: beta=1\r\n", Some(0)),
            ("/a.txt", "Cookie: beta=2\r\n", None),
            ("/api/a.txt", "", Some(2)),
            ("/api/a.txt", "Cookie: gold=1\r\n", Some(1)),
            ("/api/a.txt", "Cookie: beta=1\r\n", Some(2)),
            ("/a.php", "", Some(3)),
            // a pattern goes before a beginning
            ("/a.php", "Cookie: beta=1\r\n", Some(3)),
        ] {
            let answer = client.get_with(target, fields);
            let routed = answer.field("X-Route").map(|route| route.parse::<u32>().unwrap());
            assert_eq!(routed, expected, "{target} {fields}: {}", answer.head);
            assert!(!answer.text().contains("secret"));
        }
        let file = client.get_with("/a.txt", "");
        assert_eq!((file.status, file.text()), (200, "the file"));
        assert!(file.field("Vary").is_some_and(|vary| vary.contains("Cookie")), "{}", file.head);
    }
}

/// No condition makes the source of a script a file.
#[test]
fn a_script_beneath_a_route_with_conditions_is_never_sent() {
    let folder = Folder::new();
    folder.write("a.php", "<?php secret");
    folder.write("in/index.php", "<?php secret");
    let scripts = Scripts {
        ending: ScriptSuffix::parse(".php").unwrap(),
        index: "index.php".into(),
        fallback: None,
        only: None,
    };
    let proxy = Route {
        conditions: asks(&[], &["beta=1"]),
        ..Route::all(Scope::parse("=/a.php").unwrap())
    };
    let all = Route { scripts: Some(scripts), ..Route::all(Scope::parse("/").unwrap()) };
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].index = vec!["index.php".to_owned()];
    settings.sites[0].routes = vec![proxy, all];
    let mut client = Client::with(settings);
    for _ in 0..2 {
        for (target, fields, expected) in [
            ("/a.php", "", Some(1)),
            ("/a.php", "Cookie: beta=1\r\n", Some(0)),
            ("/in/", "Cookie: beta=1\r\n", Some(1)),
            ("/in/index.php", "Cookie: beta=1\r\n", Some(1)),
        ] {
            let answer = client.get_with(target, fields);
            let routed = answer.field("X-Route").map(|route| route.parse::<u32>().unwrap());
            assert_eq!(routed, expected, "{target} {fields}: {}", answer.head);
            assert!(!answer.text().contains("secret"));
        }
    }
}
