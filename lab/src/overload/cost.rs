//! The cost of refusals: a 503 on a connection that stays beside a small file from memory, and a
//! reset at accept beside a connection that is served.
//!
//! The cost is measured twice: as the processor time of the server alone and, as root, as all that
//! its core did while the kernel's work on received packets is steered to that core. Over loopback
//! the sender's core does that work otherwise, and a refusal looks cheaper than it is.

use super::bench::{Bench, Trial, group};
use super::row::Row;
use super::server::Server;
use super::{SITE_HEADERS, SITE_PAGES};
use crate::Error;
use crate::load::client;
use crate::network::Steered;
use forebay_load::GroupDraft;
use std::collections::BTreeMap;
use std::time::Duration;

/// The part's name.
pub const PART: &str = "cost";
/// The cases that are compared: a name, the path, the client's address, and whether each request
/// has a connection of its own.
const CASES: [(&str, &str, &str, bool); 5] = [
    ("1 KB hit", "/1k.html", "127.0.4.1", false),
    ("503", "/refused/1k.html", "127.0.4.1", false),
    (SITE_PAGE, "/refused/1k.html", "127.0.4.1", false),
    ("served connection", "/1k.html", "127.0.4.1", true),
    ("reset at accept", "/1k.html", "127.0.4.2", true),
];
/// The same refusal with a page of 1 KB and header rules of the site.
pub(super) const SITE_PAGE: &str = "503 with the site's page";
const CONNECTIONS: &str = "64";
/// The mark of cases in which the kernel's part counts.
pub(super) const WITH_KERNEL: &str = ": with the kernel's part";
/// Repetitions in a round: ratios are of the same repetition.
const REPEATED: u32 = 3;

/// The policy that serves and refuses in the cases.
pub(super) const POLICY: &str = "[[class]]\nname = \"all\"\npriority = 0\n\
    [[rule]]\nname = \"too many\"\npath = \"/refused/*\"\n\
    requests = { rate = \"1/m\", burst = 1, over = \"reject\" }\n\
    [[rule]]\nname = \"not you\"\nclient = [\"127.0.4.2\"]\naction = \"reset\"\n";

/// The policy, and the site's own pages for what it refuses.
pub(super) fn with_pages() -> String {
    format!("{SITE_PAGES}{POLICY}{SITE_HEADERS}")
}

/// One server with a policy, every case in turn.
///
/// # Errors
/// When it does not come up or the load cannot be made.
pub fn measure(bench: &mut Bench<'_>, round: u32, server: Server) -> Result<(), Error> {
    if !server.has_policy() {
        return Ok(());
    }
    let repeated = if bench.settings.quick { 1 } else { REPEATED };
    (1..=repeated).try_for_each(|turn| {
        let round = (round - 1) * repeated + turn;
        once(bench, round, server, "")?;
        match Steered::to(bench.run.options.server_core) {
            Ok(_steered) => once(bench, round, server, WITH_KERNEL),
            Err(error) => {
                eprintln!("overload: the kernel's part of refusals is not measured: {error}");
                Ok(())
            }
        }
    })
}

fn once(bench: &mut Bench<'_>, round: u32, server: Server, mode: &str) -> Result<(), Error> {
    for (case, url, source, own) in CASES {
        let name = format!("{case}{mode}");
        let trial = bench.trial(PART, round, &name, server, Duration::from_millis(1));
        let lines = if case == SITE_PAGE { with_pages() } else { POLICY.to_owned() };
        let trial = Trial { lines: &lines, ..trial };
        let (watched, mut rows) = bench.run(&trial, |base| {
            let mut all = GroupDraft::new("closed", Some(base));
            all.set("connections", CONNECTIONS);
            all.set("url", url);
            all.set("source", source);
            all.set("pause", "0s");
            if own {
                all.set("per_connection", "1");
            }
            Ok(vec![group(all)?])
        })?;
        for row in &mut rows {
            if mode == WITH_KERNEL {
                row.server_cores = row.core_busy;
            }
            row.figure = Some(row.server_cores / ended(row).max(1e-9) * 1e6);
        }
        check(case, &rows[0], &watched.report.groups[0].statuses)?;
        bench.keep(rows);
    }
    Ok(())
}

fn ended(row: &Row) -> f64 {
    row.good + row.refused + row.reset
}

/// Checks the statuses: a fast wrong answer is no result.
fn check(case: &str, row: &Row, statuses: &BTreeMap<u16, u64>) -> Result<(), Error> {
    let (happened, only) = match case {
        "503" | SITE_PAGE => (row.refused, Some(503)),
        "reset at accept" => (row.reset, None),
        _ => (row.good, Some(200)),
    };
    let others = statuses.keys().any(|status| Some(*status) != only);
    if others || happened < 0.99 * ended(row) || happened <= 0.0 {
        return Err(client(format!("{case} is not what happened: {statuses:?}, {row:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::row::tests::row;

    #[test]
    fn what_did_not_happen_is_an_error() {
        let refused = Row { refused: 100.0, ..row("503", "s", "closed", 0.0) };
        assert!(check("503", &refused, &BTreeMap::from([(503, 100)])).is_ok());
        assert!(check("503", &refused, &BTreeMap::from([(404, 100)])).is_err());
        assert!(check("1 KB hit", &refused, &BTreeMap::from([(503, 100)])).is_err());
        let reset = Row { reset: 100.0, ..row("reset at accept", "s", "closed", 0.0) };
        assert!(check("reset at accept", &reset, &BTreeMap::new()).is_ok());
    }
}
