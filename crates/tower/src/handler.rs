//! A handler that passes requests to a service.

use crate::body::RequestBody;
use crate::request::BoxError;
use crate::runtime::ServiceRuntime;
use crate::serving::serve;
use forebay::{DetachedHandler, Request, Response};
use http_body::Body;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::Handle;
use tower_service::Service;

/// A service as a handler, for [`ServerBuilder::detached`](forebay::ServerBuilder::detached). Each request has a clone of
/// the service and a task of its own.
///
/// As many requests may be with detached handlers at once as
/// [`most_fibers`](forebay::ServerBuilder::most_fibers) says; more get 503.
pub struct TowerHandler<S> {
    service: Mutex<S>,
    runtime: ServiceRuntime,
}

impl<S> fmt::Debug for TowerHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerHandler").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

impl<S> TowerHandler<S> {
    /// A handler with a runtime of its own, which has a thread for each core. The threads end with the
    /// server, which waits up to 5 s for tasks that hold a thread.
    ///
    /// # Errors
    /// The runtime cannot be made.
    pub fn new(service: S) -> io::Result<TowerHandler<S>> {
        Ok(TowerHandler { service: Mutex::new(service), runtime: ServiceRuntime::made()? })
    }

    /// A handler on the program's runtime, which must outlive the server: a request that comes later gets
    /// 500.
    pub fn on(runtime: Handle, service: S) -> TowerHandler<S> {
        TowerHandler { service: Mutex::new(service), runtime: ServiceRuntime::given(runtime) }
    }
}

impl<S, B> DetachedHandler for TowerHandler<S>
where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    fn take(&self, request: Request, response: Response) {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.runtime.spawn(serve(service, request, response));
    }
}
