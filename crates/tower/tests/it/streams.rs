//! Bodies that stream both ways, with back-pressure, over HTTP/1 and HTTP/2; trailers.

use crate::client::{Client, soon};
use crate::services::serve;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::response::Response;
use axum::routing::{get, post};
use forebay_tests::http2;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

on_each_engine! {
    bodies_stream_both_ways,
    a_slow_client_makes_the_body_wait,
    a_service_that_does_not_read_makes_the_client_wait,
    trailers_come_and_go,
}

/// A piece of a body.
type Piece = io::Result<&'static str>;

/// A body of pieces, and what follows them.
pub(crate) struct Pieces<F> {
    next: F,
    is_endless: bool,
    trailers: Option<HeaderMap>,
}

impl<F: FnMut() -> Option<Piece> + Unpin> Pieces<F> {
    pub(crate) fn new(next: F) -> Pieces<F> {
        Pieces { next, is_endless: false, trailers: None }
    }

    /// A body that waits for ever behind its pieces.
    pub(crate) fn endless(next: F) -> Pieces<F> {
        Pieces { next, is_endless: true, trailers: None }
    }
}

impl<F: FnMut() -> Option<Piece> + Unpin> HttpBody for Pieces<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
        match (self.next)() {
            Some(piece) => {
                let frame =
                    piece.map(|text| http_body::Frame::data(Bytes::from_static(text.as_bytes())));
                Poll::Ready(Some(frame))
            }
            None if self.is_endless => Poll::Pending,
            None => Poll::Ready(self.trailers.take().map(|t| Ok(http_body::Frame::trailers(t)))),
        }
    }
}

/// An application that answers with the body of the request.
fn echo() -> Router {
    Router::new().route("/echo", post(|request: Request<Body>| async { request.into_body() }))
}

fn bodies_stream_both_ways(engine: &str) {
    let server = serve(engine, echo());
    let address = server.addresses()[0];
    let mut client = Client::connect(address);
    // a piece comes back before the next is sent
    client.send("POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("5\r\nfirst\r\n");
    client.head();
    assert_eq!(client.chunk(), b"first");
    client.send("4\r\nlast\r\n0\r\n\r\n");
    assert_eq!(client.chunk(), b"last");
    assert_eq!(client.chunk(), b"");
    for bytes in [1, 60_000, 1_000_000] {
        let body: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
        let mut client = http2::Client::connect(address);
        let stream = client.begin("POST", "/echo", &[], false);
        client.send_all(stream, &body);
        let answer = client.answer(stream);
        assert!(answer.body == body, "{} of {bytes} bytes", answer.body.len());
    }
}

fn a_slow_client_makes_the_body_wait(engine: &str) {
    const PIECE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const COUNT: usize = 1_000_000;
    let given = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&given);
    let much = move || {
        let count = Arc::clone(&count);
        async move {
            Body::new(Pieces::new(move || {
                (count.fetch_add(1, Ordering::SeqCst) < COUNT).then_some(Ok(PIECE))
            }))
        }
    };
    let server = serve(engine, Router::new().route("/much", get(much)));
    let mut client = Client::connect(server.addresses()[0]);
    client.send("GET /much HTTP/1.1\r\nHost: here\r\n\r\n");
    client.head();
    let mut before = usize::MAX;
    soon("the body waits", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = given.load(Ordering::SeqCst);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    assert!(before < COUNT, "all was taken for a client that reads none");
    let mut read = 0;
    loop {
        match client.chunk().len() {
            0 => break,
            count => read += count,
        }
    }
    assert_eq!(read, COUNT * PIECE.len());
}

fn a_service_that_does_not_read_makes_the_client_wait(engine: &str) {
    let read = Arc::<tokio::sync::Notify>::default();
    let reads = Arc::clone(&read);
    let app = Router::new().route(
        "/later",
        post(|request: Request<Body>| async move {
            reads.notified().await;
            let body = axum::body::to_bytes(request.into_body(), usize::MAX).await;
            body.unwrap().len().to_string()
        }),
    );
    let server = serve(engine, app);
    let mut client = Client::connect(server.addresses()[0]);
    client.send("POST /later HTTP/1.1\r\nHost: here\r\nContent-Length: 16000000\r\n\r\n");
    let stream = client.stream.get_ref().try_clone().unwrap();
    let sent = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&sent);
    let sender = std::thread::spawn(move || {
        let piece = [0; 16_000];
        for _ in 0..1_000 {
            io::Write::write_all(&mut &stream, &piece).unwrap();
            count.fetch_add(piece.len(), Ordering::SeqCst);
        }
    });
    let mut before = usize::MAX;
    soon("the client waits", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = sent.load(Ordering::SeqCst);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    assert!(before < 16_000_000, "all was taken");
    read.notify_one();
    assert_eq!(client.answer().text(), "16000000");
    sender.join().unwrap();
}

fn trailers_come_and_go(engine: &str) {
    let app = Router::new().route(
        "/trailers",
        post(|request: Request<Body>| async move {
            let mut body = request.into_body();
            let mut seen = HeaderValue::from_static("none");
            while let Some(frame) =
                std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
            {
                if let Ok(trailers) = frame.unwrap().into_trailers() {
                    seen = trailers.get("x-sum").cloned().unwrap_or(seen);
                }
            }
            let mut pieces = Pieces::new({
                let mut pieces = ["a", "b"].into_iter();
                move || pieces.next().map(Ok)
            });
            pieces.trailers = Some([("x-seen".parse().unwrap(), seen)].into_iter().collect());
            Response::new(Body::new(pieces))
        }),
    );
    let server = serve(engine, app);
    let address = server.addresses()[0];
    let mut client = http2::Client::connect(address);
    let stream = client.begin("POST", "/trailers", &[], false);
    client.send(stream, b"body", false);
    client.trail(stream, &[("x-sum", "4")]);
    let answer = client.answer(stream);
    assert_eq!(answer.body, b"ab");
    assert_eq!(answer.trailers, [("x-seen".to_owned(), "4".to_owned())]);
    let mut client = Client::connect(address);
    client.send(
        "POST /trailers HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
    let (_, head) = client.head();
    assert!(head.contains("chunked"), "{head}");
    let mut body = Vec::new();
    loop {
        let chunk = client.chunk();
        if chunk.is_empty() {
            break;
        }
        body.extend(chunk);
    }
    assert_eq!(body, b"ab");
}
