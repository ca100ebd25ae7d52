//! EMFILE means that the server rests, answers 503 where that is still possible, and never loops
//! busily: a server that may open few files is asked for more connections than that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::crowd::{Crowd, CrowdMember, allow_descriptors};
use forebay_tests::faults::process::{open_descriptors, processor_time};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, hello};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

forebay_tests::on_each_engine! {
    exhausted_descriptors_are_survived,
    a_crowd_at_the_start_does_not_end_the_server,
    who_waits_for_a_descriptor_is_answered_in_the_end,
    files_that_cannot_be_opened_get_a_503,
    a_flood_of_the_admin_listener_takes_nothing_from_the_site,
    a_flood_of_handshakes_with_it_takes_nothing_from_the_site,
}

/// The number of descriptors that the server may have.
const ALLOWED: usize = 64;
/// The number of connections that clients open.
const CROWD: usize = 200;

/// Limits above what the descriptors allow.
const CARELESS: &str = "limits.connections = 100000\nlimits.connections_per_client = 100000";
/// An idle connection is kept as long as without load: otherwise it soon makes room for clients in the
/// queue, and over time any number of clients are served.
const KEPT: &str = "keep_alive.law = \"constant\"";
const ERRORS: &str = "forebay_accept_errors_total";
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("index.html", "a");
    for number in 0..100 {
        folder.write(&format!("{number}.bin"), vec![b'b'; 2 << 20]);
    }
    folder
}

fn narrow(engine: &str, folder: &Folder, settings: &str) -> WatchedServer {
    let limit = format!("--nofile={ALLOWED}:{ALLOWED}");
    let wrapper = vec!["prlimit".to_owned(), limit];
    let options = Options { wrapper, ..Options::new(folder.path()).engine(engine) };
    WatchedServer::with(options.config(settings))
}

/// The share of one core that the server uses while no client asks.
fn idle_share(server: &Server) -> f64 {
    let before = processor_time(server.pid());
    thread::sleep(Duration::from_secs(1));
    (processor_time(server.pid()) - before).as_secs_f64()
}

/// Whether the site is served on a new connection.
fn is_served(served: &WatchedServer) -> bool {
    served.client().get("/").is_ok_and(|answer| answer.status == 200)
}

/// A summary of the crowd's answers, for messages.
fn summary(crowd: &Crowd) -> String {
    let empty = crowd.members.iter().filter(|member| member.received.is_empty()).count();
    let [fine, busy] = [200, 503].map(|status| crowd.answered(status));
    format!("{fine} got 200, {busy} got 503, {empty} nothing, {} are open", crowd.open())
}

/// A crowd takes every descriptor, with the limits that come by default and with limits far above what
/// the descriptors allow. Some clients are answered, and none waits without an end in sight: others get a
/// 503 or a closed connection, or stay in the queue until there is room. The server does not spin, and
/// when the crowd has left it serves again.
fn exhausted_descriptors_are_survived(engine: &str) {
    for settings in ["", CARELESS] {
        let folder = site();
        // a file in memory is not checked without a reason, because that takes a descriptor, too
        let unlooked = "cache.check_interval = \"1h\"";
        let served = narrow(engine, &folder, &format!("{KEPT}\n{unlooked}\n{settings}"));
        assert!(is_served(&served) && served.metric(ERRORS) == 0);
        // a file that was written a moment ago may be read again, which takes a descriptor
        thread::sleep(Duration::from_secs(2));
        assert!(is_served(&served));
        let at_rest = open_descriptors(served.pid());
        let mut crowd = Crowd::connect(served.target(), CROWD, 10).unwrap();
        crowd.send(GET);
        let some = crowd.read_until(PATIENCE, |crowd| crowd.answered(200) >= 10);
        let told = || format!("{}: {}", summary(&crowd), served.stderr());
        assert!(some, "{settings:?}: not even ten are served: {}", told());
        // What is open now stays open: the worst case for clients that wait.
        let share = idle_share(&served);
        assert!(share < 0.5, "{share} of a core while nothing is asked: a busy loop");
        crowd.read();
        let (fine, busy) = (crowd.answered(200), crowd.answered(503));
        println!(
            "{settings:?}: {fine} served, {busy} got 503, {} open, {share} of a core",
            crowd.open()
        );
        assert!(fine < ALLOWED, "{fine} are served with {ALLOWED} descriptors");
        let odd = crowd.members.iter().filter(|m| !m.received.is_empty()).count() - fine - busy;
        assert_eq!(odd, 0, "answers other than 200 and 503");

        // A file in memory is served, however long descriptors lack. A file that was not asked for before
        // may be impossible to open now: 503, not 404.
        let is_kept = |member: &&mut CrowdMember| {
            member.end.is_none() && member.received.starts_with(b"HTTP/1.1 200 ")
        };
        let kept = crowd.members.iter_mut().find(is_kept).expect("one");
        let mut status_of = |path: &str| {
            kept.received.clear();
            kept.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            assert!(soon(PATIENCE, || {
                kept.read();
                kept.received.len() > 12
            }));
            String::from_utf8_lossy(&kept.received[9..12]).into_owned()
        };
        assert_eq!(status_of("/"), "200", "{}", served.stderr());
        let status = status_of("/0.bin");
        assert!(["200", "503"].contains(&&*status), "{status} for a file that cannot be opened");
        drop(crowd);
        assert!(soon(PATIENCE, || is_served(&served)), "not served after the crowd has left");
        // Each loop has a queue of its own: those of the crowd that wait in another's are accepted a
        // little later, and for a moment nothing is left for the admin listener again.
        let all_came = || {
            let accepted = served.metric_if_answered("forebay_connections_accepted_total");
            accepted.is_some_and(|accepted| accepted >= CROWD as u64)
        };
        assert!(soon(PATIENCE, all_came), "connections are left in a queue");
        let is_whole = || served.client().get("/0.bin").is_ok_and(|it| it.body.len() == 2 << 20);
        assert!(soon(PATIENCE, is_whole), "the lack of descriptors is remembered with the file");
        let back = || open_descriptors(served.pid()) <= at_rest + 4;
        assert!(
            soon(PATIENCE, back),
            "{} descriptors, {at_rest} before",
            open_descriptors(served.pid())
        );
        let refused = ["limit", "client_limit", "descriptors"].map(|reason| {
            served.metric(&format!("forebay_connections_refused_total{{reason=\"{reason}\"}}"))
        });
        let errors = served.metric(ERRORS);
        println!("refused {refused:?}, failed accepts {errors}");
        let unserved = (CROWD - fine) as u64;
        assert!(refused.iter().sum::<u64>() + errors > 0, "{unserved} not served, none counted");
        assert!(busy as u64 <= refused.iter().sum(), "{busy} got 503, {refused:?} counted");
    }
}

/// A crowd that comes before the server has completely started takes the descriptors for clients, and
/// none that the server itself still needs: it starts all the same.
fn a_crowd_at_the_start_does_not_end_the_server(engine: &str) {
    let folder = site();
    for round in 0..8 {
        let served = narrow(engine, &folder, CARELESS);
        let crowd = Crowd::connect(served.target(), CROWD, 10);
        let mut crowd =
            crowd.unwrap_or_else(|error| panic!("{round}: {error}: {}", served.stderr()));
        crowd.send(GET);
        let some = |crowd: &Crowd| crowd.answered(200) + crowd.answered(503) > 0;
        let any = crowd.read_until(PATIENCE, some);
        assert!(any, "round {round}: {}, {}", summary(&crowd), served.stderr());
        drop(crowd);
        assert!(soon(PATIENCE, || is_served(&served)), "round {round}");
        // the admin listener needs descriptors, too, and may find none while the server accepts the queued
        // connections of the crowd and finds that their clients have left
        let counts = || {
            let accepted = served.metric_if_answered("forebay_connections_accepted_total");
            accepted.is_some_and(|accepted| accepted > 0)
        };
        assert!(soon(PATIENCE, counts), "round {round}: the admin listener does not answer");
        let are_back = || open_descriptors(served.pid()) < ALLOWED - 8;
        assert!(soon(PATIENCE, are_back), "round {round}: descriptors are not given back");
    }
}

/// Clients that wait in the queue while descriptors lack are answered as soon as there are some: a
/// back-off must not lose the event.
fn who_waits_for_a_descriptor_is_answered_in_the_end(engine: &str) {
    let folder = site();
    let served = narrow(engine, &folder, "");
    let mut first = Crowd::connect(served.target(), CROWD, 10).unwrap();
    let mut second = Crowd::connect(served.target(), 20, 10).unwrap();
    second.send(GET);
    thread::sleep(Duration::from_millis(300));
    first.read();
    drop(first);
    let done = |crowd: &Crowd| {
        let refused = crowd.members.iter().filter(|m| m.end.is_some() && m.received.is_empty());
        crowd.answered(200) + crowd.answered(503) + refused.count() == 20
    };
    assert!(second.read_until(PATIENCE, done), "{} wait without an answer", second.open());
    // some of the first crowd may still hold their places: each has a thread that has to notice
    assert!(soon(PATIENCE, || is_served(&served)));
}

/// Files need descriptors, too: beside the connections, more large files are asked for than can be open
/// at once (and the cache of open files would like to keep them all). Every request gets an answer, 503
/// at worst, and with fewer connections every file is served again.
fn files_that_cannot_be_opened_get_a_503(engine: &str) {
    let folder = site();
    let served = narrow(engine, &folder, &format!("{KEPT}\ncache.open_files = 1000"));
    let mut clients: Vec<_> = (0..16).map(|_| served.client()).collect();
    for number in 0..100 {
        let answer = clients[number % 16].get(&format!("/{number}.bin")).expect("an answer");
        assert!([200, 503].contains(&answer.status), "{}", answer.head);
    }
    clients.truncate(1);
    let mut last = || clients[0].get("/99.bin").is_ok_and(|answer| answer.body.len() == 2 << 20);
    assert!(soon(PATIENCE, &mut last), "not served with one connection");
    // the descriptors of clients that have left may come back later
    assert!(soon(PATIENCE, || is_served(&served)), "not served on a new connection");
}

/// The number of descriptors of a server whose admin listener is flooded.
const FEW: usize = 640;

/// A client that fills the admin listener, and keeps what it refuses from ending, takes what was set
/// apart for it: as many clients of the site as its limits allow are served at the same time.
fn a_flood_of_the_admin_listener_takes_nothing_from_the_site(engine: &str) {
    let site = site();
    let Some(options) = with_few_descriptors(engine, &site) else { return };
    let served = WatchedServer::with(options.config(KEPT)).settled();
    // refused, it would wait for the rest of the head
    flood(&served, served.admin(), b"GET /metrics HTTP/1.1\r\n");
}

/// The same where TLS is spoken and no client completes a handshake; refused clients get no answer.
fn a_flood_of_handshakes_with_it_takes_nothing_from_the_site(engine: &str) {
    let site = site();
    let Some(options) = with_few_descriptors(engine, &site) else { return };
    let (folder, authority, admin) = (Folder::new(), Authority::new(), free_addr());
    authority.write(folder.path(), "admin", &["a.example"], &PKCS_ECDSA_P256_SHA256);
    let file = |end| folder.join(&format!("admin.{end}"));
    let settings = format!(
        "{KEPT}\n[admin]\nlisten = \"https://{admin}\"\ntls.certificate = [{:?}]\ntls.key = [{:?}]\n",
        file("crt"),
        file("key")
    );
    let server = Server::start(&options.config(&settings));
    flood(&server, admin, &hello(&Arc::new(authority.client()), "a.example")[..50]);
}

fn with_few_descriptors(engine: &str, site: &Folder) -> Option<Options> {
    let needed = allow_descriptors(FEW as u64 + 400);
    has(needed, "a_flood_of_the_admin_listener")?;
    let limit = format!("--nofile={FEW}:{FEW}");
    let wrapper = vec!["prlimit".to_owned(), limit];
    Some(Options { wrapper, ..Options::new(site.path()).engine(engine) })
}

/// Opens connections that send these bytes and no more to the admin listener, while as many clients come
/// to the site.
fn flood(server: &Server, admin: SocketAddr, words: &[u8]) {
    const CLIENTS: usize = 200;
    /// Descriptors of the admin listener (its connections, those that linger, one that is being refused)
    /// and those that the server opens now and then.
    const SET_APART: usize = FEW / 32 + 8 + 1 + 2;
    let at_rest = open_descriptors(server.pid());
    let mut flood = Crowd::connect(admin, FEW, FEW).unwrap();
    flood.send(words);
    let mut most = 0;
    let is_refused = |flood: &Crowd| {
        most = most.max(open_descriptors(server.pid()));
        flood.answered(503) + (FEW - flood.open()) > FEW / 2
    };
    assert!(flood.read_until(PATIENCE, is_refused), "{}", summary(&flood));
    let mut clients = Crowd::connect(server.addr(), CLIENTS, 10).unwrap();
    clients.send(GET);
    let all = clients.read_until(PATIENCE, |clients| clients.answered(200) == CLIENTS);
    assert!(all, "{}, {} descriptors at most", summary(&clients), most);
    assert!(most <= at_rest + SET_APART, "{most} descriptors, {at_rest} at rest");
}

/// Once a second the server checks whether the paths of roots lead where they did, one root at a time.
#[test]
fn a_look_at_many_roots_takes_few_descriptors() {
    const ROOTS: usize = 200;
    let folder = Folder::new();
    let sites: String = (0..ROOTS)
        .map(|number| {
            folder.write(&format!("{number}/index.html"), "hello");
            let root = folder.join(&number.to_string());
            format!("[[site]]\nhosts = [\"{number}.example\"]\nroot = {root:?}\n")
        })
        .collect();
    let server = Server::start(&Options::new(folder.path()).config(&sites));
    let at_rest = open_descriptors(server.pid());
    // a look takes a moment; some are seen within seconds
    let began = std::time::Instant::now();
    let mut most = at_rest;
    while began.elapsed() < Duration::from_secs(3) {
        most = most.max(open_descriptors(server.pid()));
    }
    assert!(most < at_rest + ROOTS / 4, "{at_rest} at rest, and {most}");
}
