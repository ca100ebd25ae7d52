//! The engine `isolated`: answers are those of `event`, and processes may end or hang while they work.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::process::freeze;
use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::server::{binary, free_addr};
use forebay_tests::{Options, Server, is_full_matrix, wire};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// A size beyond what waits in the sockets between two processes.
const LARGE_BYTES: usize = 16 * 1024 * 1024;

pub(crate) const RULES: &str = "
[[site.redirect]]
path = \"/old/*\"
to = \"/new/$1\"
[[site.rewrite]]
path = \"/app/*\"
to = \"/sub/$1\"
[[site.access]]
path = \"/closed\"
deny = [\"all\"]
[[site.header]]
path = \"/sub/*\"
set = { X-Sub = \"yes\" }
[[site.auth]]
path = \"/secret\"
users = { alice = \"$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u\" }
";

/// Times for tests that are not about stages which hang: a stage that is slow to acknowledge is waited
/// for, nearly as long as its client waits. Otherwise a request that may not run twice would be lost, and
/// there may be no other instance to send others to.
pub(crate) const UNHURRIED: &str =
    "isolated.acknowledge_floor = \"20s\"\nisolated.acknowledge_ceiling = \"20s\"\n";

/// A site whose files are as old as files that are no longer written.
pub(crate) fn site() -> Folder {
    let folder = Folder::new();
    let large = counting(LARGE_BYTES);
    let files: [(&str, &[u8]); 7] = [
        ("index.html", b"<title>home</title>"),
        ("sub/index.html", b"<title>sub</title>"),
        ("sub/a.txt", b"a"),
        ("closed/a.txt", b"nobody's"),
        ("secret/a.txt", b"alice's"),
        ("text.txt", &[b'x'; 30_000]),
        ("large.bin", &large),
    ];
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let old = SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    }
    folder
}

pub(crate) fn start(folder: &Folder, engine: &str, more: &str) -> Server {
    let config = format!(
        "{more}\n[[site]]\nhosts = [\"*.example\"]\nroot = {:?}\n{RULES}\n",
        folder.join(".")
    );
    Server::start(&Options::new(folder.join(".")).engine(engine).config(&config))
}

pub(crate) fn isolated(folder: &Folder) -> Server {
    // conformance has the other way
    let more = "isolated.http2 = \"on\"\nisolated.acknowledge_floor = \"1s\"\nisolated.back_off = \"50ms\"\n\
                timeouts.send_window = \"1h\"\n";
    start(folder, "isolated", more)
}

/// Starts a server for tests in which no stage hangs.
fn unhurried(folder: &Folder) -> Server {
    let more = format!("{UNHURRIED}isolated.http2 = \"on\"\ntimeouts.send_window = \"1h\"\n");
    start(folder, "isolated", &more)
}

/// Ends a server as an operator does, with all its processes.
pub(crate) fn end(mut server: Server) {
    let all: Vec<u32> = stages(&server).into_iter().map(|(_, pid)| pid).collect();
    server.signal(Signal::TERM);
    let status = server.wait(wire::PATIENCE).expect("it does not end");
    assert!(status.success(), "{status}");
    for pid in all {
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap(), "{pid} is left");
    }
}

/// The processes of the stages, by name and number: `respond 1`.
pub(crate) fn stages(server: &Server) -> Vec<(String, u32)> {
    let pid = server.pid();
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let stage = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<_> = line.split(|&b| b == 0).map(String::from_utf8_lossy).collect();
        let at = words.iter().position(|word| word == "stage")?;
        let number = words.iter().position(|word| word == "--instance")?;
        Some((format!("{} {}", words.get(at + 1)?, words.get(number + 1)?), pid))
    };
    children.split_whitespace().filter_map(|pid| stage(pid.parse().ok()?)).collect()
}

/// The process of a stage, once it is there and is not `before`.
pub(crate) fn stage(server: &Server, name: &str, before: u32) -> u32 {
    let begin = Instant::now();
    loop {
        let found = stages(server).into_iter().find(|(stage, pid)| stage == name && *pid != before);
        if let Some((_, pid)) = found {
            return pid;
        }
        assert!(begin.elapsed() < wire::PATIENCE, "there is no {name}: {}", server.stderr());
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

/// Kills a process, and waits until another is in its place.
fn crash(server: &Server, name: &str) {
    let pid = stage(server, name, 0);
    signal(pid, Signal::KILL);
    stage(server, name, pid);
}

pub(crate) fn get(addr: SocketAddr, target: &str) -> Vec<u8> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    wire::exchange(addr, request.as_bytes())
}

/// The parts of an answer that do not depend on its time: the status, the fields in some order, the body.
pub(crate) fn told(bytes: &[u8]) -> (String, Vec<String>, Vec<u8>) {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    // the tag of a file that is young is weak
    let mut lines =
        head.lines().filter(|line| !line.is_empty()).map(|line| line.replace("W/\"", "\""));
    let status = lines.next().unwrap();
    let mut fields: Vec<_> = lines.filter(|line| !line.starts_with("Date: ")).collect();
    assert!(head.contains("\r\nDate: "), "{head}");
    fields.sort();
    (status, fields, bytes[end..].to_vec())
}

#[test]
fn answers_are_those_of_one_process() {
    let folder = site();
    let (event, isolated) = (start(&folder, "event", ""), unhurried(&folder));
    let asked = [
        ("GET / ", ""),
        ("HEAD / ", ""),
        ("GET /index.html?a=b ", ""),
        ("GET /sub ", ""),
        ("GET /sub/ ", ""),
        ("GET /app/a.txt ", ""),
        ("GET /old/x%20y?q=1 ", ""),
        ("POST /old/x ", "Content-Length: 3\r\n\r\nabc"),
        ("POST /a.txt ", "Content-Length: 3\r\n\r\nabc"),
        ("GET /nothing ", ""),
        ("GET /closed/a.txt ", ""),
        ("GET /secret/a.txt ", ""),
        ("GET /secret/a.txt ", "Authorization: Basic YWxpY2U6d3Jvbmc=\r\n\r\n"),
        ("GET /secret/a.txt ", "Authorization: Basic YWxpY2U6c2VjcmV0\r\n\r\n"),
        ("GET /text.txt ", "Accept-Encoding: gzip\r\n\r\n"),
        ("GET /text.txt ", "Range: bytes=10-19\r\n\r\n"),
        ("GET /text.txt ", "Range: bytes=0-1, 5-6\r\n\r\n"),
        ("GET /text.txt ", "Range: bytes=99999-\r\n\r\n"),
        ("GET /text.txt ", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n\r\n"),
        ("GET /large.bin ", ""),
        ("OPTIONS * ", ""),
        ("OPTIONS / ", ""),
        ("TRACE / ", ""),
        ("BREW / ", ""),
        ("GET /%zz ", ""),
        ("GET /a/../../index.html ", ""),
        ("GET http://b.example/sub/a.txt ", ""),
    ];
    for (begin, rest) in asked {
        let rest = if rest.is_empty() { "\r\n" } else { rest };
        let request = format!("{begin}HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{rest}");
        let [one, many] =
            [&event, &isolated].map(|server| told(&server.exchange(request.as_bytes())));
        assert_eq!(one.0, many.0, "{request}");
        // the parts of several ranges are separated by a random boundary
        if !one.1.iter().any(|field| field.contains("multipart/byteranges")) {
            assert_eq!(one.1, many.1, "{request}");
            assert!(one.2 == many.2, "{request}: other bodies");
        }
    }
    // a request of HTTP/1.0 names no host, and its connection ends with the answer
    let request = b"GET /text.txt HTTP/1.0\r\n\r\n";
    assert_eq!(told(&event.exchange(request)).0, told(&isolated.exchange(request)).0);
    end(isolated);
}

#[test]
fn acknowledgements_and_fields_between_stages_stay_there() {
    let folder = site();
    let server = unhurried(&folder);
    for field in ["", "Forebay-Attempt: 1\r\n", "Forebay-Attempt: 0\r\n"] {
        for line in ["GET /large.bin", "GET /nothing", "OPTIONS *"] {
            let request =
                format!("{line} HTTP/1.1\r\nHost: a.example\r\n{field}Connection: close\r\n\r\n");
            let answer = server.exchange(request.as_bytes());
            assert!(!answer.starts_with(b"HTTP/1.1 1"), "{request}");
            let (status, fields, _) = told(&answer);
            assert!(!status.contains("204") || line == "OPTIONS *", "{request}");
            assert!(!fields.iter().any(|field| field.contains("Forebay-")), "{fields:?}");
        }
    }
    end(server);
}

/// The answer of a stage at this socket.
fn ask_stage(socket: &Path, request: &str) -> String {
    let begin = Instant::now();
    let mut client = loop {
        match UnixStream::connect(socket) {
            Ok(client) => break client,
            Err(error) => assert!(begin.elapsed() < wire::PATIENCE, "{socket:?}: {error}"),
        }
        thread::sleep(Duration::from_millis(5));
    };
    client.set_read_timeout(Some(wire::PATIENCE)).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_stage_acknowledges_what_must_wait_if_it_is_asked_to() {
    let folder = site();
    let file = folder.join("forebay.toml");
    fs::write(&file, "root = \".\"\nengine = \"isolated\"\n").unwrap();
    let mut command = Command::new(binary());
    command.args(["stage", "respond", "-c"]).arg(&file).arg("--links").arg(folder.path());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let socket = folder.join("respond-1.sock");
    let ask = |line: &str, field: &str| {
        let rest = "HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n";
        ask_stage(&socket, &format!("{line} {rest}{field}\r\n"))
    };
    let attempt = "Forebay-Attempt: 1\r\n";
    // a job finds the file: that takes its time
    let first = ask("GET /text.txt", attempt);
    assert!(
        first.starts_with("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n"),
        "{first:.200}"
    );
    assert!(ask("GET /sub/a.txt", "").starts_with("HTTP/1.1 200 OK\r\n"));
    // a file that is in memory is answered at once
    let begin = Instant::now();
    while !ask("GET /text.txt", attempt).starts_with("HTTP/1.1 200 OK\r\n") {
        assert!(begin.elapsed() < wire::PATIENCE);
    }
    assert!(ask("OPTIONS *", "Forebay-Attempt: 0\r\n").starts_with("HTTP/1.1 204 "));
    signal(child.id(), Signal::TERM);
    assert!(child.wait().unwrap().success());
    // a program is no stage without the engine
    fs::write(&file, "root = \".\"\n").unwrap();
    assert_eq!(command.stderr(Stdio::null()).status().unwrap().code(), Some(78));
}

/// A server in the place of respond, which answers some paths at once, and the others when the test
/// allows it.
fn respond_that_waits(socket: &Path) -> mpsc::Sender<()> {
    let listener = UnixListener::bind(socket).unwrap();
    let (tell, told) = mpsc::channel();
    let told = Arc::new(Mutex::new(told));
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, told) = (client.unwrap(), Arc::clone(&told));
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while client.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    if head.starts_with(b"GET /late ") {
                        told.lock().unwrap().recv().unwrap();
                    }
                    // the connection may be used again
                    if head.starts_with(b"POST ") && client.read_exact(&mut [0; 2]).is_err() {
                        return;
                    }
                    head.clear();
                    if client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    tell
}

#[test]
fn an_acknowledgement_is_held_back_until_the_answer_takes_its_time() {
    let folder = site();
    let file = folder.join("forebay.toml");
    // far apart, because a busy machine is late: 1 m is surely enough, and a floor of 50 ms leaves no time
    for (floor, is_held_back) in [("1m", true), ("50ms", false)] {
        let text = format!(
            "root = \".\"\nengine = \"isolated\"\nisolated.respond = 1\n\
             isolated.acknowledge_floor = \"{floor}\"\nisolated.acknowledge_ceiling = \"1m\"\n"
        );
        fs::write(&file, text).unwrap();
        let links = folder.join(floor);
        fs::create_dir(&links).unwrap();
        let tell = respond_that_waits(&links.join("respond-1.sock"));
        let mut command = Command::new(binary());
        command.args(["stage", "process", "-c"]).arg(&file).arg("--links").arg(&links);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let socket = links.join("process-1.sock");
        let rest = "HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nForebay-Attempt: 1\r\n";
        let begin = Instant::now();
        loop {
            let answer = ask_stage(&socket, &format!("GET /now {rest}\r\n"));
            let begins = if is_held_back { "HTTP/1.1 200 " } else { "HTTP/1.1 102 " };
            if answer.starts_with(begins) {
                break;
            }
            assert!(begin.elapsed() < wire::PATIENCE, "{answer}");
        }
        // a request that may not run twice is acknowledged at once
        let post = format!("POST /now {rest}Content-Length: 2\r\n\r\nab");
        assert!(ask_stage(&socket, &post).starts_with("HTTP/1.1 102 "));
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(wire::PATIENCE)).unwrap();
        client.write_all(format!("GET /late {rest}\r\n").as_bytes()).unwrap();
        let interim = b"HTTP/1.1 102 Processing\r\n\r\n";
        let mut first = vec![0; interim.len()];
        client.read_exact(&mut first).unwrap();
        assert_eq!(first, interim);
        tell.send(()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "once: {answer}");
        signal(child.id(), Signal::TERM);
        assert!(child.wait().unwrap().success());
    }
}

/// A flag that is set when this is dropped, also where a check has failed: no thread waits for ever then.
struct SaysSo<'b>(&'b AtomicBool);

impl Drop for SaysSo<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks again and again while `trouble` lasts. Returns how many answers there were; each is whole.
pub(crate) fn under_load(server: &Server, trouble: impl FnOnce()) -> usize {
    let addr = server.addr();
    let (is_over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (home, text) = (b"<title>home</title>".to_vec(), vec![b'x'; 30_000]);
    thread::scope(|scope| {
        for number in 0..4 {
            let (is_over, answers, home, text) = (&is_over, &answers, &home, &text);
            scope.spawn(move || {
                let (target, expected) =
                    if number % 2 == 0 { ("/", home) } else { ("/text.txt", text) };
                while !is_over.load(Ordering::Relaxed) {
                    let (status, fields, body) = told(&get(addr, target));
                    assert_eq!(status, "HTTP/1.1 200 OK", "{fields:?}");
                    assert!(body == *expected, "{target}");
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _over = SaysSo(&is_over);
        trouble();
        // some of what was under way is answered after it
        let enough = answers.load(Ordering::Relaxed) + 40;
        let begin = Instant::now();
        while answers.load(Ordering::Relaxed) < enough && begin.elapsed() < wire::PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
    });
    answers.into_inner()
}

/// The process of respond that works on a request.
fn works_at(server: &Server, known: &[(String, u64)]) -> String {
    let begin = Instant::now();
    loop {
        for (name, before) in known {
            let now = cpu_ticks(stage(server, name, 0));
            if now > before + 30 {
                return name.clone();
            }
        }
        assert!(begin.elapsed() < wire::PATIENCE, "nobody works: {}", server.stderr());
        thread::sleep(Duration::from_millis(5));
    }
}

/// The processor time of a process, in ticks of 10 ms.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
    // user and system time are the twelfth and thirteenth behind the name
    fields
        .iter()
        .flat_map(|fields| &fields[11..13])
        .filter_map(|text| text.parse::<u64>().ok())
        .sum()
}

#[test]
fn what_crashes_processes_is_quarantined_and_what_meets_an_operators_kills_is_answered() {
    let folder = site();
    // no copy may go to the other process because the first is late with it: each crash must hit the
    // request
    let more = format!("{UNHURRIED}isolated.back_off = \"50ms\"\n[[work]]\npath = \"/work\"\n");
    let server = start(&folder, "isolated", &more);
    let addr = server.addr();
    let status_after = |how: Signal, times: usize| {
        let request = thread::spawn(move || {
            let request =
                "GET /work?cpu=3s HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            // four times 3 s of a processor that others want, too
            let patience = 10 * wire::PATIENCE;
            told(&wire::exchange_within(addr, request.as_bytes(), patience)).0
        });
        for _ in 0..times {
            let names = ["respond 1", "respond 2"];
            let known: Vec<_> = names
                .iter()
                .map(|name| ((*name).to_owned(), cpu_ticks(stage(&server, name, 0))))
                .collect();
            let name = works_at(&server, &known);
            let pid = stage(&server, &name, 0);
            signal(pid, how);
            stage(&server, &name, pid);
        }
        request.join().unwrap()
    };
    let answered = "HTTP/1.1 200 OK";
    // a crash of a process is not caught. A supervisor that reports it more than a second late is too late
    let is_quarantined = || {
        let status = status_after(Signal::ABORT, 2);
        let is_refused = status == "HTTP/1.1 503 Service Unavailable";
        assert!(is_refused || status == answered, "{status}: {}", server.stderr());
        is_refused
    };
    assert!((0..3).any(|_| is_quarantined()), "{}", server.stderr());
    assert_eq!(status_after(Signal::KILL, 3), answered, "{}", server.stderr());
    end(server);
}

/// The resources of a process that could leak: descriptors, threads, children, and its cgroup.
fn held(pid: u32) -> (usize, usize, usize, String) {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    (count("fd"), count("task"), children.split_whitespace().count(), cgroup)
}

/// Memory of a process that is in use, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn crashes_of_instances_lose_no_safe_request() {
    let folder = site();
    let server = isolated(&folder);
    under_load(&server, || {});
    let (before, memory) = (held(server.pid()), resident_kib(server.pid()));
    let crashes = if is_full_matrix() { 200 } else { 8 };
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let answers = under_load(&server, || {
        let mut names = ["process 1", "respond 1", "process 2", "respond 2"];
        for number in 0..crashes {
            // each gets its turn, in another order and at another time
            if number % names.len() == 0 {
                random.shuffle(&mut names);
            }
            thread::sleep(Duration::from_millis(random.u64(..50)));
            crash(&server, names[number % names.len()]);
        }
    });
    println!("seed {seed}");
    assert!(answers > 40, "{answers}");
    for name in ["process 1", "respond 2"] {
        server.says(&format!("stage {name} (process "));
    }
    server.says("was ended by signal 9; it is started again");
    let begin = Instant::now();
    while held(server.pid()) != before {
        assert!(begin.elapsed() < wire::PATIENCE, "{:?} and {before:?}", held(server.pid()));
        thread::sleep(Duration::from_millis(20));
    }
    let grown = resident_kib(server.pid()).saturating_sub(memory);
    assert!(grown < 8 * 1024, "{grown} KiB for {crashes} crashes");
    let names: Vec<_> = stages(&server).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    end(server);
}

#[test]
fn instances_that_hang_lose_no_safe_request() {
    let folder = site();
    let server = isolated(&folder);
    for name in ["process 1", "respond 2"] {
        let pid = stage(&server, name, 0);
        under_load(&server, || {
            freeze(pid);
            thread::sleep(Duration::from_secs(2));
        });
        under_load(&server, || signal(pid, Signal::CONT));
    }
    end(server);
}

#[test]
fn another_instance_goes_on_with_a_body() {
    let folder = site();
    let server = isolated(&folder);
    let large = fs::read(folder.join("large.bin")).unwrap();
    // a body is continued by a strong tag, and that of a large file is weak while its change is young
    thread::sleep(Duration::from_millis(2_100));
    for name in ["respond 1", "process 2"] {
        // the one with the fewest is asked: each has some of them
        let mut clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
        let mut begun = Vec::new();
        for client in &mut clients {
            let request = "GET /large.bin HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            client.write_all(request.as_bytes()).unwrap();
            let mut received = vec![0; 100_000];
            client.read_exact(&mut received).unwrap();
            begun.push(received);
        }
        crash(&server, name);
        for (mut client, mut received) in clients.into_iter().zip(begun) {
            let (rest, how) = wire::read_to_end(&mut client, wire::PATIENCE);
            received.extend_from_slice(&rest);
            assert_eq!(how, wire::End::Closed, "{name}: {} bytes", received.len());
            let (status, _, body) = told(&received);
            assert_eq!(status, "HTTP/1.1 200 OK");
            assert!(body == large, "{name}: {} bytes", body.len());
        }
    }
    end(server);
}

#[test]
fn the_crash_of_receive_costs_what_was_in_flight_there() {
    let folder = site();
    let server = isolated(&folder);
    let mut open = server.connect();
    open.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n").unwrap();
    let pid = stage(&server, "receive 1", 0);
    freeze(pid);
    // the request waits in the queue of a socket that outlives the process
    let mut waiting = server.connect();
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
    signal(pid, Signal::KILL);
    let (received, _) = wire::read_to_end(&mut waiting, wire::PATIENCE);
    assert_eq!(told(&received).0, "HTTP/1.1 200 OK");
    let _ = open.shutdown(Shutdown::Write);
    assert_eq!(wire::read_to_end(&mut open, wire::PATIENCE).0, b"");
    assert_ne!(stage(&server, "receive 1", 0), pid);
    end(server);
}

#[test]
fn a_reload_replaces_the_stages_under_load() {
    let folder = site();
    let server = isolated(&folder);
    let before = stages(&server);
    let file = server.file();
    let text = fs::read_to_string(&file).unwrap();
    under_load(&server, || {
        fs::write(&file, text.replace("X-Sub = \"yes\"", "X-Sub = \"new\"")).unwrap();
        server.signal(Signal::HUP);
        for (name, pid) in &before {
            stage(&server, name, *pid);
        }
        until_gone(&before);
    });
    let (_, fields, _) = told(&get(server.addr(), "/sub/a.txt"));
    assert!(fields.iter().any(|field| field == "X-Sub: new"), "{fields:?}");
    // a faulty configuration changes nothing
    fs::write(&file, "engine = \"isolated\"\nroot = 7\n").unwrap();
    let before = stages(&server);
    server.signal(Signal::HUP);
    let begin = Instant::now();
    while !server.stderr().contains("the stages stay as they are") {
        assert!(begin.elapsed() < wire::PATIENCE, "{}", server.stderr());
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stages(&server), before);
    end(server);
}

pub(crate) fn until_gone(stages: &[(String, u32)]) {
    let begin = Instant::now();
    let is_there = |(_, pid): &(String, u32)| fs::exists(format!("/proc/{pid}")).unwrap();
    while stages.iter().any(is_there) {
        assert!(begin.elapsed() < wire::PATIENCE, "{stages:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Another server in the place of a stage. It reports its requests, and its answer is late: it comes
/// after a ping. It reads one request from each connection.
fn other(is_good: bool) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::channel();
    let pings = Arc::new(AtomicUsize::new(0));
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, tell) = (client.unwrap(), tell.clone());
            let pings = Arc::clone(&pings);
            thread::spawn(move || {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if client.read_exact(&mut byte).is_err() {
                        return;
                    }
                    head.extend_from_slice(&byte);
                }
                let head = String::from_utf8(head).unwrap();
                let is_ping = head.starts_with("OPTIONS * ");
                let before = pings.fetch_add(usize::from(is_ping), Ordering::SeqCst);
                if !is_ping {
                    let _ = tell.send(head);
                    if !is_good {
                        return;
                    }
                    let is_asked = || pings.load(Ordering::SeqCst) > before;
                    assert!(
                        soon(wire::PATIENCE, is_asked),
                        "it waits for an answer and asks nothing"
                    );
                }
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother";
                let _ = client.write_all(answer.as_bytes());
            });
        }
    });
    (addr, asked)
}

/// One more listener, for clients of a proxy: they are known by the address that it states, and the
/// stages behind get that address.
#[test]
fn listeners_differ_in_how_clients_come() {
    let folder = site();
    let proxied = free_addr();
    let more = "log.access = \"-\"\nlog.format = \"common\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
                [[site]]\nhosts = [\"*.example\"]\n";
    let config = format!(
        "{UNHURRIED}{more}root = {:?}\n[[site.access]]\npath = \"/closed\"\n\
         deny = [\"192.0.2.7\"]\n[[listener]]\nlisten = [\"{proxied}\"]\nproxy_protocol = true\n",
        folder.join(".")
    );
    let server = Server::start(&Options::new(folder.join(".")).engine("isolated").config(&config));
    let request = "GET /closed/a.txt HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    let own = wire::exchange(server.addr(), request.as_bytes());
    assert_eq!(told(&own).0, "HTTP/1.1 200 OK");
    let stated = format!("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n{request}");
    let theirs = wire::exchange(proxied, stated.as_bytes());
    assert_eq!(told(&theirs).0, "HTTP/1.1 403 Forbidden");
    assert!(soon(wire::PATIENCE, || server.stdout().contains("192.0.2.7 - - ")));
    // both outlive what serves them, and a reload
    crash(&server, "receive 1");
    let before = stages(&server);
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    until_gone(&before);
    assert_eq!(told(&wire::exchange(proxied, stated.as_bytes())).0, "HTTP/1.1 403 Forbidden");
    assert_eq!(told(&get(server.addr(), "/closed/a.txt")).0, "HTTP/1.1 200 OK");
    end(server);
}

#[test]
fn other_software_takes_the_place_of_a_stage() {
    let folder = site();
    let ((bad, _), (good, asked)) = (other(false), other(true));
    let more = format!(
        "isolated.respond_at = [\"http://{bad}\", \"http://{good}\"]\n\
         isolated.balance = \"round-robin\"\nisolated.acknowledge_floor = \"3s\"\n\
         isolated.acknowledge_ceiling = \"3s\"\n"
    );
    let server = start(&folder, "isolated", &more);
    assert!(!stages(&server).iter().any(|(name, _)| name.starts_with("respond")));
    let (mut once, mut again) = (0, 0);
    while once < 3 {
        let target = format!("/a?b={}", once + again);
        let begin = Instant::now();
        let (status, _, body) = told(&get(server.addr(), &target));
        let took = begin.elapsed();
        assert_eq!((&*status, &*body), ("HTTP/1.1 200 OK", b"other".as_slice()));
        let line = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n");
        let heads: Vec<_> = asked.try_iter().filter(|head| head.starts_with(&line)).collect();
        // once, however late it is: but one that answers a ping after 3 s only is lost
        if heads.len() == 1 {
            once += 1;
        } else {
            again += 1;
            assert!(took >= Duration::from_secs(3) && again <= 3, "{took:?}: {heads:?}");
        }
    }
    // the decisions of process are in force all the same
    let (status, _, _) = told(&get(server.addr(), "/closed/a.txt"));
    assert_eq!(status, "HTTP/1.1 403 Forbidden");
    end(server);
}

#[test]
fn the_stages_end_with_their_supervisor() {
    let folder = site();
    let mut server = isolated(&folder);
    let all = stages(&server);
    assert_eq!(all.len(), 5, "{all:?}");
    let links = links(all[0].1);
    server.signal(Signal::KILL);
    server.wait(wire::PATIENCE).unwrap();
    until_gone(&all);
    // no process was left to remove their directory: the next server does
    let next = isolated(&folder);
    assert!(!links.exists(), "{links:?} is left");
    end(next);
}

/// The directory with the sockets of a stage.
pub(crate) fn links(pid: u32) -> PathBuf {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let mut words = line.split(|&b| b == 0).map(String::from_utf8_lossy);
    words.find(|word| word == "--links").unwrap();
    PathBuf::from(words.next().unwrap().into_owned())
}

#[test]
fn bodies_are_bounded_before_they_are_passed_on() {
    let folder = site();
    let more = "limits.body_bytes = \"1KiB\"\n";
    let event = start(&folder, "event", more);
    let isolated = start(&folder, "isolated", &format!("{UNHURRIED}{more}"));
    let sized = |count: usize| format!("Content-Length: {count}\r\n\r\n{:x<count$}", "");
    // each byte in a chunk of its own takes six, and counts as one
    let chunked = |count: usize| {
        format!("Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", "1\r\nx\r\n".repeat(count))
    };
    for (rest, status) in [
        (sized(1024), "200"),
        (sized(1025), "413"),
        ("Content-Length: 1000000000000\r\n\r\n".to_owned(), "413"),
        (chunked(1024), "200"),
        (chunked(1025), "413"),
    ] {
        let head = "GET /text.txt HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n";
        for server in [&event, &isolated] {
            let answer = server.exchange(format!("{head}{rest}").as_bytes());
            assert_eq!(told(&answer).0.split(' ').nth(1), Some(status), "{rest:.80}");
        }
    }
    end(isolated);
}

#[test]
fn stages_stay_if_their_successors_cannot_serve() {
    let folder = site();
    let manager = UnixDatagram::bind(folder.join("notify.sock")).unwrap();
    manager.set_read_timeout(Some(wire::PATIENCE)).unwrap();
    let heard = || {
        let mut text = [0; 512];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut options =
        Options::new(folder.join(".")).engine("isolated").config("log.access = \"off\"");
    options.wrapper =
        vec!["env".to_owned(), format!("NOTIFY_SOCKET={}", folder.join("notify.sock").display())];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(&options);
    assert!(heard().starts_with("READY=1\n"));
    let before = stages(&server);
    let (file, dir) = (server.file(), links(before[0].1));
    // the file is valid, and receive cannot do what it says
    let text = fs::read_to_string(&file).unwrap();
    let wrong = format!("admin.listen = \"{}\"\n{text}", taken.local_addr().unwrap());
    fs::write(&file, wrong).unwrap();
    server.signal(Signal::HUP);
    assert!(heard().starts_with("RELOADING=1\n"));
    assert!(heard().starts_with("READY=1\nSTATUS=the stages stay as they are"));
    assert_eq!(stages(&server), before);
    // a stage that is started again has the file of before
    crash(&server, "respond 1");
    assert!(get(server.addr(), "/").starts_with(b"HTTP/1.1 200 OK\r\n"));
    fs::write(&file, &text).unwrap();
    server.signal(Signal::HUP);
    assert!(heard().starts_with("RELOADING=1\n"));
    assert!(heard().starts_with("READY=1\nSTATUS=the stages are replaced"));
    until_gone(&before);
    let begin = Instant::now();
    while dir.exists() {
        assert!(begin.elapsed() < wire::PATIENCE, "{dir:?} is left");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(get(server.addr(), "/").starts_with(b"HTTP/1.1 200 OK\r\n"));
    end(server);
}

/// The admin listener answers before and after each reload, and its metrics are those of the stages that
/// serve.
#[test]
fn the_admin_listener_stays_through_reloads() {
    let folder = site();
    let served = WatchedServer::start("isolated", folder.path(), UNHURRIED);
    for count in 1..=3 {
        served.signal(Signal::HUP);
        let done = || served.stderr().matches("the stages are replaced").count() == count;
        assert!(soon(wire::PATIENCE, done), "{}", served.stderr());
        // the old stages have the sockets, too, until the supervisor ends them: they may take a client
        // that comes now
        let is_known = || {
            assert!(told(&get(served.addr(), "/")).0.contains(" 200 "), "{}", served.stderr());
            served.metric("forebay_connections_accepted_total") > 0
        };
        assert!(soon(wire::PATIENCE, is_known), "{}", served.metrics());
    }
}

/// A program that cleans up temporary files may remove the sockets of stages among them.
#[test]
fn stages_whose_directory_was_removed_are_started_anew() {
    let folder = site();
    let server = unhurried(&folder);
    let is_served = || get(server.addr(), "/").starts_with(b"HTTP/1.1 200 OK\r\n");
    assert!(is_served());
    let before = stages(&server);
    let directory = links(before[0].1);
    fs::remove_dir_all(&directory).unwrap();
    server.says("was removed, or a socket in it, so the stages are started anew");
    server.says("the stages are replaced");
    assert!(soon(wire::PATIENCE, || before.iter().all(|(_, pid)| !is_there(*pid))), "they stay");
    // the next directory has the name of the first, which goes with those who had it
    assert!(is_served() && directory.exists());
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(is_served());
    let respond = stages(&server).into_iter().find(|(name, _)| name == "respond 1").unwrap();
    fs::remove_file(links(respond.1).join("respond-1.sock")).unwrap();
    assert!(soon(wire::PATIENCE, || is_served() && !is_there(respond.1)), "a socket alone");
    end(server);
}

fn is_there(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap()
}
