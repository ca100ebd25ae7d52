//! What stages are told: `[isolated]`, or `[stages]`, which is the same table and asks for stages whatever the engine of
//! who accepts.

use crate::problems::problem::Wrong;
use crate::problems::quoted::quote;
use crate::sections::upstreams::{self, HttpAddress};
use crate::values::choice::{Keyword, Switch};
use crate::values::per_stage::PerStage;
use crate::values::units::Size;
use crate::values::value::Written;
use crate::{Config, Role};
use forebay_engine::Engine;
use forebay_upstream::link::{InstanceChoice, LinkSettings};
use forebay_upstream::settings::{HttpUpstream, UpstreamAddress};
use std::path::PathBuf;
use std::time::Duration;

/// Other software in the place of a stage: an address like that of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageAddress(pub UpstreamAddress);

impl Written for StageAddress {
    const EXPECTED: &'static str = HttpAddress::EXPECTED;
    fn read(text: &str) -> Result<StageAddress, Wrong> {
        HttpAddress::read(text)?;
        let address = UpstreamAddress::http(text);
        address
            .map(StageAddress)
            .map_err(|error| Wrong::Unfit { found: quote(text), reason: error.to_string() })
    }
    fn text(&self) -> String {
        HttpAddress(HttpUpstream { address: self.0.clone(), is_tls: false }).text()
    }
    fn guess(text: &str) -> Option<String> {
        HttpAddress::guess(text)
    }
}

/// What only stages are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Isolated {
    /// It was called `[stages]`: there are stages whatever the engine.
    pub is_asked: bool,
    /// `isolated.process`
    pub process: u64,
    /// `isolated.respond`
    pub respond: u64,
    /// `isolated.process_at`
    pub process_at: Vec<StageAddress>,
    /// `isolated.respond_at`
    pub respond_at: Vec<StageAddress>,
    /// `isolated.http2`
    pub http2: Switch,
    /// `isolated.balance`
    pub balance: InstanceChoice,
    /// `isolated.acknowledge_floor`
    pub floor: Duration,
    /// `isolated.acknowledge_ceiling`
    pub ceiling: Duration,
    /// `isolated.ping`
    pub ping: Duration,
    /// `isolated.back_off`
    pub back_off: Duration,
    /// `isolated.cpu_weight`
    pub cpu_weight: PerStage<u64>,
    /// `isolated.memory_high`
    pub memory_high: PerStage<Size>,
    /// `isolated.memory_max`
    pub memory_max: PerStage<Size>,
    /// `isolated.tasks_max`
    pub tasks_max: PerStage<u64>,
}

impl Isolated {
    /// How many processes there are for a stage.
    pub fn instances(&self, role: Role) -> u64 {
        match role {
            Role::Receive => 1,
            _ if !self.others(role).is_empty() => 0,
            Role::Process => self.process,
            // whom other software asks is its own affair
            Role::Respond if !self.process_at.is_empty() => 0,
            Role::Respond => self.respond,
        }
    }

    /// The other software that does its part.
    pub fn others(&self, role: Role) -> &[StageAddress] {
        match role {
            Role::Receive => &[],
            Role::Process => &self.process_at,
            Role::Respond => &self.respond_at,
        }
    }

    /// Whether instances are asked over HTTP/2: our own are, if that is wanted.
    pub fn is_http2(&self, is_own: bool) -> bool {
        is_own && self.http2 == Switch::On
    }

    /// Whether the answers come from other software: what asks it decides whom, too.
    pub fn is_answered_elsewhere(&self) -> bool {
        !(self.process_at.is_empty() && self.respond_at.is_empty())
    }

    /// What a link keeps to, whose instances are our own or others.
    pub fn link(&self, is_own: bool) -> LinkSettings {
        LinkSettings {
            choice: self.balance,
            acknowledges: is_own,
            withholds: self.is_http2(is_own),
            floor: self.floor,
            ceiling: self.ceiling.max(self.floor),
            idle: self.ping,
            back_off: self.back_off,
            ..LinkSettings::default()
        }
    }
}

impl Config {
    /// Whether requests are decided and answered by stages.
    pub fn has_stages(&self) -> bool {
        self.isolated.is_asked || self.listeners.iter().any(|one| one.engine == Engine::Isolated)
    }

    /// Whether other software answers in the place of a stage.
    pub fn is_answered_elsewhere(&self) -> bool {
        self.has_stages() && self.isolated.is_answered_elsewhere()
    }
}

impl Isolated {
    /// Relative paths begin in this directory.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        let lists = self.process_at.iter_mut().chain(&mut self.respond_at);
        lists.for_each(|to| upstreams::rebase(&mut to.0, join));
    }
}

impl Keyword for InstanceChoice {
    const EXPECTED: &'static str =
        "\"round-robin\", \"least\", \"two-choices\", \"feedback\" or \"hash\"";
    const WORDS: &'static [&'static str] =
        &["round-robin", "least", "two-choices", "feedback", "hash"];
    const MEANINGS: &'static [InstanceChoice] = &[
        InstanceChoice::RoundRobin,
        InstanceChoice::Least,
        InstanceChoice::TwoChoices,
        InstanceChoice::Feedback,
        InstanceChoice::Hash,
    ];
}
