//! Signing in with a real oauth2-proxy, with the configurations of the manual.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says so by panicking")]

use forebay_tests::faults::site::Folder;
use forebay_tests::faults::{has, soon};
use forebay_tests::oidc::{CLIENT, IdentityProvider};
use forebay_tests::programs::from_go;
use forebay_tests::server::free_addr;
use forebay_tests::wire::PATIENCE;
use forebay_tests::{ISOLATED, Options, Server};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

const MANUAL: &str = include_str!("../../../docs/manual/sign-in.md");

/// The block of the manual below this headline that begins like this.
fn block(headline: &str, language: &str) -> &'static str {
    let (_, rest) = MANUAL.split_once(&format!("## {headline}\n")).unwrap();
    let (_, rest) = rest.split_once(&format!("\n\n```{language}\n")).unwrap();
    rest.split_once("```\n").unwrap().0
}

const AS_WITH_NGINX: &str = "Sign-in with oauth2-proxy";
const AS_WITH_TRAEFIK: &str = "Without a page of 401";

fn program(test: &str) -> Option<PathBuf> {
    from_go("oauth2-proxy", test)
}

struct OauthProxy(Child);

impl Drop for OauthProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All processes of a test: they stop when this is dropped.
struct Scene {
    server: Server,
    provider: IdentityProvider,
    _proxy: OauthProxy,
    folder: Folder,
}

impl Scene {
    /// Starts the manual's configurations below this headline, with further lines of oauth2-proxy's.
    fn start(program: &Path, engine: &str, headline: &str, more: &str) -> Scene {
        let (provider, proxy_addr, app) = (IdentityProvider::start(), free_addr(), application());
        let folder = Folder::new();
        folder.write("root/index.html", "a page");
        folder.write("root/intern/plan.txt", "the plan");
        folder.write("root/_ping", "pong");
        folder.write("root/look.html", LOOK);
        let lines = block(headline, "toml");
        let lines = lines.replace("listen = [\":8080\"]\nroot = \"www\"\n", "");
        let lines = lines.replace("127.0.0.1:4180", &proxy_addr.to_string());
        let lines = lines.replace("127.0.0.1:3000", &app.to_string());
        assert!(!lines.contains("listen"), "{lines}");
        let options = Options::new(folder.join("root")).engine(engine).config(&lines);
        let server = Server::start(&options);
        let text = block(AS_WITH_NGINX, "");
        // a later line would stand beside, not instead
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let own = format!(
            "http_address = \"{proxy_addr}\"\noidc_issuer_url = \"{}\"\nclient_id = \"{}\"\n\
             client_secret = \"{}\"\ncookie_secret = \"0123456789abcdef0123456789abcdef\"\n\
             redirect_url = \"http://{}/oauth2/callback\"\ncookie_secure = false\nscope = \"openid email offline_access\"\n\
             code_challenge_method = \"S256\"\nsilence_ping_logging = true\n{more}",
            provider.issuer(),
            CLIENT.0,
            CLIENT.1,
            server.addr()
        );
        for line in own.lines() {
            let key = line.split(' ').next().unwrap();
            lines.retain(|other| other.split(' ').next() != Some(key));
            lines.push(line.to_owned());
        }
        let file = folder.write("oauth2-proxy.cfg", lines.join("\n"));
        let log = fs::File::create(folder.join("oauth2-proxy.log")).unwrap();
        let mut command = Command::new(program);
        command.arg("--config").arg(file).stdin(Stdio::null());
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let proxy = OauthProxy(child);
        let is_up = soon(PATIENCE, || TcpStream::connect(proxy_addr).is_ok());
        let said = || fs::read_to_string(folder.join("oauth2-proxy.log")).unwrap();
        assert!(is_up, "{}", said());
        Scene { server, provider, _proxy: proxy, folder }
    }

    /// The answer that curl gets for a path, with a jar of cookies if its name is given.
    fn curl(&self, path: &str, jar: Option<&str>, more: &[&str]) -> Got {
        let mut command = Command::new("curl");
        command.args(["-s", "-i", "--max-time", "60"]);
        if let Some(jar) = jar {
            let jar = self.folder.join(jar);
            command.arg("-c").arg(&jar).arg("-b").arg(&jar);
        }
        let output = command.args(more).arg(format!("http://{}{path}", self.server.addr()));
        let output = output.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // the last of several answers
        let mut rest = text.as_str();
        loop {
            let (head, body) =
                rest.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {text}"));
            let status: u16 = head[9..12].parse().unwrap_or_else(|_| panic!("{path}: {text}"));
            if body.starts_with("HTTP/1.1 ") {
                rest = body;
                continue;
            }
            return Got { status, head: head.to_owned(), body: body.to_owned() };
        }
    }

    /// The answer that curl gets when it follows all redirects: to the provider, and back.
    fn follow(&self, path: &str, jar: &str) -> Got {
        self.curl(path, Some(jar), &["-L", "--max-redirs", "10"])
    }
}

#[derive(Debug)]
struct Got {
    status: u16,
    head: String,
    body: String,
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// An application that answers with the head of the request.
fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while reader.read_line(&mut head).is_ok_and(|len| len > 0) {
                    if !head.ends_with("\r\n\r\n") {
                        continue;
                    }
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    head.clear();
                }
            });
        }
    });
    addr
}

/// A page whose script asks the application.
const LOOK: &str = "<!doctype html><p id=seen>nothing</p><script>\
    fetch('/app/x').then(got => got.text()).then(text => { seen.textContent = text; })</script>";

const PAGE: &str = "/app/x?y=1&z=a%20b";

/// Signs in, and out, with both configurations of the manual.
fn people_sign_in(program: &Path, engine: &str, headline: &str) {
    let scene = Scene::start(program, engine, headline, "");
    // an unknown user is led to the sign-in page, for files and for applications
    for path in ["/", "/intern/plan.txt", PAGE] {
        let got = scene.curl(path, None, &[]);
        assert_eq!(got.status, 302, "{engine} {path} {got:?}");
        let to = got.field("location").unwrap();
        let is_right = match headline {
            AS_WITH_NGINX => to.starts_with("/oauth2/sign_in?rd=/"),
            _ => to.starts_with(&format!("{}/authorize?", scene.provider.issuer())),
        };
        assert!(is_right, "{engine} {path}: {to}");
        assert!(!got.body.contains("the plan"), "{engine}");
    }
    let got = scene.curl("/_ping", None, &[]);
    assert_eq!((got.status, &*got.body), (200, "pong"), "{engine}");
    if headline == AS_WITH_NGINX {
        assert_eq!(scene.curl(PAGE, None, &["-H", "Sec-Fetch-Mode: cors"]).status, 401, "{engine}");
    }
    // after the sign-in the wanted page is there, and the application knows the user
    let got = scene.follow(PAGE, "jar");
    assert_eq!(got.status, 200, "{engine} {got:?}");
    assert!(got.body.starts_with(&format!("GET {PAGE} HTTP/1.1\r\n")), "{engine} {got:?}");
    for line in ["X-Auth-Request-Email: ada@example.com", "X-Auth-Request-User: ada"] {
        assert!(got.body.contains(&format!("\r\n{line}\r\n")), "{engine}: {line} {got:?}");
    }
    let lies = ["-H", "X-Auth-Request-Email: eve@example.com", "-H", "X_Auth_Request_User: eve"];
    let got = scene.curl(PAGE, Some("jar"), &lies);
    assert!(got.body.contains("ada@example.com") && !got.body.contains("eve"), "{engine} {got:?}");
    let got = scene.curl("/intern/plan.txt", Some("jar"), &[]);
    assert_eq!((got.status, &*got.body), (200, "the plan"), "{engine}");
    assert!(got.field("cache-control").unwrap().contains("private"), "{engine} {got:?}");
    // another browser is not signed in, and a wrong cookie does not count
    assert_eq!(scene.curl("/intern/plan.txt", Some("other"), &[]).status, 302, "{engine}");
    let wrong = ["-H", "Cookie: _oauth2_proxy=ZZZ|1|ZZZ"];
    assert_eq!(scene.curl("/intern/plan.txt", None, &wrong).status, 302, "{engine}");
    assert_eq!(scene.curl("/oauth2/sign_out?rd=/_ping", Some("jar"), &[]).status, 302, "{engine}");
    assert_eq!(scene.curl("/intern/plan.txt", Some("jar"), &[]).status, 302, "{engine}");
}

#[test]
fn people_sign_in_with_oauth2_proxy_as_with_nginx() {
    let Some(program) = program("people_sign_in_with_oauth2_proxy_as_with_nginx") else { return };
    let engine = Options::new("").engine;
    people_sign_in(&program, &engine, AS_WITH_NGINX);
    people_sign_in(&program, ISOLATED, AS_WITH_NGINX);
}

/// A browser opens a page, is redirected to the provider and back, and the application knows the user of
/// the page's script.
#[test]
fn a_browser_signs_in_with_oauth2_proxy() {
    const NAME: &str = "a_browser_signs_in_with_oauth2_proxy";
    let Some(program) = program(NAME) else { return };
    let there = Command::new("chromium").arg("--version").output();
    let Some(_) = has(there.map_err(|_| "there is no chromium, see scripts/install"), NAME) else {
        return;
    };
    let scene = Scene::start(&program, &Options::new("").engine, AS_WITH_NGINX, "");
    let mut browser = Command::new("chromium");
    browser.arg(format!("--user-data-dir={}", scene.folder.join("profile").display()));
    let quiet = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                 --disable-background-networking --disable-component-update --disable-sync \
                 --virtual-time-budget=10000 --dump-dom";
    browser.args(quiet.split_whitespace());
    let output = browser.arg(format!("http://{}/look.html", scene.server.addr())).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("X-Auth-Request-Email: ada@example.com"), "{page}");
}

#[test]
fn people_sign_in_with_oauth2_proxy_as_with_traefik() {
    let Some(program) = program("people_sign_in_with_oauth2_proxy_as_with_traefik") else { return };
    people_sign_in(&program, &Options::new("").engine, AS_WITH_TRAEFIK);
}

/// A session that is refreshed reaches the browser with any of its requests, and one that has ended does
/// not count.
#[test]
fn sessions_of_oauth2_proxy_are_refreshed_and_end() {
    let Some(program) = program("sessions_of_oauth2_proxy_are_refreshed_and_end") else { return };
    let engine = Options::new("").engine;
    let scene = Scene::start(&program, &engine, AS_WITH_NGINX, "cookie_refresh = \"1s\"\n");
    assert_eq!(scene.follow("/intern/plan.txt", "jar").status, 200);
    for path in ["/intern/plan.txt", PAGE, "/intern/none"] {
        let before = scene.provider.refreshed();
        let is_refreshed = soon(PATIENCE, || {
            let got = scene.curl(path, Some("jar"), &[]);
            assert!(matches!(got.status, 200 | 404), "{got:?}");
            let is_set =
                got.field("set-cookie").is_some_and(|set| set.starts_with("_oauth2_proxy"));
            assert!(!is_set || got.head.contains("Cache-Control: private"), "{got:?}");
            is_set
        });
        assert!(is_refreshed && scene.provider.refreshed() > before, "{path}");
    }
    // the session of the first answer was replaced, and the one of the last holds
    assert_eq!(scene.curl("/intern/plan.txt", Some("jar"), &[]).status, 200);
    drop(scene);
    let more = "cookie_refresh = \"0s\"\ncookie_expire = \"3s\"\n";
    let scene = Scene::start(&program, &engine, AS_WITH_NGINX, more);
    assert_eq!(scene.follow("/intern/plan.txt", "jar").status, 200);
    // curl would throw the cookie away by itself
    let jar = fs::read_to_string(scene.folder.join("jar")).unwrap();
    let cookie = jar.lines().find_map(|line| line.split_once("\t_oauth2_proxy\t")).unwrap().1;
    let cookie = format!("Cookie: _oauth2_proxy={cookie}");
    let is_over =
        soon(PATIENCE, || scene.curl("/intern/plan.txt", None, &["-H", &cookie]).status == 302);
    assert!(is_over);
}
