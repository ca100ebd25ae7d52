//! Workloads of static serving.

/// The way a client uses its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One request after the other on connections that stay.
    KeepAlive,
    /// A new connection for each request, `Connection: close` in both heads.
    Close,
    /// A batch of this many requests in one write, then all their answers.
    Pipelined(usize),
    /// Keep-alive with `If-None-Match` of the current ETag.
    NotModified,
}

/// The load of a client of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Load {
    /// Connections open at the same time.
    pub connections: u32,
    /// Requests at the same time on each of them.
    pub streams: u32,
}

/// One workload.
#[derive(Clone, Copy, Debug)]
pub struct StaticCase {
    /// The case's name, as `--cases` takes it.
    pub name: &'static str,
    /// The file that is asked for.
    pub file: &'static str,
    /// The body's size.
    pub body_bytes: usize,
    /// The way clients use their connections.
    pub mode: Mode,
    /// Whether every server writes its access log.
    pub log: bool,
    /// Whether the clients use TLS.
    pub tls: bool,
    /// Whether, and how, the clients use HTTP/2.
    pub http2: Option<Http2Load>,
}

const fn keep_alive(name: &'static str, file: &'static str, body_bytes: usize) -> StaticCase {
    let mode = Mode::KeepAlive;
    StaticCase { name, file, body_bytes, mode, log: false, tls: false, http2: None }
}

const fn tls(name: &'static str, case: StaticCase) -> StaticCase {
    StaticCase { name, tls: true, ..case }
}

const fn http2(
    name: &'static str,
    case: StaticCase,
    (connections, streams): (u32, u32),
) -> StaticCase {
    StaticCase { http2: Some(Http2Load { connections, streams }), ..tls(name, case) }
}

const KIB: usize = 1024;
const SMALL: StaticCase = keep_alive("1k", "1k.html", KIB);
const MEDIUM: StaticCase = keep_alive("10k", "10k.html", 10 * KIB);
const LARGE: StaticCase = keep_alive("100k", "100k.html", 100 * KIB);
const HUGE: StaticCase = keep_alive("1m", "1m.html", 1024 * KIB);

/// All workloads, in the order they are measured.
pub const CASES: &[StaticCase] = &[
    SMALL,
    MEDIUM,
    LARGE,
    HUGE,
    StaticCase { name: "10k-close", mode: Mode::Close, ..MEDIUM },
    StaticCase { name: "1k-pipelined", mode: Mode::Pipelined(16), ..SMALL },
    StaticCase { name: "1k-304", mode: Mode::NotModified, ..SMALL },
    StaticCase { name: "1k-log", log: true, ..SMALL },
    tls("1k-tls", SMALL),
    tls("10k-tls", MEDIUM),
    tls("100k-tls", LARGE),
    tls("1m-tls", HUGE),
    StaticCase { mode: Mode::Close, ..tls("1k-tls-close", SMALL) },
    http2("1k-h2", SMALL, (16, 10)),
    http2("1k-h2-1", SMALL, (64, 1)),
    http2("10k-h2", MEDIUM, (16, 10)),
    http2("100k-h2", LARGE, (16, 10)),
];

/// The case called `name`.
pub fn find(name: &str) -> Option<&'static StaticCase> {
    CASES.iter().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for case in CASES {
            assert_eq!(find(case.name).map(|found| found.name), Some(case.name));
            assert_eq!(CASES.iter().filter(|other| other.name == case.name).count(), 1);
        }
        assert!(find("2k").is_none());
    }
}
