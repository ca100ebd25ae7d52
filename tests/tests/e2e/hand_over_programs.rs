//! The receivers of `examples/hand-over`, as their languages run them: a site of Django under gunicorn,
//! `net/http` of Go, a program in C. A test whose language is missing is skipped with a loud line; if
//! `scripts/install test` installs the language, that is a failure under continuous integration.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use crate::hand_over::last_get;
use crate::hand_over_relayed::{post, serve_to};
use forebay_tests::faults::client::Client;
use forebay_tests::faults::process::{freeze, open_descriptors};
use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{ENGINES, Options};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running program, which ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // a program that has ended by itself is no matter
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hand-over")
}

/// Reports loudly that a test is skipped, because no package of this machine has what it needs.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(io::stderr(), "\n!!! SKIPPED {test}: {why}\n");
}

/// A server that hands `/app` over to the program at this socket.
fn serve(engine: &str, folder: &Folder, more: &str) -> WatchedServer {
    folder.write("site/index.html", "a static page");
    let to = format!("unix:{}", socket_of(folder).display());
    let lines = format!("[[hand_over]]\npath = \"/app\"\nto = {to:?}\n{more}\n");
    WatchedServer::with(Options::new(folder.join("site")).engine(engine).config(&lines))
}

fn socket_of(folder: &Folder) -> PathBuf {
    folder.join("receiver.sock")
}

fn starts(folder: &Folder, command: &mut Command) -> Running {
    let running = Running(command.stdout(Stdio::null()).spawn().unwrap());
    assert!(soon(4 * PATIENCE, || socket_of(folder).exists()), "it does not listen: {command:?}");
    running
}

fn connect(served: &WatchedServer) -> Client {
    Client::over(wire::connect(served.listens_at()))
}

/// The program also answers clients whose sockets are useless to it: through TLS and over HTTP/2 it gets
/// one end of a pair. `said` gives the beginning of its answer to a request with this method and this
/// body.
fn answers_relayed(folder: &Folder, more: &str, said: impl Fn(&str, &str) -> String) {
    let to = [format!("unix:{}", socket_of(folder).display())];
    for engine in ENGINES {
        let sealed = serve_to(engine, &to, more);
        for _ in 0..3 {
            for (request, said) in [
                (last_get("/app/relayed"), said("GET", "")),
                (post("/app/relayed"), said("POST", "ab")),
            ] {
                let answer = sealed.ask(&request);
                let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                assert!(answer.starts_with("HTTP/1.1 200 "), "{engine}: {answer}");
                assert!(body.starts_with(&said), "{engine}: {answer}");
            }
            for mut client in [sealed.http2(), sealed.http2_in_clear()] {
                for _ in 0..3 {
                    let answer = client.get("/app/relayed");
                    let body = String::from_utf8_lossy(&answer.body);
                    assert!(body.starts_with(&said("GET", "")), "{engine}: {body}");
                    assert!(answer.is_whole && answer.status == 200, "{engine}");
                    assert_eq!(client.get("/").body, b"a static page", "{engine}");
                }
                let stream =
                    client.begin("POST", "/app/relayed", &[("content-length", "2")], false);
                client.send_all(stream, b"ab");
                let body = client.answer(stream).body;
                let body = String::from_utf8_lossy(&body);
                assert!(body.starts_with(&said("POST", "ab")), "{engine}: {body}");
            }
        }
    }
}

/// Builds and starts the receiver in C.
fn in_c(test: &str) -> Option<(Folder, Running)> {
    let folder = Folder::new();
    let program = folder.join("receiver");
    let built = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(examples().join("c/receiver.c"))
        .status();
    let status = has(built, test)?;
    assert!(status.success(), "it does not compile");
    let running = starts(&folder, Command::new(program).arg(socket_of(&folder)));
    Some((folder, running))
}

#[test]
fn a_program_in_c_gives_connections_back() {
    let Some((folder, _running)) = in_c("hand_over_programs::a_program_in_c") else { return };
    for engine in ENGINES {
        let served = serve(engine, &folder, "");
        let mut client = connect(&served);
        for _ in 0..20 {
            let answer = client.get("/app/in-c").unwrap();
            assert_eq!(answer.body, b"GET /app/in-c HTTP/1.1\n", "{engine}");
            assert_eq!(client.get("/").unwrap().body, b"a static page", "{engine}");
        }
    }
    answers_relayed(&folder, "", |method, _| format!("{method} /app/relayed HTTP/1.1\n"));
}

/// A program is killed in the middle, or frozen: its clients get an answer, and nothing is kept for it.
#[test]
fn a_program_that_is_killed_or_frozen_keeps_nothing() {
    let test = "hand_over_programs::a_program_that_is_killed";
    for engine in ENGINES {
        let Some((folder, mut running)) = in_c(test) else { return };
        let served =
            serve(engine, &folder, "timeouts.taken = \"300ms\"\nkeep_alive.connections = 0");
        let mut client = connect(&served);
        assert_eq!(client.get("/app").unwrap().status, 200);
        drop(client);
        let pid = served.pid();
        let open = || served.metric_if_answered("forebay_connections");
        assert!(soon(PATIENCE, || open() == Some(0)));
        let before = open_descriptors(pid);
        let frozen = running.0.id();
        freeze(frozen);
        let mut client = connect(&served);
        assert_eq!(client.get("/app").unwrap().status, 504, "{engine}");
        drop(client);
        kill_process(Pid::from_raw(frozen as i32).unwrap(), Signal::KILL).unwrap();
        running.0.wait().unwrap();
        assert_eq!(connect(&served).get("/app").unwrap().status, 502, "{engine}");
        assert!(soon(PATIENCE, || open() == Some(0)), "{engine}");
        assert!(soon(PATIENCE, || open_descriptors(pid) <= before), "{engine}: {before} before");
    }
}

/// Builds the receiver in Rust with the crates of this workspace, and tests it.
#[test]
fn a_program_in_rust_gives_connections_back() {
    let folder = Folder::new();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for file in ["Cargo.toml", "src/main.rs"] {
        folder.write(file, fs::read(examples().join("rust").join(file)).unwrap());
    }
    folder.write("Cargo.lock", fs::read(workspace.join("Cargo.lock")).unwrap());
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--offline", "--target-dir", "target"])
        .current_dir(folder.path())
        .env_remove("CARGO_TARGET_DIR")
        .env("RUSTFLAGS", "-D warnings")
        .status();
    let test = "hand_over_programs::a_program_in_rust";
    let Some(status) = has(built, test) else { return };
    assert!(status.success(), "it does not compile");
    let _running =
        starts(&folder, Command::new(folder.join("target/debug/receiver")).arg(socket_of(&folder)));
    for engine in ENGINES {
        let served = serve(engine, &folder, "");
        let mut client = connect(&served);
        for _ in 0..20 {
            let answer = client.get("/app/in-rust").unwrap();
            assert_eq!(answer.body, b"GET /app/in-rust HTTP/1.1", "{engine}");
            assert_eq!(client.get("/").unwrap().body, b"a static page", "{engine}");
        }
    }
    answers_relayed(&folder, "", |method, _| format!("{method} /app/relayed HTTP/1.1"));
}

#[test]
fn a_server_in_go_answers_by_its_listener() {
    let test = "hand_over_programs::a_server_in_go";
    let folder = Folder::new();
    let program = folder.join("receiver");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(examples().join("go"))
        .env("GOFLAGS", "-mod=mod")
        .status();
    let Ok(status) = built else { return skipped(test, "there is no go, see scripts/install go") };
    assert!(status.success(), "it does not compile");
    let _running = starts(&folder, Command::new(program).arg(socket_of(&folder)));
    for engine in ENGINES {
        let served = serve(engine, &folder, "keep_alive.connections = 0");
        for _ in 0..5 {
            let mut client = connect(&served);
            assert_eq!(client.get("/").unwrap().body, b"a static page", "{engine}");
            let request = "POST /app/go HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe";
            client.stream().write_all(request.as_bytes()).unwrap();
            client.stream().write_all(b"llo").unwrap();
            let answer = client.answer().unwrap();
            let body = String::from_utf8(answer.body.clone()).unwrap();
            assert!(body.starts_with("POST /app/go 5 from 127.0.0.1:"), "{engine}: {body}");
            assert!(answer.is_last() && client.is_closed(), "{engine}");
        }
    }
    let said = |method: &str, body: &str| format!("{method} /app/relayed {} from ", body.len());
    answers_relayed(&folder, "keep_alive.connections = 0", said);
}

#[test]
fn a_server_in_node_answers_by_its_handles() {
    let test = "hand_over_programs::a_server_in_node";
    let folder = Folder::new();
    let is_there = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    if has(is_there, test).is_none() {
        return;
    }
    let _running = starts(
        &folder,
        Command::new("node").arg(examples().join("node/main.js")).arg(socket_of(&folder)),
    );
    for engine in ENGINES {
        let served = serve(engine, &folder, "");
        for _ in 0..5 {
            let mut client = connect(&served);
            let request = "POST /app/node HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe";
            client.stream().write_all(request.as_bytes()).unwrap();
            client.stream().write_all(b"llo").unwrap();
            let answer = client.answer().unwrap();
            assert_eq!(answer.body, b"POST /app/node 5\n", "{engine}");
            assert!(answer.is_last() && client.is_closed(), "{engine}");
        }
    }
    let said = |method: &str, body: &str| format!("{method} /app/relayed {}\n", body.len());
    answers_relayed(&folder, "", said);
}

const SITE: &str = r#"
import django.conf, django.core.wsgi, django.http, django.urls, os

def answer(request):
    said = [request.method, request.path, request.body.decode(), request.META["REMOTE_ADDR"], str(os.getpid())]
    said = " ".join(said)
    return django.http.HttpResponse(said, headers={"Content-Length": str(len(said))})

django.conf.settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="of a test")
urlpatterns = [django.urls.re_path(".*", answer)]
application = django.core.wsgi.get_wsgi_application()
"#;

/// A Python with gunicorn and Django: the one in the variable, or the one in the path.
fn python(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os("FOREBAY_GUNICORN_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| "python3".into());
    let has_both = Command::new(&python)
        .args(["-c", "import gunicorn, django"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_both {
        let why = "no Python with gunicorn and django, which FOREBAY_GUNICORN_PYTHON may name";
        skipped(test, why);
    }
    has_both.then_some(python)
}

#[test]
fn a_site_of_django_under_gunicorn_notices_nothing() {
    let Some(python) = python("hand_over_programs::a_site_of_django") else { return };
    let folder = Folder::new();
    folder.write("site_of_django.py", SITE);
    let bind = format!("unix:{}", socket_of(&folder).display());
    let _running = starts(
        &folder,
        Command::new(python)
            .args(["-m", "gunicorn", "-k", "forebay_hand_over.Worker", "-w", "2", "-b", &bind])
            .arg("site_of_django:application")
            .env(
                "PYTHONPATH",
                format!("{}:{}", examples().join("python").display(), folder.path().display()),
            )
            .current_dir(folder.path()),
    );
    let workers = "in_flight = 2\nkeep_alive.connections = 0";
    let said = |method: &str, body: &str| format!("{method} /app/relayed {body} 127.0.0.1 ");
    answers_relayed(&folder, workers, said);
    for engine in ENGINES {
        let served = serve(engine, &folder, workers);
        for _ in 0..5 {
            let mut client = connect(&served);
            assert_eq!(client.get("/").unwrap().body, b"a static page", "{engine}");
            let request = "POST /app/django HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe";
            client.stream().write_all(request.as_bytes()).unwrap();
            client.stream().write_all(b"llo").unwrap();
            let body = String::from_utf8(client.answer().unwrap().body).unwrap();
            assert!(body.starts_with("POST /app/django hello 127.0.0.1 "), "{engine}: {body}");
        }
        // one idle worker is killed: gunicorn starts another
        let killed = connect(&served).get("/app").unwrap().body;
        let killed = String::from_utf8(killed).unwrap();
        let worker: i32 = killed.rsplit(' ').next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
        assert!(soon(4 * PATIENCE, || {
            connect(&served).get("/app").is_ok_and(|answer| answer.status == 200)
        }));
    }
}
