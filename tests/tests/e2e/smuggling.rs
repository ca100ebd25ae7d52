//! Requests that servers read in different ways, passed on to servers of other projects: nginx, Apache,
//! Python, Node, and Go.
//!
//! Each upstream writes down the requests that it has seen. It must see no request that is not in our
//! access log with the same method and target, none more often than that, and none that a rule refuses,
//! however the upstream reads its path; and after each case another client gets its own answer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::server::free_addr;
use forebay_tests::wire::{self, PATIENCE};
use forebay_tests::{Options, Server, is_full_matrix};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The engines: one loop for many connections, and a thread for each.
const ENGINES: [&str; 2] = ["event", "threads"];

#[test]
fn nginx_sees_what_was_judged() {
    play("nginx", nginx);
}

#[test]
fn apache_sees_what_was_judged() {
    play("apache2", apache);
}

#[test]
fn python_sees_what_was_judged() {
    play("python3", |folder, addr| script(folder, addr, "python3", "app.py", PYTHON));
}

#[test]
fn node_sees_what_was_judged() {
    play("node", |folder, addr| script(folder, addr, "node", "app.js", NODE));
}

#[test]
fn go_sees_what_was_judged() {
    // Go must compile it first, with its whole library, which takes longer than all others together
    if is_full_matrix() {
        play("go", go);
    }
}

/// A server of other software, which writes `METHOD TARGET` of each request into `seen`.
struct Upstream {
    child: Child,
    folder: Folder,
    addr: SocketAddr,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Upstream {
    fn start(make: impl Fn(&Folder, SocketAddr) -> Command) -> Upstream {
        let (folder, addr) = (Folder::new(), free_addr());
        folder.write("www/index.html", "index");
        folder.write("seen", "");
        let mut command = make(&folder, addr);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        assert!(soon(PATIENCE, || TcpStream::connect(addr).is_ok()), "{command:?} does not listen");
        Upstream { child, folder, addr }
    }

    /// The methods and targets of all requests that it has seen.
    fn seen(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.folder.join("seen")).unwrap();
        let line = |line: &str| {
            // some write the whole line of a request
            let line = line.rsplit_once(" HTTP/").map_or(line, |(line, _)| line);
            let (method, target) = line.split_once(' ')?;
            Some((method.to_owned(), target.to_owned()))
        };
        text.lines().filter_map(line).collect()
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&places).collect();
    places.extend(["/usr/sbin", "/usr/bin", "/usr/local/go/bin"].map(PathBuf::from));
    places.iter().map(|place| place.join(name)).find(|path| path.is_file())
}

fn nginx(folder: &Folder, addr: SocketAddr) -> Command {
    let at = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "daemon off; master_process off; pid {pid}; error_log /dev/null;\n\
         events {{ worker_connections 256; }}\n\
         http {{ log_format seen escape=none '$request_method $request_uri';\n\
         access_log {seen} seen; client_body_temp_path {body}; proxy_temp_path {body};\n\
         fastcgi_temp_path {body}; uwsgi_temp_path {body}; scgi_temp_path {body};\n\
         merge_slashes on; keepalive_requests 100000;\n\
         server {{ listen {addr}; location / {{\n\
         add_header X-Seen \"$request_method $request_uri\" always; return 200 \"seen\"; }} }} }}",
        pid = at("pid"),
        seen = at("seen"),
        body = at("body"),
    );
    let file = folder.write("nginx.conf", text);
    let mut command = Command::new(program("nginx").unwrap());
    command.arg("-c").arg(file).arg("-p").arg(folder.join(""));
    command
}

/// The lines of Apache's configuration that load these modules.
pub(crate) fn apache_modules(names: &[&str]) -> String {
    let modules = "/usr/lib/apache2/modules";
    let load = |name: &&str| format!("LoadModule {name}_module {modules}/mod_{name}.so\n");
    names.iter().map(load).collect()
}

fn apache(folder: &Folder, addr: SocketAddr) -> Command {
    let at = |name: &str| folder.join(name).display().to_string();
    let loads = apache_modules(&["mpm_event", "authz_core", "headers", "dir"]);
    let text = format!(
        "ServerRoot {root}\nServerName a\nPidFile {pid}\nListen {addr}\n{loads}User www-data\nGroup www-data\n\
         ErrorLog /dev/null\nDocumentRoot {www}\nKeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 30\n\
         AllowEncodedSlashes NoDecode\nTraceEnable off\n<Directory {www}>\nRequire all granted\n</Directory>\n\
         Header always set X-Seen \"expr=%{{REQUEST_METHOD}} %{{THE_REQUEST}}\"\n\
         LogFormat \"%r\" seen\nCustomLog {seen} seen\n",
        root = at(""),
        pid = at("pid"),
        www = at("www"),
        seen = at("seen"),
    );
    let file = folder.write("apache.conf", text);
    let mut command = Command::new(program("apache2").unwrap());
    command.arg("-X").arg("-f").arg(file);
    command
}

fn script(folder: &Folder, addr: SocketAddr, runs: &str, name: &str, text: &str) -> Command {
    let file = folder.write(name, text);
    let mut command = Command::new(program(runs).unwrap());
    command.arg(file).args([addr.ip().to_string(), addr.port().to_string()]);
    command.arg(folder.join("seen"));
    command
}

fn go(folder: &Folder, addr: SocketAddr) -> Command {
    let file = folder.write("app.go", GO);
    let built = folder.join("app");
    let mut build = Command::new(program("go").unwrap());
    let done = build.args(["build", "-o"]).arg(&built).arg(file).status().unwrap();
    assert!(done.success());
    let mut command = Command::new(built);
    command.args([addr.ip().to_string(), addr.port().to_string()]).arg(folder.join("seen"));
    command
}

const PYTHON: &str = r#"
import sys, http.server
seen = open(sys.argv[3], "a", buffering=1)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def answer(self):
        seen.write(self.command + " " + self.path + "\n")
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while (size := int(self.rfile.readline().split(b";")[0], 16)) > 0:
                self.rfile.read(size + 2)
            while self.rfile.readline().strip(): pass
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("X-Seen", self.command + " " + self.path)
        self.send_header("Content-Length", "4")
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(b"seen")
    def __getattr__(self, name):
        if name.startswith("do_"): return self.answer
        raise AttributeError(name)
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"#;

const NODE: &str = r#"
const fs = require("fs"), http = require("http");
http.createServer((request, response) => {
  fs.appendFileSync(process.argv[4], request.method + " " + request.url + "\n");
  request.resume();
  request.on("end", () => {
    response.setHeader("X-Seen", request.method + " " + request.url);
    response.end("seen");
  });
}).listen(+process.argv[3], process.argv[2]);
"#;

const GO: &str = r#"
package main
import ("fmt"; "io"; "net/http"; "os"; "sync")
func main() {
	seen, _ := os.OpenFile(os.Args[3], os.O_APPEND|os.O_WRONLY, 0)
	var lock sync.Mutex
	http.ListenAndServe(os.Args[1]+":"+os.Args[2], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		fmt.Fprintf(seen, "%s %s\n", r.Method, r.RequestURI)
		lock.Unlock()
		io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.RequestURI)
		io.WriteString(w, "seen")
	}))
}
"#;

/// The requests: `@` is a number that no other case has. Hidden requests ask for `/secret`, which a rule
/// refuses.
fn corpus() -> Vec<String> {
    const INNER: &str = "GET /secret/@ HTTP/1.1\r\nHost: a\r\nX: ";
    let inner = INNER.len();
    let mut cases = Vec::new();
    // bodies with their length given in two ways, or in an invalid way
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nTransfer-Encoding : chunked",
        "Content-Length: 5\r\nTransfer-Encoding:\tchunked",
        "Content-Length: 5\r\nTransfer-Encoding: xchunked",
        "Content-Length: 5\r\nTransfer-Encoding: chunked, identity",
        "Content-Length: 5\r\nTransfer-Encoding: identity, chunked",
        "Content-Length: 5\r\nTransfer-Encoding: \"chunked\"",
        "Content-Length: 5\r\nTransfer-Encoding: ,chunked",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Content-Length: 5\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nTransfer_Encoding: chunked",
        "Content-Length: 5\r\n Transfer-Encoding: chunked",
        "Content-Length: 5\r\nX: y\r\n\tTransfer-Encoding: chunked",
        "Content-Length: 5\r\nX: y\rTransfer-Encoding: chunked",
        "Content-Length: 5\r\nX: y\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nTransfer-Encoding\0: chunked",
        "Content-Length: 5\r\nTransfer-Encoding: \x0bchunked",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\x0c",
        "Content-Length: 5\r\nConnection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked",
        "Content-Length: 0\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 0",
        "Content-Length: 5, 0",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 05",
        "Content-Length: 5 ",
        "Content-Length: 5;0",
        "Content-Length: 18446744073709551621",
        "Content-Length : 5",
        "Content_Length: 5",
        "Content-Length:",
        "Connection: Content-Length\r\nContent-Length: 5",
        "Connection: close, Content-Length\r\nContent-Length: 5",
    ] {
        for (method, body) in [("POST", "0\r\n\r\n"), ("GET", "0\r\n\r\n"), ("POST", "abcde")] {
            cases.push(format!(
                "{method} /case/@ HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}{INNER}"
            ));
        }
    }
    // chunks
    for chunks in [
        "5\r\nabcde\r\n0\r\n\r\n",
        "5;a=b\r\nabcde\r\n0\r\n\r\n",
        "5;a=\"\r\n\"\r\nabcde\r\n0\r\n\r\n",
        "5 \r\nabcde\r\n0\r\n\r\n",
        "5\nabcde\n0\n\n",
        "5\rabcde\r\n0\r\n\r\n",
        "0x5\r\nabcde\r\n0\r\n\r\n",
        "+5\r\nabcde\r\n0\r\n\r\n",
        "-1\r\nabcde\r\n0\r\n\r\n",
        "5\r\nabcdef\r\n0\r\n\r\n",
        "5\r\nabcde0\r\n\r\n",
        "00000000000000005\r\nabcde\r\n0\r\n\r\n",
        "10000000000000005\r\nabcde\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nabcde\r\n0\r\n\r\n",
        "0\r\nContent-Length: 50\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nHost: other\r\n\r\n",
        "0;\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "\r\n0\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
    ] {
        let head = "POST /case/@ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        cases.push(format!("{head}{chunks}{INNER}"));
    }
    cases.push(format!(
        "POST /case/@ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{inner:x}\r\n{INNER}\r\n0\r\n\r\n"
    ));
    // versions, request lines, hosts and fields
    for head in [
        "POST /case/@ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /case/@ HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "GET /case/@ HTTP/1.2\r\nHost: a\r\n\r\n",
        "GET /case/@ HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET /case/@ HTTP/01.1\r\nHost: a\r\n\r\n",
        "GET /case/@\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\n\r\n",
        "get /case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T /case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  /case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET\t/case/@\tHTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /case/@ /secret/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /case/@\x0b/secret HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /case/@ HTTP/1.1 \r\nHost: a\r\n\r\n",
        "\r\nGET /case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "\nGET /case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        " GET /case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a, b\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a/secret\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a@b\r\n\r\n",
        "GET http://b/case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://b/secret/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a@b/case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET https:/secret/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET //a/secret/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        "TRACE /case/@ HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 777\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nConnection: Host, X-Forwarded-For, Via\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nX-Original-URL: /secret/@\r\nX-Rewrite-URL: /secret/@\r\nX-HTTP-Method-Override: PUT\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nX\0: y\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nX: y\0z\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "GET /case/@ HTTP/1.1\nHost: a\n\n",
        "GET /case/@ HTTP/1.1\r\rHost: a\r\r\r\n",
        "GET /case/@ HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n",
        "POST /case/@ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        "POST /case/@ HTTP/1.1\r\nHost: a\r\nExpect: y 100-continue\r\nContent-Length: 5\r\n\r\n",
        "HEAD /case/@ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
        "DELETE /case/@ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
    ] {
        cases.push(format!("{head}{INNER}"));
    }
    // paths that some servers take for /secret
    for path in [
        "//secret/@",
        "/./secret/@",
        "/x/../secret/@",
        "/%2e/secret/@",
        "/x/%2e%2e/secret/@",
        "/x/.%2e/secret/@",
        "/%73ecret/@",
        "/%2573ecret/@",
        "/secret%2f@",
        "/%2fsecret/@",
        "/\\secret/@",
        "/x\\..\\secret/@",
        "/x/..%5csecret/@",
        "/x/..;/secret/@",
        "/;/secret/@",
        "/x;/../secret/@",
        "/secret;a/@",
        "/secret%00/@",
        "/secret%20/@",
        "/secret./@",
        "/secret/@#x",
        "/x#/../secret/@",
        "/x?/../secret/@",
        "/x%3f/../secret/@",
        "/x%23/../secret/@",
        "/x/..%c0%afsecret/@",
        "/%c0%ae%c0%ae/secret/@",
        "/case/@%0d%0aX:%20y",
        "/case/@%20HTTP/1.1%0d%0aHost:%20b",
        "/case/@\r/secret",
        "/secret%c2%a0/@",
        "/x/%2e%2e%2fsecret/@",
        "/../secret/@",
        "/%u002e/secret/@",
        "/%/secret/@",
        "/%zz/../secret/@",
        "/case/@?a=%0d%0a%0d%0aGET%20/secret",
        "secret/@",
        "?/secret/@",
    ] {
        cases.push(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{INNER}"));
    }
    cases
}

/// The path that a lenient server may take a target for: decoded, without parameters, with all slashes
/// one and all detours taken.
fn generous(target: &str) -> String {
    let path = target.split(['?', '#']).next().unwrap();
    let path = match path.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => path,
    };
    let bytes = path.as_bytes();
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        let hex = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    let text = String::from_utf8_lossy(&decoded).replace('\\', "/");
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part.split(';').next().unwrap() {
            "" | "." => {}
            ".." => _ = parts.pop(),
            name => parts.push(name.to_owned()),
        }
    }
    parts.join("/")
}

/// The methods and targets in the access log of requests that were passed on, and how often.
fn judged(server: &Server) -> HashMap<(String, String), usize> {
    let mut judged = HashMap::new();
    for line in server.stdout().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        // of a target that names a host, an upstream gets the rest
        let target = text("target");
        let rest = target.split_once("://").and_then(|(_, rest)| Some(&rest[rest.find('/')?..]));
        let target = rest.map_or(target.clone(), str::to_owned);
        *judged.entry((text("method"), target)).or_default() += 1;
    }
    judged
}

/// Sends the corpus to this upstream on each engine.
fn play(name: &str, make: impl Fn(&Folder, SocketAddr) -> Command) {
    let there = program(name).ok_or(format!("there is no {name}"));
    if has(there, "a test of smuggling.rs").is_none() {
        return;
    }
    for engine in ENGINES {
        let upstream = Upstream::start(&make);
        // the attempt that showed that it listens was no request
        let before = upstream.seen().len();
        let folder = Folder::new();
        folder.write("root/index.html", "own");
        let lines = format!(
            "log.format = \"json\"\ntimeouts.head = \"10s\"\ntimeouts.body = \"10s\"\n\
             [[proxy]]\npath = \"/\"\nto = \"http://{}\"\ntimeouts.silence = \"10s\"\nretries = 0\nmax_fails = 0\n\
             [[access]]\npath = \"/secret\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]",
            upstream.addr
        );
        let options = Options { log: true, ..Options::new(folder.join("root")) };
        let server = Server::start(&options.engine(engine).config(&lines));
        let mut canaries = 0;
        for (number, case) in corpus().into_iter().enumerate() {
            let text = case.replace('@', &number.to_string());
            let mut stream = server.connect();
            // the server may have refused it before it was complete
            let _ = stream.write_all(text.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let (answer, _) = wire::read_to_end(&mut stream, PATIENCE);
            let answer = String::from_utf8_lossy(&answer).into_owned();
            // another client, whose request goes over a connection that may have been used
            let canary = format!("/canary/{number}?{name}");
            let got = server.exchange(
                format!("GET {canary} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
            );
            let got = String::from_utf8_lossy(&got).into_owned();
            assert!(
                got.contains(&canary) && got.matches("HTTP/1.1 ").count() <= 2,
                "{name}, {engine}: after {text:?}, which had {answer:?}, another client had {got:?}"
            );
            canaries += 1;
        }
        let seen = || upstream.seen().split_off(before);
        let is_canary = |(_, target): &(String, String)| target.starts_with("/canary/");
        assert!(
            soon(PATIENCE, || seen().iter().filter(|one| is_canary(one)).count() == canaries),
            "{name}, {engine}: {} of {canaries} canaries were seen",
            seen().iter().filter(|one| is_canary(one)).count()
        );
        // lines of the log are written in batches, in their order for each loop
        let is_told = || {
            let told = judged(&server);
            seen().iter().all(|one| told.contains_key(one))
        };
        soon(PATIENCE, is_told);
        let (seen, judged) = (seen(), judged(&server));
        for (method, target) in &seen {
            assert!(
                !format!("{}/", generous(target)).starts_with("secret/"),
                "{name}, {engine}: {method} {target} was seen"
            );
            let key = (method.clone(), target.clone());
            let times = seen.iter().filter(|one| **one == key).count();
            let most = judged.get(&key).copied().unwrap_or_default();
            assert!(
                times <= most,
                "{name}, {engine}: {method} {target} was seen {times} times and judged {most} times"
            );
        }
        let cases = seen.iter().filter(|one| !is_canary(one)).count();
        assert!(cases >= 20, "{name}, {engine}: only {cases} cases came through");
    }
}
