//! The control of servers by a program: several servers, sockets of its own, reload, drain, errors.

use crate::client::{Client, get, soon};
use forebay::{Server, ServerError};
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn several_serve_side_by_side_at_sockets_that_are_given() {
    let given = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = given.local_addr().unwrap();
    let one = Server::builder()
        .listener(given)
        .unwrap()
        .handler("/", |_, response| Ok(response.text("one")?))
        .start()
        .unwrap();
    let two = Server::builder()
        .engine("event")
        .listen("127.0.0.1:0")
        .listen("[::1]:0")
        .handler("/", |_, response| Ok(response.text("two")?))
        .start()
        .unwrap();
    assert_eq!(one.addresses(), [address]);
    assert_eq!(get(address, "/").text(), "one");
    for &address in two.addresses() {
        assert_eq!(get(address, "/").text(), "two");
    }
    one.stop().unwrap();
    assert_eq!(get(two.addresses()[0], "/any/path").text(), "two");
}

/// A port of 0 gives the admin listener a port of its own: it does not get the server's connections.
#[test]
fn an_admin_listener_has_a_port_of_its_own() {
    let text = "listen = [\"127.0.0.1:0\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let mut server = Server::builder()
        .config(text)
        .handler("/", |_, response| Ok(response.text("one")?))
        .start()
        .unwrap();
    for _ in 0..2 {
        let addresses = server.addresses().to_vec();
        assert_eq!((addresses.len(), server.urls().len()), (1, 1));
        for _ in 0..50 {
            assert_eq!(get(addresses[0], "/metrics").text(), "one");
        }
        server.reload().unwrap();
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_starts() {
    let error = |builder: forebay::ServerBuilder| match builder.start() {
        Ok(_) => panic!("it has started"),
        Err(error) => error.to_string(),
    };
    let named = [
        (Server::builder().engine("engines"), "engine"),
        (Server::builder().handler("hello", |_, _| Ok(())), "handler hello"),
        (Server::builder().config("rooot = \"/\"\n"), "rooot"),
        (Server::builder().engine("isolated").handler("/", |_, _| Ok(())), "isolated"),
        (Server::builder().config("[stages]\n").handler("/", |_, _| Ok(())), "[stages]"),
        (Server::builder().config("gate = \"auto\"\n").handler("/", |_, _| Ok(())), "gate"),
        (Server::builder(), "root"),
        (Server::builder().config_file("/nowhere/forebay.toml"), "/nowhere/forebay.toml"),
    ];
    for (builder, name) in named {
        let error = error(builder);
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn a_reload_keeps_connections_and_handlers() {
    let mut server = Server::builder()
        .handler("/code", |_, response| Ok(response.text("code")?))
        .start()
        .unwrap();
    let mut open = Client::connect(server.addresses()[0]);
    assert_eq!(open.get("/code").text(), "code");
    assert_eq!(open.get("/elsewhere").status, 404);
    let rule = "[[redirect]]\npath = \"/elsewhere\"\nto = \"/code\"\n";
    server.reload_with(rule).unwrap();
    assert_eq!(open.get("/code").text(), "code");
    let answer = open.get("/elsewhere");
    assert!((300..400).contains(&answer.status), "{answer:?}");
    // a faulty text changes nothing
    let error = server.reload_with("listen = 7\n").unwrap_err();
    assert!(matches!(error, ServerError::Config(_)), "{error}");
    // a handler has the state of this process, and a stage would be another
    let error = server.reload_with("root = \"/\"\n[stages]\n").unwrap_err();
    assert!(error.to_string().contains("[stages]"), "{error}");
    assert!((300..400).contains(&open.get("/elsewhere").status));
    assert!(server.metrics().contains("forebay_"));
    server.stop().unwrap();
}

#[test]
fn a_drain_lets_handlers_finish_and_a_stop_ends_their_waits() {
    for engine in ["fibers", "event", "threads", "pool", "pipeline"] {
        let (told, tell) = std::sync::mpsc::channel();
        let server = Server::builder()
            .engine(engine)
            .handler("/short", |_, response| {
                forebay::sleep(Duration::from_millis(300))?;
                Ok(response.text("whole")?)
            })
            .handler("/long", move |_, _| {
                let waited = forebay::sleep(Duration::from_secs(3600));
                told.send(waited.is_err()).unwrap();
                Ok(waited?)
            })
            .start()
            .unwrap();
        let address = server.addresses()[0];
        let (mut short, mut long) = (Client::connect(address), Client::connect(address));
        short.send("GET /short HTTP/1.1\r\nHost: here\r\n\r\n");
        long.send("GET /long HTTP/1.1\r\nHost: here\r\n\r\n");
        let asked = "forebay_connections_accepted_total";
        soon("both have come", || {
            server.metrics().contains(asked) && server.open_connections() == 2
        });
        std::thread::sleep(Duration::from_millis(50));
        let drained = std::thread::spawn(move || server.drain(Duration::from_secs(2)));
        assert_eq!(short.answer().text(), "whole", "{engine}");
        assert!(tell.recv().unwrap(), "{engine}");
        drained.join().unwrap().unwrap();
    }
}

#[test]
fn a_drain_may_take_as_long_as_it_takes() {
    let server =
        Server::builder().handler("/", |_, response| Ok(response.text("here")?)).start().unwrap();
    server.drain(Duration::MAX).unwrap();
}
