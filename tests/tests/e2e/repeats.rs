//! Requests that may run twice, and those that may not, under way in an application when a process of
//! `isolated` ends: what the client gets, and how often the application was asked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::isolated::{end, get, signal, site, stage, told};
use forebay_tests::faults::process::freeze;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, Server};
use rustix::process::Signal;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// An application that does not answer the first request for a path.
struct Application {
    addr: SocketAddr,
    /// The number of requests, by method and path.
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Application {
    fn start() -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, asked) = (listener.local_addr().unwrap(), Arc::default());
        let application = Application { addr, asked };
        let asked = Arc::clone(&application.asked);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, asked) = (client.unwrap(), Arc::clone(&asked));
                thread::spawn(move || while answer(&client, &asked).is_some() {});
            }
        });
        application
    }

    fn times(&self, line: &str) -> usize {
        self.asked.lock().unwrap().get(line).copied().unwrap_or(0)
    }
}

/// Reads a request with its body, and answers it if it is not the first of its kind. `None` at the end.
fn answer(client: &TcpStream, asked: &Mutex<HashMap<String, usize>>) -> Option<()> {
    let (mut reader, mut writer) = (BufReader::new(client), client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
    });
    reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
    let line: Vec<&str> = head.split(' ').take(2).collect();
    let times = {
        let mut asked = asked.lock().unwrap();
        let times = asked.entry(line.join(" ")).or_default();
        *times += 1;
        *times
    };
    if times > 1 {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ntime {times}");
        return writer.write_all(text.as_bytes()).ok();
    }
    // until the client goes
    let _ = reader.read(&mut [0]);
    None
}

fn start(folder: &Folder, application: &Application, http2: &str, repeats: bool) -> Server {
    // one process of each stage, so that the test knows which one has the request; a slow machine has
    // time to acknowledge it, and a copy that was refused does not wait for so long
    let config = format!(
        "isolated.acknowledge_floor = \"1m\"\nisolated.acknowledge_ceiling = \"1m\"\n\
         isolated.http2 = \"{http2}\"\nisolated.process = 1\nisolated.respond = 1\n\
         repeat_idempotent = {repeats}\n[[proxy]]\npath = \"/api\"\nto = \"http://{}\"\nretries = 0\n",
        application.addr
    );
    Server::start(&Options::new(folder.join(".")).engine("isolated").config(&config))
}

/// Asks for this, and ends a process while the request runs. Returns what the client gets.
fn ask(server: &Server, application: &Application, line: &str, ends: &str) -> (String, Vec<u8>) {
    let addr = server.addr();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"
    );
    let client = thread::spawn(move || wire::exchange(addr, request.as_bytes()));
    let runs = || application.times(line) == 1;
    assert!(soon(PATIENCE, runs), "{line} does not come: {}", server.stderr());
    let pid = stage(server, ends, 0);
    signal(pid, Signal::KILL);
    let (status, _, body) = told(&client.join().unwrap());
    // the next one does not wait for it
    stage(server, ends, pid);
    assert_eq!(told(&get(addr, "/text.txt")).0, "HTTP/1.1 200 OK");
    (status, body)
}

/// Over HTTP/1.1 a request may have run as soon as bytes of it were written. A stage that is only late is
/// waited for: its pings go unanswered meanwhile, and requests that may run twice go to another.
#[test]
fn a_post_outlives_a_stage_that_is_late() {
    let folder = site();
    let config = "isolated.acknowledge_floor = \"10ms\"\nisolated.acknowledge_ceiling = \"1m\"\n\
                  isolated.process = 1\nisolated.ping = \"100ms\"\n";
    let server = Server::start(&Options::new(folder.join(".")).engine("isolated").config(config));
    let addr = server.addr();
    // the link has an idle connection, and its time was measured
    assert_eq!(told(&get(addr, "/text.txt")).0, "HTTP/1.1 200 OK");
    for (name, method) in [("process 1", "POST"), ("process 1", "PUT")] {
        let pid = stage(&server, name, 0);
        freeze(pid);
        let request = format!(
            "{method} /text.txt HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: 1\r\n\r\na"
        );
        let client = thread::spawn(move || wire::exchange(addr, request.as_bytes()));
        // longer than the timer and a ping take
        thread::sleep(Duration::from_millis(1500));
        assert!(!client.is_finished(), "{}", server.stderr());
        signal(pid, Signal::CONT);
        // respond accepts neither method and answers 405
        assert_eq!(told(&client.join().unwrap()).0, "HTTP/1.1 405 Method Not Allowed", "{name}");
    }
    end(server);
}

#[test]
fn what_is_idempotent_is_asked_again_where_the_site_says_so_and_a_post_never() {
    let folder = site();
    let application = Application::start();
    for (http2, repeats) in [("off", true), ("off", false), ("on", true), ("on", false)] {
        let server = start(&folder, &application, http2, repeats);
        for ends in ["respond 1", "process 1"] {
            for (method, may) in
                [("PUT", repeats), ("DELETE", repeats), ("POST", false), ("PATCH", false)]
            {
                let line = format!("{method} /api/{http2}/{repeats}/{}", ends.replace(' ', ""));
                let (status, body) = ask(&server, &application, &line, ends);
                let told = (status.as_str(), application.times(&line));
                match may {
                    true => {
                        assert_eq!(told, ("HTTP/1.1 200 OK", 2), "{line}");
                        assert_eq!(body, b"time 2", "{line}");
                    }
                    false => assert_eq!(told, ("HTTP/1.1 502 Bad Gateway", 1), "{line}"),
                }
            }
        }
        end(server);
        // nothing of it comes later
        let asked = application.asked.lock().unwrap().clone();
        let is_twice =
            |line: &str| repeats && (line.starts_with("PUT") || line.starts_with("DELETE"));
        let of_this = format!(" /api/{http2}/{repeats}/");
        for (line, times) in asked.iter().filter(|(line, _)| line.contains(&of_this)) {
            assert_eq!(*times, if is_twice(line) { 2 } else { 1 }, "{line}");
        }
    }
}
