//! Remarks on spans of requests: settings that mean nothing without a collector, and spans that do not
//! arrive, or not privately.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Remarks, Wrong};
use crate::reading::draft::ConfigDraft;
use crate::table::ConfigReader;
use std::fmt;

/// A remark about spans.
#[derive(Debug)]
enum TracesFinding {
    /// The spans cross a network in clear.
    InClear,
    /// The collector has a name, and the process that sends spans may look none up.
    SealedName,
}

impl Finding for TracesFinding {}

impl fmt::Display for TracesFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TracesFinding::InClear => {
                "spans go there in clear, with paths and the addresses of clients; keep the way there private, \
                 or run a collector on this machine, which sends them on through TLS"
            }
            TracesFinding::SealedName => {
                "with isolated the processes of process look no name up, so their spans are lost: write an \
                 address, or a Unix socket"
            }
        })
    }
}

impl ConfigDraft {
    /// Remarks on settings of `traces` that have no effect, or not the one that is probably meant.
    pub(crate) fn remark_traces(&self, text: &ConfigReader<'_>, remarks: &mut Remarks) {
        let traces = At::default().child("traces");
        let Some(to) = &self.process.traces.to else {
            for key in ["rate", "parent", "service"] {
                if text.says(&traces.child(key)) {
                    remarks.push((traces.child(key), Wrong::Idle { needs: "traces.to" }));
                }
            }
            return;
        };
        if self.process.trusted_proxies.is_empty() && text.says(&traces.child("parent")) {
            remarks.push((traces.child("parent"), Wrong::Idle { needs: "trusted_proxies" }));
        }
        if to.is_far() {
            remarks.push((traces.child("to"), Wrong::said(TracesFinding::InClear)));
        }
        if to.is_name() && self.is_isolated() {
            remarks.push((traces.child("to"), Wrong::said(TracesFinding::SealedName)));
        }
    }
}
