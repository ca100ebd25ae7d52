//! Remarks on rules that the kernel does not enforce although `gate` is on: `forebay check` warns of them.
//! Where each rule is enforced, `forebay check --gate` shows.

use crate::checks::answers::{self, NoAnswers};
use crate::problems::path::Path as At;
use crate::problems::problem::{Finding, Wrong};
use crate::reading::draft::{ConfigDraft, numbered};
use crate::{GateMode, GateRules};
use forebay_policy::first::{EnforcedAt, enforced_at};
use forebay_policy::rule::Per;
use forebay_policy::syn;
use std::fmt;

/// The default of `protect.queue`.
const PRESET_QUEUE: u64 = 16;

/// A part of the policy that the kernel leaves to the server.
#[derive(Debug)]
enum GateRemark {
    /// The kernel enforces no rule.
    Nothing {
        /// Whether the gate is `full`, which can also queue connections by class.
        is_full: bool,
    },
    /// A limit on connections that only the server can enforce.
    NoLimit,
    /// Rules on first requests, while the gate does not complete handshakes.
    NotFull,
    /// A server to protect, while the gate is off.
    NoGate,
    /// A queue at another server, without what orders it: `gate = "full"`, two classes, a server on this
    /// machine.
    NoOrder,
    /// Nothing is answered in the kernel.
    NoAnswers(NoAnswers),
    /// Nothing of any site, or at any address.
    NoAnswersOf(&'static str),
}

impl Finding for GateRemark {}

impl fmt::Display for GateRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateRemark::Nothing { is_full } => {
                f.write_str(
                    "it has no effect: no rule that asks for client and local only refuses by \"reset\" or \
                     \"drop\"",
                )?;
                match is_full {
                    true => f.write_str(", and no rule gives one of two classes to queue by"),
                    false => Ok(()),
                }
            }
            GateRemark::NotFull => {
                f.write_str("it has no effect: it takes gate = \"full\"")
            }
            GateRemark::NoAnswers(why) => write!(f, "it has no effect: {why}"),
            GateRemark::NoAnswersOf(what) => write!(
                f,
                "it has no effect: there is no {what} of which the kernel could give answers (forebay check --gate)"
            ),
            GateRemark::NoGate => f.write_str("it has no effect: gate is off"),
            GateRemark::NoOrder => f.write_str(
                "it has no effect: connections are made by the order of classes with gate = \"full\", two \
                 classes, and a server on this machine",
            ),
            GateRemark::NoLimit => {
                f.write_str("the kernel leaves it to the server: it keeps no limit for each client")
            }
        }
    }
}

impl ConfigDraft {
    /// Remarks on what the kernel does not do for other servers.
    fn remark_protected(&self, remarks: &mut Vec<(At, Wrong)>) {
        let orders = self.process.gate == GateMode::Full && self.classes.len() > 1;
        for (at, other) in numbered("protect", &self.protects) {
            if self.process.gate == GateMode::Off {
                remarks.push((at, Wrong::said(GateRemark::NoGate)));
            } else if other.queue != PRESET_QUEUE && (!orders || other.address.is_some()) {
                remarks.push((at.child("queue"), Wrong::said(GateRemark::NoOrder)));
            }
        }
    }

    /// What keeps the kernel from giving answers.
    fn remark_answers(&self, remarks: &mut Vec<(At, Wrong)>) {
        if !self.process.gate_answers {
            return;
        }
        let (classes, rules) = (&self.classes, &self.rules);
        let of_all = answers::of_parts(&self.process, classes, rules, self.is_isolated());
        let mut said: Vec<_> = of_all.into_iter().map(GateRemark::NoAnswers).collect();
        let has_site = self.every_site().iter().any(|(_, site)| answers::of_site(site).is_empty());
        let has_address = self.all_listeners().iter().any(|(_, listener)| {
            let mut endpoints = listener.listen.iter();
            endpoints.any(|endpoint| answers::of_endpoint(listener, endpoint).is_none())
        });
        if !has_site {
            said.push(GateRemark::NoAnswersOf("site"));
        }
        if !has_address {
            said.push(GateRemark::NoAnswersOf("address"));
        }
        let at = || At::default().child("gate_answers");
        remarks.extend(said.into_iter().map(|remark| (at(), Wrong::said(remark))));
    }

    /// Which rules the kernel leaves to the server.
    pub(crate) fn remark_gate(&self, remarks: &mut Vec<(At, Wrong)>) {
        let judges = self.process.gate_rules == GateRules::FirstRequest;
        let sees = self.process.gate == GateMode::Full;
        self.remark_protected(remarks);
        self.remark_answers(remarks);
        if judges && !sees {
            remarks.push((At::default().child("gate_rules"), Wrong::said(GateRemark::NotFull)));
        }
        if self.process.gate == GateMode::Off {
            return;
        }
        let judges = judges && sees;
        // the gate queues first requests by the class that rules give
        let mut has_any = self.process.gate == GateMode::Full
            && self.classes.len() > 1
            && self.rules.iter().any(|rule| rule.class.is_some());
        for (index, (at, rule)) in numbered("rule", &self.rules).enumerate() {
            let rule = rule.to_policy(index);
            let mut places = enforced_at(&rule, judges).into_iter();
            has_any |= places.any(|(_, at)| matches!(at, EnforcedAt::FirstRequest { .. }));
            if !rule.is_for_connections() {
                // the kernel ignores clients that the server has refused
                let limits = [&rule.connections, &rule.requests];
                has_any |= limits.into_iter().flatten().any(|limit| limit.ignore_ms.is_some());
                continue;
            }
            has_any |= matches!(syn::acts(&rule), Ok(Some(_)));
            let limit = rule.connections.as_ref().filter(|limit| !limit.rate.is_unlimited());
            match limit.map(syn::limits) {
                Some(Ok(_)) => has_any = true,
                // the kernel judges such a limit by the first request, where it can send the error
                Some(Err(_)) if judges && limit.is_some_and(|limit| limit.per == Per::Rule) => {}
                Some(Err(_)) => {
                    remarks.push((at.child("connections"), Wrong::said(GateRemark::NoLimit)))
                }
                None => {}
            }
        }
        // answers are there without a rule
        if !has_any && !self.process.gate_answers {
            let is_full = self.process.gate == GateMode::Full;
            remarks
                .push((At::default().child("gate"), Wrong::said(GateRemark::Nothing { is_full })));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::table::ConfigReader;

    fn remarks(text: &str) -> Vec<String> {
        let draft = ConfigReader::new(text, "").draft();
        let mut remarks = Vec::new();
        draft.remark_gate(&mut remarks);
        remarks.into_iter().map(|(at, wrong)| format!("{}: {wrong}", at.shown)).collect()
    }

    #[test]
    fn what_the_kernel_does_not_do_is_said() {
        let limit =
            |per: &str| format!("[[rule]]\nconnections = {{ rate = \"1/s\", per = \"{per}\" }}\n");
        let on = |rules: &str| format!("root = \"/\"\ngate = \"auto\"\n{rules}");
        assert_eq!(remarks(&on(&limit("rule"))), [""; 0]);
        let each = "rule.connections: the kernel leaves it to the server: it keeps no limit for each client";
        let nothing = "gate: it has no effect: no rule that asks for client and local only refuses by \
                       \"reset\" or \"drop\"";
        assert_eq!(remarks(&on(&limit("client"))), [each, nothing]);
        let path = "[[rule]]\npath = \"/a\"\naction = \"drop\"\n";
        assert_eq!(remarks(&on(path)), [nothing]);
        let action = "[[rule]]\nclient = \"10.0.0.0/8\"\naction = \"drop\"\n";
        assert_eq!(remarks(&on(action)), [""; 0]);
        assert_eq!(remarks(&on(action).replace("auto", "address")), [""; 0]);
        let classes = "[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\npriority = 1\n";
        let by_url = format!("{classes}[[rule]]\npath = \"/a\"\nclass = \"a\"\n");
        assert_eq!(remarks(&on(&by_url)), [nothing]);
        assert_eq!(remarks(&on(&by_url).replace("auto", "full")), [""; 0]);
        let judging = |text: &str| {
            let full = "\"full\"\ngate_rules = \"first_request\"";
            text.replace("\"auto\"", full) + classes
        };
        assert_eq!(remarks(&judging(&on(path))), [""; 0]);
        assert_eq!(remarks(&judging(&on(&limit("rule")))), [""; 0]);
        let not_full = "gate_rules: it has no effect: it takes gate = \"full\"";
        let without = judging(&on(action)).replace("\"full\"", "\"address\"");
        assert_eq!(remarks(&without), [not_full]);
        assert_eq!(remarks(&judging(&on(action)).replace(classes, "")), [""; 0]);
        let other = "[[protect]]\nport = 8080\nqueue = 2\n";
        let off = on(action).replace("auto", "off") + other;
        assert_eq!(remarks(&off), ["protect: it has no effect: gate is off"]);
        assert_eq!(remarks(&(judging(&on(action)) + other)), [""; 0]);
        let no_order = "protect.queue: it has no effect: connections are made by the order of classes with \
                        gate = \"full\", two classes, and a server on this machine";
        assert_eq!(remarks(&(on(action) + other)), [no_order]);
        let forwarded = judging(&on(action)) + other + "address = \"192.0.2.7\"\n";
        assert_eq!(remarks(&forwarded), [no_order]);
        assert_eq!(remarks(&forwarded.replace("queue = 2\n", "")), [""; 0]);
        let answers = "root = \"/\"\ngate = \"full\"\ngate_answers = true\n";
        assert_eq!(
            remarks(answers),
            [
                "gate_answers: it has no effect: it takes gate_rules = \"first_request\", so that rules are asked before"
            ]
        );
        let answers = format!("{answers}gate_rules = \"first_request\"\n");
        assert_eq!(remarks(&answers), [""; 0]);
        assert_eq!(
            remarks(&(answers + "listen = [\"unix:/f.sock\"]\n[tls]\nredirect = 308\n")),
            ["site", "address"].map(|what| format!(
                "gate_answers: it has no effect: there is no {what} of which the kernel could give answers (forebay \
                 check --gate)"
            ))
        );
        let in_vain = format!("{nothing}, and no rule gives one of two classes to queue by");
        assert_eq!(remarks(&on(path).replace("auto", "full")), [in_vain]);
    }
}
