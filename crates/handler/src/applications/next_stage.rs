//! Whom a process asks that is a stage.

use forebay_config::Role;
use forebay_upstream::application::Application;
use std::sync::Arc;

/// Whom a stage asks.
#[derive(Clone, Debug)]
pub struct NextStage {
    /// What the process does itself.
    pub role: Role,
    /// The instances that it asks; a last stage asks nobody.
    pub stage: Option<Arc<Application>>,
    /// Whether these are other software, which knows none of our rules.
    pub is_other: bool,
    /// Whether requests may be sent again that are idempotent, by site.
    pub repeats: Arc<[bool]>,
    /// Version and configuration of this process, as answers to pings say them.
    pub configuration: Arc<str>,
}

impl NextStage {
    /// Whether requests for a site may be sent again that are idempotent.
    pub fn repeats_idempotent(&self, site: Option<u32>) -> bool {
        site.and_then(|site| self.repeats.get(site as usize)).is_some_and(|repeats| *repeats)
    }
}
