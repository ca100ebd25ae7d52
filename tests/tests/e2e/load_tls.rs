//! `forebay load` over TLS and HTTP/2, against the real server: its results, and its message when a
//! handshake fails.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::server::{binary, free_addr};
use forebay_tests::tls::Authority;
use forebay_tests::{ENGINES, Options, Server};
use rcgen::{CertificateParams, PKCS_ECDSA_P256_SHA256 as ECDSA, date_time_ymd};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::{Command, Output};

/// A server with a page of 100 bytes, plain and with TLS.
struct Site {
    server: Server,
    tls: SocketAddr,
    /// The file with the certificate of the authority.
    ca: String,
    _folder: Folder,
}

impl Site {
    /// Starts a site whose certificate is for this host; if that is empty, for the site's own address.
    fn new(engine: &str, lines: &str, host: &str) -> Site {
        Site::with(engine, lines, host, |_| {})
    }

    fn with(
        engine: &str,
        lines: &str,
        host: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Site {
        let (folder, authority) = (Folder::new(), Authority::new());
        folder.write("site/page.txt", "x".repeat(100));
        let ca = folder.write("ca.pem", &authority.pem);
        let tls = free_addr();
        let address = tls.ip().to_string();
        let host = if host.is_empty() { &*address } else { host };
        authority.write_with(folder.path(), "own", &[host], &ECDSA, change);
        let file = |end: &str| folder.join(&format!("own.{end}"));
        let config = format!(
            "{lines}\n[tls]\ncertificate = [{:?}]\nkey = [{:?}]\n[[listener]]\nlisten = [\"https://{tls}\"]\n",
            file("crt"),
            file("key")
        );
        let server =
            Server::start(&Options::new(folder.join("site")).engine(engine).config(&config));
        Site { server, tls, ca: ca.to_str().unwrap().to_owned(), _folder: folder }
    }

    fn url(&self, scheme: &str) -> String {
        let addr = if scheme == "https" { self.tls } else { self.server.addr() };
        format!("{scheme}://{addr}/page.txt")
    }

    /// The result of a run over TLS: its one group.
    fn found(&self, args: &[&str]) -> Value {
        found(&self.url("https"), &[args, &["--ca", &self.ca]].concat())
    }
}

/// Runs `forebay load` with these arguments.
fn load(url: &str, args: &[&str]) -> Output {
    // answers on a machine that stands still come late
    let patience = ["--drain", "60s", "-s", "timeout=60s", "-s", "connect_timeout=60s"];
    let mut command = Command::new(binary());
    command.args(["load", url]).args(args).args(patience).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The one group of a run's report.
fn found(url: &str, args: &[&str]) -> Value {
    let output = load(url, &[args, &["--json", "-"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{url} {args:?}: {}", text(&output.stderr)));
    report["groups"][0].clone()
}

/// The reason why all requests have failed: the words of the table, and of standard error, for exit code
/// 1.
fn failed(url: &str, args: &[&str]) -> String {
    let output = load(url, &[args, &["-n", "4", "-c", "2"]].concat());
    assert_eq!(output.status.code(), Some(1), "{args:?} {}", text(&output.stdout));
    let said = text(&output.stderr);
    let why = said.strip_prefix("forebay load: not one good answer: all (").unwrap();
    let why = why.strip_suffix(")\n").unwrap().to_owned();
    assert!(text(&output.stdout).contains(&format!("all failures: {why}\n")), "{why}");
    why
}

#[test]
fn every_version_is_served_alike() {
    for engine in ENGINES {
        let site = Site::new(engine, "", "");
        let many = ["-n", "200", "-c", "2", "-s", "length=100", "-s", "body=same"];
        for (scheme, args, alpn) in [
            ("https", &[][..], "http/1.1"),
            ("https", &["--http2", "--streams", "10"], "h2"),
            ("https", &["--http2", "-s", "tls=1.2"], "h2"),
            ("http", &["--http2", "--streams", "10"], ""),
        ] {
            let trust = ["--ca", &site.ca];
            let trust = if scheme == "https" { &trust[..] } else { &[] };
            let group = found(&site.url(scheme), &[&many, args, trust].concat());
            let what = format!("{engine} {scheme} {args:?}: {group:#}");
            assert_eq!((&group["good"], &group["failed"]), (&200.into(), &0.into()), "{what}");
            assert_eq!(group["connections"]["opened"], 2, "{what}");
            if alpn.is_empty() {
                assert!(group["tls"].is_null(), "{what}");
                continue;
            }
            let agreed: Vec<_> = group["tls"]["agreed"].as_object().unwrap().keys().collect();
            assert!(agreed.len() == 1 && agreed[0].ends_with(&format!(", {alpn}")), "{what}");
            let version = if args.contains(&"tls=1.2") { "TLS 1.2, " } else { "TLS 1.3, " };
            assert!(agreed[0].starts_with(version), "{what}");
            // one client may have made all requests during the other's handshake
            let count = group["tls"]["handshake"]["count"].as_u64();
            assert!((1..=2).contains(&count.unwrap()), "{what}");
        }
    }
}

#[test]
fn handshakes_are_full_or_resumed_as_asked() {
    let site = Site::new("event", "", "");
    for version in ["tls=1.2", "tls=1.3"] {
        let each = ["-n", "20", "-c", "2", "-s", "per_connection=1", "-s", version];
        let kinds = |more: &[&str]| {
            let group = site.found(&[&each, more].concat());
            assert_eq!(group["good"], 20, "{group:#}");
            let tls = &group["tls"];
            assert_eq!(tls["verified"], true);
            (tls["full"].as_u64().unwrap(), tls["resumed"].as_u64().unwrap())
        };
        // each of two clients has its own sessions; the end may find one at a handshake, or before a
        // request, since the other has made the last
        for more in [&[][..], &["--http2"]] {
            let (full, resumed) = kinds(more);
            assert!((1..=2).contains(&full), "{version}: {full} {resumed}");
            assert!((20..=22).contains(&(full + resumed)), "{version}: {full} {resumed}");
        }
        let (full, resumed) = kinds(&["-s", "resume=false"]);
        assert!(resumed == 0 && (20..=22).contains(&full), "{version}: {full} {resumed}");
    }
}

/// A server that ends connections as it should costs no request.
#[test]
fn goodbyes_lose_nothing() {
    for engine in ENGINES {
        let lines = "[limits]\nrequests_per_connection = 20";
        let site = Site::new(engine, lines, "");
        let many = ["-n", "200", "-c", "2", "--http2", "--streams", "5"];
        for group in [site.found(&many), found(&site.url("http"), &many)] {
            assert_eq!((&group["good"], &group["failed"]), (&200.into(), &0.into()), "{group:#}");
            let connections = &group["connections"];
            let count = |key: &str| connections[key].as_u64().unwrap();
            // requests that were on their way when GOAWAY came are answered, too
            assert!(count("opened") >= 5 && count("goaways") >= 4, "{engine}: {connections}");
        }
    }
}

#[test]
fn who_is_not_trusted_is_not_asked() {
    let site = Site::new("event", "", "");
    let url = site.url("https");
    let stranger = Site::new("event", "", "other.example");
    // none of this machine's own authorities, if it has any, has signed it
    let own = load(&url, &["-n", "2"]);
    let said = text(&own.stderr);
    assert_eq!(own.status.code(), Some(1));
    assert!(said.contains("not trusted") || said.contains("trusted authorities"), "{said}");
    let words = |why: &str| format!("no TLS handshake × 4 [{why} × 4]");
    let why = failed(&url, &["--ca", &stranger.ca]);
    assert!(why.starts_with("no TLS handshake × 4 [certificate not trusted: "), "{why}");
    let why = failed(&stranger.url("https"), &["--ca", &stranger.ca]);
    assert_eq!(why, words(&format!("certificate for another name than {}", stranger.tls.ip())));
    let old = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let old = Site::with("event", "", "", old);
    assert_eq!(failed(&old.url("https"), &["--ca", &old.ca]), words("certificate expired"));
    for url in [old.url("https"), stranger.url("https")] {
        let output = load(&url, &["-n", "4", "--insecure"]);
        let table = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{table}");
        assert!(table.contains("; certificates were not verified\n"), "{table}");
    }
    // a virtual host is asked for by its name
    let host = ["-n", "4", "-H", "Host: other.example", "--ca", &stranger.ca];
    assert_eq!(load(&stranger.url("https"), &host).status.code(), Some(0));
}

#[test]
fn another_protocol_is_recognised() {
    let site = Site::new("event", "", "");
    let plain = site.server.addr();
    let why = failed(&format!("https://{plain}/"), &["--insecure"]);
    assert!(why.starts_with("no TLS handshake × 4 ["), "{why}");
    // the server answers without TLS, with a status
    assert_eq!(failed(&format!("http://{}/", site.tls), &[]), "wrong status × 4");
    let why = failed(&format!("http://{}/", site.tls), &["--http2"]);
    assert!(why.starts_with("malformed answer × 4 [the server speaks "), "{why}");
    let old = Site::new("event", "[limits]\nstreams = 0", "");
    let why = failed(&old.url("https"), &["--http2", "--insecure"]);
    assert!(why.starts_with("no TLS handshake × 4 [the server does not speak "), "{why}");
    let why = failed(&old.url("http"), &["--http2"]);
    assert!(why.starts_with("malformed answer × 4 [the server speaks HTTP/1"), "{why}");
}

#[test]
fn figures_of_handshakes_can_be_expected() {
    let site = Site::new("event", "", "");
    let url = site.url("https");
    let expect = |condition: &str, more: &[&str]| {
        let args = ["-n", "20", "-c", "2", "-s", "per_connection=1", "--expect", condition];
        let output = load(&url, &[&args, more].concat());
        (output.status.code().unwrap(), text(&output.stderr))
    };
    for condition in ["resumed>=80%", "handshake_p99<1h", "handshakes>0.001"] {
        assert_eq!(expect(condition, &["--insecure"]), (0, String::new()), "{condition}");
    }
    let (code, said) = expect("resumed>=99%", &["--insecure"]);
    assert!(code == 3 && said.starts_with("expected resumed>=99%: all has "), "{said}");
    let (code, said) = expect("handshake_p50<1h", &["--ca", &Site::new("event", "", "x").ca]);
    assert!(code == 3 && said.contains("not one good answer (no TLS handshake × 20"), "{said}");
    let plain = ["-n", "5", "--expect", "resumed>=0%"];
    let output = load(&site.url("http"), &plain);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).ends_with("all has no handshake of TLS\n"));
    // contradictions between options are reported before anything is sent
    for (url, args) in [
        (site.url("http"), &["--insecure"][..]),
        (site.url("http"), &["--streams", "2"]),
        (site.url("https"), &["--http2", "-s", "pipeline=2"]),
        (site.url("https"), &["--ca", "/nowhere"]),
    ] {
        assert_eq!(load(&url, args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn the_page_tells_of_tls() {
    let site = Site::new("event", "", "");
    let folder = Folder::new();
    let file = folder.join("run.html");
    let args = ["-n", "20", "--insecure", "--http2", "--html", file.to_str().unwrap()];
    assert_eq!(load(&site.url("https"), &args).status.code(), Some(0));
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("<td>TLS handshake<td>"), "{page}");
    assert!(page.contains("; certificates were not verified</p>"), "{page}");
}
