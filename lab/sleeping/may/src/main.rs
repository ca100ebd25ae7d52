//! `/wait?ms=N` is answered after that time: may_minihttp, a fiber for each connection, with as many threads as there
//! are cores for them.
#![forbid(unsafe_code)]

use may_minihttp::{HttpServer, HttpService, Request, Response};
use std::io;
use std::time::Duration;

#[derive(Clone)]
struct Sleeper;

impl HttpService for Sleeper {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        let ms = request.path().strip_prefix("/wait?ms=").and_then(|ms| ms.parse().ok());
        may::coroutine::sleep(Duration::from_millis(ms.unwrap_or(0)));
        response.body("echo");
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    may::config().set_workers(cores);
    let port = std::env::args().nth(1).unwrap_or_default();
    let server = HttpServer(Sleeper).start(format!("127.0.0.1:{port}"))?;
    server.join().map_err(|_| io::Error::other("the server has panicked"))
}
