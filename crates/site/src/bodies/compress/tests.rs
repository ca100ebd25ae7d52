//! Compression on demand: which variants are made, for which clients, and how long they stay.

use super::*;
use crate::testing::{Answered, Client, Folder, with_head};
use crate::{ContentSettings, settings};
use proptest::prelude::*;
use std::io::Read;

const ALL: &str = "Accept-Encoding: gzip, deflate, br, zstd\r\n";

/// A text that becomes much smaller.
fn text() -> String {
    (0..500).map(|n| format!("<p>Line {n} of a page about rivers, dams and basins.\n")).collect()
}

fn decode(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        "gzip" => drop(flate2::read::GzDecoder::new(body).read_to_end(&mut out).unwrap()),
        "br" => drop(brotli::Decompressor::new(body, 4096).read_to_end(&mut out).unwrap()),
        "zstd" => out = zstd::decode_all(body).unwrap(),
        _ => out = body.to_vec(),
    }
    out
}

fn coding(answered: &Answered) -> &str {
    answered.field("Content-Encoding").unwrap_or("identity")
}

#[test]
fn types_that_become_smaller() {
    for (name, expected) in [
        ("text/html; charset=utf-8", true),
        ("TEXT/PLAIN", true),
        ("text/event-stream", false),
        ("application/json; charset=utf-8", true),
        ("application/ld+json", true),
        ("image/svg+xml; charset=utf-8", true),
        ("application/wasm", true),
        ("font/ttf", true),
        ("font/woff2", false),
        ("image/png", false),
        ("video/mp4", false),
        ("application/gzip", false),
        ("application/octet-stream", false),
        ("", false),
    ] {
        assert_eq!(is_compressible(name), expected, "{name}");
    }
}

#[test]
fn each_coding_is_made_once_and_says_what_it_is() {
    let folder = Folder::new();
    folder.write("page.html", text());
    let mut client = Client::new(&folder);
    let plain = client.get("/page.html");
    assert_eq!(plain.field("Vary"), Some("Accept-Encoding"));
    let before = client.content.figures().bytes;
    let mut tags = vec![plain.field("ETag").unwrap().to_owned()];
    for name in ["br", "zstd", "gzip"] {
        let fields = format!("Accept-Encoding: {name}\r\n");
        let first = client.get_with("/page.html", &fields);
        assert_eq!((first.status, coding(&first)), (200, name));
        assert_eq!(first.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(first.field("Content-Type"), plain.field("Content-Type"));
        assert_eq!(first.field("Content-Length"), Some(first.body.len().to_string().as_str()));
        assert!(first.body.len() * 4 < plain.body.len());
        assert!(decode(name, &first.body) == plain.body);
        let second = client.get_with("/page.html", &fields);
        assert_eq!((&second.head, second.jobs), (&first.head, 0));
        assert!(second.body == first.body);
        let head = client.ask("HEAD", "/page.html", &fields);
        assert_eq!(head.head, first.head);
        let tag = first.field("ETag").unwrap().to_owned();
        let since = format!("{fields}If-None-Match: {tag}\r\n");
        let not_modified = client.get_with("/page.html", &since);
        assert_eq!((not_modified.status, not_modified.field("ETag")), (304, Some(tag.as_str())));
        assert!(!tags.contains(&tag) && tag.starts_with('"'), "{tag}");
        tags.push(tag);
    }
    let grown = client.content.figures().bytes - before;
    assert!((1000..40_000).contains(&grown), "{grown}");
    assert_eq!(client.get_with("/page.html", ALL).field("ETag"), Some(tags[1].as_str()));
}

#[test]
fn a_range_is_one_of_the_coded_bytes() {
    let folder = Folder::new();
    folder.write("page.html", text());
    let mut client = Client::new(&folder);
    let whole = client.get_with("/page.html", ALL);
    let part = client.get_with("/page.html", &format!("{ALL}Range: bytes=10-19\r\n"));
    assert_eq!((part.status, coding(&part)), (206, "br"));
    assert!(part.body == whole.body[10..20]);
    assert_eq!(part.field("ETag"), whole.field("ETag"));
}

#[test]
fn a_loop_finds_what_another_has_had_made() {
    let folder = Folder::new();
    folder.write("page.html", text());
    let mut client = Client::new(&folder);
    let mut other = client.beside();
    other.get("/page.html");
    let made = client.get_with("/page.html", ALL);
    let found = other.get_with("/page.html", ALL);
    assert_eq!((found.jobs, found.head), (0, made.head));
}

#[test]
fn what_was_made_goes_with_the_answer() {
    let folder = Folder::new();
    folder.write("page.html", text());
    let mut client = Client::new(&folder);
    client.get_with("/page.html", ALL);
    let other = text().replace("rivers", "lakes");
    folder.replace("page.html", &other);
    client.until("/page.html", |answered| answered.body == other.as_bytes());
    let answered = client.get_with("/page.html", ALL);
    assert_eq!(coding(&answered), "br");
    assert!(decode("br", &answered.body) == other.as_bytes());
}

/// A body that does not become smaller, is too small, or is no text is sent as it is, and is tried
/// once.
#[test]
fn some_answers_stay_as_they_are() {
    let folder = Folder::new();
    folder.write("small.txt", "a".repeat(1023));
    folder.write("photo.png", text());
    folder.write("noise.txt", noise(20_000));
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].compress_bytes = 30_000;
    folder.write("large.txt", "a".repeat(30_001));
    folder.write("large.png", "a".repeat(30_001));
    let mut client = Client::with(settings);
    for (target, vary) in [
        ("/small.txt", None),
        ("/photo.png", None),
        ("/large.txt", None),
        ("/noise.txt", Some("Accept-Encoding")),
    ] {
        for _ in 0..2 {
            let answered = client.get_with(target, ALL);
            assert_eq!((coding(&answered), answered.field("Vary")), ("identity", vary), "{target}");
        }
        assert_eq!(client.get_with(target, ALL).jobs, 0, "{target}");
    }
    client.get("/large.png");
    assert_eq!(client.content.figures().uncompressed, 1, "large.txt alone was stopped");
}

/// Compression has a memory bound of its own: a file that is sent from the disk is read for it.
#[test]
fn a_file_that_is_not_kept_in_memory_is_compressed() {
    let folder = Folder::new();
    let script = text().repeat(4);
    folder.write("app.js", &script);
    folder.write("noise.txt", noise(50_000));
    let mut settings = ContentSettings::new(folder.path());
    settings.cache.file_bytes = 30_000;
    let mut client = Client::with(settings);
    let plain = client.get("/app.js");
    assert_eq!((plain.field("Vary"), plain.text()), (Some("Accept-Encoding"), script.as_str()));
    assert_eq!(client.content.figures().body_bytes, 0, "it is sent from the disk");
    for name in ["br", "zstd", "gzip"] {
        let fields = format!("Accept-Encoding: {name}\r\n");
        let first = client.get_with("/app.js", &fields);
        assert_eq!((first.status, coding(&first), first.jobs), (200, name, 2));
        assert!(decode(name, &first.body) == script.as_bytes());
        assert_eq!(first.field("Vary"), Some("Accept-Encoding"));
        assert_ne!(first.field("ETag"), plain.field("ETag"));
        let second = client.get_with("/app.js", &fields);
        assert_eq!((second.head, second.jobs), (first.head, 0));
        let part = client.get_with("/app.js", &format!("{fields}Range: bytes=5-9\r\n"));
        assert!(part.status == 206 && part.body == first.body[5..10]);
    }
    assert_eq!(client.get("/app.js").text(), script);
    assert_eq!(client.content.figures().body_bytes, 0, "what was read is let go of");
    let noise = client.get_with("/noise.txt", ALL);
    assert_eq!((coding(&noise), noise.field("Vary")), ("identity", Some("Accept-Encoding")));
    assert_eq!(client.get_with("/noise.txt", ALL).jobs, 0);
    let other = script.replace("rivers", "lakes");
    folder.replace("app.js", &other);
    client.until_with("/app.js", ALL, |answered| {
        coding(answered) == "br" && decode("br", &answered.body) == other.as_bytes()
    });
}

/// Without memory for what is read nothing is compressed, and later it is.
#[test]
fn a_file_is_compressed_when_there_is_room_to_read_it() {
    let folder = Folder::new();
    folder.write("app.js", text().repeat(4));
    let mut settings = ContentSettings::new(folder.path());
    settings.cache.file_bytes = 30_000;
    settings.cache.in_flight_bytes = 0;
    settings.cache.bytes = 4 << 20;
    let mut client = Client::with(settings);
    let all = client.content.memory_budget.take(4 << 20).unwrap();
    let plain = client.get_with("/app.js", ALL);
    assert_eq!((coding(&plain), plain.field("Vary")), ("identity", Some("Accept-Encoding")));
    drop(all);
    assert_eq!(coding(&client.get_with("/app.js", ALL)), "br");
}

#[test]
fn the_cache_bounds_what_is_compressed() {
    let folder = Folder::new();
    folder.write("page.html", text());
    let mut settings = ContentSettings::new(folder.path());
    settings.cache.bytes = 16 * 20_000;
    let mut client = Client::with(settings);
    let plain = client.get_with("/page.html", ALL);
    assert_eq!((coding(&plain), plain.field("Vary")), ("identity", None));
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn it_can_be_switched_off() {
    let folder = Folder::new();
    folder.write("page.html", text());
    let mut off = ContentSettings::new(folder.path());
    off.sites[0].compress = Vec::new();
    let mut uncached = ContentSettings::new(folder.path());
    uncached.cache = settings::CacheSettings { bytes: 0, ..uncached.cache };
    for settings in [off, uncached] {
        let answered = Client::with(settings).get_with("/page.html", ALL);
        assert_eq!((coding(&answered), answered.field("Vary")), ("identity", None));
    }
    let mut gzip = ContentSettings::new(folder.path());
    gzip.sites[0].compress = vec![Coding::Gzip];
    assert_eq!(coding(&Client::with(gzip).get_with("/page.html", ALL)), "gzip");
}

#[test]
fn a_precompressed_file_goes_first() {
    let folder = Folder::new();
    folder.write("page.html", text());
    folder.write("page.html.gz", "a file");
    let mut client = Client::new(&folder);
    for (accepted, expected) in [
        ("gzip, br", "gzip"),
        ("gzip;q=0.5, br", "br"),
        ("br, identity", "br"),
        ("gzip", "gzip"),
        ("zstd", "zstd"),
    ] {
        let answered = client.get_with("/page.html", &format!("Accept-Encoding: {accepted}\r\n"));
        assert_eq!(coding(&answered), expected, "{accepted}");
        if expected == "gzip" {
            assert_eq!(answered.text(), "a file");
        }
    }
}

/// RFC 9110 §12.5.3, with br, zstd and gzip in this order and nothing made yet.
#[test]
fn the_client_chooses_and_the_order_breaks_ties() {
    let folder = Folder::new();
    folder.write("page.html", text());
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, zstd", Some("zstd")),
        ("GZIP", Some("gzip")),
        ("*", Some("br")),
        ("br;q=0.5, gzip", Some("gzip")),
        ("br;q=0, *", Some("zstd")),
        ("identity", Some("identity")),
        ("identity;q=0.5, br;q=0.4", Some("identity")),
        ("identity, br", Some("br")),
        ("deflate", Some("identity")),
        ("", Some("identity")),
        ("identity;q=0", None),
        ("*;q=0", None),
        ("*;q=0, gzip", Some("gzip")),
    ] {
        let mut client = Client::new(&folder);
        let answered = client.get_with("/page.html", &format!("Accept-Encoding: {accepted}\r\n"));
        match expected {
            Some(expected) => assert_eq!(coding(&answered), expected, "{accepted}"),
            None => assert_eq!(answered.status, 406, "{accepted}"),
        }
    }
}

/// The next best coding is tried if br does not help, and then the identity is sent.
#[test]
fn the_choice_does_not_depend_on_what_was_made() {
    let on_demand = OnDemand::new(
        &[Coding::Br, Coding::Zstd, Coding::Gzip],
        &[Coding::Identity],
        "text/plain",
        5000,
    )
    .unwrap();
    let files = [(Coding::Identity, 5000)];
    let choose = |accepted: &str| {
        let fields = format!("Accept-Encoding: {accepted}\r\n");
        with_head(&fields, |head| on_demand.choose(&Preference::of(head), files.into_iter()))
    };
    assert_eq!(choose("gzip, br"), Some(CodingChoice::Make(0)));
    on_demand.made[0].set(None).unwrap();
    assert_eq!(choose("gzip, br"), Some(CodingChoice::Make(2)));
    on_demand.made[2].set(None).unwrap();
    assert_eq!(choose("gzip, br"), Some(CodingChoice::File(Coding::Identity)));
    assert_eq!(choose("gzip, zstd"), Some(CodingChoice::Make(1)));
    assert_eq!(choose("gzip, identity;q=0"), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn what_is_compressed_is_the_same_again(words in prop::collection::vec("[a-e]{1,6}", 0..2000)) {
        let body = words.join(" ").into_bytes();
        for coding in [Coding::Br, Coding::Zstd, Coding::Gzip] {
            let coded = compress(coding, &body).unwrap();
            prop_assert!(decode(coding.as_str(), &coded) == body);
        }
    }
}
