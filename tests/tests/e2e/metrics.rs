//! The server's counters for each site, and its metrics about itself and about reloads.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::Options;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, soon};
use forebay_tests::wire::PATIENCE;
use std::fmt::Write;

fn responses(site: &str, class: &str) -> String {
    format!("forebay_site_responses_total{{site=\"{site}\",class=\"{class}\"}}")
}

fn body_bytes(site: &str) -> String {
    format!("forebay_site_body_bytes_total{{site=\"{site}\"}}")
}

/// Sends these requests; returns the bytes of all bodies.
fn ask(served: &WatchedServer, requests: &[(&str, &str)]) -> u64 {
    let (mut client, mut bytes) = (served.client(), 0);
    for (host, path) in requests {
        let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        std::io::Write::write_all(client.stream(), text.as_bytes()).unwrap();
        bytes += client.answer().unwrap().body.len() as u64;
    }
    bytes
}

/// Sites keep their counters when a reload adds others, moves them and takes them away; and each reload
/// is counted, a failed one, too.
#[test]
fn counters_of_a_site_survive_reloads() {
    let folder = Folder::new();
    folder.write("site/a.txt", "0123456789");
    let root = folder.join("site");
    let sites = |names: &[&str]| {
        let mut text = String::new();
        for name in names {
            let hosts =
                if *name == "shop" { "" } else { &format!("hosts = [\"{name}.example\"]\n") };
            writeln!(text, "[[site]]\nname = {name:?}\n{hosts}").unwrap();
        }
        text
    };
    let options = |names| Options::new(&root).config(&sites(names));
    let served = WatchedServer::with(options(&["shop", "blog"]));
    let admin = format!("admin.listen = \"{}\"\n", served.admin());
    let bytes = ask(&served, &[("a", "/a.txt"), ("a", "/none"), ("a", "/a.txt")]);
    assert!(soon(PATIENCE, || served.metric(&responses("shop", "2xx")) == 2));
    assert_eq!(served.metric(&responses("shop", "4xx")), 1);
    // the page of the error counts as well; bytes are counted once they are sent
    assert!(bytes > 30 && soon(PATIENCE, || served.metric(&body_bytes("shop")) == bytes));
    assert_eq!(served.metric("forebay_config_generation"), 1);
    assert_eq!(served.metric("forebay_config_last_reload_successful"), 1);
    let started = served.metric("forebay_config_last_reload_timestamp_seconds");
    assert!(started > 1_700_000_000);

    let next = options(&["wiki", "shop"]);
    served.configure(&Options { config: admin.clone() + &next.config, ..next });
    assert_eq!(served.reload().0, Some(0));
    ask(&served, &[("a", "/a.txt")]);
    assert!(soon(PATIENCE, || served.metric(&responses("shop", "2xx")) == 3));
    assert_eq!(served.metric(&responses("wiki", "2xx")), 0);
    assert!(soon(PATIENCE, || served.metric(&body_bytes("shop")) == bytes + 10));

    served.configure_with("nonsense = 1");
    assert_ne!(served.reload().0, Some(0));
    let reloads = |result| format!("forebay_config_reloads_total{{result=\"{result}\"}}");
    assert_eq!(served.metric(&reloads("success")), 1);
    assert_eq!(served.metric(&reloads("failure")), 1);
    assert_eq!(served.metric("forebay_config_generation"), 2);
    assert_eq!(served.metric("forebay_config_last_reload_successful"), 0);
    assert!(served.metric("forebay_config_last_reload_timestamp_seconds") >= started);
}

/// Requests without a site have a line of their own; so have all sites beyond a hundred, together. Bytes
/// of clients are never a label.
#[test]
fn labels_are_bounded() {
    let folder = Folder::new();
    folder.write("site/a.txt", "0123456789");
    let mut sites = String::new();
    for number in 0..120 {
        writeln!(sites, "[[site]]\nhosts = [\"site{number}.example\"]\n").unwrap();
    }
    let served = WatchedServer::with(Options::new(folder.join("site")).config(&sites));
    let labels = || {
        let text = served.metrics();
        let lines = text.lines().filter(|line| line.starts_with("forebay_site_body_bytes_total{"));
        lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    ask(&served, &[("site3.example", "/a.txt")]);
    let before = labels();
    assert_eq!(before.len(), 102);
    ask(&served, &[("site3.example", "/a.txt"), ("stranger.example", "/"), ("site3.example", "/")]);
    std::io::Write::write_all(served.client().stream(), b"rubbish\r\n\r\n").unwrap();
    assert!(soon(PATIENCE, || served.metric(&responses("-", "4xx")) >= 1));
    assert_eq!(labels(), before);
    let all = ["-", "other"]
        .map(str::to_owned)
        .into_iter()
        .chain((0..120).map(|n| format!("site{n}.example")));
    let sum: u64 = all.map(|site| served.metric(&responses(&site, "2xx"))).sum();
    assert_eq!(sum, served.metric("forebay_responses_total{class=\"2xx\"}"));
}
