//! Checks of requests that are handed over with their sockets: where that is impossible, and which rules do
//! not hold then.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::{RuleConfig, SiteConfig};
use forebay_site::rules::Scope;
use std::fmt;

/// A fault of `[[hand_over]]`, or a remark about it.
#[derive(Debug)]
enum HandOverFinding {
    /// A client may come through TLS, whose keys only this server has.
    Sealed {
        /// The address that speaks TLS.
        at: String,
    },
    /// Stages are other processes, which have no client's socket.
    InStages,
    /// A receiver would believe fields that clients set themselves.
    GivesFields {
        /// The name of one of the fields.
        field: String,
    },
    /// The connection is given away for good, and some settings no longer hold for it.
    HoldNoLonger {
        /// The settings.
        what: Vec<String>,
    },
}

impl Finding for HandOverFinding {}

impl fmt::Display for HandOverFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandOverFinding::Sealed { at } => write!(
                f,
                "clients come through TLS to {at}, and their sockets are of no use to another process, which has not \
                 the keys; relay = true passes such requests on, or a [[proxy]] to the same program answers them"
            ),
            HandOverFinding::InStages => {
                f.write_str("not with stages: the process that decides has no socket of a client")
            }
            HandOverFinding::GivesFields { field } => write!(
                f,
                "it reads what clients send, and [[forward_auth]] of this site is to set {field}: a client could \
                 send that itself; a [[proxy]] is told the right one"
            ),
            HandOverFinding::HoldNoLonger { what } => write!(
                f,
                "the connection is given away, and nothing that follows on it is seen here: then no longer hold {}",
                what.join(", ")
            ),
        }
    }
}

impl ConfigDraft {
    /// Checks that no request is handed over whose socket would be useless to a receiver.
    pub(crate) fn check_handed(&self, wrong: &mut Vec<(At, Wrong)>) {
        let listeners = self.all_listeners();
        let mut ends = listeners.iter().flat_map(|(_, listener)| &listener.listen);
        let sealed = ends.find(|end| end.tls);
        for (at, site) in self.every_site() {
            for (index, one) in site.hand_overs.iter().enumerate() {
                let at = at.child("hand_over").item(index);
                if let Some(end) = sealed.filter(|_| !one.relays()) {
                    let at_end = end.to_string();
                    let found = HandOverFinding::Sealed { at: at_end };
                    wrong.push((at.clone(), Wrong::said(found)));
                }
                if self.is_isolated() {
                    wrong.push((at, Wrong::said(HandOverFinding::InStages)));
                }
            }
        }
    }

    /// Remarks on settings that no longer hold for connections that are given away, and on fields that a
    /// receiver must not believe.
    pub(crate) fn remark_handed(&self, remarks: &mut Remarks) {
        for (at, site) in self.every_site() {
            for (index, one) in site.hand_overs.iter().enumerate() {
                let (path, at) = (one.path(), at.child("hand_over").item(index));
                let meets = |other: &Scope| other.covers(&path) || path.covers(other);
                let mut asks = site.authorities.iter().filter(|one| meets(&one.paths().path));
                if let Some(field) = asks.find_map(|one| one.copy().first()) {
                    let field = field.to_string();
                    let found = HandOverFinding::GivesFields { field };
                    remarks.push((at, Wrong::said(found)));
                }
            }
            let kept = site.hand_overs.iter().enumerate().filter(|(_, one)| one.keeps());
            for (index, _) in kept {
                let at = at.child("hand_over").item(index).child("keep");
                let what = self.lost_for(site);
                remarks.push((at, Wrong::said(HandOverFinding::HoldNoLonger { what })));
            }
        }
    }

    fn lost_for(&self, site: &SiteConfig) -> Vec<String> {
        let rules = RuleConfig::placed(&self.rules);
        let rules = rules.map(|(place, rule)| format!("[[rule]] {:?}", rule.name(place)));
        let lists = [
            ("[[access]]", site.access.len()),
            ("[[auth]]", site.auth.len()),
            ("[[forward_auth]]", site.authorities.len()),
            ("[[redirect]]", site.redirects.len()),
            ("[[rewrite]]", site.rewrites.len()),
            ("[[header]]", site.headers.len()),
        ];
        let lists = lists.into_iter().filter(|(_, count)| *count > 0);
        let limits = "limits, timeouts, keep_alive, bans and the log";
        rules
            .chain(lists.map(|(list, count)| format!("{list} ({count})")))
            .chain([limits.to_owned()])
            .collect()
    }
}
