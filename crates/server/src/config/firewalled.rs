//! What keeps clients out of the firewall although it is to drop them: `forebay check` warns of it.

use super::draft::{ConfigDraft, numbered};
use super::path::Path as At;
use super::problem::Wrong;
use super::spared::{self, SparedBan};
use super::{FirewallMode, Listen};
use crate::firewall::{self, lists};

impl ConfigDraft {
    /// What this machine lacks.
    pub(crate) fn remark_no_firewall(&self, remarks: &mut Vec<(At, Wrong)>) {
        if self.process.firewall.mode != FirewallMode::Off {
            self.remark_no_firewall_on(firewall::lack(), remarks);
        }
    }

    /// The same for a machine that lacks this.
    fn remark_no_firewall_on(&self, lack: Option<String>, remarks: &mut Vec<(At, Wrong)>) {
        if let Some(why) = lack {
            let is_optional = self.process.firewall.mode == FirewallMode::Auto;
            let mode = At::default().child("firewall").child("mode");
            remarks.push((mode, Wrong::NoFirewall { why, is_optional }));
        }
    }

    /// Rules that ban who is never banned.
    pub(crate) fn remark_spared(&self, remarks: &mut Vec<(At, Wrong)>) {
        let listeners: Vec<_> = self.all_listeners().into_iter().map(|(_, one)| one).collect();
        let process = &self.process;
        let spared = spared::of(&process.trusted_proxies, &listeners, &process.admin);
        for (at, rule) in numbered("rule", &self.rules) {
            if let Some(SparedBan { client, why }) = SparedBan::of(rule, &spared) {
                remarks.push((at.child("client"), Wrong::Spared { client, why }));
            }
        }
    }

    /// What the firewall is not told of.
    pub(super) fn remark_firewall(&self, remarks: &mut Vec<(At, Wrong)>) {
        if self.process.firewall.mode == FirewallMode::Off {
            return;
        }
        let mode = At::default().child("firewall").child("mode");
        let mut has_any = false;
        for (index, (at, rule)) in numbered("rule", &self.rules).enumerate() {
            let rule = rule.to_policy(index);
            has_any |= lists::is_dropped(&rule);
            for (key, limit) in [("connections", &rule.connections), ("requests", &rule.requests)] {
                let Some(ignore_ms) = limit.as_ref().and_then(|limit| limit.ignore_ms) else {
                    continue;
                };
                has_any |= ignore_ms >= 2000;
                if ignore_ms < 2000 {
                    let at = at.child(key).child("ignore");
                    remarks.push((at, Wrong::TooShortForFirewall));
                }
            }
        }
        if !has_any {
            remarks.push((mode.clone(), Wrong::NothingForFirewall));
        }
        let listeners = self.all_listeners();
        let has_syns = listeners.iter().any(|(_, listener)| {
            !listener.proxy_protocol
                && listener.listen.iter().any(|one| !matches!(one.listen, Listen::Unix(_)))
        });
        if !has_syns && !listeners.is_empty() {
            remarks.push((mode, Wrong::NowhereForFirewall));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::table::ConfigReader;

    fn remarks(text: &str, lack: Option<&str>) -> Vec<String> {
        let text = format!("root = \"/\"\n{text}");
        let draft = ConfigReader::new(&text, "").draft();
        let mut remarks = Vec::new();
        draft.remark_no_firewall_on(lack.map(str::to_owned), &mut remarks);
        draft.remark_firewall(&mut remarks);
        remarks.into_iter().map(|(at, wrong)| format!("{}: {wrong}", at.shown)).collect()
    }

    #[test]
    fn a_rule_that_bans_who_is_spared_is_remarked() {
        let text = "root = \"/\"\ntrusted_proxies = [\"10.0.0.5\"]\n[[rule]]\n\
                    client = \"10.0.0.5\"\naction = \"drop\"\n";
        let draft = ConfigReader::new(text, "").draft();
        let mut remarks = Vec::new();
        draft.remark_spared(&mut remarks);
        let said: Vec<_> =
            remarks.into_iter().map(|(at, wrong)| format!("{}: {wrong}", at.shown)).collect();
        let expected = "rule.client: \"10.0.0.5\" is a trusted proxy (trusted_proxies): the server alone \
                        refuses it, no kernel or firewall drops it; with it all are shut out who come \
                        through it";
        assert_eq!(said, [expected]);
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
        let cases: [(String, Option<&str>, &[&str]); 9] = [
            (with("", limit), None, &[]),
            (with("", drop), None, &[]),
            (with("", "action = \"reset\""), None, &[nothing]),
            (with("", &format!("{drop}\nlocal = \"*:80\"")), None, &[nothing]),
            (with("", &format!("{drop}\nwhen = \"overload\"")), None, &[nothing]),
            (with("", &limit.replace("5s", "1s")), None, &[short, nothing]),
            (with("listen = [\"unix:/run/a\"]\n", limit), None, &[nowhere]),
            (
                with("", limit),
                Some("old"),
                &["firewall.mode: on this machine the server alone would refuse clients: old"],
            ),
            (
                with("", limit).replace("auto", "nftables"),
                Some("old"),
                &["firewall.mode: the server would not start on this machine: old"],
            ),
        ];
        for (text, lack, expected) in cases {
            assert_eq!(remarks(&text, lack), expected, "{text}");
        }
    }
}
