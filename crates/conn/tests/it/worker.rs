//! What an engine has on one thread, and lends to a connection for a turn.

use forebay_conn::handler::HandlerRoles;
use forebay_conn::handler::body::NoBody;
use forebay_conn::*;
use forebay_http::path::NormalPath;
use forebay_metrics::{Local, Off};

/// Both ends of a connection.
pub(crate) fn here() -> Peer {
    Peer::new(([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 80).into())
}

pub(crate) struct Worker<B = NoBody> {
    pub(crate) peer: Peer,
    pub(crate) out: Out<B>,
    pub(crate) input: Input,
    path: NormalPath,
    head_buffer: http2::HeadBuffer,
    pub(crate) metrics: Local,
    watch: Off,
}

impl<B> Worker<B> {
    pub(crate) fn new() -> Worker<B> {
        Worker {
            peer: here(),
            out: Out::default(),
            input: Input::with_capacity(64 * 1024),
            path: NormalPath::default(),
            head_buffer: http2::HeadBuffer::default(),
            metrics: Local::default(),
            watch: Off,
        }
    }

    pub(crate) fn lend<'c, H: HandlerRoles<Body = B>>(
        &'c mut self,
        handler: &'c mut H,
        limits: &'c ConnectionLimits,
        budget: u32,
    ) -> (Context<'c, H, Off>, &'c mut Input) {
        let cx = Context {
            handler,
            out: &mut self.out,
            peer: &self.peer,
            path: &self.path,
            head_buffer: &mut self.head_buffer,
            limits,
            date: b"Sun, 06 Nov 1994 08:49:37 GMT",
            now_ms: 0,
            announce: Announce::default(),
            draining: false,
            budget,
            answers: Some(Rank::LAST),
            event: None,
            metrics: &self.metrics,
            watch: &mut self.watch,
        };
        (cx, &mut self.input)
    }
}
