//! Firewall rules of other programs: what `nft` and `iptables-save` print about ports.

use std::collections::BTreeSet;
use std::io;
use std::process::{Command, Stdio};

/// The programs that print rules, where they are installed and the process may ask them.
const PROGRAMS: [&str; 3] = ["nft", "iptables-save", "ip6tables-save"];

/// Rules about packets that come in at one of the ports, as the firewall prints them.
pub(crate) fn of_input(ports: &BTreeSet<u16>) -> Vec<String> {
    found(|text| filter_rules(text, ports))
}

/// NAT rules that redirect packets that come in at one of the ports.
pub(crate) fn of_nat(ports: &BTreeSet<u16>) -> Vec<String> {
    found(|text| nat_rules(text, ports))
}

fn found(rules: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let texts = PROGRAMS.into_iter().filter_map(|program| ask(program).ok());
    texts.flat_map(|text| rules(&text)).collect()
}

/// A program's output about the firewall.
fn ask(program: &str) -> io::Result<String> {
    let mut command = Command::new(program);
    if program == "nft" {
        command.args(["list", "ruleset"]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The lines of a rule set, of nft or iptables, about packets that come in at one of the ports.
fn filter_rules(text: &str, ports: &BTreeSet<u16>) -> Vec<String> {
    let (mut is_input, mut is_ours) = (false, false);
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim) {
        // a set that only a server of ours has; nft shows the sets of a table before its chains
        is_ours = (is_ours || line == "set alive {") && !line.starts_with("table ");
        if line.starts_with("chain ") {
            is_input = false;
        }
        // the chain's policy is in the same line
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

/// The lines of a rule set that redirect packets that come in at one of the ports.
fn nat_rules(text: &str, ports: &BTreeSet<u16>) -> Vec<String> {
    const WORDS: [&str; 4] = ["dnat", "redirect", "DNAT", "REDIRECT"];
    let mut is_output = false;
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("chain ") {
            is_output = false;
        }
        is_output |= line.contains("hook output");
        // packets that this machine sends do not come in
        let comes_in = !is_output && !line.starts_with("-A OUTPUT");
        let leads = line.split_whitespace().any(|word| WORDS.contains(&word));
        if comes_in && leads && names_port(line, ports) {
            lines.push(line.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn rules_of_nat_about_our_ports_are_found() {
        let ports = BTreeSet::from([80, 8443]);
        let nft = "table ip nat {\n\tchain output {\n\t\ttype nat hook output priority dstnat; policy \
                   accept;\n\t\ttcp dport 80 redirect to :8080\n\t}\n\tchain prerouting \
                   {\n\t\ttype nat hook prerouting priority dstnat; policy \
                   accept;\n\t\ttcp dport { 80, 81 } redirect to :8080\n\t\ttcp dport 22 dnat to \
                   192.0.2.1\n\t\ttcp dport 8443 dnat to 192.0.2.1:443\n\t\ttcp dport 80 accept\n\t}\n}\n";
        let found =
            ["tcp dport { 80, 81 } redirect to :8080", "tcp dport 8443 dnat to 192.0.2.1:443"];
        assert_eq!(nat_rules(nft, &ports), found);
        let iptables = "-A PREROUTING -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080\n\
                        -A PREROUTING -p tcp -m tcp --dport 81 -j DNAT --to-destination 192.0.2.1:80\n\
                        -A OUTPUT -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080\n";
        assert_eq!(nat_rules(iptables, &ports).len(), 1);
    }
}
