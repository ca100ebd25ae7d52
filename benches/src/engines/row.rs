//! One measurement, and the tables of medians.

use crate::engines::server::Server;
use crate::engines::workload::Workload;
use crate::summary::Spread;

/// One measurement.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which of the rounds.
    pub round: u32,
    /// What was asked.
    pub workload: Workload,
    /// Connections that were measured.
    pub connections: u32,
    /// Who answered.
    pub server: Server,
    /// Answers per second.
    pub rate: f64,
    /// Processor time of the server per answer, µs.
    pub cpu_us: f64,
    /// 99th percentile of the time from request to answer, µs.
    pub p99_us: f64,
    /// Failed requests.
    pub failed: u64,
    /// Most threads of the server.
    pub threads: u64,
    /// Most memory of the server's own, MiB.
    pub memory_mib: f64,
    /// How busy the load generator's core was, 0 to 1.
    pub client: f64,
}

impl Row {
    /// The names of the columns, for a file.
    pub const HEAD: &'static str = "round,workload,connections,server,rate_per_s,cpu_us,p99_us,failed,threads,memory_mib,client";

    /// As a line of a file.
    pub fn csv(&self) -> String {
        format!(
            "{},{},{},{},{:.0},{:.3},{:.0},{},{},{:.1},{:.2}",
            self.round,
            self.workload.name(),
            self.connections,
            self.server.name(),
            self.rate,
            self.cpu_us,
            self.p99_us,
            self.failed,
            self.threads,
            self.memory_mib,
            self.client
        )
    }
}

/// A client beside others that take next to nothing waits at most so many times as long as alone …
const TIMES: f64 = 2.0;
/// … and so much longer, µs.
const MORE_US: f64 = 10_000.0;

/// Whether clients wait for others that take next to nothing: their p99 beside those and alone, as markdown;
/// empty if not both were measured.
pub fn beside_stuck(rows: &[Row]) -> String {
    let of = |workload: Workload| rows.iter().filter(move |row| row.workload == workload);
    let mut seen = Vec::new();
    let mut text = String::new();
    for row in of(Workload::Stuck) {
        let is_like = |other: &&Row| {
            other.connections == row.connections && other.server.name() == row.server.name()
        };
        let p99 = |rows: &mut dyn Iterator<Item = &Row>| Spread::of(rows.map(|row| row.p99_us));
        let key = (row.connections, row.server.name());
        let alone = p99(&mut of(Workload::Medium).filter(is_like));
        let beside = p99(&mut of(Workload::Stuck).filter(is_like));
        let (Some(alone), Some(beside), false) = (alone, beside, seen.contains(&key)) else {
            continue;
        };
        seen.push(key);
        let is_met = beside.median <= TIMES * alone.median + MORE_US;
        text.push_str(&format!(
            "| {} | {} | {alone:.0} | {beside:.0} | {} |\n",
            row.connections,
            row.server.name(),
            if is_met { "yes" } else { "**no**" }
        ));
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\n### Beside clients that take next to nothing\n\n| connections | server | p99 alone, µs | beside \
         them, µs | at most {TIMES} × alone and {} ms |\n|---|---|---|---|---|\n{text}",
        MORE_US / 1e3
    )
}

/// Medians and spreads as markdown, one table for each workload and number of connections.
pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut seen = Vec::new();
    for row in rows {
        let key = (row.workload, row.connections);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        text.push_str(&format!(
            "\n### {}, {} connections\n\n| server | answers/s | CPU µs | p99 µs | failed | threads \
             | memory MiB |\n|---|---|---|---|---|---|---|\n",
            row.workload.name(),
            row.connections
        ));
        let of_key = rows.iter().filter(|row| (row.workload, row.connections) == key);
        let mut servers: Vec<&Server> = Vec::new();
        for row in of_key.clone() {
            if !servers.contains(&&row.server) {
                servers.push(&row.server);
            }
        }
        for server in servers {
            let mine: Vec<&Row> = of_key.clone().filter(|row| row.server == *server).collect();
            let spread = |value: fn(&Row) -> f64, digits: usize| {
                let spread = Spread::of(mine.iter().map(|row| value(row)));
                spread.map_or("–".into(), |spread| format!("{spread:.digits$}"))
            };
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} |\n",
                server.name(),
                spread(|row| row.rate, 0),
                spread(|row| row.cpu_us, 2),
                spread(|row| row.p99_us, 0),
                mine.iter().map(|row| row.failed).sum::<u64>(),
                spread(|row| row.threads as f64, 0),
                spread(|row| row.memory_mib, 1),
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: Workload, engine: &str, p99_us: f64) -> Row {
        Row {
            round: 1,
            workload,
            connections: 1,
            server: Server::Engine(engine.to_owned()),
            rate: 1.0,
            cpu_us: 1.0,
            p99_us,
            failed: 0,
            threads: 1,
            memory_mib: 1.0,
            client: 0.1,
        }
    }

    #[test]
    fn who_waits_beside_clients_that_take_nothing_is_told() {
        let rows = [
            row(Workload::Medium, "event", 100.0),
            row(Workload::Stuck, "event", 10_200.0),
            row(Workload::Medium, "pool", 100.0),
            row(Workload::Stuck, "pool", 10_201.0),
            // alone it was not measured
            row(Workload::Stuck, "fibers", 1.0),
        ];
        let text = beside_stuck(&rows);
        assert!(
            text.contains("| 1 | event | 100 (100–100) | 10200 (10200–10200) | yes |"),
            "{text}"
        );
        assert!(
            text.contains("| 1 | pool | 100 (100–100) | 10201 (10201–10201) | **no** |"),
            "{text}"
        );
        assert!(!text.contains("fibers"), "{text}");
        assert_eq!(beside_stuck(&rows[..1]), "");
    }
}
