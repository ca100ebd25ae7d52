//! `forebay init` from a terminal, a pipe and options; what it writes is checked, and run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::{binary, free_addr};
use forebay_tests::wire::{self, PATIENCE};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `forebay init` in the folder, with this standard input.
fn init(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(binary());
    command.arg("init").args(args);
    run(command, folder, input)
}

/// Runs `forebay init` at a terminal, where the input is typed.
fn typed(folder: &Path, input: &str) -> Output {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{} init", binary().display()), "/dev/null"]);
    run(command, folder, input)
}

fn run(mut command: Command, folder: &Path, input: &str) -> Output {
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // the command may have ended before it reads everything
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn text(folder: &Path) -> String {
    fs::read_to_string(folder.join("forebay.toml")).unwrap()
}

fn check(folder: &Path) -> (Option<i32>, String) {
    let output = Command::new(binary()).arg("check").current_dir(folder).output().unwrap();
    (output.status.code(), stderr(&output))
}

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "hello");
    folder
}

#[test]
fn three_lines_are_a_file_that_serves() {
    let folder = site();
    let addr = free_addr();
    let output = init(folder.path(), &[], &format!("site\n\n{addr}\n"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.starts_with("forebay init: forebay.toml is written and good\nNext:\n"), "{said}");
    assert!(said.ends_with(&format!("  1. forebay run\n  2. open http://{addr}/\n")), "{said}");
    // without a terminal no question is asked
    assert!(!said.contains("What is served"), "{said}");
    assert_eq!(check(folder.path()), (Some(0), "forebay.toml: good\n".to_owned()));
    let mut server = Command::new(binary());
    server.arg("run").current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    let is_up = soon(PATIENCE, || TcpStream::connect(addr).is_ok());
    let answer = is_up.then(|| wire::exchange(addr, b"GET / HTTP/1.0\r\n\r\n"));
    let _ = server.kill();
    let _ = server.wait();
    let answer = String::from_utf8(answer.unwrap()).unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
}

/// A user who ends the input early takes the defaults.
#[test]
fn answers_that_are_missing_are_the_defaults() {
    let folder = site();
    for (input, listen) in
        [("", "127.0.0.1:8080"), ("site\n", "127.0.0.1:8080"), ("\n\n:8081", ":8081")]
    {
        let output = init(folder.path(), &[], input);
        assert_eq!(output.status.code(), Some(0), "{input:?} {}", stderr(&output));
        assert!(text(folder.path()).contains(&format!("\nlisten = [\"{listen}\"]")), "{input:?}");
        fs::remove_file(folder.join("forebay.toml")).unwrap();
    }
}

/// A mistake at the terminal costs one answer, not all of them.
#[test]
fn a_person_is_asked_again() {
    let folder = site();
    let output = typed(folder.path(), "nowhere\nsite\nshop.example\nhttps\n");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("or the address of an application [.]: "), "{said}");
    assert!(said.contains("  nowhere: No such file or directory"), "{said}");
    assert_eq!(said.matches("What is served").count(), 2, "{said}");
    assert!(said.contains("have shop.example lead to this machine"), "{said}");
    let text = text(folder.path());
    for line in [
        "\nlisten = [\":80\", \"https://:443\"]\n",
        "\nagree = true ",
        "\nhosts = [\"shop.example\"] ",
    ] {
        assert!(text.contains(line), "{line:?}: {text}");
    }
}

#[test]
fn a_person_who_stops_has_no_file() {
    let folder = site();
    let output = typed(folder.path(), "site\n\u{4}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped before the last answer; nothing was written"), "{said}");
    assert!(!folder.join("forebay.toml").exists());
}

#[test]
fn a_file_that_is_there_stays() {
    let folder = site();
    let file = folder.join("forebay.toml");
    let refused = || {
        let output = init(folder.path(), &["site"], "");
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("forebay.toml is there already, and stays"),
            "{}",
            stderr(&output)
        );
    };
    fs::write(&file, "# mine\n").unwrap();
    refused();
    assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\n");
    fs::remove_file(&file).unwrap();
    // a link that leads nowhere is not followed
    symlink(folder.join("elsewhere"), &file).unwrap();
    refused();
    assert!(!folder.join("elsewhere").exists());
    let output = init(folder.path(), &["site", "-c", "other.toml"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("1. forebay run -c other.toml"), "{}", stderr(&output));
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let folder = site();
    folder.write("file", "");
    for (args, input, code, words) in [
        (&["nowhere"][..], "", 2, "what is served: nowhere: No such file or directory"),
        (&["file"], "", 2, "what is served: file is no folder"),
        (&["127.0.0.1:3000"], "", 2, "as in http://127.0.0.1:3000"),
        (&["site", "--host", "a/b"], "", 2, "host names: "),
        (&["site", "--listen", "nonsense"], "", 2, "where it listens: expected an address"),
        (&["site", "--listen", "https"], "", 2, "https needs a host name"),
        (
            &["site", "--listen", "https", "--host", "10.0.0.1"],
            "",
            2,
            "no certificate for 10.0.0.1",
        ),
        (&["site", "--listen", "https://:8443"], "", 2, "say https, for ports 80 and 443"),
        (&[], "site\n\nnonsense\n", 2, "where it listens: expected an address"),
        (&["site", "-c", "no/where.toml"], "", 1, "no/where.toml cannot be written: No such file"),
        (&["site", "-c", "forebay.yaml/"], "", 1, "forebay.yaml/ cannot be written"),
    ] {
        let output = init(folder.path(), args, input);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.starts_with("forebay init: ") && said.contains(words), "{args:?}: {said}");
        assert!(!folder.join("forebay.toml").exists(), "{args:?}");
    }
}

/// The contents of a folder decide what kind of site it is.
#[test]
fn an_application_is_seen() {
    let folder = Folder::new();
    for name in [
        "node/package.json",
        "shop/manage.py",
        "built/package.json",
        "built/index.html",
        "vite/package.json",
        "vite/index.html",
        "vite/dist/index.html",
    ] {
        folder.write(name, "");
    }
    for name in [
        "php/index.php",
        "wordpress/index.php",
        "wordpress/wp-load.php",
        "laravel/public/index.php",
    ] {
        folder.write(name, "<?php");
    }
    for (what, lines) in [
        (
            "node",
            &["[[site.proxy]]", "to = \"http://127.0.0.1:3000\"", "There are sources for Node"][..],
        ),
        (
            "shop",
            &["[[site.proxy]]", "to = \"http://127.0.0.1:8000\"", "There are sources for Python"],
        ),
        ("built", &["root = \"built\"", "package(-lock)?"]),
        ("vite", &["root = \"vite/dist\"", "[[site.access]]"]),
        ("php", &["root = \"php\"", "[[site.fastcgi]]", "\n# try = \"/index.php\""]),
        ("wordpress", &["root = \"wordpress\"", "\ntry = \"/index.php\""]),
        ("laravel", &["root = \"laravel/public\"", "\ntry = \"/index.php\""]),
        ("http://127.0.0.1:9000/", &["to = \"http://127.0.0.1:9000\""]),
        ("unix:/run/app.sock", &["to = \"unix:/run/app.sock\""]),
    ] {
        let output = init(folder.path(), &[what], "");
        assert_eq!(output.status.code(), Some(0), "{what}: {}", stderr(&output));
        let text = text(folder.path());
        lines.iter().for_each(|line| assert!(text.contains(line), "{what}: {line:?} in {text}"));
        let (code, said) = check(folder.path());
        assert!(code == Some(0) && said.contains("forebay.toml: good"), "{what}: {said}");
        fs::remove_file(folder.join("forebay.toml")).unwrap();
    }
}

/// A file elsewhere names the folder so that it is found from there.
#[test]
fn a_file_elsewhere_names_the_whole_path() {
    let folder = site();
    fs::create_dir(folder.join("etc")).unwrap();
    let output = init(folder.path(), &["site", "-c", "etc/forebay.toml"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = fs::read_to_string(folder.join("etc/forebay.toml")).unwrap();
    assert!(text.contains(&format!("root = {:?}", folder.join("site"))), "{text}");
}
