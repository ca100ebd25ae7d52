//! A server that runs.

use crate::error::ServerError;
use crate::parts::BuilderParts;
use forebay_server::run::guest::{GuestEnd, GuestServer};
use forebay_upstream::inside::HandlerPlaces;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long handlers are waited for whose waits were ended.
const LAST_HANDLERS: Duration = Duration::from_secs(5);

/// A server that runs. Dropping it stops it as [`stop`](Server::stop) does.
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

    /// The addresses it listens at, with the ports that the kernel has chosen, as they were at the start: those that a
    /// reload has opened or closed do not change them.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.guest.addresses()
    }

    /// What a person can click on or give to curl, for each address and each Unix socket that the start has opened.
    pub fn urls(&self) -> &[String] {
        self.guest.urls()
    }

    /// What in the configuration is right, and yet hardly what is meant.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Connections that are open.
    pub fn open_connections(&self) -> usize {
        self.guest.open()
    }

    /// Everything that is counted, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.guest.metrics()
    }

    /// What was decided about a request that was refused, or that no handler or application has answered, in a sentence,
    /// as `forebay why` says it. `id` is [that of the request](crate::Request::id), which pages of errors and the access
    /// log have as well; the last ones are remembered.
    pub fn why(&self, id: &str) -> Option<String> {
        self.guest.why(id)
    }

    /// Reads the configuration once more and puts it in force. Open connections stay, and so do the handlers.
    ///
    /// # Errors
    /// What is wrong; then nothing has changed.
    pub fn reload(&mut self) -> Result<(), ServerError> {
        self.take_over(self.parts.clone())
    }

    /// Puts another text in force; all else that the builder was given stays.
    ///
    /// # Errors
    /// What is wrong; then nothing has changed.
    pub fn reload_with(&mut self, text: &str) -> Result<(), ServerError> {
        self.take_over(self.parts.with_text(text))
    }

    fn take_over(&mut self, parts: BuilderParts) -> Result<(), ServerError> {
        let (config, warnings) = parts.config(&self.places)?;
        self.guest.reload(config).map_err(ServerError::Reload)?;
        (self.parts, self.warnings) = (parts, warnings);
        Ok(())
    }

    /// Accepts nothing more, lets what is open come to its end within this time, cuts the rest, and ends. Waits for all
    /// of that.
    ///
    /// # Errors
    /// How it failed; handlers that go on.
    pub fn drain(mut self, within: Duration) -> Result<(), ServerError> {
        self.end(within)
    }

    /// Ends now: what is open is cut, waits of handlers end with an error, and these have 5 s to return.
    ///
    /// # Errors
    /// How it failed; handlers that go on.
    pub fn stop(self) -> Result<(), ServerError> {
        self.drain(Duration::ZERO)
    }

    /// What ends the server from another thread while this one [waits](Server::wait).
    pub fn stopper(&self) -> Stopper {
        Stopper(self.guest.end())
    }

    /// Waits until the server has ended: by a [`Stopper`], or by itself, which is a failure.
    ///
    /// # Errors
    /// How it failed; handlers that go on.
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

/// Ends a server that another thread waits for, such as at a signal. May be copied.
#[derive(Clone)]
pub struct Stopper(GuestEnd);

impl Stopper {
    /// As [`Server::drain`], and returns at once: [`Server::wait`] returns when all has ended. Calls for a server that
    /// has ended already do nothing.
    pub fn drain(&self, within: Duration) {
        self.0.drain(within);
    }

    /// As [`Server::stop`], and returns at once.
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
