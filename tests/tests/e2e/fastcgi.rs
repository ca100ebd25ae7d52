//! Scripts that a real php-fpm runs: what they get, what clients get, and what becomes of scripts that
//! fail.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::soon;
use forebay_tests::php::Fpm;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{Options, Server, on_each_engine};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

on_each_engine!(
    scripts_are_told_what_was_asked,
    answers_of_scripts_come_back,
    what_is_no_script_is_not_run,
    what_follows_a_script_is_never_run,
    great_bodies_go_both_ways_to_scripts,
    scripts_that_fail_are_told_apart,
    a_client_that_leaves_frees_its_place,
    connections_to_scripts_are_kept_where_asked,
    classes_hold_scripts,
);

/// Starts a php-fpm with two workers. `None`, with a loud line, if there is none.
fn start() -> Option<Fpm> {
    with_workers(2)
}

fn with_workers(workers: usize) -> Option<Fpm> {
    let folder = Folder::new();
    for (name, script) in SCRIPTS {
        folder.write(&format!("root/{name}"), script);
    }
    Fpm::start(folder, workers, "a test of fastcgi.rs")
}

/// Starts a server whose scripts this php-fpm runs.
fn serve(fpm: &Fpm, engine: &str, more: &str) -> Server {
    Server::start(&Options::new(fpm.root()).engine(engine).config(&fpm.lines(more)))
}

const SCRIPTS: [(&str, &str); 13] = [
    ("index.php", "<?php echo 'index ', $_SERVER['REQUEST_URI'];"),
    ("front/index.php", "<?php echo 'front ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'];"),
    ("style.css", "body{}"),
    ("picture.png", "<?php echo 'run';"),
    (
        "told.php",
        "<?php header('Content-Type: text/plain'); ksort($_SERVER);
         foreach ($_SERVER as $name => $value)
             if (is_string($value)) echo \"$name=$value\\n\";
         echo 'POST:', http_build_query($_POST), ' GET:', http_build_query($_GET), \"\\n\";",
    ),
    ("sum.php", "<?php $body = file_get_contents('php://input'); echo strlen($body), ' ', md5($body);"),
    ("big.php", "<?php for ($i = 0; $i < 1024; $i++) echo str_repeat(chr(65 + $i % 26), 1024);"),
    (
        "answer.php",
        "<?php switch ($_SERVER['PATH_INFO']) {
         case '/gone': http_response_code(410); echo 'gone'; break;
         case '/moved': header('Location: /elsewhere'); break;
         case '/same': http_response_code(304); header('ETag: \"a\"'); break;
         case '/sized': header('Content-Length: 5'); echo 'hello'; break;
         case '/exit': echo 'before'; exit(3); echo 'after';
         case '/two': header('Set-Cookie: a=1'); header('Set-Cookie: b=2', false); echo 'two'; break;
         case '/empty': break;
         }",
    ),
    ("says.php", "<?php error_log(\"first\\nsecond\"); trigger_error('late', E_USER_WARNING); echo 'said';"),
    ("hangs.php", "<?php file_put_contents('pid', getmypid()); sleep(50);"),
    ("breaks.php", "<?php echo 'half'; flush(); file_put_contents('pid', getmypid()); sleep(50);"),
    ("sleeps.php", "<?php usleep(20000); echo 'slept';"),
    ("pid.php", "<?php header('Content-Length: 8'); printf('%08d', getmypid());"),
];

/// The answer, until the server closes.
fn ask(
    server: &Server,
    method: &str,
    path: &str,
    fields: &str,
    body: &[u8],
) -> (u16, String, Vec<u8>) {
    let length = match body {
        [] => String::new(),
        body => format!("Content-Length: {}\r\n", body.len()),
    };
    // a client of HTTP/1.0 gets no chunks
    let head = format!("{method} {path} HTTP/1.0\r\nHost: shop.example\r\n{fields}{length}\r\n");
    let answer = server.exchange(&[head.as_bytes(), body].concat());
    let end = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    (head[9..12].parse().unwrap(), head, answer[end..].to_vec())
}

fn get(server: &Server, path: &str) -> (u16, String) {
    let (status, _, body) = ask(server, "GET", path, "", b"");
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn scripts_are_told_what_was_asked(engine: &str) {
    let Some(fpm) = start() else { return };
    let server = serve(&fpm, engine, "set = { APP_ENV = \"test\" }");
    let fields = "X-Own: 1\r\nX-Own: 2\r\nCookie: a=1\r\nProxy: http://evil/\r\nX_Forwarded_For: 6.6.6.6\r\n\
                  X-Forwarded-For: 6.6.6.6\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let (status, _, body) = ask(&server, "POST", "/told.php/pa%74h?q=%41", fields, b"name=value");
    let told = String::from_utf8(body).unwrap();
    assert_eq!(status, 200, "{told}");
    let root = fpm.root();
    let root = root.display();
    for line in [
        "REQUEST_METHOD=POST",
        "REQUEST_URI=/told.php/pa%74h?q=%41",
        "QUERY_STRING=q=%41",
        "SCRIPT_NAME=/told.php",
        "PATH_INFO=/path",
        &format!("SCRIPT_FILENAME={root}/told.php"),
        &format!("DOCUMENT_ROOT={root}"),
        "CONTENT_LENGTH=10",
        "CONTENT_TYPE=application/x-www-form-urlencoded",
        "HTTP_HOST=shop.example",
        "SERVER_NAME=shop.example",
        "SERVER_PROTOCOL=HTTP/1.0",
        "HTTP_X_OWN=1, 2",
        "HTTP_COOKIE=a=1",
        "REMOTE_ADDR=127.0.0.1",
        "APP_ENV=test",
        "POST:name=value GET:q=A",
    ] {
        assert!(told.lines().any(|told| told == line), "{engine}: {line} in {told}");
    }
    assert!(!told.contains("evil") && !told.contains("6.6.6.6"), "{told}");
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let body: &[u8] = if method == "PUT" { b"put" } else { b"" };
        let (status, _, told) = ask(&server, method, "/told.php", "", body);
        let told = String::from_utf8(told).unwrap();
        assert!(status == 200 && told.contains(&format!("REQUEST_METHOD={method}\n")), "{told}");
    }
}

fn answers_of_scripts_come_back(engine: &str) {
    let Some(fpm) = start() else { return };
    let server = serve(&fpm, engine, "");
    for (method, path, status, body, field) in [
        ("GET", "/answer.php/gone", 410, "gone", "Content-type: text/html"),
        ("GET", "/answer.php/moved", 302, "", "Location: /elsewhere\r\n"),
        ("GET", "/answer.php/same", 304, "", "ETag: \"a\"\r\n"),
        ("GET", "/answer.php/sized", 200, "hello", "Content-Length: 5\r\n"),
        ("HEAD", "/answer.php/sized", 200, "", "Content-Length: 5\r\n"),
        ("HEAD", "/big.php", 200, "", "Content-type: text/html"),
        ("GET", "/answer.php/exit", 200, "before", ""),
        ("GET", "/answer.php/two", 200, "two", "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"),
        ("GET", "/answer.php/empty", 200, "", ""),
    ] {
        let (found, head, bytes) = ask(&server, method, path, "", b"");
        assert_eq!((found, &*bytes), (status, body.as_bytes()), "{engine} {method} {path}");
        assert!(head.contains(field), "{engine} {path}: {head}");
        assert_eq!(head.matches("Date: ").count(), 1, "{head}");
    }
    // chunks, and more requests on one connection
    let two = "GET /answer.php/two HTTP/1.1\r\nHost: a\r\n\r\n\
               HEAD /answer.php/sized HTTP/1.1\r\nHost: a\r\n\r\n\
               GET /answer.php/sized HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answers = String::from_utf8(server.exchange(two.as_bytes())).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{engine}: {answers}");
    assert!(
        answers.contains("two\r\n0\r\n\r\nHTTP/1.1") && answers.ends_with("hello"),
        "{answers}"
    );
    // a client that waits to be asked for its body
    let mut stream = server.connect();
    stream
        .write_all(
            b"POST /sum.php HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\
              Connection: close\r\n\r\n",
        )
        .unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n", "{engine}");
    stream.write_all(b"abc").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("3 900150983cd24fb0d6963f7d28e17f72"), "{engine}: {answer}");
    // a script gets the length of the body before it runs
    let chunked = b"POST /sum.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                    Connection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let answer = String::from_utf8(server.exchange(chunked)).unwrap();
    assert!(answer.contains("3 900150983cd24fb0d6963f7d28e17f72"), "{engine}: {answer}");
    // so a body without a length is collected, which has a bound
    let server = serve(&fpm, engine, "spool_bytes = \"4KiB\"");
    let chunked = |bytes: usize| {
        let mut request = b"POST /sum.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                            Connection: close\r\nExpect: 100-continue\r\n\r\n"
            .to_vec();
        for part in vec![b'x'; bytes].chunks(1024) {
            request.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\n\r\n");
        String::from_utf8(server.exchange(&request)).unwrap()
    };
    assert!(chunked(4096).contains("\n4096 "), "{engine}: {}", chunked(4096));
    assert!(chunked(0).contains("\n0 d41d8"), "{engine}: {}", chunked(0));
    assert!(chunked(4097).contains("HTTP/1.1 413 "), "{engine}: {}", chunked(4097));
}

/// More requests come than the workers can answer: those of the higher class are answered all the same,
/// and the workers are kept busy with the others.
fn classes_hold_scripts(engine: &str) {
    const WORKERS: usize = 8;
    let Some(fpm) = with_workers(WORKERS) else { return };
    let server = serve(
        &fpm,
        engine,
        "in_flight = 8\nqueue = { requests = 16, time = \"1m\" }\n\
         [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"bulk\"\npriority = 1\n\
         [[rule]]\nname = \"gold\"\npath = \"/sleeps.php/gold\"\nclass = \"gold\"\n\
         [[rule]]\nname = \"bulk\"\npath = \"/sleeps.php/bulk\"\nclass = \"bulk\"\n",
    );
    // as many clients as workers, each of which asks without a pause, give the peak rate
    let crowd = |clients: usize, path: &'static str, stop: &AtomicBool, pause: Duration| {
        let (useful, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        match get(&server, path).0 {
                            200 => useful.fetch_add(1, SeqCst),
                            503 => {
                                // refusals are cheap, but not free
                                thread::sleep(Duration::from_millis(50));
                                refused.fetch_add(1, SeqCst)
                            }
                            status => panic!("{engine}: {status}"),
                        };
                        thread::sleep(pause);
                    }
                });
            }
        });
        (useful.into_inner(), refused.into_inner())
    };
    let time = Duration::from_secs(2);
    let round = || {
        let stop = AtomicBool::new(false);
        let (peak, _) = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(time);
                stop.store(true, SeqCst);
            });
            crowd(WORKERS, "/sleeps.php/bulk", &stop, Duration::ZERO)
        });
        // ten times as many, and gold beside them
        let stop = AtomicBool::new(false);
        let pause = Duration::from_millis(5);
        let ((bulk, refused), gold) = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(time);
                stop.store(true, SeqCst);
            });
            let gold = scope.spawn(|| crowd(2, "/sleeps.php/gold", &stop, pause));
            (crowd(10 * WORKERS, "/sleeps.php/bulk", &stop, pause), gold.join())
        });
        let (gold, gold_refused) = gold.unwrap();
        assert_eq!(gold_refused, 0, "{engine}: gold {gold}");
        // each of gold waits for less than all of bulk do: two of them get more than two of the others
        let is_fair = gold * 10 * WORKERS > bulk * 2;
        let is_useful = (bulk + gold) * 4 >= peak && refused > 0;
        (is_fair && is_useful, format!("gold {gold}, bulk {bulk} of {peak}, refused {refused}"))
    };
    // a machine that computes for others has little to give, and may be so for one half of a round
    let mut told = Vec::new();
    let is_held = (0..3).any(|_| {
        let (is_held, what) = round();
        told.push(what);
        is_held
    });
    assert!(is_held, "{engine}: {told:?}");
}

/// The path behind a script's name goes to that script, whatever PHP makes of it (`cgi.fix_pathinfo`).
fn what_follows_a_script_is_never_run(engine: &str) {
    for setting in ["cgi.fix_pathinfo=0", "cgi.fix_pathinfo=1"] {
        let folder = Folder::new();
        folder.write(
            "root/index.php",
            "<?php echo 'index ', isset($_SERVER['PATH_INFO']) ? $_SERVER['PATH_INFO'] : '-';",
        );
        for closed in ["closed.php", "up/closed.php"] {
            folder.write(&format!("root/{closed}"), "<?php echo 'closed';");
        }
        let Some(fpm) = Fpm::with(folder, 1, &[setting], "a test of fastcgi.rs") else { return };
        let access = "try = \"/index.php\"\nscripts = [\"/index.php\"]\n\
                      [[access]]\npath = \"/up/*.php\"\ndeny = [\"all\"]\n";
        let server = serve(&fpm, engine, access);
        for (path, expected) in [
            ("/index.php/closed.php", (200, "index /closed.php")),
            ("/index.php/up/closed.php", (200, "index /up/closed.php")),
            ("/index.php/none/at/all", (200, "index /none/at/all")),
            ("/index.php", (200, "index -")),
            ("/none", (200, "index -")),
        ] {
            let (status, _, body) = ask(&server, "GET", path, "", b"");
            let body = String::from_utf8(body).unwrap();
            assert_eq!((status, body.as_str()), expected, "{engine} {setting} {path}");
        }
        for (path, expected) in [("/closed.php", 404), ("/up/closed.php", 403)] {
            assert_eq!(ask(&server, "GET", path, "", b"").0, expected, "{engine} {setting} {path}");
        }
    }
}

fn what_is_no_script_is_not_run(engine: &str) {
    let Some(fpm) = start() else { return };
    let server = serve(&fpm, engine, "");
    for (path, status, body) in [
        ("/", 200, "index /"),
        ("/front/", 200, "front /front/ /front/index.php"),
        ("/style.css", 200, "body{}"),
        ("/picture.png", 200, "<?php echo 'run';"),
    ] {
        assert_eq!(get(&server, path), (status, body.to_owned()), "{engine} {path}");
    }
    for path in
        ["/none.php", "/picture.png/x.php", "/none", "/none.php/info", "/style.css/none.php"]
    {
        let (status, body) = get(&server, path);
        assert!(status == 404 && !body.contains("run"), "{engine} {path}: {body}");
    }
    for path in ["/big.php", "/big%2ephp", "/./big.php", "/front/../big.php", "/big.php/"] {
        let (_, body) = get(&server, path);
        assert!(!body.contains("<?php"), "{engine} {path}: {body}");
    }
    // nothing is asked where nothing is run
    let asked = |server: &Server, path| get(server, path).0;
    let none = self::Folder::new();
    let socket = none.join("nobody.sock");
    let lines = format!("[[fastcgi]]\nto = \"unix:{}\"", socket.display());
    let alone = Options::new(fpm.root()).engine(engine).config(&lines);
    let alone = Server::start(&alone);
    assert_eq!(asked(&alone, "/none.php"), 404, "{engine}");
    assert_eq!(asked(&alone, "/style.css"), 200, "{engine}");
    assert_eq!(asked(&alone, "/index.php"), 502, "{engine}");
    // a front controller has what is neither file nor script
    let server = serve(&fpm, engine, "try = \"/front/index.php\"");
    for (path, body) in [
        ("/style.css", "body{}"),
        ("/index.php", "index /index.php"),
        ("/", "index /"),
        ("/2026/11/hello?p=1", "front /2026/11/hello?p=1 /front/index.php"),
        ("/none.php", "front /none.php /front/index.php"),
    ] {
        assert_eq!(get(&server, path), (200, body.to_owned()), "{engine} {path}");
    }
    let (status, _, body) = ask(&server, "POST", "/wp-json/x", "", b"{}");
    assert_eq!(
        (status, &*body),
        (200, b"front /wp-json/x /front/index.php".as_slice()),
        "{engine}"
    );
}

fn great_bodies_go_both_ways_to_scripts(engine: &str) {
    let Some(fpm) = start() else { return };
    let server = serve(&fpm, engine, "");
    let sent: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    // the same bytes, however they are sent
    let (_, _, first) = ask(&server, "POST", "/sum.php", "Content-Type: a/b\r\n", &sent);
    let first = String::from_utf8(first).unwrap();
    assert!(first.starts_with("1048576 "), "{engine}: {first}");
    let (_, _, again) = ask(&server, "PUT", "/sum.php", "", &sent);
    assert_eq!(String::from_utf8(again).unwrap(), first, "{engine}");
    let mut stream = server.connect();
    let head =
        "POST /sum.php HTTP/1.0\r\nHost: a\r\nContent-Type: a/b\r\nContent-Length: 1048576\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for part in sent.chunks(100_003) {
        stream.write_all(part).unwrap();
        thread::yield_now();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&first), "{engine}: {answer}");
    let (status, _, body) = ask(&server, "GET", "/big.php", "", b"");
    assert_eq!((status, body.len()), (200, 1 << 20), "{engine}");
    assert!(body.chunks(1024).zip((b'A'..=b'Z').cycle()).all(|(part, is)| part == [is; 1024]));
}

fn scripts_that_fail_are_told_apart(engine: &str) {
    let Some(fpm) = start() else { return };
    let server = serve(&fpm, engine, "retries = 0\nmax_fails = 0");
    // its message for the log is one line of it, with its request
    assert_eq!(get(&server, "/says.php"), (200, "said".to_owned()), "{engine}");
    let has_line = || {
        let said = server.stderr();
        let mut lines =
            said.lines().filter(|line| line.starts_with("forebay: /says.php, request "));
        lines.next().is_some_and(|line| line.contains("first\\nsecond") && line.contains("late"))
            && lines.next().is_none()
    };
    assert!(soon(PATIENCE, has_line), "{engine}: {}", server.stderr());
    // workers that are killed, before there is an answer and within it
    let file = fpm.root().join("pid");
    for (method, path) in [("POST", "/hangs.php"), ("GET", "/breaks.php")] {
        let _ = fs::remove_file(&file);
        let mut stream = server.connect();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let pid = || fs::read_to_string(&file).ok()?.parse().ok();
        assert!(soon(PATIENCE, || pid().is_some()), "{engine} {path}");
        if path == "/breaks.php" {
            let mut half = Vec::new();
            while !half.ends_with(b"half\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                half.push(byte[0]);
            }
        }
        kill_process(Pid::from_raw(pid().unwrap()).unwrap(), Signal::KILL).unwrap();
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        match path {
            "/hangs.php" => assert!(answer.starts_with("HTTP/1.1 502 "), "{engine}: {answer}"),
            _ => assert!(end.is_err() && answer.is_empty(), "{engine}: {end:?} {answer}"),
        }
    }
    // other workers are there
    assert_eq!(get(&server, "/answer.php/sized"), (200, "hello".to_owned()), "{engine}");
    let server = serve(&fpm, engine, "timeouts.head = \"300ms\"");
    assert_eq!(get(&server, "/hangs.php").0, 504, "{engine}");
}

fn a_client_that_leaves_frees_its_place(engine: &str) {
    let Some(fpm) = start() else { return };
    // The worker may end before the server knows that the client has left, where a relay is between: the script is not
    // to be run again then, by another worker.
    let keys = "in_flight = 1\nretries = 0\nqueue = { requests = 4, time = \"1m\" }";
    let server = serve(&fpm, engine, keys);
    let file = fpm.root().join("pid");
    // before there is an answer, and within it
    for path in ["/hangs.php", "/breaks.php"] {
        let _ = fs::remove_file(&file);
        let mut stream = server.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(soon(PATIENCE, || file.exists()), "{engine} {path}");
        // a FIN alone could end one direction only
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        // php-fpm runs it on, and has another worker: the place is free when it ends
        let pid = || fs::read_to_string(&file).ok()?.parse().ok().and_then(Pid::from_raw);
        assert!(soon(PATIENCE, || pid().is_some()), "{engine} {path}");
        kill_process(pid().unwrap(), Signal::KILL).unwrap();
        assert_eq!(get(&server, "/sleeps.php"), (200, "slept".to_owned()), "{engine} {path}");
    }
}

fn connections_to_scripts_are_kept_where_asked(engine: &str) {
    let Some(fpm) = start() else { return };
    // one loop has one pool, and so one connection to one worker
    let lines = fpm.lines("keep_alive.connections = 1");
    let options = Options::new(fpm.root()).engine(engine).alone();
    let server = Server::start(&options.config(&lines));
    let ten = "GET /pid.php HTTP/1.1\r\nHost: a\r\n\r\n".repeat(9)
        + "GET /pid.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answers = String::from_utf8(server.exchange(ten.as_bytes())).unwrap();
    let mut pids: Vec<&str> = answers.split("\r\n\r\n").skip(1).map(|part| &part[..8]).collect();
    assert_eq!(pids.len(), 10, "{engine}: {answers}");
    pids.dedup();
    assert_eq!(pids.len(), 1, "{engine}: {pids:?}");
}
