//! Tags and dates of files: the same bytes have the same tag, and other bytes have another, whatever the
//! file system reports of them and however they are sent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::isolated::UNHURRIED;
use forebay_tests::answer::Answer;
use forebay_tests::faults::site::{Folder, counting};
use forebay_tests::faults::soon;
use forebay_tests::wire::{PATIENCE, exchange};
use forebay_tests::{ISOLATED, Options, Server, on_each_engine, on_isolated};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

on_each_engine!(
    other_bytes_have_another_tag,
    a_large_file_whose_time_was_put_back_has_another_tag,
    a_file_has_one_tag_on_every_machine_and_way,
    a_time_that_images_have_is_no_date,
    a_compressed_picture_is_in_its_coding,
);

on_isolated!(
    other_bytes_have_another_tag,
    a_large_file_whose_time_was_put_back_has_another_tag,
    a_file_has_one_tag_on_every_machine_and_way,
    a_time_that_images_have_is_no_date,
    a_compressed_picture_is_in_its_coding,
);

/// A size beyond `cache.file_bytes`.
const LARGE_BYTES: usize = 700_000;

fn serve(folder: &Folder, engine: &str, lines: &str) -> Server {
    let lines = if engine == ISOLATED { format!("{UNHURRIED}{lines}") } else { lines.to_owned() };
    Server::start(&Options::new(folder.join("site")).engine(engine).config(&lines))
}

fn get(server: &Server, path: &str, fields: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    let bytes = exchange(server.addr(), request.as_bytes());
    let (mut answer, head_len) = Answer::parse_head(&bytes).unwrap().unwrap();
    answer.body = bytes[head_len..].to_vec();
    answer
}

fn tag(answer: &Answer) -> String {
    answer.value("ETag").unwrap().to_owned()
}

/// Writes into the existing file, and restores its time.
fn write_in_place(folder: &Folder, name: &str, bytes: &[u8], then: SystemTime) {
    let path = folder.join(name);
    let mut file = File::options().write(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_modified(then).unwrap();
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Asks until the file has these bytes.
fn until_it_is(server: &Server, path: &str, bytes: &[u8]) -> Answer {
    let mut last = None;
    let is_it = || {
        let answer = get(server, path, "");
        let is_it = answer.body == bytes;
        last = Some(answer);
        is_it
    };
    assert!(soon(PATIENCE, is_it), "{path} never came to have them");
    last.unwrap()
}

fn other_bytes_have_another_tag(engine: &str) {
    let folder = Folder::new();
    folder.write("site/a", "first");
    write_in_place(&folder, "site/a", b"first", at(1_000_000_000));
    let server = serve(&folder, engine, "");
    let first = tag(&get(&server, "/a", ""));
    assert!(first.starts_with('"'), "{first}");
    let same = get(&server, "/a", &format!("If-None-Match: {first}\r\n"));
    assert_eq!((same.status, tag(&same)), (304, first.clone()), "{engine}");
    write_in_place(&folder, "site/a", b"other", at(1_000_000_000));
    let other = tag(&until_it_is(&server, "/a", b"other"));
    assert!(other.starts_with('"') && other != first, "{engine}: {first}, {other}");
    for fields in
        [format!("If-None-Match: {first}\r\n"), format!("Range: bytes=1-\r\nIf-Range: {first}\r\n")]
    {
        let answer = get(&server, "/a", &fields);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"other"[..]), "{engine} {fields}");
    }
    let part = get(&server, "/a", &format!("Range: bytes=1-\r\nIf-Range: {other}\r\n"));
    assert_eq!((part.status, &part.body[..]), (206, &b"ther"[..]), "{engine}");
    // the same bytes at another time
    write_in_place(&folder, "site/a", b"first", at(1_100_000_000));
    assert_eq!(tag(&until_it_is(&server, "/a", b"first")), first, "{engine}");
}

fn a_large_file_whose_time_was_put_back_has_another_tag(engine: &str) {
    let folder = Folder::new();
    let (first, mut other) = (counting(LARGE_BYTES), counting(LARGE_BYTES));
    other[LARGE_BYTES - 1] ^= 1;
    folder.write("site/a", &first);
    write_in_place(&folder, "site/a", &first, at(1_000_000_000));
    for lines in ["", "etag = \"content\"", "etag = \"stat\""] {
        let server = serve(&folder, engine, lines);
        // a tag made of size and times is weak for two seconds
        let is_strong = || tag(&get(&server, "/a", "")).starts_with('"');
        assert!(soon(PATIENCE, is_strong), "{engine} {lines}");
        let before = tag(&get(&server, "/a", ""));
        write_in_place(&folder, "site/a", &other, at(1_000_000_000));
        let after = tag(&until_it_is(&server, "/a", &other));
        assert_ne!(before, after.trim_start_matches("W/"), "{engine} {lines}");
        let fields = format!("Range: bytes=699999-\r\nIf-Range: {before}\r\n");
        let answer = get(&server, "/a", &fields);
        assert_eq!((answer.status, answer.body == other), (200, true), "{engine} {lines}");
        write_in_place(&folder, "site/a", &first, at(1_000_000_000));
    }
}

fn a_file_has_one_tag_on_every_machine_and_way(engine: &str) {
    let [one, two] = [(), ()].map(|()| Folder::new());
    let text = "a line of a text that is compressed\n".repeat(6000);
    for (number, folder) in [&one, &two].into_iter().enumerate() {
        // other inodes and times, and other files beside them
        (0..number).for_each(|at| drop(folder.write(&format!("site/{at}"), "")));
        folder.write("site/small.txt", "small");
        folder.write("site/text.txt", &text);
        folder.write("site/text.txt.gz", b"taken for one");
        folder.write("site/large.bin", counting(LARGE_BYTES));
        for name in ["small.txt", "text.txt", "text.txt.gz", "large.bin"] {
            let then = at(1_000_000_000 + number as u64);
            File::open(folder.join(&format!("site/{name}"))).unwrap().set_modified(then).unwrap();
        }
    }
    let tags = |folder: &Folder, lines: &str, codings: &[&str]| {
        let server = serve(folder, engine, lines);
        let mut tags = Vec::new();
        for coding in codings {
            let accept = format!("Accept-Encoding: {coding}\r\n");
            tags.push(tag(&get(&server, "/text.txt", &accept)));
        }
        tags.push(tag(&get(&server, "/small.txt", "")));
        tags.push(tag(&get(&server, "/large.bin", "")));
        tags
    };
    let all = ["identity", "gzip", "br", "zstd"];
    let content = tags(&one, "etag = \"content\"", &all);
    assert!(content.iter().all(|tag| tag.starts_with('"')), "{engine} {content:?}");
    let mut each = content.clone();
    each.sort();
    each.dedup();
    assert_eq!(each.len(), content.len(), "{engine} {content:?}");
    assert_eq!(tags(&two, "etag = \"content\"", &all), content, "{engine}");
    let auto = tags(&two, "", &all);
    assert_eq!(auto[..5], content[..5], "{engine}: smaller files are the same by default");
    // without a cache nothing is compressed; with a small one the text is sent from the disk
    for lines in ["cache.bytes = \"0B\"", "cache.bytes = \"1MiB\"", "cache.in_flight = \"0B\""] {
        let here = tags(&two, &format!("etag = \"content\"\n{lines}"), &all[..2]);
        let known = [&content[..2], &content[4..]].concat();
        assert_eq!(here, known, "{engine} {lines}");
    }
    let weak = tags(&one, "etag = \"weak\"", &all);
    assert!(weak.iter().all(|tag| tag.starts_with("W/")), "{engine} {weak:?}");
}

fn a_time_that_images_have_is_no_date(engine: &str) {
    let folder = Folder::new();
    for seconds in [0, 1, 2] {
        let name = format!("site/{seconds}");
        folder.write(&name, "text");
        File::open(folder.join(&name)).unwrap().set_modified(at(seconds)).unwrap();
    }
    let server = serve(&folder, engine, "");
    let date = "Thu, 01 Jan 1970 00:00:02 GMT";
    let since = format!("If-Modified-Since: {date}\r\n");
    for path in ["/0", "/1"] {
        let plain = get(&server, path, "");
        assert_eq!(plain.value("Last-Modified"), None, "{engine} {path}");
        assert_eq!(get(&server, path, &since).status, 200, "{engine} {path}");
        for seconds in [0, 1] {
            let date = format!("Thu, 01 Jan 1970 00:00:0{seconds} GMT");
            let part = get(&server, path, &format!("Range: bytes=1-\r\nIf-Range: {date}\r\n"));
            assert_eq!(part.status, 200, "{engine} {path} {date}");
            let unmodified = format!("If-Unmodified-Since: {date}\r\n");
            assert_eq!(get(&server, path, &unmodified).status, 200, "{engine} {path} {date}");
        }
        let by_tag = format!("If-None-Match: {}\r\n", tag(&plain));
        assert_eq!(get(&server, path, &by_tag).status, 304, "{engine} {path}");
    }
    assert_eq!(get(&server, "/2", "").value("Last-Modified"), Some(date), "{engine}");
    assert_eq!(get(&server, "/2", &since).status, 304, "{engine}");
}

fn a_compressed_picture_is_in_its_coding(engine: &str) {
    let folder = Folder::new();
    let picture: Vec<u8> = [&[0x1f, 0x8b, 8, 0][..], &counting(5000)].concat();
    folder.write("site/a.svgz", &picture);
    folder.write("site/a.svgz.br", "never");
    folder.write("site/b/a.svgz", &picture);
    folder.age();
    let lines = format!(
        "[[site]]\nhosts = [\"a\"]\nroot = {0:?}\n\
         [[site]]\nhosts = [\"b\"]\nroot = {0:?}\ntypes = {{ svgz = \"application/gzip\" }}",
        folder.join("site")
    );
    let server = serve(&folder, engine, &lines);
    for accept in
        ["", "gzip", "br, gzip;q=0.5", "identity", "gzip;q=0", "*;q=0", "gzip;q=0, identity"]
    {
        let fields = if accept.is_empty() {
            String::new()
        } else {
            format!("Accept-Encoding: {accept}\r\n")
        };
        let answer = get(&server, "/a.svgz", &fields);
        let said = ["Content-Encoding", "Content-Type", "Vary"].map(|name| answer.value(name));
        let expected = [Some("gzip"), Some("image/svg+xml; charset=utf-8"), None];
        assert_eq!((answer.status, said), (200, expected), "{engine} {accept}");
        assert!(answer.body == picture, "{engine} {accept}");
    }
    let whole = get(&server, "/b/a.svgz", "");
    let fields = format!("Range: bytes=0-3\r\nIf-Range: {}\r\n", tag(&whole));
    let part = get(&server, "/b/a.svgz", &fields);
    let coding = part.value("Content-Encoding");
    assert_eq!((part.status, coding, &part.body[..]), (206, Some("gzip"), &picture[..4]));
    let request = "GET /a.svgz HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n";
    let bytes = exchange(server.addr(), request.as_bytes());
    let (other, _) = Answer::parse_head(&bytes).unwrap().unwrap();
    let said = ["Content-Encoding", "Content-Type"].map(|name| other.value(name));
    assert_eq!(said, [None, Some("application/gzip")], "{engine}");
}
