//! `/wait?ms=N` is answered after that time: axum, with as many threads as there are cores for them.
#![forbid(unsafe_code)]

use axum::{Router, extract::RawQuery, routing::get};
use std::time::Duration;

async fn wait(RawQuery(query): RawQuery) -> &'static str {
    let query = query.unwrap_or_default();
    let ms = query.strip_prefix("ms=").and_then(|ms| ms.parse().ok()).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    "echo"
}

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
        axum::serve(listener, Router::new().route("/wait", get(wait))).await
    })
}
