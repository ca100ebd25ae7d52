//! A program that has the server inside, for experiments: handlers that write more than a socket
//! takes, that answer at once, and that wait.
//!
//! | path | answer |
//! |---|---|
//! | `/page?bytes=N` | as many bytes, which the handler writes; a write waits where the client has to take some first |
//! | `/echo` | 4 bytes |
//! | `/wait?ms=N` | 4 bytes, after this time |
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use forebay::{HandlerResult, Request, Response, Server};
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The body of a short answer.
const SHORT: &str = "echo";
/// The largest piece that one call writes.
const PIECE: &[u8] = &[b'x'; 16 * 1024];
/// Handlers at the same time; the others wait for one to end.
const MOST: usize = 20_000;

/// Has the server inside. The command line is that of `forebay run`.
#[derive(Parser)]
struct HandlerArgs {
    #[command(subcommand)]
    command: HandlerCommand,
}

#[derive(Subcommand)]
enum HandlerCommand {
    /// Serves handlers, as a configuration says
    Run {
        /// The configuration
        #[arg(short)]
        config: PathBuf,
    },
}

fn main() -> Result<(), Box<dyn Error>> {
    let HandlerCommand::Run { config } = HandlerArgs::parse().command;
    let server = Server::builder()
        .config_file(config)
        .most_fibers(MOST)
        .most_threads(MOST, MOST)
        .handler("=/page", page)
        .handler("=/echo", |_, response| Ok(response.text(SHORT)?))
        .handler("=/wait", wait)
        .start()?;
    Ok(server.wait()?)
}

/// Writes an answer that states its length, so that it begins before its end is written.
fn page(request: &mut Request, response: &mut Response) -> HandlerResult {
    let mut left: usize = number(request, "bytes")?;
    response.field("Content-Type", "text/html")?.length(left as u64)?;
    while left > 0 {
        let count = left.min(PIECE.len());
        response.write_all(&PIECE[..count])?;
        left -= count;
    }
    Ok(())
}

fn wait(request: &mut Request, response: &mut Response) -> HandlerResult {
    forebay::sleep(Duration::from_millis(number(request, "ms")?))?;
    Ok(response.text(SHORT)?)
}

fn number<N: std::str::FromStr>(request: &Request, name: &str) -> Result<N, Box<dyn Error>>
where
    N::Err: Error + 'static,
{
    Ok(request.parameter(name).unwrap_or_default().parse::<N>()?)
}
