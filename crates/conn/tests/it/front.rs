//! A handler that has requests answered by another server, without that server: what an exchange gives is in
//! the test.

#![allow(clippy::unwrap_used, reason = "a failed check panics")]

use forebay_conn::handler::relay::{ClientReturn, LentRequest, RelayNext, RelayRead};
use forebay_conn::*;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a test and an exchange share.
#[derive(Default)]
pub(crate) struct Wire {
    /// How many bytes the exchange takes, and what it has taken.
    pub(crate) capacity: usize,
    pub(crate) got: String,
    pub(crate) is_finished: bool,
    /// The interim answers that it gives one after another.
    pub(crate) interim: VecDeque<u16>,
    /// The answer: a status, and the length of its body if that is known; no status for a failure.
    pub(crate) answer: Option<(Option<u16>, Option<u64>)>,
    pub(crate) is_told: bool,
    /// The answer's body, and how that ends.
    pub(crate) body: String,
    pub(crate) end: Option<RelayRead>,
    /// How often the exchange has expired.
    pub(crate) expired: u32,
    /// Whether its client can send nothing for it, because of other requests.
    pub(crate) is_held_back: bool,
    /// Whether there is no connection yet.
    pub(crate) is_connecting: bool,
    pub(crate) is_begun: bool,
    pub(crate) is_dropped: bool,
    pub(crate) is_released: bool,
    /// Whether the exchange wants its client's socket, whether it has it, and what it got with it.
    pub(crate) wants_client: bool,
    pub(crate) has_client: bool,
    pub(crate) lent: Option<Lent>,
    /// The result of the loan.
    pub(crate) elsewhere: Option<ClientReturn>,
}

/// What an exchange got with a client's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) body_left: Option<u64>,
    pub(crate) is_last: bool,
}

#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Wire>>);

impl Shared {
    pub(crate) fn new(capacity: usize) -> Shared {
        Shared(Arc::new(Mutex::new(Wire { capacity, ..Wire::default() })))
    }

    pub(crate) fn wire(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap()
    }

    pub(crate) fn got(&self) -> String {
        self.wire().got.clone()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.wire().is_finished
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.wire().is_dropped
    }

    pub(crate) fn is_released(&self) -> bool {
        self.wire().is_released
    }

    /// Completes the answer.
    pub(crate) fn answers(&self, status: u16, length: Option<u64>, body: &str) {
        let mut wire = self.wire();
        (wire.answer, wire.end) = (Some((Some(status), length)), Some(RelayRead::End));
        wire.body = body.to_owned();
    }
}

pub(crate) struct Exchange(Shared);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.wire().is_dropped = true;
    }
}

impl Relay for Exchange {
    fn takes_body(&self) -> bool {
        true
    }

    fn cut(&mut self) {}

    fn aborts_on_close(&self) -> bool {
        false
    }

    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        None
    }

    fn ready(&mut self) {}

    fn capacity(&self) -> usize {
        self.0.wire().capacity
    }

    fn give(&mut self, bytes: &[u8]) {
        let mut wire = self.0.wire();
        assert!(bytes.len() <= wire.capacity, "more than there is room for");
        wire.capacity -= bytes.len();
        wire.got.push_str(std::str::from_utf8(bytes).unwrap());
    }

    fn wants_client(&self) -> bool {
        self.0.wire().wants_client
    }

    fn has_client(&self) -> bool {
        self.0.wire().has_client
    }

    fn lend(&mut self, _: BorrowedFd<'_>, request: LentRequest<'_>) {
        let LentRequest { head, body, body_left, is_last, .. } = request;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut wire = self.0.wire();
        (wire.wants_client, wire.has_client) = (false, true);
        wire.lent = Some(Lent { head: text(head), body: text(body), body_left, is_last });
    }

    fn held_back(&mut self) {
        self.0.wire().is_held_back = true;
    }

    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        let mut wire = self.0.wire();
        assert!(!std::mem::replace(&mut wire.is_finished, true), "finished twice");
        for (name, value) in trailers {
            let value = std::str::from_utf8(value).unwrap();
            wire.got.push_str(&format!("[{name}={value}]"));
        }
    }

    fn advance(&mut self, _: u64) -> RelayNext {
        let mut wire = self.0.wire();
        match wire.interim.pop_front() {
            Some(status) => RelayNext::Interim(status),
            None if wire.answer.is_some() && !wire.is_told => RelayNext::Answer,
            None => RelayNext::Wait,
        }
    }

    fn interim(&self) -> &[u8] {
        b"HTTP/1.1 1xx Wait\r\n"
    }

    fn length(&self) -> Option<u64> {
        self.0.wire().answer.and_then(|(_, length)| length)
    }

    fn resume(&mut self, _: u64) {}

    fn read(&mut self, out: &mut Vec<u8>, most: usize, _: u64) -> RelayRead {
        let mut wire = self.0.wire();
        assert!(most > 0, "nothing can be read");
        match wire.body.len().min(most) {
            0 => wire.end.unwrap_or(RelayRead::Nothing),
            count => {
                out.extend_from_slice(wire.body.drain(..count).collect::<String>().as_bytes());
                RelayRead::Bytes(count)
            }
        }
    }

    fn trailers(&self) -> Vec<(&str, &[u8])> {
        vec![("X-Sum", b"7")]
    }

    fn awaits(&self) -> Await {
        if self.0.wire().is_connecting { Await::Connect } else { Await::Answer }
    }

    fn deadline_ms(&self) -> u64 {
        77
    }

    fn expire(&mut self) {
        let mut wire = self.0.wire();
        wire.expired += 1;
        wire.answer = Some((None, None));
    }
}

/// A handler that answers `/own` itself, and has others answered by the exchanges it was given.
#[derive(Default)]
pub(crate) struct Front {
    pub(crate) exchanges: VecDeque<Shared>,
    pub(crate) logged: Vec<(u16, u64)>,
    pub(crate) settled: Vec<(u32, Settled)>,
    pub(crate) judged: u32,
    pub(crate) given_up: u32,
    /// Whether the queue is full, so that no request may be enqueued.
    pub(crate) is_full: bool,
}

#[derive(Default)]
pub(crate) struct Ticket(u32);

impl HandlerTypes for Front {
    type Body = NoBody;
    type Job = NoJob;
    type Relay = Exchange;
    type Line = u16;
    type Ticket = Ticket;
    type Record = ();
}

impl Admission for Front {
    fn verdict(&mut self, _: &Request<'_>, (): &mut ()) -> Verdict<Ticket> {
        self.judged += 1;
        Verdict::Admit(Admitted::at_once(Rank::FIRST, Ticket(self.judged)))
    }

    fn enqueue(&mut self, _: &mut Ticket) -> Result<(), Refusal> {
        if self.is_full { Err(Refusal { status: 503, retry_after_s: 1 }) } else { Ok(()) }
    }

    fn settle(&mut self, ticket: &mut Ticket, end: Settled) {
        self.settled.push((ticket.0, end));
    }
}

impl Process for Front {
    fn decide(
        &mut self,
        request: &Request<'_>,
        _: &mut Ticket,
        _: Option<NoJob>,
    ) -> BodyDecision<NoJob> {
        match request.head.path {
            b"/late" => BodyDecision::Here,
            b"/large" => BodyDecision::Stream(1 << 20),
            _ => BodyDecision::Stream(100),
        }
    }

    fn process(
        &mut self,
        request: &Request<'_>,
        _: &mut Ticket,
        _: Option<NoJob>,
        reply: &mut Reply<'_, NoBody>,
    ) -> ProcessOutcome<NoJob, Exchange> {
        if request.head.path == b"/own" {
            reply.head(200, b"HTTP/1.1 200 Own\r\nContent-Length: 3\r\n");
            reply.copy(b"own");
            return ProcessOutcome::Replied;
        }
        ProcessOutcome::Relay(Exchange(self.exchanges.pop_front().unwrap()))
    }

    fn hands_over(&mut self, request: &Request<'_>) -> bool {
        request.head.path.starts_with(b"/handed")
    }

    fn relayed(
        &mut self,
        _: &Request<'_>,
        ticket: &mut Ticket,
        relay: &mut Exchange,
        reply: &mut Reply<'_, NoBody>,
    ) -> Relayed<NoJob> {
        assert!(ticket.0 > 0, "without its ticket");
        let mut wire = relay.0.wire();
        wire.is_told = true;
        wire.has_client = false;
        if let Some(back) = wire.elsewhere {
            return Relayed::Elsewhere(back);
        }
        match wire.answer.unwrap() {
            (None, _) => {
                let status = if wire.expired > 0 { 504 } else { 502 };
                drop(wire);
                self.refuse(status, "No", reply);
                Relayed::Own
            }
            (Some(101), _) => {
                reply.switch(b"HTTP/1.1 101 Switch\r\nUpgrade: echo\r\n");
                Relayed::Switched
            }
            (Some(status), length) => {
                reply.relayed(
                    status,
                    format!("HTTP/1.1 {status} Up\r\n").as_bytes(),
                    length,
                    false,
                );
                Relayed::Body
            }
        }
    }

    fn begin_exchange(&mut self, relay: &mut Exchange) {
        relay.0.wire().is_begun = true;
    }

    fn release(&mut self, relay: Exchange) {
        relay.0.wire().is_released = true;
    }

    fn refuse(&mut self, status: u16, _: &'static str, reply: &mut Reply<'_, NoBody>) {
        reply.head(status, format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n").as_bytes());
    }
}

impl Bodies for Front {}

impl Journal for Front {
    fn line(&mut self, answered: &Answered<'_, Ticket>) -> Option<u16> {
        Some(answered.status)
    }

    fn given_up(&mut self, _: &GivenUp<'_, Ticket>, _: Option<&Self::Relay>) {
        self.given_up += 1;
    }

    fn log(&mut self, status: u16, body_bytes: u64) {
        self.logged.push((status, body_bytes));
    }
}

impl Hooks for Front {}

impl Handler for Front {
    type Protocol = Http1<Front>;
    type Transport = PlainTransport;
}
