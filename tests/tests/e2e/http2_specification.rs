//! h2spec, a program that tests servers against the specifications of HTTP/2 and HPACK, on files and on
//! answers of an application, through TLS and without it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::programs::from_go;
use forebay_tests::server::free_addr;
use forebay_tests::tls::Authority;
use forebay_tests::{Options, Server, on_each_engine, on_isolated};
use rcgen::PKCS_ECDSA_P256_SHA256 as ECDSA;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

on_each_engine!(all_of_it_holds);

on_isolated!(all_of_it_holds);

/// A case that must fail: on a port that speaks HTTP/1 as well, an invalid preface is a bad request of
/// HTTP/1. It gets the answer 400 and an end, where h2spec accepts only the end.
const PREFACE: &str = "2: Sends invalid connection preface";

fn all_of_it_holds(engine: &str) {
    let Some(program) = from_go("h2spec", "all_of_it_holds") else { return };
    let (folder, authority) = (Folder::new(), Authority::new());
    folder.write("site/index.html", "x".repeat(2_000));
    authority.write(folder.path(), "a", &["a.example"], &ECDSA);
    let file = |end| folder.path().join(format!("a.{end}"));
    let (plain, sealed) = (free_addr(), free_addr());
    let lines = format!(
        "[tls]\ncertificate = [{:?}]\nkey = [{:?}]\n\
         [[listener]]\nlisten = [\"http://{plain}\", \"https://{sealed}\"]\n\
         [[work]]\npath = \"/work\"\n",
        file("crt"),
        file("key")
    );
    let site = folder.join("site");
    let _server = Server::start(&Options::new(&site).engine(engine).config(&lines));
    for path in ["/", "/work?out=2000"] {
        for (addr, words, known) in [(plain, &[][..], &[PREFACE][..]), (sealed, &["-t", "-k"], &[])]
        {
            let said = run(&program, addr, path, words);
            let list = said.split("Failures:").nth(1).unwrap_or_default();
            let failed: Vec<&str> = list.lines().filter_map(failure).collect();
            assert_eq!(failed, known, "{engine}: {addr}{path} {words:?}: {said}");
            let result = format!(" 0 skipped, {} failed", known.len());
            assert!(said.contains(&result), "{engine}: {said}");
        }
    }
}

/// The output of h2spec. Its waits have long limits, since only a case that fails waits.
fn run(program: &Path, addr: SocketAddr, path: &str, words: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()]);
    let said = command.args(["-P", path, "-o", "20"]).args(words).output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

/// The name of a case that failed, in a line of the list at the end.
fn failure(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("× ")
}
