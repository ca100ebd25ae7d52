//! Configurations of several files, with variables and secrets: reloaded, upgraded, and printed.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check panics")]

use crate::upgrade::upgrade;
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::server::binary;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, has_thread_each};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc;

forebay_tests::on_each_engine! {
    sites_in_files_come_and_go,
}

/// The processes of stages read what the supervisor has read.
#[test]
fn sites_in_files_come_and_go_with_isolated() {
    sites_in_files_come_and_go("isolated");
}

/// The status of the answer for a host.
fn status(server: &Server, host: &str) -> String {
    let request = format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(server.exchange(request.as_bytes())).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn sites_in_files_come_and_go(engine: &str) {
    let folder = Folder::new();
    fs::write(folder.join("a.txt"), "a").unwrap();
    let sites = folder.join("sites");
    fs::create_dir(&sites).unwrap();
    let site = |host: &str| {
        let text =
            format!("[[site]]\nhosts = [\"{host}.${{DOMAIN}}\"]\nroot = {:?}\n", folder.join("."));
        fs::write(sites.join(format!("{host}.toml")), text).unwrap();
    };
    site("b");
    let config = format!("include = [\"{}/*.toml\"]\n", sites.display());
    let mut options = Options::new(folder.join(".")).engine(engine).config(&config);
    // a site without hosts would answer for all of them
    options.config.push_str("[[site]]\nhosts = [\"main.example\"]\n");
    options.wrapper = vec!["env".to_owned(), "DOMAIN=example".to_owned()];
    if has_thread_each(engine) {
        options.workers = 4;
    }
    let server = Server::start(&options);
    assert_eq!([status(&server, "b.example"), status(&server, "a.example")], ["200", "421"]);
    site("a");
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    // stages that were replaced may still accept
    let are = |b, a| [status(&server, "b.example"), status(&server, "a.example")] == [b, a];
    assert!(soon(PATIENCE, || are("200", "200")));
    // all or nothing
    fs::remove_file(sites.join("a.toml")).unwrap();
    fs::write(sites.join("c.toml"), "[[site]]\nhosts = [\"c.example\"]\n\nrot = 1\n").unwrap();
    let (code, said) = server.reload();
    assert!(code != Some(0) && said.contains("/sites/c.toml:4:1: site.rot: unknown key"), "{said}");
    assert!(soon(PATIENCE, || are("200", "200")));
    fs::remove_file(sites.join("c.toml")).unwrap();
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(soon(PATIENCE, || are("200", "421")));
}

/// An application that reports the value of Authorization in its requests.
fn application() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut token) = (String::new(), String::new());
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.strip_prefix("Authorization: ") {
                    value.trim().clone_into(&mut token);
                }
                line.clear();
            }
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            if tell.send(token).is_err() {
                return;
            }
        }
    });
    (addr, told)
}

#[test]
fn a_secret_reaches_the_application_and_nobody_else() {
    let folder = Folder::new();
    let (token, (addr, told)) = (folder.join("token"), application());
    fs::write(&token, "first-secret\n").unwrap();
    let app = format!(
        "[[site.proxy]]\npath = \"/\"\nto = [\"http://{addr}\"]\nset = {{ Authorization = \"Bearer ${{file:{}}}\" }}\n",
        token.display()
    );
    fs::create_dir(folder.join("sites")).unwrap();
    let include = folder.join("sites/app.toml");
    fs::write(&include, format!("[[site]]\nhosts = [\"*.example\"]\n{app}")).unwrap();
    let config = format!("include = [{include:?}]\n");
    let server = Server::start(&Options::new(folder.join(".")).config(&config));
    assert_eq!(status(&server, "a.example"), "200");
    assert_eq!(told.recv().unwrap(), "Bearer first-secret");
    fs::write(&token, "second-secret\n").unwrap();
    let (code, said) = server.reload();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(status(&server, "a.example"), "200");
    assert_eq!(told.recv().unwrap(), "Bearer second-secret");
    let says = |command: &[&str]| {
        let output = Command::new(binary()).args(command).arg("-c").arg(server.file()).output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    };
    let printed = says(&["check", "--print"]);
    assert!(printed.contains("Authorization = \"Bearer ${file:"), "{printed}");
    let all = [printed, says(&["status"]), says(&["policy", "show"]), server.stderr()].concat();
    assert!(!all.contains("second-secret"), "{all}");
}

#[test]
fn another_process_reads_all_files() {
    let folder = Folder::new();
    fs::write(folder.join("a.txt"), "a").unwrap();
    let sites = folder.join("sites");
    fs::create_dir(&sites).unwrap();
    let site = |name: &str| {
        let text =
            format!("[[site]]\nhosts = [\"{name}.example\"]\nroot = {:?}\n", folder.join("."));
        fs::write(sites.join(name), text).unwrap();
    };
    site("a");
    let config =
        format!("include = [\"{}/*\"]\n[[site]]\nhosts = [\"main.example\"]\n", sites.display());
    let server = Server::start(&Options::new(folder.join(".")).config(&config));
    assert_eq!([status(&server, "a.example"), status(&server, "b.example")], ["200", "421"]);
    site("b");
    let _successor = upgrade(&server);
    // both accept for a moment
    assert!(soon(PATIENCE, || status(&server, "b.example") == "200"));
    assert_eq!(status(&server, "a.example"), "200");
}
