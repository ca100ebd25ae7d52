//! The directory for the conformance cases: one file of every kind that has ever made a server wrong,
//! with the same bytes and times in every run.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::umask;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The modification time of all files: Thu, 29 Feb 2024 12:00:00 GMT.
const MODIFIED: Duration = Duration::from_secs(1_709_208_000);

/// Text files, small enough to be sent from memory: path and content.
const TEXTS: &[(&str, &str)] = &[
    ("index.html", "<!doctype html>\n<title>Fixture</title>\n<p>The index of the fixture.</p>\n"),
    ("small.txt", "abcdefghijklmnopqrstuvwxyz"),
    ("empty.txt", ""),
    ("one.txt", "1"),
    ("dir/index.html", "<!doctype html>\n<title>Directory</title>\n"),
    ("dir/page.html", "<!doctype html>\n<title>Page</title>\n"),
    ("dir/sub/index.html", "<!doctype html>\n<title>Sub</title>\n"),
    // three codings, of different sizes
    ("style.css", "body { color: black; background: white; margin: 0 }\n"),
    ("style.css.br", "style.css in br"),
    ("style.css.zst", "style.css in zstd"),
    ("style.css.gz", "style.css in gzip"),
    // a file with one coding only
    ("script.js", "console.log('a script with one coded sibling');\n"),
    ("script.js.gz", "script.js in gzip"),
    // a coded sibling whose original is gone
    ("orphan.txt.gz", "orphan in gzip"),
    ("coded/index.html", "<!doctype html>\n<title>An index with a coded sibling</title>\n"),
    ("coded/index.html.br", "index.html in br"),
    // a file whose siblings are no files
    ("odd.txt", "a file whose siblings are a directory, a pipe and a link out of the root"),
    ("odd.txt.gz/index.html", "not a sibling"),
    // names of directories
    ("with blank/index.html", "the index of with blank"),
    ("50%?/index.html", "the index of 50%?"),
    ("b.example/index.html", "not a host"),
    ("a:b/index.html", "not a scheme"),
    // names
    ("with space.txt", "a name with a space"),
    ("grün.txt", "a name in UTF-8"),
    ("100%.txt", "a name with a percent sign"),
    ("a+b.txt", "a name with a plus sign"),
    ("a&b='c'.txt", "a name with an ampersand and quotes"),
    ("question?.txt", "a name with a question mark"),
    ("semi;colon.txt", "a name with a semicolon"),
    ("tilde~.txt", "a name with a tilde"),
    ("trailing.dot.", "a name that ends in a dot"),
    ("..dots.txt", "a hidden name with two dots"),
    ("back\\slash.txt", "a name with a backslash"),
    // hidden
    (".hidden", "hidden"),
    (".git/config", "hidden"),
    ("dir/.htaccess", "hidden"),
    (".well-known/security.txt", "Contact: mailto:security@fixture.example\n"),
    // types
    ("types/a.html", "<!doctype html>"),
    ("types/a.htm", "<!doctype html>"),
    ("types/A.HTML", "<!doctype html>"),
    ("types/a.css", "a {}"),
    ("types/a.js", "1"),
    ("types/a.mjs", "1"),
    ("types/a.json", "{}"),
    ("types/a.map", "{}"),
    ("types/a.xml", "<a/>"),
    ("types/a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>"),
    ("types/a.txt", "a"),
    ("types/a.md", "# a"),
    ("types/a.csv", "a,b"),
    ("types/a.png", "\u{89}PNG"),
    ("types/a.jpg", "jpg"),
    ("types/a.gif", "GIF89a"),
    ("types/a.webp", "webp"),
    ("types/a.avif", "avif"),
    ("types/a.ico", "ico"),
    ("types/a.woff2", "woff2"),
    ("types/a.wasm", "\0asm"),
    ("types/a.pdf", "%PDF"),
    ("types/a.mp4", "mp4"),
    ("types/a.webm", "webm"),
    ("types/a.mp3", "mp3"),
    ("types/a.zip", "PK"),
    ("types/a.tar.gz", "gz"),
    ("types/a.unheard-of", "?"),
    ("types/noext", "?"),
    ("types/a.webmanifest", "{}"),
    // times
    ("future.txt", "from the future"),
    ("ancient.txt", "from 1960"),
    ("epoch.txt", "from 1970"),
    // rights
    ("unreadable.txt", "nobody may read this"),
    ("closed/index.html", "nobody may enter here"),
];

/// Builds the fixture below `folder`: the root is `folder/root`, and the files beside it must never be
/// served.
///
/// # Panics
/// If the file system refuses.
pub fn build(folder: &Path) {
    // whatever umask the tests are started with, the server's user must get in
    umask(Mode::from_raw_mode(0o022));
    let root = folder.join("root");
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("index-is-a-directory/index.html")).unwrap();
    fs::write(folder.join("outside.txt"), "outside of the root").unwrap();
    fs::create_dir_all(folder.join("outside")).unwrap();
    fs::write(folder.join("outside/secret.txt"), "outside of the root").unwrap();
    for (path, content) in TEXTS {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::write(root.join("pages.html"), pattern(300 * 1024)).unwrap();
    fs::write(root.join("pages.html.gz"), pattern(100 * 1024)).unwrap();
    fs::write(root.join("1k.bin"), pattern(1024)).unwrap();
    fs::write(root.join("100k.bin"), pattern(100 * 1024)).unwrap();
    fs::write(root.join("large.bin"), pattern(3 << 20)).unwrap();
    link_and_special(&root);
    set_times(&root);
    fs::set_permissions(root.join("unreadable.txt"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(root.join("closed"), Permissions::from_mode(0o000)).unwrap();
}

/// Makes the fixture removable again.
pub fn open_up(folder: &Path) {
    let _ = fs::set_permissions(folder.join("root/closed"), Permissions::from_mode(0o700));
}

/// Bytes by which every position below 16 MiB can be recognised.
fn pattern(len: usize) -> Vec<u8> {
    let word = |n: usize| [(n >> 14) as u8, (n >> 7 & 0x7f) as u8, (n & 0x7f) as u8, b'\n'];
    (0..len.div_ceil(4)).flat_map(word).take(len).collect()
}

fn link_and_special(root: &Path) {
    for (path, target) in [
        ("link.txt", "small.txt"),
        ("link-dir", "dir"),
        ("link-out.txt", "../outside.txt"),
        ("link-out-dir", "../outside"),
        ("odd.txt.br", "../outside.txt"),
        ("link-absolute.txt", "/etc/passwd"),
        ("link-up-and-in.txt", "../root/small.txt"),
        ("link-hidden.txt", ".hidden"),
        ("link-dangling.txt", "gone.txt"),
        ("link-loop.txt", "link-loop.txt"),
        ("link-proc.txt", "/proc/self/environ"),
        ("dir/link-inside.txt", "../small.txt"),
    ] {
        symlink(target, root.join(path)).unwrap();
    }
    for (path, kind) in [
        ("fifo", FileType::Fifo),
        ("fifo.html", FileType::Fifo),
        ("odd.txt.zst", FileType::Fifo),
        ("socket", FileType::Socket),
    ] {
        mknodat(CWD, root.join(path), kind, Mode::from_raw_mode(0o644), 0).unwrap();
    }
}

fn set_times(root: &Path) {
    let epoch = SystemTime::UNIX_EPOCH;
    let day = Duration::from_secs(24 * 60 * 60);
    for (path, time) in [
        ("future.txt", epoch + 365 * 130 * day),
        ("ancient.txt", epoch - 10 * 365 * day),
        ("epoch.txt", epoch),
    ] {
        File::open(root.join(path)).unwrap().set_modified(time).unwrap();
    }
    let special = ["future.txt", "ancient.txt", "epoch.txt"];
    let texts = TEXTS.iter().map(|(path, _)| *path).filter(|path| !special.contains(path));
    let others = ["1k.bin", "100k.bin", "large.bin", "pages.html", "pages.html.gz"];
    for path in texts.chain(others) {
        File::open(root.join(path)).unwrap().set_modified(epoch + MODIFIED).unwrap();
    }
}
