//! `forebay doctor`: how much of the policy this machine's kernel can enforce, what is missing for
//! more, what on the machine would get in the way, and how stages are confined.
//!
//! The command changes nothing: the program for the kernel is loaded, if that is allowed, and
//! released again.

use crate::cgroups;
use crate::confinement;
use crate::firewall::{self, rules};
use crate::gate::needs::{self, Need, has_all};
use crate::gate::redirected;
use crate::plan;
use forebay_config::answers;
use forebay_config::{Config, FirewallMode, GateMode, Listen, ProtectConfig};
use forebay_sys::privileges;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

/// The largest number of firewall rules that are shown.
const MOST_LINES: usize = 10;

/// How much of the policy a kernel can enforce. Each rung includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rung {
    Off,
    Address,
    Full,
}

/// The whole report, in lines for people. It depends on the listeners and `gate` of `config`.
pub fn report(config: Option<&Config>) -> String {
    let needs = needs::needs();
    let more = if has_all(&needs) { needs::needs_for_full() } else { Vec::new() };
    let rung = match (has_all(&needs), has_all(&more)) {
        (false, _) => Rung::Off,
        (true, false) => Rung::Address,
        (true, true) => Rung::Full,
    };
    let mut text = String::new();
    let _ = writeln!(text, "rung: {}", rung.in_words());
    let mut say = |needs: &[Need]| {
        for (need, found) in needs {
            let (mark, found) = match found {
                Ok(found) => ("ok", found),
                Err(missing) => ("missing", missing),
            };
            let _ = writeln!(text, "  {mark:8}{need}: {found}");
        }
    };
    say(&needs);
    if rung >= Rung::Address {
        say(&more);
    }
    text.push_str(match rung {
        Rung::Off => "next rung: address, once nothing is missing above\n",
        Rung::Address => "next rung: full, once nothing is missing above\n",
        Rung::Full => "next rung: none\n",
    });
    if let Some(config) = config {
        let _ = writeln!(text, "gate = {}", mode_on(config.gate, rung));
        text.push_str(&answers_on(config));
    }
    text.push_str(&clients_in_firewall(config));
    text.push_str(&programs_in_groups(config));
    text.push_str(&confinement::report(config));
    let ports = config.map_or_else(|| BTreeSet::from([80, 443]), ports);
    let mode = config.map(|config| config.gate);
    let mut warnings = warnings(&ports, mode.is_none_or(|mode| mode == GateMode::Full));
    if let Some(config) = config.filter(|config| config.gate == GateMode::Full) {
        let protects: Vec<_> = config.protects.iter().map(plan::protected).collect();
        warnings.extend(redirected::found(&protects).iter().map(|rule| redirected::in_words(rule)));
    }
    if warnings.is_empty() {
        text.push_str("nothing on this machine gets in its way\n");
    }
    for warning in warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

impl Rung {
    fn in_words(self) -> &'static str {
        match self {
            Rung::Off => "off: the server alone enforces rules",
            Rung::Address => {
                "address: rules about addresses that refuse by reset or drop judge SYNs in the kernel"
            }
            Rung::Full => {
                "full: and the kernel can queue connections by the class of their first request"
            }
        }
    }
}

/// The effect of a setting of `gate` on a machine with this rung.
fn mode_on(mode: GateMode, rung: Rung) -> &'static str {
    match (mode, rung) {
        (GateMode::Off, _) => "off: the kernel is not asked",
        (GateMode::Auto, Rung::Off) => "auto: the server judges alone",
        (GateMode::Auto, Rung::Address) => "auto: the kernel judges SYNs",
        (GateMode::Auto, Rung::Full) => {
            "auto: the kernel judges SYNs; it queues by class only with \"full\""
        }
        (GateMode::Address, Rung::Off) => "address: the server does not start here",
        (GateMode::Address, _) => "address: the kernel judges SYNs",
        (GateMode::Full, Rung::Full) => "full: the kernel judges SYNs and queues by class",
        (GateMode::Full, _) => "full: the server does not start here",
    }
}

/// Whether the kernel would answer requests; empty unless the configuration asks for that.
fn answers_on(config: &Config) -> String {
    if !config.gate_answers {
        return String::new();
    }
    let why: Vec<_> = answers::of_process(config).iter().map(ToString::to_string).collect();
    match why.as_slice() {
        [] => "gate_answers = true: forebay answers says of a server that runs what is answered\n"
            .into(),
        why => format!("gate_answers = true: nothing is answered: {}\n", why.join("; ")),
    }
}

/// Whether the firewall can drop clients that the server ignores.
fn clients_in_firewall(config: Option<&Config>) -> String {
    let right = privileges::may_change_firewall();
    let found = match (firewall::helper::nft(), right) {
        (Some(nft), true) => format!("ok: {}, and CAP_NET_ADMIN", nft.display()),
        (Some(_), false) => "missing: CAP_NET_ADMIN; start it as root".to_owned(),
        (None, _) => format!("missing: {}", firewall::lack().unwrap_or_default()),
    };
    let mut text = format!("firewall for ignored clients: {found}\n");
    if let Some(config) = config {
        let is_able = found.starts_with("ok");
        let mode = match (config.firewall.mode, is_able) {
            (FirewallMode::Off, _) => "off: it is left alone",
            (FirewallMode::Auto, true) => "auto: it drops them",
            (FirewallMode::Auto, false) => "auto: the server alone refuses them",
            (FirewallMode::Nftables, true) => "nftables: it drops them",
            (FirewallMode::Nftables, false) => "nftables: the server does not start here",
        };
        let _ =
            writeln!(text, "firewall.mode = {mode}, in the table inet {}", config.firewall.table());
    }
    text
}

/// The control groups available for the programs that the configuration runs for requests.
fn programs_in_groups(config: Option<&Config>) -> String {
    let has_programs =
        config.is_some_and(|config| config.sites.iter().any(|site| !site.cgi.is_empty()));
    match has_programs {
        true => format!(
            "programs of [[cgi]]: {}; whether the server may make groups, forebay status says\n",
            cgroups::controllers_in_words()
        ),
        false => String::new(),
    }
}

fn ports(config: &Config) -> BTreeSet<u16> {
    let endpoints = config.listeners.iter().flat_map(|listener| &listener.listen);
    let ports = endpoints.filter_map(|endpoint| match &endpoint.listen {
        Listen::All(port) => Some(*port),
        Listen::At(address) => Some(address.port()),
        Listen::Unix(_) => None,
    });
    ports.chain(config.protects.iter().map(ProtectConfig::port)).collect()
}

/// Settings of this machine that get in the gate's way; `is_full` if the kernel will answer SYNs.
fn warnings(ports: &BTreeSet<u16>, is_full: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let says = |path: &str, value| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    if says("/proc/sys/net/ipv4/tcp_syncookies", "0") {
        warnings.push(
            "net.ipv4.tcp_syncookies = 0: once the queue for handshakes is full, SYNs that rules let \
             through are lost, and with gate = \"full\" the kernel queues nothing by class; set it to 1"
                .to_owned(),
        );
    }
    if is_full && says("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0") {
        warnings.push(
            "net.netfilter.nf_conntrack_tcp_loose = 0: connections that the firewall has not seen begin \
             are invalid to it. With gate = \"full\" it sees none begin, and a rule like \"ct state invalid \
             drop\" drops all of them; set it to 1, or use gate = \"address\""
                .to_owned(),
        );
    }
    let lines = rules::of_input(ports);
    if !lines.is_empty() {
        let answered = match is_full {
            true => {
                " With gate = \"full\" they see no SYN that the kernel answers: what a client sends \
                     first is its data, so a banned address gets a handshake and then no answer."
            }
            false => "",
        };
        warnings.push(format!(
            "the firewall has rules for what comes in at our ports. SYNs come to the gate before: what it \
             refuses never reaches them, and what they drop has been judged.{answered}\n    {}",
            lines.iter().take(MOST_LINES).map(String::as_str).collect::<Vec<_>>().join("\n    ")
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_said_for_each_rung() {
        let said = |rung| {
            [GateMode::Off, GateMode::Auto, GateMode::Address, GateMode::Full]
                .map(|mode| mode_on(mode, rung).ends_with("does not start here"))
        };
        assert_eq!(said(Rung::Off), [false, false, true, true]);
        assert_eq!(said(Rung::Address), [false, false, false, true]);
        assert_eq!(said(Rung::Full), [false; 4]);
    }

    #[test]
    fn the_report_says_on_which_rung_this_machine_is() {
        let text = report(None);
        assert!(text.starts_with("rung: "), "{text}");
        let is_missing = text.contains("\n  missing ");
        assert_eq!(!text.starts_with("rung: full"), is_missing, "{text}");
        assert_eq!(text.contains("next rung: none"), !is_missing, "{text}");
    }
}
