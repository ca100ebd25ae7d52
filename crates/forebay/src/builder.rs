//! The builder of a server.

use crate::error::ServerError;
use crate::parts::{BuilderParts, ConfigText, HandlerOptions};
use crate::server::Server;
use forebay_server::run::guest;
use forebay_upstream::inside::{
    DetachedCode, HandlerCode, HandlerPlaces, HandlerResult, InsideRequest, InsideResponse,
    RequestCode,
};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The default number of handlers on fibers at the same time.
const MOST_FIBERS: usize = 10_000;

/// The default numbers of handlers on threads at the same time, and of requests that wait for a thread.
const MOST_THREADS: usize = 64;
const MOST_WAITING: usize = 1_000;

/// A server before it starts.
///
/// No setting is checked before [`start`](ServerBuilder::start), which reports everything that is wrong.
pub struct ServerBuilder {
    parts: BuilderParts,
    sockets: Vec<OwnedFd>,
    fibers: usize,
    threads: usize,
    waiting: usize,
}

impl Default for ServerBuilder {
    fn default() -> ServerBuilder {
        ServerBuilder::new()
    }
}

impl ServerBuilder {
    /// A server without sites and handlers, which listens on a port of this machine that the kernel chooses.
    pub fn new() -> ServerBuilder {
        let parts = BuilderParts::default();
        let (fibers, threads, waiting) = (MOST_FIBERS, MOST_THREADS, MOST_WAITING);
        ServerBuilder { parts, sockets: Vec::new(), fibers, threads, waiting }
    }

    /// Takes a configuration from this text, written as a file is. Relative paths begin at the working directory.
    #[must_use]
    pub fn config(mut self, text: impl Into<String>) -> ServerBuilder {
        self.parts.text = ConfigText::Given(text.into());
        self
    }

    /// Takes a configuration from this file, which is read at the start and at each
    /// [reload](crate::Server::reload).
    #[must_use]
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> ServerBuilder {
        self.parts.text = ConfigText::File(path.into());
        self
    }

    /// Serves the files of this directory (`root`).
    #[must_use]
    pub fn root(self, directory: impl AsRef<Path>) -> ServerBuilder {
        let directory = directory.as_ref().display().to_string();
        self.set("root", directory)
    }

    /// Listens at this address, as `listen` of the configuration has it: `"127.0.0.1:8080"`, `"unix:/run/app.sock"`.
    /// May be called several times. A port of 0 lets the kernel choose; [`Server::addresses`](crate::Server::addresses)
    /// has it then.
    #[must_use]
    pub fn listen(self, address: impl Into<String>) -> ServerBuilder {
        self.set("listen", address.into())
    }

    /// Accepts from this socket, which is bound already.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn listener(mut self, socket: TcpListener) -> std::io::Result<ServerBuilder> {
        socket.set_nonblocking(true)?;
        self.parts.given.push(socket.local_addr()?.to_string());
        self.sockets.push(socket.into());
        Ok(self)
    }

    /// Accepts from this socket, which is bound to a path.
    ///
    /// # Errors
    /// The error of the kernel; `InvalidInput` if the socket has no path.
    pub fn unix_listener(mut self, socket: UnixListener) -> std::io::Result<ServerBuilder> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let path = address.as_pathname().ok_or(std::io::ErrorKind::InvalidInput)?;
        self.parts.given.push(format!("unix:{}", path.display()));
        self.sockets.push(socket.into());
        Ok(self)
    }

    /// Sets the engine: `"fibers"`, `"event"`, `"threads"`, `"pool"` or `"pipeline"`. Without this call,
    /// and if the configuration names none, it is `"fibers"`.
    #[must_use]
    pub fn engine(self, word: impl Into<String>) -> ServerBuilder {
        self.set("engine", word.into())
    }

    /// Sets any other setting of the top level by its key, with its value as `forebay serve --set` takes it.
    #[must_use]
    pub fn set(mut self, key: &'static str, value: impl Into<String>) -> ServerBuilder {
        self.parts.settings.push((key, value.into()));
        self
    }

    /// Has this handler answer a path and everything beneath it, or a pattern with stars, on all sites;
    /// `=/path` is that path alone. The most specific route counts, as in a file.
    #[must_use]
    pub fn handler<F>(self, path: impl Into<String>, handler: F) -> ServerBuilder
    where
        F: Fn(&mut InsideRequest, &mut InsideResponse) -> HandlerResult + Send + Sync + 'static,
    {
        self.handler_with(path, HandlerOptions::default(), handler)
    }

    /// Has this handler answer a path, with bounds of its own; the handler may be of a type that is no
    /// closure.
    #[must_use]
    pub fn handler_with(
        mut self,
        path: impl Into<String>,
        options: HandlerOptions,
        handler: impl RequestCode,
    ) -> ServerBuilder {
        self.parts.handlers.push((path.into(), options, HandlerCode::Waits(Arc::new(handler))));
        self
    }

    /// Gives the requests of a path to this code, which must not wait. Tasks or threads of the program
    /// answer them later: no fiber and no thread of the server is used. With the crate `forebay-tower`,
    /// services of `tower`, such as those of `axum`, answer like this.
    ///
    /// ```
    /// use std::sync::{Mutex, mpsc};
    ///
    /// let (sender, requests) = mpsc::channel();
    /// let sender = Mutex::new(sender);
    /// let server = forebay::Server::builder()
    ///     .detached("/queue", forebay::HandlerOptions::default(), move |request, response| {
    ///         // if nothing receives it, its response is dropped: 500
    ///         if let Ok(sender) = sender.lock() {
    ///             let _ = sender.send((request, response));
    ///         }
    ///     })
    ///     .start()?;
    /// std::thread::spawn(move || {
    ///     for (_, mut response) in requests {
    ///         // one whose client has left cannot be answered
    ///         let _ = response.text("by a thread\n").and_then(|()| response.complete());
    ///     }
    /// });
    /// # use std::io::{Read, Write};
    /// # let mut client = std::net::TcpStream::connect(server.addresses()[0])?;
    /// # client.write_all(b"GET /queue HTTP/1.0\r\n\r\n")?;
    /// # let mut answer = String::new();
    /// # client.read_to_string(&mut answer)?;
    /// # assert!(answer.ends_with("by a thread\n"), "{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn detached(
        mut self,
        path: impl Into<String>,
        options: HandlerOptions,
        code: impl DetachedCode,
    ) -> ServerBuilder {
        self.parts.handlers.push((path.into(), options, HandlerCode::Detached(Arc::new(code))));
        self
    }

    /// Sets how many handlers run at the same time with the engine `fibers`, over all loops, detached
    /// ones of all engines among them; more requests get 503. Default: 10,000. A handler that waits uses
    /// the pages of its stack that it has touched: 8 KiB or more, and at most 128 KiB.
    #[must_use]
    pub fn most_fibers(mut self, count: usize) -> ServerBuilder {
        self.fibers = count;
        self
    }

    /// Sets how many threads run handlers with the other engines, and how many requests may wait for one; more get
    /// 503. Default: 64 and 1,000. If the process has room for fewer threads, that is the number, and a
    /// [warning](crate::Server::warnings) says so: a quarter of the memory mappings, addresses and threads that the
    /// system still grants is left to the rest of the program. Where a thread cannot be begun later, its request
    /// waits for one of the others, and gets 503 if there is none or too many wait.
    #[must_use]
    pub fn most_threads(mut self, count: usize, waiting: usize) -> ServerBuilder {
        (self.threads, self.waiting) = (count, waiting);
        self
    }

    /// Starts the server: when this returns, clients are served.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration, or the obstacle.
    pub fn start(self) -> Result<Server, ServerError> {
        let places = Arc::new(HandlerPlaces::new(self.fibers, self.threads, self.waiting));
        let (config, warnings) = self.parts.config(&places)?;
        let guest = guest::start(config, self.sockets).map_err(ServerError::Guest)?;
        Ok(Server::new(guest, self.parts, places, warnings))
    }
}

impl Server {
    /// The parts of the server: text, settings and handlers.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }
}
