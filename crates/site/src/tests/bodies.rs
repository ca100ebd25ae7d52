//! Bodies that are sent piece by piece: ranges, files, what outlives a turn.

use crate::testing::{Client, Folder, run};
use crate::{Body, ContentSettings, settings};
use forebay_conn::Piece;
use forebay_conn::handler::body::BodyRead;
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::path::Path;

const SIZE: usize = 70_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at * 31 % 251) as u8).collect()
}

/// One client that keeps the file in memory, and one that keeps it open.
fn clients(folder: &Folder) -> [Client; 2] {
    folder.write("a.bin", content());
    folder.write("small.bin", &content()[..1000]);
    let mut settings = ContentSettings::new(folder.path());
    let in_memory = Client::with(settings.clone());
    settings.cache = settings::CacheSettings { file_bytes: 10, ..settings.cache };
    [in_memory, Client::with(settings)]
}

#[test]
fn a_large_file_is_sent_whole_from_memory_and_disk() {
    let folder = Folder::new();
    for mut client in clients(&folder) {
        for _ in 0..2 {
            assert!(client.get("/a.bin").body == content());
            assert!(client.get("/small.bin").body == content()[..1000]);
        }
    }
}

#[test]
fn one_range_is_a_slice() {
    let folder = Folder::new();
    for mut client in clients(&folder) {
        for (range, start, end) in [
            ("0-0", 0, 1),
            ("100-99999999", 100, SIZE),
            ("-5", SIZE - 5, SIZE),
            ("30000-65000", 30_000, 65_001),
        ] {
            let answered = client.get_with("/a.bin", &format!("Range: bytes={range}\r\n"));
            assert_eq!(answered.status, 206);
            let expected = format!("bytes {start}-{}/{SIZE}", end - 1);
            assert_eq!(answered.field("Content-Range"), Some(expected.as_str()));
            let len = (end - start).to_string();
            assert_eq!(answered.field("Content-Length"), Some(len.as_str()));
            assert_eq!(answered.field("Content-Type"), Some("application/octet-stream"));
            assert!(answered.field("ETag").is_some() && answered.field("Last-Modified").is_some());
            assert!(answered.body == content()[start..end], "{range}");
        }
    }
}

#[test]
fn a_range_outside_is_refused_and_some_are_ignored() {
    let folder = Folder::new();
    let [mut client, _] = clients(&folder);
    let answered = client.get_with("/a.bin", "Range: bytes=70000-\r\n");
    assert_eq!(answered.status, 416);
    assert_eq!(answered.field("Content-Range"), Some("bytes */70000"));
    for fields in ["Range: lines=1-2\r\n", "Range: bytes=5-2\r\n"] {
        assert_eq!(client.get_with("/a.bin", fields).status, 200, "{fields}");
    }
    assert_eq!(client.ask("HEAD", "/a.bin", "Range: bytes=0-1\r\n").status, 200);
}

#[test]
fn if_range_holds_only_for_the_same_file() {
    let folder = Folder::new();
    let [mut client, _] = clients(&folder);
    let etag = client.get("/a.bin").field("ETag").unwrap().to_owned();
    let range = "Range: bytes=0-1\r\n";
    let fields = format!("{range}If-Range: {etag}\r\n");
    assert_eq!(client.get_with("/a.bin", &fields).status, 206);
    let fields = format!("{range}If-Range: \"other\"\r\n");
    assert_eq!(client.get_with("/a.bin", &fields).status, 200);
}

/// Takes a multipart body apart, as a client would.
fn parts(body: &[u8], boundary: &str) -> Vec<(String, Vec<u8>)> {
    let mark = format!("--{boundary}");
    let mut rest = body.strip_prefix(mark.as_bytes()).expect("the first boundary");
    let mut parts = Vec::new();
    loop {
        if rest == b"--\r\n" {
            return parts;
        }
        rest = rest.strip_prefix(b"\r\n").expect("the end of the boundary");
        let head_end = rest.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(rest[..head_end].to_vec()).unwrap();
        rest = &rest[head_end + 4..];
        let next = format!("\r\n{mark}");
        let end = rest.windows(next.len()).position(|at| at == next.as_bytes()).unwrap();
        parts.push((head, rest[..end].to_vec()));
        rest = &rest[end + next.len()..];
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn ranges_reproduce_slices(
        starts in prop::collection::btree_set(0..SIZE / 100, 2..8),
        lens in prop::collection::vec(1usize..90, 8),
        most in 1u64..50_000,
    ) {
        thread_local!(static CLIENTS: (Folder, std::cell::RefCell<[Client; 2]>) = {
            let folder = Folder::new();
            let clients = clients(&folder);
            (folder, clients.into())
        });
        let ranges: Vec<(usize, usize)> =
            starts.iter().zip(&lens).map(|(start, len)| (start * 100, start * 100 + len)).collect();
        let list: Vec<_> = ranges.iter().map(|(a, b)| format!("{a}-{}", b - 1)).collect();
        let fields = format!("Range: bytes={}\r\n", list.join(", "));
        CLIENTS.with(|(_, clients)| {
            for client in clients.borrow_mut().iter_mut() {
                let answered = client.get_with("/a.bin", &fields);
                prop_assert_eq!(answered.status, 206);
                let media_type = answered.field("Content-Type").unwrap().to_owned();
                let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
                let len = answered.body.len().to_string();
                prop_assert_eq!(answered.field("Content-Length"), Some(len.as_str()));
                let parts = parts(&answered.body, boundary);
                prop_assert_eq!(parts.len(), ranges.len());
                for ((head, bytes), (start, end)) in parts.iter().zip(&ranges) {
                    let expected = format!("Content-Range: bytes {start}-{}/{SIZE}", end - 1);
                    prop_assert!(head.contains(&expected));
                    prop_assert!(*bytes == content()[*start..*end]);
                }
                // However small the steps are in which it is sent.
                let (mut out, _) = client.begin("GET", "/a.bin", &fields);
                let mut body = out.body.take().unwrap();
                let mut sent = Vec::new();
                client.site.hold(&mut body);
                while client.send(&mut body, most, &mut sent).unwrap() {}
                prop_assert_eq!(sent.len(), answered.body.len());
            }
            Ok(())
        })?;
    }
}

#[test]
fn a_body_that_is_held_outlives_its_entry() {
    let folder = Folder::new();
    for mut client in clients(&folder) {
        client.get("/a.bin");
        let (mut out, _) = client.begin("GET", "/a.bin", "");
        let mut body = out.body.take().unwrap();
        client.site.hold(&mut body);
        let mut sent = Vec::new();
        client.send(&mut body, 1000, &mut sent);
        folder.replace("a.bin", "new");
        client.until("/a.bin", |answered| answered.body == b"new");
        client.pass(5000);
        while client.send(&mut body, 1000, &mut sent).expect("a replaced file is still whole") {}
        assert!(sent == content());
        folder.write("a.bin", content());
        client.until("/a.bin", |answered| answered.body.len() == SIZE);
    }
}

/// Reads the rest of a body in steps of at most `most` bytes; `None` if its file has changed.
fn read_on(client: &mut Client, body: &mut Body, most: usize) -> Option<Vec<u8>> {
    let (mut buffer, mut all) = (vec![0; most], Vec::new());
    loop {
        match client.site.read(body, &mut buffer) {
            BodyRead::Bytes(count) => {
                assert!(count > 0);
                all.extend_from_slice(&buffer[..count]);
            }
            BodyRead::Cold => {
                let job = client.site.warm(body).expect("only files are cold");
                client.site.hold(body);
                run(job);
            }
            BodyRead::Changed => return None,
            BodyRead::End => return Some(all),
        }
    }
}

#[test]
fn what_is_copied_is_what_would_be_sent() {
    let folder = Folder::new();
    for mut client in clients(&folder) {
        client.get("/a.bin");
        for (fields, most) in
            [("", 1 << 20), ("", 16 * 1024), ("", 999), ("Range: bytes=5-9,20000-60000\r\n", 700)]
        {
            let (mut out, _) = client.begin("GET", "/a.bin", fields);
            let mut sent = Vec::new();
            let mut body = out.body.take().unwrap();
            while client.send(&mut body, 1 << 20, &mut sent).unwrap() {}
            let (mut out, _) = client.begin("GET", "/a.bin", fields);
            let read = read_on(&mut client, &mut out.body.take().unwrap(), most).unwrap();
            // boundaries differ
            assert_eq!(read.len(), sent.len());
            assert!(!fields.is_empty() || (read == content() && sent == content()));
        }
    }
}

/// Changes of a file in place: it gets shorter, longer, or has other bytes.
const CHANGES: [fn(&Path); 3] = [
    |path| fs::File::options().write(true).open(path).unwrap().set_len(5).unwrap(),
    |path| fs::File::options().append(true).open(path).unwrap().write_all(b"x").unwrap(),
    |path| fs::write(path, vec![0; SIZE]).unwrap(),
];

#[test]
fn a_file_changed_in_place_while_it_is_copied_is_noticed() {
    let folder = Folder::new();
    let [_, mut client] = clients(&folder);
    for change in CHANGES {
        for before in [0, 1, SIZE - 1] {
            folder.write("a.bin", content());
            client.until("/a.bin", |answered| answered.body == content());
            let (mut out, _) = client.begin("GET", "/a.bin", "");
            let mut body = out.body.take().unwrap();
            client.site.hold(&mut body);
            let mut buffer = vec![0; before];
            while before > 0 && client.site.read(&mut body, &mut buffer) != BodyRead::Bytes(before)
            {
                run(client.site.warm(&body).unwrap());
            }
            change(&folder.path().join("a.bin"));
            assert_eq!(read_on(&mut client, &mut body, 16 * 1024), None, "{before}");
        }
    }
}

#[test]
fn a_file_changed_in_place_while_it_is_sent_is_noticed() {
    let folder = Folder::new();
    let [_, mut client] = clients(&folder);
    for change in CHANGES {
        folder.write("a.bin", content());
        client.until("/a.bin", |answered| answered.body == content());
        let (mut out, _) = client.begin("GET", "/a.bin", "");
        let mut body = out.body.take().unwrap();
        let mut sent = Vec::new();
        assert_eq!(client.send(&mut body, 1000, &mut sent), Some(true));
        client.site.hold(&mut body);
        change(&folder.path().join("a.bin"));
        assert_eq!(client.send(&mut body, 1000, &mut sent), None);
    }
}

#[test]
fn warming_reads_and_changes_nothing() {
    let folder = Folder::new();
    for mut client in clients(&folder) {
        client.get("/a.bin");
        let (mut out, _) = client.begin("GET", "/a.bin", "");
        let mut body = out.body.take().unwrap();
        let job = client.site.warm(&body);
        let is_file = matches!(client.site.piece(&body), Some(Piece::File { .. }));
        assert_eq!(job.is_some(), is_file);
        client.site.hold(&mut body);
        job.map(run);
        let mut sent = Vec::new();
        while client.send(&mut body, 100_000, &mut sent).unwrap() {}
        assert!(sent == content());
    }
}
