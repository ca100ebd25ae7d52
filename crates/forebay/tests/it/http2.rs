//! Handlers over HTTP/2: many requests on one connection, each with a handler of its own.

use crate::handlers::builder;
use forebay::channel;
use forebay_tests::http2::Client;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_each_engine! {
    many_handlers_wait_on_one_connection,
    bodies_go_both_ways,
    a_stream_that_is_reset_ends_the_wait,
    a_slow_stream_holds_up_no_other,
}

fn many_handlers_wait_on_one_connection(engine: &str) {
    const COUNT: usize = 30;
    let here = Arc::<AtomicUsize>::default();
    let server = builder(engine)
        .handler("/all", move |request, response| {
            here.fetch_add(1, Ordering::SeqCst);
            while here.load(Ordering::SeqCst) < COUNT {
                forebay::sleep(Duration::from_millis(1))?;
            }
            Ok(response.text(format!("{} {}", request.version(), request.query()))?)
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let streams: Vec<_> = (0..COUNT).map(|n| (n, client.ask(&format!("/all?{n}")))).collect();
    for (number, stream) in streams {
        let answer = client.answer(stream);
        assert_eq!(answer.status, 200);
        assert_eq!(String::from_utf8(answer.body).unwrap(), format!("20 {number}"));
    }
}

fn bodies_go_both_ways(engine: &str) {
    let server = builder(engine)
        .handler("/echo", |request, response| {
            let (mut buffer, mut sum) = ([0; 5_000], 0);
            loop {
                let count = request.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                sum += count;
                response.write_all(&buffer[..count])?;
            }
            let trailers = request.trailers();
            let trailer = trailers.iter().find(|(name, _)| &**name == "x-sum");
            response.trailer(
                "X-Sum",
                trailer.map_or_else(|| sum.to_string().into(), |t| t.1.to_vec()),
            )?;
            Ok(())
        })
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    for bytes in [1, 60_000, 400_000] {
        let body: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        let stream = client.begin("POST", "/echo", &[], false);
        client.send_all(stream, &body);
        let answer = client.answer(stream);
        assert!(answer.body == body, "{} of {bytes} bytes", answer.body.len());
        assert_eq!(answer.trailers, [("x-sum".to_owned(), bytes.to_string())]);
    }
}

fn a_stream_that_is_reset_ends_the_wait(engine: &str) {
    let (told, tell) = std::sync::mpsc::channel();
    let (begun, begin) = std::sync::mpsc::channel();
    let server = builder(engine)
        .handler("/wait", move |_, _| {
            begun.send(()).unwrap();
            let slept = forebay::sleep(Duration::from_secs(3600));
            told.send(slept.is_err()).unwrap();
            Ok(slept?)
        })
        .handler("/well", |_, response| Ok(response.text("well")?))
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let stream = client.ask("/wait");
    begin.recv_timeout(crate::client::LONG).unwrap();
    client.reset(stream);
    assert_eq!(tell.recv_timeout(crate::client::LONG), Ok(true));
    assert_eq!(client.get("/well").body, b"well");
}

fn a_slow_stream_holds_up_no_other(engine: &str) {
    let (sender, receiver) = channel::<()>(1);
    let server = builder(engine)
        .handler("/slow", move |_, response| {
            response.write_all(b"first")?;
            response.flush()?;
            receiver.recv()?;
            Ok(response.write_all(b" last")?)
        })
        .handler("/fast", |_, response| Ok(response.text("fast")?))
        .start()
        .unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    let slow = client.ask("/slow");
    client.until(|client| client.so_far(slow).body == b"first");
    for _ in 0..5 {
        assert_eq!(client.get("/fast").body, b"fast");
    }
    sender.send(()).unwrap();
    assert_eq!(client.answer(slow).body, b"first last");
}
