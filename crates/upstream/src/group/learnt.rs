//! How much one upstream usefully has under way, where that is learnt (`in_flight = "auto"`).
//!
//! What counts is requests that are worked on. A connection that has become a tunnel may be open for hours and says
//! nothing of what requests cost, so it has a place beside what is learnt, within the largest number that may be.

use forebay_control::concurrency::{AnswerQuality, ConcurrencyReport, UsefulConcurrency};

/// What is learnt of one upstream.
#[derive(Clone, Debug)]
pub struct LearntPlaces {
    useful: UsefulConcurrency,
    least: u32,
    most: u32,
    tunnels: u32,
    /// How many requests it works on at once, if it has said so.
    workers: Option<u32>,
    /// Other processes have requests under way to it.
    has_others: bool,
}

/// What is known of one upstream, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearntReport {
    /// What was learnt.
    pub useful: ConcurrencyReport,
    /// How many requests it works on at once, if it has said so.
    pub workers: Option<u32>,
    /// Connections that are tunnels.
    pub tunnels: u32,
}

impl LearntPlaces {
    /// Between these.
    pub fn new(least: u32, most: u32, now_ns: u64) -> LearntPlaces {
        LearntPlaces {
            useful: UsefulConcurrency::new(least, most, now_ns),
            least,
            most,
            tunnels: 0,
            workers: None,
            has_others: false,
        }
    }

    /// Requests and tunnels under way, at most.
    pub fn most(&self) -> u32 {
        self.useful.limit().saturating_add(self.tunnels).min(self.most)
    }

    /// Other bounds hold.
    pub fn set_bounds(&mut self, least: u32, most: u32, now_ns: u64) {
        (self.least, self.most) = (least, most);
        self.bound(now_ns);
    }

    /// It works on so many requests at once; `None` if that is not known any more.
    pub fn has_workers(&mut self, count: Option<u32>, now_ns: u64) {
        if self.workers != count {
            self.workers = count;
            self.bound(now_ns);
        }
    }

    fn bound(&mut self, now_ns: u64) {
        let most = self.workers.map_or(self.most, |count| count.clamp(self.least, self.most));
        self.useful.set_bounds(self.least, most, now_ns);
    }

    /// So much is under way, and so much from other processes.
    pub fn under_way(&mut self, in_flight: u32, others: u32, now_ns: u64) {
        self.has_others = others > 0;
        self.useful.under_way(in_flight.saturating_sub(self.tunnels), now_ns);
    }

    /// A request has ended that took so long.
    pub fn ended(&mut self, took_ns: u64, outcome: AnswerQuality, now_ns: u64) {
        // what others have under way is in what requests take here, and in no count of this process
        if !self.has_others {
            self.useful.ended(took_ns, outcome, now_ns);
        }
    }

    /// A connection has become a tunnel, or one has ended.
    pub fn tunnel(&mut self, is_open: bool) {
        self.tunnels = match is_open {
            true => self.tunnels.saturating_add(1),
            false => self.tunnels.saturating_sub(1),
        };
    }

    /// What is known.
    pub fn report(&self) -> LearntReport {
        LearntReport { useful: self.useful.report(), workers: self.workers, tunnels: self.tunnels }
    }
}
