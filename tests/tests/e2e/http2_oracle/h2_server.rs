//! Our client asks, and the crate `h2` answers.

use super::case::{Case, cases, number};
use super::h2_client::{header_map, list, read, sorted, write};
use super::ours::Ours;
use super::wire::{Task, Wire, drive};
use bytes::Bytes;
use fastrand::Rng;
use h2::server::SendResponse;
use http::{Request, Response};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    cases: Rc<Vec<Case>>,
) {
    let case = &cases[number(request.uri().path())];
    let path = request.uri().path_and_query().map(|path| path.as_str().to_owned());
    assert_eq!((request.method().as_str(), path.as_ref()), (case.method, Some(&case.path)));
    assert_eq!(list(request.headers()), sorted(case.request.fields.clone()));
    let message = read(&mut request.into_body()).await;
    assert!(message.body == case.request.body, "the body of {}", case.path);
    assert_eq!(message.trailers, sorted(case.request.trailers.clone()));
    if case.is_early {
        let early = Response::builder().status(103).header("link", "</a>").body(()).unwrap();
        respond.send_informational(early).unwrap();
    }
    let mut response = Response::builder().status(case.status).body(()).unwrap();
    *response.headers_mut() = header_map(&case.response.fields);
    let is_last = case.response.body.is_empty() && case.response.trailers.is_empty();
    let mut stream = respond.send_response(response, is_last).unwrap();
    write(&mut stream, &case.response);
}

fn play(seed: u64) {
    let cases = Rc::new(cases(seed, 60));
    let requests =
        cases.iter().map(|case| (case.method.to_owned(), case.path.clone(), case.request.clone()));
    let mut ours = Ours::client(requests.collect());
    let wire = Wire::default();
    let known = cases.clone();
    let io = wire.clone();
    let mut background: Task = Box::pin(async move {
        let mut connection = h2::server::Builder::new()
            .max_concurrent_streams(10)
            .max_send_buffer_size(1 << 20)
            .handshake::<_, Bytes>(io)
            .await
            .unwrap();
        let answers: RefCell<Vec<Task>> = RefCell::default();
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(accepted)) = connection.poll_accept(cx) {
                let (request, respond) = accepted.unwrap();
                answers.borrow_mut().push(Box::pin(answer(request, respond, known.clone())));
            }
            answers.borrow_mut().retain_mut(|answer| answer.as_mut().poll(cx).is_pending());
            Poll::<()>::Pending
        })
        .await;
    });
    assert!(background.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drive(&wire, &mut ours, Vec::new(), &mut background, &mut Rng::with_seed(seed));
    assert_eq!(ours.seen.len(), cases.len());
    for seen in ours.seen.values() {
        let case = &cases[number(&seen.path)];
        assert!(seen.is_over && seen.status == case.status);
        assert_eq!(seen.informational, u32::from(case.is_early), "{}", seen.path);
        assert_eq!(sorted(seen.message.fields.clone()), sorted(case.response.fields.clone()));
        assert!(seen.message.body == case.response.body, "the body of {}", seen.path);
        assert_eq!(sorted(seen.message.trailers.clone()), sorted(case.response.trailers.clone()));
    }
}

#[test]
fn we_ask_and_h2_answers() {
    (1..=10).for_each(play);
}
