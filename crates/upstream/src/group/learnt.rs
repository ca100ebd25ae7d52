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
    /// When something has begun or ended last, or more were let in because nothing had.
    moved_ns: u64,
    /// How long the last request has taken.
    took_ns: u64,
}

/// While nothing ends for so long, at least and at most, more are let in.
const STUCK_NS: (u64, u64) = (1_000_000_000, 10_000_000_000);

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
    /// Between these, where so many of the connections are tunnels.
    pub fn new(least: u32, most: u32, tunnels: u32, now_ns: u64) -> LearntPlaces {
        LearntPlaces {
            useful: UsefulConcurrency::new(least, most, now_ns),
            least,
            most,
            tunnels,
            workers: None,
            has_others: false,
            moved_ns: now_ns,
            took_ns: 0,
        }
    }

    /// Requests and tunnels under way, at most.
    pub fn most(&self) -> u32 {
        self.most_beside(0)
    }

    /// The same in all processes, of which others have so much.
    pub fn most_beside(&self, others: u32) -> u32 {
        let own = self.useful.limit().saturating_add(self.tunnels);
        own.saturating_add(others).min(self.most)
    }

    /// It is full, and requests wait: where nothing ends for longer than requests take, what is under way may be answers
    /// without an end, and twice as many are let in. Says whether they are.
    pub fn relieve(&mut self, now_ns: u64) -> bool {
        let patience_ns = self.took_ns.saturating_mul(2).clamp(STUCK_NS.0, STUCK_NS.1);
        if now_ns.saturating_sub(self.moved_ns) < patience_ns {
            return false;
        }
        self.moved_ns = now_ns;
        self.useful.is_stuck(now_ns)
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

    /// Begins with as many as another process has learnt, where nothing is learnt yet.
    pub fn begin_with(&mut self, held: u32, now_ns: u64) {
        self.useful.begin_with(held, now_ns);
    }

    fn bound(&mut self, now_ns: u64) {
        let most = self.workers.map_or(self.most, |count| count.clamp(self.least, self.most));
        self.useful.set_bounds(self.least, most, now_ns);
    }

    /// So much is under way, and so much from other processes.
    pub fn under_way(&mut self, in_flight: u32, others: u32, now_ns: u64) {
        self.has_others = others > 0;
        self.moved_ns = now_ns;
        self.useful.under_way(in_flight.saturating_sub(self.tunnels), now_ns);
    }

    /// A request has ended that took so long.
    pub fn ended(&mut self, took_ns: u64, outcome: AnswerQuality, now_ns: u64) {
        self.took_ns = took_ns;
        // what others have under way is in what requests take here, and in no count of this process
        if !self.has_others {
            self.useful.ended(took_ns, outcome, now_ns);
        }
    }

    /// So many of the connections are tunnels.
    pub fn has_tunnels(&mut self, count: u32) {
        self.tunnels = count;
    }

    /// What is known.
    pub fn report(&self) -> LearntReport {
        LearntReport { useful: self.useful.report(), workers: self.workers, tunnels: self.tunnels }
    }
}
