//! The exchange with a handler, as the protocol drives it.
//!
//! There is no socket: the handler wakes the exchange by its slot. An engine whose threads wait in
//! `poll` leaves no waker in the slot; for it an eventfd is made when it asks.

use super::pipe::{HandlerEnd, HandlerHead, HandlerPipe, LeftBy, PassedField, PipeRead};
use super::place::RunningHandler;
use super::request::{InsideRequest, RequestParts};
use super::response::InsideResponse;
use super::run::HandlerRun;
use super::{HandlerLimits, InsideCode};
use crate::wake_bell::WakeBell;
use forebay_conn::handler::relay::{RelayNext, RelayRead};
use forebay_conn::{Await, SocketId, WakeSlot, Wants};
use forebay_sys::clock;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a client may send nothing of a body for which there is room.
const SILENCE_MS: u64 = 60_000;

/// How long a client may leave its direction open after the end of a handler that has changed the
/// protocol.
const LINGER_MS: u64 = 5_000;

/// Why a handler has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsideFailure {
    /// The server has no room for one more handler.
    NoRoom,
    /// The body of the request is larger than allowed.
    TooLarge,
    /// The handler has returned an error before it had begun an answer.
    Failed,
    /// The handler has panicked.
    Panicked,
    /// The handler has not answered in time.
    Late,
}

impl InsideFailure {
    /// The failure in logs.
    pub fn word(self) -> &'static str {
        match self {
            InsideFailure::NoRoom => "no room",
            InsideFailure::TooLarge => "too large",
            InsideFailure::Failed => "failed",
            InsideFailure::Panicked => "panicked",
            InsideFailure::Late => "late",
        }
    }
}

/// The state of the handler.
enum InsideState {
    /// The handler has not begun.
    Ready(Box<HandlerRun>),
    Runs(RunningHandler),
    /// The handler was not begun, or is over.
    Over,
}

/// The exchange of one request with a handler. `T` is what the owner must remember with it.
pub struct InsideExchange<T> {
    /// What the owner must remember.
    pub tag: T,
    code: InsideCode,
    pipe: Arc<HandlerPipe>,
    state: InsideState,
    rank: u8,
    /// Whether the body of the answer is not wanted.
    is_head: bool,
    /// Whether the owner has looked at the answer.
    is_told: bool,
    /// Whether the answer changes the protocol.
    is_switched: bool,
    /// Until when the client may leave its direction open, once the handler has ended.
    linger_ms: Option<u64>,
    /// How long no byte may move after a change of the protocol; `moved_ms` says when one last moved.
    silence_ms: Option<u64>,
    moved_ms: u64,
    /// Whether the client waits for `100 Continue`, and must get it.
    owes_continue: bool,
    failure: Option<InsideFailure>,
    /// How long the handler may take for the head of its answer, once the request's body is complete.
    head_ms: Option<u64>,
    abort_on_close: bool,
    /// The number of bytes of the request's body that may still come.
    left_bytes: u64,
    bell: WakeBell,
    begun_ns: u64,
    head_us: Option<u64>,
    /// The trailers of the answer, once all of its body was read.
    trailers: Vec<PassedField>,
}

impl<T> InsideExchange<T> {
    /// The exchange for a request. `has_body` says whether the request has a body. If the client asks
    /// by HEAD, the body of the answer is not wanted.
    pub fn new(
        code: &InsideCode,
        limits: HandlerLimits,
        parts: RequestParts,
        has_body: bool,
        rank: u8,
        tag: T,
    ) -> InsideExchange<T> {
        let pipe = Arc::<HandlerPipe>::default();
        if !has_body {
            pipe.finish(Vec::new());
        }
        let is_head = &*parts.method == "HEAD";
        let request = InsideRequest::new(parts, Arc::clone(&pipe));
        let response = InsideResponse::new(Arc::clone(&pipe), is_head);
        let run = HandlerRun::new(code.clone(), request, response);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        InsideExchange {
            tag,
            code: code.clone(),
            pipe,
            state: InsideState::Ready(Box::new(run)),
            rank,
            is_head,
            is_told: false,
            is_switched: false,
            linger_ms: None,
            silence_ms: limits.silence.map(ms),
            moved_ms: 0,
            owes_continue: has_body,
            failure: None,
            head_ms: limits.head.map(ms),
            abort_on_close: limits.abort_on_close,
            left_bytes: limits.most_bytes,
            bell: WakeBell::default(),
            begun_ns: 0,
            head_us: None,
            trailers: Vec::new(),
        }
    }

    /// An exchange that has failed for this reason, without a handler.
    #[must_use]
    pub fn failed(mut self, failure: InsideFailure) -> InsideExchange<T> {
        self.fail(failure);
        self
    }

    /// Begins the handler.
    pub fn begin(&mut self, now_ms: u64) {
        let InsideState::Ready(run) = std::mem::replace(&mut self.state, InsideState::Over) else {
            return;
        };
        self.begun_ns = clock::monotonic_ns();
        self.pipe.begin_upload(now_ms);
        match self.code.places.begin(*run, self.rank) {
            Some(running) => self.state = InsideState::Runs(running),
            None => self.fail(InsideFailure::NoRoom),
        }
    }

    fn fail(&mut self, failure: InsideFailure) {
        self.failure.get_or_insert(failure);
        let left = if failure == InsideFailure::Late { LeftBy::Time } else { LeftBy::Client };
        self.leave(left);
    }

    /// Gives the handler up, and lets it know.
    fn leave(&mut self, left: LeftBy) {
        let goes_on = self.pipe.leave(left);
        let state = std::mem::replace(&mut self.state, InsideState::Over);
        if let InsideState::Runs(running) = state
            && goes_on
        {
            running.interrupt();
        }
    }

    /// The handler's name in logs.
    pub fn name(&self) -> &str {
        &self.code.name
    }

    /// The head of the answer. After this call, the owner has looked at it.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn answer(&mut self) -> Result<HandlerHead, InsideFailure> {
        self.is_told = true;
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let failure = match self.pipe.answer() {
            (Some(head), _) => {
                let us = clock::monotonic_ns().saturating_sub(self.begun_ns) / 1000;
                self.head_us = Some(us);
                self.is_switched = head.status == 101;
                self.moved_ms = clock::coarse_ms();
                return Ok(head);
            }
            (None, Some(HandlerEnd::Panicked)) => InsideFailure::Panicked,
            (None, Some(HandlerEnd::TooLarge)) => InsideFailure::TooLarge,
            (None, _) => InsideFailure::Failed,
        };
        self.failure = Some(failure);
        Err(failure)
    }

    /// Why there is no answer, as far as that is known.
    pub fn failure(&self) -> Option<InsideFailure> {
        self.failure
    }

    /// When the handler was begun, in nanoseconds; 0 if it was not.
    pub fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// The time until the head of the answer was there, in microseconds.
    pub fn head_us(&self) -> Option<u64> {
        self.head_us
    }

    /// The status of the answer.
    pub fn status(&self) -> Option<u16> {
        self.head_us.and(self.pipe.answer().0.map(|head| head.status))
    }

    // Functions that the protocol calls, as on any exchange (`forebay_conn::Relay`).

    /// Where the engine leaves the waker of the request.
    pub fn wake_slot(&self) -> &WakeSlot {
        &self.pipe.slot
    }

    /// The descriptor to wait for, where the engine leaves no waker in the slot.
    pub fn socket(&self) -> Option<(SocketId, BorrowedFd<'_>, Wants)> {
        if self.failure.is_some() { None } else { self.bell.socket(&self.pipe.slot) }
    }

    /// Notes that the request was woken.
    pub fn ready(&mut self) {
        self.bell.silence();
    }

    /// How many bytes of the request's body the handler takes now.
    pub fn capacity(&self) -> usize {
        if self.failure.is_some() { 0 } else { self.pipe.capacity() }
    }

    /// Passes the next bytes of the request's body on.
    pub fn give(&mut self, bytes: &[u8]) {
        if self.is_switched {
            // some engines call this in each turn, with or without bytes
            if !bytes.is_empty() {
                self.moved_ms = clock::coarse_ms();
            }
            return self.pipe.give(bytes);
        }
        match self.left_bytes.checked_sub(bytes.len() as u64) {
            Some(left) => {
                self.left_bytes = left;
                self.pipe.give(bytes);
            }
            None => self.fail(InsideFailure::TooLarge),
        }
    }

    /// Ends the request's body.
    pub fn finish<'t>(&mut self, trailers: &mut dyn Iterator<Item = (&'t str, &'t [u8])>) {
        let trailers: Vec<PassedField> =
            trailers.map(|(name, value)| (name.into(), value.into())).collect();
        self.pipe.finish(trailers);
    }

    /// Goes on as far as the head of the answer.
    pub fn advance(&mut self) -> RelayNext {
        if self.is_told {
            // `read` waits for the answer's body; here the request is woken when there is room for
            // its own body
            self.pipe.ask();
            return RelayNext::Wait;
        }
        if std::mem::take(&mut self.owes_continue) && self.failure.is_none() {
            return RelayNext::Interim(100);
        }
        let has_answer = self.failure.is_some() || self.pipe.has_answer();
        if self.bell.is_deaf() && !has_answer {
            self.fail(InsideFailure::NoRoom);
            return RelayNext::Answer;
        }
        if has_answer { RelayNext::Answer } else { RelayNext::Wait }
    }

    /// The interim answer; `100 Continue` is the only one.
    pub fn interim(&self) -> &[u8] {
        b"HTTP/1.1 100 Continue\r\n"
    }

    /// The length of the answer's body, if it is known.
    pub fn length(&self) -> Option<u64> {
        self.pipe.answer().0?.length
    }

    /// Appends at most `most` of the next bytes of the answer's body.
    pub fn read(&mut self, out: &mut Vec<u8>, most: usize) -> RelayRead {
        if self.is_head {
            return RelayRead::End;
        }
        match self.pipe.read_answer(out, most) {
            PipeRead::Bytes(count) => {
                self.moved_ms = clock::coarse_ms();
                RelayRead::Bytes(count)
            }
            PipeRead::Nothing => RelayRead::Nothing,
            PipeRead::End => {
                if let Some(HandlerEnd::Whole(trailers)) = self.pipe.answer().1 {
                    self.trailers = trailers;
                }
                if self.is_switched {
                    self.linger_ms.get_or_insert(clock::coarse_ms() + LINGER_MS);
                }
                RelayRead::End
            }
            PipeRead::Broken => RelayRead::Broken,
        }
    }

    /// The trailers of the answer.
    pub fn trailers(&self) -> Vec<(&str, &[u8])> {
        self.trailers.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    /// Whether the exchange is given up when its client has shut down writing.
    pub fn aborts_on_close(&self) -> bool {
        self.abort_on_close
    }

    /// What the exchange waits for.
    pub fn awaits(&self) -> Await {
        match (self.is_told, self.linger_ms) {
            (false, _) => Await::Answer,
            (true, None) => Await::Flow,
            // a wait of its own kind, since its deadline is earlier
            (true, Some(_)) => Await::Ending,
        }
    }

    /// The deadline of the current wait. That is for the client while more of its body is due, and
    /// then for the head of the answer. After a change of the protocol it is for the next byte in
    /// either direction, and for the client's end after that of the handler.
    pub fn deadline_ms(&self) -> u64 {
        if self.bell.is_deaf() {
            return 0;
        }
        if self.is_switched {
            let silent_ms = self.silence_ms.map(|time| self.moved_ms.saturating_add(time));
            return self.linger_ms.or(silent_ms).unwrap_or(u64::MAX);
        }
        let (is_uploading, since_ms) = self.pipe.upload();
        let time = match is_uploading {
            true => Some(SILENCE_MS),
            false => self.head_ms.filter(|_| !self.is_told),
        };
        time.map_or(u64::MAX, |time| since_ms.saturating_add(time))
    }

    /// Handles the end of the time for an answer.
    pub fn expire(&mut self) {
        self.fail(InsideFailure::Late);
    }

    /// Handles the end of the time of a tunnel. The handler, which goes on, gets the reason as an
    /// error of its waits.
    pub fn expire_tunnel(&mut self) {
        self.leave(LeftBy::Silence);
    }
}

impl<T> Drop for InsideExchange<T> {
    fn drop(&mut self) {
        self.leave(LeftBy::Client);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HandlerCode, HandlerPlaces, HandlerResult, InsideRequest, UpgradeParts};
    use super::*;
    use std::io::{Read, Write};

    fn places(most_threads: usize, most_waiting: usize) -> Arc<HandlerPlaces> {
        Arc::new(HandlerPlaces::new(1, most_threads, most_waiting))
    }

    fn exchange(
        places: &Arc<HandlerPlaces>,
        code: impl Fn(&mut InsideRequest, &mut InsideResponse) -> HandlerResult + Send + Sync + 'static,
        has_body: bool,
    ) -> InsideExchange<()> {
        let code = HandlerCode::Waits(Arc::new(code));
        let code = InsideCode { name: "test".into(), code, places: Arc::clone(places) };
        let head = Some(Duration::from_secs(10));
        let limits = HandlerLimits {
            head,
            most_bytes: 1 << 20,
            abort_on_close: false,
            upgrades: true,
            silence: Some(Duration::from_secs(30)),
        };
        let parts = RequestParts {
            method: "POST".into(),
            path: (*b"/").into(),
            target: (*b"/").into(),
            query: None,
            host: (*b"here").into(),
            version: 11,
            is_secure: false,
            fields: Vec::new(),
            client: ([127, 0, 0, 1], 1).into(),
            local: None,
            class: "".into(),
            user: None,
            id: "1".into(),
            upgrade: Some(UpgradeParts { protocols: "chat".into(), accept: None }),
        };
        InsideExchange::new(&code, limits, parts, has_body, 0, ())
    }

    #[track_caller]
    fn waited_for(mut holds: impl FnMut() -> bool) {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(std::time::Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_body_has_its_own_time_and_the_head_the_time_after_it() {
        let places = places(1, 1);
        let mut exchange =
            exchange(&places, |request, response| Ok(response.text(request.body(100)?)?), true);
        exchange.begin(1000);
        assert_eq!(exchange.deadline_ms(), 1000 + SILENCE_MS);
        let now_ms = clock::coarse_ms();
        exchange.give(b"some");
        assert!(exchange.deadline_ms() >= now_ms + SILENCE_MS, "it goes on");
        exchange.give(&vec![0; super::super::pipe::PIPE_BYTES * 2]);
        drop(exchange);
        let mut exchange = self::exchange(&places, |_, _| Ok(anywhere_sleep()?), false);
        exchange.begin(1000);
        assert_eq!(exchange.deadline_ms(), 11_000);
        exchange.is_told = true;
        assert_eq!(exchange.deadline_ms(), u64::MAX);
    }

    #[test]
    fn each_byte_prolongs_a_tunnel_until_the_handler_has_ended() {
        let places = places(1, 1);
        let echo = |request: &mut InsideRequest, response: &mut InsideResponse| {
            let mut byte = [0];
            let mut stream = response.switch(request, "chat")?;
            stream.read_exact(&mut byte)?;
            stream.write_all(&byte)?;
            stream.flush()?;
            Ok(stream.read_exact(&mut byte)?)
        };
        let mut exchange = exchange(&places, echo, false);
        exchange.begin(1000);
        waited_for(|| exchange.pipe.has_answer());
        assert_eq!(exchange.answer().unwrap().status, 101);
        // as if the last byte had moved a long time ago
        exchange.moved_ms = 5;
        assert_eq!(exchange.deadline_ms(), 30_005);
        let now_ms = clock::coarse_ms();
        exchange.give(b"a");
        assert!(exchange.deadline_ms() >= now_ms + 30_000);
        exchange.moved_ms = 5;
        let mut out = Vec::new();
        waited_for(|| matches!(exchange.read(&mut out, 9), RelayRead::Bytes(1)));
        assert!(exchange.deadline_ms() >= now_ms + 30_000);
        assert_eq!(exchange.awaits(), Await::Flow);
        exchange.give(b"b");
        waited_for(|| matches!(exchange.read(&mut out, 9), RelayRead::End));
        assert_eq!(exchange.awaits(), Await::Ending);
        assert!(exchange.deadline_ms() < now_ms + 30_000 + LINGER_MS);
    }

    fn anywhere_sleep() -> std::io::Result<()> {
        Ok(forebay_fiber::anywhere::sleep(Duration::from_secs(3600))?)
    }

    #[test]
    fn those_whose_clients_have_left_keep_no_place_in_the_queue() {
        let places = places(1, 1);
        let waits = |_: &mut InsideRequest, _: &mut InsideResponse| Ok(anywhere_sleep()?);
        let mut all: Vec<_> = (0..3).map(|_| exchange(&places, waits, false)).collect();
        all[0].begin(0);
        waited_for(|| places.waiting() == 0);
        all[1].begin(0);
        all[2].begin(0);
        assert_eq!(all[2].failure(), Some(InsideFailure::NoRoom));
        drop(all.remove(1));
        let mut last = exchange(&places, waits, false);
        last.begin(0);
        assert_eq!(last.failure(), None);
    }

    #[test]
    fn an_error_that_panics_costs_no_thread() {
        #[derive(Debug)]
        struct Panics;
        impl std::fmt::Display for Panics {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::panic::resume_unwind(Box::new("nothing is said"))
            }
        }
        impl std::error::Error for Panics {}
        let places = places(1, 1);
        for _ in 0..3 {
            let mut exchange = exchange(&places, |_, _| Err(Panics.into()), false);
            exchange.begin(0);
            waited_for(|| exchange.pipe.has_answer());
            assert_eq!(exchange.answer(), Err(InsideFailure::Failed));
        }
        assert!(places.close(Duration::from_secs(60)));
    }
}
