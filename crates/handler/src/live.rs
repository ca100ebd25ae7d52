//! What handlers serve from: one snapshot, replaced as a whole by a reload.
//!
//! In: a new snapshot from a reload. Out: each handler takes it over at its next request,
//! so that a connection that is open sees the new sites from its next request on.

use crate::applications::Applications;
use crate::certificates::Certificates;
use crate::client::TrustedProxies;
use crate::kernel_answers::learner::Learner;
use crate::log::Logs;
use crate::policy::InForce;
use crate::refusals::RefusalMemory;
use crate::sightings::Sightings;
use crate::traces::Tracing;
use forebay_control::versioned::Versioned;
use forebay_policy::bans::BanTable;
use forebay_site::Content;
use std::sync::Arc;

/// Everything a handler needs that a configuration decides.
pub struct ServingSnapshot {
    /// What is served.
    pub content: Arc<Content>,
    /// Where it is logged.
    pub logs: Arc<Logs>,
    /// Whose word about clients counts.
    pub trusted: Arc<TrustedProxies>,
    /// The server's identities, where TLS is spoken.
    pub certificates: Arc<Certificates>,
    /// The applications behind the sites.
    pub applications: Arc<Applications>,
    /// Which requests are served, and in which order.
    pub policy: Arc<InForce>,
    /// Whom an operator keeps out; `None` if that is nobody.
    pub bans: Option<Arc<BanTable>>,
    /// What was refused of late.
    pub refusals: Arc<RefusalMemory>,
    /// Who asks most, where a page shows that.
    pub sightings: Arc<Sightings>,
    /// What the kernel learns to answer; `None` where it gives no answers.
    pub answers: Option<Arc<Learner>>,
    /// Which requests are recorded, and where their spans go.
    pub traces: Arc<Tracing>,
}

/// The snapshot in force.
pub type LiveSnapshot = Versioned<Arc<ServingSnapshot>>;
