//! The client for HTTP/2: h2load.

use super::{Counted, ProgramLoad};
use std::process::Command;

/// The command line, but for the URL: `streams` at a time on each connection. h2load's counts after
/// a warm-up of its own include bytes of the warm-up, so there is none.
pub(super) fn command(streams: u32, load: &ProgramLoad<'_>, seconds: u32) -> Command {
    let mut command = Command::new(load.program);
    command.args(["--threads=1", "--npn-list=h2"]);
    command.arg(format!("--clients={}", load.connections));
    command.arg(format!("--max-concurrent-streams={streams}"));
    command.arg(format!("--duration={seconds}"));
    command
}

/// Reads the program's output.
pub(super) fn parse(text: &str) -> Option<Counted> {
    let after = |key| text.lines().find_map(|line| line.strip_prefix(key));
    let seconds = after("finished in ")?.split_once("s,")?.0;
    let requests = after("requests: ")?;
    let done = before(requests, " done")?;
    let statuses = after("status codes: ")?;
    let fine = before(statuses, " 2xx")? + before(statuses, " 3xx")?;
    Some(Counted {
        requests: done,
        duration_us: (seconds.parse::<f64>().ok()? * 1e6) as u64,
        bytes: before(after("traffic: ")?, ") data")?,
        read_errors: before(requests, " errored")?,
        status_errors: done.saturating_sub(fine).max(before(requests, " failed")?),
        timeouts: before(requests, " timeout")?,
        ..Counted::default()
    })
}

/// The number before `word`.
fn before(text: &str, word: &str) -> Option<u64> {
    text.split_once(word)?.0.rsplit([' ', '(']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "starting benchmark...\n\nfinished in 2.50s, 53767.00 req/s, 58.97MB/s\n\
        requests: 150 total, 160 started, 150 done, 147 succeeded, 3 failed, 2 errored, 1 timeout\n\
        status codes: 140 2xx, 7 3xx, 3 4xx, 0 5xx\n\
        traffic: 58.97MB (61832834) total, 5.54MB (5806836) headers (space savings 39.33%), \
        52.51MB (55057408) data\n\
        time for request:      136us      9.37ms      2.66ms      1.29ms    71.70%\n";

    #[test]
    fn the_counts_are_read() {
        let counted = parse(SAID).expect("counts");
        let expected = Counted {
            requests: 150,
            duration_us: 2_500_000,
            bytes: 55_057_408,
            read_errors: 2,
            status_errors: 3,
            timeouts: 1,
            ..Counted::default()
        };
        assert_eq!(counted, expected);
        assert_eq!(parse("spawning thread #0\n"), None);
    }
}
