//! The files that `forebay serve` withholds, by every path to them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::{Options, Server, http2};

/// The engines of `serve`; a configuration file withholds nothing by default.
const SERVED: [&str; 5] = ["event", "fibers", "threads", "pool", "pipeline"];

/// A folder with an application, and what it withholds.
fn folder() -> Folder {
    let folder = Folder::new();
    for (name, text) in [
        ("index.php", "<?php $secret = 1;"),
        ("plain.txt", "plain"),
        ("sub/B.PHP", "<?php $secret = 2;"),
        ("sub/a.php", "<?php $secret = 3;"),
        ("sub/a.php.gz", "secret"),
        ("sub/a.js", "script"),
        (".env", "SECRET=4"),
        ("package.json", "{\"secret\": 5}"),
        ("dump.sql", "secret"),
        ("sub/dump.sql.xz", "secret"),
        ("index.html~", "secret"),
        ("lesson.py", "content"),
        ("built/index.html", "built"),
    ] {
        folder.write(&format!("site/{name}"), text);
    }
    folder
}

fn serve(folder: &Folder, engine: &str, args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server::start(&Options { args, ..Options::new(folder.join("site")).engine(engine) })
}

fn ask(server: &Server, method: &str, path: &str, more: &str) -> String {
    let request = format!("{method} {path} HTTP/1.0\r\nHost: a\r\nAccept: text/html\r\n{more}\r\n");
    String::from_utf8(server.exchange(request.as_bytes())).unwrap()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

#[test]
fn sources_are_sent_by_no_way() {
    let folder = folder();
    for engine in SERVED {
        let server = serve(&folder, engine, &[]);
        for path in [
            "/index.php",
            "/INDEX.PHP",
            "/",
            "/?a=b",
            "/index%2Ephp",
            "/index.ph%70",
            "//index.php",
            "/./index.php",
            "/sub/../index.php",
            "/sub%2f..%2findex.php",
            "/sub/a.php",
            "/sub/B.PHP",
            "/sub/a.php.gz",
            "/.env",
            "/%2eenv",
            "/package.json",
            "/dump.sql",
            "/sub/dump.sql.xz",
            "/index.html~",
            "/index.html%7e",
            // the answer does not show whether there is one
            "/none.php",
        ] {
            for method in ["GET", "HEAD"] {
                for more in [
                    "",
                    "Range: bytes=0-3\r\n",
                    "Accept-Encoding: gzip\r\n",
                    "If-None-Match: *\r\n",
                ] {
                    let answer = ask(&server, method, path, more);
                    let what = format!("{engine} {method} {path} {more:?}: {answer}");
                    let is_refused = status(&answer) == "403"
                        || (path.contains("%2f") && matches!(status(&answer), "400" | "404"));
                    assert!(
                        is_refused && !answer.to_ascii_lowercase().contains("secret"),
                        "{what}"
                    );
                    let tells = answer.contains("<code>forebay serve --sources</code>");
                    assert!(method == "HEAD" || path.contains("%2f") || tells, "{what}");
                }
            }
            if !path.contains("%2f") {
                assert_eq!(
                    http2::Client::connect(server.addr()).get(path).status,
                    403,
                    "{engine} {path}"
                );
            }
        }
        for (path, body) in [
            ("/plain.txt", "plain"),
            ("/sub/a.js", "script"),
            ("/lesson.py", "content"),
            ("/built/", "built"),
        ] {
            let answer = ask(&server, "GET", path, "");
            assert!(
                status(&answer) == "200" && answer.ends_with(body),
                "{engine} {path}: {answer}"
            );
        }
        assert_eq!(status(&ask(&server, "GET", "/sub/", "")), "404", "{engine}");
        server.says(
            "forebay serve: withheld, answered with 403: .env, dump.sql, index.html~, index.php, package.json, \
             sub/B.PHP, sub/a.php, sub/a.php.gz and 1 more; if they are an application, forebay init writes",
        );
    }
}

/// The page says what to do, depending on the kind of file.
#[test]
fn the_page_names_what_runs_it() {
    let folder = folder();
    folder.write("site/node/package.json", "{}");
    folder.write("site/shop/manage.py", "");
    let server = serve(&folder, "event", &[]);
    for (path, command) in [
        ("/", "php-fpm runs: <code>forebay init</code>"),
        ("/node/", "<code>npm start</code>"),
        ("/shop/", "<code>python manage.py runserver</code>"),
        ("/dump.sql", "a whole database"),
    ] {
        let answer = ask(&server, "GET", path, "");
        assert!(status(&answer) == "403" && answer.contains(command), "{path}: {answer}");
    }
}

#[test]
fn a_list_leaves_out_what_is_withheld() {
    let folder = folder();
    let server = serve(&folder, "event", &["--listing"]);
    let list = ask(&server, "GET", "/", "");
    assert!(status(&list) == "200" && list.contains("plain.txt"), "{list}");
    for name in ["index.php", "package.json", ".env", "dump.sql", "index.html~"] {
        assert!(!list.contains(name), "{name}: {list}");
    }
    let list = ask(&server, "GET", "/sub/", "");
    assert!(list.contains("a.js") && !list.to_ascii_lowercase().contains(".php"), "{list}");
}

/// An application with one page answers with it, and not with the files beside it.
#[test]
fn the_one_page_answers_where_no_source_is_asked_for() {
    let folder = folder();
    folder.write("site/index.html", "the page");
    let server = serve(&folder, "event", &["--spa"]);
    for path in ["/", "/users/7", "/sub/"] {
        let answer = ask(&server, "GET", path, "");
        assert!(status(&answer) == "200" && answer.ends_with("the page"), "{path}: {answer}");
    }
    assert_eq!(status(&ask(&server, "GET", "/sub/a.php", "")), "403");
}

/// An option has these files sent, and a configuration file itself decides what is served.
#[test]
fn sources_are_sent_if_they_are_asked_for() {
    let folder = folder();
    let server = serve(&folder, "event", &["--sources"]);
    for path in ["/index.php", "/package.json", "/dump.sql", "/sub/B.PHP"] {
        assert_eq!(status(&ask(&server, "GET", path, "")), "200", "{path}");
    }
    // these stay hidden as usual
    assert_eq!(status(&ask(&server, "GET", "/.env", "")), "404");
    assert_eq!(status(&ask(&server, "GET", "/", "")), "404");
    assert!(!server.stderr().contains("withheld"), "{}", server.stderr());
    let server = Server::start(&Options::new(folder.join("site")).config("# from a file"));
    assert_eq!(status(&ask(&server, "GET", "/index.php", "")), "200");
    assert!(!server.stderr().contains("withheld"), "{}", server.stderr());
}
