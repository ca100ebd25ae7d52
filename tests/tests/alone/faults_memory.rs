//! Memory is bounded: each of 10,000 idle keep-alive connections costs at most 1 KB of the server's
//! memory, or a thread where each connection has one; and answers on their way take no more than their
//! limit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::ALONE;
use forebay_tests::faults::crowd::{Crowd, allow_descriptors};
use forebay_tests::faults::process::resident_kib;
use forebay_tests::faults::site::{BLOCK_BYTES, Folder, versioned, versions};
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, has_thread_each};
use std::sync::PoisonError;

forebay_tests::on_each_engine! {
    an_idle_connection_costs_little,
    answers_that_nobody_takes_leave_memory_to_others,
}

/// The number of connections that made one request and then wait.
const IDLE: usize = 10_000;
/// The number of connections where each of them keeps a thread.
const IDLE_THREADS: usize = 1_000;

/// The bytes that a thread with its connection may cost: the touched part of its stack, and a worker with
/// its buffers and the paths it has found.
const THREAD_BYTES: usize = 128 * 1024;

/// The server's resident memory grows by at most 1 KiB for each of ten thousand kept connections,
/// and every one of them is still served afterwards. Where each keeps a thread, it costs one.
fn an_idle_connection_costs_little(engine: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let threads = has_thread_each(engine);
    let (idle, most_bytes) = if threads { (IDLE_THREADS, THREAD_BYTES) } else { (IDLE, 1024) };
    let enough = allow_descriptors(idle as u64 + 100);
    let Some(()) = has(enough, "an_idle_connection_costs_little") else { return };
    let folder = Folder::new();
    folder.write("index.html", "a");
    let settings = "timeouts.idle = \"1h\"\nlimits.connections = 15000";
    let mut options = Options::new(folder.path()).engine(engine).config(settings);
    // How many threads the waves of requests bring depends on how fast the machine is, and each of them
    // takes as much as many connections.
    if engine.starts_with("pipeline") {
        options = options.config("pipeline.by = \"fixed\"");
    }
    if threads {
        options.workers = IDLE_THREADS + 100;
    }
    let served = WatchedServer::with(options);
    let get = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\n\r\n";
    let ask_all = |crowd: &mut Crowd| {
        crowd.members.iter_mut().for_each(|member| member.received.clear());
        crowd.send(get);
        let count = crowd.members.len();
        let all = crowd.read_until(3 * PATIENCE, |crowd| crowd.answered(200) == count);
        assert!(all, "{} of {count} answered", crowd.answered(200));
    };
    // What the server needs once (buffers, threads, the cached answer) is there before the measurement. A
    // thread that is used for the first time needs memory: threads are measured.
    let first = if threads { 1 } else { 100 };
    ask_all(&mut Crowd::connect(served.target(), first, first).unwrap());

    let before_kib = resident_kib(served.pid());
    let mut crowd = Crowd { members: Vec::new() };
    // the memory for ten thousand requests at the same time is another question
    while crowd.members.len() < idle {
        let mut more = Crowd::connect(served.target(), 100, 1).unwrap();
        ask_all(&mut more);
        crowd.members.append(&mut more.members);
    }
    let grown_bytes = (resident_kib(served.pid()).saturating_sub(before_kib)) * 1024;
    println!("{} bytes per idle connection", grown_bytes as usize / idle);
    assert!(
        grown_bytes as usize <= idle * most_bytes,
        "{grown_bytes} bytes for {idle} connections"
    );
    ask_all(&mut crowd);
}

/// The bytes of each file, the most that is read into memory with that cache; and the number of files
/// that each client asks for in one go: more than the kernel takes for it.
const FILE_BYTES: usize = 512 << 10;
const FILES_EACH: usize = 16;
/// The number of clients that take nothing.
const TAKERS: usize = 60;
/// The values of `cache.bytes` and `cache.in_flight`.
const CACHE_BYTES: u64 = 8 << 20;
const IN_FLIGHT_BYTES: u64 = 2 << 20;

/// Clients ask for files that were never asked for before, and do not take them. Bodies in memory stay
/// within their limit, others are answered, and in the end so are these clients: every byte is right.
fn answers_that_nobody_takes_leave_memory_to_others(engine: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    folder.write("index.html", "here");
    // one file under many names, so that each name has an answer of its own
    let file = folder.write("file", versioned(1, FILE_BYTES / BLOCK_BYTES));
    for number in 0..=TAKERS * FILES_EACH {
        std::fs::hard_link(&file, folder.join(&format!("{number}"))).unwrap();
    }
    // with this engine a client that takes nothing keeps a thread of the send phase
    let threads = match engine {
        "pipeline:never" => format!("pipeline.by = \"fixed\"\npipeline.send = {}\n", TAKERS + 4),
        _ => String::new(),
    };
    let settings = format!(
        "{threads}cache.bytes = \"{}MiB\"\ncache.in_flight = \"{}MiB\"\n\
         timeouts.send_window = \"1h\"\ntimeouts.job = \"1h\"",
        CACHE_BYTES >> 20,
        IN_FLIGHT_BYTES >> 20
    );
    let served = WatchedServer::start(engine, folder.path(), &settings);
    assert_eq!(served.client().get("/index.html").unwrap().body, b"here");
    let before_kib = resident_kib(served.pid());

    let mut takers: Vec<_> = (0..TAKERS).map(|_| served.client()).collect();
    for (number, taker) in takers.iter_mut().enumerate() {
        // otherwise the kernel lets the receive buffer grow to 32 MiB
        rustix::net::sockopt::set_socket_recv_buffer_size(taker.stream(), 64 << 10).unwrap();
        (0..FILES_EACH)
            .for_each(|file| assert!(taker.ask(&format!("/{}", number * FILES_EACH + file))));
    }
    let crowded = || served.metric("forebay_bodies_crowded_total");
    assert!(soon(PATIENCE, || crowded() > 0), "there was room for all: {}", served.metrics());

    for _ in 0..20 {
        let body_bytes = served.metric("forebay_body_bytes");
        assert!(body_bytes <= CACHE_BYTES + IN_FLIGHT_BYTES, "{body_bytes}");
        let mut client = served.client();
        assert_eq!(client.get("/index.html").unwrap().body, b"here");
        let other = client.get(&format!("/{}", TAKERS * FILES_EACH)).unwrap();
        assert_eq!(versions(&other.body), Ok(vec![1]));
    }
    let grown_kib = resident_kib(served.pid()).saturating_sub(before_kib);
    println!("{grown_kib} KiB for {TAKERS} answers of {} KiB", FILE_BYTES >> 10);

    for taker in &mut takers {
        for _ in 0..FILES_EACH {
            let answer = taker.answer().unwrap_or_else(|cut| panic!("{}", cut.brief()));
            assert_eq!(versions(&answer.body), Ok(vec![1]));
        }
    }
    drop(takers);
    let is_back = || served.metric("forebay_body_bytes") <= CACHE_BYTES;
    assert!(soon(PATIENCE, is_back), "{}", served.metrics());
}
