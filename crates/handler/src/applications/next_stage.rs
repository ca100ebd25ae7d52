//! The next stage that this process asks, if it is a stage.

use forebay_config::Role;
use forebay_upstream::application::Application;
use std::sync::Arc;

/// This process as a stage, and the next one.
#[derive(Clone, Debug)]
pub struct NextStage {
    /// The part that this process has itself.
    pub role: Role,
    /// The instances of the next stage; `None` in the last stage.
    pub stage: Option<Arc<Application>>,
    /// Whether the next stage is other software, which knows none of our rules.
    pub is_other: bool,
    /// Whether idempotent requests may be sent again, by site.
    pub repeats: Arc<[bool]>,
    /// Version and configuration of this process, as its answers to pings state them.
    pub configuration: Arc<str>,
}

impl NextStage {
    /// Whether idempotent requests for a site may be sent again.
    pub fn repeats_idempotent(&self, site: Option<u32>) -> bool {
        site.and_then(|site| self.repeats.get(site as usize)).is_some_and(|repeats| *repeats)
    }
}
