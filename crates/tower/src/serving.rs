//! One request: the service is asked, and its answer is sent as the client takes it.

use crate::body::RequestBody;
use crate::request::{self, BoxError};
use crate::upgrade::UpgradeOffer;
use bytes::Buf;
use forebay::{Request, Response};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName};
use http_body::Body;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Poll, ready};
use tower_service::Service;

/// Fields about the connection, which the server sets itself.
const OF_CONNECTION: [HeaderName; 7] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// A reason why an answer is incomplete.
enum ServeFailure {
    /// The client has left, or has got another answer: the service's answer is not needed.
    Left,
    /// The service has failed, or the body of its answer.
    Service(BoxError),
}

impl From<io::Error> for ServeFailure {
    fn from(error: io::Error) -> ServeFailure {
        match error.kind() {
            io::ErrorKind::ConnectionAborted | io::ErrorKind::TimedOut => ServeFailure::Left,
            _ => ServeFailure::Service(error.into()),
        }
    }
}

/// Has a service answer a request.
pub(crate) async fn serve<S, B>(service: S, request: Request, mut response: Response)
where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
    B::Error: Into<BoxError>,
{
    let is_head = request.method() == "HEAD";
    let head = match request::head(&request) {
        Ok(head) => head,
        Err(error) => return response.fail(error),
    };
    let answered = match request.upgrade() {
        Some(_) => return serve_upgrade(service, head, request, response).await,
        None => {
            let request = request::with_body(head, RequestBody::new(request));
            ask(service, request, &response).await
        }
    };
    let sent = match answered {
        Ok(answer) => send(answer, is_head, &mut response).await,
        Err(failure) => Err(failure),
    };
    end(sent, response);
}

/// Has a service answer a request that asks for another protocol, which the service may change to.
async fn serve_upgrade<S, B>(
    service: S,
    mut head: http::Request<()>,
    request: Request,
    mut response: Response,
) where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut offer = UpgradeOffer::make().await;
    if let Some(on_upgrade) = offer.on_upgrade() {
        head.extensions_mut().insert(on_upgrade);
    }
    let asked = request::with_body(head, RequestBody::empty());
    let sent = match ask(service, asked, &response).await {
        Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let (parts, _) = answer.into_parts();
            let protocol = parts.headers.get(header::UPGRADE).and_then(|name| name.to_str().ok());
            let protocol = protocol.unwrap_or_default().to_owned();
            match fields(&parts.headers, &mut response) {
                Ok(()) => return offer.accept(&protocol, request, response).await,
                Err(error) => Err(error.into()),
            }
        }
        Ok(answer) => send(answer, false, &mut response).await,
        Err(failure) => Err(failure),
    };
    end(sent, response);
}

fn end(sent: Result<(), ServeFailure>, response: Response) {
    match sent {
        // a body that is shorter than announced is broken, and the server says so
        Ok(()) => _ = response.complete(),
        Err(ServeFailure::Left) => drop(response),
        Err(ServeFailure::Service(error)) => response.fail(error),
    }
}

/// Asks a service; its future is dropped when its answer is no longer needed.
async fn ask<S, B>(
    mut service: S,
    request: http::Request<RequestBody>,
    response: &Response,
) -> Result<http::Response<B>, ServeFailure>
where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>>,
    S::Error: Into<BoxError>,
{
    let mut call = pin!(async move {
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    });
    poll_fn(|cx| {
        if response.poll_left(cx).is_ready() {
            return Poll::Ready(Err(ServeFailure::Left));
        }
        let answered = call.as_mut().poll(cx);
        answered.map_err(|error: S::Error| ServeFailure::Service(error.into()))
    })
    .await
}

/// Sends an answer.
async fn send<B>(
    answer: http::Response<B>,
    is_head: bool,
    response: &mut Response,
) -> Result<(), ServeFailure>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let (parts, body) = answer.into_parts();
    response.status(parts.status.as_u16())?;
    fields(&parts.headers, response)?;
    let said = parts.headers.get(header::CONTENT_LENGTH);
    let said = said.and_then(|length| length.to_str().ok()?.trim().parse().ok());
    let known =
        body.size_hint().exact().filter(|_| !is_head && parts.status != StatusCode::NOT_MODIFIED);
    if let Some(length) = said.or(known) {
        response.length(length)?;
    }
    send_body(body, response).await
}

/// Sets the fields of an answer.
fn fields(said: &HeaderMap, response: &mut Response) -> io::Result<()> {
    for (name, value) in said {
        if *name != header::CONTENT_LENGTH && !OF_CONNECTION.contains(name) {
            response.field(name.as_str(), value.as_bytes().trim_ascii())?;
        }
    }
    Ok(())
}

/// Sends a body as it comes: pieces that are there are sent before the next one is waited for.
async fn send_body<B>(body: B, response: &mut Response) -> Result<(), ServeFailure>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    loop {
        let frame = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending if response.poll_left(cx).is_ready() => {
                Poll::Ready(Err(ServeFailure::Left))
            }
            Poll::Pending => match response.poll_flush(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            },
        });
        let Some(frame) = frame.await? else { break };
        let frame = frame.map_err(|error| ServeFailure::Service(error.into()))?;
        match frame.into_data() {
            Ok(mut piece) => {
                while piece.has_remaining() {
                    poll_fn(|cx| {
                        let taken = ready!(response.poll_write(cx, piece.chunk()))?;
                        piece.advance(taken);
                        Poll::Ready(Ok::<_, ServeFailure>(()))
                    })
                    .await?;
                }
            }
            Err(frame) => {
                for (name, value) in frame.into_trailers().iter().flatten() {
                    response.trailer(name.as_str(), value.as_bytes().trim_ascii())?;
                }
            }
        }
    }
    if response.is_begun() {
        poll_fn(|cx| response.poll_flush(cx)).await?;
    }
    Ok(())
}
