//! Several sites and their rules, as an operator configures them and clients see them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::answer::Answer;
use forebay_tests::faults::site::Folder;
use forebay_tests::{ENGINES, Options, Server, wire};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn folder(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    files.iter().for_each(|(name, text)| drop(folder.write(name, text)));
    folder
}

/// Puts a whole new file in the place of another.
fn replace(folder: &Folder, name: &str, text: &str) {
    fs::rename(folder.write("new", text), folder.join(name)).unwrap();
}

/// Asks once, on a connection of its own.
fn ask(addr: SocketAddr, host: &str, target: &str, fields: &str) -> Answer {
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    let bytes = wire::exchange(addr, request.as_bytes());
    let (mut answer, head_len) = Answer::parse_head(&bytes).unwrap().unwrap();
    answer.body = bytes[head_len..].to_vec();
    assert_eq!(answer.body.len(), answer.body_len().unwrap(), "{target} at {host}");
    assert_eq!(answer.faults(), [""; 0], "{target} at {host}");
    answer
}

fn text(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.body).unwrap()
}

/// Asks again until it is so: another thread reports what changes on the disk.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "it never came to be");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A shop that is one page for all its addresses, and an old name for it that has no files.
fn shop(folder: &Folder) -> String {
    format!(
        "[[site]]\nhosts = [\"shop.example\", \"*.shop.example\"]\nroot = {:?}\n\
         try_files = [\"$path\", \"/index.html\"]\n\
         [[site.header]]\npath = \"/assets/*\"\n\
         set = {{ Cache-Control = \"public, max-age=31536000, immutable\" }}\n\
         [[site]]\nhosts = [\"old.example\"]\n\
         [[site.redirect]]\npath = \"/bye\"\nto = \"/gone\"\nstatus = 302\n\
         [[site.redirect]]\npath = \"*\"\nto = \"https://shop.example$path\"\nstatus = 308\n",
        folder.join("shop")
    )
}

#[test]
fn no_form_of_a_host_leads_past_a_rule_for_its_site() {
    let folder = folder(&[("shop/index.html", "the shop")]);
    let rule = "[[rule]]\nname = \"closed\"\nsite = [\"shop.example\", \"*.shop.example\"]\n\
                action = \"reject\"\n";
    let config = shop(&folder) + rule;
    let server = Server::start(&Options::new(folder.join("shop")).config(&config));
    let forms = ["", "www.", "WWW.", ".", "..", "a.b.", "*."].map(str::to_owned);
    let labels = (238..244).map(|bytes| format!("{}.", "a".repeat(bytes)));
    let dots = (239..245).map(|bytes| ".".repeat(bytes));
    for front in forms.into_iter().chain(labels).chain(dots) {
        for end in ["", ".", ":80", ".:80", ".."] {
            let host = format!("{front}shop.example{end}");
            let by_field = ask(server.addr(), &host, "/", "");
            let by_target = ask(server.addr(), "old.example", &format!("http://{host}/"), "");
            assert_eq!(by_field.status, by_target.status, "{host}");
            assert_ne!(by_field.status, 200, "{host}");
        }
    }
}

#[test]
fn an_application_and_its_old_name_share_an_address() {
    let folder = folder(&[
        ("shop/index.html", "<title>Shop</title>"),
        ("shop/assets/a.js", "1"),
        ("unused/index.html", "of nobody"),
    ]);
    for engine in ENGINES {
        let options = Options::new(folder.join("unused")).engine(engine).config(&shop(&folder));
        let server = Server::start(&options);
        let addr = server.addr();
        for _ in 0..2 {
            for target in ["/", "/cart/7", "/cart/8?step=2", "/unknown.png"] {
                let page = ask(addr, "www.shop.example", target, "");
                assert_eq!((page.status, text(&page)), (200, "<title>Shop</title>"), "{engine}");
                assert_eq!(page.value("Cache-Control"), Some("no-cache"));
            }
            let script = ask(addr, "shop.example:8080", "/assets/a.js", "");
            assert_eq!(text(&script), "1");
            let immutable = Some("public, max-age=31536000, immutable");
            assert_eq!(script.value("Cache-Control"), immutable);
            let moved = ask(addr, "old.example", "/a%20b?q=1", "");
            assert_eq!(moved.status, 308, "{engine}");
            assert_eq!(moved.value("Location"), Some("https://shop.example/a%20b?q=1"));
            assert_eq!(ask(addr, "old.example", "/bye", "").value("Location"), Some("/gone"));
            for (host, status) in
                [("other.example", 421), ("shop.example.evil.example", 421), ("", 400)]
            {
                assert_eq!(ask(addr, host, "/", "").status, status, "{engine} {host:?}");
            }
        }
    }
}

#[test]
fn a_file_takes_the_place_of_the_application_and_gives_it_back() {
    let folder = folder(&[("index.html", "application")]);
    let rules = "try_files = [\"$path\", \"$path.html\", \"/index.html\"]\n";
    let server = Server::start(&Options::new(folder.path()).config(rules));
    let get = |target: &str| ask(server.addr(), "a", target, "");
    assert_eq!(text(&get("/about")), "application");
    folder.write("about.html", "about");
    until(|| text(&get("/about")) == "about");
    folder.write("about", "plain");
    until(|| text(&get("/about")) == "plain");
    fs::remove_file(folder.join("about")).unwrap();
    until(|| text(&get("/about")) == "about");
    fs::remove_file(folder.join("about.html")).unwrap();
    until(|| text(&get("/about")) == "application");
    replace(&folder, "index.html", "next application");
    until(|| text(&get("/about")) == "next application");
    assert_eq!(text(&get("/never-asked")), "next application");
}

#[test]
fn an_error_page_changes_while_it_is_served() {
    let folder = folder(&[("index.html", "home"), ("errors/404.html", "first")]);
    let rules = "errors = { 404 = \"/errors/404.html\" }\n";
    let server = Server::start(&Options::new(folder.path()).config(rules));
    let get = |target: &str| ask(server.addr(), "a", target, "");
    assert_eq!((get("/none").status, text(&get("/none"))), (404, "first"));
    replace(&folder, "errors/404.html", "second");
    until(|| text(&get("/none")) == "second");
    assert_eq!(get("/none").status, 404);
    fs::rename(folder.join("errors"), folder.join("away")).unwrap();
    until(|| text(&get("/none")).contains("404 Not Found"));
    folder.write("none", "a file after all");
    until(|| get("/none").status == 200);
}

#[test]
fn a_list_for_people_and_for_programs() {
    let folder = folder(&[("files/b.txt", "12345"), ("files/a & b/c", ""), ("files/.x", "")]);
    let server = Server::start(&Options::new(folder.path()).config("listing = true\n"));
    let page = ask(server.addr(), "a", "/files/", "Accept: text/html\r\n");
    assert_eq!(page.value("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(text(&page).contains("<a href=\"./a%20&amp;%20b/\">a &amp; b/</a>"), "{}", text(&page));
    let list = || ask(server.addr(), "a", "/files/", "Accept: application/json\r\n");
    let parsed: Value = serde_json::from_slice(&list().body).unwrap();
    assert_eq!(parsed["path"], "/files/");
    assert_eq!(parsed["complete"], true);
    assert_eq!(parsed["entries"].as_array().unwrap().len(), 2);
    assert_eq!(parsed["entries"][0]["type"], "directory");
    assert_eq!(
        (&parsed["entries"][1]["name"], &parsed["entries"][1]["size"]),
        (&"b.txt".into(), &5.into())
    );
    // the links lead to what they name
    for entry in parsed["entries"].as_array().unwrap() {
        let href = entry["href"].as_str().unwrap().strip_prefix("./").unwrap();
        assert_eq!(ask(server.addr(), "a", &format!("/files/{href}"), "").status, 200, "{href}");
    }
    folder.write("files/later.txt", "");
    until(|| text(&list()).contains("later.txt"));
}

/// Two sites; the root of one is a link that is re-pointed while clients of both are served.
#[test]
fn a_link_that_is_re_pointed_concerns_one_site() {
    const RELEASES: u32 = 30;
    let folder = folder(&[("still/page", "still")]);
    for release in 0..=RELEASES {
        folder.write(&format!("releases/{release}/page"), release.to_string().repeat(1000));
    }
    let point = |release: u32| {
        let link = folder.join("link");
        symlink(format!("releases/{release}"), &link).unwrap();
        fs::rename(link, folder.join("current")).unwrap();
    };
    point(0);
    let sites = format!(
        "[[site]]\nhosts = [\"moving.example\"]\nroot = {:?}\n\
         [[site]]\nhosts = [\"still.example\"]\nroot = {:?}\n",
        folder.join("current"),
        folder.join("still")
    );
    for engine in ["event", "pipeline"] {
        point(0);
        let server = Server::start(&Options::new(folder.path()).engine(engine).config(&sites));
        let addr = server.addr();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let still = scope.spawn(|| {
                let mut stream = wire::connect(addr);
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(keep_asking(&mut stream, "still.example"), "still");
                    count += 1;
                }
                count
            });
            let moving = scope.spawn(|| {
                let mut stream = wire::connect(addr);
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let page = keep_asking(&mut stream, "moving.example");
                    let seen =
                        (last..=RELEASES).find(|release| page == release.to_string().repeat(1000));
                    last = seen.unwrap_or_else(|| panic!("after {last} came {page:.20}"));
                }
            });
            for release in 1..=RELEASES {
                point(release);
                let page = release.to_string().repeat(1000);
                until(|| text(&ask(addr, "moving.example", "/page", "")) == page);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(still.join().unwrap() > 0);
            moving.join().unwrap();
        });
    }
}

/// Asks for `/page` on a connection that stays.
fn keep_asking(stream: &mut TcpStream, host: &str) -> String {
    stream.write_all(format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let deadline = Instant::now() + wire::PATIENCE;
    loop {
        if let Some((answer, head_len)) = Answer::parse_head(&bytes).unwrap() {
            let len = head_len + answer.body_len().unwrap();
            if bytes.len() < len {
                let mut rest = vec![0; len - bytes.len()];
                stream.read_exact(&mut rest).unwrap();
                bytes.extend_from_slice(&rest);
            }
            assert_eq!((answer.status, bytes.len()), (200, len));
            return String::from_utf8(bytes[head_len..].to_vec()).unwrap();
        }
        assert_eq!(wire::read_some(stream, &mut bytes, deadline), None, "no whole head");
    }
}

#[test]
fn a_reload_gives_a_host_to_another_site() {
    let folder = folder(&[("one/page", "one"), ("two/page", "two")]);
    let sites = |first: &str, second: &str| {
        format!(
            "[[site]]\nname = \"one\"\nhosts = [{first}]\nroot = {:?}\n\
             [[site]]\nname = \"two\"\nhosts = [{second}]\nroot = {:?}\n",
            folder.join("one"),
            folder.join("two")
        )
    };
    let options = |sites: &str| Options::new(folder.path()).config(sites);
    let before = sites("\"a.example\", \"b.example\"", "\"c.example\"");
    let server = Server::start(&options(&before));
    let mut stream = wire::connect(server.addr());
    assert_eq!(keep_asking(&mut stream, "b.example"), "one");
    assert_eq!(ask(server.addr(), "b.example", "/page", "").status, 200);
    server.configure(&options(&sites("\"a.example\"", "\"c.example\", \"b.example\"")));
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(keep_asking(&mut stream, "b.example"), "two");
    assert_eq!(keep_asking(&mut stream, "a.example"), "one");
    // a mistake changes nothing and is explained
    server.configure(&options(&sites("\"a.example\"", "\"a.example\"")));
    let (code, said) = server.reload();
    assert_ne!(code, Some(0));
    assert!(said.contains("a.example"), "{said}");
    assert_eq!(keep_asking(&mut stream, "b.example"), "two");
}

#[test]
fn a_site_has_nothing_of_another() {
    let folder = folder(&[("one/secret", "secret"), ("two/page", "two")]);
    symlink("../one/secret", folder.join("two/out")).unwrap();
    let site =
        |host: &str, root: &Path| format!("[[site]]\nhosts = [\"{host}\"]\nroot = {root:?}\n");
    let sites =
        site("one.example", &folder.join("one")) + &site("two.example", &folder.join("two"));
    let server = Server::start(&Options::new(folder.path()).config(&sites));
    let status = |host: &str, target: &str| ask(server.addr(), host, target, "").status;
    for _ in 0..2 {
        assert_eq!(status("one.example", "/secret"), 200);
        for target in ["/secret", "/out", "/..%2fone/secret", "/one/secret"] {
            assert_eq!(status("two.example", target), 404, "{target}");
        }
        assert_eq!(status("two.example", "/../one/secret"), 400);
    }
}

#[test]
fn each_site_says_whether_answers_name_the_server() {
    let folder = folder(&[("a/x", "a"), ("b/x", "b")]);
    let (a, b) = (folder.join("a"), folder.join("b"));
    let config = format!(
        "server_header = false\n[[site]]\nhosts = [\"a.example\"]\nroot = {a:?}\nserver_header = true\n\
         [[site.redirect]]\npath = \"/old\"\nto = \"/x\"\n\
         [[site]]\nhosts = [\"b.example\"]\nroot = {b:?}\n\
         [[site.redirect]]\npath = \"/old\"\nto = \"/x\"\n"
    );
    for engine in ENGINES {
        let options = Options::new(&a).engine(engine).config(&config);
        let server = Server::start(&options);
        for (host, named) in [("a.example", Some("Forebay")), ("b.example", None)] {
            for (target, status) in [("/x", 200), ("/x", 200), ("/missing", 404), ("/old", 301)] {
                let answer = ask(server.addr(), host, target, "");
                assert_eq!(
                    (answer.status, answer.value("Server")),
                    (status, named),
                    "{engine} {host}{target}"
                );
            }
        }
        let nobodys = ask(server.addr(), "c.example", "/x", "");
        assert_eq!((nobodys.status, nobodys.value("Server")), (421, None), "{engine}");
    }
}
