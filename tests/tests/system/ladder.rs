//! The rungs of the gate: on each, the same rules admit the same clients, the server reports what a rung
//! lacks, and serves without it. See `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::gate::CLASSES;
use super::net::{GET, Net, SERVER4, SERVER6, Server, is_root, metric};
use forebay_tests::faults::site::Folder;
use forebay_tests::is_full_matrix;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Every setting of `gate`.
const SETTINGS: [&str; 4] = ["off", "auto", "address", "full"];

const FEW: &str = "[[rule]]\nname = \"few\"\n\
                   connections = { rate = \"1/h\", burst = 5, over = \"reset\" }\n";

/// The number of connections that are answered, of this number of tries, with this patience for each
/// handshake.
fn answered(net: &Net, ip: &str, tries: usize, patience: Duration) -> usize {
    let address = SocketAddr::new(ip.parse().unwrap(), 80);
    let ask = move || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(GET)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let is_served = move || ask().is_ok_and(|answer| answer.ends_with("hello"));
    net.client(move || (0..tries).filter(|_| is_served()).count())
}

#[test]
fn the_same_clients_are_let_in_on_each_rung() {
    if !is_root() {
        return;
    }
    let listed = |action: &str| {
        format!(
            "[[rule]]\nname = \"listed\"\nclient = [\"10.99.0.2\", \"fd99::/64\"]\n\
             action = \"{action}\"\n"
        )
    };
    let others = "[[rule]]\nname = \"others\"\nclient = \"192.0.2.0/24\"\naction = \"drop\"\n";
    let page =
        "[[rule]]\nname = \"page\"\npath = \"/\"\nrequests = { rate = \"1/h\", burst = 4 }\n";
    // rules, the number of clients, and how many of them are admitted
    let policies = [
        (FEW.to_owned(), 7, 5),
        (listed("reset"), 2, 0),
        (listed("drop"), 2, 0),
        (others.to_owned(), 2, 2),
        (page.to_owned(), 6, 4),
    ];
    let both = [SERVER4, SERVER6];
    for setting in SETTINGS {
        for (number, (rules, tries, expected)) in policies.iter().enumerate() {
            let ips = if is_full_matrix() { &both[..] } else { &both[number % 2..][..1] };
            for ip in ips {
                let net = Net::new();
                let lines = format!("user = \"nobody\"\ngate = \"{setting}\"\n{rules}{CLASSES}");
                let server = Server::start(&net, &lines);
                let rung = match setting {
                    "off" => None,
                    "full" => Some("gate: rung full"),
                    _ => Some("gate: rung address"),
                };
                let said = server.said();
                assert!(rung.is_none_or(|rung| said.contains(rung)), "{said}");
                assert_eq!(said.contains("gate: "), rung.is_some(), "{said}");
                // where no answer is expected, a short wait is enough
                let patience = if *expected == 0 { Duration::from_millis(300) } else { PATIENCE };
                let found = answered(&net, ip, *tries, patience);
                assert_eq!(found, *expected, "{setting}, {ip}: {rules}");
                if setting == "full" {
                    assert_eq!(metric(&net, "forebay_gate_answers"), 1);
                }
            }
        }
    }
}

/// Rights that are taken from a server, as words of setpriv, and the words in its report.
const TAKEN: [(&str, &str); 4] = [
    // CAP_SYS_ADMIN stands for each of them
    ("--bounding-set=-bpf,-sys_admin", "no CAP_BPF"),
    ("--bounding-set=-perfmon,-sys_admin", "no CAP_PERFMON"),
    ("--bounding-set=-net_admin,-sys_admin", "no CAP_NET_ADMIN"),
    ("--bounding-set=-all", "no CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON"),
];

#[test]
fn without_the_rights_for_it_the_server_says_so_and_judges_alone() {
    if !is_root() {
        return;
    }
    for (taken, lacks) in TAKEN {
        let net = Net::new();
        // a process without any rights may not listen on this port otherwise
        net.server(|| fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "80").unwrap());
        let server = Server::start_by(
            &net,
            &["setpriv", taken],
            &format!("gate = \"auto\"\n{FEW}{CLASSES}"),
        );
        let said = server.said();
        let line = said.lines().find(|line| line.contains("gate: rung off: "));
        let line = line.unwrap_or_else(|| panic!("{taken}: {said}"));
        assert!(line.contains(lacks) && line.contains("by the server alone"), "{taken}: {line}");
        assert_eq!(answered(&net, SERVER4, 8, PATIENCE), 5, "{taken}");
        let of_doctor = run(&net, taken, &["doctor", "-c"], server.file());
        assert!(of_doctor.0, "{of_doctor:?}");
        for part in
            ["rung: off", "missing rights to load it: ", lacks, "auto: the server judges alone"]
        {
            assert!(of_doctor.1.contains(part), "{taken}, {part}: {}", of_doctor.1);
        }
    }
}

/// A server that is set to a rung of the gate gets no less.
#[test]
fn a_rung_that_cannot_be_had_is_refused_with_the_reason() {
    if !is_root() {
        return;
    }
    for (taken, lacks) in TAKEN {
        for setting in ["address", "full"] {
            let net = Net::new();
            let folder = Folder::new();
            folder.write("root/index.html", "hello");
            super::net::configure(&folder, &format!("gate = \"{setting}\"\n{FEW}{CLASSES}"));
            net.server(|| {
                fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "80").unwrap()
            });
            let (is_well, said) = run(&net, taken, &["run", "-c"], folder.join("forebay.toml"));
            assert!(!is_well && said.contains(lacks), "{taken}, {setting}: {said}");
        }
    }
}

/// Runs a command of the program without some rights. Returns whether it succeeds, and its output.
fn run(
    net: &Net,
    taken: &'static str,
    words: &'static [&str],
    file: std::path::PathBuf,
) -> (bool, String) {
    net.server(move || {
        // a server that starts all the same does not end by itself
        let mut command = Command::new("timeout");
        let output = command
            .args(["60", "setpriv", taken])
            .arg(binary())
            .args(words)
            .arg(file)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    })
}
