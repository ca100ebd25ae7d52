//! Certificates that change, and reloads, under clients of both protocols that keep their connections:
//! none of them loses an answer, and new ones get the new certificate.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use forebay_tests::faults::site::Folder;
use forebay_tests::http2;
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, TlsStream};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, is_full_matrix};
use rcgen::PKCS_ECDSA_P256_SHA256 as ECDSA;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The number of clients of each protocol that keep their connections.
const CLIENTS: usize = 4;

const ANSWER: &[u8] = b"\r\n\r\nsmall";

/// Ends the clients when it is dropped, also where a check has failed.
struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn get(stream: &mut TlsStream) {
    stream.write_all(b"GET /small.txt HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
    let mut all = Vec::new();
    while !all.ends_with(ANSWER) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("an answer is lost: {error}"));
        all.extend(byte);
    }
    assert!(all.starts_with(b"HTTP/1.1 200 "), "{}", all.escape_ascii());
}

fn keep_asking(
    authority: &Authority,
    addr: SocketAddr,
    is_over: &AtomicBool,
    answers: &AtomicU64,
    over_http2: bool,
) {
    let mut one = authority.connect(addr, "a.example");
    one.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut two = over_http2.then(|| http2::Client::sealed(authority, addr, "a.example"));
    while !is_over.load(Relaxed) {
        match &mut two {
            Some(client) => {
                let answer = client.get("/small.txt");
                assert_eq!((answer.status, &answer.body[..]), (200, &b"small"[..]));
            }
            None => get(&mut one),
        }
        answers.fetch_add(1, Relaxed);
        thread::sleep(Duration::from_millis(2));
    }
}

fn nothing_is_lost(engine: &str) {
    let changes = if is_full_matrix() { 200 } else { 20 };
    let (folder, authority) = (Folder::new(), Authority::new());
    folder.write("site/small.txt", "small");
    authority.write(folder.path(), "a", &["a.example"], &ECDSA);
    let addr = free_addr();
    let file = |end: &str| folder.join(&format!("a.{end}"));
    let lines = format!(
        "[tls]\ncertificate = [{:?}]\nkey = [{:?}]\n[[listener]]\nlisten = [\"https://{addr}\"]\n",
        file("crt"),
        file("key")
    );
    let options = Options::new(folder.join("site")).engine(engine).config(&lines);
    let server = Server::start(&options);
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for number in 0..2 * CLIENTS {
            let (authority, is_over, answers) = (&authority, &is_over, &answers);
            scope.spawn(move || {
                // a client that fails ends the others
                let ends = Ends(is_over);
                keep_asking(authority, addr, is_over, answers, number % 2 == 1);
                drop(ends);
            });
        }
        let mut shown = Vec::new();
        for change in 0..changes {
            authority.write(folder.path(), "a", &["a.example"], &ECDSA);
            let (code, said) = server.reload();
            assert_eq!(code, Some(0), "{engine}: {change}: {said}");
            let mut new = authority.connect(addr, "a.example");
            get(&mut new);
            let certificate = new.conn.peer_certificates().unwrap()[0].to_vec();
            assert!(!shown.contains(&certificate), "{engine}: {change}: the one of before");
            shown.push(certificate);
            assert!(!is_over.load(Relaxed), "{engine}: {change}: a client has failed");
        }
    });
    assert!(answers.load(Relaxed) > CLIENTS as u64 * 2, "{engine}");
    eprintln!("{engine}: {changes} changes, {} answers", answers.load(Relaxed));
    assert!(!server.stderr().contains("panicked"), "{engine}: {}", server.stderr());
}

#[test]
fn event_loses_nothing() {
    nothing_is_lost("event");
}

#[test]
fn pool_loses_nothing() {
    nothing_is_lost("pool");
}
