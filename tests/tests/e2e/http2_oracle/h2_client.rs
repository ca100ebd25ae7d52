//! The crate `h2` asks, and our server answers.

use super::case::{Case, Message, cases, number};
use super::ours::Ours;
use super::wire::{Task, Wire, drive};
use bytes::Bytes;
use fastrand::Rng;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub(super) fn header_map(fields: &[(String, Vec<u8>)]) -> HeaderMap {
    let field = |(name, value): &(String, Vec<u8>)| {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        (name, HeaderValue::from_bytes(value).unwrap())
    };
    fields.iter().map(field).collect()
}

/// Fields in the order of their names, which is all that `h2` keeps.
pub(super) fn sorted(
    fields: impl IntoIterator<Item = (String, Vec<u8>)>,
) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort();
    fields
}

pub(super) fn list(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    sorted(map.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())))
}

/// Reads a body and its trailers.
pub(super) async fn read(stream: &mut h2::RecvStream) -> Message {
    let mut message = Message::default();
    while let Some(bytes) = stream.data().await {
        let bytes = bytes.unwrap();
        stream.flow_control().release_capacity(bytes.len()).unwrap();
        message.body.extend_from_slice(&bytes);
    }
    if let Some(trailers) = stream.trailers().await.unwrap() {
        message.trailers = list(&trailers);
    }
    message
}

/// Sends a body and its trailers.
pub(super) fn write(stream: &mut h2::SendStream<Bytes>, message: &Message) {
    let has_trailers = !message.trailers.is_empty();
    if !message.body.is_empty() {
        stream.send_data(Bytes::from(message.body.clone()), !has_trailers).unwrap();
    }
    if has_trailers {
        stream.send_trailers(header_map(&message.trailers)).unwrap();
    }
}

async fn ask(send: SendRequest<Bytes>, case: Case, answered: Rc<Cell<usize>>) {
    let mut send = send.ready().await.unwrap();
    let uri = format!("http://example.com{}", case.path);
    let mut request = Request::builder().method(case.method).uri(uri).body(()).unwrap();
    *request.headers_mut() = header_map(&case.request.fields);
    let is_last = case.request.body.is_empty() && case.request.trailers.is_empty();
    let (mut response, mut body) = send.send_request(request, is_last).unwrap();
    write(&mut body, &case.request);
    let mut informational = 0;
    let response = poll_fn(|cx| {
        while let Poll::Ready(Some(early)) = response.poll_informational(cx) {
            assert_eq!(early.unwrap().status(), 103);
            informational += 1;
        }
        std::pin::Pin::new(&mut response).poll(cx)
    });
    let response = response.await.unwrap();
    assert_eq!(response.status(), case.status);
    assert_eq!(list(response.headers()), sorted(case.response.fields));
    let message = read(&mut response.into_body()).await;
    assert!(message.body == case.response.body, "the body of {}", case.path);
    assert_eq!(message.trailers, sorted(case.response.trailers));
    assert_eq!(informational, u32::from(case.is_early));
    answered.set(answered.get() + 1);
}

fn play(seed: u64) {
    let cases = cases(seed, 60);
    let known = cases.clone();
    let mut ours = Ours::server(move |seen| {
        let case = &known[number(&seen.path)];
        assert_eq!((&*seen.method, &seen.path), (case.method, &case.path));
        assert_eq!(sorted(seen.message.fields.clone()), sorted(case.request.fields.clone()));
        assert!(seen.message.body == case.request.body, "the body of {}", case.path);
        assert_eq!(sorted(seen.message.trailers.clone()), sorted(case.request.trailers.clone()));
        (case.status, case.is_early, case.response.clone())
    });
    let wire = Wire::default();
    let mut handshake = Box::pin(h2::client::handshake(wire.clone()));
    let shaken = handshake.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok((send, connection))) = shaken else { panic!("no handshake") };
    let mut background: Task = Box::pin(async move { drop(connection.await) });
    let answered = Rc::new(Cell::new(0));
    let task =
        |case: &Case| -> Task { Box::pin(ask(send.clone(), case.clone(), answered.clone())) };
    let tasks = cases.iter().map(task).collect();
    drive(&wire, &mut ours, tasks, &mut background, &mut Rng::with_seed(seed));
    assert_eq!(answered.get(), cases.len());
}

#[test]
fn h2_asks_and_we_answer() {
    (1..=10).for_each(play);
}
