//! The body of a request, as a service reads it.

use bytes::Bytes;
use forebay::Request;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The most bytes of a piece.
const PIECE_BYTES: usize = 16 * 1024;

/// The body of a request. It is read from the client as the service reads it.
#[derive(Debug)]
pub struct RequestBody {
    /// The request, until the end of its body.
    request: Option<Request>,
    /// Bytes that are still to come, if the length is known.
    left_bytes: Option<u64>,
}

impl RequestBody {
    /// The body of a request whose head was taken.
    pub(crate) fn new(request: Request) -> RequestBody {
        let length = request.field("Content-Length").and_then(|length| length.trim().parse().ok());
        match request.is_at_end() {
            true => RequestBody::empty(),
            false => RequestBody { request: Some(request), left_bytes: length },
        }
    }

    /// A body for a request that has none.
    pub(crate) fn empty() -> RequestBody {
        RequestBody { request: None, left_bytes: Some(0) }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(request) = &mut self.request else { return Poll::Ready(None) };
        let mut piece = [0; PIECE_BYTES];
        match ready!(request.poll_read(cx, &mut piece)) {
            Ok(0) => {
                let trailers = trailers(request);
                self.request = None;
                self.left_bytes = Some(0);
                Poll::Ready((!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))))
            }
            Ok(count) => {
                if let Some(left) = &mut self.left_bytes {
                    *left = left.saturating_sub(count as u64);
                }
                Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&piece[..count])))))
            }
            Err(error) => {
                self.request = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.request.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left_bytes.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The trailers behind the body.
fn trailers(request: &Request) -> HeaderMap {
    let fields = request.trailers();
    let parsed = fields.iter().filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value).ok()?))
    });
    let mut all = HeaderMap::new();
    parsed.for_each(|(name, value)| _ = all.append(name, value));
    all
}
