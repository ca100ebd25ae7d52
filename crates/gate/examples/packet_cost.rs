//! Measures the program's time for one packet, without the stack around it: the kernel runs it 20,000
//! times on the same packet.
//!
//! ```text
//! unshare -n cargo run --release -p forebay-gate --example packet_cost
//! ```
//!
//! As root, in a network namespace of its own. Each row is the median of 11 runs. `--rows` prints CSV
//! instead of the table.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement that fails says so")]

use forebay_gate::{Charge, ClassSockets, Gate};
use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::condition::Conditions;
use forebay_policy::endpoint::Endpoint;
use forebay_policy::pattern::PathPattern;
use forebay_policy::rule::{Action, Rule};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::Command;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn main() {
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let _listener = TcpListener::bind("127.0.0.1:80").unwrap();
    let gate = Gate::load(Charge::AtHandshake).unwrap();
    let _listener6 = TcpListener::bind("[::1]:80").unwrap();
    gate.attach(&["127.0.0.1:80".parse().unwrap(), "[::1]:80".parse().unwrap()]).unwrap();
    if as_rows() {
        println!("packet,rules,path_bytes,ns,least_ns,most_ns");
    } else {
        println!("| packet | rules | ns: median | least | most |\n|---|---|---|---|---|");
    }
    let stranger = Ipv4Addr::new(10, 9, 9, 9);
    row(&gate, "of a connection, other port", 1, &packet(stranger, 81, ACK));
    row(&gate, "of a connection, our port", 1, &packet(stranger, 80, ACK));
    for rules in [1, 2, 3, 100, 1000] {
        let by_port = (1..rules).map(|n| rule(n, "*", &format!("127.0.0.1:{}", 1000 + n)));
        enforce(&gate, by_port.chain([rule(0, "*", "*")]).collect());
        row(&gate, "SYN dropped by the last rule, by port", rules, &packet(stranger, 80, SYN));
    }
    for rules in [1, 100, 10_000] {
        let network = |n: u32| format!("10.{}.{}.0/24", n / 256, n % 256);
        enforce(&gate, (1..=rules).map(|n| rule(n, &network(n), "*")).collect());
        let last = Ipv4Addr::new(10, (rules / 256) as u8, rules as u8, 7);
        row(&gate, "SYN dropped, by network", rules, &packet(last, 80, SYN));
        row(&gate, "SYN passed, by network", rules, &packet(Ipv4Addr::new(192, 0, 2, 1), 80, SYN));
        let network = |n: u32| format!("2001:db8:{n:x}::/48");
        enforce(&gate, (1..=rules).map(|n| rule(n, &network(n), "*")).collect());
        let last = Ipv6Addr::new(0x2001, 0xdb8, rules as u16, 0, 0, 0, 0, 7);
        row(&gate, "SYN dropped, by network, IPv6", rules, &packet6(last));
        let other = Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, 7);
        row(&gate, "SYN passed, by network, IPv6", rules, &packet6(other));
    }
    drop(gate);
    steered();
}

/// Measures handshakes without state, and classes by URL. In a test run the kernel makes no connection:
/// its cost is not included.
fn steered() {
    let gate = Gate::load_steering(Charge::AtHandshake).unwrap();
    let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
    gate.attach(&[address]).unwrap();
    let gold = TcpListener::bind("127.0.0.1:0").unwrap();
    gate.place(&[ClassSockets { address, speaks_tls: false, sockets: vec![vec![gold.as_fd()]] }])
        .unwrap();
    let client = Ipv4Addr::new(10, 9, 9, 9);
    let syn = packet(client, 80, SYN);
    for (rules, path_bytes) in [
        (1, 11),
        (2, 11),
        (3, 11),
        (100, 11),
        (1000, 11),
        (10_000, 11),
        (1, 80),
        (1, 160),
        (100, 80),
        (100, 160),
    ] {
        let path = |number: u32| {
            let end = format!("{number:04}");
            format!("/{}{end}", "a".repeat(path_bytes - 1 - end.len()))
        };
        classify(&gate, (1..=rules).map(|number| by_path(number, &path(number))).collect());
        let answer = gate.run_on(&syn).unwrap().1;
        let cookie = u32::from_be_bytes(answer[38..42].try_into().unwrap()).wrapping_add(1);
        let segment = |data: &[u8], cookie: u32| {
            let mut segment = packet(client, 80, ACK);
            segment[38..42].copy_from_slice(&2_u32.to_be_bytes());
            segment[42..46].copy_from_slice(&cookie.to_be_bytes());
            segment[16..18].copy_from_slice(&(40 + data.len() as u16).to_be_bytes());
            segment.extend(data);
            segment
        };
        let data = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", path(rules));
        if (rules, path_bytes) == (1, 11) {
            let what = "no connection is there, and no cookie of ours";
            row(&gate, what, rules, &segment(b"", cookie ^ 1 << 31));
            row(&gate, "acknowledgement of a SYN-ACK, dropped", rules, &segment(b"", cookie));
            // the SYN-ACK replaces the SYN, so each run gets a SYN of its own
            let mut found: Vec<u32> = (0..2001).map(|_| gate.time_on(&syn, 1).unwrap()).collect();
            found.sort_unstable();
            let [median, least, most] = [found[1000], found[0], found[1900]];
            let what = "SYN answered (runs of one, most of 95 %)";
            print(what, rules, None, [median, least, most]);
        }
        let found = timed(&gate, &segment(data.as_bytes(), cookie));
        print("request, by path", rules, Some(path_bytes), found);
    }
}

fn by_path(number: u32, path: &str) -> Rule {
    let path = vec![PathPattern::parse(path).unwrap()];
    let conditions = Conditions { path, ..Conditions::default() };
    let class = Some("gold".to_owned());
    Rule { name: number.to_string(), conditions, class, ..Rule::default() }
}

fn classify(gate: &Gate, rules: Vec<Rule>) {
    let classes = [Class::new("gold", 0), Class::new("bulk", 1)];
    gate.enforce(&gate.lower(&Policy::new(&classes, rules).unwrap()).unwrap()).unwrap();
}

fn rule(number: u32, client: &str, local: &str) -> Rule {
    let conditions = Conditions {
        client: vec![Endpoint::parse(client).unwrap()],
        local: vec![Endpoint::parse(local).unwrap()],
        ..Conditions::default()
    };
    Rule { name: number.to_string(), conditions, action: Some(Action::Drop), ..Rule::default() }
}

fn enforce(gate: &Gate, rules: Vec<Rule>) {
    gate.enforce(&gate.lower(&Policy::new(&[], rules).unwrap()).unwrap()).unwrap();
}

fn row(gate: &Gate, what: &str, rules: u32, packet: &[u8]) {
    print(what, rules, None, timed(gate, packet));
}

/// The program's nanoseconds: median, least and most.
fn timed(gate: &Gate, packet: &[u8]) -> [u32; 3] {
    let mut found: Vec<u32> = (0..11).map(|_| gate.time_on(packet, 20_000).unwrap()).collect();
    found.sort_unstable();
    [found[5], found[0], found[10]]
}

/// Whether `--rows` was given.
fn as_rows() -> bool {
    std::env::args().any(|word| word == "--rows")
}

fn print(what: &str, rules: u32, path_bytes: Option<usize>, [median, least, most]: [u32; 3]) {
    if as_rows() {
        let path = path_bytes.map_or(String::new(), |bytes| bytes.to_string());
        return println!("\"{what}\",{rules},{path},{median},{least},{most}");
    }
    let path = path_bytes.map_or(String::new(), |bytes| format!(", path of {bytes} bytes"));
    println!("| {what}{path} | {rules} | {median} | {least} | {most} |");
}

/// A TCP packet over IPv4, with zero checksums, which only the stack verifies.
fn packet(client: Ipv4Addr, port: u8, flags: u8) -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet.extend(client.octets());
    packet.extend([127, 0, 0, 1]);
    packet.extend([0x10, 0, 0, port, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet
}

/// A SYN for our port over IPv6.
fn packet6(client: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0; 12];
    packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
    packet.extend(client.octets());
    packet.extend(Ipv6Addr::LOCALHOST.octets());
    packet.extend([0x10, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, SYN, 0xff, 0xff, 0, 0, 0, 0]);
    packet
}
