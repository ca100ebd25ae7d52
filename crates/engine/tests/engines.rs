//! Every engine with a handler made for the purpose: what a handler may do, and what an engine owes
//! it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_conn::*;
use forebay_control::allocation::{self, Law};
use forebay_control::keep_alive::{KeepAlive, Shape};
use forebay_engine::accept::Listener;
use forebay_engine::admission::Admission;
use forebay_engine::control::{Control, Ended, Order};
use forebay_engine::event::{self, EventLoop};
use forebay_engine::fibers::FiberLoop;
use forebay_engine::helpers::Helpers;
use forebay_engine::pipeline::{self, Board, Fuse, Pipeline};
use forebay_engine::settings::{Live, Settings};
use forebay_engine::{blocking, pool, threads};
use forebay_metrics::{Counter, Gauge, Local, Stopwatch};
use forebay_sys::clock;
use forebay_sys::socket::{ListenOptions, listen, local_address};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A connection that was handed over, with what had been received.
type Away = Arc<Mutex<Option<(OwnedFd, Vec<u8>)>>>;

/// Answers by path: `/job`, `/away`, `/panic`, `/jobpanic`, `/big`, anything else its own name.
struct Paths {
    away: Away,
    lines: Sender<(u16, u64)>,
    trusts: bool,
    /// The time, as it was told.
    now_ms: u64,
}

struct Work(String);

impl Job for Work {
    type Done = String;

    fn run(self, _: &Local, _: &mut dyn Stopwatch) -> String {
        assert_ne!(self.0, "/jobpanic", "a job that panics");
        format!("done {}", self.0)
    }

    fn lane(&self) -> u64 {
        0
    }
}

/// The pipeline in which every boundary is a list.
const NEVER_FUSED: &str = "pipeline, never fused";

/// The same with threads by queue delay.
const BY_DELAY: &str = "pipeline, never fused, by delay";

const BIG: usize = 40 << 20;

impl Handler for Paths {
    type Body = usize;
    type Job = Work;
    type Line = u16;

    fn trusts(&mut self, _: &Peer) -> bool {
        self.trusts
    }

    fn admit(&mut self, peer: &Peer) -> Verdict {
        match peer.address().ip().to_string().as_str() {
            "192.0.2.66" => Verdict::Refuse(403),
            _ => Verdict::Admit(Rank::FIRST),
        }
    }

    fn verdict(&mut self, request: &Request<'_>) -> Verdict {
        match request.head.path {
            b"/refuse" => Verdict::Refuse(429),
            b"/reset" => Verdict::Reset,
            _ => Verdict::Admit(Rank::FIRST),
        }
    }

    fn process(
        &mut self,
        request: &Request<'_>,
        done: Option<String>,
        reply: &mut Reply<'_, usize>,
    ) -> Outcome<Work> {
        let path = String::from_utf8_lossy(request.head.path).into_owned();
        let body = match (path.as_str(), done) {
            ("/away", _) => return Outcome::HandOver,
            ("/panic", _) => panic!("a handler that panics"),
            ("/job" | "/jobpanic", None) => return Outcome::Job(Work(path)),
            ("/now", None) => self.now_ms.to_string(),
            ("/who", None) => request.peer.address().to_string(),
            (_, Some(done)) => done,
            ("/big", None) => {
                reply.head(200, format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n").as_bytes());
                reply.stream(0, BIG as u64);
                return Outcome::Replied;
            }
            _ => path,
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", body.len());
        reply.head(200, head.as_bytes());
        reply.copy(body.as_bytes());
        Outcome::Replied
    }

    fn refuse(&mut self, status: u16, _: &'static str, reply: &mut Reply<'_, usize>) {
        reply.head(status, format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n").as_bytes());
    }

    fn piece<'b>(&'b self, sent: &'b usize) -> Option<Piece<'b>> {
        static ZEROS: [u8; 100_000] = [b'0'; 100_000];
        let left = BIG - sent;
        (left > 0).then(|| Piece::Memory(&ZEROS[..left.min(ZEROS.len())]))
    }

    fn advance(&self, sent: &mut usize, count: u64) {
        *sent += count as usize;
    }

    fn is_intact(&self, _: &usize) -> bool {
        true
    }

    fn hold(&mut self, _: &mut usize) {}

    fn warm_bytes(&self, _: &usize) -> u64 {
        0
    }

    fn warm(&mut self, _: &usize) -> Work {
        unreachable!("nothing here is a file")
    }

    fn line(&mut self, _: &Peer, _: Option<&Request<'_>>, status: u16, _: Stages) -> Option<u16> {
        Some(status)
    }

    fn log(&mut self, status: u16, body_bytes: u64) {
        let _ = self.lines.send((status, body_bytes));
    }

    fn turn(&mut self, now: Now) {
        self.now_ms = now.monotonic_ms;
    }

    fn hand_over(&mut self, socket: OwnedFd, received: Vec<u8>, _: &Peer) {
        *self.away.lock().unwrap() = Some((socket, received));
    }
}

struct Running {
    address: SocketAddr,
    control: Arc<Control>,
    locals: Arc<Mutex<Vec<Arc<Local>>>>,
    admission: Arc<Admission>,
    away: Away,
    lines: std::sync::mpsc::Receiver<(u16, u64)>,
    thread: JoinHandle<Ended>,
    settings: Arc<Live>,
    /// The controller's figures, if there is one.
    board: Arc<Board>,
    /// The listening socket stays open when the engine has left it.
    keeper: OwnedFd,
}

fn start(engine: &str, change: impl FnOnce(&mut Settings)) -> Running {
    let socket =
        listen("127.0.0.1:0".parse().unwrap(), ListenOptions { backlog: 64, reuse_port: false })
            .unwrap();
    let address = local_address(&socket).unwrap();
    start_at(engine, Listener::new(socket, address), Proxies::default(), change)
}

/// What is believed of proxies.
#[derive(Clone, Copy)]
struct Proxies {
    trusted: bool,
    per_client: usize,
}

impl Default for Proxies {
    fn default() -> Proxies {
        Proxies { trusted: false, per_client: 100 }
    }
}

fn start_at(
    engine: &str,
    listener: Listener,
    proxies: Proxies,
    change: impl FnOnce(&mut Settings),
) -> Running {
    let address = listener.local;
    let keeper = listener.socket.try_clone().unwrap();
    let listeners = vec![listener];
    let mut settings = Settings::default();
    change(&mut settings);
    let settings = Arc::new(Live::new(settings));
    let control = Arc::new(Control::new(1).unwrap());
    let locals = Arc::new(Mutex::new(Vec::new()));
    let admission = Admission::new(100, proxies.per_client);
    let (sender, lines) = channel();
    let away: Arc<Mutex<_>> = Arc::default();
    let make = {
        let (locals, away) = (Arc::clone(&locals), Arc::clone(&away));
        move || {
            let local = Arc::new(Local::default());
            locals.lock().unwrap().push(Arc::clone(&local));
            let (away, lines) = (Arc::clone(&away), sender.clone());
            (Paths { away, lines, trusts: proxies.trusted, now_ms: 0 }, local)
        }
    };
    let live = Arc::clone(&settings);
    let board = Arc::<Board>::default();
    let (counted, ordered) = (Arc::clone(&admission), Arc::clone(&control));
    let thread = match engine {
        "event" => {
            let (handler, metrics) = make();
            let helpers = Helpers::new((0..2).map(|_| Local::default()).collect(), 0);
            let event_loop = EventLoop::new(event::Parts {
                listeners,
                handler,
                settings,
                admission: counted,
                helpers,
                control: ordered,
                index: 0,
                metrics,
            })
            .unwrap();
            std::thread::spawn(move || event_loop.run().unwrap())
        }
        "fibers" => {
            let (handler, metrics) = make();
            let helpers = Helpers::new((0..2).map(|_| Local::default()).collect(), 0);
            let parts = event::Parts {
                listeners,
                handler,
                settings,
                admission: counted,
                helpers,
                control: ordered,
                index: 0,
                metrics,
            };
            std::thread::spawn(move || FiberLoop::new(parts).unwrap().run().unwrap())
        }
        "threads" => std::thread::spawn(move || {
            threads::run(blocking::Parts {
                listeners,
                make: Box::new(make),
                settings,
                admission: counted,
                control: ordered,
                threads: 200,
            })
            .unwrap()
        }),
        "pool" => std::thread::spawn(move || {
            pool::run(blocking::Parts {
                listeners,
                make: Box::new(make),
                settings,
                admission: counted,
                control: ordered,
                threads: 120,
            })
            .unwrap()
        }),
        "pipeline" | NEVER_FUSED | BY_DELAY => {
            let pipeline = Pipeline::new(pipeline::Parts {
                entrances: vec![listeners],
                make: Box::new(make),
                count: Box::new(Arc::default),
                settings,
                admission: counted,
                control: ordered,
                pipeline: pipeline::Settings {
                    fuse: if engine == "pipeline" { Fuse::Auto } else { Fuse::Never },
                    is_fixed: false,
                    allocation: allocation::Settings {
                        period_ms: 10,
                        law: if engine == BY_DELAY { Law::Delay } else { Law::Queue },
                        ..allocation::Settings::for_cores(2)
                    },
                    connections: 100,
                },
                board: Arc::clone(&board),
            })
            .unwrap();
            std::thread::spawn(move || pipeline.run().unwrap())
        }
        other => panic!("no engine is called {other}"),
    };
    Running {
        address,
        control,
        locals,
        admission,
        away,
        lines,
        thread,
        settings: live,
        board,
        keeper,
    }
}

/// Runs a test on every engine.
fn on_each(test: impl Fn(&str)) {
    for engine in forebay_engine::NAMES.iter().chain([&NEVER_FUSED]) {
        eprintln!("engine {engine}");
        test(engine);
    }
}

impl Running {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        // fails if the server was quicker and has closed
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn get(&self, counter: Counter) -> u64 {
        self.locals.lock().unwrap().iter().map(|local| local.get(counter)).sum()
    }

    fn gauge(&self, wanted: Gauge) -> u64 {
        let gauges = self.board.gauges();
        gauges.iter().find(|(gauge, _)| *gauge == wanted).map(|(_, value)| *value).unwrap()
    }

    fn stop(mut self) -> Ended {
        self.control.give(Order::Drain);
        let thread = std::mem::replace(&mut self.thread, std::thread::spawn(Ended::default));
        let ended = thread.join().unwrap();
        assert_eq!(self.admission.open(), 0, "a place was not given back");
        let (accepted, closed) = (self.get(Counter::Accepted), self.get(Counter::Closed));
        assert_eq!(accepted, closed, "a connection was not counted at its end");
        ended
    }
}

#[test]
fn a_descriptor_is_small() {
    assert!(pipeline::descriptor_bytes::<Paths>() <= 1024);
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn a_pipeline_with_jobs_in_it_is_answered_in_order() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let request = ["/a", "/job", "/b", "/job", "/c"].map(get).concat();
        let answer = server.exchange(&request);
        let bodies: Vec<&str> =
            answer.split("\r\n\r\n").skip(1).map(|s| s.split("HTTP").next().unwrap()).collect();
        assert_eq!(bodies, ["/a", "done /job", "/b", "done /job", "/c"]);
        server.stop();
    });
}

#[test]
fn a_long_pipeline_yields_and_is_answered_whole() {
    on_each(|engine| {
        let server = start(engine, |settings| settings.turn_requests = 3);
        let request: String = (0..500).map(|n| get(&format!("/{n}"))).collect();
        let answer = server.exchange(&request);
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 500);
        assert!(answer.ends_with("/499"));
        server.stop();
    });
}

#[test]
fn a_panic_closes_one_connection_and_is_counted() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut bystander = server.connect();
        assert_eq!(server.exchange(&get("/panic")), "");
        assert_eq!(server.exchange(&get("/jobpanic")), "");
        bystander.write_all(get("/x").as_bytes()).unwrap();
        let mut first = [0; 15];
        bystander.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        assert_eq!(server.get(Counter::Panics), 2);
        drop(bystander);
        server.stop();
    });
}

#[test]
fn a_request_is_handed_over_with_its_socket_and_all_bytes_received() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut stream = server.connect();
        stream.write_all((get("/a") + &get("/away") + "more").as_bytes()).unwrap();
        let (socket, received) = loop {
            if let Some(away) = server.away.lock().unwrap().take() {
                break away;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(received, (get("/away") + "more").as_bytes());
        TcpStream::from(socket).write_all(b" from elsewhere").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("/a from elsewhere"));
        server.stop();
    });
}

#[test]
fn verdicts_refuse_and_reset() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let answer = server.exchange(&(get("/refuse") + &get("/after")));
        assert!(answer.starts_with("HTTP/1.1 429") && answer.ends_with("/after"), "{answer}");
        assert_eq!(server.exchange(&get("/reset")), "");
        server.stop();
    });
}

#[test]
fn a_log_line_tells_how_much_of_the_body_was_sent() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let answer = server.exchange(&get("/big"));
        assert!(answer.len() > BIG);
        assert_eq!(server.lines.recv().unwrap(), (200, BIG as u64));
        let mut stream = server.connect();
        stream.write_all(get("/big").as_bytes()).unwrap();
        stream.read_exact(&mut [0; 1000]).unwrap();
        drop(stream);
        let (status, sent) = server.lines.recv().unwrap();
        assert_eq!(status, 200);
        assert!(sent > 0 && sent < BIG as u64);
        server.stop();
    });
}

#[test]
fn limits_turn_connections_away_politely() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let open: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for stream in &open {
            let mut stream = stream;
            stream.write_all(get("/x").as_bytes()).unwrap();
            stream.read_exact(&mut [0; 15]).unwrap();
        }
        let answer = server.exchange(&get("/one-too-many"));
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert_eq!(server.get(Counter::RefusedTotal), 1);
        drop(open);
        server.stop();
    });
}

#[test]
fn slow_clients_are_told_and_cut() {
    on_each(|engine| {
        let server = start(engine, |settings| {
            settings.timeouts.head_ms = 300;
            settings.timeouts.idle_ms = 300;
            settings.timeouts.send_window_ms = 300;
            settings.timeouts.send_bytes_per_s = 1 << 30;
        });
        let mut stalled = server.connect();
        stalled.write_all(get("/big").as_bytes()).unwrap();
        let mut slow = server.connect();
        slow.write_all(b"GET / HT").unwrap();
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        let mut silent = server.connect();
        assert_eq!(silent.read(&mut [0; 9]).unwrap(), 0);
        let mut idle = server.connect();
        idle.write_all(get("/x").as_bytes()).unwrap();
        let mut answer = String::new();
        idle.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("/x"));
        while server.get(Counter::TimeoutSend) == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(server.get(Counter::TimeoutHead), 2);
        assert_eq!(server.get(Counter::TimeoutIdle), 1);
        drop(stalled);
        server.stop();
    });
}

#[test]
fn a_drain_finishes_what_is_open_and_a_stop_does_not() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut idle = server.connect();
        idle.write_all(get("/x").as_bytes()).unwrap();
        idle.read_exact(&mut [0; 15]).unwrap();
        let mut active = server.connect();
        active.write_all(get("/big").as_bytes()).unwrap();
        active.read_exact(&mut [0; 15]).unwrap();
        server.control.give(Order::Drain);
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).unwrap();
        rest.clear();
        active.read_to_end(&mut rest).unwrap();
        assert!(rest.len() > BIG);
        assert_eq!(server.stop().aborted(), 0);

        let server = start(engine, |_| {});
        let mut active = server.connect();
        active.write_all(get("/big").as_bytes()).unwrap();
        active.read_exact(&mut [0; 15]).unwrap();
        server.control.give(Order::Stop);
        assert_eq!(server.stop(), Ended { aborted_sending: 1, ..Ended::default() });
    });
}

#[test]
fn one_that_retires_keeps_its_clients_and_leaves_the_listener_to_others() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut kept = server.connect();
        let mut ask = |path: &str| {
            kept.write_all(get(path).as_bytes()).unwrap();
            let mut answer = vec![0; 38 + 4 + path.len()];
            kept.read_exact(&mut answer).unwrap();
            let mut whole = String::from_utf8(answer).unwrap();
            while !whole.ends_with(path) {
                let mut byte = [0];
                kept.read_exact(&mut byte).unwrap();
                whole.push(char::from(byte[0]));
            }
            assert!(!whole.contains("Connection: close"), "{whole}");
        };
        ask("/before");
        server.control.give(Order::Retire);
        for _ in 0..20 {
            ask("/after");
        }
        // whoever comes now waits for the next owner of the listener
        std::thread::sleep(Duration::from_millis(100));
        let mut next = server.connect();
        next.write_all(get("/next").as_bytes()).unwrap();
        ask("/last");
        drop(kept);
        let keeper = server.keeper.try_clone().unwrap();
        assert_eq!(server.stop().aborted(), 0);
        let listener = std::net::TcpListener::from(keeper);
        listener.set_nonblocking(false).unwrap();
        let (mut queued, _) = listener.accept().unwrap();
        let mut head = [0; 9];
        queued.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"GET /next");
    });
}

#[test]
fn new_settings_hold_from_the_next_request() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut client = server.connect();
        client.write_all(get("/x").as_bytes()).unwrap();
        client.read_exact(&mut [0; 15]).unwrap();
        let mut settings = server.settings.get();
        settings.limits.requests = 1;
        server.settings.set(settings);
        client.write_all(get("/y").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("Connection: close"), "{answer}");
        server.stop();
    });
}

/// An engine whose clients come through proxies that state them.
fn behind(engine: &str, proxies: Proxies) -> Running {
    let options = ListenOptions { backlog: 64, reuse_port: false };
    let socket = listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let address = local_address(&socket).unwrap();
    let listener = Listener { proxy_protocol: true, ..Listener::new(socket, address) };
    start_at(engine, listener, proxies, |settings| settings.timeouts.head_ms = 300)
}

const TRUSTED: Proxies = Proxies { trusted: true, per_client: 2 };

fn stated(client: &str, path: &str) -> String {
    format!("PROXY TCP4 {client} 192.0.2.1 4711 80\r\n{}", get(path))
}

#[test]
fn who_comes_through_a_proxy_is_who_it_says() {
    on_each(|engine| {
        let server = behind(engine, TRUSTED);
        let answer = server.exchange(&stated("192.0.2.7", "/who"));
        assert!(answer.ends_with("\r\n\r\n192.0.2.7:4711"), "{answer}");
        // byte by byte, and the request after a pause
        let mut stream = server.connect();
        for byte in stated("192.0.2.8", "").split_inclusive("\r\n").next().unwrap().bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        stream.write_all(get("/who").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\n192.0.2.8:4711"), "{answer}");
        let answer = server.exchange(&stated("192.0.2.66", "/who"));
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert_eq!(server.get(Counter::RefusedVerdict), 1);
        server.stop();
    });
}

#[test]
fn clients_behind_a_proxy_are_counted_each_for_itself() {
    on_each(|engine| {
        let server = behind(engine, TRUSTED);
        let open = |client: &str| {
            let mut stream = server.connect();
            stream.write_all(stated(client, "/x").as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            (stream, String::from_utf8(first.to_vec()).unwrap())
        };
        let all: Vec<_> = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.2", "192.0.2.3"]
            .into_iter()
            .map(open)
            .inspect(|(_, status)| assert_eq!(status, "HTTP/1.1 200"))
            .collect();
        assert_eq!(open("192.0.2.1").1, "HTTP/1.1 503");
        assert_eq!(server.get(Counter::RefusedClient), 1);
        // the proxy's own checks are nobody's connections
        let checks: Vec<_> = (0..5)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(b"PROXY UNKNOWN\r\n").unwrap();
                stream.write_all(get("/x").as_bytes()).unwrap();
                stream.read_exact(&mut [0; 12]).unwrap();
                stream
            })
            .collect();
        drop((all, checks));
        server.stop();
    });
}

#[test]
fn who_is_no_trusted_proxy_is_reset() {
    on_each(|engine| {
        let server = behind(engine, Proxies { trusted: false, per_client: 2 });
        assert_eq!(server.exchange(&stated("192.0.2.7", "/who")), "");
        assert_eq!(server.get(Counter::RefusedProxy), 1);
        server.stop();

        let server = behind(engine, TRUSTED);
        assert_eq!(server.exchange(&get("/who")), "");
        assert_eq!(server.get(Counter::RefusedProxyHeader), 1);
        // one that says nothing, and one that stops in the middle
        let mut silent = server.connect();
        assert_eq!(silent.read(&mut [0; 9]).unwrap(), 0);
        let mut slow = server.connect();
        slow.write_all(b"PROXY TCP4 ").unwrap();
        let _ = slow.read(&mut [0; 9]);
        assert_eq!(server.get(Counter::TimeoutHead), 2);
        server.stop();
    });
}

#[test]
fn a_trusted_proxy_may_have_more_connections_than_a_client() {
    on_each(|engine| {
        let options = ListenOptions { backlog: 64, reuse_port: false };
        let socket = listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let address = local_address(&socket).unwrap();
        let server = start_at(engine, Listener::new(socket, address), TRUSTED, |_| {});
        let open: Vec<_> = (0..5).map(|_| server.connect()).collect();
        for mut stream in &open {
            stream.write_all(get("/x").as_bytes()).unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
        }
        drop(open);
        server.stop();
    });
}

#[test]
fn under_load_idle_connections_are_kept_less_long_but_as_long_as_announced() {
    on_each(|engine| {
        let server = start(engine, |settings| {
            settings.timeouts.idle_ms = 60_000;
            let law = KeepAlive::new(Shape::Exponential, 60_000, 50, 0.1);
            settings.keep_alive = Some(law.unwrap());
            settings.announce = true;
        });
        let ask = |stream: &mut TcpStream| {
            stream.write_all(get("/x").as_bytes()).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"/x") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            String::from_utf8(head).unwrap()
        };
        let mut first = server.connect();
        let answer = ask(&mut first);
        assert!(
            answer.contains("Connection: keep-alive\r\nKeep-Alive: timeout=60\r\n"),
            "{answer}"
        );
        let mut crowd: Vec<_> = (0..97).map(|_| server.connect()).collect();
        let answers: Vec<_> = crowd.iter_mut().map(ask).collect();
        let last = answers.last().unwrap();
        assert!(!last.contains("timeout=60"), "{last}");
        // those that came last are closed first, long before a minute is over
        assert_eq!(crowd.last_mut().unwrap().read(&mut [0; 9]).unwrap(), 0);
        assert!(ask(&mut first).ends_with("/x"), "closed although it was told otherwise");
        drop((first, crowd));
        server.stop();
    });
}

#[test]
fn slow_receivers_get_threads_that_are_given_back() {
    for engine in [NEVER_FUSED, BY_DELAY] {
        let server = start(engine, |_| {});
        let slow: Vec<_> = (0..12)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(get("/big").as_bytes()).unwrap();
                stream.read_exact(&mut [0; 15]).unwrap();
                stream
            })
            .collect();
        // each of them has a thread, and somebody has time for others
        let mut client = server.connect();
        client.write_all(get("/x").as_bytes()).unwrap();
        client.read_exact(&mut [0; 15]).unwrap();
        let wait_for = |gauge, wanted: &dyn Fn(u64) -> bool| {
            while !wanted(server.gauge(gauge)) {
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait_for(Gauge::PipelineGrown, &|grown| grown >= 11);
        drop((slow, client));
        wait_for(Gauge::SendThreads, &|threads| threads == 1);
        wait_for(Gauge::PipelineReturned, &|returned| returned >= 11);
        server.stop();
    }
}

#[test]
fn a_handler_knows_the_time_of_a_request_that_comes_after_a_rest() {
    on_each(|engine| {
        let server = start(engine, |_| {});
        let mut client = server.connect();
        for _ in 0..2 {
            let sent_ms = clock::coarse_ms();
            client.write_all(get("/now").as_bytes()).unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
            let head = String::from_utf8(answer).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let mut body = vec![0; length.unwrap().parse().unwrap()];
            client.read_exact(&mut body).unwrap();
            let now_ms: u64 = String::from_utf8(body).unwrap().parse().unwrap();
            assert!(now_ms >= sent_ms, "{} ms ago", sent_ms - now_ms);
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(client);
        server.stop();
    });
}

#[test]
fn loops_that_share_a_socket_share_those_who_come() {
    let options = ListenOptions { backlog: 64, reuse_port: false };
    let socket = listen("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let address = local_address(&socket).unwrap();
    let control = Arc::new(Control::new(2).unwrap());
    let (lines, _read) = channel();
    let start = |index| {
        let metrics = Arc::<Local>::default();
        let copy = socket.try_clone().unwrap();
        let handler =
            Paths { away: Arc::default(), lines: lines.clone(), trusts: false, now_ms: 0 };
        let event_loop = EventLoop::new(event::Parts {
            listeners: vec![Listener { shared: true, ..Listener::new(copy, address) }],
            handler,
            settings: Arc::default(),
            admission: Admission::new(100, 100),
            helpers: Helpers::new(Arc::new([]), 0),
            control: Arc::clone(&control),
            index,
            metrics: Arc::clone(&metrics),
        });
        let event_loop = event_loop.unwrap();
        (metrics, std::thread::spawn(move || event_loop.run().unwrap()))
    };
    let loops = [start(0), start(1)];
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(get("/x").as_bytes()).unwrap();
            stream.read_exact(&mut [0; 15]).unwrap();
            stream
        })
        .collect();
    let accepted = [0, 1].map(|index: usize| loops[index].0.get(Counter::Accepted));
    assert_eq!(accepted[0] + accepted[1], 40);
    // one after the other, unless one was late to sleep again
    assert!(accepted.iter().all(|count| *count >= 8), "{accepted:?}");
    drop(clients);
    control.give(Order::Drain);
    for (_, thread) in loops {
        thread.join().unwrap();
    }
}
