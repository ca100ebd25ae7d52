//! Variables in redirects and header rules: what they become where they stand, and that each request has its own.

use crate::rules::{
    AccessRule, FieldName, FieldValue, HeaderRule, Network, Pattern, Redirect, RequestConditions,
    Route, Scope, Template,
};
use crate::testing::{Answered, Client, Folder};
use crate::{ContentSettings, RequestScheme};
use forebay_policy::condition::Conditions;
use forebay_policy::field::FieldCondition;

fn header(path: Option<&str>, set: &[(&str, &str)]) -> HeaderRule {
    let path = path.map(|path| Pattern::parse(path).unwrap());
    let set = set
        .iter()
        .map(|(name, value)| (FieldName::parse(name).unwrap(), FieldValue::parse(value).unwrap()));
    HeaderRule::new(path, None, set.collect(), Vec::new()).unwrap()
}

fn redirect(path: &str, to: &str) -> Redirect {
    Redirect::new(Pattern::parse(path).unwrap(), Template::parse(to).unwrap(), 302).unwrap()
}

fn asks(field: &str) -> RequestConditions {
    let header = vec![FieldCondition::parse(field).unwrap()];
    let of_policy = Conditions { header, ..Conditions::default() };
    RequestConditions { of_policy, ..RequestConditions::default() }
}

fn site(folder: &Folder, headers: Vec<HeaderRule>, redirects: Vec<Redirect>) -> Client {
    let mut settings = ContentSettings::new(folder.path());
    (settings.sites[0].headers, settings.sites[0].redirects) = (headers, redirects);
    Client::with(settings)
}

#[test]
fn each_request_has_its_own_values() {
    let folder = Folder::new();
    folder.write("a b.txt", "a text that is long enough to be sent in a coding".repeat(30));
    folder.write("index.html", "index");
    let headers = vec![
        header(None, &[("X-All", "$scheme://$host$path$query;$client;$class;$request_id;$$")]),
        header(
            None,
            &[("X-One", "$header.x-one"), ("X-Two", "<$cookie.two>"), ("X-Three", "$query.three")],
        ),
        header(Some("/none/*"), &[("X-One", "none")]),
    ];
    let mut client = site(&folder, headers, Vec::new());
    for round in 0..4 {
        for target in ["/a%20b.txt", "/", "/none/x", "/a%20b.txt?y"] {
            let fields =
                format!("X-One: {round}\r\nCookie: a=b; two=2{round}\r\nAccept-Encoding: br\r\n");
            (client.class, client.scheme) = ("gold", RequestScheme::Https);
            client.host = "Shop.Example:80";
            let answer = client.get_with(target, &fields);
            let (path, query) =
                target.split_once('?').map_or((target, ""), |(path, _)| (path, "?y"));
            let path = path.replace("%20", " ");
            let all = format!("https://shop.example{path}{query};127.0.0.1;gold;seven;$");
            assert_eq!(answer.field("X-All"), Some(&*all), "{target}");
            let one = if target == "/none/x" { "none".to_owned() } else { round.to_string() };
            assert_eq!(answer.field("X-One"), Some(&*one), "{target}");
            assert_eq!(answer.field("X-Two"), Some(&*format!("<2{round}>")), "{target}");
            assert_eq!(answer.field("X-Three"), None, "what comes out empty is not sent");
            assert!(
                !answer.head.contains('\u{1}') && !answer.head.contains('\u{80}'),
                "{}",
                answer.head
            );
            let vary = answer.field("Vary").unwrap();
            assert!(["*", "x-one", "Cookie"].iter().all(|name| vary.contains(name)), "{vary}");
            // a hit from the second round on, and without a job
            assert_eq!(
                (answer.is_miss, answer.jobs > 0),
                (round == 0 && !target.contains('?'), round == 0 && !target.contains('?')),
                "{target} {round}"
            );
        }
    }
}

#[test]
fn values_end_no_line_and_stay_in_all_answers() {
    let folder = Folder::new();
    folder.write("a.bin", "one two three");
    let value = "$query.q|$header.x-q|$path";
    let mut client = site(&folder, vec![header(None, &[("X-Q", value)])], Vec::new());
    let tag = client.get("/a.bin").field("ETag").unwrap().to_owned();
    let evil = "?q=a%0d%0aSet-Cookie:%20x=1%00%ff+b";
    for (method, target, fields, status) in [
        ("GET", "/a.bin", String::new(), 200),
        ("HEAD", "/a.bin", String::new(), 200),
        ("GET", "/a.bin", format!("If-None-Match: {tag}\r\n"), 304),
        ("GET", "/a.bin", "Range: bytes=1-2\r\n".to_owned(), 206),
        ("GET", "/a.bin", "Range: bytes=1-2,4-5\r\n".to_owned(), 206),
        ("GET", "/a.bin", "Range: bytes=99-\r\n".to_owned(), 416),
        ("GET", "/a.bin", "If-Match: \"x\"\r\n".to_owned(), 412),
        ("GET", "/%c3%bc", String::new(), 404),
        ("OPTIONS", "/a.bin", String::new(), 204),
        ("DELETE", "/a.bin", String::new(), 405),
    ] {
        for _ in 0..2 {
            let answer: Answered =
                client.ask(method, &format!("{target}{evil}"), &format!("X-Q: \tü q \r\n{fields}"));
            let path = if status == 404 { "/%C3%BC" } else { "/a.bin" };
            let expected = format!("a%0D%0ASet-Cookie: x=1%00%FF b|%C3%BC q|{path}");
            let got = (answer.status, answer.field("X-Q"), answer.field("Set-Cookie"));
            assert_eq!(got, (status, Some(&*expected), None), "{method} {target} {}", answer.head);
        }
    }
}

#[test]
fn a_redirect_leads_where_the_request_says() {
    let folder = Folder::new();
    let redirects = vec![
        redirect(
            "/login",
            "https://$cookie.tenant.example/in?back=$path&from=$header.Referer&x=$query.x&c=$class",
        ),
        redirect("/go", "/$query.to"),
        redirect("/new/*", "/$cookie.lang/$1"),
        redirect("/old/*", "/$query.x$path"),
        redirect("/two", "/$header.a/$query.b"),
        redirect("/host", "//cdn.example/$query.b"),
        redirect("/same", "$scheme://$host/b?id=$request_id&at=$client"),
    ];
    let mut client = site(&folder, Vec::new(), redirects);
    for (target, fields, expected) in [
        (
            "/login?x=a%26b",
            "Cookie: tenant=evil.com/\r\nReferer: http://a/?b=c#d\r\n",
            "https://evil.com%2F.example/in?back=/login&from=http://a/%3Fb%3Dc%23d&x=a%26b&c=",
        ),
        ("/login", "", "https://.example/in?back=/login&from=&x=&c="),
        ("/go?to=/evil.com/x", "", "/evil.com/x?to=/evil.com/x"),
        ("/go?to=//evil.com", "", "/evil.com?to=//evil.com"),
        ("/go?to=%0d%0aX:%20y%5C", "", "/%0D%0AX:%20y%5C?to=%0d%0aX:%20y%5C"),
        // what is empty leaves no second slash at the beginning, which would name a host
        ("/new/evil.com", "", "/evil.com"),
        ("/new/evil.com", "Cookie: lang=/\r\n", "/evil.com"),
        ("/new/evil.com", "Cookie: lang=de\r\n", "/de/evil.com"),
        ("/old/evil.com", "", "/old/evil.com"),
        ("/two?b=evil.com", "", "/evil.com?b=evil.com"),
        ("/two?b=//evil.com", "", "/evil.com?b=//evil.com"),
        ("/host?b=1", "", "//cdn.example/1?b=1"),
        ("/same", "", "http://a/b?id=seven&at=127.0.0.1"),
    ] {
        for _ in 0..2 {
            let answer = client.get_with(target, fields);
            assert_eq!(
                (answer.status, answer.field("Location")),
                (302, Some(expected)),
                "{target}"
            );
        }
    }
    let vary = client.get("/login").field("Vary").map(str::to_owned);
    assert_eq!(vary.as_deref(), Some("Cookie, Referer, *"));
}

#[test]
fn applications_and_refusals_have_values_too() {
    let folder = Folder::new();
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].headers = vec![header(None, &[("X-One", "$header.x-one")])];
    settings.sites[0].routes = vec![Route::all(Scope::parse("/api").unwrap())];
    let mut client = Client::with(settings);
    for one in ["1", "2", ""] {
        let answer = client.get_with("/api/x", &format!("X-One: {one}\r\n"));
        let expected = Some(one).filter(|one| !one.is_empty());
        assert_eq!((answer.field("X-Route"), answer.field("X-One")), (Some("0"), expected));
    }
    assert!(!client.turned_away(503).contains("X-One"));
}

#[test]
fn an_access_rule_is_for_the_requests_it_names() {
    let folder = Folder::new();
    folder.write("in/a.txt", "a");
    folder.write("a.txt", "a");
    let mut settings = ContentSettings::new(folder.path());
    let all = vec![Network::parse("all").unwrap()];
    settings.sites[0].access = vec![AccessRule {
        paths: Scope::parse("/in").unwrap().into(),
        allow: Vec::new(),
        deny: all,
        conditions: asks("X-Robot"),
        refusal: None,
    }];
    let mut client = Client::with(settings);
    for _ in 0..3 {
        for (target, fields, status) in [
            ("/in/a.txt", "", 200),
            ("/in/a.txt", "X-Robot: 1\r\n", 403),
            ("/in/a.txt", "x-robot: 2\r\n", 403),
            ("/a.txt", "X-Robot: 1\r\n", 200),
        ] {
            let answer = client.get_with(target, fields);
            assert_eq!(answer.status, status, "{target} {fields}");
            let varies = answer.field("Vary").is_some_and(|vary| vary.contains("X-Robot"));
            assert_eq!(varies, target == "/in/a.txt", "{target} {fields}");
        }
    }
}
