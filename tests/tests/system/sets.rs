//! Sets of nftables that rules name by `client_set`: the whole server, with and without the gate. See `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::gate::CLASSES;
use super::net::{
    CLIENT4, CLIENT6, Net, SERVER4, SERVER6, Server, configure, get, is_root, metric,
};
use forebay_tests::faults::{has, soon};
use forebay_tests::server::{binary, engine_lines};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, is_full_matrix};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

const INTERVAL: &str = "user = \"nobody\"\nfirewall.sets_interval = \"1s\"\n";
const RULE: &str = "[[rule]]\nname = \"listed\"\nclient_set = [\"inet knl listed4\", \"inet knl listed6\"]\n\
                    action = \"reset\"\n";
const SETS: &str = "table inet knl {\nset listed4 { type ipv4_addr; flags interval, timeout; }\n\
                    set listed6 { type ipv6_addr; flags interval; }\n}\n";

/// Whether sets can be tested here; reports loudly if not.
fn can(test: &str) -> bool {
    let lacks = match Command::new("nft").arg("--version").output() {
        Err(_) => Err("there is no nft: the package nftables has it"),
        Ok(_) => Ok(()),
    };
    is_root() && has(lacks, test).is_some()
}

/// Has `nft` run a script in the server's namespace.
fn nft(net: &Net, script: &str) {
    let mut child = Command::new("ip")
        .args(["netns", "exec", &net.server, "nft", "-f", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{}", &script[..script.len().min(300)]);
}

fn is_served(net: &Net, server: &str) -> bool {
    let address = SocketAddr::new(server.parse::<IpAddr>().unwrap(), 80);
    net.client(move || get(address).is_ok_and(|answer| answer.ends_with("hello")))
}

/// Waits until clients are served over IPv4 and over IPv6, or are not.
fn becomes(net: &Net, server: &Server, expected: [bool; 2]) {
    let is = || [SERVER4, SERVER6].map(|ip| is_served(net, ip)) == expected;
    assert!(soon(PATIENCE, is), "{expected:?}: {}", server.said());
}

fn says(server: &Server, text: &str) {
    assert!(soon(PATIENCE, || server.said().contains(text)), "{text}: {}", server.said());
}

#[test]
fn a_rule_follows_the_sets_that_it_names() {
    if !can("a_rule_follows_the_sets_that_it_names") {
        return;
    }
    let all =
        ENGINES.iter().filter(|engine| is_full_matrix() || ["event", "pool"].contains(engine));
    for (engine, gate) in
        all.flat_map(|engine| ["off", "address", "full"].map(|gate| (engine, gate)))
    {
        let net = Net::new();
        nft(&net, SETS);
        let lines = format!("{INTERVAL}gate = \"{gate}\"\n{}{CLASSES}{RULE}", engine_lines(engine));
        let server = Server::start(&net, &lines);
        becomes(&net, &server, [true, true]);
        nft(&net, "add element inet knl listed4 { 10.99.0.2-10.99.0.9, 192.0.2.0/24 }");
        becomes(&net, &server, [false, true]);
        nft(&net, &format!("add element inet knl listed6 {{ {CLIENT6} }}"));
        becomes(&net, &server, [false, false]);
        if gate != "off" {
            assert!(metric(&net, "forebay_gate_syns_total{outcome=\"reset\"}") > 0);
        }
        nft(&net, "flush set inet knl listed4\nflush set inet knl listed6");
        becomes(&net, &server, [true, true]);
        // an element with a time, which the kernel lists in another form
        nft(&net, &format!("add element inet knl listed4 {{ {CLIENT4} timeout 1h }}"));
        becomes(&net, &server, [false, true]);
        nft(&net, "flush set inet knl listed4");
        becomes(&net, &server, [true, true]);
    }
}

#[test]
fn a_set_that_is_away_keeps_what_it_held() {
    if !can("a_set_that_is_away_keeps_what_it_held") {
        return;
    }
    let net = Net::new();
    let server = Server::start(&net, &format!("{INTERVAL}gate = \"address\"\n{RULE}"));
    says(&server, "set inet knl listed4: nft says: ");
    becomes(&net, &server, [true, true]);
    nft(&net, SETS);
    nft(&net, &format!("add element inet knl listed4 {{ {CLIENT4} }}"));
    says(&server, "set inet knl listed4: is read again");
    becomes(&net, &server, [false, true]);
    nft(&net, "delete table inet knl");
    says(&server, "1 networks that were read before stay in force");
    // a reload keeps it, too, and an upgrade, which reads it for the first time, has none
    configure(&server.folder, &format!("{INTERVAL}gate = \"address\"\nsample = 3\n{RULE}"));
    server.command(&["reload"]);
    assert!(!is_served(&net, SERVER4) && is_served(&net, SERVER6));
    // a set that holds no addresses
    nft(&net, "table inet knl {\nset listed4 { type inet_service; }\n}\n");
    says(&server, "set inet knl listed4: it holds inet_service, not addresses");
    assert!(!is_served(&net, SERVER4));
    nft(&net, "delete table inet knl");
    nft(&net, SETS);
    becomes(&net, &server, [true, true]);
}

#[test]
fn a_large_set_is_in_force_and_one_that_is_too_large_is_not_taken() {
    if !can("a_large_set_is_in_force_and_one_that_is_too_large_is_not_taken") {
        return;
    }
    let net = Net::new();
    let first = u32::from(Ipv4Addr::new(172, 16, 0, 0));
    // every other address, so that nothing can be one network
    let address = |number: u32| Ipv4Addr::from_bits(first + 2 * number).to_string();
    let many: Vec<String> = (0..65_535).map(address).collect();
    nft(&net, SETS);
    let text = format!("add element inet knl listed4 {{ {CLIENT4}, {} }}\n", many.join(", "));
    nft(&net, &text);
    // beside a path, of which each request would try them
    let path = RULE.replace("action", "path = \"/\"\naction").replace("listed\"", "too\"");
    let server = Server::start(&net, &format!("{INTERVAL}gate = \"address\"\n{RULE}{path}"));
    becomes(&net, &server, [false, true]);
    nft(&net, &format!("add element inet knl listed4 {{ {} }}", address(65_535)));
    // by itself the server waits long after this many failures
    server.command(&["reload"]);
    says(&server, "it holds more than 65536 networks; 65536 networks that were read before stay");
    assert!(!is_served(&net, SERVER4) && is_served(&net, SERVER6));
    nft(&net, "flush set inet knl listed4");
    server.command(&["reload"]);
    assert!(is_served(&net, SERVER4) && is_served(&net, SERVER6));
}

#[test]
fn an_upgrade_and_a_reload_read_sets() {
    if !can("an_upgrade_and_a_reload_read_sets") {
        return;
    }
    let net = Net::new();
    nft(&net, SETS);
    let slow = "user = \"nobody\"\nfirewall.sets_interval = \"1h\"\n";
    let server = Server::start(&net, &format!("{slow}{RULE}"));
    nft(&net, &format!("add element inet knl listed4 {{ {CLIENT4} }}"));
    assert!(is_served(&net, SERVER4));
    server.command(&["reload"]);
    assert!(!is_served(&net, SERVER4));
    nft(&net, "flush set inet knl listed4");
    let _successor = server.upgrade(&net);
    assert!(is_served(&net, SERVER4));
}

#[test]
fn sets_are_read_by_a_helper_that_is_there_from_the_start() {
    if !can("sets_are_read_by_a_helper_that_is_there_from_the_start") {
        return;
    }
    let net = Net::new();
    nft(&net, SETS);
    let server = Server::start(&net, INTERVAL);
    configure(&server.folder, &format!("{INTERVAL}{RULE}"));
    let mut reload = Command::new(binary());
    let output = reload.args(["reload", "-c"]).arg(server.file()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("restart the server"), "{said}");
    assert!(is_served(&net, SERVER4));
}
