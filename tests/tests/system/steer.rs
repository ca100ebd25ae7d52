//! Handshakes in the kernel, and connections that it queues by the class of their first request: the whole
//! server with `gate = "full"`. See `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::net::{Net, SERVER4, SERVER6, Server, configure, is_root, metric, wait_for};
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, engine_lines};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, is_full_matrix};
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SendFlags, SocketType, bind, connect, recv,
    sendto, sockopt,
};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const CLASSES: [&str; 3] = ["gold", "silver", "bulk"];
const OF_CLASS: &str = "forebay_gate_first_segments_total{outcome=\"of_class\"}";
const UNJUDGED: &str = "forebay_gate_first_segments_total{outcome=\"unjudged\"}";
const ANSWERS: &str = "forebay_gate_answers";
const TIME_WAIT: &str = "forebay_gate_time_wait_syns_total";
const ACCEPTED: &str = "forebay_connections_accepted_total";

/// Lines of classes, highest first, each with a path of its own.
fn classes(names: &[&str]) -> String {
    let of = |(number, name): (usize, &&str)| {
        format!(
            "[[class]]\nname = \"{name}\"\npriority = {number}\n[[rule]]\nname = \"to {name}\"\n\
             path = \"/{name}\"\nclass = \"{name}\"\n"
        )
    };
    names.iter().enumerate().map(of).collect()
}

fn full(engine: &str, more: &str) -> String {
    format!("user = \"nobody\"\ngate = \"full\"\n{}{more}\n", engine_lines(engine))
}

fn start(net: &Net, lines: &str) -> Server {
    let server = Server::start(net, lines);
    for name in CLASSES {
        server.folder.write(&format!("root/{name}"), name);
    }
    server
}

fn address(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 80)
}

/// A connection on which these bytes were sent.
fn send(address: SocketAddr, data: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(data)?;
    Ok(stream)
}

fn head(name: &str, connection: &str) -> String {
    format!("GET /{name} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n")
}

/// The answer, until the server closes.
fn ask(address: SocketAddr, name: &str) -> io::Result<String> {
    let mut answer = String::new();
    send(address, head(name, "close").as_bytes())?.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Turns TIME_WAIT off for tests that use ports again: a SYN that meets it belongs to the stack and not to
/// the gate.
fn without_time_wait(net: &Net) {
    net.server(|| fs::write("/proc/sys/net/ipv4/tcp_max_tw_buckets", "0").unwrap());
}

/// How many connections had an unknown class, where all that clients began have one. Without TIME_WAIT
/// the FIN of a client that is slow to close meets no socket, and one of 2^18 is taken for the first
/// segment of a connection.
fn of_nobody(net: &Net) -> u64 {
    let count = metric(net, UNJUDGED);
    assert!(count <= 1, "{count} connections are of no class");
    count
}

/// The engines that are tried: all of them in the full matrix.
fn engines() -> Vec<&'static str> {
    let all = ENGINES.iter().copied();
    all.filter(|engine| is_full_matrix() || ["event", "pool"].contains(engine)).collect()
}

/// Connections wait in the queues of classes, and handshakes are under way, while one process after
/// another takes the server's place.
#[test]
fn no_connection_of_a_class_is_lost_in_an_upgrade() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        let net = Net::new();
        let lines = format!("limits.connections_per_client = 100\n{}", classes(&CLASSES));
        let server = start(&net, &full(engine, &lines));
        without_time_wait(&net);
        let (stop, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients: Vec<_> = (0..6)
            .map(|number| {
                let (stop, longest) = (Arc::clone(&stop), Arc::clone(&longest));
                let namespace = net.client.clone();
                thread::spawn(move || {
                    super::net::within(&namespace, move || {
                        let (ip, mut count) = ([SERVER4, SERVER6][number % 2], 0_usize);
                        while !stop.load(Relaxed) {
                            let (name, began) = (CLASSES[(number + count) % 3], Instant::now());
                            let answer = ask(address(ip), name).unwrap();
                            assert!(answer.ends_with(name), "{answer}");
                            longest.fetch_max(began.elapsed().as_millis() as usize, Relaxed);
                            count += 1;
                        }
                        count
                    })
                })
            })
            .collect();
        let mut successors = Vec::new();
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(300));
            successors.push(server.upgrade(&net));
        }
        // the last of the servers before has left
        assert!(soon(PATIENCE, || metric(&net, ANSWERS) == 1));
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Relaxed);
        let counts: Vec<usize> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        assert!(counts.iter().all(|count| *count > 0), "{engine}: {counts:?}");
        let longest = longest.load(Relaxed);
        // a SYN that is lost comes again after a second
        assert!(longest < 900, "{engine}: {longest} ms, {counts:?}: {}", server.said());
        eprintln!("{engine}: {} connections, longest {longest} ms", counts.iter().sum::<usize>());
        drop(successors);
    }
}

#[test]
fn connections_are_queued_by_the_class_of_their_first_request() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        let net = Net::new();
        let server = start(&net, &full(engine, &classes(&CLASSES)));
        assert_eq!(metric(&net, ANSWERS), 1);
        without_time_wait(&net);
        for ip in [SERVER4, SERVER6] {
            net.client(move || {
                for turn in 0..3000 {
                    let name = CLASSES[turn % 3];
                    let answer = ask(address(ip), name).unwrap();
                    assert!(answer.ends_with(&format!("\r\n\r\n{name}")), "{answer}");
                }
            });
        }
        assert_eq!(metric(&net, OF_CLASS), 6000, "{engine}");
        wait_for(&net, ACCEPTED, 6000 + of_nobody(&net));
        for rank in [
            "forebay_gate_first_requests_total{rank=\"0\"}",
            "forebay_gate_first_requests_total{rank=\"1\"}",
            "forebay_gate_first_requests_total{rank=\"2\"}",
            "forebay_class_answered_total{class=\"gold\"}",
            "forebay_class_answered_total{class=\"silver\"}",
            "forebay_class_answered_total{class=\"bulk\"}",
        ] {
            // a client may have its answer before that is counted
            wait_for(&net, rank, 2000);
        }
        drop(server);
    }
}

/// The stack answers a SYN from a port that is still in TIME_WAIT, and the connection comes through the
/// general listener; its request gets its class as usual.
#[test]
fn a_port_that_comes_again_too_soon_waits_in_the_common_queue() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let _server = start(&net, &full("event", &classes(&CLASSES)));
    net.client(|| {
        for _ in 0..2 {
            let mut socket = None;
            let from_port = || {
                let new =
                    rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
                sockopt::set_socket_reuseaddr(&new, true).unwrap();
                bind(&new, &SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, 2), 40_000)).unwrap();
                let is_connected = connect(&new, &address(SERVER4)).is_ok();
                socket = is_connected.then_some(new);
                is_connected
            };
            // the client's own end may still wait for its last acknowledgement
            assert!(soon(PATIENCE, from_port));
            let mut stream = TcpStream::from(socket.unwrap());
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(head("gold", "close").as_bytes()).unwrap();
            let mut answer = String::new();
            // the server closes first, so that TIME_WAIT is on its side
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("gold"), "{answer}");
        }
    });
    let counts = [TIME_WAIT, OF_CLASS, UNJUDGED, ACCEPTED].map(|name| metric(&net, name));
    assert_eq!(counts, [1, 1, 0, 2]);
    wait_for(&net, "forebay_class_answered_total{class=\"gold\"}", 2);
}

/// The one thread is with a client. Connections that come meanwhile cost no descriptor, and are taken in
/// the order of their requests' classes, which only the kernel knows.
#[test]
fn the_next_free_thread_takes_the_first_class() {
    if !is_root() {
        return;
    }
    for engine in ["pool", "threads"] {
        let net = Net::new();
        // a long timeout: no connection is cut before all are there
        let more = "workers = 1\nlog.access = \"FOLDER/access\"\ntimeouts.head = \"1h\"\n";
        let more = format!("{more}{}", classes(&CLASSES));
        let server = start(&net, &full(engine, &more));
        let first = net.client(|| send(address(SERVER4), b"GET /bulk HTTP/1.1\r\n").unwrap());
        wait_for(&net, ACCEPTED, 1);
        let waiting = net.client(|| {
            let names = ["bulk", "bulk", "silver", "bulk", "gold", "silver", "gold"];
            names.map(|name| send(address(SERVER4), head(name, "close").as_bytes()).unwrap())
        });
        wait_for(&net, OF_CLASS, 8);
        assert_eq!(metric(&net, ACCEPTED), 1);
        drop(first);
        for mut stream in waiting {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 200 "), "{answer}");
        }
        let logged = || -> Vec<String> {
            let text = fs::read_to_string(server.folder.join("access")).unwrap_or_default();
            let name = |line: &str| Some(line.split_once("GET /")?.1.split_once(' ')?.0.to_owned());
            text.lines().filter(|line| line.contains(" 200 ")).filter_map(name).collect()
        };
        let deadline = Instant::now() + PATIENCE;
        while logged().len() < 7 {
            assert!(Instant::now() < deadline, "{:?}", logged());
            thread::sleep(Duration::from_millis(10));
        }
        let expected = ["gold", "gold", "silver", "silver", "bulk", "bulk", "bulk"];
        assert_eq!(logged(), expected, "{engine}");
    }
}

#[test]
fn what_cannot_be_told_is_served_as_ever() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let _server = start(&net, &full("event", &classes(&CLASSES)));
    net.client(|| {
        for ip in [SERVER4, SERVER6] {
            // a head over two segments
            let mut stream = send(address(ip), b"GET /gol").unwrap();
            thread::sleep(Duration::from_millis(50));
            stream.write_all(b"d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("gold"), "{answer}");
            // nothing at all
            let mut stream = send(address(ip), b"").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            // a request after another, each judged by its own rule
            let mut stream = send(address(ip), head("gold", "keep-alive").as_bytes()).unwrap();
            stream.write_all(head("bulk", "close").as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains("gold") && answer.ends_with("bulk"), "{answer}");
        }
    });
    assert_eq!((metric(&net, UNJUDGED), metric(&net, OF_CLASS)), (4, 2));
    wait_for(&net, "forebay_class_answered_total{class=\"gold\"}", 4);
    wait_for(&net, "forebay_class_answered_total{class=\"bulk\"}", 2);
}

#[test]
fn limits_are_charged_once_whoever_makes_the_connection() {
    if !is_root() {
        return;
    }
    for charge in ["syn", "handshake"] {
        let net = Net::new();
        let limit = "connections = { rate = \"1/h\", burst = 7, over = \"reset\" }";
        let requests = "requests = { rate = \"1/h\", burst = 5 }";
        let rules = format!(
            "gate_charge = \"{charge}\"\n{}[[rule]]\nname = \"few\"\n{limit}\n[[rule]]\nname = \"fewer\"\n\
             path = \"/gold\"\n{requests}\n",
            classes(&CLASSES)
        );
        let server = start(&net, &full("event", &rules));
        let (served, limited, refused) = net.client(|| {
            let (mut served, mut limited, mut refused) = (0, 0, 0);
            for _ in 0..12 {
                match ask(address(SERVER4), "gold") {
                    Ok(answer) if answer.contains(" 200 ") => served += 1,
                    Ok(answer) => {
                        assert!(answer.contains(" 503 "), "{answer}");
                        limited += 1;
                    }
                    Err(error) => {
                        let kinds = [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];
                        assert!(kinds.contains(&error.kind()), "{error}");
                        refused += 1;
                    }
                }
            }
            (served, limited, refused)
        });
        assert_eq!((served, limited, refused), (5, 2, 5), "{charge}");
        // the stack makes one in the place of another, if a port comes again
        let made = metric(&net, OF_CLASS) + metric(&net, TIME_WAIT);
        assert_eq!((made, metric(&net, ACCEPTED)), (7, 7), "{charge}");
        drop(server);
    }
}

/// The ports of the loopback that the server listens on for its classes.
fn ports_of_classes(net: &Net) -> Vec<u16> {
    net.server(|| {
        let text = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let local = text.lines().skip(1).filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, _, state) = (words.next()?, words.next()?, words.next()?);
            let port = local.strip_prefix("0100007F:").filter(|_| state == "0A")?;
            u16::from_str_radix(port, 16).ok()
        });
        local.filter(|port| *port != 9090).collect()
    })
}

#[test]
fn nobody_comes_past_the_kernel_to_the_sockets_of_classes() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let _server = start(&net, &full("event", &classes(&CLASSES)));
    let ports = ports_of_classes(&net);
    // two loops
    assert_eq!(ports.len(), 6);
    net.server(move || {
        for port in ports {
            let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            let error = TcpStream::connect_timeout(&address, Duration::from_millis(50));
            assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
        }
    });
    assert_eq!(metric(&net, ACCEPTED), 0);
}

/// Limits for one client, since all clients have one address, and by default one client may not have all
/// threads.
const OF_ONE: &str = "limits.connections_per_client = 1000\n";

/// Under load classes come and go, and so do workers: no client is refused, reset or left waiting.
#[test]
fn a_reload_loses_nobody() {
    if !is_root() {
        return;
    }
    for engine in engines() {
        let net = Net::new();
        let server = start(&net, &full(engine, &format!("{OF_ONE}{}", classes(&CLASSES))));
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients: Vec<_> = (0..4)
            .map(|number: usize| {
                let (name, stop, asked) =
                    (net.client.clone(), Arc::clone(&stop), Arc::clone(&asked));
                thread::spawn(move || {
                    super::net::within(&name, move || {
                        let mut turn = number;
                        while !stop.load(Relaxed) {
                            let name = CLASSES[turn % 3];
                            let ip = [SERVER4, SERVER6][turn % 2];
                            let answer = ask(address(ip), name).unwrap();
                            assert!(answer.ends_with(name), "{answer}");
                            asked.fetch_add(1, Relaxed);
                            turn += 1;
                        }
                    });
                })
            })
            .collect();
        let settings = [(2, 1), (3, 3), (1, 2), (3, 2)];
        let reloads = if is_full_matrix() { 5 } else { 1 };
        for (count, workers) in settings.into_iter().cycle().take(settings.len() * reloads) {
            let lines = full(engine, &format!("{OF_ONE}{}", classes(&CLASSES[..count])));
            configure(&server.folder, &lines);
            let text = fs::read_to_string(server.file()).unwrap();
            let text = text.replace("workers = 2", &format!("workers = {workers}"));
            fs::write(server.file(), text).unwrap();
            let before = asked.load(Relaxed);
            server.command(&["reload"]);
            let deadline = Instant::now() + PATIENCE;
            while asked.load(Relaxed) < before + 200 {
                assert!(Instant::now() < deadline, "{engine}: nobody is served any more");
                thread::sleep(Duration::from_millis(5));
            }
            // one class makes no order
            assert_eq!(metric(&net, ANSWERS), u64::from(count > 1), "{engine}");
        }
        stop.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert_eq!(metric(&net, "forebay_gate_first_segments_total{outcome=\"failed\"}"), 0);
    }
}

#[test]
fn nothing_answers_for_a_server_that_was_killed() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let mut server = start(&net, &full("event", &classes(&CLASSES)));
    assert!(net.client(|| ask(address(SERVER4), "gold")).unwrap().ends_with("gold"));
    assert_eq!(metric(&net, OF_CLASS), 1);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // the kernel may take its programs off a moment after the process has ended
    let is_refused = || {
        let asked = net.client(|| ask(address(SERVER4), "gold"));
        asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    assert!(soon(PATIENCE, is_refused), "somebody answers still");
    let listener = net.server(|| TcpListener::bind((SERVER4, 80)).unwrap());
    let accepting = thread::spawn(move || listener.accept().unwrap());
    net.client(|| drop(TcpStream::connect((SERVER4, 80)).unwrap()));
    accepting.join().unwrap();
}

#[test]
fn what_this_machine_can_is_said() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let server = start(&net, &full("event", &classes(&CLASSES)));
    let file = server.file();
    let doctor = |file: std::path::PathBuf| {
        let output = Command::new(binary()).arg("doctor").arg("-c").arg(file).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let again = file.clone();
    let said = net.server(move || doctor(again));
    assert!(said.contains("rung: full"), "{said}");
    assert!(said.contains("gate = full: the kernel judges SYNs and queues by class"), "{said}");
    // the gate's requirement has gone
    let said = net.server(move || {
        fs::write("/proc/sys/net/ipv4/tcp_syncookies", "0").unwrap();
        doctor(file)
    });
    assert!(said.contains("rung: address"), "{said}");
    assert!(said.contains("gate = full: the server does not start here"), "{said}");
}

/// A server in its sandbox also notices when SYN cookies are off, and leaves SYNs to the stack meanwhile.
#[test]
fn cookies_that_are_switched_off_and_on_are_noticed() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let server = start(&net, &full("event", &classes(&CLASSES)));
    for (cookies, answers) in [("0", 0), ("2", 1), ("0", 0), ("1", 1)] {
        net.server(move || fs::write("/proc/sys/net/ipv4/tcp_syncookies", cookies).unwrap());
        assert!(soon(PATIENCE, || metric(&net, ANSWERS) == answers), "tcp_syncookies = {cookies}");
        let answer = net.client(|| ask(address(SERVER4), "gold").unwrap());
        assert!(answer.ends_with("\r\n\r\ngold"), "{answer}");
    }
    drop(server);
}

/// A segment to port 80, with its IP header.
fn segment(from: Ipv4Addr, port: u16, sequence: u32, acknowledged: u32, flags: u8) -> Vec<u8> {
    let to: Ipv4Addr = SERVER4.parse().unwrap();
    let mut tcp = Vec::new();
    tcp.extend(port.to_be_bytes());
    tcp.extend(80_u16.to_be_bytes());
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(acknowledged.to_be_bytes());
    // the largest segment is stated, as every stack does
    tcp.extend([0x60, flags, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4]);
    let mut summed = [from.octets(), to.octets()].concat();
    summed.extend([0, 6, 0, tcp.len() as u8]);
    summed.extend(&tcp);
    let words = summed.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    tcp[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut packet = vec![0x45, 0, 0, 20 + tcp.len() as u8, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(tcp);
    packet
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Handshakes of clients that then say nothing, as packets of our own: from addresses of 10.7.0.0/16,
/// which no machine has, so that no stack answers. Between them a client is served.
fn handshakes(count: u32) -> u32 {
    let raw = |family, kind, number: u32| {
        let protocol = RawProtocol::new(number).unwrap();
        rustix::net::socket(family, kind, Some(Protocol::from_raw(protocol))).unwrap()
    };
    // IPPROTO_RAW: with heads of our own
    let out = raw(AddressFamily::INET, SocketType::RAW, 255);
    // ETH_P_IP, as the wire has it: all that comes, without its Ethernet head
    let heard = raw(AddressFamily::PACKET, SocketType::DGRAM, u32::from(0x0800_u16.to_be()));
    sockopt::set_socket_timeout(&heard, sockopt::Timeout::Recv, Some(Duration::from_secs(1)))
        .unwrap();
    sockopt::set_socket_recv_buffer_size(&heard, 8 << 20).unwrap();
    let to = SocketAddrV4::new(SERVER4.parse().unwrap(), 0);
    let put = |packet: &[u8]| {
        let _ = sendto(&out, packet, SendFlags::empty(), &to).unwrap();
    };
    let (mut completed, mut number) = (0, 0_u32);
    while number < count {
        // while the server's hardware address is not known, the kernel keeps 208 KiB of packets and drops what was
        // before: some 230 of these, at nearly 1 KiB each
        let batch = 200.min(count - number);
        for one in number..number + batch {
            let [high, low] = ((one / 60_000 * 256 + one % 250) as u16).to_be_bytes();
            let port = 1024 + (one % 60_000) as u16;
            put(&segment(Ipv4Addr::new(10, 7, high, low), port, one, 0, SYN));
        }
        number += batch;
        let (mut left, mut bytes) = (batch, [0_u8; 256]);
        while left > 0 {
            // packets that a full buffer has lost are not waited for
            let Ok((_, got)) = recv(&heard, &mut bytes[..], RecvFlags::empty()) else { break };
            let packet = &bytes[..got.min(bytes.len())];
            let is_answer = packet.len() >= 40 && packet[9] == 6 && packet[33] == SYN | ACK;
            if !is_answer || packet[16..18] != [10, 7] {
                continue;
            }
            left -= 1;
            let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
            let client = Ipv4Addr::from(word(16));
            let port = u16::from_be_bytes([packet[22], packet[23]]);
            put(&segment(client, port, word(28), word(24).wrapping_add(1), ACK));
            completed += 1;
        }
        if number % 10_000 == 0 {
            let name = CLASSES[(number / 10_000) as usize % 3];
            assert!(ask(address(SERVER4), name).unwrap().ends_with(name));
        }
    }
    completed
}

/// The number of connections to port 80 for which the server's stack keeps state.
fn sockets_at_80(net: &Net) -> usize {
    net.server(|| {
        let text = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        // SYN_RECV and ESTABLISHED
        let states = [" 03 ", " 01 "];
        let is_kept = |line: &&str| {
            let local = line.split_whitespace().nth(1).unwrap_or_default();
            local.ends_with(":0050") && states.iter().any(|state| line.contains(state))
        };
        text.lines().filter(is_kept).count()
    })
}

#[test]
fn handshakes_without_data_cost_no_sockets() {
    if !is_root() {
        return;
    }
    let count = if is_full_matrix() { 100_000 } else { 20_000 };
    let net = Net::new();
    let _server = start(&net, &full("event", &classes(&CLASSES)));
    let completed = net.client(move || handshakes(count));
    assert!(completed > count / 10 * 9, "{completed}");
    assert_eq!(sockets_at_80(&net), 0);
    // some SYNs are those of the clients that were served
    let of_clients = u64::from(count / 10_000);
    assert_eq!(metric(&net, "forebay_gate_answered_syns_total"), u64::from(count) + of_clients);
    // another processor may look at the data of such a client before its acknowledgement, and then the
    // segment is not held
    let bare = || metric(&net, "forebay_gate_held_segments_total{reason=\"bare\"}");
    let least = u64::from(completed);
    assert!(soon(PATIENCE, || bare() >= least), "{} of {least}", bare());
    assert!(bare() <= least + of_clients, "{} of {least}", bare());
    assert_eq!((metric(&net, OF_CLASS), metric(&net, ACCEPTED)), (of_clients, of_clients));
    assert_eq!(metric(&net, "forebay_gate_held_segments_total{reason=\"early\"}"), 0);
}

/// SYNs from addresses in gold's network come, many more than its limit: they take nothing from it.
#[test]
fn invented_addresses_of_a_class_take_nothing_from_it() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let rule = "[[rule]]\nname = \"partner\"\nclient = [\"10.7.0.0/16\", \"10.99.0.0/24\"]\n\
                connections = { rate = \"1/h\", burst = 50, over = \"reset\" }\n";
    let _server = start(&net, &full("event", &format!("{}{rule}", classes(&CLASSES))));
    net.client(|| {
        let protocol = Protocol::from_raw(RawProtocol::new(255).unwrap());
        let out =
            rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(protocol)).unwrap();
        let to = SocketAddrV4::new(SERVER4.parse().unwrap(), 0);
        for turn in 0..50_u32 {
            for one in turn * 10..turn * 10 + 10 {
                let [high, low] = (one as u16).to_be_bytes();
                let packet = segment(Ipv4Addr::new(10, 7, high, low), 4000, one, 0, SYN);
                sendto(&out, &packet, SendFlags::empty(), &to).unwrap();
            }
            assert!(ask(address(SERVER4), "gold").unwrap().ends_with("gold"), "{turn}");
        }
        let error = ask(address(SERVER4), "gold").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
    assert_eq!(metric(&net, "forebay_gate_handshakes_total{outcome=\"charged\"}"), 50);
}

const LEVEL: &str = "forebay_overload_level";
const BY_QUEUE: &str = "forebay_overload_cause{cause=\"accept_queue\"}";

/// Both threads are with clients, and connections wait in the queue of their class: after a while that is
/// overload of the last degree, but no reason to refuse a connection, since none is accepted.
#[test]
fn the_agent_sees_connections_that_wait_for_threads() {
    if !is_root() {
        return;
    }
    for engine in ["pool", "threads"] {
        let net = Net::new();
        let more = format!("agent = \"on\"\n{OF_ONE}timeouts.head = \"1h\"\n{}", classes(&CLASSES));
        let _server = start(&net, &full(engine, &more));
        let hold = || send(address(SERVER4), b"GET /bulk HTTP/1.1\r\n").unwrap();
        let held = net.client(move || [hold(), hold()]);
        wait_for(&net, ACCEPTED, 2);
        // a machine that is busy with something else may be overloaded for a moment
        assert!(soon(PATIENCE, || metric(&net, LEVEL) == 0), "{engine}");
        let waiting = net.client(|| {
            let names = ["silver", "bulk", "silver", "bulk", "silver"];
            names.map(|name| send(address(SERVER4), head(name, "close").as_bytes()).unwrap())
        });
        let is_overload = || metric(&net, LEVEL) == 3 && metric(&net, BY_QUEUE) == 1;
        assert!(soon(PATIENCE, is_overload), "{engine}");
        assert_eq!(metric(&net, ACCEPTED), 2);
        drop(held);
        for mut stream in waiting {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 200 "), "{answer}");
        }
        // connections are counted in the class of their queue
        wait_for(&net, "forebay_class_connections_total{class=\"silver\"}", 3);
        wait_for(&net, "forebay_class_connections_total{class=\"bulk\"}", 4);
        assert!(soon(PATIENCE, || metric(&net, LEVEL) == 0), "{engine}");
    }
}

/// More connections come for the lowest class than two threads can take: those of that class are refused,
/// and no others.
#[test]
fn the_agent_refuses_connections_of_the_class_that_waits() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let more = format!("agent = \"on\"\n{OF_ONE}{}", classes(&CLASSES));
    let server = start(&net, &full("pool", &more));
    without_time_wait(&net);
    let stop = Arc::new(AtomicBool::new(false));
    // each client keeps a thread, which has begun with its second request, for a while; a refused client
    // comes again
    let ask_slowly = |name: &'static str| -> io::Result<()> {
        let two = format!("{}GET /{name} HTTP/1.1\r\n", head(name, "keep-alive"));
        let mut stream = send(address(SERVER4), two.as_bytes())?;
        let mut answer = Vec::new();
        while !answer.ends_with(name.as_bytes()) {
            let mut part = [0; 1024];
            match stream.read(&mut part)? {
                0 => return Ok(()),
                count => answer.extend(&part[..count]),
            }
        }
        thread::sleep(Duration::from_millis(15));
        stream.write_all(b"Host: a\r\nConnection: close\r\n\r\n")?;
        stream.read_to_end(&mut answer).map(drop)
    };
    let bulk: Vec<_> = (0..40)
        .map(|_| {
            let (name, stop) = (net.client.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                super::net::within(&name, move || {
                    while !stop.load(Relaxed) {
                        let _ = ask_slowly("bulk");
                    }
                });
            })
        })
        .collect();
    // the kernel has the agent's limit, and drops what is beyond it; the server refuses what came past the kernel
    let dropped = "forebay_gate_class_total{class=\"bulk\",outcome=\"dropped\"}";
    let refused = "forebay_class_refused_total{class=\"bulk\",place=\"accept\",reason=\"agent\"}";
    let mut golds = 0;
    let is_refused = || {
        // gold is served meanwhile
        let answer = net.client(|| ask(address(SERVER4), "gold").unwrap());
        assert!(answer.ends_with("gold"), "{answer}");
        golds += 1;
        metric(&net, refused) + metric(&net, dropped) > 0
    };
    let is_policed = soon(PATIENCE, is_refused);
    stop.store(true, Relaxed);
    bulk.into_iter().for_each(|client| client.join().unwrap());
    assert!(is_policed, "after {golds} of gold: {}", server.command(&["policy history"]));
    for of_bulk in [refused, dropped] {
        assert_eq!(metric(&net, &of_bulk.replace("bulk", "gold")), 0);
    }
    assert_eq!(metric(&net, "forebay_gate_first_requests_total{rank=\"0\"}"), golds);
    of_nobody(&net);
    assert_eq!(metric(&net, TIME_WAIT), 0);
}
