//! An exchange with an application, and what happens to the body of its answer on the way to the client:
//! it may be received before the client takes it, so that the application is done with it, and it may be
//! compressed.

use crate::applications::{Applications, ExchangeTag};
use crate::upstream_threads::HeldThread;
use forebay_conn::handler::relay::{RelayNext, RelayRead};
use forebay_conn::{Await, Relay, SocketId, WakeSlot, Wants};
use forebay_engine::admission::ConnectionPlace;
use forebay_http::coding::Coding;
use forebay_site::{Content, Recoder};
use forebay_upstream::exchange::{Exchange, WaitingTurn};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The largest number of bytes that are received, or compressed, at a time.
const RECEIVE_BYTES: usize = 16 * 1024;

/// An exchange with an application, and the handling of its answer's body.
pub struct PassingExchange {
    /// The exchange itself.
    pub exchange: Box<Exchange<ExchangeTag>>,
    /// The bytes received ahead; `None` as long as there are none.
    buffer: Option<Box<Buffer>>,
    coder: Option<Box<Coder>>,
    /// The permission to keep a descriptor.
    place: Option<ConnectionPlace>,
    /// The permission to keep its thread, where each connection keeps one.
    thread: Option<HeldThread>,
    /// Whether the request alone determines the exchange, so that the exchange can be made anew from it.
    is_of_request: bool,
}

/// The part of an exchange that is kept while its request waits for its turn.
pub struct WaitsForTurn {
    /// The wait itself.
    pub turn: WaitingTurn<ExchangeTag>,
    /// The content and the applications by which the exchange was made first. It is made anew by them,
    /// even if a reload has replaced them meanwhile: the numbers of its route, and the values of its
    /// fields, are theirs.
    pub content: Arc<Content>,
    /// See `content`.
    pub applications: Arc<Applications>,
    /// The permission to keep a descriptor.
    place: Option<ConnectionPlace>,
    /// The permission to keep its thread, where each connection keeps one.
    thread: Option<HeldThread>,
}

/// Bytes that were received before the client has taken them.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// The position of the first byte that is not used yet.
    at: usize,
    /// The largest number of bytes in the buffer.
    most: usize,
    /// How the answer has ended; reported when all bytes are used.
    end: Option<RelayRead>,
}

/// The compression of the body. `recoder` is `None` if there was no memory for it.
struct Coder {
    recoder: Option<Recoder>,
    /// Compressed bytes; those from `at` on are not used yet.
    made: Vec<u8>,
    at: usize,
    /// Whether some of the input may still be in the codec.
    is_behind: bool,
    is_over: bool,
}

impl PassingExchange {
    /// An exchange whose answer is passed on as it comes. Without a place the exchange has failed.
    pub fn new(
        exchange: Box<Exchange<ExchangeTag>>,
        place: Option<ConnectionPlace>,
    ) -> PassingExchange {
        PassingExchange {
            exchange,
            buffer: None,
            coder: None,
            place,
            thread: None,
            is_of_request: false,
        }
    }

    /// Sets whether the request alone determines the exchange, so that it can be made anew with its turn.
    pub fn of_request(self, is_of_request: bool) -> PassingExchange {
        PassingExchange { is_of_request, ..self }
    }

    /// Sets a new exchange aside that has begun and waits for its turn, if it can be made anew. Returns
    /// what is kept of it.
    pub fn set_aside(
        &mut self,
        content: &Arc<Content>,
        applications: &Arc<Applications>,
    ) -> Option<WaitsForTurn> {
        let turn = self.is_of_request.then(|| self.exchange.set_aside()).flatten()?;
        Some(self.waiting(turn, content, applications))
    }

    /// Sets an exchange aside that has not begun and will have to wait, if it can be made anew. Returns
    /// what is kept of it.
    pub fn set_aside_early(
        &mut self,
        content: &Arc<Content>,
        applications: &Arc<Applications>,
    ) -> Option<WaitsForTurn> {
        let turn = self.is_of_request.then(|| self.exchange.set_aside_early()).flatten()?;
        Some(self.waiting(turn, content, applications))
    }

    fn waiting(
        &mut self,
        turn: WaitingTurn<ExchangeTag>,
        content: &Arc<Content>,
        applications: &Arc<Applications>,
    ) -> WaitsForTurn {
        WaitsForTurn {
            turn,
            content: Arc::clone(content),
            applications: Arc::clone(applications),
            place: self.place.take(),
            thread: self.thread.take(),
        }
    }

    /// Adds the permission to keep its thread.
    pub fn keeping(self, thread: Option<HeldThread>) -> PassingExchange {
        PassingExchange { thread, ..self }
    }

    /// Frees the place of an exchange that is over, before the exchange is dropped.
    pub fn give_place_back(&mut self) {
        drop(self.place.take());
    }

    /// Begins the body of the answer: up to `buffer_bytes` of it may be received before the client takes
    /// them, and it is sent in this coding.
    pub fn begin(&mut self, buffer_bytes: u64, coding: Option<Coding>) {
        if buffer_bytes > 0 {
            let most = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
            self.buffer.get_or_insert_default().most = most;
        }
        self.coder = coding.map(|coding| {
            let recoder = Recoder::new(coding).ok();
            let (made, at) = (Vec::new(), 0);
            Box::new(Coder { recoder, made, at, is_behind: false, is_over: false })
        });
    }

    /// Receives as much as there is room for.
    fn fill(&mut self, now_ms: u64) {
        let Some(buffer) = &mut self.buffer else { return };
        let Buffer { bytes, at, most, end } = &mut **buffer;
        while end.is_none() && bytes.len() - *at < *most {
            if *at > 0 {
                bytes.drain(..std::mem::take(at));
            }
            let most_now = (*most - bytes.len()).min(RECEIVE_BYTES);
            match self.exchange.read(bytes, most_now, now_ms) {
                RelayRead::Bytes(_) => {}
                RelayRead::Nothing => return,
                over => *end = Some(over),
            }
            if *end == Some(RelayRead::End) {
                // frees the upstream's place: other requests need not wait for this client
                self.exchange.leave();
            }
        }
    }

    /// The next bytes as the application has sent them.
    fn pull(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead {
        let Some(buffer) = &mut self.buffer else {
            return self.exchange.read(out, most, now_ms);
        };
        let Buffer { bytes, at, end, .. } = &mut **buffer;
        let count = (bytes.len() - *at).min(most);
        if count > 0 {
            out.extend_from_slice(&bytes[*at..*at + count]);
            *at += count;
            if *at == bytes.len() {
                (*bytes, *at) = (Vec::new(), 0);
            }
            return RelayRead::Bytes(count);
        }
        match end {
            Some(end) => *end,
            None => self.exchange.read(out, most, now_ms),
        }
    }
}

impl WaitsForTurn {
    /// Ends the wait: `exchange` was made anew, and gets what was kept.
    pub fn passing(&mut self, exchange: Box<Exchange<ExchangeTag>>) -> PassingExchange {
        PassingExchange::new(exchange, self.place.take()).keeping(self.thread.take())
    }

    /// Whether the exchange is given up when its client has shut down writing.
    pub fn aborts_on_close(&self) -> bool {
        self.turn.application().settings().group().abort_on_close
    }
}

impl Relay for PassingExchange {
    fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        self.exchange.socket()
    }

    fn wake_slot(&self) -> Option<&WakeSlot> {
        self.exchange.wake_slot()
    }

    fn other_socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        self.exchange.other_socket()
    }

    fn ready(&mut self) {
        self.exchange.ready();
    }

    fn capacity(&self) -> usize {
        if self.takes_body() { self.exchange.capacity() } else { 0 }
    }

    /// A deciding server does not get the body.
    fn takes_body(&self) -> bool {
        self.exchange.tag.rule.is_none()
    }

    fn give(&mut self, bytes: &[u8]) {
        self.exchange.give(bytes);
    }

    fn held_back(&mut self) {
        self.exchange.held_back();
    }

    fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        self.exchange.finish(trailers);
    }

    fn cut(&mut self) {
        self.exchange.cut();
    }

    fn advance(&mut self, now_ms: u64) -> RelayNext {
        let next = self.exchange.advance(now_ms);
        self.fill(now_ms);
        next
    }

    fn acknowledge(&mut self) -> bool {
        self.exchange.acknowledge()
    }

    fn interim(&self) -> &[u8] {
        self.exchange.interim()
    }

    fn length(&self) -> Option<u64> {
        if self.coder.is_some() { None } else { self.exchange.length() }
    }

    fn resume(&mut self, now_ms: u64) {
        self.exchange.resume(now_ms);
    }

    /// Received bytes are in memory already, whether or not they are buffered here.
    fn run_ahead(&mut self, now_ms: u64) {
        // one byte more, or the end behind the bytes would not be seen
        let least = self.exchange.received_bytes() + 1;
        let buffer = self.buffer.get_or_insert_default();
        buffer.most = buffer.most.max(least);
        self.fill(now_ms);
    }

    fn read(&mut self, out: &mut Vec<u8>, most: usize, now_ms: u64) -> RelayRead {
        let Some(mut coder) = self.coder.take() else { return self.pull(out, most, now_ms) };
        let given = coder.read(out, most, |plain| self.pull(plain, RECEIVE_BYTES, now_ms));
        self.coder = Some(coder);
        given
    }

    fn trailers(&self) -> Vec<(&str, &[u8])> {
        self.exchange.trailers()
    }

    fn aborts_on_close(&self) -> bool {
        self.exchange.aborts_on_close()
    }

    fn awaits(&self) -> Await {
        self.exchange.awaits()
    }

    fn deadline_ms(&self) -> u64 {
        self.exchange.deadline_ms()
    }

    fn ends_ms(&self) -> u64 {
        self.exchange.ends_ms()
    }

    fn looks(&mut self, now_ms: u64) -> bool {
        self.exchange.looks(now_ms)
    }

    fn expire(&mut self) {
        self.exchange.expire();
    }
}

impl Coder {
    /// Appends the next bytes that `pull` gives, compressed. If `pull` has no more for now, its earlier
    /// bytes are flushed.
    fn read(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
        mut pull: impl FnMut(&mut Vec<u8>) -> RelayRead,
    ) -> RelayRead {
        let Some(recoder) = &mut self.recoder else { return RelayRead::Broken };
        let mut plain = Vec::new();
        loop {
            let count = (self.made.len() - self.at).min(most);
            if count > 0 {
                out.extend_from_slice(&self.made[self.at..self.at + count]);
                self.at += count;
                return RelayRead::Bytes(count);
            }
            self.made.clear();
            self.at = 0;
            if self.is_over {
                return RelayRead::End;
            }
            plain.clear();
            let done = match pull(&mut plain) {
                RelayRead::Bytes(_) => {
                    self.is_behind = true;
                    recoder.write(&plain, &mut self.made)
                }
                RelayRead::Nothing if self.is_behind => {
                    self.is_behind = false;
                    recoder.flush(&mut self.made)
                }
                RelayRead::Nothing => {
                    // a body that waits for long takes no memory
                    self.made = Vec::new();
                    return RelayRead::Nothing;
                }
                RelayRead::End => {
                    self.is_over = true;
                    recoder.finish(&mut self.made)
                }
                RelayRead::Broken => return RelayRead::Broken,
            };
            if done.is_err() {
                return RelayRead::Broken;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_is_not_kept_back() {
        let recoder = Some(Recoder::new(Coding::Gzip).unwrap());
        let mut coder =
            Coder { recoder, made: Vec::new(), at: 0, is_behind: false, is_over: false };
        // `pull` is asked once more when the bytes it gave are flushed
        let mut parts =
            vec![None, None, Some(vec![b'a'; 5000]), None, None, Some(b"begin".to_vec())];
        let mut pull = |out: &mut Vec<u8>| match parts.pop() {
            None => RelayRead::End,
            Some(None) => RelayRead::Nothing,
            Some(Some(part)) => {
                out.extend_from_slice(&part);
                RelayRead::Bytes(part.len())
            }
        };
        let mut said = Vec::new();
        for _ in 0..2 {
            let before = said.len();
            let mut given = coder.read(&mut said, 7, &mut pull);
            while matches!(given, RelayRead::Bytes(1..=7)) {
                given = coder.read(&mut said, 7, &mut pull);
            }
            assert_eq!(given, RelayRead::Nothing);
            assert!(said.len() > before, "what was received has gone on");
        }
        while matches!(coder.read(&mut said, 100, &mut pull), RelayRead::Bytes(_)) {}
        assert_eq!(coder.read(&mut said, 100, &mut pull), RelayRead::End);
        // the first bytes of gzip, and the number of bytes that were compressed
        assert_eq!(
            (&said[..2], &said[said.len() - 4..]),
            (&[0x1f, 0x8b][..], &5005u32.to_le_bytes()[..])
        );
    }
}
