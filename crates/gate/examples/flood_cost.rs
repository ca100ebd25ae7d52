//! Measures what a refused connection costs the server's core, by the place where it is refused: in the
//! kernel, silently or with a reset, at its SYN or at its first request; at accept, with a reset; after the
//! head, with a 503 from user space or from the kernel. For comparison: a program at the same hook that drops
//! everything; the cost of the gate for established connections; and a kilobyte that the server sends, or the
//! kernel from the cache.
//!
//! ```text
//! cargo build --release -p forebay-cli --features gate
//! cargo run --release -p forebay-gate --example flood_cost -- target/release/forebay [ROUNDS [BEGINNING]] [--rows]
//! lab/kernel/costs [ROUNDS [PAIRS]]        # builds both, and says which costs are as they should be
//! ```
//!
//! As root, on two cores. The server has one core, with all that the kernel does for received packets
//! (`rps_cpus`); the generator has the other. On the server's core a process counts, at a fixed priority
//! (SCHED_FIFO 1) below the server's (2) and above all others: what it loses compared with an idle server is
//! what the server and the kernel have used, whichever process it was accounted to. Everything happens in two
//! network namespaces, for a second at a time. `--rows` prints CSV instead of the tables: a line for each
//! load and round.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement that fails says so")]

use forebay_gate::{
    AnswerName, AnswerRoom, Charge, ClassSockets, Gate, KernelAnswer, KernelVariant, SentVariant,
};
use forebay_http::coding::Coding;
use forebay_policy::Policy;
use forebay_policy::class::Class;
use std::fs;
use std::io::{Read, Write};
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const LASTS: Duration = Duration::from_millis(1000);

/// The load that clients make.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    Nothing,
    /// SYNs from forged addresses, at this rate per second.
    Syns(u32),
    /// SYNs one by one, at this rate: the core has finished with one before the next comes.
    Singles(u32),
    /// Requests on a connection each, at this rate per second.
    Connections(u32),
    /// Such connections, [`CROWD`] at once: one interrupt is for packets of several.
    Crowds(u32),
    /// Requests at this rate for a file of this size, on four connections that are kept. An event is
    /// a request, or a megabyte of one.
    Requests(u32, usize),
}

/// The number of clients of [`Load::Crowds`] that connect at once.
const CROWD: u32 = 32;

const KB: usize = 1000;
const MB: usize = 1000 * KB;

/// In the place of lines: the server has no gate, and a filter at TC ingress drops all IPv4 packets, or sends
/// them back through their interface. A connection that the gate refuses by its first request takes one drop
/// (the acknowledgement) and two packets that are sent back (SYN and request).
const DROPS_ALL: &str = "# drops all\n";
const ECHOES_ALL: &str = "# sends all back\n";
/// In the place of lines: a process replaces the server, has the kernel answer from the cache, and reads the
/// records.
const ANSWERS_ALL: &str = "# answers from the kernel\n";

const LIMIT: &str = "[[rule]]\nname = \"all\"\nconnections = { rate = \"1/h\", over =";

fn modes() -> Vec<(&'static str, String, Load)> {
    let gate = |rest: &str| format!("gate = \"address\"\n{rest}");
    let full = |rest: &str| format!("gate = \"full\"\n{rest}");
    let over = |over: &str| format!("{LIMIT} \"{over}\" }}\n");
    let acts = |action: &str| format!("[[rule]]\nname = \"all\"\naction = \"{action}\"\n");
    let two =
        "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n";
    let judging =
        |rest: &str| format!("gate = \"full\"\ngate_rules = \"first_request\"\n{two}{rest}");
    let by_path = |rest: &str| format!("[[rule]]\nname = \"all\"\npath = \"*\"\n{rest}\n");
    let wide_by_path = by_path("requests = { rate = \"1000000/s\", burst = 1000 }");
    let every = "[[rule]]\nname = \"all\"\npath = \"*\"\naction = \"reject\"\nstatus = 503\n";
    let classes = "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
                   [[rule]]\nname = \"files\"\npath = \"/*\"\nclass = \"gold\"\n";
    let wide = "[[rule]]\nname = \"all\"\nconnections = { rate = \"1000000/s\", burst = 1000, over = \"drop\" }\n";
    vec![
        ("packet dropped, each by itself", DROPS_ALL.to_owned(), Load::Singles(8000)),
        ("packet sent back, each by itself", ECHOES_ALL.to_owned(), Load::Singles(8000)),
        ("SYN dropped in the kernel, each by itself", gate(&acts("drop")), Load::Singles(8000)),
        ("SYN dropped by a program that drops all", DROPS_ALL.to_owned(), Load::Syns(100_000)),
        ("SYN dropped in the kernel", gate(&acts("drop")), Load::Syns(100_000)),
        ("SYN reset in the kernel", gate(&acts("reset")), Load::Syns(100_000)),
        // a limit is charged when a client has proven its address, which these clients never do
        ("SYN passed in the kernel, to the stack", gate(&over("drop")), Load::Syns(100_000)),
        ("connection reset at accept", over("reset"), Load::Connections(4000)),
        ("503 after the head", every.to_owned(), Load::Connections(4000)),
        (
            "first request reset in the kernel",
            judging(&by_path("action = \"reset\"")),
            Load::Connections(4000),
        ),
        ("503 in the kernel", judging(every), Load::Connections(4000)),
        ("503 after the head, 32 at once", every.to_owned(), Load::Crowds(8000)),
        (
            "first request reset in the kernel, 32 at once",
            judging(&by_path("action = \"reset\"")),
            Load::Crowds(8000),
        ),
        ("503 in the kernel, 32 at once", judging(every), Load::Crowds(8000)),
        ("connection served", wide.to_owned(), Load::Connections(4000)),
        ("connection served, gate on", gate(wide), Load::Connections(4000)),
        ("connection served, classes", classes.to_owned(), Load::Connections(4000)),
        ("connection served, classes, full", full(classes), Load::Connections(4000)),
        ("connection served, a limit by path", wide_by_path.clone(), Load::Connections(4000)),
        (
            "connection served, a limit by path, in the kernel",
            judging(&wide_by_path),
            Load::Connections(4000),
        ),
        ("1 KB on a kept connection", wide.to_owned(), Load::Requests(20_000, KB)),
        ("1 KB on a kept connection, gate on", gate(wide), Load::Requests(20_000, KB)),
        ("1 KB, a connection each", String::new(), Load::Connections(4000)),
        ("1 KB, a connection each, in the kernel", ANSWERS_ALL.to_owned(), Load::Connections(4000)),
        ("1 KB, kept, no rules", String::new(), Load::Requests(20_000, KB)),
        ("1 KB, kept, no rules, in the kernel", ANSWERS_ALL.to_owned(), Load::Requests(20_000, KB)),
        ("1 KB, classes", classes.to_owned(), Load::Requests(20_000, KB)),
        ("1 KB, classes, full", full(classes), Load::Requests(20_000, KB)),
        ("1 MB of 1 MB, classes", classes.to_owned(), Load::Requests(400, MB)),
        ("1 MB of 1 MB, classes, full", full(classes), Load::Requests(400, MB)),
        ("1 MB of 100 MB, classes", classes.to_owned(), Load::Requests(1000, 100 * MB)),
        ("1 MB of 100 MB, classes, full", full(classes), Load::Requests(1000, 100 * MB)),
    ]
}

/// The ends of the names of rows that are compared with the row before them.
const PAIRED: [&str; 3] = [", gate on", ", full", ", in the kernel"];

fn main() {
    let mut words: Vec<String> = std::env::args().collect();
    let all = words.len();
    words.retain(|word| word != "--rows");
    let rows = words.len() < all;
    match words.get(1).map(String::as_str) {
        Some("count") => count(),
        Some("answers") => answers(),
        Some("load") => load(&words[2], words[3].parse().unwrap(), words[4].parse().unwrap()),
        Some(binary) => {
            let rounds = words.get(2).map_or(10, |rounds| rounds.parse().unwrap());
            measure(binary, rounds, words.get(3).map_or("", String::as_str), rows);
        }
        None => panic!("which forebay?"),
    }
}

/// Measures the loads whose names begin with `beginning`; several beginnings are separated by semicolons.
fn measure(binary: &str, rounds: usize, beginning: &str, rows: bool) {
    let net = Net::new();
    let mut modes = modes();
    modes.retain(|(name, ..)| beginning.split(';').any(|one| name.starts_with(one)));
    let mut found = vec![Vec::new(); modes.len()];
    let mut rates = vec![Vec::new(); modes.len()];
    if rows {
        println!("what,cost_us,events_per_s,used_share");
    }
    for round in 0..rounds {
        let mut idle = 0.0;
        for (at, (name, lines, load)) in modes.iter().enumerate() {
            // two rows of a pair are compared with the same idle server
            if !PAIRED.iter().any(|end| name.ends_with(end)) {
                idle = one(&net, binary, lines, Load::Nothing).0;
            }
            let (counted, events) = one(&net, binary, lines, *load);
            let used_us = (1.0 - counted / idle) * LASTS.as_secs_f64() * 1e6;
            let cost_us = used_us / events.max(1.0);
            found[at].push(cost_us);
            rates[at].push(events);
            if rows {
                let share = 1.0 - counted / idle;
                println!("\"{name}\",{cost_us:.4},{events:.0},{share:.4}");
            }
            eprintln!(
                "{round}: {name}: {events} events, {:.1} % lost",
                (1.0 - counted / idle) * 100.0
            );
        }
    }
    if rows {
        return;
    }
    println!("| what | µs of the core: median | least | most |\n|---|---|---|---|");
    let row = |name: &str, mut found: Vec<f64>| {
        found.sort_by(f64::total_cmp);
        let median = f64::midpoint(found[found.len() / 2], found[(found.len() - 1) / 2]);
        println!("| {name} | {median:.3} | {:.3} | {:.3} |", found[0], found[found.len() - 1]);
    };
    for ((name, ..), found) in modes.iter().zip(&found) {
        row(name, found.clone());
    }
    println!("\n| with the gate ÷ without, by round | median | least | most |\n|---|---|---|---|");
    for (at, (name, ..)) in modes.iter().enumerate() {
        if PAIRED.iter().any(|end| name.ends_with(end)) {
            let ratios =
                |of: &[Vec<f64>]| of[at].iter().zip(&of[at - 1]).map(|(a, b)| a / b).collect();
            row(&format!("{name}: µs"), ratios(&found));
            row(&format!("{name}: events"), ratios(&rates));
        }
    }
}

/// Measures one load; returns the count of the counting process, and the number of events.
fn one(net: &Net, binary: &str, lines: &str, load: Load) -> (f64, f64) {
    let folder = std::env::temp_dir().join(format!("flood-cost-{}", std::process::id()));
    fs::create_dir_all(folder.join("root")).unwrap();
    for bytes in [KB, MB, 100 * MB] {
        let file = folder.join(format!("root/{bytes}"));
        if !file.exists() {
            fs::write(file, vec![b'x'; bytes]).unwrap();
        }
    }
    let at = folder.display();
    let text = format!(
        "listen = [\"10.99.0.1:80\"]\nroot = \"{at}/root\"\nworkers = 1\nlog.access = \"off\"\n\
         control.socket = \"off\"\n{lines}"
    );
    fs::write(folder.join("f.toml"), text).unwrap();
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let mut server = if lines == ANSWERS_ALL {
        let mut server = net.server(2, this);
        server.arg("answers");
        server
    } else {
        let mut server = net.server(2, binary);
        server.args(["run", "-c"]).arg(folder.join("f.toml"));
        server
    };
    let mut server = Ended(server.spawn().unwrap());
    listens(&mut server.0);
    let what = match lines {
        // in classic BPF: TC_ACT_SHOT as the verdict; everything matches
        DROPS_ALL => Some("bpf da bytecode 1,6_0_0_2"),
        ECHOES_ALL => {
            Some("bpf bytecode 1,6_0_0_4294967295 flowid 1:1 action mirred egress redirect dev v0")
        }
        _ => None,
    };
    let _filter = what.map(|what| Filter::new(net, what));
    // different ports, because where a server has closed a connection (TIME_WAIT), only the stack can answer
    // the next one with the same ports
    let ports = if lines == ANSWERS_ALL { "10000\t30000" } else { "32768\t60999" };
    ip(&format!("netns exec {}c sysctl -qw net.ipv4.ip_local_port_range={ports}", net.0));
    let (kind, rate, bytes) = match load {
        Load::Nothing => ("nothing", 0, 0),
        Load::Syns(rate) => ("syns", rate, 0),
        Load::Singles(rate) => ("singles", rate, 0),
        Load::Connections(rate) => ("connections", rate, 0),
        Load::Crowds(rate) => ("crowds", rate, 0),
        Load::Requests(rate, bytes) => ("requests", rate, bytes),
    };
    let generator = net
        .client(this)
        .args(["load", kind, &rate.to_string(), &bytes.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(100));
    let counter = net.server(1, this).arg("count").stdout(Stdio::piped()).spawn().unwrap();
    let number = |child: Child| -> f64 {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "a process of this measurement failed");
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    };
    let counted = number(counter);
    (counted, number(generator))
}

/// Waits until the server listens, and a moment more, because a gate takes longer to load.
fn listens(server: &mut Child) {
    let table = format!("/proc/{}/net/tcp", server.id());
    let began = Instant::now();
    // port 80, LISTEN
    while !fs::read_to_string(&table).unwrap_or_default().contains(":0050 00000000:0000 0A") {
        assert!(server.try_wait().unwrap().is_none(), "the server ended");
        assert!(began.elapsed() < Duration::from_secs(30), "the server does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(400));
}

/// A filter on every packet, at the gate's hook. (XDP runs on the sender's core, before packets are given
/// to the server's: its cost cannot be seen here.)
struct Filter<'n>(&'n Net);

impl Filter<'_> {
    fn new<'n>(net: &'n Net, what: &str) -> Filter<'n> {
        let at = format!("netns exec {}s tc", net.0);
        ip(&format!("{at} qdisc add dev v0 clsact"));
        let words = format!("{at} filter add dev v0 ingress protocol ip {what}");
        // the instructions are one argument with blanks in it
        let words: Vec<String> = words.split(' ').map(|word| word.replace('_', " ")).collect();
        let status = Command::new("ip").args(words).status().unwrap();
        assert!(status.success(), "the filter: {what}");
        Filter(net)
    }
}

impl Drop for Filter<'_> {
    fn drop(&mut self) {
        let at = format!("{}s", self.0.0);
        let words = ["netns", "exec", &at, "tc", "qdisc", "del", "dev", "v0", "clsact"];
        let _ = Command::new("ip").args(words).status();
    }
}

/// A child process that is killed when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the kernel answer a file of a kilobyte, until it is killed.
fn answers() {
    let address: SocketAddr = "10.99.0.1:80".parse().unwrap();
    let gate = Gate::load_answering(Charge::AtHandshake, &AnswerRoom::default()).unwrap();
    let policy = Policy::new(&[Class::new("default", 0)], Vec::new()).unwrap();
    gate.enforce(&gate.lower(&policy).unwrap()).unwrap();
    let body = vec![b'x'; KB];
    // the head of a file's answer
    let lines = "HTTP/1.1 200 OK\r\nServer: Forebay\r\nContent-Type: application/octet-stream\r\n\
                 Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"0123456789abcdef\"\r\n\
                 Accept-Ranges: bytes\r\nContent-Length: 1000\r\n";
    let sent = SentVariant { lines: lines.as_bytes(), not_modified: b"", etag: b"", body: &body };
    let coding = Coding::Identity;
    let variants = [KernelVariant { coding, compared_bytes: KB as u64, sent: Some(sent) }];
    let answer = KernelAnswer { requests: u32::MAX, timeout_s: 0, variants: &variants };
    gate.learn(&AnswerName { listener: address, host: b"a", path: b"/1000" }, &answer).unwrap();
    let mut records = gate.records().unwrap();
    gate.attach(&[address]).unwrap();
    gate.place(&[ClassSockets { address, speaks_tls: false, sockets: Vec::new() }]).unwrap();
    // once the socket listens, clients are answered by the kernel
    let listener = TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        gate.renew(now.as_secs(), Duration::from_secs(5)).unwrap();
        for _ in 0..10 {
            thread::sleep(Duration::from_millis(100));
            records.read(|record| assert_eq!(record.status, 200)).unwrap();
            // a request that became a connection was not answered by the kernel, so nothing would be measured
            assert!(listener.accept().is_err(), "{:?}", gate.answer_counts());
        }
    }
}

/// Counts for as long as a measurement lasts.
fn count() {
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < LASTS {
        for _ in 0..200 {
            count = std::hint::black_box(count + 1);
        }
    }
    println!("{count}");
}

/// Makes a load for a little longer than the counting lasts, and prints the events within that time.
fn load(kind: &str, rate: u32, bytes: usize) {
    let began = Instant::now();
    let all = LASTS + Duration::from_millis(400);
    let done = match kind {
        "nothing" => {
            thread::sleep(all);
            return println!("0");
        }
        "syns" => syns(rate, 64, began, all),
        "singles" => syns(rate, 1, began, all),
        "connections" => paced(rate, began, all, connection),
        "crowds" => CROWD * paced(rate / CROWD, began, all, crowd),
        _ => {
            let mut kept: Vec<TcpStream> =
                (0..4).map(|_| TcpStream::connect("10.99.0.1:80").unwrap()).collect();
            let mut turn = 0;
            // with a large file an event is a megabyte received
            let parts = bytes.div_ceil(MB);
            let mut left = 0;
            paced(rate, began, all, move || {
                if left == 0 {
                    turn = (turn + 1) % kept.len();
                    left = request(&mut kept[turn], bytes);
                }
                left -= receive(&mut kept[turn], left.min(bytes.div_ceil(parts)));
            })
        }
    };
    println!("{}", f64::from(done) * LASTS.as_secs_f64() / began.elapsed().as_secs_f64());
}

/// Calls `event` at a rate, or as often as possible; returns the number of calls.
fn paced(rate: u32, began: Instant, lasts: Duration, mut event: impl FnMut()) -> u32 {
    let mut done = 0;
    while began.elapsed() < lasts {
        let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u32;
        if done < due {
            event();
            done += 1;
        } else {
            thread::sleep(Duration::from_micros(50));
        }
    }
    done
}

fn connection() {
    if let Ok(mut stream) = TcpStream::connect("10.99.0.1:80") {
        let _ = stream.write_all(b"GET /1000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// Has [`CROWD`] clients connect, send a request and read, each step for all of them.
fn crowd() {
    let mut streams: Vec<TcpStream> = (0..CROWD).map(|_| connecting()).collect();
    for stream in &mut streams {
        let _ = stream.write_all(b"GET /1000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    for stream in &mut streams {
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// Begins a handshake; the first write to the stream waits for its end.
fn connecting() -> TcpStream {
    // SAFETY: the call has no conditions.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: all bytes zero are an address.
    let mut to: libc::sockaddr_in = unsafe { mem::zeroed() };
    to.sin_family = libc::AF_INET as libc::sa_family_t;
    to.sin_port = 80_u16.to_be();
    to.sin_addr.s_addr = u32::from_ne_bytes([10, 99, 0, 1]);
    // SAFETY: the address is one of IPv4 and lives until the call returns.
    unsafe {
        libc::connect(socket, (&raw const to).cast(), mem::size_of_val(&to) as libc::socklen_t)
    };
    // SAFETY: the socket is open, and this is its only owner.
    let stream = unsafe { TcpStream::from_raw_fd(socket) };
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Requests a file of `bytes` bytes, and reads the head; returns how many bytes of the body are left.
fn request(stream: &mut TcpStream, bytes: usize) -> usize {
    stream.write_all(format!("GET /{bytes} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    let (mut read, mut buffer) = (Vec::<u8>::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the server closed");
        read.extend(&buffer[..count]);
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            return bytes - (read.len() - end - 4);
        }
    }
}

/// Receives `bytes` bytes.
fn receive(stream: &mut TcpStream, bytes: usize) -> usize {
    let (mut buffer, mut left) = (vec![0; 256 << 10], bytes);
    while left > 0 {
        let most = left.min(buffer.len());
        let count = stream.read(&mut buffer[..most]).unwrap();
        assert!(count > 0, "the server closed");
        left -= count;
    }
    bytes
}

/// Sends SYNs at a rate, `many` with each system call; returns their number.
fn syns(rate: u32, many: usize, began: Instant, lasts: Duration) -> u32 {
    // SAFETY: the call has no conditions.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: all bytes zero are an address.
    let mut to: libc::sockaddr_in = unsafe { mem::zeroed() };
    to.sin_family = libc::AF_INET as libc::sa_family_t;
    to.sin_addr.s_addr = u32::from_ne_bytes([10, 99, 0, 1]);
    let mut packets = vec![[0_u8; 40]; many];
    let mut number = 0_u32;
    paced(rate / many as u32, began, lasts, || {
        for packet in &mut packets {
            number = number.wrapping_add(1);
            *packet = syn(number);
        }
        let mut parts: Vec<libc::iovec> = packets
            .iter_mut()
            .map(|packet| libc::iovec {
                iov_base: packet.as_mut_ptr().cast(),
                iov_len: packet.len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: all bytes zero are a message of nothing.
                let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
                message.msg_hdr.msg_name = (&raw mut to).cast();
                message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        // SAFETY: messages, parts and packets outlive the call.
        unsafe { libc::sendmmsg(socket, messages.as_mut_ptr(), many as u32, 0) };
    }) * many as u32
}

fn syn(number: u32) -> [u8; 40] {
    let [_, a, b, c] = number.to_be_bytes();
    let from = Ipv4Addr::new(10, 8 | a & 7, b, c);
    let mut packet = [0; 40];
    packet[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&[10, 99, 0, 1]);
    packet[20..24].copy_from_slice(&[0x10, 0, 0, 80]);
    packet[24..28].copy_from_slice(&number.to_be_bytes());
    packet[32..34].copy_from_slice(&[0x50, 2]);
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum()
    };
    let mut sum = words(&packet[12..]) + 6 + 20;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[36..38].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// Two network namespaces with a pair of interfaces, which are removed when this is dropped.
struct Net(String);

impl Net {
    fn new() -> Net {
        let net = Net(format!("fc{}", std::process::id()));
        let name = &net.0;
        ip(&format!("netns add {name}s"));
        ip(&format!("netns add {name}c"));
        ip(&format!("-n {name}s link add v0 type veth peer name v1 netns {name}c"));
        for (side, device, at, core) in [("s", "v0", 1, SERVER_CORE), ("c", "v1", 2, CLIENT_CORE)] {
            ip(&format!(
                "netns exec {name}{side} ethtool -K {device} tx off rx off gro off gso off tso off"
            ));
            ip(&format!("-n {name}{side} addr add 10.99.0.{at}/24 dev {device}"));
            ip(&format!("-n {name}{side} link set lo up"));
            ip(&format!("-n {name}{side} link set {device} up"));
            let steer =
                format!("echo {:x} > /sys/class/net/{device}/queues/rx-0/rps_cpus", 1 << core);
            let status = Command::new("ip")
                .args(["netns", "exec", &format!("{name}{side}"), "sh", "-c", &steer])
                .status();
            assert!(status.unwrap().success(), "{steer}");
        }
        ip(&format!("-n {name}s route add blackhole 10.8.0.0/13"));
        ip(&format!("netns exec {name}c sysctl -qw net.ipv4.tcp_tw_reuse=1"));
        net
    }

    fn command(&self, side: &str, core: usize, priority: Option<u8>, program: &str) -> Command {
        let mut command = Command::new("ip");
        let (name, core) = (format!("{}{side}", self.0), core.to_string());
        command.args(["netns", "exec", &name, "taskset", "-c", &core]);
        if let Some(priority) = priority {
            command.args(["chrt", "-f", &priority.to_string()]);
        }
        command.arg(program);
        assert!(Path::new(program).exists(), "there is no {program}");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn server(&self, priority: u8, program: &str) -> Command {
        self.command("s", SERVER_CORE, Some(priority), program)
    }

    fn client(&self, program: &str) -> Command {
        self.command("c", CLIENT_CORE, None, program)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for side in ["s", "c"] {
            let _ =
                Command::new("ip").args(["netns", "del", &format!("{}{side}", self.0)]).status();
        }
    }
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}
