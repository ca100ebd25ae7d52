//! Gates that are attached by filters: they have the same verdicts as with links, and leave nothing behind
//! when their process is killed.

use super::in_namespace;
use crate::filters::{LOOPBACK, program_of};
use crate::{Charge, Count, Gate, GateError, guard, lock};
use forebay_policy::Policy;
use forebay_policy::class::Class;
use forebay_policy::rate::Rate;
use forebay_policy::rule::{Action, Limit, Over, Rule};
use libbpf_rs::libbpf_sys as sys;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const LISTENERS: [&str; 2] = ["127.0.0.1:8080", "[::1]:8080"];
/// The environment variable with the part that a process has in a test.
const PART: &str = "FOREBAY_TEST_PART";

/// The command that runs this program again, as one of the two functions below.
fn part(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let function = format!("tests::filters::be_{name}");
    command.args(["--ignored", "--exact", &function, "--nocapture"]).env(PART, name);
    command
}

fn is_part(name: &str) -> bool {
    std::env::var(PART).is_ok_and(|part| part == name)
}

#[test]
#[ignore = "a process that the tests below start"]
fn be_guard() {
    if is_part("guard") {
        guard().unwrap();
    }
}

/// Refuses every client, until standard input ends.
#[test]
#[ignore = "a process that the tests below start"]
fn be_server() {
    if !is_part("server") {
        return;
    }
    let gate = by_filters();
    let rule = Rule { name: "all".to_owned(), action: Some(Action::Reset), ..Rule::default() };
    let policy = Policy::new(&[Class::new("default", 0)], vec![rule]).unwrap();
    gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
    gate.attach(&LISTENERS.map(|address| address.parse().unwrap())).unwrap();
    let guard = lock(gate.filters.as_ref().unwrap()).guard();
    let mut out = std::io::stdout();
    writeln!(out, "\nprograms {} {guard}", gate.kernel.program_number()).unwrap();
    out.flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
}

fn by_filters() -> Gate {
    load(Charge::AtHandshake)
}

/// Loads a gate that is attached by filters.
pub(super) fn load(charge: Charge) -> Gate {
    Gate::load(charge).unwrap().by_filters(&mut part("guard")).unwrap()
}

/// A process with a gate, and the output in which it reports its state.
struct Killable {
    child: Child,
    out: BufReader<ChildStdout>,
    judge: u32,
    guard: u32,
}

impl Killable {
    fn start() -> Killable {
        let mut child =
            part("server").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let numbers = loop {
            let mut line = String::new();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "it has ended");
            if let Some(numbers) = line.strip_prefix("programs ") {
                break numbers.trim().to_owned();
            }
        };
        let (judge, guard) = numbers.split_once(' ').unwrap();
        Killable { child, out, judge: judge.parse().unwrap(), guard: guard.parse().unwrap() }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // waits for the end of the process: the guard has another output, so no other process holds this one
        let _ = self.out.read_to_string(&mut String::new());
    }
}

pub(super) fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Whether a process has ended; it may still be a zombie.
fn has_ended(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn is_loaded(program: u32) -> bool {
    // SAFETY: the call has no conditions; a descriptor that it gives is closed.
    unsafe {
        let fd = sys::bpf_prog_get_fd_by_id(program);
        if fd >= 0 {
            libc::close(fd);
        }
        fd >= 0
    }
}

fn connects() -> [bool; 2] {
    LISTENERS.map(|address| TcpStream::connect(address).is_ok())
}

fn listen() -> Vec<TcpListener> {
    LISTENERS.iter().map(|address| TcpListener::bind(address).unwrap()).collect()
}

#[test]
fn nothing_is_left_of_a_process_that_was_killed() {
    in_namespace(|| {
        let _listeners = listen();
        let server = Killable::start();
        let filter = program_of(LOOPBACK, 0).unwrap();
        assert_eq!(connects(), [false; 2]);
        assert!(is_loaded(server.judge) && is_loaded(filter));
        let judge = server.judge;
        server.kill();
        assert!(soon(|| program_of(LOOPBACK, 0).is_none()), "the filter has stayed");
        assert!(soon(|| !is_loaded(judge) && !is_loaded(filter)), "programs have stayed");
        assert_eq!(connects(), [true; 2]);
    });
}

/// With the guard killed, too, the filter stays, but judges nothing, and the next gate removes it.
#[test]
fn a_filter_that_nobody_takes_away_judges_nothing_and_is_removed_by_the_next() {
    in_namespace(|| {
        let _listeners = listen();
        let server = Killable::start();
        let (judge, guard) = (server.judge, server.guard);
        let filter = program_of(LOOPBACK, 0).unwrap();
        // SAFETY: the call has no conditions; the process is one of this test.
        assert_eq!(unsafe { libc::kill(guard.cast_signed(), libc::SIGKILL) }, 0);
        server.kill();
        // the number is taken until the guard has ended
        assert!(soon(|| has_ended(guard)));
        assert!(soon(|| !is_loaded(judge)), "it could still judge");
        assert_eq!(connects(), [true; 2]);
        assert_eq!(program_of(LOOPBACK, 0), Some(filter));
        let next = by_filters();
        assert_eq!(program_of(LOOPBACK, 0), None);
        assert!(soon(|| !is_loaded(filter)));
        drop(next);
    });
}

#[test]
fn gates_beside_one_another_leave_each_others_filters_alone() {
    in_namespace(|| {
        let listeners = LISTENERS.map(|address| address.parse().unwrap());
        let gates = [by_filters(), by_filters()];
        for gate in &gates {
            gate.attach(&listeners).unwrap();
            assert_eq!(gate.interfaces(), [LOOPBACK]);
        }
        let filters = || [0, 1, 2].map(|number| program_of(LOOPBACK, number).is_some());
        assert_eq!(filters(), [true, true, false]);
        let [first, second] = gates;
        drop(first);
        assert_eq!(filters(), [false, true, false]);
        let third = by_filters();
        third.attach(&listeners).unwrap();
        assert_eq!(filters(), [true, true, false]);
        second.detach();
        assert_eq!(filters(), [true, false, false]);
        drop((second, third));
        assert_eq!(filters(), [false; 3]);
    });
}

#[test]
fn a_filter_that_others_have_removed_comes_back_and_a_guard_that_has_ended_is_told() {
    in_namespace(|| {
        let gate = by_filters();
        let listeners = LISTENERS.map(|address| address.parse().unwrap());
        gate.attach(&listeners).unwrap();
        let removed = Command::new("tc").args(["qdisc", "del", "dev", "lo", "clsact"]).status();
        assert!(removed.unwrap().success());
        assert_eq!(program_of(LOOPBACK, 0), None);
        gate.attach(&listeners).unwrap();
        assert!(program_of(LOOPBACK, 0).is_some());
        let guard = lock(gate.filters.as_ref().unwrap()).guard();
        // SAFETY: the call has no conditions; the process is one of this test.
        assert_eq!(unsafe { libc::kill(guard.cast_signed(), libc::SIGKILL) }, 0);
        let is_told = || matches!(gate.attach(&listeners), Err(GateError::Guard(_)));
        assert!(soon(is_told));
        assert!(program_of(LOOPBACK, 0).is_some(), "it judges on");
    });
}

#[test]
fn whether_it_can_be_attached_is_tried_elsewhere() {
    in_namespace(|| {
        let gate = Gate::load(Charge::AtSyn).unwrap();
        gate.try_filters().unwrap();
        assert_eq!(program_of(LOOPBACK, 0), None);
        assert!(!gate.has_filters());
    });
}

/// Three of seven are let in, by each address.
#[test]
fn links_and_filters_have_the_same_verdicts() {
    in_namespace(|| {
        let _listeners = listen();
        for charge in [Charge::AtSyn, Charge::AtHandshake] {
            for by_link in [true, false] {
                for (family, address) in LISTENERS.into_iter().enumerate() {
                    let gate = if by_link { Gate::load(charge) } else { Ok(load(charge)) }.unwrap();
                    if by_link && !gate.has_links() {
                        eprintln!("SKIPPED: this kernel has no links at TC to compare with");
                        continue;
                    }
                    assert_eq!(gate.has_filters(), !by_link);
                    judged_by(&gate, charge, address, &format!("{charge:?} {by_link} {family}"));
                }
            }
        }
    });
}

fn judged_by(gate: &Gate, charge: Charge, address: &str, context: &str) {
    let limit = Limit { over: Over::Reset, ..Limit::new(Rate::parse("1/h").unwrap(), 3) };
    let connections = Some(limit);
    let rule = Rule { name: "few".to_owned(), connections, ..Rule::default() };
    let policy = Policy::new(&[Class::new("default", 0)], vec![rule]).unwrap();
    gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
    let listeners: [SocketAddr; 2] = LISTENERS.map(|address| address.parse().unwrap());
    gate.attach(&listeners).unwrap();
    let counted = |count: Count| gate.counts()[count as usize];
    let mut completed = 0_u64;
    let connected: Vec<bool> = (0..7)
        .map(|_| {
            let is_connected = TcpStream::connect(address).is_ok();
            completed += u64::from(is_connected && charge == Charge::AtHandshake);
            // the segment that completes the handshake, and is charged, may still be under way
            assert!(soon(|| counted(Count::Completed) >= completed), "{context}");
            is_connected
        })
        .collect();
    assert_eq!(connected, [true, true, true, false, false, false, false], "{context}");
    let counted = [Count::Syns, Count::Passed, Count::Reset].map(counted);
    assert_eq!(counted, [7, 3, 4], "{context}");
}
