//! Rules that ban addresses which are never banned: addresses of this machine, of
//! proxies and of administrators.

use super::LintSubject;
use crate::machine::own_addresses;
use forebay_config::draft::numbered;
use forebay_config::problem::Finding;
use forebay_config::spared::{self, SparedBan};
use forebay_config::{Remarks, Wrong};
use forebay_policy::spared::SparedAs;
use std::fmt;

/// A ban that only the server enforces, not the kernel or the firewall.
#[derive(Debug)]
struct BannedInVain(SparedBan);

impl Finding for BannedInVain {}

impl fmt::Display for BannedInVain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BannedInVain(SparedBan { client, why }) = self;
        write!(
            f,
            "{client:?} is {why}: the server alone refuses it, no kernel or firewall drops it"
        )?;
        match why {
            SparedAs::TrustedProxy => f.write_str("; with it all are shut out who come through it"),
            _ => Ok(()),
        }
    }
}

/// Finds rules that ban addresses which are never banned.
pub(super) fn rules(of: &LintSubject<'_>, remarks: &mut Remarks) {
    let listeners: Vec<_> = of.draft.all_listeners().into_iter().map(|(_, one)| one).collect();
    let process = &of.draft.process;
    let spared = spared::of(&process.trusted_proxies, &listeners, &process.admin, own_addresses);
    for (at, rule) in numbered("rule", &of.draft.rules) {
        if let Some(ban) = SparedBan::of(rule, &spared) {
            remarks.push((at.child("client"), Wrong::said(BannedInVain(ban))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::table::ConfigReader;

    #[test]
    fn a_rule_that_bans_who_is_spared_is_remarked() {
        let text = "root = \"/\"\ntrusted_proxies = [\"10.0.0.5\"]\n[[rule]]\n\
                    client = \"10.0.0.5\"\naction = \"drop\"\n";
        let mut reader = ConfigReader::new(text, "");
        let draft = reader.draft();
        let mut remarks = Vec::new();
        rules(&LintSubject { draft: &draft, text: &reader }, &mut remarks);
        let said: Vec<_> =
            remarks.into_iter().map(|(at, wrong)| format!("{}: {wrong}", at.shown)).collect();
        let expected = "rule.client: \"10.0.0.5\" is a trusted proxy (trusted_proxies): the server alone \
                        refuses it, no kernel or firewall drops it; with it all are shut out who come \
                        through it";
        assert_eq!(said, [expected]);
    }
}
