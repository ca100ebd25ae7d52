//! The settings by which a policy is put in force.

use forebay_metrics::ClassSlot;
use forebay_policy::Policy;
use std::sync::Arc;

/// The settings of a policy.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// Classes and rules.
    pub policy: Arc<Policy>,
    /// The share of each class while others wait, too, by rank.
    pub shares: Arc<[f64]>,
    /// The ledger of each class, by rank.
    pub slots: Arc<[ClassSlot]>,
    /// Whether the agent may limit the classes.
    pub agent: bool,
}
