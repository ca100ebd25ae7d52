//! The workloads and the goals Forebay has in them.

/// What the client does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One request after the other on connections that stay.
    KeepAlive,
    /// A new connection for each request, `Connection: close` in both heads.
    Close,
    /// This many requests in one write, then all their answers.
    Pipelined(usize),
    /// Keep-alive with `If-None-Match` of the current ETag.
    NotModified,
}

/// What Forebay's CPU time per request is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The floor.
    Limit,
    /// The other server with the least CPU time per request in this case.
    BestPeer,
    /// This server.
    Peer(&'static str),
}

/// Forebay's CPU time per request divided by another's is to be at most this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The other.
    pub against: Against,
    /// The largest ratio that meets the goal.
    pub at_most: f64,
}

/// How a client of HTTP/2 asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Connections open at the same time.
    pub connections: u32,
    /// Requests at the same time on each of them.
    pub streams: u32,
}

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// As `--cases` takes it.
    pub name: &'static str,
    /// As the summary says it.
    pub title: &'static str,
    /// The file that is asked for.
    pub file: &'static str,
    /// Its size.
    pub body_bytes: usize,
    /// What the client does.
    pub mode: Mode,
    /// Whether every server writes its access log.
    pub log: bool,
    /// Whether it is asked for through TLS.
    pub tls: bool,
    /// Whether, and how, it is asked for with HTTP/2.
    pub http2: Option<Http2>,
    /// What is to be reached.
    pub goals: &'static [Goal],
}

const fn limit(at_most: f64) -> Goal {
    Goal { against: Against::Limit, at_most }
}

const fn best_peer(at_most: f64) -> Goal {
    Goal { against: Against::BestPeer, at_most }
}

const fn peer(name: &'static str, at_most: f64) -> Goal {
    Goal { against: Against::Peer(name), at_most }
}

const fn keep_alive(
    name: &'static str,
    title: &'static str,
    file: &'static str,
    body_bytes: usize,
    goals: &'static [Goal],
) -> Case {
    let mode = Mode::KeepAlive;
    Case { name, title, file, body_bytes, mode, log: false, tls: false, http2: None, goals }
}

const fn tls(
    name: &'static str,
    title: &'static str,
    case: Case,
    at_most: &'static [Goal],
) -> Case {
    Case { name, title, tls: true, goals: at_most, ..case }
}

const fn http2(
    name: &'static str,
    title: &'static str,
    case: Case,
    (connections, streams): (u32, u32),
    goals: &'static [Goal],
) -> Case {
    let http2 = Some(Http2 { connections, streams });
    Case { http2, ..tls(name, title, case, goals) }
}

const KIB: usize = 1024;
const AT_1K: &[Goal] = &[limit(1.10), best_peer(0.85)];
const SMALL: Case = keep_alive("1k", "1 KB, keep-alive", "1k.html", KIB, AT_1K);
const MEDIUM: Case =
    keep_alive("10k", "10 KB, keep-alive", "10k.html", 10 * KIB, &[best_peer(0.9)]);
const LARGE: Case =
    keep_alive("100k", "100 KB, keep-alive", "100k.html", 100 * KIB, &[best_peer(1.0)]);
const HUGE: Case = keep_alive("1m", "1 MB, keep-alive", "1m.html", 1024 * KIB, &[best_peer(1.0)]);

/// All workloads, in the order they are measured.
pub const CASES: &[Case] = &[
    SMALL,
    MEDIUM,
    LARGE,
    HUGE,
    Case {
        name: "10k-close",
        title: "10 KB, one request per connection",
        mode: Mode::Close,
        goals: &[best_peer(1.0)],
        ..MEDIUM
    },
    Case {
        name: "1k-pipelined",
        title: "1 KB, 16 pipelined",
        mode: Mode::Pipelined(16),
        goals: &[best_peer(0.25)],
        ..SMALL
    },
    Case {
        name: "1k-304",
        title: "304 to If-None-Match, keep-alive",
        mode: Mode::NotModified,
        goals: &[],
        ..SMALL
    },
    Case {
        name: "1k-log",
        title: "1 KB, keep-alive, access log on",
        log: true,
        goals: &[],
        ..SMALL
    },
    tls("1k-tls", "HTTPS, 1 KB, keep-alive", SMALL, &[best_peer(0.75)]),
    tls("10k-tls", "HTTPS, 10 KB, keep-alive", MEDIUM, &[best_peer(0.80)]),
    tls("100k-tls", "HTTPS, 100 KB, keep-alive", LARGE, &[best_peer(0.80)]),
    tls("1m-tls", "HTTPS, 1 MB, keep-alive", HUGE, &[best_peer(0.90)]),
    Case {
        mode: Mode::Close,
        ..tls(
            "1k-tls-close",
            "HTTPS, 1 KB, a full handshake for each request",
            SMALL,
            &[best_peer(0.55)],
        )
    },
    http2("1k-h2", "HTTP/2, 1 KB, 10 streams", SMALL, (16, 10), &[peer("h2o", 0.70)]),
    http2("1k-h2-1", "HTTP/2, 1 KB, one stream", SMALL, (64, 1), &[peer("h2o", 0.90)]),
    http2("10k-h2", "HTTP/2, 10 KB, 10 streams", MEDIUM, (16, 10), &[peer("h2o", 0.80)]),
    http2("100k-h2", "HTTP/2, 100 KB, 10 streams", LARGE, (16, 10), &[peer("h2o", 0.80)]),
];

/// The case called `name`.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for case in CASES {
            assert_eq!(find(case.name).map(|found| found.title), Some(case.title));
        }
        assert!(find("2k").is_none());
    }
}
