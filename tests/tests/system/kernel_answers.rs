//! Answers that the kernel gives in the server's place: the whole server with `gate_answers`. See `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::gate::CLASSES;
use super::net::{Net, SERVER4, SERVER6, Server, configure, is_root, metric, wait_for};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::engine_lines;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, is_full_matrix};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const ACCEPTED: &str = "forebay_connections_accepted_total";
const OK: &str = "forebay_gate_served_requests_total{outcome=\"ok\"}";
const NOT_MODIFIED: &str = "forebay_gate_served_requests_total{outcome=\"not_modified\"}";
const ADOPTED: &str = "forebay_gate_served_segments_total{outcome=\"adopted\"}";
const LOST: &str = "forebay_gate_served_segments_total{outcome=\"lost\"}";

/// What clients send besides the request line and `Host`.
const CLIENTS: [(&str, &str); 4] = [
    (
        "Chromium",
        "Connection: keep-alive\r\nsec-ch-ua: \"Chromium\";v=\"140\"\r\nsec-ch-ua-mobile: ?0\r\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0.0.0\r\nAccept: text/css,*/*;q=0.1\r\n\
         Sec-Fetch-Site: same-origin\r\nReferer: http://a/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
         Accept-Language: de-DE,de;q=0.9,en;q=0.8\r\nCookie: session=abc; theme=dark\r\n",
    ),
    ("curl", "User-Agent: curl/8.14.1\r\nAccept: */*\r\n"),
    (
        "wget",
        "User-Agent: Wget/1.25.0\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: Keep-Alive\r\n",
    ),
    ("a health checker", "User-Agent: check/1\r\nConnection: close\r\n"),
];

fn engines() -> Vec<&'static str> {
    let all = ENGINES.iter().copied();
    all.filter(|engine| is_full_matrix() || ["event", "pool"].contains(engine)).collect()
}

fn answering(engine: &str, more: &str) -> String {
    format!(
        "user = \"nobody\"\ngate = \"full\"\ngate_rules = \"first_request\"\ngate_answers = true\n\
         limits.connections_per_client = 100\n{}{more}",
        engine_lines(engine)
    )
}

/// Replaces a file by one that was last changed long ago, so that its tag is strong.
fn write(folder: &Folder, name: &str, text: &str) {
    replace(&folder.join("root"), name, text);
}

fn replace(root: &Path, name: &str, text: &str) {
    let new = root.join(".new");
    fs::write(&new, text).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(&new).unwrap().set_modified(long_ago).unwrap();
    fs::rename(new, root.join(name)).unwrap();
}

fn start(net: &Net, lines: &str) -> Server {
    let server = Server::start(net, lines);
    for name in ["a.css", "b.css", "gold"] {
        write(&server.folder, name, &format!("{name}: {}", "text ".repeat(40)));
    }
    server
}

fn connect(ip: &str) -> TcpStream {
    let address = SocketAddr::new(ip.parse().unwrap(), 80);
    let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request and reads its answer: the head without its date, and the body.
fn exchange(stream: &mut TcpStream, path: &str, fields: &str) -> (String, String) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut read = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
        read.extend(&some[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            let lines = head.lines().filter(|line| !line.starts_with("Date: "));
            return (lines.collect::<Vec<_>>().join("\n"), body.to_owned());
        }
    }
}

/// The same by a connection of its own.
fn ask(ip: &str, path: &str, fields: &str) -> (String, String) {
    exchange(&mut connect(ip), path, fields)
}

/// Asks until the kernel answers.
fn learn(net: &Net, ip: &'static str, path: &'static str) {
    let before = metric(net, OK);
    let deadline = Instant::now() + PATIENCE;
    while metric(net, OK) == before {
        assert!(Instant::now() < deadline, "{path} is not learned");
        net.client(move || ask(ip, path, ""));
    }
}

#[test]
fn what_is_asked_for_again_is_answered_without_a_connection() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        for classes in ["", CLASSES] {
            let net = Net::new();
            let server = start(&net, &answering(engine, classes));
            let first = net.client(|| CLIENTS.map(|(_, fields)| ask(SERVER4, "/a.css", fields)));
            learn(&net, SERVER4, "/a.css");
            let (accepted, answered) = (metric(&net, ACCEPTED), metric(&net, OK));
            for _ in 0..5 {
                let again =
                    net.client(|| CLIENTS.map(|(_, fields)| ask(SERVER4, "/a.css", fields)));
                for (at, (who, _)) in CLIENTS.iter().enumerate() {
                    assert_eq!(again[at], first[at], "{engine} {who}");
                }
            }
            assert_eq!(metric(&net, ACCEPTED), accepted, "{engine}: {}", server.said());
            assert_eq!(metric(&net, OK), answered + 20);
            // a tag, and a connection that is kept, whose last request is the server's
            let tag = first[0].0.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
            let field = format!("If-None-Match: {tag}\r\n");
            net.client(move || {
                let mut stream = connect(SERVER4);
                for _ in 0..3 {
                    let (head, body) = exchange(&mut stream, "/a.css", &field);
                    assert!(head.starts_with("HTTP/1.1 304 ") && body.is_empty(), "{head}");
                }
                let (head, body) = exchange(&mut stream, "/b.css", "");
                assert!(head.starts_with("HTTP/1.1 200 ") && body.starts_with("b.css"), "{head}");
            });
            assert_eq!(metric(&net, NOT_MODIFIED), 3);
            assert_eq!((metric(&net, ADOPTED), metric(&net, LOST)), (1, 0), "{engine}");
            let said = net.server({
                let file = server.file();
                move || forebay(&file, &["answers"])
            });
            assert!(said.contains(" a/a.css\n"), "{said}");
        }
    }
}

/// Runs a command of the program, and returns what it prints.
fn forebay(file: &Path, words: &[&str]) -> String {
    let mut command = std::process::Command::new(forebay_tests::server::binary());
    let output = command.args(words).arg("-c").arg(file).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Who writes a file and has seen what it has written never sees what was there before.
#[test]
fn nothing_of_before_is_answered_once_what_was_written_was_seen() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let server = start(&net, &answering("event", ""));
    learn(&net, SERVER4, "/a.css");
    let root = server.folder.join("root");
    let changes: u64 = if is_full_matrix() { 2000 } else { 200 };
    net.client(move || {
        for change in 0..changes {
            let text = format!("change {change}");
            replace(&root, "a.css", &text);
            assert!(soon(PATIENCE, || ask(SERVER4, "/a.css", "").1 == text));
            for _ in 0..10 {
                assert_eq!(ask(SERVER4, "/a.css", "").1, text);
            }
        }
    });
    // the kernel took part
    assert!(metric(&net, OK) > changes, "{}", server.said());
    let root = server.folder.join("root");
    fs::remove_file(root.join("a.css")).unwrap();
    net.client(|| {
        assert!(soon(PATIENCE, || ask(SERVER4, "/a.css", "").0.starts_with("HTTP/1.1 404 ")));
        assert!(ask(SERVER4, "/a.css", "").0.starts_with("HTTP/1.1 404 "));
    });
}

#[test]
fn what_the_kernel_answers_is_counted_and_logged() {
    if !is_root() {
        return;
    }
    for format in ["combined", "json"] {
        let net = Net::new();
        let log =
            format!("log.access = \"FOLDER/log/access\"\nlog.format = \"{format}\"\n{CLASSES}");
        let prepared = answering("event", &log);
        let server = {
            // the server writes as another user
            let folder = prepare_log();
            start(&net, &prepared.replace("FOLDER/log", &folder))
        };
        learn(&net, SERVER6, "/gold");
        let before = metric(&net, OK);
        net.client(|| {
            for _ in 0..10 {
                ask(SERVER6, "/gold", "User-Agent: of-the-kernel\r\nReferer: http://b/\r\n");
            }
        });
        assert_eq!(metric(&net, OK), before + 10);
        let text = fs::read_to_string(server.file()).unwrap();
        let path = text.split("log.access = \"").nth(1).unwrap().split('"').next().unwrap();
        let path = Path::new(path).to_owned();
        let of_kernel = || -> Vec<String> {
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.lines().filter(|line| line.contains("of-the-kernel")).map(str::to_owned).collect()
        };
        assert!(soon(PATIENCE, || of_kernel().len() == 10), "{}", server.said());
        for line in &of_kernel() {
            assert!(line.contains("fd99::2") && line.contains("/gold"), "{line}");
            assert!(line.contains("http://b/") && line.contains("200"), "{line}");
            assert_eq!(line.contains("\"class\":\"gold\""), format == "json", "{line}");
        }
        // whoever answers, a request is one response and one of its class
        let responses = metric(&net, "forebay_responses_total{class=\"2xx\"}");
        let logged = || fs::read_to_string(&path).unwrap().lines().count() as u64;
        assert!(soon(PATIENCE, || logged() == responses), "{} of {responses}", logged());
        wait_for(&net, "forebay_class_answered_total{class=\"gold\"}", responses);
        wait_for(&net, "forebay_class_in_flight{class=\"gold\"}", 0);
        let _ = fs::remove_dir_all(path.parent().unwrap());
    }
}

/// A directory that anybody may write to.
fn prepare_log() -> String {
    use std::os::unix::fs::PermissionsExt;
    static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder =
        std::env::temp_dir().join(format!("forebay-answers-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    folder.display().to_string()
}

#[test]
fn reloads_bans_and_upgrades_end_what_was_learned() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let lines = answering("event", "");
    let server = start(&net, &lines);
    learn(&net, SERVER4, "/a.css");
    // another field, from the reload on
    let changed = format!("{lines}[[header]]\nset = {{ \"X-A\" = \"b\" }}\n");
    configure(&server.folder, &changed);
    server.command(&["reload"]);
    let has_field = |answer: (String, String)| answer.0.contains("X-A: b");
    assert!(net.client(move || has_field(ask(SERVER4, "/a.css", ""))), "{}", server.said());
    learn(&net, SERVER4, "/a.css");
    assert!(net.client(move || has_field(ask(SERVER4, "/a.css", ""))));
    // whom it bans the server alone knows
    let file = server.file();
    net.server(move || forebay(&file, &["policy", "ban", "192.0.2.1"]));
    let before = metric(&net, OK);
    net.client(|| (0..5).for_each(|_| drop(ask(SERVER4, "/a.css", ""))));
    assert_eq!(metric(&net, OK), before);
    let file = server.file();
    net.server(move || forebay(&file, &["policy", "unban", "192.0.2.1"]));
    learn(&net, SERVER4, "/a.css");
    // a connection that the kernel has, through an upgrade
    let mut stream = net.client(|| {
        let mut stream = connect(SERVER4);
        exchange(&mut stream, "/a.css", "");
        stream
    });
    let _successor = server.upgrade(&net);
    let (head, _) = net.client(move || exchange(&mut stream, "/b.css", ""));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    learn(&net, SERVER4, "/a.css");
    wait_for(&net, LOST, 0);
}
