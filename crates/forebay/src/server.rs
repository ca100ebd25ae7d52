//! A running server.

use crate::error::ServerError;
use crate::parts::BuilderParts;
use forebay_server::run::guest::{GuestEnd, GuestServer};
use forebay_upstream::inside::HandlerPlaces;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The time that handlers have to return after their waits were ended.
const LAST_HANDLERS: Duration = Duration::from_secs(5);

/// A running server. Dropping it stops it like [`stop`](Server::stop).
pub struct Server {
    guest: GuestServer,
    parts: BuilderParts,
    places: Arc<HandlerPlaces>,
    warnings: Vec<String>,
    /// Whether the server was waited for already, whatever the result.
    has_ended: bool,
}

impl Server {
    pub(crate) fn new(
        guest: GuestServer,
        parts: BuilderParts,
        places: Arc<HandlerPlaces>,
        warnings: Vec<String>,
    ) -> Server {
        Server { guest, parts, places, warnings, has_ended: false }
    }

    /// The addresses of the listeners, with the ports that the kernel has chosen, as they were at the
    /// start: a reload that opens or closes some does not change them.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.guest.addresses()
    }

    /// The URLs of all addresses and Unix sockets that the start has opened, for a browser or curl.
    pub fn urls(&self) -> &[String] {
        self.guest.urls()
    }

    /// The remarks about the configuration: settings that are valid and probably not meant.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The number of open connections.
    pub fn open_connections(&self) -> usize {
        self.guest.open()
    }

    /// All metrics, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.guest.metrics()
    }

    /// The reason why a request was refused, or was answered by no handler or application, in a sentence
    /// like that of `forebay why`. `id` is [that of the request](crate::Request::id), which error pages
    /// and the access log have as well; the last ones are remembered.
    pub fn why(&self, id: &str) -> Option<String> {
        self.guest.why(id)
    }

    /// Reads the configuration again and puts it in force. Open connections stay, and so do the handlers.
    ///
    /// # Errors
    /// The faults; then nothing has changed.
    pub fn reload(&mut self) -> Result<(), ServerError> {
        self.take_over(self.parts.clone())
    }

    /// Puts another text in force; everything else that the builder has got stays.
    ///
    /// # Errors
    /// The faults; then nothing has changed.
    pub fn reload_with(&mut self, text: &str) -> Result<(), ServerError> {
        self.take_over(self.parts.with_text(text))
    }

    fn take_over(&mut self, parts: BuilderParts) -> Result<(), ServerError> {
        let (config, warnings) = parts.config(&self.places)?;
        self.guest.reload(config).map_err(ServerError::Reload)?;
        (self.parts, self.warnings) = (parts, warnings);
        Ok(())
    }

    /// Stops accepting, lets open connections finish within this time, cuts the others, and ends. Returns
    /// when that is done.
    ///
    /// # Errors
    /// The failure of the server, or handlers that still run.
    pub fn drain(mut self, within: Duration) -> Result<(), ServerError> {
        self.end(within)
    }

    /// Ends now: open connections are cut, and waits of handlers end with an error; handlers have 5 s to
    /// return.
    ///
    /// # Errors
    /// The failure of the server, or handlers that still run.
    pub fn stop(self) -> Result<(), ServerError> {
        self.drain(Duration::ZERO)
    }

    /// A handle by which another thread ends the server while this one [waits](Server::wait).
    pub fn stopper(&self) -> Stopper {
        Stopper(self.guest.end())
    }

    /// Waits until the server has ended: by a [`Stopper`], or by itself, which is a failure.
    ///
    /// # Errors
    /// The failure of the server, or handlers that still run.
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.has_ended = true;
        self.await_end()
    }

    fn end(&mut self, within: Duration) -> Result<(), ServerError> {
        self.has_ended = true;
        self.guest.drain(within);
        self.await_end()
    }

    fn await_end(&mut self) -> Result<(), ServerError> {
        let ended = self.guest.wait().map_err(ServerError::Guest);
        let all_ended = self.places.close(LAST_HANDLERS);
        ended?;
        match all_ended {
            true => Ok(()),
            false => Err(ServerError::HandlersRun {
                threads: self.places.threads(),
                others: self.places.fibers(),
            }),
        }
    }
}

/// A handle that ends a server while another thread waits for it, for example at a signal. It may be
/// cloned.
#[derive(Clone)]
pub struct Stopper(GuestEnd);

impl Stopper {
    /// Drains like [`Server::drain`], and returns at once: [`Server::wait`] returns when everything has
    /// ended. A call for a server that has ended already does nothing.
    pub fn drain(&self, within: Duration) {
        self.0.drain(within);
    }

    /// Stops like [`Server::stop`], and returns at once.
    pub fn stop(&self) {
        self.drain(Duration::ZERO);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.has_ended {
            // drop has no caller to report the result to
            let _ = self.end(Duration::ZERO);
        }
    }
}
