//! Requests that services answer, and those that they do not.

use crate::client::{Client, LONG, get, soon};
use crate::example;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::routing::{any, get as on_get};
use forebay::{HandlerOptions, Server, ServerBuilder};
use forebay_tower::TowerHandler;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_each_engine! {
    a_service_beside_files,
    failures_cost_their_request,
    a_service_that_never_ends_is_504,
    a_client_that_leaves_drops_the_future,
    paths_are_those_that_rules_have_judged,
    what_there_is_no_room_for_is_503,
    rules_come_before_the_service,
}

/// A builder with this engine.
pub(crate) fn builder(engine: &str) -> ServerBuilder {
    match engine {
        "split" => Server::builder().engine("pipeline").set("pipeline.fuse", "never"),
        engine => Server::builder().engine(engine),
    }
}

pub(crate) fn serve(engine: &str, app: Router) -> Server {
    let handler = TowerHandler::new(app).unwrap();
    builder(engine).detached("/", HandlerOptions::default(), handler).start().unwrap()
}

fn a_service_beside_files(engine: &str) {
    let server = example::server(env!("CARGO_MANIFEST_DIR")).unwrap();
    let server = match engine {
        "split" => server.engine("pipeline").set("pipeline.fuse", "never"),
        engine => server.engine(engine),
    };
    let server = server.start().unwrap();
    let address = server.addresses()[0];
    let mut client = Client::connect(address);
    let answer = client.get("/api/hello?name=Ann");
    assert_eq!(answer.text(), "Hello, Ann at 127.0.0.1! You are visitor 1.\n");
    assert!(answer.head.contains("Content-Length: "), "{}", answer.head);
    assert!(client.get("/Cargo.toml").text().contains("forebay-tower"));
    assert_eq!(client.get("/api/none").status, 404);
    assert_eq!(client.get("/api/length").status, 405);
    let body = "POST /api/length HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\n12345";
    assert_eq!(client.ask(body).text(), "5");
    client.send("HEAD /api/hello HTTP/1.1\r\nHost: here\r\n\r\n");
    let (status, head) = client.head();
    assert!(status == 200 && head.contains("Content-Length: "), "{head}");
    assert_eq!(get(address, "/api/slow").text(), "a second later\n");
    server.stop().unwrap();
}

fn failures_cost_their_request(engine: &str) {
    let broken = || async {
        let pieces = [Ok("some"), Err(std::io::Error::other("as the test wants"))];
        let mut pieces = pieces.into_iter();
        Body::new(crate::streams::Pieces::new(move || pieces.next()))
    };
    let late = || async {
        let mut left = 100_000;
        Body::new(crate::streams::Pieces::new(move || {
            left -= 1;
            Some(if left == 0 { Err(std::io::Error::other("late")) } else { Ok("some") })
        }))
    };
    let app = Router::new()
        .route("/late", on_get(late))
        .route("/panic", on_get(|| async { panic!("as the test wants") as &str }))
        .route("/broken", on_get(broken))
        .route("/odd", on_get(|| async { StatusCode::from_u16(999).unwrap() }))
        .route("/well", on_get(|| async { "well" }));
    let server = serve(engine, app);
    let address = server.addresses()[0];
    let mut client = Client::connect(address);
    for _ in 0..2 {
        assert_eq!(client.get("/panic").status, 500);
        assert_eq!(client.get("/odd").status, 500);
        assert_eq!(client.get("/well").text(), "well");
    }
    // the body has failed before any of it was sent
    assert_eq!(get(address, "/broken").status, 500);
    let mut other = Client::connect(address);
    other.send("GET /late HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    other.head();
    let mut all = Vec::new();
    let ended = std::io::Read::read_to_end(&mut other.stream, &mut all);
    assert!(ended.is_err() || !all.ends_with(b"0\r\n\r\n"), "{all:?}");
    assert_eq!(get(address, "/well").text(), "well");
    let metrics = server.metrics();
    let panics = metrics.lines().find(|line| line.starts_with("forebay_panics_total")).unwrap();
    assert!(panics.ends_with(" 2"), "{panics}");
}

fn a_service_that_never_ends_is_504(engine: &str) {
    let app = Router::new().route("/never", on_get(std::future::pending::<&str>));
    let options = HandlerOptions {
        answer_within: Some(Duration::from_millis(100)),
        ..HandlerOptions::default()
    };
    let handler = TowerHandler::new(app).unwrap();
    let server = builder(engine).detached("/", options, handler).start().unwrap();
    for _ in 0..2 {
        assert_eq!(get(server.addresses()[0], "/never").status, 504);
    }
    server.stop().unwrap();
}

/// Counts the values that are alive.
struct Here(Arc<AtomicUsize>);

impl Here {
    fn new(count: &Arc<AtomicUsize>) -> Here {
        count.fetch_add(1, Ordering::SeqCst);
        Here(Arc::clone(count))
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn a_client_that_leaves_drops_the_future(engine: &str) {
    let count = Arc::<AtomicUsize>::default();
    let (before, during) = (Arc::clone(&count), Arc::clone(&count));
    let wait = move || {
        let here = Here::new(&before);
        async move {
            std::future::pending::<()>().await;
            drop(here);
        }
    };
    let events = move || {
        let (here, mut is_first) = (Here::new(&during), true);
        async move {
            Body::new(crate::streams::Pieces::endless(move || {
                let _ = &here;
                std::mem::take(&mut is_first).then_some(Ok("first"))
            }))
        }
    };
    let app = Router::new().route("/wait", on_get(wait)).route("/events", on_get(events));
    let server = serve(engine, app);
    for path in ["/wait", "/events"] {
        let mut client = Client::connect(server.addresses()[0]);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"));
        soon("it is asked", || count.load(Ordering::SeqCst) == 1);
        if path == "/events" {
            client.head();
            assert_eq!(client.chunk(), b"first");
        }
        drop(client);
        soon("its future is dropped", || count.load(Ordering::SeqCst) == 0);
    }
    // the future is dropped when the server stops, too
    let mut client = Client::connect(server.addresses()[0]);
    client.send("GET /wait HTTP/1.1\r\nHost: here\r\n\r\n");
    soon("it is asked", || count.load(Ordering::SeqCst) == 1);
    server.stop().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

fn paths_are_those_that_rules_have_judged(engine: &str) {
    let text =
        "[[rule]]\nname = \"no\"\npath = [\"/private\", \"/private/*\"]\naction = \"reject\"\n";
    let told = |request: Request<Body>| async move {
        let host = request.headers().get(header::HOST).cloned();
        format!("{} {host:?}", request.uri())
    };
    let app = Router::new().fallback(any(told));
    let handler = TowerHandler::new(app).unwrap();
    let server = builder(engine).config(text);
    let server = server.detached("/", HandlerOptions::default(), handler).start().unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    for path in ["/private", "/%70rivate", "/a/../private", "/a/%2e%2e/private/x", "//private"] {
        let answer = client.get(path);
        assert!(
            answer.status == 403 || !answer.text().starts_with("/private"),
            "{path} {answer:?}"
        );
    }
    assert_eq!(client.get("/private/../a%20b?c=%20d").text(), "/a%20b?c=%20d Some(\"here\")");
}

fn rules_come_before_the_service(engine: &str) {
    let count = Arc::<AtomicUsize>::default();
    let begun = Arc::clone(&count);
    let wait = move || {
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<&str>()
    };
    let text =
        "[[rule]]\nname = \"one\"\npath = \"/wait\"\nin_flight = { most = 1, status = 503 }\n";
    let handler = TowerHandler::new(Router::new().route("/wait", on_get(wait))).unwrap();
    let server = builder(engine).config(text);
    let server = server.detached("/", HandlerOptions::default(), handler).start().unwrap();
    let address = server.addresses()[0];
    let mut first = Client::connect(address);
    first.send("GET /wait HTTP/1.1\r\nHost: here\r\n\r\n");
    soon("it is asked", || count.load(Ordering::SeqCst) == 1);
    assert_eq!(get(address, "/wait").status, 503);
    assert_eq!(count.load(Ordering::SeqCst), 1, "the service is not asked");
}

fn what_there_is_no_room_for_is_503(engine: &str) {
    let count = Arc::<AtomicUsize>::default();
    let begun = Arc::clone(&count);
    let wait = move || {
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<&str>()
    };
    let handler = TowerHandler::new(Router::new().route("/", on_get(wait))).unwrap();
    let server = builder(engine).most_fibers(1);
    let server = server.detached("/", HandlerOptions::default(), handler).start().unwrap();
    let address = server.addresses()[0];
    let mut first = Client::connect(address);
    first.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    soon("it is asked", || count.load(Ordering::SeqCst) == 1);
    assert_eq!(get(address, "/").status, 503);
    drop(first);
    let mut next = Client::connect(address);
    soon("there is room again", || {
        next = Client::connect(address);
        next.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
        std::thread::sleep(Duration::from_millis(20));
        count.load(Ordering::SeqCst) == 2
    });
}

/// Tests a runtime of the program's own, and one that is gone.
#[test]
fn the_runtime_may_be_the_programs() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let app = Router::new().route("/", on_get(|| async { "on it" }));
    let handler = TowerHandler::on(runtime.handle().clone(), app);
    let server = Server::builder().detached("/", HandlerOptions::default(), handler);
    let server = server.start().unwrap();
    let address = server.addresses()[0];
    assert_eq!(get(address, "/").text(), "on it");
    runtime.shutdown_timeout(LONG);
    assert_eq!(get(address, "/").status, 500);
    server.stop().unwrap();
}

/// Stops a server within another runtime, where a thread must not wait for the end of one.
#[test]
fn a_server_may_be_stopped_within_another_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let server = serve("event", Router::new().route("/", on_get(|| async { "here" })));
        let address = server.addresses()[0];
        let answer = std::thread::spawn(move || get(address, "/").status).join().unwrap();
        assert_eq!(answer, 200);
        server.stop().unwrap();
    });
}
