//! An `axum` application beside the files of a directory: `cargo run --example beside_sites -p forebay-tower`.
//!
//! The rules are Forebay's: at most two requests for `/api/slow` at once.

use axum::extract::{Query, State};
use axum::routing::{get, post};
use axum::{Extension, Router};
use forebay::{HandlerOptions, Server, ServerBuilder};
use forebay_tower::{AskedRequest, TowerHandler};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const RULES: &str = "[[rule]]\nname = \"slow\"\npath = \"/api/slow\"\nin_flight.most = 2\n";

/// The application's counter of visits.
type Visits = Arc<AtomicUsize>;

async fn hello(
    State(visits): State<Visits>,
    Query(query): Query<HashMap<String, String>>,
    Extension(asked): Extension<AskedRequest>,
) -> String {
    let visit = visits.fetch_add(1, Ordering::Relaxed) + 1;
    let name = query.get("name").map_or("world", |name| name);
    format!("Hello, {name} at {}! You are visitor {visit}.\n", asked.client.ip())
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_secs(1)).await;
    "a second later\n"
}

/// The application.
fn application() -> Router {
    Router::new()
        .route("/api/hello", get(hello))
        .route("/api/slow", get(slow))
        .route("/api/length", post(|body: String| async move { body.len().to_string() }))
        .with_state(Visits::default())
}

/// The server, with these files beside the application.
pub fn server(files: &str) -> std::io::Result<ServerBuilder> {
    let handler = TowerHandler::new(application())?;
    let builder = Server::builder().config(RULES).root(files);
    Ok(builder.detached("/api", HandlerOptions::default(), handler))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = server(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))?.start()?;
    println!("{}/api/hello?name=you", server.urls()[0]);
    server.wait()?;
    Ok(())
}
