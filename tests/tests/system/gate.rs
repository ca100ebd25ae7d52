//! Rules in the kernel, which judge SYNs. See `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::net::{
    CLIENT4, Net, SERVER4, SERVER6, Server, configure, get, ip, is_root, metric, served, wait_for,
};
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, SendFlags, SocketFlags, SocketType, connect, socket_with,
};
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

macro_rules! syns {
    ($outcome:literal) => {
        concat!("forebay_gate_syns_total{outcome=\"", $outcome, "\"}")
    };
}

const CHARGED: &str = "forebay_gate_handshakes_total{outcome=\"charged\"}";

/// Sends SYNs with invented addresses, as they come from 10.7.0.0/16.
fn invent(net: &Net, count: u16, seed: u16) {
    net.client(move || {
        // IPPROTO_RAW: with heads of our own
        let raw = RawProtocol::new(255).unwrap();
        let socket = rustix::net::socket(
            AddressFamily::INET,
            SocketType::RAW,
            Some(Protocol::from_raw(raw)),
        )
        .unwrap();
        let to = SocketAddrV4::new(SERVER4.parse().unwrap(), 0);
        for number in 0..count {
            let [high, low] = number.to_be_bytes();
            let from = Ipv4Addr::new(10, 7, high, low);
            let packet = syn(from, *to.ip(), 1024 + seed, u32::from(number));
            let sent = rustix::net::sendto(&socket, &packet, SendFlags::empty(), &to).unwrap();
            assert_eq!(sent, packet.len());
        }
    });
}

/// A SYN for port 80, with its IP head.
fn syn(from: Ipv4Addr, to: Ipv4Addr, port: u16, sequence: u32) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(port.to_be_bytes());
    tcp.extend(80_u16.to_be_bytes());
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let mut summed = [from.octets(), to.octets()].concat();
    summed.extend([0, 6, 0, tcp.len() as u8]);
    summed.extend(&tcp);
    let mut sum: u32 =
        summed.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    tcp[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(tcp);
    packet
}

/// The rungs on which the kernel judges SYNs.
const RUNGS: [&str; 2] = ["address", "full"];

/// Classes by URL, with which the kernel answers SYNs where it can.
pub(super) const CLASSES: &str = "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
     [[rule]]\nname = \"to gold\"\npath = \"/gold\"\nclass = \"gold\"\n";

/// The configuration with these lines on this rung, where the gate answers SYNs if it can.
fn on(rung: &str, lines: &str) -> String {
    let classes = if rung == "full" { CLASSES } else { "" };
    format!("user = \"nobody\"\ngate = \"{rung}\"\n{lines}{classes}")
}

fn limit(rung: &str, charge: &str, over: &str, burst: u32) -> String {
    let lines = format!(
        "gate_charge = \"{charge}\"\n[[rule]]\nname = \"few\"\n\
         connections = {{ rate = \"1/h\", burst = {burst}, over = \"{over}\" }}\n"
    );
    on(rung, &lines)
}

#[test]
fn a_limit_refuses_by_reset_and_counts_each_connection_once() {
    if !is_root() {
        return;
    }
    for (rung, charge, cookies) in [
        ("address", "syn", 1),
        ("address", "handshake", 1),
        ("address", "handshake", 2),
        ("full", "syn", 1),
        ("full", "handshake", 1),
    ] {
        for ip in [SERVER4, SERVER6] {
            let net = Net::new();
            // the kernel's own cookies: no request socket shows what it waits for
            net.server(move || {
                fs::write("/proc/sys/net/ipv4/tcp_syncookies", cookies.to_string()).unwrap();
            });
            let server = Server::start(&net, &limit(rung, charge, "reset", 5));
            assert_eq!(metric(&net, "forebay_gate_answers"), u64::from(rung == "full"));
            assert_eq!(served(&net, ip, 12), 5, "{rung} {charge} {cookies} {ip}");
            assert_eq!(metric(&net, syns!("passed")), 5);
            assert_eq!(metric(&net, syns!("reset")), 7);
            let charged = if charge == "syn" { 0 } else { 5 };
            assert_eq!(metric(&net, CHARGED), charged, "{rung} {charge} {cookies} {ip}");
            assert_eq!(metric(&net, "forebay_connections_accepted_total"), 5);
            assert_eq!(metric(&net, "forebay_gate_rule_total{rule=\"few\",outcome=\"reset\"}"), 7);
            drop(server);
        }
    }
}

/// The bucket, the ignored clients and the counters go on in the process that takes the place.
#[test]
fn an_upgrade_goes_on_judging_with_what_was_charged() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        for charge in ["syn", "handshake"] {
            let net = Net::new();
            let server = Server::start(&net, &limit(rung, charge, "reset", 5));
            assert_eq!(served(&net, SERVER4, 2), 2);
            let first = server.upgrade(&net);
            assert_eq!(served(&net, SERVER4, 1), 1, "{rung} {charge}: {}", server.said());
            let second = server.upgrade(&net);
            assert!(soon(PATIENCE, || !first.is_there()), "{}", server.said());
            assert_eq!(served(&net, SERVER4, 9), 2, "{rung} {charge}: {}", server.said());
            assert_eq!(metric(&net, syns!("passed")), 5, "{rung} {charge}");
            assert_eq!(metric(&net, "forebay_gate_interfaces"), 1);
            // another rule in the file: it counts from the upgrade on, with no other rule's bucket
            let other = limit(rung, charge, "reset", 1).replace("\"few\"", "\"fewer\"");
            configure(&server.folder, &other);
            let third = server.upgrade(&net);
            // on rung full it accepts what waits in the queues of classes, by its own rules, for a while
            assert!(soon(PATIENCE, || !second.is_there()), "{}", server.said());
            assert_eq!(served(&net, SERVER4, 3), 1, "{rung} {charge}: {}", server.said());
            // and without it nothing is judged; what has answered SYNs has to be there for the handshakes
            if rung == "full" {
                continue;
            }
            configure(&server.folder, "user = \"nobody\"\ngate = \"off\"");
            let fourth = server.upgrade(&net);
            assert!(soon(PATIENCE, || !third.is_there()), "{}", server.said());
            assert_eq!(served(&net, SERVER4, 3), 3, "{rung} {charge}: {}", server.said());
            drop((first, second, third, fourth));
        }
    }
}

/// A server with nothing but a Unix socket has a gate that is attached to no interface, and has a
/// successor all the same.
#[test]
fn an_upgrade_needs_nothing_to_judge() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let server = Server::start(&net, "user = \"nobody\"\ngate = \"address\"\n");
    let text = fs::read_to_string(server.file()).unwrap();
    let listen = text.lines().next().unwrap();
    let socket = format!("listen = [\"unix:{}\"]", server.folder.join("socket").display());
    fs::write(server.file(), text.replace(listen, &socket)).unwrap();
    let first = server.upgrade(&net);
    assert!(soon(PATIENCE, || metric(&net, "forebay_gate_interfaces") == 0));
    let second = server.upgrade(&net);
    drop((first, second));
}

/// A server that cannot serve does not change the rules in the kernel.
#[test]
fn an_upgrade_that_fails_leaves_the_gate() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let server = Server::start(&net, &limit("full", "handshake", "reset", 3));
    configure(&server.folder, &on("full", "log.access = \"/none/at/all\"\n"));
    let file = server.file();
    let code = net.server(move || {
        Command::new(binary()).arg("upgrade").arg("-c").arg(file).status().unwrap().code()
    });
    assert_ne!(code, Some(0));
    assert_eq!(served(&net, SERVER4, 9), 3, "{}", server.said());
    // rung full is not left while handshakes may be under way
    configure(&server.folder, &limit("address", "handshake", "reset", 9));
    let file = server.file();
    let output = net.server(move || {
        Command::new(binary()).arg("upgrade").arg("-c").arg(file).output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("to leave that rung"), "{said}");
    assert_eq!(served(&net, SERVER4, 2), 0, "{}", server.said());
}

#[test]
fn invented_addresses_use_up_what_is_charged_at_the_syn_and_nothing_else() {
    if !is_root() {
        return;
    }
    for (rung, charge, left) in
        RUNGS.map(|rung| [(rung, "syn", 0), (rung, "handshake", 5)]).concat()
    {
        let net = Net::new();
        let _server = Server::start(&net, &limit(rung, charge, "reset", 5));
        invent(&net, 100, 0);
        if charge == "syn" {
            wait_for(&net, syns!("reset"), 95);
            assert_eq!(metric(&net, syns!("passed")), 5);
        } else {
            wait_for(&net, syns!("passed"), 100);
            assert_eq!(metric(&net, CHARGED), 0);
        }
        // the same again: what was let through is known
        invent(&net, 100, 0);
        let known = if charge == "syn" { 5 } else { 100 };
        wait_for(&net, syns!("repeated"), known);
        assert_eq!(served(&net, SERVER4, 10), left, "{rung} {charge}");
    }
}

/// More SYNs pass a bucket than it holds before the first handshake is complete: connections beyond the
/// bucket are refused then.
#[test]
fn what_finds_the_bucket_empty_when_its_handshake_completes_is_refused() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        finds_the_bucket_empty_on(rung);
    }
}

fn finds_the_bucket_empty_on(rung: &str) {
    let net = Net::new();
    let server = Server::start(&net, &limit(rung, "handshake", "reset", 2));
    // the server's packets leave one after another, half a second apart
    let slow = "tc qdisc add dev v0 root tbf rate 1kbit burst 100 latency 60s";
    ip(&format!("netns exec {} {slow}", net.server));
    let (open, reset) = net.client(|| {
        let sockets: Vec<_> = (0..5)
            .map(|_| {
                let flags = SocketFlags::NONBLOCK;
                let kind = SocketType::STREAM;
                let socket = socket_with(AddressFamily::INET, kind, flags, None).unwrap();
                let to = SocketAddrV4::new(SERVER4.parse().unwrap(), 80);
                assert_eq!(connect(&socket, &to), Err(Errno::INPROGRESS));
                TcpStream::from(socket)
            })
            .collect();
        let deadline = Instant::now() + PATIENCE;
        let mut outcomes = vec![None; sockets.len()];
        while outcomes.iter().filter(|one| **one == Some(false)).count() < 3 {
            assert!(Instant::now() < deadline, "{outcomes:?}");
            for (stream, outcome) in sockets.iter().zip(&mut outcomes) {
                if let Some(error) = stream.take_error().unwrap() {
                    assert!(
                        [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset]
                            .contains(&error.kind()),
                        "{error}"
                    );
                    *outcome = Some(false);
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        let reset = outcomes.iter().flatten().count();
        (sockets.len() - reset, reset)
    });
    assert_eq!((open, reset), (2, 3));
    wait_for(&net, CHARGED, 2);
    // each segment that comes before the reset has arrived is refused again
    assert!(metric(&net, "forebay_gate_handshakes_total{outcome=\"reset\"}") > 0);
    drop(server);
}

#[test]
fn silence_is_silence() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        let net = Net::new();
        let _server = Server::start(&net, &limit(rung, "handshake", "drop", 2));
        assert_eq!(served(&net, SERVER4, 2), 2, "{rung}");
        invent(&net, 50, 1);
        wait_for(&net, syns!("dropped"), 50);
        assert_eq!(metric(&net, syns!("reset")), 0, "{rung}");
        // no client got an answer
        let refused = net.client(|| {
            let address = SocketAddr::new(SERVER4.parse().unwrap(), 80);
            TcpStream::connect_timeout(&address, Duration::from_millis(300)).unwrap_err().kind()
        });
        assert_eq!(refused, io::ErrorKind::TimedOut, "{rung}");
    }
}

#[test]
fn rules_change_while_it_runs_and_buckets_stay() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        rules_change_on(rung);
    }
}

fn rules_change_on(rung: &str) {
    let net = Net::new();
    let server = Server::start(&net, &limit(rung, "handshake", "reset", 3));
    assert_eq!(served(&net, SERVER4, 5), 3, "{rung}");
    server.command(&["policy set", "few.connections=none", "few.action=allow"]);
    assert_eq!(served(&net, SERVER4, 5), 5);
    server.command(&["reload"]);
    assert_eq!(served(&net, SERVER4, 5), 3, "a limit that comes back begins anew");
    server.command(&["reload"]);
    assert_eq!(served(&net, SERVER4, 5), 0, "one that stays keeps what it has counted");
    server.command(&["policy set", "few.connections.over=drop", "few.action=reset"]);
    assert_eq!(served(&net, SERVER6, 5), 0);
    assert_eq!(metric(&net, "forebay_gate_interfaces"), 1);
    // where the kernel judges is decided at the start
    configure(&server.folder, "user = \"nobody\"\ngate = \"off\"");
    let output =
        Command::new(binary()).arg("reload").arg("-c").arg(server.file()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("gate cannot change while the server runs: restart it"), "{said}");
}

#[test]
fn nothing_is_left_of_a_server_that_was_killed() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let rule = "gate = \"address\"\n[[rule]]\nname = \"never\"\naction = \"reset\"\n";
    let mut server = Server::start(&net, rule);
    assert_eq!(served(&net, SERVER4, 2), 0);
    assert_eq!(metric(&net, syns!("reset")), 2);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    // another server takes the address: no gate judges its clients
    let listener = loop {
        match net.server(|| TcpListener::bind((SERVER4, 80))) {
            Ok(listener) => break listener,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    let accepting = thread::spawn(move || listener.accept().unwrap());
    // the kernel may take its programs off a moment after the process has ended
    let is_let_in = || net.client(|| TcpStream::connect((SERVER4, 80)).is_ok());
    assert!(soon(PATIENCE, is_let_in), "somebody judges still");
    accepting.join().unwrap();
}

#[test]
fn a_client_that_a_limit_ignores_is_ignored_by_the_kernel() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let rule = "gate = \"address\"\n[[rule]]\nname = \"once\"\npath = \"/\"\n\
                requests = { rate = \"1/h\", ignore = \"1h\" }\n";
    let _server = Server::start(&net, rule);
    let answers = net.client(|| {
        let address = SocketAddr::new(IpAddr::V4(SERVER4.parse().unwrap()), 80);
        [get(address).unwrap(), get(address).unwrap()]
    });
    assert!(answers[0].ends_with("hello") && answers[1].contains(" 503 "), "{answers:?}");
    let refused = net.client(|| {
        let address = SocketAddr::new(SERVER4.parse().unwrap(), 80);
        TcpStream::connect_timeout(&address, Duration::from_millis(300)).unwrap_err().kind()
    });
    assert_eq!(refused, io::ErrorKind::TimedOut);
    // where the client is kept from giving up in time, its kernel sends the SYN again
    assert!(metric(&net, syns!("ignored")) >= 1);
    // its other address is another client
    assert!(net.client(|| get(SocketAddr::new(SERVER6.parse().unwrap(), 80))).is_ok());
}

/// A limit on a trusted proxy is left to the server, and the proxy is never ignored; a reload that trusts
/// a client lifts its ban.
#[test]
fn a_proxy_is_never_ignored_by_the_kernel() {
    if !is_root() {
        return;
    }
    let ask = |net: &Net| {
        net.client(|| {
            let address = SocketAddr::new(SERVER4.parse().unwrap(), 80);
            TcpStream::connect_timeout(&address, Duration::from_millis(300))?;
            get(address)
        })
    };
    for limit in [
        "requests = { rate = \"1/h\", ignore = \"1h\" }",
        "connections = { rate = \"1/h\", burst = 2, over = \"drop\", ignore = \"1h\" }",
    ] {
        let rule = format!("gate = \"address\"\n[[rule]]\nname = \"once\"\n{limit}\n");
        let trusted = format!("trusted_proxies = [\"{CLIENT4}\"]\n{rule}");
        let net = Net::new();
        let _server = Server::start(&net, &trusted);
        // the server has accepted the connections that it refuses
        for _ in 0..4 {
            assert!(
                !matches!(ask(&net), Err(error) if error.kind() == io::ErrorKind::TimedOut),
                "{limit}"
            );
        }
        assert_eq!((metric(&net, syns!("ignored")), metric(&net, syns!("dropped"))), (0, 0));
    }
    let net = Net::new();
    let rule = "gate = \"address\"\n[[rule]]\nname = \"once\"\nrequests = { rate = \"1/h\", ignore = \"1h\" }\n";
    let server = Server::start(&net, rule);
    let before = [ask(&net).unwrap(), ask(&net).unwrap()];
    assert!(before[1].contains(" 503 "), "{before:?}");
    assert_eq!(ask(&net).unwrap_err().kind(), io::ErrorKind::TimedOut);
    configure(&server.folder, &format!("trusted_proxies = [\"{CLIENT4}\"]\n{rule}"));
    server.command(&["reload"]);
    assert!(ask(&net).unwrap().contains(" 503 "));
}

#[test]
fn a_vlan_is_judged_on_its_own_device() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let add = format!("-n {} link add link v0 name probe type vlan id 9", net.server);
    if !Command::new("ip").args(add.split(' ')).status().unwrap().success() {
        let _ = writeln!(io::stderr(), "SKIPPED: this kernel has no VLAN devices");
        return;
    }
    for (namespace, device, at) in [(&net.server, "v0", 1), (&net.client, "v1", 2)] {
        ip(&format!("-n {namespace} link add link {device} name tag type vlan id 5"));
        ip(&format!("-n {namespace} addr add 10.98.0.{at}/24 dev tag"));
        ip(&format!("-n {namespace} link set tag up"));
    }
    let rule = "connections = { rate = \"1/h\", burst = 3, over = \"reset\" }";
    let lines = format!(
        "gate = \"address\"\n[[rule]]\nname = \"few\"\n{rule}\n[[listener]]\nlisten = [\":81\"]\n"
    );
    let _server = Server::start(&net, &lines);
    let served =
        net.client(|| (0..6).filter(|_| get("10.98.0.1:81".parse().unwrap()).is_ok()).count());
    assert_eq!(served, 3);
    assert_eq!((metric(&net, syns!("passed")), metric(&net, syns!("reset"))), (3, 3));
}

#[test]
fn what_the_kernel_cannot_judge_the_server_does() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let rule = "gate = \"address\"\n[[rule]]\nname = \"each\"\n\
                connections = { rate = \"1/h\", burst = 2, per = \"client\" }\n";
    let _server = Server::start(&net, rule);
    let served = net.client(|| {
        let address = SocketAddr::new(IpAddr::V4(SERVER4.parse().unwrap()), 80);
        (0..5).filter(|_| get(address).is_ok()).count()
    });
    assert_eq!(served, 2);
    assert_eq!(metric(&net, syns!("left_to_server")), 5);
    let refused =
        "forebay_class_refused_total{class=\"default\",place=\"accept\",reason=\"connections\"}";
    // a client may see its end before that is counted
    wait_for(&net, refused, 3);
}
