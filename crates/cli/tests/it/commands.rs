//! Tests of the real binary: its output, and the exit code of every error.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use std::fs;
use std::net::TcpListener;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const BAD: &str = "root = \".\"\nworkers = 0\n[timeouts]\nhaed = \"10s\"\n";
const GOOD: &str = "root = \"site\"\n[log]\naccess = \"off\"\n";

fn forebay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A configuration file in a folder of its own, which is removed with it when dropped.
struct Written(PathBuf);

impl Deref for Written {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = self.0.parent().map(fs::remove_dir_all);
    }
}

/// A configuration file with `content`, and a directory `site` beside it.
fn file(content: impl AsRef<[u8]>) -> Written {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("commands-{}-{number}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(folder.join("site")).unwrap();
    let path = folder.join("forebay.toml");
    fs::write(&path, content).unwrap();
    Written(path)
}

#[test]
fn check_of_a_good_file_is_0_and_says_so_on_stderr() {
    let path = file(GOOD);
    let output = forebay(&["check", "-c", path.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    assert_eq!(text(&output.stdout), "");
    assert_eq!(text(&output.stderr), format!("{}: good\n", path.display()));
}

#[test]
fn check_warns_of_what_is_good_but_hardly_meant() {
    let path = file(format!("{GOOD}\n[[rule]]\npath = \"/a%20b\"\naction = \"reset\"\n"));
    let output = forebay(&["check", "-c", path.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    let said = text(&output.stderr);
    let (warning, good) = said.trim_end().split_once('\n').unwrap();
    assert!(warning.starts_with(&format!("warning: {}:", path.display())), "{warning}");
    assert!(warning.ends_with("before rules see them, write \"/a b\""), "{warning}");
    assert_eq!(good, format!("{}: good, with 1 warning", path.display()));
    // --strict is for scripts, which do not read warnings
    let output = forebay(&["check", "--strict", "--print", "-c", path.to_str().unwrap()]);
    assert_eq!((code(&output), text(&output.stdout)), (78, ""));
    assert_eq!(text(&output.stderr), format!("{}\n", warning.trim_start_matches("warning: ")));
    let good = file(GOOD);
    assert_eq!(code(&forebay(&["check", "--strict", "-c", good.to_str().unwrap()])), 0);
}

#[test]
fn check_print_gives_the_resolved_settings_as_toml() {
    let path = file(GOOD);
    let output = forebay(&["check", "--print", "-c", path.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    let printed = text(&output.stdout);
    assert!(
        printed.contains("\n# Default: 10s; from 100ms to 1h.\nhead = \"10s\"\n\n# "),
        "{printed}"
    );
    let again = file(printed);
    let output = forebay(&["check", "--print", "-c", again.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), printed);
}

#[test]
fn a_bad_file_is_78_for_check_and_for_run_with_every_problem() {
    let path = file(BAD);
    let name = path.to_str().unwrap();
    let expected = format!(
        "{name}:2:11: workers: 0 is out of range, from 1 to 65536 is allowed\n\
         {name}:4:1: timeouts.haed: unknown key, did you mean \"head\"?\n"
    );
    for command in ["check", "run"] {
        let output = forebay(&[command, "-c", name]);
        assert_eq!(code(&output), 78, "{command}");
        assert_eq!(text(&output.stderr), expected, "{command}");
        assert_eq!(text(&output.stdout), "", "{command}");
    }
}

/// Runs a command, which must end by itself; returns its exit code.
fn ends(arguments: &[&str]) -> i32 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let began = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap();
        }
        if began.elapsed() > std::time::Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("{arguments:?} does not come to its end");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Devices, FIFOs and files of procfs as configuration files: reading one may never end.
#[test]
fn a_file_that_is_none_is_78_at_once() {
    let good = file(GOOD);
    let fifo = good.with_file_name("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let with_fifo = format!("{GOOD}[pipeline]\ncalibration = {:?}\n", fifo.to_str().unwrap());
    let calibrated = file(with_fifo);
    for path in [
        fifo.to_str().unwrap(),
        calibrated.to_str().unwrap(),
        "/dev/zero",
        "/dev/full",
        "/dev/ptmx",
        "/dev/random",
        "/dev/tty",
        "/dev/stdin",
        "/proc/kmsg",
        "/proc/self/mem",
        "/proc/self/pagemap",
    ] {
        for command in [&["check"][..], &["run"], &["reload"], &["policy", "show"]] {
            assert_eq!(ends(&[command, &["-c", path]].concat()), 78, "{command:?} {path}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_78() {
    let not_utf8 = file(b"root = \"\xe4\"\n");
    let too_long = file("#".repeat(4 * 1024 * 1024 + 1));
    let directory = env!("CARGO_TARGET_TMPDIR");
    for (path, message) in [
        (
            "/nonexistent/forebay.toml",
            ": cannot be read: No such file or directory (os error 2); forebay init begins one",
        ),
        (directory, ": cannot be read: it is a directory"),
        ("/dev/zero", ": cannot be read: it is no regular file"),
        (too_long.to_str().unwrap(), ": is longer than 4194304 bytes"),
        (not_utf8.to_str().unwrap(), ":1:9: is not UTF-8 from here on"),
    ] {
        let output = forebay(&["run", "--config", path]);
        assert_eq!(code(&output), 78, "{path}");
        let start = format!("{path}{message}");
        assert!(text(&output.stderr).starts_with(&start), "{}", text(&output.stderr));
        let is_offered = text(&output.stderr).contains("forebay init");
        assert_eq!(is_offered, path.starts_with("/nonexistent"), "{path}");
    }
}

#[test]
fn a_root_that_is_not_there_is_78_and_has_a_place() {
    let path = file("workers = 1\nroot = \"nowhere\"\n");
    let output = forebay(&["check", "-c", path.to_str().unwrap()]);
    assert_eq!(code(&output), 78);
    let nowhere = path.with_file_name("nowhere");
    let expected =
        format!("{}:2:8: root: cannot use the directory {nowhere:?}: No such", path.display());
    assert!(text(&output.stderr).starts_with(&expected), "{}", text(&output.stderr));
}

#[test]
fn serving_what_is_no_directory_is_78() {
    for (path, reason) in [("/nonexistent", "No such file"), ("/dev/null", "not a directory")] {
        let output = forebay(&["serve", path]);
        assert_eq!(code(&output), 78);
        let message = text(&output.stderr);
        let start = format!("forebay serve: cannot use the directory {path:?}: {reason}");
        assert!(message.starts_with(&start), "{message}");
    }
}

#[test]
fn wrong_usage_is_2() {
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["serve"],
        &["serve", ".", "--port", "65536"],
        &["serve", ".", "--port", "8080", "--listen", ":8081"],
        &["serve", ".", "--listen", "localhost:80"],
        &["serve", ".", "--engine", "evnt"],
        &["serve", ".", "--workers", "0"],
        &["serve", ".", "--admin", "0.0.0.0"],
        &["run", "forebay.toml"],
        &["check", "--print", "--verbose"],
        &["policy"],
        &["policy", "set"],
        &["policy", "explain", "--client", "nobody", "/"],
        &["policy", "explain", "-H", "no colon", "/"],
        &["policy", "explain", "--offline", "--socket", "a/b", "/"],
        &["policy", "watch", "--seconds", "-1"],
    ] {
        let output = forebay(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_wrong_value_is_explained_as_in_a_file() {
    let output = forebay(&["serve", ".", "--listen", "8080"]);
    assert!(text(&output.stderr).contains("did you mean \":8080\"?"), "{}", text(&output.stderr));
}

/// There is no option for a certificate, so the error names the way to have one.
#[test]
fn serving_with_tls_is_2_and_names_the_way() {
    let output = forebay(&["serve", ".", "--listen", "https://:8443"]);
    assert_eq!(code(&output), 2);
    let said = text(&output.stderr);
    assert!(said.contains("tls.certificate") && said.contains("\"forebay run\""), "{said}");
}

/// A name without an address is a failed run, not wrong usage.
#[test]
fn loading_a_name_without_an_address_is_1() {
    // no resolver is asked for a label of more than 63 characters
    let url = format!("http://{}.example/", "a".repeat(64));
    let group = format!("a:url={url}");
    let plan = file(format!("[run]\nurl = \"{url}\"\n[[group]]\nname = \"a\"\n"));
    let groups = file(format!("[[group]]\nname = \"a\"\nurl = \"{url}\"\n"));
    let (plan, groups) = (plan.to_str().unwrap(), groups.to_str().unwrap());
    for arguments in [
        &["load", &url, "-n", "1"][..],
        &["load", "--group", &group],
        &["load", "--plan", plan],
        &["load", "--plan", groups],
    ] {
        let output = forebay(arguments);
        assert_eq!(code(&output), 1, "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.trim_end().ends_with("the name has no address"), "{said}");
    }
    for wrong in ["ftp://127.0.0.1/", "http://127.0.0.1:port/"] {
        assert_eq!(code(&forebay(&["load", wrong, "-n", "1"])), 2, "{wrong}");
    }
}

#[test]
fn a_duration_without_a_unit_is_2_and_the_unit_is_suggested() {
    let url = "http://127.0.0.1:1/";
    for arguments in [
        &["load", url, "-d", "5"][..],
        &["load", url, "-s", "timeout=5"],
        &["load", url, "--group", "a:rate=1,until=5"],
    ] {
        let output = forebay(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains("did you mean 5s?"), "{said}");
    }
    let output = forebay(&["policy", "watch", "--seconds", "5s"]);
    assert!(text(&output.stderr).contains("a number of seconds, such as 5"));
}

#[test]
fn an_address_given_twice_is_2() {
    let output = forebay(&["serve", ".", "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    assert_eq!(code(&output), 2);
    let expected = "forebay serve: listen: \"127.0.0.1:0\" is there twice\n";
    assert_eq!(text(&output.stderr), expected);
}

/// Like `check` and `reload`, `run` reads `forebay.toml` of the current directory by default.
#[test]
fn run_finds_its_file() {
    let path = file(BAD);
    for command in ["run", "check"] {
        let mut forebay = Command::new(env!("CARGO_BIN_EXE_forebay"));
        forebay.arg(command).current_dir(path.parent().unwrap()).stdin(Stdio::null());
        let output = forebay.output().unwrap();
        assert_eq!(code(&output), 78, "{command}");
        assert!(text(&output.stderr).starts_with("forebay.toml:2:11: "), "{command}");
    }
}

#[test]
fn an_address_in_use_is_1() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let output = forebay(&["serve", ".", "--no-log", "--listen", &address]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).starts_with("forebay: "), "{}", text(&output.stderr));
}

#[test]
fn help_and_version_go_to_stdout() {
    let help = forebay(&["--help"]);
    assert_eq!(code(&help), 0);
    for part in ["serve", "check", "Exit codes:", "78  bad configuration"] {
        assert!(text(&help.stdout).contains(part), "{part}");
    }
    let version = format!("forebay {}\n", env!("CARGO_PKG_VERSION"));
    for arguments in [["version"], ["--version"]] {
        let output = forebay(&arguments);
        assert_eq!((code(&output), text(&output.stdout)), (0, version.as_str()));
    }
    let verbose = forebay(&["version", "--verbose"]);
    assert!(text(&verbose.stdout).starts_with(&version), "{}", text(&verbose.stdout));
}

#[test]
fn nothing_is_coloured_where_no_terminal_is() {
    for arguments in [&["--help"][..], &["serve"], &["check", "-c", "/nonexistent"]] {
        let output = forebay(arguments);
        assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{arguments:?}");
    }
}

#[test]
fn a_full_standard_output_is_1() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let output = command.arg("version").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(text(&output.stderr).contains("standard output cannot be written"));
}

/// Where no server is found, the command prints the socket that it tried, the sockets of other servers, and
/// the option for one.
#[test]
fn a_server_that_is_not_found_is_looked_for_by_name() {
    let folder = format!("{}/no-server-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    std::fs::create_dir_all(format!("{folder}/site")).unwrap();
    let (own, other) = (format!("{folder}/own.sock"), format!("{folder}/0123456789abcdef.sock"));
    let config = format!("{folder}/forebay.toml");
    std::fs::write(&config, format!("root = \"site\"\ncontrol.socket = {own:?}\n")).unwrap();
    for command in [&["policy", "show"][..], &["policy", "history"], &["reload"]] {
        let said = |config: &str| {
            let output = forebay(&[command, &["-c", config]].concat());
            (code(&output), text(&output.stderr).to_owned())
        };
        let (code, told) = said(&config);
        assert_eq!(code, 1, "{command:?}");
        assert!(told.contains(&own) && told.contains("--socket"), "{command:?}: {told}");
        assert!(!told.contains(&other), "{command:?}: {told}");
        std::fs::write(&other, "").unwrap();
        assert!(said(&config).1.contains(&format!("; there is {other}")), "{command:?}");
        std::fs::remove_file(&other).unwrap();
        let (code, told) = said(&format!("{folder}/none.toml"));
        assert_eq!(code, 78, "{command:?}");
        assert!(told.contains("-c, or its socket with --socket"), "{command:?}: {told}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
