//! TLS of the real server: the same answers as without it, certificates by name, what becomes of
//! changed ones.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::isolated::UNHURRIED;
use forebay_tests::faults::crowd::connect_from;
use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::http2::Client;
use forebay_tests::server::free_addr;
use forebay_tests::tls::{Authority, TlsStream, connect, hello, over};
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{ENGINES, ISOLATED, Options, Server};
use rcgen::{PKCS_ECDSA_P256_SHA256 as ECDSA, PKCS_RSA_SHA256 as RSA};
use rustls::client::Resumption;
use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// A size beyond what is kept in memory, so that the file is read from the disk.
const LARGE: usize = 3_000_000;

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/small.txt", "small");
    let large = counting(LARGE);
    folder.write("site/large.bin", large);
    folder.age();
    folder
}

/// A server of `folder/site` that speaks TLS at the second address.
fn start(folder: &Folder, engine: &str, lines: &str) -> (Server, SocketAddr) {
    let addr = free_addr();
    let config = format!("{lines}\n[[listener]]\nlisten = [\"https://{addr}\"]\n");
    let options = Options::new(folder.join("site")).engine(engine).config(&config);
    (Server::start(&options), addr)
}

fn pair(folder: &Path, name: &str) -> String {
    let file = |end| folder.join(format!("{name}.{end}"));
    format!("[tls]\ncertificate = [{:?}]\nkey = [{:?}]\n", file("crt"), file("key"))
}

fn ask(stream: &mut impl Write, target: &str, fields: &str) {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n").unwrap();
    stream.flush().unwrap();
}

/// Reads everything that comes, without the date.
fn everything(mut stream: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    while let Some(at) = all.windows(8).position(|part| part == b"\r\nDate: ") {
        all.drain(at..at + 37);
    }
    all
}

/// The first certificate that the server shows for the name of this connection.
fn shown(stream: &mut TlsStream) -> Vec<u8> {
    ask(stream, "/small.txt", "");
    stream.read_exact(&mut [0; 15]).unwrap();
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

fn reload(server: &Server) -> (Option<i32>, String) {
    server.reload()
}

#[test]
fn answers_are_the_same_as_without() {
    for engine in ENGINES {
        for kind in [&ECDSA, &RSA] {
            let (folder, authority) = (site(), Authority::new());
            authority.write(folder.path(), "a", &["a.example"], kind);
            let (server, addr) = start(&folder, engine, &pair(folder.path(), "a"));
            let requests: &[&[(&str, &str)]] = &[
                &[("/small.txt", "Connection: close\r\n")],
                &[("/large.bin", "Connection: close\r\n")],
                &[
                    ("/small.txt", ""),
                    ("/large.bin", "Range: bytes=1000000-2500000\r\n"),
                    ("/nothing", ""),
                    ("/small.txt", "Content-Length: 5\r\n"),
                ],
                &[("/../x", "")],
            ];
            for requests in requests {
                let mut plain: TcpStream = server.connect();
                let mut sealed = authority.connect(addr, "a.example");
                for (target, fields) in *requests {
                    ask(&mut plain, target, fields);
                    ask(&mut sealed, target, fields);
                    if fields.starts_with("Content-Length") {
                        plain.write_all(b"body!").unwrap();
                        sealed.write_all(b"body!").unwrap();
                    }
                }
                if !requests.last().unwrap().1.contains("close") {
                    let last = b"GET /small.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                    let _ = (plain.write_all(last), sealed.write_all(last));
                }
                let (plain, sealed) = (everything(plain), everything(sealed));
                let at = plain.iter().zip(&sealed).take_while(|(one, other)| one == other).count();
                let told = |all: &[u8]| {
                    let part = all.iter().skip(at).take(200).copied().collect::<Vec<_>>();
                    format!("{} bytes, there \"{}\"", all.len(), part.escape_ascii())
                };
                assert!(
                    plain == sealed,
                    "{engine}: {requests:?} differ at {at}: {} and {}",
                    told(&plain),
                    told(&sealed)
                );
                assert!(plain.starts_with(b"HTTP/1.1 "), "{engine}");
            }
        }
    }
}

/// The log lines of a client's requests have what its handshake has agreed on, and other lines do not.
#[test]
fn lines_say_what_was_agreed() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        let log = folder.join("access.log");
        let lines = format!(
            "log.access = {log:?}\nlog.format = \"json\"\nlog.fields = [\"target\", \"sni\", \
             \"tls_version\", \"tls_cipher\", \"alpn\", \"tls_resumed\"]\n{}",
            pair(folder.path(), "a")
        );
        let (server, addr) = start(&folder, engine, &lines);
        let mut client = authority.client();
        client.resumption = Resumption::in_memory_sessions(1);
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        let client = Arc::new(client);
        for target in ["/small.txt?1", "/small.txt?2"] {
            let mut sealed = connect(&client, addr, "a.example");
            ask(&mut sealed, target, "");
            ask(&mut sealed, "/small.txt?again", "Connection: close\r\n");
            everything(sealed);
        }
        server.exchange(b"GET /plain HTTP/1.0\r\n\r\n");
        let read = || fs::read_to_string(&log).unwrap_or_default();
        assert!(soon(PATIENCE, || read().lines().count() == 5), "{engine}: {}", read());
        let agreed = |resumed: bool| {
            format!(
                ",\"sni\":\"a.example\",\"tls_version\":\"1.3\",\"tls_cipher\":\
                 \"TLS13_AES_128_GCM_SHA256\",\"alpn\":\"http/1.1\",\"tls_resumed\":{resumed}}}\n"
            )
        };
        let line = |target: &str, rest: &str| format!("{{\"target\":\"{target}\"{rest}");
        let mut expected = [
            line("/small.txt?1", &agreed(false)),
            line("/small.txt?again", &agreed(false)),
            line("/small.txt?2", &agreed(true)),
            line("/small.txt?again", &agreed(true)),
            line("/plain", "}\n"),
        ];
        let text = read();
        let mut found: Vec<&str> = text.split_inclusive('\n').collect();
        // loops hand their lines over each for itself
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{engine}");
    }
}

/// A client that comes without TLS is redirected to https, and gets the field that makes it come back
/// that way.
#[test]
fn a_site_sends_its_clients_to_tls() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        folder.write("site/.well-known/acme-challenge/token", "token");
        let own = "redirect = 308\nhsts = \"1h\"\n[[header]]\npath = \"/own/*\"\nset = { x-own = \"1\" }\n";
        let lines = format!("{}{own}", pair(folder.path(), "a"));
        let (server, addr) = start(&folder, engine, &lines);
        let plain = |target: &str| {
            let request = format!("GET {target} HTTP/1.0\r\nHost: A.example:80\r\n\r\n");
            String::from_utf8(server.exchange(request.as_bytes())).unwrap()
        };
        for _ in 0..2 {
            let moved = plain("/small.txt?a=b%20c");
            assert!(moved.starts_with("HTTP/1.1 308 "), "{engine}: {moved}");
            let to =
                format!("\r\nLocation: https://a.example:{}/small.txt?a=b%20c\r\n", addr.port());
            assert!(moved.contains(&to), "{engine}: {moved}");
            assert!(!moved.contains("Strict-"), "{engine}: {moved}");
            assert!(plain("/own/x").contains("\r\nx-own: 1\r\n"), "{engine}");
            let challenge = plain("/.well-known/acme-challenge/token");
            assert!(challenge.ends_with("\r\n\r\ntoken"), "{engine}: {challenge}");
            assert!(!challenge.contains("Strict-"), "{engine}: {challenge}");
            for target in ["/small.txt", "/large.bin", "/none"] {
                let mut sealed = authority.connect(addr, "a.example");
                ask(&mut sealed, target, "Connection: close\r\n");
                let answered = everything(sealed);
                let head = String::from_utf8_lossy(&answered[..400.min(answered.len())]);
                let said = "\r\nStrict-Transport-Security: max-age=3600\r\n";
                assert!(!head.contains(" 308 ") && head.contains(said), "{engine}: {head}");
            }
        }
    }
}

/// The parts of an answer that are about TLS: the status, the target of a redirect, and the HSTS field.
type Told = (u16, Option<String>, Option<String>);

/// The answer to a request with these values of X-Forwarded-Proto, by HTTP/1 and by HTTP/2; through TLS
/// if there is an authority to trust.
fn told(addr: SocketAddr, tls: Option<&Authority>, path: &str, says: &[&str]) -> Told {
    let lines: String =
        says.iter().map(|value| format!("X-Forwarded-Proto: {value}\r\n")).collect();
    let lines = format!("{lines}Connection: close\r\n");
    let answered = match tls {
        Some(authority) => {
            let mut sealed = authority.connect(addr, "a.example");
            ask(&mut sealed, path, &lines);
            everything(sealed)
        }
        None => {
            let mut plain = wire::connect(addr);
            ask(&mut plain, path, &lines);
            everything(plain)
        }
    };
    let answered = String::from_utf8(answered).unwrap();
    let (head, _) = answered.split_once("\r\n\r\n").unwrap();
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    };
    let by_http1 =
        (head[9..12].parse().unwrap(), field("Location"), field("Strict-Transport-Security"));
    let mut client = match tls {
        Some(authority) => Client::sealed(authority, addr, "a.example"),
        None => Client::connect(addr),
    };
    let fields: Vec<_> = says.iter().map(|value| ("x-forwarded-proto", *value)).collect();
    let stream = client.begin("GET", path, &fields, true);
    let answer = client.answer(stream);
    let field = |name: &str| answer.field(name).map(str::to_owned);
    let by_http2 = (answer.status, field("location"), field("strict-transport-security"));
    assert_eq!(by_http1, by_http2, "{path} {says:?}");
    by_http1
}

/// What a trusted proxy says of its client decides, however the proxy itself comes; other sources are not
/// believed.
#[test]
fn clients_of_a_proxy_are_sent_to_tls_by_how_they_came_to_it() {
    for engine in ENGINES.into_iter().chain([ISOLATED]) {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        folder.write("site/.well-known/acme-challenge/token", "token");
        let unhurried = if engine == ISOLATED { UNHURRIED } else { "" };
        // no server is at the address of the application
        let rest = format!(
            "redirect = 308\nhsts = \"1h\"\n[[rule]]\npath = \"/refused\"\naction = \"reject\"\n\
             [[proxy]]\npath = \"/app\"\nto = \"http://{}\"\nmax_fails = 0\n",
            free_addr()
        );
        for is_trusted in [true, false] {
            let proxies = if is_trusted { "\"127.0.0.0/8\"" } else { "" };
            let lines = format!(
                "{unhurried}trusted_proxies = [{proxies}]\n{}{rest}",
                pair(folder.path(), "a")
            );
            let (server, addr) = start(&folder, engine, &lines);
            let here = format!("https://a.example:{}", addr.port());
            let (here, there) = (Some(&*here), Some("https://a.example"));
            for (is_sealed, says, by_proxy, by_others) in [
                (false, &[][..], here, here),
                (false, &["https"], None, here),
                (false, &["http"], there, here),
                // the last of several values counts: those before it may be the client's
                (false, &["http", "https"], None, here),
                (false, &["https, http"], there, here),
                (true, &[], None, None),
                (true, &["https"], None, None),
                // how the proxy comes is not how its client came
                (true, &["http"], there, None),
            ] {
                let to = if is_trusted { by_proxy } else { by_others };
                let hsts = || to.is_none().then(|| "max-age=3600".to_owned());
                let told = |path: &str| match is_sealed {
                    true => told(addr, Some(&authority), path, says),
                    false => told(server.addr(), None, path, says),
                };
                let case = format!("{engine}: {is_trusted} {is_sealed} {says:?}");
                for (path, status) in [("/small.txt?a=b", 200), ("/none", 404), ("/app", 502)] {
                    let expected = match to {
                        Some(to) => (308, Some(format!("{to}{path}")), None),
                        None => (status, None, hsts()),
                    };
                    assert_eq!(told(path), expected, "{case} {path}");
                }
                // rules come before all that, and what authorities ask for is there for all
                assert_eq!(told("/refused"), (403, None, hsts()), "{case}");
                let challenge = "/.well-known/acme-challenge/token";
                assert_eq!(told(challenge), (200, None, hsts()), "{case}");
            }
        }
    }
}

/// Where only a proxy speaks TLS, its clients are redirected to the usual port; without TLS anywhere, no
/// client is redirected.
#[test]
fn a_proxy_may_be_all_that_speaks_tls() {
    for engine in ENGINES {
        let folder = site();
        for is_trusted in [true, false] {
            let proxies = if is_trusted { "\"127.0.0.0/8\"" } else { "" };
            let lines =
                format!("trusted_proxies = [{proxies}]\ntls.redirect = 301\ntls.hsts = \"1h\"\n");
            let options = Options::new(folder.join("site")).engine(engine).config(&lines);
            let server = Server::start(&options);
            for (says, is_https) in
                [(&[][..], false), (&["http"], false), (&["https"], true), (&["on"], false)]
            {
                let expected = match (is_trusted, is_https) {
                    (false, _) => (200, None, None),
                    (true, true) => (200, None, Some("max-age=3600".to_owned())),
                    (true, false) => (301, Some("https://a.example/small.txt".to_owned()), None),
                };
                let told = told(server.addr(), None, "/small.txt", says);
                assert_eq!(told, expected, "{engine}: {is_trusted} {says:?}");
            }
        }
    }
}

/// A target may be an absolute URL. One with https is for TLS, to this server or to a trusted proxy.
#[test]
fn an_address_with_https_is_for_tls() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        for (proxies, by_proxy, not_by_proxy) in [("\"127.0.0.0/8\"", 200, 421), ("", 421, 200)] {
            let lines = format!("trusted_proxies = [{proxies}]\n{}", pair(folder.path(), "a"));
            let (server, addr) = start(&folder, engine, &lines);
            let says = "X-Forwarded-Proto: https\r\n";
            let says_no = "X-Forwarded-Proto: http\r\n";
            let (yes_last, no_last) = (format!("{says_no}{says}"), format!("{says}{says_no}"));
            for (is_sealed, target, fields, status) in [
                (true, "https://a.example/small.txt", "", 200),
                (true, "HTTPS://A.example:443/small.txt", "", 200),
                (true, "http://a.example/small.txt", "", 200),
                (true, "ftp://a.example/small.txt", "", 400),
                (false, "http://a.example/small.txt", "", 200),
                (false, "https://a.example/small.txt", "", 421),
                (false, "https://a.example/small.txt", says, by_proxy),
                // the last of several values counts: those before it may be the client's
                (false, "https://a.example/small.txt", &*yes_last, by_proxy),
                (false, "https://a.example/small.txt", &*no_last, 421),
                // how the proxy comes is not how its client came
                (true, "https://a.example/small.txt", says_no, not_by_proxy),
            ] {
                let fields = format!("{fields}Connection: close\r\n");
                let answer = if is_sealed {
                    let mut sealed = authority.connect(addr, "a.example");
                    ask(&mut sealed, target, &fields);
                    everything(sealed)
                } else {
                    let mut plain = server.connect();
                    ask(&mut plain, target, &fields);
                    everything(plain)
                };
                let answer = String::from_utf8(answer).unwrap();
                let case = format!("{engine}: [{proxies}] {is_sealed} {target}: {answer}");
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{case}");
                assert_eq!(answer.ends_with("\r\n\r\nsmall"), status == 200, "{case}");
            }
        }
    }
}

#[test]
fn who_speaks_http_where_tls_is_spoken_is_told_so() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        let (_server, addr) = start(&folder, engine, &pair(folder.path(), "a"));
        let mut client = TcpStream::connect(addr).unwrap();
        ask(&mut client, "/", "");
        let said = String::from_utf8(everything(client)).unwrap();
        assert!(said.starts_with("HTTP/1.1 400") && said.contains("https"), "{engine}: {said}");
    }
}

#[test]
fn each_site_has_its_certificate_and_others_the_default() {
    let (folder, authority) = (site(), Authority::new());
    for (name, hosts) in
        [("a", &["a.example"][..]), ("b", &["b.example", "*.b.example"]), ("all", &["c.example"])]
    {
        authority.write(folder.path(), name, hosts, &ECDSA);
    }
    let site = |hosts: &str, name: &str| {
        let tls = pair(folder.path(), name).replace("[tls]", "[site.tls]");
        format!("[[site]]\nhosts = [{hosts}]\n{tls}")
    };
    let lines = [
        site("\"a.example\"", "a"),
        site("\"b.example\", \"*.b.example\"", "b"),
        "[[site]]\nname = \"all\"\n".to_owned()
            + &pair(folder.path(), "all").replace("[tls]", "[site.tls]"),
    ];
    let (_server, addr) = start(&folder, "event", &lines.concat());
    let mut a = authority.connect(addr, "a.example");
    let mut b = authority.connect(addr, "b.example");
    let mut below = authority.connect(addr, "x.b.example");
    let mut default = authority.connect(addr, "c.example");
    let shown = [shown(&mut a), shown(&mut b), shown(&mut below), shown(&mut default)];
    assert!(shown[1] == shown[2] && shown[0] != shown[1] && shown[3] != shown[0]);
    // the default's certificate is not for this name, which the client finds out
    let mut other = authority.connect(addr, "other.example");
    assert!(other.write_all(b"x").and_then(|()| other.flush()).is_err());
}

/// A connection serves the hosts that its certificate is for, and others that have none of their own.
#[test]
fn a_request_for_a_host_with_another_certificate_is_misdirected() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example", "*.a.example"], &ECDSA);
        authority.write(folder.path(), "b", &["b.example"], &ECDSA);
        let site = |host: &str, name: &str| {
            let tls = pair(folder.path(), name).replace("[tls]", "[site.tls]");
            format!("[[site]]\nhosts = [\"{host}\"]\n{tls}")
        };
        let none = "[[site]]\nhosts = [\"none.example\"]\n";
        let lines = [site("a.example", "a"), site("b.example", "b"), none.to_owned()];
        let (_server, addr) = start(&folder, engine, &lines.concat());
        let mut stream = authority.connect(addr, "a.example");
        for (host, status) in [
            ("a.example", 200),
            ("A.example:443", 200),
            ("b.example", 421),
            // the connection goes on
            ("a.example", 200),
            ("none.example", 200),
            // no site has this host
            ("x.a.example", 421),
        ] {
            write!(stream, "HEAD /small.txt HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let head = String::from_utf8(head).unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{engine}: {host}: {head}");
        }
    }
}

/// The files change as certbot changes them: a link leads to the old files, then to new ones. A broken
/// file is reported, and the old one is kept; no reload is asked for.
#[test]
fn changed_files_are_taken_over_without_a_reload() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        for directory in ["live", "archive"] {
            fs::create_dir(folder.join(directory)).unwrap();
        }
        let archive = folder.join("archive");
        let point = |name: &str| {
            for end in ["crt", "key"] {
                let (new, link) = (folder.join("live/new"), folder.join(&format!("live/a.{end}")));
                symlink(format!("../archive/{name}.{end}"), &new).unwrap();
                fs::rename(new, link).unwrap();
            }
        };
        authority.write(&archive, "a1", &["a.example"], &ECDSA);
        point("a1");
        let (server, addr) = start(&folder, engine, &pair(&folder.join("live"), "a"));
        let mut kept = authority.connect(addr, "a.example");
        let first = shown(&mut kept);
        let shown_now = || shown(&mut authority.connect(addr, "a.example"));
        authority.write(&archive, "a2", &["a.example"], &RSA);
        point("a2");
        assert!(soon(PATIENCE, || shown_now() != first), "{engine}: {}", server.stderr());
        let second = shown_now();
        // where the link leads, a key that is not that of the certificate
        let key = fs::read(archive.join("a1.key")).unwrap();
        fs::write(archive.join("a2.key"), key).unwrap();
        let is_told = || server.stderr().contains("not that of");
        assert!(soon(PATIENCE, is_told), "{engine}: {}", server.stderr());
        server.says("what is in force is kept");
        assert!(shown_now() == second, "{engine}");
        authority.write(&archive, "a2", &["a.example"], &ECDSA);
        assert!(soon(PATIENCE, || shown_now() != second), "{engine}: {}", server.stderr());
        kept.read_exact(&mut [0; 20]).unwrap();
        ask(&mut kept, "/small.txt", "Connection: close\r\n");
        assert!(everything(kept).ends_with(b"small"), "{engine}");
    }
}

/// A certificate with which a server could no longer start is reported once, and once more when it is
/// back.
#[test]
fn files_that_are_gone_are_told_of() {
    let (folder, authority) = (site(), Authority::new());
    authority.write(folder.path(), "a", &["a.example"], &ECDSA);
    let (server, addr) = start(&folder, "event", &pair(folder.path(), "a"));
    let (key, aside) = (folder.join("a.key"), folder.join("aside"));
    let gone = format!("the file {key:?} is gone: what is in force is kept");
    let back = format!("the file {key:?} is back");
    let times = |text: &str| server.stderr().matches(text).count();
    for round in 1..=2 {
        fs::rename(&key, &aside).unwrap();
        assert!(soon(PATIENCE, || times(&gone) == round), "{}", server.stderr());
        assert_eq!(times(&back), round - 1, "{}", server.stderr());
        shown(&mut authority.connect(addr, "a.example"));
        // other changes there are no reason for another report
        fs::write(folder.join("other"), "").unwrap();
        fs::rename(&aside, &key).unwrap();
        assert!(soon(PATIENCE, || times(&back) == round), "{}", server.stderr());
        assert_eq!(times(&gone), round, "{}", server.stderr());
    }
}

/// A certificate for another host is taken over, because it may be intended; the operator learns how
/// clients will see it.
#[test]
fn a_certificate_for_another_host_is_taken_over_and_told_of() {
    let (folder, authority) = (site(), Authority::new());
    authority.write(folder.path(), "a", &["a.example"], &ECDSA);
    let tls = pair(folder.path(), "a").replace("[tls]", "[site.tls]");
    let (server, _) = start(&folder, "event", &format!("[[site]]\nhosts = [\"a.example\"]\n{tls}"));
    let told = "the certificate of the site \"a.example\" is not for \"a.example\": clients that ask for it \
                with https will refuse it";
    authority.write(folder.path(), "a", &["other.example"], &ECDSA);
    assert!(soon(PATIENCE, || server.stderr().contains(told)), "{}", server.stderr());
    let (code, said) = reload(&server);
    assert!(code == Some(0) && said.contains(told), "{said}");
    authority.write(folder.path(), "a", &["a.example"], &ECDSA);
    let (code, said) = reload(&server);
    assert!(code == Some(0) && !said.contains("is not for"), "{said}");
}

/// A client that asks through TLS for a site without a certificate is refused, and the operator learns
/// that at the start.
#[test]
fn a_site_without_a_certificate_is_told_of_at_the_start() {
    let (folder, authority) = (site(), Authority::new());
    authority.write(folder.path(), "a", &["a.example"], &ECDSA);
    let tls = pair(folder.path(), "a").replace("[tls]", "[site.tls]");
    let a = format!("[[site]]\nhosts = [\"a.example\"]\n{tls}");
    let b = "[[site]]\nhosts = [\"b.example\"]\n";
    let (server, _) = start(&folder, "event", &format!("{a}{b}"));
    let told =
        "no certificate is for \"b.example\": clients that ask for it with https are refused";
    assert!(soon(PATIENCE, || server.stderr().contains(told)), "{}", server.stderr());
    assert!(!server.stderr().contains("\"a.example\""), "{}", server.stderr());
}

/// Each handshake is counted by its result.
#[test]
fn handshakes_are_counted() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        let addr = free_addr();
        let tls = pair(folder.path(), "a").replace("[tls]", "[site.tls]");
        let lines = format!(
            "[[listener]]\nlisten = [\"https://{addr}\"]\n[[site]]\nhosts = [\"a.example\"]\n{tls}"
        );
        let served = WatchedServer::start(engine, &folder.join("site"), &lines);
        let counted = |result: &str, expected: u64| {
            let series = match result {
                "begun" => "forebay_tls_handshakes_begun_total".to_owned(),
                result => format!("forebay_tls_handshakes_total{{result=\"{result}\"}}"),
            };
            let is_so = || served.metric(&series) == expected;
            assert!(soon(PATIENCE, is_so), "{engine}: {series} {}", served.metric(&series));
        };
        let mut client = authority.client();
        client.resumption = Resumption::in_memory_sessions(1);
        let client = Arc::new(client);
        for _ in 0..3 {
            let mut stream = connect(&client, addr, "a.example");
            ask(&mut stream, "/small.txt", "Connection: close\r\n");
            everything(stream);
        }
        counted("full", 1);
        counted("resumed", 2);
        let mut plain = TcpStream::connect(addr).unwrap();
        ask(&mut plain, "/", "");
        everything(plain);
        counted("not_tls", 1);
        let talk =
            |mut stream: TlsStream| drop(stream.write_all(b"x").and_then(|()| stream.flush()));
        talk(authority.connect(addr, "other.example"));
        counted("unknown_name", 1);
        // a client that trusts another authority
        talk(Authority::new().connect(addr, "a.example"));
        counted("refused_by_client", 1);
        let mut broken = TcpStream::connect(addr).unwrap();
        broken.write_all(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00").unwrap();
        let _ = broken.read_to_end(&mut Vec::new());
        counted("failed", 1);
        let mut left = TcpStream::connect(addr).unwrap();
        left.write_all(&hello(&client, "a.example")).unwrap();
        left.read_exact(&mut [0; 5]).unwrap();
        drop(left);
        counted("cut", 1);
        // nothing of a handshake has come
        drop(TcpStream::connect(addr).unwrap());
        counted("begun", 8);
    }
}

/// Ends a flood when it is dropped, also where a check has failed.
struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Many handshakes, completed or not, keep neither connections that are there nor clients of a higher
/// class from being served.
#[test]
fn a_flood_of_handshakes_keeps_nobody_of_a_higher_class_away() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        let classes = "[[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
                       default = true\n[[rule]]\nclient = \"127.9.9.9\"\nclass = \"gold\"\n";
        let lines = format!("{}{classes}", pair(folder.path(), "a"));
        let (server, addr) = start(&folder, engine, &lines);
        let client = Arc::new(authority.client());
        let gold = || {
            let socket = connect_from([127, 9, 9, 9].into(), addr).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            over(&client, socket, "a.example")
        };
        let answered = |stream: &mut TlsStream| {
            ask(stream, "/small.txt", "");
            let mut all = Vec::new();
            while !all.ends_with(b"\r\n\r\nsmall") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{engine}: {error}"));
                all.extend(byte);
            }
        };
        let mut there: Vec<TlsStream> = (0..4).map(|_| gold()).collect();
        there.iter_mut().for_each(answered);
        let (begun, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for completes in [false, true] {
                let (begun, is_over, client) = (&begun, &is_over, &client);
                scope.spawn(move || {
                    let words = hello(client, "a.example");
                    let mut open: VecDeque<TcpStream> = VecDeque::new();
                    while !is_over.load(Relaxed) {
                        let Ok(mut socket) = TcpStream::connect(addr) else { continue };
                        begun.fetch_add(1, Relaxed);
                        if completes {
                            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                            let mut stream = over(client, socket, "a.example");
                            let _ = stream.write_all(b"G").and_then(|()| stream.flush());
                        } else if socket.write_all(&words).is_ok() {
                            open.push_back(socket);
                            // fewer than there may be from one client
                            if open.len() > 20 {
                                open.pop_front();
                            }
                        }
                    }
                });
            }
            let _ends = Ends(&is_over);
            // while there are some hundred
            let mut rounds = 0;
            while rounds < 5 || begun.load(Relaxed) < 300 {
                there.iter_mut().for_each(answered);
                answered(&mut gold());
                rounds += 1;
            }
        });
        // connections that are over may be counted a moment longer, so that the flood meets the limit of its client
        let said = server.stderr();
        let is_limit = |line: &&str| line.contains("limits.connections_per_client is reached");
        assert!(said.lines().filter(|line| !is_limit(line)).count() < 3, "{engine}: {said}");
    }
}

/// An operator learns in time that a certificate was not replaced.
#[test]
fn what_has_expired_is_told_and_measured() {
    let (folder, authority) = (site(), Authority::new());
    authority.write_with(folder.path(), "old", &["a.example"], &ECDSA, |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    authority.write_with(folder.path(), "new", &["b.example"], &ECDSA, |params| {
        params.not_after = rcgen::date_time_ymd(2999, 1, 1);
    });
    let site = |host: &str, name: &str| {
        let tls = pair(folder.path(), name).replace("[tls]", "[site.tls]");
        format!("[[site]]\nhosts = [\"{host}\"]\n{tls}")
    };
    let lines = site("a.example", "old") + &site("b.example", "new");
    let served = WatchedServer::with(Options::new(folder.join("site")).config(&lines));
    let expiry = |site: &str, name: &str| {
        let file = folder.join(&format!("{name}.crt"));
        let metric = "forebay_certificate_expiry_timestamp_seconds";
        served.metric(&format!("{metric}{{site=\"{site}\",certificate={file:?}}}"))
    };
    assert_eq!(expiry("a.example", "old"), 1_577_836_800);
    assert_eq!(expiry("b.example", "new"), 32_472_144_000);
    let said = || served.stderr();
    let told =
        format!("the certificate {:?} of the site \"a.example\" has", folder.join("old.crt"));
    assert!(soon(PATIENCE, || said().contains(&told)), "{}", said());
    assert!(!said().contains("new.crt"), "{}", said());
}

#[test]
fn a_changed_pair_is_taken_over_and_a_broken_one_is_not() {
    for engine in ENGINES {
        let (folder, authority) = (site(), Authority::new());
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        let (server, addr) = start(&folder, engine, &pair(folder.path(), "a"));
        let mut kept = authority.connect(addr, "a.example");
        let first = shown(&mut kept);
        authority.write(folder.path(), "a", &["a.example"], &ECDSA);
        assert_eq!(reload(&server).0, Some(0), "{engine}");
        let second = shown(&mut Authority::connect(&authority, addr, "a.example"));
        assert!(first != second, "{engine}");
        // a key that is not that of the certificate
        authority.write(folder.path(), "b", &["a.example"], &ECDSA);
        fs::copy(folder.join("b.crt"), folder.join("a.crt")).unwrap();
        let (code, said) = reload(&server);
        assert!(code != Some(0) && said.contains("not that of"), "{engine}: {said}");
        assert!(said.contains("a.crt"), "{engine}: {said}");
        let third = shown(&mut authority.connect(addr, "a.example"));
        assert!(third == second, "{engine}");
        // a client that was there is served on
        kept.read_exact(&mut [0; 20]).unwrap();
        ask(&mut kept, "/small.txt", "Connection: close\r\n");
        assert!(everything(kept).ends_with(b"small"), "{engine}");
    }
}
