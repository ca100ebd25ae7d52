//! Settings of a file that are valid and probably not meant: a server warns its operator when it starts
//! and when it reads the file again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options, Server};
use std::fs;
use std::net::TcpListener;
use std::process::Command;

/// A setting that means nothing for another engine.
const UNUSED: &str = "pipeline.send = 2";
const UNUSED_SAID: &str = "pipeline.send: means nothing without engine = \"pipeline\"";

/// The lines of an output that are warnings about the configuration.
fn warnings(said: &str) -> Vec<String> {
    said.lines().filter(|line| line.contains("warning: ")).map(str::to_owned).collect()
}

/// The number of lines with these words.
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

    // a running server may no longer reach all files, and reports what the text shows
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

/// Names and ports depend on the moment: a check asks the machine, and reports what a start would meet.
#[test]
fn a_check_says_who_listens_where_the_server_is_to_and_which_names_have_no_address() {
    let folder = Folder::new();
    folder.write("site/index.html", b"home");
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = held.local_addr().unwrap();
    let text = format!(
        "listen = [\"{at}\"]\nroot = \"site\"\n[[proxy]]\npath = \"/a\"\n\
         to = [\"http://no-such-host.invalid\", \"http://localhost:9\", \"http://127.0.0.1:9\"]\n"
    );
    let file = folder.write("forebay.toml", &text).display().to_string();
    let check = |words: &[&str]| {
        let words = [&["check", "-c", &file][..], words].concat();
        let done = Command::new(binary()).args(words).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = check(&[]);
    let (name, own) = ("no-such-host.invalid", std::process::id());
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!("{file}:5:7: proxy.to: the name {name:?} has no address here")),
        "{said}"
    );
    let taken = format!("{file}:1:11: listen: ");
    let held_by = format!("(process {own}) listens at {at}: a server with this file cannot start");
    assert!(said.contains(&taken) && said.contains(&held_by), "{said}");
    assert!(!said.contains("localhost") && !said.contains(":5:37"), "{said}");
    assert_eq!(warnings(&said).len(), 2, "{said}");
    assert_eq!(check(&["--strict"]).0, Some(78));
    drop(held);
    let said = check(&[]).1;
    assert!(!said.contains(&taken), "{said}");
    // a server of this very file is no obstacle to itself, with one process or several
    for engine in ["event", "isolated"] {
        let server = Server::start(
            &Options::new(folder.join("site")).engine(engine).config("hidden = false"),
        );
        let own = server.file();
        let done = Command::new(binary()).args(["check", "-c"]).arg(&own).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!said.contains("listens at"), "{engine}: {said}");
        // the same address in another file is
        let other = folder.write("other.toml", fs::read(&own).unwrap());
        let done = Command::new(binary()).args(["check", "-c"]).arg(other).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains("listens at") && said.contains("forebay"), "{engine}: {said}");
    }
}

/// `forebay check` only warns of such addresses, because they may belong to another machine.
#[test]
fn a_check_says_which_addresses_this_machine_does_not_have() {
    let folder = Folder::new();
    folder.write("site/index.html", b"home");
    // addresses for documentation (RFC 5737), which no interface has
    let text = "listen = [\"127.0.0.1:0\", \"192.0.2.7:0\", \"198.51.100.7:8080\", \":0\"]\n\
                root = \"site\"\nadmin.listen = \"192.0.2.8:9090\"\nadmin.allow = [\"all\"]\n";
    let file = folder.write("forebay.toml", text).display().to_string();
    let check = |words: &[&str]| {
        let words = [&["check", "-c", &file][..], words].concat();
        let done = Command::new(binary()).args(words).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = check(&[]);
    assert_eq!(code, Some(0), "{said}");
    for (place, address) in [
        ("1:26: listen", "192.0.2.7"),
        ("1:41: listen", "198.51.100.7"),
        ("3:16: admin.listen", "192.0.2.8"),
    ] {
        let expected = format!(
            "{file}:{place}: this machine does not have the address {address}: a server with this file \
             cannot start here"
        );
        assert!(said.contains(&expected), "{expected}\n{said}");
    }
    assert_eq!(said.matches("does not have the address").count(), 3, "{said}");
    assert_eq!(check(&["--strict"]).0, Some(78));
}

/// Other programs may have taken all inotify instances of the kernel. Here there are none from the start.
#[test]
fn without_a_watch_the_server_says_so_and_checks_files() {
    for engine in ENGINES {
        let folder = Folder::new();
        folder.write("index.html", b"home");
        let mut options =
            Options::new(folder.path()).engine(engine).config("cache.check_interval = \"100ms\"");
        let none = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
        options.wrapper =
            ["unshare", "--user", "--map-root-user", "sh", "-c", none].map(str::to_owned).to_vec();
        let words = [&options.wrapper[1..], &["true".to_owned()]].concat();
        let tried = Command::new("unshare").args(words).output();
        let is_able = match tried {
            Ok(tried) if tried.status.success() => Ok(()),
            Ok(tried) => Err(String::from_utf8_lossy(&tried.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        };
        if has(is_able, "a server without inotify").is_none() {
            return;
        }
        let server = Server::start(&options);
        server.says("cannot watch for changed files");
        server.says("fs.inotify.max_user_instances");
        let get = || String::from_utf8(server.exchange(b"GET / HTTP/1.0\r\n\r\n")).unwrap();
        assert!(get().ends_with("home"), "{engine}");
        folder.write("index.new", b"another");
        fs::rename(folder.join("index.new"), folder.join("index.html")).unwrap();
        assert!(soon(PATIENCE, || get().ends_with("another")), "{engine}");
    }
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
    // a warning of a stage would come before this one: the stages serve already when it is reported
    let told = || count(&warnings(&server.stderr()), UNUSED_SAID);
    assert!(soon(PATIENCE, || told() >= 2), "{}", server.stderr());
    assert_eq!(told(), 2, "{}", server.stderr());
}

/// The file of constants is read with the text. A server in its sandbox does not reach `/proc` any more.
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
