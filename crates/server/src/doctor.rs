//! `forebay doctor`: how much of the policy this machine can have enforced in its kernel, what is
//! missing for more, and what on it would get in the way.
//!
//! It changes nothing: the program for the kernel is loaded, if that is allowed, and let go again.

use crate::cgroups;
use crate::firewall;
use crate::gate::needs::{self, Need, has_all};
use forebay_config::{Config, FirewallMode, GateMode, Listen};
use forebay_sys::privileges;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::{fs, io};

/// Of rules of the firewall so many are shown.
const MOST_LINES: usize = 10;

/// How much of the policy a kernel can enforce. Each has all of those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rung {
    Off,
    Address,
    Full,
}

/// Everything, in lines for people. Of `config` the listeners and `gate` count.
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
    }
    text.push_str(&clients_in_firewall(config));
    text.push_str(&programs_in_groups(config));
    let ports = config.map_or_else(|| BTreeSet::from([80, 443]), ports);
    let mode = config.map(|config| config.gate);
    let warnings = warnings(&ports, mode.is_none_or(|mode| mode == GateMode::Full));
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

/// What comes of a setting on a machine with this rung.
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

/// What there is for the programs of a configuration that are run for requests.
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
    ports.collect()
}

/// What on this machine gets in its way, `is_full` if the kernel is to answer SYNs.
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
    let lines: Vec<String> = ["nft", "iptables-save", "ip6tables-save"]
        .into_iter()
        .filter_map(|program| ask(program).ok())
        .flat_map(|text| filter_rules(&text, ports))
        .collect();
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

/// What a program says of the firewall.
fn ask(program: &str) -> io::Result<String> {
    let mut command = Command::new(program);
    if program == "nft" {
        command.args(["list", "ruleset"]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The lines of a rule set, of nft or iptables, that are about what comes in at one of the ports.
fn filter_rules(text: &str, ports: &BTreeSet<u16>) -> Vec<String> {
    let (mut is_input, mut is_ours) = (false, false);
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim) {
        // a set that only a server of ours has; nft shows the sets of a table before its chains
        is_ours = (is_ours || line == "set alive {") && !line.starts_with("table ");
        if line.starts_with("chain ") {
            is_input = false;
        }
        // a policy stands in the same line
        is_input |= line.contains("hook input") || line.contains("hook prerouting");
        let is_about = line.starts_with("-A INPUT") || is_input && !is_ours;
        if is_about && names_port(line, ports) {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Whether a line names a port, a range or a list that holds one of `ports`.
fn names_port(line: &str, ports: &BTreeSet<u16>) -> bool {
    let Some((_, named)) = line.split_once("dport") else { return false };
    let named = named.trim_start_matches('s').trim_start_matches([' ', '{', '=', '!']);
    let mut words = named.split([' ', ',', '{', '}']).filter(|word| !word.is_empty());
    let holds = |word: &str| {
        let (first, last) = word.split_once(['-', ':']).unwrap_or((word, word));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        Some(ports.range(first.min(last)..=last).next().is_some())
    };
    // the first word that is no number ends the list
    words.by_ref().map_while(holds).any(|holds| holds)
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
    fn rules_of_the_firewall_about_our_ports_are_found() {
        let ports = BTreeSet::from([80, 8443]);
        let nft = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy \
                   drop;\n\t\ttcp dport { 22, 80 } accept\n\t\ttcp dport 8000-9000 drop\n\t\ttcp dport 22 \
                   accept\n\t\tct state invalid drop\n\t}\n\tchain output {\n\t\ttype filter hook output \
                   priority filter;\n\t\ttcp dport 80 drop\n\t}\n}\n";
        assert_eq!(
            filter_rules(nft, &ports),
            ["tcp dport { 22, 80 } accept", "tcp dport 8000-9000 drop"]
        );
        let ours = "table inet forebay {\n\tset alive {\n\t\ttype inet_proto\n\t}\n\n\tchain input {\n\t\ttype \
                    filter hook input priority filter - 10; policy accept;\n\t\tmeta l4proto @alive tcp \
                    dport 80 jump judge\n\t}\n}\n";
        assert_eq!(filter_rules(ours, &ports), [""; 0]);
        assert_eq!(filter_rules(&format!("{ours}{nft}"), &ports).len(), 2);
        let iptables = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 80 -j DROP\n-A INPUT -p \
                        tcp -m multiport --dports 22,8440:8450 -j DROP\n-A OUTPUT -p tcp --dport 80 -j DROP\n\
                        -A INPUT -p tcp --dport 8080 -j DROP\n";
        let found = filter_rules(iptables, &ports);
        assert_eq!(found.len(), 2, "{found:?}");
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
