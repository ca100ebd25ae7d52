//! Addresses and passwords, from the file to the answer: `[[access]]`, `[[auth]]` and
//! `forebay hash-password`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::binary;
use forebay_tests::wire::{PATIENCE, exchange};
use forebay_tests::{ENGINES, Options};
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The values of `Authorization` for `NAME:PASSWORD`.
const ALICE_SECRET: &str = "Basic YWxpY2U6c2VjcmV0";
const ALICE_WRONG: &str = "Basic YWxpY2U6d3Jvbmc=";
const NOBODY_SECRET: &str = "Basic bm9ib2R5OnNlY3JldA==";
/// The hash of "secret", with the least cost of bcrypt: many tests verify it.
const CHEAP: &str = "$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "open");
    folder.write("site/in/index.html", "inside");
    folder
}

fn serve(folder: &Folder, engine: &str, config: &str) -> WatchedServer {
    WatchedServer::with(Options::new(folder.join("site")).engine(engine).config(config))
}

/// The status and head of the answer to a GET.
fn get(served: &WatchedServer, path: &str, authorization: &str) -> (u16, String) {
    ask(served, "GET", path, authorization)
}

fn ask(served: &WatchedServer, method: &str, path: &str, authorization: &str) -> (u16, String) {
    let field = match authorization {
        "" => String::new(),
        value => format!("Authorization: {value}\r\n"),
    };
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{field}\r\n");
    let answer = String::from_utf8(exchange(served.addr(), request.as_bytes())).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

fn hash_password(options: &[&str], input: &str) -> Output {
    let mut command = Command::new(binary());
    command.arg("hash-password").args(options).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The steps of an operator: hash, paste, serve.
#[test]
fn what_hash_password_prints_opens_the_realm() {
    for (options, start) in [(&[][..], "$argon2id$"), (&["--bcrypt"], "$2b$12$")] {
        let output = hash_password(options, "secret\n");
        let hash = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && hash.starts_with(start), "{hash}");
        let folder = site();
        let config = format!(
            "[[auth]]\npath = \"/in/*\"\nrealm = \"staff only\"\nusers = {{ alice = {:?} }}",
            hash.trim_end()
        );
        let served = serve(&folder, ENGINES[0], &config);
        assert_eq!(get(&served, "/", "").0, 200);
        let (status, head) = get(&served, "/in/", "");
        assert_eq!(status, 401);
        let challenge = "WWW-Authenticate: Basic realm=\"staff only\", charset=\"UTF-8\"\r\n";
        assert!(head.contains(challenge), "{head}");
        let (status, head) = get(&served, "/in/", ALICE_SECRET);
        assert!(status == 200 && head.ends_with("inside"), "{head}");
        assert!(head.contains("Cache-Control: private, no-cache\r\n"), "{head}");
        assert_eq!(get(&served, "/in/", ALICE_WRONG).0, 401);
        assert_eq!(get(&served, "/in/", NOBODY_SECRET).0, 401);
    }
}

#[test]
fn a_password_that_cannot_be_hashed_is_refused() {
    let long = "a".repeat(73);
    for (options, input, expected) in [
        (&[][..], "", "an empty password"),
        (&[], "\n", "an empty password"),
        (&["--bcrypt"], long.as_str(), "bcrypt ignores what comes after 72 bytes"),
        (&[], "a\tb", "control characters"),
    ] {
        let output = hash_password(options, input);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    }
}

/// Credentials belong to a request, on every engine and over one connection.
#[test]
fn each_request_brings_its_own_credentials() {
    let folder = site();
    let config = format!("[[auth]]\npath = \"/in/*\"\nusers = {{ alice = \"{CHEAP}\" }}");
    for engine in ENGINES {
        let served = serve(&folder, engine, &config);
        let mut client = served.client();
        for _ in 0..3 {
            for (authorization, status) in
                [("", 401), (ALICE_SECRET, 200), (ALICE_WRONG, 401), ("Bearer x", 401), ("", 401)]
            {
                let field = match authorization {
                    "" => String::new(),
                    value => format!("Authorization: {value}\r\n"),
                };
                let request = format!("GET /in/ HTTP/1.1\r\nHost: a\r\n{field}\r\n");
                client.stream().write_all(request.as_bytes()).unwrap();
                assert_eq!(client.answer().unwrap().status, status, "{engine} {authorization}");
            }
        }
        assert_eq!(ask(&served, "HEAD", "/in/", "").0, 401, "{engine}");
        assert_eq!(get(&served, "//x/../%69n/", "").0, 401, "{engine}");
    }
}

/// The file changes, is removed and comes back, each without a reload; a reload takes it over at once.
#[test]
fn the_file_of_users_is_followed() {
    let folder = site();
    let users = folder.write("users", format!("# staff\nalice:{CHEAP}\n"));
    let config = format!("[[auth]]\npath = \"/in/*\"\nfile = {users:?}");
    let served = serve(&folder, ENGINES[0], &config);
    let status = || get(&served, "/in/", ALICE_SECRET).0;
    assert_eq!(status(), 200);
    fs::write(&users, format!("bob:{CHEAP}\n")).unwrap();
    assert!(soon(PATIENCE, || status() == 401), "alice is no user any more");
    fs::remove_file(&users).unwrap();
    assert!(soon(PATIENCE, || status() == 500), "nobody may pass");
    assert_eq!(get(&served, "/in/", "").0, 500);
    assert_eq!(get(&served, "/", "").0, 200, "what is not protected stays open");
    assert!(soon(PATIENCE, || served.stderr().contains("nobody is let in until it can")));
    fs::write(&users, format!("alice:{CHEAP}\n")).unwrap();
    assert!(soon(PATIENCE, || status() == 200), "alice is back");
    fs::write(&users, format!("bob:{CHEAP}\n")).unwrap();
    let (code, said) = served.reload();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(status(), 401, "a reload reads the file");
}

/// Eight guesses at once for eight names occupy few helpers, and files that are not in the cache, which
/// need a helper, too, are answered.
#[test]
fn guessing_does_not_occupy_the_helpers() {
    let folder = site();
    folder.write("site/other", "a");
    // about 0.3 s each
    let hash = String::from_utf8(hash_password(&["--bcrypt"], "secret\n").stdout).unwrap();
    let config = format!(
        "helpers.threads = 32\n[[auth]]\npath = \"/in/*\"\nusers = {{ alice = {:?} }}",
        hash.trim_end()
    );
    let served = serve(&folder, ENGINES[0], &config);
    // the names are 0 to 7, the password is a blank
    let tokens = ["MDog", "MTog", "Mjog", "Mzog", "NDog", "NTog", "Njog", "Nzog"];
    let mut guesses: Vec<_> =
        tokens.iter().map(|_| served.client().patience(3 * PATIENCE)).collect();
    for (guess, token) in guesses.iter_mut().zip(tokens) {
        let request =
            format!("GET /in/ HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {token}\r\n\r\n");
        guess.stream().write_all(request.as_bytes()).unwrap();
    }
    assert!(soon(PATIENCE, || served.metric("forebay_jobs_total") >= 8));
    assert!(served.metric("forebay_helper_threads") <= 4, "as many as there are cores, at most 4");
    assert_eq!(get(&served, "/other", "").0, 200);
    for guess in &mut guesses {
        assert_eq!(guess.answer().unwrap().status, 401);
    }
}

#[test]
fn credentials_are_nowhere_in_the_log() {
    let folder = site();
    let log = folder.join("log");
    let config = format!(
        "log.access = {log:?}\nlog.format = \"json\"\n[[auth]]\npath = \"/in/*\"\n\
         users = {{ alice = \"{CHEAP}\" }}"
    );
    let options = Options { log: true, ..Options::new(folder.join("site")) };
    let served = WatchedServer::with(options.config(&config));
    assert_eq!(get(&served, "/in/?one", ALICE_SECRET).0, 200);
    assert_eq!(get(&served, "/in/?two", ALICE_WRONG).0, 401);
    let text = || fs::read_to_string(&log).unwrap_or_default();
    assert!(soon(PATIENCE, || text().lines().count() == 2), "{}", text());
    for secret in ["YWxpY2U6", "secret", "Basic"] {
        assert!(!text().contains(secret), "{}", text());
        assert!(!served.stderr().contains(secret), "{}", served.stderr());
    }
    // the log has the name of a user that has passed, and nothing of the others
    assert_eq!(text().matches("alice").count(), 1, "{}", text());
    assert!(!served.stderr().contains("alice"), "{}", served.stderr());
}

#[test]
fn addresses_are_admitted_or_not() {
    let folder = site();
    let config = "[[access]]\npath = \"/in/*\"\nallow = [\"192.0.2.0/24\"]\n\
                  [[access]]\ndeny = [\"10.0.0.0/8\"]";
    for engine in ENGINES {
        let served = serve(&folder, engine, config);
        for _ in 0..2 {
            assert_eq!(get(&served, "/", "").0, 200, "{engine}");
            assert_eq!(get(&served, "/in/", "").0, 403, "{engine}");
            assert_eq!(get(&served, "/in/missing", "").0, 403, "{engine}");
        }
    }
    let open = "[[access]]\npath = \"/in/*\"\nallow = [\"127.0.0.0/8\"]\ndeny = [\"all\"]";
    assert_eq!(get(&serve(&folder, ENGINES[0], open), "/in/", "").0, 200);
}

/// Index files, compressed forms, files that are tried, rewrites and error pages lead no client around a
/// rule, whether it is for the path that is asked for or for the file.
#[test]
fn a_file_is_protected_under_all_its_paths() {
    const SECRET: &str = "the secret text";
    let folder = site();
    for name in ["in/index.html", "in/page.html", "in/page.html.gz", "app/data.txt", "in/404.html"]
    {
        folder.write(&format!("site/{name}"), SECRET);
    }
    let rules =
        ["/in", "=/in/", "/in/index.html", "/in/page.html", "/in/page", "/v1", "/app", "*.html"];
    let more = "try_files = [\"$path\", \"$path.html\", \"$path/\"]\nerrors = { 404 = \"/in/404.html\" }\n\
                listing = true\n[[rewrite]]\npath = \"/v1/*\"\nto = \"/app/$1\"\n\
                [[rewrite]]\npath = \"/link\"\nto = \"/in/page.html\"\n";
    let paths = [
        "/in/",
        "/in",
        "/in/index.html",
        "/in/index",
        "/in/page",
        "/in/page.html",
        "/in/page.html.gz",
        "/link",
        "/v1/data.txt",
        "/app/data.txt",
        "/v1/",
        "/app/",
        "//in/./",
        "/x/../in/page",
        "/%69n/",
        "/missing",
        "/in/missing",
        "/v1/missing",
    ];
    // whether a rule leaves a path open
    let is_open = |rule: &str, path: &str| {
        let path = path.replace("//in/./", "/in/").replace("/x/..", "").replace("%69", "i");
        let names: &[&str] = match path.as_str() {
            "/in/" | "/in/index.html" | "/in/index" => {
                &["/in", "=/in/", "/in/index.html", "*.html"]
            }
            "/in/page" | "/in/page.html" | "/in/page.html.gz" | "/link" => {
                &["/in", "/in/page", "/in/page.html", "*.html"]
            }
            "/in" | "/in/missing" => &["/in"],
            "/v1/data.txt" | "/app/data.txt" | "/v1/" | "/app/" | "/v1/missing" => &["/v1", "/app"],
            _ => &[],
        };
        !names.contains(&rule)
    };
    for engine in ENGINES {
        for rule in rules {
            let by_address = format!("{more}[[access]]\npath = \"{rule}\"\ndeny = [\"all\"]\n");
            let by_password =
                format!("{more}[[auth]]\npath = \"{rule}\"\nusers = {{ alice = \"{CHEAP}\" }}\n");
            for (config, refused) in [(by_address, 403), (by_password, 401)] {
                let served = serve(&folder, engine, &config);
                for path in paths.into_iter().chain(paths) {
                    let (status, answer) = get(&served, path, "");
                    let place = format!("{engine} {rule} {path}: {answer}");
                    assert_eq!(status != refused, is_open(rule, path), "{place}");
                    // the page of the error is one of those that are protected
                    let hides_page = rule == "/in" || rule == "*.html";
                    if status == refused || status == 404 && hides_page {
                        assert!(!answer.contains(SECRET), "{place}");
                    }
                }
            }
        }
    }
}

/// The log has the user in the line of each request that a password has admitted, even from memory, and
/// in no other.
#[test]
fn lines_name_the_user_whose_password_was_right() {
    for engine in ENGINES {
        for format in ["json", "common"] {
            let folder = site();
            folder.write("site/404.html", "not here");
            let log = folder.join("access.log");
            let config = format!(
                "log.access = {log:?}\nlog.format = {format:?}\nerrors = {{ 404 = \"/404.html\" }}\n\
                 [[auth]]\npath = \"/in\"\nusers = {{ alice = {CHEAP:?} }}\n"
            );
            let served = serve(&folder, engine, &config);
            let asked = [
                ("/in/", ALICE_SECRET, 200, true),
                ("/in/", ALICE_SECRET, 200, true),
                ("/", ALICE_SECRET, 200, false),
                ("/in/", ALICE_WRONG, 401, false),
                ("/in/", NOBODY_SECRET, 401, false),
                ("/in/", "", 401, false),
                ("/in/none", ALICE_SECRET, 404, true),
                ("/in/none", ALICE_SECRET, 404, true),
                ("/none", ALICE_SECRET, 404, false),
                ("/../in/", ALICE_SECRET, 400, false),
            ];
            for (number, (path, authorization, status, _)) in asked.into_iter().enumerate() {
                let target = format!("{path}?n{number}");
                assert_eq!(get(&served, &target, authorization).0, status, "{engine} {path}");
            }
            let text = || fs::read_to_string(&log).unwrap_or_default();
            assert!(
                soon(PATIENCE, || text().lines().count() == asked.len()),
                "{engine}: {}",
                text()
            );
            // each loop writes its log lines when it has time, so their order is open
            let text = text();
            for (number, (path, authorization, status, is_named)) in asked.into_iter().enumerate() {
                let mark = format!("?n{number}");
                let line = text.lines().find(|line| line.contains(&mark)).unwrap();
                let named = line.contains("\"user\":\"alice\"") || line.contains(" - alice [");
                assert_eq!(named, is_named, "{engine} {path} {authorization} {status}: {line}");
                assert!(!line.contains("nobody") && !line.contains("Basic"), "{engine}: {line}");
            }
        }
    }
}
