//! Rates that only the agent moves, and the kernel enforces: the whole server under a flood. See `net.rs`
//! for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::net::{Net, SERVER4, Server, is_root, metric, metrics, within};
use forebay_tests::faults::soon;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LEVEL: &str = "forebay_overload_level";
/// A long time, since the agent takes a while to lift what it has limited.
const LONG: Duration = Duration::from_secs(120);

/// Clients that ask again and again, each by a connection of its own, until the test ends them.
struct Flood {
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Flood {
    fn begin(net: &Net, clients: usize, path: &'static str) -> Flood {
        let ends = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (namespace, ends) = (net.client.clone(), Arc::clone(&ends));
            thread::spawn(move || {
                within(&namespace, move || {
                    while !ends.load(Relaxed) {
                        ask(path);
                    }
                });
            })
        };
        Flood { clients: (0..clients).map(client).collect(), ends }
    }

    fn end(self) {
        self.ends.store(true, Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

/// Asks for a path; the answer does not matter. A client without one for a second gives up.
fn ask(path: &str) -> Option<String> {
    let address = SocketAddr::new(SERVER4.parse().unwrap(), 80);
    let limit = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn configured(more: &str) -> String {
    format!(
        "user = \"nobody\"\nagent = \"on\"\ngate = \"full\"\ngate_rules = \"first_request\"\n\
         limits.connections_per_client = 1000\nworkers = 1\n\
         [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
         [[rule]]\nname = \"to gold\"\npath = \"/gold\"\nclass = \"gold\"\n\
         [[work]]\npath = \"/work\"\n{more}"
    )
}

/// SYN policing, the last resort: two threads cannot accept all connections, and the agent limits those
/// of the last class, in the kernel, until the class may have them all again.
#[test]
fn the_agent_lowers_and_lifts_what_the_kernel_admits_of_a_class() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let lines = configured("").replace("workers = 1\n", "engine = \"pool\"\nworkers = 2\n");
    let server = Server::start(&net, &lines);
    let flood = Flood::begin(&net, 60, "/work?cpu=20ms");
    let dropped = "forebay_gate_class_total{class=\"bulk\",outcome=\"dropped\"}";
    assert!(soon(LONG, || metric(&net, LEVEL) == 3), "{}", server.said());
    assert!(soon(LONG, || metric(&net, dropped) > 0), "{}", server.said());
    // the first class is not limited
    let of_gold = "forebay_gate_class_total{class=\"gold\",outcome=\"dropped\"}";
    assert_eq!(metric(&net, of_gold), 0);
    flood.end();
    assert!(soon(LONG, || metric(&net, LEVEL) < 3), "{}", server.said());
    let before = metric(&net, dropped);
    net.client(|| {
        for _ in 0..50 {
            assert!(ask("/").is_some_and(|answer| answer.ends_with("hello")));
        }
    });
    assert_eq!(metric(&net, dropped), before);
}

/// The rate of a rule, within its bounds: the kernel refuses at the rate that the agent has lowered, and
/// the agent raises it again.
#[test]
fn the_agent_moves_a_rate_that_the_kernel_charges() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let lines = configured(
        "[[rule]]\nname = \"work\"\npath = \"/work\"\nmetric = true\n\
         requests = { rate = \"1000/s\", rate_min = \"5/s\", rate_max = \"1000/s\", burst = 5 }\n",
    );
    let server = Server::start(&net, &lines);
    let rate = || {
        let name = "forebay_rule_rate_requests_per_second{rule=\"work\"} ";
        let text = metrics(&net);
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{text}")).parse::<f64>().unwrap()
    };
    let refused = "forebay_gate_rule_total{rule=\"work\",outcome=\"answered\"}";
    assert!(rate() > 999.0);
    let flood = Flood::begin(&net, 40, "/work?cpu=20ms");
    assert!(soon(LONG, || rate() < 900.0), "{}", server.said());
    assert!(soon(LONG, || metric(&net, refused) > 0), "{}", server.said());
    flood.end();
    assert!(soon(LONG, || rate() > 999.0), "{}", server.said());
    let before = metric(&net, refused);
    net.client(|| {
        for _ in 0..3 {
            assert!(ask("/work?cpu=1ms").is_some_and(|answer| answer.starts_with("HTTP/1.1 200 ")));
        }
    });
    assert_eq!(metric(&net, refused), before);
}
