//! TLS with certificates that certbot has fetched from pebble: the first by its own server, the next ones
//! by the webroot of the server that is compared, which is then reloaded, or is not.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::acme::{Pebble, name_server};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::http2;
use forebay_tests::migration::{
    APPLICATIONS, Either, Migration, Reached, Seen, request, site, whole,
};
use forebay_tests::server::{binary, free_addr};
use forebay_tests::tls::{connect, first_certificate, untrusting};
use forebay_tests::wire::PATIENCE;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, thread};

/// Certbot with an authority and folders of its own.
struct Certbot {
    program: OsString,
    folder: Folder,
    directory: String,
    _pebble: Pebble,
    /// The address to which port 80 of `example.com` leads, where the authority looks.
    leads_to: Arc<Mutex<SocketAddr>>,
}

impl Certbot {
    /// Starts pebble for certbot; `None` where the machine lacks one of the two.
    fn start(test: &str) -> Option<Certbot> {
        let program = env::var_os("CERTBOT").unwrap_or_else(|| "certbot".into());
        let there = Command::new(&program).arg("--version").output();
        has(there.map_err(|error| format!("certbot: {error}, see scripts/install")), test)?;
        let (folder, port_80) = (Folder::new(), free_addr());
        let leads_to = Arc::new(Mutex::new(free_addr()));
        forward(port_80, Arc::clone(&leads_to));
        let names = name_server(port_80.ip().to_string().parse().unwrap());
        let pebble = Pebble::asking("pebble".as_ref(), None, &folder, port_80, free_addr(), names)?;
        let (_, directory) = pebble.lines.split_once("directory = \"").unwrap();
        let directory = directory.split('"').next().unwrap().to_owned();
        fs::create_dir_all(folder.join("webroot/.well-known/acme-challenge")).unwrap();
        Some(Certbot { program, folder, directory, _pebble: pebble, leads_to })
    }

    /// Fetches a certificate for `example.com` into `live`.
    fn fetch(&self, by: &[&str]) {
        let mut command = Command::new(&self.program);
        command.args(["certonly", "--non-interactive", "--agree-tos", "--force-renewal", "-d"]);
        command.args(["example.com", "--register-unsafely-without-email", "--key-type", "ecdsa"]);
        command.args(["--server", &self.directory]);
        for (option, name) in
            [("--config-dir", "etc"), ("--work-dir", "work"), ("--logs-dir", "log")]
        {
            command.arg(option).arg(self.folder.join(name));
        }
        // the place of certbot's bundle of public authorities
        command.env("REQUESTS_CA_BUNDLE", self.folder.join("pebble-ca.pem"));
        command.args(by);
        for last in [false, false, true] {
            let said = command.output().unwrap();
            let text =
                [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            if said.status.success() {
                return;
            }
            // certbot 2.1 with Python 3.11 ends so at any error of an authority, which it would otherwise name or
            // try again (https://github.com/certbot/certbot/issues/9539)
            let has_crashed = text.iter().any(|text| text.contains("can't set attribute"));
            assert!(has_crashed && !last, "certbot {by:?}: {text:?}");
        }
    }

    /// Fetches the first certificate, before there is a server.
    fn fetch_first(&self) {
        let own = *self.leads_to.lock().unwrap();
        let (ip, port) = (own.ip().to_string(), own.port().to_string());
        self.fetch(&["--standalone", "--http-01-address", &ip, "--http-01-port", &port]);
    }

    /// Fetches the next certificate by the webroot of the running server, with this command to reload it.
    fn renew(&self, hook: Option<&str>) {
        let webroot = self.folder.join("webroot").display().to_string();
        let mut by = vec!["--webroot", "-w", &webroot];
        by.extend(hook.into_iter().flat_map(|hook| ["--deploy-hook", hook]));
        self.fetch(&by);
    }

    fn live(&self) -> PathBuf {
        self.folder.join("etc/live/example.com")
    }

    /// The newest certificate on the disk.
    fn latest(&self) -> Vec<u8> {
        first_certificate(&fs::read(self.live().join("fullchain.pem")).unwrap())
    }
}

/// Passes connections at `at` on to the address that `to` holds at that moment.
fn forward(at: SocketAddr, to: Arc<Mutex<SocketAddr>>) {
    let listener = TcpListener::bind(at).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let to = *to.lock().unwrap();
            thread::spawn(move || -> io::Result<()> {
                let server = TcpStream::connect(to)?;
                let (mut from, mut into) = (client.try_clone()?, server.try_clone()?);
                let there = thread::spawn(move || io::copy(&mut from, &mut into));
                io::copy(&mut &server, &mut &client)?;
                client.shutdown(std::net::Shutdown::Both)?;
                let _ = there.join();
                Ok(())
            });
        }
    });
}

/// Asks through TLS, and notes the answer under this name. Returns the certificate of the server.
fn ask_sealed(
    seen: &mut Seen,
    asked: &str,
    sealed: SocketAddr,
    line: &str,
    fields: &[&str],
) -> Vec<u8> {
    let mut stream = connect(&Arc::new(untrusting()), sealed, "example.com");
    stream.write_all(&request(line, fields, b"")).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    seen.note_answer(asked, &whole(&bytes, line.starts_with("HEAD ")).unwrap(), false);
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

/// The certificate that the server shows.
fn shown(sealed: SocketAddr) -> Vec<u8> {
    ask_sealed(&mut Seen::default(), "", sealed, "GET /", &[])
}

#[test]
fn a_certificate_by_certbot() {
    let test = "migrations::a_certificate_by_certbot";
    let Some(certbot) = Certbot::start(test) else { return };
    certbot.fetch_first();
    let folder = site(&[("root/index.html", "home"), ("root/a b.html", "a page")]);
    let case = Migration::read(APPLICATIONS, "## A certificate by certbot")
        .with_folder("/srv/www", &folder.join("root"))
        .with_folder("/etc/letsencrypt/live/example.com", &certbot.live())
        .with_folder("/var/www/certbot", &certbot.folder.join("webroot"));
    case.compare(test, |Reached { addr, sealed, server }, seen| {
        *certbot.leads_to.lock().unwrap() = addr;
        look_at_both(seen, addr, sealed, &certbot);
        // the command of the page, for a server that is started by hand
        let hook = match server {
            Either::Nginx(nginx) => format!("kill -HUP {}", nginx.pid()),
            Either::Forebay(server) => {
                format!("{} reload -c {}", binary().display(), server.file().display())
            }
        };
        let before = certbot.latest();
        assert_eq!(shown(sealed), before);
        certbot.renew(Some(&hook));
        let renewed = certbot.latest();
        assert_ne!(before, renewed);
        let is_shown = soon(PATIENCE, || shown(sealed) == renewed);
        seen.note("a renewal with a hook", "the new certificate is shown", is_shown.to_string());
        certbot.renew(None);
        let renewed = certbot.latest();
        let is_shown = match server {
            Either::Nginx(_) => shown(sealed) == renewed,
            Either::Forebay(_) => soon(PATIENCE, || shown(sealed) == renewed),
        };
        seen.note("a renewal without a hook", "the new certificate is shown", is_shown.to_string());
    });
}

fn look_at_both(seen: &mut Seen, addr: SocketAddr, sealed: SocketAddr, certbot: &Certbot) {
    let challenges = certbot.folder.join("webroot/.well-known/acme-challenge");
    fs::write(challenges.join("token-of-a-test"), "token-of-a-test.thumb").unwrap();
    let file = fs::File::open(challenges.join("token-of-a-test")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    for line in [
        "GET /.well-known/acme-challenge/token-of-a-test",
        "GET /.well-known/acme-challenge/none",
        "GET /.well-known/security.txt",
        "GET /",
        "GET /a%20b.html?c=d&e",
        "POST /form",
        "HEAD /",
    ] {
        seen.ask(addr, line, &[], b"");
    }
    fs::remove_file(challenges.join("token-of-a-test")).unwrap();
    seen.ask(addr, "GET /a", &["Host: other.example"], b"");
    for line in ["GET /", "HEAD /", "GET /a%20b.html", "GET /none"] {
        ask_sealed(seen, &format!("{line} by https"), sealed, line, &[]);
    }
    ask_sealed(seen, "GET / of another host by https", sealed, "GET /", &["Host: other.example"]);
    let mut client = http2::Client::sealed_by(untrusting(), sealed, "example.com");
    let answer = client.get("/");
    seen.note("GET / by HTTP/2", "status", answer.status.to_string());
    seen.note("GET / by HTTP/2", "body", String::from_utf8_lossy(&answer.body));
    // a client that speaks no TLS there
    let bytes = forebay_tests::wire::exchange(sealed, &request("GET /", &[], b""));
    let answer = whole(&bytes, false).map_or("no answer".to_owned(), |it| it.status.to_string());
    seen.note("GET / without TLS at the port of https", "status", answer);
}
