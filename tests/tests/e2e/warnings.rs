//! What a configuration file says and hardly means: a server tells its operator when it starts and when it
//! reads the file again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server};
use std::process::Command;

/// It means nothing for another engine.
const UNUSED: &str = "pipeline.send = 2";
const UNUSED_SAID: &str = "pipeline.send: means nothing without engine = \"pipeline\"";

/// The lines of what was said that are warnings of the configuration.
fn warnings(said: &str) -> Vec<String> {
    said.lines().filter(|line| line.contains("warning: ")).map(str::to_owned).collect()
}

/// How many of the lines have these words.
fn count(lines: &[String], words: &str) -> usize {
    lines.iter().filter(|line| line.contains(words)).count()
}

#[test]
fn a_server_tells_at_its_start_and_at_each_reload_what_its_file_hardly_means() {
    let folder = Folder::new();
    folder.write("index.html", b"home");
    let options = || Options::new(folder.path()).engine("event");
    let missing = "errors.404 = \"/missing.html\"";
    let server = Server::start(&options().config(UNUSED).config(missing));
    server.says(UNUSED_SAID);
    server.says("missing.html");
    let file = server.file().display().to_string();
    let told = warnings(&server.stderr());
    assert_eq!(count(&told, UNUSED_SAID), 1, "{told:?}");
    assert_eq!(count(&told, "missing.html"), 1, "{told:?}");
    // where, in words that an editor jumps to
    assert!(told[0].starts_with(&format!("forebay: warning: {file}:")), "{told:?}");

    // a server that runs may no longer look at all files, and tells what the text says
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("reloaded: generation 2\n"), "{said}");
    assert_eq!(count(&warnings(&said), UNUSED_SAID), 1, "{said}");
    server.says(&format!("forebay: reload: warning: {file}:"));

    server.configure(&options());
    let (code, said) = server.reload();
    assert_eq!((code, count(&warnings(&said), UNUSED_SAID)), (Some(0), 0), "{said}");
}

#[test]
fn of_many_warnings_the_first_are_told_and_what_shows_the_others() {
    let folder = Folder::new();
    let rules = (0..50).map(|at| format!("[[rule]]\npath = \"/{at}%20b\"\naction = \"reset\"\n"));
    let options = Options::new(folder.path()).engine("event");
    let server = Server::start(&options.config(&rules.collect::<String>()));
    let file = server.file().display().to_string();
    server.says(&format!("forebay check -c {file} shows all"));
    let told = warnings(&server.stderr());
    assert_eq!(told.len(), 21, "{told:?}");
    let (code, said) = server.reload();
    assert_eq!((code, warnings(&said).len()), (Some(0), 21), "{said}");
    let check = Command::new(binary()).args(["check", "-c", &file]).output().unwrap();
    let shown = warnings(&String::from_utf8(check.stderr).unwrap());
    let last = format!("and {} more", shown.len() - 20);
    assert!(shown.len() >= 50 && told[20].contains(&last), "{told:?}");
}

#[test]
fn stages_tell_it_once_for_all_of_them() {
    let folder = Folder::new();
    folder.write("index.html", b"home");
    let options = || Options::new(folder.path()).engine("isolated");
    let server = Server::start(&options().config(UNUSED));
    server.says(UNUSED_SAID);
    let (code, said) = server.reload();
    assert_eq!((code, count(&warnings(&said), UNUSED_SAID)), (Some(0), 1), "{said}");
    // what stages would say comes before: they serve when they are told of
    let told = || count(&warnings(&server.stderr()), UNUSED_SAID);
    assert!(soon(PATIENCE, || told() >= 2), "{}", server.stderr());
    assert_eq!(told(), 2, "{}", server.stderr());
}

/// The file of constants is read with the text. A server that is confined does not reach `/proc` any more.
#[test]
fn a_reload_tells_of_constants_of_another_machine() {
    let folder = Folder::new();
    folder.write("index.html", b"home");
    let options = || Options::new(folder.path()).engine("event");
    // with a file, which is read again
    let server = Server::start(&options().config("timeouts.head = \"10s\""));
    let file = server.folder().join("calibration.toml");
    let each = "{ accept = 0.1, receive = 0.1, process = 0.1, send = 0.1 }";
    let told = |processor: &str| {
        let found = format!(
            "c1 = 1e-5\nc2 = 1e-9\nfile_bytes = \"64KiB\"\na = {each}\nb = {each}\n[found]\n\
             machine = \"{processor}, cores: 2, Linux 6.18\"\n"
        );
        std::fs::write(&file, found).unwrap();
        server.configure(&options().config(&format!("pipeline.calibration = {file:?}")));
        let (code, said) = server.reload();
        assert_eq!(code, Some(0), "{said}");
        count(&warnings(&said), "these constants were found on another machine")
    };
    assert_eq!(told("Abacus 3"), 1);
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let name = processors.lines().find_map(|line| line.strip_prefix("model name"));
    if let Some((_, name)) = name.and_then(|line| line.split_once(':')) {
        assert_eq!(told(name.trim()), 0);
    }
}
