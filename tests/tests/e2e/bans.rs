//! Clients that are ignored, and those that never are: trusted proxies, own addresses and administrators,
//! with the real program.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::crowd::connect_from;
use forebay_tests::faults::site::Folder;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine, on_isolated};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::process::Command;

on_each_engine! {
    a_proxy_that_names_no_client_shuts_nobody_out,
    a_limit_that_all_share_bans_no_proxy,
    connections_of_a_proxy_are_no_client_s,
    a_proxy_that_states_no_client_shuts_nobody_out,
    own_addresses_and_administrators_are_refused_and_never_ignored,
    a_reload_that_spares_an_address_lifts_its_ban,
}

on_isolated! {
    a_proxy_that_names_no_client_shuts_nobody_out,
    a_limit_that_all_share_bans_no_proxy,
    connections_of_a_proxy_are_no_client_s,
    own_addresses_and_administrators_are_refused_and_never_ignored,
}

const PROXY: &str = "127.0.7.7";
const STRANGER: &str = "127.0.7.8";
const EACH: &str = "[[rule]]\nname = \"each\"\n\
                    requests = { rate = \"1/h\", burst = 1, per = \"client\", ignore = \"1h\" }\n";
const ALL: &str =
    "[[rule]]\nname = \"all\"\nrequests = { rate = \"1/h\", burst = 1, ignore = \"1h\" }\n";
const NEW: &str = "[[rule]]\nname = \"new\"\n\
                   connections = { rate = \"1/h\", burst = 1, per = \"client\", ignore = \"1h\" }\n";

fn options(engine: &str, config: &str) -> (Folder, Options) {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let options = Options::new(folder.join("root")).engine(engine).config(config);
    (folder, options)
}

fn start(engine: &str, config: &str) -> (Folder, Server) {
    let (folder, options) = options(engine, config);
    (folder, Server::start(&options))
}

/// The status of a request on a connection of its own; 0 if the connection is reset. `fields` are lines.
fn ask(server: &Server, from: &str, fields: &str) -> u16 {
    say(server, from, &format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"))
}

fn say(server: &Server, from: &str, head: &str) -> u16 {
    let from: IpAddr = from.parse().unwrap();
    let Ok(mut stream) = connect_from(from, server.addr()) else { return 0 };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    if stream.write_all(head.as_bytes()).is_ok() {
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8_lossy(answer.get(9..12).unwrap_or(b"0")).parse().unwrap()
}

fn for_client(client: &str) -> String {
    format!("X-Forwarded-For: {client}\r\n")
}

fn trusts(rules: &str) -> String {
    format!("trusted_proxies = [\"{PROXY}\"]\n{rules}")
}

/// The proxy's health checks name no client. Clients that it names have limits of their own, and those
/// that come directly are ignored as usual.
fn a_proxy_that_names_no_client_shuts_nobody_out(engine: &str) {
    let (_folder, server) = start(engine, &trusts(EACH));
    for _ in 0..4 {
        assert_eq!(ask(&server, PROXY, ""), 200, "{}", server.stderr());
    }
    let said = "the trusted proxy 127.0.7.7 asks without naming a client";
    server.says(said);
    let (one, other) = (for_client("203.0.113.9"), for_client("203.0.113.10"));
    assert_eq!([ask(&server, PROXY, &one), ask(&server, PROXY, &one)], [200, 429]);
    assert_eq!([ask(&server, PROXY, &other), ask(&server, PROXY, "")], [200, 200]);
    // a field that names no readable client is as good as none
    assert_eq!(ask(&server, PROXY, "X-Forwarded-For: unknown\r\n"), 200);
    assert_eq!(server.stderr().matches(said).count(), 1, "{}", server.stderr());

    let stranger = [0; 3].map(|_| ask(&server, STRANGER, &one));
    assert_eq!(stranger, [200, 429, 0], "who is not trusted names nobody");
}

/// The shared limit holds, and the proxy's connections are not refused for it.
fn a_limit_that_all_share_bans_no_proxy(engine: &str) {
    let (_folder, server) = start(engine, &trusts(ALL));
    let of_proxy = [0; 3].map(|_| ask(&server, PROXY, ""));
    assert_eq!(of_proxy, [200, 503, 503]);
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, STRANGER, "")], [503, 0]);
}

/// A new connection of a proxy does not show yet whose request it brings.
fn connections_of_a_proxy_are_no_client_s(engine: &str) {
    let (_folder, server) = start(engine, &trusts(NEW));
    for client in ["203.0.113.9", "203.0.113.10", "203.0.113.9"] {
        assert_eq!(ask(&server, PROXY, &for_client(client)), 200);
    }
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, STRANGER, "")], [200, 0]);
}

/// The proxy speaks the PROXY protocol: its health checks state no client, and each client that it states
/// is one.
fn a_proxy_that_states_no_client_shuts_nobody_out(engine: &str) {
    for rule in [EACH, NEW] {
        let (_folder, server) = start(engine, &format!("proxy_protocol = true\n{}", trusts(rule)));
        let ask = |header: &str| {
            let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            say(&server, PROXY, &format!("PROXY {header}\r\n{get}"))
        };
        assert_eq!([0; 3].map(|_| ask("UNKNOWN")), [200; 3], "{}", server.stderr());
        let one = [0; 3].map(|_| ask("TCP4 203.0.113.9 192.0.2.1 4711 80"));
        assert_eq!((one[0], one[2]), (200, 0), "{one:?}");
        assert_eq!(ask("TCP4 203.0.113.10 192.0.2.1 4711 80"), 200);
        assert_eq!(ask("UNKNOWN"), 200);
    }
}

fn own_addresses_and_administrators_are_refused_and_never_ignored(engine: &str) {
    let admin = "admin = { listen = \"unix:admin.sock\", allow = [\"127.0.7.9\", \"unix\"] }\n";
    let (_folder, server) = start(engine, &format!("{admin}{EACH}"));
    let own = server.addr().ip().to_string();
    for spared in [own.as_str(), "127.0.7.9"] {
        let answers = [0; 4].map(|_| ask(&server, spared, ""));
        assert_eq!(answers[1..], [429; 3], "{spared}: {}", server.stderr());
    }
    assert_eq!([0; 3].map(|_| ask(&server, STRANGER, "")), [200, 429, 0]);
}

fn a_reload_that_spares_an_address_lifts_its_ban(engine: &str) {
    let (_folder, options) = options(engine, EACH);
    let server = Server::start(&options);
    assert_eq!([0; 3].map(|_| ask(&server, PROXY, "")), [200, 429, 0]);
    assert_eq!([0; 3].map(|_| ask(&server, STRANGER, "")), [200, 429, 0]);
    server.configure(&Options { config: trusts(EACH), ..options });
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(ask(&server, PROXY, ""), 200);
    assert_eq!(ask(&server, STRANGER, ""), 0, "others stay");
}

#[test]
fn an_operator_is_told_who_is_never_banned() {
    let bad = "[[rule]]\nname = \"bad\"\nclient = \"192.0.2.1\"\naction = \"drop\"\n";
    let (_folder, server) = start("event", &trusts(bad));
    let set = |client: &str| {
        let mut command = Command::new(binary());
        command.args(["policy", "set", "-c"]).arg(server.file());
        let output = command.arg(format!("bad.client={client}")).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let (is_set, said) = set(PROXY);
    let why =
        "rule \"bad\": \"127.0.7.7\" is a trusted proxy (trusted_proxies), and is never banned";
    assert!(!is_set && said.contains(why), "{said}");
    let own = server.addr().ip().to_string();
    let (is_set, said) = set(&own);
    assert!(!is_set && said.contains("is an address of this server (listen)"), "{said}");
    let (is_set, said) = set(STRANGER);
    assert!(is_set, "{said}");
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, PROXY, "")], [0, 200]);
}
