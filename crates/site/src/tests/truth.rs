//! An answer is never stale once a change was seen, and never mixes two versions.

use crate::testing::{Client, Folder};
use crate::{ContentSettings, settings};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::Duration;

fn body(text: &str) -> impl Fn(&crate::testing::Answered) -> bool {
    move |answered| answered.status == 200 && answered.text() == text
}

fn status(status: u16) -> impl Fn(&crate::testing::Answered) -> bool {
    move |answered| answered.status == status
}

#[test]
fn every_change_of_a_file_is_seen() {
    let folder = Folder::new();
    folder.write("dir/a", "one");
    let path = folder.path().join("dir/a");
    let mut client = Client::new(&folder);
    assert_eq!(client.get("/dir/a").text(), "one");
    assert!(!client.get("/dir/a").is_miss);
    folder.replace("dir/a", "two");
    client.until("/dir/a", body("two"));
    fs::File::options().append(true).open(&path).unwrap().write_all(b" and more").unwrap();
    client.until("/dir/a", body("two and more"));
    fs::File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
    client.until("/dir/a", body("two"));
    fs::write(&path, "six").unwrap();
    client.until("/dir/a", body("six"));
    fs::remove_file(&path).unwrap();
    client.until("/dir/a", status(404));
    folder.write("dir/a", "again");
    client.until("/dir/a", body("again"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    client.until("/dir/a", status(301));
    // not one for each: a change that is seen before the answer is kept has nothing to invalidate
    assert!(client.content.figures().invalidations >= 1);
    assert_eq!(client.notices.lock().unwrap().len(), 0);
}

#[test]
fn what_was_missing_appears() {
    let folder = Folder::new();
    let mut client = Client::new(&folder);
    for target in ["/a/b/c.html", "/a/b/", "/a/b", "/a"] {
        assert_eq!(client.get(target).status, 404);
    }
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    client.until("/a", status(301));
    client.until("/a/b", status(301));
    folder.write("a/b/c.html", "c");
    folder.write("a/b/index.html", "index");
    client.until("/a/b/c.html", body("c"));
    client.until("/a/b/", body("index"));
}

#[test]
fn precompressed_forms_appear_in_a_directory_that_was_read() {
    let folder = Folder::new();
    for number in 0..100 {
        folder.write(&format!("dir/{number}.bin"), "plain");
    }
    folder.write("dir/7.bin.br", "br");
    let mut client = Client::new(&folder);
    let accepts = "Accept-Encoding: br, gzip\r\n";
    let coding =
        |answered: &crate::testing::Answered| answered.field("Content-Encoding").map(str::to_owned);
    for number in 0..100 {
        let expected = (number == 7).then(|| "br".to_owned());
        let answered = client.get_with(&format!("/dir/{number}.bin"), accepts);
        assert_eq!(coding(&answered), expected, "{number}");
    }
    folder.write("dir/8.bin.gz", "gzip");
    folder.write("dir/100.bin", "plain");
    folder.write("dir/100.bin.br", "br");
    fs::remove_file(folder.path().join("dir/7.bin.br")).unwrap();
    let is = |name: Option<&'static str>| {
        move |answered: &crate::testing::Answered| coding(answered).as_deref() == name
    };
    client.until_with("/dir/8.bin", accepts, is(Some("gzip")));
    client.until_with("/dir/100.bin", accepts, is(Some("br")));
    client.until_with("/dir/7.bin", accepts, is(None));
    // another directory takes the place of the one that was read
    folder.write("new/9.bin", "plain");
    folder.write("new/9.bin.br", "br");
    fs::rename(folder.path().join("dir"), folder.path().join("old")).unwrap();
    fs::rename(folder.path().join("new"), folder.path().join("dir")).unwrap();
    client.until_with("/dir/9.bin", accepts, is(Some("br")));
    folder.replace("old/9.bin.gz", "gzip");
    client.until_with("/old/9.bin", accepts, is(Some("gzip")));
}

#[test]
fn directories_come_go_and_change_places() {
    let folder = Folder::new();
    folder.write("new/deep/down/a", "old");
    folder.write("other/deep/down/a", "new");
    let path = |name: &str| folder.path().join(name);
    let mut client = Client::new(&folder);
    client.until("/new/deep/down/a", body("old"));
    assert!(!client.get("/new/deep/down/a").is_miss);
    fs::rename(path("new"), path("away")).unwrap();
    client.until("/new/deep/down/a", status(404));
    client.until("/away/deep/down/a", body("old"));
    fs::rename(path("other"), path("new")).unwrap();
    client.until("/new/deep/down/a", body("new"));
    fs::remove_dir_all(path("new/deep")).unwrap();
    client.until("/new/deep/down/a", status(404));
    // The directory that was moved is still watched where it is now.
    folder.replace("away/deep/down/a", "newer");
    client.until("/away/deep/down/a", body("newer"));
}

#[test]
fn links_inside_the_root_may_be_pointed_elsewhere() {
    let folder = Folder::new();
    folder.write("releases/1/deep/a", "one");
    folder.write("releases/2/deep/a", "two");
    let repoint = |target: &str, link: &str| {
        let new = folder.path().join("new-link");
        symlink(target, &new).unwrap();
        fs::rename(&new, folder.path().join(link)).unwrap();
    };
    repoint("releases/1", "current");
    repoint("current/deep/a", "file");
    fs::create_dir(folder.path().join("x")).unwrap();
    repoint("../current", "x/back");
    let mut client = Client::new(&folder);
    for _ in 0..2 {
        for target in ["/current/deep/a", "/file", "/x/back/deep/a"] {
            assert_eq!(client.get(target).text(), "one", "{target}");
        }
    }
    repoint("releases/2", "current");
    for target in ["/current/deep/a", "/file", "/x/back/deep/a"] {
        client.until(target, body("two"));
    }
    folder.replace("releases/2/deep/a", "three");
    for target in ["/current/deep/a", "/file", "/x/back/deep/a"] {
        client.until(target, body("three"));
    }
    repoint("releases/1/deep/a", "file");
    client.until("/file", body("one"));
    fs::rename(folder.path().join("releases"), folder.path().join("gone")).unwrap();
    client.until("/file", status(404));
    client.until("/x/back/deep/a", status(404));
}

#[test]
fn the_root_may_be_pointed_elsewhere() {
    let folder = Folder::new();
    folder.write("releases/1/a", "one");
    folder.write("releases/2/a", "two");
    let repoint = |target: &str| {
        let new = folder.path().join("new-link");
        symlink(target, &new).unwrap();
        fs::rename(&new, folder.path().join("current")).unwrap();
    };
    repoint("releases/1");
    symlink("current", folder.path().join("www")).unwrap();
    let mut client = Client::with(ContentSettings::new(folder.path().join("www")));
    assert_eq!(client.get("/a").text(), "one");
    assert!(!client.get("/a").is_miss);
    repoint("releases/2");
    client.until("/a", body("two"));
    client.until_noticed("RootChanged");
    folder.replace("releases/2/a", "three");
    client.until("/a", body("three"));
    // The whole directory replaced by another, without a link.
    fs::rename(folder.path().join("releases/2"), folder.path().join("releases/3")).unwrap();
    client.until_noticed("RootMissing");
    fs::rename(folder.path().join("releases/1"), folder.path().join("releases/2")).unwrap();
    client.until("/a", body("one"));
}

#[test]
fn the_root_is_followed_with_the_cache_off_and_without_watches() {
    for (bytes, watched_directories) in [(0, 10), (0, 0), (1 << 20, 0)] {
        let folder = Folder::new();
        folder.write("releases/1/a", "one");
        folder.write("releases/2/a", "two");
        let link = folder.path().join("current");
        symlink("releases/1", &link).unwrap();
        let mut settings = ContentSettings::new(&link);
        settings.cache = settings::CacheSettings { bytes, watched_directories, ..settings.cache };
        let mut client = Client::with(settings);
        assert_eq!(client.get("/a").text(), "one");
        fs::remove_file(&link).unwrap();
        symlink("releases/2", &link).unwrap();
        client.until("/a", body("two"));
    }
}

#[test]
fn variants_appear_and_disappear() {
    let folder = Folder::new();
    folder.write("a.js", "identity");
    let mut client = Client::new(&folder);
    assert_eq!(client.get("/a.js").field("Vary"), None);
    for (suffix, coding) in [("br", "br"), ("zst", "zstd"), ("gz", "gzip")] {
        let name = format!("a.js.{suffix}");
        folder.write(&name, coding);
        client.until("/a.js", |answered| answered.field("Vary").is_some());
        let fields = format!("Accept-Encoding: {coding}\r\n");
        assert_eq!(client.get_with("/a.js", &fields).text(), coding);
        fs::remove_file(folder.path().join(&name)).unwrap();
        client.until("/a.js", |answered| answered.field("Vary").is_none());
    }
}

#[test]
fn a_young_file_has_a_weak_tag_until_it_is_old_enough() {
    // one that is looked at while it is young: a machine may stand still until it is not
    let young = (0..100).find_map(|_| {
        let (folder, begun) = (Folder::new(), std::time::Instant::now());
        folder.write_now("a", "new");
        let mut client = Client::new(&folder);
        let tag = client.get("/a").field("ETag").unwrap().to_owned();
        let is_miss = client.get("/a").is_miss;
        let is_young = begun.elapsed() < Duration::from_millis(1900);
        is_young.then_some((folder, client, tag, is_miss))
    });
    let (_folder, mut client, tag, is_miss) = young.expect("a machine that runs within 1.9 s");
    assert!(tag.starts_with("W/\"") && !is_miss);
    client.pass(2500);
    // Files age by the wall clock; the loop's clock only says when to look at them again.
    std::thread::sleep(Duration::from_millis(2100));
    let strong = client.get("/a");
    assert!(strong.is_miss);
    assert_eq!(strong.field("ETag"), tag.strip_prefix("W/"));
    client.pass(5_000);
    assert!(!client.get("/a").is_miss);
}

#[test]
fn after_lost_events_everything_is_checked_at_the_interval() {
    let folder = Folder::new();
    folder.write("a", "one");
    let mut client = Client::new(&folder);
    client.get("/a");
    client.content.overflow();
    let again = client.get("/a");
    assert_eq!((again.text(), again.is_miss), ("one", true), "everything was dropped");
    assert!(client.has_noticed("EventsLost"));
    assert!(!client.get("/a").is_miss, "within the interval it is answered from memory");
    client.pass(1001);
    assert!(client.get("/a").is_miss, "then it is looked at");
    assert!(!client.get("/a").is_miss, "and kept for another interval");
    folder.replace("a", "two");
    client.pass(1001);
    assert_eq!(client.get("/a").text(), "two");
    // Some seconds later changes are reported again.
    let start = std::time::Instant::now();
    loop {
        client.pass(1001);
        client.get("/a");
        client.pass(5_000);
        if !client.get("/a").is_miss {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "never watched again");
        std::thread::sleep(Duration::from_millis(100));
    }
    folder.replace("a", "three");
    client.until("/a", body("three"));
}

/// A write through a name that was made elsewhere after the file was cached is not reported.
#[test]
fn a_change_that_nobody_tells_of_is_seen_after_some_intervals() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    folder.write("a", "old");
    let mut client = Client::new(&folder);
    assert_eq!(client.get("/a").text(), "old");
    let other_name = elsewhere.path().join("a");
    std::fs::hard_link(folder.path().join("a"), &other_name).unwrap();
    std::fs::write(&other_name, "new").unwrap();
    client.pass(10_001);
    assert_eq!(client.get("/a").text(), "new");
}

#[test]
fn without_watches_the_interval_holds() {
    let folder = Folder::new();
    for name in ["a", "one/a", "two/a"] {
        folder.write(name, "old");
    }
    let mut settings = ContentSettings::new(folder.path());
    // The root, the directory it lies in, and one more.
    settings.cache = settings::CacheSettings { watched_directories: 3, ..settings.cache };
    let mut client = Client::with(settings);
    for target in ["/a", "/one/a", "/two/a"] {
        client.get(target);
    }
    assert!(client.has_noticed("TooManyDirectories"));
    client.pass(5_000);
    assert!(!client.get("/a").is_miss);
    let [one, two] = ["/one/a", "/two/a"].map(|target| client.get(target).is_miss);
    assert!(one != two, "one of two directories is watched");
    for name in ["one/a", "two/a"] {
        folder.replace(name, "new");
    }
    client.pass(1001);
    client.until("/one/a", body("new"));
    client.until("/two/a", body("new"));
}

#[test]
fn a_file_with_other_names_is_checked_at_the_interval() {
    let folder = Folder::new();
    folder.write("site/a", "one");
    fs::hard_link(folder.path().join("site/a"), folder.path().join("b")).unwrap();
    let mut client = Client::with(ContentSettings::new(folder.path().join("site")));
    assert_eq!(client.get("/a").text(), "one");
    fs::write(folder.path().join("b"), "two").unwrap();
    client.pass(1001);
    assert_eq!(client.get("/a").text(), "two");
}

#[test]
fn unused_directories_are_watched_no_longer() {
    let folder = Folder::new();
    for number in 0..40 {
        folder.write(&format!("{number}/a"), "x");
    }
    let mut settings = ContentSettings::new(folder.path());
    settings.cache = settings::CacheSettings { watched_directories: 20, ..settings.cache };
    let mut client = Client::with(settings);
    for number in 0..40 {
        let name = format!("{number}/a");
        assert_eq!(client.get(&format!("/{name}")).status, 200);
        fs::remove_file(folder.path().join(&name)).unwrap();
        client.until(&format!("/{name}"), status(404));
        fs::remove_dir(folder.path().join(format!("{number}"))).unwrap();
    }
    assert!(client.content.figures().watched_directories <= 20);
    assert!(!client.has_noticed("TooManyDirectories"));
    folder.write("deep/er/a", "x");
    client.until("/deep/er/a", |answered| answered.status == 200 && !answered.is_miss);
    // A directory stays watched as long as an answer depends on it, and no longer.
    client.content.tidy();
    assert!(client.content.figures().watched_directories >= 4);
    folder.replace("deep/er/a", "y");
    client.until("/deep/er/a", body("y"));
    fs::rename(folder.path().join("deep"), folder.path().join("moved")).unwrap();
    client.until("/deep/er/a", status(404));
    // An answer that was not cached is the kernel's word, which may come before that of the watcher.
    client.until_watched(2, "the root and where it lies");
}

#[test]
fn looking_at_an_answer_again_leaves_nothing_behind() {
    let folder = Folder::new();
    folder.write("a", "x");
    let mut settings = ContentSettings::new(folder.path());
    settings.cache.check_interval = Duration::ZERO;
    let mut client = Client::with(settings);
    let mut left = || {
        for _ in 0..20 {
            client.pass(1);
            assert_eq!((client.get("/a").status, client.get("/none").status), (200, 404));
        }
        client.content.tidy();
        client.content.watcher().upgrade().unwrap().graph().left()
    };
    let first = left();
    assert_eq!((first < 10, left()), (true, first));
}

/// Many versions are written while many answers are read: each answer is one whole version, and
/// the last one is seen in the end.
#[test]
fn no_answer_mixes_versions() {
    let folder = Folder::new();
    let version = |number: u32| format!("{number:08} ").repeat(1000 + number as usize % 7);
    folder.replace("a", version(0));
    let mut client = Client::new(&folder);
    let last = 300;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=last {
                folder.replace("a", version(number));
                std::thread::sleep(Duration::from_micros(u64::from(number % 5) * 200));
            }
        });
        let mut seen = 0;
        let mut answers = 0u64;
        while seen < last {
            let answered = client.get("/a");
            let text = answered.text();
            let number: u32 = text[..8].parse().unwrap();
            assert_eq!(text, version(number));
            assert_eq!(answered.field("Content-Length").unwrap(), text.len().to_string());
            assert!(number >= seen, "an older version after a newer one");
            seen = number;
            answers += 1;
            assert!(answers < 50_000_000, "the last version is never seen");
        }
    });
}

/// Two contents are two processes: what one has answered with, the other may not be behind.
#[test]
fn who_catches_up_is_not_behind_another_process() {
    let folder = Folder::new();
    let path = |name: &str| folder.path().join(name);
    for way in ["a", "b"] {
        folder.write(&format!("{way}/file"), way);
    }
    symlink("a", path("current")).unwrap();
    let settings = ContentSettings::new(path("current"));
    let mut clients = [Client::with(settings.clone()), Client::with(settings)];
    for round in 0..300 {
        let way = if round % 2 == 0 { "b" } else { "a" };
        symlink(way, path("next")).unwrap();
        fs::rename(path("next"), path("current")).unwrap();
        clients[0].until("/file", body(way));
        clients[1].catch_up();
        assert_eq!(clients[1].get("/file").text(), way, "the root, in round {round}");
        let text = format!("{way}, {round}");
        folder.replace(&format!("{way}/file"), &text);
        clients[0].until("/file", body(&text));
        clients[1].catch_up();
        assert_eq!(clients[1].get("/file").text(), text, "the file, in round {round}");
        folder.replace(&format!("{way}/file"), way);
    }
}
