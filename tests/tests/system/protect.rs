//! Another server on this machine, and one behind it, whose connections the kernel judges: Debian's nginx
//! and Apache. See `net.rs` for where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use super::gate::CLASSES;
use super::net::{CLIENT4, Net, SERVER4, SERVER6, Server, ip, is_root, metric, run, within};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::wire::PATIENCE;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

pub(super) const PORT: u16 = 8080;

macro_rules! requests {
    ($outcome:literal) => {
        concat!("forebay_gate_requests_total{outcome=\"", $outcome, "\"}")
    };
}

macro_rules! first {
    ($outcome:literal) => {
        concat!("forebay_gate_first_segments_total{outcome=\"", $outcome, "\"}")
    };
}

/// Whether a program is installed; reports loudly if not.
pub(super) fn has(program: &str) -> bool {
    let has = Path::new("/usr/sbin").join(program).exists();
    if !has {
        assert!(std::env::var_os("CI").is_none(), "in CI there is {program}");
        let _ = writeln!(io::stderr(), "SKIPPED: this test of protect.rs needs {program}");
    }
    has
}

/// Another server in the server's namespace; dropping it kills it, with the processes that it has
/// started.
pub(super) struct Other {
    child: Child,
    pub(super) folder: Folder,
}

impl Other {
    fn start(net: &Net, program: &str, words: &[&str], configuration: &str) -> Other {
        let folder = Folder::new();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        for path in ["root/no/a", "root/yes", "root/gold/a", "root/bulk"] {
            folder.write(path, path);
        }
        let at = folder.path().display().to_string();
        folder.write("conf", configuration.replace("FOLDER", &at));
        let file = folder.join("conf");
        let child = Command::new("ip")
            .args(["netns", "exec", &net.server])
            .args(["setpriv", "--pdeathsig", "KILL", program])
            .args(words.iter().map(|word| word.replace("CONF", &file.display().to_string())))
            // Apache ends its whole group
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("said")).unwrap())
            .spawn()
            .unwrap();
        let other = Other { child, folder };
        let listens = || {
            net.server(|| {
                // 8080, and LISTEN
                sockets().lines().any(|line| line.contains(":1F90 ") && line.contains(":0000 0A "))
            })
        };
        assert!(soon(PATIENCE, listens), "{}", other.said());
        other
    }

    pub(super) fn nginx(net: &Net) -> Other {
        let configuration = "daemon off;\nworker_processes 1;\npid FOLDER/pid;\nerror_log FOLDER/errors;\n\
             events {}\nhttp {\naccess_log FOLDER/access;\nserver {\nlisten 8080;\nlisten [::]:8080;\n\
             root FOLDER/root;\n}\n}\n";
        Other::start(net, "nginx", &["-c", "CONF"], configuration)
    }

    /// Starts an Apache with this number of processes.
    fn apache(net: &Net, processes: usize) -> Other {
        let module = |name: &str| {
            format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
        };
        let modules: String = ["mpm_prefork", "authz_core"].map(module).concat();
        let configuration = format!(
            "{modules}ServerName a\nServerRoot FOLDER\nPidFile FOLDER/pid\nErrorLog FOLDER/errors\n\
             Listen 8080\nUser nobody\nGroup nogroup\nKeepAlive Off\nTimeout 300\nStartServers {processes}\n\
             MinSpareServers 1\nMaxSpareServers {processes}\nServerLimit {processes}\n\
             MaxRequestWorkers {processes}\nDocumentRoot FOLDER/root\n<Directory />\nRequire all granted\n\
             </Directory>\n"
        );
        Other::start(net, "apache2", &["-f", "CONF", "-DFOREGROUND"], &configuration)
    }

    fn said(&self) -> String {
        let of = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        of("said") + &of("errors")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Ok(process) = fs::read_to_string(self.folder.join("pid")) {
            let _ = Command::new("kill").arg(process.trim()).status();
            let gone = || matches!(self.child.try_wait(), Ok(Some(_)));
            soon(PATIENCE, gone);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the other server said:\n{}", self.said());
        }
    }
}

fn connect(ip: &str) -> io::Result<TcpStream> {
    let address = SocketAddr::new(ip.parse().unwrap(), PORT);
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn head(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}Connection: close\r\n\r\n")
}

fn ask(ip: &str, head: &str) -> io::Result<String> {
    let mut stream = connect(ip)?;
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub(super) fn configured(gate: &str, rules: &str) -> String {
    format!(
        "user = \"nobody\"\n{gate}\n{CLASSES}[[protect]]\nport = {PORT}\nqueue = 1\n\
         [[rule]]\nname = \"of gold\"\npath = \"/gold/*\"\nlocal = \"*:{PORT}\"\nclass = \"gold\"\n{rules}"
    )
}

pub(super) const JUDGES: &str = "gate = \"full\"\ngate_rules = \"first_request\"";

#[test]
fn first_requests_for_nginx_are_refused_before_it_sees_them() {
    if !is_root() || !has("nginx") {
        return;
    }
    let net = Net::new();
    let nginx = Other::nginx(&net);
    let rules = "[[rule]]\nname = \"no\"\npath = \"/no/*\"\naction = \"reject\"\n\
                 [[rule]]\nname = \"tier\"\ncookie = \"tier=foe\"\naction = \"reset\"\n\
                 [[rule]]\nname = \"slow\"\npath = \"/bulk\"\nrequests = { rate = \"1/h\", burst = 3 }\n";
    let _server = Server::start(&net, &configured(JUDGES, rules));
    for ip in [SERVER4, SERVER6] {
        net.client(move || {
            for _ in 0..20 {
                let answer = ask(ip, &head("/no/a", "")).unwrap();
                assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
                assert!(!answer.contains("nginx"), "{answer}");
            }
            let served = ask(ip, &head("/yes", "Cookie: a=b; tier=friend\r\n")).unwrap();
            assert!(served.contains("nginx") && served.ends_with("root/yes"), "{served}");
            let error = ask(ip, &head("/yes", "Cookie: a=b; tier=foe\r\n")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
    }
    let limited = net.client(|| {
        let asked = (0..5).map(|_| ask(SERVER4, &head("/bulk", "")).unwrap());
        asked.filter(|answer| answer.starts_with("HTTP/1.1 200 ")).count()
    });
    assert_eq!(limited, 3);
    assert_eq!(metric(&net, requests!("answered")), 42);
    assert_eq!(metric(&net, requests!("reset")), 2);
    assert_eq!(metric(&net, first!("of_other_server")), 5);
    // our own server has seen nothing of it, and nginx what it has answered
    assert_eq!(metric(&net, "forebay_connections_accepted_total"), 0);
    let seen = || fs::read_to_string(nginx.folder.join("access")).unwrap_or_default();
    assert!(soon(PATIENCE, || seen().lines().count() == 5), "{}", seen());
    assert!(!seen().contains("/no/"), "{}", seen());
}

#[test]
fn connections_of_a_protected_server_are_limited_by_their_syns() {
    if !is_root() || !has("nginx") {
        return;
    }
    for gate in ["gate = \"address\"", "gate = \"full\"", JUDGES] {
        let net = Net::new();
        let _nginx = Other::nginx(&net);
        let rules = format!(
            "[[rule]]\nname = \"few\"\nclient = \"{CLIENT4}\"\nlocal = \"*:{PORT}\"\n\
             connections = {{ rate = \"1/h\", burst = 4, over = \"reset\" }}\n"
        );
        let server = Server::start(&net, &configured(gate, &rules));
        let served = net.client(|| {
            let asked = (0..7).map(|_| ask(SERVER4, &head("/yes", "")));
            asked
                .filter(|answer| answer.as_ref().is_ok_and(|one| one.ends_with("root/yes")))
                .count()
        });
        assert_eq!(served, 4, "{gate}: {}", server.said());
        // the other family, and our own server, have no limit
        net.client(|| {
            for _ in 0..6 {
                assert!(ask(SERVER6, &head("/yes", "")).unwrap().ends_with("root/yes"));
            }
        });
        assert_eq!(super::net::served(&net, SERVER4, 5), 5);
    }
}

/// Apache's processes are all busy. Connections in its queue cannot be overtaken, so only the first of
/// the lower class is there when those of the first class come.
#[test]
fn the_first_class_never_stands_behind_others_in_the_queue_of_apache() {
    if !is_root() || !has("apache2") {
        return;
    }
    const BULK: usize = 6;
    const GOLD: usize = 4;
    let net = Net::new();
    let _apache = Other::apache(&net, 2);
    let _server = Server::start(&net, &configured(JUDGES, ""));
    // the beginning of a request keeps a process
    let held = net.client(|| {
        (0..2)
            .map(|_| {
                let mut stream = connect(SERVER4).unwrap();
                stream.write_all(b"GET /gold/a HTTP/1.1\r\n").unwrap();
                stream
            })
            .collect::<Vec<_>>()
    });
    assert!(soon(PATIENCE, || waiting(&net) == 0 && metric(&net, first!("of_other_server")) == 2));
    let (done, all) = mpsc::channel();
    let come = |path: &'static str| {
        let (namespace, done) = (net.client.clone(), done.clone());
        thread::spawn(move || {
            within(&namespace, move || {
                let answer = ask(SERVER4, &head(path, "")).unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                done.send(path).unwrap();
            });
        })
    };
    let mut clients = vec![come("/bulk")];
    assert!(soon(PATIENCE, || waiting(&net) == 1));
    clients.extend((1..BULK).map(|_| come("/bulk")));
    assert!(soon(PATIENCE, || metric(&net, first!("turned_away")) >= BULK as u64 - 1));
    clients.extend((0..GOLD).map(|_| come("/gold/a")));
    assert!(soon(PATIENCE, || waiting(&net) == 1 + GOLD));
    for mut stream in held {
        stream.write_all(b"Host: a\r\nConnection: close\r\n\r\n").unwrap();
    }
    let order: Vec<&str> = (0..BULK + GOLD).map(|_| all.recv_timeout(PATIENCE).unwrap()).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let last_gold = order.iter().rposition(|path| *path == "/gold/a").unwrap();
    let before = order[..last_gold].iter().filter(|path| **path == "/bulk").count();
    assert!(before <= 1, "{order:?}");
}

/// The kernel's list of sockets of the namespace.
fn sockets() -> String {
    let files = ["tcp", "tcp6"].map(|name| format!("/proc/thread-self/net/{name}"));
    files.map(|file| fs::read_to_string(file).unwrap_or_default()).concat()
}

/// The number of connections that wait in the queue of the other server.
fn waiting(net: &Net) -> usize {
    net.server(|| {
        let all = sockets();
        let listens = all.lines().filter(|line| line.contains(":1F90 ") && line.contains(" 0A "));
        // tx_queue:rx_queue; the second is the queue of one that listens
        let lengths = listens.filter_map(|line| {
            let queues = line.split_whitespace().nth(4)?;
            usize::from_str_radix(queues.split(':').nth(1)?, 16).ok()
        });
        lengths.sum()
    })
}

#[test]
fn syns_for_another_machine_are_judged_on_their_way() {
    if !is_root() {
        return;
    }
    let net = Net::new();
    let far = Far::new(&net);
    let listener = within(&far.name, || TcpListener::bind("10.98.0.2:8080").unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.write_all(b"far");
        }
    });
    let ask = || {
        let mut stream = TcpStream::connect("10.98.0.2:8080")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<String, io::Error>(answer)
    };
    for gate in ["address", "full"] {
        let lines = format!(
            "user = \"nobody\"\ngate = \"{gate}\"\n[[protect]]\nport = 8080\naddress = \"10.98.0.2\"\n\
             [[rule]]\nname = \"few\"\nlocal = \"10.98.0.2\"\n\
             connections = {{ rate = \"1/h\", burst = 3, over = \"reset\" }}\n{CLASSES}"
        );
        let server = Server::start(&net, &lines);
        let outcomes = net.client(move || {
            (0..6).map(|_| ask().map_err(|error| error.kind())).collect::<Vec<_>>()
        });
        let refused = Err(io::ErrorKind::ConnectionRefused);
        let told = |answer: &str| Ok(answer.to_owned());
        let expected =
            [told("far"), told("far"), told("far"), refused.clone(), refused.clone(), refused];
        assert_eq!(outcomes, expected, "{gate}: {}", server.said());
    }
}

/// A machine behind the server's.
struct Far {
    name: String,
}

impl Far {
    fn new(net: &Net) -> Far {
        let name = format!("{}f", net.server);
        ip(&format!("netns add {name}"));
        ip(&format!("-n {} link add f0 type veth peer name f1 netns {name}", net.server));
        for (namespace, device, at) in [(&net.server, "f0", 1), (&name, "f1", 2)] {
            run("ip", &format!("netns exec {namespace} ethtool -K {device} tx off rx off"));
            ip(&format!("-n {namespace} addr add 10.98.0.{at}/24 dev {device}"));
            ip(&format!("-n {namespace} link set {device} up"));
        }
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("-n {name} route add default via 10.98.0.1"));
        ip(&format!("-n {} route add 10.98.0.0/24 via {SERVER4}", net.client));
        net.server(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        Far { name }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}
