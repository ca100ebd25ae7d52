//! Classes, rules and the agent's limits, as they are in force.
//!
//! In: the compiled policy of a plan. Out: a [`Judge`] for each loop or thread, which says for each
//! connection and request what becomes of it; shared numbers that an agent reads and sets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`facts`] | what the policy is told of a request |
//! | [`judge`] | one loop's view: facts in, a verdict out, entries in the ledger |
//! | [`window`] | how much unfinished work each class may have |

pub mod facts;
pub mod judge;
pub mod window;

pub use facts::Facts;
pub use judge::{Judge, Ticket};
pub use window::{Pass, Window};

use crate::plan::Plan;
use forebay_metrics::ClassSlot;
use forebay_policy::{Policy, State};
use forebay_sys::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The policy in force, and what is charged to it. Shared by all loops.
pub struct InForce {
    /// Classes and rules.
    pub policy: Arc<Policy>,
    /// How much of each limit is used. Kept through reloads by the names of rules and classes.
    pub state: State,
    /// The unfinished work of each class, by rank. Kept through reloads by the class's name.
    pub windows: Box<[Arc<Window>]>,
    /// The ledger of each class, by rank.
    pub slots: Arc<[ClassSlot]>,
    /// Rules with `when = "overload"` count.
    overload: AtomicBool,
}

impl InForce {
    /// Puts a plan's policy in force. What is charged to the one `before` stays charged.
    pub fn new(plan: &Plan, before: Option<&InForce>) -> InForce {
        let policy = Arc::clone(&plan.policy);
        let used = before.map(|before| &before.state);
        let state = State::new(Arc::clone(&policy), used, clock::monotonic_ns());
        let windows = policy.classes().iter().map(|class| {
            let known = before.and_then(|before| before.window(&class.name));
            known.map_or_else(Arc::default, Arc::clone)
        });
        let slots = Arc::clone(&plan.ranks.slots);
        let overload = AtomicBool::new(before.is_some_and(InForce::is_overload));
        InForce { windows: windows.collect(), slots, overload, state, policy }
    }

    /// Whether there is anything to judge by.
    pub fn is_empty(&self) -> bool {
        self.policy.rules().is_empty() && self.policy.classes().len() < 2
    }

    /// The window of the class with this name.
    fn window(&self, class: &str) -> Option<&Arc<Window>> {
        let rank = self.policy.classes().iter().position(|known| known.name == class)?;
        self.windows.get(rank)
    }

    /// Whether rules with `when = "overload"` count.
    #[inline]
    pub fn is_overload(&self) -> bool {
        self.overload.load(Relaxed)
    }

    /// From now on those rules count, or do not.
    pub fn set_overload(&self, overload: bool) {
        self.overload.store(overload, Relaxed);
    }
}
