//! A refusal during an upload arrives, whatever its client does: many clients send a whole body before
//! they read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_http2::ErrorCode;
use forebay_tests::faults::WatchedServer;
use forebay_tests::faults::site::Folder;
use forebay_tests::http2::Client;
use forebay_tests::server::free_addr;
use forebay_tests::tls::{self, Authority};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, on_each_engine};
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

/// A size beyond all buffers of both ends together.
const BODY_BYTES: usize = 20_000_000;

/// The paths where bodies are refused: by a limit, for lack of a password, by a rule, by an application
/// that answers at once and reads on, and by one that closes.
const REFUSALS: [(&str, u16); 4] =
    [("/small.txt", 413), ("/app/in/x", 401), ("/closed", 403), ("/app/reads", 409)];

/// The hash of "secret", with the least cost of bcrypt.
const CHEAP: &str = "$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u";

/// A server that refuses, plain and through TLS.
struct Refusing {
    served: WatchedServer,
    folder: Folder,
    authority: Authority,
    sealed: SocketAddr,
}

impl Refusing {
    fn start(engine: &str) -> Refusing {
        let (folder, authority, sealed) = (Folder::new(), Authority::new(), free_addr());
        folder.write("site/small.txt", "small");
        authority.write(
            folder.path(),
            "a",
            &["127.0.0.1", &sealed.ip().to_string()],
            &PKCS_ECDSA_P256_SHA256,
        );
        fs::write(folder.join("ca.pem"), &authority.pem).unwrap();
        let config = format!(
            "tls.certificate = [{:?}]\ntls.key = [{:?}]\n[[listener]]\nlisten = [\"https://{sealed}\"]\n\
             [[auth]]\npath = \"/app/in/*\"\nusers = {{ alice = \"{CHEAP}\" }}\n\
             [[rule]]\npath = \"/closed\"\naction = \"reject\"\nstatus = 403\n\
             [[proxy]]\npath = \"/app/*\"\nto = \"http://{}\"\n",
            folder.join("a.crt"),
            folder.join("a.key"),
            application()
        );
        let options = Options::new(folder.join("site")).engine(engine).config(&config);
        Refusing { served: WatchedServer::with(options), folder, authority, sealed }
    }

    fn ca(&self) -> String {
        self.folder.join("ca.pem").to_str().unwrap().to_owned()
    }

    /// Both addresses of the server, as URLs.
    fn urls(&self) -> [String; 2] {
        [format!("http://{}", self.served.addr()), format!("https://{}", self.sealed)]
    }
}

/// An application that answers as soon as it knows the head, and reads on.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer_early(stream));
        }
    });
    addr
}

fn answer_early(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    stream.write_all(b"HTTP/1.1 409 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")?;
    std::io::copy(&mut reader, &mut std::io::sink()).map(|_| ())
}

/// Sends a whole body before it reads. Returns the status of the answer.
fn upload(stream: &mut (impl Read + Write), path: &str) -> u16 {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece = [b'x'; 50_000];
    for _ in 0..BODY_BYTES / piece.len() {
        stream.write_all(&piece).unwrap();
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap()
}

fn a_client_that_sends_all_before_it_reads_is_told(engine: &str) {
    let refusing = Refusing::start(engine);
    for (path, status) in REFUSALS {
        let mut plain = TcpStream::connect(refusing.served.addr()).unwrap();
        plain.set_read_timeout(Some(PATIENCE)).unwrap();
        plain.set_write_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(upload(&mut plain, path), status, "{engine} {path}");
        // the connection ends with close_notify: reading to the end fails without one
        let mut sealed = refusing.authority.connect(refusing.sealed, "127.0.0.1");
        assert_eq!(upload(&mut sealed, path), status, "{engine} {path} through TLS");
    }
    // connections that linger have no thread and no place
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut client = TcpStream::connect(refusing.served.addr()).unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        silent.push(client);
    }
    for client in &mut silent {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{engine}: {answer}");
        // the server reads on
        client.write_all(&[b'x'; 1000]).unwrap();
    }
}

fn a_length_that_is_too_large_is_refused_before_the_body(engine: &str) {
    let refusing = Refusing::start(engine);
    let mut client = Client::of(&refusing.served);
    let length = BODY_BYTES.to_string();
    for (path, status) in REFUSALS {
        let stream = client.begin("POST", path, &[("content-length", &length)], false);
        assert_eq!(client.answer(stream).status, status, "{engine} {path}");
        // the server has answered the PING behind that, and has refused the rest of the body
        client.until(|client| client.so_far(stream).reset == Some(ErrorCode::NO_ERROR.0));
    }
    assert_eq!(client.get("/small.txt").status, 200);
}

/// A script that prints the status of a POST to each of the URLs in its arguments, or the reason why
/// there is none.
const PYTHON: &str = r#"
import http.client, ssl, sys, urllib.parse
body, ca = b"x" * int(sys.argv[1]), sys.argv[2]
for url in sys.argv[3:]:
    at = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
    more = {"context": ssl.create_default_context(cafile=ca)} if at.scheme == "https" else {}
    try:
        client = kind(at.netloc, timeout=60, **more)
        client.request("POST", at.path, body)
        print(client.getresponse().status)
    except Exception as error:
        print(repr(error))
"#;

const REQUESTS: &str = r#"
import requests, sys
for url in sys.argv[3:]:
    try:
        print(requests.post(url, data=b"x" * int(sys.argv[1]), verify=sys.argv[2], timeout=60).status_code)
    except Exception as error:
        print(repr(error))
"#;

const NODE: &str = r#"
(async () => {
    const [bytes, ca, ...urls] = process.argv.slice(1);
    for (const url of urls) {
        try {
            console.log((await fetch(url, { method: "POST", body: "x".repeat(+bytes) })).status);
        } catch (error) {
            console.log(String(error.cause ?? error));
        }
    }
})();
"#;

/// Clients of every kind, where they are installed.
fn clients_are_told(engine: &str) {
    let refusing = Refusing::start(engine);
    let ca = refusing.ca();
    let urls: Vec<String> = refusing
        .urls()
        .iter()
        .flat_map(|url| REFUSALS.map(|(path, _)| format!("{url}{path}")))
        .collect();
    let statuses: Vec<String> =
        [REFUSALS, REFUSALS].concat().iter().map(|(_, status)| status.to_string()).collect();
    let scripts = [("python3", "-c", PYTHON), ("python3", "-c", REQUESTS), ("nodejs", "-e", NODE)];
    for (program, option, script) in scripts {
        let mut command = Command::new(program);
        command.env("NODE_EXTRA_CA_CERTS", &ca).args([option, script]);
        command.args([&BODY_BYTES.to_string(), &ca]).args(&urls);
        let Some(told) = output(&mut command, program, script) else { continue };
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told, statuses, "{engine}: {program} {script}");
    }
    let body = refusing.folder.join("body");
    fs::write(&body, vec![b'x'; BODY_BYTES]).unwrap();
    let data = format!("@{}", body.display());
    for way in ["--http1.1", "--http2", "--http2-prior-knowledge"] {
        for (url, status) in urls.iter().zip(&statuses) {
            let words = ["-sS", "--max-time", "60", "--cacert", &ca, way, "-o", "/dev/null"];
            let form = ["-w", "%{http_code}", "--data-binary", &data, url];
            let mut command = Command::new("curl");
            let Some(told) = output(command.args(words).args(form), "curl", way) else { break };
            assert_eq!(&told, status, "{engine}: curl {way} {url}");
        }
    }
}

/// An invalid message comes behind the ClientHello: the alert arrives, and no reset.
fn a_fatal_error_of_tls_is_told(engine: &str) {
    let refusing = Refusing::start(engine);
    let hello = tls::hello(&Arc::new(refusing.authority.client()), "127.0.0.1");
    let mut client = TcpStream::connect(refusing.sealed).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&[&hello[..], &[22, 3, 3, 0, 4, 99, 0, 0, 0]].concat()).unwrap();
    let mut told = Vec::new();
    client.read_to_end(&mut told).unwrap();
    assert!(!told.is_empty(), "{engine}");
}

on_each_engine!(
    a_client_that_sends_all_before_it_reads_is_told,
    a_length_that_is_too_large_is_refused_before_the_body,
    a_fatal_error_of_tls_is_told,
);

#[test]
fn clients_of_every_kind_are_told() {
    clients_are_told("event");
}

/// The output of a program; `None` if it is not installed.
fn output(command: &mut Command, program: &str, what: &str) -> Option<String> {
    let is_missing = |stderr: &str| stderr.contains("No module named");
    match command.output() {
        Ok(output) if !is_missing(&String::from_utf8_lossy(&output.stderr)) => {
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => {
            // past the test harness, which would swallow it
            let _ = writeln!(std::io::stderr(), "\n!!! SKIPPED {program}: {what}\n");
            None
        }
    }
}
