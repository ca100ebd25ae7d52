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
