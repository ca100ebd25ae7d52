//! An application that speaks HTTP/2 and has many requests under way on a connection; one thread for each connection.
//!
//! | path | what it does |
//! |---|---|
//! | `/sleep/N` | answers after N milliseconds |
//! | `/hang` | never answers |
//! | `/size/N` | answers with N bytes |
//! | `/echo` | answers with the body of the request as it comes, and trailers |
//! | `/refuse/ID` | refuses the stream, the first time for each `ID` |
//! | `/hold` | answers on any connection but the first |
//! | `/goaway` | on the first connection: no stream above 1 is processed |
//! | `/lower/N` | takes N streams from now on, and answers |
//! | `/die` | on the first connection: closes it |
//! | others | answers with the path and the length of the body |

use forebay_http2::hpack::encode;
use forebay_http2::{Connection, DecodedFields, ErrorCode, Http2Event, Http2Limits, MessagePart};
use forebay_tests::faults::site::counting;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The terms of an application.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The number of streams that it takes at once on a connection.
    pub(super) streams: u32,
    /// Whether streams begin with closed windows, which it opens when it has seen their heads.
    pub(super) is_shut: bool,
}

pub(super) const TERMS: Terms = Terms { streams: 250, is_shut: false };

#[derive(Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicUsize,
    pub(super) open: AtomicUsize,
    pub(super) requests: AtomicUsize,
    pub(super) resets: AtomicUsize,
    /// The largest number of requests that were under way at once on one connection.
    pub(super) peak: AtomicUsize,
    /// The bytes of bodies that were sent for `/size/N`, by N.
    pub(super) sent: Mutex<HashMap<usize, usize>>,
    refused: Mutex<HashSet<String>>,
    has_gone: AtomicBool,
}

pub(super) struct Application {
    pub(super) addr: SocketAddr,
    pub(super) counts: Arc<Counts>,
}

impl Application {
    pub(super) fn start(terms: Terms) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let shared = Arc::clone(&counts);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let counts = Arc::clone(&shared);
                let number = counts.connections.fetch_add(1, SeqCst);
                counts.open.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    socket.set_nodelay(true).unwrap();
                    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                    let own = Arc::clone(&counts);
                    // a peer that leaves ends it
                    let _ = Served::new(socket, own, number, terms).run();
                    counts.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Application { addr, counts }
    }

    pub(super) fn count(&self, of: impl Fn(&Counts) -> &AtomicUsize) -> usize {
        of(&self.counts).load(SeqCst)
    }
}

/// A request that is under way.
struct Asked {
    path: String,
    received: usize,
    /// The body to be sent, from `at` on, and whether that is all.
    body: Vec<u8>,
    at: usize,
    is_whole: bool,
}

struct Served {
    socket: TcpStream,
    counts: Arc<Counts>,
    number: usize,
    terms: Terms,
    machine: Connection,
    out: Vec<u8>,
    asked: HashMap<u32, Asked>,
    /// The times at which streams are answered.
    due: BTreeMap<(Instant, u32), ()>,
    /// The last stream that is processed.
    last: u32,
}

/// A frame with this content.
fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, 0]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

impl Served {
    fn new(socket: TcpStream, counts: Arc<Counts>, number: usize, terms: Terms) -> Served {
        let limits = Http2Limits {
            stream_window_bytes: 65_535,
            streams: terms.streams,
            ..Http2Limits::default()
        };
        let (mut machine, mut out) = (Connection::server(limits), Vec::new());
        machine.flush(&mut out);
        if terms.is_shut {
            // INITIAL_WINDOW_SIZE
            out.extend(frame(4, 0, &[0, 4, 0, 0, 0, 0]));
        }
        let (asked, due) = (HashMap::new(), BTreeMap::new());
        Served { socket, counts, number, terms, machine, out, asked, due, last: u32::MAX }
    }

    fn run(&mut self) -> io::Result<()> {
        let (mut input, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        let mut fields = DecodedFields::default();
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let mut at = 0;
            loop {
                let received = self.machine.receive(&input[at..], &mut fields, 0);
                at += received.used;
                match received.event {
                    None => break,
                    Some(Http2Event::Request { stream, ends }) => {
                        let path = String::from_utf8(fields.path().to_vec()).unwrap();
                        self.begins(stream, path, ends)?;
                    }
                    Some(Http2Event::Data { stream, bytes, ends }) => {
                        let count = bytes.len();
                        if let Some(asked) = self.asked.get_mut(&stream) {
                            asked.received += count;
                            if asked.path == "/echo" {
                                asked.body.extend_from_slice(bytes);
                            }
                        }
                        self.machine.consumed(stream, count);
                        self.ends(stream, ends);
                    }
                    Some(Http2Event::Trailers { stream }) => self.ends(stream, true),
                    Some(Http2Event::Reset { stream, .. }) => {
                        self.counts.resets.fetch_add(1, SeqCst);
                        self.asked.remove(&stream);
                    }
                    Some(_) => {}
                }
            }
            input.drain(..at);
            self.answer_due();
            self.flush()?;
        }
    }

    /// Handles the head of a request.
    fn begins(&mut self, stream: u32, path: String, ends: bool) -> io::Result<()> {
        if stream > self.last {
            return Ok(());
        }
        self.counts.requests.fetch_add(1, SeqCst);
        self.counts.peak.fetch_max(self.machine.open_streams(), SeqCst);
        if self.terms.is_shut {
            self.out.extend(frame(8, stream, &65_535_u32.to_be_bytes()));
        }
        let asked =
            Asked { path: path.clone(), received: 0, body: Vec::new(), at: 0, is_whole: false };
        self.asked.insert(stream, asked);
        let (word, rest) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
        let is_first = self.number == 0;
        match word {
            "hang" => {}
            "hold" if is_first => {}
            "echo" => self.head(stream),
            "sleep" => {
                let time = Duration::from_millis(rest.parse().unwrap());
                self.due.insert((Instant::now() + time, stream), ());
            }
            "size" => self.answer(stream, counting(rest.parse().unwrap())),
            "refuse" if self.counts.refused.lock().unwrap().insert(rest.to_owned()) => {
                self.machine.reset(stream, ErrorCode::REFUSED_STREAM);
                self.asked.remove(&stream);
            }
            "goaway" if is_first && !self.counts.has_gone.swap(true, SeqCst) => {
                self.last = 1;
                self.out.extend(frame(7, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
                self.asked.retain(|stream, _| *stream == 1);
            }
            "lower" => {
                let most: u32 = rest.parse().unwrap();
                let setting = [&[0, 3][..], &most.to_be_bytes()].concat();
                self.out.extend(frame(4, 0, &setting));
                self.answer(stream, b"lowered".to_vec());
            }
            "die" if is_first => return Err(io::ErrorKind::ConnectionReset.into()),
            _ => {}
        }
        self.ends(stream, ends);
        Ok(())
    }

    /// Handles the end of a request, if it `ends`.
    fn ends(&mut self, stream: u32, ends: bool) {
        let Some(asked) = self.asked.get_mut(&stream).filter(|_| ends) else { return };
        let word = asked.path[1..].split('/').next().unwrap_or_default();
        match word {
            "hang" | "sleep" | "size" | "lower" => {}
            "hold" if self.number == 0 => {}
            "echo" => asked.is_whole = true,
            _ => {
                let said = format!("{} {}", asked.path, asked.received);
                self.answer(stream, said.into_bytes());
            }
        }
    }

    fn head(&mut self, stream: u32) {
        self.machine.head(&mut self.out, stream, MessagePart::Head, |block| {
            encode::status(block, 200);
        });
    }

    fn answer(&mut self, stream: u32, body: Vec<u8>) {
        self.head(stream);
        if let Some(asked) = self.asked.get_mut(&stream) {
            (asked.body, asked.is_whole) = (body, true);
        }
    }

    /// Answers the streams whose time has come.
    fn answer_due(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, stream), ()) = entry.remove_entry();
            if self.asked.contains_key(&stream) {
                self.answer(stream, b"slept".to_vec());
            }
        }
    }

    /// Sends what the windows allow, a frame of each stream in turn.
    fn flush(&mut self) -> io::Result<()> {
        self.machine.flush(&mut self.out);
        let mut has_moved = true;
        while std::mem::take(&mut has_moved) {
            let mut over = Vec::new();
            for (&stream, asked) in &mut self.asked {
                let rest = &asked.body[asked.at..];
                let is_echo = asked.path == "/echo";
                let count = rest.len().min(self.machine.send_capacity(stream) as usize);
                let is_last = asked.is_whole && count == rest.len();
                if count > 0 || (is_last && !is_echo) {
                    let ends = is_last && !is_echo;
                    let Some(header) = self.machine.data(stream, count as u32, ends) else {
                        continue;
                    };
                    self.out.extend_from_slice(&header);
                    self.out.extend_from_slice(&rest[..count]);
                    asked.at += count;
                    has_moved = true;
                    if let Some(size) = asked.path.strip_prefix("/size/") {
                        let mut sent = self.counts.sent.lock().unwrap();
                        *sent.entry(size.parse().unwrap()).or_default() += count;
                    }
                }
                if is_last {
                    over.push((stream, is_echo));
                }
            }
            for (stream, is_echo) in over {
                self.asked.remove(&stream);
                if is_echo {
                    self.machine.head(&mut self.out, stream, MessagePart::Last, |block| {
                        encode::raw(block, b"grpc-status", b"0");
                    });
                }
            }
            self.socket.write_all(&std::mem::take(&mut self.out))?;
        }
        self.machine.flush(&mut self.out);
        self.socket.write_all(&std::mem::take(&mut self.out))
    }
}
