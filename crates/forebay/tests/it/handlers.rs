//! What handlers can do, the same on every engine.

use crate::client::{Client, LONG, get, soon};
use forebay::{MainThread, Server, ServerBuilder, channel};
use std::io::{BufRead, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_each_engine! {
    answers_in_all_sizes,
    bodies_come_as_they_are_read,
    a_handler_that_fails_costs_its_request,
    a_body_that_is_too_large_is_413,
    a_stopper_ends_what_is_waited_for,
    a_slow_client_makes_the_handler_wait,
    a_client_that_leaves_ends_the_wait,
    the_main_thread_owns_the_state,
    many_wait_at_once,
    an_answer_that_is_late_is_504,
    events_are_sent_as_they_come,
    what_there_is_no_room_for_is_503,
    answers_without_bodies_have_the_length_that_was_said,
    a_handler_that_does_not_end_holds_up_no_other,
    a_panic_that_still_writes_holds_up_no_other,
}

pub(crate) fn builder(engine: &str) -> ServerBuilder {
    match engine {
        "split" => Server::builder().engine("pipeline").set("pipeline.fuse", "never"),
        engine => Server::builder().engine(engine),
    }
}

fn answers_in_all_sizes(engine: &str) {
    let server = builder(engine)
        .handler("/bytes", |request, response| {
            let count: usize = request.parameter("n").unwrap().parse()?;
            response.field("X-Path", request.path())?;
            let mut left = count;
            while left > 0 {
                let piece = left.min(7_000);
                response.write_all(&vec![b'x'; piece])?;
                left -= piece;
            }
            Ok(())
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    for count in [0, 1, 7_000, 16_384, 16_385, 65_536, 1_000_000] {
        let answer = client.get(&format!("/bytes/deep?n={count}"));
        assert_eq!((answer.status, answer.body.len()), (200, count));
        assert!(answer.head.contains("\r\nX-Path: /bytes/deep\r\n"), "{}", answer.head);
    }
    client.send("HEAD /bytes?n=100 HTTP/1.1\r\nHost: here\r\n\r\n");
    let (status, head) = client.head();
    assert!(status == 200 && head.contains("Content-Length: 100"), "{head}");
    assert_eq!(client.get("/bytes?n=3").body, b"xxx");
}

fn bodies_come_as_they_are_read(engine: &str) {
    let server = builder(engine)
        .handler("/sum", |request, response| {
            let (mut sum, mut buffer) = (0u64, [0; 1000]);
            loop {
                let count = request.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                sum += buffer[..count].iter().map(|b| u64::from(*b)).sum::<u64>();
            }
            Ok(response.text(sum.to_string())?)
        })
        .handler("/first", |request, response| {
            let mut one = [0];
            request.read_exact(&mut one)?;
            Ok(response.text(one)?)
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let body = vec![1u8; 300_000];
    client.send(format!(
        "POST /sum HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    assert_eq!(client.answer().text(), "300000");
    client.send("POST /sum HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..3 {
        client.send("5\r\n\x01\x01\x01\x01\x01\r\n");
        std::thread::sleep(Duration::from_millis(5));
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.answer().text(), "15");
    // a client that waits for 100 Continue gets it
    client.send(
        "POST /sum HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
    );
    let mut line = String::new();
    client.stream.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    client.stream.read_line(&mut line).unwrap();
    client.send("\x01\x01");
    assert_eq!(client.answer().text(), "2");
    // a body that a handler does not read is not waited for
    let mut client = Client::connect(server.addresses()[0]);
    client.send("POST /first HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\nabc");
    assert_eq!(client.answer().text(), "a");
}

fn a_handler_that_fails_costs_its_request(engine: &str) {
    let server = builder(engine)
        .handler("/error", |_, _| Err("no".into()))
        .handler("/panic", |_, _| panic!("as the test wants"))
        .handler("/late", |_, response| {
            response.write_all(b"half")?;
            response.flush()?;
            panic!("as the test wants, in the middle")
        })
        .handler("/well", |_, response| Ok(response.text("well")?))
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let mut client = Client::connect(address);
    for _ in 0..2 {
        assert_eq!(client.get("/error").status, 500);
        assert_eq!(client.get("/panic").status, 500);
        assert_eq!(client.get("/well").text(), "well");
    }
    let mut broken = Client::connect(address);
    broken.send("GET /late HTTP/1.1\r\nHost: here\r\n\r\n");
    assert_eq!(broken.head().0, 200);
    let mut rest = Vec::new();
    let ended = broken.stream.read_to_end(&mut rest);
    assert!(ended.is_err() || !rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
    assert_eq!(client.get("/well").text(), "well");
    let metrics = server.metrics();
    let panics = metrics.lines().find(|line| line.starts_with("forebay_panics_total")).unwrap();
    assert!(panics.ends_with(" 2"), "{panics}");
}

fn a_body_that_is_too_large_is_413(engine: &str) {
    let four = |request: &mut forebay::Request, response: &mut forebay::Response| {
        let body = request.body(4)?;
        Ok(response.status(201)?.text(body)?)
    };
    let server = builder(engine).handler("/four", four).start().unwrap();
    for (body, status) in [("1234", 201), ("12345", 413)] {
        let length = body.len();
        let mut client = Client::connect(server.addresses()[0]);
        let head = format!("POST /four HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(client.ask(&(head + body)).status, status, "{engine}");
    }
}

fn a_stopper_ends_what_is_waited_for(engine: &str) {
    let handler =
        |_: &mut forebay::Request, response: &mut forebay::Response| Ok(response.text("well")?);
    let server = builder(engine).handler("/well", handler).start().unwrap();
    let (address, stopper) = (server.addresses()[0], server.stopper());
    assert_eq!(get(address, "/well").text(), "well");
    let again = stopper.clone();
    let stops = std::thread::spawn(move || stopper.drain(LONG));
    server.wait().unwrap();
    stops.join().unwrap();
    again.stop();
    assert!(std::net::TcpStream::connect(address).is_err(), "{engine}");
}

fn a_slow_client_makes_the_handler_wait(engine: &str) {
    let written = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&written);
    let server = builder(engine)
        .handler("/much", move |_, response| {
            for _ in 0..1_000 {
                response.write_all(&[b'm'; 50_000])?;
                count.fetch_add(50_000, Ordering::SeqCst);
            }
            Ok(())
        })
        .handler("/well", |_, response| Ok(response.text("well")?))
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let mut client = Client::connect(address);
    client.send("GET /much HTTP/1.1\r\nHost: here\r\n\r\n");
    client.head();
    // until the handler stands still: the kernel's buffers and the pipe are full
    let mut before = usize::MAX;
    soon("the handler waits", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = written.load(Ordering::SeqCst);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    assert!(before < 40_000_000, "{before} bytes were taken for a client that reads none");
    assert_eq!(get(address, "/well").text(), "well", "others are served");
    let mut read = 0;
    loop {
        let chunk = client.chunk();
        if chunk.is_empty() {
            break;
        }
        read += chunk.len();
    }
    assert_eq!(read, 50_000_000);
}

fn a_client_that_leaves_ends_the_wait(engine: &str) {
    let (told, tell) = std::sync::mpsc::channel();
    let (_never, nothing) = channel::<()>(1);
    let (begun, begin) = std::sync::mpsc::channel();
    let server = builder(engine)
        .handler("/wait", move |request, _| {
            begun.send(()).unwrap();
            let waited = match request.parameter("for").as_deref() {
                Some("sleep") => forebay::sleep(LONG * 100).is_err(),
                Some("channel") => nothing.recv().is_err(),
                _ => request.read(&mut [0; 10]).is_err(),
            };
            told.send(waited && request.is_left()).unwrap();
            Ok(())
        })
        .start()
        .unwrap();
    for wait in ["sleep", "channel", "body"] {
        let mut client = Client::connect(server.addresses()[0]);
        let length = if wait == "body" { "Content-Length: 10\r\n" } else { "" };
        client.send(format!("POST /wait?for={wait} HTTP/1.1\r\nHost: here\r\n{length}\r\n"));
        begin.recv_timeout(LONG).unwrap();
        drop(client);
        assert_eq!(tell.recv_timeout(LONG), Ok(true), "{wait}");
    }
}

fn the_main_thread_owns_the_state(engine: &str) {
    thread_local!(static STATE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    let (main, handle) = MainThread::new().unwrap();
    let server = builder(engine)
        .handler("/add", move |_, response| {
            let value = handle.call(|| {
                STATE.set(STATE.get() + 1);
                STATE.get()
            })?;
            Ok(response.text(value.to_string())?)
        })
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let clients: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..25).map(|_| client.get("/add").text().parse::<u64>().unwrap()).max()
            })
        })
        .collect();
    while !clients.iter().all(|client| client.is_finished()) {
        main.make_calls();
        std::thread::yield_now();
    }
    let most = clients.into_iter().filter_map(|client| client.join().unwrap()).max();
    assert_eq!((most, STATE.get()), (Some(100), 100));
}

fn many_wait_at_once(engine: &str) {
    // with a thread for each handler, as many as one client may have
    let count = match engine {
        "fibers" => 200,
        "pool" => 20,
        _ => 40,
    };
    let waiting = Arc::<AtomicUsize>::default();
    let here = Arc::clone(&waiting);
    let server = builder(engine)
        .handler("/all", move |_, response| {
            here.fetch_add(1, Ordering::SeqCst);
            // no handler goes on before all are here: they wait at the same time
            while here.load(Ordering::SeqCst) < count {
                forebay::sleep(Duration::from_millis(1))?;
            }
            Ok(response.text("all")?)
        })
        .start()
        .unwrap();
    let mut clients: Vec<_> = (0..count).map(|_| Client::connect(server.addresses()[0])).collect();
    clients.iter_mut().for_each(|client| client.send("GET /all HTTP/1.1\r\nHost: here\r\n\r\n"));
    for client in &mut clients {
        assert_eq!(client.answer().text(), "all");
    }
}

fn an_answer_that_is_late_is_504(engine: &str) {
    let options = forebay::HandlerOptions {
        answer_within: Some(Duration::from_millis(100)),
        ..forebay::HandlerOptions::default()
    };
    let (told, tell) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let server = builder(engine)
        .handler_with(
            "/late",
            options,
            move |_: &mut forebay::Request, response: &mut forebay::Response| {
                let slept = forebay::sleep(LONG * 100);
                told.lock().unwrap().send(slept.is_err()).unwrap();
                Ok(response.text("too late")?)
            },
        )
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.get("/late").status, 504);
    assert_eq!(tell.recv_timeout(LONG), Ok(true));
}

fn events_are_sent_as_they_come(engine: &str) {
    let (sender, receiver) = channel::<String>(4);
    let server = builder(engine)
        .handler("/events", move |_, response| {
            response.field("Content-Type", "text/event-stream")?;
            response.flush()?;
            while let Ok(event) = receiver.recv() {
                write!(response, "data: {event}\n\n")?;
                response.flush()?;
            }
            Ok(())
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    client.send("GET /events HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(client.head().1.contains("text/event-stream"));
    for number in 0..5 {
        sender.send(number.to_string()).unwrap();
        assert_eq!(client.chunk(), format!("data: {number}\n\n").into_bytes());
    }
    drop(sender);
    assert_eq!(client.chunk(), b"");
}

fn what_there_is_no_room_for_is_503(engine: &str) {
    let (sender, receiver) = channel::<()>(4);
    let begun = Arc::<AtomicUsize>::default();
    let here = Arc::clone(&begun);
    let server = builder(engine)
        .most_fibers(1)
        .most_threads(1, 0)
        .handler("/wait", move |_, response| {
            here.fetch_add(1, Ordering::SeqCst);
            receiver.recv()?;
            Ok(response.text("there")?)
        })
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let mut first = Client::connect(address);
    first.send("GET /wait HTTP/1.1\r\nHost: here\r\n\r\n");
    soon("the first one waits", || begun.load(Ordering::SeqCst) == 1);
    let refused = get(address, "/wait");
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("Retry-After"), "{}", refused.head);
    sender.send(()).unwrap();
    assert_eq!(first.answer().text(), "there");
    sender.send(()).unwrap();
    soon("there is room again", || {
        get(address, "/wait").status == 200 || {
            sender.send(()).unwrap();
            false
        }
    });
}

fn answers_without_bodies_have_the_length_that_was_said(engine: &str) {
    let server = builder(engine)
        .handler("/length", |request, response| {
            response.length(1_000_000)?;
            if request.method() != "HEAD" {
                response.write_all(&vec![b'a'; 1_000_000])?;
            }
            Ok(())
        })
        .handler("/unchanged", |_, response| {
            response.status(304)?;
            Ok(())
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    client.send("HEAD /length HTTP/1.1\r\nHost: here\r\n\r\n");
    let (status, head) = client.head();
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("Content-Length: 1000000\r\n"), "{head}");
    client.send("GET /unchanged HTTP/1.1\r\nHost: here\r\n\r\n");
    let (status, head) = client.head();
    assert_eq!(status, 304, "{head}");
    assert!(!head.contains("Content-Length") && !head.contains("Transfer-Encoding"), "{head}");
    assert_eq!(client.get("/length").body.len(), 1_000_000);
}

fn a_handler_that_does_not_end_holds_up_no_other(engine: &str) {
    let turns = Arc::<AtomicUsize>::default();
    let is_over = Arc::<std::sync::atomic::AtomicBool>::default();
    let (here, ends) = (Arc::clone(&turns), Arc::clone(&is_over));
    let server = builder(engine)
        .handler("/on", move |_, _| {
            while !ends.load(Ordering::SeqCst) {
                let _ = forebay::sleep(Duration::from_millis(1));
                here.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        })
        .handler("/other", |_, response| Ok(response.text("other")?))
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let mut first = Client::connect(address);
    first.send("GET /on HTTP/1.1\r\nHost: here\r\n\r\n");
    soon("it has begun", || turns.load(Ordering::SeqCst) > 0);
    drop(first);
    // the handler learns that its client has left, and goes on
    soon("it does not wait any more", || {
        let before = turns.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        turns.load(Ordering::SeqCst) > before + 40
    });
    assert_eq!(get(address, "/other").text(), "other");
    // this handler has a thread, which nothing else ends
    is_over.store(engine != "fibers", Ordering::SeqCst);
    server.stop().unwrap();
}

fn a_panic_that_still_writes_holds_up_no_other(engine: &str) {
    let panics = Arc::<AtomicUsize>::default();
    let here = Arc::clone(&panics);
    let server = builder(engine)
        .handler("/panic", move |_, response| {
            let mut out = std::io::BufWriter::with_capacity(32 << 20, response);
            out.write_all(&vec![b'a'; 16 << 20])?;
            here.fetch_add(1, Ordering::SeqCst);
            // the rest is written while this unwinds
            std::panic::resume_unwind(Box::new("a panic that says nothing"))
        })
        .handler("/other", |_, response| Ok(response.text("other")?))
        .start()
        .unwrap();
    let address = server.addresses()[0];
    let mut slow = Client::connect(address);
    slow.send("GET /panic HTTP/1.1\r\nHost: here\r\n\r\n");
    soon("it panics", || panics.load(Ordering::SeqCst) == 1);
    assert_eq!(get(address, "/other").text(), "other");
    drop(slow);
    assert_eq!(get(address, "/other").text(), "other");
    server.stop().unwrap();
}
