//! Another protocol on the connection, in the form that services know: `hyper`'s `OnUpgrade` among the
//! extensions of the request.
//!
//! Only a connection of hyper makes an `OnUpgrade`. So hyper gets a request in memory that asks for an
//! upgrade. When the service answers 101, hyper answers 101 as well, and the head of that answer is
//! dropped. The bytes that hyper reads and writes from then on are those of the client.

use forebay::{Request, Response};
use http::{HeaderValue, StatusCode, header};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper::service::Service;
use hyper::upgrade::OnUpgrade;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::oneshot;

/// The request that hyper gets.
const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: upgrade\r\nUpgrade: any\r\n\r\n";

/// The most bytes that are read from the client at once.
const PIECE_BYTES: usize = 16 * 1024;

type SharedClient = Arc<Mutex<Option<SwitchedClient>>>;

/// An upgrade that a service may take.
pub(crate) struct UpgradeOffer {
    connection: Pin<Box<UpgradeableConnection<MemoryConnection, OneAnswer>>>,
    on_upgrade: Option<OnUpgrade>,
    client: SharedClient,
    accept: oneshot::Sender<()>,
}

impl UpgradeOffer {
    /// Has hyper make an upgrade.
    pub(crate) async fn make() -> UpgradeOffer {
        let (accept, accepted) = oneshot::channel();
        let client = SharedClient::default();
        let made = Arc::<Mutex<Option<OnUpgrade>>>::default();
        let service = OneAnswer { made: Arc::clone(&made), accepted: Mutex::new(Some(accepted)) };
        let memory = MemoryConnection { read: 0, answered: 0, client: Arc::clone(&client) };
        let connection = Builder::new().serve_connection(memory, service).with_upgrades();
        let mut connection = Box::pin(connection);
        // the request in memory is complete, so one poll brings hyper to its answer
        poll_fn(|cx| {
            let _ = connection.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
        let on_upgrade = lock(&made).take();
        UpgradeOffer { connection, on_upgrade, client, accept }
    }

    /// The upgrade for the service.
    pub(crate) fn on_upgrade(&mut self) -> Option<OnUpgrade> {
        self.on_upgrade.take()
    }

    /// Answers 101 for the service, and connects hyper with the client.
    pub(crate) async fn accept(self, protocol: &str, mut request: Request, mut response: Response) {
        if let Err(error) = response.switch(&mut request, protocol) {
            return response.fail(error);
        }
        *lock(&self.client) = Some(SwitchedClient { request, response });
        if self.accept.send(()).is_ok() {
            // the connection ends when the code that waits for the upgrade has it
            let _ = self.connection.await;
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers hyper's request once the client's was answered.
struct OneAnswer {
    made: Arc<Mutex<Option<OnUpgrade>>>,
    accepted: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Service<http::Request<Incoming>> for OneAnswer {
    type Response = http::Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<String>, Infallible>> + Send>>;

    fn call(&self, mut request: http::Request<Incoming>) -> Self::Future {
        *lock(&self.made) = request.extensions_mut().remove();
        let accepted = lock(&self.accepted).take();
        Box::pin(async move {
            if let Some(accepted) = accepted {
                let _ = accepted.await;
            }
            let mut answer = http::Response::new(String::new());
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("any"));
            Ok(answer)
        })
    }
}

/// A client to which another protocol is spoken.
struct SwitchedClient {
    request: Request,
    response: Response,
}

impl SwitchedClient {
    /// Completes the client's response: nothing more is written.
    fn end(mut self) {
        // what the client has not taken cannot be waited for here
        let mut cx = Context::from_waker(Waker::noop());
        if self.response.poll_flush(&mut cx).is_ready() {
            let _ = self.response.complete();
        }
    }
}

/// The connection as hyper sees it.
struct MemoryConnection {
    /// The number of bytes of [`HEAD`] that hyper has read.
    read: usize,
    /// The number of bytes of the last line ends of hyper's head: at four the head is over.
    answered: usize,
    /// The client, from the change of protocol on.
    client: SharedClient,
}

impl Read for MemoryConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read < HEAD.len() {
            let left = &HEAD[self.read..];
            let count = left.len().min(out.remaining());
            out.put_slice(&left[..count]);
            self.read += count;
            return Poll::Ready(Ok(()));
        }
        match &mut *lock(&self.client) {
            Some(client) if self.answered == 4 => {
                let mut piece = [0; PIECE_BYTES];
                let most = out.remaining().min(PIECE_BYTES);
                let read = client.request.poll_read(cx, &mut piece[..most]);
                read.map_ok(|count| out.put_slice(&piece[..count]))
            }
            // before the change hyper reads to see whether its client leaves: it must not see an end
            _ => Poll::Pending,
        }
    }
}

impl Write for MemoryConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.answered < 4 {
            return Poll::Ready(Ok(self.drop_head(bytes)));
        }
        match &mut *lock(&self.client) {
            Some(client) => client.response.poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *lock(&self.client) {
            Some(client) if self.answered == 4 => client.response.poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // the client learns of the end when the stream is dropped: until then it may send
        self.poll_flush(cx)
    }
}

impl MemoryConnection {
    /// Skips hyper's head. Returns how many of these bytes belong to it.
    fn drop_head(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            let wanted = b"\r\n\r\n"[self.answered];
            self.answered = match *byte == wanted {
                true => self.answered + 1,
                false => usize::from(*byte == b'\r'),
            };
            if self.answered == 4 {
                return at + 1;
            }
        }
        bytes.len()
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        if let Some(client) = lock(&self.client).take() {
            client.end();
        }
    }
}
