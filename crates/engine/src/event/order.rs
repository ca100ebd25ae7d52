//! When a loop answers: what is in [line](crate::line) a batch at a time, and what came too early
//! when its moment has come.

use super::EventLoop;
use super::connection::State;
use crate::early::Early;
use crate::helpers::Crew;
use crate::line::{BATCH, Line};
use crate::ranks::Ranks;
use forebay_conn::Handler;
use forebay_control::ranked::Key;
use forebay_sys::clock;

/// Requests that are there and not yet answered.
pub(super) struct Waiting {
    line: Option<Line>,
    /// Those that may not be answered yet.
    pub(super) early: Early,
}

impl Waiting {
    pub(super) fn new(ranks: &Ranks) -> Waiting {
        Waiting { line: Line::new(ranks), early: Early::default() }
    }

    /// Whether requests are answered in an order at all.
    #[inline]
    pub(super) fn is_ordered(&self) -> bool {
        self.line.is_some()
    }

    /// Whether a request can be answered now.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.is_empty())
    }

    pub(super) fn remove(&mut self, key: Key) {
        if let Some(line) = &mut self.line {
            line.leave(key);
        }
    }
}

impl<H: Handler, C: Crew<H::Job>> EventLoop<H, C> {
    /// A request is there; the connection is in line until it is answered.
    pub(super) fn line_up(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let standing = connection.served.standing(&self.ranks);
        let line = self.waiting.line.as_mut();
        match line.and_then(|line| line.join(standing, connection.token)) {
            Some(key) => connection.state = State::InLine(key),
            None => {
                connection.state = State::Yielded;
                self.yielded.push_back(connection.token);
            }
        }
    }

    /// Answers those whose turn it is.
    pub(super) fn answer_in_order(&mut self) {
        if !self.waiting.has_work() {
            return;
        }
        if let Some(line) = &mut self.waiting.line {
            line.keep_up();
        }
        let mut now_ns = clock::monotonic_ns();
        for _ in 0..BATCH {
            let Some(line) = &mut self.waiting.line else { return };
            let Some((token, called)) = line.call(now_ns, &self.worker.metrics) else { return };
            self.answer(token);
            if let Some(line) = &mut self.waiting.line {
                now_ns = line.answered(called, &self.worker.metrics);
            }
        }
    }

    /// Answers those that came early and whose time has come.
    pub(super) fn answer_early(&mut self) {
        while let Some(token) = self.waiting.early.next(self.worker.now_ms()) {
            if let Some(key) = self.key(token) {
                self.connections[key].served.conn.admit();
                self.take_turn(token, None);
            }
        }
    }
}
