//! Files, redirects, passwords: the eleven cases of `from-nginx.md`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::migration::{Migration, Reached, Seen, request, site, whole};
use forebay_tests::server::free_addr;
use forebay_tests::wire;
use std::net::SocketAddr;

const PAGE: &str = "from-nginx.md";

/// Sends each of these requests in turn: `METHOD TARGET`, and a field behind a comma and a blank.
fn ask_all(seen: &mut Seen, addr: SocketAddr, lines: &[&str]) {
    for line in lines {
        let mut parts = line.split(", ");
        let line = parts.next().unwrap();
        seen.ask(addr, line, &parts.collect::<Vec<_>>(), b"");
    }
}

#[test]
fn a_static_site() {
    let folder = site(&[
        ("root/index.html", "home"),
        ("root/a b.txt", "a name with a blank"),
        ("root/\u{e4}.txt", "a name in UTF-8"),
        ("root/style.css", "a {}"),
        ("root/app.js", "1"),
        ("root/data.json", "{}"),
        ("root/picture.svg", "<svg/>"),
        ("root/noext", "?"),
        ("root/empty.txt", ""),
        ("root/dir/index.html", "dir"),
        ("root/bare/file.txt", "in a folder without an index"),
        ("root/.hidden", "hidden"),
        ("root/100k.txt", &"0123456789".repeat(10_000)),
    ]);
    let case = Migration::read(PAGE, "## 1. A static site");
    let case = case.with_folder("/srv/www", &folder.join("root"));
    case.compare("migrations::a_static_site", |Reached { addr, .. }, seen| {
        ask_all(
            seen,
            addr,
            &[
                "GET /",
                "GET /, Host: www.example.com",
                "GET /, Host: EXAMPLE.COM",
                "GET /, Host: example.com:8080",
                "GET /, Host: other.example",
                "GET /index.html?a=b",
                "GET /a%20b.txt",
                "GET /%C3%A4.txt",
                "GET /style.css",
                "GET /app.js",
                "GET /data.json",
                "GET /picture.svg",
                "GET /noext",
                "GET /empty.txt",
                "GET /dir",
                "GET /dir/",
                "GET /dir?a=b",
                "GET /bare",
                "GET /bare/",
                "GET /none",
                "GET /.hidden",
                "GET /dir/../index.html",
                "GET /../index.html",
                "GET //dir//index.html",
                "GET /dir/%2e%2e/index.html",
                "GET /dir%2Findex.html",
                "GET /index.html/",
                "GET /style.css/x",
                "GET /a%00b",
                "GET /a%zz",
                "HEAD /",
                "HEAD /none",
                "POST /",
                "PUT /new.txt",
                "DELETE /index.html",
                "OPTIONS /",
                "TRACE /",
                "PROPFIND /",
                "get /",
                "GET /100k.txt, Range: bytes=0-3",
                "GET /100k.txt, Range: bytes=99998-",
                "GET /100k.txt, Range: bytes=-5",
                "GET /100k.txt, Range: bytes=100000-",
                "GET /100k.txt, Range: bytes=5-2",
                "GET /100k.txt, Range: bytes=-0",
                "GET /100k.txt, Range: lines=1-2",
                "HEAD /100k.txt, Range: bytes=0-3",
                "GET /100k.txt, If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT",
                "GET /100k.txt, If-None-Match: *",
                "GET /100k.txt, If-None-Match: \"none\"",
                "GET /100k.txt, If-Match: \"none\"",
                "GET /100k.txt, If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT",
                "GET /empty.txt, Range: bytes=0-1",
            ],
        );
        let answer = seen.ask_as("a file", addr, "GET /style.css", &[], b"");
        let [tag, date] = ["ETag", "Last-Modified"].map(|name| answer.value(name).unwrap());
        for (asked, field) in [
            ("a file by its tag", format!("If-None-Match: {tag}")),
            ("a file by its tag among others", format!("If-None-Match: \"a\", W/{tag}")),
            ("a file by its date", format!("If-Modified-Since: {date}")),
            ("a file if it has its tag", format!("If-Match: {tag}")),
            ("a file if it has its date", format!("If-Unmodified-Since: {date}")),
        ] {
            seen.ask_as(asked, addr, "GET /style.css", &[&field], b"");
        }
        for (asked, range) in [("its tag", tag), ("its date", date), ("another tag", "\"a\"")] {
            let fields = [&*format!("If-Range: {range}"), "Range: bytes=1-2"];
            seen.ask_as(&format!("a part by {asked}"), addr, "GET /style.css", &fields, b"");
        }
        let fields = ["Range: bytes=0-1,4-5"];
        let bytes = wire::exchange(addr, &request("GET /100k.txt", &fields, b""));
        let answer = whole(&bytes, false).unwrap();
        seen.note("two parts", "status", answer.status.to_string());
        let kind = answer.value("Content-Type").unwrap_or("none");
        seen.note("two parts", "Content-Type", kind.split(';').next().unwrap_or_default());
    });
}

#[test]
fn two_sites_and_a_default() {
    let folder = site(&[("shop/index.html", "shop"), ("blog/index.html", "blog")]);
    Migration::read(PAGE, "## 2. Two sites and a default")
        .with_folder("/srv/shop", &folder.join("shop"))
        .with_folder("/srv/blog", &folder.join("blog"))
        .compare("migrations::two_sites_and_a_default", |Reached { addr, .. }, seen| {
            for host in [
                "shop.example",
                "a.shop.example",
                "A.B.SHOP.EXAMPLE",
                "blog.example",
                "a.blog.example",
                "x",
                "",
            ] {
                let bytes =
                    wire::exchange(addr, &request("GET /", &[&format!("Host: {host}")], b""));
                let asked = format!("GET /, Host: {host}");
                match whole(&bytes, false) {
                    Ok(answer) => seen.note_answer(&asked, &answer, false),
                    Err(_) => seen.note(&asked, "status", "no answer"),
                }
            }
        });
}

#[test]
fn a_single_page_application() {
    let folder = site(&[
        ("root/index.html", "app"),
        ("root/favicon.ico", "icon"),
        ("root/static/app.js", "1"),
        ("root/about/index.html", "about"),
    ]);
    Migration::read(PAGE, "## 3. A single-page application")
        .with_folder("/srv/app", &folder.join("root"))
        .compare("migrations::a_single_page_application", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /",
                    "GET /orders/7?tab=1",
                    "GET /favicon.ico",
                    "GET /static/app.js",
                    "GET /static/none.js",
                    "GET /static",
                    "GET /static/",
                    "GET /staticx",
                    "GET /about",
                    "GET /about/",
                    "HEAD /orders",
                    "POST /orders",
                ],
            );
        });
}

#[test]
fn addresses_without_html() {
    let folder = site(&[
        ("root/index.html", "home"),
        ("root/about.html", "about"),
        ("root/guide/index.html", "guide"),
        ("root/both.html", "a page"),
        ("root/both/index.html", "a folder"),
        ("root/404.html", "no such page"),
        ("root/50x.html", "broken"),
    ]);
    Migration::read(PAGE, "## 4. Addresses without .html, and a page for errors")
        .with_folder("/srv/docs", &folder.join("root"))
        .compare("migrations::addresses_without_html", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /",
                    "GET /about",
                    "GET /about.html",
                    "GET /about/",
                    "GET /guide",
                    "GET /guide/",
                    "GET /both",
                    "GET /both/",
                    "GET /none",
                    "GET /none/",
                    "GET /404.html",
                    "GET /404",
                    "HEAD /none",
                    "GET /guide/none",
                ],
            );
        });
}

#[test]
fn to_the_bare_name() {
    Migration::read(PAGE, "## 5. From www to the bare name, and to HTTPS").compare(
        "migrations::to_the_bare_name",
        |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /",
                    "GET /a%20b/c?d=e&f",
                    "GET /, Host: www.example.com",
                    "POST /form",
                    "HEAD /a",
                    "GET /a?",
                    "GET /%C3%A4",
                    "GET //a",
                    "GET /a/../b",
                ],
            );
        },
    );
}

#[test]
fn moved_pages() {
    let folder = site(&[
        ("root/about", "about"),
        ("root/files/a.zip", "zip"),
        ("root/articles/7-a", "article"),
    ]);
    Migration::read(PAGE, "## 6. Moved pages")
        .with_folder("/srv/www", &folder.join("root"))
        .compare("migrations::moved_pages", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /about-us",
                    "GET /about-us?a=1",
                    "GET /about-us/",
                    "GET /print?a=1",
                    "GET /print",
                    "GET /blog/7/a",
                    "GET /blog/7/a?b=c",
                    "GET /blog/x/a",
                    "GET /blog/7/a/b",
                    "GET /download/a.zip",
                    "GET /download/none.zip",
                    "GET /download/",
                    "GET /articles/7-a",
                    "POST /about-us",
                ],
            );
        });
}

#[test]
fn headers_and_caches() {
    let folder = site(&[
        ("root/index.html", "home"),
        ("root/assets/app.js", "1"),
        ("root/assets/logo.png", "png"),
        ("root/logo.png", "png"),
        ("root/photo.webp", "webp"),
        ("root/shop/index.html", "shop"),
    ]);
    let headline = "## 7. Headers and browser caches";
    Migration::read_pair(PAGE, headline, 0)
        .without_table()
        .with_folder("/srv/www", &folder.join("root"))
        .compare("migrations::headers_and_caches", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /",
                    "GET /none",
                    "GET /assets/app.js",
                    "GET /assets/logo.png",
                    "GET /logo.png",
                    "GET /photo.webp",
                    "GET /assets/none.js",
                    "GET /shop",
                ],
            );
        });
    Migration::read_pair(PAGE, headline, 1)
        .without_table()
        .with_folder("/srv/www", &folder.join("root"))
        .compare("migrations::headers_and_caches", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /, Origin: https://app.example",
                    "GET /, Origin: https://evil.example",
                    "GET /shop/",
                    "GET /shop/, Cookie: beta=1",
                    "GET /shop/, Cookie: a=b; beta=1",
                    "GET /shop/, Cookie: beta=0",
                    "GET /shop/x?y=z, Cookie: beta=1",
                ],
            );
        });
}

#[test]
fn a_password_and_the_office() {
    let folder = site(&[
        ("root/index.html", "home"),
        ("root/private/a.txt", "private"),
        ("root/admin/a.txt", "admin"),
        // alice, whose password is "secret"
        ("users", "alice:$2y$05$CuceIwvc2dm2lYCGrC5yd.5ytragsb/Dvcr6WlgsPDGXC9V8yMolC\n"),
    ]);
    Migration::read(PAGE, "## 8. A folder with a password, or for the office only")
        .with_folder("/srv/www", &folder.join("root"))
        .with_folder("/etc/nginx/users", &folder.join("users"))
        .with("\"users\"", format!("{:?}", folder.join("users")))
        .compare("migrations::a_password_and_the_office", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /",
                    "GET /private/a.txt",
                    "GET /private/",
                    "GET /private",
                    "GET /privateer",
                    "GET /private/none",
                    "GET /private/a.txt, Authorization: Basic YWxpY2U6c2VjcmV0",
                    "GET /private/a.txt, Authorization: Basic YWxpY2U6d3Jvbmc=",
                    "GET /private/a.txt, Authorization: Basic Ym9iOnNlY3JldA==",
                    "GET /private/a.txt, Authorization: Basic !!!",
                    "GET /private/a.txt, Authorization: Bearer abc",
                    "GET /x/../private/a.txt",
                    "GET /%70rivate/a.txt",
                    "GET //private/a.txt",
                    "GET /admin/a.txt",
                    "GET /admin/",
                    "GET /admin",
                    "GET /admin/none",
                    "GET /x/../admin/a.txt",
                ],
            );
        });
}

#[test]
fn downloads_with_a_listing() {
    let folder = site(&[
        ("root/a.iso", "iso"),
        ("root/b.txt", "b"),
        ("root/sub/c.txt", "c"),
        ("root/.hidden", "no"),
    ]);
    Migration::read(PAGE, "## 9. Downloads with a listing")
        .with_folder("/srv/pub", &folder.join("root"))
        .compare("migrations::downloads_with_a_listing", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &["GET /a.iso", "GET /b.txt", "GET /none.iso", "GET /sub", "HEAD /sub/"],
            );
            for path in ["/", "/sub/"] {
                let bytes = wire::exchange(addr, &request(&format!("GET {path}"), &[], b""));
                let answer = whole(&bytes, false).unwrap();
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                let links =
                    text.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
                let mut links: Vec<_> =
                    links.map(|link| link.trim_start_matches("./").to_owned()).collect();
                // ways up, and other orders
                links.retain(|link| !link.starts_with(['.', '?', '/']));
                links.sort();
                seen.note(&format!("GET {path}"), "links", links.join(" "));
                seen.note(&format!("GET {path}"), "status", answer.status.to_string());
            }
        });
}

#[test]
fn behind_a_load_balancer() {
    let folder = site(&[("root/index.html", "home")]);
    let proxied = free_addr();
    // the log has tests of its own
    Migration::read(PAGE, "## 10. Behind a load balancer, with a log in JSON")
        .with_folder("/srv/www", &folder.join("root"))
        .with(
            "listen 8080 proxy_protocol",
            format!("listen 80;\n    listen {proxied} proxy_protocol"),
        )
        .with(":8080", proxied)
        .with("10.0.0.0/8", "127.0.0.0/8")
        .with("access_log /var/log/nginx/access.log json;", "")
        .with("[log]\naccess = \"/var/log/forebay/access.log\"\nformat = \"json\"\n", "")
        .compare("migrations::behind_a_load_balancer", |_, seen| {
            let mut ask = |asked: &str, line: &str, header: &str, body: &[u8]| {
                let bytes = [header.as_bytes(), &request(line, &[], body)].concat();
                match whole(&wire::exchange(proxied, &bytes), false) {
                    Ok(answer) => seen.note_answer(asked, &answer, false),
                    Err(_) => seen.note(asked, "status", "no answer"),
                }
            };
            let header = "PROXY TCP4 192.0.2.7 192.0.2.1 40000 80\r\n";
            ask("GET /", "GET /", header, b"");
            ask("GET / of nobody", "GET /", "PROXY UNKNOWN\r\n", b"");
            ask("GET / without a header", "GET /", "", b"");
            ask("GET / with a wrong header", "GET /", "PROXY TCP4 x\r\n", b"");
            ask("POST of 64 KiB", "POST /", header, &vec![b'x'; 64 << 10]);
            ask("POST of 64 KiB and a byte", "POST /", header, &vec![b'x'; (64 << 10) + 1]);
        });
}

#[test]
fn another_directory() {
    let folder = site(&[
        ("root/index.html", "home"),
        ("shop/guide.txt", "guide"),
        ("shop/sub/index.html", "sub"),
        ("acme/.well-known/acme-challenge/token", "token.thumb"),
        ("secret.txt", "secret"),
    ]);
    Migration::read(PAGE, "## 11. Another directory beneath a path")
        .with_folder("/srv/www", &folder.join("root"))
        .with_folder("/usr/share/doc/shop", &folder.join("shop"))
        .with_folder("/var/lib/acme", &folder.join("acme"))
        .compare("migrations::another_directory", |Reached { addr, .. }, seen| {
            ask_all(
                seen,
                addr,
                &[
                    "GET /",
                    "GET /docs",
                    "GET /docs/guide.txt",
                    "GET /docs/sub",
                    "GET /docs/sub/",
                    "GET /docs/none",
                    "GET /docsx",
                    "GET /docs../secret.txt",
                    "GET /docs/../secret.txt",
                    "GET /docs/%2e%2e/secret.txt",
                    "GET /.well-known/acme-challenge/token",
                    "GET /.well-known/acme-challenge/none",
                    "GET /.well-known/other",
                ],
            );
        });
}
