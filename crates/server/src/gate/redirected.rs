//! Ports of protected servers that a rule of NAT leads elsewhere.
//!
//! The gate stands before NAT. Where it completes handshakes it finds the socket that listens at the port, and NAT would lead
//! the first data to another one, which knows nothing of the connection.

use crate::firewall::rules;
use forebay_handler::policy::enforced::ProtectedServer;
use forebay_sys::stderr::say;
use std::collections::BTreeSet;

/// Says of which servers on this machine that is so.
pub(super) fn warn(protects: &[ProtectedServer]) {
    for rule in found(protects) {
        say(format_args!("gate: {}", in_words(&rule)));
    }
}

/// Rules of NAT about servers on this machine whose handshakes are completed. They are only looked for where there are any.
pub(crate) fn found(protects: &[ProtectedServer]) -> Vec<String> {
    let completed = protects.iter().filter(|one| one.forwarded_to.is_none() && !one.speaks_first);
    let ports: BTreeSet<u16> = completed.map(|one| one.port).collect();
    if ports.is_empty() {
        return Vec::new();
    }
    rules::of_nat(&ports)
}

/// What such a rule does.
pub(crate) fn in_words(rule: &str) -> String {
    format!(
        "a rule of NAT leads what comes in at the port of a protected server elsewhere, where connections that \
         the kernel has begun are not known: protect the port that the server listens at, or use gate = \
         \"address\": {rule}"
    )
}
