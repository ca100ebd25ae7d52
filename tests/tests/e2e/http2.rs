//! HTTP/2 of the real server: the same answers as over HTTP/1, several requests at once, and what becomes
//! of those that are given up, refused or cut off.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_http2::{ErrorCode, Http2Limits};
use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::{Answer, Client};
use forebay_tests::server::free_addr;
use forebay_tests::tls::Authority;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{ENGINES, Options, Server, on_each_engine};
use rcgen::PKCS_ECDSA_P256_SHA256 as ECDSA;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

on_each_engine!(
    answers_are_the_same_as_with_http1,
    requests_are_served_beside_one_another,
    the_most_urgent_answer_goes_first,
    bodies_are_read_and_bounded,
    a_client_that_takes_nothing_holds_up_only_itself,
    a_window_that_stays_closed_costs_only_its_request,
    what_is_given_up_is_accounted_for,
    who_leaves_is_not_waited_for,
    a_connection_whose_window_stays_closed_ends_with_a_goodbye,
    a_drain_finishes_what_was_asked,
    a_last_answer_is_not_cut_while_its_client_opens_windows,
    a_drain_does_not_wait_for_a_client_that_says_nothing,
    a_reload_keeps_connections,
    policy_judges_each_request,
);

/// A size beyond what is kept in memory, so that the file is read from the disk.
const LARGE: usize = 3_000_000;

fn large() -> Vec<u8> {
    counting(LARGE)
}

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "<p>index</p>");
    folder.write("site/small.txt", "small");
    folder.write("site/empty", "");
    folder.write("site/text.txt", "many words ".repeat(9_000));
    folder.write("site/pre.css", "plain");
    folder.write("site/pre.css.gz", "not really gzip");
    folder.write("site/gone.html", "<p>nothing here</p>");
    folder.write("site/lists/one", "1");
    folder.write("site/large.bin", large());
    folder.age();
    folder
}

fn serve(folder: &Folder, engine: &str, lines: &str) -> WatchedServer {
    WatchedServer::with(Options::new(folder.join("site")).engine(engine).config(lines))
}

/// An answer over HTTP/1 in the form of one over HTTP/2.
fn with_http1(served: &WatchedServer, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n");
    for (name, value) in fields {
        request += &format!("{name}: {value}\r\n");
    }
    let all = wire::exchange(served.addr(), format!("{request}\r\n").as_bytes());
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head[9..12].parse().unwrap();
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let fields = lines.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, fields, body: all[end..].to_vec(), is_whole: true, ..Answer::default() }
}

/// The answer without the fields that depend on when and how it was sent.
fn comparable(mut answer: Answer) -> Answer {
    let kind = answer.fields.iter().find(|(name, _)| name == "content-type").cloned();
    if let Some((_, kind)) = kind
        && let Some((_, boundary)) = kind.split_once("boundary=")
    {
        // the boundary is another one each time
        let body = String::from_utf8_lossy(&answer.body).replace(boundary, "-");
        answer.body = body.into_bytes();
        answer.fields.retain(|(name, _)| name != "content-type");
    }
    answer.fields.retain(|(name, _)| !["date", "connection", "keep-alive"].contains(&&**name));
    answer
}

/// The method, path and fields of a request.
type Request<'r> = (&'r str, &'r str, &'r [(&'r str, &'r str)]);

fn answers_are_the_same_as_with_http1(engine: &str) {
    let folder = site();
    let lines = "listing = true\ncompress = [\"gzip\"]\n\
        errors.404 = \"/gone.html\"\n\
        [[redirect]]\npath = \"/old\"\nto = \"/small.txt\"\n\
        [[header]]\npath = \"/small.txt\"\n\
        set = { X-Own = \"a value\", X-Name-That-Is-Longer-Than-Most-Of-Those-Which-Are-Known-To-Anybody-Are = \"v\" }\n\
        [[access]]\npath = \"/lists*\"\ndeny = [\"0.0.0.0/0\"]\n";
    let served = serve(&folder, engine, lines);
    let modified = with_http1(&served, "GET", "/small.txt", &[]);
    let (tag, time) = (modified.field("etag").unwrap(), modified.field("last-modified").unwrap());
    let requests: &[Request<'_>] = &[
        ("GET", "/", &[]),
        ("GET", "/small.txt", &[]),
        ("GET", "/empty", &[]),
        ("HEAD", "/large.bin", &[]),
        ("GET", "/large.bin", &[]),
        ("GET", "/large.bin", &[("range", "bytes=1000000-2500000")]),
        ("GET", "/large.bin", &[("range", "bytes=0-9,100-109")]),
        ("GET", "/large.bin", &[("range", "bytes=9999999-")]),
        ("GET", "/small.txt", &[("if-none-match", tag)]),
        ("GET", "/small.txt", &[("if-modified-since", time)]),
        ("GET", "/text.txt", &[("accept-encoding", "gzip")]),
        ("GET", "/pre.css", &[("accept-encoding", "gzip, br")]),
        ("GET", "/nothing", &[]),
        ("GET", "/old?a=b", &[]),
        ("GET", "/lists", &[]),
        ("GET", "/lists/one", &[]),
        ("GET", "/%2e%2e/x", &[]),
        ("GET", "/%00", &[]),
        ("OPTIONS", "*", &[]),
        ("OPTIONS", "/small.txt", &[]),
        ("DELETE", "/small.txt", &[]),
        ("BREW", "/small.txt", &[]),
        ("GET", "/small.txt", &[("expect", "the best")]),
    ];
    // once cold, once from memory
    for _ in 0..2 {
        let mut client = Client::of(&served);
        for (method, path, fields) in requests {
            let stream = client.begin(method, path, fields, true);
            let answer = comparable(client.answer(stream));
            let expected = comparable(with_http1(&served, method, path, fields));
            let told = |answer: &Answer| {
                let Answer { status, fields, body, reset, .. } = answer;
                format!("{status} {reset:?} {fields:?} {} bytes", body.len())
            };
            let same = answer == expected;
            assert!(
                same,
                "{engine}: {method} {path} {fields:?}: {} is not {}",
                told(&answer),
                told(&expected)
            );
        }
    }
}

fn requests_are_served_beside_one_another(engine: &str) {
    let folder = site();
    let served = serve(&folder, engine, "[[work]]\npath = \"/work\"\n");
    let mut client = Client::of(&served);
    let mut streams = vec![(client.ask("/work?cpu=300ms"), None)];
    for number in 0..30 {
        let (path, body) = match number % 3 {
            0 => ("/large.bin", large()),
            1 => ("/small.txt", b"small".to_vec()),
            _ => ("/text.txt", "many words ".repeat(9_000).into_bytes()),
        };
        streams.push((client.ask(path), Some(body)));
    }
    for (stream, body) in streams {
        let answer = client.answer(stream);
        assert_eq!((answer.status, answer.reset), (200, None), "{engine}: {stream}");
        if let Some(body) = body {
            assert!(answer.body == body, "{engine}: {stream}: {} bytes", answer.body.len());
        }
    }
}

fn the_most_urgent_answer_goes_first(engine: &str) {
    let folder = site();
    let served = serve(&folder, engine, "");
    let limits = Http2Limits { stream_window_bytes: 1 << 20, ..Http2Limits::default() };
    let mut client = Client::with(served.addr(), limits);
    // in memory from here on
    for _ in 0..3 {
        assert_eq!(client.get("/text.txt").status, 200);
    }
    for _ in 0..20 {
        let asked = ["u=7", "u=5", "u=0"].map(|priority| [("priority", priority)]);
        let asked = [0, 1, 2].map(|at| ("/text.txt", &asked[at][..]));
        let streams = client.ask_at_once(&asked);
        let bytes = |client: &Client, at: usize| client.so_far(streams[at]).body.len();
        client.until(|client| streams.iter().any(|stream| client.so_far(*stream).is_whole));
        let sent = [0, 1, 2].map(|at| bytes(&client, at));
        // a pipeline that never fuses calls them one by one: the first is sent before the last is known
        let is_last_known = engine != "pipeline:never";
        assert!(client.so_far(streams[2]).is_whole || !is_last_known, "{engine}: {sent:?}");
        streams.iter().for_each(|stream| assert_eq!(client.answer(*stream).body.len(), 99_000));
    }
}

fn bodies_are_read_and_bounded(engine: &str) {
    let folder = site();
    let served = serve(&folder, engine, "limits.body_bytes = \"100KiB\"\n");
    let mut client = Client::of(&served);
    // a request with trailers, one whose client waits for 100 Continue, one without a length
    let with_trailers = client.begin("GET", "/small.txt", &[], false);
    client.send(with_trailers, b"hello", false);
    client.trail(with_trailers, &[("x-sum", "1")]);
    assert_eq!(client.answer(with_trailers).body, b"small");
    let fields = [("expect", "100-continue"), ("content-length", "5")];
    let waits = client.begin("GET", "/small.txt", &fields, false);
    client.until(|client| client.so_far(waits).informational == [100]);
    client.send(waits, b"hello", true);
    assert_eq!(client.answer(waits).status, 200);
    let large = client.begin("GET", "/small.txt", &[], false);
    let mut sent = 0;
    while sent < 200 * 1024 && client.so_far(large).status == 0 {
        sent += client.send(large, &[b'x'; 10_000], false);
    }
    assert_eq!(client.answer(large).status, 413);
    // the rest of it is not wanted, and the connection goes on
    assert_eq!(client.get("/small.txt").status, 200);
    let many: Vec<(String, String)> =
        (0..200).map(|number| (format!("x-{number}"), "y".repeat(100))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, &**value)).collect();
    let stream = client.begin("GET", "/small.txt", &many, true);
    assert_eq!(client.answer(stream).status, 431);
    assert_eq!(client.get("/small.txt").status, 200);
}

/// A client, and its request for a large file: it has a window of 65,535 bytes, and takes no more.
fn stalled(addr: SocketAddr, limits: Http2Limits) -> (Client, u32) {
    let mut client = Client::with(addr, limits);
    client.takes = false;
    let slow = client.ask("/large.bin");
    client.until(|client| client.so_far(slow).body.len() == 65_535);
    (client, slow)
}

fn a_client_that_takes_nothing_holds_up_only_itself(engine: &str) {
    let folder = site();
    let served = serve(&folder, engine, "timeouts.send_window = \"1h\"\n");
    let limits = Http2Limits { stream_window_bytes: 65_535, ..Http2Limits::default() };
    let (mut client, slow) = stalled(served.addr(), limits);
    // other streams of the connection, and other clients, go on
    assert_eq!(client.get("/small.txt").body, b"small");
    assert_eq!(served.client().get("/small.txt").unwrap().body, b"small");
    assert_eq!(client.so_far(slow).body.len(), 65_535);
    client.takes = true;
    client.consume(slow, 65_535);
    assert!(client.answer(slow).body == large(), "{engine}");
}

fn a_window_that_stays_closed_costs_only_its_request(engine: &str) {
    let folder = site();
    let lines = "timeouts.send_window = \"1s\"\n[[class]]\nname = \"all\"\npriority = 0\n\
        [[rule]]\nname = \"none\"\npath = \"/none\"\naction = \"reject\"\n";
    let served = serve(&folder, engine, lines);
    let limits = Http2Limits { stream_window_bytes: 65_535, ..Http2Limits::default() };
    let mut client = Client::with(served.addr(), limits);
    client.takes = false;
    let slow = client.ask("/large.bin");
    // answers to other requests meanwhile give it no more time
    assert!(soon(PATIENCE, || {
        assert_eq!(client.get("/small.txt").status, 200, "{engine}");
        client.so_far(slow).reset.is_some()
    }));
    assert_eq!(client.so_far(slow).reset, Some(ErrorCode::CANCEL.0), "{engine}");
    assert_eq!(client.get("/small.txt").status, 200, "{engine}");
    let in_flight = || served.metric("forebay_class_in_flight{class=\"all\"}");
    assert!(soon(PATIENCE, || in_flight() == 0), "{engine}: {}", served.metrics());
}

fn what_is_given_up_is_accounted_for(engine: &str) {
    let folder = site();
    let lines = "timeouts.job = \"1h\"\nlog.access = \"off\"\n\
        [[work]]\npath = \"/work\"\n\
        [[class]]\nname = \"all\"\npriority = 0\n\
        [[rule]]\nname = \"none\"\npath = \"/none\"\nwhen = \"overload\"\naction = \"reject\"\n";
    let served = serve(&folder, engine, lines);
    let class = |what: &str| served.metric(&format!("forebay_class_{what}{{class=\"all\"}}"));
    let seed =
        std::env::var("HTTP2_SEED").map_or_else(|_| fastrand::u64(..), |it| it.parse().unwrap());
    println!("{engine}: HTTP2_SEED={seed} has the same streams reset again");
    let mut random = fastrand::Rng::with_seed(seed);
    // each answer that is not given up has the same body as over HTTP/1
    let bodies = ["/small.txt", "/large.bin"];
    let bodies = bodies.map(|path| (path, with_http1(&served, "GET", path, &[]).body));
    let bodies = BTreeMap::from(bodies);
    let before = class("requests_total");
    let (mut asked, mut resets) = (0, 0);
    for _ in 0..10 {
        let mut client = Client::of(&served);
        let mut streams = Vec::new();
        for _ in 0..30 {
            let path = *random.choice(&["/small.txt", "/large.bin", "/work?cpu=2ms"]).unwrap();
            streams.push((client.ask(path), path));
            asked += 1;
        }
        for (stream, path) in streams {
            if random.bool() && !client.so_far(stream).is_whole {
                client.reset(stream);
                resets += 1;
            } else {
                let answer = client.answer(stream);
                assert_eq!((answer.status, answer.reset), (200, None), "{engine}");
                let expected = bodies.get(path);
                let is_it = expected.is_none_or(|body| answer.body == *body);
                assert!(is_it, "{engine}: {path}: {} bytes are others", answer.body.len());
            }
        }
        if random.bool() {
            assert_eq!(client.get("/small.txt").status, 200, "{engine}");
            asked += 1;
        }
    }
    assert!(soon(PATIENCE, || class("in_flight") == 0), "{engine}: {}", served.metrics());
    let ends = || class("answered_total") + class("cut_total");
    assert!(soon(PATIENCE, || class("requests_total") == ends()), "{engine}");
    // a job that has begun is done to its end, although its client has given it up
    assert!(soon(PATIENCE, || class("unfinished_jobs") == 0), "{engine}: {}", served.metrics());
    // a request that is given up before it is looked at is not counted
    let known = class("requests_total") - before;
    assert!((asked - resets..=asked).contains(&known), "{engine}: {known} of {asked}");
}

fn who_leaves_is_not_waited_for(engine: &str) {
    let folder = site();
    let lines = "timeouts.send_window = \"1h\"\ntimeouts.body = \"1h\"\n\
        [[class]]\nname = \"all\"\npriority = 0\n\
        [[rule]]\nname = \"none\"\npath = \"/none\"\naction = \"reject\"\n";
    let served = serve(&folder, engine, lines);
    let limits = Http2Limits { stream_window_bytes: 65_535, ..Http2Limits::default() };
    let (mut client, _) = stalled(served.addr(), limits);
    let begun = client.begin("GET", "/small.txt", &[("expect", "100-continue")], false);
    client.until(|client| client.so_far(begun).informational == [100]);
    let in_flight = || served.metric("forebay_class_in_flight{class=\"all\"}");
    assert_eq!(in_flight(), 2, "{engine}");
    // neither its window nor the rest of its body will ever come
    drop(client);
    assert!(soon(PATIENCE, || in_flight() == 0), "{engine}: {}", served.metrics());
}

fn a_drain_finishes_what_was_asked(engine: &str) {
    let folder = site();
    // only the drain itself makes the server send GOAWAY
    let lines = "timeouts.send_window = \"1h\"\ntimeouts.idle = \"1h\"\n";
    let options = Options::new(folder.join("site")).engine(engine).config(lines);
    let mut server = Server::start(&options);
    let limits = Http2Limits { stream_window_bytes: 65_535, ..Http2Limits::default() };
    let (mut client, slow) = stalled(server.addr(), limits);
    let mut idle = Client::connect(server.addr());
    assert_eq!(idle.get("/small.txt").status, 200);
    server.signal(Signal::TERM);
    client.until(|client| !client.goodbyes.is_empty());
    client.takes = true;
    client.consume(slow, 65_535);
    assert!(client.answer(slow).body == large(), "{engine}");
    client.until_closed();
    idle.until_closed();
    assert!(!idle.goodbyes.is_empty(), "{engine}");
    let status = server.wait(PATIENCE).expect("the server did not stop");
    assert!(status.success() && server.stderr().contains(" 0 aborted"), "{}", server.stderr());
}

fn a_last_answer_is_not_cut_while_its_client_opens_windows(engine: &str) {
    let folder = site();
    for is_drain in [false, true] {
        let is_uncut = (0..5).any(|_| {
            let (is_uncut, pause) = takes_a_last_answer(&folder, engine, is_drain);
            // a client that takes nothing for 2 s is not waited for, even if it was only kept from its core
            assert!(is_uncut || pause >= Duration::from_secs(1), "{engine}: it is cut");
            is_uncut
        });
        assert!(is_uncut, "{engine}: it is cut each time");
    }
}

/// Whether a last answer comes to its end, and the longest time in which its client took nothing.
fn takes_a_last_answer(folder: &Folder, engine: &str, is_drain: bool) -> (bool, Duration) {
    let lines = if is_drain { "" } else { "limits.requests_per_connection = 1\n" };
    let options = Options::new(folder.join("site")).engine(engine).config(lines);
    let mut server = Server::start(&options);
    let stream = server.connect();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // a small buffer: much is still in the server's kernel when the last byte was written
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 32 << 10).unwrap();
    let mut client = Client::on(stream);
    let asked = client.ask("/large.bin");
    let (mut heard, mut pause) = (Instant::now(), Duration::ZERO);
    let deadline = heard + PATIENCE;
    let mut is_told = !is_drain;
    while !client.so_far(asked).is_whole {
        let is_reset = client.so_far(asked).reset.is_some();
        if is_reset || client.has_ended() || Instant::now() >= deadline {
            return (false, pause);
        }
        if client.so_far(asked).body.len() > LARGE / 2 {
            if !is_told {
                server.signal(Signal::TERM);
                is_told = true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        client.receive();
        // the longest pause, wherever in the loop this client lost its core
        pause = pause.max(heard.elapsed());
        heard = Instant::now();
    }
    assert!(client.so_far(asked).body == large(), "{engine}");
    client.until_closed();
    pause = pause.max(heard.elapsed());
    if !is_drain {
        return (true, pause);
    }
    let status = server.wait(PATIENCE).expect("the server did not stop");
    assert!(status.success(), "{engine}: {}", server.stderr());
    (server.stderr().contains(" 0 aborted"), pause)
}

fn a_drain_does_not_wait_for_a_client_that_says_nothing(engine: &str) {
    let folder = site();
    let lines = "timeouts.drain = \"1h\"\ntimeouts.head = \"1h\"\ntimeouts.idle = \"1h\"\n";
    let options = Options::new(folder.join("site")).engine(engine).config(lines);
    let mut server = Server::start(&options);
    let mut client = Client::connect(server.addr());
    assert_eq!(client.get("/small.txt").status, 200);
    server.signal(Signal::TERM);
    // the client does not read, so that the PING behind GOAWAY is never answered
    let status = server.wait(PATIENCE).expect("the server did not stop");
    assert!(status.success() && server.stderr().contains(" 0 aborted"), "{}", server.stderr());
    client.until_closed();
    assert!(!client.goodbyes.is_empty(), "{engine}");
}

fn a_connection_whose_window_stays_closed_ends_with_a_goodbye(engine: &str) {
    let folder = site();
    let served = serve(&folder, engine, "timeouts.send_window = \"1s\"\n");
    let limits = Http2Limits { connection_window_bytes: 65_535, ..Http2Limits::default() };
    let (mut client, _) = stalled(served.addr(), limits);
    client.until(|client| !client.goodbyes.is_empty());
    assert_eq!(client.goodbyes, [ErrorCode::ENHANCE_YOUR_CALM], "{engine}");
    client.until_closed();
    assert_eq!(served.metric("forebay_timeouts_total{kind=\"send\"}"), 1, "{}", served.metrics());
}

fn a_reload_keeps_connections(engine: &str) {
    let folder = site();
    let options = Options::new(folder.join("site")).engine(engine).config("");
    let server = Server::start(&options);
    let mut client = Client::connect(server.addr());
    assert_eq!(client.get("/small.txt").status, 200);
    folder.write("other/small.txt", "other");
    server.configure(&Options::new(folder.join("other")).engine(engine).config(""));
    assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
    assert_eq!(client.get("/small.txt").body, b"other", "{engine}");
    assert!(client.goodbyes.is_empty(), "{engine}");
}

fn policy_judges_each_request(engine: &str) {
    let folder = site();
    let lines = "[[rule]]\nname = \"closed\"\npath = \"/lists*\"\naction = \"reject\"\n\
        [[rule]]\nname = \"cut\"\npath = \"/empty\"\naction = \"reset\"\n\
        [[rule]]\nname = \"some\"\npath = \"/text.txt\"\n\
        requests = { rate = \"1/h\", burst = 3 }\n";
    let served = serve(&folder, engine, lines);
    let mut client = Client::of(&served);
    assert_eq!(client.get("/lists/one").status, 403, "{engine}");
    let streams: Vec<u32> = (0..5).map(|_| client.ask("/text.txt")).collect();
    let statuses: Vec<u16> = streams.iter().map(|stream| client.answer(*stream).status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3, "{statuses:?}");
    let mut resets = 0;
    while !client.has_ended() && client.goodbyes.is_empty() {
        assert_eq!(client.get("/small.txt").status, 200, "{engine}: its neighbours are served");
        let stream = client.ask("/empty");
        client.until(|client| client.so_far(stream).reset.is_some());
        resets += 1;
        assert!(resets < 100, "{engine}");
    }
    assert!(resets > 3, "{engine}: {resets}");
    client.until_closed();
    assert_eq!(Client::of(&served).get("/small.txt").status, 200, "{engine}");
}

#[test]
fn it_is_agreed_on_in_the_handshake() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        let addr = free_addr();
        let file = |end| folder.path().join(format!("a.{end}"));
        let config = |streams: u32| {
            format!(
                "limits.streams = {streams}\nlog.access = \"-\"\n\
                 [tls]\ncertificate = [{:?}]\nkey = [{:?}]\n\
                 [[listener]]\nlisten = [\"https://{addr}\"]\n",
                file("crt"),
                file("key")
            )
        };
        let options =
            |streams| Options::new(folder.join("site")).engine(engine).config(&config(streams));
        let server = Server::start(&options(10));
        let mut client = Client::sealed(&authority, addr, "a.example");
        let streams: Vec<u32> = (0..8).map(|_| client.ask("/large.bin")).collect();
        for stream in streams {
            assert!(client.answer(stream).body == large(), "{engine}");
        }
        let has_line = || server.stdout().contains("\"GET /large.bin HTTP/2.0\" 200 3000000");
        assert!(soon(PATIENCE, has_line), "{engine}: {}", server.stdout());
        // HTTP/2 can be switched off
        server.configure(&options(0));
        assert_eq!(server.reload().0, Some(0), "{}", server.stderr());
        let mut refused = Client::sealed(&authority, addr, "a.example");
        refused.ask("/small.txt");
        refused.until_closed();
        let answer = wire::exchange(server.addr(), forebay_http2::frame::PREFACE);
        assert!(answer.starts_with(b"HTTP/1.1 505 "), "{engine}");
    }
}
