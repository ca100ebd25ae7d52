//! The stages of `isolated` one by one: the rights of the stage *process*, the choice of the instance for
//! a request, and other software or a newer program in the place of a stage.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::isolated::{
    RULES, UNHURRIED, end, get, isolated, signal, site, stage, stages, start, told, under_load,
    until_gone,
};
use crate::smuggling::apache_modules;
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, copy_program, free_addr};
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{ISOLATED, Options, Server, is_full_matrix};
use rustix::process::{Signal, geteuid};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

/// A line of the kernel's status of a thread.
fn status(task: &Path, key: &str) -> String {
    let text = fs::read_to_string(task.join("status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key}:"))).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The sandbox is on, on all threads; `forebay-sys` shows with hostile code what it is worth.
#[test]
fn a_process_stage_is_sealed_and_has_no_files() {
    let folder = site();
    let server = isolated(&folder);
    under_load(&server, || {});
    for name in ["process 1", "process 2"] {
        let proc = format!("/proc/{}", stage(&server, name, 0));
        let threads = fs::read_dir(format!("{proc}/task")).unwrap();
        for task in threads.map(|task| task.unwrap().path()) {
            assert_eq!(status(&task, "Seccomp"), "2", "{task:?}");
            assert_eq!(status(&task, "NoNewPrivs"), "1", "{task:?}");
            assert_eq!(status(&task, "CapPrm"), "0000000000000000", "{task:?}");
            if geteuid().is_root() {
                assert_eq!(status(&task, "Uid"), "65534 65534 65534 65534", "{task:?}");
            }
        }
        for open in fs::read_dir(format!("{proc}/fd")).unwrap() {
            let Ok(target) = fs::read_link(open.unwrap().path()) else { continue };
            let text = target.to_string_lossy().into_owned();
            let is_file = text.starts_with('/') && !text.starts_with("/dev/");
            // how processes have ended, and whose the directory is
            let is_known = text.ends_with("/ends") || text.ends_with("/lock");
            // standard output and error are the test's
            let is_log = text.contains("stderr") || text.contains("stdout");
            assert!(!is_file || is_known || is_log, "{name}: {text}");
        }
    }
    let missing = "stage process is less confined";
    match geteuid().is_root() {
        true => assert!(!server.stderr().contains(missing), "{}", server.stderr()),
        false => server.says(missing),
    }
    end(server);
}

#[test]
fn what_hangs_on_a_file_is_answered_as_by_one_process() {
    let folder = site();
    folder.write("sorry.html", "<p>sorry</p>");
    let users =
        folder.write("users", "bob:$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u\n");
    let more = |engine: &str| {
        let unhurried = if engine == ISOLATED { UNHURRIED } else { "" };
        let config = format!(
            "{unhurried}[[site]]\nhosts = [\"b.example\"]\nroot = {root:?}\n\
             [site.errors]\n403 = \"/sorry.html\"\n\
             [[site.access]]\npath = \"/closed\"\ndeny = [\"all\"]\n\
             [[site.auth]]\npath = \"/secret\"\nfile = {users:?}\n\
             [[site.redirect]]\npath = \"/secret/old\"\nto = \"/new\"\n",
            root = folder.join("."),
        );
        start(&folder, engine, &config)
    };
    let (one, many) = (more("event"), more(ISOLATED));
    let bob = "Authorization: Basic Ym9iOnNlY3JldA==\r\n";
    for (path, field) in [
        ("/closed/a.txt", ""),
        ("/secret/a.txt", ""),
        ("/secret/a.txt", bob),
        ("/secret/old", ""),
        ("/secret/old", bob),
    ] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n{field}\r\n");
        let [one, many] = [&one, &many].map(|server| told(&server.exchange(request.as_bytes())));
        assert_eq!(one, many, "{request}");
    }
    let shown = get_of(many.addr(), "b.example", "/closed/a.txt");
    assert!(shown.ends_with(b"<p>sorry</p>"), "{}", String::from_utf8_lossy(&shown));
    end(many);
}

fn get_of(addr: SocketAddr, host: &str, path: &str) -> Vec<u8> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    wire::exchange(addr, request.as_bytes())
}

/// A server that states how long requests wait in it, and counts them.
fn that_waits(delay_ms: u32) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, counted) = (client.unwrap(), Arc::clone(&counted));
            thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while client.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    if !head.starts_with(b"OPTIONS * ") {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    head.clear();
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nForebay-Delay: {delay_ms}\r\nContent-Length: 2\r\n\r\nok"
                    );
                    if client.write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (addr, count)
}

#[test]
fn an_instance_in_which_requests_wait_gets_fewer() {
    let folder = site();
    let ((slow, slows), (fast, fasts)) = (that_waits(400), that_waits(0));
    let more = format!(
        "isolated.respond_at = [\"http://{slow}\", \"http://{fast}\"]\n\
         isolated.balance = \"feedback\"\nisolated.process = 1\nisolated.ping = \"60s\"\n"
    );
    let server = start(&folder, "isolated", &more);
    for _ in 0..60 {
        let answer = String::from_utf8(get(server.addr(), "/a")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(!answer.contains("Forebay-"), "{answer}");
    }
    let (slows, fasts) = (slows.load(Ordering::Relaxed), fasts.load(Ordering::Relaxed));
    assert!(slows >= 1 && slows * 4 < fasts, "{slows} and {fasts}");
    end(server);
}

#[test]
fn what_process_refuses_is_never_asked_of_other_software() {
    let folder = site();
    folder.write("sorry.html", "<p>sorry</p>");
    let (addr, asked) = that_waits(0);
    let more = format!(
        "isolated.respond_at = [\"http://{addr}\"]\n\
         [[rule]]\nname = \"intern\"\npath = [\"/intern\", \"/intern/*\"]\naction = \"reject\"\n\
         [[site]]\nhosts = [\"b.example\"]\nroot = {root:?}\n\
         [site.errors]\n403 = \"/sorry.html\"\n401 = \"/sorry.html\"\n\
         [[site.access]]\npath = \"/closed\"\ndeny = [\"all\"]\n\
         [[site.auth]]\npath = \"/secret\"\n\
         users = {{ a = \"$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u\" }}\n",
        root = folder.join("."),
    );
    let server = start(&folder, "isolated", &more);
    // some applications take what follows a semicolon for no part of a name
    for (path, status) in [
        ("/closed/a.txt", "403"),
        ("/closed;x/a.txt", "403"),
        ("/closed;/a.txt", "403"),
        ("/closed%3b/a.txt", "403"),
        ("/secret/a.txt", "401"),
        ("/secret;a=b/a.txt", "401"),
        ("/intern/x", "403"),
        ("/intern;/x", "403"),
    ] {
        let (line, ..) = told(&get_of(server.addr(), "b.example", path));
        assert_eq!(line.split(' ').nth(1), Some(status), "{path}");
    }
    // no site has this host
    for (path, status) in [("/intern;/x", "403"), ("/intern%2fx", "404"), ("/../intern", "400")] {
        let (line, ..) = told(&get_of(server.addr(), "c.test", path));
        assert_eq!(line.split(' ').nth(1), Some(status), "{path}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    let open = get_of(server.addr(), "b.example", "/open;x/a.txt");
    assert!(open.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&open));
    assert_ne!(asked.load(Ordering::Relaxed), 0);
    end(server);
}

/// No stage behind receive judges a request again: receive refuses a request that its rules cannot judge,
/// and passes on one that they have judged.
#[test]
fn what_receive_refuses_is_never_asked_of_other_software() {
    let folder = site();
    let (addr, asked) = application();
    let more = format!(
        "isolated.process_at = [\"http://{addr}\"]\n\
         [[rule]]\nname = \"admin\"\npath = [\"/admin\", \"/admin/*\"]\naction = \"reject\"\n"
    );
    let server = Server::start(&Options::new(folder.join(".")).engine("isolated").config(&more));
    for (path, status) in [
        ("/admin/users", "403"),
        ("//admin/users", "403"),
        ("/%61dmin/users", "403"),
        ("/x/../admin/users", "403"),
        ("/admin;x/users", "403"),
        ("/admin%3b/users", "403"),
        ("/admin%2fusers", "404"),
        ("/admin%5cusers", "404"),
        ("/../admin/users", "400"),
        ("/x/..;/admin/users", "400"),
    ] {
        let (line, ..) = told(&get(server.addr(), path));
        assert_eq!(line.split(' ').nth(1), Some(status), "{path}");
    }
    let (line, ..) = told(&get(server.addr(), "/x/..//%66ree/a%20b;c?q=/../%2f"));
    assert_eq!(line, "HTTP/1.1 200 OK");
    let is_request = |head: &String| !head.starts_with("OPTIONS * ");
    let heads: Vec<_> = asked.try_iter().filter(is_request).collect();
    let is_judged = |head: &String| head.starts_with("GET /free/a%20b;c?q=/../%2f HTTP/1.1\r\n");
    assert!(!heads.is_empty() && heads.iter().all(is_judged), "{heads:?}");
    end(server);
}

/// A server of other software in the place of a stage.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn other(mut command: Command, addr: SocketAddr) -> Other {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let other = Other(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
    assert!(soon(PATIENCE, || TcpStream::connect(addr).is_ok()), "{command:?} does not listen");
    other
}

fn nginx(folder: &Folder, addr: SocketAddr) -> Command {
    let at = |name: &str| folder.join(name).display().to_string();
    let user = if geteuid().is_root() { "user root;" } else { "" };
    let text = format!(
        "daemon off; master_process off; {user} pid {pid}; error_log /dev/null;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {temp}; proxy_temp_path {temp};\n\
         fastcgi_temp_path {temp}; uwsgi_temp_path {temp}; scgi_temp_path {temp};\n\
         keepalive_requests 100000;\n\
         server {{ listen {addr}; root {root}; }} }}",
        pid = at("nginx.pid"),
        temp = at("temp"),
        root = at("."),
    );
    let file = folder.write("nginx.conf", text);
    let mut command = Command::new("nginx");
    command.env("PATH", "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin");
    command.arg("-c").arg(file).arg("-p").arg(folder.join(""));
    command
}

fn apache(folder: &Folder, addr: SocketAddr) -> Command {
    let at = |name: &str| folder.join(name).display().to_string();
    let loads = apache_modules(&["mpm_event", "authz_core", "dir"]);
    let text = format!(
        "ServerRoot {root}\nServerName a\nPidFile {pid}\nListen {addr}\n{loads}User www-data\nGroup www-data\n\
         ErrorLog /dev/null\nDocumentRoot {root}\nKeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 30\n\
         <Directory {root}>\nRequire all granted\n</Directory>\n",
        root = at("."),
        pid = at("apache.pid"),
    );
    let file = folder.write("apache.conf", text);
    let mut command = Command::new("apache2");
    command.env("PATH", "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin");
    command.arg("-X").arg("-f").arg(file);
    command
}

fn process_py(addr: SocketAddr, respond: SocketAddr) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/process.py");
    let text = fs::read_to_string(script).unwrap();
    assert!(text.lines().count() <= 50, "it is to be read at a glance");
    let mut command = Command::new("python3");
    command.arg(script).args([addr.to_string(), respond.to_string(), "/closed".to_owned()]);
    command
}

/// Replaces the stages by those of another configuration, under load, and no request fails.
fn replace(server: &Server, more: &str) {
    let before = stages(server);
    let file = server.file();
    let text = fs::read_to_string(&file).unwrap();
    under_load(server, || {
        fs::write(&file, format!("{more}\n{text}")).unwrap();
        server.signal(Signal::HUP);
        let done = || server.stderr().contains("the stages are replaced");
        assert!(soon(PATIENCE, done), "{}", server.stderr());
        until_gone(&before);
    });
}

/// Other software takes the place of a stage under load; the decisions of process stay in force.
fn loses_nothing(folder: &Folder, key: &str, addresses: &[SocketAddr]) {
    let server = start(folder, "isolated", UNHURRIED);
    let list: Vec<_> = addresses.iter().map(|addr| format!("\"http://{addr}\"")).collect();
    let decides_itself = key == "respond_at";
    if !decides_itself {
        let text = fs::read_to_string(server.file()).unwrap();
        fs::write(server.file(), text.replace(RULES, "")).unwrap();
    }
    replace(&server, &format!("isolated.{key} = [{}]", list.join(", ")));
    let closed = told(&get(server.addr(), "/closed/a.txt"));
    assert_eq!(closed.0, "HTTP/1.1 403 Forbidden");
    let left: Vec<_> = stages(&server).into_iter().map(|(name, _)| name).collect();
    let stays = if decides_itself { "process" } else { "receive" };
    let is_one = |name: &String| name.starts_with("receive") || name.starts_with(stays);
    assert!(left.iter().all(is_one), "{left:?}");
    if decides_itself {
        // the path that was judged is the one that is asked for, in any form and with any method
        for path in
            ["/closed%2fa.txt", "/x/..%2fclosed/a.txt", "/%2fclosed/a.txt", "/closed;x/..%2f"]
        {
            let (status, ..) = told(&get(server.addr(), path));
            assert!(status.contains(" 404 ") || status.contains(" 400 "), "{path}: {status}");
        }
        for path in ["//closed/a.txt", "/x/../closed/a.txt", "/%63losed/./a.txt", "/closed;x/a.txt"]
        {
            assert_eq!(told(&get(server.addr(), path)).0, "HTTP/1.1 403 Forbidden", "{path}");
        }
        for method in ["PUT", "OPTIONS", "DELETE"] {
            let request = format!(
                "{method} /closed/a.txt HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\
                 Connection: close\r\n\r\nx"
            );
            let answer = wire::exchange(server.addr(), request.as_bytes());
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with("HTTP/1.1 403 "), "{method}: {answer}");
        }
    }
    end(server);
}

#[test]
fn nginx_takes_the_place_of_respond_under_load() {
    let (folder, addr) = (site(), free_addr());
    let _nginx = other(nginx(&folder, addr), addr);
    loses_nothing(&folder, "respond_at", &[addr]);
}

#[test]
fn apache_takes_the_place_of_respond_under_load() {
    let (folder, addr) = (site(), free_addr());
    let _apache = other(apache(&folder, addr), addr);
    loses_nothing(&folder, "respond_at", &[addr]);
}

#[test]
fn a_script_takes_the_place_of_process_under_load() {
    let (folder, addr) = (site(), free_addr());
    let respond = start(&folder, "event", "");
    let _script = other(process_py(addr, respond.addr()), addr);
    loses_nothing(&folder, "process_at", &[addr]);
}

#[test]
fn a_newer_program_takes_its_place_under_load() {
    let folder = site();
    let program = folder.join("forebay");
    copy_program(&binary(), &program);
    let root = folder.join(".");
    let config = format!("{UNHURRIED}[[site]]\nhosts = [\"*.example\"]\nroot = {root:?}\n");
    let mut options = Options::new(root).engine("isolated").config(&config);
    let instead = format!("shift; exec {program:?} \"$@\"");
    options.wrapper = ["sh", "-c", &instead, "sh"].map(str::to_owned).to_vec();
    let server = Server::start(&options);
    let inode =
        |name: &str| fs::metadata(format!("/proc/{}/exe", stage(&server, name, 0))).unwrap().ino();
    let old = inode("respond 1");
    // packages replace a program like this: the name leads to another file, and the old one is gone
    let newer = folder.join("newer");
    copy_program(&binary(), &newer);
    fs::rename(&newer, &program).unwrap();
    replace(&server, "isolated.ping = \"3s\"");
    for name in ["receive 1", "process 1", "process 2", "respond 1", "respond 2"] {
        assert_ne!(inode(name), old, "{name}");
    }
    // a server that crashes is started again
    let rounds = if is_full_matrix() { 5 } else { 1 };
    for _ in 0..rounds {
        let pid = stage(&server, "process 1", 0);
        crate::isolated::signal(pid, Signal::KILL);
        stage(&server, "process 1", pid);
    }
    assert_eq!(told(&get(server.addr(), "/")).0, "HTTP/1.1 200 OK");
    end(server);
}

/// An application that reports each request, and always gives the same answer.
fn application() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, tell) = (client.unwrap(), tell.clone());
            thread::spawn(move || {
                loop {
                    let (mut text, mut byte) = (Vec::new(), [0]);
                    let is_whole = |text: &[u8]| {
                        let is_chunked = text.windows(7).any(|part| part == b"chunked");
                        match is_chunked {
                            true => text.ends_with(b"0\r\n\r\n"),
                            false => text.ends_with(b"\r\n\r\n"),
                        }
                    };
                    while !is_whole(&text) {
                        if client.read_exact(&mut byte).is_err() {
                            return;
                        }
                        text.push(byte[0]);
                    }
                    let _ = tell.send(String::from_utf8(text).unwrap());
                    let answer = "HTTP/1.1 200 OK\r\nDate: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                                  5\r\nhello\r\n5\r\n you!\r\n0\r\n\r\n";
                    if client.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (addr, asked)
}

#[test]
fn applications_are_asked_by_respond() {
    let folder = site();
    let (addr, asked) = application();
    for http2 in ["on", "off"] {
        let more = format!("{UNHURRIED}isolated.http2 = \"{http2}\"\n");
        let more = format!("{more}[[proxy]]\npath = \"/api\"\nto = \"http://{addr}\"\n");
        let options = Options::new(folder.join(".")).engine("isolated").config(&more);
        let server = Server::start(&options);
        let head = "HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nForebay-Local: 9.9.9.9:9\r\n\
                    X-Forwarded-For: 9.9.9.9\r\n";
        let ask = |begin: &str, rest: &str| {
            let request = format!("{begin} {head}{rest}\r\n");
            let (status, _, body) = told(&server.exchange(request.as_bytes()));
            assert_eq!(status, "HTTP/1.1 200 OK");
            let body = String::from_utf8(body).unwrap();
            assert!(body.contains("hello") && body.contains(" you!"), "{body}");
            asked.recv_timeout(wire::PATIENCE).unwrap()
        };
        let got = ask("GET /api/a?b=c", "");
        assert!(got.starts_with("GET /api/a?b=c HTTP/1.1\r\n"), "{got}");
        // names come in small letters over HTTP/2
        let got = got.to_lowercase();
        for line in
            ["x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http", "x-real-ip: 127.0.0.1"]
        {
            assert!(got.contains(&format!("\r\n{line}\r\n")), "{line}: {got}");
        }
        // the port of the host that the client has named
        assert!(got.contains("x-forwarded-port: 80\r\n"), "{got}");
        assert!(!got.contains("forebay-") && !got.contains("9.9.9.9"), "{got}");
        let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n";
        let got = ask("POST /api/b", chunks);
        let body: String = got.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
        let bytes: Vec<&str> = body.split("\r\n").collect();
        // in whichever chunks
        let sent: String = bytes.iter().skip(1).step_by(2).copied().collect();
        assert!(sent.starts_with("abcde"), "{got}");
        let (status, ..) = told(&get(server.addr(), "/text.txt"));
        assert_eq!(status, "HTTP/1.1 200 OK");
        end(server);
    }
}

/// TLS and the id of a request: each stage passes on what the one before has stated.
#[test]
fn what_a_trusted_proxy_says_of_a_request_comes_to_its_application() {
    let folder = site();
    let (addr, asked) = application();
    let proxy = format!("[[proxy]]\npath = \"/api\"\nto = \"http://{addr}\"\n");
    for (trusted, proto) in [("127.0.0.0/8", "https"), ("192.0.2.0/24", "http")] {
        let more = format!("{UNHURRIED}trusted_proxies = [\"{trusted}\"]\n{proxy}");
        let server =
            Server::start(&Options::new(folder.join(".")).engine("isolated").config(&more));
        let request = b"GET /api HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\
                        X-Forwarded-Proto: https\r\nX-Request-Id: its-name\r\n\r\n";
        assert_eq!(told(&server.exchange(request)).0, "HTTP/1.1 200 OK");
        let got = asked.recv_timeout(PATIENCE).unwrap();
        assert!(got.contains(&format!("\r\nX-Forwarded-Proto: {proto}\r\n")), "{got}");
        let is_named = got.contains("\r\nX-Request-Id: its-name\r\n");
        assert_eq!(is_named, proto == "https", "{got}");
        end(server);
    }
}

#[test]
fn requests_that_may_not_run_twice_outlive_a_stage_that_hangs_before_it_has_them() {
    let folder = site();
    let server = isolated(&folder);
    under_load(&server, || {});
    let pid = stage(&server, "process 1", 0);
    freeze(pid);
    for number in 0..12 {
        let body = "Content-Length: 3\r\n\r\nabc";
        let request =
            format!("POST /{number} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{body}");
        let (status, ..) = told(&server.exchange(request.as_bytes()));
        // no handler takes it, and respond says so: over HTTP/1.1 it would be 502, because it may have
        // run
        assert!(status.contains(" 405 ") || status.contains(" 404 "), "{status}");
    }
    signal(pid, Signal::CONT);
    end(server);
}

#[test]
fn commands_reload_the_stages_and_show_them() {
    let folder = site();
    let server = isolated(&folder);
    let ask = |command: &str| {
        let mut asked = Command::new(binary());
        let output = asked.args([command, "-c"]).arg(server.file()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let mut said = String::new();
    // each has a second to answer, and a busy machine may keep it from that
    let all_answer = || {
        let (code, text) = ask("status");
        said = text;
        assert_eq!(code, Some(0), "{said}");
        said.matches(" answers ").count() == 4
    };
    assert!(soon(PATIENCE, all_answer), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 7, "{said}");
    assert!(lines[1].starts_with("receive") && lines[1].contains("runs"), "{said}");
    assert!(lines[2..6].iter().all(|line| line.contains("answers")), "{said}");
    assert!(lines[6].starts_with("bans: 0 by command"), "{said}");
    let before = stages(&server);
    for (name, pid) in before.iter().filter(|(name, _)| name != "receive 1") {
        assert!(said.contains(&pid.to_string()), "{name} {pid}: {said}");
    }
    // an instance that hangs does not answer, and one that has ended was started again
    let pid = stage(&server, "respond 2", 0);
    freeze(pid);
    let is_one_silent = || ask("status").1.matches("does not answer").count() == 1;
    assert!(soon(PATIENCE, is_one_silent), "{}", ask("status").1);
    signal(pid, Signal::KILL);
    let pid = stage(&server, "respond 2", pid);
    let begin = Instant::now();
    loop {
        let (_, said) = ask("status");
        let line = said.lines().find(|line| line.contains(&format!(" {pid} "))).map(str::to_owned);
        if line.is_some_and(|line| line.ends_with(" 1") && line.contains(" answers ")) {
            break;
        }
        assert!(begin.elapsed() < wire::PATIENCE, "{said}");
    }
    let before = stages(&server);
    let (code, said) = ask("reload");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the stages are replaced"), "{said}");
    until_gone(&before);
    let text = fs::read_to_string(server.file()).unwrap();
    fs::write(server.file(), text.replace("isolated.back_off", "isolated.back_of")).unwrap();
    let before = stages(&server);
    let (code, said) = ask("reload");
    assert_ne!(code, Some(0), "{said}");
    assert_eq!(stages(&server), before);
    end(server);
}
