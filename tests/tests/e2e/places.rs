//! Places of applications: learnt (`in_flight = "auto"`), kept for classes (`reserve`), and how
//! applications learn that the server is overloaded (`$overload`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::queue::{CLASSES, Gate, ask, status};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::php::Fpm;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine, on_isolated};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

on_each_engine!(
    places_are_learnt_and_explained,
    a_class_keeps_places,
    a_place_that_is_kept_is_given_while_others_wait,
    answers_without_an_end_keep_no_others_waiting,
    applications_are_told_of_overload,
);

on_isolated!(what_clients_say_of_overload_is_not_told);

/// A pool of workers behind one queue, each of which takes this long for a request. Paths that end in
/// `bad` get 500 at once.
fn pool(workers: usize, took: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let listener = Arc::new(Mutex::new(listener));
    for _ in 0..workers {
        let listener = Arc::clone(&listener);
        thread::spawn(move || {
            loop {
                let accepted = listener.lock().unwrap().accept();
                let Ok((mut stream, _)) = accepted else { return };
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut first, mut line) = (String::new(), String::new());
                let _ = reader.read_line(&mut first);
                while line != "\r\n" {
                    line.clear();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        break;
                    }
                }
                let said = match first.contains("bad ") {
                    true => "500 Internal Server Error",
                    false => {
                        thread::sleep(took);
                        "200 OK"
                    }
                };
                let answer =
                    format!("HTTP/1.1 {said}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes());
            }
        });
    }
    addr
}

fn serve(engine: &str, lines: &str) -> (WatchedServer, Folder) {
    let folder = Folder::new();
    folder.write("index.html", "own");
    (WatchedServer::with(Options::new(folder.join("")).engine(engine).config(lines)), folder)
}

fn listed(served: &WatchedServer) -> String {
    let mut command = Command::new(binary());
    let output = command.args(["upstream", "list", "-c"]).arg(served.file()).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// The number of places that `upstream list` shows as learnt, if there is one.
fn held(said: &str) -> Option<u32> {
    let line = said.lines().find(|line| line.contains(" at once are useful "))?;
    let (number, _) = line.split_once(" at once")?;
    number.rsplit(' ').next()?.parse().ok()
}

/// Starts clients that ask again and again until `stop` is set.
fn load(served: &WatchedServer, count: usize, path: &'static str, stop: &Arc<AtomicBool>) {
    for _ in 0..count {
        let (addr, stop) = (served.addr(), Arc::clone(stop));
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(addr) else { continue };
                let asked = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(asked.as_bytes());
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
        });
    }
}

fn places_are_learnt_and_explained(engine: &str) {
    let app = pool(3, Duration::from_millis(5));
    let config = |max: u32, more: &str| {
        format!(
            "[[proxy]]\npath = \"/\"\nto = \"http://{app}\"\nin_flight = \"auto\"\nin_flight_max = {max}\n\
             queue.time = \"5m\"\nkeep_alive.connections = 0\n{more}"
        )
    };
    let (served, folder) = serve(engine, &config(60, ""));
    let said = listed(&served);
    assert!(said.contains(": 8 at once to begin with: nothing is learnt before"), "{said}");
    let stop = Arc::new(AtomicBool::new(false));
    load(&served, 24, "/", &stop);
    load(&served, 1, "/bad", &stop);
    let is_learnt = || held(&listed(&served)).is_some_and(|held| (2..=7).contains(&held));
    // learning takes some hundred answers, and a busy machine gives few
    assert!(soon(4 * PATIENCE, is_learnt), "{engine}: {}", listed(&served));
    let said = listed(&served);
    assert!(said.contains(" learnt from ") && said.contains(" answers"), "{said}");
    // on a busy machine more may seem to give more for a while, and the number goes up and comes back
    let is_shown = || (2..=9).contains(&served.metric("forebay_upstream_places"));
    assert!(soon(4 * PATIENCE, is_shown), "{engine}: {}", listed(&served));
    // the learnt number outlives a reload
    served.reload_with(
        Options::new(folder.join("")).engine(engine).config(&config(60, "retries = 2\n")),
    );
    assert!(held(&listed(&served)).is_some(), "{engine}: {}", listed(&served));
    served.reload_with(Options::new(folder.join("")).engine(engine).config(&config(2, "")));
    let is_bounded = || served.metric("forebay_upstream_places") <= 2;
    assert!(soon(PATIENCE, is_bounded), "{engine}: {}", listed(&served));
    stop.store(true, Ordering::Relaxed);
}

/// Waits until this number of requests wait.
#[track_caller]
fn wait(served: &WatchedServer, count: u64) {
    let waiting = || served.metric("forebay_upstream_requests_waiting");
    assert!(soon(PATIENCE, || waiting() == count), "{} wait, not {count}", waiting());
}

fn gated(gate: &Gate, route: &str) -> String {
    format!(
        "[[proxy]]\npath = \"/\"\nto = \"http://{}\"\nqueue.time = \"5m\"\n{route}\n{CLASSES}",
        gate.addr
    )
}

fn a_class_keeps_places(engine: &str) {
    let gate = Gate::start();
    let (served, _folder) = serve(engine, &gated(&gate, "in_flight = 3\nreserve = { gold = 1 }"));
    let mut bulk: Vec<_> = ["/bulk/0", "/bulk/1"].map(|path| ask(&served, path)).into();
    gate.has(2);
    bulk.push(ask(&served, "/bulk/2"));
    wait(&served, 1);
    // gold has a place at once, although another request waits
    let mut gold = ask(&served, "/gold/0");
    gate.has(3);
    assert_eq!(gate.came()[2], "/gold/0", "{engine}");
    wait(&served, 1);
    gate.answer(4);
    assert_eq!(status(&mut gold), 200);
    bulk.iter_mut().for_each(|client| assert_eq!(status(client), 200));
    assert_eq!(gate.came()[3], "/bulk/2", "{engine}");
}

fn a_place_that_is_kept_is_given_while_others_wait(engine: &str) {
    let gate = Gate::start();
    let (served, folder) = serve(engine, &gated(&gate, "in_flight = 2\nreserve = { gold = 1 }"));
    let mut clients = vec![ask(&served, "/bulk/0")];
    gate.has(1);
    clients.push(ask(&served, "/bulk/1"));
    wait(&served, 1);
    // the place is no longer kept
    let lines = gated(&gate, "in_flight = 2");
    served.reload_with(Options::new(folder.join("")).engine(engine).config(&lines));
    gate.has(2);
    gate.answer(2);
    clients.iter_mut().for_each(|client| assert_eq!(status(client), 200));
}

/// An application that answers each connection by the head of its request; the function can read the
/// rest.
fn application(answer: fn(String, BufReader<TcpStream>, TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        return;
                    }
                }
                answer(head, reader, stream);
            });
        }
    });
    addr
}

/// An application whose answers to `/events` and `/endless` never end.
fn endless() -> SocketAddr {
    application(|head, mut reader, mut stream| {
        let said = match head.split(' ').nth(1) {
            Some("/events") => "Content-Type: Text/Event-Stream; charset=utf-8\r\n\r\ndata\n",
            Some("/endless") => "Content-Type: text/plain\r\n\r\ndata\n",
            _ => "Content-Length: 0\r\n\r\n",
        };
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{said}");
        let _ = stream.write_all(head.as_bytes());
        if said.ends_with('\n') && !said.ends_with("\r\n") {
            // until the server leaves
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        }
    })
}

fn answers_without_an_end_keep_no_others_waiting(engine: &str) {
    let lines = format!(
        "[[proxy]]\npath = \"/\"\nto = \"http://{}\"\nin_flight = \"auto\"\nqueue.time = \"5m\"\n",
        endless()
    );
    let (served, _folder) = serve(engine, &lines);
    let open = |path: &'static str| {
        let mut stream = TcpStream::connect(served.addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{engine}, {path}: {line}");
        reader
    };
    let _events: Vec<_> = (0..9).map(|_| open("/events")).collect();
    let said = listed(&served);
    assert!(said.contains("8 at once") && said.contains("9 tunnels beside"), "{engine}: {said}");
    let _endless: Vec<_> = (0..8).map(|_| open("/endless")).collect();
    open("/");
    assert!(served.metric("forebay_upstream_places") >= 25, "{engine}: {}", listed(&served));
}

/// An application that answers with the head of the request.
fn echo() -> SocketAddr {
    application(|head, _, mut stream| {
        let length = head.len();
        let said = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{head}"
        );
        let _ = stream.write_all(said.as_bytes());
    })
}

/// The level that the application at `/echo` gets, whatever its client says.
fn told(served: &WatchedServer, engine: &str) -> String {
    let mut client = served.client();
    let asked =
        b"GET /echo HTTP/1.1\r\nHost: a\r\nx-overload-level: 7\r\nForebay-Overload: 3\r\n\r\n";
    client.stream().write_all(asked).unwrap();
    let answer = client.answer().unwrap();
    assert_eq!(answer.status, 200, "{engine}");
    let body = String::from_utf8(answer.body).unwrap().to_ascii_lowercase();
    assert!(!body.contains("forebay-overload"), "{engine}: {body}");
    let mut lines = body.lines().filter_map(|line| line.strip_prefix("x-overload-level: "));
    let level = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), None, "{engine}: {body}");
    level
}

fn what_clients_say_of_overload_is_not_told(engine: &str) {
    let lines = format!(
        "[[proxy]]\npath = \"/echo\"\nto = \"http://{}\"\nset = {{ \"X-Overload-Level\" = \"$overload\" }}\n",
        echo()
    );
    let (served, _folder) = serve(engine, &lines);
    assert_eq!(told(&served, engine), "0", "{engine}");
}

/// The application learns of the trouble of a class below: its own requests are not refused for that.
fn applications_are_told_of_overload(engine: &str) {
    let (gate, echo) = (Gate::start(), echo());
    let lines = format!(
        "agent = \"on\"\n[[class]]\nname = \"told\"\npriority = 0\n\
         [[class]]\nname = \"late\"\npriority = 1\ndelay = \"1ms\"\n\
         [[rule]]\nname = \"told\"\npath = \"/echo\"\nclass = \"told\"\n\
         [[proxy]]\npath = \"/echo\"\nto = \"http://{echo}\"\nset = {{ \"X-Overload-Level\" = \"$overload\" }}\n\
         [[proxy]]\npath = \"/\"\nto = \"http://{}\"\nin_flight = 1\nqueue.time = \"5m\"\n",
        gate.addr
    );
    let (served, _folder) = serve(engine, &lines);
    let told = || told(&served, engine);
    assert_eq!(told(), "0", "{engine}");
    let _clients: Vec<_> = (0..4).map(|number| ask(&served, &format!("/{number}"))).collect();
    let is_told = || matches!(&*told(), "1" | "2" | "3");
    assert!(soon(PATIENCE, is_told), "{engine}: {}", served.metric("forebay_overload_level"));
}

#[test]
fn php_fpm_says_how_many_workers_it_has() {
    let folder = Folder::new();
    folder.write("root/index.php", "<?php echo 'hello';");
    let Some(fpm) = Fpm::start(folder, 3, "places.rs") else { return };
    let root = fpm.folder().join("root");
    let lines = format!(
        "[[fastcgi]]\npath = \"/\"\nto = \"unix:{}\"\nin_flight = \"auto\"\nstatus = \"/fpm-status\"",
        fpm.folder().join("php.sock").display()
    );
    let server = Server::start(&Options::new(root).config(&lines));
    let list = || {
        let mut command = Command::new(binary());
        let said = command.args(["upstream", "list", "-c"]).arg(server.file()).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    assert!(soon(PATIENCE, || list().contains("it says that it has 3 workers")), "{}", list());
    // the application may have been asked first while it began its workers
    let may = |places: &str| list().contains(&format!(" 0 of {places} "));
    assert!(may("3") || may("2") || may("1"), "{}", list());
}
