//! The settings of a link.

use super::flight::MOST_COPIES;
use crate::settings::Balance;
use std::time::Duration;

/// How long an acknowledgement is held back.
const HELD_BACK: Duration = Duration::from_millis(25);

/// How the instance for a request is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstanceChoice {
    /// The instances in turn.
    RoundRobin,
    /// The one with the fewest requests under way.
    #[default]
    Least,
    /// The one with fewer requests under way, of two that are drawn.
    TwoChoices,
    /// The one with the fewest, where those whose answers have waited longer count more.
    Feedback,
    /// The same instance for the same key, unless that has far more than its share.
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

/// The settings of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// How the instance for a request is chosen.
    pub choice: InstanceChoice,
    /// Whether instances acknowledge requests. Those of other software do not; then a failed ping, or
    /// the end of the connection, shows that a request gets no answer.
    pub acknowledges: bool,
    /// Whether the end of a request that must not run twice can be withheld until its
    /// acknowledgement. Until then it is certain that nothing has run, for no instance runs an
    /// incomplete request.
    pub withholds: bool,
    /// The time that an acknowledgement may always take.
    pub floor: Duration,
    /// The longest time that it may take. A request that could go to no other instance may always
    /// take this.
    pub ceiling: Duration,
    /// How often an idle instance is pinged.
    pub idle: Duration,
    /// How long an instance that has failed is first left alone.
    pub back_off: Duration,
    /// The largest number of copies of one request.
    pub copies: u8,
    /// How many copies may be sent for a thousand requests, besides those after losses.
    pub permille: u32,
    /// After how long without an instance a request is given up.
    pub patience: Duration,
    /// How many of the instances, the last ones, are asked only while none of the others is well.
    pub backups: usize,
    /// Whether a supervisor reports how processes [end](super::Link::ended). Without it, each
    /// connection that ends with a request on it counts as a process that ended by itself.
    pub is_watched: bool,
}

impl LinkSettings {
    /// How long an acknowledgement may be held back, as TCP does (RFC 9293 §3.8.6.3): mostly the head
    /// of the answer comes before, and acknowledges as well. `None` where the timer leaves no time
    /// for that.
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
