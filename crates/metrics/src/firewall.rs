//! The figures of the machine's firewall.

use crate::text::{announce, escape, line};
use std::fmt::Write;

/// The state of the server's nftables table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirewallFigures {
    /// The name of the table.
    pub table: String,
    /// Whether the table is in force.
    pub is_in_force: bool,
    /// The number of clients in the table now.
    pub clients: u64,
    /// The largest number of clients that there may be.
    pub most: u64,
    /// The number of ranges of addresses in the table that rules drop.
    pub listed: u64,
    /// How often a client was reported to the firewall.
    pub told: u64,
    /// How often a client was not reported, because there were too many.
    pub left_full: u64,
    /// How often a client was not reported, because more came at once than could be processed.
    pub left_busy: u64,
    /// SYNs that the firewall dropped because their client is in the table.
    pub dropped_clients: u64,
    /// SYNs that the firewall dropped because a rule drops their address.
    pub dropped_listed: u64,
}

/// The metrics and their help texts.
pub const OF_FIREWALL: [(&str, &str); 5] = [
    ("forebay_firewall_in_force", "Whether the server's table of nftables is in force, 0 or 1."),
    ("forebay_firewall_clients", "Clients whose SYNs the firewall drops now."),
    ("forebay_firewall_told_total", "How often the firewall was told of a client to drop."),
    (
        "forebay_firewall_left_total",
        "How often a client was left to the server alone, by reason: full (too many in the table), busy \
         (too many at once).",
    ),
    (
        "forebay_firewall_syns_dropped_total",
        "SYNs that the firewall has dropped, by what it knows them by: client (it was refused by a \
         limit), list (a rule drops its address).",
    ),
];

/// Writes the metrics in Prometheus' text format.
pub(crate) fn metrics(text: &mut String, figures: &FirewallFigures) {
    let [in_force, clients, told, left, dropped] = OF_FIREWALL;
    for ((metric, help), kind, value) in [
        (in_force, "gauge", u64::from(figures.is_in_force)),
        (clients, "gauge", figures.clients),
        (told, "counter", figures.told),
    ] {
        announce(text, metric, help, kind);
        line(text, metric, "", &value.to_string());
    }
    for ((metric, help), label, counts) in [
        (left, "reason", [("full", figures.left_full), ("busy", figures.left_busy)]),
        (dropped, "by", [("client", figures.dropped_clients), ("list", figures.dropped_listed)]),
    ] {
        announce(text, metric, help, "counter");
        for (value, count) in counts {
            line(text, metric, &format!("{label}=\"{value}\""), &count.to_string());
        }
    }
}

/// Writes the member of the JSON status.
pub(crate) fn json(text: &mut String, figures: &FirewallFigures) {
    let _ = write!(
        text,
        "\"firewall\":{{\"table\":\"{}\",\"in_force\":{},\"clients\":{},\"most_clients\":{},\"listed\":{},\
         \"told\":{},\"left\":{{\"full\":{},\"busy\":{}}},\
         \"syns_dropped\":{{\"client\":{},\"list\":{}}}}},",
        escape(&figures.table),
        figures.is_in_force,
        figures.clients,
        figures.most,
        figures.listed,
        figures.told,
        figures.left_full,
        figures.left_busy,
        figures.dropped_clients,
        figures.dropped_listed,
    );
}
