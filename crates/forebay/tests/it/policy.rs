//! Handlers beside the configuration's rules for requests: classes, limits, passwords, TLS, identities,
//! the access log.

use crate::client::{Client, get, soon};
use crate::handlers::builder;
use forebay::{Server, ServerBuilder, channel};
use forebay_tests::http2;
use forebay_tests::tls::Authority;
use rcgen::PKCS_ECDSA_P256_SHA256;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

on_each_engine! {
    rules_give_classes_and_limits,
    a_password_comes_first,
    a_request_has_its_line_in_the_access_log,
    why_says_what_has_become_of_a_request,
    tls_and_http2_lead_to_the_same_handler,
    an_identity_is_proved_to_rules_and_hidden_from_handlers,
}

/// The hash of the password, by bcrypt with the least cost.
const HASH_OF_SECRET: &str = "$2y$04$rE6UMvOf68UamHlkbZKD.ONJLEmHsZmnyoRir2CfmvCtpBEdvxw3u";

/// The identity `gold` until 2100, by the key k1 of 0123456789abcdef0123456789abcdef.
const GOLD: &str = "f1.k1.4102444800.gold.-.y_SqaggwVhYymBoFRm1oJllu0wrxZqSe_5xvpg91PFw";

/// A directory of one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, engine: &str) -> Scratch {
        let name = format!("forebay-inside-{name}-{engine}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn with(engine: &str, text: &str) -> ServerBuilder {
    builder(engine).config(text)
}

fn rules_give_classes_and_limits(engine: &str) {
    let text = "[[class]]\nname = \"staff\"\npriority = 0\n[[class]]\nname = \"rest\"\npriority = 1\n\
                [[rule]]\nname = \"staff\"\npath = \"/class/staff/*\"\nclass = \"staff\"\n\
                [[rule]]\nname = \"one\"\npath = \"/wait\"\nin_flight = { most = 1, status = 503 }\n\
                [[rule]]\nname = \"no\"\npath = \"/class/no\"\naction = \"reject\"\n\
                [[rule]]\nname = \"all\"\nclass = \"rest\"\n";
    let (sender, receiver) = channel::<()>(4);
    let begun = Arc::<AtomicUsize>::default();
    let here = Arc::clone(&begun);
    let server = with(engine, text)
        .handler("/class", |request, response| Ok(response.text(request.class())?))
        .handler("/wait", move |_, response| {
            here.fetch_add(1, Ordering::SeqCst);
            receiver.recv()?;
            Ok(response.text("there")?)
        })
        .start()
        .unwrap();
    let address = server.addresses()[0];
    assert_eq!(get(address, "/class/staff/x").text(), "staff");
    assert_eq!(get(address, "/class/x").text(), "rest");
    assert_eq!(get(address, "/class/no").status, 403);
    let mut first = Client::connect(address);
    first.send("GET /wait HTTP/1.1\r\nHost: here\r\n\r\n");
    soon("the first one waits", || begun.load(Ordering::SeqCst) == 1);
    assert_eq!(get(address, "/wait").status, 503);
    sender.send(()).unwrap();
    assert_eq!(first.answer().text(), "there");
    // its place is free again
    sender.send(()).unwrap();
    soon("another is let in", || get(address, "/wait").status == 200);
    assert_eq!(begun.load(Ordering::SeqCst), 2);
}

fn a_password_comes_first(engine: &str) {
    let text = format!("[[auth]]\npath = \"/private\"\nusers = {{ alice = {HASH_OF_SECRET:?} }}\n");
    let asked = Arc::<AtomicUsize>::default();
    let here = Arc::clone(&asked);
    let server = with(engine, &text)
        .handler("/", move |request, response| {
            here.fetch_add(1, Ordering::SeqCst);
            Ok(response.text(request.user().unwrap_or("nobody"))?)
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.get("/open").text(), "nobody");
    assert_eq!(client.get("/private/x").status, 401);
    let wrong =
        "GET /private HTTP/1.1\r\nHost: here\r\nAuthorization: Basic YWxpY2U6d3Jvbmc=\r\n\r\n";
    assert_eq!(client.ask(wrong).status, 401);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the handler is not asked");
    let right =
        "GET /private HTTP/1.1\r\nHost: here\r\nAuthorization: Basic YWxpY2U6c2VjcmV0\r\n\r\n";
    assert_eq!(client.ask(right).text(), "alice");
    // another spelling of the path leads to the same
    assert_eq!(client.get("/%70rivate").status, 401);
    assert_eq!(client.get("/open/../private").status, 401);
}

fn a_request_has_its_line_in_the_access_log(engine: &str) {
    let scratch = Scratch::new("log", engine);
    let file = scratch.0.join("access.log");
    let server = builder(engine)
        .set("log.access", file.display().to_string())
        .handler("/hello", |_, response| Ok(response.text("hello")?))
        .handler("/fails", |_, _| Err("as the test wants".into()))
        .start()
        .unwrap();
    let address = server.addresses()[0];
    assert_eq!(get(address, "/hello/you").text(), "hello");
    assert_eq!(get(address, "/fails").status, 500);
    server.stop().unwrap();
    let log = fs::read_to_string(&file).unwrap();
    let line = |path: &str| log.lines().find(|line| line.contains(path)).map(str::to_owned);
    let hello = line("/hello/you").unwrap_or_else(|| panic!("{log}"));
    assert!(hello.contains("200"), "{hello}");
    let fails = line("/fails").unwrap_or_else(|| panic!("{log}"));
    assert!(fails.contains("500"), "{fails}");
}

fn why_says_what_has_become_of_a_request(engine: &str) {
    let (told, tell) = std::sync::mpsc::channel();
    let server = builder(engine)
        .handler("/fails", move |request, _| {
            told.send(request.id().to_owned())?;
            Err("as the test wants".into())
        })
        .start()
        .unwrap();
    assert_eq!(get(server.addresses()[0], "/fails").status, 500);
    let id = tell.recv().unwrap();
    let why = server.why(&id).unwrap();
    assert!(why.contains("/fails") && why.contains("got 500"), "{why}");
    assert_eq!(server.why("another"), None);
}

fn tls_and_http2_lead_to_the_same_handler(engine: &str) {
    let scratch = Scratch::new("tls", engine);
    let authority = Authority::new();
    authority.write(&scratch.0, "a", &["a.test"], &PKCS_ECDSA_P256_SHA256);
    let file = |name: &str| scratch.0.join(name).display().to_string();
    let text = format!(
        "listen = [\"https://127.0.0.1:0\"]\n[tls]\ncertificate = [{:?}]\nkey = [{:?}]\n",
        file("a.crt"),
        file("a.key")
    );
    let server: Server = with(engine, &text)
        .handler("/secure", |request, response| {
            let text = format!("{} {}", request.is_secure(), request.version());
            Ok(response.text(text)?)
        })
        .start()
        .unwrap();
    let mut client = http2::Client::sealed(&authority, server.addresses()[0], "a.test");
    let answer = client.get("/secure");
    assert_eq!((answer.status, answer.body), (200, b"true 20".to_vec()));
}

fn an_identity_is_proved_to_rules_and_hidden_from_handlers(engine: &str) {
    let scratch = Scratch::new("identity", engine);
    let keys = scratch.0.join("keys");
    fs::write(&keys, "k1 0123456789abcdef0123456789abcdef\n").unwrap();
    fs::set_permissions(&keys, PermissionsExt::from_mode(0o600)).unwrap();
    let text = format!(
        "[identity]\nkeys = {keys:?}\ncookie = \"id\"\nremove = true\n\
         [[class]]\nname = \"gold\"\npriority = 0\n[[class]]\nname = \"rest\"\npriority = 1\n\
         [[rule]]\nname = \"gold\"\nidentity = \"gold\"\nclass = \"gold\"\n\
         [[rule]]\nname = \"all\"\nclass = \"rest\"\n"
    );
    let server = with(engine, &text)
        .handler("/who", |request, response| {
            let cookie = request.field("Cookie").unwrap_or_default();
            Ok(response.text(format!("{} {cookie}", request.class()))?)
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let mut asked = |cookie: &str| {
        let head = format!("GET /who HTTP/1.1\r\nHost: here\r\nCookie: {cookie}\r\n\r\n");
        client.ask(&head).text().to_owned()
    };
    assert_eq!(asked(&format!("a=1; id={GOLD}; b=2")), "gold a=1; b=2");
    assert_eq!(asked(&format!("id={}", GOLD.replace("gold", "gold1"))), "rest ");
}
