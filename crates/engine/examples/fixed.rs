//! The smallest server: one engine, one handler, one answer. `cargo run --release --example fixed`
//! serves it on http://127.0.0.1:8081 until it is killed; with `fibers` behind it, by that engine.

use forebay_conn::handler::body::NoLine;
use forebay_conn::{
    Admission, Bodies, Handler, HandlerTypes, Hooks, Http1, Journal, NoBody, NoJob, NoRelay,
    PlainTransport, Process, ProcessOutcome, Reply, Request,
};
use forebay_engine::accept::Listener;
use forebay_engine::admission;
use forebay_engine::control::EngineControl;
use forebay_engine::event::{self, EventLoop};
use forebay_engine::fibers::FiberLoop;
use forebay_engine::helpers::{HelperThreads, Helpers};
use forebay_engine::ranks::Ranks;
use forebay_metrics::Local;
use forebay_sys::socket::{ListenOptions, listen};
use std::sync::Arc;

struct Fixed(Vec<u8>, Vec<u8>);

impl HandlerTypes for Fixed {
    type Body = NoBody;
    type Job = NoJob;
    type Relay = NoRelay;
    type Line = NoLine;
    type Ticket = ();
    type Record = ();
}

impl Process for Fixed {
    fn process(
        &mut self,
        _: &Request<'_>,
        (): &mut (),
        _: Option<NoJob>,
        reply: &mut Reply<'_, NoBody>,
    ) -> ProcessOutcome<NoJob> {
        reply.head(200, &self.0);
        reply.copy(&self.1);
        ProcessOutcome::Replied
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, NoBody>) {
        let head = format!("HTTP/1.1 {status} Refused\r\nContent-Length: {}\r\n", reason.len());
        reply.head(status, head.as_bytes());
        reply.copy(reason.as_bytes());
    }
}

// all clients are admitted, nothing is logged, and no body is left behind
impl Admission for Fixed {}
impl Bodies for Fixed {}
impl Journal for Fixed {}
impl Hooks for Fixed {}

impl Handler for Fixed {
    type Protocol = Http1<Fixed>;
    type Transport = PlainTransport;
}

fn main() -> std::io::Result<()> {
    let address = ([127, 0, 0, 1], 8081).into();
    let body = vec![b'x'; 1024];
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: Forebay\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {}\r\nAccept-Ranges: bytes\r\n",
        body.len()
    );
    let socket = listen(address, ListenOptions { backlog: 1024, reuse_port: false, owner: None })?;
    println!("http://{address}");
    let parts = event::LoopParts {
        listeners: vec![Listener::new(socket, address)],
        handler: Fixed(head.into_bytes(), body),
        settings: Arc::default(),
        admission: admission::ConnectionAdmission::new(10_000, 10_000),
        helpers: Helpers::new(
            Arc::new([]),
            HelperThreads { blocking: 0, computing: 0 },
            &Ranks::default(),
            0,
        )?,
        ranks: Ranks::default(),
        control: Arc::new(EngineControl::new(1)?),
        index: 0,
        metrics: Arc::new(Local::default()),
    };
    match std::env::args().nth(1).as_deref() {
        Some("fibers") => FiberLoop::new(parts)?.run()?,
        _ => EventLoop::new(parts)?.run()?,
    };
    Ok(())
}
