//! What a link keeps to.

use super::flight::MOST_COPIES;
use crate::settings::Balance;
use std::time::Duration;

/// An acknowledgement that is held back waits for so long.
const HELD_BACK: Duration = Duration::from_millis(25);

/// Which instance a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstanceChoice {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests under way.
    #[default]
    Least,
    /// Of two that are drawn, the one with fewer.
    TwoChoices,
    /// The one with the fewest, those counting more whose answers have waited longer.
    Feedback,
    /// The same for the same key, unless it has far more than its share.
    Hash,
}

impl InstanceChoice {
    pub(super) fn balance(self) -> Balance {
        match self {
            InstanceChoice::RoundRobin => Balance::RoundRobin,
            InstanceChoice::Least | InstanceChoice::Feedback => Balance::Least,
            InstanceChoice::TwoChoices => Balance::TwoChoices,
            InstanceChoice::Hash => Balance::Hash,
        }
    }
}

/// What a link keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// Which instance is asked.
    pub choice: InstanceChoice,
    /// Whether instances acknowledge requests. Those of other software do not: that a request gets no
    /// answer shows when its connection ends, or when a ping has none.
    pub acknowledges: bool,
    /// Whether the end of a request that may not run twice can be withheld until its acknowledgement: until then
    /// it is certain that nothing has run. No instance runs a request of which something is missing.
    pub withholds: bool,
    /// An acknowledgement may always take so long.
    pub floor: Duration,
    /// And never longer. A request that could go to no other has all of it.
    pub ceiling: Duration,
    /// An idle instance is pinged so often.
    pub idle: Duration,
    /// One that has failed is left alone for so long at first.
    pub back_off: Duration,
    /// One request is written so often at most.
    pub copies: u8,
    /// How many copies may be sent for a thousand requests, besides those of losses.
    pub permille: u32,
    /// A request that no instance takes for so long is given up.
    pub patience: Duration,
    /// How many of the instances, the last, are asked only while none of the others is well.
    pub backups: usize,
    /// Whether a supervisor tells how processes [end](super::Link::ended). Else each connection that ends with a
    /// request on it stands for a process that ended by itself.
    pub is_watched: bool,
}

impl LinkSettings {
    /// How long an acknowledgement may be held back, as TCP does (RFC 9293 §3.8.6.3): mostly the head of the
    /// answer comes before, and acknowledges as well. `None` where the timer leaves no time for that.
    pub fn held_back(&self) -> Option<Duration> {
        (self.floor >= 4 * HELD_BACK).then_some(HELD_BACK)
    }
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            choice: InstanceChoice::default(),
            acknowledges: true,
            withholds: false,
            floor: Duration::from_millis(200),
            ceiling: Duration::from_secs(2),
            idle: Duration::from_secs(5),
            back_off: Duration::from_millis(500),
            copies: MOST_COPIES,
            permille: 200,
            patience: Duration::from_secs(10),
            backups: 0,
            is_watched: false,
        }
    }
}
