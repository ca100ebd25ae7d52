//! Classes and the limits of rules, with the real program on each engine: what a client gets, and
//! whether the ledger adds up.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::client::Client;
use forebay_tests::faults::crowd::connect_from;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options, Server, has_thread_each};
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

const POLICY: &str = r#"
[[work]]
path = "/work"
[[work]]
path = "/long"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
share = "5%"
[[rule]]
name = "paid"
cookie = "tier=gold"
class = "gold"
[[rule]]
name = "no access"
path = "*noaccess*"
action = "reset"
[[rule]]
name = "closed"
path = "/closed*"
action = "reject"
[[rule]]
name = "few"
path = "/few*"
requests = { rate = "2/m", burst = 2 }
[[rule]]
name = "few each"
path = "/each*"
requests = { rate = "1/m", burst = 1, per = "client" }
[[rule]]
name = "in turn"
path = "/turn*"
requests = { rate = "20/s", burst = 1, over = "queue", deadline = "180ms" }
[[rule]]
name = "in turn, but not today"
path = "/wait*"
requests = { rate = "1/h", burst = 1, over = "queue", deadline = "60s" }
[[rule]]
name = "one at a time"
path = "/work*"
in_flight = { most = 1 }
"#;

fn serve(folder: &Folder, engine: &str) -> WatchedServer {
    serve_with(folder, engine, "")
}

/// Starts a server with this line before all sections.
fn serve_with(folder: &Folder, engine: &str, line: &str) -> WatchedServer {
    folder.write("site/index.html", "index");
    for name in ["few", "each", "turn", "wait", "closed"] {
        folder.write(&format!("site/{name}"), name);
    }
    WatchedServer::with(
        Options::new(folder.join("site")).engine(engine).config(line).config(POLICY),
    )
}

/// A counter of the ledger for a class.
fn class(served: &WatchedServer, what: &str, class: &str) -> u64 {
    served.metric(&format!("forebay_class_{what}{{class=\"{class}\"}}"))
}

fn refused(served: &WatchedServer, reason: &str) -> u64 {
    let labels = format!("class=\"bulk\",place=\"request\",reason=\"{reason}\"");
    served.metric(&format!("forebay_class_refused_total{{{labels}}}"))
}

#[test]
fn a_limit_refuses_and_says_when_to_come_again_and_the_connection_goes_on() {
    for engine in ENGINES {
        let folder = Folder::new();
        let served = serve(&folder, engine);
        let mut client = served.client();
        for expected in [200, 200, 503] {
            let answer = client.get("/few").unwrap();
            assert_eq!(answer.status, expected, "{engine}");
            let again: Option<u64> = answer.field("Retry-After").map(|text| text.parse().unwrap());
            assert_eq!(again.is_some_and(|s| (1..=31).contains(&s)), expected == 503, "{again:?}");
        }
        assert_eq!(client.get("/each").unwrap().status, 200, "{engine}");
        assert_eq!(client.get("/each?again").unwrap().status, 429, "{engine}");
        assert_eq!(client.get("/closed").unwrap().status, 403, "{engine}");
        assert_eq!(client.get("/").unwrap().status, 200, "{engine}");
        assert_eq!([refused(&served, "requests"), refused(&served, "action")], [2, 1], "{engine}");
    }
}

#[test]
fn a_reset_is_a_reset_whatever_the_path_looks_like() {
    for engine in ENGINES {
        let folder = Folder::new();
        let served = serve(&folder, engine);
        for path in ["/noaccess", "/a/%6eoaccess", "/a//./noaccess.html"] {
            let mut stream = served.connect();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let end = stream.read(&mut [0; 100]);
            let kind = end.unwrap_err().kind();
            assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "{engine} {path}");
        }
    }
}

#[test]
fn requests_wait_for_their_turn_as_long_as_the_deadline_allows() {
    for engine in ENGINES {
        let folder = Folder::new();
        let served = serve(&folder, engine);
        served.client().get("/").unwrap();
        let mut clients: Vec<Client> = (0..8).map(|_| served.client()).collect();
        let began = Instant::now();
        for client in &mut clients {
            assert!(client.ask("/turn"));
        }
        let statuses: Vec<u16> = clients.iter_mut().map(|c| c.answer().unwrap().status).collect();
        let served_ones = statuses.iter().filter(|status| **status == 200).count();
        // one at once, and one for each 50 ms until 180 ms; on a slow machine that asks late, more
        assert!(served_ones >= 4, "{engine}: {statuses:?}");
        assert!(began.elapsed() >= Duration::from_millis(140), "{engine}");
        assert_eq!(refused(&served, "queue"), 8 - served_ones as u64, "{engine}");
        // here the second turn would come in an hour, which is too late
        let mut client = served.client();
        let statuses = [(); 3].map(|()| client.get("/wait").unwrap().status);
        assert_eq!(statuses, [200, 503, 503], "{engine}");
        assert_eq!(refused(&served, "queue"), 8 - served_ones as u64 + 2, "{engine}");
    }
}

#[test]
fn a_count_comes_back_however_a_request_ends() {
    for engine in ENGINES {
        let folder = Folder::new();
        let served = serve(&folder, engine);
        // the request is in flight until its body has come
        let mut one = served.client();
        let head = "GET /work HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
        one.stream().write_all(head.as_bytes()).unwrap();
        assert!(soon(PATIENCE, || class(&served, "in_flight", "bulk") == 1), "{engine}");
        assert_eq!(served.client().get("/work").unwrap().status, 503, "{engine}");
        one.stream().write_all(b"hello").unwrap();
        assert_eq!(one.answer().unwrap().status, 200, "{engine}");
        // the server knows a moment after the client
        assert!(soon(PATIENCE, || class(&served, "in_flight", "bulk") == 0), "{engine}");
        // a client that leaves without waiting
        let asked = || class(&served, "requests_total", "bulk");
        let before = asked();
        let mut gone = served.client();
        assert!(gone.ask("/work?cpu=200ms"));
        assert!(soon(PATIENCE, || asked() > before), "{engine}");
        drop(gone);
        let is_free = || served.client().get("/work").unwrap().status == 200;
        assert!(soon(PATIENCE, is_free), "{engine}");
        assert!(soon(PATIENCE, || class(&served, "in_flight", "bulk") == 0), "{engine}");
    }
}

/// The counts of the load generator agree with the server's, while more work comes than can be done in
/// time.
#[test]
fn the_ledger_adds_up_with_what_clients_have_counted() {
    for engine in ENGINES {
        let folder = Folder::new();
        let served = serve_with(&folder, engine, "timeouts.job = \"200ms\"");
        let url = format!("http://{}/", served.addr());
        // several times what all cores can do
        let cores = available_parallelism().map_or(1, NonZero::get);
        let long = format!("long:url=/long?cpu=300ms,rate={}/s", 12 * cores);
        let groups = [
            "gold:url=/,rate=300/s,header=Cookie: tier=gold",
            "limited:url=/few,rate=200/s",
            "work:url=/work?cpu=3ms,rate=100/s",
            &*long,
        ];
        let mut load = Command::new(binary());
        load.arg("load").arg(&url).args(["-d", "1s", "--drain", "60s", "--json", "-"]);
        for group in groups {
            let (name, rest) = group.split_once(":url=").unwrap();
            let url = url.trim_end_matches('/');
            load.arg("-g").arg(format!("{name}:url={url}{rest},timeout=60s,connect_timeout=60s"));
        }
        let output = load.output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{engine}: {}", String::from_utf8_lossy(&output.stderr)));
        let mut good = std::collections::BTreeMap::<&str, u64>::new();
        let mut answers = 0;
        for group in report["groups"].as_array().unwrap() {
            let name = if group["name"] == "gold" { "gold" } else { "bulk" };
            *good.entry(name).or_default() += group["statuses"]["200"].as_u64().unwrap_or(0);
            answers += group["answered"].as_u64().unwrap();
        }
        let mut offered = 0;
        for (name, good) in good {
            assert!(soon(PATIENCE, || class(&served, "in_flight", name) == 0), "{engine} {name}");
            let ends = ["answered_total", "cut_total"].map(|what| class(&served, what, name));
            // a machine that computes for others may do none of the work in time
            assert!(good > 0 || name == "bulk", "{engine} {name}");
            assert!(ends == [good, 0], "{engine} {name}: {ends:?}, {good}");
            offered += class(&served, "requests_total", name);
        }
        // a client that finds all places taken is answered before its request is looked at
        let full = ["limit", "client_limit"].map(|reason| {
            served.metric(&format!("forebay_connections_refused_total{{reason=\"{reason}\"}}"))
        });
        // and a reset may take that answer from it
        let most = offered + full.iter().sum::<u64>();
        assert!((offered..=most).contains(&answers), "{engine}: {offered} {answers} {full:?}");
        assert!(refused(&served, "requests") > 0, "{engine}");
        // a request that finds no place cannot wait too long either
        assert!(refused(&served, "expired") + most - offered > 0, "{engine}");
    }
}

/// Gold is found by its address alone; there is one thread, which its client keeps although it is the
/// only one.
const BY_ADDRESS: &str = r#"
timeouts.head = "1h"
keep_alive.law = "constant"
answering = 1
accept_ahead = 64
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
[[rule]]
name = "gold"
client = "127.0.2.1"
class = "gold"
"#;

#[test]
fn gold_connections_come_before_those_that_wait_for_a_thread_longer() {
    for engine in ENGINES.into_iter().filter(|engine| has_thread_each(engine)) {
        let folder = Folder::new();
        folder.write("site/index.html", "index");
        let options = Options::new(folder.join("site")).engine(engine).config(BY_ADDRESS);
        let server = Server::start(&Options { workers: 1, log: true, ..options });
        let from = |source: &str| {
            let stream = connect_from(source.parse().unwrap(), server.addr()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        };
        // a client that has been answered once and stays has the thread
        let mut held = Client::over(from("127.0.3.99"));
        assert_eq!(held.get("/?held").unwrap().status, 200, "{engine}");
        let ask = |source: &str, name: &str| {
            let mut stream = from(source);
            write!(stream, "GET /?{name} HTTP/1.0\r\n\r\n").unwrap();
            stream
        };
        let bulk = (1..=12).map(|client| ask(&format!("127.0.3.{client}"), "bulk"));
        let mut waiting: Vec<_> = bulk.collect();
        waiting.extend((0..3).map(|_| ask("127.0.2.1", "gold")));
        server.wait_for_delivery();
        drop(held);
        for mut stream in waiting {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{engine}");
        }
        let mut lines = String::new();
        assert!(soon(PATIENCE, || {
            lines = server.stdout();
            lines.lines().filter(|line| line.contains("/?")).count() == 16
        }));
        let names = lines.lines().filter_map(|line| line.split_once("/?")?.1.get(..4));
        let expected = [["held"].as_slice(), &["gold"; 3], &["bulk"; 12]].concat();
        assert_eq!(names.collect::<Vec<_>>(), expected, "{engine}");
    }
}

/// Two classes by path: one whose connections are kept for ten minutes, whatever the load, and one whose
/// idle ones are cut.
const KEPT: &str = r#"
timeouts.idle = "1h"
keep_alive.announce = true
[[class]]
name = "gold"
priority = 0
keep_alive = { idle = "10m", law = "constant" }
[[class]]
name = "bulk"
priority = 1
keep_alive.idle = "900ms"
[[rule]]
name = "gold"
path = "/gold*"
class = "gold"
"#;

#[test]
fn idle_connections_are_kept_as_long_as_their_class_says() {
    for engine in ENGINES {
        let folder = Folder::new();
        folder.write("site/index.html", "index");
        folder.write("site/gold", "gold");
        let served =
            WatchedServer::with(Options::new(folder.join("site")).engine(engine).config(KEPT))
                .settled();
        let timeout = |client: &mut Client, path: &str| {
            let answer = client.get(path).unwrap();
            assert_eq!(answer.status, 200, "{engine}");
            answer.field("keep-alive").map(str::to_owned)
        };
        let mut gold = served.client();
        assert_eq!(timeout(&mut gold, "/gold").as_deref(), Some("timeout=600"), "{engine}");
        // its last request decides; both come at once, because an idle connection would be cut between them
        let mut other = served.client();
        let two = ["/", "/gold"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        other.stream().write_all(two.concat().as_bytes()).unwrap();
        let [first, second] = [(); 2].map(|()| other.answer().unwrap());
        assert_eq!((first.status, second.status), (200, 200), "{engine}");
        assert_eq!(first.field("keep-alive"), None, "{engine}: less than a second");
        assert_eq!(second.field("keep-alive"), Some("timeout=600"), "{engine}");
        let mut bulk = served.client();
        assert_eq!(timeout(&mut bulk, "/"), None, "{engine}");
        let idle = || served.metric("forebay_timeouts_total{kind=\"idle\"}");
        assert!(soon(PATIENCE, || idle() == 1), "{engine}: {}", idle());
        assert!(bulk.is_closed(), "{engine}");
        for client in [&mut gold, &mut other] {
            assert_eq!(timeout(client, "/gold").as_deref(), Some("timeout=600"), "{engine}");
        }
        // while the server runs
        let set = Command::new(binary())
            .args([
                "policy",
                "set",
                "bulk.keep_alive.idle=5m",
                "bulk.keep_alive.law=constant",
                "-c",
            ])
            .arg(served.file())
            .output()
            .unwrap();
        assert!(set.status.success(), "{engine}: {}", String::from_utf8_lossy(&set.stderr));
        let mut bulk = served.client();
        assert_eq!(timeout(&mut bulk, "/").as_deref(), Some("timeout=300"), "{engine}");
    }
}
