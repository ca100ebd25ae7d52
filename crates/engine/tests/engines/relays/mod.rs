//! Requests that another server answers, on every engine: a handler with exchanges made for the purpose,
//! and a server of threads behind it.

mod exchange;
mod server;

use crate::harness::{Core, PATIENCE, Setup, on_each, start_core, variants};
use exchange::Front;
use forebay_conn::Settled;
use server::{Server, gift};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How requests and their log lines ended.
#[derive(Default)]
struct Books {
    settled: Vec<Settled>,
    lines: Vec<(u16, u64)>,
    judged: usize,
}

/// A running engine, and the server behind it.
struct Running {
    core: Core,
    server: Server,
    books: Arc<Mutex<Books>>,
}

/// The times that another server may take for its head, and between two bytes, in milliseconds.
#[derive(Clone, Copy)]
struct Limits {
    head_ms: u64,
    silence_ms: u64,
}

const PATIENT: Limits = Limits { head_ms: 60_000, silence_ms: 60_000 };

fn start(engine: &str, limits: Limits) -> Running {
    let (server, books) = (Server::start(), Arc::<Mutex<Books>>::default());
    // in a pool each connection that waits for the other server has a thread
    let setup = Setup { pool: 8, ..Setup::default() };
    let core = {
        let (books, address) = (Arc::clone(&books), server.address);
        start_core(engine, setup, move || Front::new(Arc::clone(&books), address, limits))
    };
    Running { core, server, books }
}

impl Running {
    fn stop(self) -> Books {
        self.core.stop();
        let books = std::mem::take(&mut *self.books.lock().unwrap());
        assert_eq!(books.settled.len(), books.judged, "each request is settled once");
        books
    }
}

/// A client, with what it has received and not looked at.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// An answer: its head, and its body without framing.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// The answer was complete.
    is_whole: bool,
}

impl Client {
    fn new(core: &Core) -> Client {
        Client { stream: core.connect(), received: Vec::new() }
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn get(&mut self, path: &str) -> Got {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.answer()
    }

    /// Receives more. Returns whether there was any.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("nothing comes")
            }
            Err(_) => false,
        }
    }

    /// Receives up to the end of this mark.
    fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.received.windows(mark.len()).position(|part| part == mark) {
                return Some(self.received.drain(..at + mark.len()).collect());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.received.len() < count {
            if !self.more() {
                return None;
            }
        }
        Some(self.received.drain(..count).collect())
    }

    fn head(&mut self) -> Option<(u16, String)> {
        let head = String::from_utf8(self.until(b"\r\n\r\n")?).unwrap();
        Some((head[9..12].parse().unwrap(), head))
    }

    fn answer(&mut self) -> Got {
        let (status, head) = self.head().unwrap();
        let (mut body, mut is_whole) = (Vec::new(), true);
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        if let Some(length) = length {
            let length = length.parse().unwrap();
            match self.take(length) {
                Some(bytes) => body = bytes,
                None => (body, is_whole) = (std::mem::take(&mut self.received), false),
            }
        } else if head.contains("chunked") {
            loop {
                let Some(line) = self.until(b"\r\n") else {
                    is_whole = false;
                    break;
                };
                let text = std::str::from_utf8(&line).unwrap().trim_end();
                let len = usize::from_str_radix(text, 16).unwrap();
                let Some(chunk) = self.take(len + 2) else {
                    is_whole = false;
                    break;
                };
                body.extend_from_slice(&chunk[..len]);
                if len == 0 {
                    break;
                }
            }
        }
        Got { status, head, body, is_whole }
    }
}

#[test]
fn requests_of_many_clients_are_answered_in_the_order_of_each() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let core = &running.core;
                scope.spawn(move || {
                    let mut client = Client::new(core);
                    for round in 0..5 {
                        let len = number * 10_000 + round;
                        let text = format!(
                            "GET /gift/{len} HTTP/1.1\r\nHost: a\r\n\r\n\
                             POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
                             GET /own HTTP/1.1\r\nHost: a\r\n\r\n\
                             POST /own HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi\
                             GET /stream/{len} HTTP/1.1\r\nHost: a\r\n\r\n"
                        );
                        client.send(&text);
                        for body in [
                            gift(len),
                            b"hello".to_vec(),
                            b"own".to_vec(),
                            b"own".to_vec(),
                            gift(len),
                        ] {
                            let got = client.answer();
                            assert!(got.body == body && got.is_whole, "{engine}: {}", got.head);
                        }
                    }
                });
            }
        });
        assert_eq!(running.stop().lines.len(), 100);
    });
}

#[test]
fn a_server_that_dies_is_seen_wherever_that_is() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        for path in ["/die/at-once", "/die/in-head"] {
            let mut client = Client::new(&running.core);
            assert_eq!(client.get(path).status, 502, "{engine} {path}");
            // the connection goes on
            assert_eq!(client.get("/own").body, b"own");
        }
        let mut client = Client::new(&running.core);
        let got = client.get("/die/in-body");
        assert_eq!((got.status, got.is_whole), (200, false), "{engine}");
        let mut client = Client::new(&running.core);
        client.send("GET /die/in-stream HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().unwrap().0, 200);
        running.server.die();
        assert_eq!(client.until(b"0\r\n\r\n"), None, "{engine}: it looks whole");
        // the server dies while it is sent something
        let mut client = Client::new(&running.core);
        client.send("POST /die/at-once HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
        let status = match client.stream.write_all(&vec![b'x'; 5_000_000]) {
            Ok(()) => client.answer().status,
            // the client was sent the answer, and did not read it
            Err(_) => 502,
        };
        assert_eq!(status, 502);
        let books = running.stop();
        assert_eq!(books.settled.iter().filter(|end| **end == Settled::Cut).count(), 2);
    });
}

#[test]
fn great_bodies_arrive_as_they_were_sent() {
    const BYTES: usize = 20 << 20;
    on_each(|engine| {
        let running = start(engine, PATIENT);
        let body = gift(BYTES);
        // there and back at once: a server that held one direction for the other would never end
        for (path, framing) in [("/echo", "chunked"), ("/sum", "sized"), ("/echo", "sized")] {
            let mut client = Client::new(&running.core);
            let mut writer = client.stream.try_clone().unwrap();
            let body = &body;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n");
                    if framing == "sized" {
                        let head = format!("{head}Content-Length: {BYTES}\r\n\r\n");
                        writer.write_all(head.as_bytes()).unwrap();
                        return writer.write_all(body).unwrap();
                    }
                    let head = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
                    writer.write_all(head.as_bytes()).unwrap();
                    for chunk in body.chunks(100_003) {
                        writer.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).unwrap();
                        writer.write_all(chunk).unwrap();
                        writer.write_all(b"\r\n").unwrap();
                    }
                    writer.write_all(b"0\r\n\r\n").unwrap();
                });
                let got = client.answer();
                let expected = match path {
                    "/sum" => server::sum(body).to_string().into_bytes(),
                    _ => body.clone(),
                };
                assert!(got.is_whole && got.body == expected, "{engine} {path} {}", got.head);
            });
        }
        let mut client = Client::new(&running.core);
        assert!(client.get(&format!("/stream/{BYTES}")).body == body);
        assert!(client.get(&format!("/gift/{BYTES}")).body == body);
        running.stop();
    });
}

#[test]
fn what_a_client_does_not_take_is_not_read() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        let mut client = Client::new(&running.core);
        client.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head().unwrap();
        // until nothing moves, when all buffers between are full
        let mut given = (running.server.flooded(), Instant::now());
        while given.1.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(10));
            if running.server.flooded() != given.0 {
                given = (running.server.flooded(), Instant::now());
            }
            assert!(given.0 < 64 << 20, "{engine}: it is read, and kept in memory");
        }
        // the server goes on when the client does
        for _ in 0..200 {
            assert!(client.more());
            client.received.clear();
        }
        drop(client);
        running.server.wait_left(1);
        running.stop();
    });
}

#[test]
fn a_client_that_leaves_takes_its_exchange_along() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        for (number, path) in ["/silent", "/flood", "/silent-in-body"].into_iter().enumerate() {
            let mut client = Client::new(&running.core);
            client.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            running.server.wait_came(number + 1);
            if path != "/silent" {
                client.head().unwrap();
            }
            // a close alone may mean that the client only sends no more
            reset(&client.stream);
            drop(client);
            running.server.wait_left(number + 1);
        }
        running.stop();
    });
}

fn reset(stream: &TcpStream) {
    use std::os::fd::AsFd;
    forebay_sys::socket::reset_on_close(stream.as_fd());
}

#[test]
fn a_client_that_sends_no_more_gets_its_answer() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        for path in ["/slow", "/stream/1000000"] {
            let mut client = Client::new(&running.core);
            client.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client.stream.shutdown(Shutdown::Write).unwrap();
            let got = client.answer();
            assert!(got.is_whole && !got.body.is_empty(), "{engine} {path}");
        }
        running.stop();
    });
}

#[test]
fn a_server_that_takes_too_long_is_not_waited_for() {
    on_each(|engine| {
        let running = start(engine, Limits { head_ms: 200, ..PATIENT });
        let mut client = Client::new(&running.core);
        assert_eq!(client.get("/silent").status, 504, "{engine}");
        running.stop();
        // the head may be late where the machine is
        let running = start(engine, Limits { silence_ms: 200, ..PATIENT });
        let mut client = Client::new(&running.core);
        let got = client.get("/silent-in-body");
        assert_eq!((got.status, got.is_whole), (200, false), "{engine}");
        // a client that does not send what it has announced
        let mut client = Client::new(&running.core);
        client.send("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
        assert_eq!(client.answer().status, 408, "{engine}");
        running.stop();
    });
}

/// A machine that stands still may make a pause too long. Then the test is tried again.
#[test]
fn a_server_that_takes_its_time_but_not_too_much_at_once_is_waited_for() {
    // less than the answer takes, and far more than a pause in it
    let limits = Limits { head_ms: 60_000, silence_ms: 10_000 };
    let is_waited_for = |engine: &str| {
        let running = start(engine, limits);
        let mut client = Client::new(&running.core);
        let got = client.get("/slower");
        running.stop();
        got.is_whole && got.body == b"xxxxx"
    };
    // the test only waits, so it runs on all engines at once
    std::thread::scope(|scope| {
        for engine in variants() {
            scope.spawn(move || assert!((0..3).any(|_| is_waited_for(&engine)), "{engine}"));
        }
    });
}

#[test]
fn an_answer_that_comes_early_ends_the_request() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        let mut client = Client::new(&running.core);
        client.send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nsome");
        let got = client.answer();
        assert_eq!((got.status, got.is_whole), (413, true), "{engine}");
        assert!(got.head.contains("Connection: close"));
        assert!(!client.more(), "and is the last");
        running.stop();
    });
}

#[test]
fn a_tunnel_passes_bytes_on_until_both_ends_have_ended() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        let body = gift(3 << 20);
        let mut client = Client::new(&running.core);
        client.send("GET /tunnel HTTP/1.1\r\nHost: a\r\n\r\nfirst");
        assert_eq!(client.head().unwrap().0, 101);
        assert_eq!(client.take(5).unwrap(), b"first");
        for word in ["one", "GET / HTTP/1.1\r\n\r\n"] {
            client.send(word);
            assert_eq!(client.take(word.len()).unwrap(), word.as_bytes(), "{engine}");
        }
        let mut writer = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&body).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            assert!(client.take(body.len()).unwrap() == body, "{engine}");
        });
        assert_eq!(client.take(3).unwrap(), b"end", "{engine}: its own end was passed on");
        assert!(!client.more() && client.received.is_empty());
        let books = running.stop();
        assert_eq!(books.lines, [(101, 5 + 3 + 18 + body.len() as u64 + 3)]);
    });
}

#[test]
fn exchanges_that_wait_do_not_hold_other_clients() {
    on_each(|engine| {
        let running = start(engine, PATIENT);
        let waiting: Vec<Client> = (0..3)
            .map(|_| {
                let mut client = Client::new(&running.core);
                client.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        running.server.wait_came(3);
        let began = Instant::now();
        let mut client = Client::new(&running.core);
        for _ in 0..20 {
            assert_eq!(client.get("/gift/7").body, gift(7));
            assert_eq!(client.get("/own").body, b"own");
        }
        assert!(began.elapsed() < PATIENCE);
        for client in waiting {
            reset(&client.stream);
        }
        running.server.wait_left(3);
        running.stop();
    });
}
