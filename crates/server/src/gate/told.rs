//! The report of `forebay check --gate`: the rules that the kernel enforces, and why not the
//! others.

use forebay_config::answers::{self, NoAnswers};
use forebay_config::{Config, GateMode, GateRules, MachineAddress, ProtectConfig};
use forebay_policy::first::{EnforcedAt, enforced_at};
use forebay_policy::rule::Rule;
use std::fmt::{self, Write};

/// A line for each setting of a rule that refuses something.
pub fn report(config: &Config) -> String {
    // a configuration that was read has only valid rules
    let rules = config.policy().map(|policy| policy.rules().to_vec()).unwrap_or_default();
    let is_on = config.gate != GateMode::Off;
    let judges = config.gate == GateMode::Full && config.gate_rules == GateRules::FirstRequest;
    let mut text = String::new();
    if !is_on {
        text += "gate is off: every rule is enforced by the server. With gate = \"address\":\n";
    }
    for rule in &rules {
        let places = enforced_at(rule, judges);
        if places.is_empty() {
            let _ = writeln!(text, "rule \"{}\": refuses nothing", rule.name);
        }
        for (key, at) in places {
            let _ = writeln!(text, "rule \"{}\": {key}: {at}", rule.name);
        }
    }
    if judges {
        text += "What the first segment does not show is judged by the server: TLS, HTTP/2, heads over two \
                 segments, and requests behind the first of a connection.\n";
    }
    if config.gate_answers {
        answered(&mut text, config, &rules);
    }
    if is_on {
        config.protects.iter().for_each(|other| protected(&mut text, config, other, judges));
    }
    text
}

/// Adds for which sites and addresses the kernel gives answers, and which rules keep requests from them.
fn answered(text: &mut String, config: &Config, rules: &[Rule]) {
    let mut line = |what: fmt::Arguments<'_>, why: &[NoAnswers]| {
        let _ = match why {
            [] => writeln!(
                text,
                "answers: {what}: small files of the cache are answered in the kernel"
            ),
            _ => {
                let why: Vec<_> = why.iter().map(ToString::to_string).collect();
                writeln!(text, "answers: {what}: by the server alone: {}", why.join("; "))
            }
        };
    };
    let of_all = answers::of_process(config);
    if !of_all.is_empty() {
        return line(format_args!("all"), &of_all);
    }
    for listener in &config.listeners {
        for endpoint in &listener.listen {
            let why: Vec<_> = answers::of_endpoint(listener, endpoint).into_iter().collect();
            line(format_args!("address {endpoint}"), &why);
        }
    }
    for site in &config.sites {
        line(format_args!("site \"{}\"", site.name()), &answers::of_site(site));
    }
    for rule in rules {
        if enforced_at(rule, true).iter().any(|(_, at)| matches!(at, EnforcedAt::Server(_))) {
            let _ = writeln!(
                text,
                "answers: rule \"{}\": the requests that it may match are answered by the server alone",
                rule.name
            );
        }
    }
    *text += "Of a site, those answers are given that are the same for every client: forebay answers says of a \
              server that runs which these are, and why not the others.\n\
              The machine's firewall sees neither these requests nor their answers: clients that it drops are \
              answered all the same.\n\
              A request behind an answer of the kernel is judged there, as a first request is.\n";
}

/// Adds what the gate does for a protected server.
fn protected(text: &mut String, config: &Config, other: &ProtectConfig, judges: bool) {
    let port = other.port();
    let _ = match (other.address, judges) {
        (Some(MachineAddress(address)), _) => writeln!(
            text,
            "protect {address}, port {port}: packets are passed on to it, so its SYNs are judged by rules about \
             addresses alone, charged when they come, and refused by silence or a reset"
        ),
        (None, _) if config.gate == GateMode::Full && other.speaks_first() => writeln!(
            text,
            "protect port {port}: the server speaks first there (speaks_first), so SYNs alone are judged in the \
             kernel; what is left to the server above, nobody judges"
        ),
        (None, true) => writeln!(
            text,
            "protect port {port}: SYNs and first requests are judged in the kernel, and connections are made by \
             the order of classes; what is left to the server above, nobody judges: a rule that a first segment does \
             not tell is passed over, but a limit that is left to the server keeps those behind it from holding"
        ),
        (None, false) if config.gate == GateMode::Full => writeln!(
            text,
            "protect port {port}: SYNs are judged in the kernel, and connections are made by the order of \
             classes; what is left to the server above, nobody judges"
        ),
        (None, false) => writeln!(
            text,
            "protect port {port}: SYNs are judged in the kernel; what is left to the server above, nobody judges"
        ),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_config::parse;

    #[test]
    fn each_rule_is_told_where_it_is_enforced() {
        let rules = r#"
root = "/"
[[class]]
name = "gold"
priority = 0
[[class]]
name = "bulk"
priority = 1
[[rule]]
name = "foes"
client = "192.0.2.0/24"
action = "drop"
[[rule]]
name = "shop"
path = "/shop/*"
requests = { rate = "10/s" }
[[rule]]
name = "friends"
site = "a.example"
action = "allow"
"#;
        let report = |lines: &str| report(&parse(&format!("{lines}{rules}"), "/f.toml").unwrap());
        assert_eq!(
            report("gate = \"full\"\ngate_rules = \"first_request\"\n").lines().collect::<Vec<_>>()
                [..3],
            [
                "rule \"foes\": action: in the kernel, by its SYN",
                "rule \"shop\": requests: in the kernel, by the first request of a connection: 503, \
                 Retry-After: 1",
                "rule \"friends\": refuses nothing",
            ]
        );
        let off = report("");
        assert!(off.starts_with("gate is off"), "{off}");
        assert!(off.contains("by the server: first requests are not judged"), "{off}");
    }
}
