//! Queues by class where TLS is spoken: by the server name in the ClientHello, as far as it lies in the
//! first segment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::net::{CLIENT4, CLIENT6, Net, SERVER4, SERVER6, Server, is_root, metric, wait_for};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::tls::{Authority, over};
use forebay_tests::wire::PATIENCE;
use rcgen::PKCS_ECDSA_P256_SHA256;
use rustix::net::{self, AddressFamily, SocketType};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;

const HOSTS: [&str; 3] = ["gold.example", "silver.example", "bulk.example"];
const UNJUDGED: &str = "forebay_gate_first_segments_total{outcome=\"unjudged\"}";
const OF_CLASS: &str = "forebay_gate_first_segments_total{outcome=\"of_class\"}";
const TIME_WAIT: &str = "forebay_gate_time_wait_syns_total";
const ACCEPTED: &str = "forebay_connections_accepted_total";

/// A server that speaks TLS at port 443 for all hosts, the first two of which have classes of their own.
fn start(net: &Net, engine: &str, authority: &Authority, keys: &Folder) -> Server {
    authority.write(keys.path(), "all", &HOSTS, &PKCS_ECDSA_P256_SHA256);
    let at = keys.path().display();
    fs::set_permissions(keys.path(), Permissions::from_mode(0o755)).unwrap();
    let lines = format!(
        "gate = \"full\"\nengine = \"{engine}\"\n[tls]\ncertificate = [\"{at}/all.crt\"]\nkey = [\"{at}/all.key\"]\n\
         [[listener]]\nlisten = [\"https://{SERVER4}:443\", \"https://[{SERVER6}]:443\"]\n\
         [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"silver\"\npriority = 1\n\
         [[class]]\nname = \"bulk\"\npriority = 2\n\
         [[rule]]\nname = \"gold\"\nsite = [\"gold.example\"]\nclass = \"gold\"\n\
         [[rule]]\nname = \"silver\"\nsite = [\"silver.example\"]\nclass = \"silver\"\n"
    );
    Server::start(net, &lines)
}

/// Asks from this port of the client.
fn ask(client: &Arc<ClientConfig>, ends: [SocketAddr; 2], host: &str) -> String {
    let [from, to] = ends;
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket(family, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &from).unwrap();
    net::connect(&socket, &to).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = over(client, socket, host);
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_name_in_the_hello_tells_the_class() {
    if !is_root() {
        return;
    }
    for engine in ["event", "pool"] {
        let (net, authority, keys) = (Net::new(), Authority::new(), Folder::new());
        let _server = start(&net, engine, &authority, &keys);
        // A SYN that meets TIME_WAIT belongs to the stack and not to the gate, so no port is used twice,
        // as ports that the kernel chooses would be. Without TIME_WAIT the FIN of each client would meet
        // no socket, and one of 2^18 would be taken for the first segment of a connection. The hello of
        // TLS 1.2 is short; with post-quantum keys it is longer than one segment
        for (version, clients, ports) in [(&TLS12, 300, 10_000), (&TLS13, 30, 20_000)] {
            let client = Arc::new(authority.client_speaking(&[version]));
            for ips in [[CLIENT4, SERVER4], [CLIENT6, SERVER6]] {
                let client = Arc::clone(&client);
                net.client(move || {
                    let [from, to] = ips.map(|ip| ip.parse().unwrap());
                    for turn in 0..clients {
                        let from = SocketAddr::new(from, ports + turn as u16);
                        let ends = [from, SocketAddr::new(to, 443)];
                        let answer = ask(&client, ends, HOSTS[turn % 3]);
                        assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
                    }
                });
            }
            if clients == 300 {
                let judged = [0, 1, 2].map(|rank| {
                    metric(&net, &format!("forebay_gate_first_requests_total{{rank=\"{rank}\"}}"))
                });
                assert_eq!(judged, [200; 3], "{engine}");
                assert_eq!(metric(&net, UNJUDGED), 0, "{engine}");
            }
        }
        assert_eq!(metric(&net, TIME_WAIT), 0, "{engine}");
        assert_eq!(metric(&net, ACCEPTED), 660, "{engine}");
        assert_eq!(metric(&net, OF_CLASS) + metric(&net, UNJUDGED), 660, "{engine}");
        for class in ["gold", "silver", "bulk"] {
            wait_for(&net, &format!("forebay_class_answered_total{{class=\"{class}\"}}"), 220);
        }
    }
}

/// Chromium's hello is longer than one segment, and the name lies anywhere in it.
#[test]
fn chromium_is_served_wherever_its_name_lies() {
    if !is_root() {
        return;
    }
    let Some(_) = has(Command::new("chromium").arg("--version").output(), "chromium") else {
        return;
    };
    let (net, authority, keys) = (Net::new(), Authority::new(), Folder::new());
    let _server = start(&net, "event", &authority, &keys);
    for turn in 0..3 {
        let profile = keys.join(&format!("profile{turn}"));
        let quiet = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync \
                     --ignore-certificate-errors --dump-dom";
        let output = Command::new("ip")
            .args(["netns", "exec", &net.client, "chromium"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--host-resolver-rules=MAP *.example {SERVER4}"))
            .args(quiet.split_whitespace())
            .arg("https://gold.example/")
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("hello"), "{output:?}");
    }
    // a client may be gone before all of it is counted
    let answered = || metric(&net, "forebay_class_answered_total{class=\"gold\"}");
    assert!(soon(PATIENCE, || answered() >= 3), "{}", answered());
    let counts = || [OF_CLASS, UNJUDGED, ACCEPTED].map(|name| metric(&net, name));
    let is_whole =
        || matches!(counts(), [of_class, unjudged, accepted] if of_class + unjudged == accepted);
    assert!(soon(PATIENCE, is_whole), "{:?}", counts());
}
