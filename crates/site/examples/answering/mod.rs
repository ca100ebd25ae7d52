//! Requests that are read and answered without a connection, for examples that time it.

use forebay_conn::{Job, Out, Peer, ProcessOutcome, Reply, Request};
use forebay_http::head::{Head, HeadLimits, Lines, ParsedHead};
use forebay_http::path::NormalPath;
use forebay_metrics::{Local, Off};
use forebay_site::{Body, Site};
use std::hint::black_box;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// Reads the head of each request and has it answered; the bytes of all answers.
pub(crate) fn ask<'t>(
    requests: impl IntoIterator<Item = &'t String>,
    mut answer: impl FnMut(&Head<'_>, &mut Out<Body>),
) -> Result<usize, Failure> {
    let limits = HeadLimits::default();
    let mut out: Out<Body> = Out::default();
    let mut bytes = 0;
    for text in requests {
        let mut lines = Lines::new();
        match Head::parse(black_box(text.as_bytes()), &mut lines, &limits) {
            Ok(ParsedHead::Complete(head)) => answer(&head, &mut out),
            _ => return Err("a request was not understood".into()),
        }
        bytes += black_box(&out.bytes).len();
        out.clear();
    }
    Ok(bytes)
}

/// Not inlined, so that callgrind can count what happens in it (`--toggle-collect=hit::answering::process`, or
/// `miss::…`), where it knows openat2(2): valgrind 3.19 does not.
#[inline(never)]
pub(crate) fn process(site: &mut Site, head: &Head<'_>, out: &mut Out<Body>) {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
    let peer = Peer::new(address, address);
    let path = NormalPath::default();
    let mut done = None;
    loop {
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        let mut reply = Reply::new(out, date, true);
        let request = Request::new(head, &peer, &path);
        match site.process(&request, || peer.address().ip(), done.take(), &mut reply) {
            ProcessOutcome::Job(job) => done = Some(job.run(&Local::default(), &mut Off)),
            _ => return,
        }
    }
}
