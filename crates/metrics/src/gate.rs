//! The counts of the kernel, where rules judge SYNs and first requests.

use crate::text::{announce, escape, line, object};
use std::fmt::Write;

/// The counts of the gate since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateFigures {
    /// The level at which the kernel works: `address` or `full`.
    pub rung: &'static str,
    /// Whether the kernel answers SYNs now, where classes have listening sockets.
    pub answers: bool,
    /// SYNs that the kernel answered.
    pub answered: u64,
    /// SYNs that the kernel did not answer, because a connection with the same addresses and ports has just
    /// ended.
    pub time_wait: u64,
    /// First segments with data of connections whose SYN the kernel answered, by outcome.
    pub first: Vec<(&'static str, u64)>,
    /// First segments whose class could be determined, by rank.
    pub by_rank: Vec<u64>,
    /// Whether first requests are judged in the kernel.
    pub judges_requests: bool,
    /// First requests that the kernel judged, by outcome.
    pub requests: Vec<(&'static str, u64)>,
    /// Segments of clients whose first request the kernel answered with an error, by outcome.
    pub behind: Vec<(&'static str, u64)>,
    /// Whether requests are answered there from the data cache.
    pub answers_requests: bool,
    /// Requests that might be answered there, by what became of them.
    pub served: Vec<(&'static str, u64)>,
    /// Segments of clients that have had an answer there, by what became of them.
    pub behind_served: Vec<(&'static str, u64)>,
    /// First segments with a wrong checksum, which were not judged.
    pub damaged: u64,
    /// Segments of such connections that were not passed on, by reason.
    pub held: Vec<(&'static str, u64)>,
    /// Interfaces on which the gate judges SYNs now.
    pub interfaces: u64,
    /// SYNs for the server's listeners, by outcome.
    pub syns: Vec<(&'static str, u64)>,
    /// Completed handshakes to which a limit applies, by outcome.
    pub handshakes: Vec<(&'static str, u64)>,
    /// TCP packets that the gate cannot parse, by reason.
    pub unread: Vec<(&'static str, u64)>,
    /// The counts of each rule.
    pub rules: Vec<GateRule>,
    /// The effects of the agent's limit on connections in the kernel, by class.
    pub classes: Vec<GateClass>,
}

/// The gate's counts of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateClass {
    /// The name of the class.
    pub name: String,
    /// First requests within the agent's limit, while there was one.
    pub admitted: u64,
    /// First requests over the limit, which were not passed on.
    pub dropped: u64,
}

/// The gate's counts of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateRule {
    /// The name of the rule.
    pub name: String,
    /// SYNs within the rule's limit on connections, and first requests within its limit on requests.
    pub admitted: u64,
    /// SYNs, handshakes and first requests that were dropped silently.
    pub dropped: u64,
    /// SYNs, handshakes and first requests that were refused with a reset.
    pub reset: u64,
    /// First requests that were refused with an error.
    pub answered: u64,
}

impl GateRule {
    fn outcomes(&self) -> [(&'static str, u64); 4] {
        [
            ("admitted", self.admitted),
            ("dropped", self.dropped),
            ("reset", self.reset),
            ("answered", self.answered),
        ]
    }
}

/// The metrics and their help texts.
pub const OF_GATE: [(&str, &str); 18] = [
    ("forebay_gate_rung", "How much of the policy the kernel enforces: address or full."),
    (
        "forebay_gate_answers",
        "Whether the kernel answers SYNs without state now, and queues connections by the class of their \
         first request.",
    ),
    ("forebay_gate_answered_syns_total", "SYNs answered in the kernel without state."),
    (
        "forebay_gate_time_wait_syns_total",
        "SYNs that were left to the stack, because they are in the place of a connection that has just \
         ended (TIME_WAIT): what comes of them waits in the common queue.",
    ),
    (
        "forebay_gate_first_segments_total",
        "First data of connections whose SYN was answered so, by what became of it: of_class is queued \
         with its class, full_… found the queue of its class full.",
    ),
    (
        "forebay_gate_first_requests_total",
        "Of these, those whose class could be told, by rank: 0 is the first class.",
    ),
    (
        "forebay_gate_requests_total",
        "First requests that were judged in the kernel (gate_rules = \"first_request\"), by what became of \
         them: answered is refused with an error, left_… went on to the server unjudged.",
    ),
    (
        "forebay_gate_refused_segments_total",
        "Segments of clients whose first request was refused with an error in the kernel, by what became of \
         them: the client's acknowledgement and FIN, and what it sent again.",
    ),
    (
        "forebay_gate_served_requests_total",
        "Requests that the kernel might have answered from the data cache (gate_answers), by what became of them: ok and \
         not_modified were answered, left_… went on to the server.",
    ),
    (
        "forebay_gate_served_segments_total",
        "Segments of clients that have had an answer from the kernel, by what became of them: adopted is a request with \
         which a connection of the server begins, lost is a reset.",
    ),
    (
        "forebay_gate_damaged_segments_total",
        "First segments with a wrong checksum, which were not judged.",
    ),
    (
        "forebay_gate_held_segments_total",
        "Segments of such connections that were not passed on: bare acknowledgements, and what came \
         before the first data.",
    ),
    ("forebay_gate_interfaces", "Interfaces whose SYNs are judged in the kernel now."),
    (
        "forebay_gate_syns_total",
        "SYNs for our listeners that the kernel has seen, by what became of them: left_… went on to the \
         server unjudged.",
    ),
    (
        "forebay_gate_handshakes_total",
        "Handshakes that were completed under a limit in the kernel, by what became of them; one that is \
         refused counts with each segment that tries again.",
    ),
    ("forebay_gate_unread_packets_total", "TCP packets that were left alone, by reason."),
    ("forebay_gate_rule_total", "What the kernel has decided by a rule, by rule and outcome."),
    (
        "forebay_gate_class_total",
        "First data of connections while the agent limited those of their class (overload level 3), by class \
         and outcome: dropped was not passed on, and comes again.",
    ),
];

/// Writes the metrics in Prometheus' text format.
pub(crate) fn metrics(text: &mut String, figures: &GateFigures) {
    let [
        rung,
        answers,
        answered,
        time_wait,
        first,
        by_rank,
        requests,
        behind,
        served,
        behind_served,
        damaged,
        held,
        interfaces,
        syns,
        handshakes,
        unread,
        rules,
        classes,
    ] = OF_GATE;
    announce(text, rung.0, rung.1, "gauge");
    line(text, rung.0, &format!("rung=\"{}\"", figures.rung), "1");
    announce(text, answers.0, answers.1, "gauge");
    line(text, answers.0, "", if figures.answers { "1" } else { "0" });
    announce(text, answered.0, answered.1, "counter");
    line(text, answered.0, "", &figures.answered.to_string());
    announce(text, time_wait.0, time_wait.1, "counter");
    line(text, time_wait.0, "", &figures.time_wait.to_string());
    announce(text, damaged.0, damaged.1, "counter");
    line(text, damaged.0, "", &figures.damaged.to_string());
    announce(text, by_rank.0, by_rank.1, "counter");
    for (rank, count) in figures.by_rank.iter().enumerate() {
        line(text, by_rank.0, &format!("rank=\"{rank}\""), &count.to_string());
    }
    announce(text, interfaces.0, interfaces.1, "gauge");
    line(text, interfaces.0, "", &figures.interfaces.to_string());
    for ((metric, help), label, counts) in [
        (syns, "outcome", &figures.syns),
        (handshakes, "outcome", &figures.handshakes),
        (unread, "reason", &figures.unread),
        (first, "outcome", &figures.first),
        (requests, "outcome", &figures.requests),
        (behind, "outcome", &figures.behind),
        (served, "outcome", &figures.served),
        (behind_served, "outcome", &figures.behind_served),
        (held, "reason", &figures.held),
    ] {
        announce(text, metric, help, "counter");
        for (value, count) in counts {
            line(text, metric, &format!("{label}=\"{value}\""), &count.to_string());
        }
    }
    announce(text, rules.0, rules.1, "counter");
    for rule in &figures.rules {
        for (outcome, count) in rule.outcomes() {
            let labels = format!("rule=\"{}\",outcome=\"{outcome}\"", escape(&rule.name));
            line(text, rules.0, &labels, &count.to_string());
        }
    }
    announce(text, classes.0, classes.1, "counter");
    for class in &figures.classes {
        for (outcome, count) in [("admitted", class.admitted), ("dropped", class.dropped)] {
            let labels = format!("class=\"{}\",outcome=\"{outcome}\"", escape(&class.name));
            line(text, classes.0, &labels, &count.to_string());
        }
    }
}

/// Writes the member of the JSON status.
pub(crate) fn json(text: &mut String, figures: &GateFigures) {
    let counts = |counts: &[(&'static str, u64)]| object(counts.iter().copied());
    let rule = |rule: &GateRule| format!("\"{}\":{}", escape(&rule.name), counts(&rule.outcomes()));
    let rules: Vec<String> = figures.rules.iter().map(rule).collect();
    let class = |class: &GateClass| {
        let outcomes = [("admitted", class.admitted), ("dropped", class.dropped)];
        format!("\"{}\":{}", escape(&class.name), counts(&outcomes))
    };
    let classes: Vec<String> = figures.classes.iter().map(class).collect();
    let _ = write!(
        text,
        "\"gate\":{{\"rung\":\"{}\",\"answers\":{},\"answered_syns\":{},\"time_wait_syns\":{},\"first_segments\":{},\
         \"first_requests\":{:?},\"judges_requests\":{},\"requests\":{},\"refused_segments\":{},\"answers_requests\":{},\"served_requests\":{},\"served_segments\":{},\"damaged_segments\":{},\"held_segments\":{},\"interfaces\":{},\"syns\":{},\"handshakes\":{},\"unread_packets\":{},\
         \"rules\":{{{}}},\"classes\":{{{}}}}},",
        figures.rung,
        figures.answers,
        figures.answered,
        figures.time_wait,
        counts(&figures.first),
        figures.by_rank,
        figures.judges_requests,
        counts(&figures.requests),
        counts(&figures.behind),
        figures.answers_requests,
        counts(&figures.served),
        counts(&figures.behind_served),
        figures.damaged,
        counts(&figures.held),
        figures.interfaces,
        counts(&figures.syns),
        counts(&figures.handshakes),
        counts(&figures.unread),
        rules.join(","),
        classes.join(",")
    );
}
