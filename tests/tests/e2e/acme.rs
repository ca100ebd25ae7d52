//! Certificates by ACME: from pebble, which keeps the protocol as strictly as authorities do, and from an
//! authority of the tests for what pebble does not do on demand.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::acme::Acme;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, connect, untrusting};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, on_each_engine, on_isolated};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

on_each_engine!(pebble_is_content_with_both_ways, an_authority_is_answered);
// the other one counts what one process has got, over reloads
on_isolated!(pebble_is_content_with_both_ways);

pub(super) fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    folder
}

/// Starts a server with a site for these hosts. Returns the address that speaks TLS, too.
fn start(folder: &Folder, engine: &str, hosts: &[&str], acme: &str) -> (WatchedServer, SocketAddr) {
    let addr = free_addr();
    let lines = format!(
        "{acme}[[listener]]\nlisten = [\"https://{addr}\"]\n[[site]]\nhosts = {hosts:?}\n\
         [site.tls]\nacme = true\nredirect = 308\n"
    );
    let options = Options::new(folder.join("site")).engine(engine).config(&lines);
    (WatchedServer::with(options), addr)
}

/// The certificate that clients get for this host, whatever authority has signed it.
pub(super) fn shown(addr: SocketAddr, host: &str) -> Vec<u8> {
    let mut stream = connect(&Arc::new(untrusting()), addr, host);
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.ends_with("hello"), "{answer}");
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

/// Whether a client that trusts the authority accepts the server's certificate.
fn is_trusted(authority: &Authority, addr: SocketAddr, host: &str) -> bool {
    let mut stream = authority.connect(addr, host);
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").and_then(|()| stream.flush()).is_ok()
}

/// The files with this suffix beneath `storage`.
pub(super) fn files(storage: &Path, end: &str) -> Vec<PathBuf> {
    let directories =
        fs::read_dir(storage).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = directories.flat_map(|directory| fs::read_dir(directory).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with(end)).collect()
}

const ATTEMPTS: &str = "forebay_acme_attempts_total";

pub(super) fn attempts(served: &WatchedServer, result: &str) -> u64 {
    served.metric(&format!("{ATTEMPTS}{{result=\"{result}\"}}"))
}

/// Pebble, and a name server for it that finds every host at one address.
pub(super) struct Pebble {
    process: Child,
    pub(super) lines: String,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Pebble {
    /// Starts a pebble that looks at these two ports. `None` if the machine lacks it.
    fn start(folder: &Folder, plain: SocketAddr, sealed: SocketAddr) -> Option<Pebble> {
        let names = name_server(plain.ip().to_string().parse().unwrap());
        Pebble::asking(Path::new("pebble"), None, folder, plain, sealed, names)
    }

    /// The same with this program and this name server. The certificates are valid for `lifetime_s`
    /// seconds, if that is given.
    pub(super) fn asking(
        program: &Path,
        lifetime_s: Option<u32>,
        folder: &Folder,
        plain: SocketAddr,
        sealed: SocketAddr,
        names: SocketAddr,
    ) -> Option<Pebble> {
        let found = Command::new(program).arg("-version").output();
        has(found.map_err(|error| format!("pebble is missing: {error}")), "acme by pebble")?;
        let (addr, manage) = (free_addr(), free_addr());
        let authority = Authority::new();
        let host = addr.ip().to_string();
        authority.write(folder.path(), "pebble", &[&host], &rcgen::PKCS_ECDSA_P256_SHA256);
        fs::write(folder.join("pebble-ca.pem"), &authority.pem).unwrap();
        let mut config = serde_json::json!({ "pebble": {
            "listenAddress": addr.to_string(),
            "managementListenAddress": manage.to_string(),
            "certificate": folder.join("pebble.crt"),
            "privateKey": folder.join("pebble.key"),
            "httpPort": plain.port(),
            "tlsPort": sealed.port(),
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
        }});
        if let Some(lifetime_s) = lifetime_s {
            // the key of Debian 12's pebble, and those of later versions
            config["pebble"]["certificateValidityPeriod"] = lifetime_s.into();
            let profile = serde_json::json!({ "description": "", "validityPeriod": lifetime_s });
            config["pebble"]["profiles"] = serde_json::json!({ "default": profile });
        }
        fs::write(folder.join("pebble.json"), config.to_string()).unwrap();
        let process = Command::new(program)
            .arg("-config")
            .arg(folder.join("pebble.json"))
            .args(["-dnsserver", &names.to_string()])
            .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_AUTHZREUSE", "0")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pebble = Pebble {
            process,
            lines: format!(
                "[acme]\ndirectory = \"https://{addr}/dir\"\nagree = true\nca = {:?}\nstorage = {:?}\n",
                folder.join("pebble-ca.pem"),
                folder.join("storage")
            ),
        };
        let is_up = soon(PATIENCE, || TcpStream::connect(addr).is_ok());
        assert!(is_up, "pebble does not listen");
        Some(pebble)
    }
}

/// Answers every question for an address of a host with this one, by UDP and by TCP, until the process ends
/// (RFC 1035 §4).
pub(super) fn name_server(ip: Ipv4Addr) -> SocketAddr {
    let addr = free_addr();
    let (datagrams, streams) = (UdpSocket::bind(addr).unwrap(), TcpListener::bind(addr).unwrap());
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((count, from)) = datagrams.recv_from(&mut buffer) {
            let _ = answered(&buffer[..count], ip).map(|answer| datagrams.send_to(&answer, from));
        }
    });
    thread::spawn(move || {
        for mut stream in streams.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                    stream.read_exact(&mut message).unwrap();
                    let answer = answered(&message, ip).unwrap();
                    let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                    stream.write_all(&[&length[..], &answer].concat()).unwrap();
                }
            });
        }
    });
    addr
}

/// The answer to a message, if it asks something.
fn answered(message: &[u8], ip: Ipv4Addr) -> Option<Vec<u8>> {
    // the question: a name, which an empty label ends, type and class
    let end = message.iter().skip(12).position(|byte| *byte == 0)?;
    let question = message.get(12..12 + end + 5)?;
    let is_address = question.ends_with(&[0, 1, 0, 1]);
    let mut answer = message[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(ip.octets());
    }
    Some(answer)
}

fn pebble_is_content_with_both_ways(engine: &str) {
    for way in ["http-01", "tls-alpn-01"] {
        let folder = site();
        let sealed = free_addr();
        let hosts = ["a.example", "www.a.example"];
        // the plain listener's address is known only when the server runs; so pebble follows it
        let plain = free_addr();
        let Some(pebble) = Pebble::start(&folder, plain, sealed) else { return };
        let lines = format!(
            "{}challenges = [\"{way}\"]\n[[listener]]\nlisten = [\"{plain}\", \"https://{sealed}\"]\n\
             [[site]]\nhosts = {hosts:?}\n[site.tls]\nacme = true\nredirect = 308\n",
            pebble.lines
        );
        let options = Options::new(folder.join("site")).engine(engine).config(&lines);
        let served = WatchedServer::with(options);
        let storage = folder.join("storage");
        let is_there = || attempts(&served, "issued") == 1;
        assert!(soon(4 * PATIENCE, is_there), "{engine} {way}: {}", served.stderr());
        let [file] = &files(&storage, ".pem")[..] else { panic!("{engine} {way}: no certificate") };
        let first = first_certificate(file);
        let is_shown = || hosts.iter().all(|host| shown(sealed, host) == first);
        assert!(soon(PATIENCE, is_shown), "{engine} {way}: {}", served.stderr());
        assert!(files(&storage, ".order").is_empty() && files(&storage, ".failed").is_empty());
        let proofs = || served.metric("forebay_tls_handshakes_total{result=\"acme\"}");
        // pebble is done with a handshake before the server is
        assert!(
            way == "http-01" || soon(PATIENCE, || proofs() > 0),
            "{engine}: {}",
            served.metrics()
        );
        assert!(way == "tls-alpn-01" || proofs() == 0, "{engine}: {}", served.metrics());
        // the certificate outlives the server
        let stamp = fs::metadata(file).unwrap().modified().unwrap();
        assert_eq!(served.reload().0, Some(0), "{engine} {way}: {}", served.stderr());
        assert!(shown(sealed, "a.example") == first, "{engine} {way}");
        assert_eq!(fs::metadata(file).unwrap().modified().unwrap(), stamp, "{engine} {way}");
    }
}

/// The first certificate in a file, in DER.
pub(super) fn first_certificate(file: &Path) -> Vec<u8> {
    forebay_tests::tls::first_certificate(&fs::read(file).unwrap())
}

/// The challenge is answered on the request path: whatever the site's rules for paths, for its own hosts,
/// and only for a valid token.
fn an_authority_is_answered(engine: &str) {
    let folder = site();
    let acme = Acme::start(folder.path());
    folder.write("site/.well-known/acme-challenge/file", "file");
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let lines = format!("{lines}challenges = [\"http-01\"]\n");
    let (served, addr) = start(&folder, engine, &["a.example"], &lines);
    acme.behave(|how| how.looks_at = Some(served.addr()));
    let is_there = || {
        // the authority may have looked before its address was set
        served.reload();
        attempts(&served, "issued") == 1
    };
    assert!(soon(4 * PATIENCE, is_there), "{engine}: {}", served.stderr());
    assert!(soon(PATIENCE, || is_trusted(&acme.authority, addr, "a.example")), "{engine}");
    let ask = |method: &str, host: &str, token: &str| {
        let request = format!(
            "{method} /.well-known/acme-challenge/{token} HTTP/1.0\r\nHost: {host}\r\n\r\n"
        );
        String::from_utf8(served.exchange(request.as_bytes())).unwrap()
    };
    let answered = ask("GET", "A.example:80", "abc-_1");
    assert!(answered.starts_with("HTTP/1.1 200 "), "{engine}: {answered}");
    assert!(answered.contains("\r\n\r\nabc-_1."), "{engine}: {answered}");
    assert!(answered.contains("\r\nCache-Control: no-store\r\n"), "{engine}: {answered}");
    let head = ask("HEAD", "a.example", "abc-_1");
    assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 50"), "{engine}: {head}");
    // a name that cannot be a token is a file, or does not exist
    for (method, host, token, status) in [
        ("GET", "a.example", "%3Cb%3E", " 404 "),
        ("GET", "a.example", "", " 404 "),
        ("POST", "a.example", "abc", " 405 "),
        ("GET", "other.example", "abc", " 421 "),
    ] {
        let answered = ask(method, host, token);
        assert!(answered.contains(status), "{engine}: {method} {host} {token:?}: {answered}");
    }
}

/// Handshakes go on, and the reason is reported where operators look. A restart does not forget it.
#[test]
fn until_there_is_a_certificate_another_one_is_shown() {
    let folder = site();
    let storage = folder.join("storage");
    let nobody = free_addr();
    let acme = Acme::start(folder.path());
    let lines = acme.lines(folder.path(), &storage).replace("https://", "https://127.0.0.1:9/x/");
    let lines = lines.replace("127.0.0.1:9", &nobody.to_string());
    let (served, addr) = start(&folder, "event", &["a.example"], &lines);
    let is_told = || attempts(&served, "unreachable") == 1;
    assert!(soon(PATIENCE, is_told), "{}", served.stderr());
    let temporary = shown(addr, "a.example");
    assert!(!temporary.is_empty());
    for words in
        ["that nobody has signed", "no certificate for the site", "cannot reach", "tried again"]
    {
        served.says(words);
    }
    let said = served.stderr();
    assert!(served.metrics().contains("forebay_certificate_expiry_timestamp_seconds{"), "{said}");
    let [failed] = &files(&storage, ".failed")[..] else { panic!("{said}") };
    let noted: Value = serde_json::from_slice(&fs::read(failed).unwrap()).unwrap();
    assert_eq!(noted["times"], 1, "{noted}");
    // a reload asks for another attempt at once
    served.reload();
    assert!(soon(PATIENCE, || attempts(&served, "unreachable") == 2), "{}", served.stderr());
    let noted: Value = serde_json::from_slice(&fs::read(failed).unwrap()).unwrap();
    assert_eq!(noted["times"], 2, "{noted}");
}

/// The authority is asked again when the time that it has named is over, and not by a reload.
#[test]
fn an_authority_that_was_asked_too_much_is_left_alone() {
    let folder = site();
    let acme = Acme::start(folder.path());
    acme.behave(|how| how.refuses = Some((429, "rateLimited", Some(7200))));
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let (served, _) = start(&folder, "event", &["a.example"], &lines);
    assert!(soon(PATIENCE, || attempts(&served, "rate_limited") == 1), "{}", served.stderr());
    served.says("(rateLimited); tried again in 2 h");
    acme.behave(|how| how.refuses = None);
    // a site that has not failed is served meanwhile, so it would have been asked
    let before = served.stderr().len();
    let text = fs::read_to_string(served.file()).unwrap();
    served.configure_with(&(text + "[[site]]\nhosts = [\"b.example\"]\n[site.tls]\nacme = true\n"));
    assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
    assert!(
        soon(4 * PATIENCE, || attempts(&served, "issued") == 1),
        "{}",
        &served.stderr()[before..]
    );
    let seen = acme.seen();
    assert_eq!((seen.refused, seen.orders.len(), seen.accounts), (1, 1, 1), "{seen:?}");
    assert_eq!(seen.orders[0]["identifiers"][0]["value"], "b.example");
}

/// The authority is asked again at once with a new nonce (RFC 8555 §6.5), and the order continues.
#[test]
fn nonces_that_are_forgotten_cost_no_certificate() {
    let folder = site();
    let acme = Acme::start(folder.path());
    acme.behave(|how| how.stale_nonces = 7);
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let (served, _) = start(&folder, "event", &["a.example"], &lines);
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert_eq!(attempts(&served, "unreachable"), 0, "{}", served.stderr());
    let seen = acme.seen();
    assert_eq!((seen.orders.len(), seen.accounts), (1, 1), "{seen:?}");
}

/// The server opens another account at once (RFC 8555 §7.3.1).
#[test]
fn an_account_that_is_forgotten_is_replaced_at_once() {
    let folder = site();
    let acme = Acme::start(folder.path());
    acme.behave(|how| how.forgets_first = true);
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let (served, _) = start(&folder, "event", &["a.example"], &lines);
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    let seen = acme.seen();
    assert_eq!((seen.orders.len(), seen.accounts), (1, 2), "{seen:?}");
    assert!(!served.stderr().contains("did once"), "{}", served.stderr());
}

/// The server renews as the authority suggests (RFC 9773): at once, if the window is past.
#[test]
fn a_certificate_is_replaced_when_the_authority_says() {
    let folder = site();
    let acme = Acme::start(folder.path());
    acme.behave(|how| how.window = Some(("2999-01-01T00:00:00Z", "2999-01-02T00:00:00Z")));
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let (served, addr) = start(&folder, "event", &["a.example"], &lines);
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert!(soon(PATIENCE, || is_trusted(&acme.authority, addr, "a.example")));
    let first = shown(addr, "a.example");
    drop(served);
    // the suggestion is not stored: a server that starts asks for it
    acme.behave(|how| how.window = Some(("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z")));
    let (served, addr) = start(&folder, "event", &["a.example"], &lines);
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") >= 1), "{}", served.stderr());
    assert!(soon(PATIENCE, || shown(addr, "a.example") != first), "{}", served.stderr());
    let seen = acme.seen();
    assert_eq!(seen.orders[0]["replaces"], Value::Null, "{seen:?}");
    assert!(seen.orders[1]["replaces"].is_string(), "{seen:?}");
    acme.behave(|how| how.window = None);
}

/// The order that was under way goes on, with the key with which it began.
#[test]
fn a_crash_loses_no_order() {
    let folder = site();
    let acme = Acme::start(folder.path());
    let storage = folder.join("storage");
    acme.behave(|how| how.holds_certificates = true);
    let lines = acme.lines(folder.path(), &storage);
    let (served, _) = start(&folder, "event", &["a.example"], &lines);
    let is_begun = || files(&storage, ".order").len() == 1;
    assert!(soon(4 * PATIENCE, is_begun), "{}", served.stderr());
    served.signal(Signal::KILL);
    drop(served);
    acme.behave(|how| how.holds_certificates = false);
    let (served, addr) = start(&folder, "event", &["a.example"], &lines);
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert!(soon(PATIENCE, || is_trusted(&acme.authority, addr, "a.example")));
    let seen = acme.seen();
    assert_eq!((seen.orders.len(), seen.accounts), (1, 1), "{seen:?}");
    assert!(files(&storage, ".order").is_empty());
}

/// Two servers share a storage: one of them orders, and the other uses the certificate.
#[test]
fn two_servers_share_a_storage() {
    let folder = site();
    let acme = Acme::start(folder.path());
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let hosts = ["a.example", "b.example", "c.example"];
    let all: String =
        hosts.iter().map(|h| format!("[[site]]\nhosts = [\"{h}\"]\ntls.acme = true\n")).collect();
    let servers: Vec<_> = (0..2)
        .map(|_| {
            let addr = free_addr();
            let lines = format!("{lines}[[listener]]\nlisten = [\"https://{addr}\"]\n{all}");
            let options = Options::new(folder.join("site")).engine("event").config(&lines);
            (WatchedServer::with(options), addr)
        })
        .collect();
    let trusted = |addr| hosts.iter().all(|host| is_trusted(&acme.authority, addr, host));
    for (served, addr) in &servers {
        assert!(soon(12 * PATIENCE, || trusted(*addr)), "{}", served.stderr());
    }
    for host in hosts {
        assert!(shown(servers[0].1, host) == shown(servers[1].1, host), "{host}");
    }
    let seen = acme.seen();
    assert_eq!((seen.orders.len(), seen.accounts, seen.fetched), (3, 1, 3), "{seen:?}");
}

/// A site that gets another host keeps its certificate until there is one for both.
#[test]
fn another_host_takes_nothing_away() {
    let folder = site();
    let acme = Acme::start(folder.path());
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let (served, addr) = start(&folder, "event", &["a.example"], &lines);
    assert!(
        soon(PATIENCE, || is_trusted(&acme.authority, addr, "a.example")),
        "{}",
        served.stderr()
    );
    acme.behave(|how| how.refuses = Some((500, "serverInternal", None)));
    let text = fs::read_to_string(served.file()).unwrap();
    served.configure_with(&text.replace("[\"a.example\"]", "[\"a.example\", \"b.example\"]"));
    assert_eq!(served.reload().0, Some(0), "{}", served.stderr());
    assert!(soon(PATIENCE, || attempts(&served, "unreachable") >= 1), "{}", served.stderr());
    assert!(is_trusted(&acme.authority, addr, "a.example"));
    acme.behave(|how| how.refuses = None);
    served.reload();
    assert!(
        soon(4 * PATIENCE, || is_trusted(&acme.authority, addr, "b.example")),
        "{}",
        served.stderr()
    );
}

/// The operator makes a record once. The server shows the record after the authority has looked in vain.
#[test]
fn a_record_that_stays_is_named_until_it_is_there() {
    let folder = site();
    let acme = Acme::start(folder.path());
    let lines = acme.lines(folder.path(), &folder.join("storage"));
    let lines = format!("{lines}challenges = [\"dns-persist-01\"]\n");
    // the authority looks in vain
    let other = WatchedServer::start("event", &folder.join("site"), "");
    acme.behave(|how| how.looks_at = Some(other.addr()));
    let (served, addr) = start(&folder, "event", &["*.a.example"], &lines);
    assert!(soon(4 * PATIENCE, || attempts(&served, "unproven") == 1), "{}", served.stderr());
    served.says(
        "this record must stand: _validation-persist.a.example. TXT \"acme.example; accounturi=https://",
    );
    served.says("/account/1; policy=wildcard\"");
    acme.behave(|how| how.looks_at = None);
    served.reload();
    assert!(soon(4 * PATIENCE, || attempts(&served, "issued") == 1), "{}", served.stderr());
    assert!(soon(PATIENCE, || is_trusted(&acme.authority, addr, "x.a.example")));
    let seen = acme.seen();
    assert_eq!(seen.orders[1]["identifiers"][0]["value"], "*.a.example", "{seen:?}");
}
