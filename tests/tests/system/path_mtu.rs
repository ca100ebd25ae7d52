//! A router between server and clients takes smaller packets than both ends assume, and reports that by
//! ICMP: after a handshake of the gate, the kernel's connections then send smaller segments. See
//! `net.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::gate::CLASSES;
use super::net::{
    CLIENT4, CLIENT6, Net, SERVER4, SERVER6, Server, ip, is_root, metric, run, within,
};
use super::protect::{self, JUDGES, Other, has};
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;

/// A size below the 1,500 that both ends have, and large enough for IPv6.
const MTU: u32 = 1300;
const BYTES: usize = 200_000;

/// The clients' machine is a router here: behind it, over a path of [`MTU`], is the client.
struct Narrow {
    name: String,
}

impl Narrow {
    fn new(net: &Net) -> Narrow {
        let name = format!("{}n", net.client);
        ip(&format!("netns add {name}"));
        ip(&format!("-n {} link add n0 type veth peer name n1 netns {name}", net.client));
        for (namespace, device, at) in [(&net.client, "n0", 1), (&name, "n1", 2)] {
            let offload = "tx off rx off gro off gso off tso off";
            run("ip", &format!("netns exec {namespace} ethtool -K {device} {offload}"));
            ip(&format!("-n {namespace} addr add 10.97.0.{at}/24 dev {device}"));
            ip(&format!("-n {namespace} addr add fd97::{at}/64 dev {device} nodad"));
            ip(&format!("-n {namespace} link set {device} up"));
        }
        // the router's end alone: the client offers segments for 1,500
        ip(&format!("-n {} link set n0 mtu {MTU}", net.client));
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("-n {name} route add default via 10.97.0.1"));
        ip(&format!("-n {name} -6 route add default via fd97::1"));
        ip(&format!("-n {} route add 10.97.0.0/24 via {CLIENT4}", net.server));
        ip(&format!("-n {} -6 route add fd97::/64 via {CLIENT6}", net.server));
        net.client(|| {
            for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                fs::write(format!("/proc/sys/net/{file}"), "1").unwrap();
            }
        });
        Narrow { name }
    }

    fn ask(&self, server: &str, port: u16) -> String {
        let address = SocketAddr::new(server.parse::<IpAddr>().unwrap(), port);
        within(&self.name, move || {
            // the neighbours of a network that was made just now may not be known yet
            let mut made = None;
            let is_made = || {
                made = TcpStream::connect_timeout(&address, PATIENCE).ok();
                made.is_some()
            };
            assert!(soon(PATIENCE, is_made), "{address}");
            let mut stream = made.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let head = b"GET /gold/large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(head).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// How often the server's machine has learnt by ICMP that a packet of its is too large, by IPv4 and by
/// IPv6.
fn told(net: &Net) -> [u64; 2] {
    net.server(|| {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
        };
        let (v4, v6) = (read("snmp"), read("snmp6"));
        let mut lines = v4.lines().filter_map(|line| line.strip_prefix("Icmp: "));
        let names = lines.next().unwrap().split(' ');
        let mut pairs = names.zip(lines.next().unwrap().split(' '));
        let v4 = pairs.find(|(name, _)| *name == "InDestUnreachs").unwrap().1;
        let v6 = v6.lines().find_map(|line| line.strip_prefix("Icmp6InPktTooBigs")).unwrap();
        [v4, v6].map(|count| count.trim().parse().unwrap())
    })
}

/// A large answer comes whole by both families, after the server's machine has learnt the size of the
/// path.
fn comes_whole(net: &Net, narrow: &Narrow, port: u16) {
    for (family, server) in [SERVER4, SERVER6].into_iter().enumerate() {
        let before = told(net)[family];
        let answer = narrow.ask(server, port);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.len() > BYTES && answer.ends_with(&"x".repeat(BYTES)), "{}", answer.len());
        assert!(told(net)[family] > before, "{server}: no packet was too large");
    }
}

#[test]
fn answers_of_connections_that_the_gate_completed_find_the_size_of_the_path() {
    if !is_root() {
        return;
    }
    for judges in ["", "gate_rules = \"first_request\"\n"] {
        let net = Net::new();
        let narrow = Narrow::new(&net);
        let lines = format!("user = \"nobody\"\ngate = \"full\"\n{judges}{CLASSES}");
        let server = Server::start(&net, &lines);
        server.folder.write("root/gold/large", "x".repeat(BYTES));
        comes_whole(&net, &narrow, 80);
        // a SYN that was late is sent again
        assert!(metric(&net, "forebay_gate_answered_syns_total") >= 2);
    }
}

#[test]
fn answers_of_a_protected_server_find_the_size_of_the_path() {
    if !is_root() || !has("nginx") {
        return;
    }
    for gate in ["gate = \"address\"", "gate = \"full\"", JUDGES] {
        let net = Net::new();
        let narrow = Narrow::new(&net);
        let nginx = Other::nginx(&net);
        nginx.folder.write("root/gold/large", "x".repeat(BYTES));
        let _server = Server::start(&net, &protect::configured(gate, ""));
        comes_whole(&net, &narrow, protect::PORT);
        if gate.contains("full") {
            let made = "forebay_gate_first_segments_total{outcome=\"of_other_server\"}";
            assert!(metric(&net, made) >= 2, "{gate}");
        }
    }
}
