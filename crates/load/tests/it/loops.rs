//! Closed and open loops make as many requests, on as many connections and to the same paths as configured.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::target::{
    always, group, recording, refusing, requests, run_all, run_for, run_until, say, serve, until,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that counts connections and the requests on each.
fn counting(answer: &'static str) -> (crate::target::Server, Arc<Mutex<Vec<u32>>>) {
    let counts = Arc::new(Mutex::new(Vec::new()));
    let sums = counts.clone();
    let server = serve(move |stream| {
        let mut count = 0;
        requests(stream, |_, writer| {
            count += 1;
            say(writer, answer)
        });
        sums.lock().unwrap().push(count);
    });
    (server, counts)
}

#[test]
fn a_closed_loop_reuses_its_connections() {
    let (server, counts) = counting(OK);
    let report = run_all(group(server.address, "connections=4,requests=400"));
    let all = &report.groups[0];
    assert_eq!((all.connections.opened, all.good, all.failed), (4, 400, 0));
    until("four connections end", || counts.lock().unwrap().len() >= 4);
    let counts = counts.lock().unwrap();
    assert_eq!(counts.len(), 4);
    assert_eq!(u64::from(counts.iter().sum::<u32>()), all.good);
}

#[test]
fn a_connection_carries_as_many_requests_as_it_was_told() {
    let (server, counts) = counting(OK);
    let plan = group(server.address, "connections=2,per_connection=3");
    let (mut opened, mut good) = (0, 0);
    while good <= 20 {
        let report = run_for(200, plan.clone());
        assert_eq!(report.groups[0].failed, 0);
        (opened, good) = (opened + report.groups[0].connections.opened, report.groups[0].good);
    }
    until("all connections end", || counts.lock().unwrap().len() as u64 >= opened);
    let counts = counts.lock().unwrap();
    let threes = counts.iter().filter(|count| **count == 3).count();
    // the end of the run may cut two connections short, and earlier runs may have done too little
    assert!(threes > 3, "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 3));
}

#[test]
fn an_open_loop_offers_exactly_its_rate() {
    let server = always(OK);
    let report = run_for(500, group(server.address, "rate=200"));
    let all = &report.groups[0];
    assert_eq!((all.offered, all.good, all.failed), (100, 100, 0));
    assert_eq!(all.latency.count, 100);
}

#[test]
fn sessions_are_new_connections() {
    let (server, counts) = counting(OK);
    let report = run_for(500, group(server.address, "rate=40,per_connection=2,http=1.0"));
    let all = &report.groups[0];
    assert_eq!((all.connections.opened, all.good, all.failed), (20, 40, 0));
    until("all connections end", || counts.lock().unwrap().len() >= 20);
    assert_eq!(*counts.lock().unwrap(), vec![2; 20]);
}

#[test]
fn threads_share_a_group() {
    let server = always(OK);
    let mut plan = forebay_load::LoadPlan {
        // long enough for a thread that begins late
        duration: Duration::from_millis(4000),
        threads: 3,
        drain: Duration::from_secs(30),
        groups: vec![
            group(server.address, "rate=100"),
            group(server.address, "connections=7,think=10ms"),
        ],
        ..forebay_load::LoadPlan::default()
    };
    plan.groups[1].name = "closed".to_owned();
    // on a machine that stands still a thread may begin when the run is over
    let have_all_begun = || {
        let report = forebay_load::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
        let [open, closed] = [0, 1].map(|place| &report.groups[place]);
        assert_eq!((open.offered, open.good), (400, 400));
        let clients = (closed.connections.opened, closed.clients.unwrap().active);
        println!("{clients:?}");
        clients == (7, 7)
    };
    assert!((0..3).any(|_| have_all_begun()));
}

#[test]
fn pipelined_answers_are_told_apart() {
    let server = always(OK);
    let plan = group(server.address, "pipeline=8,connections=2");
    let report = run_until(200, &plan, |report| report.groups[0].good > 50);
    let all = &report.groups[0];
    assert!(all.good > 50 && all.failed == 0, "{:?}", all.failures);
}

#[test]
fn requests_are_what_was_asked_for() {
    let (server, seen) = recording("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    let plan = group(server.address, "method=HEAD,url=/a?b,per_connection=1,http=1.0");
    run_until(100, &plan, |report| report.groups[0].good > 1);
    assert!(seen.lock().unwrap().iter().all(|line| line == "HEAD /a?b HTTP/1.0"));
    assert!(seen.lock().unwrap().len() > 1);
}

#[test]
fn a_trace_is_replayed_with_its_paths() {
    let file = std::env::temp_dir().join(format!("forebay-load-trace-{}", std::process::id()));
    std::fs::write(&file, "0.01 /one\n0.02\n0.03 /three\n9 /never\n").unwrap();
    let (server, seen) = recording(OK);
    let settings = format!("trace={},url=/other", file.display());
    let report = run_for(100, group(server.address, &settings));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(report.groups[0].good, 3);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, ["GET /one HTTP/1.1", "GET /other HTTP/1.1", "GET /three HTTP/1.1"]);
}

#[test]
fn sources_are_used_in_turn() {
    let peers = Arc::new(Mutex::new(BTreeMap::new()));
    let notes = peers.clone();
    let server = serve(move |stream| {
        *notes.lock().unwrap().entry(stream.peer_addr().unwrap().ip()).or_insert(0) += 1;
        requests(stream, |_, writer| say(writer, OK));
    });
    let settings = "connections=8,requests=80,source=127.0.0.2-127.0.0.5";
    assert_eq!(run_all(group(server.address, settings)).groups[0].failed, 0);
    until("all connections are accepted", || peers.lock().unwrap().values().sum::<u32>() >= 8);
    let peers = peers.lock().unwrap();
    assert_eq!(peers.len(), 4);
    assert!(peers.values().all(|count| *count == 2), "{peers:?}");
}

/// The number of connections and of requests from each address.
type BySource = BTreeMap<IpAddr, (u32, u32)>;

fn counting_sources() -> (crate::target::Server, Arc<Mutex<BySource>>) {
    let peers = Arc::new(Mutex::new(BTreeMap::new()));
    let notes = peers.clone();
    let server = serve(move |stream| {
        let ip = stream.peer_addr().unwrap().ip();
        let notes = notes.clone();
        notes.lock().unwrap().entry(ip).or_insert((0, 0)).0 += 1;
        requests(stream, move |_, writer| {
            notes.lock().unwrap().entry(ip).or_insert((0, 0)).1 += 1;
            say(writer, OK)
        });
    });
    (server, peers)
}

/// All addresses are used equally, unless answers were so slow that some connections could not take their
/// requests. Then there is another run.
#[test]
fn an_open_loop_uses_all_its_sources() {
    let is_fair = || {
        let (server, peers) = counting_sources();
        let pool = "rate=200,source=127.0.0.2-127.0.0.5";
        assert_eq!(run_for(500, group(server.address, pool)).groups[0].failed, 0);
        let requests: Vec<u32> =
            peers.lock().unwrap().values().map(|(_, requests)| *requests).collect();
        println!("{requests:?}");
        assert_eq!(requests.iter().sum::<u32>(), 100, "{requests:?}");
        requests.len() == 4 && requests.iter().all(|count| *count >= 10)
    };
    assert!((0..10).any(|_| is_fair()));
}

#[test]
fn sessions_have_their_sources_in_turn() {
    let (server, peers) = counting_sources();
    let sessions = "rate=200,per_connection=1,source=127.0.0.2-127.0.0.5";
    assert_eq!(run_for(500, group(server.address, sessions)).groups[0].failed, 0);
    let peers = peers.lock().unwrap();
    assert!(peers.len() == 4 && peers.values().all(|count| *count == (25, 25)), "{peers:?}");
}

/// An address that the server refuses takes its turns, and no more.
#[test]
fn a_source_that_is_refused_takes_no_others_turns() {
    let server = serve(|stream| {
        let ip = stream.peer_addr().unwrap().ip();
        if ip != IpAddr::from([127, 0, 0, 2]) {
            requests(stream, |_, writer| say(writer, OK));
        }
    });
    let report = run_for(500, group(server.address, "rate=200,source=127.0.0.2-127.0.0.5"));
    let all = &report.groups[0];
    assert!(all.failed > 0 && all.good >= 50, "{:?}", all.failures);
}

#[test]
fn a_client_waits_after_a_failed_answer() {
    for refused in [
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ] {
        let (server, seen) = recording(refused);
        // a random pause is no shorter than its lower bound
        let plan = group(server.address, "connections=1,pause=50ms-60ms,think=1ms");
        let (mut report, mut before) = (run_for(400, plan.clone()), 0);
        while report.groups[0].failed < 2 {
            before = seen.lock().unwrap().len();
            report = run_for(400, plan.clone());
        }
        let seen = seen.lock().unwrap().len() - before;
        assert!(seen <= 9, "{seen} requests in 400 ms, with 50 ms between them");
    }
}

#[test]
fn a_pool_is_bounded_and_says_when_it_was_empty() {
    let most = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
    let open = most.clone();
    let server = serve(move |stream| {
        let now = open.0.fetch_add(1, Ordering::SeqCst) + 1;
        open.1.fetch_max(now, Ordering::SeqCst);
        requests(stream, |_, writer| {
            thread::sleep(Duration::from_millis(20));
            say(writer, OK)
        });
        open.0.fetch_sub(1, Ordering::SeqCst);
    });
    // 100 requests of 20 ms need at least 2 s of one connection, and there are two connections for half a
    // second
    let report = run_for(500, group(server.address, "rate=200,connections=2,timeout=200ms"));
    let all = &report.groups[0];
    // a request that is given up makes room for another, which may still be served, or come too late
    let given_up = ["timeout", "connect_timeout"].map(|kind| all.failures.get(kind).unwrap_or(&0));
    let given_up = given_up.into_iter().sum::<u64>() as u32;
    let most = most.1.load(Ordering::SeqCst);
    assert!((2..=2 + given_up).contains(&most), "{most}, {:?}", all.failures);
    assert_eq!(all.offered, 100);
    assert!(all.failures["unsent"] > 0, "{:?}", all.failures);
    assert!(all.connections.waited > 0);
    assert!(report.generator.bottlenecks.iter().any(|b| b.contains("connections taken")));
}

/// The demonstration of coordinated omission: the target stands still for 300 ms of every 600. If the machine
/// itself stands still, the test needs several attempts.
#[test]
fn a_stall_is_hidden_by_the_closed_loop_and_exposed_by_the_open_one() {
    assert!((0..10).any(|_| is_hidden_and_exposed()));
}

fn is_hidden_and_exposed() -> bool {
    let begin = Instant::now();
    let server = serve(move |stream| {
        requests(stream, |_, writer| {
            let phase = begin.elapsed().as_millis() % 600;
            if phase >= 300 {
                thread::sleep(Duration::from_millis(600 - phase as u64));
            }
            say(writer, OK)
        });
    });
    let closed = run_for(1_200, group(server.address, "connections=1"));
    let open = run_for(1_200, group(server.address, "rate=500"));
    let (closed, open) = (&closed.groups[0], &open.groups[0]);
    // One request per stall is slow in the closed loop, a third of all in the open one: of every 600 ms, the
    // requests due in the last 200 ms of the stall have waited less than 200 ms.
    let slow = |curve: &[(f64, f64)]| {
        1.0 - curve
            .iter()
            .take_while(|(_, us)| *us < 100_000.0)
            .map(|(q, _)| *q)
            .fold(0.0, f64::max)
    };
    assert!(open.latency.max_us >= 250_000.0);
    let (of_open, of_closed) = (slow(&open.latency.curve), slow(&closed.latency.curve));
    println!("slow: {of_open} in the open loop, {of_closed} in the closed one");
    of_open > 0.2 && of_closed < of_open / 2.0
}

#[test]
fn a_narrow_line_is_no_wider_than_it_says() {
    // 20,000 bytes at 400 kbit/s take 0.4 s
    let body = "x".repeat(20_000);
    let answer: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n{body}").into());
    let server = always(answer);
    let plan = group(server.address, "connections=3,receive=400kbit/s");
    let report = run_until(900, &plan, |report| report.groups[0].good >= 3);
    let all = &report.groups[0];
    assert!(all.good >= 3 && all.failed == 0, "{:?}", all.failures);
    assert!(all.latency.min_us >= 400_000.0, "{:?}", all.latency);
    assert!(all.clients.unwrap().max_bit_per_s <= 408_000.0, "{:?}", all.clients);
}

#[test]
fn a_held_connection_stays_open() {
    let (server, counts) = counting(OK);
    let report = run_for(300, group(server.address, "rate=20,per_connection=1,hold=10s"));
    assert_eq!(report.groups[0].good, 6);
    // the connections ended with the run, each after its one request
    until("all connections end", || counts.lock().unwrap().len() >= 6);
    assert_eq!(*counts.lock().unwrap(), vec![1; 6]);
}

#[test]
fn a_stop_ends_the_run_with_a_report() {
    let server = always(OK);
    let plan = forebay_load::LoadPlan {
        duration: Duration::from_secs(60),
        groups: vec![group(server.address, "connections=2")],
        interval: Some(Duration::from_millis(50)),
        ..forebay_load::LoadPlan::default()
    };
    let stop = AtomicBool::new(false);
    let report = forebay_load::run(&plan, &stop, &mut |progress| {
        if progress.groups[0].rate > 0.0 {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let report = report.unwrap();
    assert!(report.seconds < 30.0 && report.groups[0].good > 0);
    assert!(report.groups[0].seconds < 30.0);
}

/// A run makes exactly the configured number of requests, on every kind of connection, however they end.
#[test]
fn a_run_ends_after_so_many_requests() {
    let server = always(OK);
    let refused = always("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    for (settings, address, good) in [
        ("connections=4,requests=37", server.address, 37),
        ("connections=50,requests=7", server.address, 7),
        ("connections=2,pipeline=8,requests=13", server.address, 13),
        ("connections=3,per_connection=2,requests=11", server.address, 11),
        ("rate=500,requests=21", server.address, 21),
        ("rate=500,per_connection=4,requests=10", server.address, 10),
        ("connections=3,pause=1ms,requests=9", refused.address, 0),
    ] {
        for threads in [1, 3] {
            let plan = forebay_load::LoadPlan {
                duration: Duration::from_secs(120),
                threads,
                spin: Duration::ZERO,
                groups: vec![group(address, settings)],
                ..forebay_load::LoadPlan::default()
            };
            let report = forebay_load::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
            let all = &report.groups[0];
            let ended = all.good + all.failed;
            let asked = settings.rsplit_once('=').unwrap().1.parse::<u64>().unwrap();
            assert_eq!((ended, all.good), (asked, good), "{settings}, {threads}: {all:?}");
            assert!(report.seconds < 119.0 && all.cut == 0, "{settings}: {all:?}");
            let series: f64 = all.series.iter().map(|point| point.answered).sum();
            assert!(series > 0.0, "{settings}: {:?}", all.series);
        }
    }
}

/// A request also ends when its connection cannot be established.
#[test]
fn refused_connections_are_among_the_requests() {
    let (address, _kept) = refusing();
    let plan = forebay_load::LoadPlan {
        duration: Duration::from_secs(120),
        groups: vec![group(address, "connections=2,pause=1ms,requests=6")],
        ..forebay_load::LoadPlan::default()
    };
    let report = forebay_load::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let all = &report.groups[0];
    assert_eq!((all.offered, all.failures["refused"]), (6, 6), "{all:?}");
}

/// The warm-up makes requests of its own.
#[test]
fn the_warm_up_is_not_among_so_many_requests() {
    let server = always(OK);
    let plan = forebay_load::LoadPlan {
        warmup: Duration::from_millis(200),
        duration: Duration::from_secs(120),
        groups: vec![group(server.address, "connections=1,think=10ms,requests=5")],
        ..forebay_load::LoadPlan::default()
    };
    let report = forebay_load::run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
    // one request may have been under way when the warm-up ended
    assert!((5..=6).contains(&report.groups[0].good), "{report:?}");
    assert!(report.seconds < 119.0);
}

#[test]
fn a_request_carries_its_body() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let server = serve(move |mut stream| {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"x=1") {
            let mut piece = [0; 512];
            match stream.read(&mut piece) {
                Ok(count @ 1..) => bytes.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        notes.lock().unwrap().push(String::from_utf8(bytes).unwrap());
        say(&mut stream, OK);
    });
    let report = run_until(
        300,
        &group(server.address, "rate=10,per_connection=1,request_body=x=1,header=A: b"),
        |report| report.groups[0].good > 0,
    );
    assert!(report.groups[0].good > 0, "{report:?}");
    let text = seen.lock().unwrap().first().cloned().unwrap();
    assert!(text.starts_with("POST / HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("\r\nA: b\r\nContent-Length: 3\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\nx=1"), "{text}");
}
