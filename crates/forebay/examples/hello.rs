//! A server with two handlers, one of which waits: `cargo run --example hello -p forebay`.

use forebay::{Server, ServerBuilder};
use std::time::Duration;

/// A server with two handlers.
pub(crate) fn hello() -> ServerBuilder {
    Server::builder()
        .handler("/hello", |request, response| {
            let name = request.parameter("name").unwrap_or_else(|| "world".to_owned());
            Ok(response.text(format!("Hello, {name}!\n"))?)
        })
        .handler("/later", |_, response| {
            // other requests are served meanwhile
            forebay::sleep(Duration::from_secs(1))?;
            Ok(response.text("a second later\n")?)
        })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = hello().listen("127.0.0.1:8080").start()?;
    println!("{}", server.urls()[0]);
    Ok(server.wait()?)
}
