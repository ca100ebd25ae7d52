//! Other directories beneath paths of a site: `[[alias]]` and `links`, and rules about clients for them.
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

use forebay_tests::Options;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;

/// The field for `alice:secret`, and the one for `alice:wrong`.
const SECRET: &str = "Authorization: Basic YWxpY2U6c2VjcmV0\r\n";
const WRONG: &str = "Authorization: Basic YWxpY2U6d3Jvbmc=\r\n";
/// The hash of "secret", with the least cost of bcrypt: many tests verify it.
const CHEAP: &str = "$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u";

forebay_tests::on_each_engine! {
    directories_beneath_paths_are_as_well_guarded_as_the_root,
    a_directory_comes_and_goes_with_a_reload,
    one_file_is_served_wherever_it_lies,
}

fn site() -> Folder {
    let folder = Folder::new();
    for (name, text) in [
        ("root/index.html", "root"),
        ("root/in/index.html", "secret"),
        ("root/in/a.txt", "secret, too"),
        ("docs/index.html", "docs"),
        ("docs/a.txt", "text of docs"),
        ("docs/a.txt.gz", "docs, small"),
        ("media/film.txt", "film"),
        ("outside.txt", "outside"),
    ] {
        folder.write(name, text);
    }
    symlink("../media", folder.join("root/media")).unwrap();
    symlink("../media", folder.join("root/unnamed")).unwrap();
    symlink("../outside.txt", folder.join("docs/out")).unwrap();
    folder
}

fn rules(folder: &Folder) -> String {
    let [docs, inside] = ["docs", "root/in"].map(|name| folder.join(name));
    format!(
        "links = [\"/media\"]\nlisting = true\n\
         [[alias]]\npath = \"/docs\"\nto = {docs:?}\n\
         [[alias]]\npath = \"/docs/inside\"\nto = {inside:?}\n\
         [[rewrite]]\npath = \"/v1/*\"\nto = \"/docs/inside/$1\"\n\
         [[auth]]\npath = \"/in\"\nusers = {{ alice = \"{CHEAP}\" }}\n\
         [[access]]\npath = \"/media/private\"\nallow = [\"10.0.0.0/8\"]\n"
    )
}

fn directories_beneath_paths_are_as_well_guarded_as_the_root(engine: &str) {
    let folder = site();
    let options = Options::new(folder.join("root")).engine(engine).config(&rules(&folder));
    let served = WatchedServer::with(options);
    let mut client = served.client();
    // many at once on one connection, and each answer is the one of its own request
    let wanted = [
        ("GET", "/docs/a.txt", "", 200, "text of docs"),
        ("GET", "/docs/a.txt", "Accept-Encoding: gzip\r\n", 200, "docs, small"),
        ("GET", "/docs/a.txt", "Range: bytes=0-3\r\n", 206, "text"),
        ("GET", "/docs/", "", 200, "docs"),
        ("GET", "/docs", "", 301, ""),
        ("GET", "/docs/out", "", 404, ""),
        ("GET", "/docs/../outside.txt", "", 404, ""),
        ("GET", "/docs../outside.txt", "", 404, ""),
        ("GET", "/docs/..%2foutside.txt", "", 404, ""),
        ("GET", "/docs/../../outside.txt", "", 400, ""),
        ("OPTIONS", "/docs/../../outside.txt", "", 400, ""),
        ("GET", "/media/film.txt", "", 200, "film"),
        ("GET", "/unnamed/film.txt", "", 404, ""),
        ("GET", "/media/private/none", "", 403, ""),
        ("GET", "/docs/inside/", "", 401, ""),
        ("GET", "/docs/inside/", SECRET, 200, "secret"),
        ("GET", "/docs/inside/", WRONG, 401, ""),
        ("HEAD", "/docs/inside/a.txt", "", 401, ""),
        ("GET", "/docs/inside/a.txt", "Range: bytes=0-3\r\n", 401, ""),
        ("GET", "/docs/inside/a.txt", "If-None-Match: *\r\n", 401, ""),
        ("GET", "/docs/inside/a.txt", SECRET, 200, "secret, too"),
        ("GET", "/v1/a.txt", "", 401, ""),
        ("GET", "/v1/a.txt", SECRET, 200, "secret, too"),
        ("GET", "/x/../%64ocs//inside/./a.txt", "", 401, ""),
    ];
    for _ in 0..3 {
        for (method, target, fields, ..) in wanted {
            let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            client.stream().write_all(request.as_bytes()).unwrap();
        }
        for (method, target, fields, status, text) in wanted {
            let what = format!("{engine}: {method} {target} {fields}");
            if method == "HEAD" {
                let head = client.head().unwrap();
                assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {head}");
                continue;
            }
            let answer = client.answer().unwrap();
            assert_eq!(answer.status, status, "{what}");
            if status < 300 {
                assert_eq!(String::from_utf8_lossy(&answer.body), text, "{what}");
            }
        }
    }
    fs::write(folder.join("docs/a.txt"), "changed").unwrap();
    assert!(soon(PATIENCE, || client.get("/docs/a.txt").unwrap().body == b"changed"), "{engine}");
}

fn a_directory_comes_and_goes_with_a_reload(engine: &str) {
    let folder = site();
    let options = || Options::new(folder.join("root")).engine(engine);
    let served = WatchedServer::with(options());
    let mut client = served.client();
    let mut status = |target: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.stream().write_all(request.as_bytes()).unwrap();
        client.answer().unwrap().status
    };
    assert_eq!((status("/docs/a.txt"), status("/media/film.txt")), (404, 404));
    for _ in 0..2 {
        served.configure(&options().config(&rules(&folder)));
        assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
        assert_eq!((status("/docs/a.txt"), status("/media/film.txt")), (200, 200), "{engine}");
        assert_eq!(status("/docs/inside/a.txt"), 401, "{engine}");
        served.configure(&options());
        assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
        assert_eq!((status("/docs/a.txt"), status("/media/film.txt")), (404, 404), "{engine}");
    }
    let none = format!("[[alias]]\npath = \"/docs\"\nto = {:?}\n", folder.join("none"));
    served.configure(&options().config(&none));
    let (code, said) = served.reload();
    assert!(code == Some(78) && said.contains("alias.to"), "{said}");
}

/// One file of its directory is served alone, in all its forms, under the rules of its path.
fn one_file_is_served_wherever_it_lies(engine: &str) {
    let folder = site();
    folder.write("root/icon.txt/a.txt", "beneath");
    let (file, private) = (folder.join("docs/a.txt"), folder.join("outside.txt"));
    let config = format!(
        "[[alias]]\npath = \"/icon.txt\"\nfile = {file:?}\n\
         [[alias]]\npath = \"/in/one.txt\"\nfile = {private:?}\n\
         [[auth]]\npath = \"/in\"\nusers = {{ alice = \"{CHEAP}\" }}\n"
    );
    let options = Options::new(folder.join("root")).engine(engine).config(&config);
    let served = WatchedServer::with(options);
    let mut client = served.client();
    let mut check = |target: &str, fields: &str, status: u16, text: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        client.stream().write_all(request.as_bytes()).unwrap();
        let answer = client.answer().unwrap();
        let what = format!("{engine}: {target} {fields}");
        assert_eq!(answer.status, status, "{what}");
        if status < 300 {
            assert_eq!(String::from_utf8_lossy(&answer.body), text, "{what}");
        }
        answer.field("ETag").unwrap_or_default().to_owned()
    };
    for _ in 0..3 {
        let tag = check("/icon.txt", "", 200, "text of docs");
        check("/icon.txt", &format!("If-None-Match: {tag}\r\n"), 304, "");
        check("/icon.txt", "Range: bytes=0-3\r\n", 206, "text");
        check("/icon.txt", "Accept-Encoding: gzip\r\n", 200, "docs, small");
        check("/icon.txt.gz", "", 200, "docs, small");
        check("/icon.txt/a.txt", "", 200, "beneath");
        check("/index.html.gz", "", 404, "");
        check("/a.txt", "", 404, "");
        check("/in/one.txt", "", 401, "");
        check("/in/one.txt", SECRET, 200, "outside");
        check("/in/one.txt", WRONG, 401, "");
    }
    // another file in its place, no file, and a file again
    let is = |status: u16, text: &str| {
        assert!(
            soon(PATIENCE, || {
                let mut client = served.client();
                let answer = client.get("/icon.txt").unwrap();
                answer.status == status && (status != 200 || answer.body == text.as_bytes())
            }),
            "{engine}: {status} {text}"
        );
    };
    fs::remove_file(folder.join("docs/a.txt.gz")).unwrap();
    folder.write("docs/new.txt", "new text");
    fs::rename(folder.join("docs/new.txt"), &file).unwrap();
    is(200, "new text");
    fs::remove_file(&file).unwrap();
    is(404, "");
    folder.write("docs/a.txt", "again");
    is(200, "again");
    fs::remove_file(&file).unwrap();
    symlink("../outside.txt", &file).unwrap();
    is(404, "");
}
