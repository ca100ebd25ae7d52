//! The snapshot that handlers serve from, replaced as a whole by a reload.
//!
//! In: a new snapshot from a reload. Out: each handler takes the snapshot over at its next request, so
//! that a connection that is open sees the new sites from its next request on.

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

/// Everything that a handler needs and a configuration decides.
pub struct ServingSnapshot {
    /// The content that is served.
    pub content: Arc<Content>,
    /// The access logs.
    pub logs: Arc<Logs>,
    /// The proxies whose statements about clients are trusted.
    pub trusted: Arc<TrustedProxies>,
    /// The server's certificates, where TLS is spoken.
    pub certificates: Arc<Certificates>,
    /// The applications behind the sites.
    pub applications: Arc<Applications>,
    /// The policy: which requests are served, and in which order.
    pub policy: Arc<InForce>,
    /// The clients that an operator bans; `None` if there are none.
    pub bans: Option<Arc<BanTable>>,
    /// The latest refusals.
    pub refusals: Arc<RefusalMemory>,
    /// The clients that ask most, where a page shows that.
    pub sightings: Arc<Sightings>,
    /// The answers that the kernel learns to give; `None` where it gives none.
    pub answers: Option<Arc<Learner>>,
    /// The tracing settings: which requests are recorded, and where their spans go.
    pub traces: Arc<Tracing>,
}

/// The snapshot in force.
pub type LiveSnapshot = Versioned<Arc<ServingSnapshot>>;
