//! A program with the server inside, which suites start in the place of `forebay`
//! (`FOREBAY_ORIGIN=handler`): a handler answers every request that would be answered with a file.
//!
//! The handler passes the request on to a second server of the same process, which serves the files, and
//! passes its answer back. So the suite's expectations of the answer hold, and everything between the
//! client and the handler is the code that serves handlers: the pipe, its wake-ups, the fibers or
//! threads, and the head that is made of the answer.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments` | the command line of `forebay`, as far as suites use it, and the two configurations |
//! | `passing` | the handler |
//!
//! SIGTERM and SIGINT drain, SIGHUP reads the configuration again. There is no control socket.
#![forbid(unsafe_code)]

mod arguments;
mod passing;

use arguments::Arguments;
use forebay::{HandlerOptions, Server};
use passing::FilesBehind;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let text = arguments.text()?;
    // at a port of loopback that the kernel chooses
    let behind = Server::builder().config(arguments::of_files(&text)).start()?;
    let options = HandlerOptions {
        answer_within: Some(Duration::from_secs(60)),
        // as large as the body of a request for a file may be
        body_bytes: 16 * 1024 * 1024,
        keeps_half_closed: true,
        ..HandlerOptions::default()
    };
    let mut front = Server::builder()
        .config(text)
        .handler_with("/", options, FilesBehind(behind.addresses()[0]))
        .start()?;
    eprintln!("forebay-origin: serving {}", front.urls().join(", "));
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        let reloaded = arguments.text().map_err(Box::<dyn Error>::from);
        match reloaded.and_then(|text| Ok(front.reload_with(&text)?)) {
            Ok(()) => eprintln!("forebay-origin: reloaded"),
            Err(error) => eprintln!("forebay-origin: {error}; nothing has changed"),
        }
    }
    let drained = front.drain(Duration::from_secs(10));
    drop(behind);
    Ok(drained?)
}
