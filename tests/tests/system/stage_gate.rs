//! The gate beside stages: what the kernel judges outlives the receive process that has set it up. See
//! `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::gate::CLASSES;
use super::net::{Net, SERVER4, Server, configure, get, is_root, metric, served};
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

const PASSED: &str = "forebay_gate_syns_total{outcome=\"passed\"}";

/// The two rungs on which the kernel judges SYNs.
const RUNGS: [&str; 2] = ["address", "full"];

/// The settings of a server with stages, and of one without.
const WITH: &str = "stages.process = 1\nstages.respond = 1\n";
const WITHOUT: &str = "";

fn limit(stages: &str, rung: &str, name: &str, burst: u32) -> String {
    let classes = if rung == "full" { CLASSES } else { "" };
    format!(
        "user = \"nobody\"\ngate = \"{rung}\"\n{stages}[[rule]]\nname = \"{name}\"\n\
         connections = {{ rate = \"1/h\", burst = {burst}, over = \"reset\" }}\n{classes}"
    )
}

/// The process of a stage that this supervisor has started.
pub(super) fn stage(supervisor: u32, name: &str) -> Option<Pid> {
    stages(supervisor, name).into_iter().next()
}

/// All processes of a stage: after a reload the old ones end when their connections have ended.
fn stages(supervisor: u32, name: &str) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    let children = children.unwrap_or_default();
    let of = children.split_whitespace().filter(|child| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(2) == Some(name.as_bytes())
    });
    of.filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
}

/// Reloads, and waits until the old receive has gone: it may itself refuse connections that it has
/// accepted.
fn reload(server: &Server) {
    server.command(&["reload"]);
    let is_alone = || stages(server.child.id(), "receive").len() == 1;
    assert!(soon(PATIENCE, is_alone), "{}", server.said());
}

fn kill(server: &Server, name: &str) {
    let before = stage(server.child.id(), name).unwrap();
    kill_process(before, Signal::KILL).unwrap();
    let is_another = || stage(server.child.id(), name).is_some_and(|now| now != before);
    assert!(soon(PATIENCE, is_another), "{}", server.said());
}

/// Waits until receive has begun to judge this number of times.
fn has_judged(server: &Server, times: usize) {
    let said = || server.said().matches(": serving ").count() >= times;
    assert!(soon(PATIENCE, said), "{}", server.said());
}

#[test]
fn a_crash_of_receive_forgets_nothing_that_was_charged() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        let net = Net::new();
        let server = Server::start(&net, &limit(WITH, rung, "few", 5));
        assert_eq!(served(&net, SERVER4, 2), 2);
        for times in 2..4 {
            kill(&server, "receive");
            has_judged(&server, times);
            assert_eq!(metric(&net, PASSED), times as u64, "{rung}: {}", server.said());
            assert_eq!(served(&net, SERVER4, 1), 1, "{rung}: {}", server.said());
        }
        assert_eq!(served(&net, SERVER4, 9), 1, "{rung}: {}", server.said());
        assert_eq!(metric(&net, PASSED), 5);
        assert_eq!(metric(&net, "forebay_gate_interfaces"), 1);
    }
}

/// No SYN of a flood comes through while there is no receive.
#[test]
fn a_flood_is_judged_while_receive_is_started_again() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let server = Server::start(&net, &limit(WITH, "full", "few", 10));
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let flood = {
        let (stop, answers, client) = (Arc::clone(&stop), Arc::clone(&answers), net.client.clone());
        thread::spawn(move || {
            super::net::within(&client, move || {
                let address = SocketAddr::new(SERVER4.parse().unwrap(), 80);
                let mut tries = 0;
                while !stop.load(Relaxed) {
                    answers.fetch_add(usize::from(get(address).is_ok()), Relaxed);
                    tries += 1;
                }
                tries
            })
        })
    };
    assert!(soon(PATIENCE, || answers.load(Relaxed) >= 10), "{}", server.said());
    for times in 2..7 {
        kill(&server, "receive");
        has_judged(&server, times);
    }
    stop.store(true, Relaxed);
    let tries = flood.join().unwrap();
    assert_eq!(answers.load(Relaxed), 10, "of {tries}: {}", server.said());
    assert_eq!(metric(&net, PASSED), 10, "of {tries}: {}", server.said());
}

#[test]
fn a_reload_goes_on_judging_by_the_rules_of_the_new_file() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        let net = Net::new();
        let server = Server::start(&net, &limit(WITH, rung, "few", 5));
        assert_eq!(served(&net, SERVER4, 2), 2);
        reload(&server);
        assert_eq!(served(&net, SERVER4, 9), 3, "{rung}: {}", server.said());
        configure(&server.folder, &limit(WITH, rung, "fewer", 1));
        reload(&server);
        assert_eq!(served(&net, SERVER4, 3), 1, "{rung}: {}", server.said());
        // the receive that serves now has the words
        kill(&server, "receive");
        has_judged(&server, 4);
        assert_eq!(served(&net, SERVER4, 3), 0, "{rung}: {}", server.said());
        assert_eq!(metric(&net, "forebay_gate_interfaces"), 1);
    }
}

/// Upgrades from a server without stages to one with them, and back.
#[test]
fn an_upgrade_goes_on_judging_with_stages_and_without() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        let net = Net::new();
        let server = Server::start(&net, &limit(WITHOUT, rung, "few", 6));
        assert_eq!(served(&net, SERVER4, 1), 1);
        let mut before = None;
        for stages in [WITH, WITH, WITHOUT] {
            configure(&server.folder, &limit(stages, rung, "few", 6));
            let next = server.upgrade(&net);
            assert_eq!(served(&net, SERVER4, 1), 1, "{rung} {stages}: {}", server.said());
            if let Some(before) = before.replace(next) {
                assert!(soon(PATIENCE, || !before.is_there()), "{}", server.said());
            }
        }
        assert_eq!(served(&net, SERVER4, 9), 2, "{rung}: {}", server.said());
        assert_eq!(metric(&net, PASSED), 6, "{rung}");
        drop(before);
    }
}

#[test]
fn nothing_is_left_of_stages_that_were_killed() {
    if !is_root() {
        return;
    }
    for rung in RUNGS {
        let net = Net::new();
        let mut server = Server::start(&net, &limit(WITH, rung, "few", 1));
        assert_eq!(served(&net, SERVER4, 3), 1);
        let receive = stage(server.child.id(), "receive").unwrap();
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let _ = kill_process(receive, Signal::KILL);
        // another server takes the address: no gate judges its clients
        let mut bound = None;
        let is_free = || {
            bound = net.server(|| TcpListener::bind((SERVER4, 80)).ok());
            bound.is_some()
        };
        assert!(soon(PATIENCE, is_free), "{rung}");
        let listener = bound.unwrap();
        let accepting = thread::spawn(move || listener.accept().unwrap());
        // the kernel may take its programs off a moment after the processes have ended
        let is_let_in = || net.client(|| TcpStream::connect((SERVER4, 80)).is_ok());
        assert!(soon(PATIENCE, is_let_in), "{rung}: somebody judges still");
        accepting.join().unwrap();
    }
}
