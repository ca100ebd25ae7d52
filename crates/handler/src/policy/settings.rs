//! What of a plan is to be in force of classes and rules.

use forebay_metrics::ClassSlot;
use forebay_policy::Policy;
use std::sync::Arc;

/// What is to be in force.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// Classes and rules.
    pub policy: Arc<Policy>,
    /// What each class gets while others wait, too, by rank.
    pub shares: Arc<[f64]>,
    /// The ledger of each class, by rank.
    pub slots: Arc<[ClassSlot]>,
    /// Whether the agent may limit the classes.
    pub agent: bool,
}
