//! Checks of settings that mean nothing with stages, or that stages do not support yet.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::table::ConfigReader;
use crate::{ListenerConfig, Member, Role};
use forebay_engine::Engine;
use forebay_upstream::settings::ConnectionAuth;
use forebay_upstream::stage::ADDED_BYTES;
use std::fmt;

/// A fault beside stages, or a remark.
#[derive(Debug)]
enum IsolatedFinding {
    /// The setting cannot be used with stages.
    Cannot {
        /// The reason.
        what: &'static str,
    },
    /// No stage uses the setting.
    Idle {
        /// The reason.
        what: &'static str,
    },
}

impl Finding for IsolatedFinding {}

impl fmt::Display for IsolatedFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsolatedFinding::Cannot { what } => write!(f, "not with stages: {what}"),
            IsolatedFinding::Idle { what } => {
                write!(f, "means nothing with stages: {what}")
            }
        }
    }
}

/// The settings that the keys of stages need.
pub(crate) const STAGES: &str = "engine = \"isolated\" or [stages]";

/// Most bytes of a head that a loop has room for.
const MOST_HEAD_BYTES: u64 = 64 * 1024;

/// Members of JSON lines that the process that writes the log does not know.
const NOT_IN_RECEIVE: [Member; 9] = [
    Member::User,
    Member::Upstream,
    Member::UpstreamStatus,
    Member::UpstreamError,
    Member::UpstreamAttempts,
    Member::UpstreamQueueUs,
    Member::UpstreamConnectUs,
    Member::UpstreamHeadUs,
    Member::UpstreamUs,
];

/// Settings of the process that respond uses.
const OF_RESPOND: [&str; 4] =
    ["cache.bytes", "cache.file_bytes", "cache.open_files", "cache.check_interval"];

/// Settings of a site that respond uses.
const OF_SITE: [&str; 14] = [
    "links",
    "index",
    "try_files",
    "try_files_except",
    "hidden",
    "listing",
    "appended",
    "precompressed",
    "compress",
    "compress_bytes",
    "etag",
    "types",
    "cache_control",
    "errors",
];

impl ConfigDraft {
    /// Remarks on settings that mean nothing in stages, or only in stages.
    pub(crate) fn remark_isolated(&self, text: &ConfigReader<'_>, remarks: &mut Vec<(At, Wrong)>) {
        let sites = self.every_site();
        if !self.is_isolated() {
            let said = sites.iter().map(|(at, _)| at.child("repeat_idempotent"));
            let needs = STAGES;
            let idle = said.filter(|at| text.says(at)).map(|at| (at, Wrong::Idle { needs }));
            return remarks.extend(idle);
        }
        let mut remark =
            |at: At, what| remarks.push((at, Wrong::said(IsolatedFinding::Idle { what })));
        for (at, site) in &sites {
            let at = at.child("log").child("fields");
            let is_lost = |member: &Member| site.log.fields.contains(member);
            if text.says(&at) && NOT_IN_RECEIVE.iter().any(is_lost) {
                let what = "receive writes the log, and does not know user and upstream";
                remark(at, what);
            }
        }
        for (at, site) in &sites {
            for (index, proxy) in site.proxies.iter().enumerate() {
                let at = at.child("proxy").item(index).child("connection_auth");
                if proxy.connection_auth() == ConnectionAuth::Bind && text.says(&at) {
                    let what = "stages share their connections, so it is as with \"refuse\"";
                    remark(at, what);
                }
            }
        }
        let isolated = &self.process.isolated;
        for role in Role::ALL {
            let at = |key: &str| At::default().child("isolated").child(key).child(role.name());
            let limits = [
                ("cpu_weight", isolated.cpu_weight.of(role).is_some()),
                ("memory_high", isolated.memory_high.of(role).is_some()),
                ("memory_max", isolated.memory_max.of(role).is_some()),
                ("tasks_max", isolated.tasks_max.of(role).is_some()),
            ];
            let is_elsewhere = match role {
                Role::Receive => false,
                Role::Process => !isolated.process_at.is_empty(),
                // there is none either where process is elsewhere, which brings its own respond
                Role::Respond => isolated.instances(role) == 0,
            };
            let what = match isolated.is_answered_elsewhere() {
                true => "this stage is other software, which is not started here",
                false => "this stage is on other machines, and not started here",
            };
            for (key, _) in limits.iter().filter(|(_, is_said)| is_elsewhere && *is_said) {
                remark(at(key), what);
            }
        }
        if !isolated.is_answered_elsewhere() {
            return;
        }
        let theirs = "where other software answers, this is its to do";
        let of_top = OF_RESPOND.iter().map(|key| At::default().child(key));
        let of_sites = sites.iter().flat_map(|(at, _)| OF_SITE.iter().map(|key| at.child(key)));
        for at in of_top.chain(of_sites).filter(|at| text.says(at)) {
            remark(at, theirs);
        }
        for (at, site) in &sites {
            let counts = [
                ("alias", site.aliases.len()),
                ("rewrite", site.rewrites.len()),
                ("header", site.headers.len()),
                ("work", site.work.len()),
            ];
            for (list, _) in counts.iter().filter(|(_, count)| *count > 0) {
                remark(at.child(list).item(0), theirs);
            }
        }
    }

    /// Checks that no setting stands beside stages that they do not support.
    pub(crate) fn check_isolated(&self, wrong: &mut Vec<(At, Wrong)>) {
        let listeners = self.all_listeners();
        if !self.is_isolated() {
            return;
        }
        let top = At::default();
        let mut refuse = |at: At, what: &'static str| {
            wrong.push((at, Wrong::said(IsolatedFinding::Cannot { what })))
        };
        let is_other = |listener: &ListenerConfig| listener.engine != Engine::Isolated;
        let has_asked = self.process.isolated.is_asked;
        for (at, _) in listeners.iter().filter(|(_, one)| !has_asked && is_other(one)) {
            let what = "all listeners have engine = \"isolated\" or none: receive accepts for all; with [stages] each has \
                        the engine that it wants";
            refuse(at.child("engine"), what);
        }
        let process = &self.process;
        if process.limits.head_bytes.0 + ADDED_BYTES as u64 > MOST_HEAD_BYTES {
            let what = "at most 63KiB, because stages add fields of their own";
            refuse(top.child("limits").child("head_bytes"), what);
        }
        for (at, rule) in numbered("rule", &self.rules) {
            if !rule.conditions.client_set.0.is_empty() {
                refuse(at.child("client_set"), "sets of the firewall are not read yet");
            }
        }
        let isolated = &process.isolated;
        let decides_itself = !isolated.is_foreign(Role::Process);
        for (path, site) in self.every_site().into_iter().filter(|_| !decides_itself) {
            let rules = [
                ("access", site.access.len()),
                ("auth", site.auth.len()),
                ("redirect", site.redirects.len()),
            ];
            for (list, _) in rules.iter().filter(|(_, count)| *count > 0) {
                let what = "where process is other software, no stage looks at this";
                refuse(path.child(list).item(0), what);
            }
        }
        for (path, site) in self.all_sites() {
            for (index, _) in site
                .auth
                .iter()
                .enumerate()
                .filter(|(_, auth)| auth.file.is_some() && isolated.is_answered_elsewhere())
            {
                let what =
                    "write them as users: where other software answers, no stage reads this file";
                refuse(path.child("auth").item(index).child("file"), what);
            }
            let counts = [
                ("proxy", site.proxies.len()),
                ("fastcgi", site.fastcgi.len()),
                ("cgi", site.cgi.len()),
                ("forward_auth", site.authorities.len()),
            ];
            for (list, count) in counts.into_iter().filter(|_| isolated.is_answered_elsewhere()) {
                // the first of a list is enough: all of them are refused for the same reason
                (0..count.min(1)).for_each(|index| {
                    let what = "where other software answers, no stage asks others";
                    refuse(path.child(list).item(index), what);
                });
            }
        }
    }
}
