//! Settings of stages: `[isolated]`, or `[stages]`, which is the same table and asks for stages whatever
//! engine accepts the connections.

use crate::problems::problem::Wrong;
use crate::problems::quoted::quote;
use crate::sections::upstreams::{self, HttpAddress};
use crate::values::address::Listen;
use crate::values::choice::{Keyword, Switch};
use crate::values::per_stage::PerStage;
use crate::values::units::Size;
use crate::values::value::Written;
use crate::{Config, Role};
use forebay_engine::Engine;
use forebay_upstream::link::{InstanceChoice, LinkSettings};
use forebay_upstream::settings::{HttpUpstream, UpstreamAddress, UpstreamTlsSettings};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kind of software at an address of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageKind {
    /// Other software, which speaks HTTP/1.1: `http://`, `unix:`.
    Foreign,
    /// Our own stage on another machine, through TLS in which both sides show certificates: `tls://`.
    Sealed,
    /// Our own stage on another machine, in clear: `tcp://`.
    Clear,
}

/// The address of a stage that this server does not start: other software, or another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageAddress {
    /// The address.
    pub to: UpstreamAddress,
    /// The kind of software there.
    pub kind: StageKind,
}

impl StageAddress {
    const SCHEMES: [(&str, StageKind); 2] =
        [("tls://", StageKind::Sealed), ("tcp://", StageKind::Clear)];
}

impl Written for StageAddress {
    const EXPECTED: &'static str = "\"tls://10.0.0.2:9443\" for a stage of ours on another machine, or \
                                    \"http://127.0.0.1:9000\" or \"unix:/path\" for other software";
    fn read(text: &str) -> Result<StageAddress, Wrong> {
        let unfit = |reason: String| Wrong::Unfit { found: quote(text), reason };
        for (scheme, kind) in StageAddress::SCHEMES {
            let Some(authority) = text.strip_prefix(scheme) else { continue };
            let to = UpstreamAddress::host_and_port(authority);
            let to = to.map_err(|error| unfit(error.to_string()))?;
            return Ok(StageAddress { to, kind });
        }
        HttpAddress::read(text)?;
        let to = UpstreamAddress::http(text).map_err(|error| unfit(error.to_string()))?;
        Ok(StageAddress { to, kind: StageKind::Foreign })
    }
    fn text(&self) -> String {
        match StageAddress::SCHEMES.iter().find(|(_, kind)| *kind == self.kind) {
            Some((scheme, _)) => format!("{scheme}{}", self.to),
            None => HttpAddress(HttpUpstream { address: self.to.clone(), is_tls: false }).text(),
        }
    }
    fn guess(text: &str) -> Option<String> {
        HttpAddress::guess(text)
    }
}

/// Settings of stages alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Isolated {
    /// Whether the table was called `[stages]`: there are stages whatever the engine.
    pub is_asked: bool,
    /// `isolated.process`
    pub process: u64,
    /// `isolated.respond`
    pub respond: u64,
    /// `isolated.process_at`
    pub process_at: Vec<StageAddress>,
    /// `isolated.respond_at`
    pub respond_at: Vec<StageAddress>,
    /// `isolated.process_backup`
    pub process_backup: Vec<StageAddress>,
    /// `isolated.process_listen`
    pub process_listen: Vec<Listen>,
    /// `isolated.respond_listen`
    pub respond_listen: Vec<Listen>,
    /// `isolated.keys`
    pub keys: Option<PathBuf>,
    /// `isolated.unencrypted`
    pub unencrypted: bool,
    /// Whether no clients come here: the stages answer those of other machines.
    pub is_behind: bool,
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
    /// The number of processes of a stage.
    pub fn instances(&self, role: Role) -> u64 {
        let is_asked = match role {
            Role::Receive => return u64::from(!self.is_behind),
            Role::Process => !self.is_behind || !self.process_listen.is_empty(),
            // a process that is not started here brings its own respond
            Role::Respond => self.instances(Role::Process) > 0 || !self.respond_listen.is_empty(),
        };
        match role {
            _ if !is_asked || !self.elsewhere(role).is_empty() => 0,
            Role::Process => self.process,
            Role::Receive | Role::Respond => self.respond,
        }
    }

    /// The addresses of a stage that is not started here: other software, or other machines.
    pub fn elsewhere(&self, role: Role) -> &[StageAddress] {
        match role {
            Role::Receive => &[],
            Role::Process => &self.process_at,
            Role::Respond => &self.respond_at,
        }
    }

    /// Where a stage is asked on other machines while none of those here, or of those named first, is well.
    pub fn backups(&self, role: Role) -> &[StageAddress] {
        match role {
            Role::Process => &self.process_backup,
            Role::Receive | Role::Respond => &[],
        }
    }

    /// All stages on other machines that are asked in the place of `role`, backups last.
    pub fn asked(&self, role: Role) -> impl Iterator<Item = &StageAddress> {
        self.elsewhere(role).iter().chain(self.backups(role))
    }

    /// Whether other software does a stage's part: none of ours on another machine does.
    pub fn is_foreign(&self, role: Role) -> bool {
        self.elsewhere(role).iter().any(|one| one.kind == StageKind::Foreign)
    }

    /// The addresses at which other machines ask a stage.
    pub fn listen(&self, role: Role) -> &[Listen] {
        match role {
            Role::Receive => &[],
            Role::Process => &self.process_listen,
            Role::Respond => &self.respond_listen,
        }
    }

    /// Whether other machines ask stages of this one.
    pub fn listens(&self) -> bool {
        Role::ALL.into_iter().any(|role| !self.listen(role).is_empty())
    }

    /// Whether a stage shows its certificate: other machines ask it, or it asks them, through TLS.
    pub fn shows_keys(&self, role: Role) -> bool {
        let is_asked = !self.unencrypted && !self.listen(role).is_empty();
        let mut next = role.next().into_iter().flat_map(|next| self.asked(next));
        let asks = self.instances(role) > 0 && next.any(|one| one.kind == StageKind::Sealed);
        is_asked || asks
    }

    /// The files of a stage for TLS with other machines, in the directory of keys.
    pub fn key_files(&self, role: Role) -> Option<StageKeyFiles> {
        self.keys.as_deref().map(|directory| StageKeyFiles::within(directory, role))
    }

    /// The settings of TLS to the next stage on other machines; `None` if that is not spoken with through
    /// TLS.
    pub fn tls_to(&self, role: Role) -> Option<UpstreamTlsSettings> {
        let next = role.next()?;
        let is_sealed = self.asked(next).any(|one| one.kind == StageKind::Sealed);
        let files = self.key_files(role).filter(|_| is_sealed)?;
        Some(UpstreamTlsSettings {
            authorities: vec![files.authority],
            name: Some(stage_name(next).into()),
            shows: Some((files.certificate, files.key)),
            is_1_3: true,
            verifies: true,
        })
    }

    /// Whether instances are asked over HTTP/2: only our own, and only if that is configured.
    pub fn is_http2(&self, is_own: bool) -> bool {
        is_own && self.http2 == Switch::On
    }

    /// Whether the answers come from other software. One such stage is enough, because it also chooses the
    /// next stage.
    pub fn is_answered_elsewhere(&self) -> bool {
        Role::ALL.into_iter().any(|role| self.is_foreign(role))
    }

    /// The settings of a link to instances of our own, or to others.
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
    /// Whether stages decide about requests and answer them.
    pub fn has_stages(&self) -> bool {
        self.isolated.is_asked
            || self.isolated.listens()
            || self.listeners.iter().any(|one| one.engine == Engine::Isolated)
    }

    /// Whether addresses of stages have names that must be looked up.
    pub fn names_stages(&self) -> bool {
        let elsewhere = Role::ALL.into_iter().flat_map(|role| self.isolated.asked(role));
        self.has_stages() && elsewhere.into_iter().any(|one| one.to.is_looked_up())
    }

    /// Whether other software answers in the place of a stage.
    pub fn is_answered_elsewhere(&self) -> bool {
        self.has_stages() && self.isolated.is_answered_elsewhere()
    }
}

impl Isolated {
    /// Makes relative paths relative to the directory that `join` adds.
    pub(crate) fn rebase(&mut self, join: &impl Fn(&mut PathBuf)) {
        let lists = self.process_at.iter_mut().chain(&mut self.respond_at);
        let lists = lists.chain(&mut self.process_backup);
        lists.for_each(|one| upstreams::rebase(&mut one.to, join));
        self.keys.iter_mut().for_each(join);
    }
}

/// The files of one stage for TLS with other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageKeyFiles {
    /// The certificate of the authority that has signed the certificates of all stages.
    pub authority: PathBuf,
    /// The stage's own certificate.
    pub certificate: PathBuf,
    /// The stage's own key.
    pub key: PathBuf,
}

impl StageKeyFiles {
    /// The names of the files in a directory.
    pub fn within(directory: &Path, role: Role) -> StageKeyFiles {
        StageKeyFiles {
            authority: directory.join("ca.pem"),
            certificate: directory.join(format!("{role}.pem")),
            key: directory.join(format!("{role}.key")),
        }
    }
}

/// The name in the certificate of a stage, by which its peers know it, wherever it runs.
pub fn stage_name(role: Role) -> String {
    format!("{role}.forebay.internal")
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
