//! Remarks on clients that the firewall does not drop although it is on: `forebay check` warns of them.

use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::{FirewallMode, Listen};
use std::fmt;

/// Why clients that rules ignore are not dropped by the firewall.
#[derive(Debug)]
enum FirewallRemark {
    /// No rule or limit ignores clients.
    Nothing,
    /// No listener gets SYNs of clients.
    Nowhere,
    /// A client is ignored for less time than the firewall knows.
    TooShort,
}

impl Finding for FirewallRemark {}

impl fmt::Display for FirewallRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FirewallRemark::Nothing => f.write_str(
                "it has no effect: no limit says ignore, and no rule that asks for client only has \
                 action = \"drop\"",
            ),
            FirewallRemark::Nowhere => f.write_str(
                "it has no effect: SYNs of clients come to no listener, only those of proxies, or none at \
                 all to Unix sockets",
            ),
            FirewallRemark::TooShort => f.write_str(
                "the firewall is told of no client for less than 2s: the server alone ignores these",
            ),
        }
    }
}

impl ConfigDraft {
    /// Remarks on a firewall that has nothing to drop, and on limits that ignore clients for too short a
    /// time.
    pub(crate) fn remark_firewall(&self, remarks: &mut Vec<(At, Wrong)>) {
        if self.process.firewall.mode == FirewallMode::Off {
            return;
        }
        let mode = At::default().child("firewall").child("mode");
        let mut has_any = false;
        for (index, (at, rule)) in numbered("rule", &self.rules).enumerate() {
            let rule = rule.to_policy(index);
            has_any |= rule.drops_addresses();
            for (key, limit) in [("connections", &rule.connections), ("requests", &rule.requests)] {
                let Some(ignore_ms) = limit.as_ref().and_then(|limit| limit.ignore_ms) else {
                    continue;
                };
                has_any |= ignore_ms >= 2000;
                if ignore_ms < 2000 {
                    let at = at.child(key).child("ignore");
                    remarks.push((at, Wrong::said(FirewallRemark::TooShort)));
                }
            }
        }
        if !has_any {
            remarks.push((mode.clone(), Wrong::said(FirewallRemark::Nothing)));
        }
        let listeners = self.all_listeners();
        let has_syns = listeners.iter().any(|(_, listener)| {
            !listener.proxy_protocol
                && listener.listen.iter().any(|one| !matches!(one.listen, Listen::Unix(_)))
        });
        if !has_syns && !listeners.is_empty() {
            remarks.push((mode, Wrong::said(FirewallRemark::Nowhere)));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::table::ConfigReader;

    fn remarks(text: &str) -> Vec<String> {
        let text = format!("root = \"/\"\n{text}");
        let draft = ConfigReader::new(&text, "").draft();
        let mut remarks = Vec::new();
        draft.remark_firewall(&mut remarks);
        remarks.into_iter().map(|(at, wrong)| format!("{}: {wrong}", at.shown)).collect()
    }

    #[test]
    fn what_the_firewall_does_not_do_is_said() {
        let nothing = "firewall.mode: it has no effect: no limit says ignore, and no rule that asks for \
                       client only has action = \"drop\"";
        let nowhere = "firewall.mode: it has no effect: SYNs of clients come to no listener, only those of \
                       proxies, or none at all to Unix sockets";
        let short = "rule.requests.ignore: the firewall is told of no client for less than 2s: the server \
                     alone ignores these";
        let with = |before: &str, rule: &str| {
            format!("{before}[firewall]\nmode = \"auto\"\n[[rule]]\n{rule}\n")
        };
        let limit = "requests = { rate = \"1/s\", per = \"client\", ignore = \"5s\" }";
        let drop = "client = \"10.0.0.0/8\"\naction = \"drop\"";
        let cases: [(String, &[&str]); 8] = [
            (with("", limit), &[]),
            (with("", drop), &[]),
            (with("", "action = \"reset\""), &[nothing]),
            (with("", &format!("{drop}\nlocal = \"*:80\"")), &[nothing]),
            (with("", &format!("{drop}\nwhen = \"overload\"")), &[nothing]),
            (with("", &limit.replace("5s", "1s")), &[short, nothing]),
            (with("listen = [\"unix:/run/a\"]\n", limit), &[nowhere]),
            (with("", limit).replace("auto", "nftables"), &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(remarks(&text), expected, "{text}");
        }
    }
}
