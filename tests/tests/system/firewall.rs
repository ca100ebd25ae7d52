//! Ignored clients and listed addresses in the machine's firewall: server, clients and firewall in a
//! network namespace of their own. It needs root and nft, in CI without exception.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::stage_gate::stage;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::server::{binary, free_addr};
use forebay_tests::upgrade::{Successor, upgrade};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine, on_isolated};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const EACH: &str = "[[rule]]\nname = \"each\"\nconnections = { rate = \"1/h\", burst = 2, per = \"client\", ignore = \"10m\" }\n";

on_each_engine!(
    a_refused_client_is_dropped_by_the_firewall,
    a_proxy_is_in_no_set,
    an_upgrade_keeps_the_table
);
on_isolated!(an_upgrade_keeps_the_table, a_crash_of_receive_lets_nobody_in);

/// Runs a test in a network namespace that is gone afterwards, or says why it is not run.
fn alone(test: &str, what: impl FnOnce() + Send + 'static) {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let lacks = match Command::new("nft").arg("--version").output() {
        _ if !rustix::process::geteuid().is_root() => Err("it needs root"),
        Err(_) => Err("there is no nft: the package nftables has it"),
        Ok(_) => Ok(()),
    };
    if has(lacks, test).is_none() {
        return;
    }
    let name = format!("fbw{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
    run("ip", &["netns", "add", &name]);
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    let outcome = thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        what();
    })
    .join();
    run("ip", &["netns", "del", &name]);
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tables() -> String {
    run("nft", &["list", "tables"])
}

/// Whether an address is an element of a set of the server's table.
fn holds(set: &str, element: &str) -> bool {
    let output = Command::new("nft").args(["list", "set", "inet", "forebay", set]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.split([' ', ',', '\n']).any(|word| word == element)
}

/// The number of packets that a counter of the server's table has seen since the server has read it.
fn packets(counter: &str) -> u64 {
    let text = run("nft", &["list", "counter", "inet", "forebay", counter]);
    let found = text.split_once("packets ").and_then(|(_, rest)| rest.split(' ').next());
    found.unwrap().parse().unwrap()
}

fn site() -> (Folder, Options) {
    let folder = Folder::new();
    folder.write("root/index.html", "hello");
    let options = Options::new(folder.join("root"));
    (folder, options.config("user = \"nobody\"\nfirewall.mode = \"nftables\""))
}

/// A socket with the address of a client.
fn socket(from: &str, flags: SocketFlags, to: SocketAddr) -> OwnedFd {
    let from = SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0);
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, flags, None).unwrap();
    bind(&socket, &from).unwrap();
    socket
}

/// Sends a SYN, which the kernel repeats until the socket is dropped.
fn knock(from: &str, to: SocketAddr) -> OwnedFd {
    let socket = socket(from, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, to);
    assert_eq!(connect(&socket, &to), Err(Errno::INPROGRESS));
    socket
}

fn is_connected(socket: &OwnedFd) -> bool {
    rustix::net::getpeername(socket).is_ok()
}

/// The answer that a client gets, which may be empty.
fn get(from: &str, to: SocketAddr) -> String {
    let socket = socket(from, SocketFlags::CLOEXEC, to);
    connect(&socket, &to).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    if stream.write_all(GET).is_ok() {
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8(answer).unwrap()
}

fn is_served(from: &str, to: SocketAddr) -> bool {
    get(from, to).ends_with("hello")
}

/// Has a client use up its limit, and be refused once.
fn be_refused(from: &str, to: SocketAddr) {
    assert!(is_served(from, to) && is_served(from, to));
    assert!(!is_served(from, to));
}

/// The output of `policy show`.
fn shown(server: &Server) -> String {
    let file = server.file();
    run(binary().to_str().unwrap(), &["policy", "show", "-c", file.to_str().unwrap()])
}

fn a_refused_client_is_dropped_by_the_firewall(engine: &str) {
    let engine = engine.to_owned();
    alone("a_refused_client_is_dropped_by_the_firewall", move || {
        let (_folder, options) = site();
        let server = Server::start(&options.engine(&engine).config(EACH));
        let at = server.addr();
        be_refused("127.0.5.1", at);
        assert!(soon(PATIENCE, || holds("clients4", "127.0.5.1")), "{}", server.stderr());
        let socket = knock("127.0.5.1", at);
        assert!(soon(PATIENCE, || packets("clients") > 0));
        assert!(!is_connected(&socket));
        // and no other client is dropped
        assert!(is_served("127.0.5.2", at));
        // the helper may be busy for longer than its figures are waited for
        let is_told = || {
            let shown = shown(&server);
            // the output was taken from the counter, which may have gone on since
            let dropped =
                shown.split_once("SYNs dropped: ").and_then(|(_, rest)| rest.split_once(' '));
            let dropped = dropped.and_then(|(count, _)| count.parse::<u64>().ok());
            shown.contains("table inet forebay in force; 1 clients of at most 65536")
                && dropped.is_some_and(|count| count > 0)
        };
        assert!(soon(PATIENCE, is_told), "{}", shown(&server));
        // the server has given the right up
        let rights = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let rights = rights.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
        assert_eq!(u64::from_str_radix(rights, 16).unwrap() & !(1 << 10), 0, "{rights}");
    });
}

/// The table stays in force, with the clients in it, while another process takes the server's place, and
/// is removed with the last one.
fn an_upgrade_keeps_the_table(engine: &str) {
    let engine = engine.to_owned();
    alone("an_upgrade_keeps_the_table", move || {
        let (_folder, options) = site();
        let server = Server::start(&options.clone().engine(&engine).config(EACH));
        let at = server.addr();
        be_refused("127.0.5.1", at);
        assert!(soon(PATIENCE, || holds("clients4", "127.0.5.1")), "{}", server.stderr());
        let is_watched = Arc::new(AtomicBool::new(true));
        let watched = Arc::clone(&is_watched);
        let file = File::open("/proc/thread-self/ns/net").unwrap();
        let watcher = thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let mut looks = 0;
            while watched.load(Relaxed) {
                assert!(holds("clients4", "127.0.5.1"), "after {looks} looks");
                looks += 1;
            }
            looks
        });
        let before = Successor::of(server.pid());
        let first = upgrade(&server);
        // the old process goes on accepting for a moment
        assert!(soon(PATIENCE, || !before.is_there()), "{}", server.stderr());
        be_refused("127.0.5.2", at);
        assert!(soon(PATIENCE, || holds("clients4", "127.0.5.2")), "{}", server.stderr());
        let second = upgrade(&server);
        assert!(soon(PATIENCE, || !first.is_there()));
        let socket = knock("127.0.5.1", at);
        assert!(soon(PATIENCE, || packets("clients") > 0) && !is_connected(&socket));
        assert!(holds("clients4", "127.0.5.2") && is_served("127.0.5.3", at));
        is_watched.store(false, Relaxed);
        assert!(watcher.join().unwrap() > 0);
        // a table of another name is another one
        let config =
            options.clone().engine(&engine).config(&format!("firewall.table = \"other\"\n{EACH}"));
        server.configure(&config);
        let third = upgrade(&server);
        assert!(soon(PATIENCE, || !tables().contains("inet forebay")), "{}", tables());
        assert!(tables().contains("inet other"), "{}", tables());
        drop((before, first, second, third));
        assert!(soon(PATIENCE, || !tables().contains("inet other")), "{}", tables());
    });
}

/// The supervisor keeps the table, and clients in it, while receive is started again.
fn a_crash_of_receive_lets_nobody_in(engine: &str) {
    let engine = engine.to_owned();
    alone("a_crash_of_receive_lets_nobody_in", move || {
        let (_folder, options) = site();
        let server = Server::start(&options.engine(&engine).config(EACH));
        let (at, supervisor) = (server.addr(), server.pid());
        for crash in 1..4 {
            let client = format!("127.0.5.{crash}");
            be_refused(&client, at);
            assert!(soon(PATIENCE, || holds("clients4", &client)), "{}", server.stderr());
            let receive = stage(supervisor, "receive").unwrap();
            kill_process(receive, Signal::KILL).unwrap();
            let is_another = || stage(supervisor, "receive").is_some_and(|now| now != receive);
            while !is_another() {
                assert!(holds("clients4", "127.0.5.1") && holds("clients4", &client));
            }
            let socket = knock(&client, at);
            assert!(is_served("127.0.5.9", at), "{}", server.stderr());
            assert!(holds("clients4", &client) && !is_connected(&socket));
        }
        let told = "3 clients of at most 65536";
        assert!(soon(PATIENCE, || shown(&server).contains(told)), "{}", shown(&server));
        drop(server);
        assert!(soon(PATIENCE, || !tables().contains("inet forebay")), "{}", tables());
    });
}

/// A proxy is in no set, whatever limits and rules say of it; and a reload that spares a client removes
/// it from the set.
fn a_proxy_is_in_no_set(engine: &str) {
    const ALL: &str = "[[rule]]\nname = \"all\"\nrequests = { rate = \"1/h\", ignore = \"10m\" }\n";
    const DROP: &str = "[[rule]]\nname = \"bad\"\nclient = \"127.0.6.0/24\"\naction = \"drop\"\n";
    let engine = engine.to_owned();
    alone("a_proxy_is_in_no_set", move || {
        let (_folder, options) = site();
        let with = |proxies: &str| {
            let lines = format!("trusted_proxies = [{proxies}]\n{DROP}{ALL}");
            options.clone().engine(&engine).config(&lines)
        };
        let server = Server::start(&with("\"127.0.5.7\", \"127.0.6.7\""));
        let at = server.addr();
        assert!(is_served("127.0.5.7", at));
        for _ in 0..3 {
            assert!(get("127.0.5.7", at).contains(" 503 "), "{}", server.stderr());
        }
        assert!(get("127.0.5.1", at).contains(" 503 "));
        assert!(soon(PATIENCE, || holds("clients4", "127.0.5.1")), "{}", server.stderr());
        assert!(!holds("clients4", "127.0.5.7"));
        // the server itself enforces a rule on a proxy: its SYN is answered
        let socket = knock("127.0.6.1", at);
        assert!(soon(PATIENCE, || packets("listed") > 0) && !is_connected(&socket));
        assert_eq!(get("127.0.6.7", at), "", "the server resets it");
        server.configure(&with("\"127.0.5.0/24\""));
        assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
        assert!(soon(PATIENCE, || !holds("clients4", "127.0.5.1")));
        assert!(get("127.0.5.1", at).contains(" 503 "));
    });
}

#[test]
fn an_ipv6_client_is_a_network_of_64_bits() {
    alone("an_ipv6_client_is_a_network_of_64_bits", || {
        for ip in ["2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1"] {
            run("ip", &["addr", "add", &format!("{ip}/128"), "dev", "lo", "nodad"]);
        }
        let (_folder, options) = site();
        let addr = SocketAddr::new("::1".parse().unwrap(), 8080);
        let more = format!("[[listener]]\nlisten = [\"{addr}\"]\n{EACH}");
        let server = Server::start(&options.config(&more));
        assert!(soon(PATIENCE, || is_served("2001:db8:1:3::1", addr)), "{}", server.stderr());
        be_refused("2001:db8:1:2::1", addr);
        assert!(soon(PATIENCE, || holds("clients6", "2001:db8:1:2::")));
        let socket = knock("2001:db8:1:2::2", addr);
        assert!(soon(PATIENCE, || packets("clients") > 0));
        assert!(!is_connected(&socket) && is_served("2001:db8:1:3::1", addr));
    });
}

#[test]
fn what_rules_drop_is_dropped_as_long_as_they_say_so() {
    alone("what_rules_drop_is_dropped_as_long_as_they_say_so", || {
        let (_folder, options) = site();
        let friend = "[[rule]]\nclient = \"127.0.7.7\"\naction = \"allow\"\n";
        let drop = |network: &str| {
            options.clone().config(&format!(
                "{friend}[[rule]]\nclient = \"{network}\"\naction = \"drop\"\n{EACH}"
            ))
        };
        let server = Server::start(&drop("127.0.7.0/24"));
        let at = server.addr();
        let socket = knock("127.0.7.1", at);
        assert!(soon(PATIENCE, || packets("listed") > 0) && !is_connected(&socket));
        assert!(is_served("127.0.7.7", at) && is_served("127.0.8.1", at));
        be_refused("127.0.5.1", at);
        assert!(soon(PATIENCE, || holds("clients4", "127.0.5.1")));
        // a reload changes what is listed, and keeps clients
        server.configure(&drop("127.0.8.0/24"));
        assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
        assert!(soon(PATIENCE, || holds("list2_ip", "127.0.8.0/24")));
        assert!(is_served("127.0.7.1", at) && holds("clients4", "127.0.5.1"));
        // a reload that ignores no client any more releases them
        server.configure(&options);
        assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
        assert!(soon(PATIENCE, || !holds("clients4", "127.0.5.1") && is_served("127.0.5.1", at)));
        // and what is decided at the start stays
        server.configure(&options.clone().config("firewall.clients = 7"));
        let (code, said) = server.reload();
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("firewall cannot change while the server runs: restart it"),
            "{said}"
        );
    });
}

#[test]
fn a_table_that_was_removed_comes_back() {
    alone("a_table_that_was_removed_comes_back", || {
        let (_folder, options) = site();
        let server = Server::start(&options.config(EACH));
        run("nft", &["flush", "ruleset"]);
        be_refused("127.0.5.1", server.addr());
        assert!(soon(PATIENCE, || holds("clients4", "127.0.5.1")), "{}", server.stderr());
        let said =
            "firewall: the table forebay could not be changed and is made anew: nft says: Error:";
        assert!(soon(PATIENCE, || server.stderr().contains(said)), "{}", server.stderr());
    });
}

#[test]
fn there_are_no_more_clients_than_there_may_be() {
    alone("there_are_no_more_clients_than_there_may_be", || {
        let (_folder, options) = site();
        let server = Server::start(&options.config("firewall.clients = 2").config(EACH));
        for host in 1..=4 {
            be_refused(&format!("127.0.5.{host}"), server.addr());
        }
        // the last of them may not have been looked at, and the firewall may not know the first yet
        for told in ["2 clients of at most 2", "2 for want of room"] {
            assert!(soon(PATIENCE, || shown(&server).contains(told)), "{}", shown(&server));
        }
        assert!(soon(PATIENCE, || holds("clients4", "127.0.5.1")), "{}", server.stderr());
        assert!(!holds("clients4", "127.0.5.4"));
        // the server refuses clients that the firewall does not drop
        assert!(!is_served("127.0.5.4", server.addr()));
    });
}

#[test]
fn the_table_goes_with_the_server() {
    alone("the_table_goes_with_the_server", || {
        let (_folder, options) = site();
        for signal in [Signal::TERM, Signal::KILL] {
            let mut server = Server::start(&options.clone().config(EACH));
            assert!(tables().contains("table inet forebay"), "{}", server.stderr());
            server.signal(signal);
            assert!(server.wait(PATIENCE).is_some(), "{}", server.stderr());
            assert!(soon(PATIENCE, || tables().is_empty()), "{signal:?}");
        }
        // a table that was left behind is cleared by the next start
        run("nft", &["add", "table", "inet", "forebay"]);
        run("nft", &["add", "chain", "inet", "forebay", "stray"]);
        let server = Server::start(&options.clone().config(EACH));
        assert!(!run("nft", &["list", "ruleset"]).contains("stray"));
        // and one of another server is not touched
        let (code, said) = start(&options.clone().config(EACH));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("another server has the table \"forebay\""), "{said}");
        let other = options.config("firewall.table = \"other\"").config(EACH);
        let other = Server::start(&other);
        assert!(tables().contains("inet other") && tables().contains("inet forebay"));
        drop(other);
        drop(server);
        assert!(soon(PATIENCE, || tables().is_empty()));
    });
}

#[test]
fn without_its_helper_the_server_goes_on() {
    alone("without_its_helper_the_server_goes_on", || {
        let (_folder, options) = site();
        let server = Server::start(&options.config(EACH));
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        let helper = fs::read_to_string(children).unwrap();
        let helper = rustix::process::Pid::from_raw(helper.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(helper, Signal::KILL).unwrap();
        be_refused("127.0.5.1", server.addr());
        let said = "firewall: its helper has ended; only a restart of the server begins another";
        assert!(soon(PATIENCE, || server.stderr().contains(said)), "{}", server.stderr());
        assert!(is_served("127.0.5.2", server.addr()));
        assert!(!is_served("127.0.5.1", server.addr()), "the server ignores it");
        // the line is written before the figures are
        let told = "not in force: the server alone refuses";
        assert!(soon(PATIENCE, || shown(&server).contains(told)), "{}", shown(&server));
    });
}

/// Starts a server that ends by itself. Returns its exit code and its output.
fn start(options: &Options) -> (Option<i32>, String) {
    let folder = Folder::new();
    let text =
        format!("listen = [\"{}\"]\nroot = {:?}\n{}", free_addr(), options.root, options.config);
    let file = folder.write("forebay.toml", text);
    let mut command = Command::new("timeout");
    command.arg("60").arg(binary()).args(["run", "-c"]).arg(file);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn without_the_right_it_is_said() {
    alone("without_the_right_it_is_said", || {
        let folder = Folder::new();
        folder.write("root/index.html", "hello");
        let mut options = Options::new(folder.join("root")).config(EACH);
        options.user = Some(65534);
        let auto = options.clone().config("[firewall]\nmode = \"auto\"");
        let server = Server::start(&auto);
        let why = "firewall: no CAP_NET_ADMIN; start it as root";
        server.says(why);
        server.says("; the server alone refuses clients");
        be_refused("127.0.5.1", server.addr());
        assert!(tables().is_empty());
        // with it, without a program called nft
        let options = Options::new(folder.join("root")).config(EACH);
        let mut without = options.config("[firewall]\nmode = \"auto\"");
        without.wrapper = ["unshare", "--mount", "sh", "-c"].map(str::to_owned).to_vec();
        let hide = "for f in /usr/sbin/nft /sbin/nft /usr/local/sbin/nft /usr/bin/nft; do \
                    [ -e $f ] && mount --bind /dev/null $f; done; exec \"$0\" \"$@\"";
        without.wrapper.push(hide.to_owned());
        let server = Server::start(&without);
        let why = "firewall: there is no nft here; the package nftables has it";
        server.says(why);
    });
}
