//! Programs that are run for each request: what they get, what clients get, what is not run, and what
//! becomes of programs that take more than they may, or leave something behind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{WatchedServer, has, soon};
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ENGINES, Options, on_each_engine, on_isolated};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::geteuid;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

on_each_engine!(
    programs_are_told_what_was_asked,
    answers_of_programs_come_back,
    only_programs_beneath_the_directory_are_run,
    bodies_go_both_ways,
    what_takes_too_much_is_killed,
    nothing_is_left_of_a_request,
    a_client_that_leaves_has_its_program_killed,
    requests_wait_for_a_place,
);

on_isolated!(
    programs_are_told_what_was_asked,
    answers_of_programs_come_back,
    only_programs_beneath_the_directory_are_run,
    bodies_go_both_ways,
    what_takes_too_much_is_killed,
    nothing_is_left_of_a_request,
    a_client_that_leaves_has_its_program_killed,
);

/// The user of the programs where the tests run as root: no other process of the machine has it.
const USER: &str = "games";

/// The users of programs that take all that they may: each test has one of its own, since a user's
/// processes are counted.
const BOMBERS: [&str; 7] = ["bin", "sys", "man", "lp", "mail", "news", "uucp"];

/// A folder with programs beneath `cgi`.
pub(crate) struct Bed {
    pub(crate) folder: Folder,
    /// The time for which programs sleep, by which their processes are found.
    marker: String,
}

impl Bed {
    pub(crate) fn new() -> Bed {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let marker = format!("{}.{number}", 100_000 + std::process::id());
        let folder = Folder::new();
        folder.write("root/a.txt", "a file");
        let bed = Bed { folder, marker };
        fs::create_dir(bed.folder.join("cgi")).unwrap();
        // programs note things there
        fs::create_dir(bed.folder.join("notes")).unwrap();
        fs::set_permissions(bed.folder.join("notes"), Permissions::from_mode(0o777)).unwrap();
        for path in ["", "cgi", "root"] {
            fs::set_permissions(bed.folder.join(path), Permissions::from_mode(0o755)).unwrap();
        }
        bed
    }

    /// Adds a program of the shell. `MARK` is the time to sleep, `NOTES` the folder for notes.
    pub(crate) fn program(&self, name: &str, text: &str) {
        let notes = self.folder.join("notes");
        let text =
            text.replace("MARK", &self.marker).replace("NOTES", &notes.display().to_string());
        self.program_of(name, &format!("#!/bin/sh\n{text}\n"), 0o755);
    }

    fn program_of(&self, name: &str, text: &str, mode: u32) {
        let path = self.folder.write(&format!("cgi/{name}"), text);
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Lines of a configuration that runs the programs.
    pub(crate) fn lines(&self, more: &str) -> String {
        let user = if geteuid().is_root() { format!("user = \"{USER}\"\n") } else { String::new() };
        let directory = self.folder.join("cgi");
        format!("[[cgi]]\npath = \"/cgi-bin\"\ndirectory = {directory:?}\n{user}{more}\n")
    }

    fn options(&self, engine: &str, top: &str, more: &str) -> Options {
        let lines = format!("{top}\n{}", self.lines(more));
        Options::new(self.folder.join("root")).engine(engine).config(&lines)
    }

    fn serve(&self, engine: &str, top: &str, more: &str) -> WatchedServer {
        WatchedServer::with(self.options(engine, top, more))
    }

    fn note(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join("notes").join(name))
            .ok()
            .filter(|text| !text.is_empty())
    }

    /// The number of processes that sleep for the marker.
    fn sleepers(&self) -> usize {
        let is_one = |path: &Path| {
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == self.marker.as_bytes())
        };
        let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        all.filter(|path| is_one(path)).count()
    }
}

/// The answer, until the server closes; it may be empty, if the connection is reset.
fn ask(server: &WatchedServer, text: &str) -> (u16, String, Vec<u8>) {
    let answer = server.exchange(text.as_bytes());
    let Some(end) = answer.windows(4).position(|end| end == b"\r\n\r\n") else {
        return (0, String::new(), answer);
    };
    let head = String::from_utf8(answer[..end + 4].to_vec()).unwrap();
    (head[9..12].parse().unwrap(), head, answer[end + 4..].to_vec())
}

fn get(server: &WatchedServer, path: &str) -> (u16, String) {
    let (status, _, body) = ask(server, &format!("GET {path} HTTP/1.0\r\nHost: a.example\r\n\r\n"));
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn programs_are_told_what_was_asked(engine: &str) {
    let bed = Bed::new();
    bed.program("told", "echo Content-Type: text/plain; echo; env; pwd; echo in:$(cat); id -un; ls -l /proc/self/fd | wc -l");
    fs::create_dir(bed.folder.join("cgi/more")).unwrap();
    bed.program(
        "more/deep.cgi",
        "echo Content-Type: text/plain; echo; echo $SCRIPT_NAME $PATH_INFO; . ./beside",
    );
    bed.program("more/beside", "echo beside");
    let server = bed.serve(engine, "", "set = { APP_ENV = \"test\", LANG = \"C\" }");
    let fields = "Host: shop.example\r\nProxy: http://evil/\r\nX_Forwarded_For: 6.6.6.6\r\nX-Own: 1\r\n\
                  X-Own: 2\r\nContent-Type: a/b\r\nContent-Length: 4\r\n";
    let (status, _, body) =
        ask(&server, &format!("POST /cgi-bin/told/pa%74h/b?q=%41 HTTP/1.0\r\n{fields}\r\nbody"));
    let told = String::from_utf8(body).unwrap();
    assert_eq!(status, 200, "{engine}: {told}");
    let (directory, root) = (bed.folder.join("cgi"), bed.folder.join("root"));
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1",
        "REQUEST_METHOD=POST",
        "REQUEST_URI=/cgi-bin/told/pa%74h/b?q=%41",
        "QUERY_STRING=q=%41",
        "SCRIPT_NAME=/cgi-bin/told",
        "PATH_INFO=/path/b",
        &format!("SCRIPT_FILENAME={}/told", directory.display()),
        &format!("DOCUMENT_ROOT={}", root.display()),
        "CONTENT_LENGTH=4",
        "CONTENT_TYPE=a/b",
        "SERVER_NAME=shop.example",
        "REMOTE_ADDR=127.0.0.1",
        "HTTP_HOST=shop.example",
        "HTTP_X_OWN=1, 2",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "APP_ENV=test",
        "in:body",
        &directory.display().to_string(),
    ] {
        assert!(told.lines().any(|told| told == line), "{engine}: {line} in {told}");
    }
    for word in ["evil", "6.6.6.6", "PATH_TRANSLATED", "HTTP_CONTENT", "NOTIFY_SOCKET", "HOME="] {
        assert!(!told.contains(word), "{engine}: {word} in {told}");
    }
    if geteuid().is_root() {
        assert!(told.lines().any(|line| line == USER), "{told}");
    }
    // 0 to 2, what ls reads, and a line of its own
    assert!(told.trim_end().ends_with("\n5"), "{told}");
    let deep = "/cgi-bin/more/deep.cgi /x\nbeside\n".to_owned();
    assert_eq!(get(&server, "/cgi-bin/more/deep.cgi/x"), (200, deep), "{engine}");
}

fn answers_of_programs_come_back(engine: &str) {
    let bed = Bed::new();
    bed.program(
        "answer",
        "case $PATH_INFO in
         /gone) echo Status: 410 Gone; echo; echo gone ;;
         /moved) echo Location: http://b.example/; echo ;;
         /local) echo Location: /elsewhere; echo ;;
         /sized) echo Content-Length: 5; echo; printf hello ;;
         /nph) printf 'HTTP/1.1 200 OK\\r\\n\\r\\n' ;;
         /nothing) ;;
         /words) echo no field; echo ;;
         /says) echo \"first line\" >&2; echo A: b; echo; echo said; exit 3 ;;
         /loud) head -c 2000000 /dev/zero | tr '\\0' x >&2; echo A: b; echo; echo quiet ;;
         /killed) kill -9 $$ ;;
         /half) echo A: b; echo; echo half; exec kill -9 $$ ;;
         esac",
    );
    bed.program_of("lost", "#!/nowhere/interpreter\n", 0o755);
    bed.program_of("broken", "no program\n", 0o755);
    let server = bed.serve(engine, "", "");
    for (path, status, field) in [
        ("gone", 410, ""),
        ("moved", 302, "Location: http://b.example/\r\n"),
        ("local", 302, "Location: /elsewhere\r\n"),
        ("sized", 200, "Content-Length: 5\r\n"),
        ("nph", 502, ""),
        ("nothing", 502, ""),
        ("words", 502, ""),
        ("says", 200, "A: b\r\n"),
        ("loud", 200, "A: b\r\n"),
        ("killed", 502, ""),
    ] {
        let text = format!("GET /cgi-bin/answer/{path} HTTP/1.0\r\nHost: a\r\n\r\n");
        let (found, head, _) = ask(&server, &text);
        assert!(found == status && head.contains(field), "{engine} {path}: {head}");
    }
    for (path, word) in [
        ("lost", "the interpreter that its first line names is not there"),
        ("broken", "Exec format error"),
    ] {
        assert_eq!(get(&server, &format!("/cgi-bin/{path}")).0, 502, "{engine} {path}");
        server.says(word);
    }
    for word in ["first line", "ended with exit code 3", "killed by signal 9"] {
        server.says(word);
    }
    assert!(server.stderr().len() < 200_000, "{engine}: what is said for the log is bounded");
    assert_eq!(get(&server, "/a.txt"), (200, "a file".to_owned()), "{engine}");
}

fn only_programs_beneath_the_directory_are_run(engine: &str) {
    let bed = Bed::new();
    let run = "echo A: b; echo; echo run $SCRIPT_NAME $PATH_INFO";
    bed.program("a", run);
    bed.program(".hidden", run);
    fs::create_dir_all(bed.folder.join("cgi/more/.git")).unwrap();
    bed.program("more/b", run);
    bed.program("more/.git/c", run);
    bed.folder.write("outside", "#!/bin/sh\necho A: b; echo; echo outside\n");
    fs::set_permissions(bed.folder.join("outside"), Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| bed.folder.join("cgi").join(name);
    symlink(bed.folder.join("outside"), at("out")).unwrap();
    symlink("../outside", at("relative")).unwrap();
    symlink("..", at("up")).unwrap();
    symlink("/proc/self/exe", at("magic")).unwrap();
    symlink("more", at("way")).unwrap();
    symlink("loop", at("loop")).unwrap();
    bed.program_of("plain", "text", 0o644);
    bed.program_of("setuid", "#!/bin/sh\n", 0o4755);
    fs::create_dir_all(bed.folder.join("cgi/closed/in")).unwrap();
    bed.program("closed/in/b", run);
    fs::set_permissions(at("closed/in"), Permissions::from_mode(0o755)).unwrap();
    // a server that runs as the user that starts it may enter that user's directories
    let closed = if geteuid().is_root() { 403 } else { 200 };
    fs::set_permissions(at("closed"), Permissions::from_mode(0o700)).unwrap();
    let server = bed.serve(engine, "", "");
    for (path, status, body) in [
        ("/cgi-bin/a", 200, "run /cgi-bin/a\n"),
        ("/cgi-bin/a/", 200, "run /cgi-bin/a /\n"),
        ("/cgi-bin/a/x/y", 200, "run /cgi-bin/a /x/y\n"),
        ("/cgi-bin/%61", 200, "run /cgi-bin/a\n"),
        ("/cgi-bin/way/b", 200, "run /cgi-bin/way/b\n"),
        ("/cgi-bin/x/../a", 400, ""),
        ("/cgi-bin", 404, ""),
        ("/cgi-bin/", 404, ""),
        ("/cgi-bin/none", 404, ""),
        ("/cgi-bin/more", 404, ""),
        ("/cgi-bin/more/", 404, ""),
        ("/cgi-bin/out", 404, ""),
        ("/cgi-bin/relative", 404, ""),
        ("/cgi-bin/up/outside", 404, ""),
        ("/cgi-bin/magic", 404, ""),
        ("/cgi-bin/loop", 404, ""),
        ("/cgi-bin/.hidden", 404, ""),
        ("/cgi-bin/more/.git/c", 404, ""),
        ("/cgi-bin/a%00", 404, ""),
        ("/cgi-bin/none%00/a", 404, ""),
        ("/cgi-bin/plain", 403, ""),
        ("/cgi-bin/setuid", 403, ""),
        ("/cgi-bin/closed/in/b", closed, ""),
        ("/cgi-bin/../outside", 404, ""),
        ("/cgi-bin/..%2foutside", 400, ""),
        ("/cgi-bin/%2e%2e/outside", 404, ""),
        ("/cgi-bin/more%2fb", 400, ""),
        ("/cgi-bin//a", 400, ""),
        ("/cgi-bin/..%5coutside", 400, ""),
    ] {
        let (found, text) = get(&server, path);
        assert!(found == status && text.ends_with(body), "{engine} {path}: {found} {text}");
        assert!(!text.contains("outside"), "{engine} {path}: {text}");
    }
    server.says("plain: it is not executable (chmod +x)");
    server.says("setuid: it is setuid or setgid");
}

fn bodies_go_both_ways(engine: &str) {
    let bed = Bed::new();
    bed.program("sum", "echo Content-Type: text/plain; echo; echo $CONTENT_LENGTH $(cksum)");
    bed.program("deaf", "echo A: b; echo; echo deaf");
    bed.program("big", "echo A: b; echo; head -c 20000000 /dev/zero");
    let spool = bed.folder.join("spool");
    fs::create_dir(&spool).unwrap();
    let alone = if engine == forebay_tests::ISOLATED { "isolated.respond = 1\n" } else { "" };
    let top = format!("spool_dir = {spool:?}\n{alone}");
    let server = bed.serve(engine, &top, "");
    let mut expected = std::process::Command::new("sh");
    let expected = expected.args(["-c", "head -c 3000000 /dev/zero | cksum"]).output().unwrap();
    let expected = format!("3000000 {}", String::from_utf8(expected.stdout).unwrap());
    let head = "POST /cgi-bin/sum HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    let zeroes = "\0".repeat(3_000_000);
    let (status, _, body) = ask(&server, &format!("{head}Content-Length: 3000000\r\n\r\n{zeroes}"));
    let body = String::from_utf8(body).unwrap();
    assert!(status == 200 && body.contains(&expected), "{engine}: {body}");
    let chunked = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{zeroes}\r\n0\r\n\r\n",
        zeroes.len()
    );
    let (status, _, body) = ask(&server, &chunked);
    let body = String::from_utf8(body).unwrap();
    assert!(status == 200 && body.contains(expected.trim_end()), "{engine}: {body}");
    // a body that the program does not read blocks nothing
    let many = "\0".repeat(20_000_000);
    let text = format!(
        "POST /cgi-bin/deaf HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000000\r\n\r\n{many}"
    );
    let (status, head, body) = ask(&server, &text);
    let body = String::from_utf8_lossy(&body).into_owned();
    assert!(status == 200 && body.contains("deaf"), "{engine}: {head} {body}");
    assert_eq!(get(&server, "/cgi-bin/big").1.len(), 20_000_000, "{engine}");
}

fn what_takes_too_much_is_killed(engine: &str) {
    let bed = Bed::new();
    let head = "echo A: b; echo; ";
    bed.program("slow", "trap '' TERM; sleep MARK");
    bed.program("drips", &format!("{head} while :; do echo x; sleep 0.1; done; sleep MARK"));
    bed.program(
        "endless",
        &format!("{head} sleep MARK & while :; do head -c 100000 /dev/zero; done"),
    );
    bed.program("silent", &format!("{head} exec >&- 2>&-; sleep MARK"));
    bed.program("eats", "head -c 300000000 /dev/zero | tail -c 300000000 | wc -c");
    bed.program(
        "eat",
        "for n in 1 2 3 4; do (head -c 40000000 /dev/zero; sleep MARK) | tail -c 40000000 & done; sleep MARK",
    );
    bed.program("bomb", "bomb() { sleep MARK & bomb | bomb & }; bomb; sleep MARK");
    bed.program("many", "for n in $(seq 40); do sleep MARK & done; sleep MARK");
    bed.program("sessions", "while :; do setsid sleep MARK & done");
    let limits = "limits = { output = \"1MiB\", memory = \"100MiB\", processes = 20 }";
    let number = ENGINES.iter().position(|other| *other == engine).unwrap_or(ENGINES.len());
    let lines = bed.lines(&format!("in_flight = 4\n{limits}\n"));
    let lines = lines.replace(USER, BOMBERS[number]);
    let options = Options::new(bed.folder.join("root")).engine(engine).config(&lines);
    let server = WatchedServer::with(options);
    for (path, status, word) in [
        ("many", 502, "it has begun more than 20 processes (limits.processes)"),
        // these may also have as many as their user may, and give up by themselves
        ("bomb", 502, "/cgi-bin/bomb, request "),
        ("sessions", 502, "/cgi-bin/sessions, request "),
        ("eat", 502, "of memory (limits.memory)"),
        ("endless", 200, "it has answered more than 1MiB (limits.output)"),
        ("silent", 200, "it has closed its output, and has not ended within 5s"),
    ] {
        let before = server.stderr().matches(word).count();
        let (found, _) = get(&server, &format!("/cgi-bin/{path}"));
        assert_eq!(found, status, "{engine} {path}: {}", server.stderr());
        let is_told = || server.stderr().matches(word).count() > before;
        assert!(soon(PATIENCE, is_told), "{engine} {path}: {}", server.stderr());
        assert!(soon(PATIENCE, || bed.sleepers() == 0), "{engine} {path}: {}", bed.sleepers());
    }
    // the limit of memory holds for each process, too
    assert_eq!(get(&server, "/cgi-bin/eats").0, 502, "{engine}");
    // both at the same time: each is killed when its own time is over
    drop(server);
    let server = bed.serve(engine, "", "limits.time = \"8s\"\n");
    let asked = ["slow", "drips"].map(|path| {
        let (mut stream, text) =
            (server.connect(), format!("GET /cgi-bin/{path} HTTP/1.0\r\n\r\n"));
        stream.write_all(text.as_bytes()).unwrap();
        thread::spawn(move || {
            let mut answer = Vec::new();
            stream.set_read_timeout(Some(4 * PATIENCE)).unwrap();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        })
    });
    let [slow, drips] = asked.map(|one| one.join().unwrap());
    assert!(slow.starts_with("HTTP/1.1 504 "), "{engine}: {slow} {}", server.stderr());
    assert!(drips.starts_with("HTTP/1.1 200 "), "{engine}: {drips}");
    server.says("killed after 8s (limits.time)");
    assert!(soon(PATIENCE, || bed.sleepers() == 0), "{engine}");
    assert_eq!(get(&server, "/a.txt"), (200, "a file".to_owned()), "{engine}");
}

/// No process of the program is left, whatever session it has moved to, and whether it holds the
/// program's output or not.
fn nothing_is_left_of_a_request(engine: &str) {
    let bed = Bed::new();
    let head = "echo A: b; echo; echo begun; ";
    bed.program("keeps", &format!("{head} sleep MARK & exit 0"));
    bed.program(
        "flees",
        &format!("{head} setsid setsid sleep MARK > /dev/null 2>&1 < /dev/null & exit 0"),
    );
    bed.program(
        "daemon",
        &format!(
            "{head} (setsid sh -c '(setsid sleep MARK &) ; sleep MARK' >/dev/null 2>&1 &) ; exit 0"
        ),
    );
    let server = bed.serve(engine, "", "");
    for path in ["keeps", "flees", "daemon"] {
        let (status, text) = get(&server, &format!("/cgi-bin/{path}"));
        assert_eq!((status, &*text), (200, "begun\n"), "{engine} {path}");
        // before the answer is over, all of it is
        assert_eq!(bed.sleepers(), 0, "{engine} {path}");
    }
}

fn a_client_that_leaves_has_its_program_killed(engine: &str) {
    let bed = Bed::new();
    bed.program("hangs", "echo begun >> NOTES/begun; sleep MARK");
    bed.program("breaks", "echo A: b; echo; echo half; echo begun >> NOTES/begun; sleep MARK");
    bed.program("sends", "echo A: b; echo; echo begun >> NOTES/begun; cat /dev/zero; sleep MARK");
    let server = bed.serve(engine, "", "in_flight = 1\n");
    for path in ["hangs", "breaks", "sends"] {
        for is_reset in [true, false] {
            let _ = fs::remove_file(bed.folder.join("notes/begun"));
            let mut stream = server.connect();
            write!(stream, "GET /cgi-bin/{path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert!(soon(PATIENCE, || bed.note("begun").is_some()), "{engine} {path}");
            if is_reset {
                set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
            drop(stream);
            assert!(soon(PATIENCE, || bed.sleepers() == 0), "{engine} {path} {is_reset}");
        }
    }
    // the place is free again
    bed.program("next", "echo A: b; echo; echo next");
    assert_eq!(get(&server, "/cgi-bin/next"), (200, "next\n".to_owned()), "{engine}");
}

fn requests_wait_for_a_place(engine: &str) {
    let bed = Bed::new();
    bed.program(
        "counts",
        "mkdir NOTES/one || echo two > NOTES/two; sleep 0.05; rmdir NOTES/one; echo A: b; echo; echo done",
    );
    let server = bed.serve(engine, "", "in_flight = 1\nqueue.time = \"2m\"\n");
    let asked: Vec<_> = (0..12)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"GET /cgi-bin/counts HTTP/1.0\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for mut stream in asked {
        let mut answer = String::new();
        stream.set_read_timeout(Some(4 * PATIENCE)).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\ndone\n"), "{engine}: {answer}");
    }
    assert_eq!(bed.note("two"), None, "{engine}");
}

/// The launchers of programs that a server, or a stage of it, has started.
fn launchers(server: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten().flatten();
    let told = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: String = told.collect();
    let numbers = children.split_whitespace().map(|number| number.parse().unwrap());
    let is_one = |process: &u32| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        name.trim() == "forebay-cgi"
    };
    numbers.filter(is_one).collect()
}

fn kill(process: u32) {
    let process = rustix::process::Pid::from_raw(process.try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
}

/// Another route, another limit, another user: the launcher reads the file itself. A server that has
/// begun without programs has no launcher, says so, and gets one by an upgrade.
#[test]
fn a_reload_reaches_the_launcher_and_an_upgrade_starts_one() {
    let bed = Bed::new();
    bed.program("told", "echo A: b; echo; echo $APP_ENV");
    let options = |lines: &str| Options::new(bed.folder.join("root")).engine("event").config(lines);
    let server = WatchedServer::with(options(""));
    assert!(launchers(server.pid()).is_empty());
    let text = fs::read_to_string(server.file()).unwrap();
    let with = |more: &str| format!("{text}\n{}", bed.lines(more));
    server.configure_with(&with("set = { APP_ENV = \"one\" }"));
    let (code, said) = server.reload();
    assert!(code == Some(1) && said.contains("forebay upgrade starts such a server"), "{said}");
    assert_eq!(get(&server, "/cgi-bin/told").0, 404);
    let next = forebay_tests::upgrade::upgrade(&server);
    assert_eq!(get(&server, "/cgi-bin/told"), (200, "one\n".to_owned()));
    let [launcher] = launchers(next.number().try_into().unwrap())[..] else { panic!("one") };
    server.configure_with(&with("set = { APP_ENV = \"two\" }"));
    assert_eq!(server.reload().0, Some(0));
    assert_eq!(get(&server, "/cgi-bin/told"), (200, "two\n".to_owned()));
    server.configure_with(&with("user = \"nobody-has-this-name\""));
    let (code, said) = server.reload();
    assert!(code != Some(0), "{said}");
    assert_eq!(get(&server, "/cgi-bin/told"), (200, "two\n".to_owned()));
    server.configure_with(&text);
    assert_eq!(server.reload().0, Some(0));
    assert_eq!(get(&server, "/cgi-bin/told").0, 404);
    server.configure_with(&with("set = { APP_ENV = \"three\" }"));
    assert_eq!(server.reload().0, Some(0));
    assert_eq!(get(&server, "/cgi-bin/told"), (200, "three\n".to_owned()));
    assert_eq!(launchers(next.number().try_into().unwrap()), [launcher]);
}

/// Requests then get 502, the end is reported, and the next upgrade begins another launcher.
#[test]
fn a_launcher_that_is_killed_is_told() {
    let bed = Bed::new();
    bed.program("told", "echo A: b; echo; echo told");
    bed.program("hangs", "echo begun >> NOTES/begun; sleep MARK");
    let server = bed.serve("event", "", "");
    let [launcher] = launchers(server.pid())[..] else { panic!("one launcher") };
    let mut stream = server.connect();
    stream.write_all(b"GET /cgi-bin/hangs HTTP/1.0\r\n\r\n").unwrap();
    assert!(soon(PATIENCE, || bed.note("begun").is_some()));
    kill(launcher);
    let word = "the process that runs CGI programs has ended; forebay upgrade, or a restart, begins another";
    server.says(word);
    assert_eq!(get(&server, "/cgi-bin/told").0, 502);
    // the program that is under way goes on, and ends with its client
    assert!(soon(PATIENCE, || bed.sleepers() == 1));
    drop(stream);
    assert!(soon(PATIENCE, || bed.sleepers() == 0));
    assert_eq!(get(&server, "/a.txt"), (200, "a file".to_owned()));
    assert!(soon(PATIENCE, || launchers(server.pid()).is_empty()), "no zombie");
    let mut status = std::process::Command::new(forebay_tests::server::binary());
    let status = status.args(["status", "-c"]).arg(server.file()).output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).contains(word), "{status:?}");
    let _next = forebay_tests::upgrade::upgrade(&server);
    assert_eq!(get(&server, "/cgi-bin/told"), (200, "told\n".to_owned()));
}

/// Programs and everything they have started end with the server, however the server ends.
#[test]
fn programs_end_with_the_server() {
    let bed = Bed::new();
    bed.program("hangs", "setsid sleep MARK & echo begun >> NOTES/begun; sleep MARK");
    let server = bed.serve("event", "", "");
    let mut stream = server.connect();
    stream.write_all(b"GET /cgi-bin/hangs HTTP/1.0\r\n\r\n").unwrap();
    assert!(soon(PATIENCE, || bed.note("begun").is_some() && bed.sleepers() == 2));
    let [launcher] = launchers(server.pid())[..] else { panic!("one launcher") };
    server.signal(rustix::process::Signal::KILL);
    assert!(soon(PATIENCE, || bed.sleepers() == 0));
    let is_there = || fs::exists(format!("/proc/{launcher}")).unwrap();
    assert!(soon(PATIENCE, || !is_there()));
}

/// A process that has got a program's output from elsewhere cannot write into its answer.
#[test]
fn an_answer_ends_though_an_outsider_holds_the_output() {
    let bed = Bed::new();
    let waits =
        "echo A: b; echo; echo $$ > NOTES/held; while [ ! -e NOTES/go ]; do sleep 0.1; done";
    bed.program("held", &format!("{waits}; echo held"));
    let server = bed.serve("event", "", "");
    let mut stream = server.connect();
    stream.write_all(b"GET /cgi-bin/held HTTP/1.0\r\n\r\n").unwrap();
    assert!(soon(PATIENCE, || bed.note("held").is_some()));
    let program = bed.note("held").unwrap();
    let output = format!("/proc/{}/fd/1", program.trim());
    let held = fs::OpenOptions::new().write(true).open(output).unwrap();
    bed.folder.write("notes/go", "");
    let mut answer = String::new();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nheld\n"), "{answer}");
    drop(held);
}

#[test]
fn no_program_is_run_as_root() {
    if has(geteuid().is_root().then_some(()).ok_or("only root can"), "users of programs").is_none()
    {
        return;
    }
    let bed = Bed::new();
    bed.program("a", "id -u");
    for (top, more) in [("", ""), ("", "user = \"root\""), ("user = \"root\"", "")] {
        let user = format!("user = \"{USER}\"\n");
        let lines = bed.lines(more).replacen(&user, "", usize::from(more.is_empty()));
        let lines = if more.is_empty() { lines } else { lines.replacen(&user, "", 1) };
        let file = bed.folder.write(
            "forebay.toml",
            format!("listen = [\"127.0.0.1:0\"]\nroot = \".\"\n{top}\n{lines}"),
        );
        for command in ["check", "run"] {
            let mut program = std::process::Command::new(forebay_tests::server::binary());
            let given = program.args([command, "-c"]).arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&given.stderr).into_owned()
                + &String::from_utf8_lossy(&given.stdout);
            assert!(
                !given.status.success() && said.contains("root"),
                "{command} {top} {more}: {said}"
            );
        }
    }
}
