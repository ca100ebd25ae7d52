//! Requests, and answers of applications, on their way: another server decides which requests may pass,
//! files are sent instead of answers, answers are compressed, and received before the client takes them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::isolated::UNHURRIED;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, free_addr, free_at_all_addresses};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options, Server, on_each_engine, on_isolated};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

on_each_engine!(
    another_server_says_who_may_pass,
    a_server_that_decides_leads_to_where_people_sign_in,
    cookies_of_a_server_that_decides_reach_the_client,
    files_are_sent_instead_of_answers,
    addresses_of_applications_lead_back_here,
    what_an_application_has_prefixed_itself_is_left_alone,
    applications_are_told_of_clients_by_those_who_are_trusted,
    answers_are_compressed_as_they_come,
    strong_tags_of_applications_stay,
    a_slow_client_keeps_no_application_busy,
    a_request_has_one_name,
);

on_isolated!(
    another_server_says_who_may_pass,
    a_server_that_decides_leads_to_where_people_sign_in,
    cookies_of_a_server_that_decides_reach_the_client,
    files_are_sent_instead_of_answers,
    answers_are_compressed_as_they_come,
    strong_tags_of_applications_stay,
    a_request_has_one_name,
);

/// A server that answers each request with the result of a function of its head and body; a thread for
/// each connection.
struct Application {
    addr: SocketAddr,
    /// The heads of all requests.
    heads: Arc<Mutex<Vec<String>>>,
    /// The number of answers that were sent to the end.
    done: Arc<AtomicUsize>,
}

impl Application {
    fn start(answer: fn(&str, &[u8]) -> Vec<u8>) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (heads, done) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicUsize>::default());
        let (seen, sent) = (Arc::clone(&heads), Arc::clone(&done));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (heads, done) = (Arc::clone(&seen), Arc::clone(&sent));
                thread::spawn(move || {
                    let mut writer = stream.try_clone().unwrap();
                    let mut reader = BufReader::new(stream);
                    while let Some((head, body)) = request(&mut reader) {
                        let said = answer(&head, &body);
                        heads.lock().unwrap().push(head);
                        if writer.write_all(&said).is_err() {
                            return;
                        }
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        Application { addr, heads, done }
    }

    fn heads(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }
}

/// Reads the next request of a connection: its head, and its body by its length.
fn request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn said(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n");
    [head.as_bytes(), body].concat()
}

struct Got {
    status: u16,
    fields: HashMap<String, String>,
    body: Vec<u8>,
}

/// Sends a request over a connection of its own, and reads the whole answer.
fn ask(server: &Server, method: &str, path: &str, fields: &str, body: &str) -> Got {
    let mut stream = server.connect();
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{length}{fields}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    received(&mut BufReader::new(stream), method)
}

fn received(reader: &mut BufReader<TcpStream>, method: &str) -> Got {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head:?}");
    }
    let status: u16 = head[9..12].parse().unwrap();
    let mut fields = HashMap::new();
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        let known: &mut String = fields.entry(name.to_ascii_lowercase()).or_default();
        if !known.is_empty() {
            known.push_str(", ");
        }
        known.push_str(value);
    }
    let mut body = Vec::new();
    if method != "HEAD" && !matches!(status, 204 | 304) {
        if let Some(length) = fields.get("content-length") {
            body = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
        } else {
            while let Some(chunk) = chunk(reader) {
                body.extend_from_slice(&chunk);
            }
        }
    }
    Got { status, fields, body }
}

/// The next chunk of a body; `None` behind the last one.
fn chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim(), 16).unwrap();
    let mut chunk = vec![0; length + 2];
    reader.read_exact(&mut chunk).unwrap();
    chunk.truncate(length);
    (length > 0).then_some(chunk)
}

fn start(engine: &str, lines: &str) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    folder.write("root/intern/plan.txt", "the plan");
    folder.write("root/files/paper.pdf", "a paper, in pages");
    folder.write("root/403.html", "ours");
    let options = Options { log: true, ..Options::new(folder.join("root")) };
    let lines = if engine == ISOLATED { format!("{UNHURRIED}{lines}") } else { lines.to_owned() };
    (Server::start(&options.engine(engine).config(&lines)), folder)
}

/// Lets requests with the right cookie through, and names their user.
fn decide(head: &str, body: &[u8]) -> Vec<u8> {
    assert!(body.is_empty() && head.starts_with("GET /verify?from=a HTTP/1.1\r\n"), "{head}");
    let wants = |what: &str| head.contains(what);
    if wants("Cookie: key=right\r\n") {
        return said("200 OK", "Remote-User: ada\r\nX-Other: no\r\n", b"go on");
    }
    if wants("Cookie: key=wrong\r\n") {
        return said("403 Forbidden", "X-Why: wrong\r\n", b"not you");
    }
    if wants("Cookie: key=early\r\n") {
        let early = ["100 Continue", "102 Processing", "103 Early Hints"];
        let early = early.map(|status| format!("HTTP/1.1 {status}\r\nLink: </secret.css>\r\n\r\n"));
        return [early.concat().into_bytes(), said("200 OK", "Remote-User: ada\r\n", b"")].concat();
    }
    if wants("Cookie: key=fresh\r\n") {
        return said(
            "200 OK",
            "Remote-User: ada\r\nSet-Cookie: key=a\r\nSet-Cookie: other=b\r\n",
            b"",
        );
    }
    for (key, status, fields) in [
        ("lost", "302 Found", "Location: /login?a=b\r\nSet-Cookie: c=d\r\nSet-Cookie: e=f\r\n"),
        ("ever", "301 Moved Permanently", "Location: http://b/\r\nCache-Control: max-age=9\r\n"),
        ("post", "307 Temporary Redirect", "Location: /again\r\n"),
        ("odd", "302 Found", ""),
        ("kept", "304 Not Modified", "Location: /login\r\n"),
        ("some", "300 Multiple Choices", "Location: /login\r\n"),
        ("busy", "429 Too Many Requests", "Location: /login\r\n"),
        ("broken", "500 Internal Server Error", "Set-Cookie: c=d\r\n"),
    ] {
        if wants(&format!("Cookie: key={key}\r\n")) {
            return said(status, fields, b"");
        }
    }
    said("401 Unauthorized", "WWW-Authenticate: Key\r\nSet-Cookie: a=b\r\n", b"who are you?")
}

/// Answers with the head of the request, or with an error.
fn fail_or_echo(head: &str, body: &[u8]) -> Vec<u8> {
    match head.starts_with("GET /app/fails ") {
        true => said("500 Internal Server Error", "", b"theirs"),
        false => echo(head, body),
    }
}

/// The authority and the application get the same id for a request, and the log has it too, however the
/// request is answered in the end.
fn a_request_has_one_name(engine: &str) {
    let (authority, application) = (Application::start(decide), Application::start(fail_or_echo));
    let (to, app) = (authority.addr, application.addr);
    let (server, _folder) = start(
        engine,
        &format!(
            "log.format = \"json\"\nerrors = {{ 500 = \"/403.html\" }}\ntrusted_proxies = [\"127.0.0.2\"]\n\
             [[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\nerrors = \"ours\"\n\
             [[forward_auth]]\npath = \"/app\"\nto = \"http://{to}\"\nuri = \"/verify?from=a\"\n"
        ),
    );
    let name = |head: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix("X-Request-Id: "));
        line.unwrap_or_else(|| panic!("{engine} {head}")).to_owned()
    };
    let mut names = Vec::new();
    for (path, status) in [("/app/x", 200), ("/app/fails", 500)] {
        let fields = "Cookie: key=right\r\nX-Request-Id: mine\r\n";
        assert_eq!(ask(&server, "GET", path, fields, "").status, status, "{engine} {path}");
        let told = [&authority, &application].map(|one| name(&one.heads().pop().unwrap()));
        assert_eq!(told[0], told[1], "{engine} {path}");
        assert_eq!(told[0].len(), 32, "{engine} {path}: {told:?}");
        names.extend(told.into_iter().take(1));
    }
    assert_ne!(names[0], names[1], "{engine}");
    // a request that never reached an application has an id, too
    assert_eq!(ask(&server, "GET", "/", "X-Request-Id: mine\r\n", "").status, 200);
    let logged = || -> Vec<String> {
        let text = server.stdout();
        let ids = text.lines().filter_map(|line| line.split_once("\"request_id\":\""));
        ids.map(|(_, rest)| rest.split('"').next().unwrap().to_owned()).collect()
    };
    assert!(soon(PATIENCE, || logged().len() == 3), "{engine} {}", server.stdout());
    // connections of different loops, whose lines come in any order
    let logged = logged();
    assert!(names.iter().all(|name| logged.contains(name)), "{engine}: {names:?} {logged:?}");
    assert!(logged.iter().all(|name| name.len() == 32), "{engine}: {logged:?}");
}

fn echo(head: &str, body: &[u8]) -> Vec<u8> {
    said("200 OK", "Content-Type: text/x-head\r\n", &[head.as_bytes(), body].concat())
}

fn another_server_says_who_may_pass(engine: &str) {
    let (authority, application) = (Application::start(decide), Application::start(echo));
    let (to, app) = (authority.addr, application.addr);
    let (server, _folder) = start(
        engine,
        &format!(
            "errors = {{ 403 = \"/403.html\" }}\n[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\n\
             [[forward_auth]]\npath = \"/app\"\nto = \"http://{to}\"\nuri = \"/verify?from=a\"\n\
             copy = [\"Remote-User\", \"X-Role\"]\n\
             [[forward_auth]]\npath = \"/intern\"\nto = \"http://{to}\"\nuri = \"/verify?from=a\"\n"
        ),
    );
    // a path that no authority decides about
    assert_eq!(ask(&server, "GET", "/", "", "").body, b"own", "{engine}");
    assert!(authority.heads().is_empty());
    for path in ["/app/x?y=1", "/intern/plan.txt"] {
        let got = ask(&server, "GET", path, "", "");
        assert_eq!((got.status, &*got.body), (401, b"who are you?".as_slice()), "{engine} {path}");
        assert_eq!(got.fields["www-authenticate"], "Key");
        assert_eq!(got.fields["set-cookie"], "a=b");
        let told = authority.heads().pop().unwrap();
        assert!(told.contains(&format!("X-Forwarded-Uri: {path}\r\n")), "{engine} {told}");
        assert!(told.contains("X-Forwarded-Method: GET\r\n"), "{engine} {told}");
        let got = ask(&server, "GET", path, "Cookie: key=wrong\r\n", "");
        assert_eq!((got.status, &*got.body), (403, b"not you".as_slice()), "{engine} {path}");
        assert_eq!(got.fields["x-why"], "wrong");
        for key in ["odd", "kept", "some", "busy", "broken"] {
            let got = ask(&server, "GET", path, &format!("Cookie: key={key}\r\n"), "");
            assert_eq!(got.status, 502, "{engine} {path} {key}");
            assert!(!got.fields.contains_key("set-cookie") && !got.fields.contains_key("location"));
        }
    }
    assert!(application.heads().is_empty(), "{engine}: none was let through");
    // the authority judges the path that would be served, however it is written
    for (path, judged) in [
        ("/%69ntern/plan.txt", "/intern/plan.txt"),
        ("/pub/..//./intern//plan.txt?a=//", "/intern/plan.txt?a=//"),
        ("http://a/intern/plan%2etxt", "/intern/plan.txt"),
        ("/intern/a%20b", "/intern/a%20b"),
        ("/intern/a;b", "/intern/a;b"),
        ("/app/a;b/c;d=e?f;g", "/app/a/c?f;g"),
    ] {
        assert_eq!(ask(&server, "GET", path, "", "").status, 401, "{engine} {path}");
        let told = authority.heads().pop().unwrap();
        assert!(told.contains(&format!("X-Forwarded-Uri: {judged}\r\n")), "{engine} {told}");
    }
    let got = ask(&server, "GET", "/intern/plan.txt", "Cookie: key=right\r\n", "");
    assert_eq!((got.status, &*got.body), (200, b"the plan".as_slice()), "{engine}");
    assert!(got.fields["cache-control"].contains("private"), "{engine}: {:?}", got.fields);
    // a body goes to the application alone, and only the authority names the user
    let lies = "Cookie: key=right\r\nRemote-User: eve\r\nRemote_User: eve\r\nX-Role: root\r\n";
    let body = "b".repeat(100_000);
    let got = ask(&server, "POST", "/app/x", lies, &body);
    let text = String::from_utf8(got.body).unwrap();
    let (head, echoed) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!((got.status, echoed == body), (200, true), "{engine}");
    assert!(head.contains("Remote-User: ada\r\n"), "{engine} {head}");
    assert!(
        !head.contains("eve") && !head.contains("X-Role") && !head.contains("X-Other"),
        "{head}"
    );
    let told = authority.heads().pop().unwrap();
    assert!(
        told.contains("X-Forwarded-Method: POST\r\n") && !told.contains("Content-Length"),
        "{told}"
    );
    // if the authority cannot be asked, the request is refused
    drop(server);
    let nobody = free_addr();
    let lines = format!("[[forward_auth]]\nto = \"http://{nobody}\"");
    let (server, _folder) = start(engine, &lines);
    assert_eq!(ask(&server, "GET", "/", "", "").status, 502, "{engine}");
}

/// A redirect of the authority reaches the client, with its cookies; and what the authority gets of the
/// client is what this server knows.
fn a_server_that_decides_leads_to_where_people_sign_in(engine: &str) {
    let (authority, application) = (Application::start(decide), Application::start(echo));
    let (to, app) = (authority.addr, application.addr);
    let ask_it = format!("to = \"http://{to}\"\nuri = \"/verify?from=a\"\n");
    let (server, _folder) = start(
        engine,
        &format!(
            "[[header]]\nset = {{ \"Cache-Control\" = \"public, max-age=60\" }}\n\
             [[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\n\
             [[proxy]]\npath = \"/intern\"\nto = \"http://{app}\"\n\
             [[forward_auth]]\npath = \"/app\"\n{ask_it}\
             [[forward_auth]]\npath = \"/intern\"\n{ask_it}sign_in = \"/oauth2/sign_in?rd=$path$query\"\n\
             [[forward_auth]]\npath = \"/back\"\n{ask_it}sign_in = \"/$path\"\n\
             [[forward_auth]]\npath = \"/else\"\n{ask_it}\
             sign_in = \"https://login.example/$host?rd=$scheme://$host$path$query&from=a\"\n"
        ),
    );
    for (key, method, status, location) in [
        ("lost", "GET", 302, "/login?a=b"),
        ("lost", "HEAD", 302, "/login?a=b"),
        ("lost", "POST", 302, "/login?a=b"),
        ("post", "POST", 307, "/again"),
        ("ever", "GET", 301, "http://b/"),
    ] {
        let fields = format!("Cookie: key={key}\r\n");
        let got =
            ask(&server, method, "/app/x?y=1", &fields, if method == "POST" { "b" } else { "" });
        assert_eq!(got.status, status, "{engine} {key} {method}");
        assert_eq!(got.fields["location"], location, "{engine} {key}");
        if key == "lost" {
            assert_eq!(got.fields["set-cookie"], "c=d, e=f", "{engine}");
        }
        assert_eq!(got.fields["cache-control"], "no-store", "{engine} {key} {method}");
    }
    // an unknown user who opens a page goes to the sign-in page
    let page = "/oauth2/sign_in?rd=/intern/a%2520b%3Fc%3D%26d%3D%2F";
    let page = page.replace("%2F", "/");
    for (method, fields, status) in [
        ("GET", "", 302),
        ("HEAD", "", 302),
        ("POST", "", 303),
        ("GET", "Sec-Fetch-Mode: navigate\r\n", 302),
        ("GET", "Sec-Fetch-Mode: cors\r\n", 401),
        ("GET", "Sec-Fetch-Mode: no-cors\r\n", 401),
        ("GET", "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Mode: cors\r\n", 401),
        ("GET", "Cookie: key=wrong\r\n", 403),
    ] {
        let got = ask(&server, method, "/intern/a%20b?c=&d=/", fields, "");
        assert_eq!(got.status, status, "{engine} {method} {fields}");
        match status {
            401 => assert_eq!(got.fields["www-authenticate"], "Key", "{engine}"),
            403 => assert!(!got.fields.contains_key("location"), "{engine}"),
            _ => {
                assert_eq!(got.fields["location"], page, "{engine} {method} {fields}");
                assert!(!got.fields.contains_key("www-authenticate"), "{engine}");
            }
        }
        if status != 403 {
            assert_eq!(got.fields["set-cookie"], "a=b", "{engine}");
        }
    }
    // two slashes would lead to a host
    let got = ask(&server, "GET", "/back/evil.example", "", "");
    assert_eq!((got.status, &*got.fields["location"]), (302, "/back/evil.example"), "{engine}");
    let got = ask(&server, "GET", "/else/x?y", "", "");
    // some runs have the server speak TLS
    let location = &got.fields["location"];
    let scheme = if location.contains("rd=https://") { "https" } else { "http" };
    let expected = format!("https://login.example/a?rd={scheme}://a/else/x%3Fy&from=a");
    assert_eq!(location, &expected, "{engine}");
    // the authority gets what this server knows of the client, whatever the client says
    authority.heads();
    let lies = "X-Forwarded-Uri: /pub\r\nX_Forwarded_Uri: /pub\r\nX-Forwarded-Method: PUT\r\n\
                X-Original-URL: http://a/pub\r\nX-Original-URI: /pub\r\nX_Original_URI: /pub\r\n\
                X-Original-Method: PUT\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\n\
                X-Auth-Request-User: eve\r\nX_Auth_Request_Email: eve\r\nX-Auth-Request-Redirect: //evil\r\n\
                If-None-Match: \"eve\"\r\nRange: bytes=0-1\r\n";
    assert_eq!(ask(&server, "DELETE", "/app/x;p?y=1", lies, "").status, 401, "{engine}");
    let told = authority.heads().pop().unwrap();
    for line in [
        "X-Forwarded-Method: DELETE",
        "X-Forwarded-Uri: /app/x?y=1",
        &format!("X-Forwarded-Proto: {scheme}"),
        "X-Forwarded-Host: a",
        "X-Original-Method: DELETE",
        "X-Original-URI: /app/x?y=1",
        &format!("X-Original-URL: {scheme}://a/app/x?y=1"),
    ] {
        assert!(told.contains(&format!("\r\n{line}\r\n")), "{engine}: {line}\n{told}");
    }
    for lie in ["/pub", "PUT", "evil", "eve", "Range", "If-None"] {
        assert!(!told.contains(lie), "{engine}: {lie}\n{told}");
    }
    assert_eq!(told.contains("https"), scheme == "https", "{engine}: {told}");
    let fields = format!("Cookie: key=right\r\n{lies}");
    let got = ask(&server, "GET", "/app/x", &fields, "");
    let head = String::from_utf8(got.body).unwrap();
    assert!(
        !head.contains("X-Auth-Request") && !head.contains("X_Auth_Request"),
        "{engine} {head}"
    );
}

fn count(text: &str, word: &str) -> usize {
    text.matches(word).count()
}

/// The cookie of a session that the authority refreshes reaches the client, whatever answers the request.
fn cookies_of_a_server_that_decides_reach_the_client(engine: &str) {
    let (authority, application) = (Application::start(decide), Application::start(fail_or_echo));
    let (to, app) = (authority.addr, application.addr);
    let (server, _folder) = start(
        engine,
        &format!(
            "cache_control = \"public, max-age=60\"\n[[redirect]]\npath = \"/moved\"\nto = \"/intern/\"\n\
             [[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\n\
             [[forward_auth]]\npath = \"/\"\nexcept = [\"/files\"]\nto = \"http://{to}\"\n\
             uri = \"/verify?from=a\"\n"
        ),
    );
    for (path, status) in [
        ("/intern/plan.txt", 200),
        ("/intern/plan.txt", 200),
        ("/intern/none", 404),
        ("/moved", 301),
        ("/app/x", 200),
        ("/app/fails", 500),
    ] {
        let got = ask(&server, "GET", path, "Cookie: key=fresh\r\n", "");
        assert_eq!(got.status, status, "{engine} {path}");
        assert_eq!(got.fields["set-cookie"], "key=a, other=b", "{engine} {path}");
        // Cache-Control stands in one line with the site's own directives
        let caches = &got.fields["cache-control"];
        assert!(
            caches.starts_with("private")
                && !caches.contains("public")
                && count(caches, "private") == 1,
            "{engine} {path}: {:?}",
            got.fields
        );
        assert_eq!(caches.contains("max-age=60"), path == "/intern/plan.txt", "{engine} {path}");
        // interim answers of the authority are not for the client
        let got = ask(&server, "GET", path, "Cookie: key=early\r\n", "");
        assert_eq!((got.status, got.fields.get("link")), (status, None), "{engine} {path}");
        let got = ask(&server, "GET", path, "Cookie: key=right\r\n", "");
        assert_eq!((got.status, got.fields.get("set-cookie")), (status, None), "{engine} {path}");
    }
    authority.heads();
    let got = ask(&server, "GET", "/files/paper.pdf", "Cookie: key=fresh\r\n", "");
    assert_eq!((got.status, got.fields.get("set-cookie")), (200, None), "{engine}");
    assert!(authority.heads().is_empty(), "{engine}: it is left open");
}

/// Has the file sent that the query names.
fn send(head: &str, _: &[u8]) -> Vec<u8> {
    let target = head.split(' ').nth(1).unwrap();
    let what = target.split_once('?').map_or("", |(_, what)| what);
    let fields = format!(
        "X-Accel-Redirect: {what}\r\nContent-Type: application/x-paper\r\n\
         X-Accel-Redirect: /files/none\r\nContent-Disposition: attachment\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nX-Secret: yes\r\n"
    );
    said("200 OK", &fields, b"not this")
}

fn files_are_sent_instead_of_answers(engine: &str) {
    let application = Application::start(send);
    let app = application.addr;
    let (server, folder) = start(
        engine,
        &format!(
            "[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\naccel_redirect = [\"/files\"]\n\
             [[proxy]]\npath = \"/other\"\nto = \"http://{app}\"\n\
             [[access]]\npath = \"/files/closed\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]\n"
        ),
    );
    folder.write("root/files/closed/x.txt", "closed");
    folder.write("root/files/big.bin", "0123456789".repeat(200_000));
    let get = |path: &str, fields: &str| ask(&server, "GET", path, fields, "");
    for method in ["GET", "POST"] {
        let body = if method == "POST" { "form" } else { "" };
        let got = ask(&server, method, "/app?/files/paper.pdf", "", body);
        assert_eq!(
            (got.status, &*got.body),
            (200, b"a paper, in pages".as_slice()),
            "{engine} {method}"
        );
        assert_eq!(got.fields["content-type"], "application/x-paper", "{engine}");
        assert_eq!(got.fields["content-disposition"], "attachment");
        assert_eq!(got.fields["set-cookie"], "a=b, c=d");
        assert!(!got.fields.contains_key("x-secret") && got.fields.contains_key("etag"));
    }
    assert!(ask(&server, "HEAD", "/app?/files/paper.pdf", "", "").body.is_empty());
    let got = get("/app?/files/paper.pdf", "Range: bytes=2-6\r\n");
    assert_eq!((got.status, &*got.body), (206, b"paper".as_slice()), "{engine}");
    assert_eq!(get("/app?/files/big.bin", "").body.len(), 2_000_000, "{engine}");
    // no other path has these files, and this application gets no others
    for path in ["/files/paper.pdf", "/%66iles/paper.pdf", "/files/./paper.pdf"] {
        assert_eq!(get(path, "").status, 404, "{engine} {path}");
    }
    for what in
        ["/index.html", "/files/../index.html", "/files/%2e%2e/index.html", "index.html", ""]
    {
        assert_eq!(get(&format!("/app?{what}"), "").status, 502, "{engine} {what}");
    }
    assert_eq!(get("/app?/files/none", "").status, 404, "{engine}");
    assert_eq!(get("/app?/files/closed/x.txt", "").status, 403, "{engine}: rules hold");
    let got = get("/other?/files/paper.pdf", "");
    assert_eq!((got.status, &*got.body), (200, b"not this".as_slice()), "{engine}");
    assert!(!got.fields.contains_key("x-accel-redirect"), "{engine}");
    let asked = application.heads().len();
    assert_eq!(asked, 13, "{engine}: each once");
}

/// An application is told who asks and which address its client has reached, where a listener has all of the
/// machine's, by both versions of the PROXY protocol; with stages, too.
#[test]
fn an_application_is_told_the_address_that_was_reached() {
    for (version, stages) in [("v1", ""), ("v2", ""), ("v1", "[stages]\n"), ("v2", "[stages]\n")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let app = listener.local_addr().unwrap();
        let folder = Folder::new();
        let port = free_at_all_addresses().port();
        let lines = format!(
            "[[proxy]]\npath = \"/\"\nto = \"http://{app}\"\nproxy_protocol = \"{version}\"\n\
             [[listener]]\nlisten = [\"0.0.0.0:{port}\"]\n{stages}"
        );
        let _server = Server::start(&Options::new(folder.join("")).config(&lines));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let client = stream.local_addr().unwrap().port();
        // a request each: none is sent on a connection that is another client's
        for _ in 0..2 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut upstream = listener.accept().unwrap().0;
            let preface = match version {
                "v1" => format!("PROXY TCP4 127.0.0.1 127.0.0.1 {client} {port}\r\n").into_bytes(),
                _ => {
                    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01";
                    let ports = [client.to_be_bytes(), port.to_be_bytes()].concat();
                    [&start[..], &ports].concat()
                }
            };
            let mut told = vec![0; preface.len()];
            upstream.read_exact(&mut told).unwrap();
            assert_eq!(told.escape_ascii().to_string(), preface.escape_ascii().to_string());
            let (head, _) = request(&mut BufReader::new(&upstream)).unwrap();
            assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{version}: {head}");
            upstream.write_all(&said("200 OK", "", b"ok")).unwrap();
            let mut reader = BufReader::new(stream);
            assert_eq!(received(&mut reader, "GET").status, 200, "{version}");
            stream = reader.into_inner();
        }
    }
}

/// The log line of a file that an application has had sent names the application, whose part is over
/// then.
#[test]
fn the_log_of_a_file_that_is_sent_names_the_application() {
    let application = Application::start(send);
    let app = application.addr;
    let folder = Folder::new();
    folder.write("root/files/paper.pdf", "a paper");
    let lines = format!(
        "log.format = \"json\"\nlog.access = \"-\"\n\
         [[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\naccel_redirect = [\"/files\"]\n"
    );
    let server = Server::start(&Options::new(folder.join("root")).config(&lines));
    for (target, status) in [("/app?/files/paper.pdf", 200), ("/app?/files/none", 404)] {
        assert_eq!(ask(&server, "GET", target, "", "").status, status);
        let has = [
            format!("\"target\":\"{target}\""),
            format!("\"status\":{status}"),
            format!("\"upstream\":\"{app}\""),
            "\"upstream_status\":200,\"upstream_attempts\":1,\"upstream_queue_us\":0,".to_owned(),
            "\"upstream_connect_us\":".to_owned(),
            "\"upstream_head_us\":".to_owned(),
            "\"upstream_us\":".to_owned(),
        ];
        let line =
            || server.stdout().lines().any(|line| has.iter().all(|part| line.contains(part)));
        assert!(soon(PATIENCE, line), "{has:?}: {}", server.stdout());
    }
}

const PAGE: &str = "<p>a line of a page that is like all others</p>\n";

fn page(head: &str, _: &[u8]) -> Vec<u8> {
    let target = head.split(' ').nth(1).unwrap();
    let body = PAGE.repeat(1000);
    let html = "Content-Type: text/html\r\nETag: \"v1\"\r\n";
    match target {
        "/app/sized" => said("200 OK", html, body.as_bytes()),
        "/app/picture" => said("200 OK", "Content-Type: image/png\r\n", body.as_bytes()),
        "/app/fixed" => {
            let fields = format!("{html}Cache-Control: no-transform\r\n");
            said("200 OK", &fields, body.as_bytes())
        }
        "/app/coded" => {
            let fields = format!("{html}Content-Encoding: gzip\r\n");
            said("200 OK", &fields, body.as_bytes())
        }
        "/app/short" => said("200 OK", html, b"short"),
        _ => panic!("{target}"),
    }
}

/// The output of a program for these bytes.
fn through(program: &str, bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.stdout
}

fn answers_are_compressed_as_they_come(engine: &str) {
    let application = Application::start(page);
    let app = application.addr;
    let (server, _folder) = start(
        engine,
        &format!(
            "[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\n\
             compress = [\"br\", \"zstd\", \"gzip\"]"
        ),
    );
    let whole = PAGE.repeat(1000);
    let get = |path: &str, fields: &str| ask(&server, "GET", path, fields, "");
    for (accept, program) in [("br", "brotli"), ("gzip", "gzip")] {
        let got = get("/app/sized", &format!("Accept-Encoding: {accept}\r\n"));
        assert_eq!(got.fields["content-encoding"], accept, "{engine}");
        assert_eq!((&*got.fields["vary"], &*got.fields["etag"]), ("Accept-Encoding", "W/\"v1\""));
        assert!(got.body.len() * 4 < whole.len(), "{engine}: {}", got.body.len());
        assert!(through(program, &got.body) == whole.as_bytes(), "{engine} {accept}");
    }
    let got = get("/app/sized", "");
    assert!(got.body == whole.as_bytes() && !got.fields.contains_key("content-encoding"));
    assert_eq!((&*got.fields["vary"], &*got.fields["etag"]), ("Accept-Encoding", "\"v1\""));
    for path in ["/app/picture", "/app/fixed", "/app/short"] {
        let got = get(path, "Accept-Encoding: gzip\r\n");
        assert!(!got.fields.contains_key("content-encoding"), "{engine} {path}");
        assert!(!got.fields.contains_key("vary"), "{engine} {path}");
    }
    let got = get("/app/coded", "Accept-Encoding: gzip\r\n");
    assert!(got.body == whole.as_bytes() && got.fields["content-encoding"] == "gzip", "{engine}");
    let got = ask(&server, "HEAD", "/app/sized", "Accept-Encoding: gzip\r\n", "");
    assert_eq!(got.fields["content-encoding"], "gzip", "{engine}");
    assert!(!got.fields.contains_key("content-length"), "{engine}");
    drop(server);
    // bytes that are there go on before more is waited for
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let app = listener.local_addr().unwrap();
    let (server, _folder) =
        start(engine, &format!("[[proxy]]\npath = \"/app\"\nto = \"http://{app}\""));
    let mut client = server.connect();
    client.write_all(b"GET /app HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").unwrap();
    let mut upstream = BufReader::new(listener.accept().unwrap().0);
    request(&mut upstream).unwrap();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
    upstream.get_mut().write_all(format!("{head}5\r\nfirst\r\n").as_bytes()).unwrap();
    let mut client = BufReader::new(client);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        client.read_line(&mut line).unwrap();
    }
    let mut coded = Vec::new();
    while through("gzip", &coded) != b"first" {
        coded.extend_from_slice(&chunk(&mut client).unwrap());
    }
    upstream.get_mut().write_all(b"6\r\n, last\r\n0\r\n\r\n").unwrap();
    while let Some(more) = chunk(&mut client) {
        coded.extend_from_slice(&more);
    }
    assert_eq!(through("gzip", &coded), b"first, last", "{engine}");
}

/// An application that compares tags for what was put, as WebDAV and CouchDB do.
fn guarded(head: &str, _: &[u8]) -> Vec<u8> {
    let body = PAGE.repeat(100);
    let tag =
        if head.contains(" /weak/") || head.contains(" /never/") { "W/\"v1\"" } else { "\"v1\"" };
    match head.lines().find_map(|line| line.strip_prefix("If-Match: ")) {
        Some(known) if head.starts_with("PUT ") && known != "\"v1\"" => {
            said("412 Precondition Failed", "", b"")
        }
        Some(_) => said("204 No Content", "", b""),
        None => {
            said("200 OK", &format!("Content-Type: text/html\r\nETag: {tag}\r\n"), body.as_bytes())
        }
    }
}

/// A strong tag stays for the application to compare: it is lost only where the route says so.
fn strong_tags_of_applications_stay(engine: &str) {
    let application = Application::start(guarded);
    let app = application.addr;
    let route = |path: &str, more: &str| {
        format!("[[proxy]]\npath = \"{path}\"\nto = \"http://{app}\"\n{more}\n")
    };
    let lines = route("/strong", "") + &route("/weak", "") + &route("/never", "compress = []");
    let lines = lines + &route("/always", "compress = [\"gzip\"]");
    let (server, _folder) = start(engine, &lines);
    for (path, coding, tag, status) in [
        ("/strong/a", None, "\"v1\"", 204),
        ("/weak/a", Some("br"), "W/\"v1\"", 412),
        ("/never/a", None, "W/\"v1\"", 412),
        ("/always/a", Some("gzip"), "W/\"v1\"", 412),
    ] {
        let got = ask(&server, "GET", path, "Accept-Encoding: gzip, br\r\n", "");
        let said = got.fields.get("content-encoding").map(String::as_str);
        assert_eq!((said, &*got.fields["etag"]), (coding, tag), "{engine} {path}");
        assert_eq!(got.fields.contains_key("vary"), coding.is_some(), "{engine} {path}");
        let put = ask(&server, "PUT", path, &format!("If-Match: {tag}\r\n"), "new");
        assert_eq!(put.status, status, "{engine} {path}");
    }
}

/// A size beyond what sockets hold.
const BIG_BYTES: usize = 24 << 20;

fn big(_: &str, _: &[u8]) -> Vec<u8> {
    said("200 OK", "Content-Type: application/x-big\r\n", &vec![b'x'; BIG_BYTES])
}

fn a_slow_client_keeps_no_application_busy(engine: &str) {
    let application = Application::start(big);
    let app = application.addr;
    let lines = format!(
        "timeouts.send_window = \"1h\"\n[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\n\
         in_flight = 1\nqueue.time = \"5m\"\nbuffer_bytes = \"32MiB\""
    );
    let (server, _folder) = start(engine, &lines);
    let mut client = server.connect();
    client.write_all(b"GET /app HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // the client takes nothing, and the application has sent everything
    assert!(soon(PATIENCE, || application.done.load(SeqCst) == 1), "{engine}");
    // so its place is free for another request
    assert_eq!(ask(&server, "GET", "/app", "", "").body.len(), BIG_BYTES, "{engine}");
    let got = received(&mut BufReader::new(client), "GET");
    assert!(got.body.len() == BIG_BYTES && got.body.iter().all(|&byte| byte == b'x'), "{engine}");
}

/// An application that takes its own address for the public one, with its paths below `/v2`.
fn elsewhere(head: &str, _: &[u8]) -> Vec<u8> {
    let target = head.split(' ').nth(1).unwrap();
    let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap();
    let fields = match target {
        "/v2/whole" => format!("Location: http://{host}/v2/there?a=/v2\r\n"),
        "/v2/path" => "Location: /v2/there#x\r\n".to_owned(),
        "/v2/refresh" => format!("Refresh: 5; url=http://{host}/v2/there\r\n"),
        "/v2/cookies" => format!(
            "Set-Cookie: a=1; Path=/v2/cart; HttpOnly\r\nSet-Cookie: b=2; Domain={}; Secure\r\n\
             Set-Cookie: c=3; path=/v2\r\n",
            host.split(':').next().unwrap()
        ),
        "/v2/other" => "Location: https://login.example/v2/there\r\n".to_owned(),
        _ => panic!("{target}"),
    };
    said("302 Found", &fields, b"")
}

fn addresses_of_applications_lead_back_here(engine: &str) {
    let application = Application::start(elsewhere);
    let app = application.addr;
    let route = |more: &str| {
        format!(
            "[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\nstrip = \"/app\"\nprefix = \"/v2\"\n\
             host = \"upstream\"\n{more}"
        )
    };
    let own = app.ip();
    let there = format!("http://{app}/v2/there");
    for (redirects, told) in [
        (
            "",
            [
                ("/app/whole", "location", "/app/there?a=/v2".to_owned()),
                ("/app/path", "location", "/app/there#x".to_owned()),
                ("/app/refresh", "refresh", "5; url=/app/there".to_owned()),
                (
                    "/app/cookies",
                    "set-cookie",
                    "a=1; Path=/app/cart; HttpOnly, b=2; Secure, c=3; Path=/app".to_owned(),
                ),
                ("/app/other", "location", "https://login.example/v2/there".to_owned()),
            ],
        ),
        (
            "redirects = \"keep\"",
            [
                ("/app/whole", "location", format!("{there}?a=/v2")),
                ("/app/path", "location", "/v2/there#x".to_owned()),
                ("/app/refresh", "refresh", format!("5; url={there}")),
                (
                    "/app/cookies",
                    "set-cookie",
                    format!(
                        "a=1; Path=/v2/cart; HttpOnly, b=2; Domain={own}; Secure, c=3; path=/v2"
                    ),
                ),
                ("/app/other", "location", "https://login.example/v2/there".to_owned()),
            ],
        ),
    ] {
        let (server, _folder) = start(engine, &route(redirects));
        for (path, field, value) in told {
            let got = ask(&server, "GET", path, "", "");
            assert_eq!((got.status, &got.fields[field]), (302, &value), "{engine} {path}");
        }
    }
    // and so do those that name the host that the application gets
    let named = route("").replace("\"upstream\"", "\"app.internal\"");
    let (server, _folder) = start(engine, &named);
    let cookies = "a=1; Path=/app/cart; HttpOnly, b=2; Secure, c=3; Path=/app";
    for (path, field, value) in [
        ("/app/whole", "location", "/app/there?a=/v2"),
        ("/app/refresh", "refresh", "5; url=/app/there"),
        ("/app/cookies", "set-cookie", cookies),
    ] {
        let got = ask(&server, "GET", path, "", "");
        assert_eq!((got.status, &*got.fields[field]), (302, value), "{engine} {path}");
    }
}

/// An application that puts the stripped prefix, which it learns from a field, before its addresses.
fn prefixed(head: &str, _: &[u8]) -> Vec<u8> {
    let prefix = head.lines().find_map(|line| line.strip_prefix("X-Forwarded-Prefix: ")).unwrap();
    let fields = format!("Location: {prefix}/there\r\nSet-Cookie: a=1; Path={prefix}\r\n");
    said("302 Found", &fields, b"")
}

fn what_an_application_has_prefixed_itself_is_left_alone(engine: &str) {
    let application = Application::start(prefixed);
    let app = application.addr;
    let route = format!(
        "trusted_proxies = [\"127.0.0.0/8\"]\n[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\nstrip = \"/app\"\n"
    );
    let (server, _folder) = start(engine, &route);
    for (says, prefix) in [("", "/app"), ("X-Forwarded-Prefix: /outer\r\n", "/outer/app")] {
        let got = ask(&server, "GET", "/app/x", says, "");
        assert_eq!(got.fields["location"], format!("{prefix}/there"), "{engine}");
        assert_eq!(got.fields["set-cookie"], format!("a=1; Path={prefix}"), "{engine}");
    }
}

fn echo_head(head: &str, _: &[u8]) -> Vec<u8> {
    said("200 OK", "", head.as_bytes())
}

/// Statements of a trusted proxy about the client go on to the application, with what this server knows;
/// those of others do not.
fn applications_are_told_of_clients_by_those_who_are_trusted(engine: &str) {
    let application = Application::start(echo_head);
    let app = application.addr;
    let route = format!(
        "[[proxy]]\npath = \"/app\"\nto = \"http://{app}\"\nset = {{ X-Environment = \"test\" }}\n\
         remove = [\"Authorization\"]\n"
    );
    let says = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Proto: http, https\r\n\
                X-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 443\r\n\
                Forwarded: for=192.0.2.7;proto=https\r\nX-Real-IP: 192.0.2.66\r\n\
                X-Request-Id: its-name\r\nAuthorization: Basic eA==\r\nX-Environment: theirs\r\n\
                X_Forwarded_For: 6.6.6.6\r\nKeep-Alive: 5\r\nProxy-Authorization: x\r\nTE: gzip\r\n";
    let told = |trusts: &str| {
        let (server, _folder) = start(engine, &format!("{trusts}{route}"));
        let got = ask(&server, "GET", "/app/x?y", says, "");
        let proto = if server.is_sealed() { "https" } else { "http" };
        (String::from_utf8(got.body).unwrap(), proto)
    };
    let values = |head: &str, name: &str| -> Vec<String> {
        let fields = head.lines().filter_map(|line| line.split_once(": "));
        let fields = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.to_owned()).collect()
    };
    let (trusted, ..) = told("trusted_proxies = [\"127.0.0.0/8\"]\n");
    for (name, value) in [
        ("X-Forwarded-For", "192.0.2.7, 127.0.0.1"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "shop.example"),
        ("X-Forwarded-Port", "443"),
        ("X-Real-IP", "192.0.2.7"),
        ("X-Request-Id", "its-name"),
    ] {
        assert_eq!(values(&trusted, name), [value], "{engine} {trusted}");
    }
    // the other family does not count
    assert!(values(&trusted, "Forwarded").is_empty(), "{engine} {trusted}");
    let (strange, proto) = told("");
    // the client's, which has asked for "a"
    let port = if proto == "https" { "443" } else { "80" };
    for (name, value) in [
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", proto),
        ("X-Forwarded-Host", "a"),
        ("X-Forwarded-Port", port),
        ("X-Real-IP", "127.0.0.1"),
    ] {
        assert_eq!(values(&strange, name), [value], "{engine} {strange}");
    }
    assert!(values(&strange, "Forwarded").is_empty() && !strange.contains("its-name"), "{strange}");
    assert_eq!(values(&strange, "X-Request-Id")[0].len(), 32, "{strange}");
    for head in [&trusted, &strange] {
        assert!(head.starts_with("GET /app/x?y HTTP/1.1\r\nHost: a\r\n"), "{engine} {head}");
        assert_eq!(values(head, "X-Environment"), ["test"], "{engine} {head}");
        for name in ["Authorization", "Keep-Alive", "Proxy-Authorization", "TE", "X_Forwarded_For"]
        {
            assert!(values(head, name).is_empty(), "{engine} {name}: {head}");
        }
    }
}

/// Balancing among several applications: by hash, and with few requests at first for one that is back.
#[test]
fn requests_of_one_kind_come_to_one_application_and_one_that_is_back_gets_few() {
    fn says(_: &str, _: &[u8]) -> Vec<u8> {
        said("200 OK", "", b"ok")
    }
    let (one, other) = (Application::start(says), Application::start(says));
    let to = format!("to = [\"http://{}\", \"http://{}\"]\n", one.addr, other.addr);
    let heads = || [one.heads(), other.heads()];
    let asked = |server: &Server, path: &str, fields: &str| {
        assert_eq!(ask(server, "GET", path, fields, "").status, 200);
    };
    // by URL, and by cookie: equal requests reach the same application, and both have some
    let lines = format!(
        "[[proxy]]\npath = \"/url\"\n{to}balance = \"hash\"\nhash = \"url\"\n\
         [[proxy]]\npath = \"/cookie\"\n{to}balance = \"hash\"\nhash = \"cookie=user\"\n"
    );
    let (server, _folder) = start("event", &lines);
    for round in 0..3 {
        for number in 0..40 {
            asked(&server, &format!("/url/{number}"), "");
            asked(
                &server,
                &format!("/cookie/{number}/{round}"),
                &format!("Cookie: a=b; user={number}\r\n"),
            );
        }
    }
    for (kind, parts) in [("/url/", 3), ("/cookie/", 3)] {
        let of = |heads: &[String]| -> HashMap<String, usize> {
            let mut found = HashMap::new();
            let heads = heads.iter().filter_map(|head| head.strip_prefix(&format!("GET {kind}")));
            for rest in heads {
                let number = rest.split(['/', ' ']).next().unwrap().to_owned();
                *found.entry(number).or_default() += 1;
            }
            found
        };
        let all = one.heads.lock().unwrap().clone();
        let first = of(&all);
        let second = of(&other.heads.lock().unwrap().clone());
        assert_eq!(first.len() + second.len(), 40, "{kind}: {first:?} {second:?}");
        assert!(first.values().chain(second.values()).all(|count| *count == parts));
        assert!(first.len() >= 5 && second.len() >= 5, "{kind}: {first:?}");
    }
    drop((server, heads()));
    // an application that is back gets its share step by step
    for balance in ["round-robin", "least", "two-choices"] {
        let lines = format!(
            "[[proxy]]\npath = \"/app\"\n{to}balance = \"{balance}\"\nslow_start = \"1h\"\n"
        );
        let (server, _folder) = start("event", &lines);
        let share = || {
            for number in 0..60 {
                asked(&server, &format!("/app/{number}"), "");
            }
            let [one, other] = heads();
            assert_eq!(one.len() + other.len(), 60, "{balance}");
            other.len()
        };
        assert!(share() >= 10, "{balance}: both are well");
        let command = |what: &str| {
            let mut command = Command::new(binary());
            let label = other.addr.to_string();
            command.args(["upstream", what, &label, "-c"]).arg(server.file());
            assert!(command.output().unwrap().status.success(), "{what}");
        };
        command("drain");
        assert_eq!(share(), 0, "{balance}");
        command("resume");
        assert!(share() <= 10, "{balance}: it is given everything at once");
    }
}
