//! An upstream with a name, and a name whose address changes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::{fs, thread};

const NAME: &str = "app.forebay.test";

/// An application that answers with its own name, and counts its connections.
fn application(addr: SocketAddr, says: &'static str) -> Option<Arc<AtomicUsize>> {
    let listener = TcpListener::bind(addr).ok()?;
    let connections = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, SeqCst);
            thread::spawn(move || -> std::io::Result<()> {
                let mut reader = BufReader::new(&stream);
                loop {
                    let mut line = String::new();
                    while line != "\r\n" {
                        line.clear();
                        if reader.read_line(&mut line)? == 0 {
                            return Ok(());
                        }
                    }
                    write!(
                        &stream,
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{says}",
                        says.len()
                    )?;
                }
            });
        }
    });
    Some(connections)
}

/// Two applications at two addresses with one port.
fn two() -> (u16, [Arc<AtomicUsize>; 2]) {
    let at = |last: u8, port: u16| SocketAddr::from((Ipv4Addr::new(127, 18, 18, last), port));
    for _ in 0..100 {
        let port = forebay_tests::server::free_addr().port();
        if let (Some(one), Some(other)) =
            (application(at(1, port), "one"), application(at(2, port), "other"))
        {
            return (port, [one, other]);
        }
    }
    panic!("no port is free at both addresses")
}

/// A command line that starts another program with a file of ours in the place of `/etc/hosts`. Where a
/// machine has no such file, the program sees one all the same, by an overlay.
fn with_hosts(hosts: &str) -> Vec<String> {
    let (up, work) = (format!("{hosts}.up"), format!("{hosts}.work"));
    let layers = format!("lowerdir=/etc,upperdir={up},workdir={work}");
    let script = format!(
        "[ -e /etc/hosts ] || {{ mkdir -p {up:?} {work:?} && \
         mount -t overlay overlay -o {layers:?} /etc && : > /etc/hosts; }} && \
         mount --bind {hosts:?} /etc/hosts && exec \"$0\" \"$@\""
    );
    let mut words = vec!["unshare", "--mount"];
    if !rustix::process::geteuid().is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    words.extend(["sh", "-c", &script]);
    words.into_iter().map(str::to_owned).collect()
}

/// Requests go to the present address of the name, and so do kept connections, and no request is lost
/// meanwhile. The name is looked up every 10 s, which is most of this test's time.
#[test]
fn requests_go_to_where_a_name_leads_now() {
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let hosts = folder.write("hosts", format!("127.18.18.1 {NAME}\n"));
    let wrapper = with_hosts(hosts.to_str().unwrap());
    let tried = Command::new(&wrapper[0]).args(&wrapper[1..]).arg("true").output().unwrap();
    let may = if tried.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned())
    };
    if has(may, "a name that leads elsewhere").is_none() {
        return;
    }
    let (port, [one, other]) = two();
    let lines = format!("[[proxy]]\npath = \"/app\"\nto = \"http://{NAME}:{port}\"");
    let options = Options { wrapper, ..Options::new(folder.join("root")) };
    let server = Server::start(&options.config(&lines));
    let ask = || {
        let answer = server.exchange(b"GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer.rsplit("\r\n\r\n").next().unwrap().to_owned()
    };
    for _ in 0..8 {
        assert_eq!(ask(), "one");
    }
    let before = one.load(SeqCst);
    assert!((1..8).contains(&before), "connections are kept: {before}");
    fs::write(&hosts, format!("127.18.18.2 {NAME}\n")).unwrap();
    assert!(soon(PATIENCE, || ask() == "other"), "it still goes to where the name has led");
    for _ in 0..8 {
        assert_eq!(ask(), "other");
    }
    // a name that is not found keeps what it had
    assert!(other.load(SeqCst) > 0);
}
