//! Features of the kernel and its tools that the configuration needs and this machine lacks.

use super::LintSubject;
use crate::confinement::KernelLimits;
use crate::firewall;
use crate::gate::needs;
use forebay_config::path::Path as At;
use forebay_config::problem::Finding;
use forebay_config::{ConfigDraft, Confine, FirewallMode, GateMode, Remarks, Wrong};
use std::fmt;

/// A feature that the configuration wants and this machine lacks.
#[derive(Debug)]
enum MachineLack {
    /// The kernel cannot have the rules of the gate.
    Gate {
        /// The reason.
        why: String,
        /// Whether the server starts without it.
        is_optional: bool,
    },
    /// The kernel cannot enforce a setting of the sandbox on stages.
    Stages {
        /// The reason.
        why: &'static str,
        /// Whether the server starts without it.
        is_optional: bool,
    },
    /// This machine's firewall cannot be changed.
    Firewall {
        /// The reason.
        why: String,
        /// Whether the server starts without it.
        is_optional: bool,
    },
}

impl Finding for MachineLack {}

impl fmt::Display for MachineLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineLack::Gate { why, is_optional: true } => {
                write!(f, "the server judges alone on this machine: {why}")
            }
            MachineLack::Gate { why, is_optional: false } => {
                write!(f, "the server would not start on this machine: {why}")
            }
            MachineLack::Stages { why, is_optional: true } => {
                write!(f, "stages would be less confined on this machine: {why}")
            }
            MachineLack::Stages { why, is_optional: false } => {
                write!(f, "the server would not start on this machine: {why}")
            }
            MachineLack::Firewall { why, is_optional: true } => {
                write!(f, "on this machine the server alone would refuse clients: {why}")
            }
            MachineLack::Firewall { why, is_optional: false } => {
                write!(f, "the server would not start on this machine: {why}")
            }
        }
    }
}

/// Finds missing features of the kernel by which stages are confined.
pub(super) fn stages(of: &LintSubject<'_>, remarks: &mut Remarks) {
    if of.draft.is_isolated() {
        stages_on(of.draft, KernelLimits::of_this_kernel(), remarks);
    }
}

/// The remarks of `stages` for a kernel with these limits.
fn stages_on(draft: &ConfigDraft, limits: KernelLimits, remarks: &mut Remarks) {
    let sandbox = &draft.process.sandbox;
    let settings = [
        ("landlock", sandbox.landlock, limits.files),
        ("seccomp", sandbox.seccomp, limits.processes),
    ];
    let mut note = |key, why, is_optional| {
        let lack = MachineLack::Stages { why, is_optional };
        remarks.push((At::default().child("sandbox").child(key), Wrong::said(lack)));
    };
    for (key, setting, lack) in settings {
        if let Some(why) = lack.filter(|_| setting != Confine::Off) {
            note(key, why, setting == Confine::Auto);
        }
    }
    // a Landlock that knows files alone is enough for a start, whatever the setting
    if let Some(why) = limits.of_older_landlock().filter(|_| sandbox.landlock != Confine::Off) {
        note("landlock", why, true);
    }
}

/// Finds what the gate lacks on this machine.
pub(super) fn gate(of: &LintSubject<'_>, remarks: &mut Remarks) {
    if of.draft.process.gate != GateMode::Off {
        gate_on(of.draft, needs::lack(of.draft.process.gate), remarks);
    }
}

/// The remarks of `gate` for a machine that lacks this.
fn gate_on(draft: &ConfigDraft, lack: Option<String>, remarks: &mut Remarks) {
    if let Some(why) = lack {
        let is_optional = draft.process.gate == GateMode::Auto;
        remarks.push((
            At::default().child("gate"),
            Wrong::said(MachineLack::Gate { why, is_optional }),
        ));
    }
}

/// Finds what the firewall lacks on this machine.
pub(super) fn firewall(of: &LintSubject<'_>, remarks: &mut Remarks) {
    sets_on(of.draft, firewall::lack(), remarks);
    if of.draft.process.firewall.mode != FirewallMode::Off {
        firewall_on(of.draft, firewall::lack(), remarks);
    }
}

/// The remarks of `firewall` for a machine that lacks this.
fn firewall_on(draft: &ConfigDraft, lack: Option<String>, remarks: &mut Remarks) {
    if let Some(why) = lack {
        let is_optional = draft.process.firewall.mode == FirewallMode::Auto;
        let mode = At::default().child("firewall").child("mode");
        remarks.push((mode, Wrong::said(MachineLack::Firewall { why, is_optional })));
    }
}

/// The remarks about rules that name sets of the firewall, for a machine that lacks this.
fn sets_on(draft: &ConfigDraft, lack: Option<String>, remarks: &mut Remarks) {
    let at = At::default().child("rule");
    let mut rules = draft.rules.iter().enumerate();
    let first = rules.find(|(_, rule)| !rule.conditions.client_set.0.is_empty());
    if let Some(((index, _), why)) = first.zip(lack) {
        let at = at.item(index).child("client_set");
        remarks.push((at, Wrong::said(MachineLack::Firewall { why, is_optional: false })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::table::ConfigReader;

    #[test]
    fn a_kernel_that_confines_less_is_said_where_it_is_wanted() {
        let old = KernelLimits {
            files: Some("no Landlock"),
            processes: Some("no seccomp"),
            ..KernelLimits::of_this_kernel()
        };
        let said = |text: &str| {
            let draft = ConfigReader::new(text, "").draft();
            let mut remarks = Vec::new();
            stages_on(&draft, old, &mut remarks);
            let lines = remarks.into_iter().map(|(at, wrong)| format!("{}: {wrong}", at.shown));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(
            said("root = \"/\"\n[stages]\n[sandbox]\nlandlock = \"on\"\n"),
            [
                "sandbox.landlock: the server would not start on this machine: no Landlock",
                "sandbox.seccomp: stages would be less confined on this machine: no seccomp",
            ]
        );
        let off = "root = \"/\"\n[stages]\n[sandbox]\nlandlock = \"off\"\nseccomp = \"off\"\n";
        assert_eq!(said(off).len(), 0);
    }

    #[test]
    fn what_this_machine_lacks_is_said() {
        let said = |text: &str, look: fn(&ConfigDraft, Option<String>, &mut Remarks)| {
            let draft = ConfigReader::new(text, "").draft();
            let mut remarks = Vec::new();
            look(&draft, Some("old".to_owned()), &mut remarks);
            look(&draft, None, &mut remarks);
            let lines = remarks.into_iter().map(|(at, wrong)| format!("{}: {wrong}", at.shown));
            lines.collect::<Vec<_>>()
        };
        for (mode, expected) in [
            ("auto", "gate: the server judges alone on this machine: old"),
            ("address", "gate: the server would not start on this machine: old"),
        ] {
            assert_eq!(said(&format!("gate = \"{mode}\"\n"), gate_on), [expected]);
        }
        for (mode, expected) in [
            ("auto", "firewall.mode: on this machine the server alone would refuse clients: old"),
            ("nftables", "firewall.mode: the server would not start on this machine: old"),
        ] {
            assert_eq!(said(&format!("[firewall]\nmode = \"{mode}\"\n"), firewall_on), [expected]);
        }
        let expected = "rule.client_set: the server would not start on this machine: old";
        let rule = "[[rule]]\nclient_set = \"ip t s\"\naction = \"drop\"\n";
        assert_eq!(said(rule, sets_on), [expected]);
    }
}
