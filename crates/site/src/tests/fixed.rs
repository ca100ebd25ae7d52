//! Answers that a keeper gives in this server's place: the same bytes, as long as the cache would give
//! them.

use crate::answering::fixed::{FixedAnswer, FixedForm, NotFixed};
use crate::rules::{AccessRule, ErrorPage, FieldName, FieldValue, HeaderRule, Scope};
use crate::testing::{Client, Folder, with_head};
use crate::{ContentSettings, HotAnswer, LetGo, SiteSettings, ToHttps};
use forebay_http::coding::{Coding, Preference};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// `Date` and the empty line behind it.
const ADDED: usize = 39;
const MOST: usize = 1448;

/// Asks until the path counts as asked for again and again.
fn hot(client: &mut Client, path: &str) -> Option<HotAnswer> {
    client.site.note_hot(true);
    (0..4).find_map(|_| {
        client.get(path);
        client.site.take_hot()
    })
}

fn fixed(client: &mut Client, path: &str) -> Result<FixedAnswer, NotFixed> {
    hot(client, path).expect("it is asked for again").fixed(ADDED, MOST)
}

/// A field in all answers.
fn header(name: &str, value: &str) -> HeaderRule {
    let field = (FieldName::parse(name).unwrap(), FieldValue::parse(value).unwrap());
    HeaderRule::new(None, None, vec![field], Vec::new()).unwrap()
}

/// A site with these settings besides its root.
fn client(folder: &Folder, change: impl FnOnce(&mut SiteSettings)) -> Client {
    let mut settings = ContentSettings::new(folder.path());
    change(&mut settings.sites[0]);
    Client::with(settings)
}

/// Values of Accept-Encoding; `None` leaves the field out.
const ACCEPTED: [Option<&str>; 18] = [
    None,
    Some(""),
    Some("gzip, deflate, br, zstd"),
    Some("gzip, deflate"),
    Some("gzip"),
    Some("x-gzip"),
    Some("br"),
    Some("zstd"),
    Some("identity"),
    Some("identity, gzip"),
    Some("identity, br"),
    Some("gzip, zstd, identity"),
    Some("gzip;q=0.5, br;q=0.4"),
    Some("*"),
    Some("br;q=0, *"),
    Some("identity;q=0.2, gzip;q=0.1"),
    Some("identity;q=0"),
    Some("*;q=0, gzip;q=0.1"),
];

/// The form that a client gets by the rules of [`FixedAnswer`].
fn wanted<'f>(fixed: &'f FixedAnswer, field: &str) -> Option<&'f FixedForm> {
    let preference = with_head(field, Preference::of);
    let liked = |form: &&FixedForm| preference.weight(form.coding);
    let most = fixed.forms.iter().filter_map(|form| liked(&form)).max()?;
    fixed.forms.iter().find(|form| liked(form) == Some(most))
}

#[test]
fn the_bytes_are_those_that_the_server_sends() {
    let folder = Folder::new();
    let text = "a line of text ".repeat(60);
    folder.write("page.html", &text);
    for (name, body) in [("page.html.br", "short"), ("page.html.gz", "longer than br")] {
        folder.write(name, body);
    }
    folder.write("plain.bin", "bytes");
    folder.write("dir/index.html", "index");
    let mut client = client(&folder, |site| {
        site.headers.push(header("X-A", "b"));
    });
    for path in ["/page.html", "/plain.bin", "/dir/"] {
        let fixed = fixed(&mut client, path).unwrap();
        for value in ACCEPTED {
            let field = value.map_or_else(String::new, |it| format!("Accept-Encoding: {it}\r\n"));
            let form = wanted(&fixed, &field);
            let answered = client.get_with(path, &field);
            let Some(bytes) = form.map(|form| form.bytes.as_ref().unwrap()) else {
                assert_eq!(answered.status, 406, "{path} {field}");
                continue;
            };
            let date = answered.field("Date").unwrap();
            let head = std::str::from_utf8(&bytes.head).unwrap();
            assert_eq!(answered.head, format!("{head}Date: {date}\r\n\r\n"), "{path} {field}");
            assert_eq!(answered.body, *bytes.body, "{path} {field}");
            let tag = std::str::from_utf8(&bytes.tag).unwrap();
            assert_eq!(answered.field("ETag"), Some(tag));
            let again = client.get_with(path, &format!("{field}If-None-Match: {tag}\r\n"));
            let head = std::str::from_utf8(&bytes.not_modified).unwrap();
            assert_eq!(again.head, format!("{head}Date: {date}\r\n\r\n"), "{path} {field}");
        }
    }
}

#[test]
fn what_must_be_made_is_left_to_the_server_until_it_is_there() {
    let folder = Folder::new();
    folder.write("page.html", "a line of text ".repeat(80));
    let mut client = Client::new(&folder);
    let fixed_br = |client: &mut Client| {
        let fixed = fixed(client, "/page.html").unwrap();
        let has = |form: &FixedForm| (form.coding, form.bytes.is_some());
        fixed.forms.iter().map(has).collect::<Vec<_>>()
    };
    // 1,200 bytes and the head are more than a segment in identity, and less in a coding
    assert_eq!(fixed(&mut client, "/page.html"), Err(NotFixed::Large(MOST)));
    client.get_with("/page.html", "Accept-Encoding: gzip, br\r\n");
    let mut beside = client.beside();
    let expected = [
        (Coding::Br, true),
        (Coding::Zstd, false),
        (Coding::Gzip, false),
        (Coding::Identity, false),
    ];
    assert_eq!(fixed_br(&mut beside), expected);
}

#[test]
fn what_hangs_on_more_is_told() {
    let folder = Folder::new();
    folder.write("a", "a");
    folder.write("large", "a".repeat(MOST));
    folder.write("404.html", "none");
    folder.write("list/a", "a");
    folder.write_now("young", "a");
    let expect = |path: &str, why: NotFixed, change: &dyn Fn(&mut SiteSettings)| {
        let mut client = client(&folder, change);
        assert_eq!(fixed(&mut client, path), Err(why), "{path}");
    };
    expect("/large", NotFixed::Large(MOST), &|_| {});
    expect("/none", NotFixed::Failure(404), &|_| {});
    expect("/none", NotFixed::Failure(404), &|site| {
        site.errors.push(ErrorPage::parse("404", "/404.html").unwrap());
    });
    expect("/list", NotFixed::Redirect, &|_| {});
    expect("/list/", NotFixed::List, &|site| site.listing.push(Scope::any()));
    expect("/a", NotFixed::Guarded, &|site| {
        site.access.push(AccessRule {
            paths: Scope::any().into(),
            allow: Vec::new(),
            deny: Vec::new(),
            conditions: Default::default(),
            refusal: None,
        });
    });
    expect("/a", NotFixed::Variables, &|site| site.headers.push(header("X-C", "$client")));
    let mut young = Client::new(&folder);
    assert_eq!(fixed(&mut young, "/young"), Err(NotFixed::Young));
    // such an answer is not even noted
    let mut to_https = client(&folder, |site| {
        site.to_https = Some(ToHttps { status: 308, port: 443 });
    });
    assert!(hot(&mut to_https, "/a").is_none());
}

#[test]
fn it_is_let_go_of_before_the_cache_does() {
    let folder = Folder::new();
    folder.write("a", "before");
    folder.write("b/index.html", "before");
    for (path, file) in [("/a", "a"), ("/b/", "b/index.html")] {
        let mut client = Client::new(&folder);
        let hot = hot(&mut client, path).unwrap();
        assert!(hot.fresh_until_ms() > client.now_ms);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let let_go: LetGo = {
            let (seen, hot) = (Arc::clone(&seen), hot.clone());
            Arc::new(move || seen.lock().unwrap().push(hot.fresh_until_ms()))
        };
        hot.keep(&let_go);
        let released: LetGo = Arc::new(|| panic!("it was released"));
        hot.keep(&released);
        hot.release(&released);
        folder.replace(file, "after");
        client.until_with(path, "", |answered| answered.text() == "after");
        let seen = seen.lock().unwrap();
        // alive at the first call, and called again when the entry was dead
        assert!(seen[0] > 0 && seen.last() == Some(&0), "{seen:?}");
        assert_eq!(hot.fresh_until_ms(), 0);
    }
}

#[test]
fn what_is_evicted_or_flushed_is_let_go_of() {
    let folder = Folder::new();
    folder.write("a", "a");
    let mut client = Client::new(&folder);
    let hot = hot(&mut client, "/a").unwrap();
    let called = Arc::new(AtomicU64::new(0));
    let of_closure = Arc::clone(&called);
    hot.keep(&(Arc::new(move || _ = of_closure.fetch_add(1, SeqCst)) as LetGo));
    client.content.store.flush(0);
    assert_eq!((called.load(SeqCst), hot.fresh_until_ms()), (2, 0));
}
