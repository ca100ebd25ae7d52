//! Classes through the stages of `isolated`: the class that receive has found orders the queues of the
//! stages behind it and holds in their rules, and the ledger adds up whatever happens to a process or a
//! client.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::isolated::{UNHURRIED, signal, stage};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::process::processor_time;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const POLICY: &str = r#"
helpers.niceness = 0
isolated.process = 1
isolated.respond = 1
[[work]]
path = "/work"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
[[rule]]
name = "paid"
cookie = "tier=gold"
class = "gold"
[[header]]
set = { "X-Class" = "$class" }
[[redirect]]
path = "/offer"
class = "gold"
to = "/thanks"
"#;

/// The number of requests at once that each take a thread of respond for a while.
const CROWD: usize = 24;

fn serve(folder: &Folder, more: &str) -> WatchedServer {
    folder.write("site/index.html", "index");
    let config = format!("{UNHURRIED}{more}{POLICY}");
    WatchedServer::with(Options::new(folder.join("site")).engine(ISOLATED).config(&config))
}

/// A connection on which this request was sent.
fn asked(served: &WatchedServer, target: &str, fields: &str) -> Client {
    let mut client = served.client();
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    client.stream().write_all(request.as_bytes()).unwrap();
    client
}

const GOLD: &str = "Cookie: tier=gold\r\n";

/// The counters of the ledger for a class.
fn ledger(served: &WatchedServer, class: &str) -> [u64; 3] {
    ["requests_total", "answered_total", "cut_total"]
        .map(|what| served.metric(&format!("forebay_class_{what}{{class=\"{class}\"}}")))
}

#[test]
fn the_first_class_passes_those_that_wait_in_respond() {
    for link in ["", "isolated.http2 = \"on\"\n"] {
        let folder = Folder::new();
        let served = serve(&folder, link);
        served.client().get("/work?cpu=1ms").unwrap();
        let mut crowd: Vec<_> = (0..CROWD).map(|_| asked(&served, "/work?cpu=50ms", "")).collect();
        assert!(soon(PATIENCE, || ledger(&served, "bulk")[0] > CROWD as u64), "all have come");
        let gold = asked(&served, "/work?cpu=1ms", GOLD).answer().unwrap();
        let before = ledger(&served, "bulk")[1];
        assert_eq!((gold.status, gold.field("X-Class")), (200, Some("gold")));
        // those that were at work, and those whose turn came before gold asked
        assert!(before < CROWD as u64 * 3 / 4, "{before} of {CROWD} were answered first: {link}");
        for client in &mut crowd {
            assert_eq!(client.answer().unwrap().status, 200);
        }
        let all = CROWD as u64 + 1;
        assert!(soon(PATIENCE, || ledger(&served, "bulk") == [all, all, 0]));
        assert!(soon(PATIENCE, || ledger(&served, "gold") == [1, 1, 0]));
    }
}

/// An application that takes far longer than an acknowledgement may, and the number of its requests.
fn slow_application() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, counted) = (client.unwrap(), Arc::clone(&counted));
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::<u8>::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    if client.read_exact(&mut byte).is_err() {
                        return;
                    }
                    head.push(byte[0]);
                }
                counted.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_secs(5));
                let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
                let _ = client.write_all(answer.as_bytes());
            });
        }
    });
    (addr, count)
}

#[test]
fn what_waits_for_its_turn_is_acknowledged_and_asked_once() {
    let folder = Folder::new();
    folder.write("site/index.html", "index");
    let (addr, count) = slow_application();
    let config = format!(
        "isolated.http2 = \"on\"\nisolated.acknowledge_floor = \"2s\"\n\
         isolated.acknowledge_ceiling = \"2s\"\n{POLICY}\
         [[proxy]]\npath = \"/app\"\nto = \"http://{addr}\"\n"
    );
    let options = Options::new(folder.join("site")).engine(ISOLATED).config(&config);
    let served = WatchedServer::with(options);
    assert_eq!(served.client().get("/app").unwrap().status, 200);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_class_holds_in_rules_of_all_stages_and_no_client_says_its_own() {
    let folder = Folder::new();
    let served = serve(&folder, "");
    let claim = "Forebay-Class: gold\r\nForebay_Class: gold\r\n";
    for (fields, class, offer) in [("", "bulk", 404), (GOLD, "gold", 301), (claim, "bulk", 404)] {
        let page = asked(&served, "/", fields).answer().unwrap();
        assert_eq!((page.status, page.field("X-Class")), (200, Some(class)), "{fields}");
        assert_eq!(asked(&served, "/offer", fields).answer().unwrap().status, offer, "{fields}");
    }
}

#[test]
fn requests_of_clients_that_have_left_leave_the_queues_of_stages() {
    let folder = Folder::new();
    let served = serve(&folder, "");
    served.client().get("/work?cpu=1ms").unwrap();
    let respond = stage(&served, "respond 1", 0);
    let before = processor_time(respond);
    let mut crowd: Vec<_> = (0..CROWD).map(|_| asked(&served, "/work?cpu=300ms", "")).collect();
    assert!(soon(PATIENCE, || ledger(&served, "bulk")[0] > CROWD as u64), "all have come");
    for client in &mut crowd {
        // a client that has only ended its sending direction waits for its answer
        set_socket_linger(client.stream(), Some(Duration::ZERO)).unwrap();
    }
    drop(crowd);
    let all = CROWD as u64 + 2;
    assert_eq!(served.client().get("/work?cpu=1ms").unwrap().status, 200);
    assert!(soon(PATIENCE, || ledger(&served, "bulk") == [all, 2, CROWD as u64]));
    // requests at work go on
    let worked = processor_time(respond) - before;
    assert!(worked < Duration::from_millis(CROWD as u64 * 300 / 2), "{worked:?}");
}

#[test]
fn the_ledger_adds_up_when_stages_crash() {
    let folder = Folder::new();
    let served = serve(&folder, "");
    let mut crowd: Vec<_> = (0..CROWD)
        .map(|at| asked(&served, "/work?cpu=20ms", if at % 2 == 0 { GOLD } else { "" }))
        .collect();
    for name in ["respond 1", "process 1"] {
        let pid = stage(&served, name, 0);
        signal(pid, Signal::KILL);
        stage(&served, name, pid);
    }
    for client in &mut crowd {
        assert_eq!(client.answer().unwrap().status, 200);
    }
    let half = CROWD as u64 / 2;
    for class in ["gold", "bulk"] {
        assert!(soon(PATIENCE, || ledger(&served, class) == [half, half, 0]), "{class}");
    }
}

/// What respond refuses, receive counts as refused by the agent, and the client learns no more than that.
#[test]
fn the_agent_refuses_where_work_waits() {
    let folder = Folder::new();
    let served = serve(&folder, "agent = \"on\"\n");
    served.client().get("/work?cpu=1ms").unwrap();
    let refused = |reason: &str| {
        let labels = format!("class=\"bulk\",place=\"request\",reason=\"{reason}\"");
        served.metric(&format!("forebay_class_refused_total{{{labels}}}"))
    };
    let mut crowd: Vec<_> = (0..40).map(|_| served.client()).collect();
    let floods = |crowd: &mut Vec<Client>| {
        for client in crowd.iter_mut() {
            assert!(client.ask("/work?cpu=100ms"));
        }
        let answers: Vec<_> = crowd.iter_mut().map(|client| client.answer().unwrap()).collect();
        for answer in &answers {
            assert!([200, 503].contains(&answer.status), "{}", answer.status);
            assert_eq!(answer.status == 503, answer.field("Retry-After").is_some());
            assert_eq!(answer.field("Forebay-Refused"), None);
        }
        refused("agent") > 0
    };
    assert!(soon(PATIENCE, || floods(&mut crowd)), "{}", served.metrics());
    // a hit is let through
    assert_eq!(served.client().get("/").unwrap().status, 200);
    let [offered, answered, cut] = ledger(&served, "bulk");
    assert_eq!(offered, answered + cut + refused("agent"), "{}", served.metrics());
}
