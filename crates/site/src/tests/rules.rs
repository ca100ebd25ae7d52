//! Redirects, rewrites, files to try, error pages and header rules.

use crate::rules::{
    ErrorPage, FieldName, FieldValue, HeaderRule, MediaPattern, Pattern, Redirect, Rewrite, Scope,
    Template, TryFiles,
};
use crate::testing::{Client, Folder};
use crate::{ContentSettings, RequestScheme, SiteSettings, ToHttps, settings};
use forebay_conn::Hsts;
use std::fs;

fn pattern(text: &str) -> Pattern {
    match text.strip_prefix('~') {
        Some(regex) => Pattern::regex(regex).unwrap(),
        None => Pattern::parse(text).unwrap(),
    }
}

fn redirect(from: &str, to: &str, status: u16) -> Redirect {
    Redirect::new(pattern(from), Template::parse(to).unwrap(), status).unwrap()
}

fn rewrite(from: &str, to: &str) -> Rewrite {
    Rewrite::new(pattern(from), Template::parse(to).unwrap()).unwrap()
}

fn header(path: &str, kind: &str, set: &[(&str, &str)], remove: &[&str]) -> HeaderRule {
    let name = |text: &str| FieldName::parse(text).unwrap();
    let set = set.iter().map(|(at, value)| (name(at), FieldValue::parse(value).unwrap()));
    let path = (!path.is_empty()).then(|| pattern(path));
    let kind = (!kind.is_empty()).then(|| MediaPattern::parse(kind).unwrap());
    HeaderRule::new(path, kind, set.collect(), remove.iter().map(|at| name(at)).collect()).unwrap()
}

fn settings(folder: &Folder, change: impl FnOnce(&mut SiteSettings)) -> ContentSettings {
    let mut settings = ContentSettings::new(folder.path());
    change(&mut settings.sites[0]);
    settings
}

fn client(folder: &Folder, change: impl FnOnce(&mut SiteSettings)) -> Client {
    Client::with(settings(folder, change))
}

#[test]
fn the_first_redirect_that_fits_decides() {
    let folder = Folder::new();
    folder.write("old/kept", "never seen");
    let mut client = client(&folder, |site| {
        site.redirects = vec![
            redirect("/old/a", "/first", 302),
            redirect("/old/*", "https://$host/new/$1", 301),
            redirect(r"~^/blog/(\d+)$", "/posts?number=$1", 307),
        ];
    });
    for _ in 0..2 {
        for (target, status, location) in [
            ("/old/a", 302, "/first"),
            ("/old/a?q=1", 302, "/first?q=1"),
            ("/old/kept", 301, "https://a/new/kept"),
            ("/old/%C3%BC%20x?a=%22\"b", 301, "https://a/new/%C3%BC%20x?a=%22%22b"),
            ("/x/../old/b", 301, "https://a/new/b"),
            ("/blog/17?number=4", 307, "/posts?number=17"),
        ] {
            let moved = client.get(target);
            assert_eq!((moved.status, moved.field("Location")), (status, Some(location)));
            assert_eq!(moved.field("Content-Type"), Some("text/html; charset=utf-8"));
            assert!(moved.text().contains("<h1>"), "{moved:?}");
        }
    }
    client.host = "shop.example:8443";
    assert_eq!(client.get("/old/b").field("Location"), Some("https://shop.example/new/b"));
    client.host = "";
    assert_eq!(client.get("/old/b").field("Location"), Some("https://127.0.0.1/new/b"));
    assert_eq!(client.get("/blog/x").status, 404);
    assert_eq!(client.ask("POST", "/old/b", "").status, 301);
    assert_eq!(client.ask("PUT", "/blog/x", "").status, 405);
    assert_eq!(client.ask("DELETE", "/%zz", "").status, 400);
    assert_eq!(client.ask("OPTIONS", "/old/b", "").status, 204);
    assert!(!client.get("/old/a?other").is_miss);
}

#[test]
fn clients_without_tls_are_sent_to_it_but_for_challenges() {
    let folder = Folder::new();
    folder.write("a", "a");
    folder.write(".well-known/acme-challenge/token", "token");
    for (port, start) in [(443, "https://a"), (8443, "https://a:8443")] {
        let mut client = client(&folder, |site| {
            site.to_https = Some(ToHttps { status: 308, port });
            site.headers = vec![header("/b", "", &[("X-B", "1")], &[])];
        });
        for method in ["GET", "HEAD", "POST", "OPTIONS"] {
            let moved = client.ask(method, "/b/../%C3%BC?q=\"1", "");
            let to = format!("{start}/%C3%BC?q=%221");
            assert_eq!((moved.status, moved.field("Location")), (308, Some(&*to)), "{method}");
            assert_eq!(moved.field("Strict-Transport-Security"), None);
        }
        assert_eq!(client.get("/b").field("X-B"), Some("1"));
        assert_eq!(client.get("/a").field("X-B"), None);
        assert_eq!(client.get("/.well-known/acme-challenge/token").text(), "token");
        assert_eq!(client.get("/.well-known/acme-challenge/../../a").status, 308);
        assert_eq!(client.get("/%zz").status, 400);
        client.scheme = RequestScheme::Https;
        assert_eq!(client.get("/a").text(), "a");
        client.scheme = RequestScheme::Http;
        assert_eq!(client.get("/a").status, 308, "though it is in the cache");
    }
}

#[test]
fn clients_of_a_proxy_go_to_the_usual_port() {
    let folder = Folder::new();
    for (port, own) in [(443, "https://a"), (8443, "https://a:8443")] {
        let mut client = client(&folder, |site| {
            site.to_https = Some(ToHttps { status: 301, port });
            site.headers = vec![header("/b", "", &[("X-B", "1")], &[])];
        });
        for (scheme, start) in
            [(RequestScheme::ProxiedHttp, "https://a"), (RequestScheme::Http, own)]
        {
            client.scheme = scheme;
            for (target, field) in [("/a?q", None), ("/b", Some("1"))] {
                let moved = client.get(target);
                let to = format!("{start}{target}");
                assert_eq!((moved.status, moved.field("Location")), (301, Some(&*to)));
                assert_eq!(moved.field("X-B"), field, "{target}");
            }
        }
    }
}

#[test]
fn what_is_said_about_tls_is_said_through_it_alone() {
    let folder = Folder::new();
    folder.write("a", "0123456789");
    let mut client = client(&folder, |site| {
        site.hsts = Some(Hsts { max_age_s: 60, subdomains: true, preload: false });
        site.redirects = vec![redirect("/old", "/a", 301)];
    });
    let schemes = [
        (RequestScheme::Http, None),
        (RequestScheme::Https, Some("max-age=60; includeSubDomains")),
        (RequestScheme::ProxiedHttp, None),
    ];
    for (scheme, expected) in schemes {
        client.scheme = scheme;
        for (target, fields, status) in [
            ("/a", "", 200),
            ("/a", "Range: bytes=1-2\r\n", 206),
            ("/a", "Range: bytes=90-\r\n", 416),
            ("/a", "If-None-Match: *\r\n", 304),
            ("/old", "", 301),
            ("/none", "", 404),
        ] {
            let answered = client.get_with(target, fields);
            assert_eq!(answered.status, status);
            assert_eq!(answered.field("Strict-Transport-Security"), expected, "{answered:?}");
        }
        let refused = client.turned_away(503);
        assert_eq!(refused.contains("\r\nStrict-"), expected.is_some(), "{refused}");
    }
    let text = |subdomains, preload| {
        let hsts = Some(Hsts { max_age_s: 0, subdomains, preload });
        let mut client = self::client(&folder, |site| site.hsts = hsts);
        client.scheme = RequestScheme::Https;
        client.get("/a").field("Strict-Transport-Security").unwrap().to_owned()
    };
    assert_eq!(text(false, false), "max-age=0");
    assert_eq!(text(true, true), "max-age=0; includeSubDomains; preload");
}

#[test]
fn a_rewrite_is_unseen_and_happens_once() {
    let folder = Folder::new();
    folder.write("app/page.html", "page");
    folder.write("app/dir/index.html", "index");
    folder.write("app/.secret", "secret");
    folder.write("twice/b", "b");
    let mut client = client(&folder, |site| {
        site.rewrites = vec![
            rewrite("/v1/*", "/app/$1"),
            rewrite("/once", "/twice/a"),
            rewrite("/twice/a", "/twice/b"),
            rewrite(r"~^/up(\.)/(.*)$", "/$1$1/$2"),
        ];
    });
    let page = client.get("/v1/page.html?q");
    assert_eq!((page.status, page.text()), (200, "page"));
    assert!(!client.get("/v1/page.html").is_miss);
    assert_eq!(client.get("/v1/dir/").text(), "index");
    let slash = client.get("/v1/dir?q");
    assert_eq!((slash.status, slash.field("Location")), (301, Some("/app/dir/?q")));
    assert_eq!(client.get("/v1/.secret").status, 404);
    assert_eq!(client.get("/once").status, 404);
    assert_eq!(client.get("/twice/a").text(), "b");
    assert_eq!(client.get("/up./etc/passwd").status, 404);
    folder.replace("app/page.html", "newer");
    client.until("/v1/page.html", |answered| answered.text() == "newer");
    fs::remove_file(folder.path().join("app/page.html")).unwrap();
    client.until("/v1/page.html", |answered| answered.status == 404);
}

#[test]
fn a_single_page_application_has_one_page_for_all_addresses() {
    let folder = Folder::new();
    folder.write("index.html", "x".repeat(100_000));
    folder.write("assets/a.js", "script");
    let mut client = client(&folder, |site| {
        site.try_files = TryFiles::parse(&["$path", "/index.html"]).unwrap();
    });
    assert_eq!(client.get("/assets/a.js").text(), "script");
    for number in 0..200 {
        let page = client.get(&format!("/route/{number}"));
        assert_eq!((page.status, page.body.len()), (200, 100_000));
    }
    let bytes = client.content.figures().bytes;
    assert!(bytes < 200 * 2048 + 2 * 100_000, "{bytes} bytes for one page");
    let page = client.get("/route/7");
    assert!(!page.is_miss);
    // an address of the application may look like a directory or like a hidden file
    for target in ["/assets", "/assets/", "/.env", "/"] {
        assert_eq!(client.get(target).body.len(), 100_000, "{target}");
    }
    let tag = page.field("ETag").unwrap().to_owned();
    let again = client.get_with("/route/7", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((again.status, again.field("ETag")), (304, Some(tag.as_str())));
    let part = client.get_with("/route/7", "Range: bytes=0-4\r\n");
    assert_eq!((part.status, part.text()), (206, "xxxxx"));
    // a file that appears where none was
    folder.write("route/7", "file");
    client.until("/route/7", |answered| answered.body == b"file");
    assert_eq!(client.get("/route/8").body.len(), 100_000);
    folder.replace("index.html", "second");
    client.until("/route/8", |answered| answered.body == b"second");
    fs::remove_file(folder.path().join("route/7")).unwrap();
    client.until("/route/7", |answered| answered.body == b"second");
    fs::remove_file(folder.path().join("index.html")).unwrap();
    client.until("/route/8", |answered| answered.status == 404);
}

#[test]
fn files_are_tried_in_order() {
    let folder = Folder::new();
    folder.write("a", "plain");
    folder.write("a.html", "never");
    folder.write("b.html", "with ending");
    folder.write("c/index.html", "directory");
    folder.write("empty/x", "");
    folder.write("fallback.html", "fallback");
    let list = ["$path", "$path.html", "$path/", "=410"];
    let mut first = client(&folder, |site| site.try_files = TryFiles::parse(&list).unwrap());
    for _ in 0..2 {
        assert_eq!(first.get("/a").text(), "plain");
        let b = first.get("/b");
        assert_eq!(
            (b.text(), b.field("Content-Type")),
            ("with ending", Some("text/html; charset=utf-8"))
        );
        assert_eq!(first.get("/c/").text(), "directory");
        assert_eq!(first.get("/c?q").field("Location"), Some("/c/?q"));
        for target in ["/empty", "/empty/", "/none"] {
            let gone = first.get(target);
            assert_eq!(gone.status, 410, "{target}");
            assert!(gone.text().contains("410 Gone"));
        }
    }
    folder.write("none.html", "appeared");
    first.until("/none", |answered| answered.body == b"appeared");
    let list = ["/app$path", "/fallback.html"];
    let mut second = client(&folder, |site| site.try_files = TryFiles::parse(&list).unwrap());
    assert_eq!(second.get("/a").text(), "fallback");
    folder.write("app/a", "in app");
    second.until("/a", |answered| answered.text() == "in app");
}

/// A file that is missing beneath an excepted path is a 404, and not the page of the application.
#[test]
fn try_files_is_not_for_the_paths_that_are_excepted() {
    let folder = Folder::new();
    for name in ["index.html", "assets/a.js", "assets/sub/index.html", "app.js"] {
        folder.write(name, name);
    }
    let mut client = client(&folder, |site| {
        site.try_files = TryFiles::parse(&["$path", "/index.html"]).unwrap();
        site.try_files_except = ["/assets", "*.js"].map(|text| Scope::parse(text).unwrap()).into();
    });
    for _ in 0..2 {
        for (target, status, text) in [
            ("/", 200, "index.html"),
            ("/route/7", 200, "index.html"),
            ("/assets2", 200, "index.html"),
            ("/assets/a.js", 200, "assets/a.js"),
            ("/app.js", 200, "app.js"),
            ("/assets/sub/", 200, "assets/sub/index.html"),
        ] {
            let answered = client.get(target);
            assert_eq!((answered.status, answered.text()), (status, text), "{target}");
        }
        for target in ["/assets/b.css", "/assets/", "/other.js", "/route/chunk.js"] {
            assert_eq!(client.get(target).status, 404, "{target}");
        }
        assert_eq!(client.get("/assets").field("Location"), Some("/assets/"));
    }
    folder.write("other.js", "appeared");
    client.until("/other.js", |answered| answered.body == b"appeared");
}

#[test]
fn an_error_page_has_the_errors_status_and_nothing_of_a_file() {
    let folder = Folder::new();
    folder.write("page.css", "x");
    folder.write("errors/404.html", "not here");
    folder.write("errors/404.html.gz", "zipped");
    folder.write("errors/416.html", "y".repeat(20_000));
    folder.write("errors/405.html", "only files");
    for cache_bytes in [256 << 20, 0] {
        let mut settings = settings(&folder, |site| {
            let page = |status: &str, path| ErrorPage::parse(status, path).unwrap();
            site.errors = vec![
                page("404", "/errors/404.html"),
                page("416", "/errors/416.html"),
                page("405", "/errors/405.html"),
                page("412", "/errors/missing.html"),
            ];
        });
        settings.cache = settings::CacheSettings { bytes: cache_bytes, ..Default::default() };
        let mut client = Client::with(settings);
        for target in ["/none", "/none", "/other/", "/page.css/"] {
            let none = client.get_with(target, "Range: bytes=0-1\r\nIf-None-Match: *\r\n");
            assert_eq!((none.status, none.text()), (404, "not here"));
            for name in ["ETag", "Last-Modified", "Accept-Ranges", "Cache-Control"] {
                assert_eq!(none.field(name), None);
            }
            assert_eq!(none.field("Content-Type"), Some("text/html; charset=utf-8"));
        }
        let zipped = client.get_with("/none", "Accept-Encoding: gzip\r\n");
        assert_eq!((zipped.status, zipped.text()), (404, "zipped"));
        assert_eq!(zipped.field("Content-Encoding"), Some("gzip"));
        let range = client.get_with("/page.css", "Range: bytes=5-\r\n");
        assert_eq!((range.status, range.body.len()), (416, 20_000));
        assert_eq!(range.field("Content-Range"), Some("bytes */1"));
        for method in ["POST", "TRACE"] {
            let refused = client.ask(method, "/page.css", "");
            assert_eq!((refused.status, refused.text()), (405, "only files"));
            assert_eq!(refused.field("Allow"), Some("GET, HEAD, OPTIONS"));
        }
        // a page that is not there is no reason for another error
        let failed = client.get_with("/page.css", "If-Match: \"x\"\r\n");
        assert_eq!(failed.status, 412);
        assert!(failed.text().contains("not in the state that the request asks for"));
        assert_eq!(client.get("/errors/404.html").status, 200);
        assert_eq!(client.get("/page.css").status, 200);
    }
}

#[test]
fn error_pages_are_one_copy_and_follow_their_file() {
    let folder = Folder::new();
    folder.write("404.html", "z".repeat(50_000));
    let mut client = client(&folder, |site| {
        site.errors = vec![ErrorPage::parse("404", "/404.html").unwrap()];
    });
    for number in 0..100 {
        assert_eq!(client.get(&format!("/{number}")).body.len(), 50_000);
    }
    assert!(client.content.figures().bytes < 100 * 2048 + 2 * 50_000);
    folder.replace("404.html", "new");
    client.until("/1", |answered| answered.status == 404 && answered.body == b"new");
    fs::remove_file(folder.path().join("404.html")).unwrap();
    client.until("/1", |answered| answered.status == 404 && answered.body.starts_with(b"<!doc"));
    folder.write("404.html", "back");
    client.until("/1", |answered| answered.body == b"back");
    folder.write("1", "a file");
    client.until("/1", |answered| answered.status == 200);
}

#[test]
fn header_rules_hold_for_every_answer_to_a_path() {
    let folder = Folder::new();
    folder.write("index.html", "page");
    folder.write("index.html.gz", "zipped");
    folder.write("img/a.png", "png");
    folder.write("feed", "<feed/>");
    folder.write("404.html", "none");
    let mut client = client(&folder, |site| {
        site.headers = vec![
            header("", "", &[("X-Frame-Options", "DENY"), ("Vary", "Origin")], &["server"]),
            header("/img/*", "", &[("Cache-Control", "max-age=60")], &[]),
            header(
                "",
                "image/*",
                &[("cache-control", "max-age=3600"), ("X-Image", "1")],
                &["ETag"],
            ),
            header("/feed", "", &[("Content-Type", "application/atom+xml")], &[]),
            header("", "application/*", &[("X-App", "1")], &[]),
        ];
        site.redirects = vec![redirect("/old", "/", 301)];
        site.errors = vec![ErrorPage::parse("404", "/404.html").unwrap()];
    });
    for _ in 0..2 {
        let page = client.get("/");
        assert_eq!(page.field("X-Frame-Options"), Some("DENY"));
        assert_eq!(page.field("Vary"), Some("Accept-Encoding, Origin"));
        assert_eq!((page.field("Server"), page.field("X-Image")), (None, None));
        assert_eq!(page.field("Cache-Control"), Some("no-cache"));
        let tag = page.field("ETag").unwrap().to_owned();
        let same = client.get_with("/", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((same.status, same.field("X-Frame-Options")), (304, Some("DENY")));
        assert_eq!((same.field("Server"), same.field("Content-Type")), (None, None));
        let image = client.get("/img/a.png");
        assert_eq!(image.field("Cache-Control"), Some("max-age=3600"));
        assert_eq!((image.field("X-Image"), image.field("ETag")), (Some("1"), None));
        let part = client.get_with("/img/a.png", "Range: bytes=0-0\r\n");
        assert_eq!((part.status, part.field("X-Image")), (206, Some("1")));
        let old =
            client.get_with("/img/a.png", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        assert_eq!((old.status, old.field("X-Image")), (304, Some("1")));
        let feed = client.get("/feed");
        assert_eq!(feed.field("Content-Type"), Some("application/atom+xml"));
        assert_eq!(feed.field("X-App"), Some("1"));
        let moved = client.get("/old");
        assert_eq!((moved.status, moved.field("X-Frame-Options")), (301, Some("DENY")));
        let none = client.get("/img/none.png");
        assert_eq!(
            (none.status, none.text(), none.field("X-Frame-Options")),
            (404, "none", Some("DENY"))
        );
        assert_eq!((none.field("X-Image"), none.field("Server")), (None, None));
        for answered in [
            client.ask("POST", "/img/a.png", ""),
            client.ask("OPTIONS", "/img/a.png", ""),
            client.get_with("/img/a.png", "If-Match: \"x\"\r\n"),
            client.get_with("/img/a.png", "Range: bytes=9-\r\n"),
        ] {
            assert_eq!(answered.field("X-Frame-Options"), Some("DENY"), "{answered:?}");
            assert_eq!(answered.head.matches("Server").count(), 0);
        }
    }
}

/// The page of an application has the fields of the address that was asked for.
#[test]
fn an_alias_has_the_fields_of_its_own_path() {
    let folder = Folder::new();
    folder.write("index.html", "page");
    let mut client = client(&folder, |site| {
        site.try_files = TryFiles::parse(&["$path", "/index.html"]).unwrap();
        site.headers = vec![
            header("/admin/*", "", &[("X-Robots-Tag", "none")], &[]),
            header("/index.html", "", &[("X-Own", "1")], &[]),
        ];
    });
    for _ in 0..2 {
        assert_eq!(client.get("/admin/x").field("X-Robots-Tag"), Some("none"));
        assert_eq!(client.get("/x").field("X-Robots-Tag"), None);
        assert_eq!(client.get("/x").field("X-Own"), None);
        assert_eq!(client.get("/index.html").field("X-Own"), Some("1"));
    }
}

#[test]
fn rules_work_without_a_cache() {
    let folder = Folder::new();
    folder.write("index.html", "page");
    folder.write("404.html", "none");
    let mut settings = settings(&folder, |site| {
        site.rewrites = vec![rewrite("/v/*", "/$1")];
        site.redirects = vec![redirect("/old", "/", 301)];
        site.try_files = TryFiles::parse(&["$path", "$path.html", "=404"]).unwrap();
        site.errors = vec![ErrorPage::parse("404", "/404.html").unwrap()];
    });
    settings.cache.bytes = 0;
    let mut client = Client::with(settings);
    for _ in 0..2 {
        assert_eq!(client.get("/v/index").text(), "page");
        assert_eq!(client.get("/old").status, 301);
        let none = client.get("/none");
        assert_eq!((none.status, none.text(), none.is_miss), (404, "none", true));
    }
}
