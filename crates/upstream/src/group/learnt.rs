//! The learnt limit of one upstream (`in_flight = "auto"`): how many requests it usefully has under
//! way.
//!
//! Only requests that are worked on count. A connection that has become a tunnel may be open for
//! hours and shows nothing of what requests cost. So a tunnel has a place beside the learnt limit,
//! within the largest number that the settings allow.

use forebay_control::concurrency::{AnswerQuality, ConcurrencyReport, UsefulConcurrency};

/// The learnt limit of one upstream.
#[derive(Clone, Debug)]
pub struct LearntPlaces {
    useful: UsefulConcurrency,
    least: u32,
    most: u32,
    tunnels: u32,
    /// The number of requests that the upstream works on at once, if it has said so.
    workers: Option<u32>,
    /// Whether other processes have requests under way to the upstream.
    has_others: bool,
    /// When a request last began or ended, or the limit was raised because none had.
    moved_ns: u64,
    /// How long the last request took.
    took_ns: u64,
}

/// While no request ends for this long, at least and at most, the limit is raised.
const STUCK_NS: (u64, u64) = (1_000_000_000, 10_000_000_000);

/// What was learnt of one upstream, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearntReport {
    /// The learnt limit.
    pub useful: ConcurrencyReport,
    /// The number of requests that the upstream works on at once, if it has said so.
    pub workers: Option<u32>,
    /// The number of connections that are tunnels.
    pub tunnels: u32,
}

impl LearntPlaces {
    /// A limit between `least` and `most`, where `tunnels` of the connections are tunnels.
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

    /// The largest number of requests and tunnels under way.
    pub fn most(&self) -> u32 {
        self.most_beside(0)
    }

    /// The largest number for all processes together, of which the others have `others`.
    pub fn most_beside(&self, others: u32) -> u32 {
        let own = self.useful.limit().saturating_add(self.tunnels);
        own.saturating_add(others).min(self.most)
    }

    /// Called while the upstream is full and requests wait. Where nothing ends for longer than
    /// requests take, what is under way may be answers without an end; then twice as many are let in.
    /// Returns whether that is so.
    pub fn relieve(&mut self, now_ns: u64) -> bool {
        let patience_ns = self.took_ns.saturating_mul(2).clamp(STUCK_NS.0, STUCK_NS.1);
        if now_ns.saturating_sub(self.moved_ns) < patience_ns {
            return false;
        }
        self.moved_ns = now_ns;
        self.useful.is_stuck(now_ns)
    }

    /// Takes over other bounds.
    pub fn set_bounds(&mut self, least: u32, most: u32, now_ns: u64) {
        (self.least, self.most) = (least, most);
        self.bound(now_ns);
    }

    /// Notes how many requests the upstream works on at once; `None` if that is no longer known.
    pub fn has_workers(&mut self, count: Option<u32>, now_ns: u64) {
        if self.workers != count {
            self.workers = count;
            self.bound(now_ns);
        }
    }

    /// Starts at the number that another process has learnt, where nothing is learnt yet.
    pub fn begin_with(&mut self, held: u32, now_ns: u64) {
        self.useful.begin_with(held, now_ns);
    }

    fn bound(&mut self, now_ns: u64) {
        let most = self.workers.map_or(self.most, |count| count.clamp(self.least, self.most));
        self.useful.set_bounds(self.least, most, now_ns);
    }

    /// Samples what is under way in this process, and in others.
    pub fn under_way(&mut self, in_flight: u32, others: u32, now_ns: u64) {
        self.has_others = others > 0;
        self.moved_ns = now_ns;
        self.useful.under_way(in_flight.saturating_sub(self.tunnels), now_ns);
    }

    /// Learns from a request that has ended after `took_ns`.
    pub fn ended(&mut self, took_ns: u64, outcome: AnswerQuality, now_ns: u64) {
        self.took_ns = took_ns;
        // the requests of other processes slow these down, but are not in this process's count
        if !self.has_others {
            self.useful.ended(took_ns, outcome, now_ns);
        }
    }

    /// Notes how many of the connections are tunnels.
    pub fn has_tunnels(&mut self, count: u32) {
        self.tunnels = count;
    }

    /// What was learnt, for reports.
    pub fn report(&self) -> LearntReport {
        LearntReport { useful: self.useful.report(), workers: self.workers, tunnels: self.tunnels }
    }
}
