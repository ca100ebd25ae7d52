//! Status, fields and body: methods, variants, conditions, the cache's part in it.

use crate::cache::entry_key::KeyRef;
use crate::rules::ErrorPage;
use crate::testing::{Client, Folder};
use crate::{ContentSettings, settings};
use std::sync::{Arc, Weak};

#[test]
fn a_file_is_loaded_once_and_then_answered_from_memory() {
    let folder = Folder::new();
    folder.write("page.html", "<p>hello");
    let mut client = Client::new(&folder);
    let first = client.get("/page.html");
    assert!(first.is_miss);
    assert_eq!(first.text(), "<p>hello");
    let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\
        Server: Forebay\r\nCache-Control: no-cache\r\n\
        Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert!(first.head.starts_with(expected), "{}", first.head);
    assert_eq!(first.field("Content-Length"), Some("8"));
    assert_eq!(first.field("Accept-Ranges"), Some("bytes"));
    assert_eq!(first.field("Vary"), None);
    let second = client.get("/page.html");
    assert!(!second.is_miss);
    assert_eq!((second.head, second.body), (first.head, first.body));
    // Another spelling of the same path comes from the shared cache.
    assert!(!client.get("//x/../%70age.html").is_miss);
    assert_eq!(client.content.figures().entries, 1);
}

#[test]
fn what_is_asked_for_once_is_held_by_the_shared_cache_alone() {
    let folder = Folder::new();
    folder.write("page.html", "<p>hello");
    let mut client = Client::new(&folder);
    let held = |client: &Client| {
        let asked = KeyRef { site: 0, path: b"/page.html" };
        // but for the one that is counted with
        client.content.cached(asked).map_or(0, |entry| Arc::strong_count(&entry) - 1)
    };
    for holders in [1, 2, 2] {
        client.get("/page.html");
        assert_eq!(held(&client), holders);
    }
}

#[test]
fn what_the_shared_cache_lets_go_of_leaves_a_loops_own_table() {
    let folder = Folder::new();
    let mut settings = ContentSettings::new(folder.path());
    settings.cache.bytes = 1 << 20;
    // before anything is watched: a late event would kill an answer, which then waits for its time
    let paths: Vec<_> = (0..200).map(|number| format!("/{number}.bin")).collect();
    for path in &paths {
        folder.write(&path[1..], vec![1; 32 << 10]);
    }
    let mut client = Client::with(settings);
    let mut alive = Vec::new();
    for path in &paths {
        for _ in 0..2 {
            client.get(path);
        }
        let entry = client.content.cached(KeyRef { site: 0, path: path.as_bytes() });
        alive.extend(entry.as_ref().map(Arc::downgrade));
        // a turn, in no time
        client.pass(0);
    }
    let bytes = alive.iter().filter_map(Weak::upgrade).map(|entry| entry.weight(0)).sum::<u64>();
    assert!(bytes <= (1 << 20) * 3 / 2, "{bytes}");
}

/// The `Reply` drops the body of an answer to HEAD; the site writes the same head.
#[test]
fn head_has_the_same_fields() {
    let folder = Folder::new();
    folder.write("page.html", "<p>hello");
    folder.write("large.bin", vec![1; 100_000]);
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    let mut client = Client::new(&folder);
    for target in ["/page.html", "/large.bin", "/missing", "/dir?q"] {
        let get = client.get(target);
        let head = client.ask("HEAD", target, "");
        assert_eq!(head.head, get.head);
    }
}

#[test]
fn other_methods_are_refused_and_options_answered() {
    let folder = Folder::new();
    let mut client = Client::new(&folder);
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
        let refused = client.ask(method, "/", "");
        assert_eq!(refused.status, 405, "{method}");
        assert_eq!(refused.field("Allow"), Some("GET, HEAD, OPTIONS"));
    }
    assert_eq!(client.ask("BREW", "/", "").status, 501);
    for target in ["*", "/anything"] {
        let options = client.ask("OPTIONS", target, "");
        assert_eq!(options.status, 204);
        assert_eq!(options.field("Allow"), Some("GET, HEAD, OPTIONS"));
        assert_eq!(options.field("Content-Length"), None);
        assert!(options.body.is_empty());
    }
}

#[test]
fn a_directory_answers_with_its_index_or_redirects() {
    let folder = Folder::new();
    folder.write("a b/index.html", "index");
    folder.write("none/x", "x");
    let mut client = Client::new(&folder);
    let index = client.get("/a%20b/");
    assert_eq!((index.status, index.text()), (200, "index"));
    assert_eq!(index.field("Content-Type"), Some("text/html; charset=utf-8"));
    for (target, location) in [
        ("/a%20b", "/a%20b/"),
        ("/a%20b?x=1&y", "/a%20b/?x=1&y"),
        ("//a%20b", "/a%20b/"),
        ("/x/..//none", "/none/"),
    ] {
        let redirect = client.get(target);
        assert_eq!(redirect.status, 301, "{target}");
        assert_eq!(redirect.field("Location"), Some(location));
    }
    assert_eq!(client.get("/none/").status, 404);
    assert_eq!(client.get("/").status, 404);
    assert_eq!(client.get("/none/x/").status, 404);
}

#[test]
fn the_first_index_that_exists_answers() {
    let folder = Folder::new();
    folder.write("home.htm", "second");
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].index = vec!["index.html".into(), "home.htm".into()];
    let mut client = Client::with(settings);
    assert_eq!(client.get("/").text(), "second");
    folder.write("index.html", "first");
    client.until("/", |answered| answered.text() == "first");
}

#[test]
fn the_client_chooses_among_variants() {
    let folder = Folder::new();
    folder.write("a.css", "identity--------");
    folder.write("a.css.br", "brotli");
    folder.write("a.css.zst", "zstandard");
    folder.write("a.css.gz", "gzip");
    let mut client = Client::new(&folder);
    for (accepted, coding, text) in [
        ("", None, "identity--------"),
        ("Accept-Encoding: gzip\r\n", Some("gzip"), "gzip"),
        ("Accept-Encoding: gzip, br\r\n", Some("gzip"), "gzip"),
        ("Accept-Encoding: gzip;q=0.5, br\r\n", Some("br"), "brotli"),
        ("Accept-Encoding: zstd\r\n", Some("zstd"), "zstandard"),
        ("Accept-Encoding: compress\r\n", None, "identity--------"),
    ] {
        let answered = client.get_with("/a.css", accepted);
        assert_eq!(answered.field("Content-Encoding"), coding, "{accepted}");
        assert_eq!(answered.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(answered.field("Content-Type"), Some("text/css; charset=utf-8"));
        assert_eq!(answered.text(), text);
        let etag = answered.field("ETag").unwrap();
        let again = client.get_with("/a.css", &format!("{accepted}If-None-Match: {etag}\r\n"));
        assert_eq!(again.status, 304);
        assert_eq!(again.field("ETag"), Some(etag));
        assert_eq!(again.field("Vary"), Some("Accept-Encoding"));
    }
    assert_eq!(client.get_with("/a.css", "Accept-Encoding: identity;q=0, *;q=0\r\n").status, 406);
    folder.write("plain.css", "p");
    assert_eq!(client.get_with("/plain.css", "Accept-Encoding: identity;q=0\r\n").status, 406);
    assert_eq!(client.get_with("/plain.css", "Accept-Encoding: br;q=0.1\r\n").status, 200);
}

/// The page of an error is sent as it is even to a client that accepts no coding of it.
#[test]
fn an_error_is_itself_whatever_codings_are_accepted() {
    let folder = Folder::new();
    folder.write("404.html", "not here");
    folder.write("plain.css", "p");
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].errors =
        ["404", "406"].map(|status| ErrorPage::parse(status, "/404.html").unwrap()).into();
    let mut client = Client::with(settings);
    for round in 0..2 {
        for accepted in ["identity;q=0", "*;q=0", "br, identity;q=0"] {
            let fields = format!("Accept-Encoding: {accepted}\r\n");
            let missing = client.get_with("/none", &fields);
            assert_eq!((missing.status, missing.text()), (404, "not here"), "{accepted} {round}");
            let unfit = client.get_with("/plain.css", &fields);
            assert_eq!((unfit.status, unfit.text()), (406, "not here"), "{accepted} {round}");
        }
    }
}

#[test]
fn tags_of_variants_differ() {
    let folder = Folder::new();
    folder.write("a", "1");
    folder.write("a.gz", "1");
    let mut client = Client::new(&folder);
    let plain = client.get("/a");
    let gzip = client.get_with("/a", "Accept-Encoding: gzip\r\n");
    assert_ne!(plain.field("ETag"), gzip.field("ETag"));
}

#[test]
fn without_precompressed_siblings_are_not_looked_for() {
    let folder = Folder::new();
    folder.write("a", "plain");
    folder.write("a.gz", "gzip");
    let mut settings = ContentSettings::new(folder.path());
    settings.sites[0].precompressed = false;
    settings.sites[0].server_header = false;
    let mut client = Client::with(settings);
    let answered = client.get_with("/a", "Accept-Encoding: gzip\r\n");
    assert_eq!((answered.text(), answered.field("Vary")), ("plain", None));
    assert_eq!(answered.field("Server"), None);
}

#[test]
fn conditions_decide() {
    let folder = Folder::new();
    folder.write("a", "text");
    let mut client = Client::new(&folder);
    let etag = client.get("/a").field("ETag").unwrap().to_owned();
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (fields, status) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        ("If-None-Match: \"other\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"), 200),
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Match: \"other\"\r\n".to_owned(), 412),
        ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n".to_owned(), 412),
    ] {
        let answered = client.get_with("/a", &fields);
        assert_eq!(answered.status, status, "{fields}");
        assert_eq!(answered.body.is_empty(), status == 304);
    }
}

#[test]
fn what_is_missing_is_remembered_too() {
    let folder = Folder::new();
    let mut client = Client::new(&folder);
    assert!(client.get("/a/b/c").is_miss);
    let again = client.get("/a/b/c");
    assert_eq!((again.status, again.is_miss), (404, false));
    assert!(again.field("Content-Length").is_some());
}

#[test]
fn with_the_cache_off_every_request_goes_to_the_disk() {
    let folder = Folder::new();
    folder.write("a", "1");
    let mut settings = ContentSettings::new(folder.path());
    settings.cache.bytes = 0;
    let mut client = Client::with(settings);
    assert_eq!(client.get("/a").text(), "1");
    folder.write("a", "2");
    let again = client.get("/a");
    assert_eq!((again.text(), again.is_miss), ("2", true));
    assert_eq!(client.content.figures().entries, 0);
}

#[test]
fn a_small_cache_stays_within_its_bound() {
    let folder = Folder::new();
    for number in 0..200 {
        folder.write(&format!("{number}"), vec![b'x'; 10_000]);
    }
    let mut settings = ContentSettings::new(folder.path());
    settings.cache = settings::CacheSettings { bytes: 1 << 20, ..settings.cache };
    let mut client = Client::with(settings);
    for round in 0..3 {
        for number in 0..200 {
            let answered = client.get(&format!("/{number}"));
            assert_eq!(answered.body.len(), 10_000, "{round}");
        }
        client.pass(2000);
    }
    let figures = client.content.figures();
    assert!(figures.bytes <= 1 << 20 && figures.entries > 20, "{figures:?}");
    assert!(figures.evictions > 300, "{figures:?}");
}

#[test]
fn what_has_no_room_in_memory_is_sent_from_the_disk() {
    let folder = Folder::new();
    let content = |name: char| vec![name as u8; 40_000];
    for name in ['a', 'b', 'c'] {
        folder.write(&name.to_string(), content(name));
    }
    let mut settings = ContentSettings::new(folder.path());
    settings.cache =
        settings::CacheSettings { bytes: 0, in_flight_bytes: 100_000, ..settings.cache };
    let mut client = Client::with(settings);
    let memory = |client: &Client| {
        let figures = client.content.figures();
        (figures.body_bytes, figures.crowded)
    };
    let held = ["/a", "/b"].map(|path| client.begin("GET", path, "").0);
    assert_eq!(memory(&client), (80_000, 0));
    assert_eq!(client.get("/c").body, content('c'));
    assert_eq!(memory(&client), (80_000, 1), "it was in memory for nobody");
    drop(held);
    assert_eq!(memory(&client).0, 0);
    for name in ['a', 'c'] {
        assert_eq!(client.get(&format!("/{name}")).body, content(name));
    }
    assert_eq!(memory(&client), (0, 1));
}

#[test]
fn what_had_no_room_comes_into_the_cache_when_there_is_some() {
    let folder = Folder::new();
    for name in ["a", "b"] {
        folder.write(name, vec![b'x'; 60_000]);
    }
    let mut settings = ContentSettings::new(folder.path());
    settings.cache =
        settings::CacheSettings { bytes: 1 << 20, in_flight_bytes: 0, ..settings.cache };
    let mut client = Client::with(settings);
    let most = client.content.memory_budget.take((1 << 20) - 100_000);
    assert_eq!(client.get("/a").body.len(), 60_000);
    assert!(client.get("/b").is_miss && client.get("/b").is_miss, "it is not kept");
    assert_eq!(client.get("/b").body.len(), 60_000);
    drop(most);
    assert!(client.get("/b").is_miss && !client.get("/b").is_miss);
    assert_eq!(client.content.figures().crowded, 3);
}

#[test]
fn descriptors_are_bounded() {
    let folder = Folder::new();
    for number in 0..100 {
        folder.write(&format!("{number}"), vec![b'x'; 5000]);
    }
    let mut settings = ContentSettings::new(folder.path());
    settings.cache = settings::CacheSettings { file_bytes: 100, open_files: 10, ..settings.cache };
    let mut client = Client::with(settings);
    for number in 0..100 {
        assert_eq!(client.get(&format!("/{number}")).body.len(), 5000);
    }
    assert!(client.content.figures().entries <= 10);
}

#[test]
fn a_refusal_is_a_whole_answer() {
    let folder = Folder::new();
    let mut client = Client::new(&folder);
    let mut out = forebay_conn::Out::default();
    let date = forebay_http::date::format(0);
    let mut reply = forebay_conn::Reply::new(&mut out, &date, false);
    client.site.refuse(431, "the request head is too large", &mut reply);
    let text = String::from_utf8(out.bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    assert!(body.contains("The request head is too large"));
}
