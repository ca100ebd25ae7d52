//! Applications that sign in connections and not requests (NTLM, Negotiate): a connection on which one
//! client has signed in is not used for another.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::client::{Answer, Client};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, TlsRelay};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, http2, on_each_engine, on_isolated};
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

on_each_engine!(
    a_connection_that_was_signed_in_ends_with_its_client,
    a_sign_in_is_for_one_client_alone,
    a_sign_in_without_being_asked_is_for_one_client_alone,
    a_client_of_http2_is_sent_to_http1,
    behind_a_proxy_only_what_is_for_requests_is_offered,
    places_are_given_back_by_those_that_sign_in,
);
on_isolated!(where_stages_share_connections_only_what_is_for_requests_is_offered);

/// The error code HTTP_1_1_REQUIRED (RFC 9113 §7).
const HTTP_1_1_REQUIRED: u32 = 0xd;

/// An application that believes the user who has signed in on a connection, until that ends.
struct Application {
    addr: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    /// Whether connections end silently with the next answer.
    is_hasty: AtomicBool,
}

impl Application {
    fn start() -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
        let shared = Arc::clone(&counts);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counts = Arc::clone(&shared);
                counts.open.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    let mut user = None;
                    while serve(&mut reader, &stream, &mut user, &counts).unwrap_or(false) {}
                    counts.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Application { addr, counts }
    }

    fn open(&self) -> usize {
        self.counts.open.load(SeqCst)
    }
}

/// The state of a connection's sign-in.
enum User {
    Challenged,
    Known(String),
}

fn serve(
    reader: &mut BufReader<TcpStream>,
    mut writer: &TcpStream,
    user: &mut Option<User>,
    counts: &Counts,
) -> std::io::Result<bool> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(false);
        }
    }
    let path = head.split(' ').nth(1).unwrap();
    let fields = || head.lines().filter_map(|line| line.split_once(": "));
    let shown = fields().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let shown = shown.map(|(_, value)| value);
    match shown.and_then(|shown| shown.split_once(' ')) {
        Some(("NTLM", "hello")) => *user = Some(User::Challenged),
        // an answer to a challenge that was made on another connection does not count
        Some(("NTLM", name)) if user.is_some() => *user = Some(User::Known(name.to_owned())),
        Some(("Negotiate", name)) => *user = Some(User::Known(name.to_owned())),
        _ => {}
    }
    let (status, offer, text) = match user {
        Some(User::Known(name)) => ("200 OK", "", format!("hello {name}")),
        Some(User::Challenged) if shown.is_some() => {
            ("401 Unauthorized", "WWW-Authenticate: NTLM challenge\r\n", "challenge".to_owned())
        }
        _ if path.ends_with("/open") => ("200 OK", "", "open".to_owned()),
        _ if path.ends_with("/both") => {
            let offer = "WWW-Authenticate: Negotiate\r\n\
                         www-authenticate: NTLM, Basic realm=\"NTLM, x\", charset=\"UTF-8\"\r\n";
            ("401 Unauthorized", offer, "who are you".to_owned())
        }
        _ => {
            let offer = "WWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n";
            ("401 Unauthorized", offer, "who are you".to_owned())
        }
    };
    let length = text.len();
    let answer = format!("HTTP/1.1 {status}\r\n{offer}Content-Length: {length}\r\n\r\n{text}");
    // before the client has its answer, and with it the test
    let is_hasty = counts.is_hasty.load(SeqCst);
    writer.write_all(answer.as_bytes())?;
    Ok(!is_hasty)
}

fn start(engine: &str, application: &Application, more: &str) -> (Server, Folder) {
    start_with(engine, application, more, "")
}

fn start_with(engine: &str, application: &Application, more: &str, top: &str) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("root/index.html", "own");
    let to = application.addr;
    let lines = format!("{top}\n[[proxy]]\npath = \"/app\"\nto = \"http://{to}\"\n{more}\n");
    let options = Options { log: true, ..Options::new(folder.join("root")) };
    (Server::start(&options.engine(engine).config(&lines)), folder)
}

/// Asks for a path with these credentials, or none.
fn ask(client: &mut Client, path: &str, shown: &str) -> (u16, String, Vec<String>) {
    let shown = match shown {
        "" => String::new(),
        shown => format!("Authorization: {shown}\r\n"),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{shown}\r\n");
    client.stream().write_all(request.as_bytes()).unwrap();
    told(client.answer().unwrap())
}

fn told(answer: Answer) -> (u16, String, Vec<String>) {
    let lines = answer.head.lines().filter_map(|line| line.split_once(": "));
    let offers = lines.filter(|(name, _)| name.eq_ignore_ascii_case("www-authenticate"));
    let offers = offers.map(|(_, value)| value.to_owned()).collect();
    (answer.status, String::from_utf8(answer.body).unwrap(), offers)
}

fn is_known(client: &mut Client, name: &str) -> bool {
    let (status, text, _) = ask(client, "/app/only", "");
    status == 200 && text == format!("hello {name}")
}

fn sign_in(client: &mut Client, name: &str, engine: &str) {
    let (status, _, offers) = ask(client, "/app/only", "");
    assert_eq!((status, offers.len()), (401, 2), "{engine}");
    let (status, _, offers) = ask(client, "/app/only", "NTLM hello");
    assert_eq!((status, offers), (401, vec!["NTLM challenge".to_owned()]), "{engine}");
    let (status, text, _) = ask(client, "/app/only", &format!("NTLM {name}"));
    assert_eq!((status, text), (200, format!("hello {name}")), "{engine}");
}

fn a_sign_in_is_for_one_client_alone(engine: &str) {
    let (application, authority) = (Application::start(), Authority::new());
    let (server, folder) = start(engine, &application, "");
    let mut alice = Client::connect(server.addr());
    // a connection that others have used may become hers
    assert_eq!(ask(&mut Client::connect(server.addr()), "/app/open", "").1, "open", "{engine}");
    sign_in(&mut alice, "alice", engine);
    let mut others: Vec<_> = (0..6).map(|_| Client::connect(server.addr())).collect();
    for other in &mut others {
        assert_eq!(ask(other, "/app/only", "").0, 401, "{engine}");
        assert!(is_known(&mut alice, "alice"), "{engine}");
        assert_eq!(ask(other, "/app/open", "").1, "open", "{engine}");
    }
    sign_in(&mut others[0], "bob", engine);
    assert!(is_known(&mut alice, "alice") && is_known(&mut others[0], "bob"), "{engine}");
    assert_eq!(ask(&mut others[1], "/app/only", "").0, 401, "{engine}");
    drop((server, folder));

    // through TLS
    let folder = Folder::new();
    authority.write(folder.path(), "a", &["a.example"], &PKCS_ECDSA_P256_SHA256);
    let (addr, file) = (free_addr(), |end: &str| folder.join(&format!("a.{end}")));
    let lines = format!(
        "tls.certificate = [{:?}]\ntls.key = [{:?}]\n[[listener]]\nlisten = [\"https://{addr}\"]\n",
        file("crt"),
        file("key")
    );
    let (server, _folder) = start_with(engine, &application, "", &lines);
    let relay = TlsRelay::start(&authority, addr, "a.example");
    let mut alice = Client::connect(relay.addr);
    sign_in(&mut alice, "alice", engine);
    for _ in 0..3 {
        assert_eq!(ask(&mut Client::connect(relay.addr), "/app/only", "").0, 401, "{engine}");
        assert_eq!(ask(&mut Client::connect(server.addr()), "/app/only", "").0, 401, "{engine}");
    }
    assert!(is_known(&mut alice, "alice"), "{engine}");
}

fn a_sign_in_without_being_asked_is_for_one_client_alone(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &application, "");
    for name in ["alice", "bob"] {
        let mut client = Client::connect(server.addr());
        assert_eq!(ask(&mut client, "/app/open", "").1, "open", "{engine}");
        let (_, text, _) = ask(&mut client, "/app/open", &format!("Negotiate {name}"));
        assert_eq!(text, format!("hello {name}"), "{engine}");
        for _ in 0..6 {
            let mut other = Client::connect(server.addr());
            assert_eq!(ask(&mut other, "/app/only", "").0, 401, "{engine}");
        }
        assert!(is_known(&mut client, name), "{engine}");
    }
}

fn a_connection_that_was_signed_in_ends_with_its_client(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &application, "");
    let mut alice = Client::connect(server.addr());
    sign_in(&mut alice, "alice", engine);
    drop(alice);
    let is_gone = || {
        // pools are looked at when there is something to do
        let _ = server.exchange(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        application.open() == 0
    };
    assert!(soon(PATIENCE, is_gone), "{engine}: {} are open", application.open());
    // the application ends it while its client stays: that is asked again
    let mut alice = Client::connect(server.addr());
    sign_in(&mut alice, "alice", engine);
    application.counts.is_hasty.store(true, SeqCst);
    assert!(is_known(&mut alice, "alice"), "{engine}");
    assert!(soon(PATIENCE, || application.open() == 0), "{engine}");
    application.counts.is_hasty.store(false, SeqCst);
    sign_in(&mut alice, "carol", engine);
    assert!(is_known(&mut alice, "carol"), "{engine}");
}

fn a_client_of_http2_is_sent_to_http1(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &application, "");
    let mut client = http2::Client::connect(server.addr());
    for path in ["/app/only", "/app/both"] {
        let stream = client.ask(path);
        assert_eq!(client.answer(stream).reset, Some(HTTP_1_1_REQUIRED), "{engine} {path}");
    }
    let fields = [("authorization", "Negotiate alice")];
    let stream = client.begin("GET", "/app/only", &fields, true);
    assert_eq!(client.answer(stream).body, b"hello alice", "{engine}");
    for _ in 0..3 {
        let stream = client.ask("/app/only");
        assert_eq!(client.answer(stream).reset, Some(HTTP_1_1_REQUIRED), "{engine}");
        assert_eq!(ask(&mut Client::connect(server.addr()), "/app/only", "").0, 401, "{engine}");
        assert_eq!(client.get("/app/open").body, b"open", "{engine}");
    }
    assert!(client.goodbyes.is_empty(), "{engine}: {:?}", client.goodbyes);
}

/// The offers that clients get from an application whose connections carry requests of many clients.
fn offers_are_withheld(server: &Server, engine: &str) {
    let mut client = Client::connect(server.addr());
    let left = vec!["Basic realm=\"NTLM, x\", charset=\"UTF-8\"".to_owned()];
    let (status, text, offers) = ask(&mut client, "/app/both", "");
    assert_eq!((status, text.as_str(), offers), (401, "who are you", left), "{engine}");
    let (status, _, offers) = ask(&mut client, "/app/only", "");
    assert_eq!((status, offers), (502, vec![]), "{engine}");
    // a user who signs in without being asked is believed once
    let mut client = Client::connect(server.addr());
    assert_eq!(ask(&mut client, "/app/open", "Negotiate alice").1, "hello alice", "{engine}");
    for _ in 0..6 {
        assert_eq!(ask(&mut client, "/app/open", "").1, "open", "{engine}");
        assert_eq!(ask(&mut Client::connect(server.addr()), "/app/both", "").0, 401, "{engine}");
    }
    let mut client = http2::Client::connect(server.addr());
    let offered = client.get("/app/both");
    assert_eq!(offered.status, 401, "{engine}");
    assert_eq!(client.get("/app/only").status, 502, "{engine}");
}

fn behind_a_proxy_only_what_is_for_requests_is_offered(engine: &str) {
    let application = Application::start();
    let trusted = "log.format = \"json\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
    let (server, _folder) = start_with(engine, &application, "", trusted);
    offers_are_withheld(&server, engine);
    assert!(soon(PATIENCE, || server.stdout().contains("connection_auth")), "{engine}");
    // and where that is wanted
    let (server, _folder) = start(engine, &application, "connection_auth = \"refuse\"");
    offers_are_withheld(&server, engine);
    // with the site's own page
    let more = "connection_auth = \"refuse\"\nerrors = \"ours\"";
    let (server, _folder) = start(engine, &application, more);
    let (status, text, offers) = ask(&mut Client::connect(server.addr()), "/app/both", "");
    assert!(status == 401 && text != "who are you" && offers.len() == 1, "{engine}: {offers:?}");
    // bound all the same
    let (server, _folder) = start(engine, &application, "errors = \"ours\"");
    let mut alice = Client::connect(server.addr());
    sign_in(&mut alice, "alice", engine);
    assert!(is_known(&mut alice, "alice"), "{engine}");
    // an application that looks at each request says so
    let (server, _folder) = start(engine, &application, "connection_auth = \"request\"");
    let mut client = http2::Client::connect(server.addr());
    assert_eq!(client.get("/app/only").status, 401, "{engine}");
}

fn where_stages_share_connections_only_what_is_for_requests_is_offered(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &application, "");
    offers_are_withheld(&server, engine);
}

fn places_are_given_back_by_those_that_sign_in(engine: &str) {
    let application = Application::start();
    let (server, _folder) = start(engine, &application, "in_flight = 1\nqueue.time = \"60s\"");
    thread::scope(|scope| {
        for number in 0..4 {
            let addr = server.addr();
            scope.spawn(move || {
                let mut client = Client::connect(addr);
                let name = format!("client-{number}");
                sign_in(&mut client, &name, engine);
                for _ in 0..20 {
                    assert!(is_known(&mut client, &name), "{engine}");
                }
            });
        }
        for _ in 0..2 {
            let addr = server.addr();
            scope.spawn(move || {
                let mut client = Client::connect(addr);
                for _ in 0..20 {
                    assert_eq!(ask(&mut client, "/app/open", "").1, "open", "{engine}");
                }
            });
        }
    });
    // one place, and no request has it
    assert_eq!(ask(&mut Client::connect(server.addr()), "/app/open", "").1, "open", "{engine}");
}
