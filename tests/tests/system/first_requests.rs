//! First requests that the kernel judges: the whole server with `gate_rules = "first_request"`. See `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::gate::CLASSES;
use super::net::{Net, SERVER4, SERVER6, Server, configure, is_root, metric, wait_for};
use forebay_tests::faults::soon;
use forebay_tests::server::engine_lines;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, is_full_matrix};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

const ACCEPTED: &str = "forebay_connections_accepted_total";

macro_rules! requests {
    ($outcome:literal) => {
        concat!("forebay_gate_requests_total{outcome=\"", $outcome, "\"}")
    };
}

/// The engines that are tried: all of them in the full matrix.
fn engines() -> Vec<&'static str> {
    let all = ENGINES.iter().copied();
    all.filter(|engine| is_full_matrix() || ["event", "pool"].contains(engine)).collect()
}

fn judging(engine: &str, rules: &str) -> String {
    format!(
        "user = \"nobody\"\ngate = \"full\"\ngate_rules = \"first_request\"\n\
         limits.connections_per_client = 100\n{}{CLASSES}{rules}",
        engine_lines(engine)
    )
}

/// A rule for a path.
fn rule(path: &str, says: &str) -> String {
    format!("[[rule]]\nname = \"to {path}\"\npath = \"{path}\"\n{says}\n")
}

fn start(net: &Net, lines: &str) -> Server {
    let server = Server::start(net, lines);
    for name in ["yes", "slow"] {
        server.folder.write(&format!("root/{name}"), name);
    }
    server
}

fn connect(ip: &str) -> io::Result<TcpStream> {
    let address = SocketAddr::new(ip.parse().unwrap(), 80);
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The answer, until the server closes.
fn ask(ip: &str, head: &str) -> io::Result<String> {
    let mut stream = connect(ip)?;
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

/// The status of each of this number of requests.
fn statuses(net: &Net, ip: &'static str, path: &'static str, count: usize) -> Vec<u16> {
    net.client(move || {
        let status = |answer: String| answer[9..12].parse().unwrap();
        (0..count).map(|_| status(ask(ip, &get(path)).unwrap())).collect()
    })
}

fn served(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 200).count()
}

#[test]
fn what_rules_refuse_by_url_costs_no_accept() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        let net = Net::new();
        let rules = [
            rule("/no/*", "action = \"reject\""),
            rule("/reset", "action = \"reset\""),
            rule("/slow", "requests = { rate = \"1/h\", burst = 5 }"),
        ];
        let server = start(&net, &judging(engine, &rules.concat()));
        for ip in [SERVER4, SERVER6] {
            assert_eq!(statuses(&net, ip, "/no/a", 50), [403; 50], "{engine}");
            let error = net.client(move || ask(ip, &get("/reset"))).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{engine}");
        }
        assert_eq!(metric(&net, ACCEPTED), 0, "{engine}");
        assert_eq!(metric(&net, requests!("answered")), 100);
        assert_eq!(
            metric(&net, "forebay_gate_rule_total{rule=\"to /no/*\",outcome=\"answered\"}"),
            100
        );
        // one connection: the server judges the requests behind the first one, from the same bucket
        let kept = net.client(|| {
            let mut stream = connect(SERVER4).unwrap();
            let mut statuses: Vec<u16> = Vec::new();
            for _ in 0..3 {
                stream.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                let mut answer = Vec::new();
                while !answer.ends_with(b"slow") {
                    let mut some = [0; 512];
                    let count = stream.read(&mut some).unwrap();
                    assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
                    answer.extend(&some[..count]);
                }
                statuses.push(String::from_utf8_lossy(&answer)[9..12].parse().unwrap());
            }
            statuses
        });
        assert_eq!(kept, [200; 3], "{engine}: {}", server.said());
        assert_eq!(served(&statuses(&net, SERVER6, "/slow", 6)), 2, "{engine}");
        assert_eq!(metric(&net, requests!("charged")), 3);
        wait_for(&net, ACCEPTED, 3);
        // others are served as usual, also by paths that the kernel cannot judge
        assert_eq!(statuses(&net, SERVER4, "/yes", 3), [200; 3], "{engine}");
        assert_eq!(statuses(&net, SERVER4, "/%79es", 3), [200; 3], "{engine}");
        assert_eq!(statuses(&net, SERVER4, "/no/%61", 3), [403; 3], "{engine}");
        wait_for(&net, requests!("left_to_server"), 6);
        wait_for(&net, ACCEPTED, 12);
        drop(server);
    }
}

/// Requests that user space refuses, the kernel refuses in the same words.
#[test]
fn an_error_of_the_kernel_is_one_that_clients_understand() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let rules = [
        rule("/told", "requests = { rate = \"20/m\", burst = 1, over = \"reject\", status = 429 }"),
        rule("/no", "action = \"reject\"\nstatus = 451"),
    ];
    let _server = start(&net, &judging("event", &rules.concat()));
    net.client(|| {
        ask(SERVER4, &get("/told")).unwrap();
        let answer = ask(SERVER4, &get("/told")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\nDate: "), "{answer}");
        assert!(answer.contains("\r\nRetry-After: 3\r\n"), "{answer}");
        let (head, content) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", content.len())), "{answer}");
        // with a body that is on its way, and one that closes its half at once
        for ip in [SERVER4, SERVER6] {
            let mut stream = connect(ip).unwrap();
            let head = "POST /no HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&[b'x'; 20_000]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 451 "), "{answer}");
        }
        // all that was begun is over
        let open = || {
            let text = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
            // connections that are not in TIME_WAIT
            text.lines().skip(1).filter(|line| line.split_whitespace().nth(3) != Some("06")).count()
        };
        assert!(soon(PATIENCE, || open() == 0));
    });
    assert_eq!(metric(&net, ACCEPTED), 1);
}

#[test]
fn buckets_go_on_through_reloads_and_upgrades() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        let net = Net::new();
        let slow = |over: &str| {
            let says = format!("requests = {{ rate = \"1/h\", burst = 6, over = \"{over}\" }}");
            judging(engine, &rule("/slow", &says))
        };
        let server = start(&net, &slow("reject"));
        assert_eq!(served(&statuses(&net, SERVER4, "/slow", 2)), 2);
        // a request that the server judges
        assert_eq!(served(&statuses(&net, SERVER4, "/%73low", 1)), 1);
        let first = server.upgrade(&net);
        assert_eq!(served(&statuses(&net, SERVER4, "/slow", 1)), 1, "{}", server.said());
        assert_eq!(served(&statuses(&net, SERVER4, "/slow", 5)), 2, "{}", server.said());
        // the server finds the same bucket empty
        assert_eq!(statuses(&net, SERVER4, "/%73low", 1), [503]);
        configure(&server.folder, &slow("reset"));
        server.command(&["reload"]);
        let is_reset = || {
            let answer = net.client(|| ask(SERVER4, &get("/slow")));
            answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
        };
        assert!(soon(PATIENCE, is_reset), "{engine}");
        drop(first);
    }
}

/// The number of times that a request is held.
const ROUNDS: usize = 3;

#[test]
fn too_many_at_once_are_refused_by_the_kernel() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        let net = Net::new();
        let rules = rule("/held", "in_flight = { most = 1 }");
        let proxy = "[[proxy]]\npath = \"/held\"\nto = \"http://127.0.0.1:9000\"\n";
        // an application that reports when it is asked, and answers when the test allows it
        let (tell, told) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel::<()>();
        let application = net.server(|| TcpListener::bind("127.0.0.1:9000").unwrap());
        let answering = thread::spawn(move || {
            for _ in 0..ROUNDS {
                let (mut stream, _) = application.accept().unwrap();
                assert!(stream.read(&mut [0; 2048]).unwrap() > 0);
                begin.send(()).unwrap();
                told.recv().unwrap();
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                stream.write_all(answer).unwrap();
            }
        });
        let server = start(&net, &judging(engine, &(rules + proxy)));
        for _ in 0..ROUNDS {
            let namespace = net.client.clone();
            let held = thread::spawn(move || {
                super::net::within(&namespace, || ask(SERVER4, &get("/held")).unwrap())
            });
            begun.recv_timeout(PATIENCE).unwrap();
            // the server refuses one, and says so to the kernel
            let answered = metric(&net, requests!("answered"));
            let refused = || {
                assert_eq!(statuses(&net, SERVER4, "/held", 3), [503; 3]);
                metric(&net, requests!("answered")) > answered
            };
            assert!(soon(PATIENCE, refused), "{engine}: {}", server.said());
            tell.send(()).unwrap();
            assert!(held.join().unwrap().ends_with("ok"), "{engine}");
        }
        answering.join().unwrap();
    }
}
