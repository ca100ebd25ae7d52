//! The smallest server: one engine, one handler, one answer. `cargo run --release --example fixed`
//! serves it on http://127.0.0.1:8081 until it is killed; with `fibers` behind it, by that engine.

use forebay_conn::{
    Admitted, Handler, Job, Outcome, Peer, Piece, Rank, Reply, Request, Stages, Verdict,
};
use forebay_engine::accept::Listener;
use forebay_engine::admission::Admission;
use forebay_engine::control::Control;
use forebay_engine::event::{EventLoop, Parts};
use forebay_engine::fibers::FiberLoop;
use forebay_engine::helpers::{Helpers, Threads};
use forebay_engine::ranks::Ranks;
use forebay_metrics::{Local, Stopwatch};
use forebay_sys::socket::{ListenOptions, listen};
use std::os::fd::OwnedFd;
use std::sync::Arc;

struct Fixed(Vec<u8>, Vec<u8>);

/// There is nothing that would block.
enum Never {}

impl Job for Never {
    type Done = ();

    fn run(self, _: &Local, _: &mut dyn Stopwatch) {
        match self {}
    }

    fn lane(&self) -> u64 {
        match *self {}
    }
}

impl Handler for Fixed {
    type Body = Never;
    type Job = Never;
    type Line = ();
    type Ticket = ();

    #[inline]
    fn verdict(&mut self, _: &Request<'_>) -> Verdict<()> {
        Verdict::Admit(Admitted::at_once(Rank::FIRST, ()))
    }

    fn process(
        &mut self,
        _: &Request<'_>,
        (): &mut (),
        _: Option<()>,
        reply: &mut Reply<'_, Never>,
    ) -> Outcome<Never> {
        reply.head(200, &self.0);
        reply.copy(&self.1);
        Outcome::Replied
    }

    fn refuse(&mut self, status: u16, reason: &'static str, reply: &mut Reply<'_, Never>) {
        let head = format!("HTTP/1.1 {status} Refused\r\nContent-Length: {}\r\n", reason.len());
        reply.head(status, head.as_bytes());
        reply.copy(reason.as_bytes());
    }

    fn piece<'b>(&'b self, body: &'b Never) -> Option<Piece<'b>> {
        match *body {}
    }

    fn advance(&self, body: &mut Never, _: u64) {
        match *body {}
    }

    fn is_intact(&self, body: &Never) -> bool {
        match *body {}
    }

    fn hold(&mut self, body: &mut Never) {
        match *body {}
    }

    fn warm_bytes(&self, body: &Never) -> u64 {
        match *body {}
    }

    fn warm(&mut self, body: &Never) -> Never {
        match *body {}
    }

    fn line(
        &mut self,
        _: &Peer,
        _: Option<&Request<'_>>,
        _: Option<&Self::Ticket>,
        _: u16,
        _: Stages,
    ) -> Option<()> {
        None
    }

    fn log(&mut self, (): (), _: u64) {}

    fn hand_over(&mut self, _: OwnedFd, _: Vec<u8>, _: &Peer) {}
}

fn main() -> std::io::Result<()> {
    let address = ([127, 0, 0, 1], 8081).into();
    let body = vec![b'x'; 1024];
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: Forebay\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {}\r\nAccept-Ranges: bytes\r\n",
        body.len()
    );
    let socket = listen(address, ListenOptions { backlog: 1024, reuse_port: false })?;
    println!("http://{address}");
    let parts = Parts {
        listeners: vec![Listener::new(socket, address)],
        handler: Fixed(head.into_bytes(), body),
        settings: Arc::default(),
        admission: Admission::new(10_000, 10_000),
        helpers: Helpers::new(
            Arc::new([]),
            Threads { blocking: 0, computing: 0 },
            &Ranks::default(),
            0,
        ),
        ranks: Ranks::default(),
        control: Arc::new(Control::new(1)?),
        index: 0,
        metrics: Arc::new(Local::default()),
    };
    match std::env::args().nth(1).as_deref() {
        Some("fibers") => FiberLoop::new(parts)?.run()?,
        _ => EventLoop::new(parts)?.run()?,
    };
    Ok(())
}
