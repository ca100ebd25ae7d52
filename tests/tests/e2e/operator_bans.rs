//! Bans by an operator: `forebay policy ban`, `unban` and `bans`, with the real program.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::upgrade::upgrade;
use forebay_tests::faults::crowd::connect_from;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine, on_isolated};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::Command;

on_each_engine! {
    a_ban_holds_through_reloads_until_it_is_lifted,
    behind_a_proxy_a_ban_is_for_the_client_that_is_stated,
    a_ban_goes_on_in_the_process_that_takes_the_place,
    a_file_that_changes_bans_and_lifts,
}

on_isolated! {
    a_ban_holds_through_reloads_until_it_is_lifted,
    behind_a_proxy_a_ban_is_for_the_client_that_is_stated,
    a_ban_goes_on_in_the_process_that_takes_the_place,
    a_file_that_changes_bans_and_lifts,
}

pub(crate) const PROXY: &str = "127.0.9.7";
pub(crate) const STRANGER: &str = "127.0.9.8";
pub(crate) const OTHER: &str = "127.0.10.9";

pub(crate) fn start(engine: &str, config: &str) -> (Folder, Server) {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let server = Server::start(&Options::new(folder.join("root")).engine(engine).config(config));
    (folder, server)
}

/// The output of a command about a running server, and its exit code.
pub(crate) fn forebay(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    command.args(words).arg("-c").arg(server.file());
    let output = command.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), said)
}

/// The output of a command that must succeed.
#[track_caller]
pub(crate) fn done(server: &Server, words: &[&str]) -> String {
    let (code, said) = forebay(server, words);
    assert_eq!(code, Some(0), "{words:?}: {said}{}", server.stderr());
    said
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// The status of the next answer on a connection; 0 if that is reset or closed.
fn ask_on(stream: &mut TcpStream, request: &str) -> u16 {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    if stream.write_all(request.as_bytes()).is_err() {
        return 0;
    }
    while !answer.ends_with(b"hello") {
        let mut some = [0; 4096];
        match stream.read(&mut some) {
            Ok(0) | Err(_) => break,
            Ok(got) => answer.extend_from_slice(&some[..got]),
        }
    }
    String::from_utf8_lossy(answer.get(9..12).unwrap_or(b"0")).parse().unwrap()
}

/// The status of an answer on a connection of its own. `fields` are lines.
pub(crate) fn ask(server: &Server, from: &str, fields: &str) -> u16 {
    let from: IpAddr = from.parse().unwrap();
    let Ok(mut stream) = connect_from(from, server.addr()) else { return 0 };
    ask_on(&mut stream, &get(&format!("{fields}Connection: close\r\n")))
}

fn a_ban_holds_through_reloads_until_it_is_lifted(engine: &str) {
    let (_folder, server) = start(engine, "");
    let mut kept = connect_from(STRANGER.parse().unwrap(), server.addr()).unwrap();
    assert_eq!(ask_on(&mut kept, &get("")), 200);
    assert_eq!(done(&server, &["policy", "bans"]), "nobody is banned\n");
    let said = done(&server, &["policy", "ban", STRANGER, "--for", "2h", "--why", "a flood"]);
    assert!(said.starts_with(&format!("{STRANGER} is banned for 2h, until 20")), "{said}");
    assert!(said.ends_with("Z: a flood\n"), "{said}");
    // with the next connection, and the next request of one that is there
    assert_eq!([ask(&server, STRANGER, ""), ask_on(&mut kept, &get(""))], [0, 0]);
    assert_eq!([ask(&server, OTHER, ""), ask(&server, PROXY, "")], [200, 200]);
    let shown = done(&server, &["policy", "bans"]);
    let row: Vec<_> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (row[0], &row[2..]),
        (STRANGER, &["1", "1", "command", "a", "flood"][..]),
        "{shown}"
    );
    let status = done(&server, &["status"]);
    let counted = "bans: 1 by command, 0 by files; refused so far: 1 connections, 1 requests";
    assert!(status.contains(counted), "{status}");
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, OTHER, "")], [0, 200]);
    // a network, and what is in it
    done(&server, &["policy", "ban", "127.0.10.0/24"]);
    assert_eq!(ask(&server, OTHER, ""), 0);
    let (code, said) = forebay(&server, &["policy", "unban", OTHER]);
    assert!(code == Some(1) && said.contains("banned as part of 127.0.10.0/24"), "{said}");
    done(&server, &["policy", "unban", STRANGER, "127.0.10.0/24"]);
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, OTHER, "")], [200, 200]);
    assert_eq!(done(&server, &["policy", "bans"]), "nobody is banned\n");
}

/// The proxy itself cannot be banned, even in a network that is banned.
fn behind_a_proxy_a_ban_is_for_the_client_that_is_stated(engine: &str) {
    let (_folder, server) = start(engine, &format!("trusted_proxies = [\"{PROXY}\"]\n"));
    let said = done(&server, &["policy", "ban", "203.0.113.9", "127.0.9.0/24"]);
    assert!(said.contains(&format!("but not {PROXY} in it, a trusted proxy")), "{said}");
    let stated = |client: &str| ask(&server, PROXY, &format!("X-Forwarded-For: {client}\r\n"));
    assert_eq!(["203.0.113.9", "203.0.113.10"].map(stated), [403, 200]);
    assert_eq!([ask(&server, PROXY, ""), ask(&server, STRANGER, "")], [200, 0]);
    // the connection of the proxy goes on with others
    let mut kept = connect_from(PROXY.parse().unwrap(), server.addr()).unwrap();
    kept.set_read_timeout(Some(PATIENCE)).unwrap();
    let both = get("X-Forwarded-For: 203.0.113.9\r\n")
        + &get("X-Forwarded-For: 203.0.113.10\r\nConnection: close\r\n");
    kept.write_all(both.as_bytes()).unwrap();
    let mut answers = String::new();
    kept.read_to_string(&mut answers).unwrap();
    assert!(answers.starts_with("HTTP/1.1 403 ") && answers.ends_with("hello"), "{answers}");
    // a client that comes directly may state any address
    assert_eq!(ask(&server, OTHER, "X-Forwarded-For: 203.0.113.9\r\n"), 200);

    let by_header = format!("trusted_proxies = [\"{PROXY}\"]\nproxy_protocol = true\n");
    let (_folder, server) = start(engine, &by_header);
    done(&server, &["policy", "ban", "203.0.113.9"]);
    let stated = |client: &str| {
        let mut stream = connect_from(PROXY.parse().unwrap(), server.addr()).unwrap();
        let header = format!("PROXY TCP4 {client} 192.0.2.1 4711 80\r\n");
        ask_on(&mut stream, &(header + &get("Connection: close\r\n")))
    };
    assert_eq!(["203.0.113.9", "203.0.113.10"].map(stated), [0, 200]);
}

fn a_ban_goes_on_in_the_process_that_takes_the_place(engine: &str) {
    let (_folder, server) = start(engine, "");
    done(&server, &["policy", "ban", STRANGER, "--why", "a flood"]);
    let successor = upgrade(&server);
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, OTHER, "")], [0, 200]);
    let shown = done(&server, &["policy", "bans"]);
    assert!(shown.contains(STRANGER) && shown.contains("a flood"), "{shown}");
    done(&server, &["policy", "unban", STRANGER]);
    let next = upgrade(&server);
    assert_eq!(ask(&server, STRANGER, ""), 200);
    drop((successor, next));
}

fn a_file_that_changes_bans_and_lifts(engine: &str) {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    folder.write("bans/list.txt", format!("# a list\n{STRANGER} # a flood\n"));
    let list = folder.join("bans/list.txt");
    let config = format!("policy = {{ ban_files = [{list:?}] }}\n");
    let options = Options::new(folder.join("root")).engine(engine).config(&config);
    let server = Server::start(&options);
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, OTHER, "")], [0, 200]);
    // a rename replaces the file, as programs do it
    folder.write("bans/next.txt", format!("{OTHER}\n127.0.11.0/24 2020-01-01T00:00:00Z\n"));
    std::fs::rename(folder.join("bans/next.txt"), &list).unwrap();
    assert!(soon(PATIENCE, || ask(&server, OTHER, "") == 0), "{}", server.stderr());
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, "127.0.11.1", "")], [200, 200]);
    // a line that is wrong leaves what held
    folder.write("bans/list.txt", format!("{STRANGER}\n\n10.0.0.1/8\n"));
    let at = format!("{}:3: \"10.0.0.1/8\": the address has bits behind", list.display());
    server.says(&at);
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, OTHER, "")], [200, 0]);
    std::fs::remove_file(&list).unwrap();
    server.says("cannot be read");
    assert_eq!(ask(&server, OTHER, ""), 0);
    folder.write("bans/list.txt", "");
    assert!(soon(PATIENCE, || ask(&server, OTHER, "") == 200), "{}", server.stderr());
}

#[test]
fn a_list_that_is_wrong_is_an_error_at_a_reload_and_in_check() {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    folder.write("list.txt", STRANGER);
    let list = folder.join("list.txt");
    let options = Options::new(folder.join("root"));
    let server = Server::start(&options.clone().config(""));
    let config = format!("policy = {{ ban_files = [{list:?}] }}\n");
    server.configure(&options.clone().config(&config));
    assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    assert_eq!(ask(&server, STRANGER, ""), 0);
    let (code, said) = forebay(&server, &["policy", "unban", STRANGER]);
    assert!(code == Some(1) && said.contains(&format!("{}:1", list.display())), "{said}");
    folder.write("list.txt", "nobody\n");
    let at = format!("{}:1: \"nobody\": an address or a network is expected", list.display());
    let (code, said) = server.reload();
    assert!(code == Some(78) && said.contains(&at), "{said}");
    let (code, said) = forebay(&server, &["check"]);
    assert!(code == Some(78) && said.contains("policy.ban_files") && said.contains(&at), "{said}");
    assert_eq!(ask(&server, STRANGER, ""), 0);
    server.configure(&options.config(""));
    assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    assert_eq!(ask(&server, STRANGER, ""), 200);
}

#[test]
fn what_is_set_is_kept_while_the_file_says_the_same() {
    let admin = "admin = { listen = \"unix:admin.sock\" }\n";
    let rule = |rate: &str| {
        let limit = format!("{{ rate = \"{rate}\", burst = 5, per = \"client\" }}");
        format!("{admin}[[rule]]\nname = \"each\"\nrequests = {limit}\n")
    };
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let options = Options::new(folder.join("root"));
    let server = Server::start(&options.clone().config(&rule("100/h")));
    let said = done(&server, &["policy", "set", "--keep", "each.requests.burst=1"]);
    assert!(said.contains("kept through reloads, until"), "{said}");
    done(&server, &["policy", "set", "each.requests.rate=1/h"]);
    let status = done(&server, &["status"]);
    assert!(
        status.contains("policy set: each.requests.burst=1 (kept through reloads)"),
        "{status}"
    );
    assert!(
        status.contains("policy set: each.requests.rate=1/h (until the next reload)"),
        "{status}"
    );
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("each.requests.burst stays 1, as policy set --keep has it"), "{said}");
    assert!(said.contains("each.requests.rate is \"100/h\" again, as the file says"), "{said}");
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, STRANGER, "")], [200, 429]);
    let successor = upgrade(&server);
    let status = done(&server, &["status"]);
    assert!(
        status.contains("policy set: each.requests.burst=1 (kept through reloads)"),
        "{status}"
    );
    // for a moment both servers accept, and each counts for itself
    let mut clients = (1..=250).map(|number| format!("127.0.12.{number}"));
    let mut is_limited = || {
        let client = clients.next().unwrap();
        [ask(&server, &client, ""), ask(&server, &client, "")] == [200, 429]
    };
    assert!(soon(PATIENCE, &mut is_limited), "{}", server.stderr());
    // the file has the last word
    server.configure(&options.config(&rule("100/h").replace("burst = 5", "burst = 3")));
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("each.requests.burst is 3 now, which the file has changed"), "{said}");
    assert!(!done(&server, &["status"]).contains("policy set"));
    assert_eq!([0; 4].map(|_| ask(&server, OTHER, "")), [200, 200, 200, 429]);
    drop(successor);
}

/// A night of an operator: one address asks for much more than its share, and each step is one command.
#[test]
fn a_flood_is_found_banned_and_seen_to_be_gone() {
    let each = "[[rule]]\nname = \"each\"\n\
                requests = { rate = \"10/m\", burst = 5, per = \"client\" }\n";
    let (_folder, server) = start("event", each);
    let flood = || (0..40).map(|_| ask(&server, STRANGER, "")).collect::<Vec<_>>();
    assert_eq!(flood().iter().filter(|status| **status == 429).count(), 35);
    assert_eq!(ask(&server, OTHER, ""), 200);
    // 1: the rule that refuses, and the clients
    let shown = done(&server, &["policy", "show"]);
    let most =
        shown.lines().find(|line| line.contains(STRANGER)).unwrap_or_else(|| panic!("{shown}"));
    assert!(most.contains("35") && !shown.contains(OTHER), "{shown}");
    // 2
    done(&server, &["policy", "ban", STRANGER, "--for", "1h", "--why", "a flood"]);
    assert_eq!(flood(), [0; 40]);
    // 3: it works
    let bans = done(&server, &["policy", "bans"]);
    let row: Vec<_> = bans.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[2], row[3]), (STRANGER, "40", "0"), "{bans}");
    assert_eq!(ask(&server, OTHER, ""), 200);
}

#[test]
fn a_rule_from_the_command_line_goes_with_a_reload() {
    let (_folder, server) = start("event", "");
    let rule = ["path=*", "requests.rate=1/h", "requests.per=client"];
    let said = done(&server, &[&["policy", "rule", "add", "night"][..], &rule].concat());
    assert!(said.contains("gone with the next reload"), "{said}");
    assert_eq!([ask(&server, STRANGER, ""), ask(&server, STRANGER, "")], [200, 429]);
    done(&server, &["policy", "rule", "remove", "night"]);
    assert_eq!(ask(&server, STRANGER, ""), 200);
    done(&server, &[&["policy", "rule", "add", "night"][..], &rule].concat());
    assert_eq!([ask(&server, OTHER, ""), ask(&server, OTHER, "")], [200, 429]);
    let (code, said) = server.reload();
    assert!(
        code == Some(0) && said.contains("the rule \"night\" of policy rule add is gone"),
        "{said}"
    );
    assert_eq!(ask(&server, OTHER, ""), 200);
    let (code, said) = forebay(&server, &["policy", "rule", "remove", "night"]);
    assert!(code == Some(2) && said.contains("no rule \"night\" was added"), "{said}");
}

#[test]
fn a_ban_ends_by_itself() {
    let (_folder, server) = start("event", "");
    done(&server, &["policy", "ban", STRANGER, "--for", "1s"]);
    assert!(soon(PATIENCE, || ask(&server, STRANGER, "") == 200), "{}", server.stderr());
    server.says("policy: 1 bans have ended");
}

#[test]
fn what_is_not_banned_is_said_with_the_reason() {
    let admin = "admin = { listen = \"unix:admin.sock\", allow = [\"127.0.9.9\"] }\n";
    let config = format!("trusted_proxies = [\"{PROXY}\"]\n{admin}");
    let (_folder, server) = start("event", &config);
    let own = server.addr().ip().to_string();
    for (words, code, reason) in [
        (&[PROXY][..], 1, "127.0.9.7 is a trusted proxy (trusted_proxies), and is never banned"),
        (&["127.0.9.9"], 1, "127.0.9.9 is an administrator (admin.allow), and is never banned"),
        (&[&own], 1, "is an address of this server (listen), and is never banned"),
        (&[STRANGER, PROXY], 1, "nothing has changed"),
        (&["8.0.0.0/7"], 2, "8.0.0.0/7 is more than /8"),
        (&["2000::/18"], 2, "2000::/18 is more than /8 (IPv6: /19)"),
        (&["localhost"], 2, "an address or a network is expected"),
        (&["127.0.0.1/8"], 2, "is 127.0.0.0/8 meant?"),
        (&[STRANGER, "--for", "soon"], 2, "a whole number and a unit are expected"),
        (&[STRANGER, "--for", "0s"], 2, "a ban lasts a second at least"),
    ] {
        let (found, said) = forebay(&server, &[&["policy", "ban"][..], words].concat());
        assert_eq!(found, Some(code), "{words:?}: {said}");
        assert!(said.contains(reason), "{words:?}: {said}");
    }
    assert_eq!(ask(&server, STRANGER, ""), 200);
    // every client but those
    done(&server, &["policy", "ban", "0.0.0.0/0", "--force"]);
    assert_eq!([PROXY, STRANGER, "127.0.9.9"].map(|from| ask(&server, from, "")), [200, 0, 200]);
}
