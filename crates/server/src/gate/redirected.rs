//! Warnings about NAT rules that redirect the ports of protected servers.
//!
//! The gate acts before NAT. Where it completes handshakes it finds the socket that listens at the
//! port, and NAT would send the first data to another one, which has no such connection.

use crate::firewall::rules;
use forebay_handler::policy::enforced::ProtectedServer;
use forebay_sys::stderr::say;
use std::collections::BTreeSet;

/// Logs each such rule about a server on this machine.
pub(super) fn warn(protects: &[ProtectedServer]) {
    for rule in found(protects) {
        say(format_args!("gate: {}", in_words(&rule)));
    }
}

/// NAT rules about servers on this machine whose handshakes the gate completes. Without such
/// servers no program is run.
pub(crate) fn found(protects: &[ProtectedServer]) -> Vec<String> {
    let completed = protects.iter().filter(|one| one.forwarded_to.is_none() && !one.speaks_first);
    let ports: BTreeSet<u16> = completed.map(|one| one.port).collect();
    if ports.is_empty() {
        return Vec::new();
    }
    rules::of_nat(&ports)
}

/// A message about such a rule.
pub(crate) fn in_words(rule: &str) -> String {
    format!(
        "a rule of NAT leads what comes in at the port of a protected server elsewhere, where connections that \
         the kernel has begun are not known: protect the port that the server listens at, or use gate = \
         \"address\": {rule}"
    )
}
