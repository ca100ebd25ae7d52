//! Stages on several machines: three network namespaces, one with the clients and receive, two with the stages behind.
//! One machine is cut off without a word, under load, and comes back. And two with all stages, which stand in for one another.
//! It needs root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::net::{ip, is_root, run, within};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The page of the site, of which each machine has its own copy.
const PAGE: &str = "<title>home</title>";

/// Requests per second.
const RATE: u64 = 400;

/// A machine: a namespace with its own addresses and its own root, and a server in it.
struct Machine {
    namespace: String,
    folder: Folder,
    server: Option<Child>,
}

/// Three machines: a wire joins the first with each of the others.
struct Machines {
    all: Vec<Machine>,
}

impl Machines {
    fn new() -> Machines {
        // tests of one program run side by side
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fbm{}-{number}", std::process::id());
        let machine = |letter: char| Machine {
            namespace: format!("{name}{letter}"),
            folder: Folder::new(),
            server: None,
        };
        let machines = Machines { all: ['a', 'b', 'c'].map(machine).into() };
        let [a, b, c] = &machines.all[..] else { panic!() };
        for Machine { namespace, folder, .. } in [a, b, c] {
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link set lo up"));
            folder.write("root/index.html", PAGE);
        }
        for (behind, net) in [(b, 1), (c, 2)] {
            let (a, behind) = (&a.namespace, &behind.namespace);
            ip(&format!("-n {a} link add v{net} type veth peer name v0 netns {behind}"));
            for (namespace, device, last) in [(a, format!("v{net}"), 1), (behind, "v0".into(), 2)] {
                ip(&format!("-n {namespace} addr add 10.98.{net}.{last}/24 dev {device}"));
                ip(&format!("-n {namespace} link set {device} up"));
            }
        }
        machines
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in &mut self.all {
            if let Some(server) = &mut machine.server {
                let _ = server.kill();
                let _ = server.wait();
            }
            if thread::panicking() {
                eprintln!("{} said:\n{}", machine.namespace, machine.said());
            }
            let _ = Command::new("ip").args(["netns", "del", &machine.namespace]).status();
        }
    }
}

impl Machine {
    /// Starts a server with these lines; `serves` is the line that reports that it serves.
    fn start(&mut self, lines: &str, serves: &str) {
        let at = self.folder.path().display();
        let text = format!("root = \"{at}/root\"\ncontrol.socket = \"{at}/control\"\n{lines}");
        let file = self.folder.write("forebay.toml", text);
        let said = File::create(self.folder.join("said")).unwrap();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace])
            .arg(binary())
            .args(["run", "-c"])
            .arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        self.server = Some(command.spawn().unwrap());
        assert!(soon(PATIENCE, || self.said().contains(serves)), "{}", self.said());
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    /// Cuts the machine off: from now on no packet comes or goes, and no peer learns of it.
    fn is_cut_off(&self) {
        self.nft("add table inet cut");
        for hook in ["input", "output"] {
            let chain = format!("{{ type filter hook {hook} priority 0; policy accept; }}");
            self.nft(&format!("add chain inet cut {hook} {chain}"));
            let device = if hook == "input" { "iifname" } else { "oifname" };
            self.nft(&format!("add rule inet cut {hook} {device} v0 drop"));
        }
    }

    fn is_back(&self) {
        self.nft("delete table inet cut");
    }

    fn nft(&self, words: &str) {
        run("ip", &format!("netns exec {} nft {words}", self.namespace));
    }

    fn status(&self) -> String {
        let output = Command::new(binary())
            .args(["status", "-c"])
            .arg(self.folder.join("forebay.toml"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Signals the processes of a stage.
    fn signal(&self, stage: &str, signal: Signal) {
        let table = self.status();
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let own = rows.filter(|row| row[0] == stage).filter_map(|row| row[2].parse().ok());
        let own: Vec<i32> = own.collect();
        assert_eq!(own.len(), 2, "{table}");
        own.into_iter().for_each(|pid| kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap());
    }

    /// The state of the machine at this address, as this one sees it.
    fn sees(&self, address: &str) -> String {
        let table = self.status();
        let line = table.lines().find(|line| line.contains(address));
        line.unwrap_or_else(|| panic!("{table}")).to_owned()
    }
}

fn get(to: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Asks at a rate while `trouble` lasts, each request at its own time. Returns the number of answers, and
/// the failures.
fn under_load(namespace: &str, trouble: impl FnOnce()) -> (usize, Vec<String>) {
    const CLIENTS: u64 = 16;
    let to: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let (is_over, good) = (AtomicBool::new(false), AtomicUsize::new(0));
    let wrong = thread::scope(|scope| {
        let client = |number: u64| {
            let (is_over, good) = (&is_over, &good);
            move || {
                let namespace = File::open(format!("/run/netns/{namespace}")).unwrap();
                rustix::thread::move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&namespace),
                    Some(rustix::thread::LinkNameSpaceType::Network),
                )
                .unwrap();
                let every = Duration::from_micros(1_000_000 * CLIENTS / RATE);
                let mut next = Instant::now() + every * u32::try_from(number).unwrap() / 16;
                let mut wrong = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                    next += every;
                    match get(to) {
                        Ok(answer) if answer.ends_with(PAGE) => {
                            _ = good.fetch_add(1, Ordering::Relaxed)
                        }
                        other => wrong.push(format!("{other:?}")),
                    }
                }
                wrong
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(client(number))).collect();
        trouble();
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    (good.into_inner(), wrong)
}

#[test]
fn a_machine_is_cut_off_without_a_word_and_comes_back() {
    if !is_root() {
        return;
    }
    let mut machines = Machines::new();
    let keys = machines.all[0].folder.join("keys");
    let made = Command::new(binary()).args(["stages", "keys"]).arg(&keys).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let common = format!("[stages]\nkeys = {keys:?}\nping = \"500ms\"\n");
    for net in [1, 2] {
        let lines = format!("{common}process_listen = [\"10.98.{net}.2:9443\"]\n");
        machines.all[net].start(&lines, "answer other machines");
    }
    let to = "process_at = [\"tls://10.98.1.2:9443\", \"tls://10.98.2.2:9443\"]\n";
    machines.all[0].start(&format!("listen = [\"127.0.0.1:80\"]\n{common}{to}"), ": serving ");
    let [a, b, c] = &machines.all[..] else { panic!() };
    let (good, wrong) = under_load(&a.namespace, || {
        for (lost, at) in [(b, "10.98.1.2"), (c, "10.98.2.2"), (b, "10.98.1.2")] {
            thread::sleep(Duration::from_secs(2));
            lost.is_cut_off();
            assert!(soon(PATIENCE, || a.sees(at).contains("does not answer")), "{}", a.status());
            thread::sleep(Duration::from_secs(3));
            lost.is_back();
            assert!(soon(PATIENCE, || a.sees(at).contains("  answers   ")), "{}", a.status());
        }
    });
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), good + wrong.len(), &wrong[..1]);
    assert!(good > 1000, "{good}");
    // requests go to both again
    let has_requests = |machine: &Machine| within(&machine.namespace.clone(), connections);
    assert!(soon(PATIENCE, || {
        let _ = under_load(&a.namespace, || thread::sleep(Duration::from_millis(200)));
        has_requests(b) > 0 && has_requests(c) > 0
    }));
}

/// Both accept clients, and have all stages: each uses the other's while its own hang, and does without while the other one
/// is cut off.
#[test]
fn two_pipelines_on_two_machines_stand_in_for_one_another() {
    if !is_root() {
        return;
    }
    let mut machines = Machines::new();
    let keys = machines.all[0].folder.join("keys");
    let made = Command::new(binary()).args(["stages", "keys"]).arg(&keys).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    for (at, own, other) in [(0, 1, 2), (1, 2, 1)] {
        let lines = format!(
            "listen = [\"127.0.0.1:80\"]\n[stages]\nkeys = {keys:?}\nping = \"500ms\"\n\
             process_listen = [\"10.98.1.{own}:9443\"]\nprocess_backup = [\"tls://10.98.1.{other}:9443\"]\n"
        );
        machines.all[at].start(&lines, ": serving ");
    }
    let [a, b, _] = &machines.all[..] else { panic!() };
    let mut seen = [(0, Vec::new()), (0, Vec::new())];
    let [of_a, of_b] = &mut seen;
    *of_a = under_load(&a.namespace, || {
        *of_b = under_load(&b.namespace, || {
            for (one, other) in [(a, "10.98.1.2"), (b, "10.98.1.1")] {
                one.signal("process", Signal::STOP);
                let hangs = |table: &str| table.matches("does not answer").count() == 2;
                let is_lost = soon(PATIENCE, || hangs(&one.status()));
                thread::sleep(Duration::from_secs(2));
                one.signal("process", Signal::CONT);
                assert!(is_lost, "{}", one.status());
                assert!(soon(PATIENCE, || !one.status().contains("does not answer")));
                assert!(one.sees(other).contains("  answers   "), "{}", one.status());
            }
            b.is_cut_off();
            assert!(soon(PATIENCE, || a.sees("10.98.1.2").contains("does not answer")));
            thread::sleep(Duration::from_secs(2));
            b.is_back();
            assert!(soon(PATIENCE, || a.sees("10.98.1.2").contains("  answers   ")));
        });
    });
    for (good, wrong) in seen {
        assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), good + wrong.len(), &wrong[..1]);
        assert!(good > 1000, "{good}");
    }
}

/// Connections of this namespace to the port of stages.
fn connections() -> usize {
    let tcp = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    // 9443, established
    tcp.lines().filter(|line| line.contains(":24E3 ") && line.contains(" 01 ")).count()
}
